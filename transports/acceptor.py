"""Accepting on sockets that other processes accept on as well: one connection at a time, and the process that has fewest takes the next.

The loop's own servers take all that waits each time they are woken, and of several processes it is always the same one that is first. Here a process
that has more than another gives way to it for a moment, and takes what no other has taken by then.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from greenroom.supervision.acceptor import Acceptor, ProtocolStarter

from .shares import BEAT

if TYPE_CHECKING:
    import asyncio
    import logging
    import socket
    from collections.abc import Callable, Sequence

    from .shares import Shares

_COURTESY: Final = 0.001
"""Seconds for which it gives way."""


class BalancedAcceptor(Acceptor):
    """Accepts in the loop that it is made in, until it is closed."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        make: Callable[[], asyncio.BaseProtocol],
        log: logging.Logger,
        shares: Shares,
        count: Callable[[], int],
    ) -> None:
        """`make` makes the protocol for a connection, `count` says how many are open."""
        self._starter = ProtocolStarter(make, log)
        self._shares = shares
        self._count = count
        self._beat: asyncio.TimerHandle
        super().__init__(sockets, self._starter, log)
        self._say()

    def _say(self) -> None:
        self._shares.say(self._count())
        self._beat = self._loop.call_later(BEAT, self._say)

    def _ready(self, sock: socket.socket) -> None:
        if self._shares.gives_way(self._count() + len(self._starter)):
            self._pause(_COURTESY, partial(self._insist, sock))
        else:
            self._take(sock)

    def _insist(self, sock: socket.socket) -> None:
        """What still waits is taken by no other process; with the one after that, it is as before."""
        self._resume()
        self._take(sock)

    def _take(self, sock: socket.socket) -> None:
        if self._accept(sock):
            self._shares.took(self._count() + len(self._starter))

    def close(self) -> None:
        """Accept no more here. The others go on."""
        self._beat.cancel()
        super().close()
