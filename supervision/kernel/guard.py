"""Tasks that a process starts belong to it: their `SystemExit` is its crash, and they end with it.

asyncio lets `SystemExit` and `KeyboardInterrupt` out of a task and thereby ends the whole event loop, also from a
task that `gather`, a `TaskGroup` or an anyio task group made. A task factory is the only place early enough to stop
that. It wraps what the process's code starts, and nothing else: tasks of other code in the same loop stay as they are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, Final

from . import watchdog
from .current import current
from .errors import ActorError
from .process import GONE

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextvars import Context
    from types import TracebackType

    from .process import Process

    Factory = Callable[..., asyncio.Future[Any]]


_FOR_THE_LOOP: Final = "_shutdown_process_pool_on_exit"
"""What anyio starts when its first worker process is asked for (`anyio.to_process`), and the whole loop's: with whoever asked first, the
processes of all others would end."""


class TaskCrashed(ActorError):
    """A task of a process raised `SystemExit` or `KeyboardInterrupt`: the process has crashed of it."""

    def __init__(self, error: BaseException) -> None:
        """`error` is what the task raised."""
        super().__init__(error)
        self.error = error

    def __str__(self) -> str:
        return f"a task raised {self.error!r}, which crashed the process that had started it"


class _Guarded(Coroutine[Any, Any, Any]):
    """A coroutine that cannot end the event loop.

    A class and not an `async def` around it: a task cancelled before its first step would leave the inner coroutine
    without ever having been awaited.
    """

    __slots__ = ("__name__", "__qualname__", "_inner", "_process")

    def __init__(self, process: Process, inner: Coroutine[Any, Any, Any]) -> None:
        self._process = process
        self._inner = inner
        self.__name__ = getattr(inner, "__name__", type(inner).__name__)
        self.__qualname__ = getattr(inner, "__qualname__", self.__name__)

    def send(self, value: Any) -> Any:
        try:
            return self._inner.send(value)
        except (SystemExit, KeyboardInterrupt) as error:
            raise self._crash(error) from error

    def throw(self, typ: Any, val: Any = None, tb: TracebackType | None = None) -> Any:
        error: BaseException = typ if val is None else val
        if self._process.life == GONE:  # abandoned, and its loop ends: closed, as a handler would be
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

    @property
    def cr_frame(self) -> Any:
        return getattr(self._inner, "cr_frame", None)

    @property
    def cr_running(self) -> bool:
        return bool(getattr(self._inner, "cr_running", False))

    @property
    def cr_suspended(self) -> bool:
        return bool(getattr(self._inner, "cr_suspended", False))

    @property
    def cr_code(self) -> Any:
        return getattr(self._inner, "cr_code", None)

    @property
    def cr_await(self) -> Any:
        return getattr(self._inner, "cr_await", None)

    def _crash(self, error: BaseException) -> TaskCrashed:
        self._process.crash(error)
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(_seen)
        return TaskCrashed(error)


def _seen(task: asyncio.Task[Any]) -> None:
    # The crash was reported; that nobody awaits the task is not worth a second line in the log.
    if not task.cancelled():
        task.exception()


def make_factory(inner: Factory | None) -> Factory:
    """A task factory that adopts tasks of the loop's processes and leaves all others to `inner`, the loop's own."""

    def plain(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Future[Any]:
        return asyncio.Task(coro, loop=loop, **options) if inner is None else inner(loop, coro, **options)

    def factory(loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Future[Any]:
        context: Context | None = options.get("context")
        process = current.get() if context is None else context.get(current)
        if process is None or not process.adopts or process.node.loop is not loop:
            # A task that a process of another node's thread sends here is not that process's to cancel.
            return plain(loop, coro, **options)
        if not asyncio.iscoroutine(coro):
            return plain(loop, coro, **options)  # which refuses it, here and now
        if getattr(coro, "__name__", None) == _FOR_THE_LOOP:
            return plain(loop, coro, **options)
        task = plain(loop, _Guarded(process, coro), **options)
        if isinstance(task, asyncio.Task) and process.life != GONE:
            process.adopt(task)
        return task

    return factory


watchdog.runs_handlers(_Guarded.send.__code__, lambda frame: frame["self"]._process)
watchdog.runs_handlers(_Guarded.throw.__code__, lambda frame: frame["self"]._process)
