"""Processes that are one coroutine: the routine with a mailbox, the inbox, and the task, whose result is awaited.

`spawn` is Erlang's: the function is the process, and its end is the process's exit. An `Inbox` gives a mailbox to code
outside of processes (a test, a `main`), so that it can link, monitor and receive.

``task = start_task(fetch, url)`` links the task to the calling process: a crash of either ends the other. `start_task_alone` does not: its crash is an outcome.
A task is awaited with a deadline, polled, or shut down, and has exactly one outcome. `callers` and its crash report name the processes on whose behalf it runs.
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
from greenroom.supervision.kernel.process import COROUTINE, GONE, HELD, WORKING, Behaviour, Process, kind_name
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
    """Raised in a routine by `become`: the coroutine ends, and the process goes on as a server."""

    def __init__(self, take_over: Callable[[], None]) -> None:
        """`take_over` gives the process its new behaviour."""
        super().__init__(take_over)
        self.take_over = take_over


class Routine(Behaviour):
    """The behaviour of a process that is one coroutine."""

    __slots__ = ("_otp_function", "_otp_process")

    def __init__(self, process: Process) -> None:
        """`process` is the process of the coroutine."""
        self._otp_process = process
        self._otp_function = process.label  # the function's name, which the function may replace by a label of its own

    def _otp_kind(self) -> str:
        return kind_name(self._otp_function)

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
            except BaseException as broken:  # noqa: BLE001 - the change failed: a crash, as any bug of the process
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
                kind=process.kind,
                reason=Crash(error),
                ancestors=tuple(str(ancestor) for ancestor in process.ancestors()),
                during="routine",
                client=self._otp_client(),
            )
        )

    def _otp_client(self) -> str | None:
        """The process on whose behalf it runs, for crash reports."""
        return None


class InboxBehaviour(Routine):
    """The behaviour of an inbox: it owns neither the task of its block nor tasks started there."""

    __slots__ = ()
    owns_tasks = False

    def _otp_kind(self) -> str:
        return "inbox"


def begin_routine(
    node: Node,
    function: Callable[..., Awaitable[object]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    link: bool = False,
    trap_exit: bool = False,
) -> Process:
    """Make a process that runs a coroutine function; it starts in a later turn of the loop."""
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
    """Run `function` as a new process."""
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
    """A mailbox for code outside of processes. Made by `inbox`."""

    def __init__(self, process: Process) -> None:
        """`process` is the inbox's process, to which links and monitors lead."""
        self._process = process

    @property
    def pid(self) -> Pid:
        """The pid of the inbox."""
        return self._process.pid

    def __len__(self) -> int:
        return len(self._process.mailbox or ())

    def receive(self, match: Callable[[Any], bool] | None = None, *, timeout: float | None = 5.0) -> Awaitable[Any]:
        """The next message, or the next that `match` accepts."""
        return receive_from(self._process, match, timeout)

    def pending(self) -> tuple[Any, ...]:
        """The messages in the mailbox, without taking them."""
        return tuple(_message(entry) for entry in self._process.mailbox or ())


