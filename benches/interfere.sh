#!/bin/sh
# Checks what the scheduler promises, in virtual time, and prints a table: share of a stream kept
# and latency of syncs beside it, on both drives, with requests held back for records.
#
#   benches/interfere.sh [PROGRAM]    FAST=1: one seed, one age limit, three depths
set -eu
program=${1:-target/release/manylogs}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
if [ -n "${FAST:-}" ]; then
	seeds=1 ages=500ms depths=1,2,16
else
	seeds=1,2,3 ages=20ms,100ms,500ms depths=1,2,4,8,16,32
fi
drives=cheetah-15k5,exos-x20
# The logs of the paper: 10 MB in every 100 MB. Settings are the defaults.
layout=mlb:log=10M,group=100M

# NAME, then arguments of the program.
measure() {
	name=$1
	shift
	"$program" interfere --drive $drives --at outer,inner --seed $seeds --json "$out/$name.json" "$@" \
		>/dev/null
}
common="--policy $layout --age-limit $ages"
measure read $common --stream-depth $depths --stream-size 128K,256K,512K,1M
measure write $common --stream write --stream-depth $depths --stream-size 512K,1M
measure journal $common --sync-mode journal --stream-depth $depths
measure hold --policy $layout,hold=60ms --age-limit $ages --sync-clients 16 \
	--stream-depth $depths
measure random $common --stream random --stream-depth 32
measure priority $common --stream random --stream-depth 32 --priority on
python3 "$(dirname "$0")/interfere-gates.py" "$out"
