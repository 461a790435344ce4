"""The kinds of faults: what each of them does to a process, by name. `fault_kind` adds one."""

from __future__ import annotations

import asyncio
import inspect
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from greenroom.supervision.behaviours.caller import Caller
from greenroom.supervision.behaviours.gen_server import Server
from greenroom.supervision.kernel import links
from greenroom.supervision.kernel import process as cell
from greenroom.supervision.kernel.messages import (
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
    Entry,
    ExitReason,
    Shutdown,
)
from greenroom.supervision.kernel.process import GONE, Behaviour, Process

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.kernel.node import Node

    from .plans import Fault

BLOCKED: Final = 0.01  # real seconds for which `block` blocks the loop unless told otherwise
SUSPENDED: Final = 1.0  # seconds after which `suspend` lets go, unless told otherwise
DELAYED: Final = 1.0  # seconds by which `delay` is late, unless told otherwise


class InjectedFault(Exception):
    """What a fault raises in a process; it says which fault it was."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What a kind is given: the fault, whom it happens to, and the injection, which lets go of what it holds when it ends."""

    fault: Fault
    process: Process
    holding: Holding

    def error(self) -> InjectedFault:
        """What to raise."""
        return InjectedFault(self.fault.reason or self.fault.what)

    def sabotage(self, trick: Callable[[Callable[[], Any]], object]) -> None:
        """Have `trick` called instead of the next handler; it is given a function that does what should be done."""
        self.holding.until_over(Saboteur(self.process, trick).leave)

    def tap(self, change: Callable[[Entry, PassOn], bool]) -> None:
        """Have `change` called with each of the next `count` messages (1 unless told otherwise), and what passes it on."""
        left = self.fault.count or 1

        def one(process: Process, entry: Entry, pass_on: PassOn) -> bool:  # noqa: ARG001 - as taps are called
            nonlocal left
            if entry[0] not in HANDLED:
                return pass_on(entry)
            left -= 1
            if not left:
                untap()
            return change(entry, pass_on)

        untap = tap(self.process, one)
        self.holding.until_over(untap)


Happening: TypeAlias = "Callable[[Moment], None]"
Need: TypeAlias = "Callable[[Process], str | None]"
"""Says why a fault cannot happen to a process, if it cannot."""


def anybody(_: Process) -> str | None:
    """It can happen to every process."""
    return None


def a_server(process: Process) -> str | None:
    """It can happen to a process that has handlers."""
    return None if isinstance(process.behaviour.inner, Server) else f"{process} is no server: it has no handlers"


def a_child(process: Process) -> str | None:
    """It can happen to a process that is linked to its parent."""
    linked = process.parent is not None and process.parent in tuple(links.linked(process))
    return None if linked else f"{process} is not linked to whoever started it"


