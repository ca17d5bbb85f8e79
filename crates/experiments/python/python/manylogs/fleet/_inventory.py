"""The disks of a fleet: a folder, a pattern, an address, or a list."""

from __future__ import annotations

import csv
import glob
import os
import pathlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._errors import Error
from ._optional import package

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Columns of a list. The trace must be there.
COLUMNS = ("host", "disk", "trace", "model", "serial")
_PACKED = (".gz", ".zst")
_SUFFIXES = (
    ".trace", ".csv", ".txt", ".tsv", ".log", ".vscsi", ".blkparse", ".iolog", ".disksim", ".msr",
    ".spc", ".parquet", ".tar", ".bin",
)  # fmt: skip


@dataclass(frozen=True, order=True)
class Disk:
    """A disk of the fleet, with its trace."""

    host: str
    disk: str
    #: A file, or an address such as ``s3://bucket/name``.
    trace: str
    model: str = ""
    serial: str = ""


def is_address(text: str) -> bool:
    """Whether it is one that fsspec reads, rather than a file."""
    return "://" in text


def read(inventory: str) -> list[Disk]:
    """The disks of ``inventory``, in order of host and disk.

    :raises Error: if it cannot be read, is empty, or lists a disk twice
    """
    disks = _found(inventory)
    if not disks:
        raise Error(f"{inventory}: no trace found", exit_code=2, file=inventory)
    return sorted(_once(disks))


def _found(inventory: str) -> list[Disk]:
    if is_address(inventory):
        return _listed_at(inventory)
    if any(letter in inventory for letter in "*?["):
        root = pathlib.Path(inventory)
        while any(letter in str(root) for letter in "*?["):
            root = root.parent
        files = [name for name in glob.glob(inventory, recursive=True) if os.path.isfile(name)]
        return [_of_file(name, str(root)) for name in files]
    if os.path.isdir(inventory):
        return [_of_file(name, inventory) for name in _walked(inventory)]
    rows = _rows(inventory)
    folder = os.path.dirname(os.path.abspath(inventory))
    return [_of_row(inventory, number, row, folder) for number, row in enumerate(rows, start=2)]


def _walked(folder: str) -> Iterable[str]:
    def failed(error: OSError) -> None:
        raise Error(f"cannot read {error.filename}: {error.strerror}", exit_code=2) from error

    for where, below, names in os.walk(folder, onerror=failed):
        below[:] = [name for name in below if not name.startswith(".")]
        for name in names:
            # The files of other CPUs belong to the first one's trace.
            part = name.rpartition(".blktrace.")
            if not name.startswith(".") and (not part[1] or part[2] == "0"):
                yield os.path.join(where, name)


def _of_file(name: str, root: str) -> Disk:
    """The disk whose trace is this file: its host is the folder below ``root``."""
    relative = os.path.relpath(name, root)
    host = os.path.dirname(relative)
    disk = os.path.basename(relative).partition(".blktrace.")[0]
    for suffix in _PACKED:
        disk = disk.removesuffix(suffix)
    for suffix in _SUFFIXES:
        if disk.endswith(suffix) and disk != suffix:
            disk = disk.removesuffix(suffix)
            break
    return Disk(host, disk, os.path.abspath(name) if not is_address(name) else name)


def _listed_at(address: str) -> list[Disk]:
    """The files below an address of fsspec."""
    core = package("fsspec.core")
    try:
        system, path = core.url_to_fs(address)
        names = system.glob(path) if any(letter in path for letter in "*?[") else system.find(path)
        whole = [system.unstrip_protocol(name) for name in names]
    except Exception as error:  # noqa: BLE001: every file system has errors of its own
        raise Error(f"{address}: {error}", exit_code=2, file=address) from error
    root = os.path.dirname(os.path.commonprefix([*whole, address.rstrip("/") + "/"]))
    return [_of_file(name, root) for name in whole]


def _rows(inventory: str) -> list[Mapping[str, Any]]:
    try:
        if inventory.endswith(".parquet"):
            rows: list[Mapping[str, Any]] = package("pyarrow.parquet").read_table(
                inventory
            ).to_pylist()
            return rows
        # Spreadsheets begin a list with a mark of the encoding.
        with open(inventory, encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            names = list(reader.fieldnames or [])
            twice = [name for name in names if names.count(name) > 1]
            if twice:
                message = f"{inventory}: column {twice[0]} is there twice"
                raise Error(message, exit_code=2, file=inventory, line=1)
            return list(reader)
    except FileNotFoundError as error:
        message = f"{inventory}: no folder, pattern or list of this name"
        raise Error(message, exit_code=2, file=inventory) from error
    except (OSError, ValueError, csv.Error) as error:
        code = 6 if isinstance(error, PermissionError) else 2
        raise Error(f"{inventory}: {error}", exit_code=code, file=inventory) from error


def _of_row(inventory: str, number: int, row: Mapping[str, Any], folder: str) -> Disk:
    unknown = [name for name in row if name not in COLUMNS]
    if "trace" not in row or None in unknown:
        message = f"expected columns {', '.join(COLUMNS)}, of which trace must be there"
        raise Error(f"{inventory}: {message}", exit_code=2, file=inventory, line=1)

    def cell(name: str) -> str:
        value = row.get(name)
        return "" if value is None else str(value).strip()

    trace = cell("trace")
    if not trace:
        message = f"{inventory}: row {number - 1} names no trace"
        raise Error(message, exit_code=2, file=inventory, line=number)
    if not is_address(trace):
        trace = os.path.join(folder, trace)
    disk = cell("disk") or _of_file(trace, os.path.dirname(trace)).disk
    return Disk(cell("host"), disk, trace, cell("model"), cell("serial"))


def _once(disks: list[Disk]) -> list[Disk]:
    """The same disks, each listed once."""
    seen: dict[tuple[str, ...], Disk] = {}
    for disk in disks:
        keys: list[tuple[str, ...]] = [(disk.host, disk.disk)]
        keys += [("serial", "number", disk.serial)] if disk.serial else []
        for key in keys:
            other = seen.setdefault(key, disk)
            if other is not disk:
                what = " ".join(key) if len(key) == 3 else f"{disk.host or '(no host)'} {disk.disk}"
                message = f"{what} is listed twice: {other.trace} and {disk.trace}"
                raise Error(message, exit_code=2)
    return disks
