"""The kinds of faults, by name, and how each is done to a process. `fault_kind` adds one."""

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

BLOCK_SECONDS: Final = 0.01  # real seconds for which `block` blocks the loop, by default
SUSPEND_SECONDS: Final = 1.0  # seconds after which `suspend` resumes, by default
DELAY_SECONDS: Final = 1.0  # seconds by which `delay` delays, by default


class InjectedFault(Exception):
    """The exception that a fault raises in a process; its text names the fault."""


@dataclass(frozen=True, slots=True)
class FaultContext:
    """The argument of a fault's action: the fault, the process, and what the injection holds until it ends."""

    fault: Fault
    process: Process
    holds: FaultHolds

    def error(self) -> InjectedFault:
        """The exception to raise."""
        return InjectedFault(self.fault.reason or self.fault.what)

    def intercept_handler(self, intercept: Callable[[Callable[[], Any]], object]) -> None:
        """Call `intercept` instead of the next handler, with a function that runs the handler."""
        self.holds.on_close(HandlerInterceptor(self.process, intercept).remove)

    def tap_mailbox(self, change: Callable[[MailboxEntry, PassOn], bool]) -> None:
        """Call `change` with each of the next `count` messages (1 by default), and with a function that delivers it."""
        left = self.fault.count or 1

        def one(process: Process, entry: MailboxEntry, pass_on: PassOn) -> bool:  # noqa: ARG001 - the signature of a tap
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
"""Returns why the fault cannot be applied to a process, or None."""


def any_process(_: Process) -> str | None:
    """For faults that apply to every process."""
    return None


def needs_handlers(process: Process) -> str | None:
    """For faults in a handler."""
    return (
        None
        if isinstance(process.behaviour.inner, CallbackServer)
        else f"{process} is not a server: it has no handlers"
    )


def needs_parent_link(process: Process) -> str | None:
    """For faults in the link to the parent."""
    linked = process.parent is not None and process.parent in tuple(links.linked(process))
    return None if linked else f"{process} is not linked to its parent"


