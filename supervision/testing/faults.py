"""The kinds of faults: what each of them does to a process, by name. Anybody may add one with `fault_kind`."""

from __future__ import annotations

import asyncio
import inspect
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from greenroom.supervision.behaviours.caller import Caller
from greenroom.supervision.behaviours.server import Server
from greenroom.supervision.kernel import exits, links
from greenroom.supervision.kernel.messages import STOP, SYSTEM, Entry
from greenroom.supervision.kernel.reasons import KILLED, NORMAL, SHUTDOWN, Crash, ExitReason, Shutdown

from .sabotage import HANDLED, Saboteur
from .taps import tap

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.kernel.process import Process

    from .holding import Holding
    from .plans import Fault
    from .taps import PassOn

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
    """It can happen to what has handlers."""
    return None if isinstance(process.behaviour.inner, Server) else f"{process} is no server: it has no handlers"


def a_child(process: Process) -> str | None:
    """It can happen to whoever is linked to its parent."""
    linked = process.parent is not None and process.parent in tuple(links.linked(process))
    return None if linked else f"{process} is not linked to whoever started it"


def an_owner(process: Process) -> str | None:
    """It can happen to whoever may start tasks of its own."""
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
    exits.kill(moment.process)


@fault_kind("exit")
def _exit(moment: Moment) -> None:
    """Somebody sends it an exit signal with `reason`: normal, shutdown, killed, or any words for a crash."""
    process = moment.process
    exits.signal(process, process.node.root_pid(), _reason(moment))


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
    """Somebody stops it in order, with `reason` or normally; what is no server is told to shut down."""
    process = moment.process
    if isinstance(process.behaviour.inner, Server):
        process.deliver_exempt((STOP, NORMAL if moment.fault.reason is None else _reason(moment)))
    else:
        exits.signal(process, process.node.root_pid(), SHUTDOWN)


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

    # Who holds on to it is the process, which owns whatever is started in its context.
    _ = process.node.loop.create_task(leave(), name=f"fault of {process}", context=process.own_context())


# --- those that hold up


@fault_kind("hang", needs=a_server)
def _hang(moment: Moment) -> None:
    """The handler of its next message waits for `seconds`, or for ever, before it does what it should."""
    moment.sabotage(lambda handle: _late(moment, handle, stubborn=False))


@fault_kind("swallow", simpler=("hang", "kill"), needs=a_server)
def _swallow(moment: Moment) -> None:
    """As `hang`, and whoever cancels it is not heard."""
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
    _system(moment, lambda server: server._otp_set_aside())  # noqa: SLF001 - as introspect does it
    seconds = SUSPENDED if moment.fault.seconds is None else moment.fault.seconds
    node = moment.process.node
    node.loop.call_later(seconds, _resume, moment, context=node.context)


@fault_kind("resume", needs=a_server)
def _resume(moment: Moment) -> None:
    """It is resumed, if it was suspended."""
    if not moment.process.life:
        _system(moment, lambda server: server._otp_take_up())  # noqa: SLF001 - as introspect does it


def _system(moment: Moment, look: Callable[[Server], object]) -> None:
    process = moment.process
    process.deliver_exempt((SYSTEM, look, Caller[Any](process.node, None, None)))


@fault_kind("unlink", needs=a_child)
def _unlink(moment: Moment) -> None:
    """The link between it and whoever started it is lost: neither hears of the other's end."""
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
