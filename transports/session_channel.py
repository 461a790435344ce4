"""A channel to one peer: the session behind it, the requests that stand alone, and which of both are unanswered.

Each message is judged by itself. A request that names its revision is an exchange (see `channel_exchanges`); all others belong to the session. So one peer, or several
that share a channel, may speak in both eras at once. Requests of both share the channel's ids.

A channel is lossless and has one session at a time, which starts with the first message for it (before `initialize`, since requests that come too early are answered,
too). When the session dies, the channel answers its pending requests with an error, and the peer may initialize again. The channel is plain state owned by its
transport and outlives the transport's processes: a restarted process continues with the same channel, unnoticed by the peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, Literal, Self

from greenroom.protocol.envelope import is_enveloped
from greenroom.protocol.errors import ErrorCode, McpError, PeerError, RemoteProtocolError
from greenroom.protocol.jsonrpc import (
    LIMITS,
    JsonRpcError,
    JsonRpcNotification,
    JsonRpcRequest,
    MessageLimits,
    encode_error,
    id_key,
    parse,
    without_null_id,
)
from greenroom.supervision import ProcessExited, Wakeup, current_node, kill, spawn, tracebacks, wait_down
from greenroom.supervision.event_bus import bus

from .access_log import log_refusal
from .channel_exchanges import ChannelExchanges
from .interfaces import Peer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import TracebackType

    from greenroom.protocol.jsonrpc import JsonRpcMessage
    from greenroom.supervision import ExitReason, Pid

    from .interfaces import FeedEvent, SessionHandle, SessionRouter

if TYPE_CHECKING:
    Send = Callable[[Sequence[bytes]], Awaitable[None]]

log = logging.getLogger("greenroom.channel")

SESSION_LOST = "The session has ended before it answered. Send initialize to begin a new one."


class SessionChannel:
    """The server's end of a channel."""

    def __init__(self, router: SessionRouter, peer: Peer, send: Send, limit: int = LIMITS.size) -> None:
        """`send` sends messages without line ends, and returns when there is room for more.

        `limit` is the largest incoming message, in bytes.
        """
        self._limits = MessageLimits.of_size(limit)
        self._router = router
        self._peer = peer
        self._send = self._observed(send)
        self._exchanges = ChannelExchanges(router, peer, self._send)
        self._has_exchanged = False
        """Whether the peer has named its revision in a message, so that others may concern its exchanges."""
        self._session: SessionHandle | None = None
        self._connecting = asyncio.Lock()
        self._connected = asyncio.Event()
        self._pending: dict[str | int | bytes, list[str | int]] = {}
        """The ids of unanswered requests; an id that is used twice is listed twice."""
        self._settled = asyncio.Event()
        self._settled.set()

    def _observed(self, send: Send) -> Send:
        def sent(lines: Sequence[bytes]) -> Awaitable[None]:
            if bus.detail_listener is not None:
                self._emit_frames("out", lines)
            return send(lines)

        return sent

    def _emit_frames(self, direction: Literal["in", "out"], lines: Sequence[bytes]) -> None:
        from .wire_events import emit_frames  # noqa: PLC0415 - only a program with a listener loads the events

        session_id = "" if self._session is None else self._session.id
        emit_frames(direction, lines, self._router.program, self._peer.transport, session_id)

    @property
    def session(self) -> SessionHandle | None:
        """The current session, from the first message for it on."""
        return self._session

    @property
    def pending(self) -> int:
        """How many requests are unanswered, without those that listen for changes."""
        return self._count_of_session() + self._exchanges.pending

    # --- input

    async def receive(self, line: bytes) -> None:
        """Process one line: a message, or invalid input."""
        if bus.detail_listener is not None:
            self._emit_frames("in", (line,))
        try:
            message = parse(line, self._limits)
        except RemoteProtocolError as error:
            await self.refuse(error)
            return
        if type(message) is JsonRpcRequest:
            if is_enveloped(message.params):
                await self._exchange(message)
                return
        elif type(message) is JsonRpcNotification and is_enveloped(message.params):
            self._has_exchanged = True
        if self._has_exchanged and await self._is_for_exchanges(message):
            return
        try:
            session = self._session or await self._connect()
        except Exception as error:  # noqa: BLE001 - any error that prevents a session is sent to the peer, and logged
            refusal = McpError.wrap(error)
            if refusal is not error:
                tracebacks.log_error(log, "no session could begin")
            if isinstance(message, JsonRpcRequest):
                await self._send((encode_error(message.id, refusal),))
            return
        # If the session dies of this message, its pending requests, this one included, are answered when its feed ends.
        with contextlib.suppress(ProcessExited):
            await self._hand_over(session, message)

    async def refuse(self, error: RemoteProtocolError) -> None:
        """Report an invalid message to the peer."""
        log_refusal(error.message, peer=self._peer, program=self._router.program)
        line = encode_error(error.id, error)
        # A line that cannot be read is of no era: it gets the answer of the only one that the peer has spoken.
        await self._send((without_null_id(line) if self._has_exchanged and self._session is None else line,))
        if error.response_to is not None and self._session is not None:
            with contextlib.suppress(ProcessExited):
                await self._session.respond(
                    JsonRpcError(error.response_to, PeerError(error.code, error.message, error.data))
                )

    async def _exchange(self, request: JsonRpcRequest) -> None:
        """Start a request that stands alone, unless its id is in use."""
        self._has_exchanged = True
        if request.id in self._exchanges or id_key(request.id) in self._pending:
            await self._send((_id_in_use(request.id),))
        else:
            await self._exchanges.begin(request, self._count_of_session())

    async def _is_for_exchanges(self, message: JsonRpcMessage) -> bool:
        """Take a message that concerns the exchanges of this channel, and is no session's."""
        match message:
            case JsonRpcRequest(id=id):
                if id in self._exchanges:
                    await self._send((_id_in_use(id),))
                    return True
                limit = self._router.max_in_flight
                if self._exchanges and self._exchanges.unanswered + self._count_of_session() >= limit:
                    await self._send((self._exchanges.refusal(message, limit),))
                    return True
                return False
            case JsonRpcNotification(method="notifications/cancelled", params=params):
                named: Any = params.get("requestId")
                is_id = type(named) is str or type(named) is int
                if is_id and self._exchanges.cancel(named):
                    return True
                of_session = is_id and id_key(named) in self._pending
                return self._session is None or (is_enveloped(params) and not of_session)
            case JsonRpcNotification(params=params):
                return is_enveloped(params)
            case _:
                return False

    async def _hand_over(self, session: SessionHandle, message: JsonRpcMessage) -> None:
        match message:
            case JsonRpcRequest():
                self._add_pending(message.id)
                await session.request(message)
            case JsonRpcNotification():
                if message.method == "notifications/cancelled":
                    self._remove_pending(message.params.get("requestId"))  # the peer no longer waits for its reply
                await session.notify(message)
            case _:
                await session.respond(message)

    async def _connect(self) -> SessionHandle:
        async with self._connecting:
            if self._session is None:
                self._session = await self._router.connect(self._peer)
                self._connected.set()
            return self._session

    # --- output

    async def forward_replies(self) -> None:
        """Send the sessions' messages, one session after another, until cancelled."""
        while True:
            await self._connected.wait()
            session = self._session
            assert session is not None
            feed = session.channel
            assert feed is not None
            while (events := await feed.next()) is not None:
                await self._forward(events)
            await self._on_session_lost()

    async def _forward(self, events: Any) -> None:
        event: FeedEvent
        lines: list[bytes] = []
        for event in events:
            if event.answers is not None:
                self._remove_pending(event.answers)
            if event.data:
                lines.append(event.data)
        if lines:
            await self._send(lines)

    async def _on_session_lost(self) -> None:
        """The session has ended: answer its pending requests, and allow a new one."""
        self._session = None
        self._connected.clear()
        pending, self._pending = self._pending, {}
        self._settled.set()
        error = McpError(ErrorCode.INTERNAL_ERROR, SESSION_LOST)
        for request_ids in pending.values():
            for request_id in request_ids:
                await self._send((encode_error(request_id, error),))

    # --- the end

    async def wait_settled(self, grace: float) -> bool:
        """End what listens, and wait until every request is answered, at most `grace` seconds; returns whether that is so."""
        self._exchanges.finish_listens()
        try:
            async with asyncio.timeout(grace):
                await self._settled.wait()
                await self._exchanges.settled.wait()
        except TimeoutError:
            return False
        return True

    async def end(self) -> None:
        """End the session and the exchanges: the peer is done, or gone."""
        self._exchanges.end()
        if self._session is not None:
            with contextlib.suppress(ProcessExited):
                await self._session.end()

    # --- pending requests

    def _count_of_session(self) -> int:
        return sum(map(len, self._pending.values())) if self._pending else 0

    def _add_pending(self, request_id: str | int) -> None:
        self._pending.setdefault(id_key(request_id), []).append(request_id)
        self._settled.clear()

    def _remove_pending(self, request_id: Any) -> None:
        if not isinstance(request_id, str | int):
            return
        key = id_key(request_id)
        waiting = self._pending.get(key)
        if waiting:
            waiting.pop()
            if not waiting:
                del self._pending[key]
        if not self._pending:
            self._settled.set()


