"""Asking a process something: what `gen` is to OTP's behaviours. `Ref` is the typed handle that calls go through.

A call to an idle process with a plain `def` handler runs on the spot,
inside that process's context and under its crash boundary; every other goes through the mailbox.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload

from greenroom.supervision.kernel import watchdog
from greenroom.supervision.kernel.api import ABANDONED, is_abandoned, resolve
from greenroom.supervision.kernel.clock import check_seconds
from greenroom.supervision.kernel.errors import ActorError, CallTimeout, MailboxFull, NotRegistered
from greenroom.supervision.kernel.node import ExitFuture
from greenroom.supervision.kernel.process import COROUTINE, GONE, INLINE, Process
from greenroom.supervision.kernel.process_lookup import current, current_node
from greenroom.supervision.kernel.process_messages import (
    ASK,
    CALL,
    CAST,
    INFO,
    NO_CONNECTION,
    NO_PROCESS,
    NORMAL,
    STOP,
    TELL,
    Pid,
    as_reason,
)

from .replies import ACTIONS, Caller, absence_error, await_answer, exit_error, send_call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator
    from types import CodeType

    from greenroom.supervision.kernel.process_lookup import Via
    from greenroom.supervision.kernel.process_messages import MailboxEntry

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")

DEFAULT_TIMEOUT: Final = 5.0
SPECIAL_RESULTS: Final = ACTIONS | {COROUTINE}
# Never filled: a dict of its own would be a third of what a cast weighs that waits in a mailbox.
_NO_KEYWORDS: Final[dict[str, Any]] = {}
_get_ident = threading.get_ident


class Ref(Generic[S]):
    """A typed handle on a process, by pid or by name.

    ``await ref.call(Counter.add, 2)`` calls a method of the server by reference, checked by mypy and pyright;
    ``ref.cast(Counter.add, 2)`` asks without waiting. `ask`, `tell` and `send` reach `handle_call`, `handle_cast` and
    `handle_info` with any message.
    """

    __slots__ = ("_process", "_seconds", "target")

    def __init__(self, target: Pid | Hashable | Via, seconds: float | None = DEFAULT_TIMEOUT) -> None:
        """`target` is a pid, or a name: on this node, `On` another, or in another registry. Names are looked up at each use."""
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
        """The address; for a name, of the process that has it now. Raises `NotRegistered` when no process has."""
        if isinstance(self.target, Pid):
            return self.target
        _, pid, name = resolve(current_node(), self.target)
        if pid is None:
            raise NotRegistered(NO_PROCESS, name)
        return pid

    @property
    def seconds(self) -> float | None:
        """How long its calls may take; None is for ever."""
        return self._seconds

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
        function = server._otp_methods.get(method) or server._otp_method(method)
        asker = current.get()
        if asker is not None and asker.life == GONE:
            raise ActorError(ABANDONED)
        process.activity = INLINE
        process.inline_caller = asker
        try:
            value = (process.context or process.own_context()).run(function, server, *args, **kwargs)
        except BaseException as error:  # noqa: BLE001 - the boundary of an actor: whatever was raised is its crash
            answer = self._failed(process, (CALL, method, args, kwargs, None), error)
        else:
            if server._otp_call is None and type(value) not in SPECIAL_RESULTS and not process.life:
                if process.mailbox is None:
                    process.activity = process.idle_activity
                    return value
                process.settle()
                return value
            answer = self._special(process, method, args, kwargs, value)
        try:
            return await answer
        finally:
            del answer  # as in `Caller.__await__`

    def _special(
        self, process: Process, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], value: Any
    ) -> Awaitable[Any]:
        """An inline handler returned a coroutine or an action, took hold of its caller, or ended its own process."""
        server: Any = process.behaviour
        caller: Caller[Any] = server._otp_call or Caller(process.node, process, process.inline_caller)
        server._otp_call = caller
        entry = (CALL, method, args, kwargs, caller)
        if type(value) is COROUTINE:
            process.run_in_worker(value, entry)
        else:
            process.add_exit_waiter(caller)
            process.on_return(entry, value)
            process.settle()
        return await_answer(process, caller, self._seconds)

    def _failed(self, process: Process, entry: MailboxEntry, error: BaseException) -> Awaitable[Any]:
        """An inline handler raised."""
        server: Any = process.behaviour
        caller: Caller[Any] = server._otp_call or Caller(process.node, process, process.inline_caller)
        process.add_exit_waiter(caller)
        process.on_error((*entry[:4], caller), error)
        process.settle()
        return await_answer(process, caller, self._seconds)

    def _queue(
        self, process: Process, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Awaitable[Any]:
        node = process.node
        if _get_ident() != node.thread:
            return self._across(process, lambda ref: ref.call(method, *args, **kwargs))
        node.inline_left = node.inline_budget
        if is_abandoned():
            raise ActorError(ABANDONED)
        caller: Caller[Any] = Caller(node, process, current.get())
        return send_call(process, (CALL, method, args, kwargs, caller), caller, self._seconds)

    async def _across(self, process: Process, again: Callable[[Ref[S]], Coroutine[Any, Any, Any]]) -> Any:
        # From a task of another thread's loop: the call itself has to run in the node's.
        ref: Ref[S] = (
            Ref.of(process).within(self._seconds) if not process.is_remote else Ref(self.target, self._seconds)
        )
        if not process.node.running:
            raise exit_error(NO_PROCESS, process)
        coroutine = again(ref)
        try:
            answer = asyncio.run_coroutine_threadsafe(coroutine, process.node.loop)
        except RuntimeError:  # the loop was closed just now
            coroutine.close()
            raise exit_error(NO_PROCESS, process) from None
        try:
            return await asyncio.wrap_future(answer)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise exit_error(NO_CONNECTION, process) from None  # the other loop ended in the middle of it

    def cast(self, method: Callable[Concatenate[S, P], Any], /, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Have the process run one of its methods, some time; no answer comes back. False when it is gone or its mailbox full."""
        process = self._process
        if process is not None:
            quick = process.fast_append
            if quick is not None and _get_ident() == process.node.fast_thread:
                quick((CAST, method, args, kwargs or _NO_KEYWORDS))
                return True
        return self._post((CAST, method, args, kwargs))

    def now(self, method: Callable[Concatenate[S, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        """As `cast`, but an idle process runs it on the spot, and what it returns is returned. None where it has to wait."""
        process = self._process
        if process is None or not _is_free(process):
            self._post((CAST, method, args, kwargs))
            return None
        server: Any = process.behaviour
        function = server._otp_methods.get(method) or server._otp_method(method)
        value: Any = _run_inline(process, (CAST, method, args, kwargs), function, *args, **kwargs)
        return None if type(value) in SPECIAL_RESULTS else value

    # --- messages

    def send_now(self, message: object) -> bool:
        """As `send`, but an idle process takes it on the spot."""
        process = self._process
        if process is None or not _is_free(process):
            return self._post((INFO, message))
        behaviour: Any = type(process.behaviour)
        _run_inline(process, (INFO, message), behaviour.handle_info, message)
        return True

    async def ask(self, request: object) -> Any:
        """Send a request to `handle_call`, and wait for the answer."""
        process = self._process or self._find()
        if _get_ident() != process.node.thread:
            return await self._across(process, lambda ref: ref.ask(request))
        if is_abandoned():
            raise ActorError(ABANDONED)
        caller: Caller[Any] = Caller(process.node, process, current.get())
        return await send_call(process, (ASK, request, caller), caller, self._seconds)

    def tell(self, request: object) -> bool:
        """Send a request to `handle_cast`. False when no process will get it."""
        return self._post((TELL, request))

    def send(self, message: object) -> bool:
        """Send a message to `handle_info`, or to `receive`. False when no process will get it."""
        return self._post((INFO, message))

    def _post(self, entry: MailboxEntry) -> bool:
        process = self._process
        if process is None:
            process, _, _ = resolve(current_node(), self.target)
            if process is None:
                return False
        node = process.node
        if _get_ident() != node.thread:
            return node.call_from_thread(process.deliver, entry)
        if node.leaks and is_abandoned():
            return False
        return process.deliver(entry)

    def _find(self) -> Process:
        target = self.target
        node = current_node()
        process, pid, name = resolve(node, target)
        if process is None:
            raise absence_error(node, pid, name)
        return process


def _is_free(process: Process) -> bool:
    """Whether a message may be handled on the sender's stack."""
    node = process.node
    if process.activity or _get_ident() != node.fast_thread:
        return False
    if node.inline_left:
        return True
    node.inline_left = node.inline_budget
    return False


def _run_inline(process: Process, entry: MailboxEntry, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Handle an entry that no caller waits for, of a process that is free, as the pump would; returns what the handler did."""
    process.node.inline_left -= 1
    process.activity = INLINE
    process.inline_caller = None
    behaviour: Any = process.behaviour
    value = None
    try:
        value = (process.context or process.own_context()).run(function, behaviour, *args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - the boundary of an actor: whatever was raised is its crash
        behaviour._otp_call = None  # what it took for its caller's is no call
        process.on_error(entry, error)
    else:
        behaviour._otp_call = None
        if type(value) is COROUTINE:
            process.run_in_worker(value, entry)  # of a process that is dying it is closed
        elif value is not None and not process.life and (entry[0] != CAST or type(value) in ACTIONS):
            process.on_return(entry, value)
    if process.activity == INLINE:
        if process.mailbox is None and not process.life:
            process.activity = process.idle_activity
        else:
            process.settle()
    return value


CALL_CODE: CodeType = vars(Ref)["call"].__code__
INLINE_CODE: CodeType = _run_inline.__code__
watchdog.mark_handler_runner(CALL_CODE, lambda frame: frame.get("process"))
watchdog.mark_handler_runner(INLINE_CODE, lambda frame: frame.get("process"))


# --- For clients of behaviours: stop one, ask several, ask now and look for the answer later.


async def stop(who: object, reason: object = NORMAL, timeout: float | None = None) -> None:
    """End a behaviour in order, from outside, and wait until it is gone.

    It finishes the message it is at, runs `terminate`, and exits with `reason`. Raises `ProcessExited` when it ended
    for another reason or is not there, `CallTimeout` when it has not ended in time (it may still).
    """
    why = as_reason(reason)
    check_seconds(timeout)
    node = current_node()
    if node.leaks and is_abandoned():
        raise ActorError(ABANDONED)
    process, pid, name = resolve(node, who)
    if process is None:
        raise absence_error(node, pid, name)
    if process is current.get():
        message = f"{process} cannot stop itself and wait for that: return Stop(…) instead"
        raise ActorError(message)
    gone = ExitFuture(node.loop)
    process.add_exit_waiter(gone)
    process.deliver_exempt((STOP, why))
    try:
        if not await gone.within(timeout):
            raise CallTimeout(timeout or 0.0, process, "stop")
    finally:
        process.remove_exit_waiter(gone)
    if (ended := gone.future.result()) != why:
        raise exit_error(ended, process)


class Request(Generic[R]):
    """A call that was sent and is not awaited yet. It is answered exactly once, like any call.

    `wait` may be tried again after a timeout; `abandon` drops an answer that still comes. A missing process is an
    answer, too: sending never raises it, waiting does.
    """

    __slots__ = ("_caller", "label")

    def __init__(self, caller: Caller[R], label: object = None) -> None:
        """`label` is the sender's own mark, for collections."""
        self._caller = caller
        self.label = label

    def __repr__(self) -> str:
        return f"<Request {'' if self.label is None else repr(self.label) + ' '}{'done' if self.done else 'under way'}>"

    @property
    def done(self) -> bool:
        """Whether the answer, or the error instead of it, has come."""
        return self._caller.over

    async def wait(self, timeout: float | None = DEFAULT_TIMEOUT) -> R:
        """The answer. `CallTimeout` leaves the request open."""
        check_seconds(timeout)
        future = self._caller._future
        done, _ = await asyncio.wait((future,), timeout=timeout)
        if not done:
            raise CallTimeout(timeout or 0.0, self._caller._callee)
        if future.cancelled():  # its own error, or the waiting task would take itself for cancelled
            raise ActorError(f"{self!r} was abandoned")
        return future.result()

    def result(self) -> R:
        """The answer, of one that is done. Raises what `wait` would."""
        future = self._caller._future
        if not future.done() or future.cancelled():
            raise ActorError(f"{self!r} {'was abandoned' if future.done() else 'has no answer yet'}")
        return future.result()

    def when_done(self, act: Callable[[], object]) -> None:
        """Have `act` called in the loop's next turn when it is done, or abandoned; for callers that cannot wait."""
        self._caller.on_over(act)

    def abandon(self) -> None:
        """Give the answer up: if it still comes, it is dropped."""
        self._caller._future.cancel()
        self._caller._settle(None, None)


def request(
    ref: Ref[S], method: Callable[Concatenate[S, P], Any], /, *args: P.args, **kwargs: P.kwargs
) -> Request[Any]:
    """Send a call by method reference, and wait for it later."""
    return _send(ref, lambda caller: (CALL, method, args, kwargs, caller))


def ask_later(ref: Ref[Any], message: object, label: object = None) -> Request[Any]:
    """Send a request to `handle_call`, and wait for it later."""
    return _send(ref, lambda caller: (ASK, message, caller), label)


def _send(ref: Ref[Any], entry: Callable[[Caller[Any]], MailboxEntry], label: object = None) -> Request[Any]:
    node = current_node()
    if node.leaks and is_abandoned():
        raise ActorError(ABANDONED)
    process, pid, name = resolve(node, ref)
    caller: Caller[Any] = Caller(node, process, current.get())
    if process is None:
        caller.fail(absence_error(node, pid, name))
    elif process.life == GONE or not (process.deliver(entry(caller)) or process.life):
        caller.fail(exit_error(NO_PROCESS, process) if process.life else MailboxFull(process, process.limit or 0))
    else:
        process.add_exit_waiter(caller)
    return Request(caller, label)


@dataclass(slots=True)
class Requests:
    """Several requests under way, answered in whatever order; each may have a label, to tell what was asked."""

    _open: dict[Request[Any], None] = field(default_factory=dict["Request[Any]", None])

    def add(self, request: Request[Any], label: object = None) -> None:
        """Wait for this one too. It cannot be in here twice."""
        if request in self._open:
            raise ValueError(f"{request!r} is in this collection already")
        if label is not None:
            request.label = label
        self._open[request] = None

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Request[Any]]:
        return iter(tuple(self._open))

    async def next(self, timeout: float | None = DEFAULT_TIMEOUT) -> Request[Any] | None:
        """The next that is answered, taken out of here; None when none are left. `CallTimeout` leaves all open."""
        check_seconds(timeout)
        if not self._open:
            return None
        futures = {each._caller._future: each for each in self._open}
        await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        for future, each in futures.items():
            if future.done():
                del self._open[each]
                return each
        raise CallTimeout(timeout or 0.0, f"none of {len(self._open)} processes", "answer")

    def abandon(self) -> None:
        """Give these answers up: any that still comes is dropped, and the collection is empty."""
        for each in self._open:
            each.abandon()
        self._open.clear()


@dataclass(frozen=True, slots=True)
class MultiCallResult(Generic[R]):
    """What came back from several: `replies` by ref, and `missing` with the reason for each that did not answer."""

    replies: dict[Ref[Any], R]
    missing: dict[Ref[Any], Exception]


async def multi_call(
    refs: Iterable[Ref[S]],
    method: Callable[Concatenate[S, P], Any],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> MultiCallResult[Any]:
    """Ask all of them the same at once; each has its own ref's deadline, and one that dies does not spoil the others' answers."""
    asked = list(refs)
    results = await asyncio.gather(*(ref.call(method, *args, **kwargs) for ref in asked), return_exceptions=True)
    replies: dict[Ref[Any], Any] = {}
    missing: dict[Ref[Any], Exception] = {}
    for ref, result in zip(asked, results, strict=True):
        if isinstance(result, Exception):
            missing[ref] = result
        elif isinstance(result, BaseException):
            raise result
        else:
            replies[ref] = result
    return MultiCallResult(replies, missing)


def abcast(
    refs: Iterable[Ref[S]], method: Callable[Concatenate[S, P], Any], /, *args: P.args, **kwargs: P.kwargs
) -> None:
    """Cast the same to all of them; whether a process took it is not reported."""
    for ref in refs:
        ref.cast(method, *args, **kwargs)


def process_of(ref: Ref[Any]) -> Process | None:
    """The process behind a handle on this node, for code that looks inside; None when there is none."""
    return resolve(current_node(), ref)[0]
