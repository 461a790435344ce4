"""Arbitrary input to a whole server: each request gets one reply, and the server goes on."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom import Server
from greenroom.protocol.errors import RemoteProtocolError
from greenroom.protocol.jsonrpc import JsonRpcRequest, parse
from greenroom.protocol.methods import METHODS
from greenroom.supervision.testing import run as run_virtual
from greenroom.wire_probe import WireProbe


def company() -> Server:
    server = Server("x")

    @server.tool
    async def add(a: int, b: int = 1) -> int:
        return a + b

    @server.tool
    def shout(text: str) -> str:
        return text.upper()

    @server.resource("note://{title}")
    async def note(title: str) -> str:
        return title

    @server.prompt
    async def greet(name: str) -> str:
        return f"Hello, {name}!"

    @server.completion("name", prompt="greet")
    async def names(value: str) -> list[str]:
        return [value + "a"]

    return server


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    | st.sampled_from(
        ["add", "shout", "greet", "note://a", "note://..%2f", "ref/prompt", "info", "2025-11-25", "name"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "b", "text", "name", "type", "uri", "value", "arguments", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)
_MEMBERS = (
    *("name", "arguments", "uri", "cursor", "level", "ref", "argument", "context", "_meta", "task", "requestId"),
    *("protocolVersion", "capabilities", "clientInfo", "progressToken", "progress", "taskId"),
)
_MESSAGE = st.fixed_dictionaries(
    {"method": st.sampled_from([*METHODS, "initialized", "no/such", "tools", ""]) | _JSON},
    optional={
        "jsonrpc": st.just("2.0") | st.just("2.0") | st.just("2.0") | _JSON,
        "id": st.integers(1000, 1010) | st.sampled_from(["a", "b", ""]) | _JSON,
        "params": st.dictionaries(st.sampled_from(_MEMBERS), _JSON, max_size=5) | _JSON,
        "result": _JSON,
        "error": _JSON,
    },
).map(lambda message: {"jsonrpc": "2.0", **message})
_FRAMES = (
    _MESSAGE.map(lambda message: json.dumps(message).encode())
    | st.tuples(_MESSAGE, st.integers(0, 200), st.binary(max_size=3)).map(
        lambda it: (line := json.dumps(it[0]).encode())[: it[1]] + it[2] + line[it[1] + len(it[2]) :]
    )
    | st.binary(min_size=1, max_size=40)
).filter(lambda frame: b"\n" not in frame and bool(frame.strip()))


def asks(frame: bytes) -> Any:
    """The id under which a frame is to be answered, in a tuple; nothing for one that asks for no answer."""
    try:
        message = parse(frame)
    except RemoteProtocolError as error:
        return (error.id,)
    return (message.id,) if isinstance(message, JsonRpcRequest) else ()


def _key(id: Any) -> str:
    return json.dumps(id)


@pytest.mark.row("WC-11", "WC-12", "WC-13", "WC-14", "WC-15", "WC-18")
@settings(max_examples=examples(60))
@given(st.lists(_FRAMES, max_size=8))
def test_every_request_is_answered_once_and_nothing_else_is(frames: list[bytes]) -> None:
    expected = Counter(_key(id) for frame in frames for id in asks(frame))
    may_be_cancelled = any(b"notifications/cancelled" in frame for frame in frames)

    async def talk() -> None:
        async with company().started() as house, WireProbe(house) as probe:
            before = len(probe.received)
            for frame in frames:
                await probe.send(frame)
            await probe.request("ping")
            await asyncio.sleep(60)  # virtual: whatever runs has ended
            answers = [each for each in probe.received[before:] if "method" not in each]
            heard = Counter(_key(each.get("id")) for each in answers) - Counter({_key(2): 1})
            assert heard <= expected
            assert heard == expected or may_be_cancelled
            for each in answers:
                if "error" in each:
                    assert type(each["error"]["code"]) is int
                    assert each["error"]["message"]

    run_virtual(talk)
