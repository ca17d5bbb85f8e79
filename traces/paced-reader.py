"""Reads a part of a file over and over, in direct 1 MiB requests at a fixed rate.

usage: paced-reader.py FILE FROM_GIB MIB MB_PER_S SECONDS
"""

import mmap
import os
import sys
import time

REQUEST_BYTES = 1 << 20


def main() -> None:
    path, first, size = sys.argv[1], int(sys.argv[2]) << 30, int(sys.argv[3]) << 20
    rate_mb_per_s, seconds = float(sys.argv[4]), float(sys.argv[5])
    interval_s = REQUEST_BYTES / (rate_mb_per_s * 1e6)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffer = mmap.mmap(-1, REQUEST_BYTES)
    start = time.monotonic()
    offset = 0
    due = start
    while due < start + seconds:
        # Due times do not depend on how long the reads take.
        time.sleep(max(0.0, due - time.monotonic()))
        os.preadv(fd, [buffer], first + offset)
        offset = (offset + REQUEST_BYTES) % size
        due += interval_s


main()
