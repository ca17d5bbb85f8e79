"""Replays, advice and sweeps."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Union, cast

from . import _manylogs
from ._drives import Drive, as_drive
from ._policy import Policy, as_asked
from ._progress import shown
from ._results import Advice, Replay, Sweep
from ._tables import Table, Trace, as_trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._drives import DriveLike
    from ._policy import PolicyLike
    from ._tables import Path, TraceLike

__all__ = ["advise", "replay", "sweep"]

#: The drive when none is named.
DEFAULT_DRIVE = "exos-x20"
#: The disk of which nothing is known.
UNKNOWN_DISK = "/dev/sdX"

#: A number, or the word that the program takes instead.
NumberOrWord = Union[float, str]


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in options.items() if value is not None}


def _traces(traces: TraceLike | Sequence[TraceLike], seed: int) -> list[Trace]:
    if isinstance(traces, (list, tuple)):
        return [as_trace(trace, seed) for trace in cast("Sequence[TraceLike]", traces)]
    return [as_trace(cast("TraceLike", traces), seed)]


def _command(call: str, traces: list[Trace], drive: Drive, options: dict[str, Any]) -> str:
    names = [trace.name for trace in traces]
    named = ", ".join(f"{key}={value!r}" for key, value in options.items())
    first = repr(names[0] if len(names) == 1 else names)
    return f"manylogs.{call}({first}, drive={drive._native.asked!r}{', ' if named else ''}{named})"


def replay(
    traces: TraceLike | Sequence[TraceLike],
    drive: DriveLike = DEFAULT_DRIVE,
    policies: PolicyLike | Sequence[PolicyLike] | None = None,
    *,
    seed: int = 1,
    seeds: int = 3,
    rate: NumberOrWord = 1.0,
    utilisation: NumberOrWord = 0.5,
    fit: bool = False,
    repeat: int = 1,
    durability: str | None = None,
    link: str | None = None,
    fua: bool | None = None,
    smr_cache: NumberOrWord | None = None,
    loop: str = "open",
    depth: int = 32,
    outstanding: int = 1024,
    on_overload: str = "continue",
    small: int | str | None = None,
    checkpoint: bool = True,
    threads: int | None = None,
    requests: bool = False,
    progress: bool = False,
) -> Replay:
    """Replays a trace on a modelled drive under several policies, as ``manylogs replay`` does.

    :param traces: one trace, or several that are mixed, each in its own slice of the drive
    :param policies: as ``"nologging"``, ``"mlb"``, ``"mlb:threshold=128K"``, or a
        :class:`Policy` of your own; what the program compares if not given
    :param rate: how many times as fast as recorded, or ``"auto"``: as busy as ``utilisation``
    :param seeds: each policy is replayed from so many seeds, of which ``seed`` is the first
    :param fit: moves addresses beyond the drive into it
    :param durability: ``"recorded"``, ``"all"`` or ``"sync-every=5s"``
    :param requests: keeps each request of the first seed: see :attr:`PolicyResult.requests`
    :param progress: shows how far it is, with tqdm

    Other options are those of the program: ``manylogs replay --help``.

    >>> import manylogs
    >>> r = manylogs.replay("synthetic", policies=["nologging", "mlb"], fit=True, seeds=1)
    >>> r.policies, r["mlb"]["latency_us"]["reads"]["mean"] > 0
    (['nologging', 'mlb'], True)
    """
    found, on = _traces(traces, seed), as_drive(drive)
    chosen = [policies] if isinstance(policies, (str, Policy)) else list(policies or [])
    asked = [as_asked(policy) for policy in chosen]
    options = _given(
        {
            "seed": seed,
            "seeds": seeds,
            "rate": rate,
            "utilisation": utilisation,
            "fit": fit,
            "repeat": repeat,
            "durability": durability,
            "link": link,
            "fua": fua,
            "smr_cache": smr_cache,
            "loop": loop,
            "depth": depth,
            "outstanding": outstanding,
            "on_overload": on_overload,
            "small": small,
            "checkpoint": checkpoint,
        }
    )
    command = _command("replay", found, on, {"policies": chosen, **options})
    # What is replayed to find a rate, or by default, is not known before.
    known = bool(chosen) and rate != "auto"
    total = sum(map(len, found)) * repeat * len(chosen) * seeds if known else None
    with shown(progress, total) as show:
        result = _manylogs.replay(
            [trace._native for trace in found],
            on._native,
            asked,
            command,
            requests=requests,
            threads=threads,
            show=show,
            **options,
        )
    text, table, page, tables = result
    return Replay(text, table, page, [(name, Table(native)) for name, native in tables])


def advise(
    traces: TraceLike | Sequence[TraceLike],
    drive: DriveLike = DEFAULT_DRIVE,
    *,
    disk: str = UNKNOWN_DISK,
    seed: int = 1,
    seeds: int = 3,
    rate: NumberOrWord = 1.0,
    utilisation: NumberOrWord = 0.5,
    fit: bool = False,
    repeat: int = 1,
    durability: str | None = None,
    link: str | None = None,
    fua: bool | None = None,
    smr_cache: NumberOrWord | None = None,
    threads: int | None = None,
    progress: bool = False,
) -> Advice:
    """Says whether a volume helps a load on a drive, as ``manylogs advise`` does.

    :param disk: the disk that the commands of the advice name

    Other options are those of :func:`replay`.
    """
    found, on = _traces(traces, seed), as_drive(drive)
    options = _given(
        {
            "seed": seed,
            "seeds": seeds,
            "rate": rate,
            "utilisation": utilisation,
            "fit": fit,
            "repeat": repeat,
            "durability": durability,
            "link": link,
            "fua": fua,
            "smr_cache": smr_cache,
        }
    )
    command = _command("advise", found, on, options)
    native = [trace._native for trace in found]
    with shown(progress, None) as show:
        return Advice(
            *_manylogs.advise(
                native, on._native, disk, command, threads=threads, show=show, **options
            )
        )


def sweep(
    *,
    traces: Sequence[Path | Sequence[Path]],
    drives: Sequence[DriveLike],
    policies: Sequence[str],
    parameters: Mapping[str, Sequence[object]] | None = None,
    seeds: int | Sequence[int] = 3,
    rate: NumberOrWord = 1.0,
    utilisation: NumberOrWord = 0.5,
    durability: str | None = None,
    window: str | None = None,
    limit: int | None = None,
    fit: bool = False,
    threads: int | None = None,
    progress: bool = False,
) -> Sweep:
    """Replays every combination of traces, drives, policies, parameters and seeds, as
    ``manylogs sweep`` does. Traces are files; a list among them is a mix.

    >>> import manylogs
    >>> rows = manylogs.sweep(
    ...     traces=["synthetic"], drives=["exos-x20"], policies=["nologging", "mlb"],
    ...     seeds=1, limit=2000, fit=True)
    >>> len(rows), rows.left_out
    (2, [])
    """
    values = {
        key: [str(value) for value in values] for key, values in (parameters or {}).items()
    }
    described: dict[str, Any] = {
        "traces": [
            os.fspath(trace)
            if isinstance(trace, (str, os.PathLike))
            else [os.fspath(one) for one in trace]
            for trace in traces
        ],
        "drives": [as_drive(drive)._native.asked for drive in drives],
        "policies": list(policies),
        "seeds": seeds if isinstance(seeds, int) else list(seeds),
        "rate": rate,
        "utilisation": str(utilisation),
        "durability": durability,
        "window": window,
        "limit": limit,
        "fit": fit,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in _given(described).items()]
    lines.append("[parameters]")
    lines += [f"{json.dumps(key)} = {json.dumps(chosen)}" for key, chosen in values.items()]
    with shown(progress, None) as show:
        native, left_out = _manylogs.sweep("\n".join(lines), threads, show)
    return Sweep(native, left_out)
