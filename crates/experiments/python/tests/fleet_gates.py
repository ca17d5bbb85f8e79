"""What a fleet costs beside its replays, on real processes of Dask: `python fleet_gates.py GATE`.

memory    of a scheduler after 100,000 empty tasks over that after 10,000 (at most 1.2)
overhead  CPU of driver, scheduler and workers over that of the same replays by `sweep`, at tasks of
          10 s (at most 1.05), from runs of two lengths, as beginning costs the same for any length
long      memory of a worker with its runner while it replays a trace of --requests (at most what
          --worker-memory allows, and no more than a tenth of the requests take, but for 16 MB)

CPU is counted, not time: others may use the machine.
"""

import argparse
import contextlib
import ctypes
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

from common import PROGRAM, ROOT
from manylogs.fleet import _engine

#: Of prctl(2): orphans below this process become its children.
PR_SET_CHILD_SUBREAPER = 36


def wait_for(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)


def documented():
    """The environment that docs/fleet.md gives the processes of a cluster."""
    text = (ROOT / "docs/fleet.md").read_text(encoding="utf-8")
    lines = re.findall(r"^export (DASK_\w+)=(\S+)", text, re.MULTILINE)
    return {name: value for name, value in lines if "TLS" not in name and "ENCRYPTION" not in name}


@contextlib.contextmanager
def cluster(folder, threads=4):
    """A scheduler and a worker; the address, and the scheduler's process."""
    told = pathlib.Path(folder) / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL,
             "env": {**os.environ, **documented()}}
    dask = [sys.executable, "-m", "dask"]
    scheduler = subprocess.Popen(
        [*dask, "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
         "--scheduler-file", told], **quiet)
    worker = None
    try:
        wait_for(told.exists)
        worker = subprocess.Popen(
            [*dask, "worker", "--scheduler-file", told, "--nthreads", str(threads), "--no-nanny",
             "--no-dashboard", "--local-directory", folder], **quiet)
        yield told, scheduler
    finally:
        for process in filter(None, (worker, scheduler)):
            process.kill()
            process.wait()


def nothing(task):
    """An empty task."""
    return [{}] * len(task["questions"])


def scheduler_mb(count):
    """The most memory that a scheduler had over so many empty tasks of a fleet."""
    import distributed

    tasks = [{"questions": [{"key": str(nth)}]} for nth in range(count)]
    done = []
    with tempfile.TemporaryDirectory() as folder, cluster(folder) as (told, scheduler):
        _engine.work = nothing
        with distributed.Client(scheduler_file=told) as client:
            client.wait_for_workers(1)
            _engine._run(client, tasks, lambda task, _: done.append(task) or [])
        status = pathlib.Path(f"/proc/{scheduler.pid}/status").read_text(encoding="ascii")
    assert len(done) == count
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def memory(few, many):
    sizes = [scheduler_mb(count) for count in (few, many)]
    print(f"scheduler: {sizes[0]:.1f} MB for {few} empty tasks, {sizes[1]:.1f} MB for {many}: "
          f"{sizes[1] / sizes[0]:.3f} times")
    return sizes[1] / sizes[0] <= 1.2


def write_traces(folder, count, requests):
    """Loads for disks of which a task each takes about 10 s."""
    import test_fleet

    for nth in range(count):
        test_fleet.write_trace(folder / f"sd{nth:03}.csv", nth, requests=requests)


def cpu_of(command):
    """CPU of a command with all processes that it had."""
    # A runner may end after its worker, which nobody waits for then but this process.
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))


