#!/usr/bin/env python3
"""Serves volumes under a changing load for a long time, and fails if something grows.

    tests/programs/soak.py [MINUTES]       (make soak MINUTES=60)

Two servers, one over NBD and one over a loop device (without root or loop devices: NBD alone), each
with writers that check what they read: small durable writes, long writes, zeroes and discards,
reads, flushes and silence take turns. Meanwhile checkpoints run, settings change, clients come and
go, and one now and then fetches nothing of what it asks for.

Memory, descriptors and threads of the servers, and the size of the mapping tables, are looked at
again and again. After a quarter of the time, which is for warming up, the rest is cut into three:
the median of the last part must not be above that of the first by more than LIMITS allow. Nor may a
server ever take more than RESIDENT_MIB_MAX. One line
for each look, and one of figures at the end; exit code 1 if something has grown, or is wrong.

From the environment: MANYLOGS, the program (target/release/manylogs); PLACE, a directory for the
images (/var/tmp), which take up to 4 GiB; SEED, of everything that is drawn (1).
"""

import fcntl
import json
import mmap
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

MIB = 1 << 20
BLOCK = 4096
WRITERS = 4
# Of each writer.
REGION_BLOCKS = 64 * MIB // BLOCK
# Of what is looked at: the share and the amount by which it may be larger at the end.
LIMITS = {
    "resident_mib": (0.10, 8),
    "descriptors": (0, 2),
    "threads": (0, 2),
    "table_mib": (0.25, 1),
}
# At any time; clients that ask for long reads and fetch none hold most of it.
RESIDENT_MIB_MAX = 512
PHASES = ["small", "mixed", "large", "zeroes", "reads", "silence"]
CYCLES = 10
SETTINGS = [
    ["checkpoint-rate=20M"],
    ["checkpoint-rate=none"],
    ["threshold=16K"],
    ["threshold=64K"],
    ["logging=off"],
    ["logging=on"],
    ["buffer=0"],
    ["buffer=4M"],
    ["checkpoint=idle"],
    ["checkpoint=every:30s"],
]
BLKDISCARD, BLKZEROOUT = 0x1277, 0x127F
READ, WRITE, DISCONNECT, FLUSH, TRIM, ZERO = 0, 1, 2, 3, 4, 6


class Wrong(Exception):
    pass


