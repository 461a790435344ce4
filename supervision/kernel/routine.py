"""The plain process: an `async def` that runs once, with a mailbox it can `receive` from; and the inbox.

`spawn` is Erlang's: the function is the process, its end is the process's end. An `Inbox` lends a mailbox to code that
is no process (a test, a `main`), so that it can link, monitor and receive too.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ParamSpec

from . import exits, links
from .behaviour import Behaviour
from .current import current, current_node, current_process
from .errors import ActorError, CallTimeout, ProcessExited, Quit
from .messages import ASK, CALL, INFO, NORMAL, SHUTDOWN, SIGNAL, Crash
from .process import COROUTINE, GONE, HELD, WORKING, Process
from .reports import CrashReport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from .links import Monitor
    from .messages import Entry, Pid
    from .node import Node

P = ParamSpec("P")
_START = -1


class Become(BaseException):
    """Raised in a routine that ends here and goes on as another behaviour."""

    def __init__(self, take_over: Callable[[], None]) -> None:
        """`take_over` gives the process its new behaviour."""
        super().__init__(take_over)
        self.take_over = take_over


class Routine(Behaviour):
    """The behaviour of a process that is one coroutine."""

    __slots__ = ("_otp_process",)

    def __init__(self, process: Process) -> None:
        """`process` is the one that the coroutine is."""
        self._otp_process = process

    def _otp_handle(self, entry: Entry) -> object:
        _, function, args, kwargs = entry
        return function(*args, **kwargs)

    def _otp_done(self, entry: Entry, value: object) -> None:
        exits.condemn(self._otp_process, NORMAL)
        self._otp_process.activity = WORKING

    def _otp_failed(self, entry: Entry, error: BaseException) -> None:
        if isinstance(error, Become):
            try:
                error.take_over()
            except BaseException as broken:  # noqa: BLE001 - it is to be what it cannot be: its crash, as any bug of it
                error = broken
            else:
                return
        if isinstance(error, Quit):
            exits.condemn(self._otp_process, error.reason)
            return
        self._otp_report(error)
        exits.condemn(self._otp_process, Crash(error))

    def _otp_report(self, error: BaseException) -> None:
        process = self._otp_process
        process.node.reports.emit(
            CrashReport(
                pid=process.pid,
                label=process.label,
                reason=Crash(error),
                ancestors=tuple(str(ancestor) for ancestor in process.ancestors()),
                during="routine",
                client=self._otp_client(),
            )
        )

    def _otp_client(self) -> str | None:
        """The client that wanted this to be done, where that is known."""
        return None


class Lent(Routine):
    """The behaviour of an inbox: the task that it lives in is not its own, nor are that task's children."""

    __slots__ = ()
    adopts = False


