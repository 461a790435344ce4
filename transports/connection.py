"""Connections that speak HTTP/1.1 by way of Hypercorn, which has its only door here, for a server that asks for it (`HttpConfig.hypercorn`).

Hypercorn's own `serve` is not used: it installs signal handlers, waits for open streams for ever (from Python 3.12 on), and gives
no access to a connection that hangs. What it is made of is: its TCP server, its HTTP/1.1 protocol, its configuration. Here they
get what they lack: a peer that does not read is cut, HTTP/2 stays out, a refusal is not lost with the connection, and all of it
can be told to end.
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
from .asgi import PATIENT
from .http1 import Malformed, Requests, State
from .open_connections import forget, prepare

if TYPE_CHECKING:
    import socket

    from hypercorn.events import Event
    from hypercorn.protocol.events import Event as StreamEvent

    from .http_config import HttpConfig
    from .open_connections import Hall

log: Final = logging.getLogger("greenroom.http")

LINGER: Final = 1.0
"""Seconds for which a closed connection still listens, so that what was said last is not lost in a reset."""
LOOK: Final = 1.0
"""Seconds between two looks whether a peer that has sent ahead is still there."""
_LARGE: Final = 4096
_SMALL: Final = 256
"""Bytes of a body in small pieces that Hypercorn gets in one turn of the loop, which takes a millisecond at the worst."""
_STEPS: Final = 32
_FULL: Final = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\nretry-after: 1\r\n\r\n"


class _Settings(Config):
    """Hypercorn's configuration, out of ours."""

    def __init__(self, config: HttpConfig) -> None:
        self.accesslog = None
        self.errorlog = log
        self.h11_max_incomplete_size = config.max_header
        self.keep_alive_max_requests = config.keep_alive_requests
        self._second = 0
        self._date: list[tuple[bytes, bytes]] = []

    def response_headers(self, protocol: str) -> list[tuple[bytes, bytes]]:  # noqa: ARG002 - there is one protocol
        """The date, made once a second."""
        now = int(time.time())
        if now != self._second:
            self._second = now
            self._date = [(b"date", formatdate(now, usegmt=True).encode())]
        return self._date


