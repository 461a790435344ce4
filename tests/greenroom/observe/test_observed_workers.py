"""A program with two workers, seen through the one admin listener of its parent, while a worker is killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest

from greenroom import Server, SyncClient
from greenroom.observe import Admin
from greenroom.observe.observed_program import ObservedProgram
from greenroom.observe.observed_workers import ObservedWorkers, ViewAsked, answer_parent
from greenroom.observe.view_models import ToolsView, ViewQuery
from greenroom.supervision import CallTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import os
from greenroom import Server
from greenroom.observe import Admin

server = Server("many")

@server.tool
def process() -> int:
    return os.getpid()

if __name__ == "__main__":
    server.run("http", port=0, workers=2, admin=Admin(port=0))
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "many.py").write_text(PROGRAM)
    started = subprocess.Popen(
        [sys.executable, "many.py"], cwd=tmp_path, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    yield started
    if started.poll() is None:
        os.kill(started.pid, signal.SIGTERM)
    started.communicate(timeout=20)


def last_word(program: subprocess.Popen[str]) -> str:
    assert program.stderr is not None
    return program.stderr.readline().split()[-1]


def calls_in(metrics: str) -> int:
    found = re.findall(r'_duration_seconds_count\{[^}]*tool_name="process"[^}]*\} ([\d.]+)', metrics)
    return sum(int(float(each)) for each in found)


def test_one_page_and_one_scrape_for_all_workers_also_while_one_dies(program: subprocess.Popen[str]) -> None:
    link, url = last_word(program), last_word(program)
    base = link.partition("/observe")[0]
    with httpx.Client(trust_env=False, timeout=20, follow_redirects=True) as browser:
        assert browser.get(link).status_code == 200
        processes: list[int] = []
        for _ in range(4):
            with SyncClient(url) as client:
                processes.append(client.call("process"))
        assert calls_in(browser.get(f"{base}/metrics").text) == 4
        page = browser.get(f"{base}/observe/tree").text
        assert "worker-1" in page
        assert "worker-2" in page
        assert "WorkerNode" in page

        os.kill(processes[-1], signal.SIGKILL)
        assert browser.get(f"{base}/readyz").status_code == 200  # the other one takes the calls
        with SyncClient(url) as client:
            assert client.call("process") != processes[-1]
        counted = calls_in(browser.get(f"{base}/metrics").text)
        while counted < 5:  # the new process, or the other one, has not answered a scrape yet
            counted = calls_in(browser.get(f"{base}/metrics").text)
        assert counted == 5  # what the dead process counted is not lost


async def test_a_worker_that_does_not_answer_delays_nothing_and_is_named() -> None:
    asked: list[tuple[str, float]] = []
    worker = ObservedProgram(Admin(), "many")
    worker.start()

    async def ask(name: str, request: bytes, seconds: float) -> bytes:
        asked.append((name, seconds))
        if name == "worker-2":
            raise CallTimeout(seconds)
        return await answer_parent(worker, request)

    parent = ObservedWorkers(Admin(acts=True), "many", ("worker-1", "worker-2"), ask)
    parent.start()
    try:
        view = await parent.view("tools", ViewQuery())
        assert isinstance(view, ToolsView)
        assert view.notes == ["worker-2 does not answer: it is starting, restarting or busy."]
        assert [name for name, _ in asked] == ["worker-1", "worker-2"]
        assert (await parent.view("tools", ViewQuery(worker="worker-1"))).notes == []
        for odd in ("worker-2", "worker-9", "../x"):
            (note,) = (await parent.view("tools", ViewQuery(worker=odd))).notes
            assert note.startswith(f"{odd} does not answer")
        outcome = await parent.act("kill", "<x>", "ada", worker="worker-2")
        assert not outcome.is_done
        assert "not known whether" in outcome.text
        refused = await parent.act("kill", "<x>", "ada", worker="worker-1")
        assert not refused.is_done  # the worker itself allows no acts
        assert refused.worker == "worker-1"
    finally:
        parent.stop()
        worker.stop()


@pytest.mark.parametrize(("seconds", "is_done"), [(59, True), (10_000, False)])
async def test_a_worker_tells_how_a_try_ended_however_long_the_tool_takes(seconds: float, *, is_done: bool) -> None:
    server = Server("many")

    @server.tool(timeout=20_000)
    async def wait(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def ask(name: str, request: bytes, seconds: float) -> bytes:
        try:
            async with asyncio.timeout(seconds):
                return await answer_parent(worker, request)
        except TimeoutError:
            raise CallTimeout(seconds) from None

    worker = ObservedProgram(Admin(acts=True), "many")
    parent = ObservedWorkers(Admin(acts=True), "many", ("worker-1",), ask)
    async with server.started():
        worker.start()
        try:
            outcome = await parent.act("try", "wait", "ada", worker="worker-1", arguments={"seconds": seconds})
        finally:
            worker.stop()
    assert (outcome.is_done, outcome.worker) == (is_done, "worker-1")
    assert "not known" not in outcome.text


@pytest.mark.parametrize("odd", [b"", b"\xc1", b"\x80", msgspec.msgpack.encode({"type": "other"})])
async def test_what_is_no_request_is_refused(odd: bytes) -> None:
    program: Any = ObservedProgram(Admin(), "many")
    with pytest.raises(msgspec.DecodeError):
        await answer_parent(program, odd)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(ViewAsked("now", ViewQuery())))["type"] == "view"
