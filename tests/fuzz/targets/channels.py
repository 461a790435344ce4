"""A channel to a complete server, from the bytes of a stream: each request is answered once, under its own id."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from tests.fuzz.fuzz_target import Target, numbers, pieces, seeded
from tests.fuzz.fuzzed_server import LONG, NAMES, PersistentServer
from tests.fuzz.targets.connections import HELLO, call

from greenroom.protocol.envelope import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from greenroom.protocol.errors import RemoteProtocolError
from greenroom.protocol.jsonrpc import (
    JsonRpcNotification,
    JsonRpcRequest,
    MessageLimits,
    OversizedMessage,
    parse,
    too_long_error,
)
from greenroom.protocol.sse import LineFramer
from greenroom.transports.session_channel import MemoryPeer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from greenroom.actors.company import Company

LIMIT = 2048
PING = {"jsonrpc": "2.0", "id": "still there?", "method": "ping"}
BEGIN: list[dict[str, Any]] = [
    {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
]


def lines(*messages: object) -> bytes:
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def ask(method: str, id: object = 7, **params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def alone(method: str, id: object = 7, **params: object) -> dict[str, object]:
    """A request that names its revision, and is no session's."""
    return ask(method, id, **params, _meta={PROTOCOL_VERSION_KEY: "2026-07-28", CLIENT_CAPABILITIES_KEY: {"roots": {}}})


def cancel(id: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}}


def texts() -> Iterable[bytes]:
    yield lines(*BEGIN)
    for name in NAMES:
        yield lines(*BEGIN, call(name, 1, seconds=2, count=3, a=1, text="x"))
    yield lines(*BEGIN, call("slow", 3), cancel(3), call("slow", 3), call("steps", "3", count=9), cancel("3"))
    yield lines(*BEGIN, call("ask", 1), {"jsonrpc": "2.0", "id": 1, "result": {"roots": []}}, ask("tools/list"))
    yield lines(*BEGIN, {"jsonrpc": "2.0", "id": "a", "error": {}}, {"jsonrpc": "2.0", "id": 1, "error": {"code": 1}})
    yield lines(*BEGIN, ask("resources/read", uri="note://a"), ask("resources/subscribe", 8, uri="note://a"))
    yield lines(*BEGIN, ask("prompts/get", name="greet", arguments={"name": "x"}), ask("tools/list", 9, cursor="x"))
    yield lines(
        *BEGIN, ask("completion/complete", ref={"type": "ref/prompt", "name": "greet"}, argument={"name": "name"})
    )
    yield lines(
        *BEGIN, ask("logging/setLevel", level="error"), ask("tools/call", 10, name="echo", arguments={"text": 5})
    )
    yield lines(ask("tools/list"), ask("ping"), *BEGIN, BEGIN[0], ask("nothing"), [ask("ping")], 5, None)
    yield (
        lines(*BEGIN)
        + b'{"jsonrpc":"2.0","id":5,"method":"ping","params":{"x":"'
        + b"y" * LIMIT
        + b'"}}\n'
        + lines(PING)
    )
    yield lines(alone("server/discover"), alone("tools/list", 8), *BEGIN, ask("tools/list", 8), alone("initialize", 9))
    for name in NAMES:
        yield lines(alone("tools/call", 1, name=name, arguments={"seconds": 2, "count": 3, "a": 1, "text": "x"}))
    slow = alone("tools/call", 3, name="slow", arguments={"seconds": 2})
    yield lines(slow, slow, *BEGIN, call("slow", 3), cancel(3), call("slow", 3), slow, cancel(3), cancel("3"))
    listen = alone("subscriptions/listen", "3", notifications={"toolsListChanged": True, "taskIds": ["x"]})
    yield lines(listen, alone("subscriptions/listen", 3, notifications={}), listen, cancel("3"), cancel(3))
    yield lines(alone("subscriptions/listen", 1, notifications={"toolsListChanged": True}), alone("resources/read", 2))
    yield lines(*BEGIN, ask("ping"))[:-1]
    yield b'{"jsonrpc":"2.0","id":1,"id":1,"method":"ping"}\r\n\n\xff\n{"id":1}\n'


