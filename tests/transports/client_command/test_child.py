"""A child process where the system offers less than usual: no groups, no /proc, no time; nothing of it is left in any case."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from greenroom.transports.client import child_process
from greenroom.transports.client.child_process import ChildProcess
from greenroom.transports.client.errors import ConnectFailed
from greenroom.transports.client.server_command import CommandLimits

from .process_tree import child_processes, wait_until_gone
from .wire_owner import misbehaving_server, open_wire

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.greenroom(clock="real")


def asleep(until: str = "sys.stdin.read()") -> ChildProcess:
    """A child that waits for the end of its input, or for input, and carries the mark."""
    return ChildProcess([sys.executable, "-S", "-c", f"import sys, time; {until}"], dict(os.environ), None)


async def test_without_process_groups_no_program_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "killpg")
    async with open_wire(misbehaving_server()) as owner:
        error = await owner.end()
        assert isinstance(error, ConnectFailed)
        assert "POSIX systems only" in str(error)


@pytest.mark.parametrize(("politely", "status"), [(True, 0), (False, -signal.SIGTERM)])
async def test_a_child_is_ended_whether_asked_first_or_not(mark: str, *, politely: bool, status: int) -> None:
    child = asleep() if politely else asleep("time.sleep(600)")
    child.watch(lambda: None)
    await child.end(20.0, politely=politely)
    assert child.status == status
    assert not child.group_exists()
    assert not wait_until_gone(mark)
    child.close_pipes()
    child.destroy()
    child.destroy()  # repeated: a no-op


async def test_without_proc_a_group_counts_as_alive_until_the_kernel_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    listed = Path.iterdir

    def unreadable(self: Path) -> Iterator[Path]:
        if self == Path("/proc"):
            raise PermissionError("hidden")
        return listed(self)

    async with open_wire(misbehaving_server(limits=CommandLimits(grace=0.2))) as owner:
        await owner.call("echo")
        with monkeypatch.context() as patch:
            patch.setattr(Path, "iterdir", unreadable)
            await owner.close()
    assert not wait_until_gone(mark)


async def test_a_group_that_cannot_be_checked_counts_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    child = asleep()
    child.watch(lambda: None)

    def forbidden(group: int, number: int) -> None:
        raise PermissionError(group, number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", forbidden)
        assert child.group_exists()
        child.signal(signal.SIGTERM)  # without effect, and no error
    await child.end(20.0)
    assert not child.group_exists()
    child.destroy()


async def test_a_child_that_dies_late_is_reaped_at_the_next_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(pid: int, options: int) -> None:
        """It has not ended yet."""

    child = asleep()
    child.watch(lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(child_process, "_BLOCKING_WAIT", -1.0)
        patch.setattr(child_process, "_reap", dying)
        child.destroy()
    assert child.pid in child_process._unreaped
    async with asyncio.timeout(30):
        while " Z" not in child_processes()[child.pid]:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
    async with open_wire(misbehaving_server(limits=CommandLimits(grace=0.2))) as owner:
        await owner.call("echo")
        assert child.pid not in child_process._unreaped
    assert child.pid not in child_processes()


async def test_an_end_that_is_reported_twice_counts_once() -> None:
    told: list[int | None] = []
    child = asleep()
    child.watch(lambda: told.append(child.status))
    await child.end(20.0)
    child._on_pidfd()
    child._on_exit_status(7)
    assert (told, child.status) == ([0], 0)
    child.destroy()


async def test_a_forked_child_of_ours_ends_no_servers_of_its_parent() -> None:
    child = asleep()
    child.watch(lambda: None)
    host, child._owner_pid = child._owner_pid, -1  # as in a forked process
    child.signal(signal.SIGKILL)
    child.destroy()
    child._owner_pid = host
    assert child.group_is_alive()
    await child.end(20.0)
    assert child.status == 0
    child.destroy()
