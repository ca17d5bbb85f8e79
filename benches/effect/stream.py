#!/usr/bin/env python3
"""Reads or writes files from beginning to end, again and again: a backup.

stream.py KIND SECONDS FILE [FILE]

Kinds, all with requests of 1 MiB:
  read         one at a time, past the page cache (O_DIRECT)
  read-8       eight at a time, past the page cache
  read-cached  through the page cache, whose read-ahead chooses the requests below
  read-two     a reader each for two FILEs, one at a time, past the page cache
  write        one at a time, past the page cache

What was read through the page cache is dropped from it behind each 4 MiB: more at once would keep
the kernel from all other work for milliseconds. The same is done behind all readers, as ext4 with
data=journal goes through the page cache all the same. Each 128 MiB of writes end with fdatasync.
Prints JSON: the rate, and the share of the time in which a thread here was ready and waited for a
processor.
"""
from concurrent.futures import ThreadPoolExecutor
import json
import mmap
import os
import sys
import threading
import time

REQUEST = 1 << 20
DROPPED = 4 << 20
SYNCED = 128 << 20
DEPTHS = {"read": 1, "read-8": 8, "read-cached": 1, "read-two": 1, "write": 1}


class Stream:
    """One file, and the threads that share it."""

    def __init__(self, path, kind, until):
        self.path, self.writes, self.until = path, kind == "write", until
        flags = os.O_WRONLY if self.writes else os.O_RDONLY
        self.file = os.open(path, flags if kind == "read-cached" else flags | os.O_DIRECT)
        self.size = os.lseek(self.file, 0, os.SEEK_END) // REQUEST * REQUEST
        self.at = self.moved = 0
        self.waited_s = 0.0
        self.lock = threading.Lock()
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)

    def next(self):
        with self.lock:
            at, self.at = self.at, (self.at + REQUEST) % self.size
            return at

    def go(self):
        buffer = mmap.mmap(-1, REQUEST)
        buffer.write(os.urandom(REQUEST))
        while time.monotonic() < self.until:
            at = self.next()
            transfer = os.pwritev if self.writes else os.preadv
            done = transfer(self.file, [buffer], at)
            if done != REQUEST:
                sys.exit(f"stream.py: {self.path}: {done} of {REQUEST} bytes at {at}")
            with self.lock:
                self.moved += REQUEST
            self.end_run(at + REQUEST)
        with self.lock:
            self.waited_s += waited_s()

    def end_run(self, end):
        if self.writes and (end % SYNCED == 0 or end == self.size):
            os.fdatasync(self.file)
        if end % DROPPED == 0 or end == self.size:
            begin = (end - 1) // DROPPED * DROPPED
            os.posix_fadvise(self.file, begin, end - begin, os.POSIX_FADV_DONTNEED)


def waited_s():
    """What this thread waited for a processor."""
    with open("/proc/thread-self/schedstat", encoding="ascii") as file:
        return int(file.read().split()[1]) / 1e9


def main():
    kind, seconds, paths = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
    if kind not in DEPTHS:
        sys.exit(f"stream.py: no kind is called {kind}: {', '.join(DEPTHS)}")
    if len(paths) != (2 if kind == "read-two" else 1):
        sys.exit(f"stream.py: {len(paths)} files do not fit {kind}")
    began = time.monotonic()
    streams = [Stream(path, kind, began + seconds) for path in paths]
    threads = [stream for stream in streams for _ in range(DEPTHS[kind])]
    with ThreadPoolExecutor(len(threads)) as pool:
        for ended in [pool.submit(stream.go) for stream in threads]:
            ended.result()
    for stream in streams:
        if stream.writes:
            os.fdatasync(stream.file)
    took = time.monotonic() - began
    print(json.dumps({
        "mb_per_s": sum(stream.moved for stream in streams) / 1e6 / took,
        "seconds": took,
        "waited_share": sum(stream.waited_s for stream in streams) / took / len(threads),
    }))


main()
