"""The way to a company in the same loop: a peer that speaks the wire to it, with nothing in between.

One process carries both ways. What is sent is taken in order, for as long as the company has room; what does not fit into a bounded queue
is refused. The wire ends with the session behind it.
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
"""How many messages wait to be taken."""
LINE = 16 * 1024 * 1024
"""Bytes of a message from the company."""


class MemoryRoute:
    """Where a company is: ``MemoryRoute(company)``."""

    def __init__(
        self,
        door: SessionRouter,
        *,
        peer: Peer | None = None,
        prepare: Callable[[], Awaitable[object]] | None = None,
        description: str = "memory",
        line: int = LINE,
    ) -> None:
        """`prepare` is awaited before each new session: it sees to it that the company runs. `peer` is whom it takes us for.

        `line` is how many bytes a message from the company may have; how many one to it may have is the company's to say.
        """
        self.door = door
        self.peer = peer or Peer("memory")
        self.prepare = prepare
        self.description = description
        self.limits = MessageLimits.of_size(line)

    def __repr__(self) -> str:
        return f"MemoryRoute({self.description})"

    def portable(self) -> NoReturn:
        """There is none."""
        raise ConfigError(
            f"{self.description} is a server of this program, which no other process has: leave out its isolation "
            'here, or give its tools one: @server.tool(isolation="process")'
        )

    def open(self, owner: Pid) -> MemoryClientWire:
        """Begin a session, linked to the calling process."""
        return MemoryClientWire(self, owner)


class MemoryClientWire:
    """One session, from the peer's side."""

    def __init__(self, route: MemoryRoute, owner: Pid) -> None:
        """Made by `MemoryRoute.open`, in the owner's process."""
        self.description = route.description
        self._route = route
        self._owner: Ref[object] = Ref(owner)
        self._frames: deque[tuple[bytes, RequestId | None]] = deque()
        self._more = asyncio.Event()
        self.pid: Pid = spawn_link(self._carry)

    # --- what the connection does

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False) -> None:  # noqa: ARG002 - all is in order
        """Put it behind what waits. Raises `WireFull`."""
        if len(self._frames) >= MAX_QUEUED:
            raise WireFull(f"{len(self._frames)} messages wait to be taken")
        self._frames.append((frame, id))
        self._more.set()

    def forget(self, id: RequestId) -> None:
        """A no-op: nothing is held for an answer."""

    def on_negotiated(self, version: str) -> None:
        """A no-op: nothing depends on it."""

    # --- the process

    async def _carry(self) -> None:
        trap_exit()
        route = self._route
        try:
            if route.prepare is not None:
                await route.prepare()
            session = await route.door.connect(route.peer)
        except Exception as error:  # noqa: BLE001 - whatever keeps a session from beginning is the wire's end, and its reason
            reason = error if isinstance(error, TransportError) else ConnectFailed(_why(error))
            reason.__cause__ = error.__cause__ if reason is error else error
            raise Quit(Shutdown(reason)) from None
        feed = session.channel
        assert feed is not None
        inward, outward = asyncio.create_task(self._speak(session)), asyncio.create_task(self._listen(feed))
        told = asyncio.create_task(receive(lambda message: isinstance(message, Exit)))
        try:
            await asyncio.wait((inward, outward, told), return_when=asyncio.FIRST_COMPLETED)
        finally:
            with contextlib.suppress(ProcessExited):
                await session.end()
        if told.done():
            raise Quit(SHUTDOWN)
        inward.cancel()
        await asyncio.wait((inward,))
        self._give_back()
        for each in (inward, outward):
            if each.done() and not each.cancelled():
                each.result()
        raise Quit(Shutdown(ConnectionLost("the session has ended")))

    async def _speak(self, session: SessionHandle) -> None:
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
                    await self._refused(session, error, id)
            self._more.clear()
            await self._more.wait()

    async def _refused(self, session: SessionHandle, error: RemoteProtocolError, id: RequestId | None) -> None:
        """What the server does not take, too much of it for one, is answered as over any other wire. It concerns no other request."""
        failure = PeerError(error.code, error.message, error.data)
        if error.answers is None:
            self._owner.send(Inbound(self.pid, [JsonRpcError(id, failure)]))
            return
        with contextlib.suppress(ProcessExited):  # which is heard of on the other way
            await session.respond(JsonRpcError(error.answers, failure))

    def _give_back(self) -> None:
        """What the session was not alive to see can be said again to the next one."""
        ended = ConnectionLost("the session has ended")
        unseen: list[InboundItem] = [
            UnansweredRequest(id, ended, resend=True, ending=True) for _, id in self._frames if id is not None
        ]
        if unseen:
            self._owner.send(Inbound(self.pid, unseen))

    async def _listen(self, feed: Feed) -> None:
        while (events := await feed.next()) is not None:
            heard = [parse_inbound(event.data, self._route.limits) for event in events if event.data]
            if heard:
                self._owner.send(Inbound(self.pid, heard))


async def _hand_over(session: SessionHandle, frame: bytes) -> None:
    message = parse(frame)
    if isinstance(message, JsonRpcRequest):
        await session.request(message)
    elif isinstance(message, JsonRpcNotification):
        await session.notify(message)
    else:
        await session.respond(message)


def _why(error: Exception) -> str:
    return error.message if isinstance(error, McpError) else f"the company could not be entered: {error}"
