"""What is computed of a fleet: runs of disks, searches of long ones, and what follows from each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _manylogs
from . import _planner, _search
from ._judge import Run, judged
from ._worker import version

if TYPE_CHECKING:
    from ._engine import Workers
    from ._inventory import Disk
    from ._journal import Journal
    from ._profiles import Profile

#: How often a question is asked anew that a worker cannot answer and another one may.
ELSEWHERE = 5
#: Decisions that leave a disk to a search.
SEARCHED = ("open", "overloaded")


@dataclass(frozen=True)
class Options:
    """What is asked for."""

    inventory: str
    out: str
    drives: str | None
    policies: list[str]
    effort: str
    seeds: int
    rate: str
    fit: bool
    limit: int | None
    scheduler: str | None
    insecure: bool
    workers: int
    #: Of a worker with its runner, in bytes.
    memory: int

    def replay(self) -> dict[str, Any]:
        """Options of each replay."""
        given = {"rate": self.rate, "fit": self.fit, "limit": self.limit}
        return {key: value for key, value in given.items() if value is not None}

    def seed_list(self) -> list[int]:
        """The seeds."""
        return list(range(1, self.seeds + 1))


@dataclass
class Asked:
    """A disk with what its result follows from."""

    disk: Disk
    model: str
    profile: Profile
    content: str
    requests: int
    key: str


def task_of(options: Options, questions: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """A task of these questions."""
    return {"version": version(), "memory": options.memory, "questions": questions, **more}


def elsewhere(
    task: dict[str, Any], answers: list[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[tuple[dict[str, Any], dict[str, Any]]]]:
    """Tasks for the questions that another worker may be able to answer, and what was answered."""
    asked = list(zip(task["questions"], answers, strict=True))
    tried = task.get("tried", 0)

    def is_open(found: dict[str, Any]) -> bool:
        return bool(found.get("elsewhere")) and tried < ELSEWHERE

    left = [question for question, found in asked if is_open(found)]
    again = [{**task, "questions": left, "tried": tried + 1, "first": 0.0}] if left else []
    return again, [(question, found) for question, found in asked if not is_open(found)]


def requests_of(options: Options, requests: float) -> float:
    """How many of a trace's requests are replayed."""
    return requests if options.limit is None else min(requests, options.limit)


def planned(options: Options, replays: int, key: str, requests: float) -> _planner.Work:
    """What a disk takes in all, and into how many tasks it can be divided."""
    requests = requests_of(options, requests)
    cost = _planner.replay_s(requests, replays)
    if options.effort == "screen":
        return _planner.Work(key, cost, replays)
    cost += requests * _planner.ADVISE_S_A_REQUEST
    return _planner.Work(key, cost, max(1, round(cost / _planner.STEP_S)))


