"""Messages without a proper response: resumed streams, reported losses, and a wire that continues."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from greenroom.transports.client.errors import ConnectionLost, HttpError, NotMcp, ResponseTooLarge, SessionGone
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.interfaces import InvalidMessage, UnansweredRequest

from .scripted_server import ReceivedRequest, answer, event, scripted_server
from .wire_and_server import lost, responding, wire_and_server
from .wire_owner import HELLO, open_wire

if TYPE_CHECKING:
    from collections.abc import Callable

    from .scripted_server import Handler

CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def cut(*events: bytes | Callable[[ReceivedRequest], bytes]) -> Handler:
    """A stream of these events that breaks where more was announced."""

    async def handler(received: ReceivedRequest) -> None:
        await received.send(CHUNKED)
        for each in events:
            data: bytes = each(received) if callable(each) else each
            await received.send(b"%x\r\n%b\r\n" % (len(data), data))
        await received.send(b"ff\r\n")
        received.close()

    return handler


def answered(received: ReceivedRequest) -> bytes:
    return event(answer(received.id, {"ok": 1}))


def resumed(*replies: Handler) -> Handler:
    """A server without a standalone stream; resumed streams are answered in turn."""
    left = list(replies)

    async def handler(received: ReceivedRequest) -> None:
        if "last-event-id" in received.headers:
            await left.pop(0)(received)
        else:
            await received.reply(405)

    return handler


def refused(status: int) -> Handler:
    async def handler(received: ReceivedRequest) -> None:
        await received.reply(status)

    return handler


# --- streams


async def test_a_stream_that_breaks_is_resumed_even_if_the_server_was_busy_meanwhile() -> None:
    async def on(received: ReceivedRequest) -> None:
        await received.stream(event(answer(id, {"ok": 1})))
        received.close()

    get = resumed(refused(503), cut(event(None, id="a2")), on)
    async with wire_and_server(cut(event(None, id="a1")), GET=get) as (owner, server):
        id = owner.call("any")
        assert await owner.answer(id) == {"ok": 1}
        marks = [each.headers.get("last-event-id") for each in server.seen("GET")]
        assert marks == [None, "a1", "a1", "a2"]
        assert len(server.seen("tools/call")) == 1


async def test_a_break_after_the_reply_loses_nothing() -> None:
    async with wire_and_server(cut(event(None, id="a1"), answered)) as (owner, server):
        assert await owner.answer(owner.call("any")) == {"ok": 1}
        assert await owner.answer(owner.ask("ping"))
        await asyncio.sleep(10)
        assert owner.silent()
        assert len(server.seen("GET")) == 1


async def test_endless_output_after_the_reply_is_not_read_and_the_reply_counts() -> None:
    sent = 0

    async def endless(received: ReceivedRequest) -> None:
        nonlocal sent
        await received.stream(answered(received), b": ")
        while True:
            await received.send(b"x" * 65536)
            sent += 65536

    async with wire_and_server(endless, HttpSettings(max_event=100_000)) as (owner, _):
        assert await owner.answer(owner.call("any")) == {"ok": 1}
        assert await owner.answer(owner.ask("ping"))
        await asyncio.sleep(2)
        assert owner.silent()
        assert sent < 10_000_000


async def test_a_resumption_answered_with_something_else_loses_the_request() -> None:
    async def other(received: ReceivedRequest) -> None:
        await received.json(answer(1))

    async with wire_and_server(cut(event(None, id="a1")), GET=resumed(other)) as (owner, server):
        heard = await lost(owner)
        assert isinstance(heard.error, NotMcp)
        assert not heard.resend
        assert len(server.seen("GET")) == 2


async def test_a_session_may_be_gone_when_a_stream_is_resumed() -> None:
    async with wire_and_server(cut(event(None, id="a1")), GET=resumed(refused(404))) as (owner, _):
        id = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, False)  # the server may have executed the request
        assert isinstance(await owner.end(), SessionGone)


async def test_an_oversized_event_of_unknown_request_is_reported_as_the_reason_of_a_missing_reply() -> None:
    huge = b"id: a1\ndata: " + b"[" + b"1," * 100_000 + b"1]\n\n"
    async with wire_and_server(cut(huge), HttpSettings(max_event=100_000)) as (owner, server):
        id = owner.call("any")
        told = await owner.hear()
        assert isinstance(told, InvalidMessage)
        assert told.error.response_to is None
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert heard.id == id
        assert isinstance(heard.error, ResponseTooLarge)
        assert len(server.seen("GET")) == 1  # resuming would bring the same event again


# --- acknowledged messages


async def test_a_notification_is_redirected_once_and_the_next_goes_there_at_once() -> None:
    async def moved(received: ReceivedRequest) -> None:
        if received.path == "/mcp":
            await received.reply(307, location="/elsewhere")
        else:
            await received.reply(202)

    async with wire_and_server() as (owner, server):
        server.on("notifications/any", moved)
        for _ in range(2):
            owner.note("notifications/any", ordered=True)
        assert await owner.answer(owner.ask("ping"))
        assert [each.path for each in server.seen("notifications/any")] == ["/mcp", "/elsewhere", "/elsewhere"]


async def test_the_body_of_an_acknowledgement_is_read_up_to_a_limit() -> None:
    sent = 0

    async def talkative(received: ReceivedRequest) -> None:
        nonlocal sent
        await received.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await received.send(b"x" * 65536)
            sent += 65536

    async with wire_and_server() as (owner, server):
        server.on("notifications/any", talkative)
        owner.note("notifications/any", ordered=True)
        assert await owner.answer(owner.ask("ping"))
        assert owner.wire.unsent == 0
        assert sent < 10_000_000


@pytest.mark.parametrize(
    "handler",
    [
        responding(b""),
        responding(b"HTTP/1.1 204 No Content\r\ncontent-le"),
        responding(b"SSH-2.0\r\n\r\n"),
        refused(500),
        refused(404),
    ],
    ids=["hangs up", "half", "ssh", "500", "404"],
)
async def test_an_undelivered_notification_is_counted_and_does_not_end_the_wire(handler: Handler) -> None:
    async with scripted_server() as server:
        server.session = ""
        async with open_wire(HttpRoute(server.url)) as owner:
            await owner.greet()
            server.on("notifications/any", handler)
            owner.note("notifications/any")
            await server.until("notifications/any")
            assert await owner.answer(owner.ask("ping"))
            while not owner.wire.unsent:  # noqa: ASYNC110 - nothing is told of it
                await asyncio.sleep(0.1)
            assert owner.wire.unsent == 1
            assert owner.silent()
            assert len(server.seen("notifications/any")) == 1


async def test_the_response_to_a_notification_can_report_the_lost_session() -> None:
    async with wire_and_server() as (owner, server):
        server.on("notifications/any", refused(404))
        owner.note("notifications/any")
        assert isinstance(await owner.end(), SessionGone)


async def test_an_ordered_message_without_acknowledgement_times_out() -> None:
    settings = HttpSettings(send_timeout=7.0)
    async with scripted_server() as server, open_wire(HttpRoute(server.url, settings=settings)) as owner:
        server.on("notifications/initialized", responding(b"", end="wait"))
        await owner.greet()
        began = asyncio.get_running_loop().time()
        error = await owner.end()
        assert isinstance(error, ConnectionLost)
        assert "did not acknowledge a message within 7 s" in str(error)
        assert asyncio.get_running_loop().time() - began == pytest.approx(7, abs=0.5)


async def test_a_refusal_with_json_rpc_that_is_no_reply_is_a_refusal() -> None:
    async def other(received: ReceivedRequest) -> None:
        await received.json({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}, status=500)

    async with wire_and_server(other) as (owner, _):
        error = (await lost(owner)).error
        assert isinstance(error, HttpError)
        assert error.status == 500


async def test_an_invalid_session_id_is_refused_on_a_stream_as_well() -> None:
    async def hello(received: ReceivedRequest) -> None:
        await received.stream(event(answer(received.id, {})), mcp_session_id="two words")
        await received.gone()

    async with scripted_server(initialize=hello) as server, open_wire(HttpRoute(server.url)) as owner:
        owner.ask("initialize", HELLO)
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert isinstance(heard.error, NotMcp)
