"""Changes of our own server, in both eras and over each transport: the same words give the same notifications, also after a restart."""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from greenroom import Client, ClientError, ClientSettings, PeerError
from greenroom.actors.client.interfaces import ServerNotification
from greenroom.supervision import Backoff
from greenroom.transports import HttpRoute, HttpSettings

from .listen_program import make_server
from .listen_script import EVERYTHING, ListenScript

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.client.interfaces import Updates

PROGRAM = Path(__file__).with_name("listen_program.py")
TOOLS = "notifications/tools/list_changed"
UPDATED = "notifications/resources/updated"
QUICK = ClientSettings(backoff=Backoff(first=0.01, longest=0.1))
both = pytest.mark.parametrize("mode", ["legacy", "auto"])
on_each = pytest.mark.parametrize("transport", ["memory", "HTTP", "stdio"])


@asynccontextmanager
async def client_of(transport: str, mode: str) -> AsyncGenerator[Client]:
    """A client of the server."""
    if transport == "stdio":
        async with Client([sys.executable, str(PROGRAM)], mode=mode, settings=QUICK) as client:
            yield client
        return
    server = make_server()
    async with server.started():
        target: Any = server if transport == "memory" else await server.listen(port=0)
        async with Client(target, mode=mode, settings=QUICK) as client:
            yield client


async def take(updates: Updates, count: int) -> list[ServerNotification]:
    """The next notifications."""
    found: list[ServerNotification] = []
    async with asyncio.timeout(30):
        async for told in updates:
            found.append(told)
            if len(found) == count:
                break
    return found


@pytest.mark.row("26-L1", "26-L4", "26-L5", "26-C5")
@on_each
@both
async def test_changes_reach_their_readers_in_both_eras(transport: str, mode: str) -> None:
    async with (
        client_of(transport, mode) as client,
        client.subscribe("test://a") as a,
        client.subscribe("test://b") as b,
        client.listen(TOOLS) as tools,
    ):
        assert (client.protocol_version == "2026-07-28") is (mode == "auto")
        await client.call("touch", uri="test://b")
        await client.call("touch", uri="test://a")
        await client.call("grow")
        assert await take(a, 1) == [ServerNotification(UPDATED, {"uri": "test://a"})]
        assert await take(b, 1) == [ServerNotification(UPDATED, {"uri": "test://b"})]
        assert await take(tools, 1) == [ServerNotification(TOOLS, {})]
        assert "new" in [tool.name for tool in await client.list_tools()]


@pytest.mark.row("26-L6")
@on_each
async def test_readers_come_and_go_and_nothing_is_lost_or_told_twice(transport: str) -> None:
    async with client_of(transport, "2026-07-28") as client, client.subscribe("test://a") as a:
        for _ in range(5):
            async with client.subscribe("test://b") as b:
                await client.call("touch", uri="test://b")
                await client.call("touch", uri="test://a")
                assert await take(b, 1) == [ServerNotification(UPDATED, {"uri": "test://b"})]
                assert await take(a, 1) == [ServerNotification(UPDATED, {"uri": "test://a"})]
        await client.call("touch", uri="test://a")
        assert await take(a, 1) == [ServerNotification(UPDATED, {"uri": "test://a"})]
        await client.ping()
        assert not a._queue  # type: ignore[attr-defined]


async def updated_after_a_gap(client: Client, updates: Updates) -> None:
    """Wait for the gap, and then for one update."""
    assert [told.gap for told in await take(updates, 1)] == [True]
    await client.call("touch", uri="test://a")
    assert await take(updates, 1) == [ServerNotification(UPDATED, {"uri": "test://a"})]
    await client.ping()
    assert not updates._queue  # type: ignore[attr-defined]


@pytest.mark.row("26-S3", "26-L7")
async def test_a_program_that_dies_is_started_again_and_listened_to_again() -> None:
    async with client_of("stdio", "auto") as client, client.subscribe("test://a") as updates, client.listen(TOOLS):
        for _ in range(3):
            with suppress(ClientError):
                await client.call("crash")
            await updated_after_a_gap(client, updates)
        assert client.status.generation == 4


@pytest.mark.row("26-L7")
async def test_a_server_that_is_replaced_behind_its_url_is_listened_to_again() -> None:
    async with AsyncExitStack() as opened:
        server = make_server()
        async with server.started():
            url = await server.listen(port=0)
            client = await opened.enter_async_context(Client(url, mode="auto", settings=QUICK))
            updates = await opened.enter_async_context(client.subscribe("test://a"))
            await client.call("touch", uri="test://a")
            assert len(await take(updates, 1)) == 1
        for _ in range(2):
            server = make_server()
            async with server.started():
                await server.listen(port=urlsplit(url).port or 0)
                await updated_after_a_gap(client, updates)


async def test_listens_take_none_of_the_connections_of_calls() -> None:
    server = make_server()
    async with server.started():
        url = await server.listen(port=0)
        route = HttpRoute(url, settings=HttpSettings(max_connections=1, max_waiting=8))
        async with Client(route, mode="2026-07-28") as client, client.subscribe("test://a") as updates:
            await asyncio.gather(*(client.call("touch", uri="test://a") for _ in range(8)))
            assert len(await take(updates, 1)) == 1
            async with client.subscribe("test://b") as others:
                await client.call("touch", uri="test://b")
                assert await take(others, 1) == [ServerNotification(UPDATED, {"uri": "test://b"})]


@pytest.mark.row("26-M20")
async def test_a_client_sends_no_method_that_the_revision_does_not_have() -> None:
    script = ListenScript({**EVERYTHING, "logging": {}, "completions": {}})
    async with Client(script.stage, roots=["file:///here"], on_notification=print) as client:
        await client.ping()
        await client.set_log_level("info")
        await client.notify_roots_list_changed()
        async with client.subscribe("test://a"), client.listen():
            await client.call_tool("any")
            with suppress(ClientError, PeerError):
                await client.request("tools/list")
        await script.wire.hears("notifications/cancelled")
    assert {getattr(each, "method", "a response") for each in script.wire.heard} == {
        "server/discover",
        "subscriptions/listen",
        "tools/call",
        "tools/list",
        "notifications/cancelled",
    }
