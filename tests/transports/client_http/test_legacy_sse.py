"""Servers of the legacy HTTP+SSE transport: chosen by the route, or found by falling back."""

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

from .scripted_server import ReceivedRequest, ScriptedServer, answer, event, scripted_server
from .test_own_server import company
from .wire_owner import HELLO, open_wire, text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@pytest.mark.parametrize("path", ["/sse"])
@pytest.mark.parametrize("route", [HttpRoute, SseRoute])
async def test_our_own_server_is_reached_over_the_legacy_transport(route: type[HttpRoute], path: str) -> None:
    server = company()
    async with server.started():
        url = await server.listen(config=HttpConfig(port=0, old_sse=True))
        async with open_wire(route(url.replace("/mcp", path))) as owner:
            await owner.greet()
            assert text(await owner.answer(owner.call("echo", text="hello"))) == "hello"
            id = owner.call("steps", count=3)
            heard = [await owner.hear() for _ in range(4)]
            assert [type(each) for each in heard] == [JsonRpcNotification] * 3 + [JsonRpcResponse]
            assert isinstance(heard[-1], JsonRpcResponse)
            assert heard[-1].id == id


@asynccontextmanager
async def old(endpoint: str = "/post?session=1") -> AsyncGenerator[tuple[ScriptedServer, list[ReceivedRequest]]]:
    """A server that has only the stream, and names the URL for posts."""
    streams: list[ReceivedRequest] = []

    async def stream(received: ReceivedRequest) -> None:
        streams.append(received)
        await received.stream(f"event: endpoint\ndata: {endpoint}\n\n".encode())
        await received.gone()

    async def post(received: ReceivedRequest) -> None:
        if received.path == "/mcp":
            await received.reply(405)
            return
        await received.reply(202, b"Accepted")
        if received.id is not None:
            await streams[-1].send(event(answer(received.id, {"path": received.path})))

    async with scripted_server(GET=stream, initialize=post, call=post) as server:
        yield server, streams


@pytest.mark.parametrize("route", [HttpRoute, SseRoute])
async def test_replies_come_on_the_stream(route: type[HttpRoute]) -> None:
    async with old() as (server, streams), open_wire(route(server.url)) as owner:
        await owner.greet()
        assert await owner.answer(owner.call("any")) == {"path": "/post?session=1"}
        assert len(server.seen("initialize")) == (2 if route is HttpRoute else 1)
        assert len(server.seen("GET")) == 1
        streams[0].close()
        assert isinstance(await owner.end(), ConnectionLost)


@pytest.mark.parametrize("endpoint", ["http://localhost:1/x", "//evil.example/x", "https://127.0.0.1/x", "\x00"])
async def test_a_url_for_posts_of_another_origin_is_refused(endpoint: str) -> None:
    async with old(endpoint) as (server, _), open_wire(SseRoute(server.url)) as owner:
        id = owner.ask("initialize", HELLO)
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, True)
        assert isinstance(await owner.end(), NotMcp)


@pytest.mark.parametrize("fallback", [True, False])
async def test_a_server_of_neither_transport_is_reported_by_its_first_refusal(*, fallback: bool) -> None:
    async def refuse(received: ReceivedRequest) -> None:
        await received.reply(400 if received.method == "POST" else 501)

    async with scripted_server(initialize=refuse, GET=refuse) as server:
        async with open_wire(HttpRoute(server.url, fallback=fallback)) as owner:
            owner.ask("initialize", HELLO)
            heard = await owner.hear()
            assert isinstance(heard, UnansweredRequest)
            assert isinstance(heard.error, HttpError)
            assert heard.error.status == 400
        assert len(server.seen("GET")) == fallback


async def test_a_stream_that_names_no_url_for_posts_times_out() -> None:
    async def stream(received: ReceivedRequest) -> None:
        await received.stream(b": hello\n\n")
        await received.gone()

    async with scripted_server(GET=stream) as server, open_wire(SseRoute(server.url)) as owner:
        owner.ask("initialize", HELLO)
        assert isinstance(await owner.end(), NotMcp)


async def test_a_refused_post_loses_only_its_request() -> None:
    async def refuse(received: ReceivedRequest) -> None:
        await received.reply(500)

    async with old() as (server, _), open_wire(SseRoute(server.url)) as owner:
        await owner.greet()
        server.on("tools/call", refuse)
        id = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, False)


async def test_a_page_instead_of_a_stream_is_refused() -> None:
    async def page(received: ReceivedRequest) -> None:
        await received.reply(200, b"<h1>Welcome</h1>", content_type="text/html")

    async with scripted_server(GET=page) as server, open_wire(SseRoute(server.url)) as owner:
        id = owner.ask("initialize", HELLO)
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        assert (heard.id, heard.resend) == (id, True)
        assert isinstance(await owner.end(), NotMcp)


async def test_messages_before_the_url_for_posts_and_a_second_url_are_ignored() -> None:
    async with old() as (server, streams), open_wire(SseRoute(server.url)) as owner:

        async def stream(received: ReceivedRequest) -> None:
            streams.append(received)
            await received.stream(
                event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "early"}}),
                b"event: endpoint\ndata: /first\n\n",
                b"event: endpoint\ndata: /second\n\n",
                b"event: ping\ndata:\n\n",
            )
            await received.gone()

        server.on("GET", stream)
        await owner.greet()
        assert await owner.answer(owner.call("any")) == {"path": "/first"}
        assert owner.silent()


async def test_an_oversized_event_is_reported_and_an_endless_one_ends_the_wire() -> None:
    settings = HttpSettings(max_event=100_000)
    async with old() as (server, streams), open_wire(SseRoute(server.url, settings=settings)) as owner:

        async def huge(received: ReceivedRequest) -> None:
            await received.reply(202)
            await streams[-1].send(event(answer(received.id, {"text": "x" * 200_000})))

        async def endless(received: ReceivedRequest) -> None:
            await received.reply(202)
            await streams[-1].send(b": " + b"x" * 400_000)

        await owner.greet()
        server.on("tools/call", huge)
        id = owner.call("any")
        heard = await owner.hear()
        assert isinstance(heard, InvalidMessage)
        assert heard.error.response_to == id
        assert not owner.wire._unanswered  # nothing is kept of an answered request
        server.on("tools/call", endless)
        owner.call("any")
        assert isinstance(await owner.end(), ResponseTooLarge)


async def test_a_silent_stream_ends_the_wire_and_comments_break_the_silence() -> None:
    settings = HttpSettings(silence=3.0)
    async with old() as (server, streams), open_wire(SseRoute(server.url, settings=settings)) as owner:
        await owner.greet()
        began = asyncio.get_running_loop().time()
        for _ in range(5):
            await asyncio.sleep(2)
            await streams[-1].send(b": still here\n\n")
        error = await owner.end()
        assert isinstance(error, SilentTooLong)
        assert "said nothing for 3 s" in str(error)
        assert asyncio.get_running_loop().time() - began == pytest.approx(13, abs=0.5)
