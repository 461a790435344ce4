"""A stretch of network on which things go wrong to order: bytes are cut off, held up, garbled, or trickle.

``async with RoughNet(port) as net`` listens on 127.0.0.1 and passes on to the port that it was given; a client that is sent to `net.port`
meets whatever is ordered. It knows nothing of HTTP or of messages: what it breaks is broken in the middle of anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from typing import TYPE_CHECKING, Final, Self, cast
from urllib.parse import urlsplit, urlunsplit

if TYPE_CHECKING:
    from types import TracebackType

_RESET: Final = struct.pack("ii", 1, 0)
_LOCAL: Final = "127.0.0.1"


class Direction:
    """What happens to the bytes that go one way."""

    def __init__(self) -> None:
        """All goes well."""
        self.passed = 0
        """How many bytes have arrived, over all connections."""
        self._cut_after: int | None = None
        self._garbled = 0

    def cut_after(self, bytes_more: int) -> None:
        """Once so many more have arrived, the connection that brought the last one is cut, in the middle of whatever it says."""
        self._cut_after = self.passed + bytes_more

    def garble(self, bytes_more: int) -> None:
        """The next so many arrive as others."""
        self._garbled = bytes_more

    def clear(self) -> None:
        """All goes well again."""
        self._cut_after, self._garbled = None, 0

    def take(self, data: bytes) -> tuple[bytes, bool]:
        """What arrives of it, and whether the connection ends there."""
        cut = self._cut_after is not None and self.passed + len(data) >= self._cut_after
        if self._cut_after is not None and cut:
            data, self._cut_after = data[: self._cut_after - self.passed], None
        if self._garbled:
            bad = data[: self._garbled]
            self._garbled -= len(bad)
            data = bytes(byte ^ 0x55 for byte in bad) + data[len(bad) :]
        self.passed += len(data)
        return data, cut


class RoughNet:
    """The stretch. `out` is the way to the server, `back` the way to the client."""

    def __init__(self, to: int | str, *, host: str = _LOCAL) -> None:
        """`to` is the server's port, or its URL."""
        self._url = urlsplit(to) if isinstance(to, str) else None
        to_port = to if isinstance(to, int) else urlsplit(to).port
        if to_port is None:
            raise ValueError(f"{to!r} names no port")
        self._target = (host if self._url is None else self._url.hostname or host, to_port)
        self.out = Direction()
        self.back = Direction()
        self.port = 0
        """Where it listens, once it is entered; it stays the same, also while it refuses."""
        self.accepted = 0
        """How many connections have come."""
        self._server: asyncio.Server | None = None
        self._ends: set[_End] = set()
        self._dials: set[asyncio.Task[None]] = set()
        self._stalled = False

    @property
    def url(self) -> str:
        """The server's URL, by way of this."""
        if self._url is None:
            return f"http://{_LOCAL}:{self.port}"
        return urlunsplit(self._url._replace(netloc=f"{_LOCAL}:{self.port}"))

    async def __aenter__(self) -> Self:
        await self.admit()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.refuse()
        self.cut()
        for dial in tuple(self._dials):
            dial.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        while self._ends:  # each is gone when its loop has told it so
            await next(iter(self._ends)).gone

    # --- what goes wrong

    def cut(self) -> None:
        """Every connection is reset, now: what was under way is lost in the middle."""
        for end in tuple(self._ends):
            end.reset()

    def stall(self) -> None:
        """Nothing passes any more, and nobody is told: a cable that was pulled."""
        self._stalled = True
        for end in tuple(self._ends):
            end.hold()

    def resume(self) -> None:
        """Everything that was held up passes."""
        self._stalled = False
        for end in tuple(self._ends):
            end.let_go()

    async def refuse(self) -> None:
        """Nobody listens here any more; connections that are open stay."""
        server, self._server = self._server, None
        if server is not None:
            server.close()

    async def admit(self) -> None:
        """Somebody listens again, on the same port."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(self._meet, _LOCAL, self.port, reuse_address=True)
            self.port = self._server.sockets[0].getsockname()[1]

    # --- connections

    def _meet(self) -> _End:
        self.accepted += 1
        client = _End(self, self.out)
        dial = asyncio.ensure_future(self._dial(client))
        self._dials.add(dial)
        dial.add_done_callback(self._dials.discard)
        return client

    async def _dial(self, client: _End) -> None:
        server = _End(self, self.back)
        server.other, client.other = client, server
        try:
            await asyncio.get_running_loop().create_connection(lambda: server, *self._target)
        except OSError:
            client.reset()

    def arrived(self, end: _End) -> None:
        """A connection is there."""
        self._ends.add(end)
        if self._stalled:
            end.hold()

    def left(self, end: _End) -> None:
        """It is not any more."""
        self._ends.discard(end)


class _End(asyncio.Protocol):
    """One end of a connection. What it reads is the other's to write."""

    def __init__(self, net: RoughNet, way: Direction) -> None:
        self.other: _End | None = None
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._net = net
        self._way = way
        self._transport: asyncio.Transport | None = None
        self._early = bytearray()
        self._ended = False
        self._paused_by: set[str] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = self._transport = cast("asyncio.Transport", transport)  # uvloop's are none by their class
        self._net.arrived(self)
        if self._early:
            transport.write(bytes(self._early))
            self._early.clear()
        if self._ended:
            self.finish()

    def data_received(self, data: bytes) -> None:
        data, cut = self._way.take(data)
        assert self.other is not None
        self.other.write(data)
        if cut:
            self.other.close_then_reset(self)

    def eof_received(self) -> bool:
        if self.other is not None:
            self.other.finish()
        return True  # the other half may still have something to say

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why is nothing to whoever is at the other end
        self._net.left(self)
        if not self.gone.done():
            self.gone.set_result(None)
        if self.other is not None:
            self.other.close()

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.pause("full")

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.go_on("full")

    # --- what the net and the other end do with it

    def write(self, data: bytes) -> None:
        if self._transport is None:
            self._early += data
        else:
            self._transport.write(data)

    def finish(self) -> None:
        """Say no more here; what is still to be read is read."""
        self._ended = True
        if self._transport is not None and self._transport.can_write_eof() and not self._transport.is_closing():
            with contextlib.suppress(OSError):  # it was reset at this very moment
                self._transport.write_eof()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def close_then_reset(self, source: _End) -> None:
        """What was passed on still arrives; then both ends are gone."""
        self.close()
        source.reset()

    def reset(self) -> None:
        transport = self._transport
        if transport is None:
            return
        raw: socket.socket | None = transport.get_extra_info("socket")
        if raw is not None:
            with contextlib.suppress(OSError):  # it is closed already
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()

    def hold(self) -> None:
        self.pause("stalled")

    def let_go(self) -> None:
        self.go_on("stalled")

    def pause(self, why: str) -> None:
        if self._transport is not None and not self._paused_by and not self._transport.is_closing():
            self._transport.pause_reading()
        self._paused_by.add(why)

    def go_on(self, why: str) -> None:
        self._paused_by.discard(why)
        if self._transport is not None and not self._paused_by and not self._transport.is_closing():
            self._transport.resume_reading()
