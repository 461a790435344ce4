"""The load of client drivers, independent of any client library: concurrent callers, each with one call after another."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TEXT = "Curtain up: two hours of traffic on the stage."


async def drive(call: Callable[[], Awaitable[str]], crowds: list[int], seconds: float) -> dict[str, Any]:
    """Calls per second and CPU time per call, by the number in flight."""
    found: dict[str, Any] = {}
    for crowd in crowds:
        await _load(call, crowd, seconds / 3)
        before, began = time.process_time(), time.perf_counter()
        done = await _load(call, crowd, seconds)
        took = time.perf_counter() - began
        found[str(crowd)] = {"rate": done / took, "processor": (time.process_time() - before) / done}
    return found


async def _load(call: Callable[[], Awaitable[str]], crowd: int, seconds: float) -> int:
    until = time.perf_counter() + seconds

    async def one() -> int:
        done = 0
        while time.perf_counter() < until:
            said = await call()
            assert said == TEXT, said
            done += 1
        return done

    return sum(await asyncio.gather(*[one() for _ in range(crowd)]))


async def many(opened: Callable[[], Any]) -> dict[str, Any]:
    """Open as many clients as the last argument says: the time until all are ready, and the memory of each.

    Each client is opened and closed in its own task, as some libraries require.
    """
    if not sys.argv[4:]:
        return {}
    count = int(sys.argv[4])
    go = asyncio.Event()
    ready = [asyncio.Event() for _ in range(count)]

    async def one(mine: asyncio.Event) -> None:
        async with opened():
            mine.set()
            await go.wait()

    gc.collect()
    before, began = _resident(), time.perf_counter()
    tasks = [asyncio.create_task(one(each)) for each in ready]
    for each in ready:
        await each.wait()
    took = time.perf_counter() - began
    gc.collect()
    held = _resident() - before
    go.set()
    await asyncio.gather(*tasks)
    return {"many": {"ready": took, "memory": held / count}}


def _resident() -> int:
    with open("/proc/self/statm") as file:  # noqa: PTH123 - with minimal imports
        return int(file.read().split()[1]) * 4096


def arguments() -> tuple[str, list[int], float]:
    """The arguments: the URL, the numbers in flight, and the duration of each."""
    return sys.argv[1], [int(each) for each in sys.argv[2].split(",")], float(sys.argv[3])


def command() -> list[str] | None:
    """The program to start, if there is no URL."""
    return json.loads(sys.argv[1]) if sys.argv[1].startswith("[") else None


def print_results(found: dict[str, Any]) -> None:
    """Print the results."""
    print(json.dumps(found), flush=True)
