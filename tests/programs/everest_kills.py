"""Kills the server of a base volume and those of its stores again and again, and harms the network
between them, while the base volume is in use.

    everest_kills.py MANYLOGS DIRECTORY ROUNDS SEED [KIND...]

Client and stores each have a network namespace; see links.py. Base volumes borrow the same three
stores, one after another, and each round uses one of them by its kind:

  sectors  threads write to the loop device as in kills.py, and know what they were promised
  files    ext4 is mounted, and threads write and sync files as in mlfs_kills.py; e2fsck judges
  fio      fio writes; after the kill it verifies what it wrote
  fsx      ext4 is mounted, and fsx does FSX_OPS operations, while stores come and go; only if named

Meanwhile stores are killed and started again, some of them twice, and links are cut, held in one
way or both, slow or dark; and stores are evacuated, and called back. No request may fail or hang by
that. At the end of a round the base's server is killed; in one of five everybody is. Prints a line of
figures, and exits with 1 if anything is wrong.
"""

import collections
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time

import kills
import links
import mlfs_kills

STORES = 3
BASE_SIZE = "768M"
#: So little that stores are full now and then.
STORE_SIZE = "96M"
FIO_BYTES = 24 << 20
FSX_OPS = 10_000
PATIENCE = "20s"
GUEST_BYTES = 96 << 20
GUEST_PATIENCE = "80s"
GUEST_LIMIT = 240  # seconds until a guest lends, on a busy machine
KINDS = ("sectors", "files", "fio", "fsx")
LIMIT = 120  # seconds that a start, a stop or a program may take


class Store:
    """A store, with the server that lends it."""

    def __init__(self, world, nth):
        self.world, self.nth = world, nth
        self.path = world.folder / f"store{nth}.img"
        self.child, self.address = None, None
        self.lock = threading.Lock()
        self.kills = 0

    def start(self):
        """Starts the server unless it is there, and waits until it says its address. If it does not,
        there is none."""
        with self.lock:
            if self.child is None:
                try:
                    self.start_server()
                except BaseException:
                    self.forget()
                    raise

    def start_server(self):
        host, port = self.world.net.listens(self.nth)
        words = [self.world.manylogs, "lend", self.path, "--listen", f"tcp:{host}:{port}"]
        if self.world.key:
            words += ["--allow", self.world.key, "--key", self.world.folder / f"key{self.nth}"]
        if not self.path.exists():
            words += ["--size", STORE_SIZE]
        command = links.Net.command(self.world.net.stores[self.nth], words)
        began = time.monotonic()
        while True:
            self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.world.log)
            said = self.child.stdout.readline().decode().strip()
            if said:
                break
            code = self.child.wait(LIMIT)
            self.child.stdout.close()
            # What io_uring keeps of a killed process is gone a moment after the process.
            if code != kills.BUSY or time.monotonic() - began > LIMIT:
                raise SystemExit(f"everest: store {self.nth} did not start: exit code {code}")
            time.sleep(0.02)
        who = said.rpartition("#")[2]
        self.address = f"{self.world.net.seen(self.nth)}#{who}"

    def begin(self):
        """Starts the server and does not wait: returns the thread that does."""
        thread = threading.Thread(target=self.start, daemon=True)
        thread.start()
        return thread

    def kill(self):
        """Kills the server, while it starts as well."""
        child = self.child
        if child is not None:
            child.kill()
            self.kills += 1
        with self.lock:
            self.forget()

    def forget(self):
        if self.child is not None:
            self.child.kill()
            self.child.wait(LIMIT)
            self.child.stdout.close()
            self.child = None


