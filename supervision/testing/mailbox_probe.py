"""The probe: a process whose mailbox a test reads.

It records every message with its time. `expect` takes the next matching message and leaves the others, so that a test states what must arrive, in any order;
`expect_nothing` states what must not. A probe can stand in for any other process: it links, monitors, traps exits, answers calls when the test says so, and
exits on demand.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, overload

from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.kernel import api, clock
from greenroom.supervision.kernel import process as lifecycle
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.links import Monitor
from greenroom.supervision.kernel.process import DOZING, Behaviour
from greenroom.supervision.kernel.process_lookup import Via, current_node, register_process
from greenroom.supervision.kernel.process_messages import (
    ASK,
    CALL,
    CAST,
    INFO,
    NORMAL,
    SIGNAL,
    STOP,
    SYSTEM,
    TELL,
    Crash,
    Down,
    Exit,
    ExitReason,
    MailboxEntry,
    as_reason,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable

    from greenroom.supervision.behaviours.replies import Caller
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.process_messages import Pid

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

WITHIN = 1.0  # the default timeout of `expect`, by the loop's clock


@dataclass(frozen=True, slots=True)
class ReceivedAsk:
    """A request that came by `ask`; ``received.caller.reply(…)`` answers it."""

    request: Any
    caller: Caller[Any]


@dataclass(frozen=True, slots=True)
class ReceivedTell:
    """A request that came by `tell`."""

    request: Any


@dataclass(frozen=True, slots=True)
class ReceivedCall:
    """A call of a method reference; `caller` is None for a cast."""

    method: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    caller: Caller[Any] | None


class ReceivedMessage(NamedTuple):
    """A message, and its arrival by the loop's clock."""

    at: float
    message: Any


class ProbeCrash(Exception):
    """The default exception of `Probe.crash`."""


class _ProbeBehaviour(Behaviour):
    """The behaviour of a probe: passes every message to the test."""

    __slots__ = ("_end", "_process", "_record")

    owns_tasks = False

    def __init__(self, process: Process, record: Callable[[object], None], end: Callable[[], None]) -> None:
        self._process = process
        self._record = record
        self._end = end

    def _otp_handle(self, entry: MailboxEntry) -> object:
        kind = entry[0]
        if kind == SYSTEM:
            entry[2].reply(entry[1](self))
        elif kind == STOP:
            lifecycle.begin_exit(self._process, entry[1])
        elif kind in (INFO, SIGNAL):
            self._message(entry[1])
        elif kind == TELL:
            self._record(ReceivedTell(entry[1]))
        elif kind == ASK:
            self._record(ReceivedAsk(entry[1], entry[2]))
        elif kind in (CAST, CALL):
            self._record(ReceivedCall(entry[1], entry[2], entry[3], entry[4] if kind == CALL else None))
        return None

    def _message(self, message: object) -> None:
        node = self._process.node
        if type(message) is Exit and node.stopping and message.pid == node.root_pid():
            lifecycle.begin_exit(self._process, message.reason)  # the node is closing, which the probe must not trap
        else:
            self._record(message)

    def _otp_on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - the signature of behaviours
        self._end()


