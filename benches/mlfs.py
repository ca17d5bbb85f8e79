#!/usr/bin/env python3
"""Speed of MLFS, beside the kernel's ext4 and beside what FUSE itself costs.

mlfs.py [--parts operations,streams,directory] [--rounds 5] [--count 4000] [--drive cheetah-15k5]
        [--size-mib 256] [--seconds 5] [--files 1000000] [--mode ordered]
        [--manylogs target/release/manylogs] [--memory target/release/examples/memory]

operations  create, stat, unlink and 4 KiB writes on an image in memory, and the same through a
            FUSE server that has its tree in memory (crates/servers/fuse/examples/memory.rs)
streams     writes and reads of 1 MiB, and random ones of 4 KiB past the page cache, on an emulated
            drive that is served as a loop device: the kernel's ext4 and MLFS mount the same file
            system in turn
directory   a directory of many files: the time of each tenth, and the server's memory

The two of each comparison take turns; a line has the medians of the rounds and of their ratios.
Exits with 1 if a gate is missed. Needs root, fio, losetup and mkfs.ext4, and room in /dev/shm.
"""
import argparse
import ctypes
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
# Operations may take so many times what FUSE costs; streams and random requests are to be at least
# so many times as fast as the kernel's.
GATES = {"operations": 1.75, "streams": 0.95, "random": 0.8, "directory": 1.5}
STATX_FORCE_SYNC, STATX_BASIC = 0x2000, 0x7FF
LIBC = ctypes.CDLL(None, use_errno=True)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout.strip()


def wait_until(what, process, name):
    while not what():
        if process.poll() is not None:
            raise SystemExit(f"{name} ended early with {process.returncode}")
        time.sleep(0.02)


def make_ext4(path, *options):
    lazy = "lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    run("mkfs.ext4", "-q", "-F", "-b", "4096", "-E", lazy, *options, path)


