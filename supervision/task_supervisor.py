"""The task supervisor: background tasks as children of a supervisor.

A supervised task is a child like any other: it is shut down when its supervisor stops, it is in the tree, and it
can be counted and bounded. Its starter awaits it as any task, linked to it or not. A job is a task without an awaited
value. When the supervisor dies, its tasks and jobs are ended through their links or by its exit signal.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar

from .behaviours.replies import Reject
from .behaviours.task import Task, TaskBehaviour, begin_routine, begin_task, callers_of_new_task
from .kernel import clock, links
from .kernel import process as lifecycle
from .kernel.api import resolve
from .kernel.errors import ActorError, Quit
from .kernel.process import RUNNING, ExitWaiter
from .kernel.process_lookup import current_node, current_process
from .kernel.process_messages import Crash, ExitReason, Normal, Pid, make_exit
from .supervisors.child_spec import (
    TEMPORARY,
    ChildSpec,
    DiscardedStart,
    MaxChildren,
    Patience,
    Restart,
    StartRaised,
    check_shutdown,
)
from .supervisors.dynamic_supervisor import DynamicChildRecord, DynamicSupervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from .behaviours.refs import Ref
    from .kernel.process import Process

P = ParamSpec("P")
R = TypeVar("R")

_NO_KEYWORDS: Final[dict[str, Any]] = {}
_NAMES: Final = 1024  # cached specs; functions made at run time may have any number of names


class JobOwner(ExitWaiter, Protocol):
    """The owner of a job: told of its start and its exit."""

    def started(self, worker: Pid) -> None:
        """The job runs as this process."""


class _JobRecord(DynamicChildRecord):
    """The record of a job that is never restarted. It replaces a link: a normal exit is recorded directly, without a message."""

    __slots__ = ("supervisor", "waiter")

    def __init__(
        self, spec: ChildSpec[Any], supervisor: TaskSupervisor, process: Process, waiter: JobOwner | None
    ) -> None:
        super().__init__(spec)
        self.args, self.kwargs, self.last_pid = (), _NO_KEYWORDS, process.pid
        self.supervisor = supervisor
        self.waiter = waiter
        self.mark_running(process.pid, clock.now(process.node.loop))

    def on_exit(self, reason: ExitReason) -> None:
        self.supervisor.on_job_exit(self.last_pid, reason)
        if self.waiter is not None:
            self.waiter.on_exit(reason)


class TaskSupervisor(DynamicSupervisor):
    """``tasks = await start_link(TaskSupervisor)``, or ``child(TaskSupervisor, max_children=100)`` under another.

    `shutdown` is how long each task may take to stop. `max_children` bounds how many run; the one too many is refused
    with `MaxChildren`. `intensity` and `period` count restarts of jobs that are to be restarted; tasks never are.
    """

    __slots__ = ("_otp_specs", "shutdown")

    shutdown: Patience

    def __init__(
        self,
        *,
        max_children: int | None = None,
        shutdown: Patience = 5.0,
        intensity: int = 3,
        period: float = 5.0,
    ) -> None:
        """No task runs yet."""
        super().__init__(max_children=max_children, intensity=intensity, period=period)
        check_shutdown(shutdown)
        self.shutdown = shutdown
        self._otp_specs: dict[str, ChildSpec[Any]] = {}

    async def begin(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: Any,
        kwargs: Any,
        callers: tuple[Pid, ...],
        linked: Process | None,
        begun: Callable[[Task[Any]], None],
    ) -> Task[Any]:
        """Start a task for a caller, linked also to the process `linked`; `begun` is called with it before the caller gets it."""
        if self.caller.over:
            raise Reject(ActorError("the caller no longer waits for this task"))

        async def start() -> tuple[Pid, Task[Any]]:
            task = begin_task(function, args, kwargs, callers, link=False)
            process = task.process
            me = current_process("supervise a task")
            process.parent = me
            links.link(me, process)
            if linked is not None and not linked.life:
                links.link(linked, process)
            return task.pid, task

        name = getattr(function, "__qualname__", repr(function))
        spec = ChildSpec(id=name, start=start, restart=TEMPORARY, shutdown=self.shutdown)
        started: tuple[Pid, Task[Any]] = await self.start_child(spec)
        begun(started[1])
        return started[1]

    def begin_job(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: Any,
        callers: tuple[Pid, ...],
        restart: Restart,
        waiter: JobOwner | None = None,
    ) -> Pid:
        """Start a job, whose value is not awaited.

        A job that is never restarted, as most are, starts synchronously and has no spec of its own, which halves its cost.
        `waiter` is called synchronously at its start and its exit.
        """
        name = getattr(function, "__qualname__", None) or repr(function)
        if restart != TEMPORARY:
            return self._otp_begin_restartable(name, function, args, callers, restart)  # type: ignore[return-value]  # it is awaited
        if self._otp_max is not None and len(self._otp_by_pid) + len(self._otp_restarting) >= self._otp_max:
            raise Reject(MaxChildren(self._otp_max))
        try:
            process = begin_routine(self._otp_process.node, function, args, _NO_KEYWORDS)
        except Quit as quitting:
            raise Reject(StartRaised(quitting.reason, f"child {name!r}")) from quitting
        except BaseException as error:
            if self._otp_process.life:
                raise  # the supervisor is ending, and the start has not failed
            raise Reject(StartRaised(Crash(error), f"child {name!r}")) from error
        process.parent = self._otp_process
        process.behaviour = TaskBehaviour(process, callers)
        job = self._otp_by_pid[process.pid] = _JobRecord(self._otp_job_spec(name), self, process, waiter)
        process.add_exit_waiter(job)
        if waiter is not None:
            waiter.started(process.pid)
        return process.pid

    def on_job_exit(self, pid: Pid, reason: ExitReason) -> None:
        """Record the exit of a job that is never restarted. Called in any context: an exit that needs a handler is sent as a message."""
        process = self._otp_process
        if type(reason) is Normal and process.activity < RUNNING:
            self._otp_by_pid.pop(pid, None)
        else:
            process.deliver_signal(make_exit(pid, reason))

    def _otp_on_exit(self, reason: ExitReason) -> None:
        super()._otp_on_exit(reason)
        node, own = self._otp_process.node, self._otp_process.pid
        for pid, child in tuple(self._otp_by_pid.items()):
            if type(child) is _JobRecord and (process := node.process(pid)) is not None:
                lifecycle.signal(process, own, reason)

    def _otp_job_spec(self, name: str) -> ChildSpec[Any]:
        """The spec in the records of jobs that are never restarted: one for all jobs of a name."""
        spec = self._otp_specs.get(name)
        if spec is None:
            if len(self._otp_specs) >= _NAMES:
                self._otp_specs.clear()
            spec = ChildSpec(id=name, start=DiscardedStart(name), restart=TEMPORARY, shutdown=self.shutdown)
            self._otp_specs[name] = spec
        return spec

    async def _otp_begin_restartable(
        self,
        name: str,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: Any,
        callers: tuple[Pid, ...],
        restart: Restart,
    ) -> Pid:
        async def start() -> Pid:
            return begin_task(function, args, {}, callers, link=True).pid

        pid = await self.start_child(ChildSpec(id=name, start=start, restart=restart, shutdown=self.shutdown))
        assert isinstance(pid, Pid)
        return pid


async def supervise_task(
    supervisor: Ref[TaskSupervisor],
    function: Callable[P, Coroutine[Any, Any, R]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Task[R]:
    """Run an async function as a task under a supervisor, linked to the calling process as well."""
    me = current_process("start a linked task; supervise_task_alone() needs none")
    return await _supervised(supervisor, function, args, kwargs, me)


async def supervise_task_alone(
    supervisor: Ref[TaskSupervisor],
    function: Callable[P, Coroutine[Any, Any, R]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Task[R]:
    """Run an async function as a task under a supervisor: its crash is an outcome, and ends no other process."""
    return await _supervised(supervisor, function, args, kwargs, None)


async def _supervised(
    supervisor: Ref[TaskSupervisor],
    function: Callable[..., Coroutine[Any, Any, R]],
    args: Any,
    kwargs: Any,
    linked: Process | None,
) -> Task[R]:
    """Start the task. If the caller is cancelled before it gets the task, the task is killed."""
    _check_near(supervisor)
    begun: Task[Any] | None = None
    refused = False

    def take(task: Task[Any]) -> None:
        nonlocal begun
        begun = task
        if refused:
            end(task)

    def refuse() -> None:
        nonlocal refused
        refused = True
        if begun is not None:
            end(begun)

    def end(task: Task[Any]) -> None:
        if linked is not None:
            links.unlink(linked, task.process)  # the kill must not end the linked process
        lifecycle.kill(task.process)

    try:
        return await supervisor.within(None).call(
            TaskSupervisor.begin, function, args, kwargs, callers_of_new_task(), linked, take
        )
    except asyncio.CancelledError:
        node = current_node()
        if threading.get_ident() == node.thread:
            refuse()
        else:
            node.call_from_thread(refuse)
        raise


def _check_near(supervisor: Ref[TaskSupervisor]) -> None:
    """Refuse a task on another node: the awaited object would be there."""
    process, _, _ = resolve(current_node(), supervisor)
    if process is not None and process.is_remote:
        raise ActorError(
            f"{supervisor} is on another node, and a task runs on the node where it is awaited: "
            "use supervise_job there, or call a server"
        )


async def supervise_job(
    supervisor: Ref[TaskSupervisor],
    function: Callable[..., Coroutine[Any, Any, Any]],
    /,
    *args: Any,
    restart: Restart = TEMPORARY,
) -> Pid:
    """Run an async function under a supervisor without awaiting a value. It may be restarted like any child."""
    return await supervisor.within(None).call(TaskSupervisor.begin_job, function, args, callers_of_new_task(), restart)
