"""The route to a server in the same loop, without any transport in between.

One process handles both directions. Messages are processed in order as fast as the server has room; a bounded queue holds the rest, and
more is refused. The wire ends with its session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, NoReturn

from greenroom.errors import ConfigError
from greenroom.protocol.errors import McpError, PeerError, RemoteProtocolError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, MessageLimits, parse
from greenroom.supervision import (
    SHUTDOWN,
    Exit,
    NoProcess,
    ProcessExited,
    Quit,
    Ref,
    Shutdown,
    receive,
    spawn_link,
    trap_exit,
)
from greenroom.transports.interfaces import Peer

from .errors import ConnectFailed, ConnectionLost, TransportError, WireFull
from .interfaces import Inbound, UnansweredRequest, parse_inbound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.protocol.jsonrpc import RequestId
    from greenroom.supervision import Pid
    from greenroom.transports.interfaces import Feed, SessionHandle, SessionRouter

    from .interfaces import InboundItem

MAX_QUEUED = 4096
"""How many messages may be queued."""
LINE = 16 * 1024 * 1024
"""The largest message from the server, in bytes."""


class MemoryRoute:
    """A server in the same loop: ``MemoryRoute(company)``."""

    def __init__(
        self,
        router: SessionRouter,
        *,
        peer: Peer | None = None,
        prepare: Callable[[], Awaitable[object]] | None = None,
        description: str = "memory",
        line: int = LINE,
    ) -> None:
        """`prepare` is awaited before each new session, to make sure that the server runs. `peer` describes the client to the server.

        `line` is the largest message from the server, in bytes; the server limits messages to it.
        """
        self.router = router
        self.peer = peer or Peer("memory")
        self.prepare = prepare
        self.description = description
        self.limits = MessageLimits.of_size(line)

    def __repr__(self) -> str:
        return f"MemoryRoute({self.description})"

    def portable(self) -> NoReturn:
        """Raises `ConfigError`: no other process can reach it."""
        raise ConfigError(
            f"{self.description} is a server of this program, which no other process has: leave out its isolation "
            'here, or give its tools one: @server.tool(isolation="process")'
        )

    def open(self, owner: Pid) -> MemoryClientWire:
        """Start a session, linked to the calling process."""
        return MemoryClientWire(self, owner)


class MemoryClientWire:
    """The client's end of one session."""

    def __init__(self, route: MemoryRoute, owner: Pid) -> None:
        """Made by `MemoryRoute.open`, in the owner's process."""
        self.description = route.description
        self._route = route
        self._owner: Ref[object] = Ref(owner)
        self._frames: deque[tuple[bytes, RequestId | None]] = deque()
        self._queued = asyncio.Event()
        self.pid: Pid = spawn_link(self._run)

    # --- the ClientWire interface

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False) -> None:  # noqa: ARG002 - messages are always in order
        if len(self._frames) >= MAX_QUEUED:
            raise WireFull(f"{len(self._frames)} messages are queued already")
        self._frames.append((frame, id))
        self._queued.set()

    def forget(self, id: RequestId) -> None:
        """A no-op: nothing is held for a reply."""

    def on_negotiated(self, version: str) -> None:
        """A no-op: nothing depends on the revision."""

    # --- the process

    async def _run(self) -> None:
        trap_exit()
        route = self._route
        try:
            if route.prepare is not None:
                await route.prepare()
            session = await route.router.connect(route.peer)
        except Exception as error:  # noqa: BLE001 - any error that prevents a session ends the wire, as its reason
            reason = error if isinstance(error, TransportError) else ConnectFailed(_why(error))
            reason.__cause__ = error.__cause__ if reason is error else error
            raise Quit(Shutdown(reason)) from None
        feed = session.channel
        assert feed is not None
        sending, receiving = asyncio.create_task(self._send_queued(session)), asyncio.create_task(self._receive(feed))
        exit_signal = asyncio.create_task(receive(lambda message: isinstance(message, Exit)))
        try:
            await asyncio.wait((sending, receiving, exit_signal), return_when=asyncio.FIRST_COMPLETED)
        finally:
            with contextlib.suppress(ProcessExited):
                await session.end()
        if exit_signal.done():
            raise Quit(SHUTDOWN)
        sending.cancel()
        await asyncio.wait((sending,))
        self._report_unsent()
        for each in (sending, receiving):
            if each.done() and not each.cancelled():
                each.result()
        raise Quit(Shutdown(ConnectionLost("the session has ended")))

    async def _send_queued(self, session: SessionHandle) -> None:
        frames = self._frames
        while True:
            while frames:
                frame, id = frames.popleft()
                try:
                    await _hand_over(session, frame)
                except ProcessExited as error:
                    if isinstance(error.reason, NoProcess):
                        frames.appendleft((frame, id))
                    return
                except RemoteProtocolError as error:
                    await self._on_refused(session, error, id)
            self._queued.clear()
            await self._queued.wait()

    async def _on_refused(self, session: SessionHandle, error: RemoteProtocolError, id: RequestId | None) -> None:
        """Answer a message that the server does not accept, such as one over its limit, as any other transport would."""
        failure = PeerError(error.code, error.message, error.data)
        if error.response_to is None:
            self._owner.send(Inbound(self.pid, [JsonRpcError(id, failure)]))
            return
        with contextlib.suppress(ProcessExited):  # the feed reports the end of the session
            await session.respond(JsonRpcError(error.response_to, failure))

    def _report_unsent(self) -> None:
        """Report messages that the session did not receive as safe to resend."""
        ended = ConnectionLost("the session has ended")
        unseen: list[InboundItem] = [
            UnansweredRequest(id, ended, resend=True, ending=True) for _, id in self._frames if id is not None
        ]
        if unseen:
            self._owner.send(Inbound(self.pid, unseen))

    async def _receive(self, feed: Feed) -> None:
        while (events := await feed.next()) is not None:
            items = [parse_inbound(event.data, self._route.limits) for event in events if event.data]
            if items:
                self._owner.send(Inbound(self.pid, items))


async def _hand_over(session: SessionHandle, frame: bytes) -> None:
    message = parse(frame)
    if isinstance(message, JsonRpcRequest):
        await session.request(message)
    elif isinstance(message, JsonRpcNotification):
        await session.notify(message)
    else:
        await session.respond(message)


def _why(error: Exception) -> str:
    return error.message if isinstance(error, McpError) else f"the server started no session: {error}"
