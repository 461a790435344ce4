"""The base of all supervisors: starting and stopping children, counting restarts, retrying, and reports.

A supervisor is a GenServer that traps exits. While it starts or stops a child it handles no other message, as in OTP; but
between two attempts to restart a child it does, because a retry is a message to itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias, TypeVar

from greenroom.supervision.behaviours.gen_server import BadReturn, GenServer
from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.behaviours.replies import Stop
from greenroom.supervision.kernel import clock, links, safe_repr
from greenroom.supervision.kernel import process as lifecycle
from greenroom.supervision.kernel.errors import AlreadyRegistered, Quit, StartFailed, StartIgnored
from greenroom.supervision.kernel.process_messages import (
    CAST,
    NO_PROCESS,
    SHUTDOWN,
    SIGNAL,
    Crash,
    Exit,
    ExitReason,
    Killed,
    Pid,
    Shutdown,
    is_orderly,
)

from .child_spec import BRUTAL_KILL, PERMANENT, SUPERVISOR, TRANSIENT, ChildSpec, ChildType, StartRaised
from .supervisor_reports import (
    ChildTerminated,
    ReachedMaxRestartIntensity,
    ShutdownError,
    StartError,
    SupervisorReport,
    ancestor_names,
    make_offender,
    supervisor_name,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable

    from greenroom.supervision.kernel.process import Process

    from .child_spec import Backoff, Patience

R = TypeVar("R")


class StartedChild(NamedTuple):
    """A started child: its pid, and the result of its start function."""

    pid: Pid
    result: Any


class BaseSupervisor(GenServer):
    """The base class of `Supervisor` and `DynamicSupervisor`."""

    __slots__ = ("_otp_backoff", "_otp_by_pid", "_otp_window")

    traps_exit: ClassVar[bool] = True
    has_unbounded_stop: ClassVar[bool] = True
    terminate_grace: ClassVar[float | None] = None
    child_type: ClassVar[ChildType] = SUPERVISOR

    _otp_window: RestartWindow
    _otp_backoff: Backoff | None
    _otp_by_pid: dict[Pid, ChildRecord]

    def _otp_attach(self, process: Process) -> None:
        # Not in the constructor, which may raise: introspection then finds no children instead of a missing attribute.
        super()._otp_attach(process)
        self._otp_by_pid = {}

    # --- for callers

    async def start_child(self, spec: ChildSpec[R]) -> R:
        """Add a child and start it; returns the result of its start function."""
        raise NotImplementedError

    async def terminate_child(self, id: Any) -> None:
        """Stop a child, or the attempts to restart it."""
        raise NotImplementedError

    def which_children(self) -> list[ChildInfo]:
        """All children, the last added first."""
        raise NotImplementedError

    def which_child(self, id: Any) -> ChildInfo:
        """One child."""
        raise NotImplementedError

    def get_childspec(self, id: Any) -> ChildSpec[Any]:
        """The spec of a child, defaults filled in."""
        raise NotImplementedError

    def count_children(self) -> Counts:
        """Count the children, and those that run."""
        raise NotImplementedError

    def strategy_text(self) -> str:
        """The strategy as shown in a drawing of the tree."""
        raise NotImplementedError

    def children(self) -> Iterable[ChildRecord]:
        """The records of its children, in start order, for introspection."""
        raise NotImplementedError

    def record_of(self, pid: Pid) -> ChildRecord | None:
        """The record of the child that runs with this pid, for introspection."""
        return self._otp_by_pid.get(pid)

    @property
    def restart_window(self) -> RestartWindow | None:
        """The restarts that count, for introspection; None before the constructor has run."""
        return getattr(self, "_otp_window", None)

    @property
    def restart_backoff(self) -> Backoff | None:
        """The back-off of children without one of their own, for introspection."""
        return self._otp_backoff

    # --- a child ends

    def handle_info(self, message: Any) -> Stop | Awaitable[Stop | None] | None:
        """Handle the exit of a child; any other message is reported as unexpected."""
        if type(message) is not Exit:
            self.report_unexpected("message", safe_repr.short(message))
            return None
        child = self._otp_by_pid.pop(message.pid, None)
        return None if child is None else self._otp_on_child_exit(child, message.reason)

    def _otp_on_child_exit(self, child: ChildRecord, reason: ExitReason) -> Stop | Awaitable[Stop | None] | None:
        """Handle the exit of a child that was not stopped: restart it, forget it, or stop."""
        spec = child.spec
        orderly = is_orderly(reason)
        again = spec.restart == PERMANENT or (spec.restart == TRANSIENT and not orderly)
        if again or not orderly:
            self._otp_report_child(ChildTerminated, child, reason=reason)
        if again:
            return self._otp_restart(child)
        self._otp_drop_child(child)
        return self._otp_shut_down_with(child)

    def _otp_restart(self, child: ChildRecord) -> Stop | Awaitable[Stop | None]:
        """Count a restart and try it, or give up."""
        window = self._otp_window
        if not window.admit(clock.now(self._otp_process.node.loop)):
            self._otp_report_child(
                ReachedMaxRestartIntensity, child, reason=GAVE_UP, intensity=window.intensity, period=window.period
            )
            child.mark_ended(UNDEFINED)
            return Stop(GAVE_UP)
        backoff = child.spec.backoff or self._otp_backoff
        if backoff is not None:
            delay = self._otp_delay(child, backoff)
            if delay > 0:
                return self._otp_postpone(child, delay)
        return self._otp_try_restart(child)

    def _otp_delay(self, child: ChildRecord, backoff: Backoff) -> float:
        node = self._otp_process.node
        if child.pid is not None and clock.now(node.loop) - child.running_since >= backoff.quiet:
            child.tries = 0
        tries, child.tries = child.tries, child.tries + 1
        return backoff.delay(tries, node.random)

    async def _otp_postpone(self, child: ChildRecord, delay: float) -> None:
        """Restart after a delay; children that the strategy stops for it are stopped now."""
        await self._otp_stop_affected(child)
        node = self._otp_process.node
        child.timer = node.loop.call_later(
            delay, self._otp_to_self, BaseSupervisor._otp_on_backoff_end, child, context=node.context
        )

    async def _otp_on_backoff_end(self, child: ChildRecord, retry_number: int) -> None:
        """Restart after the back-off, unless the child was stopped, deleted or started since."""
        if child.retry_number == retry_number:
            await self._otp_try_restart(child)

    async def _otp_stop_affected(self, child: ChildRecord) -> None:
        """Stop the other children that the strategy restarts with this one."""
        raise NotImplementedError

    async def _otp_try_restart(self, child: ChildRecord) -> None:
        """Try once to restart the child, with the others that the strategy restarts."""
        raise NotImplementedError

    def _otp_drop_child(self, child: ChildRecord) -> None:
        """Drop a child that exited and is not restarted."""
        raise NotImplementedError

    def _otp_shut_down_with(self, child: ChildRecord) -> Stop | None:
        """`Stop` if the exit of that child ends the supervisor (`auto_shutdown`)."""
        return None

    def _otp_try_later(self, child: ChildRecord) -> None:
        """Retry after the messages that came meanwhile."""
        child.mark_ended(RESTARTING)
        self._otp_to_self(BaseSupervisor._otp_on_retry, child)

    def _otp_to_self(self, method: Callable[..., Any], child: ChildRecord) -> None:
        process = self._otp_process
        limit = process.limit
        if limit is not None:  # messages to itself ignore the bound
            process.limit = None
        process.deliver((CAST, method, (child, child.retry_number), {}))
        if limit is not None:
            process.limit, process.fast_append = limit, None

    def _otp_on_retry(self, child: ChildRecord, retry_number: int) -> Stop | Awaitable[Stop | None] | None:
        """Retry the restart, unless the child was stopped, deleted or started since."""
        return self._otp_restart(child) if child.retry_number == retry_number else None

    # --- start and stop a child

    async def _otp_start(self, spec: ChildSpec[Any], args: tuple[Any, ...] = (), kwargs: Any = None) -> StartedChild:
        """Run a start function. Raises `StartIgnored`, `StartFailed`, or `AlreadyRegistered`."""
        try:
            result = await spec.start(*args, **(kwargs or {}))
        except (StartFailed, StartIgnored, AlreadyRegistered):
            raise
        except Quit as quitting:
            raise StartRaised(quitting.reason, f"child {spec.id!r}") from quitting
        except BaseException as error:
            if self._otp_process.life:
                raise  # the supervisor is ending, and the start has not failed
            raise StartRaised(Crash(error), f"child {spec.id!r}") from error
        pid = _pid_of(result)
        if pid is None:
            message = f"the start function of child {spec.id!r} returned {safe_repr.short(result)}, which is neither a Ref nor a pid"
            wrong = BadReturn(message)
            raise StartRaised(Crash(wrong), f"child {spec.id!r}") from wrong
        return StartedChild(pid, result)

    async def _otp_stop_child(self, child: ChildRecord, late: LateExits) -> None:
        """Stop a running child, or end the attempts to restart it."""
        pid = child.pid
        if pid is not None:
            spec = child.spec
            reason = await stop_child(self._otp_process, pid, spec.patience, late)
            self._otp_by_pid.pop(pid, None)
            if not is_expected(reason, spec):
                self._otp_report_child(ShutdownError, child, reason=reason)
        child.mark_ended(UNDEFINED)

    # --- reports

    def _otp_report_child(
        self, kind: Callable[..., SupervisorReport], child: ChildRecord, count: int = 1, **more: Any
    ) -> None:
        """Emit a report about a child."""
        process = self._otp_process
        process.node.reports.emit(
            kind(
                pid=process.pid,
                label=process.label,
                supervisor=supervisor_name(process),
                child=make_offender(child.spec, child.pid, count, child.kind),
                ancestors=ancestor_names(process),
                kind=process.kind,
                **more,
            )
        )

    def _otp_start_error(self, child: ChildRecord, error: StartFailed | AlreadyRegistered) -> None:
        """Report that a child did not start."""
        self._otp_report_child(
            StartError, child, reason=start_reason(error), reported=not isinstance(error, StartRaised)
        )

    def _otp_mark_running(self, child: ChildRecord, pid: Pid) -> None:
        """Record a started child. A child without a link is reported, since its exit would not reach the supervisor."""
        process = self._otp_process
        child.mark_running(pid, clock.now(process.node.loop))
        self._otp_by_pid[pid] = child
        started = process.node.process(pid)
        if started is not None and not started.is_remote:
            child.kind = started.kind
        if started is not None and process not in links.linked(started):
            text = f"child {child.spec.id!r} {pid} runs without a link to its supervisor, which will not be told of its exit"
            self.report_unexpected("child", text)


def _pid_of(result: Any) -> Pid | None:
    """The pid in the result of a start function: a `Ref` or pid, or a tuple that begins with one; else None."""
    handle = result[0] if type(result) is tuple and result else result  # pyright: ignore[reportUnknownVariableType]
    if isinstance(handle, Pid):
        return handle
    return handle.pid if isinstance(handle, Ref) else None


def start_reason(error: StartFailed | AlreadyRegistered) -> ExitReason:
    """The exit reason of a failed start."""
    return error.reason if isinstance(error, StartFailed) else Crash(error)


# --- The children of a supervisor: their records, and their public views.

ChildState: TypeAlias = Literal["running", "restarting", "undefined"]
"""A child runs, or is being restarted, or does not run and is not restarted."""

RUNNING: Final = "running"
RESTARTING: Final = "restarting"
UNDEFINED: Final = "undefined"


class ChildRecord:
    """A supervisor's record of one child."""

    __slots__ = ("kind", "pid", "restarts", "retry_number", "running_since", "spec", "state", "timer", "tries")

    def __init__(self, spec: ChildSpec[Any]) -> None:
        """The child does not run yet."""
        self.spec = spec
        self.kind = ""  # of the process that runs, or ran last
        self.state: ChildState = UNDEFINED
        self.pid: Pid | None = None
        self.restarts = 0  # attempts that succeeded
        self.running_since = 0.0  # when it last started
        self.tries = 0  # consecutive attempts since it last ran for `quiet` seconds; counted for a back-off only
        self.retry_number = 0  # a queued retry with an older number is ignored
        self.timer: asyncio.TimerHandle | None = None

    def mark_running(self, pid: Pid, now: float) -> None:
        """Note that it was started."""
        self.state = RUNNING
        self.pid = pid
        self.running_since = now

    def mark_ended(self, state: ChildState) -> None:
        """Note that it does not run, and cancel a pending retry."""
        self.state = state
        self.pid = None
        self.retry_number += 1
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ChildInfo(NamedTuple):
    """A child as `which_children` shows it."""

    id: Hashable | None
    pid: Pid | None
    state: ChildState
    type: ChildType

    @property
    def ref(self) -> Ref[Any] | None:
        """Its `Ref`, if it runs."""
        return None if self.pid is None else Ref(self.pid)


