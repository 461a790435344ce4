"""The file that holds a cluster's key: its owner and permissions are checked before the key is used."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from greenroom.errors import ConfigError
from greenroom.supervision.private_files import write_private

LEAST: Final = 16
LARGEST: Final = 4096
_BYTES: Final = 32
_HOW: Final = "make one with: python -m greenroom.supervision.cluster.member --new-key FILE"


def read_key(path: str | os.PathLike[str]) -> bytes:
    """The key in that file, without white space around it. Raises `ConfigError` for a file that other users can read or change, or a short key."""
    where = Path(path)
    try:
        descriptor = os.open(where, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise ConfigError(f"the cluster's key cannot be read from {where}: {error.strerror}; {_HOW}") from error
    # checked on the open descriptor: the path could lead to another file by then
    try:
        _check(where, os.fstat(descriptor))
        key = os.read(descriptor, LARGEST + 2).strip()
    finally:
        os.close(descriptor)
    if not LEAST <= len(key) <= LARGEST:
        raise ConfigError(f"the key in {where} has {len(key)} bytes, and must have {LEAST} to {LARGEST}; {_HOW}")
    return key


def _check(where: Path, seen: os.stat_result) -> None:
    if not stat.S_ISREG(seen.st_mode):
        raise ConfigError(f"{where} is no file with a cluster's key in it; {_HOW}")
    if seen.st_mode & 0o077:
        raise ConfigError(
            f"{where} may be used by others than its owner (its mode is {stat.S_IMODE(seen.st_mode):o}), "
            f"and a reader of the key controls the cluster: chmod 600 {where}"
        )
    if seen.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"{where} belongs to user {seen.st_uid}, who could change the key: chown it to {os.geteuid()}"
        )


def write_key(path: str | os.PathLike[str]) -> None:
    """Write a fresh key into a file that only its owner can read. Raises `ConfigError` when the file exists."""
    try:
        write_private(Path(path), secrets.token_hex(_BYTES).encode() + b"\n", replace=False)
    except OSError as error:
        raise ConfigError(f"no key can be written to {os.fspath(path)}: {error.strerror}") from error
