"""Files of their owner's alone: keys, tokens, decisions. Written whole or not at all, and never into a file that was there before.

A file that was there may be open to others, be a link to another place, or be held open by another program; so what is written is always a new file with
a name that cannot be guessed, which takes the place of the old one when it is complete. A disk that is full leaves the old one, and nothing beside it.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from greenroom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

PRIVATE: Final = 0o600
_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS})
"""What a file system without hard links says, as vfat and exFAT."""


def write_private(path: Path, data: bytes, *, replace: bool = True, sync: bool = True) -> None:
    """Write a file that its owner alone can read. Raises `OSError`; without `replace` it is `FileExistsError` where there is one.

    It is on the disk when this returns, unless `sync` is off, for what need not outlive the program.
    """
    fresh = write_beside(path, data, sync=sync)
    try:
        if replace:
            fresh.replace(path)
        else:
            _link_new(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
    if sync:
        _sync_folder(path.parent)


def _link_new(fresh: Path, path: Path) -> None:
    """Move a file to where there is none. Raises `FileExistsError`."""
    try:
        os.link(fresh, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # The name is taken first, and the file put in its place: a reader may meet an empty file in between, as no call here does both.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE))
        try:
            fresh.replace(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _sync_folder(folder: Path) -> None:
    """Have the new name on the disk, where the folder can be read and its file system does that for folders."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
    finally:
        os.close(descriptor)


def write_beside(target: Path, data: bytes, *, mode: int = PRIVATE, sync: bool = True) -> Path:
    """Write a new file in the same folder, for the caller to move to `target` or to remove. Raises `OSError`, and leaves nothing then."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # O_EXCL, and 0600 at most
    fresh = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # whatever the umask has taken away
            file.write(data)
            file.flush()
            if sync:
                os.fsync(descriptor)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    return fresh


def read_regular(path: Path, largest: int, check: Callable[[os.stat_result], object] | None = None) -> bytes:
    """All of a file that others may have put there: nothing is waited for. `check` looks at it before it is read.

    Raises `OSError`, and `ValueError` for what is no file, or larger than that.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(descriptor, "rb") as file:  # noqa: PTH123 - what is open already
        told = os.fstat(descriptor)
        if not stat.S_ISREG(told.st_mode):
            raise ValueError("it is no file")
        if check is not None:
            check(told)
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"it is larger than {largest} bytes")
    return data


def check_folder(folder: Path) -> None:
    """Raises `ConfigError` for a folder in which others could put files of theirs in place of ours. `OSError` where it cannot be looked at."""
    seen = folder.stat()
    if not stat.S_ISDIR(seen.st_mode):
        raise ConfigError(f"{folder} is no folder: name another one")
    if seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"others may write to the folder {folder}: chmod go-w, or name another folder")
    if (us := os.geteuid()) != 0 and seen.st_uid not in (
        us,
        0,
    ):  # a container's root is given folders of its host's users
        raise ConfigError(f"the folder {folder} belongs to user {seen.st_uid}, and not to {us}: name another folder")


def anonymous_file() -> IO[bytes]:
    """A file that is gone with its last descriptor: in memory where the system can, so that no folder has to be writable. Raises `OSError`."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("greenroom", os.MFD_CLOEXEC), "w+b", buffering=0)
    try:
        return tempfile.TemporaryFile(buffering=0)
    except FileNotFoundError as error:
        message = "no folder for temporary files can be written to: set TMPDIR to one that can"
        raise FileNotFoundError(error.errno, message) from None
