"""Asking a process something, and being answered exactly once: what `gen` is to OTP's behaviours.

`Caller` is both ends of one call: the caller awaits it, the callee answers it. Whatever happens first decides: the
reply, the callee's death (with its reason, at once), the deadline, or the caller's own end. What comes later is
dropped, which is what an alias does in Erlang.

`Ref` is the typed handle that calls go through. A call to an idle process with a plain `def` handler runs on the spot,
inside that process's context and under its crash boundary; every other goes through the mailbox.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, cast, overload

from greenroom.supervision.kernel import watchdog
from greenroom.supervision.kernel.api import absence, resolve, voided
from greenroom.supervision.kernel.clock import check_seconds
from greenroom.supervision.kernel.current import current, current_node
from greenroom.supervision.kernel.errors import (
    ActorError,
    CallCycle,
    CallTimeout,
    MailboxFull,
    NotRegistered,
    ProcessExited,
)
from greenroom.supervision.kernel.messages import ASK, CALL, CAST, INFO, SYSTEM, TELL
from greenroom.supervision.kernel.pid import Pid
from greenroom.supervision.kernel.process import COROUTINE, GONE, IDLE, INLINE, Process
from greenroom.supervision.kernel.reasons import NO_CONNECTION, NO_PROCESS, Crash, ExitReason

from .actions import ACTIONS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Generator, Hashable
    from types import CodeType

    from greenroom.supervision.kernel.messages import Entry
    from greenroom.supervision.kernel.names import Via
    from greenroom.supervision.kernel.node import Node

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")

DEFAULT_TIMEOUT: Final = 5.0
SPECIAL: Final = ACTIONS | {COROUTINE}
_VOID: Final = "the calling process is gone: its code was abandoned when it did not unwind in time"
# Never filled: a dict of its own would be a third of what a cast weighs that waits in a mailbox.
_NO_KEYWORDS: Final[dict[str, Any]] = {}
_get_ident = threading.get_ident


class Caller(Generic[R]):
    """Whoever waits for an answer. A handler keeps it to answer later, from any process, task or thread."""

    __slots__ = ("_callee", "_future", "_node", "_process")

    def __init__(self, node: Node, callee: Process | None, process: Process | None) -> None:
        """`process` is the caller, if it is one."""
        self._node = node
        self._callee = callee
        self._process = process
        self._future: asyncio.Future[R] = node.loop.create_future()

    @property
    def process(self) -> Process | None:
        """Who calls, on this node; None when the call comes from outside any process."""
        return self._process

    @property
    def pid(self) -> Pid | None:
        """The caller's address; None when the call comes from outside any process."""
        return None if self._process is None else self._process.pid

    @property
    def over(self) -> bool:
        """Whether nobody waits any more: it was answered, timed out, or its caller is gone."""
        return self._future.done()

    def reply(self, value: R) -> bool:
        """Answer. False when it was too late, or had been answered."""
        if self._node.leaks and voided():
            return False
        return self._settle(value, None)

    def fail(self, error: BaseException) -> bool:
        """Answer with an error, which the caller's `await` raises."""
        if self._node.leaks and voided():
            return False
        if isinstance(error, StopIteration):
            error = RuntimeError(f"{error!r} cannot be raised from an await")  # as Python has it
        return self._settle(None, error)

    def exited(self, reason: ExitReason) -> None:
        """The callee is gone."""
        self._settle(None, exited(reason, self._callee))

    def expire(self, seconds: float) -> None:
        """The deadline has passed."""
        self._settle(None, CallTimeout(seconds, self._callee))

    def _settle(self, value: R | None, error: BaseException | None) -> bool:
        node = self._node
        if _get_ident() != node.thread:
            return node.from_thread(self._settle, value, error)
        future = self._future
        if self._callee is not None:
            self._callee.forget(self)
            self._callee = None
        if future.done():
            return False
        if error is None:
            future.set_result(cast("R", value))
        else:
            future.set_exception(error)
            future.exception()  # marks it as seen: the caller may be gone
        return True

    def __await__(self) -> Generator[Any, None, R]:
        callee = self._callee
        if callee is not None:
            if callee.life == GONE:
                self.exited(callee.reason or NO_PROCESS)
            else:
                callee.await_death(self)
        try:
            return (yield from self._future)
        finally:
            if self._callee is not None:
                self._callee.forget(self)
                self._callee = None

    def __repr__(self) -> str:
        return f"<Caller {self.pid or 'outside'}{', over' if self.over else ''}>"


