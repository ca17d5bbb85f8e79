#!/bin/sh
# What the defaults gain and lose: ours, the paper's layout, and other distances between logs, on
# public traces, mixes of them (see paper-mixes.sh) and the sample, on every drive. Prints tables
# for docs/results/replays.md; CSV has every run.
#
#   benches/defaults.sh TRACES_DIR [CSV]
set -eu
traces=$1
csv=${2:-}
manylogs=${MANYLOGS:-target/release/manylogs}
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$here/windows.sh"
cp "$here/../traces/pgbench-beside-reader.trace.zst" "$work/sample"
cat >"$work/sweep.toml" <<TOML
traces = [
    "sample", "synthetic", "hadoop-r", "youcut-r", "genshin-r", "slideshow-r", "telegram-w",
    "cloud-w", "financial", "msr",
    ["hadoop-r", "telegram-w", "cloud-w", "financial", "msr"],
    ["youcut-r", "telegram-w", "cloud-w", "financial", "msr"],
    ["genshin-r", "telegram-w", "cloud-x", "financial", "msr"],
    ["slideshow-r", "telegram-x", "cloud-w", "financial", "msr"],
    ["hadoop-r", "youcut-r", "telegram-w", "cloud-r", "msr"],
]
drives = ["exos-x20", "constellation-es3", "wd5000ys", "cheetah-15k5"]
policies = [
    "nologging", "nologging:cache=off", "mlb", "mlb-paper", "mlb:group=300M", "mlb:group=1G",
    "mlb:adaptive=on", "mlb:appends=2",
]
seeds = 2
limit = 60000
rate = "auto"
fit = true
[output]
csv = "out.csv"
TOML
"$manylogs" sweep "$work/sweep.toml" >"$work/log"
"$here/defaults-table.py" "$work/out.csv"
if [ -n "$csv" ]; then cp "$work/out.csv" "$csv"; fi
