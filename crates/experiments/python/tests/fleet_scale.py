"""How busy the example fleet keeps many workers: its tasks in virtual time.

`python fleet_scale.py` prints the shares at the full scale: 120,000 disks on 1,000 and on 10,000
workers (make fleet-scale).
"""

import heapq
import itertools
import json
import math
import random
import sys
import time

import manylogs
from manylogs.fleet import _planner, _search

#: The example fleet: a day of 120,000 disks, requests lognormal.
DISKS, MEAN, SIGMA = 120_000, 3.1e6, 1.5
#: CPU of the scheduler for a task, and of the driver for a step of a search: assumed, the first
#: more than was measured.
SCHEDULER_S, DRIVER_S = 1.0e-3, 3.0e-3
#: Loads whose searches stand for those of all disks.
SHAPES = 24


def requests_of(disks, seed=1):
    rng = random.Random(seed)
    mu = math.log(MEAN) - SIGMA**2 / 2
    return [rng.lognormvariate(mu, SIGMA) for _ in range(disks)]


class Load:
    """Made-up answers of workers: each setting helps or hurts by some per cent."""

    SUMMARY = json.dumps({
        **dict.fromkeys(["reads", "writes", "fua_writes", "flushes", "discards"], 1000),
        "requests": 5000, "read_bytes": 1 << 24, "written_bytes": 1 << 24, "span_ns": 10**12,
        "end_sector": 1 << 30,
        "dropped": dict.fromkeys(["skipped", "late", "echoes", "empty", "lost"], 0)})

    def __init__(self, seed):
        self._rng = random.Random(seed)
        self._gain = self._rng.choice([0.9, 1.0, 1.5, 3.0, 6.0])
        self._effects = {}

    def effect(self, setting):
        if setting not in self._effects:
            # One in five helps.
            self._effects[setting] = self._rng.gauss(-0.03, 0.04)
        return self._effects[setting]

    def brief(self, ask):
        policy, seed, _, _, _, parts = ask.split(" ")
        name, _, options = policy.partition(":")
        mean = 1e7 / (1.0 if name == "nologging" else self._gain)
        for option in filter(None, options.split(",")):
            mean /= 1.0 + self.effect(option)
        rng = random.Random(f"{policy} {seed}")

        def total(mean, count):
            return {"count": count, "sum_ns": int(mean * count * rng.uniform(0.999, 1.001))}

        stream = {"bytes": 1 << 20, "busy_ns": 10**7}
        part = [total(mean, 100), total(8e6, 100), stream]
        return json.dumps({
            "overloaded": False, "simulated_ns": 10**12, "drive_busy_ns": 10**11,
            "median_ns": 10**6, "durable": total(mean, 3200), "reads": total(8e6, 3200),
            "stream": stream, "parts": [[part] * 32] if parts == "1" else []})

    def row(self, ask):
        _, _, nth, rate = ask.split(" ")
        at = 10.0 * (float(rate) ** 0.4) / (self._gain if nth == "1" else 1.0)
        return json.dumps({
            "trace_content": "", "rate": float(rate), "overloaded": float(rate) > 12.0,
            "durable_p99_us": at, "reads_mean_us": at})


def shape(seed, guesses):
    """How many replays each step of a search asks for."""
    load, drive = Load(seed), manylogs.Drive("constellation-es3")
    question = {"profile": drive.name, "options": {"rate": "1", "fit": True}}
    search = _search.Search(question, drive.toml(), Load.SUMMARY)
    steps = []
    while True:
        found = search.next(guesses)
        if isinstance(found, dict):
            return steps
        steps.append(len(found))
        for ask in found:
            made = load.row if ask.startswith("row ") else load.brief
            search.known[ask] = made(ask)


class Shares:
    """What became of a fleet."""

    def __init__(self, tasks, hours, busy, useful):
        self.tasks, self.hours, self.busy, self.useful = tasks, hours, busy, useful

    def __str__(self):
        return (f"{self.tasks} tasks, {self.hours:.2f} hours, busy {self.busy:.3f}, "
                f"with what is needed {self.useful:.3f}")