class Hypercorn:
    """What Hypercorn wants to have for the connections of one hall."""

    def __init__(self, hall: Hall) -> None:
        """Nothing is open yet."""
        self.hall = hall
        self.app: Any = ASGIWrapper(hall.app)  # type: ignore[arg-type]  # any callable of three will do
        self.settings = _Settings(hall.config)
        self.context = WorkerContext(None)
        self.context.terminated = _Ending(hall)  # type: ignore[assignment]  # only this is asked of it

    def protocol(self) -> asyncio.Protocol:
        """For a connection that is coming."""
        loop = self.hall.loop
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=loop), self.enter, loop=loop)

    def enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A client has connected."""
        hall = self.hall
        if not hall.has_room(writer.transport):
            writer.write(_FULL)
            writer.close()
            return
        connection = Connection(self, reader, writer)
        hall.enter(connection, writer.transport)
        connection.task = hall.loop.create_task(connection.serve(), name="greenroom-http")


class _Ending:
    """Hypercorn asks it whether a connection may go on after the request that is running."""

    def __init__(self, hall: Hall) -> None:
        self._hall = hall

    def is_set(self) -> bool:
        return self._hall.ending


class Connection(TCPServer):
    """One connection, and one request at a time on it."""

    task: asyncio.Task[None]

    def __init__(self, shared: Hypercorn, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """It is served by its task."""
        hall = shared.hall
        super().__init__(shared.app, hall.loop, shared.settings, shared.context, {PATIENT: True}, reader, writer)
        self.busy = False
        self.corked = False
        self.is_tls = writer.get_extra_info("sslcontext") is not None
        self._hall = hall
        self._transport = writer.transport
        self._held = b""
        self._closing = False
        self._requests = Requests(hall.config.max_header)
        self._alarm: asyncio.TimerHandle | None = None
        self.idle_task: Any = _Idle(self, hall.config)

    @property
    def ending(self) -> bool:
        """Whether the request that is running is the last."""
        return self._hall.ending

    async def serve(self) -> None:
        """Serve it until it is closed."""
        try:
            # A send is over when the kernel has it all: only so can it be seen that a peer does not read.
            self._transport.set_write_buffer_limits(high=0)
            prepare(self._transport, self._hall.config)
            await self.run()
        except asyncio.CancelledError:
            self.cut()
            raise
        except Exception:  # noqa: BLE001 - one connection's trouble
            tracebacks.log_error(log, "a connection ended in an error of the server")
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
            self.idle_task.end()
            self._transport.abort()
            self._hall.left(self)

    def leave(self) -> None:
        """Close it, unless a request is running, which is the last."""
        if not self.busy:
            self.hang_up()

    def hang_up(self) -> None:
        """Close it; what was sent still arrives."""
        self._transport.close()

    def cut(self) -> None:
        """Close it, and forget what was not read."""
        forget(self._transport)
        self._transport.abort()

    def kill(self) -> None:
        """End what does not end by itself."""
        self.task.cancel()

    # --- what Hypercorn's TCP server calls

    async def _read_data(self) -> None:
        raw = self._transport.get_extra_info("socket")
        self.protocol: Any = Http1(self, raw)
        while not self.reader.at_eof():
            try:
                data = await self.reader.read(MAX_RECV)
            except OSError:
                break
            await self._hand_on(data)
        await self.protocol.handle(Closed())

    async def _hand_on(self, data: bytes) -> None:
        """Let Hypercorn have what our own reader finds right, in pieces that let others have their turn."""
        for start in range(0, len(data), _LARGE):
            piece = data[start : start + _LARGE]
            if self._closing:
                return
            try:
                steps = self._check(piece)
            except Malformed as broken:
                log_refusal(str(broken), status=broken.status)
                await self.protocol.refuse(broken.status)
                return
            size = _LARGE if steps <= _STEPS else _SMALL
            for at in range(0, len(piece), size):
                await self.protocol.handle(RawData(piece[at : at + size]))
                if size == _SMALL:
                    await asyncio.sleep(0)

    def _check(self, data: bytes) -> int:
        """Read it as our own listener does: h11 would look at a bad header again and again. Raises `Malformed`."""
        requests = self._requests
        requests.feed(data)
        steps = 0
        while (event := requests.next()) is not State.HUNGRY:
            steps += 1
            if event is State.END:
                requests.again()
        return steps

    async def protocol_send(self, event: Event) -> None:
        """Send bytes, close, or note that nothing is going on or something is."""
        if isinstance(event, RawData):
            await self._write(event.data)
        elif isinstance(event, Closed):
            self._close_soon()
        else:
            await super().protocol_send(event)

    async def _write(self, data: bytes) -> None:
        if self._held:
            data, self._held = self._held + data, b""
        if self.corked:
            self._held = data
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
        """Wait until the kernel has it all. A peer that takes nothing of it for too long is cut."""
        size, seconds = self._transport.get_write_buffer_size, self._hall.config.write_timeout
        left = size()
        alarm: asyncio.TimerHandle

        def look() -> None:
            nonlocal left, alarm
            if size() < left:
                left = size()
                alarm = self.loop.call_later(seconds, look)
            else:
                log.info("a peer has read nothing for %g seconds: its connection is cut", seconds)
                self.cut()

        alarm = self.loop.call_later(seconds, look)
        try:
            await self.writer.drain()
        except (OSError, RuntimeError):
            await self.protocol.handle(Closed())
        finally:
            alarm.cancel()

    def _close_soon(self) -> None:
        """Say that this was all, and listen a little longer: unread bytes would reset the connection, and the answer with it."""
        if self._closing:
            return
        self._closing = True
        if self._hall.ending:
            self.hang_up()
            return
        with suppress(OSError, RuntimeError, NotImplementedError):
            self.writer.write_eof()
        self._alarm = self.loop.call_later(LINGER, self._transport.abort)

    async def _close(self) -> None:
        """The connection is over: let the kernel have what is left, and be gone."""
        self.hang_up()
        alarm = self.loop.call_later(self._hall.config.write_timeout, self.cut)
        try:
            with suppress(OSError, RuntimeError):
                await self.writer.wait_closed()
        finally:
            alarm.cancel()


class _Idle:
    """How long a connection may be idle. One timer looks now and then: Hypercorn starts and cancels a task twice a request."""

    def __init__(self, connection: Connection, config: HttpConfig) -> None:
        self._connection = connection
        self._later = config.keep_alive
        self._next = config.header_timeout
        self._until = 0.0
        self._alarm: asyncio.TimerHandle | None = None

    async def restart(self, task_group: Any, action: Any) -> None:  # noqa: ARG002 - as Hypercorn calls it
        loop = self._connection.loop
        self._connection.busy = False
        self._until = loop.time() + self._next
        if self._alarm is None or self._alarm.when() > self._until:
            self.end()
            self._alarm = loop.call_at(self._until, self._look)
        self._next = self._later

    async def stop(self) -> None:
        self._connection.busy = True

    def end(self) -> None:
        """Cancel the timer."""
        if self._alarm is not None:
            self._alarm.cancel()

    def _look(self) -> None:
        self._alarm = None
        connection = self._connection
        if connection.busy:
            return
        if connection.loop.time() >= self._until:
            connection.hang_up()
        else:
            self._alarm = connection.loop.call_at(self._until, self._look)


class Http1(H11Protocol):
    """Hypercorn's HTTP/1.1, and no other protocol that a peer might like to change to."""

    def __init__(self, server: Connection, raw: socket.socket) -> None:
        """One connection's."""
        there, here = raw.getpeername()[:2], raw.getsockname()[:2]
        state = ConnectionState(server.state)
        tasks = server._task_group  # noqa: SLF001 - where Hypercorn's own protocols start requests, too
        arguments = server.app, server.config, server.context, tasks, state
        super().__init__(*arguments, ssl=server.is_tls, client=there, server=here, send=server.protocol_send)
        self._server = server
        self.can_read: Any = _NextTurn(self)

    @property
    def is_left(self) -> bool:
        """Whether the peer has closed the connection."""
        return self._server.reader.at_eof() or self._server.reader.exception() is not None

    async def handle(self, event: Event) -> None:
        """Something has come, or nothing will any more."""
        with suppress(_Refused):
            await super().handle(event)

    async def refuse(self, status: int) -> None:
        """Answer what is no request, unless an answer is under way; then it is over."""
        with suppress(_Refused):
            if self.stream is None:
                await self._refuse(status)
            await self.send(Closed())

    async def stream_send(self, event: StreamEvent) -> None:
        """Send a part of the answer; its head goes with the body, if that is known to come at once."""
        if isinstance(event, Response):
            if self._server.ending:
                event = replace(event, headers=[*event.headers, (b"connection", b"close")])
            self._server.corked = any(name == b"content-length" and value != b"0" for name, value in event.headers)
        else:
            self._server.corked = False
        await super().stream_send(event)

    async def _check_protocol(self, event: Any) -> None:
        # An `Upgrade` that is not followed is ignored, which is what HTTP asks for.
        if event.http_version not in (b"1.1", b"1.0"):
            await self._refuse(505)
        names = {name for name, _ in event.headers}
        if b"upgrade" in names and _asks_for_websocket(event.headers):
            await self._refuse(
                403
            )  # here, not by the application: Hypercorn may end in an error over what else it says
        if b"transfer-encoding" in names and b"content-length" in names:
            await self._refuse(400)  # a proxy may have believed the other one, and hidden a request in the difference

    async def _refuse(self, status: int) -> None:
        await self._send_error_response(status)
        await self.send(Closed())
        raise _Refused


def _asks_for_websocket(headers: Any) -> bool:
    said = dict[bytes, bytes]()
    for name, value in headers:
        said[name] = said.get(name, b"") + value.lower() + b","
    return b"websocket" in said[b"upgrade"] and b"upgrade" in said.get(b"connection", b"")


class _NextTurn:
    """The wait of a request for the answer to the one before it. Nothing reads meanwhile: it looks whether the peer is still there."""

    def __init__(self, protocol: Http1) -> None:
        self._protocol = protocol
        self._event = asyncio.Event()

    async def clear(self) -> None:
        self._event.clear()

    async def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        while not self._event.is_set():
            try:
                async with asyncio.timeout(LOOK):
                    await self._event.wait()
            except TimeoutError:
                if self._protocol.is_left:
                    raise _Refused from None


class _Refused(Exception):
    """The connection goes no further than this."""
