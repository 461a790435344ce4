"""The misbehaving server: each kind of behaviour, as a client sees it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from greenroom import Client, ClientSettings, Command, ToolError
from greenroom.actors.client.errors import InitTimeout, RequestLost, RequestTimeout

if TYPE_CHECKING:
    from greenroom import LogMessage

SERVER = Path(__file__).parents[2] / "examples" / "misbehaving_server.py"

pytestmark = pytest.mark.greenroom(clock="real")


def server_command(*more: str) -> Command:
    return Command(sys.executable, str(SERVER), "--serve", *more)


@pytest.mark.row("CB-19")
async def test_the_server_echoes_and_fails() -> None:
    async with Client(server_command()) as client:
        assert await client.call("echo", text="hello") == "hello"
        with pytest.raises(ToolError, match="not today"):
            await client.call("fail", why="not today")


@pytest.mark.row("CB-19")
async def test_a_slow_call_can_be_cancelled() -> None:
    async with Client(server_command()) as client:
        with pytest.raises(RequestTimeout):
            await client.within(0.3).call("slow", seconds=60)
        assert await client.call("echo", text="still there") == "still there"


@pytest.mark.row("CB-19")
async def test_the_server_dies_during_a_call() -> None:
    async with Client(server_command()) as client:
        with pytest.raises(RequestLost, match="exit status 7"):
            await client.call("die", status=7)
        assert await client.call("echo", text="back") == "back"


@pytest.mark.row("CB-19")
async def test_the_server_floods() -> None:
    seen: list[LogMessage] = []
    all_seen = asyncio.Event()

    def log(message: LogMessage) -> None:
        seen.append(message)
        if len(seen) == 500:
            all_seen.set()

    async with Client(server_command(), on_log=log) as client:
        assert await client.call("flood", lines=500) == "500 lines"
        await all_seen.wait()

    assert [str(each.data) for each in seen] == [f"line {number}" for number in range(500)]


@pytest.mark.row("CB-19")
async def test_the_server_hangs_at_its_start() -> None:
    with pytest.raises(InitTimeout):
        async with Client(server_command("--hang-at-start"), settings=ClientSettings(init_timeout=0.5)):
            pass
