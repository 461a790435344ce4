"""Programs whose own file has the handlers: a worker runs that file as well, as far as needed."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from greenroom import Client, Command

from .leaked_resources import descendants

pytestmark = pytest.mark.greenroom(clock="real")
PROGRAMS = Path(__file__).parent / "programs"


def command(*arguments: str) -> Command:
    return Command(sys.executable, *arguments, cwd=PROGRAMS)


RUNS = [
    (("unguarded.py",), "__greenroom_main__"),
    (("guarded.py",), "__greenroom_main__"),
    (("-m", "packed.server"), "packed.server 42"),
]


@pytest.mark.parametrize(("arguments", "name"), RUNS, ids=str)
async def test_handlers_of_the_programs_own_file_run_in_workers(arguments: tuple[str, ...], name: str) -> None:
    before = descendants()
    async with Client(command(*arguments)) as client:
        pid, _, called = str(await client.call("where")).partition(" ")
        assert called == name
        assert int(pid) in descendants() - before
    await _gone(before)


async def _gone(before: set[int]) -> None:
    async with asyncio.timeout(15):
        while descendants() - before:  # noqa: ASYNC110 - the system has no event for it
            await asyncio.sleep(0.02)


async def test_classes_of_that_file_are_arguments_and_crashes_are_told() -> None:
    before = descendants()
    async with Client(command("unguarded.py")) as client:
        assert await client.call("area", box={"width": 3, "height": 4}) == 12
        reply = await client.call_tool("crash")
        assert reply.is_error
        assert reply.text == "Tool execution failed: its process was ended by signal 6 (SIGABRT)"
        assert await client.call("area", box={"width": 3, "height": 5}) == 15
    await _gone(before)


async def test_a_script_that_is_its_own_client_needs_no_guard() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "calls_itself.py", cwd=PROGRAMS, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0, err.decode()
    here, there, name = out.split()
    assert here != there
    assert name == b"__greenroom_main__"


async def test_a_module_that_a_worker_cannot_import_is_every_callers_error_and_the_reason_is_in_the_log() -> None:
    before = descendants()
    said: list[str] = []
    async with Client(Command(sys.executable, "does_not_import.py", cwd=PROGRAMS, stderr=said.append)) as client:
        replies: list[Any] = [await client.call_tool("never") for _ in range(5)]
    for reply in replies:
        assert reply.is_error
        assert reply.text == "Tool execution failed: its process could not be started"
    assert any("ImportError: the library for this is not installed here" in line for line in said)
    await _gone(before)


def test_this_process_is_nobodys_worker() -> None:
    assert os.getpid() not in descendants()
