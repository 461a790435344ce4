"""`Client` over HTTP behaves the same, and requests outside of any call arrive from the start of the session."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from greenroom import Client, ClientSettings, ConfigError, Context, Server
from greenroom.supervision import Backoff
from greenroom.transports import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


def make_server() -> Server:
    server = Server("far")

    @server.tool
    async def outside(ctx: Context) -> str:
        """Ask on the stream that belongs to no call."""
        return " ".join(root.uri for root in await server.session(ctx.session_id).roots(timeout=5))

    @server.tool
    async def inside(ctx: Context) -> str:
        """Ask within the call."""
        await ctx.progress(1, 2)
        return " ".join(root.uri for root in await ctx.roots())

    return server


@asynccontextmanager
async def listening() -> AsyncGenerator[str]:
    server = make_server()
    async with server.started():
        yield await server.listen(port=0)


@pytest.mark.row("CT-04")
async def test_the_first_call_may_ask_back_on_the_general_stream() -> None:
    async with listening() as url:
        for _ in range(10):
            async with Client(url, roots=["file:///here"], mode="legacy") as client:
                assert await client.call("outside") == "file:///here"


@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
async def test_within_a_call_a_server_asks_and_tells_on_its_stream(mode: str) -> None:
    told: list[float] = []
    async with (
        listening() as url,
        Client(url, roots=["file:///here"], on_progress=lambda step: told.append(step.progress), mode=mode) as client,
    ):
        assert await client.call("inside") == "file:///here"
        assert told == [1]
        assert client.name == url
        assert client.protocol_version == mode


async def test_an_unreachable_server_fails_at_once_unless_the_client_is_patient() -> None:
    with pytest.raises(ConnectFailed):
        async with Client("http://127.0.0.1:9/mcp"):
            pass
    settings = ClientSettings(init_timeout=0.2, backoff=Backoff())
    with pytest.raises(Exception, match="away") as failed:
        async with Client("http://127.0.0.1:9/mcp", settings=settings, patient=True):
            pass
    assert isinstance(failed.value.__cause__, ConnectFailed)


def test_headers_are_for_urls_and_secrets_are_not_shown() -> None:
    with pytest.raises(ConfigError, match="at a URL"):
        Client(make_server(), headers={"authorization": "Bearer secret"})
    client = Client("http://user:secret@127.0.0.1:9/mcp?key=secret", headers={"authorization": "Bearer secret"})
    assert "secret" not in f"{client!r} {client.name} {client._route!r}"
