#!/usr/bin/env python3
"""Rewrites 4 KiB at a random place in each of 20 files, syncs their file system, and again.

small-writer.py DIRECTORY WRITES_A_SECOND SECONDS

The files are DIRECTORY/1/small to 20/small. A round that takes longer than its share of a second
delays the next: no more than one is ever due. Prints JSON: the rate reached, latency of the syncs,
and the share of the time in which this program was ready and waited for a processor.
"""
import ctypes
import json
import os
import random
import sys
import time

FILES = 20


def main():
    directory, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
    libc = ctypes.CDLL(None, use_errno=True)
    files = [os.open(f"{directory}/{i}/small", os.O_RDWR) for i in range(1, FILES + 1)]
    blocks = [os.fstat(file).st_size // 4096 for file in files]
    draw, content, latencies = random.Random(1), os.urandom(4096), []
    began = due = time.monotonic()
    while time.monotonic() - began < seconds:
        for file, count in zip(files, blocks):
            os.pwrite(file, content, draw.randrange(count) * 4096)
        asked = time.monotonic()
        if libc.syncfs(files[0]) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"syncfs of {directory}: {os.strerror(error)}")
        latencies.append(time.monotonic() - asked)
        due = max(due + FILES / rate, time.monotonic() - FILES / rate)
        time.sleep(max(0, due - time.monotonic()))
    took = time.monotonic() - began
    latencies.sort()
    with open("/proc/self/schedstat", encoding="ascii") as file:
        waited_s = int(file.read().split()[1]) / 1e9
    print(json.dumps({
        "per_s": FILES * len(latencies) / took,
        "mean_ms": 1e3 * sum(latencies) / len(latencies),
        "p99_ms": 1e3 * latencies[int(0.99 * (len(latencies) - 1))],
        "syncs": len(latencies),
        "waited_share": waited_s / took,
    }))


main()
