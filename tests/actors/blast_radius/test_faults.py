"""A hundred clients are in flight while another client's tool fails: no client is lost, and the tree is as it was.

Whatever happens in the tool, its caller gets exactly one answer, or none if it has stopped waiting.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.example_counts import one_in

from greenroom import Server
from greenroom.supervision import draw, tree

from .counting_clients import House, Wire, house

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CROWD = 100


class Leak(BaseException):
    """What `except Exception` does not see."""


# --- what may happen in a tool


async def exits() -> None:
    sys.exit(0)


async def exits_in_a_gathered_task() -> None:
    await asyncio.gather(turn_and(exits), asyncio.Event().wait())


async def exits_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(turn_and(exits))
        group.create_task(asyncio.Event().wait())


async def exits_in_a_thread() -> None:
    leaving: Callable[[int], None] = sys.exit
    await asyncio.to_thread(leaving, 0)


def exits_in_a_def() -> None:
    sys.exit(0)


async def interrupts() -> None:
    raise KeyboardInterrupt


async def interrupts_in_a_gathered_task() -> None:
    await asyncio.gather(turn_and(interrupts), asyncio.Event().wait())


def interrupts_in_a_def() -> None:
    raise KeyboardInterrupt


async def leaks() -> None:
    raise Leak


async def leaks_in_a_gathered_task() -> None:
    await asyncio.gather(turn_and(leaks), asyncio.Event().wait())


async def leaks_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(turn_and(leaks))


def leaks_in_a_def() -> None:
    raise Leak


async def leaks_a_generator_exit() -> None:
    raise GeneratorExit


async def pretends_to_be_cancelled() -> None:
    raise asyncio.CancelledError


async def cancels_itself() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def recurses() -> None:
    await recurses()


async def returns_what_cannot_be_sent() -> Any:
    return object()


async def turn_and(then: Callable[[], Awaitable[None]]) -> None:
    """Not at once, but in a task of its own."""
    await asyncio.sleep(0)
    await then()


FAULTS = (
    exits,
    exits_in_a_gathered_task,
    exits_in_a_group,
    exits_in_a_thread,
    exits_in_a_def,
    interrupts,
    interrupts_in_a_gathered_task,
    interrupts_in_a_def,
    leaks,
    leaks_in_a_gathered_task,
    leaks_in_a_group,
    leaks_in_a_def,
    leaks_a_generator_exit,
    pretends_to_be_cancelled,
    cancels_itself,
    recurses,
    returns_what_cannot_be_sent,
)


# --- the crowd


class Stage:
    """A server whose `wait` answers when the test says so, and a crowd that calls it."""

    def __init__(self, *tools: Callable[..., Any]) -> None:
        self.waiting = 0
        self.all_wait = asyncio.Event()
        self.curtain = asyncio.Event()
        self.server = Server("stage")
        self.server.tool("wait")(self._wait)
        for tool in tools:
            self.server.tool(tool)

    async def _wait(self) -> str:
        self.waiting += 1
        if self.waiting == CROWD:
            self.all_wait.set()
        await self.curtain.wait()
        return "waited"

    async def amid_a_crowd(self, opened: House, then: Callable[[], Awaitable[None]]) -> None:
        """Have all of them call, do that, and have all of them answered; the tree is the same afterwards."""
        crowd = [await opened.peer() for _ in range(CROWD)]
        await settled()
        before = shape(opened)
        calls = [(peer, await peer.begin("wait")) for peer in crowd]
        await self.all_wait.wait()
        await then()
        self.curtain.set()
        for peer, call in calls:
            assert (await peer.answer(call))["result"]["content"] == [{"type": "text", "text": "waited"}]
        await settled()
        assert all(len(peer.answers(call)) == 1 for peer, call in calls)
        assert shape(opened) == before


async def settled() -> None:
    """Let every process come to rest: virtual time passes, and all that was under way is done."""
    await asyncio.sleep(1.0)


def shape(opened: House) -> str:
    """The whole company as it is drawn, with pids and restarts: a process that died and came back is another one."""
    return draw(tree(opened.server.company.name("company")))


@pytest.fixture(params=["memory", "http"])
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


@pytest.mark.row("TF-09")
@pytest.mark.parametrize("fault", one_in(2, FAULTS), ids=lambda fault: fault.__name__)
async def test_no_client_is_lost_and_the_caller_gets_one_answer(fault: Callable[..., Any], wire: Wire) -> None:
    stage = Stage(fault)
    async with house(stage.server, wire) as opened:
        guilty = await opened.peer()

        async def go_wrong() -> None:
            call = await guilty.begin(fault.__name__)
            answer = await guilty.answer(call)
            assert answer["result"]["isError"] is True, answer
            assert "Leak" not in str(answer), "what happened is for the reports, and not for the peer"
            await settled()
            assert len(guilty.answers(call)) == 1

        await stage.amid_a_crowd(opened, go_wrong)


async def never_returns() -> None:
    await asyncio.Event().wait()


async def notices_nothing() -> None:
    """It is cancelled, and goes on for a while."""
    for _ in range(3):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize("tool", [never_returns, notices_nothing], ids=lambda tool: tool.__name__)
async def test_a_call_that_never_returns_ends_with_its_deadline(tool: Callable[..., Any], wire: Wire) -> None:
    stage = Stage(tool)
    async with house(stage.server, wire) as opened:
        guilty = await opened.peer()

        async def go_wrong() -> None:
            call = await guilty.begin(tool.__name__)
            stage.curtain.set()  # the crowd has the same deadline, and is not to miss it
            answer = await guilty.answer(call)
            assert "timed out" in answer["result"]["content"][0]["text"]
            await settled()
            assert len(guilty.answers(call)) == 1

        await stage.amid_a_crowd(opened, go_wrong)


@pytest.mark.parametrize("tool", [never_returns, notices_nothing], ids=lambda tool: tool.__name__)
async def test_a_call_that_is_cancelled_is_not_answered(tool: Callable[..., Any], wire: Wire) -> None:
    stage = Stage(tool)
    async with house(stage.server, wire) as opened:
        guilty = await opened.peer()

        async def go_wrong() -> None:
            call = await guilty.begin(tool.__name__)
            await asyncio.sleep(0.1)
            await guilty.cancel(call)
            await settled()
            assert guilty.answers(call) == []

        await stage.amid_a_crowd(opened, go_wrong)


@pytest.mark.parametrize("tool", [never_returns, notices_nothing, exits], ids=lambda tool: tool.__name__)
async def test_a_client_that_disconnects_affects_no_other(tool: Callable[..., Any], wire: Wire) -> None:
    stage = Stage(tool)
    async with house(stage.server, wire) as opened:

        async def go_wrong() -> None:
            guilty = await opened.peer()
            await guilty.begin(tool.__name__)
            await asyncio.sleep(0)
            guilty.hang_up()
            await settled()
            await guilty.end()  # over HTTP, a session outlives its connections
            await settled()

        await stage.amid_a_crowd(opened, go_wrong)


async def leaves_a_task_behind() -> str:
    leave_behind.append(asyncio.create_task(turn_and(exits)))
    return "done"


async def leaves_a_thread_behind() -> str:
    thread = threading.Thread(target=exits_in_a_def)
    thread.start()
    await asyncio.to_thread(thread.join)
    return "done"


leave_behind: list[asyncio.Task[None]] = []


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnhandledThreadExceptionWarning"
)  # a thread that exits is what is meant
@pytest.mark.parametrize("tool", [leaves_a_task_behind, leaves_a_thread_behind], ids=lambda tool: tool.__name__)
async def test_a_thread_that_a_tool_leaves_behind_may_exit_as_well(tool: Callable[..., Any], wire: Wire) -> None:
    stage = Stage(tool)
    async with house(stage.server, wire) as opened:
        guilty = await opened.peer()

        async def go_wrong() -> None:
            answer = await guilty.answer(await guilty.begin(tool.__name__))
            assert answer["result"]["content"] == [{"type": "text", "text": "done"}]
            await settled()

        await stage.amid_a_crowd(opened, go_wrong)
