#!/usr/bin/env python3
"""A large directory is listed while others create, remove and rename names in it.

    large_directory.py MANYLOGS PLACE NAMES SEED [MODE [OPTIONS]]

Makes an image in PLACE, a new directory, mounts it and fills one directory. Readers list it again
and again: the names alone, each with its attributes, and in parts, with telldir, seekdir, and a new
descriptor in the middle. Each name that is there all the time must be listed exactly once, however
much others change meanwhile; a name that was created before the list was begun must be in it, one
that was removed must not, and no name is there twice. At the end the directory must hold exactly
what the others left, and e2fsck judges the disk. Prints one line of figures with the time of a
list, cold and warm, beside the kernel's ext4 on the same disk; exits with 1 if anything is wrong.
Needs root, FUSE and mkfs.ext4.
"""

import ctypes
import gc
import mmap
import os
import random
import subprocess
import sys
import time
from collections import Counter

from mounted import ADOPTED, Mounted, fork, run, wait_for

CHANGERS = 4
NEW = 8       # names that a changer creates for good beside two that it removes: blocks are split
LISTS = 4     # complete lists of each reader
LIMIT = 1800  # seconds
PARTS = 20    # of a list that is read in parts
STAYING = "stays-at-its-place-{}"
LIBC = ctypes.CDLL(None, use_errno=True)


class Dirent(ctypes.Structure):
    """As readdir(3) has it on 64-bit Linux."""
    _fields_ = [("ino", ctypes.c_uint64), ("next", ctypes.c_int64), ("len", ctypes.c_uint16),
                ("kind", ctypes.c_uint8), ("name", ctypes.c_char * 256)]


LIBC.opendir.restype = ctypes.c_void_p
LIBC.readdir.restype = ctypes.POINTER(Dirent)
LIBC.telldir.restype = ctypes.c_long
for call in (LIBC.readdir, LIBC.telldir, LIBC.closedir):
    call.argtypes = [ctypes.c_void_p]
LIBC.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


class Progress:
    """How far each changer is, in memory that all processes share."""

    def __init__(self):
        self.words = memoryview(mmap.mmap(-1, 8 * (2 * CHANGERS + 1))).cast("Q")

    def created(self):
        return list(self.words[:CHANGERS])

    def removed(self):
        return list(self.words[CHANGERS:2 * CHANGERS])

    def count_created(self, changer):
        self.words[changer] += 1

    def count_removed(self, changer):
        self.words[CHANGERS + changer] += 1

    def is_over(self):
        return self.words[2 * CHANGERS] == 1

    def end(self):
        self.words[2 * CHANGERS] = 1


class World:
    """What is in the directory: how many names stay, and each changer's that go one by one."""

    def __init__(self, dir_, names, seed):
        self.dir, self.seed, self.progress = dir_, seed, Progress()
        self.doomed = names // 4 // CHANGERS
        replaced = [f"replaced-{changer}" for changer in range(CHANGERS)]
        numbers = range(names - self.doomed * CHANGERS - CHANGERS)
        self.staying = {STAYING.format(number) for number in numbers} | set(replaced)

    def path(self, name):
        return f"{self.dir}/{name}"

    def fill(self):
        os.mkdir(self.dir)
        for name in self.staying:
            os.mknod(self.path(name), 0o100644)
        for changer in range(CHANGERS):
            for number in range(self.doomed):
                os.mknod(self.path(f"doomed-{changer}-{number}"), 0o100644)

    def change(self, changer):
        """Creates names for good, removes old ones for good, and renames, until it is over."""
        progress, made = self.progress, 0
        while not progress.is_over():
            os.mknod(self.path(f"passing-{changer}-{made}"), 0o100644)
            os.rename(self.path(f"passing-{changer}-{made}"), self.path(f"moved-{changer}-{made}"))
            if made % 2:
                os.unlink(self.path(f"moved-{changer}-{made}"))
            else:
                os.rename(self.path(f"moved-{changer}-{made}"), self.path(f"replaced-{changer}"))
            made += 1
            for number in range(progress.created()[changer], self.doomed)[:NEW]:
                os.mknod(self.path(f"kept-{changer}-{number}"), 0o100644)
                progress.count_created(changer)
            for number in range(progress.removed()[changer], self.doomed)[:2]:
                os.unlink(self.path(f"doomed-{changer}-{number}"))
                progress.count_removed(changer)

    def judge(self, names, before, after):
        """Compares a list with how far the changers were before and after it."""
        twice = [name for name, count in Counter(names).items() if count > 1]
        assert not twice, f"{len(twice)} names are listed twice, as {twice[:3]}"
        names = set(names)
        missing = self.staying - names
        assert not missing, f"{len(missing)} names that stay are not listed, as {sorted(missing)[:3]}"
        (made, gone), (made_at_most, gone_at_most) = before, after
        for changer in range(CHANGERS):
            for kind, sure, never in [
                    ("kept", range(made[changer]), range(made_at_most[changer] + 1, self.doomed)),
                    ("doomed", range(gone_at_most[changer] + 1, self.doomed), range(gone[changer]))]:
                absent = [n for n in sure if f"{kind}-{changer}-{n}" not in names]
                stale = [n for n in never if f"{kind}-{changer}-{n}" in names]
                assert not absent, f"{kind}: {len(absent)} of changer {changer} are not listed"
                assert not stale, f"{kind}: {len(stale)} of changer {changer} are listed and gone"

    def read(self, how, number):
        """Lists the directory again and again in one way."""
        chance = random.Random(f"{self.seed} {how} {number}")
        for _ in range(LISTS):
            before = (self.progress.created(), self.progress.removed())
            names = getattr(self, how)(chance)
            after = (self.progress.created(), self.progress.removed())
            self.judge(names, before, after)

    def names(self, _):
        return os.listdir(self.dir)

    def attributes(self, _):
        """As `ls -l` does. What stays has its inode's number in the list."""
        names = []
        with os.scandir(self.dir) as entries:
            for entry in entries:
                names.append(entry.name)
                try:
                    found = os.lstat(entry.path)
                except FileNotFoundError:
                    assert entry.name not in self.staying, f"{entry.name} is listed and missing"
                    continue
                assert not entry.name.startswith("stays") or found.st_ino == entry.inode()
        return names

    def parts(self, chance):
        """In parts, each read twice; half of the parts begin with a new descriptor."""
        stream, names, each = self.open(), [], len(self.staying) // PARTS
        while True:
            place, most = LIBC.telldir(stream), chance.randrange(1, 2 * each)
            first = some(stream, most)
            if chance.random() < 0.5:
                LIBC.closedir(stream)
                stream = self.open()
            LIBC.seekdir(stream, place)
            if not first:
                # A name may have come since at the very end.
                names += some(stream, sys.maxsize)
                break
            last = next((n for n in reversed(first) if n in self.staying), None)
            again = some_until(stream, last) if last else []
            stays = [n for n in again if n in self.staying]
            assert stays == [n for n in first if n in self.staying], "another order than before"
            names += again
            if not last:
                names += some(stream, most)
        LIBC.closedir(stream)
        return [name for name in names if name not in (".", "..")]

    def open(self):
        stream = LIBC.opendir(self.dir.encode())
        assert stream, os.strerror(ctypes.get_errno())
        return stream


