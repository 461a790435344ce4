"""The line of a connection, and how connections are started: alone, linked, or as the child of a supervisor.

::

    line = await start_connection(MemoryRoute(company), name="company")
    await line.ready()
    tools = await line.request("tools/list")
    await line.close()

    line = ConnectionLine("git", settings)
    Supervisor([connection_spec(route, handler, line=line)])
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.messages import encode_notification
from greenroom.supervision import (
    CallTimeout,
    GreenroomError,
    ProcessExited,
    Ref,
    child,
    current_node,
    kill,
    start,
    start_link,
    wait_down,
)

from .board import Board, Reader
from .connection import Connection
from .errors import ClientClosed, InitTimeout, NotReady, RequestTimeout, Unavailable
from .handler import ClientHandler
from .requests import PendingRequest, parked
from .seam import Phase
from .settings import ClientSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from greenroom.supervision import ChildSpec, Pid
    from greenroom.transports.client.seam import Route

    from .seam import Status, Welcome

_DEFAULT: Final[Any] = ...
_LEAVING: Final = 5.0


class ConnectionLine:
    """The handle for requests to one server. It outlives connections: they come and go behind it."""

    __slots__ = ("__weakref__", "board")

    def __init__(self, name: str, settings: ClientSettings | None = None, *, patience: float | None = None) -> None:
        """`name` is what the server is called here.

        With a `patience` no request waits longer than that for the server to be ready, nor at all once an attempt to reach it has failed.
        """
        self.board = Board(name, settings or ClientSettings(), patience)

    def __repr__(self) -> str:
        return f"<ConnectionLine {self.board.key}, {self.board.phase.value}>"

    @property
    def pid(self) -> Pid | None:
        """The connection's process, if it runs just now."""
        process = self.board.process
        return None if process is None else process.pid

    @property
    def name(self) -> str:
        """What the server is called here."""
        return self.board.name

    @property
    def settings(self) -> ClientSettings:
        """How the connection is set up."""
        return self.board.settings

    @property
    def status(self) -> Status:
        """How it is."""
        return self.board.ready or self.board.status

    @property
    def welcome(self) -> Welcome | None:
        """What the server last said of itself."""
        return self.board.welcome

    # --- asking

    def begin(  # noqa: PLR0913 - what can be said of a request
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = _DEFAULT,
        wait: bool = True,
        progress: bool = False,
        token: str | int | None = None,
        idempotent: bool | None = None,
    ) -> PendingRequest:
        """Send a request, in the loop that the connection runs in."""
        board = self.board
        process = board.process
        loop = asyncio.get_running_loop() if process is None else process.node.loop
        if process is not None and threading.get_ident() != process.node.thread:
            process.node.check_thread("begin a request")
        id = next(board.ids)
        pending = PendingRequest(loop, id, method, params)
        seconds = board.settings.request_timeout if timeout is _DEFAULT else timeout
        if seconds is not None and not 0 < seconds < math.inf:
            if seconds != math.inf:
                pending.settle(None, RequestTimeout(method, seconds))
                return pending
            seconds = None
        absent = process is None or process.life
        if absent and not (wait and seconds is not None and self._comes_back()):
            pending.settle(None, self._absent())
            return pending
        if not wait:
            pending.waits = False
        if idempotent is not None:
            pending.idempotent = idempotent
        if progress or token is not None:
            pending.token = id if token is None else token
            pending.expect_progress(board.settings.max_progress)
        if process is None or process.life:
            pending.begin(current_node(), seconds)
            board.held = [each for each in board.held if not each.settled]
            board.held.append(pending)
            return pending
        pending.begin(process.node, seconds)
        pending.handed_to(process)
        board.coming[pending] = None
        process.send(pending)
        return pending

    def _comes_back(self) -> bool:
        """Whether its supervisor is about to start it again."""
        board = self.board
        ends = board.phase in (Phase.CLOSING, Phase.CLOSED)
        return board.supervised and not ends and len(board.held) < board.settings.max_pending

    def _absent(self) -> Exception:
        board = self.board
        if board.cause is not None:
            return Unavailable(board.name, board.cause)
        if board.phase is Phase.CONNECTING:
            return NotReady(
                f"the client of {board.name} is not open: write `async with client:` (`with` for a SyncClient), or start its child_spec()"
            )
        return ClientClosed("the client is closed: use it inside its `async with` block")

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = _DEFAULT,
        wait: bool = True,
    ) -> dict[str, Any]:
        """Send a request and wait for its result."""
        return await self.begin(method, params, timeout=timeout, wait=wait)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the server something."""
        frame = encode_notification(method, params)
        try:
            await self._ref().call(Connection.say, frame)
        except ProcessExited:
            raise self._absent() from None

    async def set_level(self, level: str, *, timeout: float | None = _DEFAULT) -> None:
        """Say what the server is to log, now and after each new handshake."""
        await self.begin("logging/setLevel", {"level": level}, timeout=timeout)
        self.board.level = level

    async def ready(self, timeout: float | None = _DEFAULT) -> Welcome:
        """Wait until it is ready; by default as long as a handshake may take."""
        board = self.board
        seconds = board.settings.init_timeout if timeout is _DEFAULT else timeout
        try:
            async with asyncio.timeout(seconds), aclosing(board.watch()) as statuses:
                async for status in statuses:
                    if status.phase is Phase.READY:
                        assert board.welcome is not None
                        return board.welcome
                    if status.phase is Phase.PARKED:
                        raise parked(board)
                    if status.phase in (Phase.CLOSED, Phase.CLOSING):
                        raise self._absent()
        except TimeoutError:
            cause = board.cause
            if cause is None:
                raise InitTimeout(f"{board.name} is still {board.phase.value} after {seconds:g} s") from None
            raise Unavailable(board.name, cause, board.status.retry_in) from cause
        raise self._absent()

    # --- hearing

    def subscribe(self, uri: str) -> Reader:
        """Updates of a resource, for as long as the block lasts."""
        readers = self.board.readers

        turn = readers.turns.setdefault(uri, asyncio.Lock())

        async def enter() -> None:
            async with turn:
                if uri not in readers.granted:
                    await self.request("resources/subscribe", {"uri": uri})
                    readers.granted.add(uri)

        async def leave() -> None:
            async with turn:
                if uri in readers.by_uri or uri not in readers.granted:
                    return
                readers.granted.discard(uri)
                with contextlib.suppress(GreenroomError):  # a server that is away sends no updates either
                    await self.request("resources/unsubscribe", {"uri": uri}, timeout=_LEAVING, wait=False)

        return Reader(readers, uri=uri, enter=enter, leave=leave)

    def listen(self, *methods: str) -> Reader:
        """Notifications of these methods, or of all."""
        return Reader(self.board.readers, methods)

    def watch(self) -> AsyncGenerator[Status]:
        """The present status, and each one that comes after it."""
        return self.board.watch()

    # --- the connection

    def _ref(self) -> Ref[Connection]:
        process = self.board.process
        if process is None:
            raise self._absent()
        return Ref.of(process)

    async def snapshot(self) -> dict[str, Any]:
        """The state of the connection, for inspection."""
        return await self._ref().call(Connection.snapshot)

    def retry(self) -> None:
        """Try now: out of backoff or parked."""
        board = self.board
        if board.process is not None and board.phase in (Phase.BACKOFF, Phase.PARKED):
            board.forgiven = board.attempts
            board.tell(Phase.CONNECTING, board.cause, board.attempts)  # at once: requests wait for this from now on
            self._ref().cast(Connection.retry)

    async def close(self, timeout: float | None = _DEFAULT) -> None:
        """End it in order, by default within the grace that is set; a process that has not ended then is killed."""
        board = self.board
        process = board.process
        if process is None:
            board.tell(Phase.CLOSED)
            for pending in board.held:
                pending.settle(None, self._absent())
            board.held.clear()
            return
        Ref.of(process).cast(Connection.close)
        try:
            await wait_down(process.pid, board.settings.close_grace + 1.0 if timeout is _DEFAULT else timeout)
        except CallTimeout:
            kill(process.pid)
            await wait_down(process.pid, None)
            board.tell(Phase.CLOSED)


async def start_connection(
    route: Route,
    settings: ClientSettings | None = None,
    handler: ClientHandler | None = None,
    *,
    name: str = "server",
) -> ConnectionLine:
    """Start a connection that lives on its own. The handshake goes on after that: see `ready`."""
    line = ConnectionLine(name, settings)
    await start(Connection, line, route, handler or ClientHandler())
    return line


async def start_link_connection(
    route: Route,
    settings: ClientSettings | None = None,
    handler: ClientHandler | None = None,
    *,
    name: str = "server",
) -> ConnectionLine:
    """As `start_connection`, linked to the calling process, which becomes the parent."""
    line = ConnectionLine(name, settings)
    await start_link(Connection, line, route, handler or ClientHandler())
    return line


def connection_spec(
    route: Route,
    handler: ClientHandler | None = None,
    *,
    line: ConnectionLine,
) -> ChildSpec[Ref[Connection]]:
    """The connection behind `line` as a child of any supervisor. It is started again when it crashes, and not when it was closed."""
    line.board.supervised = True
    spec = child(Connection, line, route, handler or ClientHandler())
    return spec.but(id=line.name, restart="transient", shutdown=line.settings.close_grace + 1.0)
