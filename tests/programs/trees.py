#!/usr/bin/env python3
"""Images of many features, filled by the kernel and read by MLFS, and the other way round.

    trees.py MANYLOGS IMAGES DIRECTORY SEED

Each image is made by mkfs.ext4 with options that its number and the seed draw. The kernel fills one
half of the images with a tree of files, MLFS the other half; then the other one reads names,
attributes, extended attributes and contents, and must find the same. It changes the tree then, and
the first one reads again. e2fsck judges the image after each turn. The first difference ends the
program with exit code 1 and the command that repeats it.
"""

import ctypes
import hashlib
import os
import random
import shutil
import stat
import subprocess
import sys
import time

MIB = 1 << 20
KEEP_SIZE, PUNCH_HOLE = 1, 2

# Each image takes one of each line.
FEATURES = [
    [[], ["-O", "^metadata_csum"], ["-O", "^metadata_csum,uninit_bg"],
     ["-O", "metadata_csum_seed"], ["-O", "^metadata_csum,^64bit"]],
    [[], ["-O", "^extent,^64bit"], ["-O", "^flex_bg"], ["-G", "4"], ["-O", "^resize_inode"],
     ["-O", "^resize_inode,meta_bg"], ["-O", "sparse_super2"],
     ["-O", "^sparse_super,^resize_inode"]],
    [[], ["-O", "^dir_index"], ["-O", "^dir_nlink"]],
    [[], ["-O", "orphan_file"], ["-O", "stable_inodes"], ["-O", "fast_commit"],
     ["-O", "^huge_file"], ["-O", "^large_file"]],
    [["-I", "256"], ["-I", "128"], ["-I", "512"], ["-I", "1024"]],
    [[], ["-g", "2048"], ["-g", "8192"], ["-N", "2048"], ["-m", "0"]],
    [["-J", "size=4"], ["-J", "size=8"], []],
]
HASHES = ["half_md4", "tea", "legacy"]


class Difference(Exception):
    """Something is not as it must be."""


def run(*command, fine=(0,)):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in fine:
        said = (done.stdout + done.stderr).strip()
        raise Difference(f"{' '.join(command)}: exit code {done.returncode}: {said}")
    return done.stdout


def fallocate(file, mode, offset, length):
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.fallocate(file, mode, ctypes.c_long(offset), ctypes.c_long(length))
    if done != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def make(image, rng):
    """The options that the image was made with."""
    mib = rng.choice([64, 96, 160, 300])
    chosen = [rng.choice(line) for line in FEATURES]
    off = {name for line in chosen if line[:1] == ["-O"] for name in line[1].split(",")}
    # Old block maps and old checksums exclude what is built on the new ones.
    if "^metadata_csum" in off or "^metadata_csum,uninit_bg" in off:
        off.discard("metadata_csum_seed")
    rest = [word for line in chosen if line[:1] != ["-O"] for word in line]
    options = ["-b", "4096", *rest]
    if off:
        options += ["-O", ",".join(sorted(off))]
    options += ["-E", f"lazy_itable_init={rng.randrange(2)}"]
    with open(image, "wb") as file:
        file.truncate(mib * MIB)
    run("mkfs.ext4", "-q", "-F", *options, image)
    kind = rng.choice(HASHES)
    run("tune2fs", "-E", f"hash_alg={kind}", image)
    return " ".join([*options, f"{mib}M, {kind}"])


