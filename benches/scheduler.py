#!/usr/bin/env python3
"""Checks in virtual time what the volume's scheduler is to give a database beside a backup,
durable writes beside streams that pause, and traces. Prints a table for each, with what misses.

    benches/scheduler.py [--manylogs PROGRAM] [--seeds 1,2,3] [--seconds N] [--traces FOLDER]
                         [PART...]

PART: database, pauses, traces (needs --traces, a folder with the public traces that
docs/traces.md names); the first two when none is given. Exits with 1 if anything misses.
"""
import argparse
import csv
import json
import math
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

# Two processes at a time: each case has one thread.
PROCESSES = 2
# Drives as a host sees them: profile, what the volume stands on, the plain drive's other setting.
SAS = ["--drive-link", "sas", "--drive-fua", "on"]
SATA = ["--drive-link", "sata", "--drive-fua", "off"]
HOSTS = {
    "cheetah, SAS": ("cheetah-15k5", "off", []),
    "exos, SATA, fua 0": ("exos-x20", "on", SATA),
    "exos, SATA, cache off": ("exos-x20", "off", SATA),
    "exos, SAS": ("exos-x20", "on", SAS),
}
# Transactions a second that latency=10ms gave before small reads had a place of their own, by
# host and seed, in 300 s (`benches/scheduler.py database` on the program of that time).
BEFORE = {
    "cheetah, SAS": {1: 66.6, 2: 66.3, 3: 66.4},
    "exos, SATA, fua 0": {1: 22.9, 2: 22.8, 3: 23.0},
    "exos, SATA, cache off": {1: 76.1, 2: 75.8, 3: 75.5},
    "exos, SAS": {1: 76.1, 2: 75.8, 3: 75.7},
}
COMMIT_MIB = 16 / 1024
# Bandwidth of a stream alone at the outer edge, MiB/s.
BANDWIDTH = {"cheetah-15k5": 127, "exos-x20": 269}
# Share of the bandwidth: mean and p99 of a durable write beside a reader and a writer, ms.
PAUSES = {
    30: {"read": (10, 30), "write": (20, 60)},
    50: {"read": (10, 30), "write": (20, 60)},
    70: {"read": (15, 50), "write": (15, 50)},
}
BURSTS = ["1M", "4M", "16M"]
DRIVES = ["exos-x20", "constellation-es3", "wd5000ys", "cheetah-15k5"]
TRACES = {
    "cloudphysics": "cloudPhysicsIO.vscsi.zst",
    "financial1": "umass_financial1_first10k.disksim.zst",
    "msr": "msr10k.rw_20_80.105.trace.zst",
    "hadoop": "hadoop_eternity9.Q.csv.zst",
    "hadoop-60k": "hadoop_e9_first60k.blkparse.txt.zst",
    "hadoop-cpus": "hadoop_e9_cpu0-1.blktrace.tar.zst",
    "telegram": "mob_telegram_exec.csv.gz",
    "youcut": "mob_you_cut_exec.csv.gz",
    "genshin": "mob_genshin_impact_exec.csv.gz",
    "slideshow": "mob_slideshow_exec.csv.gz",
}


class Table:
    """Rows for people; counts what misses."""

    def __init__(self, title, head):
        print(f"\n## {title}\n\n| {' | '.join(head)} | |\n|{'---|' * (len(head) + 1)}")
        self.rows, self.missed = 0, 0

    def row(self, cells, misses):
        self.rows += 1
        self.missed += bool(misses)
        words = "ok" if not misses else "misses " + ", ".join(misses)
        print(f"| {' | '.join(str(cell) for cell in cells)} | {words} |", flush=True)

    def end(self):
        print(f"\n{self.missed} of {self.rows} miss")
        return self.missed


def run(program, args):
    done = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{program} {' '.join(args)}: {done.stderr}")
    return done.stdout


def gate(misses, name, holds):
    if not holds:
        misses.append(name)


