"""HTTP/2 connections, by way of the library h2, which only this module imports.

h2 implements the protocol and does no I/O; flow control and scheduling are decided here. The rule: no stream ever holds up another. The
connection's window is replenished at once, a stream's window as its own application reads. A peer that stalls a stream loses that stream; a
peer that reads nothing at all loses the connection. A connection ends by GOAWAY: no new requests, and running ones are answered first.
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

from .http2_stream import Http2Stream, InvalidPseudoHeaders, StreamGone, http_date, scope_of
from .open_connections import discard_unsent, set_socket_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .open_connections import OpenConnections

log: Final = logging.getLogger("greenroom.http")

STREAM_WINDOW: Final = 64 * 1024 - 1
"""How many unread bytes of one request body are accepted: a stream's flow-control window."""
CONNECTION_WINDOW: Final = 1024 * 1024
"""The connection's flow-control window, which is replenished at once."""
STEPS_PER_TURN: Final = 32
"""How many parser steps a connection gets in one turn of the loop, one for a frame: about a millisecond, whatever is in them."""
UNREAD_LIMIT: Final = 64 * 1024
"""How many unparsed bytes are buffered before reading pauses."""
UNSENT_LIMIT: Final = 1024 * 1024
"""Unsent bytes after which a peer is cut that does not read: replies to frames that cost it nothing, such as pings, would pile up."""
LINGER: Final = 2.0
"""Seconds for which a closed connection still reads: unread input would reset it, and the last frames would be lost."""
ENCODER_TABLE: Final = 4096
"""The largest HPACK table for response headers, however large a table the peer offers to keep."""


