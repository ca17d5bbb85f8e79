#!/bin/sh
# The sample trace on every drive: prints the table of docs/results.md.
set -eu
manylogs=${MANYLOGS:-target/release/manylogs}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for drive in exos-x20 constellation-es3 wd5000ys cheetah-15k5; do
    "$manylogs" replay traces/pgbench-beside-reader.trace.zst --drive "$drive" --fit --rate auto \
        --json "$work/$drive.json" >"$work/log"
    python3 - "$drive" "$work/$drive.json" <<'PYTHON'
import json, sys
result = json.load(open(sys.argv[2]))
policies = result["policies"]
def latency(policy):
    figures = policies[policy]["latency_us"]
    return f"{figures['p50'] / 1e3:.1f} / {figures['p99'] / 1e3:.1f}"
def speedup(policy, what="mean"):
    return f"{policies[policy]['speedup_over_nologging'][what + '_over_percentiles']:.2f}"
cells = [
    sys.argv[1], result["rate"]["factor"], latency("nologging"), latency("mlb-256"),
    speedup("single-log"), speedup("mlb-32"), speedup("mlb-256"),
    f"{speedup('mlb-256', 'reads_mean')} / {speedup('mlb-256', 'writes_mean')}",
]
print("|", " | ".join(str(cell) for cell in cells), "|")
checkpoint = policies["mlb-256"]["checkpoint"]
print("  emptying the logs:", checkpoint["simulated_seconds"], "s,",
      checkpoint["writes_saved_percent"], "% of writes and",
      checkpoint["sectors_saved_percent"], "% of sectors saved", file=sys.stderr)
PYTHON
done