class Guest(Store):
    """A store on a machine of its own, whose power is cut: a guest of QEMU with the store's image as
    its disk, and GUEST_KERNEL and GUEST_INITRAMFS as tests/guest/stores.sh makes them."""

    def start_server(self):
        world, path = self.world, self.path
        if not path.exists():
            path.touch()
            os.truncate(path, GUEST_BYTES)
        key = world.folder / f"key{self.nth}"
        if not key.exists():
            world.manage("stores", world.bases["fio"], "key", "--key", key)
        # On a busy machine the timer of the guest is late, which its kernel takes for a broken one.
        line = "console=ttyS0 quiet panic=-1 no_timer_check"
        line += f" client={world.key} own={key.read_text().strip()}"
        host, port = world.net.listens(self.nth)
        console = world.folder / f"console{self.nth}"
        console.write_text("")
        words = ["qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-display", "none",
                 "-monitor", "none", "-no-reboot", "-serial", f"file:{console}",
                 "-kernel", os.environ["GUEST_KERNEL"], "-initrd", os.environ["GUEST_INITRAMFS"],
                 "-append", line, "-drive", f"file={path},format=raw,if=virtio",
                 "-netdev", f"user,id=net,hostfwd=tcp:{host}:{port}-:{links.PORT}",
                 "-device", "virtio-net-pci,netdev=net"]
        command = links.Net.command(world.net.stores[self.nth], words)
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=world.log)
        end = time.monotonic() + GUEST_LIMIT
        # The console's file may end in the midst of the line.
        while not (said := re.search(r"^tcp:\S+#(\w+\+\w+)\s*\n", console.read_text(errors="replace"),
                                     re.MULTILINE)):
            if self.child.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"everest: guest {self.nth} does not lend: see {console}")
            time.sleep(0.1)
        self.address = f"{world.net.seen(self.nth)}#{said[1]}"


class World:
    """The namespaces, the stores, and the base volumes."""

    def __init__(self, manylogs, folder, seed):
        self.manylogs, self.folder = manylogs, pathlib.Path(folder)
        self.rng = random.Random(seed)
        self.has_guests = "GUEST_KERNEL" in os.environ
        self.log = open(self.folder / "log", "ab")
        self.bases = {}
        for name in KINDS:
            base = self.folder / f"{name}.img"
            self.manage("format", base, "--size", BASE_SIZE, "--everest", "disk")
            self.bases[name] = base
        asked = self.manage("stores", self.bases["fio"], "key", "--key", self.folder / "key",
                            check=False)
        # A program without TLS has no keys: then all is loopback.
        self.key = asked.stdout.decode().strip() if asked.returncode == 0 else None
        self.net = links.Net(STORES, sealed=bool(self.key))
        if self.has_guests and not self.key:
            raise SystemExit("everest: guests need a program with TLS")
        of = Guest if self.has_guests else Store
        self.stores = [of(self, nth) for nth in range(STORES)]
        self.harms = collections.Counter()
        #: The base volume that is served, and the stores that each has evacuated.
        self.served, self.evacuated = None, set()

    def manage(self, *words, check=True):
        return subprocess.run([self.manylogs, *map(str, words)], check=check, stderr=self.log,
                              stdout=subprocess.PIPE, timeout=LIMIT)

    def server(self, name):
        """The server of a base volume; not started yet."""
        server = kills.Server(self.manylogs, str(self.bases[name]), self.log)
        # All lie in the same folder.
        words = [self.manylogs, "serve", self.bases[name], "--loop", "--same-disk"]
        words += ["--patience", GUEST_PATIENCE if self.has_guests else PATIENCE]
        for store in self.stores:
            words += ["--store", store.address]
        if self.key:
            words += ["--key", self.folder / "key"]
        words += ["--copies", self.rng.choice((1, 1, 2, 2, 2, 3))]
        often = ("always", "always", "always", "wait", "everest-paper")
        words += ["--offload", self.rng.choice(often)]
        server.command = links.Net.command(self.net.client, [*words, "--backend"])
        return server

    def status(self, name):
        said = self.manage("status", self.bases[name], "--json", check=False)
        with contextlib.suppress(ValueError):
            return json.loads(said.stdout)["offload"]
        return None

    def harm(self):
        """One thing that happens to a store or its link."""
        rng, nth = self.rng, self.rng.randrange(STORES)
        store, link = self.stores[nth], self.net.links[nth]
        ways = rng.choice((links.WAYS[:1], links.WAYS[1:], links.WAYS))
        what = rng.choice(("kill", "kill", "restart", "cut", "hold", "late", "slow", "dark", "evacuate"))
        self.harms[what] += 1
        if what in ("kill", "restart"):
            store.kill()
            if what == "restart":
                store.begin()
        elif what == "cut":
            link.cut(rng.random() < 0.5)
        elif what == "hold":
            link.hold(ways)
        elif what == "late":
            link.hold_old(ways)
        elif what == "evacuate":
            self.evacuate(nth)
        elif what == "slow":
            link.delay_s = rng.uniform(0.001, 0.05)
        else:
            self.net.dark(nth)

    def evacuate(self, nth):
        """The store takes no more writes of the base volume that is served, also later."""
        who = self.stores[nth].address.rpartition("#")[2].partition("+")[0]
        asked = self.manage("stores", self.bases[self.served], "evacuate", who, check=False)
        if asked.returncode == 0:
            self.evacuated.add((self.served, nth))

    def call_back(self):
        """Most stores that were evacuated may take writes again. Says whether all may."""
        for served, nth in sorted(self.evacuated):
            if served != self.served or self.rng.random() < 0.3 or self.stores[nth].child is None:
                continue
            added = self.manage("stores", self.bases[served], "add", self.stores[nth].address, check=False)
            if added.returncode == 0:
                self.evacuated.discard((served, nth))
        return all(served != self.served for served, _ in self.evacuated)

    def trouble(self, span_s):
        """Harms for a while: mostly one store at a time, sometimes all of them."""
        end = time.monotonic() + span_s
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, self.rng.uniform(0.05, 0.7)))
            if self.rng.random() < 0.65:
                self.net.mend()
                for store in self.stores:
                    store.begin()
            self.harm()

    def mend(self):
        """All are there again, and nothing harms the links."""
        self.net.mend()
        starts = [store.begin() for store in self.stores]
        for start in starts:
            start.join()
        if any(store.child is None for store in self.stores):
            raise SystemExit("everest: a store did not start")

    def close(self):
        for store in self.stores:
            store.kill()
        self.log.close()


