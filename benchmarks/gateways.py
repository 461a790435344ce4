"""The cost of a gateway: one tool called directly and through a server that mounts its server, in one process.

The difference in CPU time is a second session, a second connection, and the forwarding between them.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from greenroom import Client, Host, Server

from .benchmark_types import benchmark

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .benchmark_types import Run

_AT_ONCE = 16


def _echo() -> Server:
    server = Server("echo")

    @server.tool
    async def echo(text: str) -> str:
        return text

    return server


@asynccontextmanager
async def _mounted() -> AsyncGenerator[Client]:
    front = Server("front")
    front.mount(Host({"echo": _echo()}))
    async with Client(front) as client:
        await client.call_tool("echo__echo", {"text": "hello"})
        yield client


async def _many(client: Client, name: str, count: int) -> None:
    async def some() -> None:
        for _ in range(count // _AT_ONCE):
            await client.call_tool(name, {"text": "hello"})

    await asyncio.gather(*(some() for _ in range(_AT_ONCE)))


@benchmark("tool call, in one process", count=2_000)
async def direct(run: Run) -> None:
    """A client's call of a tool of a server in the same program, over memory."""
    async with Client(_echo()) as client:
        await client.call_tool("echo", {"text": "hello"})
        with run.measured():
            for _ in range(run.count):
                await client.call_tool("echo", {"text": "hello"})


@benchmark("tool call, through a gateway", count=2_000, floor=direct, target=3.0)
async def carried(run: Run) -> None:
    """The same call through a gateway: two sessions and two connections instead of one."""
    async with _mounted() as client:
        with run.measured():
            for _ in range(run.count):
                await client.call_tool("echo__echo", {"text": "hello"})


@benchmark("tool call, 16 at once", count=2_000)
async def direct_at_once(run: Run) -> None:
    """Sixteen concurrent calls, directly."""
    async with Client(_echo()) as client:
        await client.call_tool("echo", {"text": "hello"})
        with run.measured():
            await _many(client, "echo", run.count)


@benchmark("tool call, through a gateway, 16 at once", count=2_000, floor=direct_at_once, target=3.0)
async def carried_at_once(run: Run) -> None:
    """Sixteen concurrent calls, through the gateway."""
    async with _mounted() as client:
        with run.measured():
            await _many(client, "echo__echo", run.count)
