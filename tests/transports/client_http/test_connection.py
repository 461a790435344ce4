"""The HTTP wire under a connection: sessions that end, servers that restart, many clients at once, and nothing left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.connections import start_connection

from greenroom import ClientSettings, HttpConfig
from greenroom.actors.client.errors import RequestLost, RequestTimeout
from greenroom.supervision import kill, which_children
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_settings import HttpSettings

from .scripted_server import ReceivedRequest, scripted_server
from .test_own_server import company
from .wire_owner import HELLO, open_wire, text

if TYPE_CHECKING:
    from greenroom.actors.client.interfaces import Line


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def call(line: Line, **options: Any) -> str:
    return text(await line.request("tools/call", {"name": "echo", "arguments": {"text": "hello"}}, **options))


async def test_a_lost_session_is_started_anew_unnoticed() -> None:
    server = company()
    async with server.started() as running:
        line = await start_connection(
            HttpRoute(await server.listen(config=HttpConfig(port=0))), ClientSettings(mode="legacy")
        )
        await line.ready()
        assert await call(line) == "hello"
        for session in await which_children(running.sessions):
            kill(session.ref)
        assert await asyncio.gather(*[call(line) for _ in range(16)]) == ["hello"] * 16
        assert line.status.generation == 2
        await line.close()


async def test_a_restarted_server_is_called_again() -> None:
    server = company()
    async with server.started():
        url = await server.listen(config=HttpConfig(port=0))
        port = int(url.split(":")[2].split("/")[0])
        line = await start_connection(HttpRoute(url))
        await line.ready()
        assert await call(line) == "hello"
        await server.stop_listening(url)
        waiting = asyncio.create_task(call(line, timeout=60))
        await asyncio.sleep(5)
        await server.listen(config=HttpConfig(port=port))
        assert await waiting == "hello"
        await line.close()


async def test_a_deadline_disconnects_and_cancels_at_the_server() -> None:
    async def never(received: ReceivedRequest) -> None:
        await received.gone()

    async with scripted_server(call=never) as server:
        line = await start_connection(HttpRoute(server.url))
        await line.ready()
        with pytest.raises(RequestTimeout):
            await call(line, timeout=2)
        (received,) = server.seen("tools/call")
        await received.gone()
        (told,) = await server.until("notifications/cancelled")
        assert told.message["params"]["requestId"] == received.id
        await line.close()


async def test_a_lost_call_is_not_repeated() -> None:
    async def dies(received: ReceivedRequest) -> None:
        received.abort()

    async with scripted_server(call=dies) as server:
        line = await start_connection(HttpRoute(server.url))
        await line.ready()
        with pytest.raises(RequestLost) as lost:
            await call(line)
        assert lost.value.maybe_done
        assert len(server.seen("tools/call")) == 1
        await line.close()


async def test_many_short_clients_leave_no_descriptors() -> None:
    server = company()
    async with server.started():
        url = await server.listen(config=HttpConfig(port=0))
        before = 0
        for number in range(30):
            lines = [await start_connection(HttpRoute(url)) for _ in range(4)]
            for line in lines:
                await line.ready()
            await asyncio.gather(*[call(line) for line in lines for _ in range(3)])
            for line in lines:
                await line.close()
            await asyncio.sleep(1)
            if number == 5:
                before = descriptors()
        assert descriptors() <= before


@pytest.mark.parametrize("turns", [0, 1])
async def test_a_cancelled_call_without_connection_leaves_its_place_to_the_next(turns: int) -> None:
    async with (
        scripted_server() as server,
        open_wire(HttpRoute(server.url, settings=HttpSettings(max_connections=1))) as owner,
    ):
        given_up, waits = owner.ask("initialize", HELLO), owner.ask("initialize", HELLO)
        for _ in range(turns):
            await asyncio.sleep(0)
        owner.wire.forget(given_up)
        async with asyncio.timeout(1.0):
            assert (await owner.answer(waits))["serverInfo"]["name"] == "s"
