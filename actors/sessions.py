"""The sessions of a company: their supervisor, and the only list of them that there is.

A session is temporary: when it is gone, its peer has to begin anew, under another id. How many there may be is decided where they are started, so
that two who come at the same moment do not both get the last place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenroom.supervision import DynamicSupervisor, Options, Ref, child, start_child
from greenroom.supervision.kernel.current import current_node
from greenroom.supervision.kernel.names import find

from .names import Name
from .session import Session

if TYPE_CHECKING:
    from greenroom.supervision.kernel.process import Process

    from .card import Card
    from .company import Company
    from .outlets import Outlet


class Sessions(DynamicSupervisor):
    """The supervisor."""

    def cards(self) -> list[Card]:
        """All that are alive, in the order in which they came."""
        node = self._otp_process.node
        found = (node.process(each.pid) for each in self.children() if each.pid is not None)
        return [card for each in found if each is not None and (card := card_of(each)) is not None]


async def open_session(company: Company, card: Card, outlet: Outlet, *, gated: bool = True) -> Ref[Session]:
    """Start a session. Raises `MaxChildren` when there are too many."""
    spec = child(Session, company, card, outlet, gated=gated)
    options = Options(name=name_of(company, card.id), label="session")
    return await start_child(company.sessions, spec.but(restart="temporary", options=options))


def name_of(company: Company, session_id: str) -> Name:
    """What the process is registered as."""
    return Name(company.key, "session", session_id)


def find_session(company: Company, session_id: str) -> tuple[Ref[Session], Card] | None:
    """The session with this id, if it is alive."""
    process = find(current_node(), name_of(company, session_id))
    if process is None or process.life:
        return None
    card = card_of(process)
    return None if card is None else (Ref.of(process), card)


def card_of(process: Process) -> Card | None:
    """The card of a session's process, which is the one thing of it that others read."""
    session = process.behaviour
    return session.card if isinstance(session, Session) else None
