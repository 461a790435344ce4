"""Listens of the stateless era over wires of another process: told apart, ended and opened again as on a wire of this one."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.client.listen_program import make_server
from tests.actors.client.test_listening_over_transports import QUICK, UPDATED, take, updated_after_a_gap

from greenroom import Client, ClientError
from greenroom.actors.client.interfaces import ServerNotification
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.remote_wire import RemoteRoute
from greenroom.transports.client.server_command import Command

from .thread_node import neighbour

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.greenroom(clock="real")
PROGRAM = Path(make_server.__code__.co_filename)


@asynccontextmanager
async def far_client(transport: str) -> AsyncGenerator[Client]:
    """A client of the program, or of a server behind a URL, with its wire on another node."""
    server = make_server()
    async with neighbour() as place, server.started():
        url = await server.listen(port=0)
        route: Any = HttpRoute(url) if transport == "HTTP" else Command(sys.executable, str(PROGRAM))
        async with Client(RemoteRoute(route, place), mode="auto", settings=QUICK) as client:
            yield client


@pytest.mark.row("26-L5", "26-L6")
@pytest.mark.parametrize("transport", ["HTTP", "stdio"])
async def test_listens_change_and_lose_nothing(transport: str) -> None:
    async with far_client(transport) as client, client.subscribe("test://a") as a:
        assert client.protocol_version == "2026-07-28"
        for _ in range(3):
            async with client.subscribe("test://b") as b:
                await client.call("touch", uri="test://b")
                await client.call("touch", uri="test://a")
                assert await take(b, 1) == [ServerNotification(UPDATED, {"uri": "test://b"})]
                assert await take(a, 1) == [ServerNotification(UPDATED, {"uri": "test://a"})]


@pytest.mark.row("26-L7", "26-S3")
async def test_a_program_that_dies_there_is_listened_to_again() -> None:
    async with far_client("stdio") as client, client.subscribe("test://a") as updates:
        with suppress(ClientError):
            await client.call("crash")
        await updated_after_a_gap(client, updates)