class Http2Connection(asyncio.Protocol):
    """One HTTP/2 connection."""

    def __init__(self, connections: OpenConnections) -> None:
        self._connections = connections
        self._config = connections.config
        self._loop = connections.loop
        self._transport: Any = None
        self._writable = asyncio.Event()  # set while the kernel has accepted everything
        self._writable.set()
        self._closing = False  # nothing more is sent
        self._write_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._unread = b""
        self._continuation: asyncio.Handle | None = None
        self._reading = True
        self._h2 = H2Connection(
            H2Configuration(
                client_side=False,
                header_encoding=None,
                validate_outbound_headers=False,  # our own headers are valid
                normalize_outbound_headers=False,
            )
        )
        self._flood_guard = Http2FloodGuard(connections.config.max_header, self._loop.time())
        self._streams: dict[int, Http2Stream] = {}
        self._last_stream_id = 0
        self._served = 0
        self._window_owed = 0
        self._winding_down = False
        self._goaway_sent = False
        self._lost = False
        self._flushing = False
        self._idle_timer: asyncio.TimerHandle | None = None
        self._addresses: tuple[Any, Any] = (None, None)

    # --- callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send our settings and the connection window."""
        self._connections.add(self, transport)
        self._transport = transport
        self._transport.set_write_buffer_limits(
            high=0
        )  # so that a peer that does not read is noticed at the first byte that waits
        set_socket_options(transport, self._config)
        with suppress(TypeError):
            there, here = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
            self._addresses = tuple(there[:2]), tuple(here[:2])
        h2 = self._h2
        h2.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.ENABLE_PUSH: 0,
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                SettingCodes.MAX_FRAME_SIZE: MAX_FRAME,
                SettingCodes.MAX_HEADER_LIST_SIZE: self._config.max_header,
            },
        )
        h2.decoder.max_header_list_size = self._config.max_header
        h2.initiate_connection()
        # Sent separately: h2 would enforce the first settings on the peer before the peer can have received them.
        h2.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: self._config.max_streams})
        h2.increment_flow_control_window(CONNECTION_WINDOW - 65_535)
        self._flush()
        self._start_idle_timer(self._config.header_timeout)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._unread += data
        if self._continuation is None:
            self._process_input()
        self._update_reading()

    def _update_reading(self) -> None:
        """Resume or pause reading, by how much is buffered."""
        reading = len(self._unread) <= UNREAD_LIMIT
        if reading is not self._reading and not self._transport.is_closing():
            self._reading = reading
            if reading:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _continue_input(self) -> None:
        self._continuation = None
        if not self._closing:
            self._process_input()
        self._update_reading()

    def _process_input(self) -> None:
        """Parse the buffered input, up to the limit of steps for one turn."""
        data, self._unread = self._unread, b""
        try:
            passed = self._flood_guard.feed(data, self._loop.time(), STEPS_PER_TURN)
            for event in self._h2.receive_data(passed):
                self._on_event(event)
        except FloodDetected as flood:
            log.info("a connection is closed: %s", flood)
            self._send_goaway(flood.code)
            self._finish()
            return
        except ProtocolError as error:  # h2 has queued the error frame already
            log.debug("a connection broke HTTP/2: %s", error)
            self._flush()
            self._finish()
            return
        self._replenish_window()
        self._flush()
        if self._flood_guard.goaway_received:
            self._winding_down = True
        if self._flood_guard.taken < len(data):
            self._unread = data[self._flood_guard.taken :]
            self._continuation = self._loop.call_soon(self._continue_input)
        self._check_idle()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - however it was
        self._lost = True
        self._closing = True
        self._stop_idle_timer()
        self._stop_write_timer()
        if self._linger_timer is not None:
            self._linger_timer.cancel()
        self._writable.set()
        for stream in tuple(self._streams.values()):
            self._drop_stream(stream)
        self._check_removed()

    def pause_writing(self) -> None:
        """The kernel accepts no more for now. A peer that reads nothing until the write timeout is cut."""
        self._writable.clear()
        self._start_write_timer()

    def resume_writing(self) -> None:
        self._stop_write_timer()
        self._writable.set()

    def _start_write_timer(self) -> None:
        self._stop_write_timer()
        left = self._transport.get_write_buffer_size()
        self._write_timer = self._loop.call_later(self._config.write_timeout, self._check_write_progress, left)

    def _check_write_progress(self, left: int) -> None:
        if self._transport.get_write_buffer_size() < left:
            self._start_write_timer()
        else:
            log.info("a peer has read nothing for %g seconds: its connection is cut", self._config.write_timeout)
            self.cut()

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    # --- events of h2

    def _on_event(self, event: Any) -> None:
        match event:
            case RequestReceived():
                self._on_request(event)
            case DataReceived():
                self._on_data(event)
            case StreamEnded():
                if stream := self._streams.get(event.stream_id):
                    stream.feed_end()
                    self._release_stream(stream)
            case StreamReset():
                if stream := self._streams.get(event.stream_id):
                    if not stream.is_answered:
                        self._flood_guard.reset()
                    self._drop_stream(stream)
            case WindowUpdated():
                self._on_window(event.stream_id)
            case RemoteSettingsChanged():
                self._h2.encoder.header_table_size = min(self._h2.encoder.header_table_size, ENCODER_TABLE)
                self._on_window(0)
            case _:
                pass  # no action is needed, or h2 has taken it

    def _on_request(self, event: RequestReceived) -> None:
        id = event.stream_id
        assert id is not None
        assert event.headers is not None
        if self._goaway_sent or len(self._streams) >= self._config.max_streams:
            self._flood_guard.spend(1.0, "too many requests at once")
            with suppress(ProtocolError):  # the peer has reset it already
                self._h2.reset_stream(
                    id, ErrorCodes.REFUSED_STREAM
                )  # REFUSED_STREAM tells the peer that nothing was done
            return
        self._last_stream_id = max(self._last_stream_id, id)
        self._served += 1
        self._stop_idle_timer()
        try:
            scope = scope_of(event.headers, *self._addresses)
        except InvalidPseudoHeaders:
            with suppress(ProtocolError):
                self._h2.send_headers(id, [(b":status", b"400"), (b"content-length", b"0")], end_stream=True)
                self._h2.reset_stream(id, ErrorCodes.NO_ERROR)
            return
        stream = self._streams[id] = Http2Stream(self, id, scope["method"])
        stream.begin(self._connections.app, scope)
        if self._served >= self._config.keep_alive_requests:
            self.close_when_idle()

    def _on_data(self, event: DataReceived) -> None:
        assert event.stream_id is not None
        assert event.data is not None
        size = event.flow_controlled_length or 0
        self._window_owed += size
        stream = self._streams.get(event.stream_id)
        if stream is None:
            return
        kept = len(event.data) if stream.feed(event.data) else 0
        self.consumed(stream, size - kept)  # padding, or data that came too late to be read

    def _replenish_window(self) -> None:
        """Replenish the connection's window; it is shared by all streams, so it never waits for an application that does not read."""
        if self._window_owed >= CONNECTION_WINDOW // 4:
            owed, self._window_owed = self._window_owed, 0
            self._h2.increment_flow_control_window(owed)

    def _on_window(self, id: int | None) -> None:
        if id:
            if stream := self._streams.get(id):
                stream.window_opened.set()
        else:
            for stream in self._streams.values():
                stream.window_opened.set()

    # --- called by streams

    def send_head(self, stream: Http2Stream, headers: Sequence[tuple[bytes, bytes]], *, end: bool) -> None:
        """Send the status and headers."""
        self._check(stream)
        self._h2.send_headers(stream.id, [*headers, (b"date", http_date())], end_stream=end)
        self._flood_guard.earn()
        self._flush_soon()

    async def send_body(self, stream: Http2Stream, data: bytes, *, end: bool) -> None:
        """Send data within the peer's flow-control windows. Raises `StreamGone`."""
        h2, at, size = self._h2, 0, len(data)
        while True:
            await self._writable.wait()
            self._check(stream)
            room = min(size - at, h2.local_flow_control_window(stream.id), MAX_FRAME, h2.max_outbound_frame_size)
            if room <= 0 < size - at:
                await self._wait_window(stream)
                continue
            last = at + room >= size
            h2.send_data(stream.id, data[at : at + room], end_stream=end and last)
            self._flood_guard.earn()
            at += room
            if last:
                self._flush_soon()
                return
            self._flush()

    async def _wait_window(self, stream: Http2Stream) -> None:
        """Wait until the peer opens the window, at most for the write timeout."""
        self._flush()
        stream.window_opened.clear()
        try:
            async with asyncio.timeout(self._config.write_timeout):
                await stream.window_opened.wait()
        except TimeoutError:
            if self._lost or stream.gone:
                raise StreamGone from None
            if self._h2.outbound_flow_control_window <= 0:
                log.info(
                    "a peer has opened no window for %g seconds: its connection is cut", self._config.write_timeout
                )
                self.cut()
            else:
                log.info("a stream was not read for %g seconds: it is reset", self._config.write_timeout)
                self._reset(stream, ErrorCodes.CANCEL)
                self._drop_stream(stream)
            raise StreamGone("the peer does not read this stream") from None

    def consumed(self, stream: Http2Stream, size: int) -> None:
        """Replenish the stream's window by the bytes that its application has read."""
        if size > 0 and not stream.body_complete and not stream.gone and not self._closing:
            with suppress(ProtocolError):
                self._h2.increment_flow_control_window(size, stream.id)
                self._flush_soon()

    def on_application_done(self, stream: Http2Stream) -> None:
        """The application has returned. The rest of the request body is accepted a little longer, so that the response is not cut off."""
        if not stream.gone and not stream.is_answered:
            self._reset(stream, ErrorCodes.INTERNAL_ERROR)
            self._drop_stream(stream)
        elif not stream.gone and not stream.body_complete:
            self._loop.call_later(LINGER, self._reset_unfinished, stream)
        stream.task = None
        self._release_stream(stream)
        self._check_idle()

    def _reset_unfinished(self, stream: Http2Stream) -> None:
        if not stream.gone and not stream.body_complete:
            self._reset(stream, ErrorCodes.NO_ERROR)
            self._drop_stream(stream)
            self._check_idle()

    def _reset(self, stream: Http2Stream, code: ErrorCodes) -> None:
        if not self._closing:
            with suppress(ProtocolError):
                self._h2.reset_stream(stream.id, code)
                self._flush()

    def _drop_stream(self, stream: Http2Stream) -> None:
        stream.disconnect()
        self._release_stream(stream)

    def _release_stream(self, stream: Http2Stream) -> None:
        """Forget a stream once its application has returned and nothing more can arrive.

        Until then it counts towards the limit, so a peer gains nothing by resetting requests.
        """
        if stream.task is None and (stream.gone or (stream.body_complete and stream.is_answered)):
            self._streams.pop(stream.id, None)
            self._check_removed()

    def _check(self, stream: Http2Stream) -> None:
        if stream.gone or self._closing:
            raise StreamGone("the peer has left this stream")

    # --- output

    def _flush_soon(self) -> None:
        """Flush once at the end of this turn of the loop, together with the frames of other streams."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self._write(self._h2.data_to_send())

    def _write(self, data: bytes) -> None:
        """Write bytes, unless the connection is closing."""
        if data and not self._closing and not self._transport.is_closing():
            self._transport.write(data)
            if self._transport.get_write_buffer_size() > UNSENT_LIMIT:
                log.info("a peer sends frames and does not read the replies to them: its connection is cut")
                self.cut()

    # --- the end

    def close_when_idle(self) -> None:
        """Accept no more requests, and close when the running ones are answered."""
        self._winding_down = True
        if not self._goaway_sent and not self._closing:
            self._goaway_sent = True
            self._send_goaway(ErrorCodes.NO_ERROR)
        self._check_idle()

    def _send_goaway(self, code: int) -> None:
        # GOAWAY is encoded by hand: h2 refuses to send anything after its own, and running requests still have to be answered.
        self._flush()
        frame = (
            b"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + self._last_stream_id.to_bytes(4, "big") + code.to_bytes(4, "big")
        )
        self._write(frame)

    def _finish(self) -> None:
        """Close; frames sent before still arrive."""
        if self._closing:
            return
        self._closing = True
        if self._connections.ending:
            self._transport.close()
        else:
            with suppress(OSError, RuntimeError, NotImplementedError):
                self._transport.write_eof()
            self._linger_timer = self._loop.call_later(LINGER, self._transport.abort)
        self._stop_idle_timer()
        for stream in tuple(self._streams.values()):
            self._drop_stream(stream)

    def cut(self) -> None:
        """Close now, and drop unsent data."""
        if not self._lost:
            discard_unsent(self._transport)
            self._transport.abort()

    def cancel_tasks(self) -> None:
        """Cancel the tasks of streams that do not end by themselves."""
        for stream in tuple(self._streams.values()):
            if stream.task is not None:
                stream.task.cancel()

    def _check_removed(self) -> None:
        if self._lost and not self._streams:
            self._connections.remove(self)

    # --- idle timeout

    def _check_idle(self) -> None:
        """When no stream is open: close if winding down, otherwise start the idle timer."""
        if self._closing or self._streams:
            return
        if self._winding_down:
            self._flush()
            self._finish()
        elif self._idle_timer is None and self._served:
            self._start_idle_timer(self._config.keep_alive)

    def _start_idle_timer(self, seconds: float) -> None:
        self._idle_timer = self._loop.call_later(seconds, self.close_when_idle)

    def _stop_idle_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None


# --- Flood guard: frames that cost a peer nothing are counted before h2 sees them.
# Pings, settings, resets and empty frames are legal, and a flood of them is an attack. They are paid from an allowance (a token bucket)
# that grows with time and with response frames sent. Header blocks are bounded while they arrive, not when they are complete. It reads
# frame headers itself because h2 buffers and processes all frames of one call, and limits a frame only when all of it is there.

FRAME_HEADER: Final = 9
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 7, 8, 9
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4

BURST: Final = 1000.0
"""The size of the allowance, which is also the most that can be saved up."""
EARNED_PER_SECOND: Final = 50.0
"""How much of the allowance returns each second."""
EARNED_PER_FRAME_SENT: Final = 4.0
"""How much a response frame returns: its reader may update windows for it."""
_COSTS: Final = {SETTINGS: 10.0, PING: 2.0, WINDOW_UPDATE: 1.0, CONTINUATION: 5.0, PRIORITY: 1.0}
_RESET_COST: Final = 5.0
_EMPTY_FRAME_COST: Final = 5.0
"""The cost of a frame that is empty and ends nothing."""


HEADER_FRAME_STEPS: Final = 8
"""How many steps a frame with headers counts as, since it starts a request; any other frame is one step."""

MAX_FRAME: Final = 16 * 1024
"""The largest frame. Checked by its header, since h2 checks only when the whole frame is buffered, which may be 16 MB."""


class FloodDetected(Exception):
    """The peer sends too many frames that cost it nothing. `code` is the HTTP/2 error code."""

    def __init__(self, what: str, code: int = 0xB) -> None:
        """`what` is for the log; the peer gets the code (ENHANCE_YOUR_CALM by default)."""
        super().__init__(what)
        self.code = code


class Http2FloodGuard:
    """The flood guard of one connection: a filter in front of h2. It withholds the peer's GOAWAY and notes it."""

    def __init__(self, max_header: int, now: float) -> None:
        """`max_header` is the largest header block, in bytes."""
        self.goaway_received = False
        self.taken = 0
        """How many of the bytes fed last were examined."""
        self._max_header = max_header
        self._allowance = BURST
        self._since = now
        self._preface = len(PREFACE)
        self._head = b""
        self._left: int = 0
        self._forwards = True
        self._block = 0

    def feed(self, data: bytes, now: float, steps: float = math.inf) -> bytes:
        """Check input and return what h2 is to process, up to that many steps. Raises `FloodDetected`."""
        self._allowance = min(BURST, self._allowance + (now - self._since) * EARNED_PER_SECOND)
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
                if self._forwards:
                    passed.append(data[at:upto])
                at = upto
                continue
            upto = min(end, at + FRAME_HEADER - len(self._head))
            self._head += data[at:upto]
            at = upto
            if len(self._head) == FRAME_HEADER:
                head, self._head = self._head, b""
                self._on_frame_header(head)
                steps -= HEADER_FRAME_STEPS if head[3] in (HEADERS, CONTINUATION) else 1
                if self._forwards:
                    passed.append(head)
        self.taken = at
        return b"".join(passed)

    def earn(self, parts: float = 1.0) -> None:
        """Add to the allowance for response frames sent."""
        self._allowance = min(BURST, self._allowance + parts * EARNED_PER_FRAME_SENT)

    def spend(self, cost: float, what: str) -> None:
        """Take from the allowance. Raises `FloodDetected`."""
        self._allowance -= cost
        if self._allowance < 0:
            raise FloodDetected(what)

    def reset(self) -> None:
        """Charge for a request that the peer reset before it was answered. Raises `FloodDetected`."""
        self.spend(_RESET_COST, "too many requests reset before their response")

    def _on_frame_header(self, head: bytes) -> None:
        self._left = length = int.from_bytes(head[:3], "big")
        kind, flags = head[3], head[4]
        if length > MAX_FRAME:
            raise FloodDetected("a frame over the size limit", 0x6)
        # h2 would end the connection at once on GOAWAY, though running requests can still be answered; priorities are not used.
        self._forwards = kind not in (GOAWAY, PRIORITY)
        if kind in (HEADERS, CONTINUATION):
            self._block = length if kind == HEADERS else self._block + length
            if self._block > self._max_header:
                raise FloodDetected("a header block over max_header")
        elif kind == GOAWAY:
            self.goaway_received = True
        if kind == DATA and not length and not flags & END_STREAM:
            self.spend(_EMPTY_FRAME_COST, "too many empty frames")
        elif kind > CONTINUATION:
            self.spend(1.0, "too many frames of unknown types")
        elif cost := _COSTS.get(kind):
            self.spend(cost, "too many frames that carry no request or data")
