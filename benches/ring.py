#!/usr/bin/env python3
"""What a request costs through io_uring and through /dev/fuse, and beside a FUSE server in memory.

ring.py [--rounds 25] [--count 400] [--dirs 10] [--processors 1,2] [--mode ordered]
        [--manylogs target/release/manylogs] [--memory target/release/examples/memory]

MLFS on an image in memory is mounted with `-o uring` and with `-o nouring`, and a FUSE server that
has its tree in memory (crates/servers/fuse/examples/memory.rs, /dev/fuse) beside them. The three do
the same in turn, in many short rounds. A line has the medians of the rounds: microseconds of an
operation, and of the server's processor time for it; and the medians of the ratios within a round.
With one processor programs and servers share it. Needs root and mkfs.ext4, and room in /dev/shm.
"""
import argparse
import mmap
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time

from mlfs import Mount, drop_caches, make_ext4, run, stat_by_server
from small_files import make_archive, shell

WAYS = ["uring", "nouring"]
PROGRAMS = 8
# Transfers of 1 MiB.
LARGE = 16


def server_us(process):
    """Microseconds of processor time that a server has had."""
    total = 0
    for task in os.listdir(f"/proc/{process.pid}/task"):
        with open(f"/proc/{process.pid}/task/{task}/schedstat") as stat:
            total += int(stat.read().split()[0])
    return total / 1000


class System:
    """One of the three."""

    def __init__(self, arguments, place, way):
        self.arguments, self.place, self.way = arguments, place, way
        self.root, self.image = f"{place}/{way}", f"{place}/{way}.img"
        if way != "memory":
            with open(self.image, "wb") as file:
                file.truncate(1 << 30)
            make_ext4(self.image)
        self.attach()

    def attach(self):
        arguments = self.arguments
        command = [arguments.memory, self.root] if self.way == "memory" else [
            arguments.manylogs, "fs", "mount", self.image, self.root, "--mode", arguments.mode,
            "-o", f"noatime,{self.way}"]
        self.mount = Mount(self.root, command)

    def cool(self):
        self.mount.unmount()
        drop_caches()
        self.attach()

    def timed(self, work, count):
        """Microseconds of one of `count`, and of the server's processor time for it."""
        before, began = server_us(self.mount.process), time.perf_counter()
        work()
        took = 1e6 * (time.perf_counter() - began)
        return took / count, (server_us(self.mount.process) - before) / count


def ask(names, times):
    for _ in range(times):
        for name in names:
            stat_by_server(name)


def at_once(names, times):
    """Several programs ask at once."""
    programs = [multiprocessing.Process(target=ask, args=(names, times)) for _ in range(PROGRAMS)]
    for program in programs:
        program.start()
    for program in programs:
        program.join()


def transfers(system, count):
    """Writes of 4 KiB and of 1 MiB, and reads past the cache where the server lets one."""
    path = f"{system.root}/content"
    small, large = b"s" * 4096, b"l" * (1 << 20)
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    took = {"write 4 KiB": system.timed(
        lambda: [os.pwrite(file, small, 4096 * number) for number in range(count)], count)}
    took["write 1 MiB"] = system.timed(
        lambda: [os.pwrite(file, large, number << 20) for number in range(LARGE)], LARGE)
    os.fsync(file)
    os.close(file)
    direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
    room = mmap.mmap(-1, 1 << 20)
    took["read 1 MiB, direct"] = system.timed(
        lambda: [os.preadv(direct, [room], number << 20) for number in range(LARGE)], LARGE)
    page = mmap.mmap(-1, 4096)
    took["read 4 KiB, direct"] = system.timed(
        lambda: [os.preadv(direct, [page], 4096 * number) for number in range(count)], count)
    os.close(direct)
    os.unlink(path)
    return took


def measure(system, archive, count):
    place = f"{system.root}/place"
    os.mkdir(place)
    names = [f"{place}/file{number:05}".encode() for number in range(count)]
    create = lambda name: os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    took = {"create, close": system.timed(lambda: [create(name) for name in names], count)}
    took["attributes"] = system.timed(lambda: ask(names, 4), 4 * count)
    took[f"attributes, {PROGRAMS} at once"] = system.timed(
        lambda: at_once(names, 1), PROGRAMS * count)
    took["unlink"] = system.timed(lambda: [os.unlink(name) for name in names], count)
    os.rmdir(place)
    took |= transfers(system, count)
    if system.way != "memory":
        took["untar, the whole"] = system.timed(
            lambda: shell(f"tar -xf {archive} -C {system.root}"), 1)
        system.cool()
        took["find cold, the whole"] = system.timed(
            lambda: shell(f"find {system.root}/tree -newer /proc/self"), 1)
        shutil.rmtree(f"{system.root}/tree")
    return took


def ratio(rounds, one, other, name, part):
    if name not in rounds[0][one] or name not in rounds[0][other]:
        return "-"
    ratios = [each[one][name][part] / max(each[other][name][part], 1e-9) for each in rounds]
    return f"{statistics.median(ratios):.2f}"


def tell(rounds):
    print(f"{'':<26}{'us each':^30}{'server us':^30}{'uring/nouring':^16}{'uring/memory':^16}")
    print(f"{'':<26}" + 2 * "".join(f"{way:>10}" for way in WAYS + ["memory"])
          + 2 * f"{'time':>8}{'server':>8}")
    for name in rounds[0]["uring"]:
        line = f"{name:<26}"
        for part in range(2):
            for way in WAYS + ["memory"]:
                known = name in rounds[0][way]
                median = statistics.median(each[way][name][part] for each in rounds) if known else 0
                line += f"{median:>10.1f}" if known else f"{'-':>10}"
        for other in ["nouring", "memory"]:
            line += "".join(f"{ratio(rounds, 'uring', other, name, part):>8}" for part in range(2))
        print(line, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--dirs", type=int, default=10)
    parser.add_argument("--processors", default="1,2")
    parser.add_argument("--mode", default="ordered")
    parser.add_argument("--manylogs", default="target/release/manylogs")
    parser.add_argument("--memory", default="target/release/examples/memory")
    arguments = parser.parse_args()
    arguments.manylogs = os.path.abspath(arguments.manylogs)
    arguments.memory = os.path.abspath(arguments.memory)
    all_ = os.sched_getaffinity(0)
    for processors in arguments.processors.split(","):
        os.sched_setaffinity(0, sorted(all_)[:int(processors)])
        place, systems = tempfile.mkdtemp(dir="/dev/shm"), []
        try:
            archive = make_archive(place, arguments.dirs, 20)
            for way in WAYS + ["memory"]:
                systems.append(System(arguments, place, way))
            rounds = []
            for number in range(arguments.rounds + 1):
                turn = systems[number % 3:] + systems[:number % 3]
                rounds.append({each.way: measure(each, archive, arguments.count) for each in turn})
            print(f"# {processors} processors, {arguments.rounds} rounds of {arguments.count}, "
                  f"mode {arguments.mode}, {31 + 21 * arguments.dirs} names, "
                  f"load {os.getloadavg()[0]:.1f}")
            # The first round warms up.
            tell(rounds[1:])
        finally:
            for system in systems:
                system.mount.unmount()
                if system.way != "memory":
                    run("e2fsck", "-fn", system.image)
            shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
