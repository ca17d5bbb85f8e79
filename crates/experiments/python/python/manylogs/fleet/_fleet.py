"""A fleet, from its inventory to its report."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import pathlib
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from .. import _manylogs
from .._errors import Error
from . import _engine, _inventory, _planner, _report, _results
from ._computing import Asked, Computing, Options, elsewhere, planned, task_of
from ._journal import Journal, Lock
from ._optional import package
from ._profiles import Profiles
from ._runner import answer
from ._worker import OWN_BYTES, version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._engine import Workers
    from ._inventory import Disk

#: The least memory of a runner.
RUNNER_BYTES_MIN = 128 << 20
#: Traces of which a task reads the beginnings, and their hashes.
LOOKS_A_TASK = 200
LOOK_BYTES_A_TASK = 4 << 30
#: Traces that a plan looks at; it guesses the others' requests by their bytes.
SAMPLED = 64
#: Workers for which a plan says the hours.
_WORKERS = (1, 10, 100, 1_000, 10_000)


class Fleet:
    """Judges a fleet."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._disks = _inventory.read(options.inventory)
        self._profiles = Profiles(options.drives)
        self._asks = self._checked_policies()
        self._replays = len(self._asks)
        if options.memory < OWN_BYTES + RUNNER_BYTES_MIN:
            least = (OWN_BYTES + RUNNER_BYTES_MIN) >> 20
            raise Error(f"--worker-memory: expected {least}M or more", exit_code=2)
        if options.scheduler is not None:
            _engine.check_address(options.scheduler, options.insecure)
        self._out = pathlib.Path(options.out)

    def _checked_policies(self) -> list[tuple[str, int, bool]]:
        """Policy, seed and kind of each run of a disk. Mistakes are found before anything runs."""
        options = self._options
        if not 1 <= options.seeds <= 1000:
            raise Error("--seeds: expected 1 to 1000", exit_code=2)
        drive = _manylogs.Drive("exos-x20")
        checked = _manylogs.Runs(
            "synthetic", drive, options.policies, options.seed_list(), **options.replay()
        )
        asks = checked.asks()
        if len({plain for _, _, plain in asks}) < 2:
            message = "expected nologging and at least one policy to compare it with"
            raise Error(f"--policies: {message}", exit_code=2)
        return asks

    # A plan.

    def print_plan(self) -> int:
        """Prints what a run would take, and runs nothing."""
        sizes = [_bytes_of(disk.trace) for disk in self._disks]
        total = sum(sizes)
        works = []
        a_byte = self._requests_a_byte(sizes)
        for disk, size in zip(self._disks, sizes, strict=True):
            works.append(planned(self._options, self._replays, disk.trace, size * a_byte))
        tasks = _planner.tasks_of(works)
        costs = [_planner.sum_s(task) for task in tasks]
        _say(f"disks: {len(self._disks)}, traces of {total / 1e9:.3f} GB")
        _say(f"tasks: {len(tasks)}, of {min(costs):.1f} to {max(costs):.1f} s of CPU")
        _say(f"CPU-days: {sum(costs) / 86_400:.3f} (guessed from {a_byte:.3f} requests a byte)")
        for workers in _WORKERS:
            share = _planner.busy_share(costs, workers, _planner.SCHEDULER_S_A_TASK)
            took = _planner.hours(costs, workers)
            _say(f"workers: {workers}: {took:.2f} hours, busy {share * 100:.0f} % of them")
        return 0

    def _requests_a_byte(self, sizes: Sequence[int]) -> float:
        """Guessed from some of the traces, which are spread over the inventory."""
        step = max(1, len(self._disks) // SAMPLED)
        requests = size = 0
        for disk, own in list(zip(self._disks, sizes, strict=True))[::step]:
            if own and not _inventory.is_address(disk.trace):
                found = answer({"ask": "look", "trace": disk.trace})
                if "requests" in found:
                    requests += found["requests"]
                    size += own
        return requests / size if size else 0.2

    # A run.

    def run(self) -> int:
        """Judges the fleet, and writes results, quarantine and report."""
        package("pyarrow")
        package("distributed")
        state = self._out / "state"
        try:
            state.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Error(f"cannot write {self._out}: {error.strerror}", exit_code=2) from error
        # Held until the process ends.
        self._lock = Lock(state)
        self._looks, self._journal = Journal(state / "looks"), Journal(state / "journal")
        options = self._options
        with _engine.Workers(options.scheduler, options.workers, options.memory) as workers:
            bad = self._look(workers)
            asked = self._asked(bad)
            computed = self._compute(workers, asked, bad)
        found = self._found(asked, bad)
        _results.write(self._out, found, self._rows, sorted(bad.items()))
        page = _report.page(found, sorted(bad.items()), options.effort)
        new = state / "report"
        new.write_text(page, encoding="ascii")
        os.replace(new, self._out / "report.html")
        self._looks.close()
        self._journal.close()
        decisions = Counter(judged.entry["decision"] for judged in found)
        told = ", ".join(f"{count} {decision}" for decision, count in sorted(decisions.items()))
        _say(f"disks: {len(self._disks)}: {told or 'none judged'}, {len(bad)} in quarantine")
        _say(f"computed: {computed} of {len({one.key for one in asked})}, the rest was kept")
        _say(f"results: {self._out / 'results'}\nreport: {self._out / 'report.html'}")
        if bad:
            _say(f"quarantine: {self._out / 'quarantine.parquet'}")
        return 2 if bad else 0

    def _look(self, workers: Workers) -> dict[Disk, str]:
        """Knows each trace by what it holds. Returns which cannot be read, and why."""
        marks = {disk.trace: _mark(disk.trace) for disk in self._disks}
        bad: dict[str, str] = {}
        new = [trace for trace, mark in marks.items() if mark is None or mark not in self._looks]

        def done(
            task: dict[str, Any], answers: list[dict[str, Any]]
        ) -> list[dict[str, Any]]:
            again, answered = elsewhere(task, answers)
            for question, found in answered:
                trace = question["trace"]
                mark = marks[trace]
                if "bad" in found:
                    bad[trace] = found["bad"]
                elif mark is None or mark == _mark(trace):
                    self._looks.keep(mark or trace, found)
                else:
                    bad[trace] = "it changes while it is read"
            return again

        tasks: list[dict[str, Any]] = []
        questions: list[dict[str, Any]] = []
        size = 0
        for trace in new:
            questions.append({"ask": "look", "trace": trace})
            size += _bytes_of(trace)
            if len(questions) == LOOKS_A_TASK or size > LOOK_BYTES_A_TASK:
                tasks.append(task_of(self._options, questions))
                questions, size = [], 0
        if questions:
            tasks.append(task_of(self._options, questions))
        workers.run(tasks, done)
        self._marks = marks
        return {disk: bad[disk.trace] for disk in self._disks if disk.trace in bad}

    def _asked(self, bad: dict[Disk, str]) -> list[Asked]:
        """Disks whose traces can be read and that a profile models; the others are bad."""
        asked = []
        for disk in self._disks:
            if disk in bad:
                continue
            look = self._looks.get(self._marks[disk.trace] or disk.trace)
            if look is None:
                bad[disk] = "it changes while it is read"
                continue
            profile = self._profiles.of(disk, look["recorded"])
            if isinstance(profile, str):
                bad[disk] = profile
                continue
            options = self._options
            follows = [
                version(), look["content"], profile.toml, options.policies, options.seeds,
                options.effort, options.replay(),
            ]  # fmt: skip
            key = hashlib.sha256(json.dumps(follows).encode()).hexdigest()[:32]
            model = disk.model or look["recorded"][1]
            asked.append(Asked(disk, model, profile, look["content"], look["requests"], key))
        return asked

    def _kept(self, key: str) -> dict[str, Any] | None:
        """What is known of a key, unless more memory may change it."""
        entry = self._journal.get(key)
        if entry is not None and "bad" in entry and entry["memory"] < self._options.memory:
            return None
        return entry

    def _compute(self, workers: Workers, asked: list[Asked], bad: dict[Disk, str]) -> int:
        by_key = {one.key: one for one in asked}
        new = {key: one for key, one in by_key.items() if self._kept(key) is None}
        computing = Computing(self._options, self._journal, self._asks, workers, new)
        workers.run(computing.tasks(), computing.done)
        for one in asked:
            if one.key in computing.again and self._kept(one.key) is None:
                bad[one.disk] = computing.again[one.key]
        return len(new)

    def _found(self, asked: list[Asked], bad: dict[Disk, str]) -> list[_results.Judged]:
        """The disks that were judged; the others are bad."""
        found = []
        for one in asked:
            entry = self._kept(one.key)
            if one.disk in bad:
                continue
            if entry is None:
                bad[one.disk] = "it has no result: the same command tries again"
            elif "bad" in entry:
                bad[one.disk] = entry["bad"]
            elif entry["written_bytes"] == 0:
                bad[one.disk] = "it has no writes: a volume has nothing to do"
            else:
                decided = {name: value for name, value in entry.items() if name != "rows"}
                found.append(_results.Judged(one.disk, one.model, one.profile, decided, one.key))
        return found

    def _rows(self, key: str) -> list[dict[str, Any]]:
        entry = self._journal.get(key)
        rows: list[dict[str, Any]] = entry["rows"] if entry else []
        return rows


def _say(text: str) -> None:
    """Prints; that nobody reads it any more is no error, as with the program."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python would try again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _bytes_of(trace: str) -> int:
    """Of a file; 0 where that is not known."""
    try:
        return 0 if _inventory.is_address(trace) else os.stat(trace).st_size
    except OSError:
        return 0


def _mark(trace: str) -> str | None:
    """What changes when a trace does, without reading it; None if nothing tells."""
    try:
        if not _inventory.is_address(trace):
            # What other CPUs recorded belongs to it.
            first, cpu, _ = trace.rpartition(".blktrace.")
            names = sorted(glob.glob(glob.escape(first + cpu) + "*")) if cpu else [trace]
            stats = [os.stat(name) for name in names]
            parts = [
                f"{one.st_size} {one.st_mtime_ns} {one.st_ctime_ns} {one.st_ino}" for one in stats
            ]
            return " ".join([trace, version(), *parts])
        system, path = package("fsspec.core").url_to_fs(trace)
        info = system.info(path)
    except Exception:  # noqa: BLE001: reading it will say what is wrong
        return None
    told = ("ETag", "etag", "mtime", "LastModified", "updated", "created", "size")
    kept = [f"{name}={info[name]}" for name in told if name in info]
    return " ".join([trace, version(), *kept])
