"""The orphan reaper's shell: it runs while there are children, is replaced when killed, and is released in a forked child."""

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
from greenroom.transports.client import child_process
from greenroom.transports.client.child_process import OrphanReaper, orphan_reaper
from greenroom.transports.client.errors import ConnectFailed, ProcessDied

from .wire_owner import CommandWireOwner, misbehaving_server, open_wire

pytestmark = pytest.mark.greenroom(clock="real")
UNUSED_GROUP = 2**30
"""More than any process id."""


async def test_the_reaper_runs_while_there_are_children() -> None:
    assert orphan_reaper.pid == 0
    async with open_wire(misbehaving_server()) as first:
        await first.call("echo")
        shell = orphan_reaper.pid
        assert shell
        async with open_wire(misbehaving_server()) as second:
            await second.call("echo")
            assert orphan_reaper.pid == shell
        assert orphan_reaper.pid == shell
    assert orphan_reaper.pid == 0


async def test_a_program_that_cannot_be_started_needs_no_reaper() -> None:
    async with open_wire(misbehaving_server(cwd="/nowhere")) as owner:
        assert isinstance(await owner.end(), ConnectFailed)
    assert orphan_reaper.pid == 0


async def test_a_killed_reaper_is_replaced() -> None:
    async with open_wire(misbehaving_server()) as first:
        await first.call("echo")
        shell = orphan_reaper.pid
        os.kill(shell, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # it was reaped already
            await asyncio.to_thread(os.waitid, os.P_PID, shell, os.WEXITED | os.WNOWAIT)
        async with open_wire(misbehaving_server()) as second:
            assert await second.call("echo", n=1) == {"n": 1}
            assert orphan_reaper.pid not in (0, shell)
            assert first.process in orphan_reaper._groups


async def test_without_a_shell_children_start_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(child_process, "SHELL", "/nowhere/sh")
    monkeypatch.setattr(orphan_reaper, "_missing", False)
    async with open_wire(misbehaving_server()) as owner:
        assert await owner.call("echo", n=1) == {"n": 1}
    assert "server processes will not be ended" in caplog.text
    assert len([each for each in caplog.records if each.name == "greenroom.command"]) == 1


async def test_a_forked_child_releases_everything() -> None:
    """Otherwise it would hold our servers' input open, and its end would end them."""
    async with inbox() as me:
        owner = CommandWireOwner(me, misbehaving_server().open(me.pid))
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


async def test_the_reaper_does_not_outlive_many_children() -> None:
    async with (
        open_wire(misbehaving_server()) as one,
        open_wire(misbehaving_server()) as two,
        open_wire(misbehaving_server()) as three,
    ):
        for owner in (one, two, three):
            await owner.call("echo")
            os.kill(owner.process, signal.SIGKILL)
            assert isinstance(await owner.end(), ProcessDied)
        assert orphan_reaper.pid == 0


def test_without_resources_for_a_shell_no_child_is_started_and_none_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = OrphanReaper()
    own.expect_child(1)
    os.kill(own.pid, signal.SIGKILL)
    os.waitpid(own.pid, 0)

    def no_room(*_: object, **__: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "no room")

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", no_room)
        own.watch_group(UNUSED_GROUP, 1)
        with pytest.raises(OSError, match="no room"):
            own.expect_child(2)
        own.start_failed(2)
    own.expect_child(3)
    assert own.pid
    assert own._groups == {UNUSED_GROUP}
    own.start_failed(3)
    own.unwatch_group(UNUSED_GROUP)
    assert own.pid == 0
