"""Where logins are kept: in memory, in a sealed file of the user's, or in the system's own keyring.

Entries are small JSON objects under names. Whoever is about to change one holds its lock: with a file or a keyring, across processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
from collections import defaultdict
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from greenroom.auth.errors import SignInError
from greenroom.auth.folders import data_folder
from greenroom.errors import ConfigError
from greenroom.protocol.errors import ProtocolError
from greenroom.protocol.json import decode, encode, is_object

from .locks import file_lock
from .sealing import Seal, Unsealed, key_in, read_private, write_private

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Hashable, Mapping
    from contextlib import AbstractAsyncContextManager

log = logging.getLogger(__name__)

PATIENCE: Final = 360.0
"""Seconds to wait for another program that is signing in: longer than a user may take."""
_MOMENT: Final = 10.0


class TokenStore(Protocol):
    """Where logins are kept."""

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
        self._given = key
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

    async def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        """Keep it; None forgets. The file is replaced as a whole, so whoever dies over it leaves the old one."""
        async with file_lock(self._place() / "credentials.lock", _MOMENT):
            entries = self._read()
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = dict(entry)
            fresh = self.path.with_name(f"credentials.{os.getpid()}")
            write_private(fresh, self._seal().close(encode(entries)))
            fresh.replace(self.path)

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncGenerator[None]:
        """Hold a name, across processes."""
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        async with file_lock(self._place() / f"{digest}.lock", PATIENCE):
            yield

    def _place(self) -> Path:
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SignInError("store", f"{self.folder} cannot be made: {error.strerror}; name another folder") from None
        return self.folder

    def _seal(self) -> Seal:
        if self._sealed is None:
            self._sealed = Seal(key_in(self._place() / "credentials.key"))
        return self._sealed

    def _read(self) -> dict[str, Any]:
        try:
            sealed = read_private(self.path)
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise SignInError("store", f"{self.path} cannot be read: {error.strerror}") from None
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
