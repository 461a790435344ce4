"""How a call is answered: the `Caller` that waits for the reply, and the values that a callback returns.

A call has exactly one outcome, whichever comes first: the reply, the callee's exit (with its reason, at once), the
deadline, or the end of the caller. Later outcomes are dropped, as by an alias in Erlang.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

from greenroom.supervision.kernel import safe_repr
from greenroom.supervision.kernel.api import absence, is_abandoned
from greenroom.supervision.kernel.clock import DirectWakeup, check_seconds
from greenroom.supervision.kernel.errors import CallCycle, CallTimeout, MailboxFull, NotRegistered, ProcessExited
from greenroom.supervision.kernel.process import GONE, Process
from greenroom.supervision.kernel.process_lookup import current
from greenroom.supervision.kernel.process_messages import (
    IDLE_TIMEOUT,
    NO_CONNECTION,
    NO_PROCESS,
    NORMAL,
    SYSTEM,
    Crash,
    ExitReason,
    as_reason,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process_messages import MailboxEntry, Pid

R = TypeVar("R")

_get_ident = threading.get_ident


class Caller(Generic[R]):
    """The waiting side of a call. A handler may keep it and answer later, from any process, task or thread."""

    __slots__ = ("_callee", "_future", "_node", "_process", "_wakeup", "request")

    request: Any
    """The request, once a process has taken the call by `receive`."""

    def __init__(self, node: Node, callee: Process | None, process: Process | None) -> None:
        """`process` is the calling process; None outside of processes."""
        self._node = node
        self._callee = callee
        self._process = process
        self._future: asyncio.Future[R] = node.loop.create_future()
        # The caller's task waits for this and not for the future, which would resume it one turn of the loop later.
        self._wakeup: DirectWakeup | None = None

    @property
    def process(self) -> Process | None:
        """The calling process, on this node; None when the call comes from outside any process."""
        return self._process

    @property
    def pid(self) -> Pid | None:
        """The caller's address; None when the call comes from outside any process."""
        return None if self._process is None else self._process.pid

    @property
    def over(self) -> bool:
        """Whether the call is over: answered, timed out, or given up by its caller."""
        return self._future.done() or (self._wakeup is not None and self._wakeup.is_cancelled)

    @property
    def awaited_object(self) -> asyncio.Future[R] | DirectWakeup:
        """The object that the caller's task waits for."""
        return self._future if self._wakeup is None else self._wakeup

    def on_over(self, act: Callable[[], object]) -> None:
        """Call `act` in the loop's next turn after the call is over, or in the next turn if it is over already."""
        self._future.add_done_callback(lambda _: act())

    def reply(self, value: R) -> bool:
        """Answer the call. False when it is over already."""
        if self._node.leaks and is_abandoned():
            return False
        return self._settle(value, None)

    def fail(self, error: BaseException) -> bool:
        """Answer the call with an error, which the caller's `await` raises."""
        if self._node.leaks and is_abandoned():
            return False
        if isinstance(error, StopIteration):
            error = RuntimeError(
                f"{error!r} cannot be raised from an await"
            )  # as Python does for a coroutine that raises it
        return self._settle(None, error)

    def on_exit(self, reason: ExitReason) -> None:
        """Answer with `ProcessExited`: the callee has exited."""
        self._settle(None, exit_error(reason, self._callee))

    def expire(self, seconds: float) -> None:
        """Answer with `CallTimeout`: the deadline has passed."""
        self._settle(None, CallTimeout(seconds, self._callee))

    def _settle(self, value: R | None, error: BaseException | None) -> bool:
        node = self._node
        if _get_ident() != node.thread:
            return node.call_from_thread(self._settle, value, error)
        future = self._future
        if self._callee is not None:
            self._callee.remove_exit_waiter(self)
            self._callee = None
        if self.over:
            return False
        if error is None:
            future.set_result(value)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType] - no error: a value
        else:
            future.set_exception(error)
            future.exception()  # marks it as retrieved, so that asyncio does not log it when the caller has gone
        if self._wakeup is not None:
            node.wake_soon(self._wakeup)
        return True

    def __await__(self) -> Generator[Any, None, R]:
        callee = self._callee
        if callee is not None:
            if callee.life == GONE:
                self.on_exit(callee.reason or NO_PROCESS)
            else:
                callee.add_exit_waiter(self)
        future = self._future
        try:
            if not future.done():
                wakeup = self._wakeup = DirectWakeup(self._node.loop)
                try:
                    yield from wakeup.__await__()
                except BaseException:
                    future.cancel()
                    raise
                finally:
                    self._wakeup = None
            return future.result()
        finally:
            if self._callee is not None:
                self._callee.remove_exit_waiter(self)
                self._callee = None
            # A deliberate cycle break: an error raised here holds this frame by its traceback, the frame the future, and the
            # future the error. Without it each failed call would wait for the cyclic garbage collector.
            del self, future

    def answer_text(self) -> str:
        """The answer as a short text, once the call is over."""
        future = self._future
        if not future.done():
            return "nothing yet"
        if future.cancelled():
            return "nothing: the caller stopped waiting"
        error = future.exception()
        return safe_repr.short(future.result()) if error is None else f"{type(error).__name__}: {error}"

    def __repr__(self) -> str:
        return f"<Caller {self.pid or 'outside'}{', over' if self.over else ''}>"


def exit_error(reason: ExitReason, who: object) -> ProcessExited:
    """The `ProcessExited` for the caller of a process that has exited; a crash is its cause."""
    error = ProcessExited(reason, who)
    if isinstance(reason, Crash):
        error.__cause__ = reason.error
    return error


