"""One request, from whoever begins it to whatever ends it: an answer, the deadline, a loss, its caller's end. It is settled exactly once.

It belongs to two: its caller awaits it, and the connection has it in its table for as long as the server may answer. Whoever ends it
first decides; when that was not the connection, it hears of it as `Withdrawn`, and tells the server.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from weakref import WeakValueDictionary

from greenroom.actors.cancellation import RequestCancelled
from greenroom.actors.names import Key, Name
from greenroom.supervision import Wakeup, running_process

from .errors import RequestTimeout
from .seam import Phase, Status, Told

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Generator, Mapping
    from types import TracebackType

    from greenroom.protocol.messages import RequestId
    from greenroom.supervision import ExitReason, Node, Pid, Process

    from .seam import Progress, Welcome
    from .settings import ClientSettings

IDEMPOTENT: Final = frozenset(
    (
        "ping",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "resources/subscribe",
        "resources/unsubscribe",
        "prompts/list",
        "prompts/get",
        "completion/complete",
        "logging/setLevel",
        "tasks/list",
        "tasks/get",
        "tasks/result",
    )
)
"""What may be sent once more when nobody knows whether it was seen."""


class Withdrawn(NamedTuple):
    """To the connection: nobody waits for it any more."""

    request: PendingRequest
    reason: str


class PendingRequest:
    """A request that is under way."""

    __slots__ = (
        "_connection",
        "_future",
        "_owner",
        "_progress",
        "deadline",
        "held",
        "id",
        "idempotent",
        "method",
        "params",
        "resends",
        "task",
        "token",
        "waits",
        "wire",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, id: int, method: str, params: Mapping[str, Any] | None) -> None:
        """Made by a `Line`."""
        self.id: RequestId = id
        self.method = method
        self.params = params
        self.idempotent: bool = method in IDEMPOTENT
        self.waits = True
        self.resends = 0
        """How often it was sent again."""
        self.held = 0
        """How often the server wanted to be asked later; less than 0 while it waits for that."""
        self.token: str | int | None = None
        self.task: str | None = None
        """The task that the server has made of it, while that is followed."""
        self.wire: Pid | None = None
        """On which wire it is under way; None while it waits."""
        self._future: asyncio.Future[dict[str, Any]] = loop.create_future()
        self._connection: Process | None = None
        self._owner: Process | None = None
        self._progress: _Words | None = None
        self.deadline: float | None = None
        """When it falls due, on the loop's clock."""

    def __repr__(self) -> str:
        return f"<PendingRequest {self.id} {self.method}{', settled' if self._future.done() else ''}>"

    # --- for the caller

    def __await__(self) -> Generator[Any, None, dict[str, Any]]:
        future = self._future
        try:
            return (yield from future)
        except asyncio.CancelledError:
            if future.cancelled():
                self._withdraw("cancelled")
                task = asyncio.current_task()
                if task is not None and not task.cancelling():
                    raise RequestCancelled from None  # another reader of it was cancelled, and with it the request
            raise

    async def result(self) -> dict[str, Any]:
        """The result. Whoever is cancelled while waiting for it cancels the request."""
        return await self

    async def progress(self, *, of_task: bool = False) -> AsyncIterator[Progress]:
        """How it goes, until it is settled, or with `of_task` until the task has ended that it has become; for one reader."""
        words = self._progress
        if words is None:
            return
        while True:
            while words.kept:
                yield words.kept.popleft()
            if self._future.done() and not (of_task and self.task is not None):
                return
            await words.wait()

    def cancel(self, reason: str = "") -> None:
        """Nobody wants it any more."""
        if self.settle(None, RequestCancelled(reason)):
            self._withdraw(reason)

    def when_settled(self, tell: Callable[[dict[str, Any] | None, BaseException | None], object]) -> None:
        """Have `tell` called with the outcome, once, and soon."""

        def done(future: asyncio.Future[dict[str, Any]]) -> None:
            if future.cancelled():
                tell(None, RequestCancelled("cancelled"))
            else:
                error = future.exception()
                tell(None if error is not None else future.result(), error)

        self._future.add_done_callback(done)

    @property
    def settled(self) -> bool:
        """Whether its outcome is decided."""
        return self._future.done()

    # --- for the line

    def expect_progress(self, most: int) -> None:
        """Keep what is told of it."""
        self._progress = _Words(most)

    def begin(self, node: Node, seconds: float | None) -> None:
        """Its time begins, and ends with whoever asks."""
        owner = self._owner = running_process()
        if owner is not None:
            owner.await_death(self)
        if seconds is not None:
            self.deadline = node.loop.time() + seconds
            node.deadlines.add(seconds, self)

    # --- for whoever ends it

    def settle(self, result: dict[str, Any] | None, error: BaseException | None = None) -> bool:
        """Decide it. False when it was decided already."""
        owner = self._owner
        if owner is not None:
            owner.forget(self)
            self._owner = None
        if self._progress is not None:
            self._progress.wake()
        future = self._future
        if future.done():
            return False
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - no error: a result
        else:
            future.set_exception(error)
            future.exception()  # marks it as seen: the caller may be gone
        return True

    def expire(self, seconds: float) -> None:
        """The deadline is over."""
        if self.settle(None, RequestTimeout(self.method, seconds)):
            self._withdraw("timeout")

    def exited(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ended
        """The process that asked is gone."""
        self._owner = None
        self.cancel("the caller has ended")

    def tell(self, progress: Progress) -> None:
        """How far it has come."""
        if self._progress is not None:
            self._progress.add(progress)

    def task_over(self) -> None:
        """The task has ended, or is followed no more."""
        self.task = None
        if self._progress is not None:
            self._progress.wake()

    def _withdraw(self, reason: str) -> bool:
        """Have the connection forget it, and tell the server; whether that was still to be done."""
        if self._owner is not None:
            self._owner.forget(self)
            self._owner = None
        if self._progress is not None:
            self._progress.wake()
        connection, self._connection = self._connection, None
        if connection is None:
            return False
        connection.send(Withdrawn(self, reason), exempt=True)
        return True

    def handed_to(self, connection: Process) -> None:
        """From now on a connection has to hear of it when nobody wants it any more."""
        self._connection = connection

    def forgotten(self) -> None:
        """The connection has taken it out of its table."""
        self._connection = None


class _Words(Wakeup):
    """What was told of one request, for one reader."""

    __slots__ = ("kept",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self.kept: deque[Progress] = deque(maxlen=most)

    def add(self, progress: Progress) -> None:
        self.kept.append(progress)
        self.wake()


# --- What a connection and its line have in common, and what stays when the connection's process is replaced.
# It is no process. The connection writes it, in the loop; whoever holds the line reads it.

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
        """Whether somebody starts the connection again when it crashes."""
        self.held: list[PendingRequest] = []
        """What was asked while there was no process."""
        self.coming: dict[PendingRequest, None] = {}
        """What lies in the connection's mailbox, which nobody can look into once it has died."""
        self.level: str | None = None
        """What the server was last told to log."""
        self.tools_changed: Callable[[], object] | None = None
        """Called as soon as the server says that its tools are others: the queue for notifications would tell it after the next call has begun."""
        self.readers = Readers(settings.max_updates)
        self._ready: Status | None = None
        """How it is while it is ready: each call asks."""
        self._watchers: set[_Watcher] = set()

    @property
    def status(self) -> Status:
        """How it is."""
        if self._ready is not None:
            return self._ready
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
        self._ready = Status(phase, cause, attempts, None, self.generation) if phase is Phase.READY else None
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
    """Somebody who wants to know."""

    __slots__ = ("stale",)

    def __init__(self) -> None:
        super().__init__()
        self.stale = False

    def wake(self) -> None:
        self.stale = True
        super().wake()


# --- Who reads which notifications: bounded queues that live beside the connection, and so outlive its process.
# What a reader does not take in time is dropped, oldest first, and it finds a gap in its place.

GAP: Final = Told("", {})
UPDATED: Final = "notifications/resources/updated"


class Readers:
    """All of one line."""

    def __init__(self, most: int) -> None:
        """`most` is how much is kept for each."""
        self.most = most
        self.over = False
        """Whether nothing will come, for as long as nobody begins anew."""
        self.by_uri: dict[str, dict[Reader, None]] = {}
        self.by_method: dict[str, dict[Reader, None]] = {}
        """Under an empty name those who want to hear everything."""
        self.granted: set[str] = set()
        """Of which resources the server has been asked to tell."""
        self.turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Who asks for a resource, and who does not want it any more, do so one after the other."""

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
        """Something may have been missed by everybody."""
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
