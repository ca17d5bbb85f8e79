"""Kills the server of a volume again and again while threads write to its loop device.

    kills.py MANYLOGS IMAGE ROUNDS SEED

Every 512-byte sector that is written says which sector and which version it is, with a checksum.
What was written and flushed is remembered here, in a process that no kill touches. After each
restart every sector must hold a version that is at least as new as the last flushed one and not
newer than the last submitted one; what is found then must stay. Zeroed ranges count as versions.
Every seventh restart is killed too, in the middle of its recovery. `manylogs check` runs every 20
rounds and at the end. Prints one line of figures; exits with 1 if anything is wrong.
"""

import fcntl
import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib

SECTOR = 512
CHUNK = 1 << 20
CHUNKS = 64
PER_CHUNK = CHUNK // SECTOR
MAGIC = 0x6D6C6F6773
THREADS = 4
LIMIT = 60  # seconds that anything may take
BLKZEROOUT = 0x127F
BUSY = 5  # the exit code of a program that finds the volume in use
ZERO = bytes(SECTOR)


def content(sector, version):
    body = struct.pack("<QQ", sector, version) * 31
    return body + struct.pack("<QQ", MAGIC, zlib.crc32(body))


def version_of(sector, data):
    """The version of a sector as read; 0 if it is zeroes; None if it is damaged or another's."""
    if data == ZERO:
        return 0
    version = struct.unpack_from("<Q", data, 8)[0]
    return version if data == content(sector, version) else None


class Server:
    def __init__(self, manylogs, image, log):
        self.command = [manylogs, "serve", image, "--loop", "--backend"]
        self.log = log
        self.child = None
        self.device = None
        self.export = None
        self.waits = []  # how long a start was refused because the killed server held its lock

    def start(self, backend, kill_after=None):
        """Starts it. What io_uring keeps of a killed process is gone a moment after the process."""
        began = time.monotonic()
        while not self.try_start(backend, kill_after):
            if self.child.wait(LIMIT) != BUSY or time.monotonic() - began > LIMIT:
                raise SystemExit("kills: the server did not start")
            self.child.stdout.close()
            time.sleep(0.02)
            self.waits.append(time.monotonic() - began)

    def try_start(self, backend, kill_after):
        self.child = subprocess.Popen(
            self.command + [backend], stdout=subprocess.PIPE, stderr=self.log
        )
        if kill_after is not None:
            time.sleep(kill_after)
            self.child.kill()
        line = self.child.stdout.readline().decode().strip()
        if line:
            self.device = line
            name = os.path.basename(line)
            with open(f"/sys/block/{name}/loop/backing_file") as file:
                self.export = file.read().strip()
        if kill_after is not None:
            self.end()
            return True
        return bool(line)

    def end(self):
        """Kills it and takes away what the kernel keeps of it."""
        if self.child is not None:
            self.child.kill()
            self.child.wait(LIMIT)
            self.child.stdout.close()
            self.child = None
        if self.device:
            subprocess.run(["losetup", "--detach", self.device], check=True, timeout=LIMIT)
            self.device = None

    def leave(self):
        self.end()
        if self.export:
            subprocess.run(["umount", "--lazy", self.export], stderr=subprocess.DEVNULL)
            for path in (self.export, self.export.removesuffix(".export") + ".sock"):
                if os.path.exists(path):
                    os.unlink(path)


class Region:
    """Chunks spread over the device, and what their sectors may hold."""

    def __init__(self):
        sectors = CHUNKS * PER_CHUNK
        self.lock = threading.Lock()
        self.next_version = 1
        # Versions that a sector may hold: the last flushed one first. Zeroing is a negative number.
        self.may = [[0] for _ in range(sectors)]
        self.touched = set()
        self.completed = []  # writes that returned, and that no flush covers yet
        self.flushed_writes = 0
        self.submitted_writes = 0
        self.flushes = 0
        self.distance = 0

    def place(self, sector):
        return sector // PER_CHUNK * self.distance + sector % PER_CHUNK * SECTOR

    def submit(self, first, count, zero):
        with self.lock:
            version = self.next_version
            self.next_version += 1
            self.submitted_writes += 1
            entry = -version if zero else version
            for sector in range(first, first + count):
                self.may[sector].append(entry)
                self.touched.add(sector)
        return entry

    def complete(self, first, count, entry):
        with self.lock:
            self.completed.append((first, count, entry))

    def take_completed(self):
        with self.lock:
            covered, self.completed = self.completed, []
        return covered

    def flushed(self, covered):
        with self.lock:
            self.flushes += 1
            self.flushed_writes += len(covered)
            for first, count, entry in covered:
                for sector in range(first, first + count):
                    may = self.may[sector]
                    if entry in may:
                        del may[: may.index(entry)]

    def check(self, device, everything, rng):
        """Reads all, compares what was written in this round or everything; returns faults."""
        faults = []
        wanted = range(len(self.may)) if everything else self.touched | {
            rng.randrange(len(self.may)) for _ in range(2000)
        }
        fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
        buffer = mmap.mmap(-1, CHUNK)
        chunk = None
        for sector in sorted(wanted):
            if sector // PER_CHUNK != chunk:
                chunk = sector // PER_CHUNK
                if os.preadv(fd, [buffer], chunk * self.distance) != CHUNK:
                    raise SystemExit("kills: a short read")
            at = sector % PER_CHUNK * SECTOR
            found = version_of(sector, buffer[at : at + SECTOR])
            may = self.may[sector]
            if found == 0:
                fine = [entry for entry in may if entry <= 0]
            else:
                fine = [entry for entry in may if entry == found]
            if fine:
                # Which of several zeroings it was does not show; what was found has to stay.
                self.may[sector] = fine[-1:]
            else:
                faults.append((sector, self.place(sector), found, list(may)))
                self.may[sector] = [found if found else 0]
        buffer.close()
        os.close(fd)
        self.touched.clear()
        self.completed.clear()
        return faults


