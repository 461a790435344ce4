"""Accepting on a socket that other processes accept on as well: one connection at a time, and who has least takes the next.

The loop's own servers take all that waits each time they are woken, and of several processes it is always the same one that is first. Here whoever has more
than another gives way to it for a moment, and takes what nobody else has taken by then.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING, Final

from .shares import BEAT

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from .shares import Shares

log: Final = logging.getLogger("greenroom.http")

_COURTESY: Final = 0.001
"""Seconds for which it gives way."""
_PAUSE: Final = 1.0
"""Seconds without accepting, when there is no descriptor left for another connection."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Accepts in the loop that it is made in, until it is closed."""

    def __init__(
        self, sock: socket.socket, greet: Callable[[], asyncio.Protocol], shares: Shares, count: Callable[[], int]
    ) -> None:
        """`sock` listens already, and is closed with this; `greet` makes the protocol for a connection, `count` says how many are open."""
        self._socket = sock
        self._greet = greet
        self._shares = shares
        self._count = count
        self._loop = asyncio.get_running_loop()
        self._later: asyncio.TimerHandle | None = None
        self._welcoming: set[asyncio.Task[object]] = set()
        self._beat: asyncio.TimerHandle
        self._say()
        self._listen()

    def _say(self) -> None:
        self._shares.say(self._count())
        self._beat = self._loop.call_later(BEAT, self._say)

    def _listen(self) -> None:
        self._later = None
        self._loop.add_reader(self._socket.fileno(), self._look)

    def _wait(self, seconds: float, then: Callable[[], None]) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._later = self._loop.call_later(seconds, then)

    def _look(self) -> None:
        """Somebody is there."""
        if self._shares.gives_way(self._count() + len(self._welcoming)):
            self._wait(_COURTESY, self._insist)
        else:
            self._take()

    def _insist(self) -> None:
        """Whoever is still there is nobody else's; with the one after that, it is as before."""
        self._listen()
        self._take()

    def _take(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # somebody else was faster, or the peer has gone again
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            log.error("cannot accept a connection: %s", error.strerror)  # noqa: TRY400 - where is known
            self._wait(_PAUSE, self._listen)
            return
        connection.setblocking(False)  # noqa: FBT003 - its only argument
        task: asyncio.Task[object] = self._loop.create_task(self._welcome(connection))
        self._welcoming.add(task)
        task.add_done_callback(self._welcoming.discard)
        self._shares.took(self._count() + len(self._welcoming))

    async def _welcome(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._greet, connection)
        except OSError:  # it is gone already
            connection.close()

    def close(self) -> None:
        """Accept no more here. The others go on."""
        self._beat.cancel()
        if self._later is not None:
            self._later.cancel()
        elif self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
