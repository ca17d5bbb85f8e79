#!/usr/bin/env python3
"""Appends a run of run.sh to its results and prints it in a line; fails if it is void.

note.py WORK OUT PART DRIVE SYSTEM raw|volume SECONDS STREAM BESIDE [RATE] ATTEMPT
"""
import json
import sys
import time


def load(path):
    try:
        with open(path, encoding="ascii") as file:
            text = file.read()
    except FileNotFoundError:
        return None
    return json.loads(text) if text.startswith("{") else transactions(text)


def transactions(text):
    """The log of pgbench: client, transaction, microseconds, and more."""
    ms = sorted(int(line.split()[2]) / 1e3 for line in text.splitlines())
    return {"count": len(ms), "mean_ms": sum(ms) / len(ms), "p99_ms": ms[int(0.99 * (len(ms) - 1))]}


def served(before, after):
    """What the clients of the device asked for in the run: by kind, requests, MB and mean ms."""
    kinds = {}
    for old, new in zip(before["requests"], after["requests"]):
        count = new["requests"] - old["requests"]
        if count:
            kinds[new["kind"]] = {
                "requests": count,
                "mb": (new["bytes"] - old["bytes"]) / 1e6,
                "mean_ms": 1e3 * (new["waited_s"] - old["waited_s"]) / count,
            }
    return kinds


def main():
    work, out, part, drive, system, what, seconds, stream, beside, *rest = sys.argv[1:]
    before, after = (load(f"{work}/{name}.json") for name in ["before", "after"])
    late = after["emulation"]
    found = {
        "date": time.strftime("%Y-%m-%d"),
        "part": part, "drive": drive, "system": system, "on": what, "seconds": float(seconds),
        "stream": stream, "beside": beside, "rate": int(rest[0]) if len(rest) > 1 else None,
        "attempt": int(rest[-1]), "void": late["void"],
        "late_p99_ms": late["lateness"]["p99_us"] / 1e3,
        "stream_mb_per_s": (load(f"{work}/stream.json") or {}).get("mb_per_s"),
        "small": load(f"{work}/beside.json"),
        "served": served(before, after),
    }
    small = found["small"]
    if small and "count" in small:
        small["per_s"] = small["count"] / found["seconds"]
    with open(out, "a", encoding="ascii") as file:
        file.write(json.dumps(found) + "\n")
    line = f"  {stream:>5} with {beside:<5} {found['rate'] or '':>4}"
    if found["stream_mb_per_s"]:
        line += f" {found['stream_mb_per_s']:7.1f} MB/s"
    if small:
        line += f" {small['per_s']:8.1f}/s, mean {small['mean_ms']:8.2f}"
        line += f", p99 {small['p99_ms']:8.2f} ms"
    print(line + f"; late {found['late_p99_ms']:.3f} ms" + (": VOID" if late["void"] else ""))
    return int(late["void"])


sys.exit(main())
