"""Dask: where workers are, and how tasks come to them."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .._errors import Error
from ._optional import package
from ._worker import version, work

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Tasks that are with the scheduler at a time, for each thread of a worker, and at least. It keeps
#: what the scheduler holds bounded, however many tasks there are.
AHEAD, AHEAD_MIN = 3, 64
#: How often it is asked how many workers there are.
LOOK_S = 5.0
#: Tasks after which the scheduler forgets the names of those that are done. Dask keeps the last
#: 100,000 that it has split, which takes half a kB each.
FORGET_TASKS = 10_000
#: How often a task may lose its worker. A trace that ends its runner ends no worker.
DEATHS_MAX = 20
#: What Dask's processes look at beside their tasks, less often or not at all: as it comes, each
#: takes 2 to 3 % of a processor for that all the time. docs/fleet.md has it for a cluster.
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.worker.memory.monitor-interval": "1s",
}
#: Takes a task with its answers, and returns tasks that follow from them.
Done = Callable[[dict[str, Any], list[dict[str, Any]]], Iterable[dict[str, Any]]]
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def check_address(scheduler: str, insecure: bool) -> None:
    """Refuses a scheduler that anybody on the network could tell what to run."""
    parts = urlsplit(scheduler)
    if parts.scheme not in ("tcp", "tls"):
        message = f"--scheduler: expected tcp://host:port or tls://host:port, found {scheduler}"
        raise Error(message, exit_code=2)
    if parts.scheme == "tcp" and parts.hostname not in _LOOPBACK and not insecure:
        raise Error(
            f"{scheduler}: whoever reaches a scheduler without TLS runs what he likes on it and "
            "its workers: use tls:// with certificates (docs/fleet.md), or --insecure on a network "
            "of which you are sure",
            exit_code=2,
        )


class Workers:
    """Dask's workers: those of a scheduler, or of this machine. They are begun when there is
    something to do."""

    def __init__(self, scheduler: str | None, workers: int, memory: int) -> None:
        self._where, self._workers, self._memory = scheduler, workers, memory
        self._kept = contextlib.ExitStack()
        self._client: Any = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()

    def run(
        self,
        tasks: Sequence[dict[str, Any]],
        done: Done,
    ) -> None:
        """Has ``tasks`` done, those of the highest ``first`` before others and else in this order.
        Calls ``done`` with each and its answers, and does the tasks that it returns, too.

        :raises Error: if a worker is of another version, or the scheduler is lost
        """
        if tasks:
            self._client = self._client or self._begun()
            _run(self._client, tasks, done)

    def threads(self) -> int:
        """How many tasks are done at a time, as far as that is known."""
        if self._client is None:
            return max(self._workers, 1)
        return max(int(sum(self._client.nthreads().values())), 1)

    def _begun(self) -> Any:
        dask, distributed = package("dask"), package("distributed")
        # What it says of workers that die is told by the results, and by the driver.
        for name in ("distributed", "distributed.client"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        settings = {
            "distributed.scheduler.allowed-failures": DEATHS_MAX,
            "distributed.comm.timeouts.connect": "30s",
            **QUIET,
        }
        self._kept.enter_context(dask.config.set(settings))
        try:
            where = self._where or self._local(distributed)
            client = self._kept.enter_context(distributed.Client(where, timeout="30s"))
        except (OSError, RuntimeError, TypeError, ValueError) as error:
            raise Error(f"{self._where or 'workers'}: {error}", exit_code=1) from error
        if self._where and not client.nthreads():
            print(f"{self._where}: waiting for workers", file=sys.stderr, flush=True)
        client.wait_for_workers(1)
        _same_version(client)
        return client

    def _local(self, distributed: Any) -> Any:
        with _deaf():
            return self._kept.enter_context(
                distributed.LocalCluster(
                    n_workers=self._workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    # Any free port: 8787 may be another fleet's.
                    dashboard_address="127.0.0.1:0",
                    memory_limit=self._memory,
                    silence_logs=logging.CRITICAL,
                )
            )


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are begun here leave Ctrl-C to the driver, which ends them in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _same_version(client: Any) -> None:
    told = client.run(version, on_error="return")
    # One that is gone does no tasks.
    found = {where: what for where, what in told.items() if not isinstance(what, OSError)}
    for error in found.values():
        if isinstance(error, BaseException):
            message = f"a worker has no manylogs, or one without fleets ({error})"
            raise Error(f"{message}: install the same wheel everywhere", exit_code=7) from error
    others = {where: what for where, what in found.items() if what != version()}
    if others:
        where, what = next(iter(others.items()))
        message = f"the worker at {where} has manylogs {what}, the driver {version()}"
        raise Error(f"{message}: install the same wheel everywhere", exit_code=7)


def _forget(client: Any) -> None:
    split = package("dask.utils").key_split
    # It is no error if that cannot be done: a scheduler that is lost is noticed elsewhere.
    with contextlib.suppress(OSError, AttributeError):
        client.run_on_scheduler(split.cache_clear)


def _run(client: Any, tasks: Sequence[dict[str, Any]], done: Done) -> None:
    distributed = package("distributed")
    numbers = itertools.count()
    waiting: list[tuple[float, int, dict[str, Any], int]] = []
    under_way: dict[Any, tuple[dict[str, Any], int]] = {}
    finished = distributed.as_completed()
    room, looked, ended = AHEAD_MIN, 0.0, 0

    def add(task: dict[str, Any], deaths: int = 0) -> None:
        heapq.heappush(waiting, (-task.get("first", 0.0), next(numbers), task, deaths))

    def fill() -> None:
        while waiting and len(under_way) < room:
            _, _, task, deaths = heapq.heappop(waiting)
            future = client.submit(work, task, pure=False)
            under_way[future.key] = (task, deaths)
            finished.add(future)

    for task in tasks:
        add(task)
    fill()
    while under_way:
        future = next(finished)
        task, deaths = under_way.pop(future.key)
        try:
            answers = future.result()
        except distributed.KilledWorker as error:
            if deaths == DEATHS_MAX:
                raise Error(f"workers end again and again: {error}", exit_code=1) from error
            add(task, deaths + 1)
        except (distributed.client.FutureCancelledError, OSError) as error:
            message = f"the scheduler is lost ({error}): the same command goes on"
            raise Error(message, exit_code=1) from error
        else:
            for more in done(task, answers):
                add(more)
        future.release()
        ended += 1
        if ended % FORGET_TASKS == 0:
            _forget(client)
        if time.monotonic() - looked > LOOK_S:
            looked = time.monotonic()
            room = max(AHEAD_MIN, AHEAD * sum(client.nthreads().values()))
        fill()
