#!/bin/sh
# What logs near the head are made for: a read anywhere and then a small durable write anywhere,
# 4000 times, on a shingled drive with one cache (slsmr) and with logs near the head (mlsmr), and so
# many requests at a time. Prints a table for docs/results/shingled.md.
#
#   benches/paper-pairs.sh [DRIVE]
set -eu
drive=${1:-st8000as0002}
manylogs=${MANYLOGS:-target/release/manylogs}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 - >"$work/pairs.csv" <<'PYTHON'
import random
places = random.Random(3)
print("t_ns,op,lba,sectors,fua,dev")
for pair in range(4000):
    for op in "RW":
        print(f"{pair},{op},{places.randrange(1_700_000_000) * 8},8,0,0")
PYTHON
echo "| requests at a time | slsmr, ms a pair | mlsmr | times as fast |"
echo "|---|---|---|---|"
for depth in 1 2 8 32; do
    "$manylogs" replay "$work/pairs.csv" --loop closed --depth "$depth" --drive "$drive" \
        --durability all --seeds 1 --no-checkpoint --policy slsmr,mlsmr \
        --json "$work/pairs.json" >"$work/log"
    python3 - "$depth" "$work/pairs.json" <<'PYTHON'
import json, sys
depth, file = sys.argv[1:]
policies = json.load(open(file))["policies"]
single, near = (policies[name]["simulated_seconds"] * 1000 / 4000 for name in ("slsmr", "mlsmr"))
print(f"| {depth} | {single:.1f} | {near:.1f} | {single / near:.2f} |")
PYTHON
done
