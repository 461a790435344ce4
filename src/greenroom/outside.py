"""A peer as a handler has it, for code that is no handler: the same words (`ctx`), outside of any call."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from greenroom.actors.cancellation import Cancellation
from greenroom.actors.context import Context
from greenroom.actors.jobs import Facts
from greenroom.protocol.versions import DEFAULT_NEGOTIATED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.company import Company
    from greenroom.actors.peers import Peers


def context_of(company: Company, session_id: str) -> Context:
    """A context that belongs to a session and to no call of it. Raises `UnknownSession`."""
    card = company.peers.card(session_id)
    version = card.version or DEFAULT_NEGOTIATED
    facts = Facts(card.id, version, card.peer, card.client_info, card.client_capabilities)
    return Context(facts, _Voice(company.peers, session_id), Cancellation(), None, {}, company.settings.ask_timeout)


class _Voice:
    """Speaks on the session's general stream, or its channel."""

    def __init__(self, peers: Peers, session_id: str) -> None:
        self._peers = peers
        self._id = session_id

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification. False when the session is gone."""
        return self._peers.notify(self._id, method, params)

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message, unless the session's level is higher."""
        return self._peers.log(self._id, level, data, logger)

    def touch(self, ahead: float = 0.0) -> None:
        """There is no call that could be silent."""

    async def ask(self, method: str, params: Mapping[str, Any], timeout: float | None) -> dict[str, Any]:
        """Send a request and wait for its result."""
        return await self._peers.ask(self._id, method, params, math.inf if timeout is None else timeout)

    def interrupt_stream(self, retry: float | None) -> bool:  # noqa: ARG002 - there is no answer that anybody waits for
        """There is no stream of a call."""
        return False
