"""`HostedServer`: one server of a host, with all methods of a client. Its line survives the server's restarts and replacements."""

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
    from greenroom.actors.client.response_cache import LineCache
    from greenroom.actors.federation.federation import Federation

    from .client_methods import ClientMethods

NOT_OPEN: Final = "the host is not open: write `async with host:` around what uses it"


class HostedServer(ClientTools):
    """One server of a host. Made by `Host.server`."""

    def __init__(self, federation: Federation, id: str) -> None:
        """`id` is the server's id in the federation."""
        self._federation = federation
        self._id = id
        self.output_schemas = _OfferedSchemas(federation, id)

    def __repr__(self) -> str:
        return f"<HostedServer {self._id}>"

    @property
    def line(self) -> Line:
        """The line to the server."""
        line = self._federation.line(self._id)
        if line is None and self._id in self._federation.initial:
            raise NotReady(NOT_OPEN)
        if line is None:
            raise UnknownServer(self._id, self._federation.ids())
        return line

    @property
    def _line_cache(self) -> LineCache | None:
        """The federation keeps it at its own line to the server."""
        upstream = self._federation.members.get(self._id)
        return None if upstream is None else getattr(upstream.line, "cache", None)

    def _is_task_only(self, name: str) -> bool | None:
        """Whether this tool can only be called as a task, by the list that the federation keeps."""
        offering = self._federation.known(self._id)
        return None if offering is None else is_task_only(offering.tools.get(name))

    def _call_timeout(self) -> float | None:
        """The default timeout of tool calls."""
        return self._federation.timeout(self._id, "tools/call")

    def within(self, seconds: float | None) -> HostedServer:
        """The same server with another timeout for each request; None is no limit."""
        view = HostedServer(self._federation, self._id)
        view._timeout = seconds
        return view


class _OfferedSchemas(OutputSchemas):
    """Output schemas from the lists that the federation keeps; fetched where it has none yet."""

    def __init__(self, federation: Federation, id: str) -> None:
        super().__init__()
        self._federation = federation
        self._id = id
        self._serial = 0

    def begin(self, name: str, words: ClientMethods) -> Callable[[], Awaitable[tuple[OutputSchema, bool]]]:
        """The output schema at the time of the call: by the time of the reply the server may have been replaced or removed."""
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
