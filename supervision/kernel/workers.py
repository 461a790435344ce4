"""Where `async def` handlers run: a pool of real tasks, one whole invocation in one task.

anyio scopes, `asyncio.timeout` and task groups tie themselves to the task they are entered in, so an invocation must
never move between tasks, and must not run in its caller's. A task of its own per invocation would cost twice as much
and, when a hundred thousand actors are told something at once, a hundred thousand tasks. Instead one worker takes job
after job and suspends only when a handler really waits; then the pump has another go on, at once and not in the loop's next turn. So
there are as many workers as there are suspended handlers, plus one.

A worker that was cancelled is not used again: other code may still hold on to that task.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from . import forks, watchdog
from .gate import Gate
from .process import DEAD, GONE

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator
    from contextvars import Context
    from types import CoroutineType

    from .messages import Entry
    from .node import Node
    from .process import Process

    Job = tuple[Process, CoroutineType[Any, Any, Any], Entry]

JOBS_PER_TURN = 128
_PARKED = 1024  # workers that are kept though they have nothing to do; those of a flood beyond that end with it


class InContext:
    """Await a coroutine that has begun in another context than the awaiting task's, and keep it there.

    Code that was abandoned is cancelled once more when its loop ends. It has had its grace: it is closed, and not asked
    again, since code that swallows every cancellation would keep `asyncio.run` waiting for ever.
    """

    __slots__ = ("_awaited", "_context", "_coroutine", "_process")

    def __init__(
        self, process: Process | None, coroutine: Coroutine[Any, Any, Any], context: Context, awaited: object
    ) -> None:
        """`awaited` is what the coroutine's first step waits for; `process` whose code it is, if it is a process's."""
        self._process = process
        self._coroutine = coroutine
        self._context = context
        self._awaited = awaited

    def __await__(self) -> Generator[Any, Any, Any]:
        run, coroutine, awaited = self._context.run, self._coroutine, self._awaited
        try:
            while True:
                try:
                    value = yield awaited
                except BaseException as error:
                    if self._process is not None and self._process.life == GONE:
                        run(coroutine.close)
                        raise
                    awaited = run(coroutine.throw, error)
                else:
                    awaited = run(coroutine.send, value)
        except StopIteration as stop:
            return stop.value


def begun(context: Context, coroutine: Coroutine[Any, Any, None]) -> InContext | None:
    """Run a coroutine in that context up to where it first waits; what is left of it, to be awaited."""
    try:
        awaited = context.run(coroutine.send, None)
    except StopIteration:
        return None
    return InContext(None, coroutine, context, awaited)


def _closes(error: BaseException) -> bool:
    """Whether the task that a handler raised this in is over: Python throws no GeneratorExit inwards, it closes."""
    why: object = error.args[0] if type(error) is RuntimeError and error.args else None
    return isinstance(error, GeneratorExit) or (type(why) is str and why.endswith("ignored GeneratorExit"))


class Workers:
    """The pool of one node."""

    __slots__ = ("_fresh", "_node", "_parked", "_tasks", "jobs", "left")

    def __init__(self, node: Node, jobs: deque[Job] | None = None) -> None:
        """`jobs` may be a queue that chooses its own order."""
        self._node = node
        self.jobs: deque[Job] = deque() if jobs is None else jobs
        """The invocations that have not begun."""
        self._parked: list[Gate] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._fresh: asyncio.Task[None] | None = None  # the one that was made, and has not begun yet
        self.left = JOBS_PER_TURN
        """How many more may begin in this turn of the loop; the pump begins each turn with all of them."""

    def __len__(self) -> int:
        """How many tasks the pool has now."""
        return len(self._tasks)

    @property
    def busy(self) -> int:
        """How many of them are in the middle of a handler."""
        return len(self._tasks) - len(self._parked)

    def submit(self, process: Process, coroutine: CoroutineType[Any, Any, Any], entry: Entry) -> None:
        """Queue an invocation that has not begun."""
        self.jobs.append((process, coroutine, entry))
        if not self._parked and self._fresh is None:
            self._grow()
        self._node.wake()

    def run(self) -> bool:
        """Begin what is queued, as much as this turn of the loop allows, each in a task of its own; whether anything has run.

        Called by the pump, outside of any task, as long as something is queued.
        """
        ran = False
        while self.jobs and self.left and self._parked:
            ran = self._parked.pop().open() or ran
        if self.jobs and not self._parked and self._fresh is None:
            self._grow()
        return ran

    def _grow(self) -> None:
        loop = self._node.loop
        # Not by the loop's own factory: an eager one would run the handler here and now, inside of the code that is running.
        context = self._node.context.copy()
        task = asyncio.Task(self._work(), loop=loop, name="greenroom-worker", context=context)
        self._tasks[task] = None
        self._fresh = task
        task.add_done_callback(self._retired)

    def _retired(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if self._fresh is task:
            self._fresh = None  # cancelled before it could begin
        if not task.cancelled() and (error := task.exception()) is not None:
            self._node.loop.call_exception_handler(
                {"message": "a worker of greenroom failed; this should never happen", "exception": error, "task": task}
            )

    async def _work(self) -> None:
        jobs = self.jobs
        task = asyncio.current_task()
        assert task is not None
        self._fresh = None
        gate = Gate(self._node.loop)
        while True:
            while jobs and self.left:
                self.left -= 1
                rest = self._begin(task)
                if rest is not None:
                    try:
                        if not await self._finish(*rest):
                            return
                    except GeneratorExit:
                        return  # what a handler awaited ended with it
                    rest = None  # a parked worker holds on to nothing of its last job
                if task.cancelling():
                    return
            if len(self._parked) >= _PARKED:
                return
            self._parked.append(gate)
            try:
                await gate
            except asyncio.CancelledError:
                if gate in self._parked:
                    self._parked.remove(gate)
                raise

    def _begin(self, task: asyncio.Task[Any]) -> tuple[Process, Entry, InContext] | None:
        """Run the next job up to where it first waits, which most never do. Otherwise, what is left of it."""
        process, coroutine, entry = self.jobs.popleft()
        if process.life:
            coroutine.close()
        else:
            process.worker = task
            context = process.context or process.own_context()
            try:
                awaited = context.run(coroutine.send, None)
            except StopIteration as stop:
                if self._node.forked:
                    forks.leave()
                process.worker = None
                process.done(entry, stop.value)
            except BaseException as error:  # noqa: BLE001 - the boundary of an actor: whatever was raised is its crash
                process.worker = None
                process.failed(entry, error)
            else:
                if self._node.forked:
                    forks.strayed()
                return process, entry, InContext(process, coroutine, context, awaited)
        if process.activity < DEAD:
            process.settle()
        return None

    async def _finish(self, process: Process, entry: Entry, rest: InContext) -> bool:
        """Run a job that waits to its end; False when that was the end of the task, too."""
        closed = False
        try:
            value = await rest
        except BaseException as error:  # noqa: BLE001 - as in _begin
            process.worker = None
            process.failed(entry, error)
            closed = _closes(error)
        else:
            if self._node.forked:
                forks.leave()
            process.worker = None
            process.done(entry, value)
        if process.activity < DEAD:
            process.settle()
        return not closed

    def cancel(self) -> tuple[asyncio.Task[None], ...]:
        """Cancel all workers; those that are returned have not ended yet."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    async def close(self) -> None:
        """Cancel all workers, and wait for those that can end."""
        if tasks := self.cancel():
            await asyncio.wait(tasks, timeout=self._node.kill_grace)


watchdog.runs_handlers(Workers._begin.__code__, lambda frame: frame.get("process"))
watchdog.runs_handlers(Workers._finish.__code__, lambda frame: frame.get("process"))
watchdog.drives(vars(InContext)["__await__"].__code__)
