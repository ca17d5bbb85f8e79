"""The dataset of a fleet: each row once, in one order, whatever the workers did."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import _manylogs
from ._optional import package

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterable, Iterator

    from ._inventory import Disk
    from ._profiles import Profile

#: Rows of a file, about.
PART_ROWS = 50_000
#: What stands before and behind the columns of a sweep.
BEFORE = ("host", "disk", "model")
DECIDED = ("decision", "gain", "gain_low", "gain_high", "carries", "reason")
QUARANTINE = ("host", "disk", "trace", "reason")


@dataclass
class Judged:
    """A disk with its result."""

    disk: Disk
    model: str
    profile: Profile
    #: The decision; its rows are kept elsewhere, by this key.
    entry: dict[str, Any]
    key: str

    def whole(self, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Its rows, with what is the disk's."""
        own = {
            "host": self.disk.host,
            "disk": self.disk.disk,
            "model": self.model,
            "trace": self.disk.trace,
            "found_by": self.profile.found_by,
        }
        decided = {key: self.entry[key] for key in DECIDED}
        for row in rows:
            yield {**row, **own, **decided}


def schema() -> Any:
    """Columns and their types."""
    arrow = package("pyarrow")
    kinds = {
        "text": arrow.string(), "whole": arrow.uint64(), "real": arrow.float64(),
        "flag": arrow.bool_(),
    }  # fmt: skip
    columns = [(name, "text") for name in BEFORE]
    columns += _manylogs.columns_of_rows()
    columns.append(("found_by", "text"))
    columns += [(name, "text" if name in ("decision", "reason") else "real") for name in DECIDED]
    return arrow.schema([arrow.field(name, kinds[kind]) for name, kind in columns])


def write(
    out: pathlib.Path,
    judged: Iterable[Judged],
    rows_of: Callable[[str], Iterable[dict[str, Any]]],
    bad: Iterable[tuple[Disk, str]],
) -> None:
    """Writes ``results/`` and ``quarantine.parquet`` into ``out``, each in place of what is there
    as a whole. ``rows_of`` has the rows of a key."""
    arrow, parquet = package("pyarrow"), package("pyarrow.parquet")
    new = out / "state" / "results"
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    columns = schema()

    def part(number: int, rows: list[dict[str, Any]]) -> None:
        table = arrow.Table.from_pylist(rows, schema=columns)
        parquet.write_table(table, new / f"part-{number:05}.parquet", compression="zstd")

    rows: list[dict[str, Any]] = []
    number = 0
    for disk in judged:
        rows += disk.whole(rows_of(disk.key))
        if len(rows) >= PART_ROWS:
            part(number, rows)
            number, rows = number + 1, []
    if rows or number == 0:
        part(number, rows)
    results = out / "results"
    old = out / "state" / "results.old"
    shutil.rmtree(old, ignore_errors=True)
    if results.exists():
        results.rename(old)
    new.rename(results)
    shutil.rmtree(old, ignore_errors=True)
    quarantined = [
        dict(zip(QUARANTINE, (disk.host, disk.disk, disk.trace, reason), strict=True))
        for disk, reason in bad
    ]
    fields = [arrow.field(name, arrow.string()) for name in QUARANTINE]
    table = arrow.Table.from_pylist(quarantined, schema=arrow.schema(fields))
    parquet.write_table(table, out / "state" / "quarantine", compression="zstd")
    os.replace(out / "state" / "quarantine", out / "quarantine.parquet")
