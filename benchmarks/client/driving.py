"""What every driver of a client does: so many callers, each one call after another, for so long. Knows nobody's library, and imports nothing."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

TEXT = "Curtain up: two hours of traffic on the stage."


async def drive(call: Callable[[], Awaitable[str]], crowds: list[int], seconds: float) -> dict[str, Any]:
    """Calls a second, and processor time a call, by how many are in flight."""
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


def arguments() -> tuple[str, list[int], float]:
    """The URL, how many in flight, and for how long each."""
    return sys.argv[1], [int(each) for each in sys.argv[2].split(",")], float(sys.argv[3])


def told(found: dict[str, Any]) -> None:
    """Say what came out."""
    print(json.dumps(found), flush=True)
