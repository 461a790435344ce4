"""Where logins are kept: in memory, in a sealed file of the user's, or in the system's own keyring.

Entries are small JSON objects under names. Whoever is about to change one holds its lock: with a file or a keyring, across processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections import defaultdict
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from greenroom.auth.errors import SignInError
from greenroom.auth.folders import data_folder
from greenroom.errors import ConfigError
from greenroom.protocol.errors import ProtocolError
from greenroom.protocol.json import decode, encode, is_object
from greenroom.supervision.private_files import check_folder, write_private

from .locks import PASSING, advice, file_lock
from .sealing import Seal, Unsealed, key_in, read_private

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, Generator, Hashable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

log = logging.getLogger(__name__)

PATIENCE: Final = 360.0
"""Seconds to wait for another program that is signing in: longer than a user may take."""
_MOMENT: Final = 10.0


def name_lock(folder: Path, key: str) -> AbstractAsyncContextManager[None]:
    """Hold a name with a file in that folder, across processes. Raises `SignInError` when another program has it for too long."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    return file_lock(_private_folder(folder) / f"{digest}.lock", PATIENCE, readable=True)


@contextlib.contextmanager
def store_failures() -> Generator[None]:
    """Raise what a store of a program's own has against it as `SignInError`. For calls of the store alone, and nothing that is done under its lock."""
    try:
        yield
    except OSError as error:
        raise SignInError("store", f"the store of logins fails: {reason(error)}", temporary=True) from None


def reason(error: OSError) -> str:
    """In words, also for an error without a text, as `TimeoutError()` is. No value is in it."""
    return error.strerror or type(error).__name__


def _private_folder(folder: Path) -> Path:
    """The folder, which is made if need be. Raises `SignInError`."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_folder(folder)
    except OSError as error:
        raise SignInError("store", f"{folder} cannot be made: {error.strerror}; name another folder") from None
    except ConfigError as error:
        raise SignInError("store", str(error)) from None
    return folder


class TokenStore(Protocol):
    """Where logins are kept. Each method raises `SignInError` when it cannot do that."""

    @property
    def name(self) -> Hashable:
        """Two stores with one name are one store."""
        ...

    async def get(self, key: str) -> Mapping[str, Any] | None:
        """What is kept under a name."""
        ...

    async def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        """Keep it; None forgets."""
        ...

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Hold a name: nobody else changes it meanwhile."""
        ...


class MemoryStore:
    """Nothing outlives the program. For one event loop at a time."""

    def __init__(self) -> None:
        """Empty."""
        self._entries: dict[str, dict[str, Any]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def __repr__(self) -> str:
        return f"MemoryStore({len(self._entries)} entries)"

    @property
    def name(self) -> Hashable:
        """Itself."""
        return id(self)

    async def get(self, key: str) -> Mapping[str, Any] | None:
        """What is kept under a name."""
        return self._entries.get(key)

    async def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        """Keep it; None forgets."""
        if entry is None:
            self._entries.pop(key, None)
        else:
            self._entries[key] = dict(entry)

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Hold a name."""
        return self._locks[key]


class FileStore:
    """A sealed file, which its owner alone can read, in a folder of the user's."""

    def __init__(
        self, folder: str | os.PathLike[str] | None = None, *, key: bytes | str | None = None, app: str = "greenroom"
    ) -> None:
        """`folder` is by default where the system keeps users' data of `app`. `key` seals; by default one that stands beside it."""
        self.folder = data_folder(app) if folder is None else Path(folder)
        self._sealed: Seal | None = None if key is None else Seal(key)

    def __repr__(self) -> str:
        return f"FileStore({str(self.folder)!r})"

    @property
    def name(self) -> Hashable:
        """Where it is."""
        return str(self.folder.absolute())

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "credentials"

    async def get(self, key: str) -> Mapping[str, Any] | None:
        """What is kept under a name."""
        entry = self._read().get(key)
        return entry if is_object(entry) else None

    async def keys(self) -> Sequence[str]:
        """The names under which something is kept."""
        return tuple(self._read())

    async def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        """Keep it; None forgets. The file is replaced as a whole, so whoever dies over it leaves the old one."""
        async with file_lock(self._place() / "credentials.lock", _MOMENT):
            entries = self._read()
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = dict(entry)
            sealed = self._seal().close(encode(entries))
            try:
                write_private(self.path, sealed)
            except OSError as error:
                raise SignInError(
                    "store",
                    f"{self.path} cannot be written: {error.strerror}; {advice(error)}",
                    temporary=error.errno in PASSING,
                ) from None

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncGenerator[None]:
        """Hold a name, across processes; also where nothing can be written."""
        async with name_lock(self.folder, key):
            yield

    def _place(self) -> Path:
        return _private_folder(self.folder)

    def _seal(self) -> Seal:
        if self._sealed is None:
            path = self.folder / "credentials.key"
            try:
                self._sealed = Seal(key_in(path))
            except OSError as error:
                raise SignInError(
                    "store", f"{path}, which seals logins: {error.strerror}", temporary=error.errno in PASSING
                ) from None
            except ConfigError as error:
                raise SignInError("store", str(error)) from None
        return self._sealed

    def _read(self) -> dict[str, Any]:
        try:
            check_folder(self.folder)
            sealed = read_private(self.path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise SignInError(
                "store", f"{self.path} cannot be read: {error.strerror}", temporary=error.errno in PASSING
            ) from None
        except ConfigError as error:
            raise SignInError("store", str(error)) from None
        try:
            entries = decode(self._seal().open(sealed))
        except (Unsealed, ProtocolError):
            entries = None
        if is_object(entries):
            return entries
        log.warning(
            "what is kept in %s cannot be read with its key: it is put aside, and users sign in anew", self.path
        )
        with contextlib.suppress(OSError):
            self.path.replace(self.path.with_suffix(".unreadable"))
        return {}
