#!/usr/bin/env python3
"""A history of git, checked out on MLFS and on the kernel's ext4, which must hold the same.

    checkouts.py MANYLOGS DIRECTORY REPOSITORY REVISIONS [MODE]

The repository is cloned to a new file system of each kind, and so many revisions, spread over its
history, are checked out one after the other, back and forth, so that files are created, replaced
and removed. After each one, and again after a remount with nothing left in memory, names, modes and
contents of all files are the same on both, and git finds its tree unchanged. At the end git packs
and checks all objects (git gc, git fsck), a fresh clone from MLFS has the same heads, and e2fsck
judges both images. In the modes manylogs and adaptive the image of MLFS is adopted first, released
at the end, and read by the kernel then. Prints one line of figures; exits with 1 if anything is
wrong.
"""

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import time

IMAGE_BYTES = 6 << 30


def run(*command, place=None):
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[-2000:]
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}: {said}")
    return done.stdout.strip()


class System:
    """A file system with the clone."""

    def __init__(self, place, name, mount, unmount):
        self.image, self.root = os.path.join(place, f"{name}.img"), os.path.join(place, name)
        self.mount_command, self.unmount_command = mount, unmount
        os.makedirs(self.root)
        with open(self.image, "wb") as file:
            file.truncate(IMAGE_BYTES)
        run("mkfs.ext4", "-q", "-F", "-b", "4096", self.image)

    def clone(self):
        return os.path.join(self.root, "clone")

    def mount(self):
        run(*self.mount_command, self.image, self.root)

    def unmount(self):
        # Somebody who asks for the room on every file system holds it for a moment.
        for _ in range(100):
            done = subprocess.run([*self.unmount_command, self.root], capture_output=True,
                                  check=False)
            if done.returncode == 0:
                return
            time.sleep(0.1)
        run(*self.unmount_command, self.root)

    def git(self, *arguments):
        return run("git", "-c", "gc.auto=0", "-c", "safe.directory=*", *arguments,
                   place=self.clone())


def spread(commits, count):
    """So many of the commits, each far from the one before: first, last, second, last but one."""
    count = min(count, len(commits))
    chosen = [commits[at * (len(commits) - 1) // max(count - 1, 1)] for at in range(count)]
    return [chosen.pop(0 if at % 2 == 0 else -1) for at in range(count)]


def digest(root):
    """Names, modes and contents of what is checked out."""
    found = {}
    for directory, names, files in os.walk(root):
        if directory == root:
            names.remove(".git")
        for name in names + files:
            path = os.path.join(directory, name)
            info = os.lstat(path)
            content = None
            if stat.S_ISREG(info.st_mode):
                with open(path, "rb") as file:
                    content = hashlib.file_digest(file, "blake2b").hexdigest()
            elif stat.S_ISLNK(info.st_mode):
                content = os.readlink(path)
            size = None if stat.S_ISDIR(info.st_mode) else info.st_size
            found[path[len(root):]] = (oct(info.st_mode), size, content)
    return found


def compare(what, kernel, ours):
    for path in sorted(kernel.keys() | ours.keys()):
        if kernel.get(path) != ours.get(path):
            sys.exit(f"{what}: {path}: ext4 has {kernel.get(path)}, MLFS {ours.get(path)}")


def same_now(what, systems):
    kernel, ours = (digest(system.clone()) for system in systems)
    compare(what, kernel, ours)
    for system in systems:
        changed = system.git("status", "--porcelain", "--untracked-files=all")
        if changed:
            sys.exit(f"{what}: {system.root}: git finds changes: {changed[:500]}")
    return len(ours)


def main():
    manylogs, place, repository, count = sys.argv[1:5]
    mode = sys.argv[5] if len(sys.argv) > 5 else "ordered"
    adopted = mode in ("manylogs", "adaptive")
    repository = os.path.abspath(repository)
    shutil.rmtree(place, ignore_errors=True)
    os.makedirs(place)
    kernel = System(place, "ext4", ["mount", "-o", "loop"], ["umount"])
    ours = System(place, "mlfs", [manylogs, "fs", "mount", "--mode", mode, "--background"],
                  [manylogs, "fs", "unmount"])
    if adopted:
        run(manylogs, "fs", "adopt", ours.image, "--yes")
    systems = [kernel, ours]
    files, mounted = 0, []
    try:
        for system in systems:
            system.mount()
            mounted.append(system)
            run("git", "-c", "safe.directory=*", "clone", "-q", "--no-local", "--no-checkout",
                repository, system.clone())
        commits = kernel.git("rev-list", "--reverse", "HEAD").split()
        revisions = spread(commits, int(count))
        for revision in revisions:
            for system in systems:
                system.git("checkout", "-q", "--detach", revision)
            files += same_now(revision, systems)
        for system in systems:
            system.unmount()
            system.mount()
        same_now(f"{revisions[-1]} after a remount", systems)
        for system in systems:
            system.git("gc", "-q")
            system.git("fsck", "--full", "--strict")
        again = os.path.join(kernel.root, "again")
        run("git", "-c", "safe.directory=*", "clone", "-q", "--no-local", ours.clone(), again)
        if run("git", "rev-parse", "HEAD", place=again) != revisions[-1]:
            sys.exit("a clone from MLFS has another head")
        last = digest(ours.clone())
        while mounted:
            mounted.pop().unmount()
        if adopted:
            run(manylogs, "fs", "release", ours.image)
        for system in systems:
            run("e2fsck", "-fn", system.image)
        # The kernel reads what MLFS wrote.
        ours.mount_command, ours.unmount_command = ["mount", "-o", "loop,ro"], ["umount"]
        ours.mount()
        mounted.append(ours)
        compare("MLFS's image read by the kernel", digest(ours.clone()), last)
    finally:
        for system in mounted:
            system.unmount()
    shutil.rmtree(place)
    print(f"{len(revisions)} revisions of {len(commits)}, {files} files and directories, {mode}")


if __name__ == "__main__":
    main()
