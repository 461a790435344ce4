"""Servers that speak HTTP as it was before: known at once, or found out."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from greenroom import HttpConfig
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcResponse
from greenroom.transports.client.errors import ConnectionLost, HttpError, NotMcp, ResponseTooLarge, SilentTooLong
from greenroom.transports.client.http_route import HttpRoute, SseRoute
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.interfaces import InvalidMessage, UnansweredRequest

from .scripted_server import Scripted, Visit, answer, event, scripted
from .test_own_server import company
from .wire_owner import HELLO, opened, text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@pytest.mark.parametrize("path", ["/sse"])
@pytest.mark.parametrize("route", [HttpRoute, SseRoute])
async def test_our_own_server_as_it_was_before(route: type[HttpRoute], path: str) -> None:
    server = company()
    async with server.started():
        url = await server.listen(config=HttpConfig(port=0, old_sse=True))
        async with opened(route(url.replace("/mcp", path))) as owner:
            await owner.greet()
            assert text(await owner.answer(owner.call("echo", text="hello"))) == "hello"
            id = owner.call("steps", count=3)
            heard = [await owner.hear() for _ in range(4)]
            assert [type(each) for each in heard] == [JsonRpcNotification] * 3 + [JsonRpcResponse]
            assert isinstance(heard[-1], JsonRpcResponse)
            assert heard[-1].id == id


@asynccontextmanager
async def old(endpoint: str = "/post?session=1") -> AsyncGenerator[tuple[Scripted, list[Visit]]]:
    """A server of which only the stream exists, and where it says to post to."""
    streams: list[Visit] = []

    async def stream(visit: Visit) -> None:
        streams.append(visit)
        await visit.stream(f"event: endpoint\ndata: {endpoint}\n\n".encode())
        await visit.gone()

    async def post(visit: Visit) -> None:
        if visit.path == "/mcp":
            await visit.reply(405)
            return
        await visit.reply(202, b"Accepted")
        if visit.id is not None:
            await streams[-1].send(event(answer(visit.id, {"path": visit.path})))

    async with scripted(GET=stream, initialize=post, call=post) as server:
        yield server, streams


@pytest.mark.parametrize("route", [HttpRoute, SseRoute])
async def test_answers_come_by_the_stream(route: type[HttpRoute]) -> None:
    async with old() as (server, streams), opened(route(server.url)) as owner:
        await owner.greet()
        assert await owner.answer(owner.call("any")) == {"path": "/post?session=1"}
        assert len(server.seen("initialize")) == (2 if route is HttpRoute else 1)
        assert len(server.seen("GET")) == 1
        streams[0].close()
        assert isinstance(await owner.end(), ConnectionLost)


@pytest.mark.parametrize("endpoint", ["http://localhost:1/x", "//evil.example/x", "https://127.0.0.1/x", "\x00"])
async def test_a_place_to_post_to_that_is_elsewhere_is_refused(endpoint: str) -> None:
    async with old(endpoint) as (server, _), opened(SseRoute(server.url)) as owner:
        id = owner.ask("initialize", HELLO)
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, True)
        assert isinstance(await owner.end(), NotMcp)


@pytest.mark.parametrize("fallback", [True, False])
async def test_a_server_that_is_neither_is_told_as_it_was_first(*, fallback: bool) -> None:
    async def refuse(visit: Visit) -> None:
        await visit.reply(400 if visit.method == "POST" else 501)

    async with scripted(initialize=refuse, GET=refuse) as server:
        async with opened(HttpRoute(server.url, fallback=fallback)) as owner:
            owner.ask("initialize", HELLO)
            heard = await owner.hear()
            assert isinstance(heard, UnansweredRequest)
            assert isinstance(heard.error, HttpError)
            assert heard.error.status == 400
        assert len(server.seen("GET")) == fallback


async def test_a_stream_that_never_says_where_to_post_to() -> None:
    async def stream(visit: Visit) -> None:
        await visit.stream(b": hello\n\n")
        await visit.gone()

    async with scripted(GET=stream) as server, opened(SseRoute(server.url)) as owner:
        owner.ask("initialize", HELLO)
        assert isinstance(await owner.end(), NotMcp)


async def test_a_refused_post_is_lost_alone() -> None:
    async def refuse(visit: Visit) -> None:
        await visit.reply(500)

    async with old() as (server, _), opened(SseRoute(server.url)) as owner:
        await owner.greet()
        server.on("tools/call", refuse)
        id = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, False)


async def test_whoever_answers_with_a_page_has_no_stream() -> None:
    async def page(visit: Visit) -> None:
        await visit.reply(200, b"<h1>Welcome</h1>", content_type="text/html")

    async with scripted(GET=page) as server, opened(SseRoute(server.url)) as owner:
        id = owner.ask("initialize", HELLO)
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, True)
        assert isinstance(await owner.end(), NotMcp)


async def test_what_comes_before_it_is_known_where_to_post_to_is_not_heard_and_a_second_place_not_believed() -> None:
    async with old() as (server, streams), opened(SseRoute(server.url)) as owner:

        async def stream(visit: Visit) -> None:
            streams.append(visit)
            await visit.stream(
                event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "early"}}),
                b"event: endpoint\ndata: /first\n\n",
                b"event: endpoint\ndata: /second\n\n",
                b"event: ping\ndata:\n\n",
            )
            await visit.gone()

        server.on("GET", stream)
        await owner.greet()
        assert await owner.answer(owner.call("any")) == {"path": "/first"}
        assert owner.silent()


async def test_an_event_of_the_stream_that_is_too_large_is_told_and_one_without_an_end_is_the_end() -> None:
    settings = HttpSettings(max_event=100_000)
    async with old() as (server, streams), opened(SseRoute(server.url, settings=settings)) as owner:

        async def huge(visit: Visit) -> None:
            await visit.reply(202)
            await streams[-1].send(event(answer(visit.id, {"text": "x" * 200_000})))

        async def endless(visit: Visit) -> None:
            await visit.reply(202)
            await streams[-1].send(b": " + b"x" * 400_000)

        await owner.greet()
        server.on("tools/call", huge)
        id = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, InvalidMessage)
        assert heard.error.answers == id
        assert not owner.wire._unanswered  # nothing is kept of what has its answer
        server.on("tools/call", endless)
        owner.call("any")
        assert isinstance(await owner.end(), ResponseTooLarge)


async def test_a_silent_stream_is_the_end_and_comments_are_no_silence() -> None:
    settings = HttpSettings(silence=3.0)
    async with old() as (server, streams), opened(SseRoute(server.url, settings=settings)) as owner:
        await owner.greet()
        began = asyncio.get_running_loop().time()
        for _ in range(5):
            await asyncio.sleep(2)
            await streams[-1].send(b": still here\n\n")
        error = await owner.end()
        assert isinstance(error, SilentTooLong)
        assert "said nothing for 3 s" in str(error)
        assert asyncio.get_running_loop().time() - began == pytest.approx(13, abs=0.5)
