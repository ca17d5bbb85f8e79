"""What a fleet costs beside its replays, on real processes of Dask: `python fleet_gates.py GATE`.

memory    of a scheduler after 100,000 empty tasks over that after 10,000 (at most 1.2)
overhead  CPU of driver, scheduler and workers over that of the same replays by `sweep`, at tasks of
          10 s (at most 1.05), from runs of two lengths, as beginning costs the same for any length

CPU is counted, not time: others may use the machine.
"""

import argparse
import contextlib
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

from common import PROGRAM
from manylogs.fleet import _engine


def wait_for(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)


@contextlib.contextmanager
def cluster(folder, threads=4):
    """A scheduler and a worker; the address, and the scheduler's process."""
    told = pathlib.Path(folder) / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
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
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
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


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gate", choices=("memory", "overhead"))
    parser.add_argument("--few", type=int, default=10_000)
    parser.add_argument("--many", type=int, default=100_000)
    parser.add_argument("--disks", type=int, default=24)
    parser.add_argument("--requests", type=int, default=600_000)
    args = parser.parse_args()
    if args.gate == "memory":
        return 0 if memory(args.few, args.many) else 1
    return 0 if overhead(args.disks, args.requests) else 1


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(pathlib.Path(__file__).parent))
    sys.exit(main())
