"""Task: a process that does one thing and answers with it.

``task = start_task(fetch, url)`` links it to the calling process: either's crash is the other's. `start_task_alone`
does not: its crash is an answer like any other. A task is awaited with a deadline, asked once, or shut down; whatever
happens to it, it has exactly one outcome. It knows on whose behalf it runs: `callers`, and the report of its crash.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar, overload

from greenroom.supervision.kernel import exits, links
from greenroom.supervision.kernel.current import current, current_node, current_process
from greenroom.supervision.kernel.errors import ActorError, CallTimeout
from greenroom.supervision.kernel.messages import KILLED, SHUTDOWN, ExitReason
from greenroom.supervision.kernel.routine import Routine, begin

from .caller import exited
from .calls import DEFAULT_TIMEOUT
from .threads import Threads

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable

    from greenroom.supervision.kernel.messages import Entry, Pid
    from greenroom.supervision.kernel.process import Process

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done(Generic[T]):
    """The task came through, with this value."""

    value: T


@dataclass(frozen=True, slots=True)
class Exited:
    """The task ended without a value, for this reason."""

    reason: ExitReason


Outcome: TypeAlias = Done[T] | Exited


class Work(Routine):
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


class _Asked(Work):
    """A task's: its value is wanted."""

    __slots__ = ("_task",)

    def __init__(self, process: Process, task: Task[Any]) -> None:
        super().__init__(process, task.callers)
        self._task = task

    def _otp_done(self, entry: Entry, value: object) -> None:
        self._task._settle(Done(value))
        super()._otp_done(entry, value)


class Task(Generic[R]):
    """A handle on the process; made by `start_task` and its siblings."""

    __slots__ = ("_future", "_process", "callers")

    def __init__(self, process: Process, callers: tuple[Pid, ...] = ()) -> None:
        """`process` has been made a task's just now."""
        self._process = process
        self.callers = callers
        self._future: asyncio.Future[Outcome[R]] = process.node.loop.create_future()
        process.behaviour = _Asked(process, self)
        process.await_death(self)

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

    def exited(self, reason: ExitReason) -> None:
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
        if isinstance(outcome, Done):
            return outcome.value
        raise exited(outcome.reason, self._process)

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
            links.part(me, self._process)  # the exit asked for is not the asker's
        process = self._process
        if brutally:
            exits.kill(process)
        else:
            exits.signal(process, process.node.root_pid() if me is None else me.pid, SHUTDOWN)
        outcome = await self.poll(timeout)
        if outcome is None:
            brutally = True
            exits.kill(process)
            outcome = await self.poll(None)
        asked_for = (SHUTDOWN, KILLED) if brutally else (SHUTDOWN,)
        return None if isinstance(outcome, Exited) and outcome.reason in asked_for else outcome

    def ignore(self) -> None:
        """Give the outcome up: the task runs on, and is no longer linked to the caller."""
        me = current.get()
        if me is not None:
            links.part(me, self._process)


_FARTHEST = 32
"""How many callers a task knows: one that starts its own successor, for ever, must not carry them all."""


def callers() -> tuple[Pid, ...]:
    """The processes for which the calling task runs: its caller, that one's caller, and so on. Empty if it is no task."""
    me = current.get()
    work = None if me is None else me.behaviour.inner
    return work.callers if isinstance(work, Work) else ()


def asking() -> tuple[Pid, ...]:
    """The callers of a task that is asked for here."""
    me = current.get()
    return () if me is None else (me.pid, *callers()[: _FARTHEST - 1])


def begin_task(
    function: Callable[..., Coroutine[Any, Any, R]], args: Any, kwargs: Any, callers: tuple[Pid, ...], *, link: bool
) -> Task[R]:
    """Start a task on behalf of others."""
    return Task(begin(current_node(), function, args, kwargs, link=link), callers)


def start_task(function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> Task[R]:
    """Run an async function as a task linked to the calling process."""
    current_process("start a linked task; start_task_alone() needs none")
    return begin_task(function, args, kwargs, asking(), link=True)


def start_task_alone(function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs) -> Task[R]:
    """Run an async function as a task of its own: its crash is an outcome, and ends no other process."""
    return begin_task(function, args, kwargs, asking(), link=False)


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
    crew: _Crew[T, R] = _Crew(lambda item: begin(function, item), timeout, ordered=ordered, link=link)
    return _run(crew, items, limit, on_timeout, zipped=zipped)


async def _run(
    crew: _Crew[T, R], items: Iterable[T], limit: int, on_timeout: OnTimeout, *, zipped: bool
) -> AsyncGenerator[Any, None]:
    source = iter(items)
    exhausted = False
    crew.sign_on()
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
        await crew.sign_off()


class _Running(NamedTuple, Generic[T, R]):
    """One item in work."""

    item: T
    due: float | None
    task: Task[R]


class _Crew(Generic[T, R]):
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
        self.running: deque[_Running[T, R]] = deque()

    def sign_on(self) -> None:
        """Work for the calling process from now on."""
        self._loop = asyncio.get_running_loop()
        self._owner = current_process("link the tasks of a stream") if self._link else current.get()
        if self._owner is not None:
            self._owner.await_death(self)

    async def sign_off(self) -> None:
        """End what still runs, and wait until it is gone."""
        if self._owner is not None:
            self._owner.forget(self)
        for running in self.running:
            self.end(running.task)
        for running in self.running:
            await running.task.poll(None)

    def exited(self, reason: ExitReason) -> None:
        """The owner died between two items and cannot close the stream: kill its tasks."""
        for running in self.running:
            exits.kill(running.task.process)

    async def begin(self, item: T) -> None:
        """Start the task of one item."""
        due = None if self.timeout is None else self._loop.time() + self.timeout
        started = self._start(item)
        task = started if isinstance(started, Task) else await started
        self.running.append(_Running(item, due, task))
        owner = self._owner
        if self._link and owner is not None and not owner.trap_exit:
            if isinstance(task.outcome, Exited):
                exits.signal(owner, task.pid, task.outcome.reason)
            elif task.outcome is None:
                links.join(owner, task.process)

    def end(self, task: Task[R]) -> None:
        """Kill one. That is not the owner's end, linked to it or not."""
        if self._owner is not None:
            links.part(self._owner, task.process)
        exits.kill(task.process)

    async def next(self) -> _Running[T, R] | None:
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
