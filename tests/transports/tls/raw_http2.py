"""HTTP/2 by hand: a client that sends exactly the frames it is told to, in any order, and reads strictly.

It continues where a library would stop: it reads on after GOAWAY, and may do everything that HTTP/2 forbids.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hpack import Decoder, Encoder
from tests.transports.http.engine_driver import BOTH, HELLO

from greenroom.transports.http2_connection import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable

ACK = 0x1
WINDOW = 65_535


@dataclass
class Http2Response:
    """What has arrived on one stream."""

    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers[":status"])

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Http2Client:
    """One HTTP/2 connection."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, settings: dict[int, int] | None = None
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.answers: dict[int, Http2Response] = {}
        self.settings: dict[int, int] = {}
        self.goodbye: tuple[int, int] | None = None
        """The last stream id and the code of the server's GOAWAY."""
        self.pongs = 0
        self.windows: dict[int, int] = {}
        """How much more the server accepts, by stream; 0 is the connection."""
        self.over = False
        self.gives = True
        """Whether windows are replenished when something was read."""
        self._encoder = Encoder()
        self._decoder = Decoder()
        self._decoder.max_allowed_table_size = (settings or {}).get(1, 4096)
        self._next = -1

    @classmethod
    async def to(cls, port: int, context: ssl.SSLContext, *, settings: dict[int, int] | None = None) -> Http2Client:
        frames = cls(*await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 22), settings)
        frames.writer.write(PREFACE)
        said = b"".join(key.to_bytes(2, "big") + value.to_bytes(4, "big") for key, value in (settings or {}).items())
        frames.send(SETTINGS, 0, 0, said)
        await frames.until(lambda: 3 in frames.settings)
        return frames

    # --- output

    def send(self, kind: int, flags: int, stream: int, payload: bytes = b"") -> None:
        self.writer.write(bytes(frame_header(kind, flags, stream, len(payload))) + payload)

    def block(self, method: str = "GET", path: str = "/mcp", **headers: str) -> bytes:
        """Encoded headers; an underscore is a dash."""
        said = {":method": method, ":scheme": "https", ":authority": "127.0.0.1", ":path": path, "accept": BOTH}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        return bytes(self._encoder.encode(list(said.items())))

    def open(self) -> int:
        self._next += 2
        self.answers[self._next] = Http2Response()
        return self._next

    def begin(self, method: str = "POST", path: str = "/mcp", *, end: bool = False, **headers: str) -> int:
        """A request with or without a body that follows."""
        stream = self.open()
        self.send(HEADERS, END_HEADERS | (END_STREAM if end else 0), stream, self.block(method, path, **headers))
        return stream

    def data(self, stream: int, data: bytes, *, end: bool = False) -> None:
        self.send(DATA, END_STREAM if end else 0, stream, data)

    def post(self, body: bytes, path: str = "/mcp", **headers: str) -> int:
        stream = self.begin("POST", path, end=False, content_type="application/json", **headers)
        self.data(stream, body, end=True)
        return stream

    def call(self, method: str, id: Any = 1, session: str = "s1", **params: Any) -> int:
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return self.post(json.dumps(message).encode(), mcp_session_id=session)

    def listen(self, session: str = "s1") -> int:
        return self.begin("GET", end=True, accept="text/event-stream", mcp_session_id=session)

    def reset(self, stream: int) -> None:
        self.send(RST_STREAM, 0, stream, (8).to_bytes(4, "big"))

    def give(self, stream: int, size: int) -> None:
        self.send(WINDOW_UPDATE, 0, stream, size.to_bytes(4, "big"))

    # --- input

    async def next(self) -> None:
        """Read one frame."""
        try:
            front = await self.reader.readexactly(9)
            payload = await self.reader.readexactly(int.from_bytes(front[:3], "big"))
        except (asyncio.IncompleteReadError, OSError):
            self.over = True
            return
        kind, flags, stream = front[3], front[4], int.from_bytes(front[5:], "big")
        answer = self.answers.get(stream, Http2Response())
        if kind in (HEADERS, CONTINUATION):
            assert flags & END_HEADERS
            answer.headers = {str(name): str(value) for name, value in self._decoder.decode(payload)}
        elif kind == DATA:
            answer.body += payload
            if self.gives and payload:
                self.give(0, len(payload))
                if not flags & END_STREAM:
                    self.give(stream, len(payload))
        elif kind == RST_STREAM:
            answer.reset = int.from_bytes(payload, "big")
        elif kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                self.settings[int.from_bytes(payload[at : at + 2], "big")] = int.from_bytes(
                    payload[at + 2 : at + 6], "big"
                )
            self.send(SETTINGS, ACK, 0)
        elif kind == GOAWAY:
            self.goodbye = int.from_bytes(payload[:4], "big"), int.from_bytes(payload[4:8], "big")
        elif kind == PING:
            self.pongs += bool(flags & ACK)
        elif kind == WINDOW_UPDATE:
            self.windows[stream] = self.windows.get(stream, 0) + int.from_bytes(payload, "big")
        if kind in (HEADERS, DATA) and flags & END_STREAM:
            answer.ended = True

    async def until(self, condition: Callable[[], object]) -> None:
        """Read until the condition holds."""
        while not condition():
            assert not self.over, (self.goodbye, self.answers)
            await self.next()

    async def answer(self, stream: int) -> Http2Response:
        """Read a whole response."""
        answer = self.answers[stream]
        await self.until(lambda: answer.ended or answer.reset is not None)
        return answer

    async def end(self) -> tuple[int, int] | None:
        """Read until the server has closed; returns its GOAWAY."""
        while not self.over:
            await self.next()
        return self.goodbye

    async def enter(self) -> None:
        """Start a session."""
        answer = await self.answer(self.post(json.dumps(HELLO).encode()))
        assert answer.status == 200, answer

    def close(self) -> None:
        self.writer.transport.abort()


def frame_header(kind: int, flags: int, stream: int, length: int) -> bytes:
    return length.to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")


@asynccontextmanager
async def http2_client(
    port: int, context: ssl.SSLContext, *, settings: dict[int, int] | None = None
) -> AsyncGenerator[Http2Client]:
    """A connection for the duration of the block."""
    frames = await Http2Client.to(port, context, settings=settings)
    try:
        yield frames
    finally:
        frames.close()
