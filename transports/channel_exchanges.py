"""The exchanges of a channel: requests that name their revision themselves, many at a time, beside the session of the same channel.

Each request has a task, which waits for the reply or reads its feed, and sends what comes. So calls and listens interleave, and a call that takes long holds up no
other. A peer that reads nothing makes the tasks wait: then feeds drop notifications, as they do for any slow reader, and no further request is taken. The tasks belong
to the channel, and go on when a process of the transport is restarted.
"""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING, Final, cast

from greenroom.protocol.envelope import SUBSCRIPTION_ID_KEY
from greenroom.protocol.errors import ErrorCode, McpError, not_executed
from greenroom.protocol.jsonrpc import encode_error, encode_notification, id_key
from greenroom.supervision import Quit, Wakeup, current_node, tracebacks

from .access_log import log_refusal
from .interfaces import EncodedReply

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from typing import Any

    from greenroom.protocol.jsonrpc import JsonRpcRequest, RequestId

    from .interfaces import Feed, FeedEvent, LastingFeed, Peer, SessionRouter

log = logging.getLogger("greenroom.channel")

STOPPED: Final = "The server stopped before this was answered; it may have been done or not"
LISTEN_LOST: Final = "The server has lost this listen, and changes with it: listen again, and read again what matters"


class ChannelExchange:
    """One request whose reply is not sent yet."""

    __slots__ = ("feed", "has_reply", "is_listen", "request_id", "task")

    def __init__(self, request: JsonRpcRequest) -> None:
        self.request_id = request.id
        self.is_listen = request.method == "subscriptions/listen"
        self.feed: Feed | None = None
        self.has_reply = False
        """Whether the reply waits for the peer to read earlier ones."""
        self.task: asyncio.Task[None]


