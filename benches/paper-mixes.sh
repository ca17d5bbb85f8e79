#!/bin/sh
# Five mixes of five tenants each, after workloads W1 to W5 of the paper's Table I, from public
# traces, replayed on a drive (the paper's by default). Prints a table for docs/results.md.
#
#   benches/paper-mixes.sh TRACES_DIR [DRIVE [UTILISATION]]
#
# TRACES_DIR holds hadoop_eternity9.Q.csv.zst, mob_{telegram,you_cut,genshin_impact,slideshow}_exec
# .csv.gz, cloudPhysicsIO.vscsi.zst, umass_financial1_first10k.disksim.zst and
# msr10k.rw_20_80.105.trace.zst.
set -eu
traces=$1
drive=${2:-constellation-es3}
utilisation=${3:-0.5}
manylogs=${MANYLOGS:-target/release/manylogs}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cut() { # NAME FILE WINDOW
    "$manylogs" trace convert "$traces/$2" --window "$3" -o "$work/$1" >"$work/log"
}
cut hadoop-r hadoop_eternity9.Q.csv.zst busiest-reads:5m
cut youcut-r mob_you_cut_exec.csv.gz busiest-reads:5m
cut genshin-r mob_genshin_impact_exec.csv.gz busiest-reads:5m
cut slideshow-r mob_slideshow_exec.csv.gz busiest-reads:5m
cut telegram-w mob_telegram_exec.csv.gz busiest-writes:5m
cut telegram-x mob_telegram_exec.csv.gz random:5m
cut cloud-w cloudPhysicsIO.vscsi.zst busiest-writes:5m
cut cloud-r cloudPhysicsIO.vscsi.zst busiest-reads:5m
cut cloud-x cloudPhysicsIO.vscsi.zst random:5m
cut financial umass_financial1_first10k.disksim.zst 0+5m
cut msr msr10k.rw_20_80.105.trace.zst 0+5m

mix() { # NAME TENANT...
    name=$1
    shift
    tenants=""
    for tenant in "$@"; do tenants="$tenants $work/$tenant"; done
    # The names are ours and hold no blanks.
    # shellcheck disable=SC2086
    "$manylogs" replay $tenants --drive "$drive" --fit --rate auto --utilisation "$utilisation" \
        --json "$work/$name.json" >"$work/log"
    python3 - "$name" "$work/$name.json" "$@" <<'PYTHON'
import json, sys
name, file, tenants = sys.argv[1], sys.argv[2], sys.argv[3:]
result = json.load(open(file))
print(f"| {name} | {', '.join(tenants)} | {result['rate']['factor']} |", end="")
for policy in ["single-log", "mlb-32", "mlb-256"]:
    speedup = result["policies"][policy]["speedup_over_nologging"]
    print(f" {speedup['mean_over_percentiles']:.2f}"
          f" ({speedup['p50']:.2f}, {speedup['p90']:.2f}) |",
          end="")
print(f" {result['policies']['mlb-256']['log_swaps']} |")
PYTHON
}
echo "| mix | tenants | rate | single-log | mlb-32 | mlb-256 | swaps |"
echo "|---|---|---|---|---|---|---|"
mix W1 hadoop-r telegram-w cloud-w financial msr
mix W2 youcut-r telegram-w cloud-w financial msr
mix W3 genshin-r telegram-w cloud-x financial msr
mix W4 slideshow-r telegram-x cloud-w financial msr
mix W5 hadoop-r youcut-r telegram-w cloud-r msr
