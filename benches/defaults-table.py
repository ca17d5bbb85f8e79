#!/usr/bin/env python3
"""Tables of docs/results/replays.md from the rows of benches/defaults.sh."""
import csv
import sys
from collections import defaultdict

rows = list(csv.DictReader(open(sys.argv[1])))
cells = defaultdict(list)
for row in rows:
    cells[row["trace"], row["drive"], row["policy"]].append(row)
traces = list(dict.fromkeys(row["trace"] for row in rows))
drives = list(dict.fromkeys(row["drive"] for row in rows))
policies = [p for p in dict.fromkeys(row["policy"] for row in rows) if p.startswith("mlb")]
FIGURES = ["durable_mean_us", "durable_p50_us", "durable_p90_us", "durable_p99_us",
           "reads_mean_us", "stream_mb_s"]


def mean(trace, drive, policy, figure):
    values = [float(row[figure]) for row in cells[trace, drive, policy] if row[figure]]
    return sum(values) / len(values) if values else None


def base(trace, drive):
    plain = ["nologging", "nologging:cache=off"]
    return min(plain, key=lambda p: mean(trace, drive, p, "durable_mean_us") or float("inf"))


def times(trace, drive, policy, figure):
    there = mean(trace, drive, base(trace, drive), figure)
    here = mean(trace, drive, policy, figure)
    if not there or not here:
        return None
    return here / there if figure == "stream_mb_s" else there / here


def text(ratio):
    return "-" if ratio is None else f"{ratio:.0f}" if ratio >= 20 else f"{ratio:.2f}"


print("| trace | " + " | ".join(f"{drive}: mlb | mlb-paper" for drive in drives) + " |")
print("|---|" + "---|" * (2 * len(drives)))
for trace in traces:
    line = []
    for drive in drives:
        for policy in ["mlb", "mlb-paper"]:
            pair = [times(trace, drive, policy, f) for f in ["durable_mean_us", "reads_mean_us"]]
            line.append(" / ".join(text(ratio) for ratio in pair))
    print(f"| {trace} | " + " | ".join(line) + " |")
print()
print("| policy | durable mean | p50 | p90 | p99 | reads mean | streams |")
print("|---|---|---|---|---|---|---|")
for policy in policies:
    line = []
    for figure in FIGURES:
        ratios = [times(t, d, policy, figure) for t in traces for d in drives]
        ratios = [ratio for ratio in ratios if ratio is not None]
        line.append(f"{sum(ratio < 0.99 for ratio in ratios)} of {len(ratios)}, "
                    f"least {min(ratios):.2f}")
    print(f"| {policy} | " + " | ".join(line) + " |")
