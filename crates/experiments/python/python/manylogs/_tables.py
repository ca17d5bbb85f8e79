"""Traces and tables: what other libraries take without a copy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Protocol, Union

from . import _manylogs

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ArrowTable", "Path", "Table", "Trace", "TraceLike", "as_trace", "read_trace"]


class ArrowTable(Protocol):
    """A table of any library that has the Arrow C stream interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hands out the batches."""


#: A path as the standard library takes it.
Path = Union[str, "os.PathLike[str]"]


class Table:
    """Columns with names. ``pyarrow.table(t)`` and ``polars.DataFrame(t)`` share its memory;
    ``pandas.DataFrame.from_arrow(t)`` copies it once."""

    def __init__(self, native: _manylogs.Table) -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, in order."""
        return self._native.column_names

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The Arrow C stream interface."""
        return self._native.__arrow_c_stream__(requested_schema)

    def to_csv(self, path: Path) -> None:
        """Writes a CSV file, as ``manylogs sweep`` does."""
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write(self._native.csv())

    def to_parquet(self, path: Path) -> None:
        """Writes a Parquet file, byte for byte what ``manylogs sweep`` writes."""
        with open(path, "wb") as file:
            file.write(self._native.parquet())

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self)} rows of {', '.join(self.column_names)}>"


class Trace:
    """A trace that was read: see :func:`read_trace`.

    It is a table of the columns ``t_ns``, ``op`` (R, W, D for a discard, Z for zeroes, F for a
    flush), ``lba``, ``sectors``, ``fua`` and ``dev``.
    """

    def __init__(self, native: _manylogs.Trace) -> None:
        self._native = native

    def __len__(self) -> int:
        return len(self._native)

    @property
    def name(self) -> str:
        """The file, or the name that the table was given."""
        return self._native.name

    @property
    def transforms(self) -> list[str]:
        """What was done to it, in words."""
        return self._native.transforms

    @property
    def dropped(self) -> Mapping[str, int]:
        """Records that were passed over or changed, by the reason."""
        return dict(self._native.dropped)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The Arrow C stream interface."""
        return self._native.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<Trace {self.name}: {len(self)} requests>"


#: What a call takes as a trace: one that was read, a file, or a table with a trace's columns.
TraceLike = Union[Trace, Path, ArrowTable]


def read_trace(
    source: Path | ArrowTable,
    *,
    window: str | None = None,
    limit: int | None = None,
    device: int | str = "all",
    skip_bad: bool = False,
    format: str | None = None,
    time_unit: str | None = None,
    event: str = "queue",
    seed: int = 1,
    name: str = "table",
) -> Trace:
    """Reads a trace of any format that ``manylogs trace`` knows, or a table with its columns.

    :param source: a file, a name of a generated trace (``synthetic``), or a table of any library
        with the Arrow C stream interface. Its columns are found by name, as those of a CSV file:
        a time (``t_ns``, ``t_us``, ``time`` ...), ``op``, an address (``lba`` or ``offset``), a
        size (``sectors`` or ``size``), perhaps ``fua`` and ``dev``.
    :param window: ``"1h+5m"``, ``"busiest-writes:5m"``, ``"busiest-reads:1h"`` or ``"random:5m"``
    :param limit: only so many requests from the start
    :param device: the number of one of the trace's devices, or ``"all"``
    :param skip_bad: passes over malformed records and counts them
    :param seed: of a random window and of generated traces
    :param name: what results call a table

    >>> import manylogs
    >>> trace = manylogs.read_trace("synthetic", limit=1000)
    >>> len(trace)
    1000
    """
    options: dict[str, Any] = {
        "window": window,
        "limit": limit,
        "device": device,
        "skip_bad": skip_bad,
        "format": format,
        "time_unit": time_unit,
        "event": event,
        "seed": seed,
    }
    if isinstance(source, (str, os.PathLike)):
        return Trace(_manylogs.Trace.read(source, **options))
    return Trace(_manylogs.Trace.of_table(source, name, **options))


def as_trace(trace: TraceLike, seed: int) -> Trace:
    """The trace that was meant."""
    return trace if isinstance(trace, Trace) else read_trace(trace, seed=seed)
