"""The context of a session outside of any call: a program asks the user or the model of one client, or notifies it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from greenroom.actors.context import Context
from greenroom.actors.worker_interfaces import Cancellation, SessionFacts
from greenroom.protocol.dialect import ASSUMED_DIALECT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.actors.company import Company, ConnectedPeers


def context_of_session(company: Company, session_id: str) -> Context:
    """The context of this session. Raises `UnknownSession`."""
    card = company.peers.info(session_id)
    version = card.version or ASSUMED_DIALECT.version
    facts = SessionFacts(card.id, version, card.peer, card.client_info, card.client_capabilities)
    channel = _PeerChannel(company.peers, session_id)
    return Context(facts, channel, Cancellation(), None, {}, company.settings.ask_timeout)


class _PeerChannel:
    """Sends on the session's general stream or its channel."""

    def __init__(self, peers: ConnectedPeers, session_id: str) -> None:
        self._peers = peers
        self._id = session_id

    def emit(self, method: str, params: Mapping[str, Any]) -> bool:
        """Send a notification. False when the session is gone."""
        return self._peers.notify(self._id, method, params)

    def log(self, level: str, data: Any, logger: str | None) -> bool:
        """Send a log message, unless the session's level is higher."""
        return self._peers.log(self._id, level, data, logger)

    def touch(self, ahead: float = 0.0) -> None:
        """Do nothing: there is no call with an idle timeout."""

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        timeout: float | None,
        key: str | None = None,  # noqa: ARG002 - a session numbers its questions
    ) -> dict[str, Any]:
        """Send a request and wait for its result."""
        return await self._peers.ask(self._id, method, params, math.inf if timeout is None else timeout)

    def interrupt_stream(self, retry: float | None) -> bool:  # noqa: ARG002 - there is no call
        """Return False: there is no stream of a call."""
        return False
