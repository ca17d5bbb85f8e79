"""What the runs of a disk say, and what those of a whole fleet do."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _manylogs

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Share of false ones among the disks that a report names.
FALSE_SHARE = 0.05
#: Parts of a replay between which its intervals are drawn, less one: the tails are Student's.
_FREEDOM = 31
#: Standard errors from end to end of a 95 % interval.
_SPAN = 2 * 1.959964


@dataclass(frozen=True)
class Run:
    """A measured run."""

    policy: str
    seed: int
    plain: bool
    measured: _manylogs.Measured


def judged(runs: Sequence[Run]) -> dict[str, Any]:
    """Rows and decision of a disk by these runs: ``cleared``, ``open`` or ``overloaded``.

    A disk is cleared if nothing that a search could find would be used there: there is no durable
    write, there are too few to tell, or the interval of the gain ends below 1.
    """
    rows = json.loads(_manylogs.rows([run.measured for run in runs]))
    by_policy: dict[str, list[int]] = {}
    for nth, run in enumerate(runs):
        by_policy.setdefault(run.policy, []).append(nth)

    def mean(nths: list[int]) -> float:
        """Until data is durable; of reads where nothing is."""
        kind = "durable" if any(rows[nth]["durable_count"] for nth in nths) else "reads"
        counted = [(rows[nth][f"{kind}_count"], rows[nth][f"{kind}_mean_us"]) for nth in nths]
        whole = sum(count for count, _ in counted)
        return sum(count * (value or 0.0) for count, value in counted) / whole if whole else 0.0

    plain = [nths for nths in by_policy.values() if runs[nths[0]].plain]
    others = [nths for nths in by_policy.values() if not runs[nths[0]].plain]
    base = min(plain, key=mean)
    gains: list[tuple[str, dict[str, Any]]] = []
    for nths in others:
        measured = [[runs[nth].measured for nth in chosen] for chosen in (base, nths)]
        found = json.loads(_manylogs.gain(measured[0], measured[1], runs[base[0]].seed))
        if found["durable_mean"] is not None:
            gains.append((runs[nths[0]].policy, found["durable_mean"]))
    best = max(gains, key=lambda gain: float(gain[1]["estimate"]), default=None)
    verdict = _verdict([rows[nth] for nth in base], best, [gain for _, gain in gains])
    interval = best[1] if best else {"estimate": None, "low": None, "high": None}
    return {
        "rows": rows,
        "written_bytes": runs[0].measured.written_bytes,
        "summary": runs[0].measured.summary,
        "decision": verdict[0],
        "reason": verdict[1],
        "carries": None,
        "tries": max(len(others), 1),
        "gain": interval["estimate"],
        "gain_low": interval["low"],
        "gain_high": interval["high"],
    }


def _verdict(
    base: list[dict[str, Any]],
    best: tuple[str, dict[str, Any]] | None,
    gains: list[dict[str, Any]],
) -> tuple[str, str]:
    if not any(row["durable_count"] for row in base):
        return "cleared", "no durable write"
    if best is None:
        return "cleared", "too few durable writes to judge"
    name, interval = best
    span = f"{interval['estimate']:.2f} ({interval['low']:.2f} to {interval['high']:.2f})"
    if any(row["overloaded"] for row in base):
        behind = max(row["backlog_seconds"] for row in base)
        return "overloaded", f"the plain drive does not keep up: {behind} s behind at the end"
    if all(gain["high"] < 1.0 for gain in gains):
        return "cleared", f"slower: data is durable {span} times as fast under {name}"
    return "open", f"data is durable {span} times as fast under {name}"


def chance(gain: float, low: float, high: float) -> float:
    """How likely a disk without a gain shows one as large: one-sided, from a 95 % interval.

    >>> round(chance(1.0, 0.9, 1.11), 2), chance(2.0, 1.8, 2.2) < 1e-6
    (0.5, True)
    """
    if not low > 0.0:
        return 1.0
    error = math.log(high / low) / _SPAN
    if error <= 0.0:
        return 0.0 if gain > 1.0 else 1.0
    t = math.log(gain) / error
    # Wallace's approximation of Student's tail by the normal one.
    factor = (8 * _FREEDOM + 1) / (8 * _FREEDOM + 3)
    z = factor * math.sqrt(_FREEDOM * math.log1p(t * t / _FREEDOM))
    return 0.5 * math.erfc(math.copysign(z, t) / math.sqrt(2.0))


def discoveries(chances: Sequence[float], share: float = FALSE_SHARE) -> list[bool]:
    """Which of these are named so that at most ``share`` of them are false in the mean
    (Benjamini and Hochberg).

    >>> discoveries([0.001, 0.04, 0.9, 0.03])
    [True, False, False, False]
    """
    order = sorted(range(len(chances)), key=lambda nth: chances[nth])
    named = 0
    for rank, nth in enumerate(order, start=1):
        if chances[nth] <= share * rank / len(chances):
            named = rank
    found = [False] * len(chances)
    for nth in order[:named]:
        found[nth] = True
    return found
