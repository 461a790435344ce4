"""Tasks under a supervisor: nothing that runs in the background runs without somebody who knows of it.

A supervised task is a child like any other. It is told to shut down when its supervisor stops, it is in the tree, and it
can be counted and bounded. Whoever starts it awaits it as any task, linked to it or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .behaviours.actions import Reject
from .behaviours.task import Task, asking, begin_task
from .kernel import links
from .kernel.current import current_process
from .kernel.errors import ActorError
from .kernel.pid import Pid
from .supervisors.dynamic import DynamicSupervisor
from .supervisors.spec import TEMPORARY, ChildSpec, Patience, Restart, check_shutdown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from .behaviours.calls import Ref
    from .kernel.process import Process

P = ParamSpec("P")
R = TypeVar("R")


class TaskSupervisor(DynamicSupervisor):
    """``tasks = await start_link(TaskSupervisor)``, or ``child(TaskSupervisor, max_children=100)`` under another.

    `shutdown` is how long each task may take to stop. `max_children` bounds how many run; the one too many is refused
    with `MaxChildren`. `intensity` and `period` count restarts of jobs that are to be restarted; tasks never are.
    """

    __slots__ = ("shutdown",)

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

    async def begin(
        self,
        function: Callable[..., Coroutine[Any, Any, Any]],
        args: Any,
        kwargs: Any,
        callers: tuple[Pid, ...],
        linked: Process | None,
    ) -> Task[Any]:
        """Start a task for somebody, linked to that process too from the first moment."""
        if self.caller.over:
            raise Reject(ActorError("nobody waits for this task any more"))

        async def start() -> tuple[Pid, Task[Any]]:
            task = begin_task(function, args, kwargs, callers, link=False)
            process = task.process
            me = current_process("supervise a task")
            process.parent = me
            links.join(me, process)
            if linked is not None and not linked.life:
                links.join(linked, process)
            return task.pid, task

        name = getattr(function, "__qualname__", repr(function))
        spec = ChildSpec(id=name, start=start, restart=TEMPORARY, shutdown=self.shutdown)
        started: tuple[Pid, Task[Any]] = await self.start_child(spec)
        return started[1]

    async def begin_job(
        self, function: Callable[..., Coroutine[Any, Any, Any]], args: Any, callers: tuple[Pid, ...], restart: Restart
    ) -> Pid:
        """Start a job that nobody waits for."""

        async def start() -> Pid:
            return begin_task(function, args, {}, callers, link=True).pid

        name = getattr(function, "__qualname__", repr(function))
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
    return await supervisor.within(None).call(TaskSupervisor.begin, function, args, kwargs, asking(), me)


async def supervise_task_alone(
    supervisor: Ref[TaskSupervisor],
    function: Callable[P, Coroutine[Any, Any, R]],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Task[R]:
    """Run an async function as a task under a supervisor: its crash is an outcome, and nobody else's end."""
    return await supervisor.within(None).call(TaskSupervisor.begin, function, args, kwargs, asking(), None)


async def supervise_job(
    supervisor: Ref[TaskSupervisor],
    function: Callable[..., Coroutine[Any, Any, Any]],
    /,
    *args: Any,
    restart: Restart = TEMPORARY,
) -> Pid:
    """Run an async function under a supervisor for its effect; nobody waits for it. It may be restarted as any child."""
    return await supervisor.within(None).call(TaskSupervisor.begin_job, function, args, asking(), restart)
