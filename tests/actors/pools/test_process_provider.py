"""The processes of workers: a worker has none of its own, and one on another machine is ended through its owner."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any

import pytest

from greenroom.actors.pools.handler_spec import become_worker
from greenroom.actors.pools.pool_options import Pool
from greenroom.actors.pools.pools import NoWorkers, ProcessProvider, WorkerProcess
from greenroom.supervision import GenServer, inbox, is_alive, start
from greenroom.supervision.cluster import os_processes

CLUSTER: Any = SimpleNamespace(peers=None)


class Host(GenServer):
    """Stands for the process."""


async def test_a_worker_has_no_workers_of_its_own() -> None:
    become_worker()
    with pytest.raises(NoWorkers, match="call the function itself"):
        await ProcessProvider().open(Pool())


@pytest.mark.parametrize("descriptors", [True, False], ids=["with descriptors", "without"])
async def test_a_process_is_asked_to_end_and_soon_not_asked_any_more(
    monkeypatch: pytest.MonkeyPatch,
    descriptors: bool,  # noqa: FBT001
) -> None:
    sent: list[tuple[int, int]] = []

    def send_signal(number: int, pid: int, pidfd: int | None = None) -> None:
        assert pidfd is not None
        sent.append((number, pid))

    def open_pidfd(pid: int) -> None:
        """There is no such thing."""

    monkeypatch.setattr(os_processes, "send_signal", send_signal)
    if not descriptors:
        monkeypatch.setattr(os_processes, "open_pidfd", open_pidfd)
    async with inbox():
        owner: Any = await start(Host)
        process = WorkerProcess(owner, "node", os.getpid(), Pool(), CLUSTER)
        process.end()
        assert is_alive(owner)
        assert len(sent) == descriptors
        await asyncio.sleep(5)
        assert not is_alive(owner)


async def test_a_process_on_another_machine_is_ended_through_its_owner() -> None:
    far: Any = SimpleNamespace(requires={"gpu": True})
    async with inbox():
        owner: Any = await start(Host)
        process = WorkerProcess(owner, "node", 1, far, CLUSTER)
        assert process.locks is None
        process.end()
        assert not is_alive(owner)
