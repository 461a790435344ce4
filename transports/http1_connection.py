"""HTTP/1.1 connections: one request at a time on each, served by the connection's task, with one write for most responses.

A request for the endpoint goes directly to its `HttpEngine`, without an ASGI scope; only other pages are served through ASGI. The task
resumes inside the loop's callback for incoming bytes, and processes that this makes runnable run at once (`Node.serve`), so most calls are
answered within one turn of the loop. Each request has its own context.

No application can keep a connection open for ever: a peer that does not read is cut, an idle one is closed, a refusal is delivered before the connection
closes, and all connections can be told to end. The transport's callbacks arrive directly, so a disconnect is noticed at once and no task has to wait for it.
"""

from __future__ import annotations

import asyncio
import logging
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision import DirectWakeup, tracebacks
from greenroom.supervision.kernel.node import start_in_context

from .access_log import log_refusal
from .http1_codec import (
    CONTINUE,
    TOO_MANY_CONNECTIONS,
    Malformed,
    ParserState,
    RequestHead,
    RequestParser,
    encode_refusal,
    wall_clock,
)
from .http1_request import UNREAD_LIMIT, Http1Request, parts_of
from .open_connections import discard_unsent, has_socket_error, set_socket_options

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .open_connections import OpenConnections

log: Final = logging.getLogger("greenroom.http")

STEPS_PER_TURN: Final = 64
"""How many parser steps a connection gets in one turn of the loop: 0.04 ms, whatever the bytes are, since there may be thousands of connections.

A body in chunks of one byte takes three steps for each, and one read of the socket may bring 43,000.
"""
PEER_CHECK: Final = 1.0
"""Seconds between checks whether a peer that has closed its sending side is still connected."""
LINGER: Final = 1.0
"""Seconds for which a closed connection still reads, so that the last response is not lost in a reset."""


