"""What replays, advice and sweeps give."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Union

from ._tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ._tables import Path

__all__ = ["Advice", "PolicyResult", "Replay", "Sweep"]

#: What JSON holds.
Json = Union[None, bool, int, float, str, "list[Any]", "dict[str, Any]"]


class PolicyResult:
    """The figures of one policy: ``result["gain"]`` and so on, as the program's JSON has them."""

    def __init__(self, name: str, figures: dict[str, Any], requests: Table | None) -> None:
        #: The policy as it was asked for.
        self.name = name
        #: All figures.
        self.figures: Mapping[str, Any] = figures
        self._requests = requests

    def __getitem__(self, figure: str) -> Any:
        return self.figures[figure]

    @property
    def requests(self) -> Table:
        """One row a request of the first seed, in the order of the answers: ``arrived_s``,
        ``kind``, ``latency_us``, ``request``, ``lba``, ``sectors`` and ``served`` (``home``,
        ``log``, ``both``, ``later``, or nothing for a flush). ``kind`` and ``served`` are
        dictionaries of text. A request takes 38 bytes. Only with
        ``replay(..., requests=True)``."""
        if self._requests is None:
            raise ValueError("requests are kept only by replay(..., requests=True)")
        return self._requests

    def __repr__(self) -> str:
        return f"<PolicyResult {self.name}>"


class Replay:
    """The result of :func:`replay`: figures by policy."""

    def __init__(
        self, text: str, table: str, page: str, requests: list[tuple[str, Table]]
    ) -> None:
        self._text = text
        self._table = table
        self._page = page
        #: All figures, as the program's JSON has them.
        self.figures: Mapping[str, Any] = json.loads(text)
        kept = dict(requests)
        self._policies = {
            name: PolicyResult(name, figures, kept.get(name))
            for name, figures in self.figures["policies"].items()
        }

    def json(self) -> str:
        """What ``manylogs replay --json`` writes, to the byte, save ``command``."""
        return self._text

    def html(self) -> str:
        """What ``manylogs replay --report`` writes."""
        return self._page

    def save_report(self, path: Path) -> None:
        """Writes the report as a page that a browser opens."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self._page)

    @property
    def policies(self) -> list[str]:
        """Names of the policies, in the order in which they were asked for."""
        return list(self._policies)

    def __getitem__(self, policy: str) -> PolicyResult:
        return self._policies[policy]

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)

    def plot_head(self, policy: str, *, ax: Any = None) -> Any:
        """Where the drive's head was over time. Needs matplotlib; returns its axes."""
        from . import _plots

        return _plots.head(self[policy], ax)

    def plot_cdf(self, kind: str = "durable", *, ax: Any = None) -> Any:
        """Shares of latencies by policy. Needs matplotlib; returns its axes."""
        from . import _plots

        return _plots.cdf(self, kind, ax)

    def __str__(self) -> str:
        return self._table

    def __repr__(self) -> str:
        return f"<Replay of {', '.join(self.policies)} on {self.figures['drive']}>"


class Advice:
    """The result of :func:`advise`: whether a volume helps, and with which settings."""

    def __init__(self, text: str, sentence: str, table: str) -> None:
        self._text = text
        self._table = table
        #: The decision in a sentence.
        self.sentence = sentence
        #: All figures, as the program's JSON has them.
        self.figures: Mapping[str, Any] = json.loads(text)

    def json(self) -> str:
        """What ``manylogs advise --json`` writes, to the byte."""
        return self._text

    @property
    def decision(self) -> str:
        """``use``, ``no-difference`` or ``do-not-use``."""
        return str(self.figures["decision"])

    @property
    def policy(self) -> str:
        """The policy that was judged, as :func:`replay` takes it."""
        return str(self.figures["policy"])

    def __getitem__(self, figure: str) -> Any:
        return self.figures[figure]

    def __str__(self) -> str:
        reasons = "".join(f"* {reason}\n" for reason in self.figures["reasons"])
        return f"{self.sentence}\n\n{reasons}\n{self._table}"

    def __repr__(self) -> str:
        return f"<Advice: {self.sentence}>"


class Sweep(Table):
    """The result of :func:`sweep`: one row a run, with the columns of docs/sweeps.md."""

    def __init__(self, native: Any, left_out: list[str]) -> None:
        super().__init__(native)
        #: Why runs have no result, each reason once.
        self.left_out = left_out
