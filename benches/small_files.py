#!/usr/bin/env python3
"""Small files through MLFS, beside the kernel's ext4 on the same loop device in the same run.

small_files.py [--rounds 5] [--dirs 300] [--files 20] [--modes ordered,manylogs] [--drive NAME]
               [--manylogs target/release/manylogs] [--gates]

A tree of DIRS directories with FILES files each is unpacked, searched, read, added to git and
removed by the programs that everybody uses. Each round makes the file system anew for each of
the two, which take turns in being first; a line has the medians of the rounds, the median of their
ratios, and how many requests the kernel sent to MLFS. "round trip" is an attribute that the server
is asked for. With --drive the loop device is an emulated drive. With --gates it exits with 1 where
a gate is missed. Needs root, git, losetup and mkfs.ext4, and room in /dev/shm.
"""
import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from mlfs import Mount, drop_caches, make_ext4, run, served, stat_by_server, stop

# Times the kernel's ext4. On an emulated drive nothing may be slower than it.
GATES = {"untar": 5, "find cold": 3, "find warm": 1.5, "du warm": 1.5, "tar read cold": 1.3,
         "git add, commit": 2.5, "git status warm": 1.5, "rm -r": 4}
TOUCHED = 500


def make_archive(place, dirs, files):
    """An archive of a tree whose files are as long as sources are."""
    chance = random.Random(1)
    for number in range(dirs):
        dir_ = f"{place}/tree/part{number % 10}/dir{number}"
        os.makedirs(dir_)
        for file in range(files):
            with open(f"{dir_}/file{file}.txt", "wb") as out:
                out.write(chance.randbytes(chance.randrange(100, 12_000)))
    run("tar", "-cf", f"{place}/tree.tar", "-C", place, "tree")
    shutil.rmtree(f"{place}/tree")
    return f"{place}/tree.tar"


class System:
    """One of the two, mounted anew whenever its caches are to be cold."""

    def __init__(self, arguments, device, root, mode):
        self.arguments, self.device, self.root, self.mode = arguments, device, root, mode
        self.mount = None

    def begin(self):
        make_ext4(self.device)
        if self.mode in ("manylogs", "adaptive"):
            run(self.arguments.manylogs, "fs", "adopt", "--yes", self.device)
        self.attach()

    def attach(self):
        command = [self.arguments.manylogs, "fs", "mount", self.device, self.root, "--mode",
                   self.mode, "-o", "noatime"] if self.mode else None
        self.mount = Mount(self.root, command, self.device)

    def cool(self):
        self.mount.unmount()
        drop_caches()
        self.attach()

    def requests(self):
        if not self.mode:
            return {}
        status = json.loads(run(self.arguments.manylogs, "fs", "status", self.root, "--json"))
        counts = {}
        for kind in status["server"]["file_system"]["kernel_requests"]:
            counts[kind["kind"]] = counts.get(kind["kind"], 0) + kind["requests"]
        return counts


def shell(command):
    subprocess.run(["sh", "-euc", command], check=True, stdout=subprocess.DEVNULL)


def programs(system, archive):
    """What is measured: a name, what prepares it, and the work."""
    tree = f"{system.root}/tree"
    git = f"git -C {tree} -c user.name=a -c user.email=a@b -c gc.auto=0"
    touch = [f"{system.root}/touched{number}" for number in range(TOUCHED)]

    def create():
        for path in touch:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))

    nothing = lambda: None
    find = lambda: shell(f"find {tree} -newer /proc/self")
    du = lambda: shell(f"du -s {tree}")
    status = lambda: shell(f"{git} status")
    return [
        ("untar", nothing, lambda: shell(f"tar -xf {archive} -C {system.root}")),
        ("find cold", system.cool, find),
        ("find warm", find, find),
        ("du warm", du, du),
        ("tar read cold", system.cool, lambda: shell(f"tar -cf - -C {tree} . | cat > /dev/null")),
        ("git add, commit", lambda: shell(f"git init -q {tree}"),
         lambda: shell(f"{git} add . && {git} commit -qm x")),
        ("git status warm", status, status),
        ("rm -r", nothing, lambda: shell(f"rm -r {tree}")),
        (f"create {TOUCHED}", nothing, create),
        (f"utime {TOUCHED}", nothing, lambda: [os.utime(path) for path in touch]),
        (f"round trip {TOUCHED}", nothing, lambda: [stat_by_server(path.encode())
                                                     for path in touch]),
    ]


