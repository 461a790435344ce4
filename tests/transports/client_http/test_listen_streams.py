"""Listens of the stateless era on the wire: a POST whose stream lasts takes no place, keeps no dead server, and is closed to end it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcResponse, encode_request
from greenroom.protocol.mirrored_headers import standard_headers_for
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, SilentTooLong, WireFull
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_settings import HttpSettings
from greenroom.transports.client.interfaces import UnansweredRequest

from .scripted_server import answer, event, scripted_server
from .wire_owner import open_wire

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .scripted_server import Handler, ReceivedRequest, ScriptedServer
    from .wire_owner import WireOwner

VERSION = "2026-07-28"
LISTEN = "subscriptions/listen"


async def lasting(received: ReceivedRequest) -> None:
    """Acknowledge, and go on until the client leaves."""
    await received.stream(event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged"}))
    await received.gone()


@asynccontextmanager
async def stateless(
    listen: Handler = lasting, call: Handler | None = None, **settings: Any
) -> AsyncGenerator[tuple[WireOwner, ScriptedServer]]:
    """A wire of the stateless era, and its server."""
    async with (
        scripted_server() as server,
        open_wire(HttpRoute(server.url, settings=HttpSettings(**settings))) as owner,
    ):
        server.on(LISTEN, listen)
        if call is not None:
            server.on("tools/call", call)
        owner.wire.on_negotiated(VERSION)
        yield owner, server


def ask(owner: WireOwner, id: int, method: str) -> None:
    """Send a request that stands alone."""
    owner.wire.send(encode_request(id, method, {}), id, mirrored=standard_headers_for(method, {}, VERSION))


@pytest.mark.row("26-L6")
async def test_a_listen_takes_neither_a_connection_nor_room_nor_bytes_of_calls() -> None:
    async with stateless(max_connections=1, max_waiting=1, max_waiting_bytes=200) as (owner, server):
        for id in range(1, 4):
            ask(owner, id, LISTEN)
        await server.until(LISTEN, 3)
        for _ in range(3):
            assert isinstance(await owner.hear(), JsonRpcNotification)
        ask(owner, 4, "tools/call")
        assert await owner.answer(4) is not None
        ask(owner, 5, "tools/call")
        ask(owner, 6, "tools/list")
        with pytest.raises(WireFull, match="2 messages"):
            ask(owner, 7, "tools/list")
        ask(owner, 8, LISTEN)
        assert await owner.answer(5) is not None
        assert await owner.answer(6) is not None


@pytest.mark.row("26-L6", "26-H10")
async def test_a_forgotten_listen_is_closed_and_nothing_is_said_about_it() -> None:
    async with stateless() as (owner, server):
        ask(owner, 1, LISTEN)
        [received] = await server.until(LISTEN)
        await owner.hear()
        owner.wire.forget(1)
        await received.gone()
        ask(owner, 2, "tools/call")
        assert await owner.answer(2) is not None
        assert len(server.requests) == 2
        assert owner.silent()


async def test_a_listen_that_ends_with_its_result_or_breaks_is_told_and_not_sent_again() -> None:
    async def ending(received: ReceivedRequest) -> None:
        if received.id == 1:
            await received.stream(event(answer(1, {"resultType": "complete"})))
        else:
            await received.stream(event(id="mark"))
        received.close()

    async with stateless(ending) as (owner, server):
        ask(owner, 1, LISTEN)
        assert isinstance(await owner.hear(), JsonRpcResponse)
        ask(owner, 2, LISTEN)
        lost: Any = await owner.hear()
        assert isinstance(lost, UnansweredRequest)
        assert isinstance(lost.error, ConnectionLost)
        assert len(server.requests) == 2


async def test_a_listen_keeps_no_wire_to_a_server_that_cannot_be_reached() -> None:
    async with stateless() as (owner, server):
        ask(owner, 1, LISTEN)
        await owner.hear()
        server.refuse()
        ask(owner, 2, "tools/call")
        assert isinstance(await owner.end(), ConnectFailed)


async def test_a_listen_without_a_comment_for_too_long_is_lost_where_that_was_set() -> None:
    async def commenting(received: ReceivedRequest) -> None:
        await received.stream(b": still here\n\n")
        await received.gone()

    async with stateless(commenting, silence=2.0) as (owner, _):
        ask(owner, 1, LISTEN)
        lost: Any = await owner.hear()
        assert isinstance(lost.error, SilentTooLong)
