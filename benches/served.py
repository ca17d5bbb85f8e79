#!/usr/bin/env python3
"""Speed of the served software itself, beside others on the same transport.

served.py [--seconds 5] [--rounds 2] [--size 4G] [--transports loop,nbd]
          [--manylogs target/release/manylogs]

Serves a file in memory over a loop device (FUSE below it) and over NBD: ours, nbdkit's file
plugin, and qemu-storage-daemon. For each pattern all take turns; a line has the medians, ours as
a share of the better of the others, and the processor time of a request in the server. After the
writes of ours a checkpoint is run, and its time counts as part of the run.

Needs root, fio with the nbd engine, losetup, nbdkit, qemu-storage-daemon.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
import time

PATTERNS = [(rw, bs, depth)
            for rw, bs in [("randread", "4k"), ("randwrite", "4k"), ("read", "1M"), ("write", "1M")]
            for depth in [1, 32]]


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Server:
    """A process that serves; `target` is what fio is told."""

    def __init__(self, name, place, size):
        self.name, self.place = name, place
        self.image, self.socket = f"{place}/{name}.img", f"{place}/{name}.sock"
        # All of it is there: reading what is not there is another thing in each server.
        run("sh", "-c", f"head -c {size} /dev/zero > {self.image}")

    def start(self, command, ready):
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True)
        while not ready():
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} did not start: {command}")
            time.sleep(0.05)

    def pid(self):
        return self.process.pid

    def after(self):
        """Work that the writes left to be done."""

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Ours(Server):
    def __init__(self, transport, place, size, manylogs):
        super().__init__(f"ours-{transport}", place, size)
        self.manylogs = manylogs
        run(manylogs, "format", self.image, "--force")
        how = ["--loop"] if transport == "loop" else ["--nbd", f"unix:{self.socket}"]
        self.start([manylogs, "serve", self.image, *how], lambda: True)
        line = self.process.stdout.readline().strip()
        self.target = line if transport == "loop" else f"nbd+unix:///?socket={self.socket}"

    def status(self):
        return json.loads(run(self.manylogs, "status", self.image, "--json"))

    def pid(self):
        return self.status()["pid"]

    def after(self):
        run(self.manylogs, "checkpoint", self.image)

    def stop(self):
        run(self.manylogs, "stop", "--force", self.image)
        self.process.wait()


class Nbdkit(Server):
    def __init__(self, place, size):
        super().__init__("nbdkit-file", place, size)
        self.target = f"nbd+unix:///?socket={self.socket}"
        self.start(["nbdkit", "-f", "-U", self.socket, "file", self.image],
                   lambda: os.path.exists(self.socket))


class Qemu(Server):
    def __init__(self, transport, place, size):
        super().__init__(f"qemu-{transport}", place, size)
        file = f"{place}/qemu.export"
        if transport == "loop":
            open(file, "w").close()
            export = f"fuse,id=e,node-name=f,mountpoint={file},writable=on,allow-other=off"
        else:
            export = "nbd,id=e,node-name=f,name=,writable=on"
        command = ["qemu-storage-daemon", "--blockdev",
                   f"driver=file,filename={self.image},node-name=f,discard=unmap"]
        if transport == "nbd":
            command += ["--nbd-server", f"addr.type=unix,addr.path={self.socket}"]
        mounted = lambda: os.stat(file).st_size > 0
        self.start(command + ["--export", export],
                   mounted if transport == "loop" else lambda: os.path.exists(self.socket))
        self.target = f"nbd+unix:///?socket={self.socket}"
        if transport == "loop":
            self.target = run("losetup", "--find", "--show", "--direct-io=on", file)

    def stop(self):
        if self.target.startswith("/dev"):
            run("losetup", "--detach", self.target)
        super().stop()


def measure(server, pattern, seconds):
    """Requests a second, and processor microseconds of a request."""
    rw, bs, depth = pattern
    command = ["fio", "--name=x", f"--rw={rw}", f"--bs={bs}", f"--iodepth={depth}",
               "--time_based", f"--runtime={seconds}", "--output-format=json", "--size=2G"]
    if server.target.startswith("/dev"):
        command += ["--ioengine=libaio", "--direct=1", f"--filename={server.target}"]
    else:
        command += ["--ioengine=nbd", f"--uri={server.target}"]
    # fio's engines write to its standard output too.
    report = f"{server.place}/fio.json"
    pid = server.pid()
    before = cpu_seconds(pid)
    run(*command, f"--output={report}")
    ended = time.monotonic()
    if "write" in rw:
        server.after()
    took = seconds + time.monotonic() - ended
    side = json.load(open(report))["jobs"][0]["read" if "read" in rw else "write"]
    count = side["total_ios"]
    return count / took, 1e6 * (cpu_seconds(pid) - before) / count


def compare(servers, arguments):
    print(f"{'pattern':<20}{'ours/s':>10}{'CPU us':>8}", end="")
    for other in servers[1:]:
        print(f"{other.name + '/s':>16}{'CPU us':>8}", end="")
    print(f"{'speed':>8}{'CPU':>7}")
    for pattern in PATTERNS:
        figures = {server.name: [] for server in servers}
        for _ in range(arguments.rounds):
            for server in servers:
                figures[server.name].append(measure(server, pattern, arguments.seconds))
        medians = [tuple(statistics.median(column) for column in zip(*figures[server.name]))
                   for server in servers]
        best = max(medians[1:])
        print(f"{pattern[0]} {pattern[1]} QD{pattern[2]}".ljust(20), end="")
        for index, (rate, cpu) in enumerate(medians):
            print(f"{rate:>{10 if index == 0 else 16}.0f}{cpu:>8.1f}", end="")
        print(f"{medians[0][0] / best[0]:>8.2f}{medians[0][1] / best[1]:>7.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--size", default="4G")
    parser.add_argument("--transports", default="loop,nbd")
    parser.add_argument("--manylogs", default="target/release/manylogs")
    arguments = parser.parse_args()
    for program in ["fio", "losetup", "nbdkit", "qemu-storage-daemon", arguments.manylogs]:
        if shutil.which(program) is None:
            raise SystemExit(f"served.py: {program} is missing")
    for transport in arguments.transports.split(","):
        place = tempfile.mkdtemp(prefix="manylogs-served.", dir="/dev/shm")
        servers = []
        try:
            servers.append(Ours(transport, place, arguments.size, arguments.manylogs))
            servers.append(Qemu(transport, place, arguments.size))
            if transport == "nbd":
                servers.append(Nbdkit(place, arguments.size))
            print(f"# over {transport}, {arguments.rounds} rounds of {arguments.seconds} s")
            compare(servers, arguments)
            volume = servers[0].status()["volume"]
            writes = volume["logged_writes"] + volume["bypassed_writes"]
            print(f"# {100 * volume['logged_writes'] / writes:.1f} % of our writes were logged")
        finally:
            for server in servers:
                server.stop()
            shutil.rmtree(place)


main()
