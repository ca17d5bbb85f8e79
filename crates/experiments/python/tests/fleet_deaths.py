"""Fleets on real processes in network namespaces, to which all sorts of things happen:
`python fleet_deaths.py --seeds 1-20` (make fleet-deaths; root).

Driver, scheduler and store have a network namespace, and each of two workers has one, with a link
between; each worker has a disk of its own, a small tmpfs. By the seed workers, the scheduler and the
driver are killed, links are cut and healed, disks are full for a while. The store fails one request
in ten all the time. The driver is called again until it says that nothing is left, as a user would
do. Whatever happened, the dataset must be that of a run in peace.
"""

import argparse
import contextlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

import test_fleet

TESTS = pathlib.Path(__file__).resolve().parent
#: Where the scheduler and the store are.
HEAD = "10.77.0.1"
DISK_MB = 8
DISKS = 10
#: A driver is called again so often.
CALLS_MAX = 40


def run(*words, check=True):
    return subprocess.run([str(word) for word in words], check=check, capture_output=True)


class World:
    """Namespaces with their processes."""

    def __init__(self, folder, tag):
        self.folder, self.kept = folder, contextlib.ExitStack()
        self.head, self.workers = f"mlf{tag}h", [f"mlf{tag}w{nth}" for nth in range(2)]
        self.processes = {}
        self.env = {
            **os.environ, "PYTHONPATH": f"{folder}/site:{TESTS}",
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "14s",
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "8s",
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "50",
            "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "15s",
            "MANYLOGS_FLEET_RUNNER": "odd_runner", "ODD_RUNNER_S": "0.5"}
        (folder / "site").mkdir()
        (folder / "site/sitecustomize.py").write_text(
            "import fsspec\nfsspec.register_implementation('flaky', 'flaky_store.Flaky')\n")

    def __enter__(self):
        for name in (self.head, *self.workers):
            run("ip", "netns", "add", name)
            self.kept.callback(run, "ip", "netns", "del", name, check=False)
            run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", self.head, "addr", "add", f"{HEAD}/32", "dev", "lo")
        for nth, name in enumerate(self.workers):
            run("ip", "-n", self.head, "link", "add", f"w{nth}", "type", "veth", "peer", "name",
                "eth", "netns", name)
            net = f"10.77.{nth + 1}"
            run("ip", "-n", self.head, "addr", "add", f"{net}.1/24", "dev", f"w{nth}")
            run("ip", "-n", name, "addr", "add", f"{net}.11/24", "dev", "eth")
            run("ip", "-n", self.head, "link", "set", f"w{nth}", "up")
            run("ip", "-n", name, "link", "set", "eth", "up")
            self.route(nth)
            disk = self.disk(nth)
            disk.mkdir()
            run("mount", "-t", "tmpfs", "-o", f"size={DISK_MB}M", "tmpfs", disk)
            self.kept.callback(run, "umount", "-l", disk, check=False)
        self.kept.callback(self.end)
        self.begin("store")
        self.begin("scheduler")
        for nth in range(len(self.workers)):
            self.begin(f"worker{nth}")
        return self

    def __exit__(self, *_):
        self.kept.close()

    def route(self, nth):
        """The way from a worker to the scheduler, which a cut takes away."""
        way = ["default", "via", f"10.77.{nth + 1}.1"]
        run("ip", "-n", self.workers[nth], "route", "replace", *way)

    def disk(self, nth):
        return self.folder / f"disk{nth}"

    def popen(self, namespace, words, env=None):
        log = open(self.folder / "log", "ab")
        self.kept.callback(log.close)
        return subprocess.Popen(
            ["ip", "netns", "exec", namespace, sys.executable, *map(str, words)],
            env={**self.env, **(env or {})}, stdout=log, stderr=log, start_new_session=True)

    def begin(self, what):
        """A process; one that was there is ended before."""
        self.kill(what)
        dask = ["-m", "dask"]
        if what == "store":
            words = [TESTS / "flaky_store.py", HEAD, self.folder / "traces"]
            self.processes[what] = self.popen(self.head, words)
        elif what == "scheduler":
            words = [*dask, "scheduler", "--host", HEAD, "--port", "8786", "--no-dashboard"]
            self.processes[what] = self.popen(self.head, words)
        else:
            nth = int(what[-1])
            words = [
                *dask, "worker", f"tcp://{HEAD}:8786", "--host", f"10.77.{nth + 1}.11",
                "--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory",
                self.folder / f"local{nth}", "--death-timeout", "600"]
            disk = {"TMPDIR": str(self.disk(nth))}
            self.processes[what] = self.popen(self.workers[nth], words, disk)

    def kill(self, what):
        process = self.processes.pop(what, None)
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()

    def end(self):
        for what in list(self.processes):
            self.kill(what)

    def driver(self, inventory, out):
        words = ["-c", test_fleet.DRIVER, inventory, "--out", out, "--drives",
                 self.folder / "map.toml", "--fit", "--seeds", "2", "--scheduler",
                 f"tcp://{HEAD}:8786", "--insecure"]
        return self.popen(self.head, words)


