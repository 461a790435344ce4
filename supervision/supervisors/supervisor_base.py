"""What all supervisors have in common: starting a child, counting its restarts, trying again, telling of it.

A supervisor is a GenServer that traps exits. While it starts or stops a child it takes no other message, as in OTP; but
between two attempts to restart one it does, because trying again is a message to itself.
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
    """A child that came up: its address, and what its start function returned."""

    pid: Pid
    result: Any


class BaseSupervisor(GenServer):
    """The machine below `Supervisor` and `DynamicSupervisor`."""

    __slots__ = ("_otp_backoff", "_otp_by_pid", "_otp_window")

    traps_exit: ClassVar[bool] = True
    has_unbounded_stop: ClassVar[bool] = True
    terminate_grace: ClassVar[float | None] = None
    child_type: ClassVar[ChildType] = SUPERVISOR

    _otp_window: RestartWindow
    _otp_backoff: Backoff | None
    _otp_by_pid: dict[Pid, ChildRecord]

    def _otp_attach(self, process: Process) -> None:
        # Here and not in the constructor, which may raise: code that looks in then finds no children rather than nothing.
        super()._otp_attach(process)
        self._otp_by_pid = {}

    # --- for callers

    async def start_child(self, spec: ChildSpec[R]) -> R:
        """Add a child and start it; returns what its start function returned."""
        raise NotImplementedError

    async def terminate_child(self, id: Any) -> None:
        """Stop a child, or the attempts to restart it."""
        raise NotImplementedError

    def which_children(self) -> list[ChildInfo]:
        """All children, the last one first."""
        raise NotImplementedError

    def which_child(self, id: Any) -> ChildInfo:
        """One child."""
        raise NotImplementedError

    def get_childspec(self, id: Any) -> ChildSpec[Any]:
        """The spec of a child, defaults filled in."""
        raise NotImplementedError

    def count_children(self) -> Counts:
        """How many there are, and how many are alive."""
        raise NotImplementedError

    def strategy_text(self) -> str:
        """What a drawing of the tree says beside it: its strategy."""
        raise NotImplementedError

    def children(self) -> Iterable[ChildRecord]:
        """Its records of its children, in start order: for code that looks inside."""
        raise NotImplementedError

    # --- a child ends

    def handle_info(self, message: Any) -> Stop | Awaitable[Stop | None] | None:
        """The end of a child, or something that is no business of a supervisor."""
        if type(message) is not Exit:
            self.report_unexpected("message", safe_repr.short(message))
            return None
        child = self._otp_by_pid.pop(message.pid, None)
        return None if child is None else self._otp_on_child_exit(child, message.reason)

    def _otp_on_child_exit(self, child: ChildRecord, reason: ExitReason) -> Stop | Awaitable[Stop | None] | None:
        """A child ended by itself: what now."""
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
        """Count it, and try; or give up."""
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
        """Attempt that later; what the strategy stops for it is stopped now."""
        await self._otp_stop_affected(child)
        node = self._otp_process.node
        child.timer = node.loop.call_later(
            delay, self._otp_to_self, BaseSupervisor._otp_on_backoff_end, child, context=node.context
        )

    async def _otp_on_backoff_end(self, child: ChildRecord, turn: int) -> None:
        """The waiting is over, unless that child was stopped, deleted or started since."""
        if child.retry_number == turn:
            await self._otp_try_restart(child)

    async def _otp_stop_affected(self, child: ChildRecord) -> None:
        """That child is to be restarted: stop what falls with it."""
        raise NotImplementedError

    async def _otp_try_restart(self, child: ChildRecord) -> None:
        """One attempt to restart, with all that the strategy restarts beside it."""
        raise NotImplementedError

    def _otp_drop_child(self, child: ChildRecord) -> None:
        """A child ended, and is not to be restarted."""
        raise NotImplementedError

    def _otp_shut_down_with(self, child: ChildRecord) -> Stop | None:
        """Whether the end of that child is the supervisor's too."""
        return None

    def _otp_try_later(self, child: ChildRecord) -> None:
        """Try again, after the messages that came meanwhile."""
        child.mark_ended(RESTARTING)
        self._otp_to_self(BaseSupervisor._otp_on_retry, child)

    def _otp_to_self(self, method: Callable[..., Any], child: ChildRecord) -> None:
        process = self._otp_process
        limit = process.limit
        if limit is not None:  # no bound for what it tells itself
            process.limit = None
        process.deliver((CAST, method, (child, child.retry_number), {}))
        if limit is not None:
            process.limit, process.fast_append = limit, None

    def _otp_on_retry(self, child: ChildRecord, turn: int) -> Stop | Awaitable[Stop | None] | None:
        """A retry is due, unless that child was stopped, deleted or started since."""
        return self._otp_restart(child) if child.retry_number == turn else None

    # --- start and stop one

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
                raise  # it is the supervisor that ends, not the start that fails
            raise StartRaised(Crash(error), f"child {spec.id!r}") from error
        pid = _pid_of(result)
        if pid is None:
            message = f"the start function of child {spec.id!r} returned {safe_repr.short(result)}, and neither a Ref nor a pid"
            wrong = BadReturn(message)
            raise StartRaised(Crash(wrong), f"child {spec.id!r}") from wrong
        return StartedChild(pid, result)

    async def _otp_stop_child(self, child: ChildRecord, late: LateExits) -> None:
        """Stop one that runs, or end the attempts to restart it."""
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
        """Report something about a child."""
        process = self._otp_process
        process.node.reports.emit(
            kind(
                pid=process.pid,
                label=process.label,
                supervisor=supervisor_name(process),
                child=make_offender(child.spec, child.pid, count),
                ancestors=ancestor_names(process),
                **more,
            )
        )

    def _otp_start_error(self, child: ChildRecord, error: StartFailed | AlreadyRegistered) -> None:
        """Report that a child did not come up."""
        self._otp_report_child(
            StartError, child, reason=start_reason(error), reported=not isinstance(error, StartRaised)
        )

    def _otp_mark_running(self, child: ChildRecord, pid: Pid) -> None:
        """It came up. A child that is not linked can die without its supervisor ever hearing of it: say so."""
        process = self._otp_process
        child.mark_running(pid, clock.now(process.node.loop))
        self._otp_by_pid[pid] = child
        started = process.node.process(pid)
        if started is not None and process not in links.linked(started):
            text = (
                f"child {child.spec.id!r} {pid} runs without a link to its supervisor, which will not hear of its end"
            )
            self.report_unexpected("child", text)


