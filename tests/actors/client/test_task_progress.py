"""A call that the server made a task of reports progress until the task has ended. So it is in the handshake era: in the other one tasks have none."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, Context, Server
from greenroom.actors.client import request_table

if TYPE_CHECKING:
    from greenroom.actors.client.interfaces import Progress


LEGACY = "legacy"


def server_of() -> Server:
    server = Server("tasks")

    @server.tool(task_support="optional")
    async def job(ctx: Context, steps: int = 3) -> str:
        for step in range(steps):
            await asyncio.sleep(1)
            await ctx.progress(step, steps)
        return "done"

    return server


def kept(told: list[float], step: Progress) -> None:
    told.append(step.progress)


def followed(client: Client) -> int:
    """The number of tasks that its connection follows."""
    line: Any = client.line
    behaviour = line.process.behaviour
    return len(behaviour.requests._followed) + len(behaviour.requests.tokens)


@pytest.mark.parametrize("own", [True, False], ids=["of the call", "of the client"])
async def test_the_progress_of_a_task_is_told_and_then_forgotten(own: bool) -> None:  # noqa: FBT001
    told: list[Progress] = []
    async with Client(server_of(), mode=LEGACY, on_progress=None if own else told.append) as client:
        reply = await client.call_tool("job", task=True, on_progress=told.append if own else None)
        assert reply.task is not None
        assert followed(client) == 2
        await client.tasks_wait(reply.task)
        await asyncio.sleep(0.1)
        assert [step.progress for step in told] == [0, 1, 2]
        assert followed(client) == 0


async def test_a_task_that_was_cancelled_is_followed_no_more() -> None:
    async with Client(server_of(), mode=LEGACY) as client:
        reply = await client.call_tool("job", task=True, on_progress=print)
        assert reply.task is not None
        await client.tasks_cancel(reply.task)
        await asyncio.sleep(0.1)
        assert followed(client) == 0


async def test_so_many_tasks_are_followed_and_the_oldest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_table, "FOLLOWED", 2)
    told: list[list[float]] = [[], [], []]
    async with Client(server_of(), mode=LEGACY) as client:
        replies = [await client.call_tool("job", task=True, on_progress=partial(kept, each)) for each in told]
        assert followed(client) == 4
        for reply in replies:
            assert reply.task is not None
            await client.tasks_wait(reply.task)
        await asyncio.sleep(0.1)
    assert told == [[], [0, 1, 2], [0, 1, 2]]


async def test_a_function_waits_for_no_task_when_the_connection_has_ended() -> None:
    async with Client(server_of(), mode=LEGACY) as client:
        await client.call_tool("job", {"steps": 1000}, task=True, on_progress=print)
        assert followed(client) == 2
    await asyncio.sleep(0)
    assert not [each for each in asyncio.all_tasks() if "_follow" in repr(each.get_coro())]


async def test_a_call_that_is_followed_by_its_reader_ends_with_its_reply() -> None:
    async with Client(server_of(), mode=LEGACY) as client:
        call = client.start_tool("job", task=True)
        assert [step async for step in call.progress()] == []
        assert (await call).task is not None
