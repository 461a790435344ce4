"""`Ref`, the typed handle on a process, with calls, casts and requests: the counterpart of OTP's `gen`.

A call to an idle process with a plain `def` handler runs inline, on the caller's stack, in that process's context and
with its crash boundary; every other call goes through the mailbox.
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
# Shared by all casts without keywords, and never filled: a dict of its own would be a third of the memory of a queued cast.
_NO_KEYWORDS: Final[dict[str, Any]] = {}
_get_ident = threading.get_ident


class Ref(Generic[S]):
    """A typed handle on a process, by pid or by name.

    ``await ref.call(Counter.add, 2)`` calls a method of the server by reference, checked by mypy and pyright;
    ``ref.cast(Counter.add, 2)`` does not wait. `ask`, `tell` and `send` pass any message to `handle_call`, `handle_cast`
    and `handle_info`.
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
        """The timeout of its calls; None waits for ever."""
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
        """Call a method of the server, and wait for its result.

        Raises `ProcessExited` as soon as the process exits, `CallTimeout` at the deadline, the error of a `Reject`,
        and `TypeError` when the arguments do not fit (the server is not affected).
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
            del answer  # a cycle break, as in `Caller.__await__`

    def _special(
        self, process: Process, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], value: Any
    ) -> Awaitable[Any]:
        """Go on after an inline handler that returned a coroutine or an action, used its caller, or ended its process."""
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
        """Go on after an inline handler that raised."""
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
        # From a task of another thread's loop: the call has to run in the node's loop.
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
        """Send a method call without waiting for a result. False when the process has exited or its mailbox is full."""
        process = self._process
        if process is not None:
            quick = process.fast_append
            if quick is not None and _get_ident() == process.node.fast_thread:
                quick((CAST, method, args, kwargs or _NO_KEYWORDS))
                return True
        return self._post((CAST, method, args, kwargs))

    def now(self, method: Callable[Concatenate[S, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        """As `cast`, but an idle process runs it inline, and its result is returned. None when the message was queued."""
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
        """As `send`, but an idle process handles it inline."""
        process = self._process
        if process is None or not _is_free(process):
            return self._post((INFO, message))
        behaviour: Any = type(process.behaviour)
        _run_inline(process, (INFO, message), behaviour.handle_info, message)
        return True

    async def ask(self, request: object) -> Any:
        """Send a request to `handle_call`, and wait for the reply."""
        process = self._process or self._find()
        if _get_ident() != process.node.thread:
            return await self._across(process, lambda ref: ref.ask(request))
        if is_abandoned():
            raise ActorError(ABANDONED)
        caller: Caller[Any] = Caller(process.node, process, current.get())
        return await send_call(process, (ASK, request, caller), caller, self._seconds)

    def tell(self, request: object) -> bool:
        """Send a request to `handle_cast`. False when it cannot be delivered."""
        return self._post((TELL, request))

    def send(self, message: object) -> bool:
        """Send a message to `handle_info`, or to `receive`. False when it cannot be delivered."""
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
    """Whether a message may be handled inline, on the sender's stack."""
    node = process.node
    if process.activity or _get_ident() != node.fast_thread:
        return False
    if node.inline_left:
        return True
    node.inline_left = node.inline_budget
    return False


