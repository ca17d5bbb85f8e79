#!/usr/bin/env python3
"""Thousands of processes use one mount at once.

    crowd.py MANYLOGS PLACE PROCESSES SEED [MODE [OPTIONS]]

Makes an image in PLACE, a new directory, and mounts it. All processes begin at the same moment. Each
creates files in directories that it shares with a hundred others, writes and reads them, looks at
missing names and at files of others, lists, links, renames, removes, and syncs now and then; it
checks each answer. None may hang or see an error, each leaves one file with content that it knows,
and after a remount exactly these must be there. e2fsck judges the disk. The server's memory must
stay within its bound and what it has without any file. Prints one line of figures; exits with 1 if
anything is wrong. Needs root, FUSE and mkfs.ext4; a process takes about 1 MB.
"""

import gc
import os
import random
import sys
import time

from mounted import Mounted, fork, kill_all, wait_for

SHARED = 100   # processes of one directory
STEPS = 3      # files that each makes and removes beside the one that it leaves
LIMIT = 1800   # seconds
# What the server has beside what it counts: program, stacks, what the allocator keeps.
APART_MIB = 96


def content(process, step, length):
    return (f"{process}/{step}\n".encode() * (length // 4 + 1))[:length]


def check_missing(path):
    try:
        os.stat(path)
    except FileNotFoundError:
        return
    raise AssertionError(f"{path} is there")


def write(path, data, sync):
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
    assert os.write(file, data) == len(data)
    if sync:
        os.fsync(file)
    os.close(file)
    found = os.stat(path)
    assert (found.st_size, found.st_nlink, found.st_mode & 0o7777) == (len(data), 1, 0o640), path


def check(path, data):
    with open(path, "rb") as file:
        assert file.read() == data, f"{path} holds something else"


def look_at_others(dir_, chance):
    """Lists the directory, and looks at one that somebody may just rename or remove."""
    names = os.listdir(dir_)
    assert len(names) == len(set(names)), "a name is listed twice"
    try:
        os.stat(f"{dir_}/{chance.choice(names)}")
    except FileNotFoundError:
        pass


def work(root, process, processes, seed):
    """What one process does."""
    chance = random.Random(f"{seed} {process}")
    dirs = processes // SHARED + 1
    own, other = f"{root}/{process // SHARED}", f"{root}/{chance.randrange(dirs)}"
    for step in range(STEPS):
        name, data = f"{process}-{step}", content(process, step, chance.randrange(10_000))
        check_missing(f"{own}/{name}")
        write(f"{own}/{name}", data, chance.random() < 0.05)
        os.rename(f"{own}/{name}", f"{other}/{name}-moved")
        check_missing(f"{own}/{name}")
        check(f"{other}/{name}-moved", data)
        os.link(f"{other}/{name}-moved", f"{own}/{name}-linked")
        assert os.stat(f"{other}/{name}-moved").st_nlink == 2
        os.unlink(f"{other}/{name}-moved")
        check_missing(f"{other}/{name}-moved")
        assert os.stat(f"{own}/{name}-linked").st_nlink == 1
        check(f"{own}/{name}-linked", data)
        os.unlink(f"{own}/{name}-linked")
    look_at_others(own, chance)
    write(f"{own}/{process}-last", content(process, "last", 100 + process % 5_000), False)


def begin(tell, start, *arguments):
    """Waits until all are there: nobody has `tell`, the other end of the pipe, open any more."""
    os.close(tell)
    os.read(start, 1)
    work(*arguments)


def crowd(root, processes, seed):
    for dir_ in range(processes // SHARED + 1):
        os.mkdir(f"{root}/{dir_}")
    # What a child does not change it shares with its parent.
    gc.freeze()
    start, tell = os.pipe()
    children = set()
    try:
        for process in range(processes):
            children.add(fork(begin, tell, start, root, process, processes, seed))
    except OSError:
        kill_all(children)
        raise
    began = time.perf_counter()
    os.close(tell)
    wait_for(children, LIMIT, "processes")
    return time.perf_counter() - began


def left(root, processes):
    """Exactly what the processes left."""
    names = [name for dir_ in range(processes // SHARED + 1) for name in os.listdir(f"{root}/{dir_}")]
    assert sorted(names) == sorted(f"{process}-last" for process in range(processes))
    for process in range(processes):
        data = content(process, "last", 100 + process % 5_000)
        check(f"{root}/{process // SHARED}/{process}-last", data)


def main():
    manylogs, place, processes, seed = sys.argv[1:5]
    mode = sys.argv[5] if len(sys.argv) > 5 else "ordered"
    options = sys.argv[6] if len(sys.argv) > 6 else "noatime"
    processes = int(processes)
    size = (512 << 20) + (processes << 16)
    with Mounted(os.path.abspath(manylogs), place, mode, options, size,
                 10_000 + 4 * processes) as disk:
        took = crowd(disk.root, processes, int(seed))
        left(disk.root, processes)
        requests, resident = disk.requests(), disk.resident_mib()
        bound = disk.status()["file_system"]["memory"]["bound_bytes"] >> 20
        disk.unmount()
        disk.mount()
        left(disk.root, processes)
        disk.judge()
    if resident > bound + APART_MIB:
        raise SystemExit(f"the server had {resident} MiB, its bound is {bound} MiB")
    print(f"{processes} processes at once: {requests} requests in {took:.1f} s, all answered; the "
          f"server had {resident} MiB of {bound}, and e2fsck is content")


if __name__ == "__main__":
    main()
