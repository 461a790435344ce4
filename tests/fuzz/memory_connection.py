"""A connection in memory: passes bytes to a protocol and collects its output, without a socket."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Socket:
    """The parts of a socket that a connection reads."""

    family = socket.AF_INET

    def getpeername(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 9090

    def fileno(self) -> int:
        return 3

    def getsockopt(self, *_: Any) -> int:
        return 0

    def setsockopt(self, *_: Any) -> None:
        """Ignore options."""


class _Transport(asyncio.Transport):
    """Collects written bytes."""

    def __init__(self) -> None:
        raw = _Socket()
        super().__init__({"socket": raw, "peername": raw.getpeername(), "sockname": raw.getsockname()})
        self.written = bytearray()
        self.protocol: Any = None
        self.closed = False
        self.paused = False
        self.over = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.over:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not self.closed:
            self.written += data

    def write_eof(self) -> None:
        self.over = True

    def can_write_eof(self) -> bool:
        return True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Return no buffer size."""

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def is_reading(self) -> bool:
        return not self.paused

    def close(self) -> None:
        self.break_off(None)

    abort = close

    def break_off(self, error: Exception | None) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, error)


class Wire:
    """The peer's end of a connection to a protocol."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        """Connect."""
        self._protocol = protocol
        self.transport = _Transport()
        self.transport.protocol = protocol
        protocol.connection_made(self.transport)

    async def send(self, pieces: Iterable[bytes]) -> None:
        """Send pieces, with a turn of the loop between them."""
        for piece in pieces:
            while self.transport.paused and not self.transport.closed:  # noqa: ASYNC110 - as below
                await asyncio.sleep(0.1)
            if self.transport.closed:
                return
            asyncio.get_running_loop().call_soon(self._protocol.data_received, piece)  # the transport's method
            await asyncio.sleep(0)

    def hang_up(self) -> None:
        """Send EOF."""
        if not self.transport.closed and not self._protocol.eof_received():
            self.transport.close()

    def lose(self) -> None:
        """Drop the connection."""
        self.transport.break_off(ConnectionResetError())

    async def ended(self, within: float) -> bool:
        """Wait until the other end has closed."""
        try:
            async with asyncio.timeout(within):
                while not self.transport.closed:  # noqa: ASYNC110 - the clock is virtual, and there is no event
                    await asyncio.sleep(0.1)
        except TimeoutError:
            return False
        return True

    @property
    def heard(self) -> bytes:
        """All received bytes."""
        return bytes(self.transport.written)


@dataclass
class Answer:
    """One strictly parsed response."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool
    """Whether it is complete."""


def answers(data: bytes, *, heads: bool = False) -> list[Answer]:
    """Parse all responses in a stream. Raises AssertionError for malformed ones.

    `heads` says that some may be answers to HEAD, which have no body whatever their length says.
    """
    found: list[Answer] = []
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        assert end, head
        first, *lines = head.split(b"\r\n")
        version, status, _ = first.split(b" ", 2)
        assert version == b"HTTP/1.1"
        headers: dict[str, str] = {}
        for line in lines:
            name, colon, value = line.decode("latin-1").partition(": ")
            assert colon
            assert name.lower() not in headers, name
            assert value.isprintable(), value
            headers[name.lower()] = value
        answer = Answer(int(status), headers, b"", True)
        found.append(answer)
        if headers.get("transfer-encoding") == "chunked":
            data = _chunks(answer, data)
        elif answer.status not in (100, 204) and not (heads and data.startswith((b"", b"HTTP/1.1 ")[bool(data)])):
            if "content-length" not in headers and headers.get("connection") == "close":
                answer.body, answer.whole = (
                    data,
                    False,
                )  # an HTTP/1.0 body ends with the connection, so its completeness is unknown
                break
            size = int(headers["content-length"])
            answer.body, data = data[:size], data[size:]
            answer.whole = len(answer.body) == size
    return found


def _chunks(answer: Answer, data: bytes) -> bytes:
    while data:
        line, _, data = data.partition(b"\r\n")
        size = int(line, 16)
        answer.body += data[:size]
        assert data[size : size + 2] == b"\r\n"
        data = data[size + 2 :]
        if size == 0:
            return data
    answer.whole = False
    return data
