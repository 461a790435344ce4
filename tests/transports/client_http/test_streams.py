"""Answers that are streams, streams that break, and the stream for what belongs to no request."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest

from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcResponse
from greenroom.transports.client.errors import ConnectionLost, ResponseTooLarge, SilentTooLong
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.interfaces import InvalidMessage, StreamGap, UnansweredRequest

from .scripted_server import SESSION, Visit, answer, event
from .wire_and_server import facing, lost

NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}


def now() -> float:
    return asyncio.get_running_loop().time()


def note(number: int) -> dict[str, Any]:
    return {**NOTE, "params": {"data": number}}


# --- an answer


@pytest.mark.row("CT-03", "CT-06")
async def test_what_a_stream_may_look_like() -> None:
    async def stream(visit: Visit) -> None:
        text = json.dumps(answer(visit.id, {"ok": 1}), indent=1)
        await visit.stream(
            b"\xef\xbb\xbf: hello\r\n\r\nid: 1\rdata:\r\r",
            b"event: whatever\ndata: " + json.dumps(NOTE).encode() + b"\n\n",
            b"data\n\nretry: soon\nunknown: field\n: comment\n\n",
            "".join(f"data:{line}\r\n" for line in text.splitlines()).encode() + b"\r\n",
        )
        visit.close()

    async with facing(stream) as (owner, _):
        id = owner.call("any")
        assert isinstance(await owner.hear(), JsonRpcNotification)
        assert await owner.answer(id) == {"ok": 1}
        assert owner.silent()


async def test_a_stream_that_comes_byte_by_byte() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream()
        for byte in event(NOTE) + event(answer(visit.id)):
            await visit.send(bytes([byte]))
            await asyncio.sleep(0)
        visit.close()

    async with facing(stream) as (owner, _):
        id = owner.call("any")
        assert isinstance(await owner.hear(), JsonRpcNotification)
        assert await owner.answer(id) == {}


@pytest.mark.row("CT-05")
async def test_a_stream_that_ends_too_early_is_taken_up_where_it_broke() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream(event(None, id="a1", retry=300))
        await visit.send(event(NOTE, id="a2") + b"data: {half of")
        visit.close()

    async def again(visit: Visit) -> None:
        if "last-event-id" in visit.headers:
            times.append(now())
            await visit.stream(event(NOTE, id="a3") + event(answer(id, {"ok": 1}), id="a4"))
            visit.close()
        else:
            await visit.reply(405)

    times: list[float] = []
    async with facing(stream, GET=again) as (owner, server):
        began = now()
        id = owner.call("any")
        assert [type(await owner.hear()) for _ in range(2)] == [JsonRpcNotification] * 2
        assert await owner.answer(id) == {"ok": 1}
        (resumed,) = [each for each in server.seen("GET") if "last-event-id" in each.headers]
        assert resumed.headers["last-event-id"] == "a2"
        assert resumed.headers["mcp-session-id"] == SESSION
        assert resumed.headers["mcp-protocol-version"] == "2025-11-25"
        assert times[0] - began == pytest.approx(0.3, abs=0.05)
        assert len(server.seen("tools/call")) == 1
        assert owner.silent()


@pytest.mark.parametrize(("mark", "said"), [("ünï☃", "ünï☃"), ("a\x07b", None), ("x" * 5000, None), ("a b", "a b")])
async def test_a_mark_is_given_back_as_it_was_or_not_at_all(mark: str, said: str | None) -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream(f"id: {mark}\ndata:\n\n".encode())
        visit.close()

    async def again(visit: Visit) -> None:
        if len(server.seen("GET")) == 1:
            await visit.reply(405)
        else:
            await visit.stream(event(answer(id)))

    async with facing(stream) as (owner, server):
        server.on("GET", again)
        id = owner.call("any")
        if said is None:
            assert isinstance(await owner.hear(), UnansweredRequest)
        else:
            assert await owner.answer(id) == {}
            assert server.seen("GET")[1].headers["last-event-id"].encode("latin-1").decode() == said


async def test_it_is_not_taken_up_for_ever() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream(event(None, id="a1"))
        visit.close()

    async def again(visit: Visit) -> None:
        if "last-event-id" in visit.headers:
            await visit.stream()
            visit.close()
        else:
            await visit.reply(405)

    async with facing(stream, HttpSettings(resumes=3), GET=again) as (owner, server):
        assert isinstance((await lost(owner)).error, ConnectionLost)
        assert len(server.seen("GET")) == 4


async def test_a_stream_that_nobody_wants_any_more_is_not_taken_up() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream(event(None, id="a1"))
        visit.close()

    async with facing(stream) as (owner, server):
        id = owner.call("any")
        await server.until("tools/call")
        await asyncio.sleep(0.5)
        owner.wire.forget(id)
        await asyncio.sleep(5)
        assert len(server.seen("GET")) == 1
        assert owner.silent()


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_that_has_marked_and_not_kept(status: int) -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream(event(None, id="a1"))
        visit.close()

    async def again(visit: Visit) -> None:
        await visit.reply(status if "last-event-id" in visit.headers else 405)

    async with facing(stream, GET=again) as (owner, _):
        id = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, False)
        assert isinstance(heard.error, ConnectionLost)


async def test_a_stream_without_marks_is_lost_with_its_connection() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream(event(NOTE))
        visit.abort()

    async with facing(stream) as (owner, server):
        id = owner.call("any")
        assert isinstance(await owner.hear(), JsonRpcNotification)
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, False)
        assert len(server.seen("GET")) == 1


async def test_a_stream_that_goes_on_after_its_answer_is_let_go() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream(event(answer(visit.id)))
        await visit.gone()

    async with facing(stream) as (owner, _):
        for _ in range(3):
            assert await owner.answer(owner.call("any")) == {}
        await asyncio.sleep(2)
        assert await owner.answer(owner.ask("ping"))
        assert owner.silent()


@pytest.mark.row("CT-09")
async def test_an_event_that_is_too_large_fails_the_request_that_it_answers() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream(event(answer(visit.id, {"text": "x" * 200_000})), event(NOTE))
        visit.close()

    async with facing(stream, HttpSettings(max_event=100_000)) as (owner, _):
        id = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, InvalidMessage)
        assert heard.error.answers == id
        assert isinstance(await owner.hear(), JsonRpcNotification)
        assert await owner.answer(owner.ask("ping"))


@pytest.mark.row("CT-09")
async def test_an_event_without_an_end_is_read_no_further() -> None:
    sent = 0

    async def stream(visit: Visit) -> None:
        nonlocal sent
        await visit.stream(b"data: ")
        while True:
            await visit.send(b"x" * 65536)
            sent += 65536

    async with facing(stream, HttpSettings(max_event=100_000)) as (owner, _):
        assert isinstance((await lost(owner)).error, ResponseTooLarge)
        assert sent < 10_000_000


async def test_a_line_that_goes_on_for_ever_in_a_comment_is_read_no_further() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream(b": ")
        while True:
            await visit.send(b"x" * 65536)

    async with facing(stream, HttpSettings(max_event=100_000)) as (owner, _):
        assert isinstance((await lost(owner)).error, ResponseTooLarge)


async def test_comments_put_off_silence_and_nothing_else() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream()
        if visit.message["params"]["name"] == "alive":
            for _ in range(10):
                await asyncio.sleep(2)
                await visit.send(b": still here\n\n")
            await visit.send(event(answer(visit.id)))
        await visit.gone()

    async with facing(stream, HttpSettings(silence=3.0)) as (owner, _):
        began = now()
        assert await owner.answer(owner.call("alive")) == {}
        assert now() - began == pytest.approx(20, abs=0.5)
        began = now()
        assert isinstance((await lost(owner)).error, SilentTooLong)
        assert now() - began == pytest.approx(3, abs=0.1)


# --- what belongs to no request


@pytest.mark.row("CT-04")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 406, 501])
async def test_a_server_without_such_a_stream_is_asked_once(status: int) -> None:
    async def none(visit: Visit) -> None:
        await visit.reply(status)

    async with facing(GET=none) as (owner, server):
        await asyncio.sleep(100)
        assert await owner.answer(owner.ask("ping"))
        assert len(server.seen("GET")) == 1
        assert owner.silent()


@pytest.mark.row("CT-02", "CT-04", "CT-05")
async def test_the_stream_is_opened_again_with_the_mark() -> None:
    async def stream(visit: Visit) -> None:
        times.append(now())
        number = len(times)
        await visit.stream(event(note(number), id=f"g{number}", retry=None if number == 1 else 5000))
        if number < 4:
            visit.close()
        else:
            await visit.gone()

    times: list[float] = []
    async with facing(GET=stream) as (owner, server):
        for number in range(1, 5):
            heard = await owner.hear()
            assert isinstance(heard, JsonRpcNotification)
            assert heard.params["data"] == number
        visits = server.seen("GET")
        assert [each.headers.get("last-event-id") for each in visits] == [None, "g1", "g2", "g3"]
        assert all(each.headers["accept"] == "text/event-stream" for each in visits)
        assert all(each.headers["mcp-session-id"] == SESSION for each in visits)
        assert all(each.headers["mcp-protocol-version"] == "2025-11-25" for each in visits)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps == [pytest.approx(seconds, abs=0.1) for seconds in (1, 5, 5)]


async def test_a_stream_that_ends_at_once_each_time_is_not_opened_in_a_hurry() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream(b"retry: 0\n\n")
        visit.close()

    async with facing(GET=stream) as (_, server):
        await asyncio.sleep(60)
        assert len(server.seen("GET")) < 100


async def test_an_answer_that_was_promised_and_never_comes_can_be_forgotten() -> None:
    async def later(visit: Visit) -> None:
        await visit.reply(202)

    async with facing(later, HttpSettings(max_waiting_bytes=1000)) as (owner, server):
        for number in range(20):
            id = owner.call("any", text="x" * 300)
            await server.until("tools/call", number + 1)
            assert await owner.answer(owner.ask("ping"))
            owner.wire.forget(id)
            owner.wire.forget(id)
        assert owner.wire._bytes_in_flight == 0


async def test_a_stream_without_marks_leaves_a_gap() -> None:
    async def stream(visit: Visit) -> None:
        times.append(now())
        await visit.stream(event(NOTE))
        if len(times) == 1:
            visit.abort()
        else:
            await visit.gone()

    times: list[float] = []
    async with facing(GET=stream) as (owner, _):
        assert [type(await owner.hear()) for _ in range(3)] == [JsonRpcNotification, StreamGap, JsonRpcNotification]


async def test_what_the_server_answers_on_the_other_stream_is_heard() -> None:
    async def later(visit: Visit) -> None:
        await visit.reply(202)
        await server.seen("GET")[0].send(event(answer(visit.id, {"by": "GET"})))

    async def stream(visit: Visit) -> None:
        await visit.stream(b": open\n\n")
        await visit.gone()

    async with facing(later, GET=stream) as (owner, server):
        assert await owner.answer(owner.call("any")) == {"by": "GET"}


async def test_a_server_that_is_away_is_asked_less_and_less_often() -> None:
    async def stream(visit: Visit) -> None:
        times.append(now())
        if len(times) == 1:
            await visit.stream(event(NOTE, id="g1"))
            visit.close()
        elif len(times) < 8:
            await visit.reply(503)
        else:
            await visit.stream(event(NOTE, id="g2"))
            await visit.gone()

    times: list[float] = []
    async with facing(GET=stream) as (owner, _):
        assert isinstance(await owner.hear(), JsonRpcNotification)
        assert isinstance(await owner.hear(), JsonRpcNotification)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps == [pytest.approx(seconds, abs=0.2) for seconds in (1, 1, 2, 4, 8, 16, 30)]


async def test_nothing_overtakes_what_is_ordered() -> None:
    async def slow(visit: Visit) -> None:
        await asyncio.sleep(1)
        await visit.reply(202)

    async with facing() as (owner, server):
        server.on("notifications/slow", slow)
        owner.note("notifications/slow", ordered=True)
        ids = [owner.call("any") for _ in range(3)]
        owner.note("notifications/last")
        await server.until("notifications/slow")
        await asyncio.sleep(0.5)
        assert not server.seen("tools/call")
        assert not server.seen("notifications/last")
        heard = [await owner.hear() for _ in range(3)]
        assert {each.id for each in heard if isinstance(each, JsonRpcResponse)} == set(ids)
        await server.until("notifications/last")


async def test_who_sends_more_than_is_read_is_read_more_slowly() -> None:
    sent = 0
    padded = event({**NOTE, "params": {"data": "x" * 100_000}})

    async def flood(visit: Visit) -> None:
        nonlocal sent
        await visit.stream()
        while sent < 1000:
            await visit.send(padded)
            sent += 1
        await visit.gone()

    async with facing(GET=flood) as (owner, _):
        await asyncio.sleep(10)
        before = sent, len(owner.me)
        assert before[0] < 500
        assert before[1] < 100
        await asyncio.sleep(10)
        assert (sent, len(owner.me)) == before
        for _ in range(1000):
            assert isinstance(await owner.hear(), JsonRpcNotification)
        assert sent == 1000
        assert owner.silent()