def an_owner(process: Process) -> str | None:
    """It can happen to a process that may start tasks of its own."""
    return None if process.adopts else f"{process} owns no tasks"


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind: what it does, and which kinds are simpler, should they do as well where it made a test fail."""

    name: str
    happen: Happening
    simpler: tuple[str, ...] = ()
    needs: Need = anybody


_kinds: dict[str, FaultKind] = {}


def fault_kind(
    name: str, *, simpler: tuple[str, ...] = ("kill",), needs: Need = anybody
) -> Callable[[Happening], Happening]:
    """Add a kind of fault: ``@fault_kind("forget")`` on a function that is given the `Moment`.

    It is called in no process and must not wait. `needs` says of a process why it cannot happen to that one, or None.
    """

    def add(happen: Happening) -> Happening:
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
def _kill(moment: Moment) -> None:
    """It is killed."""
    cell.kill(moment.process)


@fault_kind("exit")
def _exit(moment: Moment) -> None:
    """It gets an exit signal with `reason`: normal, shutdown, killed, or any words for a crash."""
    process = moment.process
    cell.signal(process, process.node.root_pid(), _reason(moment))


def _reason(moment: Moment) -> ExitReason:
    match moment.fault.reason:
        case "normal":
            return NORMAL
        case "shutdown" | None:
            return SHUTDOWN
        case "killed":
            return KILLED
        case words if words.startswith("shutdown: "):
            return Shutdown(words.removeprefix("shutdown: "))
        case _:
            return Crash(moment.error())


@fault_kind("crash")
def _crash(moment: Moment) -> None:
    """Its code raises at once, outside its handlers."""
    moment.process.crash(moment.error())


@fault_kind("stop")
def _stop(moment: Moment) -> None:
    """It is stopped in order, with `reason` or normally; a process that is no server is told to shut down."""
    process = moment.process
    if isinstance(process.behaviour.inner, Server):
        process.deliver_exempt((STOP, NORMAL if moment.fault.reason is None else _reason(moment)))
    else:
        cell.signal(process, process.node.root_pid(), SHUTDOWN)


@fault_kind("raise", simpler=("kill", "crash"), needs=a_server)
def _raise(moment: Moment) -> None:
    """The handler of its next message raises."""

    def trick(_: Callable[[], Any]) -> object:
        raise moment.error()

    moment.sabotage(trick)


@fault_kind("task_exit", simpler=("kill", "crash"), needs=an_owner)
def _task_exit(moment: Moment) -> None:
    """A task of it raises `SystemExit`."""
    process = moment.process

    async def leave() -> None:
        raise SystemExit(moment.fault.reason or moment.fault.what)

    # The process holds on to the task: it owns all that is started in its context.
    _ = process.node.loop.create_task(leave(), name=f"fault of {process}", context=process.own_context())


# --- those that hold up


@fault_kind("hang", needs=a_server)
def _hang(moment: Moment) -> None:
    """The handler of its next message waits for `seconds`, or for ever, before it does what it should."""
    moment.sabotage(lambda handle: _late(moment, handle, stubborn=False))


@fault_kind("swallow", simpler=("hang", "kill"), needs=a_server)
def _swallow(moment: Moment) -> None:
    """As `hang`, and the handler swallows each cancellation."""
    moment.sabotage(lambda handle: _late(moment, handle, stubborn=True))


async def _late(moment: Moment, handle: Callable[[], Any], *, stubborn: bool) -> Any:
    loop = moment.process.node.loop
    seconds = moment.fault.seconds
    until = None if seconds is None else loop.time() + seconds
    while not moment.holding.over and (until is None or loop.time() < until):
        try:
            await moment.holding.wait(until)
        except asyncio.CancelledError:
            if not stubborn:
                raise
    if moment.process.life:
        return None  # it was abandoned
    value: Any = handle()
    return await value if inspect.iscoroutine(value) else value


@fault_kind("block", simpler=("hang", "kill"), needs=a_server)
def _block(moment: Moment) -> None:
    """The handler of its next message blocks the event loop, for so many real `seconds`."""

    def trick(handle: Callable[[], Any]) -> object:
        time.sleep(BLOCKED if moment.fault.seconds is None else moment.fault.seconds)
        return handle()

    moment.sabotage(trick)


@fault_kind("suspend", needs=a_server)
def _suspend(moment: Moment) -> None:
    """It is suspended for `seconds`, and goes on with what came meanwhile."""
    _system(moment, lambda server: server._otp_set_aside())
    seconds = SUSPENDED if moment.fault.seconds is None else moment.fault.seconds
    node = moment.process.node
    node.loop.call_later(seconds, _resume, moment, context=node.context)


@fault_kind("resume", needs=a_server)
def _resume(moment: Moment) -> None:
    """It is resumed, if it was suspended."""
    if not moment.process.life:
        _system(moment, lambda server: server._otp_take_up())


def _system(moment: Moment, look: Callable[[Server], object]) -> None:
    process = moment.process
    process.deliver_exempt((SYSTEM, look, Caller[Any](process.node, None, None)))


@fault_kind("unlink", needs=a_child)
def _unlink(moment: Moment) -> None:
    """The link between it and its parent is lost: neither hears of the other's end."""
    process = moment.process
    assert process.parent is not None  # as `a_child` has seen
    links.part(process, process.parent)


