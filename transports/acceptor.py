"""Accepting on a socket that other processes accept on as well: one connection at a time, so that a burst is shared out and not taken whole.

The loop's own servers take all that waits each time they are woken. Here whoever is free takes the next one, and who is busy leaves it to others.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

log: Final = logging.getLogger("greenroom.http")

_PAUSE: Final = 1.0
"""Seconds without accepting, when there is no descriptor left for another connection."""
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Accepts in the loop that it is made in, until it is closed."""

    def __init__(self, sock: socket.socket, greet: Callable[[], asyncio.Protocol]) -> None:
        """`sock` listens already, and is closed with this; `greet` makes the protocol for a connection."""
        self._socket = sock
        self._greet = greet
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._welcoming: set[asyncio.Task[object]] = set()
        self._begin()

    def _begin(self) -> None:
        self._pause = None
        self._loop.add_reader(self._socket.fileno(), self._take)

    def _take(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return  # somebody else was faster, or the peer has gone again
        except OSError as error:
            if error.errno not in _EXHAUSTED:
                raise
            log.error("cannot accept a connection: %s", error.strerror)  # noqa: TRY400 - where is known
            self._loop.remove_reader(self._socket.fileno())
            self._pause = self._loop.call_later(_PAUSE, self._begin)
            return
        connection.setblocking(False)  # noqa: FBT003 - its only argument
        task: asyncio.Task[object] = self._loop.create_task(self._welcome(connection))
        self._welcoming.add(task)
        task.add_done_callback(self._welcoming.discard)

    async def _welcome(self, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._greet, connection)
        except OSError:  # it is gone already
            connection.close()

    def close(self) -> None:
        """Accept no more here. The others go on."""
        if self._pause is not None:
            self._pause.cancel()
        elif self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
        self._socket.close()
