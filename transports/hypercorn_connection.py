"""HTTP/1.1 connections served by Hypercorn, for a server that asks for it (`HttpConfig.hypercorn`). Only this module imports Hypercorn.

Hypercorn's own `serve` is not used: it installs signal handlers, waits for open streams for ever (from Python 3.12 on), and gives no access
to a hanging connection. Its parts are used: TCP server, HTTP/1.1 protocol, configuration. This module adds what they lack: a peer that does
not read is cut, HTTP/2 is disabled, a refusal is delivered before the connection closes, and connections can be told to end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace
from email.utils import formatdate
from typing import TYPE_CHECKING, Any, Final

from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.asyncio.tcp_server import MAX_RECV, TCPServer
from hypercorn.asyncio.worker_context import WorkerContext
from hypercorn.config import Config
from hypercorn.events import Closed, RawData
from hypercorn.protocol.events import Response
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.typing import ConnectionState

from greenroom.supervision import tracebacks

from .access_log import log_refusal
from .asgi import SERVER_HAS_WRITE_TIMEOUT
from .http1_codec import Malformed, ParserState, RequestParser
from .open_connections import discard_unsent, set_socket_options

if TYPE_CHECKING:
    import socket

    from hypercorn.events import Event
    from hypercorn.protocol.events import Event as StreamEvent

    from .http_config import HttpConfig
    from .open_connections import OpenConnections

log: Final = logging.getLogger("greenroom.http")

LINGER: Final = 1.0
"""Seconds for which a closed connection still reads, so that the last response is not lost in a reset."""
PEER_CHECK: Final = 1.0
"""Seconds between checks whether a peer that pipelines requests is still connected."""
_LARGE_PIECE: Final = 4096
_SMALL_PIECE: Final = 256
"""Bytes of a body in tiny chunks that Hypercorn gets in one turn of the loop, which takes a millisecond at worst."""
_STEPS: Final = 32
_TOO_MANY_CONNECTIONS: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\nretry-after: 1\r\n\r\n"
)


class _Settings(Config):
    """Hypercorn's configuration, from ours."""

    def __init__(self, config: HttpConfig) -> None:
        self.accesslog = None
        self.errorlog = log
        self.h11_max_incomplete_size = config.max_header
        self.keep_alive_max_requests = config.keep_alive_requests
        self._second = 0
        self._date: list[tuple[bytes, bytes]] = []

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:  # noqa: ARG002 - there is one protocol
        """The date header, made once a second."""
        now = int(time.time())
        if now != self._second:
            self._second = now
            self._date = [(b"date", formatdate(now, usegmt=True).encode())]
        return self._date


class HypercornServer:
    """The objects that Hypercorn's parts need, for all connections of one listener."""

    def __init__(self, connections: OpenConnections) -> None:
        self.connections = connections
        self.app: Any = ASGIWrapper(connections.app)  # type: ignore[arg-type]  # any callable of three will do
        self.settings = _Settings(connections.config)
        self.context = WorkerContext(None)
        self.context.terminated = _TerminatedFlag(connections)  # type: ignore[assignment]  # only this is asked of it

    def protocol(self) -> asyncio.Protocol:
        """The protocol of a new connection."""
        loop = self.connections.loop
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), self.on_connect, loop=loop)

    def on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client has connected."""
        connections = self.connections
        if not connections.has_room(writer.transport):
            writer.write(_TOO_MANY_CONNECTIONS)
            writer.close()
            return
        connection = HypercornConnection(self, reader, writer)
        connections.add(connection, writer.transport)
        connection.task = connections.loop.create_task(connection.serve(), name="greenroom-http")


class _TerminatedFlag:
    """Hypercorn's `terminated` event: asked whether a connection may go on after the running request."""

    def __init__(self, connections: OpenConnections) -> None:
        self._connections = connections

    def is_set(self) -> bool:
        return self._connections.ending