def measure(system, archive):
    """Seconds and requests of each."""
    system.begin()
    took = {}
    try:
        for name, prepare, work in programs(system, archive):
            prepare()
            before = system.requests()
            began = time.perf_counter()
            work()
            seconds = time.perf_counter() - began
            more = {kind: count - before.get(kind, 0) for kind, count in system.requests().items()}
            took[name] = (seconds, {kind: count for kind, count in more.items() if count})
    finally:
        system.mount.unmount()
    return took


def compare(arguments, mode, archive, device, place):
    ours = System(arguments, device, f"{place}/root", mode)
    kernels = System(arguments, device, f"{place}/root", None)
    rounds = []
    for number in range(arguments.rounds):
        both = {}
        for system in ((ours, kernels) if number % 2 else (kernels, ours)):
            both[system] = measure(system, archive)
            if system is ours and mode in ("manylogs", "adaptive"):
                run(arguments.manylogs, "fs", "release", device)
            run("e2fsck", "-fn", device)
        rounds.append((both[ours], both[kernels]))
    where = arguments.drive or "a file in memory"
    names = arguments.dirs * arguments.files + arguments.dirs + 11
    print(f"# {names} names, {arguments.rounds} rounds on {where}, mode {mode}")
    print(f"{'program':<18}{'MLFS ms':>10}{'ext4 ms':>10}{'ratio':>8}{'requests':>10}"
          "  of these most")
    missed = []
    for name in rounds[0][0]:
        columns = [[side[name][0] for side in both] for both in zip(*rounds)]
        ratio = statistics.median(mine / other for mine, other in zip(*columns))
        mine, other = (1e3 * statistics.median(column) for column in columns)
        kinds = rounds[-1][0][name][1]
        most = sorted(kinds.items(), key=lambda kind: -kind[1])[:7]
        text = ", ".join(f"{count} {kind}" for kind, count in most)
        print(f"{name:<18}{mine:>10.1f}{other:>10.1f}{ratio:>8.2f}"
              f"{sum(kinds.values()):>10}  {text}", flush=True)
        gate = 1 if arguments.drive else GATES.get(name)
        if name in GATES and ratio > gate:
            missed.append(f"{mode}, {name}: {ratio:.2f} times as long, at most {gate}")
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dirs", type=int, default=300)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("--modes", default="ordered,manylogs")
    parser.add_argument("--drive")
    parser.add_argument("--gates", action="store_true")
    parser.add_argument("--manylogs", default="target/release/manylogs")
    arguments = parser.parse_args()
    arguments.manylogs = os.path.abspath(arguments.manylogs)
    for program in ["git", "losetup", "mkfs.ext4", arguments.manylogs]:
        if shutil.which(program) is None:
            raise SystemExit(f"small_files.py: {program} is missing")
    place, missed, server, device = tempfile.mkdtemp(dir="/dev/shm"), [], None, None
    try:
        archive = make_archive(place, arguments.dirs, arguments.files)
        image = f"{place}/image"
        with open(image, "wb") as file:
            file.truncate(2 << 30)
        if arguments.drive:
            server, device = served([arguments.manylogs, "serve", image, "--raw", "--loop",
                                     "--emulate", arguments.drive, "--no-fit"])
        else:
            device = run("losetup", "--find", "--show", image)
        for mode in arguments.modes.split(","):
            missed += compare(arguments, mode, archive, device, place)
    finally:
        if server:
            stop(server)
        elif device:
            subprocess.run(["losetup", "--detach", device])
        shutil.rmtree(place, ignore_errors=True)
    for each in missed:
        print(f"small files: falls short: {each}", file=sys.stderr)
    sys.exit(bool(missed) and arguments.gates)


if __name__ == "__main__":
    main()
