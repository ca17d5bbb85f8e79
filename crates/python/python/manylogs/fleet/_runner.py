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
from ._judge import Run, judged


#: Policies that a search replays from fresh seeds at most.
FINALISTS = 5
#: The most load that is tried, in times of what it is, and how closely it is found.
CARRIES_MAX, CARRIES_STEP = 16.0, 1.05


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
    gain = found["gain"]["durable_mean"] or {"estimate": None, "low": None, "high": None}
    overloaded = found["too_much"] is not None
    decision = found.decision if not overloaded else "overloaded"
    return {
        "carries": carries(question, found.policy) if decision == "use" else None,
        "decision": decision,
        "reason": found.sentence,
        "tries": FINALISTS,
        "gain": gain["estimate"],
        "gain_low": gain["low"],
        "gain_high": gain["high"],
    }


def carries(question: dict[str, Any], policy: str) -> float:
    """How many times the load of a disk it carries under ``policy`` with its durable 99th
    percentile and its reads no worse than the plain drive's at the load as it is."""

    def rows(policies: list[str], rate: float | str) -> list[dict[str, Any]]:
        options = {**question["options"], "rate": rate}
        asked = _manylogs.Runs(question["trace"], _drive(question), policies, [1], **options)
        measured = [asked.run(nth) for nth in range(len(policies))]
        found: list[dict[str, Any]] = json.loads(_manylogs.rows(measured))
        return found

    plain, with_logs = rows(["nologging", policy], question["options"]["rate"])

    def no_worse(row: dict[str, Any]) -> bool:
        figures = ("durable_p99_us", "reads_mean_us")
        return not row["overloaded"] and all(
            (row[figure] or 0.0) <= (plain[figure] or 0.0) for figure in figures
        )

    low, high = 1.0, 1.0
    if not no_worse(with_logs):
        return low
    while low == high and high < CARRIES_MAX:
        high *= 2.0
        if no_worse(rows([policy], plain["rate"] * high)[0]):
            low = high
    while high / low > CARRIES_STEP:
        middle = (low * high) ** 0.5
        if no_worse(rows([policy], plain["rate"] * middle)[0]):
            low = middle
        else:
            high = middle
    return round(low, 3)


_ASKED = {"look": look, "runs": runs, "advice": advice}


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
