#!/usr/bin/env python3
"""Does the range that `advise` gives for a drive hold the drives that it may be?

From data sheets of ten drives ten drives each are drawn with `drive vary`. For two loads on each
the gain of the advised policy on the drawn drive, replayed alone, is compared with the range that
was answered for the sheet. Gates: in 90 of 100 cases the gain lies in the range; the median of high
over low is 1.4 at most; `use` is the answer in half of the cases where the gain is above 1.25; and
the advice takes at most five times as long as one on the same drive with no range. A drawn drive
for which the load is too much has no gain: its queue grows as long as the load lasts. Such cases
are counted apart; the advice leaves such drives out, too, and says how many.

usage: drive-gate.py MANYLOGS [--drawn N] [--limit REQUESTS] [--json FILE]
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SHEETS = {
    "near-20t": "--capacity 20T --rpm 7200 --outer 285 --seek 8 --cache 256M",
    "near-18t": "--capacity 18T --rpm 7200 --outer 270 --inner 130 --seek 8.5 --cache 256M",
    "near-12t": "--capacity 12T --rpm 7200 --outer 255 --seek 8 --cache 256M",
    "near-8t": "--capacity 8T --rpm 7200 --cache 256M",
    "desk-4t": "--capacity 4T --rpm 5400 --outer 180 --cache 64M",
    "desk-2t": "--capacity 2T --rpm 7200 --outer 220 --cache 64M",
    "only-16t": "--capacity 16T --rpm 7200",
    "sas-1t2": "--capacity 1200G --rpm 10500 --outer 266 --cache 256M --link sas",
    "sas-600": "--capacity 600G --rpm 15000 --seek 2.9 --cache 128M --link sas",
    "nas-6t": "--capacity 6T --rpm 5400 --outer 185 --inner 90 --cache 256M",
}
ROOT = Path(__file__).resolve().parent.parent
PLAIN = ["nologging", "nologging:cache=off"]
SAMPLE = ROOT / "traces/pgbench-beside-reader.trace.zst"
HIT, SPREAD, WORTH, SAID, SLOWER = 0.9, 1.4, 1.25, 0.5, 5.0


class Gate:
    def __init__(self, program, limit, folder):
        self.program, self.limit, self.folder = program, limit, folder
        self.loads = {
            "synthetic": ["synthetic", "--fit", "--limit", str(limit)],
            "pgbench": [str(SAMPLE), "--fit", "--rate", "2", "--limit", str(2 * limit)],
        }

    def run(self, *args):
        command = [self.program, *args]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        if done.returncode != 0:
            sys.exit(f"{' '.join(args)}: {done.stderr}")
        return done.stdout

    def advise(self, load, drive):
        began = time.monotonic()
        self.run("advise", *self.loads[load], "--drive", drive, "--json", "a.json",
                 "--threads", "1")
        return json.loads((self.folder / "a.json").read_text()), time.monotonic() - began

    def gain(self, load, drive, policy):
        """Of the policy over the best plain drive, as one replay of three seeds has it; none where
        the load is too much for the plain drive, with its cache on and off."""
        policies = ",".join([*PLAIN, policy])
        self.run("replay", *self.loads[load], "--drive", drive, "--policy", policies,
                 "--json", "r.json", "--no-checkpoint")
        policies = json.loads((self.folder / "r.json").read_text())["policies"]
        if all(policies[plain]["overload"]["overloaded"] for plain in PLAIN):
            return None
        return policies[policy]["gain"]["durable_mean"]["estimate"]

    def without_ranges(self, name):
        """The same drive with every figure stated: what a plain advice takes."""
        text = self.run("drive", "show", f"{name}.toml").split("\n[range]")[0]
        path = self.folder / f"{name}-stated.toml"
        path.write_text(text.replace('"guess: ', '"default: '))
        return path.name


def drawn_drives(gate, name, number):
    for seed in range(1, number + 1):
        path = gate.folder / f"{name}-{seed}.toml"
        path.write_text(gate.run("drive", "vary", "--like", f"{name}.toml", "--seed", str(seed)))
        yield path.name


def cases(gate, per_sheet):
    for name, sheet in SHEETS.items():
        gate.run("drive", "new", name, *sheet.split(), "--output", f"{name}.toml", "--force")
        answers = {load: gate.advise(load, f"{name}.toml") for load in gate.loads}
        plain_s = sum(gate.advise(load, gate.without_ranges(name))[1] for load in gate.loads)
        slower = sum(seconds for _, seconds in answers.values()) / plain_s
        for drive in drawn_drives(gate, name, per_sheet):
            for load, (advice, _) in answers.items():
                policy, span = advice["policy"], advice["drive_range"]
                yield {
                    "sheet": name, "drive": drive, "load": load, "policy": policy,
                    "decision": advice["decision"], "low": span["low"], "high": span["high"],
                    "decided_by": span["decided_by"], "slower": slower,
                    "said_too_much": span["too_much"],
                    "true": gate.gain(load, drive, policy),
                }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--drawn", type=int, default=10, help="drives of each of the ten sheets")
    parser.add_argument("--limit", type=int, default=4000, help="requests of a load")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        gate = Gate(str(Path(args.program).resolve()), args.limit, Path(folder))
        found = []
        for case in cases(gate, args.drawn):
            found.append(case)
            print("{sheet:10} {load:10} {policy:28.28} {decision:14} {low:6.2f} to {high:6.2f}"
                  .format(**case), told(case), flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))
    report(found)


def is_inside(case):
    return case["low"] <= case["true"] <= case["high"]


def told(case):
    if case["true"] is None:
        return " too much for the drive"
    return f"  true {case['true']:6.2f}" + ("" if is_inside(case) else " OUTSIDE")


def report(all_cases):
    found = [case for case in all_cases if case["true"] is not None]
    inside = sum(is_inside(case) for case in found) / len(found)
    spread = statistics.median(case["high"] / case["low"] for case in found)
    worth = [case for case in found if case["true"] > WORTH]
    said = sum(case["decision"] == "use" for case in worth) / max(len(worth), 1)
    slower = statistics.median(case["slower"] for case in found)
    results = [
        ("gains within the answered range", inside, inside >= HIT, f">= {HIT}"),
        ("median of high over low", spread, spread <= SPREAD, f"<= {SPREAD}"),
        (f"`use` where the gain is above {WORTH} ({len(worth)} cases)", said, said >= SAID,
         f">= {SAID}"),
        ("time of the advice over that without ranges", slower, slower <= SLOWER, f"<= {SLOWER}"),
    ]
    too_much = len(all_cases) - len(found)
    print(f"\n{len(all_cases)} cases of {len(all_cases) // 2} drives;"
          f" too much for the drive in {too_much} cases")
    for name, value, passed, bar in results:
        print(f"{name:60} {value:6.2f} {bar:8} {'' if passed else 'MISSED'}")
    sys.exit(0 if all(passed for _, _, passed, _ in results) else 1)


if __name__ == "__main__":
    main()
