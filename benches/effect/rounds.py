#!/usr/bin/env python3
"""A table of databases on the plain drive and on the volume, each figure the median of the rounds.

benches/effect/rounds.py out/effect-1.jsonl out/effect-2.jsonl ...

Void runs do not count; where all rounds of a cell are void it says so.
"""

import json
import statistics
import sys

LOADS = {"pg": "PostgreSQL", "wt-33": "flush every 33 ms", "wt-1": "flush every 1 ms"}


def read(paths):
    """The runs that count, by (drive, load, stream, device)."""
    cells = {}
    for path in paths:
        with open(path, encoding="utf-8") as lines:
            for line in lines:
                run = json.loads(line)
                if run["beside"] in LOADS and not run["void"]:
                    key = run["drive"], run["beside"], run["stream"], run["on"]
                    cells.setdefault(key, []).append(run)
    return cells


def median(runs, value):
    found = [value(run) for run in runs or []]
    return statistics.median(found) if found and None not in found else None


def shown(value, digits=0):
    return "-" if value is None else f"{value:.{digits}f}"


def ratio(volume, plain):
    return "-" if None in (volume, plain) else f"{volume / plain:.2f}"


def main(paths):
    if not paths:
        sys.exit(__doc__)
    try:
        cells = read(paths)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"{error}: expected files that benches/effect/run.sh wrote")
    print("| drive | load | stream, MB/s: plain, volume | operations/s: plain, volume | "
          "p99, ms: plain, volume | operations, times | stream, times |")
    print("|---|---|---|---|---|---|---|")
    for drive, load, stream in sorted({key[:3] for key in cells}):
        plain = cells.get((drive, load, stream, "raw"))
        volume = cells.get((drive, load, stream, "volume"))
        figures = [
            lambda run: run["stream_mb_per_s"],
            lambda run: run["small"]["per_s"],
            lambda run: run["small"]["p99_ms"],
        ]
        both = [(median(plain, figure), median(volume, figure)) for figure in figures]
        row = [", ".join(shown(value) for value in pair) for pair in both]
        name = LOADS[load] + (", alone" if stream == "none" else ", beside the reader")
        times = [ratio(volume, plain) for plain, volume in (both[1], both[0])]
        print(f"| {drive} | {name} | {' | '.join(row)} | {' | '.join(times)} |")


if __name__ == "__main__":
    main(sys.argv[1:])
