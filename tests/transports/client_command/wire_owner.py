"""The owner of a wire without a connection: plain code with a mailbox that sends messages and reads items."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from greenroom.protocol.jsonrpc import JsonRpcResponse, encode_notification, encode_request
from greenroom.supervision import Exit, Shutdown, exit, inbox, is_alive, wait_down
from greenroom.transports.client.errors import TransportError
from greenroom.transports.client.interfaces import Inbound
from greenroom.transports.client.server_command import Command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.supervision import ExitReason, Inbox
    from greenroom.transports.client.command_wire import CommandWire
    from greenroom.transports.client.interfaces import InboundItem

MISBEHAVING = Path(__file__).parent / "programs" / "misbehaving_server.py"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def misbehaving_server(*args: str, **options: Any) -> Command:
    """A command that starts the misbehaving server."""
    return Command(sys.executable, "-S", MISBEHAVING, *args, **options)


class WireEndedError(Exception):
    """The wire has ended."""


class CommandWireOwner:
    """The owner of one wire."""

    def __init__(self, me: Inbox, wire: CommandWire) -> None:
        self.me = me
        self.wire = wire
        self.rest: deque[InboundItem] = deque()
        self.ended: ExitReason | None = None
        self._next = 0

    @property
    def process(self) -> int:
        """The child's process id."""
        assert self.wire.process_id is not None
        return self.wire.process_id

    def ask(self, method: str, **params: Any) -> int:
        """Send a request; returns its id."""
        self._next += 1
        self.wire.send(encode_request(self._next, method, params), self._next)
        return self._next

    def note(self, method: str, **params: Any) -> None:
        self.wire.send(encode_notification(method, params))

    async def hear(self) -> Any:
        """The next item; the end of the wire is raised."""
        while not self.rest:
            mail = await self.me.receive(timeout=60.0)
            if isinstance(mail, Inbound):
                assert mail.wire == self.wire.pid
                self.rest += mail.items
            else:
                assert isinstance(mail, Exit), mail
                assert mail.pid == self.wire.pid
                self.ended = mail.reason
                raise WireEndedError
        return self.rest.popleft()

    async def call(self, method: str, **params: Any) -> Any:
        """The result of a request, whatever comes before it."""
        id = self.ask(method, **params)
        while True:
            heard = await self.hear()
            if isinstance(heard, JsonRpcResponse) and heard.id == id:
                return heard.result

    async def rest_of_it(self) -> list[Any]:
        """All items until the end."""
        heard: list[Any] = []
        with suppress(WireEndedError):
            while self.ended is None:
                heard.append(await self.hear())
        return heard

    async def end(self) -> TransportError:
        """Wait until the wire ends by itself; returns the reason."""
        await self.rest_of_it()
        assert isinstance(self.ended, Shutdown), self.ended
        assert isinstance(self.ended.detail, TransportError), self.ended
        return self.ended.detail

    async def close(self) -> None:
        """Close the wire in order."""
        exit(self.wire.pid, Shutdown("closed"))
        await self.rest_of_it()
        assert self.ended == Shutdown("closed")


@asynccontextmanager
async def open_wire(command: Command) -> AsyncGenerator[CommandWireOwner]:
    """A wire that is closed afterwards in any case."""
    async with inbox() as me:
        owner = CommandWireOwner(me, command.open(me.pid))
        yield owner
        if is_alive(owner.wire.pid):
            exit(owner.wire.pid, Shutdown("closed"))
            await wait_down(owner.wire.pid, 20.0)