def needs_own_tasks(process: Process) -> str | None:
    """For faults in a task of the process."""
    return None if process.owns_tasks else f"{process} owns no tasks"


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault. `simpler` names the kinds to try when a failing plan is shrunk."""

    name: str
    apply: FaultAction
    simpler: tuple[str, ...] = ()
    needs: FaultCondition = any_process


_kinds: dict[str, FaultKind] = {}


def fault_kind(
    name: str, *, simpler: tuple[str, ...] = ("kill",), needs: FaultCondition = any_process
) -> Callable[[FaultAction], FaultAction]:
    """Add a kind of fault: ``@fault_kind("forget")`` on a function of a `FaultContext`.

    The function is called outside any process and must not block. `needs` returns why the fault cannot be applied to a process, or None.

    """

    def add(happen: FaultAction) -> FaultAction:
        if name in _kinds:
            raise ValueError(f"the kind of fault {name!r} exists already")
        _kinds[name] = FaultKind(name, happen, tuple(each for each in simpler if each != name), needs)
        return happen

    return add


def fault_kinds() -> tuple[str, ...]:
    """The names of all kinds."""
    return tuple(_kinds)


def kind_of(name: str) -> FaultKind:
    """The kind of that name. Raises `LookupError`."""
    kind = _kinds.get(name)
    if kind is None:
        raise LookupError(f"there is no kind of fault called {name!r}, but {', '.join(_kinds)}")
    return kind


# --- faults that end the process


@fault_kind("kill")
def _kill(context: FaultContext) -> None:
    """Kill the process."""
    lifecycle.kill(context.process)


@fault_kind("exit")
def _exit(context: FaultContext) -> None:
    """Send an exit signal with `reason`: normal, shutdown, killed, or any text for a crash."""
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
    """Crash the process at once, outside its handlers."""
    context.process.crash(context.error())


@fault_kind("stop")
def _stop(context: FaultContext) -> None:
    """Stop the process in order, with `reason` or normally; a process that is not a server gets a shutdown signal."""
    process = context.process
    if isinstance(process.behaviour.inner, CallbackServer):
        process.deliver_exempt((STOP, NORMAL if context.fault.reason is None else _reason(context)))
    else:
        lifecycle.signal(process, process.node.root_pid(), SHUTDOWN)


@fault_kind("raise", simpler=("kill", "crash"), needs=needs_handlers)
def _raise(context: FaultContext) -> None:
    """The handler of the next message raises."""

    def intercept(_: Callable[[], Any]) -> object:
        raise context.error()

    context.intercept_handler(intercept)


@fault_kind("task_exit", simpler=("kill", "crash"), needs=needs_own_tasks)
def _task_exit(context: FaultContext) -> None:
    """A task of the process raises `SystemExit`."""
    process = context.process

    async def leave() -> None:
        raise SystemExit(context.fault.reason or context.fault.what)

    # The task needs no reference here: a process keeps all tasks that are created in its context.
    _ = process.node.loop.create_task(leave(), name=f"fault of {process}", context=process.own_context())


# --- faults that delay the process


@fault_kind("hang", needs=needs_handlers)
def _hang(context: FaultContext) -> None:
    """The handler of the next message waits for `seconds`, or for ever, before it runs."""
    context.intercept_handler(lambda handle: _handle_late(context, handle, stubborn=False))


@fault_kind("swallow", simpler=("hang", "kill"), needs=needs_handlers)
def _swallow(context: FaultContext) -> None:
    """Like `hang`, and the handler suppresses every cancellation."""
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
        return None  # the process has abandoned this handler
    value: Any = handle()
    return await value if inspect.iscoroutine(value) else value


@fault_kind("block", simpler=("hang", "kill"), needs=needs_handlers)
def _block(context: FaultContext) -> None:
    """The handler of the next message blocks the event loop for so many real `seconds`."""

    def intercept(handle: Callable[[], Any]) -> object:
        time.sleep(BLOCK_SECONDS if context.fault.seconds is None else context.fault.seconds)
        return handle()

    context.intercept_handler(intercept)


@fault_kind("suspend", needs=needs_handlers)
def _suspend(context: FaultContext) -> None:
    """Suspend the process for `seconds`; messages wait meanwhile."""
    _send_system_message(context, lambda server: server._otp_suspend())
    seconds = SUSPEND_SECONDS if context.fault.seconds is None else context.fault.seconds
    node = context.process.node
    node.loop.call_later(seconds, _resume, context, context=node.context)


@fault_kind("resume", needs=needs_handlers)
def _resume(context: FaultContext) -> None:
    """Resume the process, if it is suspended."""
    if not context.process.life:
        _send_system_message(context, lambda server: server._otp_resume())


def _send_system_message(context: FaultContext, look: Callable[[CallbackServer], object]) -> None:
    process = context.process
    process.deliver_exempt((SYSTEM, look, Caller[Any](process.node, None, None)))


@fault_kind("unlink", needs=needs_parent_link)
def _unlink(context: FaultContext) -> None:
    """Remove the link between the process and its parent, so that neither gets the other's exit signal."""
    process = context.process
    assert process.parent is not None  # checked by `needs_parent_link`
    links.unlink(process, process.parent)


# --- faults in message delivery


@fault_kind("drop", simpler=())
def _drop(context: FaultContext) -> None:
    """Drop the next `count` messages; their senders get no error."""
    context.tap_mailbox(lambda entry, pass_on: True)  # noqa: ARG005 - the message is not delivered


@fault_kind("delay", simpler=("drop",))
def _delay(context: FaultContext) -> None:
    """Deliver the next `count` messages `seconds` later, after others."""
    seconds = DELAY_SECONDS if context.fault.seconds is None else context.fault.seconds
    node = context.process.node

    def change(entry: MailboxEntry, pass_on: PassOn) -> bool:
        node.loop.call_later(seconds, pass_on, entry, context=node.context)
        return True

    context.tap_mailbox(change)


@fault_kind("duplicate", simpler=("drop",))
def _duplicate(context: FaultContext) -> None:
    """Deliver the next `count` messages twice; the second reply to a call is discarded."""

    def change(entry: MailboxEntry, pass_on: PassOn) -> bool:
        delivered = pass_on(entry)
        again: Any = entry[-1]
        if isinstance(again, Caller):
            again = Caller[Any](context.process.node, None, again.process)
        pass_on((*entry[:-1], again))
        return delivered

    context.tap_mailbox(change)


# --- What an injection holds until it ends: handlers that wait, and interceptors that have not been triggered.


