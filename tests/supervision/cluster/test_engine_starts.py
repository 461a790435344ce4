"""A daemon that cannot start: the caller gets the reason and what to do, nothing is left, and it may try again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import StartFailed
from greenroom.supervision.cluster import os_processes
from greenroom.supervision.cluster import thespian_patches as leftovers
from greenroom.supervision.cluster.cluster_settings import ClusterSettings

from .engine_fixtures import Stage, eventually, gone, staged

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")


async def refused(stage: Stage) -> str:
    with pytest.raises(StartFailed) as failure:
        await stage.host()
    await eventually(
        lambda: (
            not [pid for pid in os_processes.descendants(os.getpid()) if os_processes.name_of(pid).startswith("gr-")]
        )
    )
    return str(failure.value)


async def test_an_address_that_is_not_this_machines() -> None:
    async with staged(ClusterSettings(bind="192.0.2.1")) as stage:
        assert "192.0.2.1" in await refused(stage)


async def test_a_port_that_another_process_has_is_an_error_that_names_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        async with staged(ClusterSettings(port=other.getsockname()[1])) as stage:
            why = await refused(stage)
            assert str(other.getsockname()[1]) in why
            assert str(os.getpid()) in why


async def test_a_module_that_starts_threads_before_others_are_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    async with staged(ClusterSettings(preload=("threaded",))) as stage:
        assert "threaded" in await refused(stage)


async def test_a_module_that_is_not_there() -> None:
    async with staged(ClusterSettings(preload=("no_such_module",))) as stage:
        assert "no_such_module" in await refused(stage)


async def test_a_program_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    async with staged() as stage:
        assert "/nowhere/python" in await refused(stage)


async def test_a_program_that_is_no_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    async with staged() as stage:
        assert "exited with code 1" in await refused(stage)
        monkeypatch.undo()
        assert await stage.host() is not None


ORPHAN = """
import signal, socket, sys
from greenroom.supervision.cluster import os_processes
os_processes.set_process_name("gr-thespian")
kept = socket.create_server(("127.0.0.1", 0))
print(kept.getsockname()[1], flush=True)
signal.pause()  # greenroom.supervision.cluster.daemon_main is what its command line has to name
"""


async def test_a_process_of_a_former_system_that_holds_the_port_is_ended() -> None:
    """Thespian's logger does that when its admin was killed, and no Thespian system can start there any more."""
    with subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE) as orphan:  # noqa: ASYNC220 - a test may wait for it
        try:
            assert orphan.stdout is not None
            port = int(orphan.stdout.readline())
            assert leftovers.port_holders(port) == [orphan.pid]
            async with staged(ClusterSettings(port=port)) as stage:
                assert await stage.host() is not None
            assert orphan.wait(10) == -signal.SIGKILL
        finally:
            orphan.kill()


async def test_a_system_that_lives_is_no_leftover() -> None:
    async with staged() as stage:
        await stage.host()
        for name, pid in (await stage.running()).items():
            assert not leftovers.is_stale(pid), name


@pytest.mark.deep
async def test_the_same_port_can_be_used_again_and_again() -> None:
    """No stopped part keeps the port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for _ in range(3):
        async with staged(ClusterSettings(port=port)) as stage:
            await stage.host()
            before = await stage.running()
            os.kill(before["admin"], signal.SIGKILL)
            await gone(*(before[part] for part in ("admin", "logger", "forkserver")))
            await stage.host()