class Campaign:
    """Rounds, and what is known of the base volumes."""

    def __init__(self, world, rounds, kinds):
        self.world, self.rounds, self.kinds = world, rounds, kinds
        self.rng = world.rng
        self.region = kills.Region()
        self.mount = world.folder / "mnt"
        self.mount.mkdir()
        #: The kinds of rounds that have a file system, and what the files of the first must hold.
        self.made = set()
        self.memory = [{} for _ in range(mlfs_kills.THREADS)]
        self.fio_seed = None
        self.figures = collections.Counter()
        self.longest_opening_s = 0.0

    def run(self):
        for nth in range(1, self.rounds + 1):
            kind = self.rng.choice(self.kinds)
            self.round(nth, kind)
            self.figures[f"rounds of {kind}"] += 1
        for kind in self.kinds:
            self.last(kind)

    def told(self):
        """The figures, in a line."""
        figures, region = self.figures, self.region
        figures["kills of stores"] = sum(store.kills for store in self.world.stores)
        figures["connections"] = sum(link.count for link in self.world.net.links)
        figures["sectors' writes flushed"] = region.flushed_writes
        parts = [f"{figures[what]} {what}" for what in figures]
        harms = ", ".join(f"{what} {count}" for what, count in sorted(self.world.harms.items()))
        keys = "with keys" if self.world.key else "without keys"
        where = "stores in guests whose power is cut" if self.world.has_guests else "stores here"
        return (f"{where}, {keys}; {', '.join(parts)}; harms: {harms}; nothing lost or wrong; the longest "
                f"opening {self.longest_opening_s:.1f} s")

    def serve(self, kind, quiet):
        """Starts the server of a base volume, in one of four cases while stores are in trouble;
        sometimes it is killed while it opens."""
        world, server = self.world, None
        if not quiet and self.rng.random() < 0.15:
            server = world.server(kind)
            server.start("auto", kill_after=self.rng.uniform(0.002, 0.1))
            server.end()
            self.figures["killed openings"] += 1
        server = world.server(kind)
        if not quiet and self.rng.random() < 0.25:
            # It waits for a store that may hold something.
            late = world.stores[self.rng.randrange(STORES)]
            late.kill()
            timer = threading.Timer(self.rng.uniform(0.1, 1.0), late.begin)
            timer.start()
            self.figures["openings without a store"] += 1
        began = time.monotonic()
        server.start(self.rng.choice(("auto", "threads")))
        self.longest_opening_s = max(self.longest_opening_s, time.monotonic() - began)
        world.served = kind
        self.check_evacuated(kind)
        if world.call_back() and self.rng.random() < 0.8:
            self.wait_for_stores(kind)
        return server

    def check_evacuated(self, kind):
        """A store that was evacuated is so after each start."""
        offload = self.world.status(kind)
        for served, nth in self.world.evacuated:
            who = self.world.stores[nth].address.rpartition("#")[2].partition("+")[0]
            named = [store for store in offload["stores"] if store["name"] == who]
            if served == kind and (not named or "left_from_bytes" not in named[0]):
                raise SystemExit(f"everest: {kind}: store {nth} was evacuated, and is borrowed: {named}")

    def wait_for_stores(self, kind):
        """Until all stores take writes, or for a while."""
        end = time.monotonic() + 3
        while time.monotonic() < end:
            offload = self.world.status(kind)
            if offload and all(store["state"] == "lends" for store in offload["stores"]):
                return
            time.sleep(0.02)

    def end(self, server, kind):
        """Kills the server, and in one of five cases everybody."""
        offload = self.world.status(kind)
        if offload:
            self.figures["off-loaded writes"] += offload["offloaded_writes"]
            self.figures["writes home"] += offload["home_writes"]
            self.figures["ranges reclaimed"] += offload["reclaimed_ranges"]
            if offload["state"] == "fenced":
                raise SystemExit(f"everest: {kind}: {offload['why']}")
        server.child.kill()
        self.figures["kills of the base's server"] += 1
        if self.rng.random() < 0.2:
            for store in self.world.stores:
                store.kill()

    def round(self, nth, kind):
        server = self.serve(kind, quiet=False)
        try:
            server = getattr(self, kind)(server, nth)
        finally:
            server.end()
            self.world.mend()

    def last(self, kind):
        """All is there once more, with nobody in trouble, then goes home, and is there again."""
        server = self.serve(kind, quiet=True)
        try:
            self.check(kind, server)
            self.go_home(kind)
            self.check(kind, server)
        finally:
            server.leave()

    def go_home(self, kind):
        end = time.monotonic() + LIMIT
        while (offload := self.world.status(kind)) and offload["held_bytes"]:
            if time.monotonic() > end:
                raise SystemExit(f"everest: {kind}: it does not go home: {offload}")
            time.sleep(0.1)

    def check(self, kind, server):
        if kind == "sectors":
            self.check_sectors(server, everything=True)
        elif kind in self.made:
            self.check_files(server, kind, judge=True)
        elif kind == "fio" and self.fio_seed is not None:
            self.run_fio(server, "--verify_only")

    # Sectors

    def check_sectors(self, server, everything):
        if not self.region.distance:
            name = os.path.basename(server.device)
            sectors = int(open(f"/sys/block/{name}/size").read())
            chunk = kills.CHUNK
            self.region.distance = sectors * kills.SECTOR // kills.CHUNKS // chunk * chunk
        faults = self.region.check(server.device, everything, self.rng)
        if faults:
            raise SystemExit(f"everest: {len(faults)} sectors are lost or wrong, first: "
                             f"{[(s, at, found, may[:6]) for s, at, found, may in faults[:5]]}")

    def sectors(self, server, nth):
        self.check_sectors(server, nth % 10 == 1)
        errors, threads = [], []
        for own in range(kills.THREADS):
            chunks = list(range(own, kills.CHUNKS, kills.THREADS))
            arguments = (self.region, server.device, chunks, self.rng.random(), errors)
            threads.append(threading.Thread(target=kills.writer, args=arguments, daemon=True))
        for thread in threads:
            thread.start()
        self.world.trouble(self.rng.uniform(0.2, 3))
        if errors:
            raise SystemExit(f"everest: round {nth}: a request failed before the kill: {errors[0]}")
        self.end(server, "sectors")
        for thread in threads:
            thread.join(LIMIT)
            if thread.is_alive():
                raise SystemExit(f"everest: round {nth}: a request hangs after the kill")
        return server

    # Files

    @contextlib.contextmanager
    def mounted(self, server):
        links.run("mount", "-t", "ext4", server.device, self.mount)
        try:
            yield
        finally:
            self.unmount()

    def unmount(self):
        """A file system whose disk is gone takes a moment."""
        for _ in range(400):
            if links.run("umount", self.mount, check=False).returncode == 0:
                return
            time.sleep(0.05)
        raise SystemExit("everest: ext4 cannot be unmounted")

    def make_files(self, server, kind):
        subprocess.run(["mkfs.ext4", "-q", "-F", server.device], check=True, timeout=LIMIT,
                       stdout=self.world.log, stderr=self.world.log)
        with self.mounted(server):
            for number in range(mlfs_kills.THREADS):
                os.mkdir(self.mount / f"t{number}")
        self.made.add(kind)

    def check_files(self, server, kind, judge):
        """The kernel replays the journal, what was synced is there, and e2fsck finds nothing."""
        with self.mounted(server):
            for number, files in enumerate(self.memory if kind == "files" else []):
                wrong = mlfs_kills.check(self.mount, number, files)
                if wrong:
                    raise SystemExit(f"everest: {wrong}")
        if judge:
            said = subprocess.run(["e2fsck", "-fn", server.device], check=False, text=True,
                                  capture_output=True, timeout=LIMIT)
            if said.returncode:
                raise SystemExit(f"everest: e2fsck: {said.stdout} {said.stderr}")
            self.figures["file systems judged"] += 1

    def files(self, server, nth):
        if "files" in self.made:
            self.check_files(server, "files", judge=self.rng.random() < 0.5)
        else:
            self.make_files(server, "files")
        stop = threading.Event()
        owners = [mlfs_kills.Owner(self.mount, number, self.rng.random(), self.memory[number], stop)
                  for number in range(mlfs_kills.THREADS)]
        with self.mounted(server):
            for owner in owners:
                owner.daemon = True
                owner.start()
            self.world.trouble(self.rng.uniform(0.2, 3))
            early = [str(owner.error) for owner in owners if not owner.is_alive()]
            if early:
                raise SystemExit(f"everest: round {nth}: a request of a file failed: {early}")
            self.end(server, "files")
            stop.set()
            for owner in owners:
                owner.join(LIMIT)
                if owner.is_alive():
                    raise SystemExit(f"everest: round {nth}: a request of a file hangs")
                self.figures["syncs of files"] += owner.count
        return server

    # fio

    def fio_command(self, server, *words):
        return ["fio", "--name=everest", f"--filename={server.device}", "--rw=randwrite",
                "--ioengine=libaio", "--iodepth=16", f"--randseed={self.fio_seed}", "--direct=1",
                "--bssplit=512/20:4k/50:16k/20:64k/10", f"--size={FIO_BYTES}", "--verify=crc32c",
                "--verify_fatal=1", *words]

    def end_fio(self, server, fio):
        said = fio.communicate(timeout=4 * LIMIT)[0]
        self.world.log.write(said)
        if fio.returncode or b"error=" in said:
            raise SystemExit(f"everest: fio on {server.device}: {said[-1200:].decode()}")

    def run_fio(self, server, *words):
        fio = subprocess.Popen(self.fio_command(server, *words), stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
        self.end_fio(server, fio)
        self.figures["MiB verified by fio"] += FIO_BYTES >> 20

    def fio(self, server, nth):
        self.fio_seed = nth
        command = self.fio_command(server, "--do_verify=0", "--end_fsync=1")
        fio = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.world.trouble(self.rng.uniform(0.5, 4))
        self.world.mend()
        self.end_fio(server, fio)
        self.end(server, "fio")
        server.end()
        self.world.mend()
        server = self.serve("fio", quiet=False)
        try:
            self.run_fio(server, "--verify_only")
            self.end(server, "fio")
        except BaseException:
            server.end()
            raise
        return server

    # fsx

    def keep_cold(self, path, stop):
        """Drops what is clean of the file from memory, over and over: fsx would read it from there."""
        while not stop.wait(0.02):
            with contextlib.suppress(FileNotFoundError):
                file = os.open(path, os.O_RDONLY)
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(file)

    def fsx(self, server, nth):
        if "fsx" in self.made:
            self.check_files(server, "fsx", judge=True)
        else:
            self.make_files(server, "fsx")
        path, stop = self.mount / "fsx", threading.Event()
        with self.mounted(server):
            path.unlink(missing_ok=True)
            cold = threading.Thread(target=self.keep_cold, args=(path, stop), daemon=True)
            cold.start()
            fsx = subprocess.Popen(["fsx", "-q", "-N", str(FSX_OPS), "-S", str(nth), "-P",
                                    self.world.folder, path], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT)
            end = time.monotonic() + 4 * LIMIT
            while fsx.poll() is None and time.monotonic() < end:
                self.world.trouble(self.rng.uniform(0.2, 2))
            # What a store alone has may be waited for until it is back.
            self.world.mend()
            said = fsx.communicate(timeout=LIMIT)[0]
            stop.set()
            cold.join()
            if fsx.returncode:
                raise SystemExit(f"everest: round {nth}: fsx: {said[-1200:].decode()}")
            self.figures["operations of fsx"] += FSX_OPS
            self.end(server, "fsx")
        return server


def main():
    manylogs, folder, rounds, seed, *kinds = sys.argv[1:]
    # So that nothing is left behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    world = World(os.path.abspath(manylogs), folder, int(seed))
    try:
        with world.net:
            world.mend()
            campaign = Campaign(world, int(rounds), kinds or KINDS[:3])
            campaign.run()
            done = campaign.told()
    finally:
        world.close()
    print(f"{done}; seed {seed}; {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
