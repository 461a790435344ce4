"""The pools of a company: starting them, passing calls to their schedulers, and the processes that workers run in.

A job whose handler has a pool calls `Pools.run` in its own process, and waits there; the session cancels and ends that process as any other. A pool is started by
the first call that needs it, or with the company when it has warm workers. `ProcessProvider` and `WorkerProcess` hide where the processes come from.
"""

from __future__ import annotations

import asyncio
import os
import signal
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.exclusive_supervisor import ExclusiveSupervisor, ensure_child
from greenroom.actors.process_names import ProcessName
from greenroom.actors.server_questions import unread_question
from greenroom.actors.worker_interfaces import EncodedResult, JobError, JobReply, RemoteCrash
from greenroom.protocol.errors import ErrorCode, McpError, RequestCancelled, ToolError
from greenroom.protocol.input_required import InputRequired, RecordedAnswer, RecordedAnswers
from greenroom.supervision import (
    TEMPORARY,
    TRANSIENT,
    DynamicSupervisor,
    GenServer,
    NotRegistered,
    Options,
    ProcessExited,
    Ref,
    Supervisor,
    child,
    count_children,
    current_node,
    kill,
    whereis,
)
from greenroom.supervision.cluster import (
    Cluster,
    ClusterSettings,
    NodeOwner,
    NodeSpec,
    ProcessLimits,
    RemoteError,
    RemoteTraceback,
    launch_on,
    node_child,
    os_processes,
)

from .handler_spec import is_worker, spec_of
from .remote_call import RemoteCall, StartLocks
from .scheduler import UNUSED, PoolScheduler
from .worker_main import WorkerMain
from .worker_proxy import error_of_loss, why_lost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.catalogue import CatalogueRef
    from greenroom.actors.catalogue_entries import CatalogueEntry
    from greenroom.actors.process_names import CompanyKey
    from greenroom.actors.settings import Settings
    from greenroom.actors.worker_interfaces import Job
    from greenroom.supervision import ChildSpec

    from .pool_options import Pool
    from .remote_call import CallOutcome

_TRAVEL: Final = (
    "name",
    "version",
    "title",
    "description",
    "website_url",
    "strict",
    "expose_errors",
    "crashes",
    "ask_timeout",
    "parked_timeout",
)
"""The settings of a company that workers need."""


