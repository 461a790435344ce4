"""Event streams as replies, broken streams, and the standalone stream."""

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

from .scripted_server import SESSION, ReceivedRequest, answer, event
from .wire_and_server import lost, wire_and_server

NOTE = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}


def now() -> float:
    return asyncio.get_running_loop().time()


def note(number: int) -> dict[str, Any]:
    return {**NOTE, "params": {"data": number}}


# --- streams as replies


@pytest.mark.row("CT-03", "CT-06")
async def test_every_form_of_stream_is_read() -> None:
    async def stream(received: ReceivedRequest) -> None:
        text = json.dumps(answer(received.id, {"ok": 1}), indent=1)
        await received.stream(
            b"\xef\xbb\xbf: hello\r\n\r\nid: 1\rdata:\r\r",
            b"event: whatever\ndata: " + json.dumps(NOTE).encode() + b"\n\n",
            b"data\n\nretry: soon\nunknown: field\n: comment\n\n",
            "".join(f"data:{line}\r\n" for line in text.splitlines()).encode() + b"\r\n",
        )
        received.close()

    async with wire_and_server(stream) as (owner, _):
        id = owner.call("any")
        assert isinstance(await owner.hear(), JsonRpcNotification)
        assert await owner.answer(id) == {"ok": 1}
        assert owner.silent()


async def test_a_stream_is_read_byte_by_byte() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream()
        for byte in event(NOTE) + event(answer(received.id)):
            await received.send(bytes([byte]))
            await asyncio.sleep(0)
        received.close()

    async with wire_and_server(stream) as (owner, _):
        id = owner.call("any")
        assert isinstance(await owner.hear(), JsonRpcNotification)
        assert await owner.answer(id) == {}


@pytest.mark.row("CT-05")
async def test_a_stream_that_ends_early_is_resumed_where_it_broke() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(event(None, id="a1", retry=300))
        await received.send(event(NOTE, id="a2") + b"data: {half of")
        received.close()

    async def again(received: ReceivedRequest) -> None:
        if "last-event-id" in received.headers:
            times.append(now())
            await received.stream(event(NOTE, id="a3") + event(answer(id, {"ok": 1}), id="a4"))
            received.close()
        else:
            await received.reply(405)

    times: list[float] = []
    async with wire_and_server(stream, GET=again) as (owner, server):
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
async def test_an_event_id_is_returned_unchanged_or_not_at_all(mark: str, said: str | None) -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(f"id: {mark}\ndata:\n\n".encode())
        received.close()

    async def again(received: ReceivedRequest) -> None:
        if len(server.seen("GET")) == 1:
            await received.reply(405)
        else:
            await received.stream(event(answer(id)))

    async with wire_and_server(stream) as (owner, server):
        server.on("GET", again)
        id = owner.call("any")
        if said is None:
            assert isinstance(await owner.hear(), UnansweredRequest)
        else:
            assert await owner.answer(id) == {}
            assert server.seen("GET")[1].headers["last-event-id"].encode("latin-1").decode() == said


async def test_a_stream_is_resumed_a_limited_number_of_times() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(event(None, id="a1"))
        received.close()

    async def again(received: ReceivedRequest) -> None:
        if "last-event-id" in received.headers:
            await received.stream()
            received.close()
        else:
            await received.reply(405)

    async with wire_and_server(stream, HttpSettings(resumes=3), GET=again) as (owner, server):
        assert isinstance((await lost(owner)).error, ConnectionLost)
        assert len(server.seen("GET")) == 4


async def test_a_forgotten_stream_is_not_resumed() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(event(None, id="a1"))
        received.close()

    async with wire_and_server(stream) as (owner, server):
        id = owner.call("any")
        await server.until("tools/call")
        await asyncio.sleep(0.5)
        owner.wire.forget(id)
        await asyncio.sleep(5)
        assert len(server.seen("GET")) == 1
        assert owner.silent()