WORDS = (
    *(
        b"\n",
        b'"jsonrpc":"2.0"',
        b'"id":1',
        b'"id":"1"',
        b'"id":null',
        b'"method":"',
        b'"params":{',
        b'"requestId":1',
        b"{}",
    ),
    *(
        b'"arguments":{',
        b'"_meta":{"progressToken":1}',
        b'"result":{}',
        b'"error":{}',
        b'"name":',
        b'"uri":"note://',
        b'"task":{}',
        b'"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}',
        b'"requestState":"',
        b'"notifications":{',
    ),
    *(f'"{name}"'.encode() for name in NAMES),
    *(
        f'"{name}"'.encode()
        for name in ("ping", "initialize", "tools/list", "tools/call", "prompts/get", "resources/read")
    ),
    *(f'"{name}"'.encode() for name in ("server/discover", "subscriptions/listen", "tasks/get")),
    *(f'"notifications/{name}"'.encode() for name in ("cancelled", "initialized", "progress", "roots/list_changed")),
)


@cache
def standing() -> PersistentServer:
    return PersistentServer()


def check(data: bytes) -> None:
    front, sent = numbers(data, 3)

    async def scene(company: Company) -> None:
        await ChannelPeer(company).hold(pieces(sent, front))

    standing().play(scene)


class ChannelPeer:
    """A peer, and a record of its open requests."""

    def __init__(self, company: Company) -> None:
        self._company = company
        self._asked: Counter[str] = Counter()
        self._cancelled: set[str] = set()
        self._heard: list[dict[str, Any]] = []

    async def hold(self, stream: Iterable[bytes]) -> None:
        """Send all this, wait until all requests have ended, and check the answers."""
        async with MemoryPeer(self._company) as wire:
            reading = asyncio.create_task(self._read(wire))
            framer = LineFramer(LIMIT)
            for piece in stream:
                for line in framer.feed(piece):
                    await self._say(wire, line)
                await asyncio.sleep(0)
            last = framer.end()
            if last is not None:
                await self._say(wire, last)
            await self._say(wire, json.dumps(PING).encode())
            await asyncio.sleep(LONG)
        await reading
        self.compare()

    async def _read(self, wire: MemoryPeer) -> None:
        while frames := await wire.receive():
            for frame in frames:
                self.hear(frame)

    async def _say(self, wire: MemoryPeer, line: bytes | OversizedMessage) -> None:
        self.owe(line)
        if isinstance(line, OversizedMessage):
            await wire._channel.refuse(too_long_error(line, LIMIT))  # as stdio does
        elif line.strip():
            await wire.send(line)

    def hear(self, frame: bytes) -> None:
        """Record a received message."""
        message = json.loads(frame)
        assert message["jsonrpc"] == "2.0"
        self._heard.append(message)

    def owe(self, line: bytes | OversizedMessage) -> None:
        """Record a sent message, which may need an answer."""
        if isinstance(line, OversizedMessage):
            error = too_long_error(line, LIMIT)
            self._asked[json.dumps(error.id)] += 1
            return
        if not line.strip():
            return
        try:
            message = parse(line, MessageLimits.of_size(LIMIT))
        except RemoteProtocolError as error:
            self._asked[json.dumps(error.id)] += 1
            return
        if isinstance(message, JsonRpcRequest):
            self._asked[json.dumps(message.id)] += 1
        elif isinstance(message, JsonRpcNotification) and message.method == "notifications/cancelled":
            self._cancelled.add(json.dumps(message.params.get("requestId")))

    def compare(self) -> None:
        """Assert that every request was answered once."""
        answers = [message for message in self._heard if "method" not in message]
        for answer in answers:
            assert ("result" in answer) != ("error" in answer)
        heard = Counter(json.dumps(answer.get("id")) for answer in answers)
        assert heard <= self._asked, f"answers without a request: {heard - self._asked}"
        missing = self._asked - heard
        assert set(missing) <= self._cancelled, f"asked, and not answered: {missing}"
        for message in self._heard:
            if "method" in message:
                assert isinstance(message["method"], str)


TARGET = Target("channels", check, lambda: seeded(texts(), b"\xff\xff\xff", b"\x05\x40\x09"), WORDS, longest=3000)
