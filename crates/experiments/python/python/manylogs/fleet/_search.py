"""Advice about a long trace, in steps that workers do: what is wanted next follows from what is
known, and from nothing else."""

from __future__ import annotations

import base64
import functools
import json
import zlib
from typing import TYPE_CHECKING, Any, Union

from .. import _manylogs

if TYPE_CHECKING:
    from collections.abc import Callable

#: Policies that a search replays from fresh seeds at most.
FINALISTS = 5
#: The most load that is tried, in times of what it is, and how closely it is found.
CARRIES_MAX, CARRIES_STEP = 16.0, 1.05
#: Replays that follow one another in a search, about: with and without guesses.
STEPS, STEPS_GUESSED = 26, 8
#: Replays of a search without guesses, about.
REPLAYS = 120

#: A rate as a replay takes it.
Rate = Union[float, str]
#: A row that is asked for: of the plain drive (0) or of the policy (1), at a rate.
RowAsk = tuple[int, Rate]


class WantedError(Exception):
    """Something is to be done first: these rows."""

    def __init__(self, asks: list[RowAsk]) -> None:
        super().__init__(asks)
        self.asks = asks


def carries(
    row_of: Callable[[RowAsk], dict[str, Any] | None], rate: Rate, guesses: bool = False
) -> float:
    """How many times the load of a disk it carries under a policy with its durable 99th percentile
    and its reads no worse than the plain drive's at the load as it is.

    :param row_of: the row of a replay, if it is known
    :param rate: of the load as it is
    :param guesses: whether all rates that may come next are wanted at once
    :raises WantedError: if a row must be known first
    """

    def rows(asks: list[RowAsk], others: list[RowAsk]) -> list[dict[str, Any]]:
        found = [row_of(ask) for ask in asks]
        if None in found:
            wanted = asks + (others if guesses else [])
            raise WantedError([ask for ask in wanted if row_of(ask) is None])
        return [row for row in found if row is not None]

    # A rate that is found by replays is not known before.
    factor = 0.0 if rate == "auto" else float(str(rate).rstrip("x"))
    early = [(1, factor * 2.0**nth) for nth in range(1, 5)] if factor else []
    plain, with_logs = rows([(0, rate), (1, rate)], list(early))

    def no_worse(row: dict[str, Any]) -> bool:
        figures = ("durable_p99_us", "reads_mean_us")
        return not row["overloaded"] and all(
            (row[figure] or 0.0) <= (plain[figure] or 0.0) for figure in figures
        )

    low, high = 1.0, 1.0
    if not no_worse(with_logs):
        return low
    doubled = [(1, plain["rate"] * 2.0**nth) for nth in range(1, 5)]
    while low == high and high < CARRIES_MAX:
        high *= 2.0
        if no_worse(rows([(1, plain["rate"] * high)], list(doubled))[0]):
            low = high
    while high / low > CARRIES_STEP:
        middle = (low * high) ** 0.5
        later = [(1, plain["rate"] * factor) for factor in _middles(low, high)]
        if no_worse(rows([(1, plain["rate"] * middle)], list(later))[0]):
            low = middle
        else:
            high = middle
    return round(low, 3)


def _middles(low: float, high: float) -> list[float]:
    """All factors that a search between two may try."""
    if high / low <= CARRIES_STEP:
        return []
    middle = (low * high) ** 0.5
    return [*_middles(low, middle), middle, *_middles(middle, high)]


def advised(advice: dict[str, Any], carried: float | None) -> dict[str, Any]:
    """What an entry has of advice."""
    gain = advice["durable_mean"] or {"estimate": None, "low": None, "high": None}
    return {
        "carries": carried,
        "decision": "overloaded" if advice["too_much"] else advice["decision"],
        "reason": advice["sentence"],
        "tries": FINALISTS,
        "gain": gain["estimate"],
        "gain_low": gain["low"],
        "gain_high": gain["high"],
    }


@functools.lru_cache(maxsize=64)
def _drive(name: str, toml: str) -> _manylogs.Drive:
    return _manylogs.Drive.of_toml(name, toml)