def overhead(disks, requests):
    """CPU of a fleet over that of a sweep: of each length, and of what the longer one has more."""
    spent = {"fleet": [], "sweep": []}
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for count in (disks // 3, disks):
            traces = folder / f"traces-{count}"
            write_traces(traces, count, requests)
            (folder / "map.toml").write_text("default = 'exos-x20'\n")
            out = folder / f"out-{count}"
            spent["fleet"].append(cpu_of([
                sys.executable, "-m", "manylogs.fleet", traces, "--out", out, "--drives",
                folder / "map.toml", "--fit", "--workers", "2", "--seeds", "4"]))
            sweep = folder / f"sweep-{count}.toml"
            listed = ", ".join(f"'{path}'" for path in sorted(traces.iterdir()))
            sweep.write_text(
                f"traces = [{listed}]\ndrives = ['exos-x20']\npolicies = ['nologging', 'mlb']\n"
                f"seeds = 4\nfit = true\n[output]\nparquet = 'rows-{count}.parquet'\n")
            spent["sweep"].append(cpu_of([PROGRAM, "sweep", sweep, "--threads", "2"]))
            fleet, bare = spent["fleet"][-1], spent["sweep"][-1]
            print(f"{count} disks: fleet {fleet:.2f} s of CPU, sweep {bare:.2f}: "
                  f"{fleet / bare:.3f} times", flush=True)
    more = [times[1] - times[0] for times in (spent["fleet"], spent["sweep"])]
    print(f"what the longer one has more: {more[0]:.2f} and {more[1]:.2f} s: "
          f"{more[0] / more[1]:.3f} times")
    return more[0] / more[1] <= 1.05


def write_long(path, requests):
    """A load of so many requests, one in twenty of them a small write."""
    import numpy
    import pyarrow
    import pyarrow.csv

    columns = {"t_us": "i8", "op": "U1", "lba": "i8", "sectors": "i8"}
    schema = pyarrow.table({name: numpy.zeros(0, kind) for name, kind in columns.items()}).schema
    plain = pyarrow.csv.WriteOptions(quoting_style="none")
    with pyarrow.csv.CSVWriter(path, schema, write_options=plain) as writer:
        for begun in range(0, requests, 1_000_000):
            count = min(requests - begun, 1_000_000)
            rng = numpy.random.default_rng(begun)
            times = (begun + numpy.arange(count)) * 15_000 + rng.integers(0, 15_000, count)
            writes = rng.random(count) < 0.05
            writer.write_table(pyarrow.table({
                "t_us": times, "op": numpy.where(writes, "W", "R"),
                "lba": rng.integers(0, 1 << 25, count) * 8, "sectors": numpy.full(count, 8)}))


def long_mb(requests):
    """The most memory that a worker and its runner had over a trace of so many requests."""
    import fleet_poison
    import test_fleet

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "traces").mkdir()
        write_long(folder / "traces/sda.csv", requests)
        (folder / "map.toml").write_text("default = 'exos-x20'\n")
        began = time.monotonic()
        with fleet_poison.Watch("manylogs.fleet._runner") as watch:
            code, told = test_fleet.run(
                folder / "traces", "--out", folder / "out", "--drives", folder / "map.toml",
                "--fit", "--workers", 1, "--worker-memory", f"{fleet_poison.MEMORY_MB}M")
        assert code == 0, told
    print(f"{requests} requests: a worker had {watch.most_mb:.0f} of {fleet_poison.MEMORY_MB} MB "
          f"at most ({time.monotonic() - began:.0f} s)", flush=True)
    return watch.most_mb, fleet_poison.MEMORY_MB


def long(requests):
    (few, _), (many, limit) = long_mb(requests // 10), long_mb(requests)
    return many <= min(limit, few + 16)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gate", choices=("memory", "overhead", "long"))
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--disks", type=int, default=24)
    parser.add_argument("--requests", type=int)
    args = parser.parse_args()
    if args.gate == "memory":
        return 0 if memory(args.few, args.many) else 1
    if args.gate == "long":
        return 0 if long(args.requests or 100_000_000) else 1
    return 0 if overhead(args.disks, args.requests or 600_000) else 1


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(pathlib.Path(__file__).parent))
    sys.exit(main())
