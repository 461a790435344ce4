"""The key that a guest and a node share: in a file that its owner alone can read, or as bytes."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import TYPE_CHECKING

from greenroom.errors import ConfigError
from greenroom.supervision.cluster.keys import LEAST, read_key, write_key

if TYPE_CHECKING:
    import os


def new_key_file(path: str | os.PathLike[str]) -> Path:
    """Write a fresh key into a file that is not there yet, and that only its owner can read. Raises `ConfigError` when it is there."""
    write_key(path)
    return Path(path)


def key_of(given: bytes | str | os.PathLike[str]) -> bytes:
    """The key. Raises `ConfigError` for a file that others can read or change, and for a key that could be guessed."""
    if not isinstance(given, bytes):
        return read_key(given)
    if len(given) < LEAST:
        raise ConfigError(f"a key has at least {LEAST} bytes, not {len(given)}: write one with new_key_file(path)")
    return given


def guests_key(given: bytes | str | os.PathLike[str]) -> bytes:
    """What links of guests are keyed with: made of the key, so that no link of theirs has a node's key even where a cluster has the same file. Raises as `key_of`."""
    return hmac.digest(key_of(given), b"greenroom guests", "sha256")