class Mount:
    """A file system that a process of ours serves, or the kernel."""

    def __init__(self, root, command=None, source=None):
        self.root, self.process = root, None
        os.makedirs(root, exist_ok=True)
        if command:
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            wait_until(lambda: os.path.ismount(root), self.process, command[0])
        else:
            run("mount", "-o", "noatime", source, root)

    def peak_mib(self):
        """The most memory that the server had so far."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmHWM:\s*(\d+)", status.read())[1]) / 1024

    def unmount(self):
        # Somebody who asks for the room on every file system holds it for a moment.
        for _ in range(100):
            if subprocess.run(["umount", self.root], capture_output=True).returncode == 0:
                break
            time.sleep(0.05)
        else:
            run("umount", self.root)
        if self.process:
            self.process.wait()


def mlfs(arguments, source, root):
    command = [arguments.manylogs, "fs", "mount", source, root, "--mode", arguments.mode, "-o",
               "noatime"]
    return Mount(root, command)


# Operations


def stat_by_server(path, buffer=ctypes.create_string_buffer(256)):
    """Asks the server, past what the kernel remembers."""
    if LIBC.statx(-100, path, STATX_FORCE_SYNC, STATX_BASIC, buffer) != 0:
        raise OSError(ctypes.get_errno(), path)


def timed(do, items):
    """Microseconds of one."""
    began = time.perf_counter()
    for item in items:
        do(item)
    return 1e6 * (time.perf_counter() - began) / len(items)


def operations_of(root, count):
    """Microseconds of each operation."""
    place = os.path.join(root, "operations")
    os.mkdir(place)
    names = [os.path.join(place, f"file{number:06}").encode() for number in range(count)]
    create = lambda name: os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    took = {"create": timed(create, names), "stat": timed(stat_by_server, names)}
    written = os.open(os.path.join(root, "written"), os.O_CREAT | os.O_RDWR, 0o644)
    block = b"w" * 4096
    offsets = [4096 * number for number in range(count)]
    write = lambda offset: os.pwrite(written, block, offset)
    took["write 4 KiB, new"] = timed(write, offsets)
    took["write 4 KiB, again"] = timed(write, offsets)
    os.close(written)
    took["unlink"] = timed(os.unlink, names)
    os.unlink(os.path.join(root, "written"))
    os.rmdir(place)
    return took


def operations(arguments, place):
    image = f"{place}/image"
    with open(image, "wb") as file:
        file.truncate(1 << 30)
    make_ext4(image)
    mounts = [mlfs(arguments, image, f"{place}/mlfs"),
              Mount(f"{place}/memory", [arguments.memory, f"{place}/memory"])]
    try:
        rounds = []
        for mount in mounts:
            operations_of(mount.root, arguments.count)
        for _ in range(arguments.rounds):
            rounds.append([operations_of(mount.root, arguments.count) for mount in mounts])
    finally:
        for mount in mounts:
            mount.unmount()
    run("e2fsck", "-fn", image)
    print(f"# {arguments.rounds} rounds of {arguments.count} operations, mode {arguments.mode}")
    print(f"{'operation':<22}{'MLFS us':>10}{'memory us':>11}{'ratio':>8}")
    missed = []
    for name in rounds[0][0]:
        columns = [[each[name] for each in side] for side in zip(*rounds)]
        ratio = statistics.median(ours / other for ours, other in zip(*columns))
        ours, other = (statistics.median(column) for column in columns)
        print(f"{name:<22}{ours:>10.1f}{other:>11.1f}{ratio:>8.2f}", flush=True)
        if ratio > GATES["operations"]:
            missed.append(f"{name}: {ratio:.2f} times, at most {GATES['operations']}")
    return missed


# Streams


def fio(root, rw, *options):
    """MiB or requests a second."""
    file = os.path.join(root, "stream")
    report = json.loads(run("fio", "--name=x", f"--filename={file}", f"--rw={rw}",
                            "--output-format=json", *options))
    side = report["jobs"][0]["read" if "read" in rw else "write"]
    return side["iops"] if "rand" in rw else side["bw_bytes"] / MIB


def patterns(arguments):
    size = f"--size={arguments.size_mib}M"
    timed_ = ["--time_based", f"--runtime={arguments.seconds}"]
    random = ["--bs=4k", "--direct=1", "--ioengine=libaio", size, *timed_]
    stream = ["--bs=1M", size]
    # Each is on a fresh mount, so that nothing of the file is in memory.
    return {
        "write 1 MiB, new": ("write", "streams", [*stream, "--end_fsync=1"]),
        "write 1 MiB, again": ("write", "streams", [*stream, "--end_fsync=1", "--overwrite=1"]),
        "read 1 MiB": ("read", "streams", stream),
        "randread 4k QD1": ("randread", "random", [*random, "--iodepth=1"]),
        "randread 4k QD16": ("randread", "random", [*random, "--iodepth=16"]),
        "randwrite 4k QD1": ("randwrite", "random", [*random, "--iodepth=1"]),
        "randwrite 4k QD16": ("randwrite", "random", [*random, "--iodepth=16"]),
    }


def streams_of(mount, rw, options, new):
    root = mount.root
    try:
        if new and os.path.exists(f"{root}/stream"):
            os.unlink(f"{root}/stream")
            directory = os.open(root, os.O_RDONLY)
            os.fsync(directory)
            os.close(directory)
        return fio(root, rw, *options)
    finally:
        mount.unmount()


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("3")


def streams(arguments, place):
    image, root = f"{place}/drive", f"{place}/root"
    with open(image, "wb") as file:
        file.truncate(16 << 30)
    serve = [arguments.manylogs, "serve", image, "--raw", "--loop"]
    # Made at the speed of memory, measured at that of the drive.
    server, device = served(serve)
    make_ext4(device)
    stop(server)
    server, device = served([*serve, "--emulate", arguments.drive, "--no-fit"])
    figures = {}
    try:
        for round_ in range(arguments.rounds):
            for name, (rw, gate, options) in patterns(arguments).items():
                # Each begins every other round: who comes second finds the drive's arm elsewhere.
                for ours in ((True, False) if round_ % 2 else (False, True)):
                    drop_caches()
                    mount = mlfs(arguments, device, root) if ours else Mount(root, source=device)
                    speed = streams_of(mount, rw, options, name.endswith("new"))
                    figures.setdefault((name, gate), ([], []))[0 if ours else 1].append(speed)
        run("e2fsck", "-fn", device)
    finally:
        stop(server)
    print(f"# {arguments.rounds} rounds on {arguments.drive}, {arguments.size_mib} MiB, "
          f"mode {arguments.mode}")
    print(f"{'pattern':<22}{'MLFS':>10}{'ext4':>10}{'ratio':>8}   (MiB/s, requests/s)")
    missed = []
    for (name, gate), columns in figures.items():
        ratio = statistics.median(ours / other for ours, other in zip(*columns))
        ours, other = (statistics.median(column) for column in columns)
        print(f"{name:<22}{ours:>10.1f}{other:>10.1f}{ratio:>8.2f}", flush=True)
        if ratio < GATES[gate]:
            missed.append(f"{name}: {ratio:.2f} times as fast, at least {GATES[gate]}")
    return missed


def served(command):
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    for line in server.stdout:
        if found := re.search(r"/dev/loop\d+", line):
            return server, found[0]
    raise SystemExit(f"{' '.join(command)}: no device")


def stop(server):
    server.send_signal(signal.SIGINT)
    server.wait()


# A large directory


def directory(arguments, place):
    count = arguments.files
    image = f"{place}/large"
    with open(image, "wb") as file:
        file.truncate(max(1 << 30, count * 2048))
    make_ext4(image, "-N", str(count + 10_000))
    mount = mlfs(arguments, image, f"{place}/root")
    try:
        began_mib = mount.peak_mib()
        dir_ = os.path.join(mount.root, "large")
        os.mkdir(dir_)
        tenth = count // 10
        name = lambda number: f"{dir_}/a-name-of-some-length-{number:07}"
        parts = [[name(number) for number in range(part * tenth, (part + 1) * tenth)]
                 for part in range(10)]
        print(f"# {count} files, microseconds of each operation in each tenth")
        missed = []
        for what, do in [("create", os.mknod), ("stat", lambda path: stat_by_server(path.encode())),
                         ("unlink", os.unlink)]:
            took = [timed(do, part) for part in parts]
            print(f"{what:<8}" + "".join(f"{each:>8.1f}" for each in took)
                  + f"   server's memory at most {mount.peak_mib():.0f} MiB", flush=True)
            if what == "create":
                began = time.perf_counter()
                found = sum(1 for _ in os.scandir(dir_))
                print(f"list    {found} names in {time.perf_counter() - began:.1f} s")
                if found != count:
                    missed.append(f"{found} names of {count} listed")
            # The first tenth of the directory is small; the medians leave stalls out.
            growth = statistics.median(took[7:]) / statistics.median(took[1:4])
            if growth > GATES["directory"]:
                missed.append(f"{what}: the last tenths take {growth:.2f} times as long")
        print(f"# the server had {began_mib:.0f} MiB when it was mounted")
    finally:
        mount.unmount()
    run("e2fsck", "-fn", image)
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default="operations,streams,directory")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--drive", default="cheetah-15k5")
    parser.add_argument("--size-mib", type=int, default=256)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--mode", default="ordered", choices=["ordered", "data"])
    parser.add_argument("--manylogs", default="target/release/manylogs")
    parser.add_argument("--memory", default="target/release/examples/memory")
    arguments = parser.parse_args()
    known = {"operations": operations, "streams": streams, "directory": directory}
    parts = arguments.parts.split(",")
    if unknown := set(parts) - known.keys():
        raise SystemExit(f"no part is called {', '.join(unknown)}: {', '.join(known)}")
    for program in ["fio", "losetup", "mkfs.ext4", arguments.manylogs, arguments.memory]:
        if shutil.which(program) is None:
            raise SystemExit(f"mlfs.py: {program} is missing")
    missed = []
    for part in parts:
        place = tempfile.mkdtemp(prefix="manylogs-mlfs.", dir="/dev/shm")
        try:
            missed += known[part](arguments, place)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    for each in missed:
        print(f"mlfs: falls short: {each}", file=sys.stderr)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
