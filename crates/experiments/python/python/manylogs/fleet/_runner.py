"""Replays for a worker, in a process of its own: what ends it ends no worker.

Reads questions from standard input and answers on standard output, one line of JSON each. It ends
with its worker, whose end of the pipe closes then.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import resource
import sys
import threading
from typing import Any

from .. import _manylogs
from .._calls import advise
from .._drives import Drive
from .._errors import Error
from . import _search
from ._judge import Run, judged


def look(question: dict[str, Any]) -> dict[str, Any]:
    """What a trace holds, about how much, and what it says of its disk."""
    content, requests, exact = _manylogs.look(question["trace"])
    recorded = list(_manylogs.recorded(question["trace"]))
    return {"content": content, "requests": requests, "exact": exact, "recorded": recorded}


def _drive(question: dict[str, Any]) -> _manylogs.Drive:
    return _manylogs.Drive.of_toml(question["profile"], question["toml"])


def runs(question: dict[str, Any]) -> dict[str, Any]:
    """All runs of a disk with the decision, or the one that is asked for."""
    asked = _manylogs.Runs(
        question["trace"],
        _drive(question),
        question["policies"],
        question["seeds"],
        name=question["trace"],
        **question["options"],
    )
    nth = question.get("nth")
    if nth is not None:
        return {"part": asked.run(nth).dump()}
    done = [
        Run(policy, seed, plain, asked.run(at))
        for at, (policy, seed, plain) in enumerate(asked.asks())
    ]
    entry = judged(done)
    if question["effort"] == "advise" and entry["decision"] in ("open", "overloaded"):
        entry.update(advice(question))
    return entry


def advice(question: dict[str, Any]) -> dict[str, Any]:
    """What a search says of a disk that was not cleared."""
    drive = Drive.__new__(Drive)
    drive._native = _drive(question)
    options = dict(question["options"])
    trace = question["trace"]
    limit = options.pop("limit", None)
    from .._tables import read_trace

    found = advise(read_trace(trace, limit=limit), drive, threads=1, **options)
    told = {
        "durable_mean": found["gain"]["durable_mean"],
        "too_much": found["too_much"] is not None,
        "decision": found.decision,
        "sentence": found.sentence,
    }

    def row_of(ask: _search.RowAsk) -> dict[str, Any]:
        text = f"row {found.policy} {ask[0]} {ask[1]}"
        return _search.row_of(question, drive._native, text)

    if told["decision"] != "use" or told["too_much"]:
        return _search.advised(told, None)
    return _search.advised(told, _search.carries(row_of, options["rate"]))


def step(question: dict[str, Any]) -> dict[str, Any]:
    """Replays that a search wants."""
    return _search.many_answers(question, _drive(question))


_ASKED = {"look": look, "runs": runs, "advice": advice, "step": step}


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The answer to a question; what cannot be answered is ``bad``, with the reason."""
    try:
        return _ASKED[question["ask"]](question)
    except Error as error:
        return {"bad": str(error), "exit_code": error.exit_code}
    except MemoryError:
        return {"bad": "it needs more than --worker-memory"}


def main() -> None:
    """Answers questions until standard input ends."""
    limit = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Whatever else writes to standard output must not be taken for an answer.
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in sys.stdin:
            lines.put(line)
        # Replays under way are for nobody.
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            found = answer(json.loads(lines.get()))
            out.write(json.dumps(found) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
