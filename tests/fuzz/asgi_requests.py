"""Requests to an ASGI application: the sent pieces, the time at which the peer disconnects, and the response."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.fuzz.targets.connections import STATUSES

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping

    from greenroom.transports.asgi import App

    Pairs = list[tuple[bytes, bytes]]

PLAIN: Pairs = [
    (b"host", b"localhost"),
    (b"accept", b"application/json, text/event-stream"),
    (b"content-type", b"application/json"),
]
_SAFE = re.compile(rb"[ -~\t]*")


class AsgiRequest:
    """A request in progress, and the response so far."""

    def __init__(self, app: App, verb: str, headers: Pairs, body: Iterable[bytes] = (), path: str = "/mcp") -> None:
        """Start the request in a task."""
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.whole = False
        """Whether the response is complete."""
        self._pieces = list(body) or [b""]
        self._left = asyncio.Event()
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": verb,
            "scheme": "http",
            "query_string": b"",
            "path": path,
            "raw_path": path.encode(errors="replace"),
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 9090),
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    def leave(self) -> None:
        """Disconnect."""
        self._left.set()

    async def _receive(self) -> dict[str, Any]:
        await asyncio.sleep(0)
        if self._pieces and not self._left.is_set():
            piece = self._pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self._pieces)}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: MutableMapping[str, Any]) -> None:
        await asyncio.sleep(0)
        if self._left.is_set():
            raise OSError("the peer is gone")
        assert not self.whole, "something comes after the end"
        if message["type"] == "http.response.start":
            assert not self.status, "two answers to one request"
            self.status = message["status"]
            assert self.status in STATUSES
            self._take(message["headers"])
        else:
            assert self.status, "a body without a head"
            self.body += message["body"]
            self.whole = not message.get("more_body", False)

    def _take(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        for name, value in headers:
            assert name == name.lower()
            assert _SAFE.fullmatch(name)
            assert _SAFE.fullmatch(value), (name, value)
            assert name.decode() not in self.headers, name
            self.headers[name.decode()] = value.decode()

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages so far, as JSON or as events."""
        kind = self.headers.get("content-type", "")
        if kind == "application/json":
            return [json.loads(self.body)] if self.whole and self.body else []
        if kind != "text/event-stream":
            return []
        return [json.loads(data) for event in self.events if (data := event.get("data"))]

    @property
    def events(self) -> list[dict[str, str]]:
        """The complete events."""
        *blocks, _ = self.body.decode().split("\n\n")
        return [dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":")) for block in blocks]

    async def gone(self) -> None:
        """Assert that nothing is left of the request."""
        self.leave()
        with suppress(asyncio.CancelledError):
            await self.task


def answers(messages: list[dict[str, Any]], id: Any) -> int:
    """The number of messages that answer that request."""
    return sum(
        "method" not in message and type(message.get("id")) is type(id) and message["id"] == id for message in messages
    )