class Search:
    """The advice about one disk. ``question`` is the one of its runs."""

    def __init__(self, question: dict[str, Any], toml: str, summary: str) -> None:
        self.question = question
        self._drive = _drive(question["profile"], toml)
        self.summary = summary
        #: Answers by what was asked.
        self.known: dict[str, str] = {}
        #: What the advice is, once that is known.
        self._advice: dict[str, Any] | None = None

    def next(self, guesses: bool) -> list[str] | dict[str, Any]:
        """What is wanted next, each by its text; or what the entry has of the advice."""
        options = self.question["options"]
        if self._advice is None:
            known = [item for item in self.known.items() if not item[0].startswith("row ")]
            wanted, likely, told = _manylogs.advice_next(
                self._drive, self.summary, known, guesses, **options
            )
            if told is None:
                # Those whose parts count are the last ones: the search has come to its end.
                is_searched = all(ask.endswith(" 1") for ask in wanted)
                if guesses and is_searched and likely is not None:
                    rows = self._carries(likely, guesses)
                    wanted += rows if isinstance(rows, list) else []
                return wanted
            self._advice = json.loads(told)
        advice: dict[str, Any] = self._advice or {}
        if advice["decision"] != "use" or advice["too_much"]:
            return advised(advice, None)
        found = self._carries(advice["policy"], guesses)
        return found if isinstance(found, list) else advised(advice, found)

    def _carries(self, policy: str, guesses: bool) -> list[str] | float:
        """How many times its load the disk carries under this policy, or what is wanted first."""

        def text(ask: RowAsk) -> str:
            return f"row {policy} {ask[0]} {ask[1]}"

        def row_of(ask: RowAsk) -> dict[str, Any] | None:
            found = self.known.get(text(ask))
            row: dict[str, Any] | None = None if found is None else json.loads(found)
            return row

        try:
            return carries(row_of, self.question["options"]["rate"], guesses)
        except WantedError as wants:
            return [text(ask) for ask in wants.asks]


def answers(question: dict[str, Any], drive: _manylogs.Drive) -> dict[str, Any]:
    """What a worker has to say to the asks of a step."""
    asks, options = question["asks"], question["options"]
    replays = [ask for ask in asks if not ask.startswith("row ")]
    known = {}
    content = None
    if replays:
        _, content, found = _manylogs.advice_replays(
            question["trace"], drive, replays, **options
        )
        known = dict(zip(replays, found, strict=True))
    for ask in asks:
        if ask not in known:
            row = row_of(question, drive, ask)
            content = content or row["trace_content"]
            known[ask] = json.dumps(row)
    return {"step": known, "content": content}


def pack(known: dict[str, str]) -> str:
    """Answers in a form that is short, as many tasks with them may be with a scheduler."""
    return base64.b64encode(zlib.compress(json.dumps(known).encode())).decode()


def unpack(text: str) -> dict[str, str]:
    """The answers again."""
    found: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(text)))
    return found


def many_answers(question: dict[str, Any], drive: _manylogs.Drive) -> dict[str, Any]:
    """The answers to the asks of a step, and to those of the steps that follow from it, up to so
    many replays as the question says."""
    found = answers(question, drive)
    if "known" not in question:
        return found
    search = Search(question, question["toml"], question["summary"])
    search.known = {**unpack(question["known"]), **found["step"]}
    while True:
        wanted = search.next(False)
        if isinstance(wanted, dict) or len(found["step"]) + len(wanted) > question["replays"]:
            return found
        more = answers({**question, "asks": wanted}, drive)
        if more["content"] != found["content"]:
            # The trace was changed, which the worker finds by the hash that it is told.
            return more
        found["step"].update(more["step"])
        search.known.update(more["step"])


def row_of(question: dict[str, Any], drive: _manylogs.Drive, ask: str) -> dict[str, Any]:
    """The row that is asked for."""
    _, policy, nth, rate = ask.split(" ")
    options = {**question["options"], "rate": rate}
    policies = ["nologging", policy]
    asked = _manylogs.Runs(question["trace"], drive, policies, [1], **options)
    rows = json.loads(_manylogs.rows([asked.run(int(nth))]))
    kept = ("trace_content", "rate", "overloaded", "durable_p99_us", "reads_mean_us")
    return {name: rows[0][name] for name in kept}