def _pid_of(result: Any) -> Pid | None:
    """The process that was started: a start function returns a `Ref` or pid, or a tuple of that and something else."""
    handle = result[0] if type(result) is tuple and result else result  # pyright: ignore[reportUnknownVariableType]
    if isinstance(handle, Pid):
        return handle
    return handle.pid if isinstance(handle, Ref) else None


def start_reason(error: StartFailed | AlreadyRegistered) -> ExitReason:
    """Why a start failed, as a reason."""
    return error.reason if isinstance(error, StartFailed) else Crash(error)


# --- The children of a supervisor: what it keeps of each, and what it shows of them to others.

ChildState: TypeAlias = Literal["running", "restarting", "undefined"]
"""A child runs, or is to run and does not come up, or does not run and is not to be started."""

RUNNING: Final = "running"
RESTARTING: Final = "restarting"
UNDEFINED: Final = "undefined"


class ChildRecord:
    """One child, as its supervisor keeps it."""

    __slots__ = ("pid", "restarts", "retry_number", "running_since", "spec", "state", "timer", "tries")

    def __init__(self, spec: ChildSpec[Any]) -> None:
        """It does not run yet."""
        self.spec = spec
        self.state: ChildState = UNDEFINED
        self.pid: Pid | None = None
        self.restarts = 0  # attempts that succeeded
        self.running_since = 0.0  # when it last came up
        self.tries = 0  # attempts in a row, since it last ran for a while; counted for a back-off only
        self.retry_number = 0  # a retry that was asked for in an earlier turn is void
        self.timer: asyncio.TimerHandle | None = None

    def mark_running(self, pid: Pid, now: float) -> None:
        """It was started."""
        self.state = RUNNING
        self.pid = pid
        self.running_since = now

    def mark_ended(self, state: ChildState) -> None:
        """It does not run any more, or still not; whatever retry was under way is off."""
        self.state = state
        self.pid = None
        self.retry_number += 1
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class ChildInfo(NamedTuple):
    """A child as `which_children` tells of it."""

    id: Hashable | None
    pid: Pid | None
    state: ChildState
    type: ChildType

    @property
    def ref(self) -> Ref[Any] | None:
        """A handle on it, if it runs."""
        return None if self.pid is None else Ref(self.pid)