class Counts(NamedTuple):
    """Numbers of children: `specs` in all, `active` running, and by type, running or not."""

    specs: int
    active: int
    supervisors: int
    workers: int


def child_info(child: ChildRecord) -> ChildInfo:
    """The public view of a child."""
    return ChildInfo(child.spec.id, child.pid, child.state, child.spec.type)


# --- Stopping children, which must never hang.
# The supervisor waits for the child's exit itself and not for an exit signal along the link, so a child that unlinked is
# stopped like any other. The reason of a child that exited before is in the supervisor's mailbox.

GAVE_UP: Final = Shutdown("reached max restart intensity")
"""The reason of a supervisor whose children fail too often: a shutdown, as in OTP."""

STOPS_PER_TURN: Final = 256
"""How many children are stopped before other code runs: children that exit at once would keep the loop from turning."""


def is_expected(reason: ExitReason, spec: ChildSpec[Any]) -> bool:
    """Whether a stopped child exited with an expected reason, which is not reported."""
    if spec.restart != PERMANENT and is_orderly(reason):
        return True
    if spec.shutdown == BRUTAL_KILL:
        return isinstance(reason, Killed)
    return isinstance(reason, Shutdown) and (reason.detail is None or reason == GAVE_UP)


class LateExits:
    """The reasons of children that died before they were stopped: their exits are in the supervisor's mailbox.

    Valid for one invocation of the supervisor, during which its mailbox only grows. The exits stay there, and are
    ignored later, as their pids are unknown by then.
    """

    __slots__ = ("_found", "_seen", "_supervisor")

    def __init__(self, supervisor: Process) -> None:
        """The mailbox is read when a reason is needed."""
        self._supervisor = supervisor
        self._seen = 0
        self._found: dict[Pid, ExitReason] = {}

    def reason(self, pid: Pid) -> ExitReason:
        """The exit reason of that child; `NO_PROCESS` when it had unlinked."""
        mailbox = self._supervisor.mailbox
        if pid not in self._found and mailbox:
            for entry in islice(mailbox, self._seen, None):
                if entry[0] == SIGNAL and type(entry[1]) is Exit:
                    self._found[entry[1].pid] = entry[1].reason
            self._seen = len(mailbox)
        return self._found.get(pid, NO_PROCESS)


