"""What all supervisors have in common: starting a child, counting its restarts, trying again, telling of it.

A supervisor is a GenServer that traps exits. While it starts or stops a child it takes no other message, as in OTP; but
between two attempts to restart one it does, because trying again is a message to itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from greenroom.supervision.behaviours.actions import Stop
from greenroom.supervision.behaviours.calls import Ref
from greenroom.supervision.behaviours.gen_server import BadReturn, GenServer
from greenroom.supervision.kernel import clock, describe, links
from greenroom.supervision.kernel.errors import AlreadyRegistered, Quit, StartFailed, StartIgnored
from greenroom.supervision.kernel.messages import CAST, Exit
from greenroom.supervision.kernel.pid import Pid
from greenroom.supervision.kernel.reasons import Crash, ExitReason, is_orderly
from greenroom.supervision.kernel.reports import Unexpected

from .children import RESTARTING, UNDEFINED, Child
from .errors import StartRaised
from .reports import (
    ChildTerminated,
    ReachedMaxRestartIntensity,
    ShutdownError,
    StartError,
    SupervisorReport,
    called,
    lineage,
    offender,
)
from .shutdown import GAVE_UP, LateExits, is_expected, stop_child
from .spec import PERMANENT, SUPERVISOR, TRANSIENT, ChildSpec, ChildType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from greenroom.supervision.kernel.process import Process

    from .backoff import Backoff
    from .children import ChildInfo, Counts
    from .intensity import RestartWindow


R = TypeVar("R")


class Started(NamedTuple):
    """A child that came up: its address, and what its start function returned."""

    pid: Pid
    result: Any


class BaseSupervisor(GenServer):
    """The machine below `Supervisor` and `DynamicSupervisor`."""

    __slots__ = ("_otp_backoff", "_otp_by_pid", "_otp_window")

    traps_exit: ClassVar[bool] = True
    patient: ClassVar[bool] = True
    terminate_grace: ClassVar[float | None] = None
    child_type: ClassVar[ChildType] = SUPERVISOR

    _otp_window: RestartWindow
    _otp_backoff: Backoff | None
    _otp_by_pid: dict[Pid, Child]

    def _otp_take(self, process: Process) -> None:
        # Here and not in the constructor, which may raise: whoever looks in then finds no children rather than nothing.
        super()._otp_take(process)
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

    def shape(self) -> str:
        """What a drawing of the tree says beside it: its strategy."""
        raise NotImplementedError

    def children(self) -> Iterable[Child]:
        """What it keeps of its children, in start order: for those who look inside."""
        raise NotImplementedError

    # --- a child ends

    def handle_info(self, message: Any) -> Stop | Awaitable[Stop | None] | None:
        """The end of a child, or something that is no business of a supervisor."""
        if type(message) is not Exit:
            self._otp_unexpected("message", describe.short(message))
            return None
        child = self._otp_by_pid.pop(message.pid, None)
        return None if child is None else self._otp_ended(child, message.reason)

    def _otp_ended(self, child: Child, reason: ExitReason) -> Stop | Awaitable[Stop | None] | None:
        """A child ended by itself: what now."""
        spec = child.spec
        orderly = is_orderly(reason)
        again = spec.restart == PERMANENT or (spec.restart == TRANSIENT and not orderly)
        if again or not orderly:
            self._otp_tell(ChildTerminated, child, reason=reason)
        if again:
            return self._otp_restart(child)
        self._otp_finished(child)
        return self._otp_shut_down_with(child)

    def _otp_restart(self, child: Child) -> Stop | Awaitable[Stop | None]:
        """Count it, and try; or give up."""
        window = self._otp_window
        if not window.admit(clock.now(self._otp_process.node.loop)):
            self._otp_tell(
                ReachedMaxRestartIntensity, child, reason=GAVE_UP, intensity=window.intensity, period=window.period
            )
            child.ended(UNDEFINED)
            return Stop(GAVE_UP)
        backoff = child.spec.backoff or self._otp_backoff
        if backoff is not None:
            delay = self._otp_delay(child, backoff)
            if delay > 0:
                return self._otp_postpone(child, delay)
        return self._otp_attempt(child)

    def _otp_delay(self, child: Child, backoff: Backoff) -> float:
        node = self._otp_process.node
        if child.pid is not None and clock.now(node.loop) - child.since >= backoff.quiet:
            child.tries = 0
        tries, child.tries = child.tries, child.tries + 1
        return backoff.delay(tries, node.random)

    async def _otp_postpone(self, child: Child, delay: float) -> None:
        """Attempt that later; what the strategy stops for it is stopped now."""
        await self._otp_make_way(child)
        node = self._otp_process.node
        child.timer = node.loop.call_later(
            delay, self._otp_to_self, BaseSupervisor._otp_wait_over, child, context=node.context
        )

    async def _otp_wait_over(self, child: Child, turn: int) -> None:
        """The waiting is over, unless that child was stopped, deleted or started since."""
        if child.turn == turn:
            await self._otp_attempt(child)

    async def _otp_make_way(self, child: Child) -> None:
        """That child is to be restarted: stop what falls with it."""
        raise NotImplementedError

    async def _otp_attempt(self, child: Child) -> None:
        """One attempt to restart, with all that the strategy restarts beside it."""
        raise NotImplementedError

    def _otp_finished(self, child: Child) -> None:
        """A child ended, and is not to be restarted."""
        raise NotImplementedError

    def _otp_shut_down_with(self, child: Child) -> Stop | None:
        """Whether the end of that child is the supervisor's too."""
        return None

    def _otp_try_later(self, child: Child) -> None:
        """Try again, after the messages that came meanwhile."""
        child.ended(RESTARTING)
        self._otp_to_self(BaseSupervisor._otp_try_again, child)

    def _otp_to_self(self, method: Callable[..., Any], child: Child) -> None:
        process = self._otp_process
        limit = process.limit
        if limit is not None:  # no bound for what it tells itself
            process.limit = None
        process.deliver((CAST, method, (child, child.turn), {}))
        if limit is not None:
            process.limit, process.quick = limit, None

    def _otp_try_again(self, child: Child, turn: int) -> Stop | Awaitable[Stop | None] | None:
        """A retry is due, unless that child was stopped, deleted or started since."""
        return self._otp_restart(child) if child.turn == turn else None

    # --- start and stop one

    async def _otp_start(self, spec: ChildSpec[Any], args: tuple[Any, ...] = (), kwargs: Any = None) -> Started:
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
            message = f"the start function of child {spec.id!r} returned {describe.short(result)}, and neither a Ref nor a pid"
            wrong = BadReturn(message)
            raise StartRaised(Crash(wrong), f"child {spec.id!r}") from wrong
        return Started(pid, result)

    async def _otp_stop_child(self, child: Child, late: LateExits) -> None:
        """Stop one that runs, or end the attempts to restart it."""
        pid = child.pid
        if pid is not None:
            spec = child.spec
            reason = await stop_child(self._otp_process, pid, spec.patience, late)
            self._otp_by_pid.pop(pid, None)
            if not is_expected(reason, spec):
                self._otp_tell(ShutdownError, child, reason=reason)
        child.ended(UNDEFINED)

    # --- reports

    def _otp_tell(self, kind: Callable[..., SupervisorReport], child: Child, count: int = 1, **more: Any) -> None:
        """Report something about a child."""
        process = self._otp_process
        process.node.reports.emit(
            kind(
                pid=process.pid,
                label=process.label,
                supervisor=called(process),
                child=offender(child.spec, child.pid, count),
                ancestors=lineage(process),
                **more,
            )
        )

    def _otp_start_error(self, child: Child, error: StartFailed | AlreadyRegistered) -> None:
        """Report that a child did not come up."""
        self._otp_tell(StartError, child, reason=start_reason(error), reported=not isinstance(error, StartRaised))

    def _otp_check_link(self, spec: ChildSpec[Any], pid: Pid) -> None:
        """A child that is not linked can die without its supervisor ever hearing of it: say so."""
        process = self._otp_process
        started = process.node.process(pid)
        if started is not None and process not in links.linked(started):
            text = f"child {spec.id!r} {pid} runs without a link to its supervisor, which will not hear of its end"
            process.node.reports.emit(Unexpected(pid=process.pid, label=process.label, kind="child", message=text))


def _pid_of(result: Any) -> Pid | None:
    """Who was started: a start function returns a `Ref` or pid, or a tuple of that and something else."""
    handle = result[0] if type(result) is tuple and result else result  # pyright: ignore[reportUnknownVariableType]
    if isinstance(handle, Pid):
        return handle
    return handle.pid if isinstance(handle, Ref) else None


def start_reason(error: StartFailed | AlreadyRegistered) -> ExitReason:
    """Why a start failed, as a reason."""
    return error.reason if isinstance(error, StartFailed) else Crash(error)