def harm(world, rng, driver, told):
    """One thing that happens, and is over after a while."""
    nth = rng.randrange(2)
    what = rng.choice(["worker", "worker", "scheduler", "driver", "link", "disk"])
    told.append(what)
    if what == "worker":
        world.begin(f"worker{nth}")
    elif what == "scheduler":
        world.begin("scheduler")
        # Workers of a scheduler that is gone end; a service begins them again.
        for other in range(2):
            world.begin(f"worker{other}")
    elif what == "driver":
        with contextlib.suppress(ProcessLookupError):
            os.killpg(driver.pid, 9)
    elif what == "link":
        link = ["ip", "-n", world.head, "link", "set", f"w{nth}"]
        run(*link, "down")
        time.sleep(rng.uniform(0.5, 12.0))
        run(*link, "up")
        world.route(nth)
    else:
        full = world.disk(nth) / "full"
        run("dd", "if=/dev/zero", f"of={full}", "bs=64K", check=False)
        time.sleep(rng.uniform(0.5, 6.0))
        full.unlink()


def disturbed(seed, inventory, folder, wanted):
    """A run with all that happens by this seed; what happened."""
    rng, told = random.Random(seed), []
    out = folder / f"out-{seed}"
    traces = folder / "traces"
    with tempfile.TemporaryDirectory(prefix="fleet-") as own:
        own = pathlib.Path(own)
        (own / "traces").symlink_to(traces)
        (own / "map.toml").write_text("default = 'exos-x20'\n")
        with World(own, seed % 1000) as world:
            left = rng.randrange(2, 5)
            for _ in range(CALLS_MAX):
                driver = world.driver(inventory, out)
                while driver.poll() is None:
                    time.sleep(rng.uniform(0.3, 2.5))
                    if left and driver.poll() is None:
                        left -= 1
                        harm(world, rng, driver, told)
                        # What has lost its scheduler may not notice.
                        if told[-1] == "scheduler":
                            deadline = time.monotonic() + 60
                            while driver.poll() is None and time.monotonic() < deadline:
                                time.sleep(0.2)
                if driver.returncode == 0:
                    break
                told.append(f"exit {driver.returncode}")
            else:
                raise AssertionError(f"seed {seed}: never done: {told}")
    found = test_fleet.files(out)
    assert found == wanted, f"seed {seed}: {told}: another dataset"
    return told


def write_inventory(folder):
    lines = ["host,disk,trace"]
    for nth in range(DISKS):
        test_fleet.write_trace(folder / f"traces/sd{nth}.csv", nth, requests=1200)
        lines.append(f"host{nth % 3},sd{nth},flaky://{HEAD}:8000/sd{nth}.csv")
    inventory = folder / "disks.csv"
    inventory.write_text("\n".join(lines) + "\n")
    return inventory


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="1-3")
    args = parser.parse_args()
    first, _, last = args.seeds.partition("-")
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        inventory = write_inventory(folder)
        wanted = undisturbed(inventory, folder)
        for seed in range(int(first), int(last or first) + 1):
            began = time.monotonic()
            told = disturbed(seed, inventory, folder, wanted)
            print(f"seed {seed}: {', '.join(told)}: the same ({time.monotonic() - began:.0f} s)",
                  flush=True)
    return 0


def undisturbed(inventory, folder):
    """The dataset of a run in peace."""
    out = folder / "peace"
    with tempfile.TemporaryDirectory(prefix="fleet-") as own:
        own = pathlib.Path(own)
        (own / "traces").symlink_to(folder / "traces")
        (own / "map.toml").write_text("default = 'exos-x20'\n")
        with World(own, 999) as world:
            code = world.driver(inventory, out).wait()
            assert code == 0, (own / "log").read_text(errors="replace")
    return test_fleet.files(out)


if __name__ == "__main__":
    sys.exit(main())
