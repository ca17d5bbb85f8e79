#!/bin/sh
# Databases on the plain drive and on the volume in turn, three rounds, as one run in real time says
# little: each round's figures are in out/effect-N.jsonl, and what is there is not run again.
#
#   benches/effect/rounds.sh [ROUNDS]     (root; make effect PARTS=databases installs what it needs)
set -eu
cd "$(dirname "$0")/../.."
rounds=${1:-3}
mkdir -p out
for round in $(seq "$rounds"); do
	for drive in cheetah-15k5 exos-x20; do
		DRIVES=$drive SYSTEMS=ext4-ordered OUT=out/effect-$round.jsonl benches/effect/run.sh databases
	done
done
exec benches/effect/rounds.py out/effect-[0-9].jsonl