class Probe:
    """A recording process. Make it inside a node: ``probe = Probe()``. It ends with the node, or on demand."""

    def __init__(
        self, label: str = "probe", *, name: Hashable | Via | None = None, trap_exit: bool = True, later: bool = False
    ) -> None:
        """It traps exits by default; `name` registers it. With `later`, `begin` starts it."""
        self.label = label
        self.received: list[ReceivedMessage] = []
        """All messages, in order."""
        self._pending: list[ReceivedMessage] = []
        self._waiting: asyncio.Future[None] | None = None
        self._process: Process
        self._trap_exit = trap_exit
        self._name = name
        if not later:
            self.begin(current_node())

    def begin(self, node: Node) -> None:
        """Start the process in this node."""
        process = self._process = node.create(None, self.label)
        process.behaviour = _ProbeBehaviour(process, self._take, self._wake)
        process.trap_exit = self._trap_exit
        process.idle_activity = (
            DOZING  # no call runs inline, since there are no methods: every message goes through the mailbox
        )
        process.settle()
        if self._name is not None:
            register_process(process, self._name)

    # --- properties

    @property
    def pid(self) -> Pid:
        """Its pid."""
        return self._process.pid

    @property
    def ref(self) -> Ref[Any]:
        """A ref to it."""
        return Ref.of(self._process)

    @property
    def reason(self) -> ExitReason | None:
        """Its exit reason; None while it lives."""
        return self._process.reason

    @property
    def pending(self) -> list[Any]:
        """The messages that no `expect` has taken yet."""
        return [each.message for each in self._pending]

    def __repr__(self) -> str:
        return f"<Probe {self._process}{'' if self.reason is None else f', {self.reason}'}>"

    # --- received messages

    def _take(self, message: object) -> None:
        received = ReceivedMessage(clock.now(self._process.node.loop), message)
        self.received.append(received)
        self._pending.append(received)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    @overload
    async def expect(self, pattern: type[T], *where: Callable[[T], object], within: float = WITHIN) -> T: ...
    @overload
    async def expect(self, pattern: object, *where: Callable[[Any], object], within: float = WITHIN) -> Any: ...
    async def expect(self, pattern: object, *where: Callable[[Any], object], within: float = WITHIN) -> Any:
        """The next matching message, removed from `pending`; fails after `within` seconds without one.

        `pattern` is a class, a predicate, or an equal value; all predicates `where` must hold as well.

        """
        __tracebackhide__ = True
        deadline = clock.now(self._process.node.loop) + within
        seen = 0
        while True:
            for index in range(seen, len(self._pending)):
                if _matches(self._pending[index].message, pattern, where):
                    return self._pending.pop(index).message
            seen = len(self._pending)
            if self.reason is not None:
                raise AssertionError(
                    f"{self!r} cannot get {_pattern_text(pattern, where)} any more: it is dead{self._pending_text()}"
                )
            if not await self._wait_for_message(deadline):
                raise AssertionError(
                    f"{self!r} did not get {_pattern_text(pattern, where)} within {within:g} s{self._pending_text()}"
                )

    async def expect_nothing(
        self, pattern: object = object, *where: Callable[[Any], object], within: float = WITHIN
    ) -> None:
        """Fail as soon as a matching message arrives; return after `within` seconds without one."""
        __tracebackhide__ = True
        deadline = clock.now(self._process.node.loop) + within
        while True:
            for each in self._pending:
                if _matches(each.message, pattern, where):
                    what = "nothing" if pattern is object and not where else f"no {_pattern_text(pattern, where)}"
                    raise AssertionError(f"{self!r} expected {what}, and got {each.message!r}{self._pending_text()}")
            if self.reason is not None or not await self._wait_for_message(deadline):
                return

    async def expect_down(self, who: Monitor | object, *, within: float = WITHIN) -> ExitReason:
        """The reason in the `Down` message of a monitor, or of any monitor of that process."""
        __tracebackhide__ = True
        pid = None if isinstance(who, Monitor) else self._pid_of(who)
        down: Down = await self.expect(Down, lambda down: down.ref is who or down.pid == pid, within=within)
        return down.reason

    async def expect_exit(self, who: object, *, within: float = WITHIN) -> ExitReason:
        """The reason in the trapped exit signal of a process."""
        __tracebackhide__ = True
        pid = self._pid_of(who)
        exited: Exit = await self.expect(Exit, lambda exited: exited.pid == pid, within=within)
        return exited.reason

    def _pid_of(self, who: object) -> Pid | None:
        _, pid, name = api.resolve(self._process.node, who)
        if pid is None:
            raise ActorError(f"no process is registered as {name!r}: give the pid, or the monitor")
        return pid

    async def _wait_for_message(self, deadline: float) -> bool:
        """Wait for a message or the probe's exit. Returns False at the deadline."""
        loop = self._process.node.loop
        waiting = self._waiting = loop.create_future()
        timer = loop.call_at(deadline, waiting.cancel)
        try:
            await asyncio.wait((waiting,))
        finally:
            timer.cancel()
            self._waiting = None
        return not waiting.cancelled()

    def _pending_text(self) -> str:
        if not self._pending:
            return f"; {len(self.received)} messages came, and all were expected" if self.received else "; nothing came"
        return "; these came:" + "".join(f"\n  at {each.at:g} s: {each.message!r}" for each in self._pending)

    # --- actions

    def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in the context of this process, so that `link` or `send`, for example, act for the probe."""
        return self._process.own_context().run(function, *args, **kwargs)

    async def act(self, function: Callable[P, Coroutine[Any, Any, R]], *args: P.args, **kwargs: P.kwargs) -> R:
        """`run` for an async function: ``await probe.act(start_link, Counter, 2)``."""
        process = self._process
        return await process.node.loop.create_task(function(*args, **kwargs), context=process.own_context())

    def link(self, who: object) -> None:
        """Link the probe to another process."""
        self.run(api.link, who)

    def unlink(self, who: object) -> None:
        """Remove the link."""
        self.run(api.unlink, who)

    def monitor(self, who: object) -> Monitor:
        """Monitor a process."""
        return self.run(api.monitor, who)

    def demonitor(self, ref: Monitor, *, flush: bool = False) -> bool:
        """End a monitor."""
        return self.run(api.demonitor, ref, flush=flush)

    def trap_exit(self, on: bool = True) -> bool:  # noqa: FBT001, FBT002 - the signature of the function `trap_exit`
        """Trap exits, or stop trapping. Returns the previous setting."""
        return self.run(api.trap_exit, on)

    def exit(self, who: object, reason: object) -> None:
        """Send an exit signal from the probe."""
        self.run(api.exit, who, reason)

    def stop(self, reason: object = NORMAL) -> None:
        """Stop the probe with this reason."""
        lifecycle.begin_exit(self._process, as_reason(reason))

    def crash(self, error: BaseException | None = None) -> None:
        """Crash the probe."""
        lifecycle.begin_exit(self._process, Crash(ProbeCrash("on demand") if error is None else error))


def _matches(message: object, pattern: object, where: tuple[Callable[[Any], object], ...]) -> bool:
    if isinstance(pattern, type):
        fits = isinstance(message, pattern)
    elif callable(pattern):
        fits = bool(pattern(message))
    else:
        fits = bool(message == pattern)
    return fits and all(bool(condition(message)) for condition in where)


def _pattern_text(pattern: object, where: tuple[Callable[[Any], object], ...]) -> str:
    if isinstance(pattern, type):
        text = "a message" if pattern is object else pattern.__name__
    elif callable(pattern):
        text = f"what {getattr(pattern, '__qualname__', pattern)!s} accepts"
    else:
        text = repr(pattern)
    return f"{text} that fits" if where else text
