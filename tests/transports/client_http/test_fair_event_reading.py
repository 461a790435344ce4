"""Fair reading of one server's events, in turns: however small or invalid they are, and whatever they request."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest, JsonRpcResponse, MessageLimits
from greenroom.transports.client import event_stream
from greenroom.transports.client.errors import NotMcp
from greenroom.transports.client.event_stream import EventStream
from greenroom.transports.client.http_route import HttpRoute, SseRoute
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.http_wire import HttpWire
from greenroom.transports.client.interfaces import Inbound, InvalidMessage

from .scripted_server import ReceivedRequest, answer, event, scripted_server
from .wire_and_server import wire_and_server
from .wire_owner import HELLO, WireOwner, open_wire

BROKEN = b"data:-\n\n"
PING = {"jsonrpc": "2.0", "id": 9, "method": "ping"}


def note(number: int) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": number}}


def notes(count: int) -> bytes:
    return b"".join(event(note(number)) for number in range(count))


@pytest.fixture
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "READ_TURN", -1.0)  # each event takes longer than a turn


@pytest.fixture
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "READ_TURN", 1000.0)


@pytest.mark.usefixtures("short_turns")
def test_events_left_of_a_turn_wait_for_the_next() -> None:
    stream = EventStream(MessageLimits.of_size(1000))
    heard = stream.feed(BROKEN * 3 + notes(2))
    while stream.has_backlog:
        before = len(heard)
        heard += stream.feed(b"")
        assert len(heard) == before + 1
    assert [type(each) for each in heard] == [InvalidMessage] * 3 + [JsonRpcNotification] * 2
    assert stream.feed(b"") == []


@pytest.mark.usefixtures("long_turns")
def test_eight_requests_of_a_server_are_taken_in_a_turn() -> None:
    stream = EventStream(MessageLimits.of_size(1000))
    heard = stream.feed((event(PING) + event(note(1))) * 20)
    assert sum(type(each) is JsonRpcRequest for each in heard) == 8
    heard += stream.feed(b"")
    assert sum(type(each) is JsonRpcRequest for each in heard) == 16
    heard += stream.feed(b"")
    assert len(heard) == 40
    assert not stream.has_backlog


@pytest.mark.usefixtures("long_turns")
def test_cheap_messages_are_read_at_once() -> None:
    stream = EventStream(MessageLimits.of_size(1000))
    assert len(stream.feed(notes(100))) == 100


async def in_order(owner: WireOwner, count: int) -> None:
    """So many notifications arrive, no two of them in one mail."""
    for number in range(count):
        assert not owner.rest
        heard = await owner.hear()
        assert isinstance(heard, JsonRpcNotification)
        assert heard.params == {"data": number}


@pytest.mark.usefixtures("short_turns")
@pytest.mark.parametrize("carrier", ["ours", "httpx"])
async def test_a_reply_behind_many_events_is_delivered_although_the_connection_has_ended(carrier: str) -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(notes(20) + event() * 3 + event(answer(received.id, {"ok": 1})) + event(note(20)))
        received.close()

    async with (
        scripted_server(call=stream) as server,
        httpx.AsyncClient() as client,
        open_wire(HttpRoute(server.url, transport=client if carrier == "httpx" else None)) as owner,
    ):
        await owner.greet()
        id = owner.call("any")
        await in_order(owner, 20)
        assert await owner.answer(id) == {"ok": 1}
        assert isinstance(await owner.hear(), JsonRpcNotification)
        assert await owner.answer(owner.ask("ping"))
        assert owner.silent()


@pytest.mark.usefixtures("short_turns")
async def test_a_complete_response_is_taken_in_turns() -> None:
    async def whole(request: httpx.Request) -> httpx.Response:
        id = json.loads(request.content)["id"]
        body = notes(5) + event(answer(id, {"ok": 1})) if b"tools/call" in request.content else event(answer(id))
        return httpx.Response(200, content=body, headers={"content-type": "text/event-stream"})

    async with open_wire(HttpRoute("https://nowhere.invalid/mcp", transport=httpx.MockTransport(whole))) as owner:
        assert await owner.answer(owner.ask("initialize", HELLO)) == {}
        id = owner.call("any")
        await in_order(owner, 5)
        assert await owner.answer(id) == {"ok": 1}


@pytest.mark.usefixtures("short_turns")
async def test_the_stream_of_a_session_is_taken_in_turns() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(notes(20))
        await received.gone()

    async with wire_and_server(GET=stream) as (owner, _):
        await in_order(owner, 20)


@pytest.mark.usefixtures("short_turns")
async def test_the_stream_of_the_legacy_transport_is_taken_in_turns() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(b"event: endpoint\ndata: /post\n\n" + notes(20))
        await received.gone()

    async with scripted_server(GET=stream) as server, open_wire(SseRoute(server.url)) as owner:
        await in_order(owner, 20)


def broken_then_a_note(count: int) -> bytes:
    return (BROKEN * (count - 1) + event(note(0))) * 3


@pytest.mark.parametrize("way", ["answer", "session", "old"])
async def test_many_invalid_messages_in_a_row_end_the_wire(way: str) -> None:
    begun = b"event: endpoint\ndata: /post\n\n" if way == "old" else b""
    go = asyncio.Event()

    async def stream(received: ReceivedRequest) -> None:
        await received.stream(begun, broken_then_a_note(5))
        await go.wait()
        await received.send(BROKEN * 100_000)
        await received.gone()

    settings = HttpSettings(quarantine=5)
    async with scripted_server(**{"call" if way == "answer" else "GET": stream}) as server:
        route = (SseRoute if way == "old" else HttpRoute)(server.url, settings=settings)
        async with open_wire(route) as owner:
            if way != "old":
                await owner.greet()
            if way == "answer":
                owner.call("any")
            heard = [await owner.hear() for _ in range(15)]
            assert [type(each) for each in heard] == ([InvalidMessage] * 4 + [JsonRpcNotification]) * 3
            go.set()
            error = await owner.end()
            assert isinstance(error, NotMcp)
            assert "no MCP server" in str(error)
            assert len(owner.passed) < 1000  # of 100,000


async def test_many_invalid_responses_in_a_row_end_the_wire() -> None:
    async def wrong(received: ReceivedRequest) -> None:
        await received.reply(200, b"-", content_type="application/json")

    async with wire_and_server(wrong, HttpSettings(quarantine=3)) as (owner, server):
        for _ in range(3):
            owner.call("any")
            assert isinstance(await owner.hear(), InvalidMessage)
        assert isinstance(await owner.end(), NotMcp)
        assert len(server.seen("tools/call")) == 3


async def test_a_server_that_reads_no_answers_is_not_read_further(monkeypatch: pytest.MonkeyPatch) -> None:
    held = asyncio.Event()

    async def asks(received: ReceivedRequest) -> None:
        await received.stream(event(PING) * 2000)
        await received.gone()

    async def hold(received: ReceivedRequest) -> None:
        await held.wait()
        await received.reply(202)

    pings = 0
    heard = HttpWire.deliver

    def answering(wire: HttpWire, said: Any) -> None:
        nonlocal pings
        for each in said:
            if type(each) is JsonRpcRequest:
                pings += 1
                wire.send(json.dumps(answer(each.id)).encode())
        heard(wire, [each for each in said if type(each) is JsonRpcResponse])

    monkeypatch.setattr(HttpWire, "deliver", answering)
    async with wire_and_server(GET=asks, answer=hold) as (owner, server):
        await server.until("answer", 33)
        await asyncio.sleep(5)  # of virtual time
        assert 33 <= pings <= 40
        assert await owner.answer(owner.ask("ping"))
        held.set()
        await server.until("answer", 200)
        assert pings >= 200


async def test_an_inbound_mail_contains_the_messages_of_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "READ_TURN", 1000.0)

    async def asks(received: ReceivedRequest) -> None:
        await received.stream(event(PING) * 24)
        await received.gone()

    async with wire_and_server(GET=asks) as (owner, _):
        for _ in range(3):
            mail = await owner.me.receive(timeout=600.0)
            assert isinstance(mail, Inbound)
            assert len(mail.items) == 8


@pytest.mark.parametrize("quarantine", [0, -1])
def test_a_quarantine_of_zero_is_refused(quarantine: int) -> None:
    with pytest.raises(Exception, match="quarantine must be more than 0"):
        HttpSettings(quarantine=quarantine)
