"""A link: one socket between two nodes, from the handshake to the last frame.

Items posted in one turn of the loop are sent together, except the first, which is written at once, as are replies to data that has just come. What the socket
does not take is kept and written piece by piece, so that a large value delays neither the loop nor heartbeats. The link handles bytes and frames; its `LinkOwner`
handles what they mean.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from .framing import GREETING_LIMIT, LARGEST, PIECE, Handshake, LinkRefused, Unframer, batch, framed, frames

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .framing import Greeting

HANDSHAKE_SECONDS: Final = 5.0
LINGER_SECONDS: Final = 1.0
"""How long a closed link may take to write what was posted before."""
_HIGH_WATER: Final = 512 * 1024


class LinkOwner(Protocol):
    """The owner of a link, which the link calls."""

    def greet(self) -> tuple[bytes, Greeting]:
        """The key, and this end's greeting."""
        ...

    def on_handshake(self, link: Link, peer: Greeting) -> str | None:
        """The handshake is done. Returns why the other end is refused, or None."""
        ...

    def on_payload(self, link: Link, payload: bytes) -> None:
        """A whole payload has arrived."""

    def on_lost(self, link: Link, why: str) -> None:
        """The link is over, whether the handshake was done or not."""


class Link(asyncio.Protocol):
    """One end of a link."""

    def __init__(self, owner: LinkOwner, *, dialling: bool, largest: int = LARGEST) -> None:
        """The listening end waits for the dialling end to begin. `largest` bounds one payload of the other end."""
        self._largest = largest
        self._owner = owner
        self.dialling = dialling
        key, mine = owner.greet()
        self._handshake = Handshake(key, mine, dialling=dialling)
        self._transport: asyncio.Transport | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._unframer: Unframer | None = None
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._frames: deque[Iterator[bytes]] = deque()
        self._flushing = False  # whether a flush is scheduled, or runs at the end of this callback
        self._paused = False
        self._closing = False
        self.why = ""
        """Why it is over, once it is."""
        self._accepted = not dialling
        self.arrived: asyncio.Future[str] | None = None
        self.on_greeting: Callable[[Link, Greeting], str | None] | None = None
        """Called at the dialling end when the peer is known, before this end proves itself. Returns why not to go on, or None."""
        self.offence: str | None = None
        """A received frame that no node with the key would send."""
        self.up = False
        self.over = False
        self.waiting = 0
        """Bytes that were posted and are not written yet."""
        self.last_heard = self._loop.time()
        self.last_sent = self.last_heard

    def __repr__(self) -> str:
        peer = self._handshake.peer
        return f"<Link to {peer.name if peer else 'an unknown peer'}{', up' if self.up else ''}>"

    @property
    def peer(self) -> Greeting | None:
        """The other end's greeting; proved once the link is up."""
        return self._handshake.peer

    def arrive(self, name: str) -> None:
        """Tell the waiting dialler that the link is up."""
        if self.arrived is not None and not self.arrived.done():
            self.arrived.set_result(name)

    def fail(self, why: str) -> None:
        """Tell the waiting dialler that it failed."""
        if self.arrived is not None and not self.arrived.done():
            self.arrived.set_exception(LinkRefused(why))
            self.arrived.exception()

    # --- the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, which has a deadline."""
        transport = self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are no subclass
        if self.over:
            transport.abort()
            return
        transport.set_write_buffer_limits(high=_HIGH_WATER)
        if (stranger := _other_user(transport)) is not None:
            self.offence = f"it belongs to another user ({stranger})"
            self.end(self.offence)
            return
        late = f"it did not shake hands within {HANDSHAKE_SECONDS:g} s"
        self._alarm = self._loop.call_later(HANDSHAKE_SECONDS, self.end, late)
        if self.dialling:
            transport.write(framed(self._handshake.first()))

    def data_received(self, data: bytes) -> None:
        """Handle received bytes; the first are the handshake's."""
        if self.over:
            return
        self.last_heard = self._loop.time()
        # replies made while this is handled are sent at its end, and not in the loop's next turn
        before, self._flushing = self._flushing, True
        try:
            if self._unframer is None:
                data = self._handshake_data(data)
            self._read(data)
        except LinkRefused as error:
            self.offence = str(error)
            self.end(self.offence)
        finally:
            self._flushing = before
        if self._out:
            self.flush()
            self._flushing = self._flushing or before

    def _read(self, data: bytes) -> None:
        if self._unframer is None:
            return
        for payload in self._unframer.feed(data):
            if self._accepted:
                self._owner.on_payload(self, payload)
            else:
                self._on_verdict(payload)
            if self.over:
                return

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed. If that was noticed by a failed write, data that the other end has sent before may still be unread: read it."""
        if exc is not None and self.up and not self.over:
            self._read_rest()
        self._alarm_off()
        self._finish(self.why or (f"the connection broke: {exc}" if exc else "the other end closed it"))

    def _read_rest(self) -> None:
        sock: Any = None if self._transport is None else self._transport.get_extra_info("socket")
        try:
            while not self.over and (data := os.read(sock.fileno(), PIECE)):
                self.data_received(data)
        except OSError:
            return  # nothing is left

    def pause_writing(self) -> None:
        """Called by the transport when its buffer is full."""
        self._paused = True

    def resume_writing(self) -> None:
        """Called by the transport when there is room again."""
        self._paused = False
        self.flush()

    # --- the handshake

    def _handshake_data(self, data: bytes) -> bytes:
        """Continue the handshake; returns the bytes that follow its end."""
        assert self._transport is not None
        handshake = self._handshake
        for answer in handshake.feed(data):
            assert handshake.peer is not None
            refusal = None if self.on_greeting is None else self.on_greeting(self, handshake.peer)
            if refusal is not None:
                self.end(refusal)
                return b""
            self._transport.write(answer)
        if handshake.done:
            self._seal, back = handshake.seals()
            self._unframer = Unframer(back, self._largest)
            if not self.dialling:
                self._accept_or_refuse()
        return bytes(handshake.rest)

    def _accept_or_refuse(self) -> None:
        """The listening end decides: its first frame is empty, or says why it refuses."""
        assert self._handshake.peer is not None
        refusal = self._owner.on_handshake(self, self._handshake.peer)
        self._write(next(frames(b"" if refusal is None else refusal.encode()[:GREETING_LIMIT], self._seal)))
        self._begin(refusal)

    def _on_verdict(self, payload: bytes) -> None:
        if payload:
            self.end(f"refused by the other end: {payload.decode(errors='replace')}")
            return
        assert self._handshake.peer is not None
        self._accepted = True
        self._begin(self._owner.on_handshake(self, self._handshake.peer))

    def _begin(self, refusal: str | None) -> None:
        if refusal is not None:
            self.end(refusal)
            return
        self._alarm_off()
        self.up = True
        self.flush()

    # --- out

    def post(self, item: bytes) -> None:
        """Send an encoded item, after all that were posted before."""
        self._out.append(item)
        self._out_bytes += len(item)
        self.waiting += len(item)
        if not self._flushing and self.up:
            # The first item of a turn is written at once: a lone call would wait a turn of the loop otherwise. Further items of the turn are sent together.
            self.flush()
            self._flush_soon()

    def _flush_soon(self) -> None:
        if not self._flushing and not self.over:
            self._flushing = True
            self._loop.call_soon(self.flush)

    def drained(self) -> bool:
        """Write what was posted; True when the system has taken all of it, so that it arrives even if this process dies now."""
        self.flush()
        transport = self._transport
        return not (self._out or self._frames) and transport is not None and not transport.get_write_buffer_size()

    def flush(self) -> None:
        """Send what was posted so far as a payload of its own: the other end may bound the items of one."""
        self._flushing = False
        if self.over or not self.up:
            return
        if self._out:
            for payload in self._payloads():
                self._frames.append(frames(payload, self._seal))
        self._write_frames()
        if self._closing and not self._frames and self._transport is not None:
            self._transport.close()

    def _payloads(self) -> Iterator[bytes]:
        """The posted items in as few payloads as possible. A payload is encoded and decoded in one go, so it exceeds `PIECE` only when a single item does."""
        out, size = self._out, self._out_bytes
        self._out, self._out_bytes = [], 0
        if size <= PIECE:
            yield batch(out)
            return
        group: list[bytes] = []
        size = 0
        for item in out:
            if group and size + len(item) > PIECE:
                yield batch(group)
                group, size = [], 0
            group.append(item)
            size += len(item)
        yield batch(group)

    def _write_frames(self) -> None:
        room = PIECE  # what may be written in this turn of the loop
        while self._frames and not self._paused:
            if room <= 0:
                self._flush_soon()
                return
            frame = next(self._frames[0], None)
            if frame is None:
                self._frames.popleft()
                continue
            self._write(frame)
            room -= len(frame)
            self.waiting = max(0, self.waiting - len(frame))
        if not self._frames:
            self.waiting = 0

    def _write(self, frame: bytes) -> None:
        assert self._transport is not None
        self.last_sent = self._loop.time()
        self._transport.write(frame)

    # --- the end

    def close(self) -> None:
        """Write what was posted, then close; after `LINGER_SECONDS` at the latest."""
        self._closing = True
        self.why = self.why or "closed"
        if not self.up:
            self.end(self.why)
        elif self._transport is not None:
            self._alarm = self._alarm or self._loop.call_later(LINGER_SECONDS, self._transport.abort)
            self.flush()

    def end(self, why: str) -> None:
        """Close at once."""
        self.why = self.why or why
        self._alarm_off()
        if self._transport is not None:
            if self.up:
                self._transport.abort()
            else:
                # At most a refusal was written, which fits into the socket's buffer. A peer that does not read is not waited for.
                self._transport.close()
                self._alarm = self._loop.call_later(LINGER_SECONDS, self._transport.abort)
        self._finish(self.why)

    def _alarm_off(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _finish(self, why: str) -> None:
        if self.over:
            return
        self.over, self.up = True, False
        self._out, self._out_bytes, self.waiting = [], 0, 0
        self._frames.clear()
        self._owner.on_lost(self, why)


def _other_user(transport: asyncio.Transport) -> str | None:
    """The user and process at the other end of a unix socket, unless it is this user, or root."""
    sock: Any = transport.get_extra_info("socket")
    if sock.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return None
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return None if uid in (0, os.geteuid()) else f"user {uid}, process {pid}"
