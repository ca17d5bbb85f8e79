#!/bin/sh
# Tables for docs/results/syncs.md, in virtual time: holding requests back against the drive's own
# priority, and durable writes (FUA) against writes and a flush where the drive's cache is on.
#
#   benches/interfere-compare.sh [PROGRAM]
set -eu
program=${1:-target/release/manylogs}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
drives=cheetah-15k5,exos-x20
# The logs of the paper: 10 MB in every 100 MB.
layout=mlb:log=10M,group=100M

# NAME, then arguments of the program.
measure() {
	name=$1
	shift
	"$program" interfere --drive $drives --seed 1,2,3 --json "$out/$name.json" "$@" >/dev/null
}
held="$layout,latency=none,$layout,latency=5ms,$layout,latency=10ms,$layout,latency=20ms"
for load in "read 16 1M" "write 16 1M" "random 32 4K"; do
	# shellcheck disable=SC2086
	set -- $load
	measure "priority-$1" --policy "$held" --stream "$1" --stream-depth "$2" --stream-size "$3" \
		--priority off,on
	measure "raw-$1" --policy nologging --stream "$1" --stream-depth "$2" --stream-size "$3"
	measure "cache-$1" --policy "nologging,nologging:cache=off,$layout,$layout,cache=off" \
		--stream "$1" --stream-depth "$2" --stream-size "$3" --drive-cache on --sync-mode fua,flush
done
python3 "$(dirname "$0")/interfere-compare.py" "$out"
