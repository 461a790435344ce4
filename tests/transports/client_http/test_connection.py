"""The wire under the connection that it is for: sessions that end, servers that come back, many at once, and nothing left behind."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.connections import start_connection

from greenroom import HttpConfig
from greenroom.actors.client.errors import RequestLost, RequestTimeout
from greenroom.supervision import kill, which_children
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_settings import HttpSettings

from .scripted_server import Visit, scripted
from .test_own_server import company
from .wire_owner import HELLO, opened, text

if TYPE_CHECKING:
    from greenroom.actors.client.interfaces import Line


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def call(line: Line, **options: Any) -> str:
    return text(await line.request("tools/call", {"name": "echo", "arguments": {"text": "hello"}}, **options))


async def test_a_session_that_has_ended_is_begun_anew_and_nobody_notices() -> None:
    server = company()
    async with server.started() as running:
        line = await start_connection(HttpRoute(await server.listen(config=HttpConfig(port=0))))
        await line.ready()
        assert await call(line) == "hello"
        for session in await which_children(running.sessions):
            kill(session.ref)
        assert await asyncio.gather(*[call(line) for _ in range(16)]) == ["hello"] * 16
        assert line.status.generation == 2
        await line.close()


async def test_a_server_that_goes_and_comes_back() -> None:
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


async def test_a_deadline_hangs_up_and_tells_the_server() -> None:
    async def never(visit: Visit) -> None:
        await visit.gone()

    async with scripted(call=never) as server:
        line = await start_connection(HttpRoute(server.url))
        await line.ready()
        with pytest.raises(RequestTimeout):
            await call(line, timeout=2)
        (visit,) = server.seen("tools/call")
        await visit.gone()
        (told,) = await server.until("notifications/cancelled")
        assert told.message["params"]["requestId"] == visit.id
        await line.close()


async def test_a_call_that_was_lost_is_not_made_again() -> None:
    async def dies(visit: Visit) -> None:
        visit.abort()

    async with scripted(call=dies) as server:
        line = await start_connection(HttpRoute(server.url))
        await line.ready()
        with pytest.raises(RequestLost) as lost:
            await call(line)
        assert lost.value.maybe_done
        assert len(server.seen("tools/call")) == 1
        await line.close()


async def test_clients_that_come_and_go_leave_no_descriptors() -> None:
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
async def test_who_gives_up_while_there_is_no_connection_yet_leaves_their_place_to_who_waits(turns: int) -> None:
    async with scripted() as server, opened(HttpRoute(server.url, settings=HttpSettings(max_connections=1))) as owner:
        given_up, waits = owner.ask("initialize", HELLO), owner.ask("initialize", HELLO)
        for _ in range(turns):
            await asyncio.sleep(0)
        owner.wire.forget(given_up)
        async with asyncio.timeout(1.0):
            assert (await owner.answer(waits))["serverInfo"]["name"] == "s"
