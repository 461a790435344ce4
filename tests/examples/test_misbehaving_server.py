"""The server for tests: each of its manners, seen by a client."""

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

SERVER = Path(__file__).parents[2] / "examples" / "troublesome.py"

pytestmark = pytest.mark.greenroom(clock="real")


def troublesome(*more: str) -> Command:
    return Command(sys.executable, str(SERVER), "--serve", *more)


@pytest.mark.row("CB-19")
async def test_it_echoes_and_fails() -> None:
    async with Client(troublesome()) as client:
        assert await client.call("echo", text="hello") == "hello"
        with pytest.raises(ToolError, match="not today"):
            await client.call("fail", why="not today")


@pytest.mark.row("CB-19")
async def test_it_is_slow_and_can_be_given_up() -> None:
    async with Client(troublesome()) as client:
        with pytest.raises(RequestTimeout):
            await client.within(0.3).call("slow", seconds=60)
        assert await client.call("echo", text="still there") == "still there"


@pytest.mark.row("CB-19")
async def test_it_dies_in_the_middle_of_a_call() -> None:
    async with Client(troublesome()) as client:
        with pytest.raises(RequestLost, match="exit status 7"):
            await client.call("die", status=7)
        assert await client.call("echo", text="back") == "back"


@pytest.mark.row("CB-19")
async def test_it_floods() -> None:
    seen: list[LogMessage] = []
    all_seen = asyncio.Event()

    def log(message: LogMessage) -> None:
        seen.append(message)
        if len(seen) == 500:
            all_seen.set()

    async with Client(troublesome(), on_log=log) as client:
        assert await client.call("flood", lines=500) == "500 lines"
        await all_seen.wait()

    assert [str(each.data) for each in seen] == [f"line {number}" for number in range(500)]


@pytest.mark.row("CB-19")
async def test_it_hangs_at_its_start() -> None:
    with pytest.raises(InitTimeout):
        async with Client(troublesome("--hang-at-start"), settings=ClientSettings(init_timeout=0.5)):
            pass
