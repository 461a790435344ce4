"""One server of a host, with all the words that a client has for its own: its line outlives the server's restarts and replacements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.actors.federation.agent_errors import UnknownServer
from greenroom.protocol.reply_values import Promise

from .client_tools import ClientTools, Promises

if TYPE_CHECKING:
    from greenroom.actors.client.seam import Line
    from greenroom.actors.federation.federation import Federation

    from .client_words import ClientWords


class HostedServer(ClientTools):
    """Made by `Host.server`."""

    def __init__(self, federation: Federation, id: str) -> None:
        """Whose it is, and what it is called there."""
        self._federation = federation
        self._id = id
        self.promises = _Offered(federation, id)

    def __repr__(self) -> str:
        return f"<HostedServer {self._id}>"

    @property
    def line(self) -> Line:
        """The way to the server."""
        line = self._federation.line(self._id)
        if line is None:
            raise UnknownServer(self._id, self._federation.ids())
        return line

    def within(self, seconds: float | None) -> HostedServer:
        """The same words with another deadline; None waits for ever."""
        view = HostedServer(self._federation, self._id)
        view.timeout = seconds
        view._bounded = True
        return view


class _Offered(Promises):
    """What tools promise, from the lists that the federation keeps anyway; asked for where it has not had them yet."""

    def __init__(self, federation: Federation, id: str) -> None:
        super().__init__()
        self._federation = federation
        self._id = id

    async def of(self, name: str, words: ClientWords) -> Promise:
        """What the tool promises."""
        offering = self._federation.known(self._id)
        if offering is None:
            return await super().of(name, words)
        tool = offering.tools.get(name)
        schema: Any = None if tool is None else tool.get("outputSchema")
        return Promise(schema)