class Computing:
    """Tasks for disks that have no result yet, and the tasks that follow from their answers. Each
    answer is kept as it comes."""

    def __init__(
        self,
        options: Options,
        journal: Journal,
        asks: list[tuple[str, int, bool]],
        workers: Workers,
        new: dict[str, Asked],
    ) -> None:
        self._options, self._journal, self._asks = options, journal, asks
        self._workers, self._new = workers, new
        #: Disks that have no result although nothing is wrong with them, and why.
        self.again: dict[str, str] = {}
        #: Searches of long traces, and how many of their tasks are under way.
        self._searches: dict[str, _search.Search] = {}
        self._under_way: dict[str, int] = {}
        whole = [planned(options, len(asks), key, one.requests) for key, one in new.items()]
        self._long = {work.key for work in whole if self._is_long(work)}
        self._whole_s = sum(self._whole(work, len(asks)) for work in whole)
        self._steps: dict[str, list[str]] = {}
        for kept in journal:
            key, _, step = kept.partition(":")
            if step and key in self._long:
                self._steps.setdefault(key, []).append(kept)

    def _is_long(self, work: _planner.Work) -> bool:
        """Whether a disk's search is divided."""
        return self._options.effort == "advise" and work.cost_s > _planner.TASK_S_MAX

    def _whole(self, work: _planner.Work, runs: int) -> float:
        """What a disk takes with its search. A divided one reads the trace for each replay."""
        if work.key not in self._long:
            return work.cost_s
        return self._replay_s(work.key) * (runs + _search.REPLAYS)

    def tasks(self) -> list[dict[str, Any]]:
        """The first ones."""
        works = [self._work(one) for one in self._new.values()]
        found = []
        for task in _planner.tasks_of(works):
            undone = [work for work in task if not self._is_known(work)]
            if undone:
                questions = [self._question(work) for work in undone]
                found.append(self._task(questions, max(self._first(work) for work in undone)))
        # Those whose runs are all there go on.
        for key in self._new:
            found += self._joined(key)
        return found

    def _work(self, one: Asked) -> _planner.Work:
        """What its first tasks take."""
        work = planned(self._options, len(self._asks), one.key, one.requests)
        if self._options.effort == "screen" or one.key in self._long:
            requests = requests_of(self._options, one.requests)
            cost = _planner.replay_s(requests, len(self._asks))
            return _planner.Work(one.key, cost, len(self._asks))
        return _planner.Work(one.key, work.cost_s)

    def _is_known(self, work: _planner.Work) -> bool:
        if work.nth is None:
            return f"{work.key}-screen" in self._journal
        return f"{work.key}-{work.nth}" in self._journal

    def _first(self, work: _planner.Work) -> float:
        """What has more behind it goes first."""
        if work.key not in self._long:
            return work.cost_s
        return self._replay_s(work.key) * _search.STEPS

    def _replay_s(self, key: str) -> float:
        return _planner.replay_s(requests_of(self._options, self._new[key].requests), 1)

    def _task(self, questions: list[dict[str, Any]], first: float) -> dict[str, Any]:
        tomls = {
            question["profile"]: self._new[question["key"]].profile.toml for question in questions
        }
        return task_of(self._options, questions, profiles=tomls, first=first)

    def _question(self, work: _planner.Work) -> dict[str, Any]:
        options, one = self._options, self._new[work.key]
        question = {
            "ask": "runs",
            "key": one.key,
            "trace": one.disk.trace,
            "content": one.content,
            "profile": one.profile.key,
            "policies": options.policies,
            "seeds": options.seed_list(),
            "options": options.replay(),
            "effort": "screen" if one.key in self._long else options.effort,
            "cost_s": work.cost_s,
        }
        if work.nth is not None:
            question["nth"] = work.nth
        return question

    def done(
        self, task: dict[str, Any], answers: list[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Keeps the answers, and returns the tasks that follow."""
        more, answered = elsewhere(task, answers)
        for question, found in answered:
            key, nth = question["key"], question.get("nth")
            if question["ask"] == "step":
                more += self._stepped(question, found, task["memory"])
            elif self._is_bad(key, found, task["memory"]):
                continue
            elif "part" in found:
                self._journal.keep(f"{key}-{nth}", found)
                more += self._joined(key)
            elif key in self._long:
                more += self._screened(key, found)
            else:
                self._journal.keep(key, found)
        return more

    def _is_bad(self, key: str, found: dict[str, Any], memory: int) -> bool:
        if "bad" not in found:
            return False
        if found.get("again"):
            self.again[key] = found["bad"]
        else:
            self._journal.keep(key, {"bad": found["bad"], "memory": memory})
        return True

    def _joined(self, key: str) -> list[dict[str, Any]]:
        """Judges a disk by its runs, once all are there."""
        kept = self._journal.get(f"{key}-screen")
        if kept is not None:
            return self._screened(key, kept)
        parts = [self._journal.get(f"{key}-{nth}") for nth in range(len(self._asks))]
        if key in self._journal or None in parts:
            return []
        runs = [
            Run(policy, seed, plain, _manylogs.Measured.load(part["part"]))
            for (policy, seed, plain), part in zip(self._asks, parts, strict=True)
            if part is not None
        ]
        return self._screened(key, judged(runs))

    def _screened(self, key: str, entry: dict[str, Any]) -> list[dict[str, Any]]:
        """The disk was judged by its runs: it is done, unless a search goes on."""
        entry.pop("key", None)
        if key not in self._long or entry["decision"] not in SEARCHED:
            self._journal.keep(key, entry)
            return []
        if key in self._searches or key in self._journal:
            return []
        if f"{key}-screen" not in self._journal:
            self._journal.keep(f"{key}-screen", entry)
        one = self._new[key]
        question = self._question(_planner.Work(key, 0.0))
        search = _search.Search(question, one.profile.toml, entry["summary"])
        for kept in self._steps.get(key, []):
            search.known.update((self._journal.get(kept) or {}).get("step", {}))
        self._searches[key] = search
        return self._next(key)

    def _next(self, key: str) -> list[dict[str, Any]]:
        """The next tasks of a search; none if it came to its end."""
        search, replay_s = self._searches[key], self._replay_s(key)
        # Who would be the last asks for more at a time than he surely needs.
        fair_s = self._whole_s / self._workers.threads()
        guesses = replay_s * _search.STEPS > fair_s
        found = search.next(guesses)
        if isinstance(found, dict):
            entry = {**(self._journal.get(f"{key}-screen") or {}), **found}
            entry.pop("key", None)
            self._journal.keep(key, entry)
            del self._searches[key]
            return []
        tasks = []
        at_a_time = _planner.replays_at_a_time(replay_s)
        for asks in _planner.steps_of(found, replay_s):
            question = {**search.question, "ask": "step", "asks": asks}
            question["cost_s"] = replay_s * max(len(asks), at_a_time)
            if len(found) < at_a_time:
                question.update(
                    known=_search.pack(search.known), summary=search.summary, replays=at_a_time)
            tasks.append(self._task([question], replay_s * _search.STEPS))
        self._under_way[key] = len(tasks)
        return tasks

    def _stepped(
        self, question: dict[str, Any], found: dict[str, Any], memory: int
    ) -> list[dict[str, Any]]:
        """A task of a search is done; the last of a step brings the next one."""
        key = question["key"]
        search = self._searches.get(key)
        if search is None:
            # Another of its tasks has failed.
            return []
        if self._is_bad(key, found, memory):
            del self._searches[key]
            return []
        digest = hashlib.sha256(" ".join(question["asks"]).encode()).hexdigest()[:16]
        self._journal.keep(f"{key}:{digest}", {"step": found["step"]})
        search.known.update(found["step"])
        self._under_way[key] -= 1
        return self._next(key) if self._under_way[key] == 0 else []
