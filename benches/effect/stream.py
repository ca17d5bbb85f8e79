#!/usr/bin/env python3
"""Reads or writes a file from beginning to end, again and again: a backup, past the page cache.

stream.py FILE read|write SECONDS

Requests of 1 MiB with O_DIRECT, one at a time, in runs of 128 MiB. Where the file system does not
take O_DIRECT (ext4 with data=journal goes through the page cache all the same) what was read is
dropped from the cache behind each run. A run of writes ends with fdatasync. Prints JSON.
"""
import json
import mmap
import os
import sys
import time

REQUEST = 1 << 20
RUN = 128 << 20


def main():
    path, kind, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    writes = kind == "write"
    file = os.open(path, (os.O_WRONLY if writes else os.O_RDONLY) | os.O_DIRECT)
    size = os.lseek(file, 0, os.SEEK_END) // REQUEST * REQUEST
    buffer = mmap.mmap(-1, REQUEST)
    buffer.write(os.urandom(REQUEST))
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    at = moved = 0
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        done = os.pwritev(file, [buffer], at) if writes else os.preadv(file, [buffer], at)
        if done != REQUEST:
            sys.exit(f"stream.py: {path}: {done} of {REQUEST} bytes at {at}")
        at, moved = at + REQUEST, moved + REQUEST
        if at % RUN == 0 or at == size:
            if writes:
                os.fdatasync(file)
            begin = (at - 1) // RUN * RUN
            os.posix_fadvise(file, begin, at - begin, os.POSIX_FADV_DONTNEED)
        at %= size
    if writes:
        os.fdatasync(file)
    took = time.monotonic() - began
    print(json.dumps({"mb_per_s": moved / 1e6 / took, "seconds": took}))


main()