# --- messages that go astray


@fault_kind("drop", simpler=())
def _drop(moment: Moment) -> None:
    """The next `count` messages to it are lost; their senders do not know."""
    moment.tap(lambda entry, pass_on: True)  # noqa: ARG005 - neither is used: that is what it does


@fault_kind("delay", simpler=("drop",))
def _delay(moment: Moment) -> None:
    """The next `count` messages to it come later by so many `seconds`, behind others."""
    seconds = DELAYED if moment.fault.seconds is None else moment.fault.seconds
    node = moment.process.node

    def change(entry: Entry, pass_on: PassOn) -> bool:
        node.loop.call_later(seconds, pass_on, entry, context=node.context)
        return True

    moment.tap(change)


@fault_kind("duplicate", simpler=("drop",))
def _duplicate(moment: Moment) -> None:
    """The next `count` messages to it come twice; the second answer to a call goes nowhere."""

    def change(entry: Entry, pass_on: PassOn) -> bool:
        delivered = pass_on(entry)
        again: Any = entry[-1]
        if isinstance(again, Caller):
            again = Caller[Any](moment.process.node, None, again.process)
        pass_on((*entry[:-1], again))
        return delivered

    moment.tap(change)


# --- What an injection holds until it is over: handlers that wait, and traps that are set and have not gone off.


class Holding:
    """Handlers wait in here; when all is over they go on, so that no code is left behind that cannot be ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing is held."""
        self.loop = loop
        self.over = False
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._ends: list[Callable[[], object]] = []
        self._nothing_left: asyncio.Future[None] = loop.create_future()

    def until_over(self, end: Callable[[], object]) -> None:
        """Have `end` called when all is over."""
        if self.over:
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
        _wake(self._nothing_left)

    async def finished(self, timeout: float | None) -> bool:
        """Wait until nothing new will happen; whether that came in time."""
        done, _ = await asyncio.wait((self._nothing_left,), timeout=timeout)
        return bool(done)

    def close(self) -> None:
        """All is over."""
        self.over = True
        for end in self._ends:
            end()
        self._ends.clear()
        for future in (self._nothing_left, *self._waiting):
            _wake(future)


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


# --- Makes the next handler of a server go wrong: it stands before the behaviour until the next message, then goes.
# Several stand in a row and each takes a message of its own, in the order in which they came. Each also taps the mailbox,
# so that no call passes it by.

# ruff: noqa: SLF001 - it stands where the engine expects a behaviour


HANDLED: Final = frozenset((CAST, CALL, ASK, TELL, INFO))
"""The kinds of entries that a sender sends and a handler deals with."""


class Saboteur(Behaviour):
    """Passes everything on, but the next message to `trick`, with a function that handles it as it should be."""

    __slots__ = ("_process", "_trick", "_untap", "next")

    def __init__(self, process: Process, trick: Callable[[Callable[[], Any]], object]) -> None:
        """It begins its work at once."""
        self._process = process
        self._trick: Callable[[Callable[[], Any]], object] | None = trick
        last: Saboteur | None = None
        behaviour: Behaviour = process.behaviour
        while isinstance(behaviour, Saboteur):
            last, behaviour = behaviour, behaviour.next
        self.next: Behaviour = behaviour
        if last is None:
            process.behaviour = self
        else:
            last.next = self
        self._untap = tap(process, lambda _, entry, pass_on: pass_on(entry))

    @property
    def inner(self) -> Behaviour:
        """The server itself."""
        return self.next.inner

    def leave(self) -> None:
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

    def _otp_handle(self, entry: Entry) -> object:
        trick = self._trick
        server = self.inner
        suspended = isinstance(server, Server) and server._otp_kept is not None
        if trick is None or entry[0] not in HANDLED or suspended:
            return self.next._otp_handle(entry)
        self.leave()
        behaviour = self.next
        while isinstance(behaviour, Saboteur):
            behaviour = behaviour.next
        return trick(lambda: behaviour._otp_handle(entry))

    def _otp_done(self, entry: Entry, value: object) -> None:
        self.next._otp_done(entry, value)

    def _otp_failed(self, entry: Entry, error: BaseException) -> None:
        self.next._otp_failed(entry, error)

    def _otp_report(self, error: BaseException) -> None:
        self.next._otp_report(error)

    def _otp_exiting(self, reason: ExitReason) -> None:
        self.next._otp_exiting(reason)