def begin(
    node: Node,
    function: Callable[..., Awaitable[object]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    link: bool = False,
    trap_exit: bool = False,
) -> Process:
    """Make a process of a coroutine function; it runs in a later turn of the loop."""
    parent = current_process("spawn a linked process") if link else None
    starter = current.get()
    if starter is not None and starter.life == GONE:
        raise ProcessExited(starter.reason or NORMAL, starter)
    process = node.create(parent, getattr(function, "__qualname__", None) or repr(function))
    process.behaviour = Routine(process)
    process.trap_exit = trap_exit
    if parent is not None:
        links.join(parent, process)
    try:
        coroutine = process.own_context().run(function, *args, **kwargs)
    except BaseException:
        node.discard(process)
        raise
    if type(coroutine) is not COROUTINE:
        node.discard(process)
        message = f"a process is made of an `async def` function, and {function!r} is none"
        raise TypeError(message)
    process.hand_over(coroutine, (_START, function, args, kwargs))
    return process


def spawn(function: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> Pid:
    """Run `function` as a process of its own."""
    return begin(current_node(), function, args, kwargs).pid


def spawn_link(function: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> Pid:
    """As `spawn`, linked to the calling process from the first moment."""
    return begin(current_node(), function, args, kwargs, link=True).pid


def spawn_monitor(function: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> tuple[Pid, Monitor]:
    """As `spawn`, monitored by the calling process from the first moment."""
    watcher = current_process("monitor")
    process = begin(current_node(), function, args, kwargs)
    return process.pid, links.watch(watcher, process, process.pid)


def _message(entry: Entry) -> Any:
    kind = entry[0]
    if kind in (INFO, SIGNAL):
        return entry[1]
    if kind == ASK:
        entry[-1].request = entry[1]
    if kind in (CALL, ASK):
        return entry[-1]
    return entry[1:]


async def receive(match: Callable[[Any], bool] | None = None, *, timeout: float | None = None) -> Any:
    """Take the next message, or the next that `match` accepts, leaving the others where they are.

    Only in a process made by `spawn`, or inside `inbox`: a behaviour gets its messages in callbacks.
    """
    return await take(current_process("receive"), match, timeout)


async def take(process: Process, match: Callable[[Any], bool] | None, timeout: float | None) -> Any:
    """`receive`, for a given process."""
    if not isinstance(process.behaviour, Routine):
        if process.life:
            raise ProcessExited(process.reason or NORMAL, process.pid)
        message = f"{process} gets its messages in callbacks: receive() is for processes made by spawn()"
        raise TypeError(message)
    if process.waiter is not None:
        message = f"{process} waits for a message already, in another of its tasks: two would take each other's"
        raise ActorError(message)
    deadline: float | None = None
    seen = 0
    while True:
        mailbox = process.mailbox
        if mailbox is not None:
            for index in range(seen, len(mailbox)):
                message = _message(mailbox[index])
                if match is None or match(message):
                    if process.exempt and mailbox[index][0] == SIGNAL:
                        process.exempt -= 1
                    del mailbox[index]
                    if not mailbox:
                        process.node.spare = mailbox
                        process.mailbox = process.quick = None
                    return message
            seen = len(mailbox)
        if process.life:
            raise ProcessExited(process.reason or NORMAL, process.pid)
        if deadline is None and timeout is not None:
            deadline = process.node.loop.time() + timeout
        if not await _arrival(process, deadline):
            raise CallTimeout(timeout or 0.0, process.pid, "receive a message")


async def _arrival(process: Process, deadline: float | None) -> bool:
    loop = process.node.loop
    if deadline is not None and deadline <= loop.time():
        return False
    arrived = loop.create_future()

    def wake(*, came: bool = True) -> None:
        if not arrived.done():
            arrived.set_result(came)

    process.waiter = wake
    process.quick = None
    timer = None if deadline is None else loop.call_at(deadline, lambda: wake(came=False))
    try:
        came: bool = await arrived
    finally:
        process.waiter = None
        if timer is not None:
            timer.cancel()
    return came


class Inbox:
    """A mailbox for code that is no process. Made by `inbox`."""

    def __init__(self, process: Process) -> None:
        """`process` is the cell that links and monitors see."""
        self._process = process

    @property
    def pid(self) -> Pid:
        """Where to send to."""
        return self._process.pid

    def __len__(self) -> int:
        return len(self._process.mailbox or ())

    def receive(self, match: Callable[[Any], bool] | None = None, *, timeout: float | None = 5.0) -> Awaitable[Any]:
        """The next message, or the next that `match` accepts."""
        return take(self._process, match, timeout)

    def pending(self) -> tuple[Any, ...]:
        """What lies in the mailbox, without taking it."""
        return tuple(_message(entry) for entry in self._process.mailbox or ())


@asynccontextmanager
async def inbox(label: str = "inbox", *, trap_exit: bool = True) -> AsyncGenerator[Inbox]:
    """Be a process for as long as the block runs: `link`, `monitor`, `start_link` work in it, and `receive`.

    It traps exits unless told otherwise, since there is no handler that an exit could end. On leaving, the process
    ends as `Shutdown`, and with it whatever is still linked to it and does not trap that.
    """
    node = current_node()
    process = node.create(None, label)
    process.behaviour = Lent(process)
    process.trap_exit = trap_exit
    process.activity = HELD
    token = current.set(process)
    try:
        yield Inbox(process)
    finally:
        try:
            current.reset(token)
        except ValueError:  # left in another context than it was entered in, as a generator's end may be
            if current.get() is process:
                current.set(None)
        exits.condemn(process, SHUTDOWN)
        await asyncio.sleep(0)
