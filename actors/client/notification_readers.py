"""Readers of a server's notifications: bounded queues that belong to the line, and so outlive the connection's process.

Notifications that a reader does not take in time are dropped, oldest first, and replaced by one gap. In the stateless era a connection listens to what
its readers want: see `listening`.
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

    from .listening import Listening

GAP: Final = ServerNotification("", {})
UPDATED: Final = "notifications/resources/updated"


class NotificationReaders:
    """All readers of one line, by the methods and URIs that they listen to."""

    def __init__(self, most: int) -> None:
        """`most` is the length of each reader's queue."""
        self.most = most
        self.over = False
        """Whether the connection has ended, so that readers end as well."""
        self.by_uri: dict[str, dict[NotificationReader, None]] = {}
        self.by_method: dict[str, dict[NotificationReader, None]] = {}
        """By method; readers of all methods are under the empty string."""
        self.granted: set[str] = set()
        """The resources that are subscribed to at the server."""
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock for each resource: subscribe and unsubscribe requests must not overtake each other."""
        self.followed_tasks: dict[str, int] = {}
        """Tasks by id whose changes are wanted, and by how many followers."""
        self.on_gap: Callable[[], object] | None = None
        """Called when notifications may have been lost, before readers are told."""
        self.listening: Listening | None = None
        """The listens of the connection, while its process runs."""

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """Add a notification to the queues of its readers."""
        found: dict[NotificationReader, None] = {}
        if self.by_method:
            found.update(self.by_method.get(method, {}))
            found.update(self.by_method.get("", {}))
        if method == UPDATED and self.by_uri:
            uri = params.get("uri")
            if isinstance(uri, str):
                found.update(self.by_uri.get(uri, {}))
        if found:
            notification = ServerNotification(method, params)
            for reader in found:
                reader.add(notification)

    def gap(self) -> None:
        """Add a gap to every queue: notifications may have been lost."""
        if self.on_gap is not None:
            self.on_gap()
        for kept in (*self.by_uri.values(), *self.by_method.values()):
            for reader in kept:
                reader.add(GAP)

    def follow_task(self, id: str) -> None:
        """Listen to changes of a task, which then come as `notifications/tasks`, where the server announces them."""
        self.followed_tasks[id] = self.followed_tasks.get(id, 0) + 1
        self.wish_changed()

    def unfollow_task(self, id: str) -> None:
        """Take back one `follow_task`."""
        followers = self.followed_tasks.pop(id, 0)
        if followers > 1:
            self.followed_tasks[id] = followers - 1
        self.wish_changed()

    def wish_changed(self) -> None:
        """Other notifications are wanted than before."""
        if self.listening is not None:
            self.listening.wake()

    async def until_heard(self, methods: tuple[str, ...]) -> None:
        """Wait until the server announces these notifications, or all; at once where it does so without being asked, or does not."""
        if self.listening is not None:
            await self.listening.until_heard(methods)

    def end(self) -> None:
        """End all readers after their queued notifications."""
        self.over = True
        for kept in (*self.by_uri.values(), *self.by_method.values()):
            for reader in kept:
                reader.end()


class NotificationReader:
    """One reader's notifications: ``async with line.listen() as updates: async for notification in updates``.

    Without the block, ``async for notification in line.listen()`` listens from its first turn until the loop is left.
    """

    def __init__(
        self,
        readers: NotificationReaders,
        methods: tuple[str, ...] = (),
        uri: str | None = None,
        enter: Callable[[], Awaitable[object]] | None = None,
        leave: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """`enter` and `leave` are awaited at the beginning and the end of the block."""
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
        self._readers.wish_changed()
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
        self._readers.wish_changed()

    def add(self, notification: ServerNotification) -> None:
        """Append a notification or a gap; in a full queue the oldest ones become one gap."""
        kept = self._queue
        if notification.gap and kept and kept[-1].gap:
            return
        if len(kept) >= self._readers.most:
            kept[0] = GAP  # one gap stands for every notification dropped after it, too
            if len(kept) > 1:
                del kept[1]
        kept.append(notification)
        self._wakeup.wake()

    def end(self) -> None:
        """End the stream after the notifications that are queued."""
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
