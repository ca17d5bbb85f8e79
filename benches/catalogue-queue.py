#!/usr/bin/env python3
"""Random reads with a queue: modelled beside what the catalogue's data sheets publish.

usage: catalogue-queue.py MANYLOGS
"""
import json
import subprocess
import sys
import tomllib
from pathlib import Path

CATALOGUE = Path(__file__).resolve().parent.parent / "profiles/catalogue"
LIMIT = 0.10


def published():
    for path in sorted(CATALOGUE.glob("*.toml")):
        for drive in tomllib.loads(path.read_text())["drive"]:
            for depth, reads in drive.get("bars", {}).get("random_reads", []):
                yield drive["name"], depth, reads


def main():
    missed = 0
    print(f"{'drive':24}{'depth':>6}{'published':>11}{'modelled':>10}{'off':>8}")
    for name, depth, reads in published():
        said = subprocess.run([sys.argv[1], "drive", "validate", name, "--json"],
                              capture_output=True, text=True).stdout
        bars = json.loads(said)["bars"]
        figure = f"random_read_iops_depth_{depth}"
        modelled = next(bar["value"] for bar in bars if bar["figure"] == figure)
        off = modelled / reads - 1
        missed += abs(off) > LIMIT
        print(f"{name:24}{depth:>6}{reads:>11.0f}{modelled:>10.1f}{off:>+8.1%}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