class _ChildExitWaiter:
    """Waits for the exit of one child, and unlinks it then, so that no `Exit` reaches the supervisor's mailbox."""

    __slots__ = ("_crowd", "process")

    def __init__(self, process: Process, crowd: _StoppingChildren) -> None:
        self.process = process
        self._crowd = crowd

    def on_exit(self, reason: ExitReason) -> None:
        links.unlink(self._crowd.supervisor, self.process)
        self._crowd.on_child_gone()


class _StoppingChildren:
    """Children that are stopped together, and a future of the last one's exit."""

    __slots__ = ("_future", "_left", "_waiters", "supervisor")

    def __init__(self, supervisor: Process, processes: Iterable[Process]) -> None:
        self.supervisor = supervisor
        self._future: asyncio.Future[None] | None = None
        self._waiters = [_ChildExitWaiter(process, self) for process in processes]
        self._left = len(self._waiters)
        for waiter in self._waiters:
            waiter.process.add_exit_waiter(waiter)

    def on_child_gone(self) -> None:
        self._left -= 1
        if not self._left and self._future is not None and not self._future.done():
            self._future.set_result(None)

    async def gone(self, seconds: float | None = None) -> bool:
        if not self._left:
            return True
        self._future = self.supervisor.node.loop.create_future()
        await asyncio.wait((self._future,), timeout=seconds)
        return not self._left

    def forget(self) -> None:
        if self._left:
            for waiter in self._waiters:
                waiter.process.remove_exit_waiter(waiter)


