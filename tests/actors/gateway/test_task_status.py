"""Status messages of an upstream's task are those of the task that the gateway's client has of the call, for each pair of eras."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from .bridged_pair import LEGACY, MODERN, bridged_pair

if TYPE_CHECKING:
    from greenroom import Client
    from greenroom.protocol.received_results import RemoteTask


@pytest.mark.parametrize("back", [LEGACY, MODERN])
@pytest.mark.parametrize("front", [LEGACY, MODERN])
async def test_a_status_message_reaches_the_client_and_the_last_one_stays(front: str, back: str) -> None:
    async with bridged_pair(front, back) as pair:
        begun = (await pair.peer.call_tool("up__endless", task=True)).task
        assert begun is not None
        await asyncio.wait_for(pair.up.waiting.wait(), 10)
        (upstream,) = pair.up.server.tasks.all()
        assert upstream.id != begun.id
        for text in ("half way", "nearly there"):
            assert pair.up.server.tasks.update(upstream.id, text)
            assert (await said(pair.peer, begun, text)).status == "working"
        await pair.peer.tasks_cancel(begun)
        await asyncio.wait_for(pair.up.cancelled.wait(), 10)


async def said(peer: Client, task: RemoteTask, text: str) -> RemoteTask:
    """The task, once its status message is this one."""
    async with asyncio.timeout(10):
        while (state := await peer.tasks_get(task)).status_message != text:  # noqa: ASYNC110 - clients of one era poll
            await asyncio.sleep(0.01)
    return state
