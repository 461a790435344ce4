"""The cost of a fault for other callers: of a hundred calls to other tools none is lost, and the slowest take no more than three times as long.

But for the tool that returns a hundred megabytes: the client that is in the same loop here has to parse them (`test_large_results` has the server's part).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest

from greenroom import Client, PeerError
from greenroom.transports.client.memory_route import MemoryRoute

from .stage import Stage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.greenroom(clock="real")

OTHERS: Final = ("in_loop", "in_thread", "in_process")
TIMES: Final = 3.0
LEAST: Final = 0.1
"""Seconds that they may take in any case: where a hundred calls are quick, one hiccup of the machine is many times as long."""
ATTEMPTS: Final = 4
"""The machine has other things to do: so often it may be slow just then."""
QUICK: Final = ("exits_at_once", "exits", "reads_nothing", "kills_itself", "aborts", "allocates", "closes_everything")
HARMLESS: Final = ("forks", "forks_and_leaves", "writes_garbage", "nothing_of_json")
ENDLESS: Final = (
    "stops_itself",
    "spins",
    "spins_in_loop",
    "deadlocks",
    "deadlocks_in_another_thread",
    "ignores_sigterm",
)


@asynccontextmanager
async def opened(fault: str) -> AsyncGenerator[Client]:
    """A client of a server that has been called for some time; `fault` may be called there, for a second at most if it never ends."""
    stage = Stage()
    if fault in ENDLESS:
        stage.server.registry.register_tool(fault, getattr(stage.tools, fault), stage.options(timeout=1))
    async with stage.server.started() as company, Client(MemoryRoute(company)) as client:
        await client.call("who")
        for _ in range(3):
            await crowd(client)
        yield client


async def crowd(client: Client) -> list[float]:
    """A hundred calls at once; how long each took."""

    async def call(number: int) -> float:
        began = time.perf_counter()
        assert await client.call(OTHERS[number % len(OTHERS)], n=number) == number
        return time.perf_counter() - began

    return await asyncio.gather(*(call(number) for number in range(100)))


def p99(took: list[float]) -> float:
    """Of so many, the one that is slower than all but a hundredth."""
    return sorted(took)[len(took) * 99 // 100]


async def slower(client: Client, fault: str, **arguments: Any) -> float:
    """How much longer the slowest of a hundred took than before and afterwards, while this happened."""
    calm = [took for _ in range(4) for took in await crowd(client)]
    guilty = asyncio.ensure_future(_ended(client, fault, arguments))
    stormy = await crowd(client)
    while not guilty.done():
        stormy += await crowd(client)
    await guilty
    stormy += await crowd(client)  # a new worker comes up
    calm += [took for _ in range(4) for took in await crowd(client)]
    return p99(stormy) / max(p99(calm), LEAST)


async def _ended(client: Client, fault: str, arguments: dict[str, Any]) -> None:
    with contextlib.suppress(PeerError):  # which is told of in the table of faults
        await client.call_tool(fault, arguments)


async def _no_other_caller_notices(fault: str, **arguments: Any) -> None:
    async with opened(fault) as client:
        found: list[float] = []
        while not found or (min(found) > TIMES and len(found) < ATTEMPTS):
            found.append(await slower(client, fault, **arguments))
    assert min(found) <= TIMES, found


@pytest.mark.deep
@pytest.mark.parametrize("fault", ["kills_itself", "spins"])
async def test_no_other_caller_notices(fault: str) -> None:
    await _no_other_caller_notices(fault)


@pytest.mark.soak
@pytest.mark.parametrize("fault", [*QUICK, *HARMLESS, *ENDLESS])
async def test_no_other_caller_notices_any_of_the_faults(fault: str) -> None:
    await _no_other_caller_notices(fault)


@pytest.mark.soak
async def test_a_handler_that_holds_the_gil_in_its_process_delays_no_other_call() -> None:
    await _no_other_caller_notices("holds_interpreter", seconds=10)
