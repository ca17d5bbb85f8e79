#!/bin/sh
# Five mixes of five tenants each, after workloads W1 to W5 of the paper's Table I, from public
# traces, replayed on a drive (the paper's by default) as the paper measured: every write durable,
# drive cache off, and its measure of speed-up, which nothing else here uses: latency of all
# requests without logging over that with the policy, at each percentile from 1 to 99, averaged.
# Prints a table for docs/results.md.
#
#   benches/paper-mixes.sh TRACES_DIR [DRIVE [UTILISATION [BASE POLICY,...]]]
#
# With the drive st8000as0002, the base slsmr and the policy mlsmr it repeats the paper's Fig. 6c.
#
# TRACES_DIR holds hadoop_eternity9.Q.csv.zst, mob_{telegram,you_cut,genshin_impact,slideshow}_exec
# .csv.gz, cloudPhysicsIO.vscsi.zst, umass_financial1_first10k.disksim.zst and
# msr10k.rw_20_80.105.trace.zst.
set -eu
traces=$1
drive=${2:-constellation-es3}
utilisation=${3:-0.5}
base=${4:-nologging}
policies=${5:-single-log,mlb-32,mlb-256}
manylogs=${MANYLOGS:-target/release/manylogs}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$(dirname "$0")/windows.sh"

mix() { # NAME TENANT...
    name=$1
    shift
    tenants=""
    for tenant in "$@"; do tenants="$tenants $work/$tenant"; done
    # The names are ours and hold no blanks.
    # shellcheck disable=SC2086
    "$manylogs" replay $tenants --drive "$drive" --fit --rate auto --utilisation "$utilisation" \
        --durability all --seeds 1 --policy "$base,$policies" \
        --json "$work/$name.json" >"$work/log"
    python3 - "$name" "$work/$name.json" "$base" "$policies" "$@" <<'PYTHON'
import json, sys
name, file, against, names = sys.argv[1:5]
tenants, names = sys.argv[5:], names.split(",")
result = json.load(open(file))
policies = result["policies"]
print(f"| {name} | {', '.join(tenants)} | {result['rate']['factor']} |", end="")
base = policies[against]["all_at_percentiles_us"]
for policy in names:
    own = policies[policy]["all_at_percentiles_us"]
    # Half of a histogram's unit stands for no latency at all.
    ratios = [max(a, 0.5) / max(b, 0.5) for a, b in zip(base, own)]
    mean = sum(ratios) / len(ratios)
    print(f" {mean:.2f} ({ratios[49]:.2f}, {ratios[89]:.2f}) |", end="")
print(f" {policies[names[-1]]['log_swaps']} |")
PYTHON
}
echo "| mix | tenants | rate | $(echo "$policies" | sed 's/,/ | /g') | swaps |"
echo "|---|---|---|$(echo "$policies" | sed 's/[^,]*,*/---|/g')---|"
mix W1 hadoop-r telegram-w cloud-w financial msr
mix W2 youcut-r telegram-w cloud-w financial msr
mix W3 genshin-r telegram-w cloud-x financial msr
mix W4 slideshow-r telegram-x cloud-w financial msr
mix W5 hadoop-r youcut-r telegram-w cloud-r msr
