"""The kinds of faults: what each of them does to a process, by name. `fault_kind` adds one."""

from __future__ import annotations

import asyncio
import inspect
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from greenroom.supervision.behaviours.gen_server import CallbackServer
from greenroom.supervision.behaviours.replies import Caller
from greenroom.supervision.kernel import links
from greenroom.supervision.kernel import process as lifecycle
from greenroom.supervision.kernel.process import GONE, Behaviour, Process
from greenroom.supervision.kernel.process_messages import (
    ASK,
    CALL,
    CAST,
    INFO,
    KILLED,
    NORMAL,
    SHUTDOWN,
    STOP,
    SYSTEM,
    TELL,
    Crash,
    ExitReason,
    MailboxEntry,
    Shutdown,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.kernel.node import Node

    from .fault_plan import Fault

BLOCK_SECONDS: Final = 0.01  # real seconds for which `block` blocks the loop unless told otherwise
SUSPEND_SECONDS: Final = 1.0  # seconds after which `suspend` lets go, unless told otherwise
DELAY_SECONDS: Final = 1.0  # seconds by which `delay` is late, unless told otherwise


class InjectedFault(Exception):
    """What a fault raises in a process; it says which fault it was."""


@dataclass(frozen=True, slots=True)
class FaultContext:
    """What a kind is given: the fault, whom it happens to, and the injection, which lets go of what it holds when it ends."""

    fault: Fault
    process: Process
    holds: FaultHolds

    def error(self) -> InjectedFault:
        """What to raise."""
        return InjectedFault(self.fault.reason or self.fault.what)

    def intercept_handler(self, intercept: Callable[[Callable[[], Any]], object]) -> None:
        """Have `trick` called instead of the next handler; it is given a function that does what should be done."""
        self.holds.on_close(HandlerInterceptor(self.process, intercept).remove)

    def tap_mailbox(self, change: Callable[[MailboxEntry, PassOn], bool]) -> None:
        """Have `change` called with each of the next `count` messages (1 unless told otherwise), and what passes it on."""
        left = self.fault.count or 1

        def one(process: Process, entry: MailboxEntry, pass_on: PassOn) -> bool:  # noqa: ARG001 - as taps are called
            nonlocal left
            if entry[0] not in HANDLED_KINDS:
                return pass_on(entry)
            left -= 1
            if not left:
                untap()
            return change(entry, pass_on)

        untap = tap_mailbox(self.process, one)
        self.holds.on_close(untap)


FaultAction: TypeAlias = "Callable[[FaultContext], None]"
FaultCondition: TypeAlias = "Callable[[Process], str | None]"
"""Says why a fault cannot happen to a process, if it cannot."""


def any_process(_: Process) -> str | None:
    """It can happen to every process."""
    return None


def needs_handlers(process: Process) -> str | None:
    """It can happen to a process that has handlers."""
    return (
        None if isinstance(process.behaviour.inner, CallbackServer) else f"{process} is no server: it has no handlers"
    )


def needs_parent_link(process: Process) -> str | None:
    """It can happen to a process that is linked to its parent."""
    linked = process.parent is not None and process.parent in tuple(links.linked(process))
    return None if linked else f"{process} is not linked to whoever started it"


def needs_own_tasks(process: Process) -> str | None:
    """It can happen to a process that may start tasks of its own."""
    return None if process.owns_tasks else f"{process} owns no tasks"


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind: what it does, and which kinds are simpler, should they do as well where it made a test fail."""

    name: str
    apply: FaultAction
    simpler: tuple[str, ...] = ()
    needs: FaultCondition = any_process


_kinds: dict[str, FaultKind] = {}


def fault_kind(
    name: str, *, simpler: tuple[str, ...] = ("kill",), needs: FaultCondition = any_process
) -> Callable[[FaultAction], FaultAction]:
    """Add a kind of fault: ``@fault_kind("forget")`` on a function that is given the `FaultContext`.

    It is called in no process and must not wait. `needs` says of a process why it cannot happen to that one, or None.
    """

    def add(happen: FaultAction) -> FaultAction:
        if name in _kinds:
            raise ValueError(f"there is a kind of fault called {name!r} already")
        _kinds[name] = FaultKind(name, happen, tuple(each for each in simpler if each != name), needs)
        return happen

    return add


def fault_kinds() -> tuple[str, ...]:
    """The names of all kinds."""
    return tuple(_kinds)


def kind_of(name: str) -> FaultKind:
    """The kind of that name."""
    kind = _kinds.get(name)
    if kind is None:
        raise LookupError(f"there is no kind of fault called {name!r}, but {', '.join(_kinds)}")
    return kind


# --- deaths


@fault_kind("kill")
def _kill(context: FaultContext) -> None:
    """It is killed."""
    lifecycle.kill(context.process)


@fault_kind("exit")
def _exit(context: FaultContext) -> None:
    """It gets an exit signal with `reason`: normal, shutdown, killed, or any words for a crash."""
    process = context.process
    lifecycle.signal(process, process.node.root_pid(), _reason(context))


def _reason(context: FaultContext) -> ExitReason:
    match context.fault.reason:
        case "normal":
            return NORMAL
        case "shutdown" | None:
            return SHUTDOWN
        case "killed":
            return KILLED
        case words if words.startswith("shutdown: "):
            return Shutdown(words.removeprefix("shutdown: "))
        case _:
            return Crash(context.error())


@fault_kind("crash")
def _crash(context: FaultContext) -> None:
    """Its code raises at once, outside its handlers."""
    context.process.crash(context.error())


@fault_kind("stop")
def _stop(context: FaultContext) -> None:
    """It is stopped in order, with `reason` or normally; a process that is no server is told to shut down."""
    process = context.process
    if isinstance(process.behaviour.inner, CallbackServer):
        process.deliver_exempt((STOP, NORMAL if context.fault.reason is None else _reason(context)))
    else:
        lifecycle.signal(process, process.node.root_pid(), SHUTDOWN)


@fault_kind("raise", simpler=("kill", "crash"), needs=needs_handlers)
def _raise(context: FaultContext) -> None:
    """The handler of its next message raises."""

    def intercept(_: Callable[[], Any]) -> object:
        raise context.error()

    context.intercept_handler(intercept)


@fault_kind("task_exit", simpler=("kill", "crash"), needs=needs_own_tasks)
def _task_exit(context: FaultContext) -> None:
    """A task of it raises `SystemExit`."""
    process = context.process

    async def leave() -> None:
        raise SystemExit(context.fault.reason or context.fault.what)

    # The process holds on to the task: it owns all that is started in its context.
    _ = process.node.loop.create_task(leave(), name=f"fault of {process}", context=process.own_context())


# --- those that hold up


@fault_kind("hang", needs=needs_handlers)
def _hang(context: FaultContext) -> None:
    """The handler of its next message waits for `seconds`, or for ever, before it does what it should."""
    context.intercept_handler(lambda handle: _handle_late(context, handle, stubborn=False))


@fault_kind("swallow", simpler=("hang", "kill"), needs=needs_handlers)
def _swallow(context: FaultContext) -> None:
    """As `hang`, and the handler swallows each cancellation."""
    context.intercept_handler(lambda handle: _handle_late(context, handle, stubborn=True))


async def _handle_late(context: FaultContext, handle: Callable[[], Any], *, stubborn: bool) -> Any:
    loop = context.process.node.loop
    seconds = context.fault.seconds
    until = None if seconds is None else loop.time() + seconds
    while not context.holds.is_over and (until is None or loop.time() < until):
        try:
            await context.holds.wait(until)
        except asyncio.CancelledError:
            if not stubborn:
                raise
    if context.process.life:
        return None  # it was abandoned
    value: Any = handle()
    return await value if inspect.iscoroutine(value) else value


@fault_kind("block", simpler=("hang", "kill"), needs=needs_handlers)
def _block(context: FaultContext) -> None:
    """The handler of its next message blocks the event loop, for so many real `seconds`."""

    def intercept(handle: Callable[[], Any]) -> object:
        time.sleep(BLOCK_SECONDS if context.fault.seconds is None else context.fault.seconds)
        return handle()

    context.intercept_handler(intercept)


@fault_kind("suspend", needs=needs_handlers)
def _suspend(context: FaultContext) -> None:
    """It is suspended for `seconds`, and goes on with what came meanwhile."""
    _send_system_message(context, lambda server: server._otp_suspend())
    seconds = SUSPEND_SECONDS if context.fault.seconds is None else context.fault.seconds
    node = context.process.node
    node.loop.call_later(seconds, _resume, context, context=node.context)


@fault_kind("resume", needs=needs_handlers)
def _resume(context: FaultContext) -> None:
    """It is resumed, if it was suspended."""
    if not context.process.life:
        _send_system_message(context, lambda server: server._otp_resume())


def _send_system_message(context: FaultContext, look: Callable[[CallbackServer], object]) -> None:
    process = context.process
    process.deliver_exempt((SYSTEM, look, Caller[Any](process.node, None, None)))


@fault_kind("unlink", needs=needs_parent_link)
def _unlink(context: FaultContext) -> None:
    """The link between it and its parent is lost: neither hears of the other's end."""
    process = context.process
    assert process.parent is not None  # as `needs_parent_link` has seen
    links.unlink(process, process.parent)


# --- messages that go astray


@fault_kind("drop", simpler=())
def _drop(context: FaultContext) -> None:
    """The next `count` messages to it are lost; their senders do not know."""
    context.tap_mailbox(lambda entry, pass_on: True)  # noqa: ARG005 - neither is used: that is what it does


@fault_kind("delay", simpler=("drop",))
def _delay(context: FaultContext) -> None:
    """The next `count` messages to it come later by so many `seconds`, behind others."""
    seconds = DELAY_SECONDS if context.fault.seconds is None else context.fault.seconds
    node = context.process.node

    def change(entry: MailboxEntry, pass_on: PassOn) -> bool:
        node.loop.call_later(seconds, pass_on, entry, context=node.context)
        return True

    context.tap_mailbox(change)


@fault_kind("duplicate", simpler=("drop",))
def _duplicate(context: FaultContext) -> None:
    """The next `count` messages to it come twice; the second answer to a call goes nowhere."""

    def change(entry: MailboxEntry, pass_on: PassOn) -> bool:
        delivered = pass_on(entry)
        again: Any = entry[-1]
        if isinstance(again, Caller):
            again = Caller[Any](context.process.node, None, again.process)
        pass_on((*entry[:-1], again))
        return delivered

    context.tap_mailbox(change)


# --- What an injection holds until it is over: handlers that wait, and traps that are set and have not gone off.


class FaultHolds:
    """Handlers wait in here; when all is over they go on, so that no code is left behind that cannot be ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing is held."""
        self.loop = loop
        self.is_over = False
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._ends: list[Callable[[], object]] = []
        self._finished: asyncio.Future[None] = loop.create_future()

    def on_close(self, end: Callable[[], object]) -> None:
        """Have `end` called when all is over."""
        if self.is_over:
            end()
        else:
            self._ends.append(end)

    async def wait(self, until: float | None) -> None:
        """Wait until then, by the loop's clock, or until all is over."""
        future: asyncio.Future[None] = self.loop.create_future()
        self._waiting[future] = None
        timer = None if until is None else self.loop.call_at(until, _wake, future)
        try:
            await future
        finally:
            self._waiting.pop(future, None)
            if timer is not None:
                timer.cancel()

    def finish(self) -> None:
        """Nothing new will happen; what is held is held on."""
        _wake(self._finished)

    async def finished(self, timeout: float | None) -> bool:
        """Wait until nothing new will happen; whether that came in time."""
        done, _ = await asyncio.wait((self._finished,), timeout=timeout)
        return bool(done)

    def close(self) -> None:
        """All is over."""
        self.is_over = True
        for end in self._ends:
            end()
        self._ends.clear()
        for future in (self._finished, *self._waiting):
            _wake(future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# --- Makes the next handler of a server go wrong: it stands before the behaviour until the next message, then goes.
# Several stand in a row and each takes a message of its own, in the order in which they came. Each also taps the mailbox,
# so that no call passes it by.

# ruff: noqa: SLF001 - it stands where the engine expects a behaviour


HANDLED_KINDS: Final = frozenset((CAST, CALL, ASK, TELL, INFO))
"""The kinds of entries that a sender sends and a handler deals with."""


class HandlerInterceptor(Behaviour):
    """Passes everything on, but the next message to `trick`, with a function that handles it as it should be."""

    __slots__ = ("_process", "_trick", "_untap", "next")

    def __init__(self, process: Process, intercept: Callable[[Callable[[], Any]], object]) -> None:
        """It begins its work at once."""
        self._process = process
        self._trick: Callable[[Callable[[], Any]], object] | None = intercept
        last: HandlerInterceptor | None = None
        behaviour: Behaviour = process.behaviour
        while isinstance(behaviour, HandlerInterceptor):
            last, behaviour = behaviour, behaviour.next
        self.next: Behaviour = behaviour
        if last is None:
            process.behaviour = self
        else:
            last.next = self
        self._untap = tap_mailbox(process, lambda _, entry, pass_on: pass_on(entry))

    @property
    def inner(self) -> Behaviour:
        """The server itself."""
        return self.next.inner

    def remove(self) -> None:
        """Go, if it is there still."""
        self._trick = None
        self._untap()
        before: Any = None
        step: Any = self._process.behaviour
        while step is not None and step is not self:
            before, step = step, getattr(step, "next", None)
        if step is self and before is None:
            self._process.behaviour = self.next
        elif step is self:
            before.next = self.next

    def _otp_handle(self, entry: MailboxEntry) -> object:
        intercept = self._trick
        server = self.inner
        suspended = isinstance(server, CallbackServer) and server._otp_deferred is not None
        if intercept is None or entry[0] not in HANDLED_KINDS or suspended:
            return self.next._otp_handle(entry)
        self.remove()
        behaviour = self.next
        while isinstance(behaviour, HandlerInterceptor):
            behaviour = behaviour.next
        return intercept(lambda: behaviour._otp_handle(entry))

    def _otp_on_return(self, entry: MailboxEntry, value: object) -> None:
        self.next._otp_on_return(entry, value)

    def _otp_on_error(self, entry: MailboxEntry, error: BaseException) -> None:
        self.next._otp_on_error(entry, error)

    def _otp_report(self, error: BaseException) -> None:
        self.next._otp_report(error)

    def _otp_on_exit(self, reason: ExitReason) -> None:
        self.next._otp_on_exit(reason)


# --- Taps: functions that see, hold back or change what is put into a process's mailbox, without the process knowing.
# A tapped process is of a class of its own that differs in one method, so it costs the others nothing. While anything in a
# node is tapped, all its calls go through mailboxes, as they do under a seed: a call that is answered on the spot passes
# none.

PassOn: TypeAlias = "Callable[[MailboxEntry], bool]"
Tap: TypeAlias = "Callable[[Process, MailboxEntry, PassOn], bool]"
"""Called with each entry, and with a function that passes it on; returns what the sender is told: whether it was taken."""


class _Taps:
    """All taps of one node, and what the node was like before."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.by_process: dict[Process, tuple[Tap, ...]] = {}
        self._budget: int | None = None

    def disable_inline_calls(self) -> None:
        """From now on each call passes a mailbox."""
        if self._budget is None:
            self._budget = self.node.inline_budget
            self.node.inline_budget = self.node.inline_left = 0

    def forget(self, process: Process) -> None:
        """It is gone, and its taps with it."""
        self.by_process.pop(process, None)
        self.restore_inline_calls()

    def restore_inline_calls(self) -> None:
        """As before, if nothing is tapped."""
        if self._budget is not None and not self.by_process:
            self.node.inline_budget = self.node.inline_left = self._budget
            self._budget = None


def _taps_of(node: Node) -> _Taps:
    taps: _Taps | None = vars(node).get("_taps")
    if taps is None:
        taps = vars(node)["_taps"] = _Taps(node)  # in the node itself, so that it ends with it
    return taps


class _Tapped(Process):
    """A process with taps before its mailbox."""

    __slots__ = ()

    def deliver(self, entry: MailboxEntry) -> bool:
        return _pass_through_taps(self, _taps_of(self.node).by_process.get(self, ()), entry)


def _pass_through_taps(process: Process, taps: tuple[Tap, ...], entry: MailboxEntry) -> bool:
    if taps:
        return taps[0](process, entry, lambda passed: _pass_through_taps(process, taps[1:], passed))
    delivered = Process.deliver(process, entry)
    process.fast_append = None  # the short way for casts, which knows of no tap
    return delivered


@dataclass(frozen=True, slots=True, eq=False)
class ExitCallback:
    """Waits for the death of a process, and hears of it before the callers that wait for its answers."""

    callback: Callable[[ExitReason], object]

    def on_exit(self, reason: ExitReason) -> None:
        """It is gone."""
        self.callback(reason)


def tap_mailbox(process: Process, by: Tap, *, first: bool = False) -> Callable[[], None]:
    """Have `by` called with each entry for that mailbox, behind the taps that came before it; the returned function ends that."""
    if process.life == GONE:
        return lambda: None
    taps = _taps_of(process.node)
    before = taps.by_process.get(process)
    if before is None:
        process.__class__ = _Tapped
        process.fast_append = None
        process.add_exit_waiter(ExitCallback(lambda _: taps.forget(process)))
        before = ()
    taps.by_process[process] = (by, *before) if first else (*before, by)
    taps.disable_inline_calls()

    def untap() -> None:
        left = tuple(each for each in taps.by_process.get(process, ()) if each is not by)
        if left:
            taps.by_process[process] = left
        elif taps.by_process.pop(process, None) is not None:
            taps.restore_inline_calls()

    return untap
