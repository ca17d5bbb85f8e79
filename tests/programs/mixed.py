#!/usr/bin/env python3
"""Uses one file in every way at once: through the page cache, past it, and mapped.

    mixed.py FILE OPERATIONS SEED

Each operation is drawn from the seed. A copy in memory says what a read must find; the first
difference ends the program with exit code 1. At the end all of the file is compared, past the page
cache.
"""

import ctypes
import mmap
import os
import random
import sys

PAGE = 4096
PAGES = 128
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16


def fallocate(file, mode, offset, length):
    """As the system call: Python knows the plain one only."""
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(length))
    if done != 0:
        raise OSError(ctypes.get_errno(), f"fallocate {mode}")


class Mixed:
    """The file, and what it must hold."""

    def __init__(self, path, seed):
        self.rng = random.Random(seed)
        self.size = PAGES * PAGE
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.ftruncate(self.file, self.size)
        self.direct = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.map = mmap.mmap(self.file, self.size)
        self.expected = bytearray(self.size)
        # O_DIRECT needs memory at a page's beginning.
        self.buffer = mmap.mmap(-1, 16 * PAGE)

    def span(self):
        start = self.rng.randrange(self.size)
        return start, self.rng.randrange(1, min(60_000, self.size - start) + 1)

    def pages(self):
        start = self.rng.randrange(PAGES - 16)
        return start * PAGE, self.rng.randrange(1, 17) * PAGE

    def check(self, found, start, how):
        expected = self.expected[start : start + len(found)]
        if found == expected:
            return
        at = next(i for i, (a, b) in enumerate(zip(found, expected)) if a != b)
        sys.exit(f"{how}: byte {start + at} is {found[at]}, not {expected[at]}")

    def write(self):
        start, length = self.span()
        data = self.rng.randbytes(length)
        os.pwrite(self.file, data, start)
        self.expected[start : start + length] = data

    def read(self):
        start, length = self.span()
        self.check(os.pread(self.file, length, start), start, "read")

    def write_direct(self):
        start, length = self.pages()
        data = self.rng.randbytes(length)
        self.buffer[:length] = data
        with memoryview(self.buffer) as view, view[:length] as part:
            os.pwritev(self.direct, [part], start)
        self.expected[start : start + length] = data

    def read_direct(self, start=None, length=None):
        if start is None:
            start, length = self.pages()
        with memoryview(self.buffer) as view, view[:length] as part:
            count = os.preadv(self.direct, [part], start)
        if count != length:
            sys.exit(f"direct read: {count} of {length} bytes at {start}")
        self.check(self.buffer[:length], start, "direct read")

    def write_mapped(self):
        start, length = self.span()
        data = self.rng.randbytes(length)
        self.map[start : start + length] = data
        self.expected[start : start + length] = data

    def read_mapped(self):
        start, length = self.span()
        self.check(self.map[start : start + length], start, "mapped read")

    def zero(self):
        start, length = self.span()
        fallocate(self.file, self.rng.choice((PUNCH_HOLE, ZERO_RANGE)) | KEEP_SIZE, start, length)
        self.expected[start : start + length] = bytes(length)

    def cut(self):
        # Nothing touches the map beyond the end meanwhile.
        end = self.rng.randrange(self.size)
        os.ftruncate(self.file, end)
        os.ftruncate(self.file, self.size)
        self.expected[end:] = bytes(self.size - end)

    def sync(self):
        self.rng.choice((os.fsync, os.fdatasync, lambda _: self.map.flush()))(self.file)

    def forget(self):
        os.posix_fadvise(self.file, 0, 0, os.POSIX_FADV_DONTNEED)

    def run(self, operations):
        ways = [self.write, self.read, self.write_direct, self.read_direct]
        ways += [self.write_mapped, self.read_mapped]
        rare = [self.zero, self.cut, self.sync, self.forget]
        for _ in range(operations):
            self.rng.choice(rare if self.rng.randrange(12) == 0 else ways)()
        for start in range(0, self.size, 16 * PAGE):
            self.read_direct(start, 16 * PAGE)


def main():
    path, operations, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    Mixed(path, seed).run(operations)


if __name__ == "__main__":
    main()
