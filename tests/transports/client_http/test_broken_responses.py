"""What becomes of a message when its answer is no proper one: what is taken up again, what is told, and that the wire goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from greenroom.transports.client.errors import ConnectionLost, HttpError, NotMcp, ResponseTooLarge, SessionGone
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.interfaces import InvalidMessage, UnansweredRequest

from .scripted_server import Visit, answer, event, scripted
from .wire_and_server import facing, lost, says
from .wire_owner import HELLO, opened

if TYPE_CHECKING:
    from collections.abc import Callable

    from .scripted_server import Handler

CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def cut(*events: bytes | Callable[[Visit], bytes]) -> Handler:
    """A stream of these events that breaks where more was announced."""

    async def handler(visit: Visit) -> None:
        await visit.send(CHUNKED)
        for each in events:
            data: bytes = each(visit) if callable(each) else each
            await visit.send(b"%x\r\n%b\r\n" % (len(data), data))
        await visit.send(b"ff\r\n")
        visit.close()

    return handler


def answered(visit: Visit) -> bytes:
    return event(answer(visit.id, {"ok": 1}))


def resumed(*replies: Handler) -> Handler:
    """The stream for what belongs to no request there is none of; streams that are taken up again are answered like this, in turn."""
    left = list(replies)

    async def handler(visit: Visit) -> None:
        if "last-event-id" in visit.headers:
            await left.pop(0)(visit)
        else:
            await visit.reply(405)

    return handler


def refused(status: int) -> Handler:
    async def handler(visit: Visit) -> None:
        await visit.reply(status)

    return handler


# --- streams


async def test_a_stream_that_breaks_in_the_middle_is_taken_up_also_where_the_server_was_busy_meanwhile() -> None:
    async def on(visit: Visit) -> None:
        await visit.stream(event(answer(id, {"ok": 1})))
        visit.close()

    get = resumed(refused(503), cut(event(None, id="a2")), on)
    async with facing(cut(event(None, id="a1")), GET=get) as (owner, server):
        id = owner.call("any")
        assert await owner.answer(id) == {"ok": 1}
        marks = [each.headers.get("last-event-id") for each in server.seen("GET")]
        assert marks == [None, "a1", "a1", "a2"]
        assert len(server.seen("tools/call")) == 1


async def test_what_breaks_after_the_answer_is_nobodys_loss() -> None:
    async with facing(cut(event(None, id="a1"), answered)) as (owner, server):
        assert await owner.answer(owner.call("any")) == {"ok": 1}
        assert await owner.answer(owner.ask("ping"))
        await asyncio.sleep(10)
        assert owner.silent()
        assert len(server.seen("GET")) == 1


async def test_who_goes_on_for_ever_after_the_answer_is_not_listened_to_and_the_answer_counts() -> None:
    sent = 0

    async def endless(visit: Visit) -> None:
        nonlocal sent
        await visit.stream(answered(visit), b": ")
        while True:
            await visit.send(b"x" * 65536)
            sent += 65536

    async with facing(endless, HttpSettings(max_event=100_000)) as (owner, _):
        assert await owner.answer(owner.call("any")) == {"ok": 1}
        assert await owner.answer(owner.ask("ping"))
        await asyncio.sleep(2)
        assert owner.silent()
        assert sent < 10_000_000


async def test_who_goes_on_with_something_else_than_the_stream_has_lost_it() -> None:
    async def other(visit: Visit) -> None:
        await visit.json(answer(1))

    async with facing(cut(event(None, id="a1")), GET=resumed(other)) as (owner, server):
        heard = await lost(owner)
        assert isinstance(heard.error, NotMcp)
        assert not heard.resend
        assert len(server.seen("GET")) == 2


async def test_the_session_may_be_gone_when_a_stream_is_taken_up_again() -> None:
    async with facing(cut(event(None, id="a1")), GET=resumed(refused(404))) as (owner, _):
        id = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, False)  # the server may have done what it was asked
        assert isinstance(await owner.end(), SessionGone)


async def test_an_event_too_large_to_say_whose_it_was_is_told_as_the_reason_why_there_is_no_answer() -> None:
    huge = b"id: a1\ndata: " + b"[" + b"1," * 100_000 + b"1]\n\n"
    async with facing(cut(huge), HttpSettings(max_event=100_000)) as (owner, server):
        id = owner.call("any")
        told = await owner.hear()
        assert isinstance(told, InvalidMessage)
        assert told.error.answers is None
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert heard.id == id
        assert isinstance(heard.error, ResponseTooLarge)
        assert len(server.seen("GET")) == 1  # which would bring the same again


# --- what is only taken note of


async def test_a_notification_is_redirected_once_and_the_next_goes_there_at_once() -> None:
    async def moved(visit: Visit) -> None:
        if visit.path == "/mcp":
            await visit.reply(307, location="/elsewhere")
        else:
            await visit.reply(202)

    async with facing() as (owner, server):
        server.on("notifications/any", moved)
        for _ in range(2):
            owner.note("notifications/any", ordered=True)
        assert await owner.answer(owner.ask("ping"))
        assert [each.path for each in server.seen("notifications/any")] == ["/mcp", "/elsewhere", "/elsewhere"]


async def test_what_a_server_has_to_say_of_a_notification_is_read_so_far_and_no_further() -> None:
    sent = 0

    async def talkative(visit: Visit) -> None:
        nonlocal sent
        await visit.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await visit.send(b"x" * 65536)
            sent += 65536

    async with facing() as (owner, server):
        server.on("notifications/any", talkative)
        owner.note("notifications/any", ordered=True)
        assert await owner.answer(owner.ask("ping"))
        assert owner.wire.unsent == 0
        assert sent < 10_000_000


@pytest.mark.parametrize(
    "handler",
    [says(b""), says(b"HTTP/1.1 204 No Content\r\ncontent-le"), says(b"SSH-2.0\r\n\r\n"), refused(500), refused(404)],
    ids=["hangs up", "half", "ssh", "500", "404"],
)
async def test_a_notification_that_nobody_took_is_counted_and_no_end(handler: Handler) -> None:
    async with scripted() as server:
        server.session = ""
        async with opened(HttpRoute(server.url)) as owner:
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


async def test_the_news_that_the_session_is_gone_may_come_for_a_notification() -> None:
    async with facing() as (owner, server):
        server.on("notifications/any", refused(404))
        owner.note("notifications/any")
        assert isinstance(await owner.end(), SessionGone)


async def test_who_takes_no_note_of_what_nothing_may_overtake_is_waited_for_so_long() -> None:
    settings = HttpSettings(send_timeout=7.0)
    async with scripted() as server, opened(HttpRoute(server.url, settings=settings)) as owner:
        server.on("notifications/initialized", says(b"", end="wait"))
        await owner.greet()
        began = asyncio.get_running_loop().time()
        error = await owner.end()
        assert isinstance(error, ConnectionLost)
        assert "took no note of a message within 7 s" in str(error)
        assert asyncio.get_running_loop().time() - began == pytest.approx(7, abs=0.5)


async def test_a_refusal_whose_words_are_json_rpc_and_no_answer_is_a_refusal() -> None:
    async def other(visit: Visit) -> None:
        await visit.json({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}, status=500)

    async with facing(other) as (owner, _):
        error = (await lost(owner)).error
        assert isinstance(error, HttpError)
        assert error.status == 500


async def test_a_session_that_cannot_be_sent_back_is_refused_also_on_a_stream() -> None:
    async def hello(visit: Visit) -> None:
        await visit.stream(event(answer(visit.id, {})), mcp_session_id="two words")
        await visit.gone()

    async with scripted(initialize=hello) as server, opened(HttpRoute(server.url)) as owner:
        owner.ask("initialize", HELLO)
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert isinstance(heard.error, NotMcp)
