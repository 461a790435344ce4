"""Processes that are one coroutine: the plain routine with a mailbox, the inbox, and the task, which answers with what it returns.

`spawn` is Erlang's: the function is the process, its end is the process's end. An `Inbox` lends a mailbox to code that
is no process (a test, a `main`), so that it can link, monitor and receive too.

``task = start_task(fetch, url)`` links it to the calling process: either's crash is the other's. `start_task_alone`
does not: its crash is an answer like any other. A task is awaited with a deadline, asked once, or shut down; it has exactly one
outcome, however it ends. It knows on whose behalf it runs: `callers`, and the report of its crash.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar, overload

from greenroom.supervision.kernel import links
from greenroom.supervision.kernel import process as lifecycle
from greenroom.supervision.kernel.errors import ActorError, CallTimeout, ProcessExited, Quit
from greenroom.supervision.kernel.process import COROUTINE, GONE, HELD, WORKING, Behaviour, Process
from greenroom.supervision.kernel.process_lookup import current, current_node, current_process
from greenroom.supervision.kernel.process_messages import (
    ASK,
    CALL,
    INFO,
    KILLED,
    NORMAL,
    SHUTDOWN,
    SIGNAL,
    Crash,
    ExitReason,
)
from greenroom.supervision.kernel.reports import CrashReport

from .refs import DEFAULT_TIMEOUT
from .replies import exit_error
from .threads import Threads

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable

    from greenroom.supervision.kernel.links import Monitor
    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process_messages import MailboxEntry, Pid


# --- The plain process: an `async def` that runs once, with a mailbox it can `receive` from; and the inbox.


P = ParamSpec("P")
_START = -1


class BecomeServer(BaseException):
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

    def _otp_handle(self, entry: MailboxEntry) -> object:
        _, function, args, kwargs = entry
        return function(*args, **kwargs)

    def _otp_on_return(self, entry: MailboxEntry, value: object) -> None:
        lifecycle.begin_exit(self._otp_process, NORMAL)
        self._otp_process.activity = WORKING

    def _otp_on_error(self, entry: MailboxEntry, error: BaseException) -> None:
        if isinstance(error, BecomeServer):
            try:
                error.take_over()
            except BaseException as broken:  # noqa: BLE001 - it is to be what it cannot be: its crash, as any bug of it
                error = broken
            else:
                return
        if isinstance(error, Quit):
            lifecycle.begin_exit(self._otp_process, error.reason)
            return
        self._otp_report(error)
        lifecycle.begin_exit(self._otp_process, Crash(error))

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


class InboxBehaviour(Routine):
    """The behaviour of an inbox: the task that it lives in is not its own, nor are that task's children."""

    __slots__ = ()
    owns_tasks = False


