"""The supervisor: starts its children in order, restarts them by its strategy, and stops them in reverse.

It gets exit messages of its children, and calls that add, stop or inspect children. When it exits, its children are
stopped first; when it is killed, its exit signal reaches them along their links.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from greenroom.supervision.behaviours.replies import Ignore, Reject, Stop
from greenroom.supervision.kernel.errors import AlreadyRegistered, StartFailed, StartIgnored
from greenroom.supervision.kernel.process import DYING
from greenroom.supervision.kernel.process_messages import SHUTDOWN, ExitReason, Shutdown

from .child_spec import (
    ALL_SIGNIFICANT,
    NEVER,
    ONE_FOR_ONE,
    SUPERVISOR,
    TEMPORARY,
    AlreadyPresent,
    AlreadyStarted,
    AutoShutdown,
    BadSpec,
    ChildNotFound,
    ChildRestarting,
    ChildRunning,
    ChildSpec,
    Flags,
    Strategy,
    affected_children,
    check_child,
    check_children,
)
from .supervisor_base import (
    RESTARTING,
    RUNNING,
    STOPS_PER_TURN,
    UNDEFINED,
    BaseSupervisor,
    ChildInfo,
    ChildRecord,
    Counts,
    LateExits,
    RestartWindow,
    child_info,
    start_reason,
)
from .supervisor_reports import ProgressReport

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from greenroom.supervision.behaviours.replies import Continue, NoReply
    from greenroom.supervision.kernel.process import Process

    from .child_spec import Backoff


R = TypeVar("R")
_DEFAULT_FLAGS: Final = Flags()


@dataclass(frozen=True, slots=True)
class FailedToStartChild:
    """The detail of the `Shutdown` with which a supervisor fails to start: which child failed, and why."""

    id: Hashable
    reason: ExitReason

    def __str__(self) -> str:
        return f"child {self.id!r} failed to start: {self.reason}"


class Supervisor(BaseSupervisor):
    """A supervisor that starts its children in order and knows them by id; start it with them, or derive from it and pass them to its constructor.

    ::

        await start_link(Supervisor, [child(Clock), child(Counter, 2)], strategy="rest_for_one")

        class Counters(Supervisor):
            def __init__(self, size: int) -> None:
                super().__init__([child(Counter, n).but(id=n) for n in range(size)], intensity=3)

    Override `init` for preparations that wait, such as finding out the children (then call ``super().__init__(children)`` there), and
    ``return await super().init()``, or return `IGNORE` not to run.

    A child's start runs inside the supervisor, and `start_child` and the like wait for it. The functions of that name in
    `greenroom.supervision` set no deadline; prefer them to ``ref.call(Supervisor.start_child, …)``.
    """

    __slots__ = ("_otp_children", "_otp_flags")

    _otp_children: dict[Hashable, ChildRecord]
    _otp_flags: Flags

    def _otp_attach(self, process: Process) -> None:
        super()._otp_attach(process)
        self._otp_children = {}
        self._otp_flags = _DEFAULT_FLAGS

    def __init__(
        self,
        children: Iterable[ChildSpec[Any]] = (),
        *,
        strategy: Strategy = ONE_FOR_ONE,
        intensity: int = 1,
        period: float = 5.0,
        auto_shutdown: AutoShutdown = NEVER,
        backoff: Backoff | None = None,
    ) -> None:
        """`children` are the specs in start order; see `Flags` for the other arguments."""
        self._otp_flags = Flags(
            strategy=strategy, intensity=intensity, period=period, auto_shutdown=auto_shutdown, backoff=backoff
        )
        self._otp_backoff = backoff
        self._otp_children = {spec.id: ChildRecord(spec) for spec in check_children(children, auto_shutdown)}
        self._otp_window = RestartWindow(intensity, period)

    async def init(self) -> Continue | NoReply | Ignore | Stop | None:
        """Start the children; if one fails, stop the started ones, and fail to start."""
        if not hasattr(self, "_otp_window"):
            raise BadSpec("children", None, "given: the constructor has to call super().__init__(children)")
        for one in tuple(self._otp_children.values()):
            error = await self._otp_start_own_child(one)
            if error is not None:
                await self._otp_stop_all(tuple(self._otp_children.values()))
                return Stop(Shutdown(FailedToStartChild(one.spec.id, start_reason(error))))
        return None

    async def terminate(self, reason: ExitReason) -> None:
        """Stop the children, the last started first."""
        await self._otp_stop_all(tuple(self._otp_children.values()))

    def on_restart(self) -> None:
        """Called after a child was restarted; override it."""

    def report_state(self) -> str:
        """The strategy and the number of running children."""
        counts = self.count_children()
        return f"{self._otp_flags.strategy}, {counts.active} of {counts.specs} children running"

    def _otp_on_exit(self, reason: ExitReason) -> None:
        super()._otp_on_exit(reason)
        for child in self.children():
            child.mark_ended(UNDEFINED)

    def strategy_text(self) -> str:
        """The strategy."""
        return self._otp_flags.strategy

    def children(self) -> Iterable[ChildRecord]:
        """The records of the children in start order."""
        return getattr(self, "_otp_children", {}).values()  # none yet, if the constructor raised

    @property
    def restart_flags(self) -> Flags:
        """The flags, for introspection."""
        return self._otp_flags

    # --- restarts

    async def _otp_stop_affected(self, child: ChildRecord) -> None:
        child.mark_ended(RESTARTING)
        if self._otp_flags.strategy != ONE_FOR_ONE:
            await self._otp_stop_all([one for one in self._otp_affected(child) if one is not child])

    def _otp_affected(self, child: ChildRecord) -> list[ChildRecord]:
        return affected_children(self._otp_flags.strategy, list(self._otp_children.values()), child)

    async def _otp_try_restart(self, child: ChildRecord) -> None:
        await self._otp_stop_affected(child)
        group = [child]
        if self._otp_flags.strategy != ONE_FOR_ONE:
            child.mark_ended(
                UNDEFINED
            )  # like the others of its group; only a child whose start fails is marked as restarting
            group = self._otp_affected(child)
        for one in group:
            if await self._otp_start_own_child(one, again=True) is not None:
                self._otp_try_later(one)
                return

    def _otp_drop_child(self, child: ChildRecord) -> None:
        if child.spec.restart == TEMPORARY:
            self._otp_children.pop(child.spec.id, None)
        child.mark_ended(UNDEFINED)

    def _otp_shut_down_with(self, child: ChildRecord) -> Stop | None:
        when = self._otp_flags.auto_shutdown
        if when == NEVER or not child.spec.significant:
            return None
        if when == ALL_SIGNIFICANT and any(
            one.spec.significant and one.state != UNDEFINED for one in self._otp_children.values()
        ):
            return None
        return Stop(SHUTDOWN)

    async def _otp_start_own_child(
        self, child: ChildRecord, *, again: bool = False
    ) -> StartFailed | AlreadyRegistered | None:
        """Start a child at the supervisor's own initiative. A failure is reported, and returned."""
        try:
            started = await self._otp_start(child.spec)
        except StartIgnored:
            self._otp_drop_child(child)
            return None
        except (StartFailed, AlreadyRegistered) as error:
            self._otp_start_error(child, error)
            return error
        self._otp_mark_running(child, started.pid)
        self._otp_report_child(ProgressReport, child, is_restart=again)
        if again:
            child.restarts += 1
            self.on_restart()
        return None

    async def _otp_stop_all(self, children: Iterable[ChildRecord]) -> None:
        """Stop children, passed in start order, one after the other, the last one first. Temporary ones are removed."""
        late = LateExits(self._otp_process)
        for count, one in enumerate(reversed(list(children)), 1):
            await self._otp_stop_child(one, late)
            if not count % STOPS_PER_TURN:
                await asyncio.sleep(0)
            if one.spec.restart == TEMPORARY:
                self._otp_children.pop(one.spec.id, None)

    # --- for callers

    async def start_child(self, spec: ChildSpec[R]) -> R:
        """Add a child and start it; returns the result of its start function."""
        try:
            check_child(spec, self._otp_flags.auto_shutdown)
        except BadSpec as error:
            raise Reject(error) from None
        known = self._otp_children.get(spec.id)
        if known is not None:
            raise Reject(AlreadyPresent(spec.id) if known.pid is None else AlreadyStarted(spec.id, known.pid))
        temporary = spec.restart == TEMPORARY
        child = ChildRecord(spec.without_start_arguments() if temporary else spec)
        try:
            started = await self._otp_start(spec)
        except StartIgnored as error:
            if not temporary:
                self._otp_children[spec.id] = child
            raise Reject(error) from None
        except (StartFailed, AlreadyRegistered) as error:
            raise Reject(error) from None
        self._otp_children[spec.id] = child
        self._otp_mark_running(child, started.pid)
        self._otp_report_child(ProgressReport, child, asked_for=True)
        return cast("R", started.result)

    async def terminate_child(self, id: Hashable) -> None:
        """Stop a child, or the attempts to restart it. Its spec stays, unless it is temporary."""
        child = self._otp_child(id)
        await self._otp_stop_child(child, LateExits(self._otp_process))
        if child.spec.restart == TEMPORARY:
            self._otp_children.pop(id, None)

    async def restart_child(self, id: Hashable) -> Any:
        """Start a child that does not run; returns the result of its start function."""
        child = self._otp_idle_child(id)
        try:
            started = await self._otp_start(child.spec)
        except (StartFailed, StartIgnored, AlreadyRegistered) as error:
            raise Reject(error) from None
        self._otp_mark_running(child, started.pid)
        self._otp_report_child(ProgressReport, child, asked_for=True)
        return started.result

    def delete_child(self, id: Hashable) -> None:
        """Remove a child that does not run."""
        self._otp_idle_child(id)
        del self._otp_children[id]

    def which_children(self) -> list[ChildInfo]:
        """All children, the last added first."""
        return [child_info(child) for child in reversed(self._otp_children.values())]

    def which_child(self, id: Hashable) -> ChildInfo:
        """One child."""
        return child_info(self._otp_child(id))

    def get_childspec(self, id: Hashable) -> ChildSpec[Any]:
        """The spec of a child, defaults filled in."""
        return self._otp_child(id).spec

    def count_children(self) -> Counts:
        """Count the children, and those that run."""
        children = self._otp_children.values()
        process = self._otp_process.node.process
        supervisors = sum(child.spec.type == SUPERVISOR for child in children)
        alive = (process(child.pid) for child in children if child.pid is not None)
        active = sum(each is not None and each.life < DYING for each in alive)
        return Counts(len(children), active, supervisors, len(children) - supervisors)

    def _otp_child(self, id: Hashable) -> ChildRecord:
        try:
            child = self._otp_children.get(id)
        except TypeError:  # unhashable: a caller's mistake must not end the supervisor
            child = None
        if child is None:
            raise Reject(ChildNotFound(id))
        return child

    def _otp_idle_child(self, id: Hashable) -> ChildRecord:
        child = self._otp_child(id)
        if child.state == RUNNING:
            raise Reject(ChildRunning(id, child.pid))
        if child.state == RESTARTING:
            raise Reject(ChildRestarting(id))
        return child
