#!/usr/bin/env python3
"""Does one small durable operation after another, for settings.sh.

sync-operations.py DIRECTORY OPERATION COUNT

Operations:
  append     4 KiB behind the end of a file, fsync
  create     a file of 4 KiB, fsync of the file and of its directory
  overwrite  4 KiB in a file, fsync
  fdatasync  the same, fdatasync
  syncfs     4 KiB in each of 20 files, syncfs

Between two operations passes longer than a tick of the kernel's clock, as on a disk: of two
changes within a tick the second leaves a file's times as they are, and needs no transaction.
"""
import ctypes
import os
import random
import sys
import time

BLOCK = 4096
FILE_BLOCKS = 256
FILES = 20
PAUSE_S = 0.012  # a tick is 10 ms at most


def prepared(path):
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
    os.pwrite(file, bytes(BLOCK * FILE_BLOCKS), 0)
    return file


def append(directory, content):
    file = os.open(f"{directory}/appended", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    at = 0
    while True:
        yield
        at += os.pwrite(file, content, at)
        os.fsync(file)


def create(directory, content):
    folder, number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY), 0
    while True:
        yield
        file = os.open(f"{directory}/created-{number}", os.O_WRONLY | os.O_CREAT, 0o644)
        os.pwrite(file, content, 0)
        os.fsync(file)
        os.fsync(folder)
        os.close(file)
        number += 1


def overwrite(directory, content, sync=os.fsync):
    file, draw = prepared(f"{directory}/overwritten"), random.Random(1)
    while True:
        yield
        os.pwrite(file, content, BLOCK * draw.randrange(FILE_BLOCKS))
        sync(file)


def fdatasync(directory, content):
    return overwrite(directory, content, os.fdatasync)


def syncfs(directory, content):
    libc, draw = ctypes.CDLL(None, use_errno=True), random.Random(1)
    files = [prepared(f"{directory}/synced-{number}") for number in range(FILES)]
    while True:
        yield
        for file in files:
            os.pwrite(file, content, BLOCK * draw.randrange(FILE_BLOCKS))
        if libc.syncfs(files[0]) != 0:
            error = ctypes.get_errno()
            raise OSError(error, f"syncfs of {directory}: {os.strerror(error)}")


OPERATIONS = {each.__name__: each for each in [append, create, overwrite, fdatasync, syncfs]}


def main():
    directory, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if name not in OPERATIONS:
        sys.exit(f"sync-operations.py: no operation is called {name}: {', '.join(OPERATIONS)}")
    operation = OPERATIONS[name](directory, os.urandom(BLOCK))
    next(operation)
    # What was made to begin with is not counted: the caller looks at the counters now.
    os.sync()
    print("ready", flush=True)
    sys.stdin.readline()
    for _ in range(count):
        time.sleep(PAUSE_S)
        next(operation)
    print("done", flush=True)
    sys.stdin.readline()


main()