def begin_routine(
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
        links.link(parent, process)
    try:
        coroutine = process.own_context().run(function, *args, **kwargs)
    except BaseException:
        node.discard(process)
        raise
    if type(coroutine) is not COROUTINE:
        node.discard(process)
        message = f"a process is made of an `async def` function, and {function!r} is none"
        raise TypeError(message)
    process.run_in_worker(coroutine, (_START, function, args, kwargs))
    return process


def spawn(function: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> Pid:
    """Run `function` as a process of its own."""
    return begin_routine(current_node(), function, args, kwargs).pid


def spawn_link(function: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> Pid:
    """As `spawn`, linked to the calling process from the first moment."""
    return begin_routine(current_node(), function, args, kwargs, link=True).pid


def spawn_monitor(function: Callable[P, Awaitable[object]], *args: P.args, **kwargs: P.kwargs) -> tuple[Pid, Monitor]:
    """As `spawn`, monitored by the calling process from the first moment."""
    watcher = current_process("monitor")
    process = begin_routine(current_node(), function, args, kwargs)
    return process.pid, links.monitor_process(watcher, process, process.pid)


def _message(entry: MailboxEntry) -> Any:
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
    return await receive_from(current_process("receive"), match, timeout)


async def receive_from(process: Process, match: Callable[[Any], bool] | None, timeout: float | None) -> Any:
    """`receive`, for a given process."""
    if not isinstance(process.behaviour, Routine):
        if process.life:
            raise ProcessExited(process.reason or NORMAL, process.pid)
        message = f"{process} gets its messages in callbacks: receive() is for processes made by spawn()"
        raise TypeError(message)
    if process.message_waiter is not None:
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
                        process.node.spare_mailbox = mailbox
                        process.mailbox = process.fast_append = None
                    return message
            seen = len(mailbox)
        if process.life:
            raise ProcessExited(process.reason or NORMAL, process.pid)
        if deadline is None and timeout is not None:
            deadline = process.node.loop.time() + timeout
        if not await _wait_for_message(process, deadline):
            raise CallTimeout(timeout or 0.0, process.pid, "receive a message")


async def _wait_for_message(process: Process, deadline: float | None) -> bool:
    loop = process.node.loop
    if deadline is not None and deadline <= loop.time():
        return False
    arrived = loop.create_future()

    def wake(*, came: bool = True) -> None:
        if not arrived.done():
            arrived.set_result(came)

    process.message_waiter = wake
    process.fast_append = None
    timer = None if deadline is None else loop.call_at(deadline, lambda: wake(came=False))
    try:
        came: bool = await arrived
    finally:
        process.message_waiter = None
        if timer is not None:
            timer.cancel()
    return came


class Inbox:
    """A mailbox for code that is no process. Made by `inbox`."""

    def __init__(self, process: Process) -> None:
        """`process` is the process that links and monitors see."""
        self._process = process

    @property
    def pid(self) -> Pid:
        """Where to send to."""
        return self._process.pid

    def __len__(self) -> int:
        return len(self._process.mailbox or ())

    def receive(self, match: Callable[[Any], bool] | None = None, *, timeout: float | None = 5.0) -> Awaitable[Any]:
        """The next message, or the next that `match` accepts."""
        return receive_from(self._process, match, timeout)

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
    process.behaviour = InboxBehaviour(process)
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
        lifecycle.begin_exit(process, SHUTDOWN)
        await asyncio.sleep(0)


# --- A process that does one thing and answers with it.


R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Completed(Generic[T]):
    """The task came through, with this value."""

    value: T


@dataclass(frozen=True, slots=True)
class Exited:
    """The task ended without a value, for this reason."""

    reason: ExitReason


Outcome: TypeAlias = Completed[T] | Exited


class TaskBehaviour(Routine):
    """The behaviour of a process that does one thing on behalf of others."""

    __slots__ = ("callers",)

    def __init__(self, process: Process, callers: tuple[Pid, ...]) -> None:
        """`callers` are those on whose behalf it runs."""
        super().__init__(process)
        self.callers = callers

    def _otp_client(self) -> str | None:
        if not self.callers:
            return None
        asker = self.callers[0]
        return str(self._otp_process.node.process(asker) or asker)


class _AwaitedTaskBehaviour(TaskBehaviour):
    """A task's: its value is wanted."""

    __slots__ = ("_task",)

    def __init__(self, process: Process, task: Task[Any]) -> None:
        super().__init__(process, task.callers)
        self._task = task

    def _otp_on_return(self, entry: MailboxEntry, value: object) -> None:
        self._task._settle(Completed(value))
        super()._otp_on_return(entry, value)


class Task(Generic[R]):
    """A handle on the process; made by `start_task` and its siblings."""

    __slots__ = ("_future", "_process", "callers")

    def __init__(self, process: Process, callers: tuple[Pid, ...] = ()) -> None:
        """`process` has been made a task's just now."""
        self._process = process
        self.callers = callers
        self._future: asyncio.Future[Outcome[R]] = process.node.loop.create_future()
        process.behaviour = _AwaitedTaskBehaviour(process, self)
        process.add_exit_waiter(self)

    @property
    def pid(self) -> Pid:
        """The address of its process."""
        return self._process.pid

    @property
    def process(self) -> Process:
        """The process, for code that builds on tasks."""
        return self._process

    @property
    def ended(self) -> asyncio.Future[Outcome[R]]:
        """The future for code that waits for several tasks at once; never cancel it."""
        return self._future

    @property
    def outcome(self) -> Outcome[R] | None:
        """How it ended, or None while it runs."""
        return self._future.result() if self._future.done() else None

    def __repr__(self) -> str:
        state = "running" if self.outcome is None else str(self.outcome)
        return f"<Task {self._process} {state}>"

    def on_exit(self, reason: ExitReason) -> None:
        """The process is gone."""
        self._settle(Exited(reason))

    def _settle(self, outcome: Outcome[R]) -> None:
        if not self._future.done():
            self._future.set_result(outcome)

    async def wait(self, timeout: float | None = DEFAULT_TIMEOUT) -> R:
        """The value. Raises `ProcessExited` when there is none, `CallTimeout` when it is not there in time.

        After a timeout the task runs on: wait again, or `shutdown` it.
        """
        outcome = await self.poll(timeout)
        if outcome is None:
            raise CallTimeout(timeout or 0.0, self._process, "come to an end")
        if isinstance(outcome, Completed):
            return outcome.value
        raise exit_error(outcome.reason, self._process)

    async def poll(self, timeout: float | None = 0.0) -> Outcome[R] | None:
        """How it ended, if it does within so many seconds; else None, and it runs on."""
        if self._process is current.get():
            message = f"{self._process} cannot wait for itself"
            raise ActorError(message)
        if not self._future.done():
            await asyncio.wait((self._future,), timeout=timeout)
        return self.outcome

    async def shutdown(self, timeout: float | None = 5.0, *, brutally: bool = False) -> Outcome[R] | None:
        """End it, in order or `brutally`, and wait until it is gone. Returns its outcome if it had come to one first."""
        me = current.get()
        if me is not None:
            links.unlink(me, self._process)  # the exit asked for is not the asker's
        process = self._process
        if brutally:
            lifecycle.kill(process)
        else:
            lifecycle.signal(process, process.node.root_pid() if me is None else me.pid, SHUTDOWN)
        outcome = await self.poll(timeout)
        if outcome is None:
            brutally = True
            lifecycle.kill(process)
            outcome = await self.poll(None)
        asked_for = (SHUTDOWN, KILLED) if brutally else (SHUTDOWN,)
        return None if isinstance(outcome, Exited) and outcome.reason in asked_for else outcome

    def ignore(self) -> None:
        """Give the outcome up: the task runs on, and is no longer linked to the caller."""
        me = current.get()
        if me is not None:
            links.unlink(me, self._process)


_MOST_CALLERS = 32
"""How many callers a task knows: one that starts its own successor, for ever, must not carry them all."""


def callers() -> tuple[Pid, ...]:
    """The processes for which the calling task runs: its caller, that one's caller, and so on. Empty if it is no task."""
    me = current.get()
    work = None if me is None else me.behaviour.inner
    return work.callers if isinstance(work, TaskBehaviour) else ()


def callers_of_new_task() -> tuple[Pid, ...]:
    """The callers of a task that is asked for here."""
    me = current.get()
    return () if me is None else (me.pid, *callers()[: _MOST_CALLERS - 1])


def begin_task(
    function: Callable[..., Coroutine[Any, Any, R]], args: Any, kwargs: Any, callers: tuple[Pid, ...], *, link: bool
) -> Task[R]:
    """Start a task on behalf of others."""
    return Task(begin_routine(current_node(), function, args, kwargs, link=link), callers)


def start_task(function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> Task[R]:
    """Run an async function as a task linked to the calling process."""
    current_process("start a linked task; start_task_alone() needs none")
    return begin_task(function, args, kwargs, callers_of_new_task(), link=True)


def start_task_alone(function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> Task[R]:
    """Run an async function as a task of its own: its crash is an outcome, and ends no other process."""
    return begin_task(function, args, kwargs, callers_of_new_task(), link=False)


_threads = Threads()


async def _in_thread(threads: Threads, function: Callable[..., R], args: Any, kwargs: Any) -> R:
    return await threads.run(function, *args, **kwargs)


def start_thread_task(
    function: Callable[P, R], threads: Threads | None = None, /, *args: P.args, **kwargs: P.kwargs
) -> Task[R]:
    """Run a blocking function as a task, in a thread of `threads` (None: the node's common 40).

    Killing the task answers its waiting callers at once; the thread goes on to its end, and holds its slot until then.
    """
    return start_task_alone(_in_thread, _threads if threads is None else threads, function, args, kwargs)


async def wait_all(tasks: Iterable[Task[R]], timeout: float | None = DEFAULT_TIMEOUT) -> list[Outcome[R] | None]:
    """The outcomes of several, in order; None for those that had none when the time was up. They run on."""
    asked = list(tasks)
    futures = [task._future for task in asked if not task._future.done()]
    if futures:
        await asyncio.wait(futures, timeout=timeout)
    return [task.outcome for task in asked]


# --- Streams of tasks: the same work for many items, so many at a time, and none left behind.
# The tasks belong to the process that iterates: it may leave at any item, or die between two of them, and tasks that
# still run are killed. They crash alone unless it asks to be linked to them.

OnTimeout: TypeAlias = Literal["raise", "kill"]


@overload
def stream(
    function: Callable[[T], Coroutine[Any, Any, R]],
    items: Iterable[T],
    *,
    limit: int,
    ordered: bool = True,
    timeout: float | None = DEFAULT_TIMEOUT,
    on_timeout: OnTimeout = "raise",
    start: Callable[..., Task[R] | Awaitable[Task[R]]] | None = None,
    link: bool = False,
    zipped: Literal[False] = False,
) -> AsyncGenerator[Outcome[R], None]: ...
@overload
def stream(
    function: Callable[[T], Coroutine[Any, Any, R]],
    items: Iterable[T],
    *,
    limit: int,
    ordered: bool = True,
    timeout: float | None = DEFAULT_TIMEOUT,
    on_timeout: OnTimeout = "raise",
    start: Callable[..., Task[R] | Awaitable[Task[R]]] | None = None,
    link: bool = False,
    zipped: Literal[True],
) -> AsyncGenerator[tuple[T, Outcome[R]], None]: ...
def stream(  # noqa: PLR0913 - each is one setting, by keyword
    function: Callable[[T], Coroutine[Any, Any, R]],
    items: Iterable[T],
    *,
    limit: int,
    ordered: bool = True,
    timeout: float | None = DEFAULT_TIMEOUT,
    on_timeout: OnTimeout = "raise",
    start: Callable[..., Task[R] | Awaitable[Task[R]]] | None = None,
    link: bool = False,
    zipped: bool = False,
) -> AsyncGenerator[Any, None]:
    """Run `function` for each item, at most `limit` at a time, and give the outcomes as they come, or in order.

    An item is taken from `items` only when there is room for it. A task that takes longer than `timeout` ends the
    stream with `CallTimeout`, or with "kill" is killed and its outcome says so. However the stream is left, no task of
    it is left running. `start` starts each: under a task supervisor, for instance. With `link`, a crash of a task is
    the crash of the process that iterates, unless that traps exits: then it is an outcome and no message. With `zipped`, each
    outcome comes as a pair with its item.
    """
    if limit < 1:
        message = f"limit must be at least 1 task, not {limit!r}"
        raise ValueError(message)
    if timeout is not None and not timeout >= 0:
        message = f"timeout must be 0 seconds or more, or None for no limit, not {timeout!r}"
        raise ValueError(message)
    if on_timeout not in ("raise", "kill"):
        message = f"on_timeout must be 'raise' or 'kill', not {on_timeout!r}"
        raise ValueError(message)
    begin = start_task_alone if start is None else start
    crew: _StreamTasks[T, R] = _StreamTasks(lambda item: begin(function, item), timeout, ordered=ordered, link=link)
    return _run(crew, items, limit, on_timeout, zipped=zipped)


async def _run(
    crew: _StreamTasks[T, R], items: Iterable[T], limit: int, on_timeout: OnTimeout, *, zipped: bool
) -> AsyncGenerator[Any, None]:
    source = iter(items)
    exhausted = False
    crew.attach()
    try:
        while True:
            while not exhausted and len(crew.running) < limit:
                try:
                    item = next(source)
                except StopIteration:
                    exhausted = True
                    break
                await crew.begin(item)
            if not crew.running:
                return
            ready = await crew.next()
            if ready is None:
                late = crew.running[0].task
                if on_timeout == "raise":
                    raise CallTimeout(crew.timeout or 0.0, late.process, "come to an end")
                crew.end(late)
                await late.poll(None)
                continue
            crew.running.remove(ready)
            outcome = ready.task.outcome
            assert outcome is not None
            yield (ready.item, outcome) if zipped else outcome
    finally:
        await crew.close()


class _StreamItem(NamedTuple, Generic[T, R]):
    """One item in work."""

    item: T
    due: float | None
    task: Task[R]


class _StreamTasks(Generic[T, R]):
    """The tasks of one stream that run now, the oldest first, and the process they work for."""

    __slots__ = ("_link", "_loop", "_ordered", "_owner", "_start", "running", "timeout")

    def __init__(
        self, start: Callable[[T], Task[R] | Awaitable[Task[R]]], timeout: float | None, *, ordered: bool, link: bool
    ) -> None:
        """No task runs before the stream is iterated."""
        self._start = start
        self._ordered = ordered
        self._link = link
        self._owner: Process | None = None
        self._loop: asyncio.AbstractEventLoop
        self.timeout = timeout
        self.running: deque[_StreamItem[T, R]] = deque()

    def attach(self) -> None:
        """Work for the calling process from now on."""
        self._loop = asyncio.get_running_loop()
        self._owner = current_process("link the tasks of a stream") if self._link else current.get()
        if self._owner is not None:
            self._owner.add_exit_waiter(self)

    async def close(self) -> None:
        """End what still runs, and wait until it is gone."""
        if self._owner is not None:
            self._owner.remove_exit_waiter(self)
        for running in self.running:
            self.end(running.task)
        for running in self.running:
            await running.task.poll(None)

    def on_exit(self, reason: ExitReason) -> None:
        """The owner died between two items and cannot close the stream: kill its tasks."""
        for running in self.running:
            lifecycle.kill(running.task.process)

    async def begin(self, item: T) -> None:
        """Start the task of one item."""
        due = None if self.timeout is None else self._loop.time() + self.timeout
        started = self._start(item)
        task = started if isinstance(started, Task) else await started
        self.running.append(_StreamItem(item, due, task))
        owner = self._owner
        if self._link and owner is not None and not owner.trap_exit:
            if isinstance(task.outcome, Exited):
                lifecycle.signal(owner, task.pid, task.outcome.reason)
            elif task.outcome is None:
                links.link(owner, task.process)

    def end(self, task: Task[R]) -> None:
        """Kill one. That is not the owner's end, linked to it or not."""
        if self._owner is not None:
            links.unlink(self._owner, task.process)
        lifecycle.kill(task.process)

    async def next(self) -> _StreamItem[T, R] | None:
        """The one whose outcome is to be given next; None when the oldest is overdue."""
        while True:
            for running in (self.running[0],) if self._ordered else tuple(self.running):
                if running.task.outcome is not None:
                    return running
            oldest = self.running[0]
            left = None if oldest.due is None else oldest.due - self._loop.time()
            if left is not None and left <= 0:
                return None
            waited = [running.task.ended for running in ((oldest,) if self._ordered else self.running)]
            await asyncio.wait(waited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