def exited(reason: ExitReason, who: object) -> ProcessExited:
    """The exception that tells a caller of a death; a crash is its cause."""
    error = ProcessExited(reason, who)
    if isinstance(reason, Crash):
        error.__cause__ = reason.error
    return error


def absent(node: Node, pid: Pid | None, name: object) -> ProcessExited:
    """The exception for a callee that is not there: never registered, dead, or on a node that cannot be reached."""
    reason = absence(node, pid, name)
    if name is None or reason is NO_CONNECTION:
        return exited(reason, pid if name is None else name)
    return NotRegistered(NO_PROCESS, name)


def settle_call(process: Process, entry: Entry, caller: Caller[R], seconds: float | None) -> Awaitable[R]:
    """Put a call into a mailbox; what is returned waits for whatever ends it."""
    me = current.get()
    waits = me is not None and me.worker is not None and asyncio.current_task() is me.worker
    if waits:
        assert me is not None
        _refuse_cycle(me, process)
    if not (process.deliver_exempt(entry) if entry[0] == SYSTEM else process.deliver(entry)):
        if process.life == GONE:
            raise exited(NO_PROCESS, process)
        if not process.life:
            raise MailboxFull(process, process.limit or 0)
        # Dying. The answer comes when it is gone, so that whoever tries again at once meets its successor.
    return settle_begun(process, caller, seconds, me if waits else None)


def settle_begun(process: Process, caller: Caller[R], seconds: float | None, waits: Process | None) -> Awaitable[R]:
    """Wait for a call that the callee has, up to the deadline. `waits` is the caller whose handler cannot go on without."""
    if seconds is not None:
        caller._node.deadlines.add(seconds, caller)
    return caller if waits is None else _held_up(waits, process, caller)


async def _held_up(waits: Process, process: Process, caller: Caller[R]) -> R:
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


