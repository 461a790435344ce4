"""Connections that speak HTTP/1.1: one request at a time on each, served by the connection's task, and one write for most answers.

A request for the endpoint goes to its `Engine` as it is, without an ASGI scope; only other pages are served as ASGI. The task goes on in
the moment in which bytes come, inside of the loop's callback, and what it gives processes to do is done then, too (`Node.serve`): most
calls are answered within one turn of the loop. Each request has a context of its own.

No application can keep a connection for ever: a peer that does not read is cut, an idle one is let go, a refusal is not lost with the
connection that it ends, and all of them can be told to end. The kernel's events come in here as they happen, so a peer that leaves is
noticed at once, and nothing has to wait for it in a task.
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
"""How many steps of reading a connection gets in one turn of the loop: 0.04 ms, whatever its bytes are, since there may be thousands of connections.
A body in chunks of one byte takes three for each of them, and one read of the socket may bring 43,000."""
PEER_CHECK: Final = 1.0
"""Seconds between two looks whether a peer that says no more is still there."""
LINGER: Final = 1.0
"""Seconds for which a closed connection still listens, so that what was said last is not lost in a reset."""


class Http1Connection(asyncio.Protocol):
    """One connection."""

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
        """Of a hall, and not open yet."""
        self._connections = connections
        self._loop = connections.loop
        self._context = copy_context()
        self._parser = RequestParser(connections.config.max_header)
        self._transport: Any = None
        self._request: Http1Request | None = None
        self._task: asyncio.Task[None] | None = None  # what serves, from the first request to the connection's end
        self._request_ready = DirectWakeup(connections.loop)  # where it waits for the next request
        self._next_request: Http1Request | None = None  # what it is to serve next
        self._serving = False  # whether a request was begun that is not finished
        self._served = 0
        self._reading = True
        self._closing = False
        self._half_closed = False  # the peer has said FIN
        self._peer_timer: asyncio.TimerHandle | None = None
        self._probed_at = 0.0
        self._continuation: asyncio.Handle | None = None  # with reading, in the next turn of the loop
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

    # --- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has connected."""
        self._transport = transport
        if not self._connections.has_room(transport):
            self._closing = True
            self._transport.write(TOO_MANY_CONNECTIONS)
            self._transport.close()
            return
        self._connections.add(self, transport)
        # A send is over when the kernel has it all: only so can it be seen that a peer does not read.
        self._transport.set_write_buffer_limits(high=0)
        set_socket_options(transport, self._connections.config)
        self.peer, self.here = _address(transport, "peername"), _address(transport, "sockname")
        if self.peer is not None:
            self.address = f"{self.peer[0]}:{self.peer[1]}"
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        self._set_idle_deadline(self._connections.config.header_timeout)

    def data_received(self, data: bytes) -> None:
        """Something has come: a request, a part of one, or what is wait_sent ahead."""
        if self._closing:
            return
        self._parser.feed(data)
        if self._continuation is None:
            self._connections.serve(self._process_input)
        else:
            self.update_reading()

    def eof_received(self) -> bool:
        """The peer says no more. It may have left, or wait for the answer to what it has said: that is answered, and then this is over."""
        if self._closing:
            return False
        self._half_closed = True
        return self._continuation is not None or self._expects_response()

    def _expects_response(self) -> bool:
        """Whether a peer that says no more has an answer to come. An endless stream is none: it would go on for a peer that has left."""
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
        """Find out whether it has left: the kernel tells when it is wait_sent something, and an interim answer is what may be wait_sent at any time."""
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
        """It is over."""
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
        self._request_ready.open()

    def pause_writing(self) -> None:
        """The kernel does not have it all: the peer has so long to read some of it."""
        self._unsent = self._transport.get_write_buffer_size()
        self._write_timer = self._loop.call_later(self._connections.config.write_timeout, self._check_write_progress)

    def resume_writing(self) -> None:
        """It has."""
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
        """Take what is there, up to the end of one request, or to where others have their turn."""
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
        """Have what was begun served. A task that is at work looks for it itself."""
        if self._next_request is None:
            return
        if self._task is None:
            # Not by the loop's factory: an eager one would serve in here, before there is a task to find.
            self._task = asyncio.Task(self._serve(), loop=self._loop, context=self._context)
        else:
            self._request_ready.open()

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
                rest = start_in_context(self._context.copy(), self._answer(request))
                if rest is not None:
                    await rest
                del request, rest  # an idle connection keeps nothing of its last request
                if task.cancelling():
                    return  # other code may still hold on to this task
                if self._next_request is not None:
                    await asyncio.sleep(0)  # a peer that sends ahead gives others their turn
        finally:
            self._task = None
            self._on_task_end()

    def _on_task_end(self) -> None:
        """The task has ended: another one serves what was begun meanwhile, if its peer is still there."""
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
                    return  # before its turn came
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
        """The application has done with it: on to the next one, or to the end."""
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
                pass  # which reads it
            elif self._parser.buffered or self._half_closed:
                self._process_input()
            else:
                self.update_reading()

    def _refuse(self, status: int) -> None:
        """Answer what cannot be served, unless an answer is under way; then it is over."""
        if self._request is None or self._request.is_unanswered:
            self.write(encode_refusal(status, wall_clock()))
        if self._request is not None:
            self._request.disconnect()
        self._close_lingering()

    # --- for the request

    @property
    def is_last(self) -> bool:
        """Whether the request that is running is the last."""
        ended = self._half_closed and not self._parser.buffered
        return ended or self._connections.ending or self._served >= self._connections.config.keep_alive_requests

    def write(self, data: bytes) -> None:
        """Send it; what the kernel does not take at once goes when it does."""
        if not self._closing:
            self._transport.write(data)

    def wait_sent(self) -> Awaitable[None] | None:
        """What to wait for until the kernel has it all."""
        if self._write_timer is None:
            return None
        if self._writable is None:
            self._writable = self._loop.create_future()
        return asyncio.shield(self._writable)  # a waiter that gives up does so for itself

    def update_reading(self) -> None:
        """Read on, unless too much waits already."""
        waiting = self._parser.buffered + (0 if self._request is None else self._request.unread)
        if self._reading is (waiting <= UNREAD_LIMIT) or self._closing:
            return
        self._reading = not self._reading
        if self._reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- time

    def _set_idle_deadline(self, seconds: float) -> None:
        """One timer looks now and then whether the connection is idle for too long: setting one for each request would cost more."""
        self._idle_until = self._loop.time() + seconds
        if self._idle_timer is None or self._idle_timer.when() > self._idle_until:
            if self._idle_timer is not None:
                self._idle_timer.cancel()
            self._idle_timer = self._loop.call_at(self._idle_until, self._check_idle, context=self._context)

    def _check_idle(self) -> None:
        now = self._loop.time()
        if self._request is not None and not self._reading and has_socket_error(self._transport):
            self._transport.abort()  # a peer that is not read from is not seen to leave
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
        """Close it, unless a request is running, which is the last."""
        if self._request is None:
            self._transport.close()

    def cut(self) -> None:
        """Close it, and forget what was not read."""
        discard_unsent(self._transport)
        self._transport.abort()

    def cancel_tasks(self) -> None:
        """End a request that does not end by itself."""
        if self._task is not None:
            self._task.cancel()

    def _close_lingering(self) -> None:
        """Say that this was all, and listen a little longer: unread bytes would reset the connection, and the answer with it."""
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
        except OSError:  # the peer is gone, and the transport has not heard of it yet
            self._transport.abort()
            return
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = self._loop.call_later(LINGER, self._transport.abort)


def _address(transport: asyncio.BaseTransport, which: str) -> tuple[str, int] | None:
    found: tuple[str, int] | str | None = transport.get_extra_info(which)
    return (found[0], found[1]) if isinstance(found, tuple) else None
