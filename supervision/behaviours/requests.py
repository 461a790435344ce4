"""For clients of behaviours: stop one, ask several, ask now and look for the answer later."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from greenroom.supervision.kernel.api import VOID, resolve, voided
from greenroom.supervision.kernel.clock import check_seconds
from greenroom.supervision.kernel.current import current, current_node
from greenroom.supervision.kernel.errors import ActorError, CallTimeout, MailboxFull
from greenroom.supervision.kernel.messages import ASK, CALL, STOP
from greenroom.supervision.kernel.node import Gone
from greenroom.supervision.kernel.process import GONE, Process
from greenroom.supervision.kernel.reasons import NO_PROCESS, NORMAL, as_reason

from .caller import Caller, absent, exited
from .calls import DEFAULT_TIMEOUT, Ref

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from greenroom.supervision.kernel.messages import Entry

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")


async def stop(who: object, reason: object = NORMAL, timeout: float | None = None) -> None:
    """End a behaviour in order, from outside, and wait until it is gone.

    It finishes the message it is at, runs `terminate`, and exits with `reason`. Raises `ProcessExited` when it ended
    for another reason or is not there, `CallTimeout` when it has not ended in time (it may still).
    """
    why = as_reason(reason)
    check_seconds(timeout)
    node = current_node()
    if node.leaks and voided():
        raise ActorError(VOID)
    process, pid, name = resolve(node, who)
    if process is None:
        raise absent(node, pid, name)
    if process is current.get():
        message = f"{process} cannot stop itself and wait for that: return Stop(…) instead"
        raise ActorError(message)
    gone = Gone(node.loop)
    process.await_death(gone)
    process.deliver_exempt((STOP, why))
    try:
        if not await gone.within(timeout):
            raise CallTimeout(timeout or 0.0, process, "stop")
    finally:
        process.forget(gone)
    if (ended := gone.future.result()) != why:
        raise exited(ended, process)


class Request(Generic[R]):
    """A call that was sent and is not awaited yet. It is answered exactly once, like any call.

    `wait` may be tried again after a timeout; `abandon` drops whatever comes. Nobody being there is an answer, too:
    sending never raises it, waiting does.
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
        if future.cancelled():  # its own error, or whoever waits would take itself for cancelled
            raise ActorError(f"{self!r} was abandoned")
        return future.result()

    def result(self) -> R:
        """The answer, of one that is done. Raises what `wait` would."""
        future = self._caller._future
        if not future.done() or future.cancelled():
            raise ActorError(f"{self!r} {'was abandoned' if future.done() else 'has no answer yet'}")
        return future.result()

    def when_done(self, act: Callable[[], object]) -> None:
        """Have `act` called in the loop's next turn when it is done, or abandoned; for those who cannot wait."""
        self._caller.when_over(act)

    def abandon(self) -> None:
        """Nobody wants the answer any more."""
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


def _send(ref: Ref[Any], entry: Callable[[Caller[Any]], Entry], label: object = None) -> Request[Any]:
    node = current_node()
    if node.leaks and voided():
        raise ActorError(VOID)
    process, pid, name = resolve(node, ref)
    caller: Caller[Any] = Caller(node, process, current.get())
    if process is None:
        caller.fail(absent(node, pid, name))
    elif process.life == GONE or not (process.deliver(entry(caller)) or process.life):
        caller.fail(exited(NO_PROCESS, process) if process.life else MailboxFull(process, process.limit or 0))
    else:
        process.await_death(caller)
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
        """Nobody wants these answers any more: whatever still comes is dropped, and the collection is empty."""
        for each in self._open:
            each.abandon()
        self._open.clear()


@dataclass(frozen=True, slots=True)
class Answers(Generic[R]):
    """What came back from several: `replies` by ref, and `missing` with the reason for each that did not answer."""

    replies: dict[Ref[Any], R]
    missing: dict[Ref[Any], Exception]


async def multi_call(
    refs: Iterable[Ref[S]],
    method: Callable[Concatenate[S, P], Any],
    /,
    *args: P.args,
    **kwargs: P.kwargs,
) -> Answers[Any]:
    """Ask all of them the same at once; each has its own ref's deadline, and nobody's death spoils the others' answers."""
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
    return Answers(replies, missing)


def abcast(
    refs: Iterable[Ref[S]], method: Callable[Concatenate[S, P], Any], /, *args: P.args, **kwargs: P.kwargs
) -> None:
    """Tell all of them the same; whether anybody is there is not told."""
    for ref in refs:
        ref.cast(method, *args, **kwargs)


def process_of(ref: Ref[Any]) -> Process | None:
    """The process behind a handle on this node, for what looks inside; None when nobody is there."""
    return resolve(current_node(), ref)[0]
