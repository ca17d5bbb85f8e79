#!/bin/sh
# Five mixes of five tenants each, after workloads W1 to W5 of the paper's Table I, from public
# traces, replayed on a drive (the paper's by default) as the paper measured: every write durable,
# drive cache off, and its measure of speed-up, which nothing else here uses: latency of all
# requests with the first policy over that with another one, at each percentile from 1 to 99,
# averaged. Prints a table for docs/results/replays.md: the mean, in brackets p50 and p90, and the
# last policy's log swaps.
#
#   benches/paper-mixes.sh TRACES_DIR [DRIVE [UTILISATION [BASE [POLICY,... [OPTION...]]]]]
#
# Options are those of `manylogs replay`: `--outstanding 1` hands the drive one request at a time.
# Each tenant has a fifth of the drive, in the order of the list. With TURNS=5 in the environment
# each mix is replayed five times, each tenant being the first (outermost) once, and the figures are
# means over these; the mean of each turn follows behind a colon.
#
# With the drive st8000as0002, the base slsmr and the policy mlsmr it repeats the paper's Fig. 6c.
#
# TRACES_DIR holds hadoop_eternity9.Q.csv.zst, mob_{telegram,you_cut,genshin_impact,slideshow}_exec
# .csv.gz, cloudPhysicsIO.vscsi.zst, umass_financial1_first10k.disksim.zst and
# msr10k.rw_20_80.105.trace.zst.
set -eu
# Read by windows.sh.
# shellcheck disable=SC2034
traces=$1
drive=${2:-constellation-es3}
utilisation=${3:-0.5}
base=${4:-nologging}
policies=${5:-single-log,mlb-32,mlb-256}
shift "$(($# < 5 ? $# : 5))"
turns=${TURNS:-1}
case $turns in
[1-5]) ;;
*)
    echo "TURNS is $turns: expected 1 to 5, how many tenants are the first in turn" >&2
    exit 2
    ;;
esac
manylogs=${MANYLOGS:-target/release/manylogs}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# shellcheck source=benches/windows.sh
. "$(dirname "$0")/windows.sh"

# The mix of the first turn finds the rate; the others have the same.
replay_turn() { # TURN RATE TENANT... -- OPTION...
    turn=$1 rate=$2
    shift 2
    "$manylogs" replay "$@" --drive "$drive" --fit --rate "$rate" --utilisation "$utilisation" \
        --durability all --seeds 1 --no-checkpoint --policy "$base" --policy "$policies" \
        --json "$work/$turn.json" >"$work/log"
}

mix() { # NAME TENANT... -- OPTION...
    name=$1
    shift
    a=$1 b=$2 c=$3 d=$4 e=$5
    shift 6
    turn=0 rate=auto
    while [ "$turn" -lt "$turns" ]; do
        replay_turn "$turn" "$rate" "$work/$a" "$work/$b" "$work/$c" "$work/$d" "$work/$e" "$@"
        if [ "$turn" -eq 0 ]; then
            tenants="$a, $b, $c, $d, $e"
            rate=$(python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["rate"]["factor"])' "$work/0.json")
        fi
        first=$a a=$b b=$c c=$d d=$e e=$first
        turn=$((turn + 1))
    done
    python3 - "$name" "$tenants" "$rate" "$turns" "$work" <<'PYTHON'
import json, os, sys
name, tenants, rate, turns, work = sys.argv[1:]
runs = [json.load(open(f"{work}/{turn}.json"))["policies"] for turn in range(int(turns))]
base, *names = runs[0]
if not os.path.exists(f"{work}/head"):
    print(f"| mix | tenants | rate | {' | '.join(names)} | swaps |")
    print(f"|---|---|---|{'---|' * (len(names) + 1)}")
    open(f"{work}/head", "w").close()
mean = lambda values: sum(values) / len(values)
print(f"| {name} | {tenants} | {rate} |", end="")
for policy in names:
    of_turns = []
    for run in runs:
        old, new = (run[which]["all_at_percentiles_us"] for which in (base, policy))
        # Half of a histogram's unit stands for no latency at all.
        of_turns.append([max(a, 0.5) / max(b, 0.5) for a, b in zip(old, new)])
    p50, p90 = (mean([ratios[at] for ratios in of_turns]) for at in (49, 89))
    means = [mean(ratios) for ratios in of_turns]
    each = ": " + ", ".join(f"{value:.2f}" for value in means) if len(means) > 1 else ""
    print(f" {mean(means):.2f} ({p50:.2f}, {p90:.2f}){each} |", end="")
print(f" {mean([run[names[-1]]['log_swaps'] for run in runs]):.0f} |")
PYTHON
}
mix W1 hadoop-r telegram-w cloud-w financial msr -- "$@"
mix W2 youcut-r telegram-w cloud-w financial msr -- "$@"
mix W3 genshin-r telegram-w cloud-x financial msr -- "$@"
mix W4 slideshow-r telegram-x cloud-w financial msr -- "$@"
mix W5 hadoop-r youcut-r telegram-w cloud-r msr -- "$@"
