"""The survival table: what a tool can do to its process, what its caller gets, and that no other caller notices."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.example_counts import one_in

from greenroom.supervision.cluster import os_processes

from .leaked_resources import descendants
from .stage import Stage, said

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")

SLACK = 5.0
"""The machine may be busy with other things: what is promised within a second is asked for within five."""
FAILED = "failed: Tool execution failed"

ENDINGS: list[tuple[str, dict[str, Any], str]] = [
    ("exits_at_once", {}, f"{FAILED}: its process exited with code 1"),
    ("exits", {}, FAILED),
    ("reads_nothing", {}, rf"{FAILED}: its process was ended by signal 11 \(SIGSEGV\).*"),
    ("kills_itself", {}, rf"{FAILED}: its process was ended by signal 9 \(SIGKILL\), which greenroom did not send.*"),
    ("aborts", {}, rf"{FAILED}: its process was ended by signal 6 \(SIGABRT\).*"),
    ("allocates", {}, rf"{FAILED}: it needed more than the 256 MiB of memory that its process may have"),
    ("holds_interpreter", {"seconds": 4.5}, "let go"),  # longer than any process may be silent that has no call
    ("forks", {}, "0"),
    ("forks_and_leaves", {}, r"\d+"),
    ("closes_everything", {}, rf"{FAILED}: its process .*"),
    ("writes_garbage", {}, "written"),
    ("nothing_of_json", {}, FAILED),
]


@pytest.mark.parametrize(("tool", "arguments", "told"), one_in(3, ENDINGS), ids=[tool for tool, _, _ in ENDINGS])
async def test_a_tool_dies_alone(stage: Stage, tool: str, arguments: dict[str, Any], told: str) -> None:
    await stage.others(3)
    asked = await stage.probe.ask("tools/call", {"name": tool, "arguments": arguments})
    others = asyncio.ensure_future(stage.others(100))
    answer = said(await stage.probe.answer(asked, within=10 * SLACK))
    assert re.fullmatch(told, answer)
    await _is_back(stage)
    assert await others == [str(n) for n in range(100)]
    assert stage.answers_to(asked) == 1


@pytest.mark.soak
async def test_a_tool_that_holds_the_interpreter_within_its_deadline_succeeds(stage: Stage) -> None:
    began = time.monotonic()
    assert await stage.result("holds_interpreter", seconds=10, within=10 + 10 * SLACK) == "let go"
    assert time.monotonic() - began >= 10


async def _gone(child: int) -> None:
    async with asyncio.timeout(SLACK):
        while os_processes.is_alive(child):  # noqa: ASYNC110 - the system has no event for it
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("tool", ["forks_and_leaves", "forks_unseen"])
async def test_a_child_that_a_tool_leaves_behind_ends_with_its_worker(stage: Stage, tool: str) -> None:
    child = int(await stage.result(tool))
    worker = os_processes.all_processes()[child].parent
    assert worker in descendants()
    os.kill(worker, signal.SIGKILL)
    await _gone(child)


async def test_and_when_it_is_known_for_a_child_of_that_worker_later(stage: Stage, tmp_path: Path) -> None:
    """A fork takes its name when it first runs, and its worker may have ended by then."""
    told = tmp_path / "child"
    assert FAILED in await stage.result("is_survived", told=str(told))
    await _gone(int(told.read_text()))


async def test_and_with_the_daemon(stage: Stage) -> None:
    left = [int(await stage.result(tool)) for tool in ("forks_unseen", "starts_program")]
    (daemon,) = [pid for pid in descendants() if os_processes.name_of(pid) == "gr-daemon"]
    os.kill(daemon, signal.SIGKILL)
    for child in left:
        await _gone(child)
    await _is_back(stage)


async def test_and_with_its_server(stage: Stage) -> None:
    async with Stage(size=1) as other:
        child = int(await other.result("forks_and_leaves"))
        assert os_processes.is_alive(child)
        assert int(await stage.result("who")) > 0
    assert not os_processes.is_alive(child)


async def _is_back(stage: Stage) -> None:
    began = time.monotonic()
    assert int(await stage.result("who", within=SLACK)) > 0
    assert time.monotonic() - began < SLACK


@pytest.mark.parametrize(
    "tool",
    one_in(
        3, ["stops_itself", "spins", "spins_in_loop", "deadlocks", "deadlocks_in_another_thread", "ignores_sigterm"]
    ),
)
async def test_a_tool_that_never_ends_is_ended_at_its_deadline(stage: Stage, tool: str) -> None:
    stage.server.registry.register_tool("late", getattr(stage.tools, tool), stage.options(timeout=0.5))
    await stage.others(3)
    asked = await stage.probe.ask("tools/call", {"name": "late", "arguments": {}})
    began = time.monotonic()
    others = asyncio.ensure_future(stage.others(100))
    answer = said(await stage.probe.answer(asked, within=SLACK))
    assert answer == "failed: Tool 'late' timed out after 0.5 s"
    assert time.monotonic() - began < 0.5 + SLACK
    await _is_back(stage)
    assert await others == [str(n) for n in range(100)]
    assert stage.answers_to(asked) == 1


async def test_a_hundred_megabytes_come_back_whole(stage: Stage) -> None:
    others = asyncio.ensure_future(stage.others(100))
    answer = await stage.result("hundred_megabytes", megabytes=100)
    assert len(answer) == 100_000_000
    assert await others == [str(n) for n in range(100)]
