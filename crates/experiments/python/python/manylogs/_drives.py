"""Modelled drives."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Union

from . import _manylogs

if TYPE_CHECKING:
    from ._tables import Path

__all__ = ["Drive", "DriveLike", "as_drive", "drives"]


class Drive:
    """A modelled drive, by its name or by a profile file.

    >>> import manylogs
    >>> drive = manylogs.Drive("exos-x20")
    >>> drive.capacity_bytes // 10**12, round(drive.rpm)
    (20, 7200)
    """

    def __init__(self, name: Path) -> None:
        self._native = _manylogs.Drive(os.fspath(name))

    @property
    def name(self) -> str:
        """The profile's name."""
        return self._native.name

    @property
    def model(self) -> str:
        """The maker's name of it."""
        return self._native.model

    @property
    def capacity_bytes(self) -> int:
        """Its size."""
        return self._native.capacity_bytes

    @property
    def rpm(self) -> float:
        """Turns a minute."""
        return self._native.rpm

    def toml(self) -> str:
        """The profile, as the text of a file that ``Drive`` takes."""
        return self._native.toml()

    def __repr__(self) -> str:
        return f"Drive({self._native.asked!r})"


#: What a call takes as a drive.
DriveLike = Union[Drive, str, "os.PathLike[str]"]


def as_drive(drive: DriveLike) -> Drive:
    """The drive that was meant."""
    return drive if isinstance(drive, Drive) else Drive(drive)


def drives(*, all: bool = False) -> list[str]:
    """Names of the drives that come with the package; those of the catalogue too, if asked for.

    >>> import manylogs
    >>> "exos-x20" in manylogs.drives()
    True
    """
    return _manylogs.Drive.names(all)
