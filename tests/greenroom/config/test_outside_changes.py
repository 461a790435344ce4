"""Changes from outside during a host's life: its program is removed and restored, and another host follows the same file."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from greenroom.errors import GreenroomError
from greenroom.host import Host

from .config_files import PROGRAM, alive, block

if TYPE_CHECKING:
    from .config_files import Workspace

pytestmark = pytest.mark.greenroom(clock="real")
PATIENCE = 60.0


async def test_a_program_that_is_removed_while_it_runs_is_missed_when_it_is_needed_again(workspace: Workspace) -> None:
    program = workspace.folder / "program"
    script = f"#!/bin/sh\nexec {sys.executable} -S -E {PROGRAM}\n"
    program.write_text(script)
    program.chmod(0o755)
    spare = workspace.folder / "spare"
    shutil.copy2(program, spare)
    path = workspace.write("greenroom.toml", f"[server.a]\ncommand = {str(program)!r}\n" + block("b", "1"))
    async with Host.from_config(path, environment={}, project=workspace.folder) as host:
        first, other = int(await host.call("a:pid")), await host.call("b:pid")
        program.unlink()
        assert int(await host.call("a:pid")) == first
        assert await host.reload() == ()
        os.kill(first, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            while f"there is no program {program}" not in host.reports()["a"].reason:  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.02)
            with pytest.raises(GreenroomError):
                await host.server("a").within(0.2).call("pid")
            spare.replace(program)
            host.retry("a")
            while True:
                with suppress(GreenroomError):
                    assert int(await host.call("a:pid")) != first
                    break
                await asyncio.sleep(0.02)
        assert host.reports()["a"].state == "connected"
        assert await host.call("b:pid") == other


async def test_two_hosts_on_one_file_have_servers_of_their_own(workspace: Workspace) -> None:
    path = workspace.write("greenroom.toml", block("a", "1") + block("b", "b"))

    def host() -> Host:
        return Host.from_config(path, environment={}, project=workspace.folder, watch=0.02)

    async with host() as one:
        mine = int(await one.call("b:pid"))
        async with host() as other:
            theirs = int(await other.call("b:pid"))
            assert mine != theirs
            workspace.write("fresh.toml", block("a", "2") + block("b", "b")).replace(path)
            async with asyncio.timeout(PATIENCE):
                while {await one.call("a:which"), await other.call("a:which")} != {"2"}:  # noqa: ASYNC110 - as above
                    await asyncio.sleep(0.02)
            assert (int(await one.call("b:pid")), int(await other.call("b:pid"))) == (mine, theirs)
        assert alive([theirs]) == set()
        assert int(await one.call("b:pid")) == mine