async def stop_together(
    supervisor: Process, children: Iterable[tuple[Pid, Patience]], late: LateExits | None = None
) -> list[ExitReason]:
    """Stop children, all at the same time, and return their exit reasons. Never fails.

    Each gets a shutdown signal (or is killed if its spec says `brutal_kill`); a child that has not exited when its time
    is over is killed.
    """
    node = supervisor.node
    late = LateExits(supervisor) if late is None else late
    asked = [(node.process(pid), pid, patience) for pid, patience in children]
    crowd = _StoppingChildren(supervisor, [process for process, _, _ in asked if process is not None])
    bounded: dict[float, list[Process]] = {}
    try:
        for count, (process, _, patience) in enumerate(asked, 1):
            if process is not None:
                if patience == BRUTAL_KILL:
                    lifecycle.kill(process)
                else:
                    lifecycle.signal(process, supervisor.pid, SHUTDOWN)
                    if not isinstance(patience, str) and not process.reason:
                        bounded.setdefault(patience, []).append(process)
            if not count % STOPS_PER_TURN:
                await asyncio.sleep(0)
        began = clock.now(node.loop)
        for seconds in sorted(bounded):
            if await crowd.gone(max(0.0, began + seconds - clock.now(node.loop))):
                break
            for process in bounded[seconds]:
                lifecycle.kill(process)
        await crowd.gone()
    finally:
        crowd.forget()
    return [_exit_reason(process, pid, late) for process, pid, _ in asked]


