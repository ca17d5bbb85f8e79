"""What a worker does with a task: it asks its runner, and outlives it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import IO, Any

from .. import _manylogs
from .._errors import Error
from ._inventory import is_address
from ._optional import package

#: Memory of a worker beside its runner.
OWN_BYTES = 192 << 20
#: A question is given up after this many times what it should take, and not before so long.
PATIENCE, PATIENCE_S = 50.0, 900.0
#: The most of a remote trace that is copied to this machine.
SCRATCH_BYTES = 64 << 30
_PIECE = 1 << 20
#: So often a store is asked for the same in vain, with pauses that double.
FETCH_TRIES, FETCH_WAIT_S = 5, 0.25
#: How a question ended that took too long.
LATE = "no answer"
#: A runner that closed its pipe is gone so soon.
ENDS_S = 10.0


@functools.cache
def version() -> str:
    """The package with its native part: workers of another one are refused."""
    with open(str(_manylogs.__file__), "rb") as file:
        digest = hashlib.file_digest(file, "sha256") if sys.version_info >= (3, 11) else None
        if digest is None:
            digest = hashlib.sha256(file.read())
    return f"{_manylogs.__version__}-{digest.hexdigest()[:16]}"


class Runner:
    """The process that replays for this worker."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._process: subprocess.Popen[str] | None = None

    def _begun(self) -> subprocess.Popen[str]:
        if self._process is None or self._process.poll() is not None:
            # Tests have one that aborts.
            module = os.environ.get("MANYLOGS_FLEET_RUNNER", "manylogs.fleet._runner")
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, str(self._memory - OWN_BYTES)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        return self._process

    def end(self, wait_s: float) -> str:
        """Ends the process unless it does so itself, and says how it ended."""
        process, self._process = self._process, None
        if process is None:
            return "it was not there"
        try:
            code = process.wait(wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                _pipe(pipe).close()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def ask(self, question: dict[str, Any], patience_s: float) -> dict[str, Any] | str:
        """The answer, or how the process ended instead."""
        try:
            process = self._begun()
            _pipe(process.stdin).write(json.dumps(question) + "\n")
            _pipe(process.stdin).flush()
            line = _line(_pipe(process.stdout), patience_s)
        except (BrokenPipeError, ConnectionResetError):
            line = ""
        if line is None:
            self.end(0.0)
            return f"{LATE} within {patience_s:.0f} s"
        if not line.endswith("\n"):
            return self.end(ENDS_S)
        found: dict[str, Any] = json.loads(line)
        return found


def _pipe(pipe: IO[str] | None) -> IO[str]:
    if pipe is None:
        raise BrokenPipeError
    return pipe


def _line(pipe: IO[str], patience_s: float) -> str | None:
    """The next line; what there is of it if the other side ended; None if it takes too long."""
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        if not selector.select(patience_s):
            return None
    return pipe.readline()


_of_thread = threading.local()


def _runner(memory: int) -> Runner:
    if getattr(_of_thread, "memory", None) != memory:
        _of_thread.runner, _of_thread.memory = Runner(memory), memory
    runner: Runner = _of_thread.runner
    return runner


def work(task: dict[str, Any]) -> list[dict[str, Any]]:
    """Does a task of a fleet: the answers to its questions, in order.

    :raises Error: if this worker has another version of the package than the driver
    """
    if task["version"] != version():
        message = f"a worker has manylogs {version()}, the driver {task['version']}"
        raise Error(f"{message}: install the same wheel everywhere", exit_code=7)
    return [_answered(task, question) for question in task["questions"]]


def _answered(task: dict[str, Any], question: dict[str, Any]) -> dict[str, Any]:
    with contextlib.ExitStack() as kept:
        asked = dict(question)
        if "profile" in question:
            asked["toml"] = task["profiles"][question["profile"]]
        if is_address(question["trace"]):
            try:
                asked["trace"] = kept.enter_context(_copied(question["trace"]))
            except Exception as error:  # noqa: BLE001: every file system has errors of its own
                # Another worker may have more room, or a better way to the store.
                elsewhere = not isinstance(error, (FileNotFoundError, PermissionError))
                bad = f"cannot be fetched: {error or type(error).__name__}"
                return {"bad": bad, "again": True, "elsewhere": elsewhere}
        runner = _runner(task["memory"])
        patience_s = max(PATIENCE_S, PATIENCE * float(question.get("cost_s", 0.0)))
        ended: list[str] = []
        # Once more, alone: the machine may have been short of memory, or somebody killed it.
        for _ in range(2):
            found = runner.ask(asked, patience_s)
            if isinstance(found, dict):
                return _checked(question, asked, found)
            ended.append(found)
        memory = task["memory"] >> 20
        reason = f"it ends the process that replays it ({ended[-1]}; memory: {memory}M)"
        # Somebody else may have done that; the next command tries again.
        return {"bad": reason, "again": ended[-1] == "SIGKILL" or ended[-1].startswith(LATE)}


def _checked(
    question: dict[str, Any], asked: dict[str, Any], found: dict[str, Any]
) -> dict[str, Any]:
    """The answer, unless the trace is another one by now."""
    content = question.get("content")
    contents = {row["trace_content"] for row in found.get("rows", [])}
    if "part" in found:
        contents = {json.loads(found["part"])["row"]["trace_content"]}
    if found.get("content"):
        contents = {found["content"]}
    if content is not None and contents - {content}:
        return {"bad": "it changes while it is read", "again": True}
    if "bad" in found:
        # Another trace that holds the same has the same result.
        found["bad"] = found["bad"].replace(f"{asked['trace']}: ", "")
        if found.get("exit_code") == 6:
            found["again"] = True
    return found


@contextlib.contextmanager
def _copied(address: str) -> Any:
    """A copy of a remote trace on this machine, for a while."""
    folder = tempfile.mkdtemp(prefix="manylogs-")
    try:
        path = os.path.join(folder, os.path.basename(address) or "trace")
        most = min(SCRATCH_BYTES, shutil.disk_usage(folder).free // 2)
        with open(path, "wb", buffering=0) as copy:
            failures = 0
            while True:
                before = copy.tell()
                try:
                    _fetch(address, copy, most)
                    break
                except (FileNotFoundError, PermissionError):
                    raise
                except Exception:  # every file system has errors of its own
                    # A store may fail now and then; what is there need not come again.
                    failures = 1 if copy.tell() > before else failures + 1
                    if failures == FETCH_TRIES:
                        raise
                    time.sleep(FETCH_WAIT_S * 2**failures)
        yield path
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _fetch(address: str, copy: IO[bytes], most: int) -> None:
    """Goes on with a copy until its end."""
    with package("fsspec").open(address, "rb") as source:
        source.seek(copy.tell())
        while piece := source.read(_PIECE):
            if copy.tell() + len(piece) > most or copy.write(piece) < len(piece):
                raise OSError("it is larger than the scratch space of this worker")
