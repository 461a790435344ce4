"""Private files (keys, tokens, decisions) that only their owner can read, written atomically.

An existing file may be readable for others, a link to another file, or held open by another program; so the data is always written to a new file with
an unguessable name, which replaces the old one when it is complete. On a full disk the old file stays, and nothing is left beside it.
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
"""The errors of file systems without hard links, such as vfat and exFAT."""


def write_private(path: Path, data: bytes, *, replace: bool = True, sync: bool = True) -> None:
    """Write a file that only its owner can read. Raises `OSError`, and without `replace` `FileExistsError` for an existing file.

    The data is on the disk when this returns, unless `sync` is off, for files that need not survive a power failure.
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
    """Move a file to a new path. Raises `FileExistsError`."""
    try:
        os.link(fresh, path)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Without hard links no system call here moves a file only if the target does not exist. So an empty file takes the name first and is
        # then replaced; the price is that a reader may see the empty file in between.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE))
        try:
            fresh.replace(path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _sync_folder(folder: Path) -> None:
    """Write the folder's entry to the disk, if the folder can be opened and its file system supports that."""
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
    """Write a new file in the folder of `target`, for the caller to move or remove. Raises `OSError`, and then leaves no file."""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")  # O_EXCL, and 0600 at most
    fresh = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)  # independent of the umask
            file.write(data)
            file.flush()
            if sync:
                os.fsync(descriptor)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    return fresh


def read_regular(path: Path, largest: int, check: Callable[[os.stat_result], object] | None = None) -> bytes:
    """Read a file that others may have created, without blocking on a pipe or device. `check` gets its status before it is read.

    Raises `OSError`, and `ValueError` for a path that is no regular file, or larger than `largest` bytes.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is no file")
        if check is not None:
            check(status)
        data = file.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"it is larger than {largest} bytes")
    return data


def check_folder(folder: Path) -> None:
    """Raise `ConfigError` for a folder in which other users could replace our files, and `OSError` if its status cannot be read."""
    seen = folder.stat()
    if not stat.S_ISDIR(seen.st_mode):
        raise ConfigError(f"{folder} is no folder: name another one")
    if seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"others may write to the folder {folder}: chmod go-w, or name another folder")
    # Root in a container gets folders of its host's users.
    if (us := os.geteuid()) != 0 and seen.st_uid not in (us, 0):
        raise ConfigError(f"the folder {folder} belongs to user {seen.st_uid}, and not to {us}: name another folder")


def anonymous_file() -> IO[bytes]:
    """A file without a name, deleted with its last descriptor: in memory if the system supports it, so that no folder has to be writable. Raises `OSError`."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("greenroom", os.MFD_CLOEXEC), "w+b", buffering=0)
    try:
        return tempfile.TemporaryFile(buffering=0)
    except FileNotFoundError as error:
        message = "no folder for temporary files can be written to: set TMPDIR to one that can"
        raise FileNotFoundError(error.errno, message) from None
