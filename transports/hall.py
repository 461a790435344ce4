"""All connections of one listener, whatever they speak: how many there may be, and how they end together."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from greenroom.supervision.acceptor import connections_within, kept_free, open_files_limit

from .access_log import log_refusal
from .sources import TrustedProxies, source_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .asgi import App
    from .http_config import HttpConfig

log: Final = logging.getLogger("greenroom.http")

HARD: Final = 0.2
"""Seconds for a connection that was cut to be gone, before its tasks are cancelled; and as many after that."""
_MINUTE: Final = 60.0
SHARE: Final = 4
"""One address may have one in so many of the connections, unless the settings say otherwise."""
LEAST_SHARE: Final = 8
"""And so many in any case: one client needs two or three, for its calls and its stream."""


def _number(transport: Any) -> int:
    """A connection's descriptor. POSIX gives the lowest that is free, so at least as many are in use."""
    sock = transport.get_extra_info("socket")
    return -1 if sock is None else int(sock.fileno())


class Guest(Protocol):
    """One connection, as its hall sees it. It says `left` when nothing of it is left."""

    def leave(self) -> None:
        """Go when what is running is over; at once, if nothing is."""

    def cut(self) -> None:
        """Go now, whatever is running."""

    def kill(self) -> None:
        """End what was told to go, and has not."""


class Hall:
    """All connections of one listener."""

    def __init__(self, app: App, config: HttpConfig) -> None:
        """None are open yet."""
        self.app = app
        self.config = config
        self.loop = asyncio.get_running_loop()
        self.open: dict[Guest, str | None] = {}
        """All connections, and which source each counts for: None for a trusted proxy's."""
        self.ending = False
        self._proxies = TrustedProxies(config.trusted_proxies)
        self._of_source: dict[str, int] = {}
        self._empty = asyncio.Event()
        self._complained: dict[str, float] = {}

    def source_of(self, transport: Any) -> str | None:
        """What a connection counts for: its address, its /64 for IPv6; None for a trusted proxy, and where there is no address."""
        peer: tuple[str, int] | str | None = transport.get_extra_info("peername")
        if not isinstance(peer, tuple) or peer[0] in self._proxies:
            return None
        return source_of(peer[0])

    def has_room(self, transport: Any) -> bool:
        """Whether one more connection may come in, which is this one."""
        if self.ending:
            return False
        files = open_files_limit()
        most = min(self.config.max_connections, connections_within(files))
        count = len(self.open)
        if count >= most:
            if most == self.config.max_connections:
                self._complain("there are %d connections, which is all that max_connections allows", count)
            else:
                self._complain("there are %d connections, which is all that the limit of open files, %d, leaves room for: raise ulimit -n", count, files)  # fmt: skip
            return False
        if _number(transport) >= files - kept_free(files):
            self._complain("a connection is refused: the process has %d files open, and may have %d: raise ulimit -n", _number(transport), files)  # fmt: skip
            return False
        source = self.source_of(transport)
        share = min(most, self.config.max_connections_per_address or max(LEAST_SHARE, most // SHARE))
        if source is not None and (own := self._of_source.get(source, 0)) >= share:
            self._complain("%s has %d connections, which is one address's share (max_connections_per_address)", source, own)  # fmt: skip
            return False
        return True

    def _complain(self, text: str, *values: object) -> None:
        log_refusal(text % values, status=503)
        now = self.loop.time()
        if now - self._complained.get(text, -_MINUTE) >= _MINUTE:
            self._complained[text] = now
            log.warning(text, *values)

    def enter(self, guest: Guest, transport: Any) -> None:
        """A connection is open."""
        source = self.open[guest] = self.source_of(transport)
        if source is not None:
            self._of_source[source] = self._of_source.get(source, 0) + 1
        self._empty.clear()

    def left(self, guest: Guest) -> None:
        """A connection is gone. Again is a no-op."""
        source = self.open.pop(guest, None)
        if source is not None:
            self._of_source[source] -= 1
            if not self._of_source[source]:
                del self._of_source[source]
        if not self.open:
            self._empty.set()

    async def drain(self, grace: float, end_calls: Callable[[], bool] | None = None) -> None:
        """Hang up on idle connections, and let what is running end, for so long; then cut what is left.

        `end_calls` has it answered before, and returns whether there was anything to answer.
        """
        self.ending = True
        for guest in tuple(self.open):
            guest.leave()
        if not await self._gone(grace):
            if end_calls is not None and end_calls():
                await self._gone(HARD)
            self.cut()
            if not await self._gone(HARD):
                for guest in tuple(self.open):
                    guest.kill()
                await self._gone(HARD)

    def cut(self) -> None:
        """Cut all connections."""
        self.ending = True
        for guest in tuple(self.open):
            guest.cut()

    async def _gone(self, seconds: float) -> bool:
        if not self.open:
            return True
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()
        return not self.open
