"""Conversations with a complete server, over the ASGI endpoint and its engine: valid and invalid requests, concurrently.

A valid request is answered once, under its own id and with its result, whatever the other requests are.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.protocol.errors import RemoteProtocolError
from greenroom.protocol.jsonrpc import JsonRpcRequest, parse
from greenroom.protocol.methods import METHODS
from greenroom.transports.asgi import AsgiEndpoint
from greenroom.transports.http_engine import HttpEngine

from .asgi_requests import PLAIN, AsgiRequest, answers
from .fuzz_target import pieces
from .fuzzed_server import LONG, NAMES, PersistentServer
from .targets.connections import CONFIG, call, entered, leave

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.actors.company import Company

STREAMS = {"slow", "steps", "ask", "forever"}


@pytest.fixture(scope="module")
def standing() -> Iterator[PersistentServer]:
    opened = PersistentServer()
    yield opened
    opened.close()


@dataclass(frozen=True)
class ValidRequest:
    """A valid request, which must be answered."""

    tool: str
    cancelled: bool
    steps: bytes


@dataclass(frozen=True)
class InvalidRequest:
    """An invalid request, which must not affect others."""

    verb: str
    path: str
    headers: list[tuple[bytes, bytes]]
    plain: bool
    body: bytes
    steps: bytes
    leaves: float | None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abx"), inner, max_size=3),
    max_leaves=5,
)
PARAMS = st.dictionaries(
    st.sampled_from(["name", "arguments", "uri", "cursor", "level", "ref", "argument", "requestId", "_meta", "task"]),
    st.sampled_from([*NAMES, "note://a", "info", {"type": "ref/prompt", "name": "greet"}, {"name": "name"}, 0])
    | VALUES,
    max_size=4,
)
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.sampled_from([*METHODS, "initialized", "no/such"])},
    optional={"id": st.integers(100, 105) | VALUES, "params": PARAMS, "result": VALUES, "error": VALUES},
)


def damaged(data: bytes, place: int, length: int, scrap: bytes) -> bytes:
    at = place % (len(data) + 1)
    return data[:at] + scrap + data[at + length :]


BODIES = (
    st.binary(max_size=30)
    | MESSAGES.map(lambda message: json.dumps(message).encode())
    | st.builds(
        damaged,
        MESSAGES.map(lambda message: json.dumps(message).encode()),
        *(st.integers(0, 500), st.integers(0, 5), st.binary(max_size=3)),
    )
)
NAMED = ["host", "origin", "accept", "content-type", "content-length", "content-encoding", "mcp-session-id", "expect"]
HEADERS = st.lists(
    st.tuples(
        st.sampled_from([*NAMED, "mcp-protocol-version", "last-event-id", "authorization"]).map(str.encode)
        | st.binary(min_size=1, max_size=8),
        st.sampled_from(
            [b"$S", b"localhost", b"http://localhost", b"null", b"*/*", b"2025-06-18", b"g0:0", b"a\r\nb: c"]
        )
        | st.binary(max_size=12),
    ),
    max_size=4,
)
STEPS = st.binary(min_size=1, max_size=3)
REQUESTS = st.one_of(
    st.builds(ValidRequest, tool=st.sampled_from(NAMES), cancelled=st.booleans(), steps=STEPS),
    st.builds(
        InvalidRequest,
        verb=st.sampled_from(["POST", "POST", "GET", "DELETE", "OPTIONS", "HEAD", "PUT", "PO ST", ""]),
        path=st.sampled_from(["/mcp", "/", "/mcp/", "/other", ""]) | st.text(max_size=5),
        headers=HEADERS,
        plain=st.booleans(),
        body=BODIES,
        steps=STEPS,
        leaves=st.none() | st.sampled_from([0.0, 0.5, 3.0]),
    ),
)


class Conversation:
    """A conversation of two peers with one server: an honest one, and another one."""

    def __init__(self, company: Company) -> None:
        self.company = company
        self.app = AsgiEndpoint(HttpEngine(company, CONFIG))
        self.right: list[tuple[ValidRequest, int, AsgiRequest]] = []
        self.wrong: list[tuple[InvalidRequest, bytes, AsgiRequest]] = []

    async def hold(self, requests: list[ValidRequest | InvalidRequest]) -> None:
        honest, other = await entered(self.company), await entered(self.company)
        for number, request in enumerate(requests):
            if isinstance(request, ValidRequest):
                await self.ask(number, request, honest.id)
            else:
                await self.bother(request, other.id)
            await asyncio.sleep(0.1)
        await asyncio.sleep(LONG / 10)
        for right, id, ride in self.right:
            self.judge(right, id, ride)
        for wrong, body, ride in self.wrong:
            assert ride.status or wrong.leaves is not None or not ride.task.done()
            self.judge_answer(body, ride)
        ping = self.post({"jsonrpc": "2.0", "id": "good", "method": "ping"}, honest.id)
        await ping.task
        assert ping.messages == [{"jsonrpc": "2.0", "id": "good", "result": {}}]
        for ride in [ping, *(ride for *_, ride in self.right), *(ride for *_, ride in self.wrong)]:
            await ride.gone()
        await leave(self.company)

    def post(self, message: Any, session: str, steps: bytes = b"\xff") -> AsgiRequest:
        body = pieces(json.dumps(message).encode(), steps)
        return AsgiRequest(self.app, "POST", [*PLAIN, (b"mcp-session-id", session.encode())], body)

    async def ask(self, id: int, request: ValidRequest, session: str) -> None:
        arguments: dict[str, dict[str, Any]] = {
            "echo": {"text": f"canary {id}"},
            "add": {"a": id},
            "slow": {"seconds": 2},
            "steps": {"count": 3},
        }
        message = call(request.tool, id, **arguments.get(request.tool, {}))
        self.right.append((request, id, self.post(message, session, request.steps)))
        if request.cancelled:
            await asyncio.sleep(0.5)
            params = {"requestId": id}
            told = self.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}, session)
            await told.task
            assert told.status == 202

    async def bother(self, request: InvalidRequest, session: str) -> None:
        own = session.encode()
        headers = [(name, value.replace(b"$S", own)) for name, value in request.headers]
        if request.plain:
            headers = [*PLAIN, (b"mcp-session-id", own), *headers]
        ride = AsgiRequest(self.app, request.verb, headers, pieces(request.body, request.steps), request.path)
        self.wrong.append((request, request.body, ride))
        if request.leaves is not None:
            await asyncio.sleep(request.leaves)
            ride.leave()

    def judge(self, request: ValidRequest, id: int, ride: AsgiRequest) -> None:
        assert ride.task.done(), request
        assert (ride.status, ride.whole) == (200, True), request
        told = [message for message in ride.messages if "method" not in message]
        if request.cancelled and request.tool in STREAMS:
            assert not told or answers(told, id) == 1
            return
        assert answers(told, id) == len(told) == 1, request
        if request.tool == "echo":
            assert told[0]["result"]["content"][0]["text"] == f"canary {id}"

    def judge_answer(self, body: bytes, ride: AsgiRequest) -> None:
        """An invalid request has at most one answer, under its own id, if any."""
        told = [message for message in ride.messages if "method" not in message]
        assert len(told) <= 1, "two answers"
        try:
            message = parse(body)
        except RemoteProtocolError:
            return
        for answer in told:
            assert ("result" in answer) != ("error" in answer)
            own = isinstance(message, JsonRpcRequest) and answers([answer], message.id)
            assert own or (answer["id"] is None and "error" in answer)


@settings(max_examples=examples(150))
@given(requests=st.lists(REQUESTS, max_size=10))
def test_a_valid_request_is_answered_once_whatever_the_others_are(
    standing: PersistentServer, requests: list[ValidRequest | InvalidRequest]
) -> None:
    async def scene(company: Company) -> None:
        await Conversation(company).hold(requests)

    standing.play(scene)
