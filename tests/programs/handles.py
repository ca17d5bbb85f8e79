#!/usr/bin/env python3
"""Opens files by handles that were made before the kernel forgot them, as NFS servers do.

handles.py DIRECTORY

Needs root. A handle of a file that is there leads to its content; one of a file that was removed is
stale, whatever file has its inode since.
"""
import ctypes
import errno
import os
import sys

AT_FDCWD = -100
FILES = 40


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]


libc = ctypes.CDLL(None, use_errno=True)


def handle_of(path):
    handle, mount = Handle(bytes=128), ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, path.encode(), ctypes.byref(handle),
                              ctypes.byref(mount), 0) != 0:
        raise OSError(ctypes.get_errno(), f"name_to_handle_at {path}")
    return handle


def opened(root, handle):
    """A descriptor, or the number of the error."""
    file = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
    return (file, 0) if file >= 0 else (None, ctypes.get_errno())


def forget(root):
    os.fsync(root)
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as caches:
        caches.write("2\n")


def main():
    directory = sys.argv[1]
    os.makedirs(f"{directory}/below", exist_ok=True)
    root = os.open(directory, os.O_RDONLY)
    paths = [f"{directory}/below/{number}" for number in range(FILES)]
    for number, path in enumerate(paths):
        with open(path, "w", encoding="ascii") as file:
            file.write(f"content {number}")
    handles = [handle_of(path) for path in paths]
    forget(root)
    for number, handle in enumerate(handles):
        file, error = opened(root, handle)
        if file is None:
            sys.exit(f"file {number} is there, and its handle gives {os.strerror(error)}")
        if os.read(file, 100) != f"content {number}".encode():
            sys.exit(f"the handle of file {number} leads to another")
        os.close(file)
    for path in paths[::2]:
        os.remove(path)
    forget(root)
    for number in range(FILES):
        with open(f"{directory}/below/new {number}", "w", encoding="ascii") as file:
            file.write("another")
    forget(root)
    for number, handle in enumerate(handles):
        file, error = opened(root, handle)
        removed = number % 2 == 0
        if removed and error != errno.ESTALE:
            sys.exit(f"file {number} was removed, and its handle gives {error}")
        if not removed and file is None:
            sys.exit(f"file {number} is there, and its handle gives {os.strerror(error)}")
        if file is not None:
            os.close(file)
    print(f"{FILES} handles, {FILES // 2} of them stale")


main()
