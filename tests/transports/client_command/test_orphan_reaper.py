"""The shell beside the program: there while there are children, replaced when it is killed, let go of in a forked child."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest

from greenroom.supervision import Exit, Shutdown, exit, inbox
from greenroom.transports.client import child_process as command_guardian
from greenroom.transports.client.child_process import OrphanReaper, orphan_reaper
from greenroom.transports.client.errors import ConnectFailed, ProcessDied

from .wire_owner import Owner, opened, wicked

pytestmark = pytest.mark.greenroom(clock="real")
NOBODYS_GROUP = 2**30
"""More than there are numbers for processes."""


async def test_it_is_there_while_there_are_children() -> None:
    assert orphan_reaper.pid == 0
    async with opened(wicked()) as first:
        await first.call("echo")
        shell = orphan_reaper.pid
        assert shell
        async with opened(wicked()) as second:
            await second.call("echo")
            assert orphan_reaper.pid == shell
        assert orphan_reaper.pid == shell
    assert orphan_reaper.pid == 0


async def test_a_program_that_cannot_be_started_needs_none() -> None:
    async with opened(wicked(cwd="/nowhere")) as owner:
        assert isinstance(await owner.end(), ConnectFailed)
    assert orphan_reaper.pid == 0


async def test_another_takes_its_place() -> None:
    async with opened(wicked()) as first:
        await first.call("echo")
        shell = orphan_reaper.pid
        os.kill(shell, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # it was waited for already
            await asyncio.to_thread(os.waitid, os.P_PID, shell, os.WEXITED | os.WNOWAIT)
        async with opened(wicked()) as second:
            assert await second.call("echo", n=1) == {"n": 1}
            assert orphan_reaper.pid not in (0, shell)
            assert first.process in orphan_reaper._groups


async def test_where_there_is_no_shell_children_start_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(command_guardian, "SHELL", "/nowhere/sh")
    monkeypatch.setattr(orphan_reaper, "_missing", False)
    async with opened(wicked()) as owner:
        assert await owner.call("echo", n=1) == {"n": 1}
    assert "nobody will end the server processes" in caplog.text
    assert len([each for each in caplog.records if each.name == "greenroom.command"]) == 1


async def test_a_forked_child_lets_go_of_everything() -> None:
    """It would hold our servers' input open, and its end would be theirs."""
    async with inbox() as me:
        owner = Owner(me, wicked().open(me.pid))
        await owner.call("echo")
        reading, writing = os.pipe()
        ready, here = os.pipe()
        child = os.fork()
        if not child:
            os.close(writing)
            os.write(here, b"!")
            os.read(reading, 1)  # until the parent says so
            os._exit(0)
        os.close(reading)
        os.close(here)
        try:
            assert os.read(ready, 1) == b"!"
            os.close(ready)
            held = {str(each.readlink()) for each in Path(f"/proc/{child}/fd").iterdir()}  # noqa: ASYNC240 - a moment
            ours = {f"pipe:[{os.fstat(each).st_ino}]" for each in owner.wire._child._pipes}
            assert not held & ours
            exit(owner.wire.pid, Shutdown("closed"))
            assert await me.receive(lambda message: isinstance(message, Exit)) == Exit(
                owner.wire.pid, Shutdown("closed")
            )
            assert owner.wire._child is not None
            assert owner.wire._child.status == 0
        finally:
            os.close(writing)
            os.waitpid(child, 0)  # noqa: ASYNC222 - it ends at that


async def test_the_guardian_does_not_outlive_a_crowd() -> None:
    async with opened(wicked()) as one, opened(wicked()) as two, opened(wicked()) as three:
        for owner in (one, two, three):
            await owner.call("echo")
            os.kill(owner.process, signal.SIGKILL)
            assert isinstance(await owner.end(), ProcessDied)
        assert orphan_reaper.pid == 0


def test_for_want_of_a_shell_no_child_is_started_but_none_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    own = OrphanReaper()
    own.expect(1)
    os.kill(own.pid, signal.SIGKILL)
    os.waitpid(own.pid, 0)

    def no_room(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", no_room)
        own.guard(NOBODYS_GROUP, 1)
        with pytest.raises(OSError, match="no room"):
            own.expect(2)
        own.failed(2)
    own.expect(3)
    assert own.pid
    assert own._groups == {NOBODYS_GROUP}
    own.failed(3)
    own.dismiss(NOBODYS_GROUP)
    assert own.pid == 0
