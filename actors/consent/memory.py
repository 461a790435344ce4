"""What was decided before: once for a while, or for good. For good is a file of our own, 0600, written whole or not at all.

A decision is about a tool as it was: its hash is kept with it, and a tool that has become another asks anew. Hosts may share a file: each
takes what the others have decided, and what they have forgotten, before it looks something up or writes. Two that write in the very same
moment may lose one decision, which is then asked for again.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from greenroom.errors import ConfigError
from greenroom.supervision.private_files import write_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    _Look: TypeAlias = tuple[int, int, int, int] | None
    """How a file was: its times, its number and its size; None when it was not there."""

_MOST: Final = 10_000
"""How many decisions are kept; the oldest go first."""
_LARGEST: Final = 16 * 1024 * 1024
"""No file of as many is as large."""


class Kept(msgspec.Struct, frozen=True):
    """One decision. `until` is on the wall's clock; None is for good."""

    allow: bool
    hash: str
    until: float | None = None


class Key(NamedTuple):
    """What a decision is about; for a server's questions `tool` is empty."""

    server: str
    kind: Literal["tool", "elicit"]
    tool: str = ""

    def __str__(self) -> str:
        return f"{self.server}:{self.tool}" if self.kind == "tool" else f"Elicit({self.server})"


class Memory:
    """Decisions by what they are about."""

    def __init__(self, clock: Callable[[], float], path: str | os.PathLike[str] | None = None) -> None:
        """`clock` is the wall's. Without `path` nothing outlives the program. Raises `ConfigError` for a file that is not readable."""
        self._clock = clock
        self._path = None if path is None else Path(path)
        self._kept: dict[str, Kept] = {}
        self._seen: _Look = None
        self._catch_up()

    def __len__(self) -> int:
        self._catch_up()
        return len(self._kept)

    def of(self, key: Key, seen: str) -> bool | None:
        """Whether it was allowed; None when nobody has decided, it has run out, or the tool is not what it was."""
        self._catch_up()
        kept = self._kept.get(str(key))
        if kept is None or kept.hash != seen:
            return None
        if kept.until is not None and kept.until <= self._clock():
            del self._kept[str(key)]
            return None
        return kept.allow

    def keep(self, key: Key, seen: str, *, allow: bool, seconds: float | None) -> None:
        """Remember it for so long; None is for good. Raises `OSError` when the file cannot be written: the decision holds, but not for long."""
        self._catch_up()
        until = None if seconds is None else self._clock() + seconds
        self._kept.pop(str(key), None)
        self._kept[str(key)] = Kept(allow, seen, until)
        while len(self._kept) > _MOST:
            del self._kept[next(iter(self._kept))]
        if seconds is None:
            self._write()

    def forget(self, key: Key | None = None) -> int:
        """Forget one, or all; how many there were."""
        self._catch_up()
        gone = list(self._kept) if key is None else [str(key)] if str(key) in self._kept else []
        for each in gone:
            del self._kept[each]
        if gone:
            self._write()
        return len(gone)

    def _catch_up(self) -> None:
        """Have what is in the file now: what was decided for good is what stands there. Raises `ConfigError`."""
        path = self._path
        if path is None:
            return
        look = _look(path)
        if look != self._seen:
            lasting = _read(path)
            self._kept = {key: kept for key, kept in self._kept.items() if kept.until is not None} | lasting
            self._seen = look

    def _write(self) -> None:
        path = self._path
        if path is None:
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lasting = {key: kept for key, kept in self._kept.items() if kept.until is None}
        write_private(path, msgspec.json.format(msgspec.json.encode(lasting)))
        self._seen = _look(path)


def _look(path: Path) -> _Look:
    try:
        told = path.stat()
    except OSError:
        return None
    return told.st_mtime_ns, told.st_ctime_ns, told.st_ino, told.st_size


def _read(path: Path) -> dict[str, Kept]:
    try:
        return _decode(_bytes(path))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{path}: the decisions that were kept cannot be read ({error}): mend the file, or remove it"
        ) from error


def _bytes(path: Path) -> bytes:
    """All of it. Nothing is waited for, and what others may have written is not believed: each line of it says yes for the user."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(descriptor, "rb") as file:  # noqa: PTH123 - what is open already
        told = os.fstat(descriptor)
        if not stat.S_ISREG(told.st_mode):
            raise ValueError("it is no file")
        if hasattr(os, "geteuid") and told.st_uid not in (os.geteuid(), 0):
            raise ValueError("it is somebody else's")
        if told.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError("others may write to it: chmod go-w")
        data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ValueError(f"it is larger than {_LARGEST} bytes")
        return data


_decode: Final = msgspec.json.Decoder(dict[str, Kept]).decode
