"""The key that a guest and a node share: in a file that its owner alone can read, or as bytes."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from greenroom.errors import ConfigError

_LEAST: Final = 16
_MOST: Final = 4096


def new_key_file(path: str | os.PathLike[str]) -> Path:
    """Write a fresh key into a file that is not there yet, and that only its owner can read. Raises `FileExistsError`."""
    place = Path(path)
    descriptor = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_hex(32).encode() + b"\n")
    return place


def key_of(given: bytes | str | os.PathLike[str]) -> bytes:
    """The key. Raises `ConfigError` for a file that others can read or change, and for a key that could be guessed."""
    key = given if isinstance(given, bytes) else _read(Path(given))
    if len(key) < _LEAST:
        raise ConfigError(f"a key has at least {_LEAST} bytes, not {len(key)}: write one with new_key_file(path)")
    return key


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise ConfigError(f"{path} is no file: a key is in a file of its own")
            if found.st_uid not in (0, os.geteuid()):
                raise ConfigError(f"{path} belongs to another user: a key belongs to who uses it")
            if found.st_mode & 0o077:
                raise ConfigError(f"{path} can be read by others: chmod 600 {path}")
            return file.read(_MOST).strip()
    except OSError as error:
        raise ConfigError(f"the key cannot be read: {error}") from error
