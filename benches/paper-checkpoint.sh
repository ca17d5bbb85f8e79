#!/bin/sh
# After the paper's Fig. 8: how long it takes to bring home what an hour of each mix left in the
# logs, on a shingled drive with logs near the head (mlsmr) and on the paper's conventional drive
# (mlb-256), and the memory of the tables (section VI). The mixes of paper-mixes.sh, whose five
# minutes are stretched to an hour; nothing is brought home before its end, as the paper leaves that
# to off-hours. Prints a table for docs/results/shingled.md.
#
#   benches/paper-checkpoint.sh TRACES_DIR
#
# PROFILES in the environment is where the profiles are; `profiles` if it is not set.
set -eu
# Read by windows.sh.
# shellcheck disable=SC2034
traces=$1
manylogs=${MANYLOGS:-target/release/manylogs}
profiles=${PROFILES:-profiles}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=benches/windows.sh
. "$(dirname "$0")/windows.sh"

# A drive that cleans after ten minutes without a command, which no mix has.
sed 's/^idle_after_ms = .*/idle_after_ms = 600000.0/' "$profiles/st8000as0002.toml" \
    >"$work/shingled.toml"

hour() { # FILE DRIVE POLICIES TENANT...
    file=$1 drive=$2 policies=$3
    shift 3
    tenants=""
    for tenant in "$@"; do tenants="$tenants $work/$tenant"; done
    # 300 s in 3600. The names are ours and hold no blanks.
    # shellcheck disable=SC2086
    "$manylogs" replay $tenants --drive "$drive" --fit --rate 0.083333 --durability all --seeds 1 \
        --policy "$policies" --json "$work/$file" >"$work/log"
}

mix() { # NAME TENANT...
    name=$1
    shift
    hour conventional.json constellation-es3 mlb-256 "$@"
    hour shingled.json "$work/shingled.toml" slsmr,mlsmr "$@"
    python3 - "$name" "$work" <<'PYTHON'
import json, sys
name, work = sys.argv[1:]
load = lambda file: json.load(open(f"{work}/{file}.json"))["policies"]
mlb = load("conventional")["mlb-256"]
single, near = (load("shingled")[policy] for policy in ("slsmr", "mlsmr"))
for policy in (single, near):
    assert policy["smr"]["bands_cleaned"] == 0, "it cleaned within the hour"
home = mlb["checkpoint"]["simulated_seconds"]
cleaning = [policy["checkpoint"]["home_write_seconds"] for policy in (single, near)]
kib = lambda size: f"{size / 1024:,.0f}"
print(f"| {name} | {mlb['logged_writes']:,} | {home:,.1f} | {near['checkpoint']['home_writes']:,} "
      f"| {cleaning[1]:,.0f} ({cleaning[0]:,.0f}) | {cleaning[1] / max(home, 0.001):,.0f} "
      f"| {kib(mlb['mapping_table_bytes_max'])} | {kib(near['smr']['table_bytes_max'])} |")
PYTHON
}
echo "| mix | writes that mlb-256 logged | checkpoint, s | dirty bands of mlsmr \
| cleaning them, s (slsmr) | times as long | table of mlb-256, KiB | of mlsmr, KiB |"
echo "|---|---|---|---|---|---|---|---|"
mix W1 hadoop-r telegram-w cloud-w financial msr
mix W2 youcut-r telegram-w cloud-w financial msr
mix W3 genshin-r telegram-w cloud-x financial msr
mix W4 slideshow-r telegram-x cloud-w financial msr
mix W5 hadoop-r youcut-r telegram-w cloud-r msr
