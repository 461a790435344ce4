"""Who waits for news of a federation: any number of readers, each told which keys have changed since it last looked.

What is kept for a slow reader is one mark a key, so it can neither fill memory nor lose anything: it reads what is true when it reads.
A reader that nobody holds any more is forgotten.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

R_co = TypeVar("R_co", covariant=True)


class Bell:
    """Wakes everybody who waits."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        """Nobody does."""
        self._waiting: list[asyncio.Future[None]] = []

    def ring(self) -> None:
        """Now."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)

    async def wait(self, seconds: float | None = None) -> None:
        """Until it rings next, or the time is over."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        try:
            await asyncio.wait((future,), timeout=seconds)
        finally:
            if not future.done():
                future.cancel()
                if future in self._waiting:
                    self._waiting.remove(future)


class News:
    """What readers are told by."""

    __slots__ = ("_readers",)

    def __init__(self) -> None:
        """Nobody reads."""
        self._readers: WeakSet[Reader[object]] = WeakSet()

    def tell(self, key: Hashable) -> None:
        """Something about it is different."""
        for each in tuple(self._readers):
            each.mark(key)

    def reader(self, keys: Iterable[Hashable], read: Callable[[Hashable], R_co | None]) -> Reader[R_co]:
        """One more. It is given `read` of each of these keys, and of each key that is told after them; None is passed over."""
        reader = Reader(keys, read)
        self._readers.add(reader)
        return reader


class Reader(Generic[R_co]):
    """An endless async iterator, for one task at a time."""

    __slots__ = ("__weakref__", "_bell", "_marked", "_read")

    def __init__(self, keys: Iterable[Hashable], read: Callable[[Hashable], R_co | None]) -> None:
        """Made by `News.reader`."""
        self._marked: dict[Hashable, None] = dict.fromkeys(keys)
        self._read = read
        self._bell = Bell()

    def mark(self, key: Hashable) -> None:
        """That key is to be read."""
        self._marked[key] = None
        self._bell.ring()

    def __aiter__(self) -> Reader[R_co]:
        return self

    async def __anext__(self) -> R_co:
        while True:
            while self._marked:
                key = next(iter(self._marked))
                del self._marked[key]
                value = self._read(key)
                if value is not None:
                    return value
            await self._bell.wait()