class ChannelExchanges:
    """The requests of one peer that stand alone."""

    __slots__ = ("_ending", "_peer", "_removed", "_router", "_send", "_sending", "_table", "_tasks", "settled")

    def __init__(self, router: SessionRouter, peer: Peer, send: Callable[[Sequence[bytes]], Awaitable[None]]) -> None:
        """`send` sends messages, and returns when there is room for more."""
        self._router = router
        self._peer = peer
        self._send = send
        self._sending = asyncio.Lock()
        self._removed = Wakeup()
        self._table: dict[str | int | bytes, ChannelExchange] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = False
        self.settled = asyncio.Event()
        """Set while no request is in flight, and everything is sent."""
        self.settled.set()

    def __len__(self) -> int:
        """How many requests are in flight."""
        return len(self._table)

    def __contains__(self, request_id: RequestId) -> bool:
        """Whether a request of that id is in flight."""
        return id_key(request_id) in self._table

    @property
    def pending(self) -> int:
        """How many requests are to be answered soon: all but those that listen."""
        return sum(not exchange.is_listen for exchange in self._table.values()) if self._table else 0

    @property
    def unanswered(self) -> int:
        """How many requests have no reply yet, sent or not."""
        return sum(not exchange.has_reply for exchange in self._table.values())

    # --- input

    async def begin(self, request: JsonRpcRequest, others: int) -> None:
        """Start a request, whose id is not in flight. `others` is how many requests the session of this channel has in flight.

        Waits while too many replies wait for the peer to read.
        """
        limit = self._router.max_in_flight
        has_yielded = False
        while len(self._table) + others >= limit:
            if others + self.unanswered < limit:
                await self._removed.wait()
            elif not has_yielded:  # lines that came together have not begun yet, and may have their replies at once
                has_yielded = True
                await asyncio.sleep(0)
            else:
                await self._send((self.refusal(request, limit),))
                return
        exchange = self._table[id_key(request.id)] = ChannelExchange(request)
        exchange.task = self._start(self._run(exchange, request))

    def refusal(self, request: JsonRpcRequest, limit: int) -> bytes:
        """The error for one request too many, which is logged."""
        why = f"Too many requests at once: at most {limit} may be in flight"
        log_refusal(
            why,
            peer=self._peer,
            setting="max_in_flight",
            method=request.method,
            program=self._router.program,
        )
        return encode_error(request.id, McpError(ErrorCode.INTERNAL_ERROR, why, not_executed("too_many_requests")))

    def cancel(self, request_id: RequestId) -> bool:
        """Cancel a request: its work stops, and nothing more is sent for it. False when none of that id is in flight."""
        exchange = self._table.get(id_key(request_id))
        if exchange is None:
            return False
        self._remove(exchange)
        exchange.task.cancel()
        return True

    # --- the end

    def finish_listens(self) -> None:
        """End what listens, those that begin later too: nothing more will be announced."""
        self._ending = True
        for exchange in self._table.values():
            self._finish_listen(exchange)

    def end(self) -> None:
        """Cancel what is still in flight, with an error for each."""
        lines: list[bytes] = []
        for exchange in tuple(self._table.values()):
            if not exchange.has_reply:
                self.cancel(exchange.request_id)
                lines.append(encode_error(exchange.request_id, McpError(ErrorCode.INTERNAL_ERROR, STOPPED)))
        if lines:
            _ = self._start(self._send_last(lines))

    def _finish_listen(self, exchange: ChannelExchange) -> None:
        if exchange.is_listen and exchange.feed is not None:
            cast("LastingFeed", exchange.feed).finish()

    async def _send_last(self, lines: Sequence[bytes]) -> None:
        async with self._sending:
            await self._send(lines)

    # --- one request

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        # In the node's own context: in the caller's it would look like the work of a process that may end before it does.
        node = current_node()
        task = asyncio.Task(work, loop=node.loop, name="greenroom-exchange", context=node.context.copy())
        self._tasks.add(task)
        self.settled.clear()
        task.add_done_callback(self._on_done)
        return task

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self.settled.set()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Quit | OSError):  # those two mean that the output has no reader
            log.error("a reply could not be sent", exc_info=error)

    async def _run(self, exchange: ChannelExchange, request: JsonRpcRequest) -> None:
        try:
            try:
                result = await self._router.exchange(self._peer, request, None, math.inf)
            except Exception as error:  # noqa: BLE001 - any error is sent to the peer, and logged
                refusal = McpError.wrap(error)
                if refusal is not error:
                    tracebacks.log_error(log, "a request failed")
                result = EncodedReply(encode_error(request.id, refusal))
            if isinstance(result, EncodedReply):
                await self._send_reply(exchange, (result.body,))
            elif result is not None:
                exchange.feed = result
                try:
                    if self._ending:
                        self._finish_listen(exchange)
                    await self._forward(exchange, result)
                finally:
                    result.leave()
        finally:
            self._remove(exchange)

    async def _forward(self, exchange: ChannelExchange, feed: Feed) -> None:
        """Send what comes on the feed, until its end."""
        while (events := await feed.next()) is not None:
            lines, has_reply = self._lines(exchange, events)
            if has_reply:
                await self._send_reply(exchange, lines)
            else:
                async with self._sending:
                    await self._send(lines)
        if exchange.is_listen and not exchange.has_reply:
            lost = encode_error(exchange.request_id, McpError(ErrorCode.INTERNAL_ERROR, LISTEN_LOST))
            await self._send_reply(exchange, (lost, _listen_ended(exchange.request_id)))

    @staticmethod
    def _lines(exchange: ChannelExchange, events: Sequence[FeedEvent]) -> tuple[list[bytes], bool]:
        """The messages of these events, and whether the reply is among them."""
        lines: list[bytes] = []
        has_reply = False
        for event in events:
            if event.data:
                lines.append(event.data)
            if event.answers is not None:
                has_reply = True
                if exchange.is_listen:
                    # A stream over HTTP ends by itself. Here the revision's pages ask for this notification as well as for the result. It is
                    # the second of the two, since clients that read it first take the listen for lost, and the result for a stray.
                    lines.append(_listen_ended(exchange.request_id))
        return lines, has_reply

    async def _send_reply(self, exchange: ChannelExchange, lines: Sequence[bytes]) -> None:
        """Send the reply. From then on its id may be used again, and it cannot be cancelled."""
        exchange.has_reply = True
        async with self._sending:
            self._remove(exchange)
            await self._send(lines)

    def _remove(self, exchange: ChannelExchange) -> None:
        key = id_key(exchange.request_id)
        if self._table.get(key) is exchange:
            del self._table[key]
            self._removed.wake()


def _listen_ended(request_id: RequestId) -> bytes:
    params = {"requestId": request_id, "reason": "the server has ended it", "_meta": {SUBSCRIPTION_ID_KEY: request_id}}
    return encode_notification("notifications/cancelled", params)