def database(options, pool):
    def measure(host, policy, cache, seed):
        drive, _, link = HOSTS[host]
        args = ["drive", "exercise", drive, "--load", "postgres", "--policy", policy, "--json",
                "--drive-cache", cache, "--seed", str(seed), "--seconds", str(options.seconds)]
        kinds = json.loads(run(options.manylogs, args + link))["kinds"]
        return {
            "tps": kinds["durable_writes"]["mib_s"] / COMMIT_MIB,
            "commit": kinds["durable_writes"]["latency_us"]["p99"] / 1e3,
            "read": kinds["small_reads"]["latency_us"]["p99"] / 1e3,
            "stream": kinds["large_reads"]["mib_s"],
        }

    # The volume's policies other than the default are asked for where they are compared with.
    wanted = {}
    for host, (_, cache, _) in HOSTS.items():
        for seed in options.seeds:
            for policy, at in [("nologging", "on"), ("nologging", "off"),
                               (options.policy, cache), ("mlb:latency=none", cache)]:
                key = host, policy, at, seed
                wanted[key] = pool.submit(measure, *key)
    table = Table("A database beside a backup", [
        "drive", "seed", "transactions/s: plain, cache on", "off", "latency=none", "before", "now",
        "p99 of commits: plain", "now", "p99 of reads: plain", "now",
        "backup, MiB/s: plain", "now"])
    for host, (_, cache, _) in HOSTS.items():
        for seed in options.seeds:
            on, off, now, none = (
                wanted[host, policy, at, seed].result()
                for policy, at in [("nologging", "on"), ("nologging", "off"),
                                   (options.policy, cache), ("mlb:latency=none", cache)])
            plain = max(on, off, key=lambda it: it["tps"])
            before = BEFORE.get(host, {}).get(seed, 0.0)
            misses = []
            gate(misses, "1.25 of plain", now["tps"] >= 1.25 * plain["tps"])
            gate(misses, "0.95 of the better",
                 now["tps"] >= 0.95 * max(none["tps"], before))
            gate(misses, "commits", now["commit"] <= plain["commit"])
            gate(misses, "reads", now["read"] <= plain["read"])
            gate(misses, "backup", now["stream"] >= 0.95 * plain["stream"])
            table.row([host, seed, *(f"{it:.1f}" for it in (
                on["tps"], off["tps"], none["tps"], before, now["tps"],
                plain["commit"], now["commit"], plain["read"], now["read"],
                plain["stream"], now["stream"]))], misses)
    return table.end()


def pauses(options, pool):
    seeds = ",".join(str(seed) for seed in options.seeds)

    def measure(drive, share, kind):
        rate = BANDWIDTH[drive] * share // 100
        with tempfile.TemporaryDirectory() as folder:
            run(options.manylogs, [
                "interfere", "--drive", drive, "--policy", f"{options.policy},mlb:latency=none",
                "--stream", kind, "--stream-rate", f"{rate}M", "--stream-burst", ",".join(BURSTS),
                "--stream-depth", "16", "--sync-mode", "fua", "--seed", seeds, "--threads", "1",
                "--json", f"{folder}/found.json"])
            with open(f"{folder}/found.json", encoding="utf-8") as file:
                return json.load(file)["cases"]

    keys = [(drive, share, kind) for drive in BANDWIDTH for share in PAUSES
            for kind in ("read", "write")]
    found = {key: pool.submit(measure, *key) for key in keys}
    table = Table("Durable writes beside streams that pause", [
        "drive", "stream", "rate", "burst", "seed", "sync mean, ms: none", "now", "p99: none",
        "now", "stream, MB/s: asked", "none", "now", "its requests, ms: none", "now"])
    for drive, share, kind in keys:
        mean, tail = PAUSES[share][kind]
        cases = found[drive, share, kind].result()
        for now in cases:
            if now["policy"] != options.policy:
                continue
            same = ("stream_burst_bytes", "seed")
            none = next(case for case in cases if case["policy"] == "mlb:latency=none"
                        and all(case[key] == now[key] for key in same))
            asked = now["stream_rate_bytes"] / 1e6
            misses = []
            gate(misses, f"mean {mean}", now["sync_ms"]["mean"] <= mean)
            gate(misses, f"p99 {tail}", now["sync_ms"]["p99"] <= tail)
            if share <= 50:
                # A burst more or less lies within the measurement.
                least = asked - 1.5 * now["stream_burst_bytes"] / 1e6 / now["seconds"]
                gate(misses, "all of the stream", now["stream_mb_s"] >= least)
                gate(misses, "1.25 times a request",
                     now["stream_ms"]["mean"] <= 1.25 * none["stream_ms"]["mean"])
            else:
                gate(misses, "0.97 of the stream",
                     now["stream_mb_s"] >= 0.97 * none["stream_mb_s"])
            table.row([drive, kind, f"{share} %", f"{now['stream_burst_bytes'] >> 20} MiB",
                       now["seed"], *(f"{it:.1f}" for it in (
                           none["sync_ms"]["mean"], now["sync_ms"]["mean"],
                           none["sync_ms"]["p99"], now["sync_ms"]["p99"], asked,
                           none["stream_mb_s"], now["stream_mb_s"],
                           none["stream_ms"]["mean"], now["stream_ms"]["mean"]))], misses)
    return table.end()