@pytest.mark.parametrize("status", [400, 404, 405])
async def test_a_server_that_kept_no_events_is_reported(status: int) -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(event(None, id="a1"))
        received.close()

    async def again(received: ReceivedRequest) -> None:
        await received.reply(status if "last-event-id" in received.headers else 405)

    async with wire_and_server(stream, GET=again) as (owner, _):
        id = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, False)
        assert isinstance(heard.error, ConnectionLost)


async def test_a_stream_without_event_ids_is_lost_with_its_connection() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(event(NOTE))
        received.abort()

    async with wire_and_server(stream) as (owner, server):
        id = owner.call("any")
        assert isinstance(await owner.hear(), JsonRpcNotification)
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, False)
        assert len(server.seen("GET")) == 1


async def test_a_stream_that_continues_after_its_reply_is_closed() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(event(answer(received.id)))
        await received.gone()

    async with wire_and_server(stream) as (owner, _):
        for _ in range(3):
            assert await owner.answer(owner.call("any")) == {}
        await asyncio.sleep(2)
        assert await owner.answer(owner.ask("ping"))
        assert owner.silent()


@pytest.mark.row("CT-09")
async def test_an_oversized_event_fails_the_request_that_it_answers() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(event(answer(received.id, {"text": "x" * 200_000})), event(NOTE))
        received.close()

    async with wire_and_server(stream, HttpSettings(max_event=100_000)) as (owner, _):
        id = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, InvalidMessage)
        assert heard.error.response_to == id
        assert isinstance(await owner.hear(), JsonRpcNotification)
        assert await owner.answer(owner.ask("ping"))


@pytest.mark.row("CT-09")
async def test_an_endless_event_is_read_no_further() -> None:
    sent = 0

    async def stream(received: ReceivedRequest) -> None:
        nonlocal sent
        await received.stream(b"data: ")
        while True:
            await received.send(b"x" * 65536)
            sent += 65536

    async with wire_and_server(stream, HttpSettings(max_event=100_000)) as (owner, _):
        assert isinstance((await lost(owner)).error, ResponseTooLarge)
        assert sent < 10_000_000


async def test_an_endless_comment_line_is_read_no_further() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(b": ")
        while True:
            await received.send(b"x" * 65536)

    async with wire_and_server(stream, HttpSettings(max_event=100_000)) as (owner, _):
        assert isinstance((await lost(owner)).error, ResponseTooLarge)


async def test_comments_break_the_silence_and_nothing_else() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream()
        if received.message["params"]["name"] == "alive":
            for _ in range(10):
                await asyncio.sleep(2)
                await received.send(b": still here\n\n")
            await received.send(event(answer(received.id)))
        await received.gone()

    async with wire_and_server(stream, HttpSettings(silence=3.0)) as (owner, _):
        began = now()
        assert await owner.answer(owner.call("alive")) == {}
        assert now() - began == pytest.approx(20, abs=0.5)
        began = now()
        assert isinstance((await lost(owner)).error, SilentTooLong)
        assert now() - began == pytest.approx(3, abs=0.1)


# --- the standalone stream


@pytest.mark.row("CT-04")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 405, 406, 501])
async def test_a_server_without_a_standalone_stream_is_asked_once(status: int) -> None:
    async def none(received: ReceivedRequest) -> None:
        await received.reply(status)

    async with wire_and_server(GET=none) as (owner, server):
        await asyncio.sleep(100)
        assert await owner.answer(owner.ask("ping"))
        assert len(server.seen("GET")) == 1
        assert owner.silent()


