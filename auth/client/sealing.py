"""Sealing what is kept in a file: encrypted and authenticated, with a key that stands in a file of its own, or wherever the program has it.

This is the one file that knows the library for it. Whoever can read both files can read the tokens: the seal is against copies of one of them, in
backups and logs, and against changes.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

from cryptography.fernet import Fernet, InvalidToken

from greenroom.errors import ConfigError
from greenroom.supervision.private_files import write_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Unsealed(Exception):
    """It was not sealed with this key, or was changed since."""


class Seal:
    """One key."""

    def __init__(self, key: bytes | str) -> None:
        """32 bytes in URL-safe base64. Raises `ConfigError`."""
        try:
            self._inner = Fernet(key)
        except ValueError:
            raise ConfigError("a key for the token file is 32 bytes in URL-safe base64") from None

    def close(self, data: bytes) -> bytes:
        """Seal it."""
        return self._inner.encrypt(data)

    def open(self, data: bytes) -> bytes:
        """Raises `Unsealed`."""
        try:
            return self._inner.decrypt(data)
        except InvalidToken:
            raise Unsealed from None


def key_in(path: Path, make: Callable[[], bytes] = Fernet.generate_key) -> bytes:
    """The key in that file, which is made if it is not there: whole, readable by its owner alone, and once, however many begin at a time."""
    try:
        return read_private(path).strip()
    except FileNotFoundError:
        pass
    with contextlib.suppress(FileExistsError):  # another program was quicker: its key is the one
        write_private(path, make(), replace=False)
    return read_private(path).strip()


def read_private(path: Path) -> bytes:
    """A file's content. Raises `ConfigError` when others can read it as well."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise ConfigError(f"{path} is no file: remove it, or name another folder")
        if mode & 0o077:
            raise ConfigError(
                f"{path.name} can be read by others than its owner: sign in anew after `chmod 600` and a look at who did"
            )
        return file.read()
