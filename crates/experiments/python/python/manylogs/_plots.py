"""Plots, with matplotlib."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._results import PolicyResult, Replay


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        # By its name, as it is not needed, and is no part of the types.
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install matplotlib") from error
    return pyplot.subplots()[1]


def head(result: PolicyResult, ax: Any) -> Any:
    """Positions of the head, with a colour for each kind of command."""
    ax = _axes(ax)
    points = result["head"]
    for letter in sorted(set(points["kind"])):
        chosen = [at for at, kind in enumerate(points["kind"]) if kind == letter]
        ax.plot(
            [points["seconds"][at] for at in chosen],
            [points["gigabytes"][at] for at in chosen],
            ".",
            markersize=2,
            label=letter,
        )
    ax.set(title=result.name, xlabel="seconds", ylabel="position of the head, GB")
    ax.legend()
    return ax


def cdf(replay: Replay, kind: str, ax: Any) -> Any:
    """Latencies of ``durable`` writes or of ``reads``: one line a policy."""
    if kind not in ("durable", "reads"):
        raise ValueError(f"kind: expected durable or reads, found {kind!r}")
    ax = _axes(ax)
    for name in replay:
        line = replay[name][f"{kind}_cdf"]
        ax.plot(line["latency_us"], line["fraction"], label=name)
    ax.set(xscale="log", xlabel=f"{kind}: latency, microseconds", ylabel="share")
    ax.legend()
    return ax