def writer(region, device, own, seed, errors):
    """Writes to chunks of its own until the server is dead."""
    rng = random.Random(seed)
    buffer = mmap.mmap(-1, CHUNK)
    fd = os.open(device, os.O_RDWR | os.O_DIRECT)
    synced = os.open(device, os.O_RDWR | os.O_DIRECT | os.O_DSYNC)
    try:
        while True:
            dice = rng.random()
            count = 1 if dice < 0.2 else 8 if dice < 0.7 else rng.randint(1, 128)
            if dice > 0.97:
                count = rng.choice((512, 1024))  # more than is logged
            zero = 0.90 < dice < 0.93
            first = own[rng.randrange(len(own))] * PER_CHUNK + rng.randint(0, PER_CHUNK - count)
            at = region.place(first)
            entry = region.submit(first, count, zero)
            if zero:
                fcntl.ioctl(fd, BLKZEROOUT, struct.pack("<QQ", at, count * SECTOR))
                region.complete(first, count, entry)
            else:
                data = b"".join(content(first + i, entry) for i in range(count))
                buffer[: len(data)] = data
                durable = rng.random() < 0.5
                with memoryview(buffer) as whole, whole[: len(data)] as view:
                    written = os.pwritev(synced if durable else fd, [view], at)
                if written != len(data):
                    raise SystemExit("kills: a short write")
                if durable:
                    region.flushed([(first, count, entry)])
                else:
                    region.complete(first, count, entry)
            if rng.random() < 0.3:
                covered = region.take_completed()
                os.fdatasync(fd)
                region.flushed(covered)
    except OSError as error:
        errors.append(error)
    finally:
        os.close(fd)
        os.close(synced)
        buffer.close()


def check_volume(manylogs, image, log):
    """The structures of the closed volume; True if they are whole."""
    for _ in range(100):
        done = subprocess.run(
            [manylogs, "check", image], stdout=log, stderr=log, timeout=10 * LIMIT
        )
        if done.returncode != BUSY:
            break
        time.sleep(0.05)
    if done.returncode != 0:
        print(f"kills: manylogs check ended with {done.returncode}", file=sys.stderr)
    return done.returncode == 0


def campaign(manylogs, image, rounds, seed):
    rng = random.Random(seed)
    region = Region()
    faults = checks = failed_checks = killed_recoveries = done = 0
    began = time.monotonic()
    with open(f"{image}.log", "ab") as log:
        server = Server(manylogs, image, log)
        try:
            for number in range(1, rounds + 2):
                last = number == rounds + 1
                if number % 7 == 0:
                    server.start("auto", kill_after=rng.uniform(0.002, 0.05))
                    killed_recoveries += 1
                server.start(("auto", "threads")[number % 2])
                size = int(open(f"/sys/block/{os.path.basename(server.device)}/size").read())
                region.distance = size * SECTOR // CHUNKS // CHUNK * CHUNK
                found = region.check(server.device, last or number % 20 == 1, rng)
                for sector, place, version, may in found[:10]:
                    print(
                        f"kills: seed {seed}, round {number}: sector {sector} at byte {place} "
                        f"holds {version}, not one of {may}",
                        file=sys.stderr,
                    )
                faults += len(found)
                if not last:
                    one_round(server, region, rng)
                    done += 1
                server.end()
                if last or number % 20 == 0:
                    checks += 1
                    failed_checks += not check_volume(manylogs, image, log)
        finally:
            server.leave()
    print(
        f"{done} kills, {killed_recoveries} during recovery; "
        f"{region.submitted_writes} writes submitted, {region.flushed_writes} acknowledged "
        f"and flushed; {faults} sectors lost or wrong; {checks - failed_checks} of {checks} "
        f"manylogs check whole; {len(server.waits)} starts refused, the longest for "
        f"{max(server.waits, default=0):.2f} s; seed {seed}; {time.monotonic() - began:.0f} s"
    )
    return faults == 0 and failed_checks == 0


def one_round(server, region, rng):
    errors = []
    threads = []
    for own in range(THREADS):
        chunks = list(range(own, CHUNKS, THREADS))
        arguments = (region, server.device, chunks, rng.random(), errors)
        threads.append(threading.Thread(target=writer, args=arguments, daemon=True))
    for thread in threads:
        thread.start()
    time.sleep(rng.uniform(0.05, 0.4))
    if errors:
        raise SystemExit(f"kills: an error before the kill: {errors[0]}")
    server.child.kill()
    for thread in threads:
        thread.join(LIMIT)
        if thread.is_alive():
            raise SystemExit("kills: a request hangs after the kill")


if __name__ == "__main__":
    # So that the server is not left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    program, volume, rounds_wanted, number_of_seed = sys.argv[1:]
    sys.exit(not campaign(program, volume, int(rounds_wanted), int(number_of_seed)))
