"""The server as an ASGI application inside another program: it starts with the first request, and ends with the lifespan of its host.

A host that passes its lifespan on has the company ready before the first request, and stopped in order. Most hosts that mount an application do not
pass it on, so `MountedApp.lifespan` can be theirs: `FastAPI(lifespan=mcp.lifespan)`. Without either, what the server has opened is closed when the
loop ends, and a warning says what to write.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from greenroom.actors.catalogue import RegistrationError
from greenroom.supervision import GenServer, send
from greenroom.transports.asgi import KNOWN_PEER

from .auth.auth_info import AuthInfo
from .errors import GreenroomError
from .transports.interfaces import Peer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from typing import TypeAlias

    from greenroom.supervision import ExitReason
    from greenroom.transports.asgi import AsgiEndpoint, Receive, Scope, Send

    from .child_runner import ChildRunner

    Caller: TypeAlias = Callable[[Scope], "AuthInfo | Awaitable[AuthInfo | None] | None"]

log: Final = logging.getLogger("greenroom.http")


class MountedApp:
    """The application."""

    def __init__(
        self,
        hosting: ChildRunner,
        endpoint: AsgiEndpoint,
        caller: Caller | None = None,
        *,
        opens: Callable[[], bool] = bool,
    ) -> None:
        """`endpoint` serves requests once the company runs. `caller` finds in a scope who calls, and `opens` says whether something is to be closed."""
        self._runner = hosting
        self._endpoint = endpoint
        self._caller = starlette_user if caller is None else caller
        self._has_lifespan = opens
        self._open_lifespans = 0
        self._warned = False
        self.instance = endpoint.engine.instance
        """The header by which clients know that this process has refused a request: for a stage in front of it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or a lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if not self._open_lifespans and not self._warned and self._has_lifespan():
            self._warned = True
            log.warning(
                "the server is mounted, and its host passes no lifespan on: what @server.lifespan has opened is closed at the end of the loop, and not in "
                "order. Give the host lifespan=app.lifespan, where app is what server.asgi() has returned, or await app.close() when it stops"
            )
        await self._runner.ensure()
        state: Mapping[str, Any] = scope.get("state") or {}
        if scope["type"] == "http" and KNOWN_PEER not in state:
            found = self._caller(scope)
            info = await found if inspect.isawaitable(found) else found
            if info is not None:
                client = scope.get("client")
                peer = Peer("http", f"{client[0]}:{client[1]}" if client else "", info.principal, info)
                scope = {**scope, "state": {**state, KNOWN_PEER: peer}}
        await self._endpoint(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, app: object = None) -> AsyncGenerator[None]:  # noqa: ARG002 - hosts give themselves
        """Run the company for as long as the block lasts, for a host: ``FastAPI(lifespan=mcp.lifespan)``, or inside a lifespan of your own."""
        await self._runner.acquire()
        self._open_lifespans += 1
        try:
            yield
        finally:
            self._open_lifespans -= 1
            await self._runner.release()

    async def close(self) -> None:
        """Stop it in this loop, for hosts that call a function when they stop."""
        await self._runner.close()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._runner.ensure()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    raise
                self._open_lifespans += 1
            else:
                self._open_lifespans -= 1
                await self._runner.close()
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return


def starlette_user(scope: Scope) -> AuthInfo | None:
    """The caller that Starlette's `AuthenticationMiddleware` has found, which FastAPI has, too: `request.user.identity` and `request.auth.scopes`."""
    user, granted = scope.get("user"), scope.get("auth")
    if user is None or not getattr(user, "is_authenticated", False):
        return None
    try:
        subject = user.identity
    except (AttributeError, NotImplementedError):
        subject = None  # a name for people may be the name of two: then sessions alone tell them apart
    scopes = getattr(granted, "scopes", None)
    return AuthInfo(None if subject is None else str(subject), scopes=None if scopes is None else frozenset(scopes))


# --- What a server needs for as long as it runs (a pool of connections, a model, a folder): opened before any peer is let in, closed when all are gone.
# Each is held by a process, the first child of the company: what cannot be opened keeps the server from starting, and stopping in order ends with
# closing. It is opened and closed in one task, whatever happens in between. No other process sends it messages; when it is killed it closes what
# it holds, and its supervisor opens another. The same when what it holds ends by itself: a group of tasks of which one has failed has closed already.

