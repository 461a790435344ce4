"""A session router without processes: its sessions answer by the method's name, and tests fill their feeds."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.jsonrpc import encode_error, encode_notification, encode_result
from greenroom.supervision import SHUTDOWN, ProcessExited
from greenroom.transports.interfaces import EncodedReply, FeedEvent, SessionStart

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
    from greenroom.transports.interfaces import Peer, SessionReply


class FakeFeed:
    """A feed filled by the test."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.left = 0
        self._events: deque[FeedEvent] = deque()
        self._ended = False
        self._more = asyncio.Event()
        self._sequence = 0

    def put(self, data: bytes, answers: str | int | None = None, retry: int | None = None) -> FeedEvent:
        event = FeedEvent(f"{self.name}:{self._sequence}", data, retry, answers)
        self._sequence += 1
        self._events.append(event)
        self._more.set()
        return event

    def end(self) -> None:
        self._ended = True
        self._more.set()

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        try:
            async with asyncio.timeout(timeout):
                while not self._events and not self._ended:
                    self._more.clear()
                    await self._more.wait()
        except TimeoutError:
            return ()
        events = tuple(self._events)
        self._events.clear()
        return events or None

    def leave(self) -> None:
        self.left += 1


@dataclass
class FakeSession:
    """Answers by the method's name: echo, slow, stream, forget, exit, raise, wait."""

    id: str
    owner: Any = None
    version: str | None = "2025-11-25"
    channel: None = None
    heard: list[Any] = field(default_factory=list[Any])
    feeds: list[FakeFeed] = field(default_factory=list[FakeFeed])
    general: FakeFeed | None = None
    resumed: list[str | None] = field(default_factory=list[str | None])
    ended: bool = False
    dying: bool = False
    """Whether the session is found, but gone when it is used."""
    go: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0
    given_up: int = 0

    async def request(self, request: JsonRpcRequest, quiet: float | None = None) -> SessionReply:
        self._alive()
        self.heard.append(request)
        match request.method:
            case "stream":
                return self._stream(request)
            case "forget":
                return None
            case "exit":
                self.ended = True
                raise ProcessExited(SHUTDOWN)
            case "raise":
                raise SystemExit(3)
            case "wait":
                self.waiting += 1
                try:
                    await self.go.wait()
                except asyncio.CancelledError:
                    self.given_up += 1
                    raise
                finally:
                    self.waiting -= 1
            case "unknown":
                return EncodedReply(
                    encode_error(request.id, McpError(ErrorCode.METHOD_NOT_FOUND, "Method not found: unknown"))
                )
            case _:
                pass
        return EncodedReply(encode_result(request.id, {"method": request.method, "params": request.params}))

    def _stream(self, request: JsonRpcRequest) -> FakeFeed:
        feed = FakeFeed(f"p{len(self.feeds) + 1}")
        self.feeds.append(feed)
        feed.put(b"")
        for number in range(request.params.get("events", 0)):
            text = "x" * request.params.get("size", 1)
            feed.put(encode_notification("notifications/progress", {"progress": number, "text": text}))
        if request.params.get("finish", True):
            feed.put(encode_result(request.id, {}), answers=request.id)
            feed.end()
        return feed

    async def notify(self, notification: JsonRpcNotification) -> None:
        self._alive()
        self.heard.append(notification)

    async def respond(self, answer: JsonRpcResponse | JsonRpcError) -> None:
        self._alive()
        self.heard.append(answer)

    async def listen(self, last_event_id: str | None = None) -> FakeFeed:
        self._alive()
        self.resumed.append(last_event_id)
        if self.general is not None:
            self.general.end()
        self.general = FakeFeed(f"g{len(self.resumed) - 1}")
        if last_event_id is None:
            self.general.put(b"")
        return self.general

    async def end(self) -> None:
        self._alive()
        self.die()

    def die(self) -> None:
        self.ended = True
        for feed in (*self.feeds, *([self.general] if self.general else [])):
            feed.end()

    def _alive(self) -> None:
        if self.ended or self.dying:
            raise ProcessExited(SHUTDOWN)


class FakeSessionRouter:
    """Sessions s1, s2, …, each of the principal that started it."""

    def __init__(self, *, full: bool = False) -> None:
        self.full = full
        self.sessions: dict[str, FakeSession] = {}
        self.exchanged: list[JsonRpcRequest] = []
        self.max_in_flight = 256
        self.process_name = self.program = "fake"
        self.singles: list[tuple[JsonRpcRequest, str]] = []
        self.looked_for: list[tuple[str, Peer]] = []

    async def start_session(self, peer: Peer, hello: JsonRpcRequest) -> SessionStart:
        if self.full:
            error = McpError(ErrorCode.INTERNAL_ERROR, "Maximum number of sessions reached")
            return SessionStart(None, EncodedReply(encode_error(hello.id, error), 503))
        session = FakeSession(f"s{len(self.sessions) + 1}", peer.principal)
        self.sessions[session.id] = session
        return SessionStart(session, EncodedReply(encode_result(hello.id, {"protocolVersion": "2025-11-25"})))

    async def connect(self, peer: Peer) -> FakeSession:
        raise NotImplementedError

    def find(self, session_id: str, peer: Peer) -> FakeSession | None:
        self.looked_for.append((session_id, peer))
        session = self.sessions.get(session_id)
        return session if session and not session.ended and session.owner == peer.principal else None

    async def once(self, peer: Peer, request: JsonRpcRequest, version: str, quiet: float | None = None) -> SessionReply:
        self.singles.append((request, version))
        return EncodedReply(encode_result(request.id, {"method": request.method}))

    async def exchange(
        self, peer: Peer, request: JsonRpcRequest, headers: Mapping[str, str] | None = None, quiet: float | None = None
    ) -> SessionReply:
        self.exchanged.append(request)
        return EncodedReply(encode_result(request.id, {"method": request.method}))