@pytest.mark.row("CT-02", "CT-04", "CT-05")
async def test_the_standalone_stream_is_reopened_with_the_event_id() -> None:
    async def stream(received: ReceivedRequest) -> None:
        times.append(now())
        number = len(times)
        await received.stream(event(note(number), id=f"g{number}", retry=None if number == 1 else 5000))
        if number < 4:
            received.close()
        else:
            await received.gone()

    times: list[float] = []
    async with wire_and_server(GET=stream) as (owner, server):
        for number in range(1, 5):
            heard = await owner.hear()
            assert isinstance(heard, JsonRpcNotification)
            assert heard.params["data"] == number
        requests = server.seen("GET")
        assert [each.headers.get("last-event-id") for each in requests] == [None, "g1", "g2", "g3"]
        assert all(each.headers["accept"] == "text/event-stream" for each in requests)
        assert all(each.headers["mcp-session-id"] == SESSION for each in requests)
        assert all(each.headers["mcp-protocol-version"] == "2025-11-25" for each in requests)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps == [pytest.approx(seconds, abs=0.1) for seconds in (1, 5, 5)]


async def test_a_stream_that_ends_at_once_each_time_is_reopened_slowly() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(b"retry: 0\n\n")
        received.close()

    async with wire_and_server(GET=stream) as (_, server):
        await asyncio.sleep(60)
        assert len(server.seen("GET")) < 100


async def test_a_promised_reply_that_never_comes_can_be_forgotten() -> None:
    async def later(received: ReceivedRequest) -> None:
        await received.reply(202)

    async with wire_and_server(later, HttpSettings(max_waiting_bytes=1000)) as (owner, server):
        for number in range(20):
            id = owner.call("any", text="x" * 300)
            await server.until("tools/call", number + 1)
            assert await owner.answer(owner.ask("ping"))
            owner.wire.forget(id)
            owner.wire.forget(id)
        assert owner.wire._bytes_in_flight == 0


async def test_a_standalone_stream_without_event_ids_leaves_a_gap() -> None:
    async def stream(received: ReceivedRequest) -> None:
        times.append(now())
        await received.stream(event(NOTE))
        if len(times) == 1:
            received.abort()
        else:
            await received.gone()

    times: list[float] = []
    async with wire_and_server(GET=stream) as (owner, _):
        assert [type(await owner.hear()) for _ in range(3)] == [JsonRpcNotification, StreamGap, JsonRpcNotification]


async def test_a_reply_on_the_standalone_stream_is_delivered() -> None:
    async def later(received: ReceivedRequest) -> None:
        await received.reply(202)
        await server.seen("GET")[0].send(event(answer(received.id, {"by": "GET"})))

    async def stream(received: ReceivedRequest) -> None:
        await received.stream(b": open\n\n")
        await received.gone()

    async with wire_and_server(later, GET=stream) as (owner, server):
        assert await owner.answer(owner.call("any")) == {"by": "GET"}


async def test_an_unreachable_server_is_asked_at_growing_intervals() -> None:
    async def stream(received: ReceivedRequest) -> None:
        times.append(now())
        if len(times) == 1:
            await received.stream(event(NOTE, id="g1"))
            received.close()
        elif len(times) < 8:
            await received.reply(503)
        else:
            await received.stream(event(NOTE, id="g2"))
            await received.gone()

    times: list[float] = []
    async with wire_and_server(GET=stream) as (owner, _):
        assert isinstance(await owner.hear(), JsonRpcNotification)
        assert isinstance(await owner.hear(), JsonRpcNotification)
        gaps = [later - earlier for earlier, later in pairwise(times)]
        assert gaps == [pytest.approx(seconds, abs=0.2) for seconds in (1, 1, 2, 4, 8, 16, 30)]


async def test_no_message_overtakes_an_ordered_one() -> None:
    async def slow(received: ReceivedRequest) -> None:
        await asyncio.sleep(1)
        await received.reply(202)

    async with wire_and_server() as (owner, server):
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


async def test_a_server_that_sends_too_much_is_read_more_slowly() -> None:
    sent = 0
    padded = event({**NOTE, "params": {"data": "x" * 100_000}})

    async def flood(received: ReceivedRequest) -> None:
        nonlocal sent
        await received.stream()
        while sent < 1000:
            await received.send(padded)
            sent += 1
        await received.gone()

    async with wire_and_server(GET=flood) as (owner, _):
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