@asynccontextmanager
async def inbox(label: str = "inbox", *, trap_exit: bool = True) -> AsyncGenerator[Inbox]:
    """Make the block a process: `link`, `monitor`, `start_link` and `receive` work in it.

    It traps exits by default, since there is no handler that an exit could end. At the end of the block the process
    exits with `Shutdown`, which ends linked processes that do not trap exits.
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
        except ValueError:  # the generator is closed in another context than it was entered in
            if current.get() is process:
                current.set(None)
        lifecycle.begin_exit(process, SHUTDOWN)
        await asyncio.sleep(0)


# --- Tasks: processes with a result.


R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Completed(Generic[T]):
    """The task returned this value."""

    value: T


@dataclass(frozen=True, slots=True)
class Exited:
    """The task exited without a value, for this reason."""

    reason: ExitReason


Outcome: TypeAlias = Completed[T] | Exited


class TaskBehaviour(Routine):
    """The behaviour of a process that runs on behalf of other processes."""

    __slots__ = ("callers",)

    def __init__(self, process: Process, callers: tuple[Pid, ...]) -> None:
        """`callers` are the processes on whose behalf it runs, nearest first."""
        super().__init__(process)
        self.callers = callers

    def _otp_client(self) -> str | None:
        if not self.callers:
            return None
        asker = self.callers[0]
        return str(self._otp_process.node.process(asker) or asker)


class _AwaitedTaskBehaviour(TaskBehaviour):
    """The behaviour of a task whose value is awaited."""

    __slots__ = ("_task",)

    def __init__(self, process: Process, task: Task[Any]) -> None:
        super().__init__(process, task.callers)
        self._task = task

    def _otp_on_return(self, entry: MailboxEntry, value: object) -> None:
        self._task._settle(Completed(value))
        super()._otp_on_return(entry, value)


class Task(Generic[R]):
    """The handle on a task's process; made by `start_task` and its siblings."""

    __slots__ = ("_future", "_process", "callers")

    def __init__(self, process: Process, callers: tuple[Pid, ...] = ()) -> None:
        """Give the new `process` the behaviour of a task."""
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
        """The future of its outcome, for code that waits for several tasks; never cancel it."""
        return self._future

    @property
    def outcome(self) -> Outcome[R] | None:
        """Its outcome, or None while it runs."""
        return self._future.result() if self._future.done() else None

    def __repr__(self) -> str:
        state = "running" if self.outcome is None else str(self.outcome)
        return f"<Task {self._process} {state}>"

    def on_exit(self, reason: ExitReason) -> None:
        """Set the outcome: the process has exited."""
        self._settle(Exited(reason))

    def _settle(self, outcome: Outcome[R]) -> None:
        if not self._future.done():
            self._future.set_result(outcome)

    async def wait(self, timeout: float | None = DEFAULT_TIMEOUT) -> R:
        """Wait for the value. Raises `ProcessExited` when the task exits without one, `CallTimeout` after `timeout`.

        After a timeout the task goes on: wait again, or `shutdown` it.
        """
        outcome = await self.poll(timeout)
        if outcome is None:
            raise CallTimeout(timeout or 0.0, self._process, "come to an end")
        if isinstance(outcome, Completed):
            return outcome.value
        raise exit_error(outcome.reason, self._process)

    async def poll(self, timeout: float | None = 0.0) -> Outcome[R] | None:
        """Its outcome, if it ends within so many seconds; else None, and the task goes on."""
        if self._process is current.get():
            message = f"{self._process} cannot wait for itself"
            raise ActorError(message)
        if not self._future.done():
            await asyncio.wait((self._future,), timeout=timeout)
        return self.outcome

    async def shutdown(self, timeout: float | None = 5.0, *, brutally: bool = False) -> Outcome[R] | None:
        """Stop the task, with `brutally` by a kill, and wait until it has exited. Returns an outcome that it reached before."""
        me = current.get()
        if me is not None:
            links.unlink(me, self._process)  # the requested exit must not end the caller
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
        """Ignore the outcome: the task goes on, no longer linked to the caller."""
        me = current.get()
        if me is not None:
            links.unlink(me, self._process)


_MOST_CALLERS = 32
"""How many callers a task keeps: a task that starts its own successor, for ever, must not collect them all."""


def callers() -> tuple[Pid, ...]:
    """The processes on whose behalf the calling task runs: its caller, that caller's caller, and so on. Empty outside of tasks."""
    me = current.get()
    work = None if me is None else me.behaviour.inner
    return work.callers if isinstance(work, TaskBehaviour) else ()


def callers_of_new_task() -> tuple[Pid, ...]:
    """The callers for a task that the running process starts."""
    me = current.get()
    return () if me is None else (me.pid, *callers()[: _MOST_CALLERS - 1])


def begin_task(
    function: Callable[..., Coroutine[Any, Any, R]], args: Any, kwargs: Any, callers: tuple[Pid, ...], *, link: bool
) -> Task[R]:
    """Start a task on behalf of `callers`."""
    return Task(begin_routine(current_node(), function, args, kwargs, link=link), callers)


