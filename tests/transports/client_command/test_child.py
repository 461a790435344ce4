"""A child process where the system gives less than usual: no groups, no /proc, no time; and what is left of it then, which is nothing."""

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

from .process_tree import children, gone
from .wire_owner import opened, wicked

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.greenroom(clock="real")


def asleep(until: str = "sys.stdin.read()") -> ChildProcess:
    """One that waits for the end of its input, or for what is said, and carries the mark."""
    return ChildProcess([sys.executable, "-S", "-c", f"import sys, time; {until}"], dict(os.environ), None)


async def test_where_there_are_no_process_groups_no_program_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "killpg")
    async with opened(wicked()) as owner:
        error = await owner.end()
        assert isinstance(error, ConnectFailed)
        assert "POSIX systems only" in str(error)


@pytest.mark.parametrize(("politely", "status"), [(True, 0), (False, -signal.SIGTERM)])
async def test_who_is_ended_is_ended_whether_asked_first_or_not(mark: str, *, politely: bool, status: int) -> None:
    child = asleep() if politely else asleep("time.sleep(600)")
    child.watch(lambda: None)
    await child.end(20.0, politely=politely)
    assert child.status == status
    assert not child.group_lives()
    assert not gone(mark)
    child.close_pipes()
    child.destroy()
    child.destroy()  # again is nothing


async def test_without_proc_a_group_is_taken_to_live_until_the_kernel_says_otherwise(
    monkeypatch: pytest.MonkeyPatch, mark: str
) -> None:
    listed = Path.iterdir

    def unreadable(self: Path) -> Iterator[Path]:
        if self == Path("/proc"):
            raise PermissionError("hidden")
        return listed(self)

    async with opened(wicked(limits=CommandLimits(grace=0.2))) as owner:
        await owner.call("echo")
        with monkeypatch.context() as patch:
            patch.setattr(Path, "iterdir", unreadable)
            await owner.close()
    assert not gone(mark)


async def test_a_group_that_may_not_be_asked_is_taken_to_live(monkeypatch: pytest.MonkeyPatch) -> None:
    child = asleep()
    child.watch(lambda: None)

    def forbidden(group: int, number: int) -> None:
        raise PermissionError(group, number)

    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", forbidden)
        assert child.group_lives()
        child.signal(signal.SIGTERM)  # in vain, and no error
    await child.end(20.0)
    assert not child.group_lives()
    child.destroy()


async def test_who_is_not_dead_in_time_is_reaped_when_the_next_one_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def dying(pid: int, options: int) -> None:
        """Nothing is known yet."""

    child = asleep()
    child.watch(lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(child_process, "_SYNCHRONOUSLY", -1.0)
        patch.setattr(child_process, "_status", dying)
        child.destroy()
    assert child.pid in child_process._unreaped
    async with asyncio.timeout(30):
        while " Z" not in children()[child.pid]:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.01)
    async with opened(wicked(limits=CommandLimits(grace=0.2))) as owner:
        await owner.call("echo")
        assert child.pid not in child_process._unreaped
    assert child.pid not in children()


async def test_an_end_that_is_told_twice_is_one() -> None:
    told: list[int | None] = []
    child = asleep()
    child.watch(lambda: told.append(child.status))
    await child.end(20.0)
    child._ended()
    child._settle(7)
    assert (told, child.status) == ([0], 0)
    child.destroy()


async def test_a_forked_child_of_ours_ends_nobody_elses_servers() -> None:
    child = asleep()
    child.watch(lambda: None)
    host, child._host = child._host, -1  # as in a process that was forked
    child.signal(signal.SIGKILL)
    child.destroy()
    child._host = host
    assert child.group_breathes()
    await child.end(20.0)
    assert child.status == 0
    child.destroy()
