"""The pages that the user of one session was sent to, and is not known to have done with.

Each has the session's process registered under its id, so a process that hears of the end finds the one session that has to be told, or none: the
names go with the process, however that ends. There are only so many of them; the oldest is forgotten first.
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
"""How many pages one session's user may be out on."""


class ExpectElicitations(NamedTuple):
    """The peer is about to hear of these pages, on behalf of that call if it is one's."""

    key: int | None
    ids: Sequence[str]


class ElicitationDone(NamedTuple):
    """The user has done what that page was for."""

    id: str


class UrlElicitations:
    """One session's."""

    __slots__ = ("_open", "_session")

    def __init__(self, session: SessionProcess) -> None:
        """The user was sent to no page yet."""
        self._session = session
        self._open: dict[str, int | None] | None = None

    def expect(self, id: str, key: int | None) -> bool:
        """The user is sent there, on behalf of that call. False when another session's was, under the same id."""
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
        """The user did not go there. Returns whether they were to."""
        if self._open is None or id not in self._open:
            return False
        del self._open[id]
        unregister(elicitation_process_name(self._session.company.key, id))
        return True

    def on_done(self, id: str) -> None:
        """Tell the peer, once: on the stream of the call that sent them there if it goes on, else on the general one."""
        key = None if self._open is None else self._open.get(id)
        if self.forget(id):
            session = self._session
            call = None if key is None else session.calls.table.get(key)
            body = encode_notification("notifications/elicitation/complete", {"elicitationId": id})
            session.reply_sink.notify(call, body, session.version)


def elicitation_process_name(company: CompanyKey, elicitation_id: str) -> ProcessName:
    """What the session that was asked is registered as besides."""
    return ProcessName(company, "elicitation", elicitation_id)


def find_eliciting_session(node: Node, company: Company, elicitation_id: str) -> Ref[SessionProcess] | None:
    """The session whose user was sent to that page. From any thread."""
    process = node.named(elicitation_process_name(company.key, elicitation_id))
    return None if process is None or process.life else Ref.of(process)