def start_task(function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> Task[R]:
    """Run an async function as a task linked to the calling process."""
    current_process("start a linked task; start_task_alone() needs none")
    return begin_task(function, args, kwargs, callers_of_new_task(), link=True)


def start_task_alone(function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> Task[R]:
    """Run an async function as a task without a link: its crash is an outcome, and ends no other process."""
    return begin_task(function, args, kwargs, callers_of_new_task(), link=False)


_threads = Threads()


async def _in_thread(threads: Threads, function: Callable[..., R], args: Any, kwargs: Any) -> R:
    return await threads.run(function, *args, **kwargs)


def start_thread_task(
    function: Callable[P, R], threads: Threads | None = None, /, *args: P.args, **kwargs: P.kwargs
) -> Task[R]:
    """Run a blocking function as a task, in a thread of `threads` (None: the common 40 of the program).

    Killing the task ends its process at once; the thread goes on to its end, and keeps its slot until then.
    """
    return start_task_alone(_in_thread, _threads if threads is None else threads, function, args, kwargs)


async def wait_all(tasks: Iterable[Task[R]], timeout: float | None = DEFAULT_TIMEOUT) -> list[Outcome[R] | None]:
    """Wait for several tasks and return their outcomes in order; None for a task that still runs after `timeout`."""
    asked = list(tasks)
    futures = [task._future for task in asked if not task._future.done()]
    if futures:
        await asyncio.wait(futures, timeout=timeout)
    return [task.outcome for task in asked]


# --- Streams of tasks: the same function for many items, at most `limit` at a time.
# The tasks belong to the process that iterates: it may leave at any item, or die between two of them, and running tasks
# are killed. Without `link` a crash of a task is its outcome only.

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
    """Run `function` for each item, at most `limit` at a time, and yield the outcomes in order, or as they come.

    An item is taken from `items` only when a task can start. A task that takes longer than `timeout` ends the stream
    with `CallTimeout`, or with "kill" is killed, which is its outcome. When the stream is left, its running tasks are
    killed. `start` starts each task, for instance under a task supervisor. With `link`, a crash of a task ends the
    process that iterates, unless that traps exits: then it is an outcome and no message. With `zipped`, each outcome is
    yielded as a pair with its item.
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
    tasks: _StreamTasks[T, R] = _StreamTasks(lambda item: begin(function, item), timeout, ordered=ordered, link=link)
    return _run(tasks, items, limit, on_timeout, zipped=zipped)


async def _run(
    tasks: _StreamTasks[T, R], items: Iterable[T], limit: int, on_timeout: OnTimeout, *, zipped: bool
) -> AsyncGenerator[Any, None]:
    source = iter(items)
    exhausted = False
    tasks.attach()
    try:
        while True:
            while not exhausted and len(tasks.running) < limit:
                try:
                    item = next(source)
                except StopIteration:
                    exhausted = True
                    break
                await tasks.begin(item)
            if not tasks.running:
                return
            ready = await tasks.next()
            if ready is None:
                late = tasks.running[0].task
                if on_timeout == "raise":
                    raise CallTimeout(tasks.timeout or 0.0, late.process, "come to an end")
                tasks.end(late)
                await late.poll(None)
                continue
            tasks.running.remove(ready)
            outcome = ready.task.outcome
            assert outcome is not None
            yield (ready.item, outcome) if zipped else outcome
    finally:
        await tasks.close()


class _StreamItem(NamedTuple, Generic[T, R]):
    """One item whose task runs."""

    item: T
    due: float | None
    task: Task[R]


class _StreamTasks(Generic[T, R]):
    """The running tasks of one stream, the oldest first, and the process that iterates."""

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
        """Make the calling process the owner of the tasks."""
        self._loop = asyncio.get_running_loop()
        self._owner = current_process("link the tasks of a stream") if self._link else current.get()
        if self._owner is not None:
            self._owner.add_exit_waiter(self)

    async def close(self) -> None:
        """Kill the running tasks, and wait until they have exited."""
        if self._owner is not None:
            self._owner.remove_exit_waiter(self)
        for running in self.running:
            self.end(running.task)
        for running in self.running:
            await running.task.poll(None)

    def on_exit(self, reason: ExitReason) -> None:
        """Kill the tasks: the owner died between two items and cannot close the stream."""
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
        """Kill one task, without ending a linked owner."""
        if self._owner is not None:
            links.unlink(self._owner, task.process)
        lifecycle.kill(task.process)

    async def next(self) -> _StreamItem[T, R] | None:
        """Wait for the item whose outcome is yielded next; None when the oldest task is overdue."""
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