class Tree:
    """A tree of files below a directory, grown and changed at random."""

    def __init__(self, root, rng):
        self.root, self.rng = root, rng
        self.files, self.dirs = [], [root]
        for directory, names, files in os.walk(root):
            self.dirs += [os.path.join(directory, name) for name in names
                          if name != "lost+found"]
            self.files += [os.path.join(directory, name) for name in files]
        self.dirs = [name for name in self.dirs if "lost+found" not in name]
        self.dirs.sort()
        self.files.sort()

    def new_path(self):
        alphabet = "abcdefghijklmnopqrstuvwxyz.-_ 0123456789\u00e4\u2192"
        length = self.rng.choice([3, 8, 20, 60, 80])
        name = "".join(self.rng.choice(alphabet) for _ in range(length)).strip(" .") or "x"
        return os.path.join(self.rng.choice(self.dirs), f"{name}{self.rng.randrange(10**6)}")

    def regular(self):
        found = [path for path in self.files
                 if os.path.isfile(path) and not os.path.islink(path)]
        return self.rng.choice(found) if found else None

    def create(self):
        path = self.new_path()
        with open(path, "wb") as file:
            for _ in range(self.rng.choice([0, 1, 1, 2, 12])):
                file.seek(self.rng.choice([0, 100, 4096, 70_000, 5 * MIB, 80 * MIB, 3 << 30])
                          + self.rng.randrange(5000))
                file.write(self.rng.randbytes(self.rng.choice([1, 60, 4096, 30_000, 200_000])))
        self.files.append(path)

    def change(self):
        path = self.regular()
        if not path:
            return
        file = os.open(path, os.O_RDWR)
        try:
            size = os.fstat(file).st_size
            how = self.rng.randrange(4)
            if how == 0:
                os.ftruncate(file, self.rng.randrange(2 * size + 10_000))
            elif how == 1:
                os.pwrite(file, self.rng.randbytes(20_000), self.rng.randrange(size + 1))
            elif how == 2 and size:
                fallocate(file, KEEP_SIZE | PUNCH_HOLE, self.rng.randrange(size), 50_000)
            elif how == 3:
                fallocate(file, self.rng.choice([0, KEEP_SIZE]), size, 300_000)
        except OSError as error:
            # Files of block maps know no unwritten blocks, and images fill up.
            if error.errno not in (28, 95):
                raise
        finally:
            os.close(file)

    def directory(self):
        path = self.new_path()
        os.mkdir(path)
        self.dirs.append(path)

    def many(self):
        """A directory that needs an index."""
        path = self.new_path()
        os.mkdir(path)
        for number in range(self.rng.choice([50, 400, 1500])):
            if number % 3:
                os.mknod(os.path.join(path, f"{number:05}-{'n' * self.rng.randrange(40)}"))
            else:
                os.symlink("t" * self.rng.choice([5, 59, 60, 200]), f"{path}/l{number}")

    def other(self):
        path, how = self.new_path(), self.rng.randrange(5)
        if how == 0:
            os.symlink("s" * self.rng.choice([1, 59, 60, 61, 1000, 4095]), path)
        elif how == 1:
            os.mknod(path, stat.S_IFIFO | 0o640)
        elif how == 2:
            os.mknod(path, stat.S_IFBLK | 0o600, os.makedev(8, 70_000))
        elif how == 3:
            os.mknod(path, stat.S_IFSOCK | 0o777)
        elif (target := self.regular()) is not None:
            os.link(target, path)
        else:
            return
        self.files.append(path)

    def attributes(self):
        path = self.regular()
        if not path:
            return
        try:
            name = f"user.{'k' * self.rng.randrange(1, 30)}"
            os.setxattr(path, name, self.rng.randbytes(self.rng.choice([0, 10, 100, 900, 3000])))
            os.setxattr(path, "trusted.t", b"v" * self.rng.randrange(60))
        except OSError as error:
            if error.errno != 28:
                raise
        os.chmod(path, self.rng.choice([0o600, 0o4755, 0o644]))
        os.chown(path, self.rng.choice([0, 1000, 70_000]), 3)
        os.utime(path, ns=(self.rng.randrange(1 << 60), self.rng.randrange(1 << 61)))

    def remove(self):
        if self.files:
            os.unlink(self.files.pop(self.rng.randrange(len(self.files))))

    def rename(self):
        if self.files:
            at = self.rng.randrange(len(self.files))
            path = self.new_path()
            os.rename(self.files[at], path)
            self.files[at] = path

    def grow(self, steps):
        actions = [self.create] * 5 + [self.change] * 4 + [self.directory, self.other,
                   self.attributes, self.attributes, self.remove, self.rename]
        try:
            self.many()
            for _ in range(steps):
                self.rng.choice(actions)()
        except OSError as error:
            # A full file system is one more state to read.
            if error.errno != 28:
                raise


