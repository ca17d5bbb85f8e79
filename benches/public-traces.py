#!/usr/bin/env python3
"""Replays the public traces that docs/traces.md names, under the paper's policy and our default,
beside the plain drive, and prints a table for each drive. They are no traces of the paper: they
stand beside `manylogs reproduce manylogs`, whose tenants are generated.

    benches/public-traces.py FOLDER [--manylogs PROGRAM]

The first 60,000 requests of each, at half of the plain drive's time, addresses fitted to the drive.
Where one of the three does not keep up, the row says "too much".
"""
import argparse
import tempfile

from scheduler import DRIVES, converted, sweep

POLICIES = ["nologging", "mlb-256", "mlb"]


def times(rows, trace, drive, figure):
    """How many times as fast each policy is as the first."""
    of = {row["policy"]: row for row in rows if row["trace"] == trace and row["drive"] == drive}
    if any(row["overloaded"] == "true" for row in of.values()):
        return ["too much"] * (len(POLICIES) - 1)
    means = [float(of[policy][figure] or 0) if policy in of else 0 for policy in POLICIES]
    if not all(means):
        return ["-"] * (len(POLICIES) - 1)
    return [f"{means[0] / mean:.2f}" for mean in means[1:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", metavar="FOLDER")
    parser.add_argument("--manylogs", default="target/release/manylogs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        names = converted(options, folder)
        rows = sweep(options, folder, names, POLICIES)
    for drive in DRIVES:
        print(f"\n## {drive}: times as fast as the plain drive, means\n")
        print("| trace | durable: mlb-256 | mlb | reads: mlb-256 | mlb |\n|---|---|---|---|---|")
        for name in names:
            figures = ["durable_mean_us", "reads_mean_us"]
            cells = [cell for figure in figures for cell in times(rows, name, drive, figure)]
            print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
