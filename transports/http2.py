"""Connections that speak HTTP/2, by way of the library h2, which has its only door here.

h2 knows the protocol and does no I/O; which stream may wait for which is decided here. The rule: no stream ever holds up another.
The connection's window is given back at once, whatever is read; a stream's window as its own application reads. A peer that stalls
a stream loses the stream, a peer that takes nothing at all loses the connection. A connection ends as HTTP/2 says it: no more
requests, and those that run are answered first.
"""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RemoteSettingsChanged, RequestReceived, StreamEnded, StreamReset, WindowUpdated
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

from .http2_stream import BadRequest, Stream, StreamGone, date, scope_of
from .open_connections import forget, prepare

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .open_connections import Hall

log: Final = logging.getLogger("greenroom.http")

WINDOW: Final = 64 * 1024 - 1
"""How much of one body is taken that the application has not read yet."""
ALL_WINDOWS: Final = 1024 * 1024
"""How much may be under way on the connection; it is given back at once."""
STEPS: Final = 32
"""How many steps of reading a connection gets in one turn of the loop, a frame being one: a millisecond, whatever is in them."""
AHEAD: Final = 64 * 1024
"""How many bytes wait for their turn before no more is read."""
TOO_MUCH: Final = 1024 * 1024
"""Bytes that wait for a peer that asks and does not read: answers to what it costs nothing to ask."""
LINGER: Final = 2.0
"""Seconds for which a connection that has ended is listened to: unread bytes would reset it, and what was said last with it."""
TABLE: Final = 4096
"""The most that is remembered of headers that were sent, however much the peer would have us remember."""


