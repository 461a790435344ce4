"""The URL elicitations of one session: pages that its user was sent to and is not known to have finished.

Each registers the session's process under the elicitation's id, so any process that learns of the end finds the one session to tell. The names go with the
process, however it ends. Their number is limited; the oldest is forgotten first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from greenroom.protocol.jsonrpc import encode_notification
from greenroom.supervision import AlreadyRegistered, Ref, register, unregister

from .process_names import ProcessName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.supervision import Node

    from .company import Company
    from .process_names import CompanyKey
    from .session import SessionProcess

_MAX_OPEN: Final = 128
"""How many open elicitations one session may have."""


class ExpectElicitations(NamedTuple):
    """The peer is about to get these elicitations, on behalf of a call or of none."""

    key: int | None
    ids: Sequence[str]


class ElicitationDone(NamedTuple):
    """The user is done with this page."""

    id: str


class UrlElicitations:
    """The open URL elicitations of one session."""

    __slots__ = ("_open", "_session")

    def __init__(self, session: SessionProcess) -> None:
        self._session = session
        self._open: dict[str, int | None] | None = None

    def expect(self, id: str, key: int | None) -> bool:
        """Add an elicitation, on behalf of that call. False when another session has one with the same id."""
        if self._open is None:
            self._open = {}
        if id not in self._open:
            try:
                register(elicitation_process_name(self._session.company.key, id))
            except AlreadyRegistered:
                return False
        self._open.pop(id, None)
        self._open[id] = key
        while len(self._open) > _MAX_OPEN:
            self.forget(next(iter(self._open)))
        return True

    def forget(self, id: str) -> bool:
        """Remove an elicitation that the user declined. Returns whether it was open."""
        if self._open is None or id not in self._open:
            return False
        del self._open[id]
        unregister(elicitation_process_name(self._session.company.key, id))
        return True

    def on_done(self, id: str) -> None:
        """Tell the peer once: on the stream of the call that asked if it is still in flight, else on the general stream."""
        key = None if self._open is None else self._open.get(id)
        if self.forget(id):
            session = self._session
            call = None if key is None else session.calls.table.get(key)
            body = encode_notification("notifications/elicitation/complete", {"elicitationId": id})
            session.reply_sink.notify(call, body, session.dialect)


def elicitation_process_name(company: CompanyKey, elicitation_id: str) -> ProcessName:
    """The additional name of the session that was asked to send its user there."""
    return ProcessName(company, "elicitation", elicitation_id)


def find_eliciting_session(node: Node, company: Company, elicitation_id: str) -> Ref[SessionProcess] | None:
    """The session whose user was sent to that page. Callable from any thread."""
    process = node.named(elicitation_process_name(company.key, elicitation_id))
    return None if process is None or process.life else Ref.of(process)
