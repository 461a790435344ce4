"""What a connection and its line have in common, and what stays when the connection's process is replaced.

It is no process. The connection writes it, in the loop; whoever holds the line reads it.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Final

from greenroom.actors.names import Key, Name

from .readers import Readers
from .seam import Phase, Status

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from greenroom.supervision.kernel.process import Process

    from .pending import PendingRequest
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
        self._watchers: set[_Watcher] = set()

    @property
    def status(self) -> Status:
        """How it is."""
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


class _Watcher:
    """Somebody who wants to know."""

    __slots__ = ("_woken", "stale")

    def __init__(self) -> None:
        self.stale = False
        self._woken: asyncio.Future[None] | None = None

    def wake(self) -> None:
        self.stale = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    async def wait(self) -> None:
        self._woken = asyncio.get_running_loop().create_future()
        try:
            await self._woken
        finally:
            self._woken = None
