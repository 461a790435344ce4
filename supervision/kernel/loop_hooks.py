"""The hooks of a node in its event loop: a task factory, and a SIGINT handler.

The task factory makes tasks that a process starts its own: their `SystemExit` crashes the process, and they end with it. asyncio lets `SystemExit` and
`KeyboardInterrupt` out of a task and thereby ends the whole event loop, also from a task that `gather`, a `TaskGroup` or an anyio task group made. A task
factory is the only place early enough to stop that. It wraps only tasks started by process code; tasks of other code in the same loop stay as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final

from . import watchdog
from .errors import ActorError
from .process import GONE
from .process_lookup import current

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context
    from types import FrameType, TracebackType

    from .process import Process

if TYPE_CHECKING:
    TaskFactory = Callable[..., asyncio.Future[Any]]


_LOOP_OWNED: Final = "_shutdown_process_pool_on_exit"
"""The task that anyio starts for its first worker process (`anyio.to_process`). It belongs to the whole loop: if it
ended with the process that started it, the worker processes of all others would end. anyio offers no other mark than
the name of the coroutine."""


class TaskCrashed(ActorError):
    """A task of a process raised `SystemExit` or `KeyboardInterrupt`, which crashed the process."""

    def __init__(self, error: BaseException) -> None:
        """`error` is what the task raised."""
        super().__init__(error)
        self.error = error

    def __str__(self) -> str:
        return f"a task raised {self.error!r}, which crashed the process that had started it"


class _Guarded(Coroutine[Any, Any, Any]):
    """A coroutine that cannot end the event loop.

    A class and not an `async def` wrapper: if a task is cancelled before its first step, a wrapper would leave the
    inner coroutine never awaited, which Python warns of.
    """

    __slots__ = ("_inner", "_process")

    def __init__(self, process: Process, inner: Coroutine[Any, Any, Any]) -> None:
        self._process = process
        self._inner = inner

    def send(self, value: Any) -> Any:
        try:
            return self._inner.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise self._crash(error) from error

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        error: BaseException = typ if val is None else val
        # Abandoned code when the loop ends: close it, since it may swallow cancellations.
        if self._process.life == GONE:
            self._inner.close()
            raise error
        try:
            return self._inner.throw(error)
        except (SystemExit, KeyboardInterrupt) as raised:
            raise self._crash(raised) from raised

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def __getattr__(self, name: str) -> Any:
        """Pass on what debuggers and logs read: the name, `cr_frame` and the like."""
        return getattr(self._inner, name)

    def _crash(self, error: BaseException) -> TaskCrashed:
        self._process.crash(error)
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(_retrieve_exception)
        return TaskCrashed(error)


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    # The crash was reported. Retrieving the exception keeps asyncio from logging it a second time.
    if not task.cancelled():
        task.exception()


def make_task_factory(inner: TaskFactory | None) -> TaskFactory:
    """A task factory that adopts tasks of the loop's processes and leaves all others to `inner`, the loop's own."""

    def plain(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Future[Any]:
        return asyncio.Task(coro, loop=loop, **options) if inner is None else inner(loop, coro, **options)

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Future[Any]:
        context: Context | None = options.get("context")
        process = current.get() if context is None else context.get(current)
        if process is None or not process.owns_tasks or process.node.loop is not loop:
            # A task sent here by a process of another thread's node must not be cancelled by that process.
            return plain(loop, coro, **options)
        if not asyncio.iscoroutine(coro):
            return plain(loop, coro, **options)  # which raises TypeError here
        if getattr(coro, "__name__", None) == _LOOP_OWNED:
            return plain(loop, coro, **options)
        task = plain(loop, _Guarded(process, coro), **options)
        if isinstance(task, asyncio.Task) and process.life != GONE:
            process.own_task(task)
        return task

    return factory


watchdog.mark_handler_runner(_Guarded.send.__code__, lambda frame: frame["self"]._process)
watchdog.mark_handler_runner(_Guarded.throw.__code__, lambda frame: frame["self"]._process)


# --- SIGINT, kept out of handlers.
# Python raises `KeyboardInterrupt` wherever the main thread happens to be, which in a node is most likely some actor's
# handler: the user wants to stop the program and would crash one process of it. So while a node runs in the main thread,
# the first SIGINT cancels the task that opened the node, from a callback of the loop; leaving the node's block then
# stops everything in order. The second exits at once, also when the loop is stuck, by the signal's own default action.

_NOTICE = b"\ninterrupted: stopping in order; interrupt again to exit at once\n"


class SigintHandler:
    """The SIGINT handler of one node."""

    def __init__(self) -> None:
        """Do nothing before `install`."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None
        self._before: Any = None
        self._count = 0
        self._stopping = False
        self._was_noticed = False
        self._owes_interrupt = False

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        """Handle SIGINT, unless this is not the main thread, or SIGINT is ignored or has its default action."""
        self._count = 0
        self._stopping = self._was_noticed = self._owes_interrupt = False
        if threading.current_thread() is not threading.main_thread():
            return
        before = signal.getsignal(signal.SIGINT)
        if not callable(before):
            return
        self._before = before
        self._loop = loop
        self._task = asyncio.current_task()
        signal.signal(signal.SIGINT, self._interrupted)

    def stopping(self) -> None:
        """The node is closing: a first SIGINT from now on does not disturb that, and is raised at the end."""
        self._stopping = True

    def remove(self) -> None:
        """Restore the previous SIGINT handler."""
        if self._before is None:
            return
        if signal.getsignal(signal.SIGINT) == self._interrupted:
            signal.signal(signal.SIGINT, self._before)
        if self._count and not self._was_noticed:
            self._owes_interrupt = True  # it came too late for the loop to run `_stop`
        self._before = None
        self._loop = None

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        # Runs between two bytecodes of whatever the main thread does: nothing may be raised here.
        self._count += 1
        if self._count == 1 and self._loop is not None and not self._loop.is_closed():
            with contextlib.suppress(OSError):
                os.write(2, _NOTICE)
            self._loop.call_soon_threadsafe(self._stop)
            return
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)

    def _stop(self) -> None:
        # asyncio.run has a handler of its own, which cancels the main task and raises KeyboardInterrupt at the very
        # end; without it, this class does both.
        before, task = self._before, self._task
        if before is None:
            return
        self._was_noticed = True
        if self._stopping:
            self._owes_interrupt = True
        elif before is signal.default_int_handler:
            self._owes_interrupt = True
            if task is not None and not task.done():
                task.cancel("interrupted")
        else:
            before(signal.SIGINT, None)

    def raise_pending_interrupt(self, error: BaseException | None) -> None:
        """Raise `KeyboardInterrupt` in place of the cancellation that a SIGINT caused."""
        if self._owes_interrupt and (error is None or isinstance(error, asyncio.CancelledError)):
            self._owes_interrupt = False
            raise KeyboardInterrupt
