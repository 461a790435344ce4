"""anyio's worker processes belong to the loop, and not to the process that started the first one."""

from __future__ import annotations

import asyncio
import os
from functools import partial

import anyio.to_process

from greenroom.supervision import Node, spawn, wait_down


async def _ask(found: list[int]) -> None:
    found.append(await anyio.to_process.run_sync(os.getpid))


def test_a_worker_process_outlasts_who_asked_first() -> None:
    found: list[int] = []

    async def main() -> None:
        async with Node():
            for _ in range(3):
                await wait_down(spawn(partial(_ask, found)))

    asyncio.run(main())
    assert len(found) == 3
    assert len(set(found)) == 1
    assert found[0] != os.getpid()
