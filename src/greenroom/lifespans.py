"""What a server needs for as long as it runs (a pool of connections, a model, a folder): opened before anybody is let in, closed when all are gone.

Each is held by a process, the first child of the company: what cannot be opened keeps the server from starting, and stopping in order ends with
closing. It is opened and closed in one task, whatever happens in between. Nobody sends that process messages; when it is killed it closes what
it holds, and its supervisor opens another. The same when what it holds ends by itself: a group of tasks of which one has failed has closed already.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar, cast

from greenroom.actors.catalogue import RegistrationError
from greenroom.supervision import GenServer, child, send

from .errors import ConfigError, GreenroomError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.supervision import ChildSpec, ExitReason

_OVER: Final = object()
"""To itself: it is over with what it holds."""

F = TypeVar("F", bound="Callable[[], Any]")

CLOSES_WITHIN = 30.0
"""How long closing may take, where the server's own grace is no shorter."""


class LifespanFailed(GreenroomError):
    """What was to be opened, or held, has not been, and nothing was raised that says why."""


class Lifespans:
    """For whoever runs. `Server` derives from it."""

    _lifespans: tuple[Callable[[], AbstractAsyncContextManager[Any]], ...] = ()

    @property
    def _runs(self) -> bool:
        raise NotImplementedError

    def lifespan(self, function: F, /) -> F:
        """Open something before the server lets anybody in, and close it when it has stopped: ``@server.lifespan`` on an `async def` that yields once.

        It takes no arguments; what it opens goes into a variable of yours. What it raises before the `yield` keeps the server from starting. There can
        be several: each opens after those before it, and closes before them. Handlers with processes of their own do not see it.
        """
        if self._runs:
            raise ConfigError("a lifespan is said before the server runs")
        self._lifespans = (*self._lifespans, _opener(function))
        return function

    def lifespans(self) -> list[tuple[str, str]]:
        """Those that were said: the name of each, and its module."""
        found = [inspect.unwrap(each) for each in self._lifespans]
        return [(getattr(each, "__name__", repr(each)), getattr(each, "__module__", "")) for each in found]

    def _lifespan_children(self) -> Sequence[ChildSpec[Any]]:
        return [
            child(Lifespan, opener).but(id=f"lifespan {number}", shutdown=CLOSES_WITHIN)
            for number, opener in enumerate(self._lifespans, 1)
        ]


def _opener(function: Any) -> Callable[[], AbstractAsyncContextManager[Any]]:
    name: str = getattr(function, "__name__", repr(function))
    if not callable(function) or inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise RegistrationError(f"the lifespan {name} has to be an `async def` with one `yield`, where the server runs")
    needed = [each.name for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    if needed:
        raise RegistrationError(f"the lifespan {name} is called without arguments, and wants {', '.join(needed)}")
    is_generator = inspect.isasyncgenfunction(function)
    said = cast("Any", function)
    return asynccontextmanager(said) if is_generator else said


class Lifespan(GenServer):
    """Holds what one of them has opened."""

    traps_exit: ClassVar[bool] = True  # else nothing would be closed

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        """`opener` makes a context manager, which is entered when this process begins."""
        self._opener = opener
        self._held: asyncio.Task[None] | None = None
        self._over = asyncio.Event()
        self._reported = False

    async def init(self) -> None:
        """Open it. Whatever that raises is raised here."""
        opened = asyncio.Event()
        held = self._held = asyncio.create_task(self._hold(opened), name="lifespan")
        waiting = asyncio.create_task(opened.wait())
        try:
            await asyncio.wait({held, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if held.done():
            await held

    def report_state(self) -> str:
        """Which one it is."""
        return _told(self._opener)

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ends, it is closed
        """Close it."""
        self._over.set()
        if self._held is not None and not self._reported:
            await self._held

    async def handle_info(self, message: Any) -> Any:
        """It is over though nobody has told it to: that is what this process dies of, so that there is another."""
        if message is not _OVER:
            return super().handle_info(message)
        assert self._held is not None
        self._reported = True
        await asyncio.wait((self._held,))
        error = None if self._held.cancelled() else self._held.exception()
        raise error or LifespanFailed(f"{_told(self._opener)} has ended though nobody has told it to")

    async def _hold(self, opened: asyncio.Event) -> None:
        try:
            async with self._opener():
                opened.set()
                try:
                    await self._over.wait()
                except asyncio.CancelledError:
                    # A group of tasks ends its block so, and has to see it. At the end of a loop that nothing has stopped the server before, it
                    # would only skip what stands behind the `yield`, where most lifespans close what they have.
                    if not _loop_ends():
                        raise
                    self._over.set()
        except SystemExit as error:
            raise LifespanFailed(f"{_told(self._opener)} has ended with sys.exit({error.code!r})") from error
        except RuntimeError as error:
            if opened.is_set() or str(error) != _NO_YIELD:
                raise
            raise LifespanFailed(f"{_told(self._opener)} has to `yield` once, and did not") from None
        finally:
            if opened.is_set() and not self._over.is_set():
                send(self.pid, _OVER)


def _loop_ends() -> bool:
    """Whether each task of the loop is being cancelled, but for those that were made this moment: `asyncio.run` does so when its main task is over."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return all(each.cancelling() or _has_not_begun(each) for each in others)


def _has_not_begun(task: asyncio.Task[Any]) -> bool:
    coroutine = task.get_coro()
    return inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED


_NO_YIELD: Final = "generator didn't yield"
"""What `asynccontextmanager` says of such a one."""


def _told(opener: Callable[[], Any]) -> str:
    function = inspect.unwrap(opener)
    code = getattr(function, "__code__", None)
    where = "" if code is None else f" ({code.co_filename}, line {code.co_firstlineno})"
    return f"the lifespan {getattr(function, '__name__', repr(function))}{where}"