def _exit_reason(process: Process | None, pid: Pid, late: LateExits) -> ExitReason:
    # A child on another node that died before the stop has left its exit in the mailbox here.
    if process is None or (process.is_remote and process.reason == NO_PROCESS):
        return late.reason(pid)
    return process.reason or NO_PROCESS


async def stop_child(supervisor: Process, pid: Pid, patience: Patience, late: LateExits) -> ExitReason:
    """Stop one child."""
    process = supervisor.node.process(pid)
    if process is None:
        return late.reason(pid)
    # The supervisor waits for the child as if it had called it, so that a call the other way round, which could not
    # be answered before the child's time is over, is refused at once.
    supervisor.waiting_on = process
    try:
        return (await stop_together(supervisor, ((pid, patience),), late))[0]
    finally:
        supervisor.waiting_on = None


# --- The arithmetic of `intensity` and `period`: how many restarts are too many.
# Each attempt to restart counts once, whatever the number of children that it restarts. More than `intensity` attempts
# within `period` seconds are too many: the supervisor gives up, and its own supervisor decides.
# One difference from OTP, which counts in whole seconds of the clock, so that a restart may count for up to a second
# longer than `period`. Here time is a float, and a restart counts for exactly `period` seconds, the last moment included.


class RestartWindow:
    """The restarts of one supervisor within the period."""

    __slots__ = ("_times", "intensity", "period")

    def __init__(self, intensity: int, period: float) -> None:
        """Both are the supervisor's flags."""
        self.intensity = intensity
        self.period = period
        self._times: deque[float] = deque()

    def __len__(self) -> int:
        """How many restarts counted at the last `admit`."""
        return len(self._times)

    def left(self, now: float) -> int:
        """How many restarts would be admitted at this moment."""
        return self.intensity - sum(now - each <= self.period for each in self._times)

    def admit(self, now: float) -> bool:
        """Count a restart at this moment; False, without counting it, when it would be one too many."""
        times = self._times
        while times and now - times[0] > self.period:
            times.popleft()
        if len(times) >= self.intensity:
            return False
        times.append(now)
        return True