class Http1Connection(asyncio.Protocol):
    """One HTTP/1.1 connection."""

    __slots__ = (
        "_closing",
        "_connections",
        "_context",
        "_continuation",
        "_half_closed",
        "_idle_timer",
        "_idle_until",
        "_loop",
        "_lost",
        "_next_request",
        "_parser",
        "_peer_timer",
        "_probed_at",
        "_reading",
        "_request",
        "_request_ready",
        "_served",
        "_serving",
        "_task",
        "_transport",
        "_unsent",
        "_writable",
        "_write_timer",
        "address",
        "here",
        "peer",
        "scheme",
    )

    def __init__(self, connections: OpenConnections) -> None:
        self._connections = connections
        self._loop = connections.loop
        self._context = copy_context()
        self._parser = RequestParser(connections.config.max_header)
        self._transport: Any = None
        self._request: Http1Request | None = None
        self._task: asyncio.Task[None] | None = (
            None  # serves all requests, from the first one to the end of the connection
        )
        # Where the task waits for the next request. A future would resume it in the next turn of the loop; this resumes it at once, within the
        # callback for the request's bytes.
        self._request_ready = DirectWakeup(connections.loop)
        self._next_request: Http1Request | None = None  # the request to serve next
        self._serving = False  # whether a request was begun and not finished
        self._served = 0
        self._reading = True
        self._closing = False
        self._half_closed = False  # the peer has closed its sending side (FIN)
        self._peer_timer: asyncio.TimerHandle | None = None
        self._probed_at = 0.0
        self._continuation: asyncio.Handle | None = None  # resumes parsing in the next turn of the loop
        self._lost = False
        self._idle_until = 0.0
        self._idle_timer: asyncio.TimerHandle | None = None  # for an idle connection, or one that lingers
        self._write_timer: asyncio.TimerHandle | None = None
        self._unsent = 0
        self._writable: asyncio.Future[None] | None = None
        self.peer: tuple[str, int] | None = None
        self.address = ""
        self.here: tuple[str, int] | None = None
        self.scheme = "http"

    # --- callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        if not self._connections.has_room(transport):
            self._closing = True
            self._transport.write(TOO_MANY_CONNECTIONS)
            self._transport.close()
            return
        self._connections.add(self, transport)
        # A write is done only when the kernel has accepted all of it: otherwise a peer that does not read could not be noticed.
        self._transport.set_write_buffer_limits(high=0)
        set_socket_options(transport, self._connections.config)
        self.peer, self.here = _address(transport, "peername"), _address(transport, "sockname")
        if self.peer is not None:
            self.address = f"{self.peer[0]}:{self.peer[1]}"
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        self._set_idle_deadline(self._connections.config.header_timeout)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._parser.feed(data)
        if self._continuation is None:
            self._connections.serve(self._process_input)
        else:
            self.update_reading()

    def eof_received(self) -> bool:
        """The peer sends no more. It may have gone, or wait for its response; a pending response is sent, and then the connection closes."""
        if self._closing:
            return False
        self._half_closed = True
        return self._continuation is not None or self._expects_response()

    def _expects_response(self) -> bool:
        """Whether a half-closed peer still has a response to come. An event stream does not count: it would go on for a peer that has gone."""
        request = self._request
        if request is None:
            return False
        if not self._parser.complete or request.is_endless:
            request.disconnect()
            return False
        self._probed_at = self._loop.time() - self._connections.config.heartbeat
        if self._peer_timer is None:
            self._peer_timer = self._loop.call_later(PEER_CHECK, self._check_peer_gone)
        return True

    def _check_peer_gone(self) -> None:
        """Find out whether a half-closed peer has gone.

        Only a write makes the kernel tell, and an interim response (100 Continue) is the one thing that may be sent at any time.
        """
        self._peer_timer = None
        request, now = self._request, self._loop.time()
        if request is None or self._closing:
            return
        if request.is_endless or has_socket_error(self._transport):
            self._transport.abort()
            return
        if (
            now - self._probed_at >= self._connections.config.heartbeat
            and request.is_unanswered
            and request.head.version == "1.1"
        ):
            self._probed_at = now
            self.write(CONTINUE)
        self._peer_timer = self._loop.call_later(PEER_CHECK, self._check_peer_gone)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it came
        self._lost = self._closing = True
        self.resume_writing()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._peer_timer is not None:
            self._peer_timer.cancel()
        if self._request is not None:
            self._request.disconnect()
        if not self._serving:
            self._connections.remove(self)
        self._request_ready.wake()

    def pause_writing(self) -> None:
        """The kernel has not accepted all bytes: the peer has the write timeout to read some."""
        self._unsent = self._transport.get_write_buffer_size()
        self._write_timer = self._loop.call_later(self._connections.config.write_timeout, self._check_write_progress)

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def _check_write_progress(self) -> None:
        left = self._transport.get_write_buffer_size()
        seconds = self._connections.config.write_timeout
        if left < self._unsent:
            self._unsent = left
            self._write_timer = self._loop.call_later(seconds, self._check_write_progress)
            return
        self._write_timer = None
        log.info("a peer has read nothing for %g seconds: its connection is cut", seconds)
        self.cut()

    # --- requests

    def _process_input(self) -> None:
        """Parse the buffered input up to the end of one request, or up to the limit of steps for one turn."""
        following = self._parser.next
        request: Any = self._request
        steps = STEPS_PER_TURN
        try:
            while not self._closing and (event := following()) is not ParserState.NEED_DATA:
                if type(event) is RequestHead:
                    request = self._on_head(event)
                elif type(event) is bytes:
                    request.feed(event)
                else:
                    request.feed_end()
                steps -= 1
                if not steps:
                    self._continuation = self._loop.call_soon(self._continue_input)
                    break
        except Malformed as broken:
            log.debug("a connection is closed: %s", broken)
            log_refusal(str(broken), status=broken.status, address=self.address)
            self._refuse(broken.status)
            self._serve_next()
            return
        self.update_reading()
        self._serve_next()
        if self._half_closed and self._continuation is None and not self._closing and not self._expects_response():
            self._transport.close()

    def _continue_input(self) -> None:
        self._continuation = None
        if not self._closing:
            self._connections.serve(self._process_input)

    def _on_head(self, head: RequestHead) -> Http1Request:
        if head.websocket:
            raise Malformed(403, "there are no WebSockets here")
        self._served += 1
        self._serving = True
        request = self._request = self._next_request = Http1Request(self, head, self._connections.config)
        return request

    def _serve_next(self) -> None:
        """Make the task serve the new request; a running task picks it up by itself."""
        if self._next_request is None:
            return
        if self._task is None:
            # Created directly, not through the loop's task factory: an eager factory would run `_serve` before `self._task` is set.
            self._task = asyncio.Task(self._serve(), loop=self._loop, context=self._context)
        else:
            self._request_ready.wake()

    def _take_next(self) -> Http1Request | None:
        request, self._next_request = self._next_request, None
        return request

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            while self._next_request is not None or not self._lost:
                request = self._take_next()
                if request is None:
                    await self._request_ready
                    continue
                # Each request needs a context of its own, and a new task for each would cost its creation and another turn of the loop. So the
                # coroutine starts in this task, in a copied context; only if it has to wait is the rest awaited here.
                rest = start_in_context(self._context.copy(), self._answer(request))
                if rest is not None:
                    await rest
                del request, rest  # an idle connection must not keep its last request alive
                if task.cancelling():
                    return  # a cancelled task is not used again, since other code may still hold it
                if self._next_request is not None:
                    await asyncio.sleep(0)  # a peer that pipelines requests lets other connections have a turn
        finally:
            self._task = None
            self._on_task_end()

    def _on_task_end(self) -> None:
        """The task has ended: a new one serves a request that arrived meanwhile, if the peer is still connected."""
        if self._next_request is None:
            return
        if self._lost:
            self._serving = False
            self._connections.remove(self)
        elif not self._loop.is_closed():
            self._serve_next()

    async def _answer(self, request: Http1Request) -> None:
        try:
            path, _, query = parts_of(request.head.target)
            engine = self._connections.engine_for(request.head.method, path, request.head.headers)
            if engine is None:
                await self._connections.app(request.scope(), request.receive, request.send)
                return
            with request.waiting:
                if request.gone:
                    return  # the peer left before the request was served
                request.use_limits_of(engine.config)
                target = f"{path}?{query.decode('latin-1')}" if query else path
                await engine.handle(
                    request.head.method,
                    target,
                    request.head,
                    request.whole_body() or request.body,
                    request,
                    address=self.address,
                )
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # noqa: BLE001 - one request's trouble, whatever was raised
            tracebacks.log_error(log, "a request ended in an error of the application")
        finally:
            self._serving = False
            self._on_response_done(request)

    def _on_response_done(self, request: Http1Request) -> None:
        """The handler has returned: serve the next request, or close."""
        if self._lost:
            self._connections.remove(self)
        elif self._closing:
            pass
        elif request.is_unanswered:
            self._refuse(500)
        elif not request.is_answered or not request.keeps_alive or self._connections.ending:
            self._close_lingering()
        else:
            self._request = None
            self._parser.start_next()
            self._set_idle_deadline(self._connections.config.keep_alive)
            if self._continuation is not None:
                pass  # the scheduled continuation reads it
            elif self._parser.buffered or self._half_closed:
                self._process_input()
            else:
                self.update_reading()

    def _refuse(self, status: int) -> None:
        """Send an error response unless a response has begun, and close."""
        if self._request is None or self._request.is_unanswered:
            self.write(encode_refusal(status, wall_clock()))
        if self._request is not None:
            self._request.disconnect()
        self._close_lingering()

    # --- called by the request

    @property
    def is_last(self) -> bool:
        """Whether the current request is the last one served on this connection."""
        ended = self._half_closed and not self._parser.buffered
        return ended or self._connections.ending or self._served >= self._connections.config.keep_alive_requests

    def write(self, data: bytes) -> None:
        """Send bytes; what the kernel does not accept at once follows when it does."""
        if not self._closing:
            self._transport.write(data)

    def wait_sent(self) -> Awaitable[None] | None:
        """An awaitable until the kernel has accepted everything; None if it has."""
        if self._write_timer is None:
            return None
        if self._writable is None:
            self._writable = self._loop.create_future()
        return asyncio.shield(
            self._writable
        )  # shielded: several waiters share the future, and cancelling one must not cancel the others

    def update_reading(self) -> None:
        """Resume or pause reading, by how much is buffered."""
        waiting = self._parser.buffered + (0 if self._request is None else self._request.unread)
        if self._reading is (waiting <= UNREAD_LIMIT) or self._closing:
            return
        self._reading = not self._reading
        if self._reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- timers

    def _set_idle_deadline(self, seconds: float) -> None:
        """Set the deadline of an idle connection.

        One timer per connection fires now and then and compares with the deadline; a timer for each request would cost more.
        """
        self._idle_until = self._loop.time() + seconds
        if self._idle_timer is None or self._idle_timer.when() > self._idle_until:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._idle_timer = self._loop.call_at(self._idle_until, self._check_idle, context=self._context)

    def _check_idle(self) -> None:
        now = self._loop.time()
        if self._request is not None and not self._reading and has_socket_error(self._transport):
            self._transport.abort()  # a paused transport does not notice that its peer has gone
        elif self._request is not None:
            config = self._connections.config
            self._idle_timer = self._loop.call_at(now + min(config.keep_alive, config.heartbeat), self._check_idle)
        elif now >= self._idle_until:
            self._idle_timer = None
            self._transport.close()
        else:
            self._idle_timer = self._loop.call_at(self._idle_until, self._check_idle)

    # --- the end

    def close_when_idle(self) -> None:
        """Close, unless a request is running; then that is the last one."""
        if self._request is None:
            self._transport.close()

    def cut(self) -> None:
        """Close now, and drop unsent data."""
        discard_unsent(self._transport)
        self._transport.abort()

    def cancel_tasks(self) -> None:
        """Cancel a request that does not end by itself."""
        if self._task is not None:
            self._task.cancel()

    def _close_lingering(self) -> None:
        """Half-close, and go on reading for a moment: unread input would make the kernel reset the connection, and the response would be lost with it."""
        self._closing = True
        if (
            self._half_closed
            or self._connections.ending
            or not self._transport.can_write_eof()
            or self._transport.is_closing()
        ):
            self._transport.close()
            return
        if not self._reading:
            self._reading = True
            self._transport.resume_reading()
        try:
            self._transport.write_eof()
        except OSError:  # the peer is gone, and the transport does not know it yet
            self._transport.abort()
            return
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = self._loop.call_later(LINGER, self._transport.abort)


def _address(transport: asyncio.BaseTransport, which: str) -> tuple[str, int] | None:
    found: tuple[str, int] | str | None = transport.get_extra_info(which)
    return (found[0], found[1]) if isinstance(found, tuple) else None
