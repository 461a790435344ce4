"""An engine on a desk: what is asked of it by hand, and what it does with its responder, with no network and no server."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_engine import HttpEngine, handle

from .fake_sessions import FakeDoor, FakeSession

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.transports.http_engine import Body
    from greenroom.transports.interfaces import Authenticator, SessionRouter

BOTH = "application/json, text/event-stream"


class Paper:
    """A responder that writes down what it is given."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.said: list[str] = []
        self.chunks: list[bytes] = []
        self.torn = False
        self.news = asyncio.Event()

    async def reply(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        self._begin("reply", status, headers)
        self.body = body

    async def stream_start(self, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self._begin("start", status, headers)

    async def stream_chunk(self, data: bytes) -> bool:
        if self.torn:
            return False
        self.said.append("chunk")
        self.chunks.append(data)
        self.news.set()
        return True

    async def stream_end(self) -> None:
        self.said.append("end")
        self.news.set()

    def _begin(self, what: str, status: int, headers: Sequence[tuple[str, str]]) -> None:
        self.said.append(what)
        self.status = status
        names = [name for name, _ in headers]
        assert len(names) == len(set(names)), f"a header twice: {names}"
        assert all(name == name.lower() for name in names)
        self.headers = dict(headers)
        self.news.set()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, int, str]:
        """The status, and the JSON-RPC error's code and message."""
        error = self.json["error"]
        return self.status, error["code"], error["message"]

    async def until(self, chunks: int) -> bytes:
        """Wait for so many chunks, and take them."""
        while len(self.chunks) < chunks:
            self.news.clear()
            await self.news.wait()
        return b"".join(self.chunks)


class Desk:
    """One engine before a fake door."""

    def __init__(
        self, *, gatekeeper: Authenticator | None = None, door: FakeDoor | None = None, **settings: Any
    ) -> None:
        self.door = FakeDoor() if door is None else door
        self.config = HttpConfig(**settings)
        self.engine = HttpEngine(self.door, self.config, gatekeeper)

    @property
    def instance(self) -> str:
        """What the engine says it is."""
        return self.engine._instance[0][1]

    @classmethod
    def before(cls, door: SessionRouter, **settings: Any) -> Desk:
        """One before a real company's door."""
        desk = cls(**settings)
        desk.engine = HttpEngine(door, desk.config)
        return desk

    async def ask(
        self, method: str, path: str = "/mcp", headers: Mapping[str, str | None] | None = None, body: Body = b""
    ) -> Paper:
        """Have one request answered, all of it. A header that is None is left out."""
        paper = Paper()
        await self.begin(paper, method, path, headers, body)
        return paper

    async def begin(
        self,
        paper: Paper,
        method: str,
        path: str = "/mcp",
        headers: Mapping[str, str | None] | None = None,
        body: Body = b"",
    ) -> None:
        """The same, on this paper."""
        said: dict[str, str | None] = {"host": "127.0.0.1:9090", "accept": BOTH, **(headers or {})}
        raw = [(name, value) for name, value in said.items() if value is not None]
        await handle(method, path, raw, body, paper, self.engine)

    async def post(self, message: Any, headers: Mapping[str, str | None] | None = None, path: str = "/mcp") -> Paper:
        """POST one message; bytes as they are."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return await self.ask("POST", path, {"content-type": "application/json", **(headers or {})}, body)

    async def call(
        self, method: str, id: Any = 1, headers: Mapping[str, str | None] | None = None, **params: Any
    ) -> Paper:
        """One request in the first session."""
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return await self.post(message, {"mcp-session-id": "s1", **(headers or {})})

    async def enter(self) -> FakeSession:
        """Open the first session."""
        paper = await self.post(HELLO)
        return self.door.sessions[paper.headers["mcp-session-id"]]


HELLO: dict[str, Any] = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}


def note(method: str = "notifications/initialized") -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method}


def sse(data: bytes) -> list[dict[str, str]]:
    """The events of a stream, as their fields; comments under an empty name."""
    events: list[dict[str, str]] = []
    for block in data.decode().split("\n\n"):
        if block:
            fields: dict[str, str] = {}
            for line in block.split("\n"):
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            events.append(fields)
    assert not data or data.endswith(b"\n\n")
    return events
