"""What is done, kept in a file that outlives the driver, and who may write it."""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from typing import IO, TYPE_CHECKING, Any

from .._errors import Error

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator


class Lock:
    """Held by the one driver of a directory, until its process ends."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._file = open(folder / "lock", "a+", encoding="ascii")  # noqa: SIM115: held open
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            who = self._file.read().strip() or "somebody"
            message = f"{folder.parent}: in use by {who}: one driver at a time"
            raise Error(message, exit_code=5) from error
        self._file.truncate(0)
        self._file.write(f"process {os.getpid()} of {os.uname().nodename}\n")
        self._file.flush()


class Journal:
    """Lines of JSON by key, each with its checksum. A line that was not written to its end is cut
    off; of two lines of a key the later one counts."""

    def __init__(self, path: pathlib.Path) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        self._file: IO[bytes] = open(path, "a+b")  # noqa: SIM115: held open
        self._file.seek(0)
        end = 0
        for line in self._file:
            entry = _checked(line)
            if entry is None:
                break
            self._places[entry["key"]] = (end, len(line))
            end += len(line)
        self._file.truncate(end)
        self._end = end

    def __contains__(self, key: str) -> bool:
        return key in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def get(self, key: str) -> dict[str, Any] | None:
        """What was kept under this key."""
        place = self._places.get(key)
        if place is None:
            return None
        self._file.seek(place[0])
        entry = _checked(self._file.read(place[1]))
        if entry is None:
            raise Error(f"{self._file.name}: changed by somebody else", exit_code=1)
        return entry

    def keep(self, key: str, entry: dict[str, Any]) -> None:
        """Keeps an entry, which survives this process once this returns."""
        text = json.dumps({"key": key, **entry}, separators=(",", ":")).encode("ascii")
        line = b"%08x %s\n" % (zlib.crc32(text), text)
        self._file.seek(0, os.SEEK_END)
        self._file.write(line)
        self._file.flush()
        self._places[key] = (self._end, len(line))
        self._end += len(line)

    def close(self) -> None:
        """Sees that what was kept survives the machine, too."""
        os.fsync(self._file.fileno())
        self._file.close()


def _checked(line: bytes) -> dict[str, Any] | None:
    checksum, _, text = line.rstrip(b"\n").partition(b" ")
    if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(text):
        return None
    found: dict[str, Any] = json.loads(text)
    return found
