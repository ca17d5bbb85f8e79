#!/usr/bin/env python3
"""An hour of each load on a shingled drive, with a volume and without.

    benches/shingled-volume.py [MANYLOGS]

Prints the table of docs/results/shingled.md ("A volume on such a drive"). All of it is in virtual
time and takes about two minutes.
"""

import json
import subprocess
import sys

LOADS = ["random-4k", "fileserver", "mixed", "postgres"]
POLICIES = ["nologging", "mlb", "mlb-shingled"]
SECONDS = 3600
# The kind of request that a load's clients wait for.
WAITED_FOR = {
    "random-4k": "small_writes",
    "fileserver": "large_writes",
    "mixed": "durable_writes",
    "postgres": "durable_writes",
}


def exercise(program, load, policy, *more):
    command = [program, "drive", "exercise", "st8000as0002", "--load", load, "--policy", policy,
               "--seconds", str(SECONDS), "--json", *more]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)


def row(load, policy, done):
    rates = done["mib_s"]
    sixth = len(rates) // 6
    first, last = (sum(part) / sixth for part in (rates[:sixth], rates[-sixth:]))
    kind = done["kinds"][WAITED_FOR[load]]["latency_us"]
    past = done["streamed_bytes"] / max(1, done["streamed_bytes"] + done["cached_bytes"])
    cells = [load, f"`{policy}`", f"{first:.2f}", f"{last:.2f}",
             f"{kind['p99'] / 1000:.0f}", f"{done['slowest_ms'] / 1000:.2f}",
             str(done["seconds_without_progress"]), f"{100 * past:.0f} %"]
    return "| " + " | ".join(cells) + " |"


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else "target/release/manylogs"
    print("| load | policy | MiB/s, first ten minutes | last ten | p99 of its writes, ms "
          "| slowest request, s | seconds without progress | past the persistent cache |")
    print("|" + "---|" * 8)
    for load in LOADS:
        for policy in POLICIES:
            print(row(load, policy, exercise(program, load, policy)), flush=True)
    small = ["--capacity", "400G"]
    for policy in ["nologging", "mlb-shingled:band=none", "mlb-shingled"]:
        done = exercise(program, "random-4k", policy, *small)
        print(row("random-4k", policy, done).replace("random-4k", "random-4k, 400 GB"), flush=True)


if __name__ == "__main__":
    main()
