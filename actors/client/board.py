"""What a connection and its line have in common, and what stays when the connection's process is replaced.

It is no process. The connection writes it, in the loop; the line's holders read it.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import WeakValueDictionary

from greenroom.actors.names import Key, Name
from greenroom.supervision import Wakeup

from .seam import Phase, Status, Told

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
    from types import TracebackType

    from greenroom.supervision import Process

    from .requests import PendingRequest
    from .seam import Welcome
    from .settings import ClientSettings

ROLE: Final = "connection"


class Board:
    """Of one line."""

    def __init__(self, name: str, settings: ClientSettings, patience: float | None = None) -> None:
        """`name` is what the server is called here, `patience` how long a request waits for it to be ready.

        With one, it waits only until an attempt has failed; without, until its own deadline.
        """
        self.name = name
        self.patience = patience
        self.forgiven = 0
        """How many failed attempts do not count: the server was to be tried again at once, and requests wait for that."""
        self.key = Name(Key.new(name), ROLE)
        """What the connection's process is registered as."""
        self.settings = settings
        self.process: Process | None = None
        """The connection's, while it runs."""
        self.phase = Phase.CONNECTING
        self.cause: Exception | None = None
        self.attempts = 0
        self.retry_at: float | None = None
        """On the loop's clock."""
        self.generation = 0
        self.welcome: Welcome | None = None
        self.ids = count(1)
        self.supervised = False
        """Whether a supervisor starts the connection again when it crashes."""
        self.held: list[PendingRequest] = []
        """Requests made while there was no process."""
        self.coming: dict[PendingRequest, None] = {}
        """Requests in the connection's mailbox, which cannot be read once it has died."""
        self.level: str | None = None
        """What the server was last told to log."""
        self.tools_changed: Callable[[], object] | None = None
        """Called as soon as the server says that its tools are others: the queue for notifications would tell it after the next call has begun."""
        self.readers = Readers(settings.max_updates)
        self.ready: Status | None = None
        """The status while it is ready, when it does not change: each call asks for it."""
        self._watchers: set[_Watcher] = set()

    @property
    def status(self) -> Status:
        """How it is."""
        if self.ready is not None:
            return self.ready
        left = None
        if self.retry_at is not None and self.process is not None:
            left = max(0.0, self.retry_at - self.process.node.loop.time())
        elif self.attempts and self.phase in (Phase.CONNECTING, Phase.INITIALIZING):
            left = 0.0
        return Status(self.phase, self.cause, self.attempts, left, self.generation)

    @property
    def gone(self) -> bool:
        """Whether an attempt to reach the server has failed since it was last there, so that no request waits for it."""
        unready = self.phase in (Phase.BACKOFF, Phase.CONNECTING, Phase.INITIALIZING)
        return unready and self.patience is not None and self.attempts > self.forgiven

    def tell(
        self, phase: Phase, cause: Exception | None = None, attempts: int = 0, retry_at: float | None = None
    ) -> None:
        """It is different from now on."""
        self.phase, self.cause, self.attempts, self.retry_at = phase, cause, attempts, retry_at
        self.ready = Status(phase, cause, attempts, None, self.generation) if phase is Phase.READY else None
        self.forgiven = min(self.forgiven, attempts)
        if phase is Phase.CLOSED:
            self.readers.end()
        else:
            self.readers.over = False
        for watcher in self._watchers:
            watcher.wake()

    async def watch(self) -> AsyncGenerator[Status]:
        """The present status, and each that comes after it, or the latest."""
        watcher = _Watcher()
        self._watchers.add(watcher)
        try:
            while True:
                watcher.stale = False
                yield self.status
                if not watcher.stale:
                    await watcher.wait()
        finally:
            self._watchers.discard(watcher)


class _Watcher(Wakeup):
    """A task that waits for a change of the status."""

    __slots__ = ("stale",)

    def __init__(self) -> None:
        super().__init__()
        self.stale = False

    def wake(self) -> None:
        self.stale = True
        super().wake()


# --- The readers of notifications: bounded queues that live beside the connection, and so outlive its process.
# What a reader does not take in time is dropped, oldest first, and it finds a gap in its place.

GAP: Final = Told("", {})
UPDATED: Final = "notifications/resources/updated"


class Readers:
    """All readers of one line."""

    def __init__(self, most: int) -> None:
        """`most` is how much is kept for each."""
        self.most = most
        self.over = False
        """Whether nothing will come, until the connection is started again."""
        self.by_uri: dict[str, dict[Reader, None]] = {}
        self.by_method: dict[str, dict[Reader, None]] = {}
        """Under an empty name the readers of all methods."""
        self.granted: set[str] = set()
        """Of which resources the server has been asked to tell."""
        self.turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Subscribing to a resource and unsubscribing from it are serialized."""

    def tell(self, method: str, params: Mapping[str, Any]) -> None:
        """It was said."""
        found: dict[Reader, None] = {}
        if self.by_method:
            found.update(self.by_method.get(method, {}))
            found.update(self.by_method.get("", {}))
        if method == UPDATED and self.by_uri:
            uri = params.get("uri")
            if isinstance(uri, str):
                found.update(self.by_uri.get(uri, {}))
        if found:
            told = Told(method, params)
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


class Reader:
    """One reader's updates: ``async with line.listen() as updates: async for told in updates``.

    Without the block, ``async for told in line.listen()`` listens for as long as the loop lasts, from its first turn.
    """

    def __init__(
        self,
        readers: Readers,
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
        self._kept: deque[Told] = deque()
        self._news = Wakeup()
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

    def add(self, told: Told) -> None:
        """Keep it, or a gap."""
        kept = self._kept
        if told.gap and kept and kept[-1].gap:
            return
        if len(kept) >= self._readers.most:
            kept[0] = GAP  # it stands for all that was dropped behind it, too
            if len(kept) > 1:
                del kept[1]
        kept.append(told)
        self._news.wake()

    def end(self) -> None:
        """Nothing will come any more; what is kept can still be read."""
        self._ended = True
        self._news.wake()

    async def __aiter__(self) -> AsyncIterator[Told]:
        alone = not self._entered
        if alone:
            await self.__aenter__()
        try:
            while True:
                while self._kept:
                    yield self._kept.popleft()
                if self._ended:
                    return
                await self._news.wait()
        finally:
            if alone:
                await self.__aexit__(None, None, None)
