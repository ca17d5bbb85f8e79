#!/usr/bin/env python3
"""Kills the server of a file system again and again while threads write files.

    mlfs_kills.py MANYLOGS IMAGE DIRECTORY ROUNDS SEED [MODE]

Each thread has a directory of its own. It creates, appends, overwrites, renames and removes files,
syncs them now and then, and remembers in this process what each file held at its last sync and what
was written since. After each kill -9 the file system is mounted again: what was synced must be
there, with bytes that were written since where others are; names are those of the last sync, or
later ones. A kill is a pulled plug for what was not synced. Now and then the kernel replays the
journal in place of the next mount, or e2fsck does, and e2fsck judges. In the modes manylogs and
adaptive, and in durable, which is manylogs with files that need durability and no place, the image
is adopted first and released at the end, and judged then. Prints one line of figures;
exits with 1 if anything is wrong.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

THREADS = 4
FILES = 24
PIECE = 512
LIMIT = 60  # seconds that a mount may take


def piece(owner, name, number, version):
    """What a piece of a file holds, which says whose it is."""
    text = f"{owner}/{name}/{number}/{version}\n".encode()
    return text.ljust(PIECE, b".")


class File:
    """A file: versions of its pieces as synced, and all that were written since."""

    def __init__(self, name):
        self.name = name
        self.version = 0
        self.synced = {}    # piece -> version
        self.written = {}   # piece -> versions since the last sync
        self.found = 0      # pieces that it had at the last check, zeroes included
        self.is_synced = False
        self.may_be_gone = True


class Owner(threading.Thread):
    """A thread with its directory."""

    def __init__(self, root, number, seed, files, stop):
        super().__init__()
        self.root = os.path.join(root, f"t{number}")
        self.number, self.rng, self.files, self.stop_ = number, random.Random(seed), files, stop
        self.syncs = self.error = None
        self.count = 0

    def run(self):
        try:
            while not self.stop_.is_set():
                self.step()
        except OSError as error:
            # The server is dead (ECANCELED: a request was on its way to the server through
            # io_uring). Anything else is a fault.
            if not self.stop_.is_set() and error.errno not in (5, 103, 107, 125):
                self.error = error

    def path(self, file):
        return os.path.join(self.root, file.name)

    def step(self):
        files, rng = self.files, self.rng
        if len(files) < FILES // 2 or rng.random() < 0.1 and len(files) < FILES:
            name = f"f{rng.randrange(10**9)}"
            files[name] = File(name)
            os.close(os.open(self.path(files[name]), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            return
        file = files[rng.choice(sorted(files))]
        chance = rng.random()
        if chance < 0.04:
            self.remove(file)
        elif chance < 0.08:
            self.rename(file)
        else:
            self.write(file, rng.random() < 0.5)

    def write(self, file, sync):
        rng = self.rng
        fd = os.open(self.path(file), os.O_WRONLY)
        try:
            start = rng.randrange(1, 400)
            file.version += 1
            run = range(start, start + rng.choice([1, 3, 9, 100]))
            for number in run:
                file.written.setdefault(number, set()).add(file.version)
            data = b"".join(piece(self.number, "", n, file.version) for n in run)
            os.pwrite(fd, data, start * PIECE)
            if sync:
                (os.fsync if rng.random() < 0.5 else os.fdatasync)(fd)
                for number in list(file.written):
                    # What was overwritten before the sync is not what it kept.
                    file.synced[number] = max(file.written[number])
                file.written = {}
                if not file.is_synced:
                    # The name as well, as ext4 promises for files that are new.
                    file.is_synced, file.may_be_gone = True, False
                self.count += 1
        finally:
            os.close(fd)

    def remove(self, file):
        # From the call on nobody can say which of the two is durable.
        file.may_be_gone = True
        os.unlink(self.path(file))
        del self.files[file.name]
        self.sync_directory()

    def rename(self, file):
        file.may_be_gone = True
        old = self.path(file)
        new = File(f"r{self.rng.randrange(10**9)}")
        new.version, new.synced, new.written = file.version, file.synced, file.written
        new.found = file.found
        self.files[new.name] = new
        os.rename(old, self.path(new))
        del self.files[file.name]
        self.sync_directory()
        new.is_synced, new.may_be_gone = file.is_synced, False

    def sync_directory(self):
        fd = os.open(self.root, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def check(root, number, files):
    """What is wrong with a thread's directory, and brings the memory up to what is there."""
    directory = os.path.join(root, f"t{number}")
    found = set(os.listdir(directory))
    for name in sorted(found - files.keys()):
        # It was removed or renamed, and the kill came before that was durable.
        os.unlink(os.path.join(directory, name))
    for name in sorted(files):
        file = files[name]
        if name not in found:
            if not file.may_be_gone:
                return f"{directory}/{name}: it was synced, and is gone"
            del files[name]
            continue
        wrong = check_content(os.path.join(directory, name), number, file)
        if wrong:
            return wrong
    return None