# --- Taps: functions that see, hold back or change what is put into a process's mailbox, without the process knowing.
# A tapped process is of a class of its own that differs in one method, so it costs the others nothing. While anything in a
# node is tapped, all its calls go through mailboxes, as they do under a seed: a call that is answered on the spot passes
# none.

PassOn: TypeAlias = "Callable[[Entry], bool]"
Tap: TypeAlias = "Callable[[Process, Entry, PassOn], bool]"
"""Called with each entry, and with a function that passes it on; returns what the sender is told: whether it was taken."""


class _Taps:
    """All taps of one node, and what the node was like before."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.by_process: dict[Process, tuple[Tap, ...]] = {}
        self._budget: int | None = None

    def hold(self) -> None:
        """From now on each call passes a mailbox."""
        if self._budget is None:
            self._budget = self.node.inline_budget
            self.node.inline_budget = self.node.inline_left = 0

    def forget(self, process: Process) -> None:
        """It is gone, and its taps with it."""
        self.by_process.pop(process, None)
        self.let_go()

    def let_go(self) -> None:
        """As before, if nothing is tapped."""
        if self._budget is not None and not self.by_process:
            self.node.inline_budget = self.node.inline_left = self._budget
            self._budget = None


def _of(node: Node) -> _Taps:
    taps: _Taps | None = vars(node).get("_taps")
    if taps is None:
        taps = vars(node)["_taps"] = _Taps(node)  # in the node itself, so that it ends with it
    return taps


class _Tapped(Process):
    """A process with taps before its mailbox."""

    __slots__ = ()

    def deliver(self, entry: Entry) -> bool:
        return _pass(self, _of(self.node).by_process.get(self, ()), entry)


def _pass(process: Process, taps: tuple[Tap, ...], entry: Entry) -> bool:
    if taps:
        return taps[0](process, entry, lambda passed: _pass(process, taps[1:], passed))
    delivered = Process.deliver(process, entry)
    process.quick = None  # the short way for casts, which knows of no tap
    return delivered


@dataclass(frozen=True, slots=True, eq=False)
class AtDeath:
    """Waits for the death of a process, and hears of it before the callers that wait for its answers."""

    tell: Callable[[ExitReason], object]

    def exited(self, reason: ExitReason) -> None:
        """It is gone."""
        self.tell(reason)


def tap(process: Process, by: Tap, *, first: bool = False) -> Callable[[], None]:
    """Have `by` called with each entry for that mailbox, behind the taps that came before it; the returned function ends that."""
    if process.life == GONE:
        return lambda: None
    taps = _of(process.node)
    before = taps.by_process.get(process)
    if before is None:
        process.__class__ = _Tapped
        process.quick = None
        process.await_death(AtDeath(lambda _: taps.forget(process)))
        before = ()
    taps.by_process[process] = (by, *before) if first else (*before, by)
    taps.hold()

    def untap() -> None:
        left = tuple(each for each in taps.by_process.get(process, ()) if each is not by)
        if left:
            taps.by_process[process] = left
        elif taps.by_process.pop(process, None) is not None:
            taps.let_go()

    return untap