_LIFESPAN_ENDED: Final = object()
"""To itself: it is over with what it holds."""

CLOSE_TIMEOUT = 30.0
"""How long closing may take, where the server's own grace is no shorter."""


class LifespanFailed(GreenroomError):
    """What was to be opened, or held, has not been, and nothing was raised that says why."""


def opener_of(function: Any) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """What a `LifespanProcess` enters. Raises `RegistrationError` for what is no function for that."""
    name: str = getattr(function, "__name__", repr(function))
    if not callable(function) or inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise RegistrationError(f"the lifespan {name} has to be an `async def` with one `yield`, where the server runs")
    needed = [each.name for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    if needed:
        raise RegistrationError(f"the lifespan {name} is called without arguments, and wants {', '.join(needed)}")
    is_generator = inspect.isasyncgenfunction(function)
    said = cast("Any", function)
    return asynccontextmanager(said) if is_generator else said


class LifespanProcess(GenServer):
    """Holds what one of them has opened."""

    traps_exit: ClassVar[bool] = True  # else nothing would be closed

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        """`opener` makes a context manager, which is entered when this process begins."""
        self._opener = opener
        self._lifespan_task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._reported = False

    async def init(self) -> None:
        """Open it. Whatever that raises is raised here."""
        opened = asyncio.Event()
        held = self._lifespan_task = asyncio.create_task(self._run_lifespan(opened), name="lifespan")
        waiting = asyncio.create_task(opened.wait())
        try:
            await asyncio.wait({held, waiting}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if held.done():
            await held

    def report_state(self) -> str:
        """Which one it is."""
        return _location_of(self._opener)

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ends, it is closed
        """Close it."""
        self._closing.set()
        if self._lifespan_task is not None and not self._reported:
            await self._lifespan_task

    async def handle_info(self, message: Any) -> Any:
        """It is over without an order to end: that is what this process dies of, so that there is another."""
        if message is not _LIFESPAN_ENDED:
            return super().handle_info(message)
        assert self._lifespan_task is not None
        self._reported = True
        await asyncio.wait((self._lifespan_task,))
        error = None if self._lifespan_task.cancelled() else self._lifespan_task.exception()
        raise error or LifespanFailed(f"{_location_of(self._opener)} has ended though nobody has told it to")

    async def _run_lifespan(self, opened: asyncio.Event) -> None:
        try:
            async with self._opener():
                opened.set()
                try:
                    await self._closing.wait()
                except asyncio.CancelledError:
                    # A group of tasks ends its block so, and has to see it. At the end of a loop that nothing has stopped the server before, it
                    # would only skip what stands behind the `yield`, where most lifespans close what they have.
                    if not _is_loop_ending():
                        raise
                    self._closing.set()
        except SystemExit as error:
            raise LifespanFailed(f"{_location_of(self._opener)} has ended with sys.exit({error.code!r})") from error
        except RuntimeError as error:
            if opened.is_set() or str(error) != _NO_YIELD:
                raise
            raise LifespanFailed(f"{_location_of(self._opener)} has to `yield` once, and did not") from None
        finally:
            if opened.is_set() and not self._closing.is_set():
                send(self.pid, _LIFESPAN_ENDED)


def _is_loop_ending() -> bool:
    """Whether each task of the loop is being cancelled, but for those that were made this moment: `asyncio.run` does so when its main task is over."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return all(each.cancelling() or _is_unstarted(each) for each in others)


def _is_unstarted(task: asyncio.Task[Any]) -> bool:
    coroutine = task.get_coro()
    return inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED


_NO_YIELD: Final = "generator didn't yield"
"""What `asynccontextmanager` says of such a one."""


def _location_of(opener: Callable[[], Any]) -> str:
    function = inspect.unwrap(opener)
    code = getattr(function, "__code__", None)
    where = "" if code is None else f" ({code.co_filename}, line {code.co_firstlineno})"
    return f"the lifespan {getattr(function, '__name__', repr(function))}{where}"