class HypercornConnection(TCPServer):
    """One connection served by Hypercorn, one request at a time."""

    task: asyncio.Task[None]

    def __init__(self, shared: HypercornServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections = shared.connections
        super().__init__(
            shared.app,
            connections.loop,
            shared.settings,
            shared.context,
            {SERVER_HAS_WRITE_TIMEOUT: True},
            reader,
            writer,
        )
        self.busy = False
        self.corked = False
        self.is_tls = writer.get_extra_info("sslcontext") is not None
        self._connections = connections
        self._transport = writer.transport
        self._corked_data = b""
        self._closing = False
        self._requests = RequestParser(connections.config.max_header)
        self._timer: asyncio.TimerHandle | None = None
        self.idle_task: Any = _IdleTimer(self, connections.config)

    @property
    def ending(self) -> bool:
        """Whether the running request is the last."""
        return self._connections.ending

    async def serve(self) -> None:
        """Serve the connection until it is closed."""
        try:
            # A write is done only when the kernel has accepted all of it: otherwise a peer that does not read could not be noticed.
            self._transport.set_write_buffer_limits(high=0)
            set_socket_options(self._transport, self._connections.config)
            await self.run()
        except asyncio.CancelledError:
            self.cut()
            raise
        except Exception:  # noqa: BLE001 - an error of one connection must not end others
            tracebacks.log_error(log, "a connection ended in an error of the server")
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self.idle_task.end()
            self._transport.abort()
            self._connections.remove(self)

    def close_when_idle(self) -> None:
        """Close, unless a request is running; then that is the last one."""
        if not self.busy:
            self.hang_up()

    def hang_up(self) -> None:
        """Close; what was sent still arrives."""
        self._transport.close()

    def cut(self) -> None:
        """Close now, and drop unsent data."""
        discard_unsent(self._transport)
        self._transport.abort()

    def cancel_tasks(self) -> None:
        """Cancel the task of a connection that does not end by itself."""
        self.task.cancel()

    # --- called by Hypercorn's TCP server

    async def _read_data(self) -> None:
        raw = self._transport.get_extra_info("socket")
        self.protocol: Any = HypercornHttp1(self, raw)
        while not self.reader.at_eof():
            try:
                data = await self.reader.read(MAX_RECV)
            except OSError:
                break
            await self._feed_protocol(data)
        await self.protocol.handle(Closed())

    async def _feed_protocol(self, data: bytes) -> None:
        """Pass input that our own parser accepts to Hypercorn, in pieces, so that other tasks get turns."""
        for start in range(0, len(data), _LARGE_PIECE):
            piece = data[start : start + _LARGE_PIECE]
            if self._closing:
                return
            try:
                steps = self._check(piece)
            except Malformed as broken:
                log_refusal(str(broken), status=broken.status)
                await self.protocol.refuse(broken.status)
                return
            size = _LARGE_PIECE if steps <= _STEPS else _SMALL_PIECE
            for at in range(0, len(piece), size):
                await self.protocol.handle(RawData(piece[at : at + size]))
                if size == _SMALL_PIECE:
                    await asyncio.sleep(0)

    def _check(self, data: bytes) -> int:
        """Parse the input as our own listener does. Raises `Malformed`.

        h11 rescans an incomplete head from its start each time more arrives, which a peer can use to hold the loop.
        """
        requests = self._requests
        requests.feed(data)
        steps = 0
        while (event := requests.next()) is not ParserState.NEED_DATA:
            steps += 1
            if event is ParserState.MESSAGE_END:
                requests.start_next()
        return steps

    async def protocol_send(self, event: Event) -> None:
        """Send bytes, close, or note whether the connection is idle."""
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Closed):
            self._close_lingering()
        else:
            await super().protocol_send(event)

    async def _write(self, data: bytes) -> None:
        if self._corked_data:
            data, self._corked_data = self._corked_data + data, b""
        if self.corked:
            self._corked_data = data
            return
        if not data:
            return
        if self._transport.is_closing():
            await self.protocol.handle(Closed())
            return
        self.writer.write(data)
        if self._transport.get_write_buffer_size():
            await self._flush()

    async def _flush(self) -> None:
        """Wait until the kernel has accepted everything. A peer that reads nothing until the write timeout is cut."""
        size, seconds = self._transport.get_write_buffer_size, self._connections.config.write_timeout
        left = size()
        alarm: asyncio.TimerHandle

        def check_progress() -> None:
            nonlocal left, alarm
            if size() < left:
                left = size()
                alarm = self.loop.call_later(seconds, check_progress)
            else:
                log.info("a peer has read nothing for %g seconds: its connection is cut", seconds)
                self.cut()

        alarm = self.loop.call_later(seconds, check_progress)
        try:
            await self.writer.drain()
        except (OSError, RuntimeError):
            await self.protocol.handle(Closed())
        finally:
            alarm.cancel()

    def _close_lingering(self) -> None:
        """Half-close, and go on reading for a moment: unread input would reset the connection, and the response would be lost with it."""
        if self._closing:
            return
        self._closing = True
        if self._connections.ending:
            self.hang_up()
            return
        with suppress(OSError, RuntimeError, NotImplementedError):
            self.writer.write_eof()
        self._timer = self.loop.call_later(LINGER, self._transport.abort)

    async def _close(self) -> None:
        """Close the connection when the kernel has sent what is left."""
        self.hang_up()
        alarm = self.loop.call_later(self._connections.config.write_timeout, self.cut)
        try:
            with suppress(OSError, RuntimeError):
                await self.writer.wait_closed()
        finally:
            alarm.cancel()


