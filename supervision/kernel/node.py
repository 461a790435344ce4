"""A node: the processes of one event loop, and the pool of tasks in which their `async def` handlers run.

It owns the table of processes and their names, the run queue and its pump, the workers, deadlines, reports and the watchdog. Opening a node installs a task
factory and a SIGINT handler in the loop; closing it stops every process in order and restores both.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from collections.abc import Coroutine
from contextvars import Context
from typing import TYPE_CHECKING, Any, Self, TypeVar, TypeVarTuple, Unpack

from . import clock, forks, links, loop_hooks, watchdog
from . import process as lifecycle
from .clock import Deadlines, DirectWakeup
from .errors import ActorError
from .loop_hooks import SigintHandler
from .process import DEAD, GONE, QUEUED, Process
from .process_lookup import current, find_process, install_node, node_of
from .process_messages import NO_PROCESS, SHUTDOWN, make_pid
from .reports import DEFAULT_SUBSCRIBERS, LOG_SUBSCRIBERS, Reports
from .watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Hashable
    from types import CoroutineType, TracebackType

    from .process import RemoteNodes
    from .process_lookup import Via
    from .process_messages import ExitReason, MailboxEntry, Pid


# --- The workers: a pool of real tasks, one whole invocation in one task.
# anyio scopes, `asyncio.timeout` and task groups tie themselves to the task they are entered in, so an invocation must
# never move between tasks, and must not run in its caller's. A new task per invocation would cost twice as much
# and, when a hundred thousand actors get a message at once, a hundred thousand tasks. Instead one worker takes job
# after job and suspends only when a handler really waits; then the pump resumes another, at once and not in the loop's next turn. So
# there are as many workers as there are suspended handlers, plus one.
#
# A worker that was cancelled is not used again: other code may still hold on to that task.


if TYPE_CHECKING:
    Invocation = tuple[Process, CoroutineType[Any, Any, Any], MailboxEntry]

JOBS_PER_TURN = 128
_MOST_PARKED = 1024  # idle workers that are kept; more of them end when they become idle


class ContextCoroutine:
    """Awaits a coroutine that was started in another context than the awaiting task's, and runs its steps there.

    asyncio binds a context to a task, not to a coroutine, so each step is sent through `Context.run`. When its loop ends,
    abandoned code is closed instead of cancelled again: code that swallows every cancellation would keep `asyncio.run`
    waiting for ever.
    """

    __slots__ = ("_awaited", "_context", "_coroutine", "_process")

    def __init__(
        self, process: Process | None, coroutine: Coroutine[Any, Any, Any], context: Context, awaited: object
    ) -> None:
        """`awaited` is what the coroutine's first step yielded; `process` is the process whose code it is, if any."""
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


def start_in_context(context: Context, coroutine: Coroutine[Any, Any, None]) -> ContextCoroutine | None:
    """Run a coroutine in that context until it first waits; returns the rest to be awaited, or None when it has ended."""
    try:
        awaited = context.run(coroutine.send, None)
    except StopIteration:
        return None
    return ContextCoroutine(None, coroutine, context, awaited)


def _ends_task(error: BaseException) -> bool:
    """Whether the task in which a handler raised this has to end: it is being closed by Python, with `GeneratorExit`."""
    why: object = error.args[0] if type(error) is RuntimeError and error.args else None
    return isinstance(error, GeneratorExit) or (type(why) is str and why.endswith("ignored GeneratorExit"))