class FaultHolds:
    """Handlers wait here. When the injection ends they continue, so that no code is left that cannot be ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing is held yet."""
        self.loop = loop
        self.is_over = False
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._ends: list[Callable[[], object]] = []
        self._finished: asyncio.Future[None] = loop.create_future()

    def on_close(self, end: Callable[[], object]) -> None:
        """Call `end` when the injection ends."""
        if self.is_over:
            end()
        else:
            self._ends.append(end)

    async def wait(self, until: float | None) -> None:
        """Wait until that time of the loop's clock, or until the injection ends."""
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
        """All faults have been injected; what is held stays held."""
        _wake(self._finished)

    async def finished(self, timeout: float | None) -> bool:
        """Wait until all faults have been injected. Returns False on a timeout."""
        done, _ = await asyncio.wait((self._finished,), timeout=timeout)
        return bool(done)

    def close(self) -> None:
        """End the injection: release everything."""
        self.is_over = True
        for end in self._ends:
            end()
        self._ends.clear()
        for future in (self._finished, *self._waiting):
            _wake(future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# --- Interception of a server's next handler: an interceptor replaces the process's behaviour until the next message, then removes itself.
# Several are chained, and each takes one message, in the order in which they were made. Each also taps the mailbox, so that no call bypasses it.
# The alternative, a hook in the engine's message loop, would cost every process of every program.

# ruff: noqa: SLF001 - the interceptor implements the engine's private interface of behaviours


HANDLED_KINDS: Final = frozenset((CAST, CALL, ASK, TELL, INFO))
"""The kinds of mailbox entries that handlers process."""


class HandlerInterceptor(Behaviour):
    """Passes everything on to `next`, except the next message, for which it calls `intercept` with a function that runs the handler."""

    __slots__ = ("_process", "_trick", "_untap", "next")

    def __init__(self, process: Process, intercept: Callable[[Callable[[], Any]], object]) -> None:
        """Installs itself at once."""
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
        """The server."""
        return self.next.inner

    def remove(self) -> None:
        """Remove itself, if still installed."""
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


# --- Taps: functions that observe, hold back or change the entries of a process's mailbox, without the process noticing.
# Installing a tap sets the process's `__class__` to `_Tapped`, which differs in `deliver`: untapped processes pay nothing, while a check for taps in
# `Process.deliver` would cost every message. As long as a process of a node is tapped, all its calls go through mailboxes, as they do with a seed,
# since a call that is run inline would bypass the tap.

PassOn: TypeAlias = "Callable[[MailboxEntry], bool]"
Tap: TypeAlias = "Callable[[Process, MailboxEntry, PassOn], bool]"
"""Called with each entry and a function that delivers it. Returns what the sender gets: whether the entry was accepted."""


class _Taps:
    """The taps of one node, and the setting that they change."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.by_process: dict[Process, tuple[Tap, ...]] = {}
        self._budget: int | None = None

    def disable_inline_calls(self) -> None:
        """Make all calls go through mailboxes."""
        if self._budget is None:
            self._budget = self.node.inline_budget
            self.node.inline_budget = self.node.inline_left = 0

    def forget(self, process: Process) -> None:
        """Remove the taps of a dead process."""
        self.by_process.pop(process, None)
        self.restore_inline_calls()

    def restore_inline_calls(self) -> None:
        """Allow inline calls again, if nothing is tapped."""
        if self._budget is not None and not self.by_process:
            self.node.inline_budget = self.node.inline_left = self._budget
            self._budget = None


def _taps_of(node: Node) -> _Taps:
    taps: _Taps | None = vars(node).get("_taps")
    if taps is None:
        taps = vars(node)["_taps"] = _Taps(node)  # stored in the node, so that it is freed with it
    return taps


class _Tapped(Process):
    """A process with taps on its mailbox."""

    __slots__ = ()

    def deliver(self, entry: MailboxEntry) -> bool:
        return _pass_through_taps(self, _taps_of(self.node).by_process.get(self, ()), entry)


def _pass_through_taps(process: Process, taps: tuple[Tap, ...], entry: MailboxEntry) -> bool:
    if taps:
        return taps[0](process, entry, lambda passed: _pass_through_taps(process, taps[1:], passed))
    delivered = Process.deliver(process, entry)
    process.fast_append = None  # removes the fast path for casts, which would bypass the taps
    return delivered


@dataclass(frozen=True, slots=True, eq=False)
class ExitCallback:
    """Calls a function when a process dies, before the callers of the process get their errors."""

    callback: Callable[[ExitReason], object]

    def on_exit(self, reason: ExitReason) -> None:
        """Call the function."""
        self.callback(reason)


def tap_mailbox(process: Process, by: Tap, *, first: bool = False) -> Callable[[], None]:
    """Call `by` with each entry for that mailbox, after the existing taps. Returns a function that removes the tap."""
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
