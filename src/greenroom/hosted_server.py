"""One server of a host, with all the words that a client has for its own: its line outlives the server's restarts and replacements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from greenroom.actors.client.errors import NotReady
from greenroom.actors.client.task_only_tools import is_task_only
from greenroom.actors.federation.federation_errors import UnknownServer
from greenroom.protocol.reply_values import OutputSchema

from .client import NO_SCHEMA, ClientTools, OutputSchemas

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.actors.client.interfaces import Line
    from greenroom.actors.federation.federation import Federation

    from .client_methods import ClientMethods

NOT_OPEN: Final = "the host is not open: write `async with host:` around what uses it"


class HostedServer(ClientTools):
    """Made by `Host.server`."""

    def __init__(self, federation: Federation, id: str) -> None:
        """The federation, and the server's id in it."""
        self._federation = federation
        self._id = id
        self.output_schemas = _OfferedSchemas(federation, id)

    def __repr__(self) -> str:
        return f"<HostedServer {self._id}>"

    @property
    def line(self) -> Line:
        """The way to the server."""
        line = self._federation.line(self._id)
        if line is None and self._id in self._federation.initial:
            raise NotReady(NOT_OPEN)
        if line is None:
            raise UnknownServer(self._id, self._federation.ids())
        return line

    def _is_task_only(self, name: str) -> bool | None:
        """Whether the server takes calls of this tool as tasks only: as its list says, which the federation keeps."""
        offering = self._federation.known(self._id)
        return None if offering is None else is_task_only(offering.tools.get(name))

    def _call_timeout(self) -> float | None:
        """How long a call of a tool may take that says nothing of it."""
        return self._federation.timeout(self._id, "tools/call")

    def within(self, seconds: float | None) -> HostedServer:
        """The same words with another deadline; None waits for ever."""
        view = HostedServer(self._federation, self._id)
        view._timeout = seconds
        return view


class _OfferedSchemas(OutputSchemas):
    """What tools promise, from the lists that the federation keeps anyway; asked for where it has not had them yet."""

    def __init__(self, federation: Federation, id: str) -> None:
        super().__init__()
        self._federation = federation
        self._id = id
        self._serial = 0

    def begin(self, name: str, words: ClientMethods) -> Callable[[], Awaitable[tuple[OutputSchema, bool]]]:
        """What the tool of the server that has the id now promises: by the time of the reply another one may have it, or none."""
        upstream = self._federation.members.get(self._id)
        if upstream is None:
            return super().begin(name, words)
        if upstream.serial != self._serial:
            self._serial = upstream.serial
            self.forget()
        generation, offering = upstream.line.status.generation, upstream.own_offering

        async def promised() -> tuple[OutputSchema, bool]:
            known = offering if upstream.line.status.generation == generation else None
            known = known or upstream.own_offering
            if known is not None:
                tool = known.tools.get(name)
                return OutputSchema(None if tool is None else cast("Any", tool.get("outputSchema"))), True
            if self._federation.serial(self._id) != upstream.serial:
                return NO_SCHEMA, True
            return await self.of(name, words), True

        return promised
