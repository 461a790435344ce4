"""Streams of tasks: the same work for many items, so many at a time, and none left behind.

The tasks belong to whoever iterates: it may leave at any item, or die between two of them, and what still runs is
killed. They crash alone unless it asks to be linked to them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar, overload

from greenroom.supervision.kernel import exits, links
from greenroom.supervision.kernel.current import current, current_process
from greenroom.supervision.kernel.errors import CallTimeout

from .calls import DEFAULT_TIMEOUT
from .task import Exited, Outcome, Task, start_task_alone

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable

    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.reasons import ExitReason

R = TypeVar("R")
T = TypeVar("T")
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
    the crash of whoever iterates, unless that traps exits: then it is an outcome and no message. With `zipped`, each
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
    """The tasks of one stream that run now, the oldest first, and whom they work for."""

    __slots__ = ("_link", "_loop", "_ordered", "_owner", "_start", "running", "timeout")

    def __init__(
        self, start: Callable[[T], Task[R] | Awaitable[Task[R]]], timeout: float | None, *, ordered: bool, link: bool
    ) -> None:
        """Nothing runs before somebody iterates."""
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
        """The owner died between two items: nobody is left to close the stream."""
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