class Ref(Generic[S]):
    """A typed handle on a process, by pid or by name.

    ``await ref.call(Counter.add, 2)`` calls a method of the server by reference, checked by mypy and pyright;
    ``ref.cast(Counter.add, 2)`` asks without waiting. `ask`, `tell` and `send` reach `handle_call`, `handle_cast` and
    `handle_info` with any message.
    """

    __slots__ = ("_process", "_seconds", "target")

    def __init__(self, target: Pid | Hashable | Via, seconds: float | None = DEFAULT_TIMEOUT) -> None:
        """`target` is a pid, or a name: on this node, `At` a node, or in another registry. Names are looked up at each use."""
        if seconds is not DEFAULT_TIMEOUT:
            check_seconds(seconds)
        self.target = target
        self._seconds = seconds
        self._process: Process | None = None

    @staticmethod
    def of(process: Process) -> Ref[Any]:
        """The handle on a process of this node."""
        ref: Ref[Any] = Ref(process.pid)
        ref._process = process
        return ref

    @property
    def pid(self) -> Pid:
        """The address; for a name, of whoever has it now. Raises `NotRegistered` when nobody has."""
        if isinstance(self.target, Pid):
            return self.target
        _, pid, name = resolve(current_node(), self.target)
        if pid is None:
            raise NotRegistered(NO_PROCESS, name)
        return pid

    def within(self, seconds: float | None) -> Ref[S]:
        """The same handle with another deadline for its calls; None waits for ever."""
        ref: Ref[S] = Ref(self.target, seconds)
        ref._process = self._process
        return ref

    def __repr__(self) -> str:
        return f"<Ref {self.target}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and self.target == other.target

    def __hash__(self) -> int:
        return hash(self.target)

    # --- method references

    @overload
    async def call(
        self, method: Callable[Concatenate[S, P], Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def call(self, method: Callable[Concatenate[S, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def call(self, method: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Have the process run one of its methods, and wait for what it returns.

        Raises `ProcessExited` as soon as the process dies, `CallTimeout` at the deadline, whatever `Reject` carries,
        and `TypeError` when the arguments do not fit (the server never notices).
        """
        process = self._process
        if process is None:
            process = self._find()
        node = process.node
        if process.activity or not node.inline_left or _get_ident() != node.thread:
            return await self._queue(process, method, args, kwargs)
        node.inline_left -= 1
        server: Any = process.behaviour
        function = server._methods.get(method) or server._method(method)
        asker = current.get()
        if asker is not None and asker.life == GONE:
            raise ActorError(_VOID)
        process.activity = INLINE
        process.asker = asker
        try:
            value = (process.context or process.own_context()).run(function, server, *args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - the boundary of an actor: whatever was raised is its crash
            return await self._failed(process, (CALL, method, args, kwargs, None), error)
        if server._call is None and type(value) not in SPECIAL and not process.life:
            if process.mailbox is None:
                process.activity = IDLE
                return value
            process.settle()
            return value
        return await self._special(process, method, args, kwargs, value)

    def _special(
        self, process: Process, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], value: Any
    ) -> Awaitable[Any]:
        """An inline handler returned a coroutine or an action, took hold of its caller, or ended its own process."""
        server: Any = process.behaviour
        caller: Caller[Any] = server._call or Caller(process.node, process, process.asker)
        server._call = caller
        entry = (CALL, method, args, kwargs, caller)
        me = process.asker
        if type(value) is COROUTINE:
            process.hand_over(value, entry)
        else:
            process.await_death(caller)
            process.done(entry, value)
            process.settle()
        waits = me is not None and asyncio.current_task() is me.worker
        return settle_begun(process, caller, self._seconds, me if waits else None)

    def _failed(self, process: Process, entry: Entry, error: BaseException) -> Awaitable[Any]:
        """An inline handler raised."""
        server: Any = process.behaviour
        caller: Caller[Any] = server._call or Caller(process.node, process, process.asker)
        process.await_death(caller)
        process.failed((*entry[:4], caller), error)
        process.settle()
        return settle_begun(process, caller, self._seconds, None)

    def _queue(
        self, process: Process, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Awaitable[Any]:
        node = process.node
        if _get_ident() != node.thread:
            return self._across(process, lambda ref: ref.call(method, *args, **kwargs))
        node.inline_left = node.inline_budget
        if voided():
            raise ActorError(_VOID)
        caller: Caller[Any] = Caller(node, process, current.get())
        return settle_call(process, (CALL, method, args, kwargs, caller), caller, self._seconds)

    async def _across(self, process: Process, again: Callable[[Ref[S]], Coroutine[Any, Any, Any]]) -> Any:
        # From a task of another thread's loop: the call itself has to run in the node's.
        ref: Ref[S] = Ref.of(process).within(self._seconds)
        if not process.node.running:
            raise exited(NO_PROCESS, process)
        coroutine = again(ref)
        try:
            answer = asyncio.run_coroutine_threadsafe(coroutine, process.node.loop)
        except RuntimeError:  # the loop was closed just now
            coroutine.close()
            raise exited(NO_PROCESS, process) from None
        try:
            return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise exited(NO_CONNECTION, process) from None  # the other loop ended in the middle of it

    def cast(self, method: Callable[Concatenate[S, P], Any], /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Have the process run one of its methods, some time, for nobody. False when it is gone or its mailbox full."""
        process = self._process
        if process is not None:
            quick = process.quick
            if quick is not None and _get_ident() == process.node.quick_thread:
                quick((CAST, method, args, kwargs or _NO_KEYWORDS))
                return True
        return self._post((CAST, method, args, kwargs))

    # --- messages

    async def ask(self, request: object) -> Any:
        """Send a request to `handle_call`, and wait for the answer."""
        process = self._process or self._find()
        if _get_ident() != process.node.thread:
            return await self._across(process, lambda ref: ref.ask(request))
        if voided():
            raise ActorError(_VOID)
        caller: Caller[Any] = Caller(process.node, process, current.get())
        return await settle_call(process, (ASK, request, caller), caller, self._seconds)

    def tell(self, request: object) -> bool:
        """Send a request to `handle_cast`. False when nobody will get it."""
        return self._post((TELL, request))

    def send(self, message: object) -> bool:
        """Send a message to `handle_info`, or to `receive`. False when nobody will get it."""
        return self._post((INFO, message))

    def _post(self, entry: Entry) -> bool:
        process = self._process
        if process is None:
            process, _, _ = resolve(current_node(), self.target)
            if process is None:
                return False
        node = process.node
        if _get_ident() != node.thread:
            return node.from_thread(process.deliver, entry)
        if node.leaks and voided():
            return False
        return process.deliver(entry)

    def _find(self) -> Process:
        target = self.target
        node = current_node()
        process, pid, name = resolve(node, target)
        if process is None:
            raise absent(node, pid, name)
        return process


CALL_CODE: CodeType = vars(Ref)["call"].__code__
watchdog.runs_handlers(CALL_CODE, lambda frame: frame.get("process"))