def _run_inline(process: Process, entry: MailboxEntry, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Handle an entry without a waiting caller inline, as the pump would; returns the handler's result."""
    process.node.inline_left -= 1
    process.activity = INLINE
    process.inline_caller = None
    behaviour: Any = process.behaviour
    value = None
    try:
        value = (process.context or process.own_context()).run(function, behaviour, *args, **kwargs)
    except BaseException as error:  # noqa: BLE001 - the boundary of an actor: whatever was raised is its crash
        behaviour._otp_call = None  # a handler may have used `caller`, but there is none
        process.on_error(entry, error)
    else:
        behaviour._otp_call = None
        if type(value) is COROUTINE:
            process.run_in_worker(value, entry)  # closed there if the process is dying
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


# --- For clients of behaviours: stop a server, call several, send a request and await the reply later.


async def stop(who: object, reason: object = NORMAL, timeout: float | None = None) -> None:
    """Stop a behaviour in order, and wait until it has exited.

    It finishes its current message, runs `terminate`, and exits with `reason`. Raises `ProcessExited` when it exited
    for another reason or does not exist, `CallTimeout` when it has not exited in time (it may still do so).
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
    """A call that was sent and is awaited later. It has exactly one outcome, like any call.

    `wait` may be tried again after a timeout; `abandon` drops a late reply. Sending to a missing process raises nothing;
    the error comes from `wait`.
    """

    __slots__ = ("_caller", "label")

    def __init__(self, caller: Caller[R], label: object = None) -> None:
        """`label` is any value, to tell requests of a collection apart."""
        self._caller = caller
        self.label = label

    def __repr__(self) -> str:
        return f"<Request {'' if self.label is None else repr(self.label) + ' '}{'done' if self.done else 'under way'}>"

    @property
    def done(self) -> bool:
        """Whether the reply, or an error instead of it, has come."""
        return self._caller.over

    async def wait(self, timeout: float | None = DEFAULT_TIMEOUT) -> R:
        """Wait for the reply. `CallTimeout` leaves the request open."""
        check_seconds(timeout)
        future = self._caller._future
        done, _ = await asyncio.wait((future,), timeout=timeout)
        if not done:
            raise CallTimeout(timeout or 0.0, self._caller._callee)
        if future.cancelled():  # not `CancelledError`, which would look like a cancellation of the waiting task
            raise ActorError(f"{self!r} was abandoned")
        return future.result()

    def result(self) -> R:
        """The reply of a request that is done. Raises the same errors as `wait`."""
        future = self._caller._future
        if not future.done() or future.cancelled():
            raise ActorError(f"{self!r} {'was abandoned' if future.done() else 'has no answer yet'}")
        return future.result()

    def when_done(self, act: Callable[[], object]) -> None:
        """Call `act` in the loop's next turn after the request is done or abandoned; for callers that cannot wait."""
        self._caller.on_over(act)

    def abandon(self) -> None:
        """Stop waiting: a late reply is dropped."""
        self._caller._future.cancel()
        self._caller._settle(None, None)


def request(
    ref: Ref[S], method: Callable[Concatenate[S, P], Any], /, *args: P.args, **kwargs: P.kwargs
) -> Request[Any]:
    """Send a call by method reference; its reply is awaited later."""
    return _send(ref, lambda caller: (CALL, method, args, kwargs, caller))


def ask_later(ref: Ref[Any], message: object, label: object = None) -> Request[Any]:
    """Send a request to `handle_call`; its reply is awaited later."""
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
    """A collection of open requests, answered in any order; each may have a label to tell them apart."""

    _open: dict[Request[Any], None] = field(default_factory=dict["Request[Any]", None])

    def add(self, request: Request[Any], label: object = None) -> None:
        """Add a request. Raises `ValueError` if it is in the collection already."""
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
        """Remove and return the next answered request; None when none are left. `CallTimeout` leaves all open."""
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
        """Abandon all requests: late replies are dropped, and the collection is empty."""
        for each in self._open:
            each.abandon()
        self._open.clear()


@dataclass(frozen=True, slots=True)
class MultiCallResult(Generic[R]):
    """The result of `multi_call`: `replies` by ref, and `missing` with the error of each server that did not answer."""

    replies: dict[Ref[Any], R]
    missing: dict[Ref[Any], Exception]


async def multi_call(
    refs: Iterable[Ref[S]],
    method: Callable[Concatenate[S, P], Any],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> MultiCallResult[Any]:
    """Call the same method of several servers at once. Each call has its own ref's deadline; a failed one is in `missing`."""
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
    """Cast the same to several servers; whether it was delivered is not reported."""
    for ref in refs:
        ref.cast(method, *args, **kwargs)


def process_of(ref: Ref[Any]) -> Process | None:
    """The process behind a ref on this node, for introspection; None when there is none."""
    return resolve(current_node(), ref)[0]