def content(block, version):
    """What a block holds; zeroes in version zero."""
    if version == 0:
        return bytes(BLOCK)
    return struct.pack("<QQ", block, version) * (BLOCK // 16)


class NbdDevice:
    """A connection to an NBD server, with simple replies."""

    def __init__(self, path):
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.settimeout(120)
        self.stream.connect(path)
        self.receive(18)
        self.stream.sendall(struct.pack(">I", 3) + b"IHAVEOPT" + struct.pack(">II", 1, 0))
        self.receive(10)

    def receive(self, count):
        parts = bytearray()
        while len(parts) < count:
            part = self.stream.recv(count - len(parts))
            if not part:
                raise Wrong("the NBD server has ended the connection")
            parts += part
        return bytes(parts)

    def ask(self, requests):
        """Sends (command, flags, offset, length, data) together; what the last one read."""
        headers = [
            struct.pack(">IHHQQI", 0x25609513, flags, command, 7, offset, length) + data
            for command, flags, offset, length, data in requests
        ]
        self.stream.sendall(b"".join(headers))
        found = b""
        for command, _, _, length, _ in requests:
            _, error, _ = struct.unpack(">IIQ", self.receive(16))
            if error:
                raise Wrong(f"command {command} failed with {error}")
            if command == READ:
                found = self.receive(length)
        return found

    def write(self, parts, durable):
        self.ask([(WRITE, int(durable), at, len(data), data) for at, data in parts])

    def zero(self, at, length):
        self.ask([(random.choice([ZERO, TRIM]), 0, at, length, b"")])

    def read(self, at, length):
        return self.ask([(READ, 0, at, length, b"")])

    def flush(self):
        self.ask([(FLUSH, 0, 0, 0, b"")])

    def close(self):
        header = struct.pack(">IHHQQI", 0x25609513, 0, DISCONNECT, 7, 0, 0)
        self.stream.sendall(header)
        self.stream.close()


class LoopDevice:
    """A block device, past the page cache."""

    def __init__(self, path):
        self.file = os.open(path, os.O_RDWR | os.O_DIRECT)
        self.memory = mmap.mmap(-1, MIB)

    def write(self, parts, durable):
        for at, data in parts:
            self.memory[: len(data)] = data
            os.pwritev(self.file, [memoryview(self.memory)[: len(data)]], at)
        if durable:
            os.fdatasync(self.file)

    def zero(self, at, length):
        request = random.choice([BLKDISCARD, BLKZEROOUT])
        fcntl.ioctl(self.file, request, struct.pack("QQ", at, length))

    def read(self, at, length):
        os.preadv(self.file, [memoryview(self.memory)[:length]], at)
        return self.memory[:length]

    def flush(self):
        os.fsync(self.file)

    def close(self):
        os.close(self.file)


class Server:
    def __init__(self, manylogs, image, kind):
        self.manylogs, self.image, self.kind = manylogs, image, kind
        make = [manylogs, "format", image, "--size", "2G", "--sparse", "--log", "2M"]
        subprocess.run([*make, "--group", "64M"], check=True, stdout=subprocess.DEVNULL)
        self.socket = image + ".sock"
        options = ["--nbd", "unix:" + self.socket] if kind == "nbd" else ["--loop"]
        command = [manylogs, "serve", image, *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.path = self.process.stdout.readline().strip()
        if not self.path:
            raise Wrong("the server has not started")

    def open(self):
        return NbdDevice(self.socket) if self.kind == "nbd" else LoopDevice(self.path)

    def run(self, *arguments):
        command = [self.manylogs, arguments[0], self.image, *arguments[1:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode:
            raise Wrong(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def look(self):
        status = json.loads(self.run("status", "--json"))
        pid = self.process.pid
        with open(f"/proc/{pid}/status") as lines:
            told = dict(line.split(":", 1) for line in lines)
        return {
            "resident_mib": int(told["VmRSS"].split()[0]) / 1024,
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": int(told["Threads"]),
            "table_mib": status["volume"]["table_bytes"] / MIB,
            "requests": sum(kind["requests"] for kind in status["requests"]),
            "checkpoints": status["volume"]["checkpoints"],
            "health": status["volume"]["health"],
        }

    def stop(self):
        self.run("stop", "--force")
        if self.process.wait(60):
            raise Wrong("the server has failed")
        self.run("check")


class Soak:
    def __init__(self, minutes, servers, seed):
        self.began = time.monotonic()
        self.seconds = minutes * 60
        self.phase_s = max(1.0, self.seconds / (CYCLES * len(PHASES)))
        self.servers, self.seed = servers, seed
        self.wrong = []
        self.looks = {server.kind: [] for server in servers}

    def left(self):
        return self.seconds - (time.monotonic() - self.began) if not self.wrong else 0

    def phase(self):
        return PHASES[int((time.monotonic() - self.began) / self.phase_s) % len(PHASES)]

    def guarded(self, what, *arguments):
        def body():
            try:
                what(*arguments)
            except Exception as error:  # whatever it is, the run has failed
                self.wrong.append(f"{what.__name__}: {error!r}")

        thread = threading.Thread(target=body)
        thread.start()
        return thread

    def write(self, server, number):
        rng = random.Random(f"{self.seed} {server.kind} {number}")
        first = number * REGION_BLOCKS
        versions = [0] * REGION_BLOCKS
        version, device = 0, server.open()
        while self.left() > 0:
            phase = self.phase()
            if phase == "silence":
                time.sleep(0.1)
                continue
            if rng.random() < 0.002:
                device.close()
                device = server.open()
            doing = rng.choice(PHASES[:5]) if phase == "mixed" else phase
            if doing in ("small", "mixed", "large"):
                version += 1
                count, long = (16, 1) if doing != "large" else (1, MIB // BLOCK)
                ranges = {rng.randrange(REGION_BLOCKS // long) * long for _ in range(count)}
                parts = []
                for at in ranges:
                    versions[at : at + long] = [version] * long
                    data = b"".join(content(first + at + i, version) for i in range(long))
                    parts.append(((first + at) * BLOCK, data))
                device.write(parts, durable=rng.random() < 0.7)
            elif doing == "zeroes":
                long = rng.choice([1, 16, 256, 2048])
                at = rng.randrange(REGION_BLOCKS - long)
                versions[at : at + long] = [0] * long
                device.zero((first + at) * BLOCK, long * BLOCK)
                time.sleep(0.01)
            else:
                long = rng.choice([1, 16, 256])
                at = rng.randrange(REGION_BLOCKS - long)
                found = device.read((first + at) * BLOCK, long * BLOCK)
                wanted = b"".join(content(first + at + i, versions[at + i]) for i in range(long))
                if found != wanted:
                    raise Wrong(f"writer {number} of {server.kind} reads something else at {at}")
            if rng.random() < 0.02:
                device.flush()
        device.close()

    def operate(self, server):
        rng = random.Random(f"{self.seed} {server.kind} operator")
        while self.left() > 0:
            time.sleep(min(self.phase_s / 2, max(self.left(), 0)))
            if rng.random() < 0.3:
                server.run("checkpoint")
            else:
                server.run("set", *rng.choice(SETTINGS))
            if server.kind == "nbd" and rng.random() < 0.3:
                self.be_deaf(server)

    @staticmethod
    def be_deaf(server):
        """A client that asks for much, fetches nothing, and leaves."""
        device = NbdDevice(server.socket)
        header = struct.pack(">IHHQQI", 0x25609513, 0, READ, 7, 0, MIB)
        device.stream.sendall(header * 1000)
        time.sleep(1)
        device.stream.close()

    def watch(self):
        while self.left() > 0:
            time.sleep(min(self.phase_s, max(self.left(), 0)))
            for server in self.servers:
                look = server.look()
                self.looks[server.kind].append((time.monotonic() - self.began, look))
                figures = "  ".join(f"{key} {value:.5g}" for key, value in look.items()
                                    if not isinstance(value, str))
                at = time.monotonic() - self.began
                print(f"{at:7.0f} s  {server.kind:4}  {figures}", flush=True)
                if look["resident_mib"] > RESIDENT_MIB_MAX:
                    raise Wrong(f"the server over {server.kind} takes too much memory")
                if look["health"] != "good":
                    raise Wrong(f"the volume over {server.kind} is {look['health']}")

    def run(self):
        threads = [self.guarded(self.watch)]
        for server in self.servers:
            threads.append(self.guarded(self.operate, server))
            threads += [self.guarded(self.write, server, n) for n in range(WRITERS)]
        for thread in threads:
            thread.join()

    def judge(self):
        """What has grown, and the figures of the run."""
        figures = []
        for kind, looks in self.looks.items():
            warm = [look for at, look in looks if at >= self.seconds / 4]
            third = len(warm) // 3
            if third < 3:
                self.wrong.append(f"only {len(warm)} looks at {kind}")
                continue
            for key, (share, amount) in LIMITS.items():
                first, last = (
                    statistics.median(look[key] for look in part)
                    for part in (warm[:third], warm[-third:])
                )
                if last > first * (1 + share) + amount:
                    self.wrong.append(f"{key} of {kind} grows: {first:.5g} -> {last:.5g}")
                figures.append(f"{kind} {key} {first:.5g} -> {last:.5g}")
            end = looks[-1][1]
            figures.append(f"{end['requests']} requests, {end['checkpoints']} checkpoints")
        return figures


def main():
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 60
    seed = os.environ.get("SEED", "1")
    random.seed(seed)
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    manylogs = os.path.realpath(os.environ.get("MANYLOGS", f"{target}/release/manylogs"))
    kinds = ["nbd"]
    if os.geteuid() == 0 and os.path.exists("/dev/fuse") and os.path.exists("/dev/loop-control"):
        kinds.append("loop")
    else:
        print("soak: skipped the loop device: needs root, FUSE and loop devices")
    with tempfile.TemporaryDirectory(dir=os.environ.get("PLACE", "/var/tmp")) as place:
        servers, ended = [], []
        try:
            for kind in kinds:
                servers.append(Server(manylogs, f"{place}/{kind}.img", kind))
            soak = Soak(minutes, servers, seed)
            soak.run()
            figures = soak.judge()
            for server in servers:
                server.stop()
                ended.append(server)
        finally:
            for server in servers:
                if server not in ended:
                    server.process.kill()
                    server.process.wait()
                    if server.kind == "loop":
                        subprocess.run(["losetup", "--detach", server.path])
    print(f"soak: {minutes:g} min, seed {seed}: " + "; ".join(figures))
    for wrong in soak.wrong:
        print(f"soak: FAIL: {wrong}")
    sys.exit(1 if soak.wrong else 0)


if __name__ == "__main__":
    main()
