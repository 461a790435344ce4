"""A company of a few lines that speaks the seam: its sessions echo, wait, talk much, and die when they are told to."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.messages import (
    Notification,
    Request,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
)
from greenroom.supervision import NO_PROCESS, ProcessExited
from greenroom.transports.interfaces import Event

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.protocol.messages import Failure, Response
    from greenroom.transports.interfaces import Answer, Entered, Feed, Peer, Reply, Session


class FakeFeed:
    name = "channel"

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.over = False
        self.came = asyncio.Event()

    def push(self, data: bytes, answers: str | int | None = None) -> None:
        self.events.append(Event("", data, answers=answers))
        self.came.set()

    async def next(self, timeout: float | None = None) -> Sequence[Event] | None:
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
        self.heard: list[Notification | Response | Failure] = []
        self.requests: list[Request] = []
        self.held: list[Request] = []
        self.ended = False

    async def request(self, request: Request, quiet: float | None = None) -> Reply:
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

    def answer(self, request: Request) -> None:
        self.channel.push(encode_result(request.id, {"echo": request.params}), request.id)

    def die(self) -> None:
        self.channel.over = True
        self.channel.came.set()

    async def notify(self, notification: Notification) -> None:
        self.heard.append(notification)

    async def respond(self, answer: Response | Failure) -> None:
        self.heard.append(answer)

    async def listen(self, last_event_id: str | None = None) -> Feed:
        raise NotImplementedError

    async def end(self) -> None:
        self.ended = True
        self.die()


class FakeDoor:
    def __init__(self) -> None:
        self.sessions: list[FakeSession] = []
        self.full = False
        self.broken = False

    async def connect(self, peer: Peer) -> FakeSession:
        if self.full:
            raise McpError(ErrorCode.INTERNAL_ERROR, "no room")
        if self.broken:
            raise ProcessExited(NO_PROCESS, self)
        self.sessions.append(FakeSession())
        return self.sessions[-1]

    async def enter(self, peer: Peer, hello: Request) -> Entered:
        raise NotImplementedError

    def find(self, session_id: str, peer: Peer) -> Session | None:
        raise NotImplementedError

    async def once(self, peer: Peer, request: Request, version: str, quiet: float | None = None) -> Answer:
        raise NotImplementedError


def line(method: str, request_id: Any = None, **params: Any) -> bytes:
    """One message as a peer writes it."""
    text = encode_notification(method, params) if request_id is None else encode_request(request_id, method, params)
    return text + b"\n"


async def until(condition: Callable[[], bool]) -> None:
    """Let everything else go on until that holds; the test's own deadline is the bound."""
    while not condition():  # noqa: ASYNC110 - there is no event for the condition
        await asyncio.sleep(0)