class Counts(NamedTuple):
    """How many children: `specs` in all, `active` running, and by type, running or not."""

    specs: int
    active: int
    supervisors: int
    workers: int


def child_info(child: ChildRecord) -> ChildInfo:
    """What is shown of a child."""
    return ChildInfo(child.spec.id, child.pid, child.state, child.spec.type)


# --- Stopping children: the part of a supervisor that nothing may hang.
# What is waited for is the child's end itself and not an exit signal along the link, so a child that unlinked from its
# supervisor is stopped like any other. A child that is gone already has left its reason in the supervisor's mailbox.

GAVE_UP: Final = Shutdown("reached max restart intensity")
"""What a supervisor ends of when its children fail too often: a shutdown, as in OTP, that says which."""

STOPS_PER_TURN: Final = 256
"""How many children are stopped before the loop gets its turn: children that end at once would let no other code run."""


def is_expected(reason: ExitReason, spec: ChildSpec[Any]) -> bool:
    """Whether a child that was told to stop ended as it should, so that there is nothing to report."""
    if spec.restart != PERMANENT and is_orderly(reason):
        return True
    if spec.shutdown == BRUTAL_KILL:
        return isinstance(reason, Killed)
    return isinstance(reason, Shutdown) and (reason.detail is None or reason == GAVE_UP)


class LateExits:
    """Reasons of children that died before they were stopped: their exits lie in the supervisor's mailbox.

    For one invocation of the supervisor, in which its mailbox only grows. The exits stay there; the supervisor knows
    no child of that pid when it comes to them.
    """

    __slots__ = ("_found", "_seen", "_supervisor")

    def __init__(self, supervisor: Process) -> None:
        """Nothing is looked at before it is needed."""
        self._supervisor = supervisor
        self._seen = 0
        self._found: dict[Pid, ExitReason] = {}

    def reason(self, pid: Pid) -> ExitReason:
        """Why that child died; `NO_PROCESS` when it had unlinked."""
        mailbox = self._supervisor.mailbox
        if pid not in self._found and mailbox:
            for entry in islice(mailbox, self._seen, None):
                if entry[0] == SIGNAL and type(entry[1]) is Exit:
                    self._found[entry[1].pid] = entry[1].reason
            self._seen = len(mailbox)
        return self._found.get(pid, NO_PROCESS)


class _ChildExitWaiter:
    """Waits for the end of one child, and unties it then: no exit of it reaches the supervisor's mailbox."""

    __slots__ = ("_crowd", "process")

    def __init__(self, process: Process, crowd: _StoppingChildren) -> None:
        self.process = process
        self._crowd = crowd

    def on_exit(self, reason: ExitReason) -> None:
        links.unlink(self._crowd.supervisor, self.process)
        self._crowd.on_child_gone()


class _StoppingChildren:
    """Those that are stopped together, and a future for when the last is gone."""

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
    """Stop children, all at the same time, and return why each ended. Never fails.

    Each is told to shut down (or killed, if that is how it wants to be stopped); one that is not gone when its time is over
    is killed.
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
    # One on another node that had died before it was asked has left its exit here.
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


# --- How many restarts are too many: the arithmetic of `intensity` and `period`, and nothing else.
# Each attempt to restart counts once, whatever the number of children that it restarts. More than `intensity` attempts
# within `period` seconds are too many: the supervisor gives up, and its own supervisor decides.
# One difference to OTP, which counts in whole seconds of the clock, so that a restart may count for up to a second
# longer than `period`. Here time is a float, and a restart counts for exactly `period` seconds, the last moment included.


class RestartWindow:
    """The restarts of one supervisor that still count."""

    __slots__ = ("_times", "intensity", "period")

    def __init__(self, intensity: int, period: float) -> None:
        """Both as the supervisor's flags say."""
        self.intensity = intensity
        self.period = period
        self._times: deque[float] = deque()

    def __len__(self) -> int:
        """How many restarts counted when it was last looked."""
        return len(self._times)

    def admit(self, now: float) -> bool:
        """Count one more restart at this moment; False, and nothing counted, when that is one too many."""
        times = self._times
        while times and now - times[0] > self.period:
            times.popleft()
        if len(times) >= self.intensity:
            return False
        times.append(now)
        return True
