"""Which profile models a disk, and how it was found."""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from .. import _manylogs
from .._errors import Error
from ._optional import toml

if TYPE_CHECKING:
    from ._inventory import Disk

#: Tables of a map, by what they name, in the order in which they count.
_TABLES = ("serial", "model", "host")


@dataclass(frozen=True)
class Profile:
    """The profile of a disk."""

    name: str
    #: All of it: workers need no file.
    toml: str
    #: ``map``, ``own``, ``catalogue`` or ``class``.
    found_by: str

    @property
    def key(self) -> str:
        """What tells it from others of its name."""
        return f"{self.name}-{zlib.crc32(self.toml.encode()):08x}"


class Profiles:
    """Finds profiles: by the map, own ones by serial number, the catalogue, or the class."""

    def __init__(self, file: str | None) -> None:
        self._tables: dict[str, dict[str, str]] = {}
        self._default: str | None = None
        self._folder = os.path.dirname(os.path.abspath(file or "."))
        self._known: dict[tuple[Any, ...], Profile | str] = {}
        if file is not None:
            self._read(file)

    def _read(self, file: str) -> None:
        try:
            with open(file, encoding="utf-8") as text:
                tables = toml(text.read())
        except (OSError, ValueError) as error:
            raise Error(f"{file}: {error}", exit_code=2, file=file) from error
        for key, value in tables.items():
            if key == "default" and isinstance(value, str):
                self._default = value
            elif key in _TABLES and isinstance(value, dict):
                self._tables[key] = {str(name): str(drive) for name, drive in value.items()}
            else:
                message = f"expected tables [serial], [model], [host], and default; not {key}"
                raise Error(f"{file}: {message}", exit_code=2, file=file)
        drives = [drive for table in self._tables.values() for drive in table.values()]
        for drive in [*drives, *([self._default] if self._default else [])]:
            self._named(drive)

    def _named(self, drive: str) -> Profile:
        beside = os.path.join(self._folder, drive)
        native = _manylogs.Drive(beside if os.path.isfile(beside) else drive)
        return Profile(native.name, native.toml(), "map")

    def of(self, disk: Disk, recorded: list[Any]) -> Profile | str:
        """The profile of ``disk``, of which its trace says ``recorded``; or why there is none."""
        model, serial = disk.model or str(recorded[1]), disk.serial or str(recorded[2])
        key = (model, serial, disk.host if "host" in self._tables else "", *recorded)
        if key not in self._known:
            self._known[key] = self._find(disk.host, model, serial, recorded)
        return self._known[key]

    def _find(self, host: str, model: str, serial: str, recorded: list[Any]) -> Profile | str:
        values = {"serial": serial, "model": model, "host": host}
        for name in _TABLES:
            drive = self._tables.get(name, {}).get(values[name])
            if drive is not None:
                return self._named(drive)
        told = cast("_manylogs.Recorded", tuple(recorded))
        try:
            native, how = _manylogs.Drive.of_disk(model, serial, told)
        except Error as error:
            if self._default is not None:
                return self._named(self._default)
            return f"no drive models it: {error}; --drives MAP.toml names one"
        return Profile(native.name, native.toml(), how)
