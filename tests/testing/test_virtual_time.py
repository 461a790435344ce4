"""Time on a virtual loop: it jumps, it stands, and it says when nothing can ever happen."""

from __future__ import annotations

import asyncio
import time

import pytest

from greenroom.supervision import Node, current_node
from greenroom.supervision.testing import Deadlock, run


async def test_a_test_runs_in_an_open_node(node: Node) -> None:
    assert node.running
    assert current_node() is node


async def test_a_day_passes_at_once() -> None:
    loop = asyncio.get_running_loop()
    began = time.monotonic()
    await asyncio.sleep(86_400)
    assert loop.time() == 86_400
    assert time.monotonic() - began < 1


def test_a_deadlock_is_told() -> None:
    async def stuck() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match=r"in .*stuck"):
        run(stuck)