class _IdleTimer:
    """The idle timeout of a connection, in place of Hypercorn's: one timer per connection, where Hypercorn starts and cancels a task twice a request."""

    def __init__(self, connection: HypercornConnection, config: HttpConfig) -> None:
        self._connection = connection
        self._later = config.keep_alive
        self._next = config.header_timeout
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None

    async def restart(self, task_group: Any, action: Any) -> None:  # noqa: ARG002 - as Hypercorn calls it
        loop = self._connection.loop
        self._connection.busy = False
        self._until = loop.time() + self._next
        if self._timer is None or self._timer.when() > self._until:
            self.end()
            self._timer = loop.call_at(self._until, self._check_idle)
        self._next = self._later

    async def stop(self) -> None:
        self._connection.busy = True

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _check_idle(self) -> None:
        self._timer = None
        connection = self._connection
        if connection.busy:
            return
        if connection.loop.time() >= self._until:
            connection.hang_up()
        else:
            self._timer = connection.loop.call_at(self._until, self._check_idle)


class HypercornHttp1(H11Protocol):
    """Hypercorn's HTTP/1.1 protocol, without upgrades to other protocols."""

    def __init__(self, server: HypercornConnection, raw: socket.socket) -> None:
        there, here = raw.getpeername()[:2], raw.getsockname()[:2]
        state = ConnectionState(server.state)
        tasks = server._task_group  # noqa: SLF001 - where Hypercorn's own protocols start requests, too
        arguments = server.app, server.config, server.context, tasks, state
        super().__init__(*arguments, ssl=server.is_tls, client=there, server=here, send=server.protocol_send)
        self._server = server
        self.can_read: Any = _ResponseDone(self)

    @property
    def peer_has_closed(self) -> bool:
        """Whether the peer has closed the connection."""
        return self._server.reader.at_eof() or self._server.reader.exception() is not None

    async def handle(self, event: Event) -> None:
        """Process input, or the end of the connection."""
        with suppress(_Refused):
            await super().handle(event)

    async def refuse(self, status: int) -> None:
        """Send an error response unless a response has begun, and close."""
        with suppress(_Refused):
            if self.stream is None:
                await self._refuse(status)
            await self.send(Closed())

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of the response; the head goes out with the body if the body follows at once."""
        if isinstance(event, Response):
            if self._server.ending:
                event = replace(event, headers=[*event.headers, (b"connection", b"close")])
            self._server.corked = any(name == b"content-length" and value != b"0" for name, value in event.headers)
        else:
            self._server.corked = False
        await super().stream_send(event)

    async def _check_protocol(self, event: Any) -> None:
        # An `Upgrade` that is not followed is ignored, as HTTP asks.
        if event.http_version not in (b"1.1", b"1.0"):
            await self._refuse(505)
        names = {name for name, _ in event.headers}
        if b"upgrade" in names and _asks_for_websocket(event.headers):
            await self._refuse(
                403
            )  # refused here, not by the application: Hypercorn may fail on other responses to a WebSocket request
        if b"transfer-encoding" in names and b"content-length" in names:
            await self._refuse(400)  # a proxy may have used the other length, and hidden a request in the difference

    async def _refuse(self, status: int) -> None:
        await self._send_error_response(status)
        await self.send(Closed())
        raise _Refused


def _asks_for_websocket(headers: Any) -> bool:
    said = dict[bytes, bytes]()
    for name, value in headers:
        said[name] = said.get(name, b"") + value.lower() + b","
    return b"websocket" in said[b"upgrade"] and b"upgrade" in said.get(b"connection", b"")


class _ResponseDone:
    """Hypercorn's wait of a pipelined request for the response before it. Nothing reads meanwhile, so it polls whether the peer is connected."""

    def __init__(self, protocol: HypercornHttp1) -> None:
        self._protocol = protocol
        self._event = asyncio.Event()

    async def clear(self) -> None:
        self._event.clear()

    async def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        while not self._event.is_set():
            try:
                async with asyncio.timeout(PEER_CHECK):
                    await self._event.wait()
            except TimeoutError:
                if self._protocol.peer_has_closed:
                    raise _Refused from None


class _Refused(Exception):
    """The connection was refused; nothing more is processed."""