def _id_in_use(request_id: str | int) -> bytes:
    why = f"The id {request_id!r} is in use by a request in flight: choose another"
    return encode_error(request_id, McpError(ErrorCode.INVALID_REQUEST, why))


# --- A channel within one program, without a transport in between.
# Input is processed at once in the sender's task; output waits in a queue of a few frames, and a peer that does not read makes the server
# wait. One process forwards the replies; when it dies, `receive` ends.

QUEUED_FRAMES = 64
"""How many frames wait for the reader before the server has to wait."""


class MemoryPeer:
    """The client's end of an in-memory channel: ``async with MemoryPeer(router) as peer``, inside a node. For one reader at a time."""

    def __init__(self, router: SessionRouter, peer: Peer | None = None) -> None:
        """`peer` describes the client to the server."""
        self._channel = SessionChannel(router, peer or Peer("memory"), self._enqueue)
        self._frames: deque[Sequence[bytes]] = deque()
        self._frame_added = Wakeup()
        self._frame_taken = Wakeup()
        self._forwarder: Pid | None = None
        self._ended = False

    @property
    def session(self) -> SessionHandle | None:
        """The current session, from the first message on."""
        return self._channel.session

    async def __aenter__(self) -> Self:
        self._forwarder = spawn(self._channel.forward_replies)
        process = current_node().process(self._forwarder)
        assert process is not None
        process.add_exit_waiter(self)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def send(self, frame: bytes) -> None:
        """Send one message, with or without a line break at its end."""
        await self._channel.receive(frame)

    async def receive(self) -> list[bytes]:
        """The next messages, at least one; none when the channel has ended. Cancelling loses nothing."""
        while not self._frames:
            if self._ended:
                return []
            await self._frame_added.wait()
        frame = self._frames.popleft()
        self._frame_taken.wake()
        return list(frame)

    async def close(self) -> None:
        """End the session and the forwarding process."""
        if self._forwarder is not None:
            await self._channel.end()
            kill(self._forwarder)
            await wait_down(self._forwarder)
            self._forwarder = None

    async def _enqueue(self, frame: Sequence[bytes]) -> None:
        while len(self._frames) >= QUEUED_FRAMES and not self._ended:
            await self._frame_taken.wait()
        self._frames.append(frame)
        self._frame_added.wake()

    def on_exit(self, reason: ExitReason) -> None:  # noqa: ARG002 - the client needs no reason
        """The forwarding process has ended."""
        self._ended = True
        self._frame_added.wake()
        self._frame_taken.wake()
