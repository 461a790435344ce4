"""The sessions of a company: their supervisor, and the only list of them that there is.

A session is temporary: when it is gone, its peer has to begin anew, under another id. How many there may be, of all and of one caller, is decided
where they are started, so that two who come at the same moment do not both get the last place; and before anything is.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from greenroom.errors import GreenroomError
from greenroom.supervision import DynamicSupervisor, Exit, Options, Ref, Reject, child
from greenroom.supervision.kernel import clock
from greenroom.supervision.kernel.current import current_node
from greenroom.supervision.kernel.names import find

from .callers import caller_of
from .names import Name
from .session import Session
from .tidying import Tidy, Tidying

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from greenroom.supervision import ChildSpec, Pid, Stop
    from greenroom.supervision.kernel.process import Process

    from .callers import Caller
    from .card import Card
    from .company import Company
    from .outlets import Outlet


log: Final = logging.getLogger("greenroom.sessions")

_MINUTE: Final = 60.0


class TooManySessions(GreenroomError):
    """One caller has as many sessions as one may have."""

    def __init__(self, limit: int) -> None:
        """`limit` is how many."""
        super().__init__(f"one caller may have {limit} sessions")
        self.limit = limit


class Sessions(DynamicSupervisor):
    """The supervisor."""

    def __init__(self, *, max_children: int | None = None, of_one: int | None = None) -> None:
        """`of_one` is how many sessions one caller may have."""
        super().__init__(max_children=max_children)
        self._of_one = of_one
        self._callers: dict[Pid, Caller] = {}
        self._counts: dict[Caller, int] = {}
        self._complained = -_MINUTE
        self._tidying = Tidying()

    async def admit(self, caller: Caller | None, spec: ChildSpec[Ref[Session]]) -> Ref[Session]:
        """Start one for this caller, if there is room for it."""
        if caller is None or self._of_one is None:
            return await self.start_child(spec)  # type: ignore[no-any-return]
        count = self._counts.get(caller, 0)
        if count >= self._of_one:
            self._complain(caller)
            raise Reject(TooManySessions(self._of_one))
        ref: Ref[Session] = await self.start_child(spec)
        self._callers[ref.pid] = caller
        self._counts[caller] = count + 1
        return ref

    def handle_info(self, message: Any) -> Stop | Awaitable[Stop | None] | None:
        """A session has ended: its caller may have another."""
        if type(message) is Tidy:
            self._tidying.tidy()
            return None
        if type(message) is Exit:
            self._leave(message.pid)
            self._tidying.went()
        return super().handle_info(message)

    async def terminate_child(self, id: Any) -> None:
        """End one; the same."""
        await super().terminate_child(id)
        self._leave(getattr(id, "pid", id))

    def _leave(self, pid: Pid) -> None:
        caller = self._callers.pop(pid, None)
        if caller is not None:
            left = self._counts.pop(caller) - 1
            if left:
                self._counts[caller] = left

    def _complain(self, caller: Caller) -> None:
        now = clock.now(self._otp_process.node.loop)
        if now - self._complained >= _MINUTE:
            self._complained = now
            kind = caller[0]  # who it is may be a secret
            log.warning("one %s has %d sessions, all that max_sessions_per_principal allows", kind, self._of_one)

    def __len__(self) -> int:
        return len(self._otp_by_pid)

    def cards(self) -> list[Card]:
        """All that are alive, in the order in which they came."""
        node = self._otp_process.node
        found = (node.process(each.pid) for each in self.children() if each.pid is not None)
        return [card for each in found if each is not None and (card := card_of(each)) is not None]


async def open_session(company: Company, card: Card, outlet: Outlet, *, gated: bool = True) -> Ref[Session]:
    """Start a session. Raises `MaxChildren` when there are too many, and `TooManySessions` when its caller has."""
    spec = child(Session, company, card, outlet, gated=gated)
    options = Options(name=name_of(company, card.id), label="session")
    spec = spec.but(restart="temporary", options=options)
    return await company.sessions.call(Sessions.admit, caller_of(card.peer), spec)


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


def count_sessions(company: Company) -> int:
    """How many there are on this node, without asking anybody."""
    process = find(current_node(), company.name("sessions"))
    sessions = None if process is None else process.behaviour
    return len(sessions) if isinstance(sessions, Sessions) else 0


def card_of(process: Process) -> Card | None:
    """The card of a session's process, which is the one thing of it that others read."""
    session = process.behaviour
    return session.card if isinstance(session, Session) else None