class WorkerTasks:
    """The worker tasks of one node."""

    __slots__ = ("_fresh", "_node", "_on_retired", "_parked", "_tasks", "jobs", "left")

    def __init__(self, node: Node, jobs: deque[Invocation] | None = None) -> None:
        """`jobs` may be a queue that chooses its own order."""
        self._node = node
        self.jobs: deque[Invocation] = deque() if jobs is None else jobs
        """The queued invocations, not started yet."""
        self._parked: list[DirectWakeup] = []
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._fresh: asyncio.Task[None] | None = None  # a new worker that has not run yet
        self._on_retired = self._retired  # one method object for all tasks
        self.left = JOBS_PER_TURN
        """How many more jobs may start in this turn of the loop; the pump resets it at each turn."""

    def __len__(self) -> int:
        """The number of worker tasks."""
        return len(self._tasks)

    @property
    def busy(self) -> int:
        """The number of workers in the middle of a handler."""
        return len(self._tasks) - len(self._parked)

    def submit(self, process: Process, coroutine: CoroutineType[Any, Any, Any], entry: MailboxEntry) -> None:
        """Queue an invocation."""
        self.jobs.append((process, coroutine, entry))
        if not self._parked and self._fresh is None:
            self._grow()
        self._node.wake()

    def run(self) -> bool:
        """Start queued jobs, as many as this turn of the loop allows, by resuming parked workers; whether any ran.

        Called by the pump, outside of any task, as long as jobs are queued.
        """
        ran = False
        while self.jobs and self.left and self._parked:
            ran = self._parked.pop().wake() or ran
        if self.jobs and not self._parked and self._fresh is None:
            self._grow()
        return ran

    def _grow(self) -> None:
        loop = self._node.loop
        # Not by the loop's task factory: an eager one would run the handler immediately, inside the code that is running.
        context = self._node.context.copy()
        task = asyncio.Task(self._work(), loop=loop, name="greenroom-worker", context=context)
        self._tasks[task] = None
        self._fresh = task
        task.add_done_callback(self._on_retired, context=context)

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
        wakeup = DirectWakeup(self._node.loop)
        while True:
            while jobs and self.left:
                self.left -= 1
                rest = self._begin(task)
                if rest is not None:
                    try:
                        if not await self._finish(*rest):
                            return
                    except GeneratorExit:
                        return  # this task is being closed, and its handler with it
                    rest = None  # a parked worker holds on to nothing of its last job
                if task.cancelling():
                    return
            if len(self._parked) >= _MOST_PARKED:
                return
            self._parked.append(wakeup)
            try:
                await wakeup
            except asyncio.CancelledError:
                if wakeup in self._parked:
                    self._parked.remove(wakeup)
                raise

    def _begin(self, task: asyncio.Task[Any]) -> tuple[Process, MailboxEntry, ContextCoroutine] | None:
        """Run the next job until it first waits, which most never do. Returns the rest of one that waits."""
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
                    forks.exit_child()
                process.worker = None
                process.on_return(entry, stop.value)
            except BaseException as error:  # noqa: BLE001 - the boundary of an actor: any error is its crash
                process.worker = None
                process.on_error(entry, error)
            else:
                if self._node.forked:
                    forks.exit_strayed_child()
                return process, entry, ContextCoroutine(process, coroutine, context, awaited)
        if process.activity < DEAD:
            process.settle()
        return None

    async def _finish(self, process: Process, entry: MailboxEntry, rest: ContextCoroutine) -> bool:
        """Run a waiting job to its end; False when this worker has to end too."""
        closed = False
        try:
            value = await rest
        except BaseException as error:  # noqa: BLE001 - as in _begin
            process.worker = None
            process.on_error(entry, error)
            closed = _ends_task(error)
        else:
            if self._node.forked:
                forks.exit_child()
            process.worker = None
            process.on_return(entry, value)
        if process.activity < DEAD:
            process.settle()
        return not closed

    def cancel(self) -> tuple[asyncio.Task[None], ...]:
        """Cancel all workers and return them; they have not ended yet."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    async def close(self) -> None:
        """Cancel all workers, and wait for them at most `kill_grace`."""
        if tasks := self.cancel():
            await asyncio.wait(tasks, timeout=self._node.kill_grace)


watchdog.mark_handler_runner(WorkerTasks._begin.__code__, lambda frame: frame.get("process"))
watchdog.mark_handler_runner(WorkerTasks._finish.__code__, lambda frame: frame.get("process"))
watchdog.mark_driver(vars(ContextCoroutine)["__await__"].__code__)


# --- The node.


_get_ident = threading.get_ident

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

INLINE_BUDGET = 128  # calls answered on the spot before the loop gets its turn
DRAIN_BUDGET = 256  # messages of one process before the next one's turn
PUMP_BUDGET = 64  # processes before the loop gets its turn
TURN_SECONDS = (
    0.001  # seconds of work before the loop gets its turn: a budget of messages says nothing of how long each takes
)


class ShuffledQueue(deque[Any]):
    """A queue that returns its items in a seeded random order, each of which a busy system could produce."""

    def __init__(self, source: random.Random) -> None:
        """The same state of `source` replays the same order."""
        super().__init__()
        self._source = source

    def popleft(self) -> Any:
        """Take a random item. The order within a mailbox stays, since the items are whole processes."""
        if len(self) > 1:
            self.rotate(-self._source.randrange(len(self)))
        return super().popleft()


class Node:
    """The processes of one event loop.

    ::

        async with Node() as node:
            ...

    `seed` makes the order in which processes run a pseudo-random one that the seed replays, and sends every call
    through the mailbox. `watchdog` is after how many seconds a handler that blocks the loop is reported (None: never).
    `kill_grace` is how long a killed handler may take to unwind. `stop_grace` bounds how long a top-level process that
    is no supervisor may take to stop when the node closes. `log` sends its reports to `logging`.
    """

    def __init__(  # noqa: PLR0913 - switches, each with its default, and none goes with another
        self,
        name: str = "node",
        *,
        seed: int | random.Random | None = None,
        watchdog: float | None = 1.0,
        kill_grace: float = 1.0,
        stop_grace: float = 5.0,
        handle_sigint: bool = True,
        log: bool = True,
    ) -> None:
        """Nothing runs until the node is opened with `async with`, or `await node.open()`."""
        if not name:
            message = "a node needs a name: it is part of every pid"
            raise ValueError(message)
        self.name = name
        self.kill_grace = kill_grace
        self.stop_grace = stop_grace
        self.reports = Reports([*DEFAULT_SUBSCRIBERS, *(LOG_SUBSCRIBERS if log else ())])
        self.context = Context()
        self.loop: asyncio.AbstractEventLoop
        self.thread = 0
        self.fast_thread = 0  # the same until code was abandoned: from then on each sender is checked
        self.incarnation = 0
        self.processes: dict[int, Process] = {}
        self.names: dict[Hashable, Process] = {}
        self.remote_nodes: RemoteNodes | None = None
        self.exit_queue: deque[Process] = deque()
        self.is_completing_exits = False
        self.spare_mailbox: deque[MailboxEntry] | None = (
            None  # an emptied mailbox: the next process that needs one takes it
        )
        self.running = False
        self.stopping = False
        self.ending = False
        self.forked = False  # set in a child that a handler has forked (see `forks`)
        self.leaks = 0
        self.drain_budget = DRAIN_BUDGET
        self.turn_ends = 0.0  # when the loop gets its turn, on its own clock
        source = random.Random(seed) if isinstance(seed, int) else seed  # noqa: S311 - an order, not a secret
        self.seed = seed
        self.random = random.Random() if source is None else source  # noqa: S311 - delays and orders, not secrets
        self.inline_budget = INLINE_BUDGET if source is None else 0
        self.inline_left = self.inline_budget
        self._source = source
        self.run_queue: deque[Process]
        self.workers: WorkerTasks
        self.deadlines: Deadlines
        self._serial = 0
        self._pumping = False  # whether the pump runs, or is scheduled
        self._wakeups: deque[DirectWakeup] = deque()
        self._reset()
        self.watchdog = Watchdog(self, watchdog) if watchdog is not None else None
        self._interrupts = SigintHandler() if handle_sigint else None
        self._factory: Any = None

    def __repr__(self) -> str:
        state = "running" if self.running else "closed"
        return f"<Node {self.name} {state}, {len(self.processes)} processes>"

    # --- life

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._close()
        except asyncio.CancelledError as cancelled:
            error = cancelled
            raise
        finally:
            if self._interrupts is not None:
                self._interrupts.raise_pending_interrupt(error)

    async def open(self) -> None:
        """Open the node: from now on `start`, `spawn` and calls work in this loop."""
        loop = asyncio.get_running_loop()
        if self.running:
            message = f"{self!r} is open already"
            raise ActorError(message)
        if (other := node_of(loop)) is not None:
            message = f"this event loop has a node already: {other!r}"
            raise ActorError(message)
        # A thread started by a handler of another node has inherited that handler's context, but is not its code.
        current.set(None)
        self.loop = loop
        self.thread = self.fast_thread = _get_ident()
        self.incarnation = clock.incarnation()
        self._reset()
        self.running = True
        self._factory = loop.get_task_factory()
        loop.set_task_factory(loop_hooks.make_task_factory(self._factory))
        install_node(loop, self)
        if self.watchdog is not None:
            self.watchdog.start()
        if self._interrupts is not None:
            self._interrupts.install(loop)

    def _reset(self) -> None:
        # A node that is opened again must not use anything of its former run, which belonged to another loop.
        self.run_queue = deque() if self._source is None else ShuffledQueue(self._source)
        self.workers = WorkerTasks(self, None if self._source is None else ShuffledQueue(self._source))
        self.deadlines = Deadlines(self)
        self._wakeups = deque()
        self._pumping = self.stopping = self.ending = False
        self._serial = self.leaks = 0

    async def close(self) -> None:
        """Stop every process, in reverse order of start, then restore the loop.

        Cancelling this does not stop the close: the remaining processes are killed, and after a second cancellation
        abandoned.
        """
        await self._close()
        if self._interrupts is not None:
            self._interrupts.raise_pending_interrupt(None)

    async def _close(self) -> None:
        if not self.running:
            return
        self.stopping = True
        if self._interrupts is not None:
            self._interrupts.stopping()
        try:
            try:
                await self._stop_processes()
            finally:
                await self._kill_processes()
            await self.workers.close()
        finally:
            self.workers.cancel()
            self.deadlines.close()
            if self.watchdog is not None:
                self.watchdog.stop()
            self.loop.set_task_factory(self._factory)
            install_node(self.loop, None)
            self.running = False
            for wakeup in self._wakeups:  # a reopened node has new ones
                self.loop.call_soon(wakeup.wake)
            if self._interrupts is not None:
                self._interrupts.remove()

    async def _stop_processes(self) -> None:
        roots = [process for process in self.processes.values() if process.parent is None or process.parent.is_remote]
        for process in reversed(roots):
            if process.life:
                continue
            gone = ExitFuture(self.loop)
            process.add_exit_waiter(gone)
            lifecycle.signal(process, self.root_pid(), SHUTDOWN)
            patient = process.behaviour.has_unbounded_stop
            if not gone.future.done() and not await gone.within(None if patient else self.stop_grace):
                lifecycle.kill(process)

    async def _kill_processes(self) -> None:
        # A process that is left was started by one that has exited and is linked to none, or the close was cancelled.
        self.ending = True
        try:
            while self.processes:
                gones: list[ExitFuture] = []
                for process in tuple(self.processes.values()):
                    if process.activity != DEAD:  # killed already, through a link
                        gones.append(ExitFuture(self.loop))
                        process.add_exit_waiter(gones[-1])
                        lifecycle.kill(process)
                for gone in gones:
                    if not gone.future.done():
                        await gone.within(None)
        finally:
            for process in tuple(self.processes.values()):
                lifecycle.abandon(process)

    # --- processes

    def create(self, parent: Process | None, label: str) -> Process:
        """Make a process, without a behaviour yet, and enter it into the table."""
        if not self.running or self.ending:
            message = f"{self!r} is {'closing' if self.running else 'not open'}"
            raise ActorError(message)
        if _get_ident() != self.thread:
            self.check_thread("start a process")
        self._serial += 1
        process = Process(self, make_pid(self.name, self.incarnation, self._serial), parent, label)
        self.processes[self._serial] = process
        return process

    def discard(self, process: Process) -> None:
        """Remove a process whose code never ran."""
        process.reason = NO_PROCESS
        if not hasattr(process, "behaviour"):
            process.behaviour = lifecycle.EXITED_BEHAVIOUR
        for other in tuple(links.linked(process)):
            links.unlink(process, other)
        lifecycle.complete_exit(process)

    def process(self, pid: Pid) -> Process | None:
        """The process behind `pid`, alive or dying, of this run of this node or of a reachable node; else None."""
        if pid.incarnation != self.incarnation or pid.node != self.name:
            return None if self.remote_nodes is None or pid.node == self.name else self.remote_nodes.process(pid)
        return self.processes.get(pid.serial)

    def named(self, name: Hashable | Via) -> Process | None:
        """The process with this name, alive or dying; None when there is none."""
        return find_process(self, name)

    def root_pid(self) -> Pid:
        """The pid of the node itself: serial 0."""
        return make_pid(self.name, self.incarnation, 0)

    def now(self) -> float:
        """Seconds on the clock of this node's loop."""
        return clock.now(self.loop)

    # --- other threads

    def check_thread(self, verb: str) -> None:
        """Raise `ActorError` in another thread: nothing in a node is locked."""
        if _get_ident() != self.thread:
            message = f"cannot {verb} from another thread than {self!r} runs in: send it a message instead"
            raise ActorError(message)

    def call_from_thread(self, function: Callable[[Unpack[Ts]], object], *args: *Ts) -> bool:
        """Schedule a call in the node's thread. False when the node does not run any more."""
        try:
            if self.running:
                self.loop.call_soon_threadsafe(function, *args)
                return True
        except RuntimeError:  # its loop was closed just now
            pass
        return False

    # --- the run queue

    def enqueue(self, process: Process) -> None:
        """Put a process into the run queue."""
        self.run_queue.append(process)
        if not self._pumping:
            self._pumping = True
            self.loop.call_soon(self._pump, context=self.context)

    def wake(self) -> None:
        """Schedule the pump: the workers have a job, or a task is to be woken."""
        if not self._pumping:
            self._pumping = True
            self.loop.call_soon(self._pump, context=self.context)

    def wake_soon(self, wakeup: DirectWakeup) -> None:
        """Resume the task that waits for `wakeup`, after the processes in the run queue."""
        self._wakeups.append(wakeup)
        self.wake()

    def serve(self, step: Callable[[], object]) -> None:
        """Call `step`, then run the processes that it gave work at once, instead of in the loop's next turn.

        Only for callbacks of the loop, outside of any task.
        """
        if self._pumping:
            step()
            return
        self._pumping = True
        try:
            step()
        finally:
            self._pump()

    def _pump(self) -> None:
        """Run queued processes, their jobs and the tasks they wake, until nothing is left or the loop's turn has come."""
        queue, workers, wakeups = self.run_queue, self.workers, self._wakeups
        workers.left = JOBS_PER_TURN
        budget = PUMP_BUDGET
        now = self.loop.time  # virtual time stands still here, so the order of a seed is not disturbed
        until = self.turn_ends = now() + TURN_SECONDS
        try:
            while budget > 0:
                while queue and budget > 0:
                    budget -= 1
                    process = queue.popleft()
                    if process.activity == QUEUED:
                        (process.context or process.own_context()).run(process.drain)
                    if now() > until:
                        budget = 0
                if workers.jobs and workers.run() and budget > 0:
                    continue
                if not wakeups:
                    break
                # Also when the budget is used up: a process that is never done keeps no other task waiting.
                for _ in range(len(wakeups)):
                    budget -= 1
                    wakeups.popleft().wake()
        finally:
            if queue or workers.jobs or wakeups:
                self.loop.call_soon(self._pump, context=self.context)
            else:
                self._pumping = False


class ExitFuture:
    """A future with the reason of a process's exit."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Pass it to `Process.add_exit_waiter`."""
        self.future: asyncio.Future[ExitReason] = loop.create_future()

    def on_exit(self, reason: ExitReason) -> None:
        """Set the result."""
        if not self.future.done():
            self.future.set_result(reason)

    async def within(self, seconds: float | None) -> bool:
        """Wait for the exit; whether it came in time."""
        done, _ = await asyncio.wait((self.future,), timeout=seconds)
        return bool(done)


def run(main: Callable[[], Awaitable[T]], **options: Any) -> T:
    """Run an async function in a new event loop and node, as `asyncio.run` does; the options are `Node`'s."""
    given: object = main
    if isinstance(given, Coroutine):
        given.close()  # it will not be awaited
        raise TypeError("run() takes the function and not what it returns: write run(main), not run(main())")

    async def inside() -> T:
        async with Node(**options):
            return await main()

    return asyncio.run(inside())
