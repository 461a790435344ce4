"""Logins in the system's own keyring: with `pip install greenroom[keyring]`. The keyring is asked in a thread, since it may ask the user."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from greenroom.auth.errors import SignInError
from greenroom.auth.grants import object_in, texts
from greenroom.errors import ConfigError
from greenroom.protocol.json import encode

from .stores import FileStore, name_lock

if TYPE_CHECKING:
    import os
    from collections.abc import Hashable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager


_NAMES: Final = "names of entries"


class KeyringStore:
    """The keyring."""

    def __init__(self, service: str = "greenroom", *, folder: str | os.PathLike[str] | None = None) -> None:
        """`service` is what the entries are called there; in `folder` are the locks. Raises `ConfigError` where there is no keyring."""
        try:
            import keyring  # noqa: PLC0415 - it is an extra
            from keyring.backends.fail import Keyring as Nothing  # noqa: PLC0415 - the same
        except ImportError:
            raise ConfigError(
                "the keyring needs an extra: pip install greenroom[keyring]; or use FileStore()"
            ) from None
        self._keyring: Any = keyring.get_keyring()
        if isinstance(self._keyring, Nothing):
            raise ConfigError("this machine has no keyring that can be used: use FileStore()")
        self._service = service
        self._folder = Path(FileStore(folder, app=service).folder)

    def __repr__(self) -> str:
        return f"KeyringStore({self._service!r})"

    @property
    def name(self) -> Hashable:
        """The service."""
        return ("keyring", self._service)

    async def get(self, key: str) -> Mapping[str, Any] | None:
        """What is kept under a name."""
        kept = await self._ask(self._keyring.get_password, self._service, key)
        return None if kept is None else object_in(kept.encode())

    async def keys(self) -> Sequence[str]:
        """The names under which something is kept: from an entry of their own, as no keyring lists its entries."""
        return texts((await self.get(_NAMES) or {}).get("names"))

    async def put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        """Keep it; None forgets."""
        await self._put(key, entry)
        async with self.lock(_NAMES):
            names = dict.fromkeys(await self.keys())
            if (key in names) == (entry is not None):
                return
            if entry is None:
                del names[key]
            else:
                names[key] = None
            await self._put(_NAMES, {"names": list(names)})

    async def _put(self, key: str, entry: Mapping[str, Any] | None) -> None:
        if entry is not None:
            await self._ask(self._keyring.set_password, self._service, key, encode(dict(entry)).decode())
        elif await self._ask(self._keyring.get_password, self._service, key) is not None:
            await self._ask(self._keyring.delete_password, self._service, key)

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        """Hold a name, across processes."""
        return name_lock(self._folder, key)

    async def _ask(self, function: Any, *arguments: str) -> Any:
        try:
            return await asyncio.to_thread(function, *arguments)
        except Exception as error:  # noqa: BLE001 - each keyring has errors of its own
            raise SignInError(
                "store", f"the keyring refuses: {type(error).__name__}; unlock it, or use FileStore()"
            ) from None


def best_store(app: str = "greenroom") -> KeyringStore | FileStore:
    """The keyring where there is one, else a sealed file."""
    try:
        return KeyringStore(app)
    except ConfigError:
        return FileStore(app=app)