class Pools:
    """The pools of one company."""

    def __init__(
        self, key: CompanyKey, settings: Settings, catalogue_ref: CatalogueRef, provider: ProcessProvider | None = None
    ) -> None:
        self._key = key
        self._settings = {name: getattr(settings, name) for name in _TRAVEL}
        self._catalogue_ref = catalogue_ref
        self._provider = ProcessProvider() if provider is None else provider

    def _name(self, role: str, pool: Pool | None = None) -> ProcessName:
        return ProcessName(self._key, role, "" if pool is None else str(pool.serial))

    def opening_spec(self) -> ChildSpec[Any]:
        """The process that starts the pools with warm workers."""
        return child(PoolWarmer, self).but(id="warmer", name=self._name("warmer"))

    def isolated(self, pool: Pool | None = None) -> list[CatalogueEntry]:
        """The registered entries that run in a process of their own, in that pool or in any."""
        isolated = self._catalogue_ref.current.isolated
        return [entry for entry in isolated if pool is None or entry.handler.pool is pool]

    async def run(self, job: Job, entry: CatalogueEntry) -> dict[str, Any]:
        """Run a job in a worker: returns the encoded result. Raises what the peer gets instead."""
        pool = entry.handler.pool
        assert pool is not None
        call = RemoteCall(job, entry, current_node().name)
        outcome = await self._submit(pool, call)
        crash = None if outcome.crash is None else _raised(*outcome.crash)
        if outcome.why is not None:
            if job.observed is not None:
                job.observed.blame(outcome.cause)
            raise error_of_loss(job, outcome.why) from crash
        if outcome.asks is not None:
            raise _required(*outcome.asks)
        if crash is not None:
            raise RemoteCrash(_ending(job, outcome), crash)
        if outcome.error is not None:
            raise McpError(*outcome.error)
        assert outcome.body is not None
        return EncodedResult(outcome.body, "tool_error" if outcome.is_error else "result")

    async def _submit(self, pool: Pool, call: RemoteCall) -> CallOutcome:
        job = call.job
        scheduler = await self.scheduler(pool)
        forget = job.cancelled.subscribe(lambda: scheduler.cast(PoolScheduler.cancel, call, job.cancelled.reason or ""))
        try:
            try:
                return await scheduler.within(None).call(PoolScheduler.submit, call)
            except NotRegistered:  # the scheduler is being restarted; its supervisor replies when that is done
                with suppress(ProcessExited):
                    await count_children(self._name("pool_supervisor", pool))
            except ProcessExited as error:
                if error.reason != UNUSED:
                    raise _scheduler_lost(job, error) from error
            scheduler = await self.scheduler(pool)  # the former scheduler has not started this call
            try:
                return await scheduler.within(None).call(PoolScheduler.submit, call)
            except ProcessExited as error:
                raise _scheduler_lost(job, error) from error
        except BaseException as error:
            if not isinstance(error, RequestCancelled):
                scheduler.cast(PoolScheduler.drop, call)
            raise
        finally:
            forget()

    async def scheduler(self, pool: Pool) -> Ref[PoolScheduler]:
        """The scheduler of that pool, started if it does not run."""
        name = self._name("pool", pool)
        process = whereis(name)
        if process is None:
            workers = self._name("workers", pool)
            scheduler = child(
                PoolScheduler, pool, Ref(workers), self._provider, self._settings, lambda: self.isolated(pool)
            )
            spec = child(  # neither child is of use without the other; a pool whose supervisor has given up is started again by the next call
                Supervisor,
                [
                    child(DynamicSupervisor).but(id="workers", name=workers),
                    scheduler.but(id="scheduler", name=name, restart=TRANSIENT, significant=True),
                ],
                strategy="one_for_all",
                auto_shutdown="any_significant",
                intensity=3,
                period=10.0,
            ).but(id=f"pool {pool.serial}", name=self._name("pool_supervisor", pool), restart=TEMPORARY)
            try:
                await self._start_services()
                await ensure_child(self._name("pool_supervisors"), spec)
            except ProcessExited as error:
                raise McpError(ErrorCode.INTERNAL_ERROR, "The server is stopping") from error
        ref: Ref[PoolScheduler] = Ref(name)
        return ref

    async def _start_services(self) -> None:
        """Start the supervisor of all pools, and the cluster that their processes need."""
        supervisors = self._name("pool_supervisors")
        if whereis(supervisors) is None:
            children: list[ChildSpec[Any]] = [
                self._provider.child_spec(),
                child(DynamicSupervisor, intensity=10, period=10.0).but(id="pool_supervisors", name=supervisors),
            ]
            spec = child(ExclusiveSupervisor, children, strategy="rest_for_one", intensity=5, period=10.0)
            await ensure_child(
                self._name("pools"), spec.but(id="pool_services", name=self._name("pool_services"), restart=TEMPORARY)
            )

    def check(self) -> None:
        """Raise `RegistrationError` for handlers that workers could not find."""
        for entry in self.isolated():
            spec_of(entry)

    async def warm_up(self) -> None:
        """Start the pools with warm workers."""
        for pool in {entry.handler.pool: None for entry in self.isolated()}:
            if pool is not None and pool.warm:
                await self.scheduler(pool)


def _scheduler_lost(job: Job, error: ProcessExited) -> ToolError | McpError:
    if job.observed is not None:
        job.observed.blame("process_ended")
    return error_of_loss(job, f"the scheduler of its pool has ended ({why_lost(error.reason)})")


def _required(questions: list[Any], state: Any, recorded: list[Any] | None) -> InputRequired:
    """The questions with which a handler has ended in its worker."""
    required = InputRequired(*(unread_question(method, params, key) for key, method, params in questions), state=state)
    required.answers = RecordedAnswers(None if recorded is None else [RecordedAnswer(*each) for each in recorded])
    return required


def _ending(job: Job, outcome: CallOutcome) -> JobReply | JobError:
    if outcome.error is not None:
        return JobError(job.key, McpError(*outcome.error), "worker_crashed")
    assert outcome.body is not None
    return JobReply(job.key, outcome.body, "worker_crashed")


