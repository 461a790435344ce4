"""The events of a pool's workers: `PoolWorkerStarted` and `PoolWorkerEnded`, with the signal or the status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.event_types import PoolWorkerEnded, PoolWorkerStarted
from greenroom.supervision import Crash, Shutdown, current_node
from greenroom.supervision.cluster import NodeLost
from greenroom.supervision.cluster.node_records import signal_name
from greenroom.supervision.event_bus import bus

if TYPE_CHECKING:
    from greenroom.supervision import ExitReason

    from .pool_options import Pool
    from .pools import WorkerProcess


def observe_worker(program: str, pool: Pool, worker_process: WorkerProcess) -> None:
    """Tell listeners that the process has started, and later how it has ended."""
    process = current_node().process(worker_process.owner.pid)
    if process is not None:
        process.add_exit_waiter(_ObservedWorker(program, pool, worker_process.os_pid))


class _ObservedWorker:
    """The process of a worker, while a listener hears of it."""

    __slots__ = ("_os_pid", "_pool", "_program")

    def __init__(self, program: str, pool: Pool, os_pid: int) -> None:
        self._program = program
        self._pool = f"pool {pool.serial}"
        self._os_pid = os_pid
        if bus.listener is not None:
            bus.listener(PoolWorkerStarted(program=program, pool=self._pool, process=os_pid))

    def on_exit(self, reason: ExitReason) -> None:
        """The process has ended."""
        if bus.listener is None:
            return
        signal, status, is_failure = "", None, False
        match reason:
            case Crash(error=NodeLost(ending=ending)) | Shutdown(detail=NodeLost(ending=ending)):
                signal = "" if ending.signal is None else signal_name(ending.signal)
                status = ending.code
                is_failure = not (ending.orderly or ending.asked)
            case Crash():
                is_failure = True
            case _:
                pass
        bus.listener(
            PoolWorkerEnded(
                program=self._program,
                pool=self._pool,
                process=self._os_pid,
                signal=signal,
                status=status,
                is_failure=is_failure,
            )
        )
