"""The owner of a wire without a connection: plain code with a mailbox that sends messages and reads items."""

from __future__ import annotations

import json
from collections import deque
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from greenroom.protocol.jsonrpc import encode_notification, encode_request
from greenroom.supervision import Exit, Shutdown, current_node, exit, inbox, is_alive
from greenroom.transports.client.errors import TransportError
from greenroom.transports.client.interfaces import Inbound

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.supervision import ExitReason, Inbox
    from greenroom.transports.client.http_route import HttpRoute
    from greenroom.transports.client.http_wire import HttpWire
    from greenroom.transports.client.interfaces import InboundItem

VERSION = "2025-11-25"
HELLO = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class WireOwner:
    """The owner of one wire."""

    def __init__(self, me: Inbox, wire: HttpWire) -> None:
        self.me = me
        self.wire = wire
        self.rest: deque[InboundItem] = deque()
        self.ended: ExitReason | None = None
        self.passed: list[InboundItem] = []
        self._next = 0

    # --- sending

    def ask(self, method: str, params: Any = None, *, ordered: bool = False) -> int:
        """Send a request; returns its id."""
        self._next += 1
        self.wire.send(encode_request(self._next, method, params), self._next, ordered=ordered)
        return self._next

    def call(self, tool: str, **arguments: Any) -> int:
        return self.ask("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": 7}})

    def note(self, method: str, params: Any = None, *, ordered: bool = False) -> None:
        self.wire.send(encode_notification(method, params), ordered=ordered)

    async def greet(self) -> Any:
        """Send `initialize`; returns the result."""
        answer = await self.answer(self.ask("initialize", HELLO))
        self.wire.on_negotiated(VERSION)
        self.note("notifications/initialized", ordered=True)
        return answer

    # --- receiving

    async def hear(self) -> InboundItem:
        """The next item; the wire's end is raised, if it has a reason."""
        while not self.rest:
            mail = await self.me.receive(timeout=600.0)
            if isinstance(mail, Inbound):
                assert mail.wire == self.wire.pid
                self.rest += mail.items
            else:
                assert isinstance(mail, Exit), mail
                assert mail.pid == self.wire.pid
                self.ended = mail.reason
                raise WireEndedError(mail.reason)
        return self.rest.popleft()

    async def answer(self, id: int) -> Any:
        """The result of that request, which must be the next item."""
        heard: Any = await self.hear()
        assert getattr(heard, "id", None) == id, heard
        assert hasattr(heard, "result"), heard
        return heard.result

    async def end(self) -> TransportError:
        """Wait for the wire to end by itself; returns the reason. Other items are skipped."""
        while self.ended is None:
            with suppress(WireEndedError):
                self.passed.append(await self.hear())
        assert isinstance(self.ended, Shutdown), self.ended
        assert isinstance(self.ended.detail, TransportError)
        return self.ended.detail

    async def close(self) -> None:
        """Close the wire in order."""
        exit(self.wire.pid, Shutdown())
        while self.ended is None:
            with suppress(WireEndedError):
                await self.hear()

    def silent(self) -> bool:
        """Whether nothing has arrived."""
        return not self.rest and not self.me.pending()


class WireEndedError(Exception):
    def __init__(self, reason: ExitReason) -> None:
        super().__init__(reason)
        self.reason = reason


@asynccontextmanager
async def open_wire(route: HttpRoute) -> AsyncGenerator[WireOwner]:
    """A wire along that route, ended afterwards in any case."""
    async with inbox() as me:
        owner = WireOwner(me, route.open(me.pid))
        yield owner
        if is_alive(owner.wire.pid):
            await owner.close()
        assert current_node().process(owner.wire.pid) is None


def text(result: Any) -> str:
    """The text of a tool's result."""
    return str(result["content"][0]["text"])


def as_json(data: bytes) -> Any:
    return json.loads(data)