def _raised(kind: str, text: str, trace: str) -> RemoteError:
    error = RemoteError(kind, text)
    error.__cause__ = RemoteTraceback(trace)
    return error


class PoolWarmer(GenServer):
    """Starts the pools with warm workers when the company starts."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools

    async def init(self) -> None:
        """Report handlers that workers could not find, before they are called, and start the pools."""
        self._pools.check()
        await self._pools.warm_up()


# --- The processes of workers: each is a node of the company's cluster, which starts and ends it.
# The cluster is a sibling of the pools in the company's tree. It is started with the first of them, and stops after all of them.

_WORKER_MODULE: Final = "greenroom.actors.pools.worker_main"
_TERM: Final = 0.15
"""How long a process may take to end after SIGTERM."""


class NoWorkers(RuntimeError):
    """A worker process was asked to have workers itself."""


class ProcessProvider:
    """Starts the processes of one company's workers."""

    def __init__(self) -> None:
        self._cluster = Cluster(ClusterSettings(preload=(_WORKER_MODULE,)))

    def child_spec(self) -> ChildSpec[Any]:
        """The cluster, which starts before all pools and stops after them."""
        return self._cluster.child_spec()

    async def open(self, pool: Pool) -> WorkerProcess:
        """Start a process, linked to the calling one. Raises what keeps it from starting."""
        if is_worker():
            raise NoWorkers("this is a worker process already, and has none of its own: call the function itself")
        limits = ProcessLimits(memory=pool.memory_limit, cpu=pool.cpu)
        spec = NodeSpec(limits=limits, start_timeout=pool.start, requires=pool.requires)
        host = await node_child(pool.cluster or self._cluster, spec).start()
        name = await host.call(NodeOwner.node_name)
        return WorkerProcess(host, name, await host.call(NodeOwner.process_id), pool, self._cluster)


class WorkerProcess:
    """The process of one worker, and the `NodeOwner` that stands for it here."""

    def __init__(self, owner: Ref[NodeOwner], name: str, os_pid: int, pool: Pool, cluster: Cluster) -> None:
        """The process has just started."""
        self.owner: Ref[Any] = owner
        """It ends with the process, and its exit reason says how that ended."""
        self.os_pid = os_pid
        self._name = name
        self._pool = pool
        self._peers = cluster.peers
        # A memory file and a pid mean something only on this machine.
        self._is_near = not pool.requires
        self.locks = StartLocks.made() if self._is_near else None
        """The locks that decide whether the worker has started a call which was sent ahead; None where there are none."""
        self._pidfd = (
            os_processes.open_pidfd(os_pid) if self._is_near else None
        )  # its pid may have been reused by the end
        if self._pidfd is not None:
            weakref.finalize(self, os.close, self._pidfd)

    async def start_main(self, home: Ref[Any], settings: Mapping[str, Any], specs: Mapping[int, bytes]) -> Ref[Any]:
        """Start the worker's main process there. Raises what keeps it from starting. Imports may hold the interpreter for long, which `Pool.start` bounds."""
        self.busy(True)  # noqa: FBT003 - a switch
        pool = self._pool
        given: tuple[Any, ...] = (home, dict(settings), dict(specs))
        locks = None if self.locks is None else self.locks.path
        limits = {"cpu": pool.cpu, "memory": pool.memory_limit, "locks": locks}
        start_main = await launch_on(self._name, Options(timeout=pool.start), WorkerMain, given, limits)
        self.busy(False)  # noqa: FBT003 - a switch
        return start_main

    def busy(self, on: bool) -> None:  # noqa: FBT001 - a switch
        """Mark whether it has a call: while it has, it may be silent for any time."""
        self._peers.allow_silence(self._name, on)

    def end(self) -> None:
        """Send SIGTERM, which programs may handle, and kill it shortly after."""
        if not self._is_near:
            kill(self.owner)
            return
        if self._pidfd is not None:
            os_processes.send_signal(signal.SIGTERM, self.os_pid, self._pidfd)
        asyncio.get_running_loop().call_later(_TERM, kill, self.owner)
