"""The real supervisors of a plan, and the mapping from its roles to processes.

They do what the plan says and log what happens to them; nothing here knows what is expected.

"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from greenroom.supervision import (
    Backoff,
    ChildSpec,
    Continue,
    DynamicSupervisor,
    Supervisor,
    start_routine_link,
    template,
)

from .example_plan import (
    QUIET,
    SupervisorBlueprint,
    backoff,
    blueprint,
    is_dynamic,
    is_named,
    shutdown_time,
    supervisor_of,
)
from .server_workers import ServerWorker, TrappingServerWorker, rest_after_init
from .state_machine_workers import StateMachineWorker, TrappingStateMachineWorker
from .task_workers import run_task_worker

if TYPE_CHECKING:
    from .run_log import RunLog


class PlanSupervisor(Supervisor):
    """A supervisor of the plan."""

    def __init__(self, log: RunLog, role: str) -> None:
        """Log the start."""
        self.log = log
        log.born(self._otp_process, role)
        plan = blueprint(log.plan.tree, role)
        assert isinstance(plan, SupervisorBlueprint)
        assert plan.strategy != "dynamic"
        super().__init__(
            [spec(log, f"{role}.{index}", index) for index in range(len(plan.children))],
            strategy=plan.strategy,
            intensity=plan.intensity,
            period=plan.period,
            auto_shutdown=plan.auto_shutdown,
            backoff=Backoff(first=1e3, longest=1e3)
            if plan.backoff
            else None,  # the settings of each child have priority
        )

    async def init(self) -> Any:
        """Start the children."""
        outcome = await super().init()
        if outcome is None:
            self.log.ready(self._otp_process)
            seconds = rest_after_init(self.log, self._otp_process)
            return Continue(seconds) if seconds else None
        return outcome

    async def handle_continue(self, token: float) -> None:
        """Pause after a long init."""
        await self.log.wake(self.log.node.loop.time() + token)


class PlanDynamicSupervisor(DynamicSupervisor):
    """A dynamic supervisor of the plan."""

    def __init__(self, log: RunLog, role: str) -> None:
        """Log the start."""
        self.log = log
        log.born(self._otp_process, role)
        plan = blueprint(log.plan.tree, role)
        assert isinstance(plan, SupervisorBlueprint)
        pattern = _spec_of(worker_class(log, f"{role}.0"), log) if plan.template else None
        super().__init__(
            None if pattern is None else as_planned(pattern, log, f"{role}.0"),
            intensity=plan.intensity,
            period=plan.period,
            backoff=backoff_of(log, f"{role}.0"),
        )

    def init(self) -> Any:
        """Log that it is ready; it has no children yet."""
        self.log.ready(self._otp_process)
        return super().init()


def backoff_of(log: RunLog, role: str) -> Backoff | None:
    """The restart delays of a role, without jitter, since the durations in a plan never coincide."""
    first, longest = backoff(log.plan.tree, role)
    return Backoff(first=first, longest=longest, jitter=0.0, quiet=QUIET) if first else None


def worker_class(log: RunLog, role: str) -> Any:
    """The class for that role."""
    plan = blueprint(log.plan.tree, role)
    if isinstance(plan, SupervisorBlueprint):
        return PlanDynamicSupervisor if plan.strategy == "dynamic" else PlanSupervisor
    match plan.kind:
        case "server":
            return TrappingServerWorker if plan.traps else ServerWorker
        case "machine":
            return TrappingStateMachineWorker if plan.traps else StateMachineWorker
        case "task":
            return run_task_worker


def spec(log: RunLog, role: str, index: int) -> ChildSpec[Any]:
    """The child spec of that role."""
    made = as_planned(_spec_of(worker_class(log, role), log, role), log, role).but(id=index)
    if not is_dynamic(log.plan.tree, supervisor_of(role)[0]):
        made = made.but(backoff=backoff_of(log, role))
    return made.but(name=role) if is_named(log.plan.tree, role) else made


def as_planned(made: ChildSpec[Any], log: RunLog, role: str) -> ChildSpec[Any]:
    """The spec with the restart settings of the role's blueprint."""
    plan = blueprint(log.plan.tree, role)
    return made.but(restart=plan.restart, significant=plan.significant, shutdown=shutdown_time(log.plan.tree, role))


def _spec_of(player: Any, *args: Any) -> ChildSpec[Any]:
    """The plain spec of a behaviour, or of a routine."""
    if player is run_task_worker:
        return ChildSpec(id="errand", start=partial(start_routine_link, run_task_worker, *args))
    return template(player, *args)
