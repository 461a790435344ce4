"""One error of an author's code is one log record, with one traceback of the author's frames."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import greenroom
from greenroom import Client, Hooks, PeerError, Server
from greenroom.actors.client.errors import InitFailed
from greenroom.supervision.kernel import tracebacks
from greenroom.supervision.kernel.visible_text import EscapingFormatter

from . import failing_server
from .failing_server import fail, server, wrap


def errors(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The text of a log file, of level ERROR and above."""
    lines = EscapingFormatter("%(message)s")
    return [lines.format(each) for each in caplog.records if each.levelno >= logging.ERROR]


def one(caplog: pytest.LogCaptureFixture) -> str:
    """The traceback of the only error that was logged."""
    (text,) = errors(caplog)
    return trace_of(text)


def trace_of(text: str) -> str:
    """The traceback that is in a text, which is the author's alone."""
    trace = text[text.index("Traceback") :].rstrip()
    assert f"{Path(greenroom.__file__).parent}/" not in trace
    assert "/asyncio/" not in trace
    assert re.search(r"^\(\d+ frames? of (asyncio and )?greenroom left out\)$", trace.splitlines()[-1]), trace
    return trace


@pytest.mark.parametrize(("tool", "where"), [("plain", "in a thread"), ("loop", "in the loop")])
async def test_an_error_of_a_tool_is_shown_once_with_its_authors_frames(
    tool: str, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(server) as client:
        assert (await client.call_tool(tool)).is_error
    text = one(caplog)
    assert f"in {tool}" in text
    assert "in fail" in text
    assert text.count(f"ValueError: {where}\n") == 1
    assert len(text.splitlines()) < 12


def test_an_error_in_a_worker_process_is_shown_once_with_its_cause() -> None:
    done = subprocess.run(
        [sys.executable, failing_server.__file__], capture_output=True, check=False, timeout=60, text=True
    )
    assert done.returncode == 0, done.stderr
    trace = trace_of(done.stderr)
    assert (
        trace.index("ValueError: in a process\n") < trace.index("direct cause") < trace.index("LookupError: wrapped\n")
    )
    assert trace.count("LookupError: wrapped\n") == 1
    assert "RemoteTraceback" not in trace


async def test_an_error_in_a_task_is_shown_once(caplog: pytest.LogCaptureFixture) -> None:
    async with Client(server) as client:
        task = (await client.call_tool("task", task=True)).task
        assert task is not None
        assert (await client.tasks_result(task)).is_error
    assert one(caplog).count("ValueError: in a task\n") == 1


async def test_errors_of_prompts_and_resources_are_shown_once(caplog: pytest.LogCaptureFixture) -> None:
    async with Client(server) as client:
        with pytest.raises(PeerError):
            await client.get_prompt("prompt")
        assert "in a prompt" in one(caplog)
        caplog.clear()
        with pytest.raises(PeerError):
            await client.read_resource("failing://resource")
        assert "in a resource" in one(caplog)


async def test_an_error_of_a_hook_is_shown_once_with_its_cause(caplog: pytest.LogCaptureFixture) -> None:
    async def init(facts: Any) -> None:
        wrap("in a hook")

    hooked = Server("hooked", hooks=Hooks(init=init))
    with pytest.raises(InitFailed):
        async with Client(hooked, mode="legacy"):
            pass
    text = one(caplog)
    assert text.index("ValueError: in a hook") < text.index("direct cause") < text.index("LookupError: wrapped")


def test_an_error_that_ends_a_program_has_one_traceback() -> None:
    code = """
import logging
from greenroom import Server
server = Server("x")
@server.lifespan
async def opened():
    raise ValueError("in a lifespan")
    yield
server.run("http", port=0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=30, text=True)
    assert done.returncode == 1
    assert done.stderr.count("Traceback (most recent call last)") == 1
    assert "/greenroom/" not in done.stderr.partition("Traceback")[2]
    assert done.stderr.endswith("ValueError: in a lifespan\n(its traceback is in the log)\n")


def raised(function: Any) -> BaseException:
    try:
        function()
    except Exception as error:  # noqa: BLE001 - it is what is looked at
        return error
    raise AssertionError("it raises")


def test_an_error_without_any_of_the_authors_frames_is_shown_whole() -> None:
    error = raised(lambda: tracebacks.make_record(logging.getLogger(), 0, "", (), None, depth=10_000))
    while error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_filename == __file__:
        error = error.with_traceback(error.__traceback__.tb_next)
    text = tracebacks.format_traceback(error)
    assert "left out" not in text
    assert "/greenroom/" in text


async def test_groups_and_contexts_keep_each_error() -> None:
    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(chained("first"))
            group.create_task(chained("second"))

    async def chained(text: str) -> None:
        try:
            fail(text)
        except ValueError:
            raise KeyError(f"after {text}")  # noqa: B904 - the context is what is looked at

    with pytest.raises(ExceptionGroup) as caught:
        await both()
    text = tracebacks.format_traceback(caught.value)
    for each in ("ValueError: first", "KeyError: 'after first'", "ValueError: second", "KeyError: 'after second'"):
        assert each in text
    assert "During handling" in text
    assert "/asyncio/" not in text


async def test_frames_of_the_standard_library_below_the_authors_stay() -> None:
    text = tracebacks.format_traceback(raised(lambda: json.loads("{")))
    assert "json/decoder.py" in text


async def test_a_log_handler_finds_the_whole_traceback_beside_the_short_text(caplog: pytest.LogCaptureFixture) -> None:
    async with Client(server) as client:
        await client.call_tool("loop")
    (record,) = (each for each in caplog.records if each.levelno >= logging.ERROR)
    assert record.exc_info is not None
    assert record.exc_info[2] is not None
    assert "greenroom" in record.exc_info[2].tb_frame.f_code.co_filename
    assert record.funcName == "log_report"


async def test_a_deep_recursion_is_folded() -> None:
    def deep(count: int) -> None:
        if count:
            deep(count - 1)
        fail("at the bottom")

    text = tracebacks.format_traceback(raised(lambda: deep(900)))
    assert len(text.splitlines()) < 40
    assert "repeated" in text


async def test_the_loggers_level_is_respected(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("greenroom.supervision").setLevel(logging.CRITICAL)
    try:
        async with Client(server) as client:
            with suppress(PeerError):
                await client.call_tool("loop")
    finally:
        logging.getLogger("greenroom.supervision").setLevel(logging.NOTSET)
    assert errors(caplog) == []
