"""User code that fails in any way: its caller gets one reply, in general terms, and no other caller notices."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from greenroom.actors.settings import Settings
from greenroom.protocol.errors import McpError, ToolError
from greenroom.supervision import Crash, CrashReport, Normal, Shutdown, exit, is_alive, kill

from .job_runner import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.actors.context import Context
    from greenroom.supervision.testing import CollectedReports

    from .job_runner import FakeServices, JobRunner

FAILED = {"content": [{"type": "text", "text": "Tool execution failed"}], "isError": True}


class Cruel(BaseException):
    """An exception that no code expects."""


async def raises_value_error() -> None:
    raise ValueError("the password is swordfish")


async def exits() -> None:
    sys.exit(0)


async def interrupts() -> None:
    raise KeyboardInterrupt


async def cruel() -> None:
    raise Cruel


async def raises_in_task_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(raises_value_error())
        group.create_task(asyncio.sleep(60))


async def raises_in_anyio_group() -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(raises_value_error)
        group.start_soon(cruel)


async def cancels_itself() -> None:
    raise asyncio.CancelledError


async def cancels_its_task() -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def runs_out_of_generators() -> None:
    raise StopAsyncIteration


async def recurses() -> None:
    await recurses()


async def unsayable() -> Any:
    return object()


async def half_a_character() -> str:
    return "\ud800"


async def contains_itself() -> Any:
    loop: list[Any] = []
    loop.append(loop)
    return loop


def exits_in_a_thread() -> None:
    sys.exit(0)


def interrupts_in_a_thread() -> None:
    raise KeyboardInterrupt


def stops_iterating_in_a_thread() -> None:
    raise StopIteration


CAUGHT = [
    raises_value_error,
    exits,
    interrupts,
    cruel,
    raises_in_task_group,
    raises_in_anyio_group,
    cancels_itself,
    cancels_its_task,
    runs_out_of_generators,
    recurses,
    unsayable,
    half_a_character,
    contains_itself,
    exits_in_a_thread,
    interrupts_in_a_thread,
    stops_iterating_in_a_thread,
]


@pytest.mark.row("TF-09", "TF-25")
@pytest.mark.parametrize("function", CAUGHT)
async def test_any_crash_of_a_tool_is_one_error_that_gives_nothing_away(
    services: FakeServices, runner: JobRunner, function: Callable[..., Any]
) -> None:
    async def bystander(ctx: Context) -> str:
        await asyncio.sleep(1)
        return "unharmed"

    services.tool(bystander)
    services.tool(function, "tool")
    others = [await runner.call("bystander") for _ in range(20)]
    calling = await runner.call("tool")
    assert await calling.result() == FAILED
    await calling.gone()
    for other in others:
        assert (await other.result())["content"][0]["text"] == "unharmed"
    assert is_alive(runner.workers)
    assert runner.words() == []


@pytest.mark.row("TF-25")
async def test_a_crash_is_in_the_reports(services: FakeServices, runner: JobRunner, reports: CollectedReports) -> None:
    services.tool(raises_value_error, "tool")
    calling = await runner.call("tool")
    await calling.answer()
    crash = await reports.expect(CrashReport)
    assert "swordfish" in str(crash.reason)
    assert crash.pid == calling.worker


@pytest.mark.row("TF-25")
async def test_a_company_may_show_what_it_was(services: FakeServices, runner: JobRunner) -> None:
    services.settings = Settings(expose_errors=True)
    services.tool(raises_value_error, "tool")
    text = (await runner.result("tool"))["content"][0]["text"]
    assert text == "Tool execution failed: ValueError: the password is swordfish"


@pytest.mark.row("TF-09")
async def test_a_company_may_have_crashes_be_protocol_errors(services: FakeServices, runner: JobRunner) -> None:
    services.settings = Settings(crashes="protocol")
    services.tool(raises_value_error, "tool")
    assert await (await runner.call("tool")).error() == {"code": -32000, "message": "Internal tool error"}


@pytest.mark.row("TF-09")
async def test_an_error_on_purpose_may_come_out_of_a_task_group(services: FakeServices, runner: JobRunner) -> None:
    async def fails(error: Exception) -> None:
        raise error

    async def grouped(error: Exception) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails(error))

    services.tool(lambda: grouped(ToolError("closed")), "tool_error")
    services.tool(lambda: grouped(McpError(-32001, "no")), "mcp_error")
    assert (await runner.result("tool_error"))["content"][0]["text"] == "closed"
    assert await (await runner.call("mcp_error")).error() == {"code": -32001, "message": "no"}


@pytest.mark.parametrize("what", [SystemExit(0), KeyboardInterrupt()])
async def test_an_exit_in_a_task_that_a_tool_started_is_its_workers_end_alone(
    services: FakeServices, runner: JobRunner, what: BaseException
) -> None:
    async def leave() -> None:
        raise what

    async def gathers() -> str:
        await asyncio.gather(leave(), asyncio.sleep(60))
        return "never"

    async def bystander() -> str:
        await asyncio.sleep(1)
        return "unharmed"

    services.tool(gathers)
    services.tool(bystander)
    other = await runner.call("bystander")
    calling = await runner.call("gathers")
    reason = await calling.gone()
    assert isinstance(reason, Crash)
    assert type(reason.error) is type(what)
    assert (await other.result())["content"][0]["text"] == "unharmed"


async def test_tasks_that_a_tool_leaves_behind_end_with_its_call(services: FakeServices, runner: JobRunner) -> None:
    ended: list[str] = []

    async def lingers() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("lingerer")

    kept: list[Any] = []

    async def leaks() -> str:
        kept.append(asyncio.create_task(lingers()))
        await asyncio.sleep(0)
        return "done"

    services.tool(leaks)
    calling = await runner.call("leaks")
    assert (await calling.result())["content"][0]["text"] == "done"
    assert isinstance(await calling.gone(), Normal)
    assert ended == ["lingerer"]


@pytest.mark.row("TF-19", "TF-23")
async def test_an_exit_signal_cancels_an_async_tool_without_a_reply(services: FakeServices, runner: JobRunner) -> None:
    ended: list[bool] = []

    async def waits(ctx: Context) -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append(bool(ctx.cancelled))
            raise
        return "never"

    services.tool(waits)
    calling = await runner.call("waits")
    await asyncio.sleep(1)
    calling.job.cancelled.set("not wanted")
    exit(calling.worker, Shutdown("cancelled"))
    assert await calling.gone() == Shutdown("cancelled")
    assert ended == [True]
    assert runner.words() == []


async def test_a_tool_that_turns_its_cancellation_into_a_result_replies_once(
    services: FakeServices, runner: JobRunner
) -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "I stay"
        return "never"

    services.tool(stubborn)
    calling = await runner.call("stubborn")
    await asyncio.sleep(1)
    kill(calling.worker)
    await calling.gone()
    assert len(runner.words()) <= 1


@pytest.mark.row("TF-19")
async def test_a_thread_learns_of_its_cancellation_by_its_flag_only(services: FakeServices, runner: JobRunner) -> None:
    heard: list[str] = []
    ready = threading.Event()

    def blocks(ctx: Context) -> str:
        ready.set()
        ctx.cancelled.wait_in_thread()
        heard.append(ctx.cancelled.reason or "")
        ctx.raise_if_cancelled()
        return "never"

    services.tool(blocks)
    calling = await runner.call("blocks")
    await asyncio.to_thread(ready.wait)
    exit(calling.worker, Shutdown("cancelled"))
    await calling.gone()
    assert services.bulkheads.running == 1
    assert heard == []
    calling.job.cancelled.set("not wanted")
    await until(lambda: not services.bulkheads.running)
    assert heard == ["not wanted"]


async def test_a_tool_that_notices_its_cancellation_is_no_crash(
    services: FakeServices, runner: JobRunner, reports: CollectedReports
) -> None:
    async def notices(ctx: Context) -> str:
        await ctx.cancelled.wait()
        ctx.raise_if_cancelled()
        return "never"

    services.tool(notices)
    calling = await runner.call("notices")
    await asyncio.sleep(1)
    calling.job.cancelled.set("not wanted")
    assert isinstance(await calling.gone(), Normal)
    assert not [report for report in reports if isinstance(report, CrashReport)]


async def test_a_thread_that_never_returns_costs_only_its_own_tool_a_slot(
    services: FakeServices, runner: JobRunner
) -> None:
    release = threading.Event()

    def stuck() -> str:
        release.wait()
        return "at last"

    def quick() -> str:
        return "quick"

    services.tool(stuck, threads=2)
    services.tool(quick)
    calls = [await runner.call("stuck") for _ in range(5)]
    assert await runner.text("quick") == "quick"
    for calling in calls[:2]:
        exit(calling.worker, Shutdown("cancelled"))
        await calling.gone()
    assert services.bulkheads.running == 2
    assert await runner.text("quick") == "quick"
    release.set()
    for calling in calls[2:]:
        assert (await calling.result())["content"][0]["text"] == "at last"
    await until(lambda: not services.bulkheads.running)


# --- a loop of its own


async def test_an_async_tool_may_have_a_loop_of_its_own_and_block_it(services: FakeServices, runner: JobRunner) -> None:
    loops: list[asyncio.AbstractEventLoop] = []
    ready, go = threading.Event(), threading.Event()

    async def blocks() -> str:
        loops.append(asyncio.get_running_loop())
        ready.set()
        go.wait()
        await asyncio.sleep(0)
        return "done"

    services.tool(blocks, isolation="thread")
    calling = await runner.call("blocks")
    await asyncio.to_thread(ready.wait)
    assert loops[0] is not asyncio.get_running_loop()
    go.set()
    assert (await calling.result())["content"][0]["text"] == "done"
    assert loops[0].is_closed()


@pytest.mark.parametrize("what", [SystemExit(0), KeyboardInterrupt(), ValueError("no"), asyncio.CancelledError()])
async def test_a_crash_in_a_loop_of_its_own_is_an_error_like_any_other(
    services: FakeServices, runner: JobRunner, what: BaseException
) -> None:
    async def fails() -> None:
        raise what

    async def gathers() -> None:
        await asyncio.gather(fails(), asyncio.sleep(60))

    services.tool(fails, isolation="thread")
    services.tool(gathers, isolation="thread")
    for name in ("fails", "gathers"):
        calling = await runner.call(name)
        assert await calling.result() == FAILED
        await calling.gone()


@pytest.mark.row("TF-23")
async def test_a_cancelled_call_cancels_the_handler_in_its_own_loop(services: FakeServices, runner: JobRunner) -> None:
    ready = threading.Event()
    ended: list[str] = []

    async def waits() -> str:
        ready.set()
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cancelled")
        return "never"

    services.tool(waits, isolation="thread")
    calling = await runner.call("waits")
    await asyncio.to_thread(ready.wait)
    calling.job.cancelled.set("not wanted")
    assert isinstance(await calling.gone(), Normal)
    assert ended == ["cancelled"]


# --- what is no tool


@pytest.mark.row("TF-25")
async def test_crashes_of_what_is_no_tool_are_internal_errors(services: FakeServices, runner: JobRunner) -> None:
    services.resource("a://b", raises_value_error)
    services.prompt(exits_in_a_thread, "prompt")
    read = await runner.start("resources/read", {"uri": "a://b"})
    assert await read.error() == {"code": -32603, "message": "Internal error"}
    got = await runner.start("prompts/get", {"name": "prompt"})
    assert await got.error() == {"code": -32603, "message": "Internal error"}


async def test_a_tool_error_of_what_is_no_tool_is_an_internal_error_with_its_text(
    services: FakeServices, runner: JobRunner
) -> None:
    async def closed() -> str:
        raise ToolError("closed for today")

    services.resource("a://b", closed)
    read = await runner.start("resources/read", {"uri": "a://b"})
    assert await read.error() == {"code": -32603, "message": "closed for today"}
