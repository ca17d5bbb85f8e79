"""Tasks of 10 to 60 seconds, and how busy they keep workers."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Tasks take so long at least, if there is enough to do, and at most, if it can be divided.
TASK_S_MIN, TASK_S_MAX = 10.0, 60.0
#: Tasks of replays that a search asks for take about so long.
STEP_S = 40.0
#: CPU that a request takes in one replay, with its share of reading the trace.
REPLAY_S_A_REQUEST = 2.0e-6
#: CPU that a request takes in a search.
ADVISE_S_A_REQUEST = 140.0e-6
#: CPU that a replay takes however short it is, with its share of judging.
REPLAY_S = 6.0e-3
#: CPU of the scheduler for each task.
SCHEDULER_S_A_TASK = 0.6e-3


@dataclass(frozen=True)
class Work:
    """The runs of a disk, and what they take."""

    key: str
    #: Seconds of CPU.
    cost_s: float
    #: Runs that it can be divided into.
    runs: int = 1
    #: Which of them, if it was divided.
    nth: int | None = None


def replay_s(requests: float, replays: int) -> float:
    """Seconds of CPU of so many replays of a trace of so many requests."""
    return replays * (REPLAY_S + requests * REPLAY_S_A_REQUEST)


def tasks_of(works: Iterable[Work]) -> list[list[Work]]:
    """The same work in tasks, longest first: short ones share a task, long ones are divided into
    single replays.

    Traces are not divided in time: each replay follows from the state that the one before left.

    >>> [len(task) for task in tasks_of([Work("long", 180.0, 3), Work("x", 1.0), Work("y", 1.0)])]
    [1, 1, 1, 2]
    """
    tasks: list[list[Work]] = []
    short: list[Work] = []
    for work in works:
        if work.cost_s > TASK_S_MAX and work.runs > 1:
            cost = work.cost_s / work.runs
            tasks += [[Work(work.key, cost, 1, nth)] for nth in range(work.runs)]
        elif work.cost_s >= TASK_S_MIN:
            tasks.append([work])
        else:
            short.append(work)
    # By cost, so that it does not matter how an inventory is ordered.
    short.sort(key=lambda work: (-work.cost_s, work.key))
    shared: list[Work] = []
    shared_s = 0.0
    for work in short:
        shared.append(work)
        shared_s += work.cost_s
        if shared_s >= TASK_S_MIN:
            tasks.append(shared)
            shared, shared_s = [], 0.0
    if shared:
        tasks.append(shared)
    tasks.sort(key=lambda task: (-sum_s(task), task[0].key, task[0].nth or 0))
    return tasks


def steps_of(asks: Sequence[str], replay_s: float) -> list[list[str]]:
    """The replays that a search asks for in tasks of about the same size: those of a replay each
    if that is long, else no shorter than they must be.

    >>> steps_of(["a", "b", "c"], 40.0), steps_of(["a", "b", "c"], 16.0), steps_of(["a"], 0.1)
    ([['a'], ['b'], ['c']], [['a', 'b'], ['c']], [['a']])
    """
    count = min(len(asks), max(1, round(len(asks) * replay_s / STEP_S)))
    size = -(-len(asks) // count)
    return [list(asks[at : at + size]) for at in range(0, len(asks), size)]


def replays_at_a_time(replay_s: float) -> int:
    """How many replays of a search one task does. If a step has fewer, the worker goes on with the
    next one: neither driver nor scheduler could keep many workers busy with steps of a second.

    >>> replays_at_a_time(0.5), replays_at_a_time(90.0)
    (80, 1)
    """
    return max(1, int(STEP_S / replay_s))


def sum_s(task: Sequence[Work]) -> float:
    """Seconds of CPU of a task."""
    return sum(work.cost_s for work in task)


def busy_share(costs_s: Iterable[float], workers: int, scheduler_s: float) -> float:
    """Share of the time in which ``workers`` work, if tasks of these costs go in this order to
    whoever is idle, from a scheduler that takes ``scheduler_s`` to hand out each.

    >>> busy_share([1.0, 1.0, 1.0], 2, 0.0)
    0.75
    """
    idle = [0.0] * workers
    handed, total = 0.0, 0.0
    for cost in costs_s:
        handed = max(handed, idle[0]) + scheduler_s
        heapq.heapreplace(idle, handed + cost)
        total += cost
    end = max(idle)
    return total / (end * workers) if end > 0.0 else 1.0


def hours(costs_s: Sequence[float], workers: int) -> float:
    """Hours that these tasks take on so many workers."""
    whole = sum(costs_s)
    return whole / busy_share(costs_s, workers, SCHEDULER_S_A_TASK) / workers / 3600.0