def step(stream):
    """The next name; None at the end."""
    ctypes.set_errno(0)
    entry = LIBC.readdir(stream)
    if not entry:
        assert ctypes.get_errno() == 0, os.strerror(ctypes.get_errno())
        return None
    return entry.contents.name.decode()


def some(stream, most):
    names = []
    while len(names) < most and (name := step(stream)) is not None:
        names.append(name)
    return names


def some_until(stream, last):
    names = []
    while (name := step(stream)) is not None:
        names.append(name)
        if name == last:
            break
    return names


def seconds(work):
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def cold_and_warm(dir_):
    """Milliseconds of the first list of a mount, and of one right after another."""
    cold = seconds(lambda: os.listdir(dir_))
    os.listdir(dir_)
    return f"{cold * 1e3:.0f} and {seconds(lambda: os.listdir(dir_)) * 1e3:.0f} ms"


def beside_ext4(mounted, dir_):
    """The same list by the kernel's ext4, which mounts the same disk; "" where it cannot."""
    if mounted.mode in ADOPTED:
        return ""
    if subprocess.run(["mount", "-o", "loop,noatime", mounted.image, mounted.root]).returncode:
        return ""
    took = cold_and_warm(dir_)
    run("umount", mounted.root)
    return f"; the kernel's ext4 takes {took}"


def crowd(world):
    """All at once: changers, and readers of each kind."""
    # What a child does not change it shares with its parent.
    gc.freeze()
    changers = {fork(world.change, changer) for changer in range(CHANGERS)}
    readers = {fork(world.read, how, number)
               for how in ("names", "attributes", "parts") for number in range(2)}
    try:
        wait_for(readers, LIMIT, "readers")
    finally:
        world.progress.end()
        wait_for(changers, 60, "changers")


def main():
    manylogs, place, names, seed = sys.argv[1:5]
    mode = sys.argv[5] if len(sys.argv) > 5 else "ordered"
    options = sys.argv[6] if len(sys.argv) > 6 else "noatime"
    names = int(names)
    size = (256 << 20) + names * 1024
    with Mounted(os.path.abspath(manylogs), place, mode, options, size, 2 * names + 10_000) as disk:
        world = World(f"{disk.root}/dir", names, seed)
        filled = seconds(world.fill)
        busy = seconds(lambda: crowd(world))
        progress = (world.progress.created(), world.progress.removed())
        left = os.listdir(world.dir)
        world.judge(left, progress, progress)
        assert len(left) == len(world.staying) + sum(progress[0]) + sum(
            world.doomed - gone for gone in progress[1]), "names that nobody made"
        resident = disk.resident_mib()
        # A new mount: to drop the caches of the machine would disturb other tests.
        disk.unmount()
        disk.mount()
        ours = cold_and_warm(world.dir)
        disk.judge()
        theirs = beside_ext4(disk, world.dir)
    changes = sum(progress[0]) + sum(progress[1])
    print(f"{names} names made in {filled:.1f} s; 24 lists in {busy:.1f} s beside {changes} names "
          f"created or removed for good; a list takes {ours} cold and warm{theirs}; the server "
          f"had {resident} MiB")


if __name__ == "__main__":
    main()
