"""The HTTP listener: the process that accepts connections for a server, and closes them in order.

Its supervisor sends it messages, and callers that ask for its addresses. When it crashes, its connections are cut and its successor accepts
on the same sockets; sessions are separate processes and unaffected. When told to stop, it closes the sockets first, ends standalone
streams, lets running requests finish within its grace, answers the rest with an error, and cuts it.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from greenroom.supervision import ChildSpec, Crash, GenServer, Ref, child, current_node
from greenroom.supervision.acceptor import Acceptor, ProtocolStarter, serve

from .http1_connection import Http1Connection
from .http_config import DRAIN_GRACE
from .listening_sockets import BEAT
from .open_connections import CUT_GRACE, OpenConnections, log
from .tls import H2, Certificates, TlsConnection

if TYPE_CHECKING:
    import logging
    import socket
    from collections.abc import Callable, Sequence

    from greenroom.supervision import ExitReason

    from .asgi import App
    from .http_config import HttpConfig
    from .http_engine import HttpEngine
    from .listening_sockets import AcceptShares, Binding

SLACK: Final = 0.5
"""Seconds beyond its grace within which a listener has ended."""


class HttpListener(GenServer):
    """Serves an ASGI application on the sockets of a binding."""

    traps_exit: ClassVar[bool] = True

    def __init__(
        self,
        app: App,
        binding: Binding,
        config: HttpConfig,
        streams: HttpEngine | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        """`streams` is the engine whose streams do not end by themselves; with `certificates`, the listener speaks TLS."""
        self._app = app
        self._binding = binding
        self._config = config
        self._streams = streams
        self._certificates = certificates
        self._connections: OpenConnections
        self._acceptor: Acceptor | None = None

    async def init(self) -> None:
        """Start accepting.

        Connections are served by tasks of the loop, in a copy of the node's context, not by this process: they are cut when it is gone, and
        not before.
        """
        self._connections = OpenConnections(self._app, self._config)
        if self._streams is not None:
            self._streams.start_listening()
        self.process.add_exit_waiter(self)
        loop, context = asyncio.get_running_loop(), current_node().context
        await loop.create_task(self._accept(), context=context.copy())

    async def _accept(self) -> None:
        make, shares, sockets = (
            self._protocol_factory(self._http1_factory()),
            self._binding.shares,
            self._binding.copies(),
        )
        if shares is None:
            self._acceptor = serve(make, sockets, log)
        else:
            self._acceptor = BalancedAcceptor(sockets, make, log, shares, self.connections)

    def _http1_factory(self) -> Callable[[], asyncio.Protocol]:
        """The factory of HTTP/1.1 connections."""
        connections = self._connections
        if not self._config.hypercorn:
            return lambda: Http1Connection(connections)
        from .hypercorn_connection import HypercornServer  # noqa: PLC0415 - loaded only where it was asked for

        return HypercornServer(connections).protocol

    def _protocol_factory(self, plain: Callable[[], asyncio.Protocol]) -> Callable[[], asyncio.Protocol]:
        """The factory of connections: `plain`, or TLS with the protocol that the handshake selects."""
        connections, certificates = self._connections, self._certificates
        if certificates is None:
            return plain
        made: dict[str | None, Callable[[], asyncio.Protocol]] = {}
        if self._config.http2:
            from .http2_connection import Http2Connection  # noqa: PLC0415 - most listeners are behind a proxy, and need none of it

            made[H2] = lambda: Http2Connection(connections)
        return lambda: TlsConnection(connections, certificates, lambda agreed: made.get(agreed, plain)())

    def addresses(self) -> Sequence[tuple[str, int]]:
        """The addresses it listens on."""
        return self._binding.addresses

    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections.open)

    async def terminate(self, reason: ExitReason) -> None:
        """Stop accepting; then let every request finish, unless the listener has crashed."""
        self.release()
        if isinstance(reason, Crash):
            self._connections.cut()
            return
        self._binding.close()
        streams = self._streams
        if streams is not None:
            streams.stop_listening()
        await self._connections.drain(_drain_grace(self._config), None if streams is None else streams.end_calls)

    def release(self) -> None:
        """Accept no more."""
        if self._acceptor is not None:
            self._acceptor.close()
        if self._binding.shares is not None:
            self._binding.shares.withdraw()

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - whatever it was
        """A killed listener leaves no connection behind."""
        self.release()
        self._connections.cut()


def _drain_grace(config: HttpConfig) -> float:
    return DRAIN_GRACE if config.drain_grace is None else config.drain_grace


def listener(
    app: App,
    binding: Binding,
    config: HttpConfig,
    streams: HttpEngine | None = None,
    certificates: Certificates | None = None,
) -> ChildSpec[Ref[HttpListener]]:
    """The child spec of a listener, with the shutdown time that it needs.

    `certificates` are read here if `config` has some and they are not given. Raises `BadCertificate`.
    """
    if certificates is None and config.is_tls:
        certificates = Certificates(config)
    patience = _drain_grace(config) + 3 * CUT_GRACE + SLACK
    made = child(HttpListener, app, binding, config, streams, certificates)
    return made.but(id=f"http:{binding.port}", shutdown=patience)


# --- Accepting on sockets shared with other processes: one connection at a time, and the least loaded process takes the next.
# The loop's own servers accept everything that waits on each wakeup, and of several processes the same one always wakes first. Here a
# process with a higher load than another yields for a moment, and takes what no other process has accepted by then.

_YIELD_TIME: Final = 0.001
"""Seconds for which it yields."""


class BalancedAcceptor(Acceptor):
    """Accepts in the loop it is made in, until it is closed."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        make: Callable[[], asyncio.BaseProtocol],
        log: logging.Logger,
        shares: AcceptShares,
        count: Callable[[], int],
    ) -> None:
        """`make` creates the protocol of a connection, `count` returns how many are open."""
        self._starter = ProtocolStarter(make, log)
        self._shares = shares
        self._count = count
        self._publish_timer: asyncio.TimerHandle
        super().__init__(sockets, self._starter, log)
        self._publish()

    def _publish(self) -> None:
        self._shares.publish(self._count())
        self._publish_timer = self._loop.call_later(BEAT, self._publish)

    def _ready(self, sock: socket.socket) -> None:
        if self._shares.should_yield(self._count() + len(self._starter)):
            self._pause(_YIELD_TIME, partial(self._accept_after_yield, sock))
        else:
            self._accept_one(sock)

    def _accept_after_yield(self, sock: socket.socket) -> None:
        """Accept the waiting connection that no other process took; the next one may be yielded again."""
        self._resume()
        self._accept_one(sock)

    def _accept_one(self, sock: socket.socket) -> None:
        if self._accept(sock):
            self._shares.on_accepted(self._count() + len(self._starter))

    def close(self) -> None:
        """Stop accepting here; other processes continue."""
        self._publish_timer.cancel()
        super().close()
