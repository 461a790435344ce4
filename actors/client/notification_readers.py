"""The readers of notifications: bounded queues that live beside the connection, and so outlive its process.

What a reader does not take in time is dropped, oldest first, and it finds a gap in its place.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakValueDictionary

from greenroom.supervision import Wakeup

from .interfaces import ServerNotification

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
    from types import TracebackType

GAP: Final = ServerNotification("", {})
UPDATED: Final = "notifications/resources/updated"


class NotificationReaders:
    """All readers of one line."""

    def __init__(self, most: int) -> None:
        """`most` is how much is kept for each."""
        self.most = most
        self.over = False
        """Whether nothing will come, until the connection is started again."""
        self.by_uri: dict[str, dict[NotificationReader, None]] = {}
        self.by_method: dict[str, dict[NotificationReader, None]] = {}
        """Under an empty name the readers of all methods."""
        self.granted: set[str] = set()
        """Of which resources the server has been asked to tell."""
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Subscribing to a resource and unsubscribing from it are serialized."""

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """It was said."""
        found: dict[NotificationReader, None] = {}
        if self.by_method:
            found.update(self.by_method.get(method, {}))
            found.update(self.by_method.get("", {}))
        if method == UPDATED and self.by_uri:
            uri = params.get("uri")
            if isinstance(uri, str):
                found.update(self.by_uri.get(uri, {}))
        if found:
            told = ServerNotification(method, params)
            for reader in found:
                reader.add(told)

    def gap(self) -> None:
        """Tell all readers that they may have missed something."""
        for kept in (*self.by_uri.values(), *self.by_method.values()):
            for reader in kept:
                reader.add(GAP)

    def end(self) -> None:
        """Nothing will come any more."""
        self.over = True
        for kept in (*self.by_uri.values(), *self.by_method.values()):
            for reader in kept:
                reader.end()


class NotificationReader:
    """One reader's updates: ``async with line.listen() as updates: async for told in updates``.

    Without the block, ``async for told in line.listen()`` listens for as long as the loop lasts, from its first turn.
    """

    def __init__(
        self,
        readers: NotificationReaders,
        methods: tuple[str, ...] = (),
        uri: str | None = None,
        enter: Callable[[], Awaitable[object]] | None = None,
        leave: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`enter` and `leave` are awaited at both ends of the block."""
        self._readers = readers
        self._tables = (
            [(readers.by_method, method) for method in methods or ("",)] if uri is None else [(readers.by_uri, uri)]
        )
        self._enter, self._leave = enter, leave
        self._queue: deque[ServerNotification] = deque()
        self._wakeup = Wakeup()
        self._ended = False
        self._entered = False

    async def __aenter__(self) -> Self:
        self._entered = True
        self._ended = self._readers.over
        for table, name in self._tables:
            table.setdefault(name, {})[self] = None
        if self._enter is not None:
            try:
                await self._enter()
            except BaseException:
                self._forget()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget()
        if self._leave is not None:
            await self._leave()

    def _forget(self) -> None:
        self._entered = False
        for table, name in self._tables:
            kept = table.get(name)
            if kept is not None:
                kept.pop(self, None)
                if not kept:
                    del table[name]

    def add(self, told: ServerNotification) -> None:
        """Keep it, or a gap."""
        kept = self._queue
        if told.gap and kept and kept[-1].gap:
            return
        if len(kept) >= self._readers.most:
            kept[0] = GAP  # it stands for all that was dropped behind it, too
            if len(kept) > 1:
                del kept[1]
        kept.append(told)
        self._wakeup.wake()

    def end(self) -> None:
        """Nothing will come any more; what is kept can still be read."""
        self._ended = True
        self._wakeup.wake()

    async def __aiter__(self) -> AsyncIterator[ServerNotification]:
        alone = not self._entered
        if alone:
            await self.__aenter__()
        try:
            while True:
                while self._queue:
                    yield self._queue.popleft()
                if self._ended:
                    return
                await self._wakeup.wait()
        finally:
            if alone:
                await self.__aexit__(None, None, None)
