"""A thousand traces of which fifty are bad, and one that is long: `python fleet_poison.py`
(make fleet-poison).

The bad ones must be in quarantine with their reasons, and the rows of the 950 others must be those
of a fleet without bad ones. No worker may exceed its memory meanwhile.
"""

import argparse
import contextlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time

import pyarrow

import pyarrow.parquet as parquet

import test_fleet

TESTS = pathlib.Path(__file__).resolve().parent
MEMORY_MB = 512
#: Requests of the long one: more than are kept in memory.
LONG = 3_000_000


def junk(path, nth):
    path.write_bytes(random.Random(nth).randbytes(4000))


def cut(path, nth):
    test_fleet.write_trace(path, nth, requests=300)
    packed = pyarrow.compress(path.read_bytes(), "zstd", asbytes=True)
    path.unlink()
    path.with_name(path.name + ".zst").write_bytes(packed[: len(packed) // 2])


def bomb(path, nth):
    rows = b"t_us,op,lba,sectors\n" + b"%d,W,8,8\n" % nth * 4_000_000
    path.with_name(path.name + ".zst").write_bytes(pyarrow.compress(rows, "zstd", asbytes=True))


def reads(path, nth):
    test_fleet.write_trace(path, nth, requests=300, op="R")


def missing(path, nth):
    path.symlink_to(path.parent / f"nowhere-{nth}")


def odd(path, nth):
    test_fleet.write_trace(path, 10_000 + nth, requests=300)


#: Kinds by the beginning of the name, which odd_runner.py knows, how they are made, and what is
#: said of them.
KINDS = {
    "junk": (junk, "unknown trace format"), "cut": (cut, "cut short"), "bomb": (bomb, "bomb"),
    "reads": (reads, "no writes"), "missing": (missing, "No such file"),
    "aborts": (odd, "SIGABRT"), "changes": (odd, "changes while it is read"),
    "hoards": (odd, "exit code 9"), "locked": (odd, "ermission denied"),
}


def write_bad(folder, count):
    """So many bad ones; the reason that each is to have."""
    wanted = {}
    for nth in range(count):
        kind = list(KINDS)[nth % len(KINDS)]
        make, said = KINDS[kind]
        make(folder / f"{kind}{nth}.csv", nth)
        wanted[f"{kind}{nth}"] = said
    return wanted


class Watch:
    """The most memory that a worker and its runner had together."""

    def __init__(self, runner="odd_runner"):
        self.most_mb, self._runner = 0.0, runner
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        while not self._ends.wait(0.2):
            for runner in test_fleet.children(os.getpid(), self._runner):
                with contextlib.suppress(OSError, IndexError, ValueError):
                    stat = pathlib.Path(f"/proc/{runner}/stat").read_text().rpartition(")")[2]
                    both = [rss_mb(runner), rss_mb(int(stat.split()[1]))]
                    self.most_mb = max(self.most_mb, sum(both))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ends.set()
        self._thread.join()


def rss_mb(pid):
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / (1 << 20)


def fleet(folder, out):
    (folder.parent / "map.toml").write_text("default = 'exos-x20'\n")
    return test_fleet.run(
        folder, "--out", out, "--drives", folder.parent / "map.toml", "--fit", "--workers", 2,
        "--worker-memory", f"{MEMORY_MB}M")


def rows(out):
    """The rows of what is not bad, but for where the trace lies."""
    table = parquet.read_table(out / "results").drop_columns(["trace"])
    return sorted(map(repr, table.to_pylist()))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", type=int, default=1000)
    parser.add_argument("--bad", type=int, default=50)
    parser.add_argument("--long", type=int, default=LONG)
    args = parser.parse_args()
    os.environ["MANYLOGS_FLEET_RUNNER"] = "odd_runner"
    os.environ["PYTHONPATH"] = str(TESTS)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        good = pathlib.Path(folder) / "good"
        for nth in range(args.traces - args.bad - 1):
            test_fleet.write_trace(good / f"host{nth % 20}/sd{nth}.csv", nth, requests=300)
        test_fleet.write_trace(good / "host0/long.csv", 1, requests=args.long)
        code, told = fleet(good, good.parent / "good-out")
        assert code == 0, told
        mixed = pathlib.Path(folder) / "mixed"
        subprocess.run(["cp", "-r", good, mixed], check=True)
        (mixed / "host99").mkdir()
        wanted = write_bad(mixed / "host99", args.bad)
        with Watch() as watch:
            code, told = fleet(mixed, good.parent / "mixed-out")
        assert code == 2, told
        found = test_fleet.quarantined(good.parent / "mixed-out")
        assert set(found) == set(wanted), (set(found) ^ set(wanted), told)
        for disk, said in wanted.items():
            assert said in found[disk], (disk, said, found[disk])
        assert rows(good.parent / "mixed-out") == rows(good.parent / "good-out")
    print(f"{args.traces} traces, {len(wanted)} in quarantine with their reasons, the others right; "
          f"a worker had {watch.most_mb:.0f} of {MEMORY_MB} MB at most; "
          f"{time.monotonic() - began:.0f} s")
    return 0 if watch.most_mb <= MEMORY_MB else 1


if __name__ == "__main__":
    sys.exit(main())
