"""The dynamic supervisor: any number of children that are started and stopped at run time.

Its children are identified by pid and independent, so each is restarted alone, and all are stopped at the same time. With a template it is OTP's
simple_one_for_one: all children have the same spec and differ by their start arguments. Without one, each start brings a spec of its own, whose id is not used.
Callers start and stop children; when the supervisor dies, its children are stopped first, or killed through their links.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.supervision.behaviours.replies import Reject
from greenroom.supervision.kernel.errors import AlreadyRegistered, StartFailed, StartIgnored
from greenroom.supervision.kernel.process_messages import Crash, ExitReason, Pid

from .child_spec import (
    SUPERVISOR,
    TEMPORARY,
    BadSpec,
    ChildNotFound,
    ChildSpec,
    Flags,
    MaxChildren,
    check_child,
    check_count,
)
from .supervisor_base import (
    RESTARTING,
    UNDEFINED,
    BaseSupervisor,
    ChildInfo,
    ChildRecord,
    Counts,
    LateExits,
    RestartWindow,
    child_info,
    is_expected,
    stop_together,
)
from .supervisor_reports import ProgressReport, ShutdownError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.supervision.kernel.process import Process

    from .child_spec import Backoff


class DynamicChildRecord(ChildRecord):
    """The record of one child, with its start arguments, and its last pid, which identifies it while it does not run."""

    __slots__ = ("args", "kwargs", "last_pid")

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    last_pid: Pid


class DynamicSupervisor(BaseSupervisor):
    """A supervisor that starts without children and gets them one by one.

    ::

        rooms = await start_link(DynamicSupervisor, max_children=1000)
        room = await start_child(rooms, child(Room, "blue").but(restart="temporary"))

        counters = await start_link(DynamicSupervisor, template(Counter, 1))
        counter = await start_child(counters, 7)      # Counter(1, 7)

    A child that exits and is not restarted is forgotten. `max_children` bounds the number of children, including those
    that are being restarted.
    """

    __slots__ = ("_otp_max", "_otp_restarting", "_otp_template")

    _otp_restarting: dict[Pid, DynamicChildRecord]
    _otp_template: ChildSpec[Any] | None

    def _otp_attach(self, process: Process) -> None:
        super()._otp_attach(process)
        self._otp_restarting = {}
        self._otp_template = None

    def __init__(
        self,
        template: ChildSpec[Any] | None = None,
        *,
        max_children: int | None = None,
        intensity: int = 1,
        period: float = 5.0,
        backoff: Backoff | None = None,
    ) -> None:
        """The supervisor gives up after more than `intensity` restarts of any children within `period` seconds."""
        self._otp_template = None if template is None else check_child(template)
        if max_children is not None:
            check_count("max_children", max_children, 0)
        Flags(intensity=intensity, period=period, backoff=backoff)  # checks the values
        self._otp_max = max_children
        self._otp_window = RestartWindow(intensity, period)
        self._otp_backoff = backoff

    def init(self) -> None:
        """Check that the constructor has run."""
        if not hasattr(self, "_otp_window"):
            raise BadSpec("template", None, "given, or left out: the constructor has to call super().__init__()")

    async def terminate(self, reason: ExitReason) -> None:
        """Stop all children at the same time."""
        for waiting in self._otp_restarting.values():
            waiting.mark_ended(UNDEFINED)
        children = dict(self._otp_by_pid)
        reasons = await stop_together(
            self._otp_process,
            [(pid, child.spec.patience) for pid, child in children.items()],
            LateExits(self._otp_process),
        )
        # One report for each reason: a hundred thousand children that failed alike need one.
        wrong: dict[object, tuple[ChildRecord, ExitReason, int]] = {}
        for child, why in zip(children.values(), reasons, strict=True):
            if not is_expected(why, child.spec):
                kind = (child.spec.id, *_reason_kind(why))
                first, reported, count = wrong.get(kind, (child, why, 0))
                wrong[kind] = (first, reported, count + 1)
        for child, why, count in wrong.values():
            self._otp_report_child(ShutdownError, child, count, reason=why)

    def report_state(self) -> str:
        """The numbers of running and restarting children."""
        return f"dynamic, {len(self._otp_by_pid)} children running, {len(self._otp_restarting)} being restarted"

    def _otp_on_exit(self, reason: ExitReason) -> None:
        super()._otp_on_exit(reason)
        for child in self._otp_restarting.values():
            child.mark_ended(UNDEFINED)

    def strategy_text(self) -> str:
        """OTP's `simple_one_for_one` with a template, else `dynamic`."""
        return "dynamic" if self._otp_template is None else "simple_one_for_one"

    def children(self) -> Iterator[ChildRecord]:
        """Running children in start order, then those that are being restarted."""
        yield from self._otp_by_pid.values()
        yield from self._otp_restarting.values()

    def __len__(self) -> int:
        """How many children run."""
        return len(self._otp_by_pid)

    # --- restarts

    async def _otp_stop_affected(self, child: ChildRecord) -> None:
        assert isinstance(child, DynamicChildRecord)
        if child.pid is not None:
            child.last_pid = child.pid
        child.mark_ended(RESTARTING)
        self._otp_restarting[child.last_pid] = child

    async def _otp_try_restart(self, child: ChildRecord) -> None:
        assert isinstance(child, DynamicChildRecord)
        await self._otp_stop_affected(child)
        try:
            started = await self._otp_start(child.spec, child.args, child.kwargs)
        except StartIgnored:
            self._otp_drop_child(child)
        except (StartFailed, AlreadyRegistered) as error:
            self._otp_start_error(child, error)
            self._otp_try_later(child)
        else:
            del self._otp_restarting[child.last_pid]
            child.restarts += 1
            self._otp_mark_running(child, started.pid)
            self._otp_report_child(ProgressReport, child, is_restart=True)

    def _otp_drop_child(self, child: ChildRecord) -> None:
        assert isinstance(child, DynamicChildRecord)
        self._otp_restarting.pop(child.last_pid, None)
        child.mark_ended(UNDEFINED)

    # --- for callers

    async def start_child(self, *args: Any, **kwargs: Any) -> Any:
        """Start a child: with these arguments after the template's, or, without a template, with this spec.

        Returns the result of its start function.
        """
        spec = self._otp_template
        if spec is None:
            spec = self._otp_check_given(args, kwargs)
            args, kwargs = (), {}
        if self._otp_max is not None and len(self._otp_by_pid) + len(self._otp_restarting) >= self._otp_max:
            raise Reject(MaxChildren(self._otp_max))
        try:
            started = await self._otp_start(spec, args, kwargs)
        except (StartFailed, StartIgnored, AlreadyRegistered) as error:
            raise Reject(error) from None
        if spec.restart != TEMPORARY:
            child = DynamicChildRecord(spec)
            child.args, child.kwargs = args, kwargs
        else:
            child = DynamicChildRecord(spec if self._otp_template is not None else spec.without_start_arguments())
            child.args, child.kwargs = (), {}
        child.last_pid = started.pid
        self._otp_mark_running(child, started.pid)
        return started.result

    def _otp_check_given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ChildSpec[Any]:
        try:
            return check_child(args[0] if len(args) == 1 and not kwargs else (args, kwargs))
        except BadSpec as error:
            raise Reject(error) from None

    async def terminate_child(self, id: Any) -> None:
        """Stop the child with that pid, or the attempts to restart it, and forget it. An exited process is no error."""
        pid = _pid(id)
        child = self._otp_by_pid.get(pid)
        if child is not None:
            await self._otp_stop_child(child, LateExits(self._otp_process))
        elif pid in self._otp_restarting:
            self._otp_drop_child(self._otp_restarting[pid])
        elif self._otp_process.node.process(pid) is not None:
            raise Reject(ChildNotFound(pid))

    def which_children(self) -> list[ChildInfo]:
        """All children, in no particular order; they have no ids."""
        return [child_info(child)._replace(id=None) for child in self.children()]

    def which_child(self, id: Any) -> ChildInfo:
        """The running child with that pid."""
        child = self._otp_by_pid.get(_pid(id))
        if child is None:
            raise Reject(ChildNotFound(id))
        return child_info(child)._replace(id=None)

    def get_childspec(self, id: Any) -> ChildSpec[Any]:
        """The spec of the child with that pid; the template also by its id."""
        template = self._otp_template
        if template is not None and not isinstance(id, Pid) and not hasattr(id, "pid"):
            if id == template.id:
                return template
            raise Reject(ChildNotFound(id))
        pid = _pid(id)
        child = self._otp_by_pid.get(pid) or self._otp_restarting.get(pid)
        if child is not None:
            return child.spec
        if template is not None and self._otp_process.node.process(pid) is None:
            return template
        raise Reject(ChildNotFound(id))

    def count_children(self) -> Counts:
        """Count the children: `specs` is 1 with a template, else the number of children."""
        active = len(self._otp_by_pid)
        total = active + len(self._otp_restarting)
        if self._otp_template is not None:
            supervisors = total if self._otp_template.type == SUPERVISOR else 0
            return Counts(1, active, supervisors, total - supervisors)
        supervisors = sum(child.spec.type == SUPERVISOR for child in self.children())
        return Counts(total, active, supervisors, total - supervisors)


def _pid(who: object) -> Pid:
    """The pid of a pid or `Ref`: a dynamic supervisor knows its children by their pids alone."""
    pid = who if isinstance(who, Pid) else getattr(who, "pid", None)
    if not isinstance(pid, Pid):
        message = f"a dynamic supervisor knows its children by pid or Ref, not by {who!r}"
        raise Reject(TypeError(message))
    return pid


def _reason_kind(reason: ExitReason) -> tuple[object, ...]:
    """A key under which reasons are reported together; two crashes are never equal, as their errors are not."""
    if isinstance(reason, Crash):
        return (Crash, type(reason.error), str(reason.error))
    return (type(reason), str(reason))