def simulate(requests, workers, advise, screens=3):
    """Tasks as the planner makes them, longest disks first, to workers as they are idle; a step of
    a search begins when the one before has ended. All disks are searched with ``advise``."""
    shapes = {way: [shape(seed, way) for seed in range(SHAPES)] for way in (False, True)}
    replay_s = [_planner.replay_s(count, 1) for count in requests]
    works = [_planner.Work(str(nth), cost * screens, screens) for nth, cost in enumerate(replay_s)]
    whole = [
        cost * screens + (count * _planner.ADVISE_S_A_REQUEST if advise else 0.0)
        for cost, count in zip(replay_s, requests, strict=True)]
    is_long = [advise and cost > _planner.TASK_S_MAX for cost in whole]
    if advise:
        works = [
            work if is_long[nth] else _planner.Work(work.key, whole[nth])
            for nth, work in enumerate(works)]
    fair_s = sum(
        replay_s[nth] * (screens + _search.REPLAYS) if is_long[nth] else cost
        for nth, cost in enumerate(whole)) / workers
    order, ready, runs_left = itertools.count(), [], {}
    for task in _planner.tasks_of(works):
        disks = [int(work.key) for work in task if is_long[int(work.key)]]
        for disk in disks:
            runs_left[disk] = runs_left.get(disk, 0) + 1
        cost = _planner.sum_s(task)
        first = max([cost] + [replay_s[disk] * _search.STEPS for disk in disks])
        heapq.heappush(ready, (-first, next(order), cost, disks, 0.0))
    #: Steps of searches that are left, and one of each that was looked at already.
    steps, ahead, running = {}, {}, []
    now = handed = driven = busy = wasted = 0.0
    idle, tasks, end = workers, 0, 0.0
    while ready or running:
        while ready and idle:
            _, _, cost, disks, since = heapq.heappop(ready)
            handed = max(handed, now, since) + SCHEDULER_S
            heapq.heappush(running, (handed + cost, next(order), disks))
            idle, tasks, busy = idle - 1, tasks + 1, busy + cost
        now, _, disks = heapq.heappop(running)
        idle, end = idle + 1, max(end, now)
        for disk in disks:
            runs_left[disk] -= 1
            if runs_left[disk]:
                continue
            if disk not in steps:
                guesses = replay_s[disk] * _search.STEPS > fair_s
                steps[disk] = iter(shapes[guesses][disk % SHAPES])
                needed = sum(shapes[False][disk % SHAPES])
                wasted += (sum(shapes[guesses][disk % SHAPES]) - needed) * replay_s[disk]
            driven = max(driven, now) + DRIVER_S
            count = ahead.pop(disk, 0) or next(steps[disk], 0)
            at_a_time = _planner.replays_at_a_time(replay_s[disk])
            while count < at_a_time:
                # The worker goes on with the next step.
                ahead[disk] = next(steps[disk], 0)
                if not ahead[disk] or count + ahead[disk] > at_a_time:
                    break
                count += ahead.pop(disk)
            if count:
                made = _planner.steps_of(["x"] * count, replay_s[disk])
                runs_left[disk] = len(made)
                for asks in made:
                    first = -replay_s[disk] * _search.STEPS
                    cost = len(asks) * replay_s[disk]
                    heapq.heappush(ready, (first, next(order), cost, [disk], driven))
    return Shares(tasks, end / 3600, busy / end / workers, (busy - wasted) / end / workers)


def main():
    requests = requests_of(DISKS)
    for workers, advise in [(1_000, False), (1_000, True), (10_000, True)]:
        began = time.monotonic()
        effort = "advise" if advise else "screen"
        shares = simulate(requests, workers, advise)
        print(f"{effort} on {workers} workers: {shares} ({time.monotonic() - began:.0f} s)")


if __name__ == "__main__":
    sys.exit(main())