class Http2(asyncio.Protocol):
    """One connection."""

    def __init__(self, hall: Hall) -> None:
        """Of a hall, and not open yet."""
        self._hall = hall
        self._config = hall.config
        self._loop = hall.loop
        self._transport: Any = None
        self._writable = asyncio.Event()  # while the kernel has all that was sent
        self._writable.set()
        self._closing = False  # nothing more goes out
        self._stalled: asyncio.TimerHandle | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._waiting = b""
        self._going_on: asyncio.Handle | None = None
        self._reading = True
        self._h2 = H2Connection(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_outbound_headers=False,  # those are ours
                normalize_outbound_headers=False,
            )
        )
        self._gate = Gate(hall.config.max_header, self._loop.time())
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._served = 0
        self._owed = 0
        self._winding_down = False
        self._said_goodbye = False
        self._lost = False
        self._flushing = False
        self._idle: asyncio.TimerHandle | None = None
        self._where: tuple[Any, Any] = (None, None)

    # --- from the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say who we are, and what there is room for."""
        self._hall.enter(self, transport)
        self._transport = transport
        self._transport.set_write_buffer_limits(high=0)  # so that it can be seen that a peer does not read
        prepare(transport, self._config)
        with suppress(TypeError):
            there, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
            self._where = tuple(there[:2]), tuple(here[:2])
        h2 = self._h2
        h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: WINDOW,
                SettingCodes.MAX_FRAME_SIZE: MAX_FRAME,
                SettingCodes.MAX_HEADER_LIST_SIZE: self._config.max_header,
            },
        )
        h2.decoder.max_header_list_size = self._config.max_header
        h2.initiate_connection()
        # Said by itself, since h2 would hold a peer to the first settings before it can have read them.
        h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: self._config.max_streams})
        h2.increment_flow_control_window(ALL_WINDOWS - 65_535)
        self._flush()
        self._wait_idle(self._config.header_timeout)

    def data_received(self, data: bytes) -> None:
        """Deal with what came."""
        if self._closing:
            return
        self._waiting += data
        if self._going_on is None:
            self._advance()
        self._relax()

    def _relax(self) -> None:
        """Read on, unless too much waits already."""
        reading = len(self._waiting) <= AHEAD
        if reading is not self._reading and not self._transport.is_closing():
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _go_on(self) -> None:
        self._going_on = None
        if not self._closing:
            self._advance()
        self._relax()

    def _advance(self) -> None:
        """Deal with what waits, up to where others have their turn."""
        data, self._waiting = self._waiting, b""
        try:
            passed = self._gate.feed(data, self._loop.time(), STEPS)
            for event in self._h2.receive_data(passed):
                self._on(event)
        except Flood as flood:
            log.info("a connection is closed: %s", flood)
            self._goodbye(flood.code)
            self._finish()
            return
        except ProtocolError as error:  # h2 has said so already
            log.debug("a connection broke HTTP/2: %s", error)
            self._flush()
            self._finish()
            return
        self._give_back()
        self._flush()
        if self._gate.said_goodbye:
            self._winding_down = True
        if self._gate.taken < len(data):
            self._waiting = data[self._gate.taken :]
            self._going_on = self._loop.call_soon(self._go_on)
        self._look_idle()

    def eof_received(self) -> bool:
        """The peer says no more, and so will not give any more windows."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was
        """It is over for all streams on it."""
        self._lost = True
        self._closing = True
        self._stop_idle()
        self._unwatch()
        if self._lingering is not None:
            self._lingering.cancel()
        self._writable.set()
        for stream in tuple(self._streams.values()):
            self._leave(stream)
        self._look_left()

    def pause_writing(self) -> None:
        """The kernel has enough for now. A peer that takes nothing of it for too long is cut."""
        self._writable.clear()
        self._watch()

    def resume_writing(self) -> None:
        """It takes more."""
        self._unwatch()
        self._writable.set()

    def _watch(self) -> None:
        self._unwatch()
        left = self._transport.get_write_buffer_size()
        self._stalled = self._loop.call_later(self._config.write_timeout, self._look_stalled, left)

    def _look_stalled(self, left: int) -> None:
        if self._transport.get_write_buffer_size() < left:
            self._watch()
        else:
            log.info("a peer has read nothing for %g seconds: its connection is cut", self._config.write_timeout)
            self.cut()

    def _unwatch(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    # --- what the peer wants

    def _on(self, event: Any) -> None:
        match event:
            case RequestReceived():
                self._request(event)
            case DataReceived():
                self._data(event)
            case StreamEnded():
                if stream := self._streams.get(event.stream_id):
                    stream.end()
                    self._forget(stream)
            case StreamReset():
                if stream := self._streams.get(event.stream_id):
                    if not stream.answered:
                        self._gate.reset()
                    self._leave(stream)
            case WindowUpdated():
                self._opened(event.stream_id)
            case RemoteSettingsChanged():
                self._h2.encoder.header_table_size = min(self._h2.encoder.header_table_size, TABLE)
                self._opened(0)
            case _:
                pass  # nothing has to be done about it, or h2 has done it

    def _request(self, event: RequestReceived) -> None:
        id = event.stream_id
        assert id is not None
        assert event.headers is not None
        if self._said_goodbye or len(self._streams) >= self._config.max_streams:
            self._gate.spend(1.0, "too many requests at once")
            with suppress(ProtocolError):  # it was taken back already
                self._h2.reset_stream(id, ErrorCodes.REFUSED_STREAM)  # which says that nothing was done about it
            return
        self._last = max(self._last, id)
        self._served += 1
        self._stop_idle()
        try:
            scope = scope_of(event.headers, *self._where)
        except BadRequest:
            with suppress(ProtocolError):
                self._h2.send_headers(id, [(b":status", b"400"), (b"content-length", b"0")], end_stream=True)
                self._h2.reset_stream(id, ErrorCodes.NO_ERROR)
            return
        stream = self._streams[id] = Stream(self, id, scope["method"])
        stream.begin(self._hall.app, scope)
        if self._served >= self._config.keep_alive_requests:
            self.leave()

    def _data(self, event: DataReceived) -> None:
        assert event.stream_id is not None
        assert event.data is not None
        size = event.flow_controlled_length or 0
        self._owed += size
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        kept = len(event.data) if stream.put(event.data) else 0
        self.took(stream, size - kept)  # what is padding, or comes too late to be read

    def _give_back(self) -> None:
        """The connection's window belongs to all streams: it never waits for an application that does not read."""
        if self._owed >= ALL_WINDOWS // 4:
            owed, self._owed = self._owed, 0
            self._h2.increment_flow_control_window(owed)

    def _opened(self, id: int | None) -> None:
        if id:
            if stream := self._streams.get(id):
                stream.opened.set()
        else:
            for stream in self._streams.values():
                stream.opened.set()

    # --- what a stream wants

    def head(self, stream: Stream, headers: Sequence[tuple[bytes, bytes]], *, end: bool) -> None:
        """Send the status and the headers."""
        self._check(stream)
        self._h2.send_headers(stream.id, [*headers, (b"date", date())], end_stream=end)
        self._gate.earn()
        self._flush_soon()

    async def body(self, stream: Stream, data: bytes, *, end: bool) -> None:
        """Send data as the peer takes it. Raises `StreamGone`."""
        h2, at, size = self._h2, 0, len(data)
        while True:
            await self._writable.wait()
            self._check(stream)
            room = min(size - at, h2.local_flow_control_window(stream.id), MAX_FRAME, h2.max_outbound_frame_size)
            if room <= 0 < size - at:
                await self._room(stream)
                continue
            last = at + room >= size
            h2.send_data(stream.id, data[at : at + room], end_stream=end and last)
            self._gate.earn()
            at += room
            if last:
                self._flush_soon()
                return
            self._flush()

    async def _room(self, stream: Stream) -> None:
        """Wait until the peer gives room, at most for the write timeout."""
        self._flush()
        stream.opened.clear()
        try:
            async with asyncio.timeout(self._config.write_timeout):
                await stream.opened.wait()
        except TimeoutError:
            if self._lost or stream.gone:
                raise StreamGone from None
            if self._h2.outbound_flow_control_window <= 0:
                log.info("a peer has taken nothing for %g seconds: its connection is cut", self._config.write_timeout)
                self.cut()
            else:
                log.info("a stream was not read for %g seconds: it is reset", self._config.write_timeout)
                self._reset(stream, ErrorCodes.CANCEL)
                self._leave(stream)
            raise StreamGone("the peer does not read this stream") from None

    def took(self, stream: Stream, size: int) -> None:
        """So much of the body was read: there is room for as much."""
        if size > 0 and not stream.ended and not stream.gone and not self._closing:
            with suppress(ProtocolError):
                self._h2.increment_flow_control_window(size, stream.id)
                self._flush_soon()

    def done(self, stream: Stream) -> None:
        """The application has ended. What is still to come of the body is taken a little longer, so that nothing is cut off."""
        if not stream.gone and not stream.answered:
            self._reset(stream, ErrorCodes.INTERNAL_ERROR)
            self._leave(stream)
        elif not stream.gone and not stream.ended:
            self._loop.call_later(LINGER, self._end_late, stream)
        stream.task = None
        self._forget(stream)
        self._look_idle()

    def _end_late(self, stream: Stream) -> None:
        if not stream.gone and not stream.ended:
            self._reset(stream, ErrorCodes.NO_ERROR)
            self._leave(stream)
            self._look_idle()

    def _reset(self, stream: Stream, code: ErrorCodes) -> None:
        if not self._closing:
            with suppress(ProtocolError):
                self._h2.reset_stream(stream.id, code)
                self._flush()

    def _leave(self, stream: Stream) -> None:
        stream.leave()
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        """It counts until its application has ended and nothing more can come: a peer that takes back requests gains nothing."""
        if stream.task is None and (stream.gone or (stream.ended and stream.answered)):
            self._streams.pop(stream.id, None)
            self._look_left()

    def _check(self, stream: Stream) -> None:
        if stream.gone or self._closing:
            raise StreamGone("the peer has left this stream")

    # --- out

    def _flush_soon(self) -> None:
        """Send it with what the others have to say in this turn of the loop."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._write(self._h2.data_to_send())

    def _write(self, data: bytes) -> None:
        """Send it, if the peer can still have it."""
        if data and not self._closing and not self._transport.is_closing():
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > TOO_MUCH:
                log.info("a peer asks and does not read: its connection is cut")
                self.cut()

    # --- ending

    def leave(self) -> None:
        """Take no more requests, and close when those that run are answered."""
        self._winding_down = True
        if not self._said_goodbye and not self._closing:
            self._said_goodbye = True
            self._goodbye(ErrorCodes.NO_ERROR)
        self._look_idle()

    def _goodbye(self, code: int) -> None:
        # By hand: h2 would not send anything after it, and those that run have something to say yet.
        self._flush()
        frame = b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + self._last.to_bytes(4, "big") + code.to_bytes(4, "big")
        self._write(frame)

    def _finish(self) -> None:
        """Close; what was said last still arrives."""
        if self._closing:
            return
        self._closing = True
        if self._hall.ending:
            self._transport.close()
        else:
            with suppress(OSError, RuntimeError, NotImplementedError):
                self._transport.write_eof()
            self._lingering = self._loop.call_later(LINGER, self._transport.abort)
        self._stop_idle()
        for stream in tuple(self._streams.values()):
            self._leave(stream)

    def cut(self) -> None:
        """Close it, and forget what was not read."""
        if not self._lost:
            forget(self._transport)
            self._transport.abort()

    def kill(self) -> None:
        """End what does not end by itself."""
        for stream in tuple(self._streams.values()):
            if stream.task is not None:
                stream.task.cancel()

    def _look_left(self) -> None:
        if self._lost and not self._streams:
            self._hall.left(self)

    # --- idle

    def _look_idle(self) -> None:
        """When nothing goes on, that may be all, or it is waited for more."""
        if self._closing or self._streams:
            return
        if self._winding_down:
            self._flush()
            self._finish()
        elif self._idle is None and self._served:
            self._wait_idle(self._config.keep_alive)

    def _wait_idle(self, seconds: float) -> None:
        self._idle = self._loop.call_later(seconds, self.leave)

    def _stop_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None


# --- What an HTTP/2 peer may ask for that costs it nothing: counted frame by frame, before anything is done about it.
# Pings, settings, resets, empty frames: each is legal, and a flood of them is an attack. They are paid from an allowance that grows
# with time and with what is really exchanged. Header blocks are bounded while they arrive, not when they are whole.

HEAD: Final = 9
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4

BURST: Final = 1000.0
"""What may be asked for at once, and is saved up at the most."""
A_SECOND: Final = 50.0
"""What a second of waiting earns."""
AN_ANSWER: Final = 4.0
"""What a part of an answer that was sent earns: its reader has a word to say on it."""
_COSTS: Final = {SETTINGS: 10.0, PING: 2.0, WINDOW_UPDATE: 1.0, CONTINUATION: 5.0, PRIORITY: 1.0}
_RESET: Final = 5.0
_NOTHING: Final = 5.0
"""For a frame that has nothing in it, and asks for nothing."""


BLOCK_STEPS: Final = 8
"""How many steps a frame with headers counts as: a request is begun with it. All others are one, whatever is in them."""

MAX_FRAME: Final = 16 * 1024
"""How much a frame may hold: asked before it is here, since the library looks when it has all of it, up to 16 MB."""


class Flood(Exception):
    """This peer costs more than it brings. `code` is what HTTP/2 calls it."""

    def __init__(self, what: str, code: int = 0xB) -> None:
        """`what` is for the log; the peer hears that it should calm down, or the code."""
        super().__init__(what)
        self.code = code


class Gate:
    """One connection's. What passes is for the protocol; a peer's goodbye does not, and is noted."""

    def __init__(self, max_header: int, now: float) -> None:
        """`max_header` is how many bytes one header block may have."""
        self.said_goodbye = False
        self.taken = 0
        """How many of the bytes were looked at that were fed last."""
        self._max_header = max_header
        self._allowance = BURST
        self._since = now
        self._preface = len(PREFACE)
        self._head = b""
        self._left: int = 0
        self._passes = True
        self._block = 0

    def feed(self, data: bytes, now: float, steps: float = math.inf) -> bytes:
        """Look at what came, and hand on what is to be dealt with, up to where it has taken so many steps. Raises `Flood`."""
        self._allowance = min(BURST, self._allowance + (now - self._since) * A_SECOND)
        self._since = now
        passed: list[bytes] = []
        at, end = 0, len(data)
        if self._preface:
            at = min(self._preface, end)
            self._preface -= at
            passed.append(data[:at])
        while at < end and (steps > 0 or self._left):
            if self._left:
                upto = min(end, at + self._left)
                self._left -= upto - at
                if self._passes:
                    passed.append(data[at:upto])
                at = upto
                continue
            upto = min(end, at + HEAD - len(self._head))
            self._head += data[at:upto]
            at = upto
            if len(self._head) == HEAD:
                head, self._head = self._head, b""
                self._look(head)
                steps -= BLOCK_STEPS if head[3] in (HEADERS, CONTINUATION) else 1
                if self._passes:
                    passed.append(head)
        self.taken = at
        return b"".join(passed)

    def earn(self, parts: float = 1.0) -> None:
        """So many parts of an answer were sent."""
        self._allowance = min(BURST, self._allowance + parts * AN_ANSWER)

    def spend(self, cost: float, what: str) -> None:
        """Something that costs. Raises `Flood`."""
        self._allowance -= cost
        if self._allowance < 0:
            raise Flood(what)

    def reset(self) -> None:
        """A request was taken back before it was answered. Raises `Flood`."""
        self.spend(_RESET, "too many requests that are taken back")

    def _look(self, head: bytes) -> None:
        self._left = length = int.from_bytes(head[:3], "big")
        kind, flags = head[3], head[4]
        if length > MAX_FRAME:
            raise Flood("a frame that is too large", 0x6)
        # Their goodbye would end everything for the protocol's library, and priorities are not used here.
        self._passes = kind not in (GOAWAY, PRIORITY)
        if kind in (HEADERS, CONTINUATION):
            self._block = length if kind == HEADERS else self._block + length
            if self._block > self._max_header:
                raise Flood("more headers than max_header")
        elif kind == GOAWAY:
            self.said_goodbye = True
        if kind == DATA and not length and not flags & END_STREAM:
            self.spend(_NOTHING, "too many frames with nothing in them")
        elif kind > CONTINUATION:
            self.spend(1.0, "too many frames that nobody knows")
        elif cost := _COSTS.get(kind):
            self.spend(cost, "too many frames that ask for nothing")