def check_content(path, owner, file):
    with open(path, "rb") as source:
        data = source.read()
    now = {}
    # The kernel's ext4 may keep the length of a write without its content, which was not synced.
    last = max([*file.synced, *file.written, file.found - 1, 0])
    for number in range(last + 1):
        held = data[number * PIECE : (number + 1) * PIECE]
        may = {piece(owner, "", number, version): version
               for version in file.written.get(number, set())}
        if number in file.synced:
            may[piece(owner, "", number, file.synced[number])] = file.synced[number]
        elif not held or held == bytes(len(held)):
            continue
        if held not in may:
            return (f"{path}: piece {number} is {held[:40]!r}, synced is version "
                    f"{file.synced.get(number)}, written since {file.written.get(number)}")
        now[number] = may[held]
    if len(data) > (last + 1) * PIECE:
        return f"{path}: {len(data)} bytes, and {(last + 1) * PIECE} were written at most"
    # What is there after the mount is durable: a second kill must not change it.
    file.synced, file.written, file.may_be_gone = now, {}, False
    file.found = -(-len(data) // PIECE)
    file.is_synced = True
    return None


class Server:
    def __init__(self, manylogs, image, root, mode):
        self.command = [manylogs, "fs", "mount", image, root, "--mode", mode]
        self.root = root
        self.child = None

    def start(self):
        # What io_uring keeps of a killed process, its lock included, is gone a moment after it.
        deadline = time.monotonic() + LIMIT
        while not os.path.ismount(self.root):
            if self.child is None or self.child.poll() is not None:
                self.child = subprocess.Popen(self.command, stdout=subprocess.DEVNULL,
                                              stderr=subprocess.PIPE, text=True)
            time.sleep(0.005)
            if self.child.poll() is not None:
                said = self.child.stderr.read()
                if "locked" not in said or time.monotonic() > deadline:
                    raise RuntimeError(f"not mounted: exit code {self.child.poll()}: {said}")

    def stop(self):
        """An orderly unmount."""
        subprocess.run(["umount", "-i", self.root], check=True)
        self.child.wait()

    def kill(self, stop):
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        # From the unmount on a thread that comes late finds the empty directory below.
        stop.set()
        subprocess.run(["umount", "-l", self.root], check=False, capture_output=True)
        while os.path.ismount(self.root):
            time.sleep(0.005)


def replay_by_others(image, root, rng):
    """Sometimes another one replays the journal: the kernel or e2fsck."""
    choice = rng.randrange(8)
    if choice == 0:
        subprocess.run(["mount", "-o", "loop", image, root], check=True)
        subprocess.run(["umount", root], check=True)
    if choice == 1:
        subprocess.run(["e2fsck", "-p", image], check=False, capture_output=True)
    if choice < 2:
        said = subprocess.run(["e2fsck", "-fn", image], check=False, capture_output=True, text=True)
        if said.returncode != 0:
            raise RuntimeError(f"e2fsck: {said.stdout}")
        return 1
    return 0


def check_by_kernel(image, root, memory):
    """What was synced is there for the kernel's ext4 as well."""
    subprocess.run(["mount", "-o", "loop,ro", image, root], check=True)
    try:
        for number in range(THREADS):
            wrong = check(root, number, memory[number])
            if wrong:
                sys.exit(f"by the kernel: {wrong}")
    finally:
        subprocess.run(["umount", root], check=True)


def main():
    manylogs, image, root, rounds, seed = sys.argv[1:6]
    mode = sys.argv[6] if len(sys.argv) > 6 else "ordered"
    # Of these only the logs know what is durable, until they are drained.
    adopted = mode in ("manylogs", "adaptive", "durable")
    rng = random.Random(int(seed))
    os.makedirs(root, exist_ok=True)
    if adopted:
        subprocess.run([manylogs, "fs", "adopt", image, "--yes"], check=True, capture_output=True)
    server = Server(manylogs, image, root, "manylogs" if mode == "durable" else mode)
    memory = [{} for _ in range(THREADS)]
    syncs = judged = 0
    server.start()
    if mode == "durable":
        os.setxattr(root, "user.manylogs.durable", b"1")
    for number in range(THREADS):
        os.mkdir(os.path.join(root, f"t{number}"))
    # The directories are durable without any sync: what is judged later is the syncs of files.
    server.stop()
    server.start()
    for round_ in range(int(rounds)):
        stop = threading.Event()
        owners = [Owner(root, number, rng.random(), memory[number], stop)
                  for number in range(THREADS)]
        for owner in owners:
            owner.start()
        time.sleep(rng.uniform(0.05, 0.8))
        stop_by_kill = rng.random() < 0.9
        if not stop_by_kill:
            stop.set()
        server.kill(stop)
        for owner in owners:
            owner.join()
            syncs += owner.count
            if owner.error:
                sys.exit(f"round {round_}: thread {owner.number}: {owner.error}")
        if not adopted:
            judged += replay_by_others(image, root, rng)
        server.start()
        for number in range(THREADS):
            wrong = check(root, number, memory[number])
            if wrong:
                sys.exit(f"round {round_}, seed {seed}: {wrong}")
    server.stop()
    if adopted:
        subprocess.run([manylogs, "fs", "release", image], check=True, capture_output=True)
    if mode == "lazy":
        # All is in the journal, which e2fsck brings home.
        subprocess.run(["e2fsck", "-fp", image], check=True, capture_output=True)
    subprocess.run(["e2fsck", "-fn", image], check=True, capture_output=True)
    if adopted or mode == "lazy":
        check_by_kernel(image, root, memory)
    shutil.rmtree(root)
    print(f"{rounds} kills, {syncs} syncs kept, {judged} images judged by e2fsck in between")


if __name__ == "__main__":
    main()
