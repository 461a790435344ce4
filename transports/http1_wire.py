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

from greenroom.supervision import Gate, tracebacks
from greenroom.supervision.kernel.node import begun

from .access_log import log_refusal
from .http1 import CONTINUE, FULL, Head, Malformed, Requests, State, refusal, wall
from .open_connections import forget, is_broken, prepare
from .turn import AHEAD, Turn, parts_of

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from .open_connections import Hall

log: Final = logging.getLogger("greenroom.http")

STEPS: Final = 64
"""How many steps of reading a connection gets in one turn of the loop: 0.04 ms, whatever its bytes are, since there may be thousands of connections.
A body in chunks of one byte takes three for each of them, and one read of the socket may bring 43,000."""
LOOK: Final = 1.0
"""Seconds between two looks whether a peer that says no more is still there."""
LINGER: Final = 1.0
"""Seconds for which a closed connection still listens, so that what was said last is not lost in a reset."""


class Http1Wire(asyncio.Protocol):
    """One connection."""

    __slots__ = (
        "_alarm",
        "_closing",
        "_context",
        "_due",
        "_gate",
        "_going_on",
        "_half",
        "_hall",
        "_idle_until",
        "_looking",
        "_loop",
        "_lost",
        "_probed",
        "_reading",
        "_requests",
        "_served",
        "_serving",
        "_stalled",
        "_task",
        "_transport",
        "_turn",
        "_unsent",
        "_writable",
        "address",
        "here",
        "peer",
        "scheme",
    )

    def __init__(self, hall: Hall) -> None:
        """Of a hall, and not open yet."""
        self._hall = hall
        self._loop = hall.loop
        self._context = copy_context()
        self._requests = Requests(hall.config.max_header)
        self._transport: Any = None
        self._turn: Turn | None = None
        self._task: asyncio.Task[None] | None = None  # what serves, from the first request to the connection's end
        self._gate = Gate(hall.loop)  # where it waits for the next request
        self._due: Turn | None = None  # what it is to serve next
        self._serving = False  # whether a request was begun that is not finished
        self._served = 0
        self._reading = True
        self._closing = False
        self._half = False  # the peer has said FIN
        self._looking: asyncio.TimerHandle | None = None
        self._probed = 0.0
        self._going_on: asyncio.Handle | None = None  # with reading, in the next turn of the loop
        self._lost = False
        self._idle_until = 0.0
        self._alarm: asyncio.TimerHandle | None = None  # for an idle connection, or one that lingers
        self._stalled: asyncio.TimerHandle | None = None
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
        if not self._hall.has_room(transport):
            self._closing = True
            self._transport.write(FULL)
            self._transport.close()
            return
        self._hall.enter(self, transport)
        # A send is over when the kernel has it all: only so can it be seen that a peer does not read.
        self._transport.set_write_buffer_limits(high=0)
        prepare(transport, self._hall.config)
        self.peer, self.here = _address(transport, "peername"), _address(transport, "sockname")
        if self.peer is not None:
            self.address = f"{self.peer[0]}:{self.peer[1]}"
        if transport.get_extra_info("sslcontext") is not None:
            self.scheme = "https"
        self._rest(self._hall.config.header_timeout)

    def data_received(self, data: bytes) -> None:
        """Something has come: a request, a part of one, or what is sent ahead."""
        if self._closing:
            return
        self._requests.feed(data)
        if self._going_on is None:
            self._hall.serve(self._advance)
        else:
            self.relax()

    def eof_received(self) -> bool:
        """The peer says no more. It may have left, or wait for the answer to what it has said: that is answered, and then this is over."""
        if self._closing:
            return False
        self._half = True
        return self._going_on is not None or self._waits_for_answer()

    def _waits_for_answer(self) -> bool:
        """Whether a peer that says no more has an answer to come. An endless stream is none: it would go on for a peer that has left."""
        turn = self._turn
        if turn is None:
            return False
        if not self._requests.complete or turn.endless:
            turn.leave()
            return False
        self._probed = self._loop.time() - self._hall.config.heartbeat
        if self._looking is None:
            self._looking = self._loop.call_later(LOOK, self._look_gone)
        return True

    def _look_gone(self) -> None:
        """Find out whether it has left: the kernel tells when it is sent something, and an interim answer is what may be sent at any time."""
        self._looking = None
        turn, now = self._turn, self._loop.time()
        if turn is None or self._closing:
            return
        if turn.endless or is_broken(self._transport):
            self._transport.abort()
            return
        if now - self._probed >= self._hall.config.heartbeat and turn.silent and turn.head.version == "1.1":
            self._probed = now
            self.write(CONTINUE)
        self._looking = self._loop.call_later(LOOK, self._look_gone)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it came
        """It is over."""
        self._lost = self._closing = True
        self.resume_writing()
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._looking is not None:
            self._looking.cancel()
        if self._turn is not None:
            self._turn.leave()
        if not self._serving:
            self._hall.left(self)
        self._gate.open()

    def pause_writing(self) -> None:
        """The kernel does not have it all: the peer has so long to read some of it."""
        self._unsent = self._transport.get_write_buffer_size()
        self._stalled = self._loop.call_later(self._hall.config.write_timeout, self._look_stalled)

    def resume_writing(self) -> None:
        """It has."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    def _look_stalled(self) -> None:
        left = self._transport.get_write_buffer_size()
        seconds = self._hall.config.write_timeout
        if left < self._unsent:
            self._unsent = left
            self._stalled = self._loop.call_later(seconds, self._look_stalled)
            return
        self._stalled = None
        log.info("a peer has read nothing for %g seconds: its connection is cut", seconds)
        self.cut()

    # --- requests

    def _advance(self) -> None:
        """Take what is there, up to the end of one request, or to where others have their turn."""
        following = self._requests.next
        turn: Any = self._turn
        steps = STEPS
        try:
            while not self._closing and (event := following()) is not State.HUNGRY:
                if type(event) is Head:
                    turn = self._begin(event)
                elif type(event) is bytes:
                    turn.take(event)
                else:
                    turn.end()
                steps -= 1
                if not steps:
                    self._going_on = self._loop.call_soon(self._go_on)
                    break
        except Malformed as broken:
            log.debug("a connection is closed: %s", broken)
            log_refusal(str(broken), status=broken.status, address=self.address)
            self._refuse(broken.status)
            self._attend()
            return
        self.relax()
        self._attend()
        if self._half and self._going_on is None and not self._closing and not self._waits_for_answer():
            self._transport.close()

    def _go_on(self) -> None:
        self._going_on = None
        if not self._closing:
            self._hall.serve(self._advance)

    def _begin(self, head: Head) -> Turn:
        if head.websocket:
            raise Malformed(403, "there are no WebSockets here")
        self._served += 1
        self._serving = True
        turn = self._turn = self._due = Turn(self, head, self._hall.config)
        return turn

    def _attend(self) -> None:
        """Have what was begun served. A task that is at work looks for it itself."""
        if self._due is None:
            return
        if self._task is None:
            # Not by the loop's factory: an eager one would serve in here, before there is a task to find.
            self._task = asyncio.Task(self._serve(), loop=self._loop, context=self._context)
        else:
            self._gate.open()

    def _next(self) -> Turn | None:
        turn, self._due = self._due, None
        return turn

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            while self._due is not None or not self._lost:
                turn = self._next()
                if turn is None:
                    await self._gate
                    continue
                rest = begun(self._context.copy(), self._answer(turn))
                if rest is not None:
                    await rest
                del turn, rest  # an idle connection keeps nothing of its last request
                if task.cancelling():
                    return  # other code may still hold on to this task
                if self._due is not None:
                    await asyncio.sleep(0)  # a peer that sends ahead gives others their turn
        finally:
            self._task = None
            self._attend_rest()

    def _attend_rest(self) -> None:
        """The task has ended: another one serves what was begun meanwhile, if its peer is still there."""
        if self._due is None:
            return
        if self._lost:
            self._serving = False
            self._hall.left(self)
        elif not self._loop.is_closed():
            self._attend()

    async def _answer(self, turn: Turn) -> None:
        try:
            path, _, query = parts_of(turn.head.target)
            engine = self._hall.engine_for(turn.head.method, path, turn.head.headers)
            if engine is None:
                await self._hall.app(turn.scope(), turn.receive, turn.send)
                return
            with turn.waiting:
                if turn.gone:
                    return  # before its turn came
                turn.read_within(engine.config)
                target = f"{path}?{query.decode('latin-1')}" if query else path
                await engine.handle(
                    turn.head.method, target, turn.head, turn.taken() or turn.body, turn, address=self.address
                )
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException:  # noqa: BLE001 - one request's trouble, whatever was raised
            tracebacks.log_error(log, "a request ended in an error of the application")
        finally:
            self._serving = False
            self._finish(turn)

    def _finish(self, turn: Turn) -> None:
        """The application has done with it: on to the next one, or to the end."""
        if self._lost:
            self._hall.left(self)
        elif self._closing:
            pass
        elif turn.silent:
            self._refuse(500)
        elif not turn.answered or not turn.persistent or self._hall.ending:
            self._close_soon()
        else:
            self._turn = None
            self._requests.again()
            self._rest(self._hall.config.keep_alive)
            if self._going_on is not None:
                pass  # which reads it
            elif self._requests.ahead or self._half:
                self._advance()
            else:
                self.relax()

    def _refuse(self, status: int) -> None:
        """Answer what cannot be served, unless an answer is under way; then it is over."""
        if self._turn is None or self._turn.silent:
            self.write(refusal(status, wall()))
        if self._turn is not None:
            self._turn.leave()
        self._close_soon()

    # --- for the turn

    @property
    def last(self) -> bool:
        """Whether the request that is running is the last."""
        ended = self._half and not self._requests.ahead
        return ended or self._hall.ending or self._served >= self._hall.config.keep_alive_requests

    def write(self, data: bytes) -> None:
        """Send it; what the kernel does not take at once goes when it does."""
        if not self._closing:
            self._transport.write(data)

    def sent(self) -> Awaitable[None] | None:
        """What to wait for until the kernel has it all."""
        if self._stalled is None:
            return None
        if self._writable is None:
            self._writable = self._loop.create_future()
        return asyncio.shield(self._writable)  # a waiter that gives up does so for itself

    def relax(self) -> None:
        """Read on, unless too much waits already."""
        waiting = self._requests.ahead + (0 if self._turn is None else self._turn.unread)
        if self._reading is (waiting <= AHEAD) or self._closing:
            return
        self._reading = not self._reading
        if self._reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    # --- time

    def _rest(self, seconds: float) -> None:
        """One timer looks now and then whether the connection is idle for too long: setting one for each request would cost more."""
        self._idle_until = self._loop.time() + seconds
        if self._alarm is None or self._alarm.when() > self._idle_until:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._loop.call_at(self._idle_until, self._look_idle, context=self._context)

    def _look_idle(self) -> None:
        now = self._loop.time()
        if self._turn is not None and not self._reading and is_broken(self._transport):
            self._transport.abort()  # a peer that is not read from is not seen to leave
        elif self._turn is not None:
            config = self._hall.config
            self._alarm = self._loop.call_at(now + min(config.keep_alive, config.heartbeat), self._look_idle)
        elif now >= self._idle_until:
            self._alarm = None
            self._transport.close()
        else:
            self._alarm = self._loop.call_at(self._idle_until, self._look_idle)

    # --- the end

    def leave(self) -> None:
        """Close it, unless a request is running, which is the last."""
        if self._turn is None:
            self._transport.close()

    def cut(self) -> None:
        """Close it, and forget what was not read."""
        forget(self._transport)
        self._transport.abort()

    def kill(self) -> None:
        """End a request that does not end by itself."""
        if self._task is not None:
            self._task.cancel()

    def _close_soon(self) -> None:
        """Say that this was all, and listen a little longer: unread bytes would reset the connection, and the answer with it."""
        self._closing = True
        if self._half or self._hall.ending or not self._transport.can_write_eof() or self._transport.is_closing():
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
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_later(LINGER, self._transport.abort)


def _address(transport: asyncio.BaseTransport, which: str) -> tuple[str, int] | None:
    found: tuple[str, int] | str | None = transport.get_extra_info(which)
    return (found[0], found[1]) if isinstance(found, tuple) else None