def absence_error(node: Node, pid: Pid | None, name: object) -> ProcessExited:
    """The exception for a missing callee: never registered, exited, or on a node that cannot be reached."""
    reason = absence(node, pid, name)
    if name is None or reason is NO_CONNECTION:
        return exit_error(reason, pid if name is None else name)
    return NotRegistered(NO_PROCESS, name)


def send_call(process: Process, entry: MailboxEntry, caller: Caller[R], seconds: float | None) -> Awaitable[R]:
    """Put a call into a mailbox, and return an awaitable of its outcome."""
    me = current.get()
    if me is not None and me.worker is not None and asyncio.current_task() is me.worker:
        _refuse_cycle(me, process)
    if not (process.deliver_exempt(entry) if entry[0] == SYSTEM else process.deliver(entry)):
        if process.life == GONE:
            raise exit_error(process.reason or NO_PROCESS if process.is_remote else NO_PROCESS, process)
        if not process.life:
            raise MailboxFull(process, process.limit or 0)
        # Dying: the error comes when the process has exited, so that an immediate retry meets its successor.
    return await_answer(process, caller, seconds)


def await_answer(process: Process, caller: Caller[R], seconds: float | None) -> Awaitable[R]:
    """An awaitable of a call that the callee already has, with its deadline."""
    if seconds is not None:
        process.node.deadlines.add(seconds, caller)
    me = caller._process
    if me is None or asyncio.current_task() is not me.worker:
        return caller
    return _await_in_handler(me, process, caller)  # a handler that waits: noted, to find cycles of calls


async def _await_in_handler(waits: Process, process: Process, caller: Caller[R]) -> R:
    waits.waiting_on = process
    try:
        return await caller
    finally:
        waits.waiting_on = None


def _refuse_cycle(me: Process, callee: Process) -> None:
    step: Process | None = callee
    path = [me]
    while step is not None:
        path.append(step)
        if step is me:
            raise CallCycle([str(each) for each in path])
        step = step.waiting_on


# --- The actions of a callback, as frozen values that it returns.

T = TypeVar("T")


class _Unset:
    """The absence of a value, where None is one."""

    def __repr__(self) -> str:
        return "(none)"


UNSET: Final = _Unset()


@dataclass(frozen=True, slots=True)
class Continue:
    """Call `handle_continue` with `token` next, before any message."""

    token: object


@dataclass(frozen=True, slots=True)
class EventTimeout:
    """`handle_info` gets `message` after so many `seconds`, unless another message comes first.

    0 is at once, before whatever lies in the mailbox; None is never. `absolute` makes `seconds` a moment on the event
    loop's clock. Looking inside the server (`introspect`) neither cancels nor restarts it.
    """

    seconds: float | None
    message: object = IDLE_TIMEOUT
    absolute: bool = False

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.absolute:
            check_seconds(self.seconds)


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the caller; then do `then`, or send a `Timeout` message when nothing else comes for `idle_after` seconds."""

    value: object
    then: Continue | EventTimeout | None = None
    idle_after: float | None = None

    def __post_init__(self) -> None:
        _check_next(self.then, self.idle_after)


@dataclass(frozen=True, slots=True)
class NoReply:
    """Go on without a reply: for casts and messages, or for a call that is answered later by its `Caller`."""

    then: Continue | EventTimeout | None = None
    idle_after: float | None = None

    def __post_init__(self) -> None:
        _check_next(self.then, self.idle_after)


def _check_next(then: object, idle_after: float | None) -> None:
    """Refuse an impossible next step where it is made, before any caller is answered."""
    if idle_after is not None:
        check_seconds(idle_after)
        if then is not None:
            raise ValueError(f"{then!r} and idle_after={idle_after:g} exclude each other: return one of them")
    elif then is not None and not isinstance(then, Continue | EventTimeout):
        raise TypeError(f"a callback goes on with Continue(…), EventTimeout(…) or nothing, not with {then!r}")


@dataclass(frozen=True, slots=True)
class Stop:
    """End with this reason, after answering the caller if `reply` is given."""

    reason: ExitReason | BaseException = NORMAL
    reply: object = UNSET

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", as_reason(self.reason))


@dataclass(frozen=True, slots=True)
class Ignore:
    """Returned by `init`: do not run, which is not a failure."""


IGNORE: Final = Ignore()

ACTIONS: Final = frozenset((Reply, NoReply, Stop, Continue, EventTimeout, Ignore))


# The same actions, typed as the result of a method that is called by reference: `def take(self) -> Item: return later()`.


def later() -> Any:
    """Reply later: keep `self.caller` and call its `reply`."""
    return NoReply()


def replying(value: T, *, then: Continue | EventTimeout | None = None, idle_after: float | None = None) -> T:
    """Reply with `value`, then do `then` or wait `idle_after` seconds for a `Timeout`."""
    return cast("T", Reply(value, then, idle_after))


def stopping(value: T, reason: ExitReason | BaseException = NORMAL) -> T:
    """Reply with `value`, then stop."""
    return cast("T", Stop(reason, value))


class Reject(Exception):
    """Raised by a handler for a wrong request: the caller gets `error`, and the server goes on."""

    def __init__(self, error: Exception) -> None:
        """`error` is raised from the caller's `await`."""
        if not isinstance(error, Exception):  # pyright: ignore[reportUnnecessaryIsInstance] - `raise Reject("why")` is near
            raise TypeError(f"Reject carries an exception for the caller, not {error!r}")
        super().__init__(error)
        self.error = error
