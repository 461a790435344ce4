"""A fake server with scripted answers, behind a wire that fails on command, for tests on virtual time.

::

    stage = Stage(tools=True)
    stage.answers["tools/call"] = lambda request: {"content": []}     # or an exception, SILENCE, or After(2.0, …)
    line = await start_connection(stage)
    ...
    await stage.wire.break_off(ConnectionLost("pulled out"))
    stage.wire.say(Notification("notifications/message", {...}))

`Stage` is the route; each attempt makes a `StageWire`, all of which are in `stage.wires`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.errors import McpError, PeerError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse, parse
from greenroom.supervision import SHUTDOWN, Exit, Quit, Ref, Shutdown, exit, receive, spawn_link, trap_exit, wait_down
from greenroom.transports.client.errors import ConnectFailed, TransportError, WireFull
from greenroom.transports.client.interfaces import Inbound, UnansweredRequest

if TYPE_CHECKING:
    from greenroom.protocol.jsonrpc import JsonRpcMessage, RequestId
    from greenroom.supervision import Pid
    from greenroom.transports.client.interfaces import Headers, InboundItem

SILENCE: Final = object()
"""An answer that never comes."""


class After(NamedTuple):
    """An answer that comes later."""

    seconds: float
    answer: Any


class Garbled(NamedTuple):
    """An invalid message instead of an answer."""

    heard: Any


Answer = Callable[[JsonRpcRequest], Any]
"""The scripted answer to a request: a result, an exception, `SILENCE`, `After`, `Garbled`, or a `TransportError` that loses it."""


class Stage:
    """The fake server, and the route to it."""

    description = "stage"

    def __init__(self, *, version: str = "2025-11-25", capabilities: Mapping[str, Any] | None = None) -> None:
        """By default it declares every capability."""
        self.version = version
        self.capabilities: Mapping[str, Any] = EVERYTHING if capabilities is None else capabilities
        self.answers: dict[str, Answer | Any] = {"initialize": self._welcome, "ping": lambda _: {}}
        self.wires: list[StageWire] = []
        self.failures: list[Exception] = []
        """The outcomes of the next attempts, instead of a wire: a `TransportError` ends it at once, another one is raised by `open`."""
        self.hanging = False
        """Whether wires ignore the request to end."""
        self.is_http = False
        """Whether wires carry headers, and cancel by closing."""
        self._opened = asyncio.Event()

    @property
    def wire(self) -> StageWire:
        """The latest."""
        return self.wires[-1]

    @property
    def requests(self) -> list[JsonRpcRequest]:
        """All requests, on any wire."""
        return [each for wire in self.wires for each in wire.heard if isinstance(each, JsonRpcRequest)]

    def notes(self, method: str) -> list[dict[str, Any]]:
        """The params of all such notifications."""
        heard = [each for wire in self.wires for each in wire.heard]
        return [each.params for each in heard if isinstance(each, JsonRpcNotification) and each.method == method]

    def asked(self, method: str) -> list[JsonRpcRequest]:
        """All requests of that method."""
        return [request for request in self.requests if request.method == method]

    async def opened(self, count: int) -> StageWire:
        """Wait for so many attempts in all."""
        while len(self.wires) < count:
            self._opened.clear()
            await self._opened.wait()
        return self.wires[count - 1]

    def open(self, owner: Pid) -> StageWire:
        """As a route does."""
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None and not isinstance(failure, TransportError):
            raise failure
        wire = StageWire(self, owner)
        self.wires.append(wire)
        self._opened.set()
        if failure is not None:
            wire.dumb = True
            wire.end(failure)
        return wire

    def _welcome(self, request: JsonRpcRequest) -> dict[str, Any]:
        return {
            "protocolVersion": self.version,
            "capabilities": dict(self.capabilities),
            "serverInfo": {"name": "stage", "version": "1"},
        }


EVERYTHING: Final[Mapping[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "logging": {},
    "completions": {},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
}


class StageWire:
    """One attempt."""

    description = "stage"

    def __init__(self, stage: Stage, owner: Pid) -> None:
        self.stage = stage
        self.is_http = stage.is_http
        self.mirrored: dict[RequestId, Headers] = {}
        """The mirrored headers of each request, by id."""
        self.heard: list[JsonRpcMessage] = []
        """The messages from the client."""
        self.forgotten: list[RequestId] = []
        self.version: str | None = None
        self.ended = False
        self.dumb = False
        """Whether it reads messages and answers none."""
        self.full = False
        """Whether it is full, and accepts no message."""
        self._owner: Ref[Any] = Ref(owner)
        self._came = asyncio.Event()
        self.pid: Pid = spawn_link(self._live)

    async def _live(self) -> None:
        trap_exit()
        while True:
            message = await receive()
            if isinstance(message, TransportError):
                self.ended = True
                raise Quit(Shutdown(message))
            if isinstance(message, Exit) and not self.stage.hanging:
                self.ended = True
                raise Quit(SHUTDOWN)

    # --- as a wire does

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False, mirrored: Headers = ()) -> None:
        if self.full:
            raise WireFull("the stage is full")
        message = parse(frame)
        if isinstance(message, JsonRpcRequest):
            assert id == message.id
            self.mirrored[message.id] = mirrored
        self.heard.append(message)
        self._came.set()
        if isinstance(message, JsonRpcRequest) and not self.dumb:
            answer = self.stage.answers.get(message.method, PeerError(-32601, "unknown method"))
            self.answer(message, answer(message) if callable(answer) else answer)

    def forget(self, id: RequestId) -> None:
        self.forgotten.append(id)

    def on_negotiated(self, version: str) -> None:
        self.version = version

    # --- as the server does

    def answer(self, request: JsonRpcRequest, answer: Any) -> None:
        """Answer a request: see `Answer`."""
        match answer:
            case After(seconds, later):
                asyncio.get_running_loop().call_later(seconds, self.answer, request, later)
            case Garbled(heard):
                self.say(heard)
            case TransportError():
                self.say(UnansweredRequest(request.id, answer, resend=isinstance(answer, ConnectFailed)))
            case McpError():
                self.say(JsonRpcError(request.id, PeerError(answer.code, answer.message, answer.data)))
            case _:
                if answer is not SILENCE:
                    self.say(JsonRpcResponse(request.id, answer))

    def say(self, *heard: InboundItem) -> None:
        """Send messages to the client."""
        if not self.ended:
            self._owner.send(Inbound(self.pid, heard))

    async def hears(self, matches: Callable[[JsonRpcMessage], bool] | str, count: int = 1) -> JsonRpcMessage:
        """Wait until the client has said so many messages of a method, or that match."""
        while True:
            found = [
                each
                for each in self.heard
                if (getattr(each, "method", None) == matches if isinstance(matches, str) else matches(each))
            ]
            if len(found) >= count:
                return found[count - 1]
            self._came.clear()
            await self._came.wait()

    def end(self, error: TransportError) -> None:
        """The wire ends for this reason, some time soon."""
        Ref(self.pid).send(error)

    async def break_off(self, error: TransportError) -> None:
        """The wire ends, and is gone."""
        self.end(error)
        await wait_down(self.pid)

    def kill(self) -> None:
        """The wire's process ends without a word."""
        exit(self.pid, SHUTDOWN)
