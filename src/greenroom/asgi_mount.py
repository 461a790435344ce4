"""The server as an ASGI application inside another program, and the lifespans of a server.

The application starts with its first request and ends with the lifespan of its host. A host that passes its lifespan on has the company ready
before the first request, and stopped in order. Most hosts do not pass it on to mounted applications, so `MountedApp.lifespan` can be theirs:
`FastAPI(lifespan=mcp.lifespan)`. Without either, the server's lifespans are closed when the loop ends, and a warning says what to write.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from greenroom.actors.catalogue import RegistrationError
from greenroom.auth.auth_info import AuthInfo
from greenroom.supervision import GenServer, send
from greenroom.transports.asgi import KNOWN_PEER
from greenroom.transports.interfaces import Peer

from .errors import GreenroomError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from typing import TypeAlias

    from greenroom.supervision import ExitReason
    from greenroom.transports.asgi import AsgiRouter, Receive, Scope, Send

    from .child_runner import ChildRunner

    Caller: TypeAlias = Callable[[Scope], "AuthInfo | Awaitable[AuthInfo | None] | None"]

log: Final = logging.getLogger("greenroom.http")


class MountedApp:
    """A server as an ASGI application."""

    def __init__(
        self,
        hosting: ChildRunner,
        endpoint: AsgiRouter,
        caller: Caller | None = None,
        *,
        opens: Callable[[], bool] = bool,
    ) -> None:
        """`endpoint` serves requests once the company runs, `caller` finds the caller in a scope, `opens` says whether there are lifespans."""
        self._runner = hosting
        self._endpoint = endpoint
        self._caller = starlette_user if caller is None else caller
        self._has_lifespan = opens
        self._open_lifespans = 0
        self._warned = False
        self.instance = endpoint.engine.instance
        """The header that marks refusals by this process, for a proxy in front of it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or a lifespan."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if not self._open_lifespans and not self._warned and self._has_lifespan():
            self._warned = True
            log.warning(
                "the server is mounted, but its host does not pass its lifespan on: what @server.lifespan has opened is closed at the end of the loop, and not in "
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
    async def lifespan(self, app: object = None) -> AsyncGenerator[None]:  # noqa: ARG002 - hosts pass themselves
        """Run the company during the block, as a host's lifespan: ``FastAPI(lifespan=mcp.lifespan)``, or inside another lifespan."""
        await self._runner.acquire()
        self._open_lifespans += 1
        try:
            yield
        finally:
            self._open_lifespans -= 1
            await self._runner.release()

    async def close(self) -> None:
        """Stop the company in this loop, for hosts that call a function when they stop."""
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
    """The caller found by Starlette's `AuthenticationMiddleware`, also in FastAPI: `request.user.identity`, `request.auth.scopes`."""
    user, granted = scope.get("user"), scope.get("auth")
    if user is None or not getattr(user, "is_authenticated", False):
        return None
    try:
        subject = user.identity
    except (AttributeError, NotImplementedError):
        subject = (
            None  # a display name may be ambiguous: without an identity, callers are told apart by their sessions only
        )
    scopes = getattr(granted, "scopes", None)
    return AuthInfo(None if subject is None else str(subject), scopes=None if scopes is None else frozenset(scopes))


# --- Lifespans: what a server needs while it runs (a connection pool, a model, a folder), opened before the first peer and closed after the last.
# Each is held by a process, among the first children of the company: a failure to open keeps the server from starting, and an orderly stop closes it.
# It is opened and closed in one task. The process gets no messages from others. If it is killed, it closes what it holds and its supervisor starts
# another one; the same happens if the lifespan ends by itself, such as a task group after a failed task.

_LIFESPAN_ENDED: Final = object()
"""A message to itself: the lifespan ended."""

CLOSE_TIMEOUT = 30.0
"""How long closing may take in seconds, unless the server's own grace is shorter."""


class LifespanFailed(GreenroomError):
    """A lifespan could not be opened, or ended early, without an exception of its own."""


def opener_of(function: Any) -> Callable[[], AbstractAsyncContextManager[Any]]:
    """The context manager function for a `LifespanProcess`. Raises `RegistrationError` for an unsuitable function."""
    name: str = getattr(function, "__name__", repr(function))
    if not callable(function) or inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise RegistrationError(f"the lifespan {name} must be an `async def` with one `yield`")
    needed = [each.name for each in inspect.signature(function).parameters.values() if each.default is each.empty]
    if needed:
        raise RegistrationError(f"the lifespan {name} is called without arguments, but requires {', '.join(needed)}")
    is_generator = inspect.isasyncgenfunction(function)
    typed = cast("Any", function)
    return asynccontextmanager(typed) if is_generator else typed


class LifespanProcess(GenServer):
    """Holds one open lifespan."""

    traps_exit: ClassVar[bool] = True  # otherwise the lifespan would not be closed

    def __init__(self, opener: Callable[[], AbstractAsyncContextManager[Any]]) -> None:
        """`opener` makes a context manager, which is entered in `init`."""
        self._opener = opener
        self._lifespan_task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._reported = False

    async def init(self) -> None:
        """Open the lifespan; its exceptions are raised here."""
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
        """The place of the lifespan's function in the source."""
        return _location_of(self._opener)

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - closed for any reason
        """Close the lifespan."""
        self._closing.set()
        if self._lifespan_task is not None and not self._reported:
            await self._lifespan_task

    async def handle_info(self, message: Any) -> Any:
        """End this process if the lifespan ended by itself, so that the supervisor opens another."""
        if message is not _LIFESPAN_ENDED:
            return super().handle_info(message)
        assert self._lifespan_task is not None
        self._reported = True
        await asyncio.wait((self._lifespan_task,))
        error = None if self._lifespan_task.cancelled() else self._lifespan_task.exception()
        raise error or LifespanFailed(f"{_location_of(self._opener)} has ended before the server")

    async def _run_lifespan(self, opened: asyncio.Event) -> None:
        try:
            async with self._opener():
                opened.set()
                try:
                    await self._closing.wait()
                except asyncio.CancelledError:
                    # A task group cancels its block this way and must see the cancellation. But at the end of a loop, when the server was not stopped
                    # before, it would skip the code after the `yield`, where most lifespans close what they opened.
                    if not _is_loop_ending():
                        raise
                    self._closing.set()
        except SystemExit as error:
            raise LifespanFailed(f"{_location_of(self._opener)} has ended with sys.exit({error.code!r})") from error
        except RuntimeError as error:
            if opened.is_set() or str(error) != _NO_YIELD:
                raise
            raise LifespanFailed(f"{_location_of(self._opener)} must `yield` once, but did not") from None
        finally:
            if opened.is_set() and not self._closing.is_set():
                send(self.pid, _LIFESPAN_ENDED)


def _is_loop_ending() -> bool:
    """Whether all tasks of the loop are being cancelled, except unstarted ones: `asyncio.run` does so when its main task is done."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return all(each.cancelling() or _is_unstarted(each) for each in others)


def _is_unstarted(task: asyncio.Task[Any]) -> bool:
    coroutine = task.get_coro()
    return inspect.iscoroutine(coroutine) and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED


_NO_YIELD: Final = "generator didn't yield"
"""The error text of `asynccontextmanager` for a generator without a yield."""


def _location_of(opener: Callable[[], Any]) -> str:
    function = inspect.unwrap(opener)
    code = getattr(function, "__code__", None)
    where = "" if code is None else f" ({code.co_filename}, line {code.co_firstlineno})"
    return f"the lifespan {getattr(function, '__name__', repr(function))}{where}"
