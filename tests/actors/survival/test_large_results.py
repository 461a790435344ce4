"""Large results from a worker arrive whole, and do not hold up the loop that they pass."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import time
from typing import TYPE_CHECKING, Any, Final

import pytest

from greenroom.transports.session_channel import MemoryPeer

if TYPE_CHECKING:
    from collections.abc import Generator

    from .stage import Stage

pytestmark = pytest.mark.greenroom(clock="real")

LONGEST: Final = 0.03
"""Seconds of processor time of one thing that the loop does: to copy a hundred megabytes once would take twice that."""
HELLO: Final = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":'
    b'{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"raw","version":"1"}}}'
)
CALL: Final = (
    b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":'
    b'{"name":"hundred_megabytes","arguments":{"megabytes":100}}}'
)


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Generator[list[float]]:
    """How long each thing took that the loop did, on the processor: what other programs do is not in it, nor the collection of garbage."""
    took: list[float] = []
    run: Any = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        took.append(time.thread_time() - began)

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    gc.disable()
    yield took
    gc.enable()


async def test_a_hundred_megabytes_do_not_block_the_loop(
    stage: Stage, turns: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "greenroom.access")
    await stage.result("hundred_megabytes", megabytes=1)
    async with MemoryPeer(stage.server.company) as wire:
        await wire.send(HELLO)
        await wire.receive()
        await wire.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        turns.clear()
        await wire.send(CALL)
        (answer,) = await wire.receive()
        assert max(turns) < LONGEST
    (content,) = json.loads(answer)["result"]["content"]
    assert content["text"] == "x" * 100_000_000
