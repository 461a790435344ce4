"""The handle on a daemon: whatever that process does, the loop goes on, and gets its end once. Other programs play the daemon."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision.cluster import daemon_handle, os_processes
from greenroom.supervision.cluster.daemon_handle import DaemonHandle
from greenroom.supervision.cluster.daemon_protocol import DaemonPing, DaemonPong, pack
from greenroom.supervision.cluster.node_records import EngineFailed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

pytestmark = pytest.mark.greenroom(clock="real")
PATIENCE = 50
BEGIN = """
import os, socket, sys, time
control = socket.socket(fileno=int(sys.argv[1]))
"""
PONG = pack(DaemonPong(7))


class Hold:
    """A played daemon's process, and its messages."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.over = asyncio.Event()
        self.process = DaemonHandle(self._told)

    def _told(self, what: Any) -> None:
        self.told.append(what)
        if what is None:
            self.over.set()

    async def end(self) -> int | None:
        """Wait for it; returns the exit status."""
        async with asyncio.timeout(PATIENCE):
            await self.over.wait()
            await self.process.ended.wait()
        return self.process.status


def descriptors() -> int:
    """How many descriptors lead to this list."""
    return len(list(Path("/proc/self/fd").iterdir()))


@asynccontextmanager
async def hold(monkeypatch: pytest.MonkeyPatch, program: str) -> AsyncGenerator[Hold]:
    """Nothing of it is left."""
    monkeypatch.setattr(daemon_handle, "_PROGRAM", BEGIN + program)
    before = descriptors()
    made = Hold()
    try:
        yield made
    finally:
        made.process.kill()
        made.process.release()
        async with asyncio.timeout(PATIENCE):
            await made.process.ended.wait()
        made.process.error_output()
    assert not os_processes.is_alive(made.process.pid)
    assert descriptors() == before


async def test_the_end_of_a_daemon_is_reported_once_with_its_status_and_error_output(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with hold(
        monkeypatch, f"control.sendall({PONG!r}); print('no such port', file=sys.stderr); sys.exit(3)"
    ) as it:
        assert await it.end() == 3
        assert it.told == [DaemonPong(7), None]
        assert "over" in repr(it.process)
        it.process.send(DaemonPing(1))  # the process is gone
        assert it.process.error_output() == "no such port"
        assert it.process.error_output() == "", "they are told once"


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\0\0\0\1\xc1"], ids=["too long", "nonsense"])
async def test_a_daemon_that_sends_invalid_messages_is_killed(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    async with hold(monkeypatch, f"control.sendall({PONG!r} + {data!r}); time.sleep(1000)") as it:
        assert await it.end() == -signal.SIGKILL
        assert it.told == [DaemonPong(7), None]


async def test_a_daemon_that_closes_its_socket_counts_as_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_handle, "_UNREAPED", 0.01)
    async with hold(monkeypatch, "control.close(); time.sleep(1000)") as it:
        async with asyncio.timeout(PATIENCE):
            await it.over.wait()
        assert it.told == [None]
        assert it.process.over
        assert it.process.status is None
        it.process.kill()
        assert await it.end() == -signal.SIGKILL
        assert it.told == [None]


READS = f"""
size = int.from_bytes(control.recv(4, socket.MSG_WAITALL), "big")
control.recv(size, socket.MSG_WAITALL)
control.sendall({PONG!r})
got = 0
while got < 4_000_000:
    time.sleep(0.0005)
    got += len(control.recv(65_536))
control.sendall({PONG!r})
"""


async def test_messages_to_a_slow_daemon_arrive_whole_and_do_not_block_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with hold(monkeypatch, READS) as it:
        turns, word = 0, pack(DaemonPing(1))
        for _ in range(4_000_000 // len(word) + 1):
            it.process.send(DaemonPing(1))
        assert it.process._out, "there is more than the socket takes"
        while not it.over.is_set():
            turns += 1
            await asyncio.sleep(0)
        assert it.told == [DaemonPong(7), DaemonPong(7), None]
        assert turns > 100


async def test_messages_to_a_process_that_just_ended_are_lost_and_its_end_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with hold(monkeypatch, "os._exit(4)") as it:
        while os_processes.is_alive(it.process.pid):
            pass  # and this loop is told nothing
        it.process.send(DaemonPing(1))
        it.process.send(DaemonPing(2))
        assert it.told == []
        assert await it.end() == 4
        assert it.told == [None]


async def test_where_there_are_no_descriptors_of_processes_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_pidfd(pid: int) -> None:
        """No pidfd."""

    monkeypatch.setattr(os_processes, "open_pidfd", open_pidfd)
    async with hold(monkeypatch, "control.close(); time.sleep(0.05); sys.exit(5)") as it:
        assert await it.end() == 5
        assert it.told == [None]


async def test_a_daemon_reaped_by_other_code_counts_as_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async with hold(monkeypatch, "os._exit(4)") as it:
        os.waitpid(it.process.pid, 0)  # noqa: ASYNC222 - before the loop can
        assert await it.end() == 0, "its status is unknown"
        assert it.told == [None]


async def test_a_released_daemon_is_not_read_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    program = "os.read(int(sys.argv[2]), 1); control.sendall(b'nonsense'); sys.exit(6)"
    async with hold(monkeypatch, program) as it:
        it.process.release()
        it.process.release()
        async with asyncio.timeout(PATIENCE):
            await it.process.ended.wait()
        assert it.process.status in (6, 1, -signal.SIGPIPE)
        assert it.told == []


async def test_without_a_python_to_start_it_with_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    with pytest.raises(EngineFailed, match=r"sys\.executable, which is not known here: set it to a Python"):
        DaemonHandle(lambda _: None)
