"""Servers that speak HTTP as it was before: known at once, or found out."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from greenroom import HttpConfig
from greenroom.protocol.messages import Notification, Response
from greenroom.transports.client.errors import ConnectionLost, HttpError, NotMcp
from greenroom.transports.client.http_route import HttpRoute, SseRoute
from greenroom.transports.client.seam import Lost

from .owner import HELLO, opened, text
from .scripted import Scripted, Visit, answer, event, scripted
from .test_ours import company

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
            assert [type(each) for each in heard] == [Notification] * 3 + [Response]
            assert isinstance(heard[-1], Response)
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
        assert isinstance(heard, Lost)
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
            assert isinstance(heard, Lost)
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
        assert isinstance(heard, Lost)
        assert (heard.id, heard.resend) == (id, False)
