"""The route to a server in the same loop, without any transport in between.

One process handles both directions. Messages are processed in order as fast as the server has room; a bounded queue holds the rest, and
more is refused. The wire ends with its session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from typing import TYPE_CHECKING, ClassVar, NoReturn

from greenroom.errors import ConfigError
from greenroom.protocol.envelope import is_enveloped
from greenroom.protocol.errors import McpError, PeerError, RemoteProtocolError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, MessageLimits, parse
from greenroom.supervision import (
    SHUTDOWN,
    Down,
    Exit,
    NoProcess,
    ProcessExited,
    Quit,
    Ref,
    Shutdown,
    monitor,
    receive,
    spawn_link,
    trap_exit,
    whereis,
)
from greenroom.transports.channel_exchanges import ChannelExchanges
from greenroom.transports.interfaces import Peer

from .errors import ConnectFailed, ConnectionLost, TransportError, WireFull
from .interfaces import Inbound, UnansweredRequest, parse_inbound

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from greenroom.protocol.jsonrpc import JsonRpcMessage, RequestId
    from greenroom.supervision import Pid
    from greenroom.transports.interfaces import Feed, SessionHandle, SessionRouter

    from .interfaces import Headers, InboundItem

MAX_QUEUED = 4096
"""How many messages may be queued."""
LINE = 16 * 1024 * 1024
"""The largest message from the server, in bytes."""


class MemoryRoute:
    """A server in the same loop: ``MemoryRoute(company)``."""

    transport_name: ClassVar[str] = "memory"

    def __init__(
        self,
        router: SessionRouter,
        *,
        peer: Peer | None = None,
        prepare: Callable[[], Awaitable[object]] | None = None,
        description: str = "memory",
        line: int = LINE,
    ) -> None:
        """`prepare` is awaited before each new wire, to make sure that the server runs. `peer` describes the client to the server.

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
        """Start a wire, linked to the calling process."""
        return MemoryClientWire(self, owner)


class MemoryClientWire:
    """The client's end: of one session, which begins with the first message for it, and of requests that stand alone."""

    def __init__(self, route: MemoryRoute, owner: Pid) -> None:
        """Made by `MemoryRoute.open`, in the owner's process."""
        self.description = route.description
        self._route = route
        self._owner: Ref[object] = Ref(owner)
        self._frames: deque[tuple[bytes, RequestId | None]] = deque()
        self._queued = asyncio.Event()
        self._session: SessionHandle | None = None
        self._ended = False
        self.pid: Pid = spawn_link(self._run)

    # --- the ClientWire interface

    is_http = False

    def send(
        self,
        frame: bytes,
        id: RequestId | None = None,
        *,
        ordered: bool = False,  # noqa: ARG002 - messages are always in order
        mirrored: Headers = (),  # noqa: ARG002 - there are no headers
    ) -> None:
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
        except Exception as error:  # noqa: BLE001 - any error that prevents a session ends the wire, as its reason
            raise Quit(Shutdown(_reason(error))) from None
        server = whereis(route.router.process_name)
        if server is None:
            raise Quit(Shutdown(ConnectFailed("the server does not run")))
        monitor(server)  # requests that stand alone have no session that would tell of its end
        exchanges = ChannelExchanges(route.router, route.peer, self._deliver_lines)
        sending = asyncio.create_task(self._send_queued(exchanges))
        end = asyncio.create_task(receive(lambda message: isinstance(message, Exit | Down)))
        try:
            await asyncio.wait((sending, end), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._ended = True
            exchanges.end()
            if self._session is not None:
                with contextlib.suppress(ProcessExited):
                    await self._session.end()
        if end.done() and isinstance(end.result(), Exit):
            raise Quit(SHUTDOWN)
        sending.cancel()
        await asyncio.wait((sending,))
        self._report_unsent()
        failure = None if sending.cancelled() else sending.exception()
        if failure is not None:
            raise Quit(Shutdown(_reason(failure))) from None
        raise Quit(Shutdown(ConnectionLost("the session has ended" if self._session else "the server has ended")))

    async def _send_queued(self, exchanges: ChannelExchanges) -> None:
        """Pass on the messages, until the session has ended."""
        receiving: asyncio.Task[None] | None = None
        try:
            while True:
                while self._frames:
                    frame, id = self._frames[0]
                    try:
                        message = parse(frame)
                    except RemoteProtocolError as error:
                        self._frames.popleft()
                        await self._on_refused(error, id)
                        continue
                    if not await _exchange(exchanges, message, has_session=self._session is not None):
                        if self._session is None:
                            self._session = await self._route.router.connect(self._route.peer)
                            feed = self._session.channel
                            assert feed is not None
                            receiving = asyncio.create_task(self._receive(feed))
                            receiving.add_done_callback(lambda _: self._queued.set())
                        try:
                            await _hand_over(self._session, message)
                        except ProcessExited as error:
                            if not isinstance(error.reason, NoProcess):
                                self._frames.popleft()
                            return
                    self._frames.popleft()
                if receiving is not None and receiving.done():
                    receiving.result()
                    return
                self._queued.clear()
                await self._queued.wait()
        finally:
            if receiving is not None:
                receiving.cancel()

    async def _deliver_lines(self, lines: Sequence[bytes]) -> None:
        if not self._ended:
            self._owner.send(Inbound(self.pid, [parse_inbound(line, self._route.limits) for line in lines]))

    async def _on_refused(self, error: RemoteProtocolError, id: RequestId | None) -> None:
        """Answer a message that the server does not accept, such as one over its limit, as any other transport would."""
        failure = PeerError(error.code, error.message, error.data)
        if error.response_to is None or self._session is None:
            self._owner.send(Inbound(self.pid, [JsonRpcError(id, failure)]))
            return
        with contextlib.suppress(ProcessExited):  # the feed reports the end of the session
            await self._session.respond(JsonRpcError(error.response_to, failure))

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


async def _exchange(exchanges: ChannelExchanges, message: JsonRpcMessage, *, has_session: bool) -> bool:
    """Pass on a message that stands alone, or that cancels one. False for a message of the session."""
    if isinstance(message, JsonRpcRequest) and is_enveloped(message.params):
        await exchanges.begin(message, 0)
        return True
    if isinstance(message, JsonRpcNotification) and message.method == "notifications/cancelled":
        named = message.params.get("requestId")
        return (isinstance(named, str | int) and exchanges.cancel(named)) or not has_session
    return False


async def _hand_over(session: SessionHandle, message: JsonRpcMessage) -> None:
    if isinstance(message, JsonRpcRequest):
        await session.request(message)
    elif isinstance(message, JsonRpcNotification):
        await session.notify(message)
    else:
        await session.respond(message)


def _reason(error: BaseException) -> TransportError:
    """The reason of a wire that ends with this error."""
    if isinstance(error, TransportError):
        return error
    reason = ConnectFailed(_why(error))
    reason.__cause__ = error
    return reason


def _why(error: BaseException) -> str:
    return error.message if isinstance(error, McpError) else f"the server started no session: {error}"
