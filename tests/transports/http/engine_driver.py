"""Drives an HTTP engine by hand: requests go in, responses are recorded, without network and server."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_engine import HttpEngine, handle

from .fake_sessions import FakeSession, FakeSessionRouter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.transports.http_engine import Body
    from greenroom.transports.interfaces import Authenticator, SessionRouter

BOTH = "application/json, text/event-stream"


class RecordedResponse:
    """A responder that records what it is given."""

    http_version = "1.1"
    around = None

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

    async def stream_start(self, status: int, headers: Sequence[tuple[str, str]], *, until_eof: bool = False) -> None:
        del until_eof
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
        """Wait for so many chunks, and return them."""
        while len(self.chunks) < chunks:
            self.news.clear()
            await self.news.wait()
        return b"".join(self.chunks)


class EngineDriver:
    """One engine in front of a fake session router."""

    def __init__(
        self, *, authenticator: Authenticator | None = None, router: FakeSessionRouter | None = None, **settings: Any
    ) -> None:
        self.router = FakeSessionRouter() if router is None else router
        self.config = HttpConfig(**settings)
        self.engine = HttpEngine(self.router, self.config, authenticator)

    @property
    def instance(self) -> str:
        """The instance that the engine reports."""
        return self.engine._instance[0][1]

    @classmethod
    def before(cls, router: SessionRouter, **settings: Any) -> EngineDriver:
        """A driver in front of a real server's session router."""
        driver = cls(**settings)
        driver.engine = HttpEngine(router, driver.config)
        return driver

    async def ask(
        self, method: str, path: str = "/mcp", headers: Mapping[str, str | None] | None = None, body: Body = b""
    ) -> RecordedResponse:
        """Have one request answered completely. A header that is None is left out."""
        response = RecordedResponse()
        await self.begin(response, method, path, headers, body)
        return response

    async def begin(
        self,
        response: RecordedResponse,
        method: str,
        path: str = "/mcp",
        headers: Mapping[str, str | None] | None = None,
        body: Body = b"",
    ) -> None:
        """The same, recorded in this response."""
        said: dict[str, str | None] = {"host": "127.0.0.1:9090", "accept": BOTH, **(headers or {})}
        raw = [(name, value) for name, value in said.items() if value is not None]
        await handle(method, path, raw, body, response, self.engine)

    async def post(
        self, message: Any, headers: Mapping[str, str | None] | None = None, path: str = "/mcp"
    ) -> RecordedResponse:
        """POST one message; bytes are sent as they are."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return await self.ask("POST", path, {"content-type": "application/json", **(headers or {})}, body)

    async def call(
        self, method: str, id: Any = 1, headers: Mapping[str, str | None] | None = None, **params: Any
    ) -> RecordedResponse:
        """One request in the first session."""
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return await self.post(message, {"mcp-session-id": "s1", **(headers or {})})

    async def enter(self) -> FakeSession:
        """Start the first session."""
        response = await self.post(HELLO)
        return self.router.sessions[response.headers["mcp-session-id"]]


HELLO: dict[str, Any] = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {}}


def notification(method: str = "notifications/initialized") -> dict[str, Any]:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method}


def parse_events(data: bytes) -> list[dict[str, str]]:
    """The events of a stream as their fields; comments under an empty name."""
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
