#!/usr/bin/env python3
"""Appends a run of run.sh to its results and prints it in a line; fails if it is void.

note.py WORK OUT PART DRIVE SYSTEM DEVICE SECONDS STREAM BESIDE [RATE] ATTEMPT
note.py --has OUT PART DRIVE SYSTEM DEVICE SECONDS STREAM BESIDE [RATE]
                fails if OUT has no such run that is not void

DEVICE is raw, raw-SCHEDULER or volume.
"""
import json
import sys
import time


# The share of a run in which what is measured may wait for a processor.
WAITED_MAX = 0.1


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


def threads(path):
    """Of each thread, the nanoseconds that it waited for a processor in its life."""
    with open(path, encoding="ascii") as file:
        return {thread: int(ns) for thread, ns in map(str.split, file)}


def waited(work, stream, beside, seconds):
    """The share of the run that each waited for a processor, by who."""
    before, after = (threads(f"{work}/{name}.waited") for name in ["before", "after"])
    carriers = sum(ns - before.get(thread, 0) for thread, ns in after.items()) / 1e9
    shares = {"carriers": carriers / seconds}
    for who, run in [("reader", stream), ("writer", beside)]:
        if run and "waited_share" in run:
            shares[who] = run["waited_share"]
    return shares


def why_void(late, shares):
    reasons = ["the drive was late"] if late["void"] else []
    return reasons + [f"machine busy: {who} waited for a processor for {100 * share:.0f} %"
                      for who, share in shares.items() if share > WAITED_MAX]


def kind(part, drive, system, device, seconds, stream, beside, rate=None):
    """What tells a run from others."""
    return {"part": part, "drive": drive, "system": system, "on": device,
            "seconds": float(seconds), "stream": stream, "beside": beside,
            "rate": rate and int(rate)}


def has(out, *names):
    wanted = kind(*names)
    with open(out, encoding="ascii") as lines:
        runs = map(json.loads, lines)
        return any(not run["void"] and wanted.items() <= run.items() for run in runs)


def note(work, out, *names):
    *names, attempt = names
    before, after = (load(f"{work}/{name}.json") for name in ["before", "after"])
    stream, beside = (load(f"{work}/{name}.json") for name in ["stream", "beside"])
    found = kind(*names)
    late = after["emulation"]
    shares = waited(work, stream, beside, found["seconds"])
    reasons = why_void(late, shares)
    found |= {
        "date": time.strftime("%Y-%m-%d"), "attempt": int(attempt),
        "void": bool(reasons), "why_void": reasons, "waited": shares,
        "late_p99_ms": late["lateness"]["p99_us"] / 1e3,
        "stream_mb_per_s": (stream or {}).get("mb_per_s"),
        "small": beside, "served": served(before, after),
    }
    if beside and "count" in beside:
        beside["per_s"] = beside["count"] / found["seconds"]
    with open(out, "a", encoding="ascii") as file:
        file.write(json.dumps(found) + "\n")
    print(line(found))
    return not reasons


def line(found):
    """A run, for people."""
    text = f"  {found['stream']:>11} with {found['beside']:<5} {found['rate'] or '':>4}"
    if found["stream_mb_per_s"]:
        text += f" {found['stream_mb_per_s']:7.1f} MB/s"
    small = found["small"]
    if small:
        text += f" {small['per_s']:8.1f}/s, mean {small['mean_ms']:8.2f}"
        text += f", p99 {small['p99_ms']:8.2f} ms"
    text += f"; late {found['late_p99_ms']:.3f} ms, waited"
    text += "".join(f" {who} {100 * share:.1f} %" for who, share in found["waited"].items())
    return text + "".join(f": VOID, {reason}" for reason in found["why_void"])


def main():
    if sys.argv[1] == "--has":
        return 0 if has(*sys.argv[2:]) else 1
    return 0 if note(*sys.argv[1:]) else 1


sys.exit(main())