def content(path, info):
    """Where data may be, and what it is: a hole reads as zeroes."""
    digest = hashlib.blake2b()
    with open(path, "rb") as file:
        at = 0
        while at < info.st_size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != 6:
                    raise
                break
            end = os.lseek(file.fileno(), at, os.SEEK_HOLE)
            while at < end:
                # Zeroes count the same whether they are written or not.
                block = os.pread(file.fileno(), min(4096 - at % 4096, end - at), at)
                if block.count(0) != len(block):
                    digest.update(b"%d:" % at + block)
                at += len(block)
    return digest.hexdigest()


def facts(path):
    info = os.lstat(path)
    mode = stat.S_IFMT(info.st_mode)
    found = [oct(info.st_mode), info.st_nlink, info.st_uid, info.st_gid, info.st_rdev,
             info.st_mtime_ns, info.st_ino]
    if mode == stat.S_IFLNK:
        found.append(os.readlink(path))
    if mode == stat.S_IFREG:
        found += [info.st_size, info.st_blocks, content(path, info)]
    names = sorted(os.listxattr(path, follow_symlinks=False))
    found += [(name, os.getxattr(path, name, follow_symlinks=False)) for name in names]
    return found


def digest(root):
    paths = [root]
    for directory, names, files in os.walk(root):
        paths += [os.path.join(directory, name) for name in names + files]
    return {path[len(root):]: facts(path) for path in sorted(paths)}


def compare(written, read):
    for path in sorted(written.keys() | read.keys()):
        if written.get(path) != read.get(path):
            raise Difference(f"{path or '/'}: written {written.get(path)}, read {read.get(path)}")


class Mounted:
    """An image mounted by the kernel or by MLFS."""

    def __init__(self, manylogs, by_kernel, image, root):
        self.manylogs, self.by_kernel, self.image, self.root = manylogs, by_kernel, image, root

    def __enter__(self):
        if self.by_kernel:
            run("mount", "-o", "loop", self.image, self.root)
        else:
            run(self.manylogs, "fs", "mount", self.image, self.root, "--background")

    def __exit__(self, *_):
        how = ["umount"] if self.by_kernel else [self.manylogs, "fs", "unmount"]
        # Somebody who asks for the room on every file system holds it for a moment.
        for _ in range(50):
            if subprocess.run([*how, self.root], capture_output=True, check=False).returncode == 0:
                return
            time.sleep(0.1)
        run(*how, self.root)


def judge(image):
    run("e2fsck", "-fn", image)


def one(manylogs, place, number, seed):
    rng = random.Random(seed * 1_000_003 + number)
    image, root = os.path.join(place, "image"), os.path.join(place, "root")
    options = make(image, rng)
    first, second = number % 2 == 0, number % 2 == 1
    try:
        for turn, (writer, reader) in enumerate([(first, second), (second, first)]):
            with Mounted(manylogs, writer, image, root):
                Tree(root, rng).grow(60 if turn == 0 else 25)
            judge(image)
            # Block counts of delayed writes settle at the unmount.
            with Mounted(manylogs, writer, image, root):
                written = digest(root)
            with Mounted(manylogs, reader, image, root):
                read = digest(root)
            judge(image)
            compare(written, read)
    except (Difference, OSError) as error:
        raise Difference(f"{options}: {error}") from error
    return len(written)


def main():
    manylogs, images, place, seed = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    first, last = (int(n) for n in images.split("..")) if ".." in images else (1, int(images))
    os.makedirs(os.path.join(place, "root"), exist_ok=True)
    files = 0
    for number in range(first, last + 1):
        try:
            files += one(manylogs, place, number, seed)
        except (Difference, OSError) as error:
            print(f"image {number}: {error}", file=sys.stderr)
            sys.exit(f"repeat it with: trees.py {manylogs} {number}..{number} {place} {seed}")
    shutil.rmtree(os.path.join(place, "root"))
    print(f"{last + 1 - first} images, {files} files, both ways")


if __name__ == "__main__":
    main()
