"""A small fake session router: its sessions and its exchanges echo, wait, send much, and die when told to."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Any

from greenroom.protocol.envelope import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.jsonrpc import (
    JsonRpcNotification,
    JsonRpcRequest,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from greenroom.supervision import NO_PROCESS, ProcessExited
from greenroom.transports.interfaces import EncodedReply, FeedEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcResponse
    from greenroom.transports.interfaces import Feed, Peer, SessionHandle, SessionReply, SessionStart


class FakeFeed:
    name = "channel"

    def __init__(self) -> None:
        self.events: deque[FeedEvent] = deque()
        self.over = False
        self.came = asyncio.Event()

    def push(self, data: bytes, answers: str | int | None = None) -> None:
        self.events.append(FeedEvent("", data, answers=answers))
        self.came.set()

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        while not self.events:
            if self.over:
                return None
            self.came.clear()
            await self.came.wait()
        batch = list(self.events)
        self.events.clear()
        return batch

    def leave(self) -> None:
        self.over = True


class FakeSession:
    id = "s"
    version = None

    def __init__(self) -> None:
        self.channel: FakeFeed = FakeFeed()
        self.heard: list[JsonRpcNotification | JsonRpcResponse | JsonRpcError] = []
        self.requests: list[JsonRpcRequest] = []
        self.held: list[JsonRpcRequest] = []
        self.ended = False

    async def request(self, request: JsonRpcRequest, quiet: float | None = None) -> SessionReply:
        if self.channel.over:
            raise ProcessExited(NO_PROCESS, self)
        self.requests.append(request)
        match request.method:
            case "die":
                self.die()
            case "hold":
                self.held.append(request)
            case "release":
                for held in self.held:
                    self.answer(held)
                self.answer(request)
            case "talk":
                for number in range(request.params["times"]):
                    self.channel.push(encode_notification("said", {"number": number, "pad": request.params["pad"]}))
                self.answer(request)
            case "refuse":
                self.channel.push(encode_error(request.id, McpError(ErrorCode.INVALID_PARAMS, "no")), request.id)
            case _:
                self.answer(request)
        return self.channel

    def answer(self, request: JsonRpcRequest) -> None:
        self.channel.push(encode_result(request.id, {"echo": request.params}), request.id)

    def die(self) -> None:
        self.channel.over = True
        self.channel.came.set()

    async def notify(self, notification: JsonRpcNotification) -> None:
        self.heard.append(notification)

    async def respond(self, answer: JsonRpcResponse | JsonRpcError) -> None:
        self.heard.append(answer)

    async def listen(self, last_event_id: str | None = None) -> Feed:
        raise NotImplementedError

    async def end(self) -> None:
        self.ended = True
        self.die()


class FakeExchangeFeed(FakeFeed):
    """The feed of an exchange; of a listen, it can be finished."""

    def __init__(self, request: JsonRpcRequest) -> None:
        super().__init__()
        self.request = request
        self.taken = 0
        self.left = 0

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        batch = await super().next(timeout)
        self.taken += batch is not None
        return batch

    def leave(self) -> None:
        super().leave()
        self.left += 1

    def finish(self) -> None:
        self.push(encode_result(self.request.id, {"finished": True}), self.request.id)
        self.end()

    def end(self) -> None:
        self.over = True
        self.came.set()


class FakeSessionRouter:
    def __init__(self, max_in_flight: int = 256) -> None:
        self.sessions: list[FakeSession] = []
        self.full = False
        self.broken = False
        self.max_in_flight = max_in_flight
        self.process_name = self.program = "fake"
        self.exchanged: list[JsonRpcRequest] = []
        self.held: dict[str | int, asyncio.Future[bytes]] = {}
        self.cancelled: list[str | int] = []
        self.feeds: list[FakeExchangeFeed] = []

    async def connect(self, peer: Peer) -> FakeSession:
        if self.full:
            raise McpError(ErrorCode.INTERNAL_ERROR, "no room")
        if self.broken:
            raise ProcessExited(NO_PROCESS, self)
        self.sessions.append(FakeSession())
        return self.sessions[-1]

    async def start_session(self, peer: Peer, hello: JsonRpcRequest) -> SessionStart:
        raise NotImplementedError

    def find(self, session_id: str, peer: Peer) -> SessionHandle | None:
        raise NotImplementedError

    async def exchange(
        self, peer: Peer, request: JsonRpcRequest, headers: Mapping[str, str] | None = None, quiet: float | None = None
    ) -> SessionReply:
        assert headers is None
        assert quiet == math.inf
        self.exchanged.append(request)
        match request.method:
            case "hold":
                answer = self.held[request.id] = asyncio.get_running_loop().create_future()
                try:
                    return EncodedReply(await answer)
                except asyncio.CancelledError:
                    self.cancelled.append(request.id)
                    raise
            case "feed" | "subscriptions/listen":
                self.feeds.append(FakeExchangeFeed(request))
                return self.feeds[-1]
            case "nothing":
                return None
            case "break":
                raise ValueError("the secret of the house")
            case _:
                return EncodedReply(encode_result(request.id, {"echo": request.params.get("text")}))

    async def once(self, peer: Peer, request: JsonRpcRequest, version: str, quiet: float | None = None) -> EncodedReply:
        raise NotImplementedError


def enveloped(method: str, request_id: Any = None, **params: Any) -> bytes:
    """One message that names its revision."""
    meta: dict[str, Any] = {PROTOCOL_VERSION_KEY: "2026-07-28", CLIENT_CAPABILITIES_KEY: {}}
    return line(method, request_id, **params, _meta=meta)


def line(method: str, request_id: Any = None, **params: Any) -> bytes:
    """One message as a peer writes it."""
    text = encode_notification(method, params) if request_id is None else encode_request(request_id, method, params)
    return text + b"\n"


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until the condition holds; the test's timeout is the limit."""
    while not condition():  # noqa: ASYNC110 - there is no event for the condition
        await asyncio.sleep(0)