def sweep(options, folder, names, policies):
    """Rows of a sweep over the traces of these names."""
    with open(f"{folder}/sweep.toml", "w", encoding="utf-8") as file:
        file.write(f"""traces = {json.dumps(names)}
drives = {json.dumps(DRIVES)}
policies = {json.dumps(policies)}
seeds = 1
limit = 60000
rate = "auto"
fit = true
[output]
csv = "out.csv"
""")
    run(options.manylogs, ["sweep", f"{folder}/sweep.toml"])
    with open(f"{folder}/out.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def converted(options, folder):
    """Names of the public traces that are there, each of which is a recording in `folder` now."""
    names = []
    for name, file in TRACES.items():
        path = os.path.join(options.traces, file)
        if not os.path.exists(path):
            print(f"{file} is not in {options.traces}: it is left out", file=sys.stderr)
            continue
        if ".tar." in file:
            subprocess.run(["tar", "-C", folder, "-xf", path], check=True)
            path = unpacked(folder)
        run(options.manylogs, ["trace", "convert", path, "-o", f"{folder}/{name}"])
        names.append(name)
    if not names:
        sys.exit(f"{options.traces} has none of the public traces: {', '.join(TRACES.values())}")
    return names


def traces(options, _pool):
    with tempfile.TemporaryDirectory() as folder:
        names = converted(options, folder)
        rows = sweep(options, folder, names, [options.policy, "mlb:latency=none"])
    table = Table("Traces, latency=none over now: more than 1 is faster", [
        "trace", "drive", "durable mean", "reads mean"])
    product, count = 0.0, 0
    for name in names:
        for drive in DRIVES:
            now, none = (
                next(row for row in rows if row["trace"] == name and row["drive"] == drive
                     and row["policy"] == policy)
                for policy in (options.policy, "mlb:latency=none"))
            misses, cells = [], []
            for figure in ("durable_mean_us", "reads_mean_us"):
                if not now[figure] or not float(now[figure]):
                    cells.append("-")
                    continue
                times = float(none[figure]) / float(now[figure])
                cells.append(f"{times:.3f}")
                gate(misses, figure.split("_")[0], times >= 0.98)
                if figure.startswith("durable"):
                    product, count = product + math.log(times), count + 1
            table.row([name, drive, *cells], misses)
    mean = math.exp(product / max(count, 1))
    print(f"\nGeometric mean of durable means: {mean:.3f} (wanted: more than 1)")
    return table.end() + (mean <= 1)


def unpacked(folder):
    """The file of the first CPU in what a tar file held."""
    for root, _, files in os.walk(folder):
        for file in sorted(files):
            if ".blktrace." in file:
                return os.path.join(root, file)
    sys.exit("no recording of blktrace in the tar file")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--manylogs", default="target/release/manylogs")
    parser.add_argument("--policy", default="mlb")
    parser.add_argument("--seeds", default="1,2,3",
                        type=lambda text: [int(seed) for seed in text.split(",")])
    parser.add_argument("--seconds", default=300, type=int)
    parser.add_argument("--traces")
    parser.add_argument("parts", nargs="*", metavar="PART")
    options = parser.parse_args()
    parts = {"database": database, "pauses": pauses, "traces": traces}
    missed = 0
    with ThreadPoolExecutor(PROCESSES) as pool:
        for part in options.parts or ["database", "pauses"]:
            missed += parts[part](options, pool)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
