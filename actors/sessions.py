"""The sessions of a company: their supervisor, and the only list of them that there is.

A session is temporary: when it is gone, its peer has to begin anew, under another id. How many there may be, of all and of one caller, is decided
where they are started, so that two who come at the same moment do not both get the last place; and before anything is.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, Final

from greenroom.errors import GreenroomError
from greenroom.supervision import (
    DynamicSupervisor,
    Exit,
    Options,
    Ref,
    Reject,
    child,
    current_node,
    self_pid,
    send_after,
)

from .catalogue import caller_of
from .names import Name
from .session import Session

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.supervision import ChildSpec, Pid, Process, Stop

    from .catalogue import Caller
    from .company import Company
    from .names import Card
    from .reply_sinks import Outlet

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
        now = self.process.node.now()
        if now - self._complained >= _MINUTE:
            self._complained = now
            kind = caller[0]  # who it is may be a secret
            log.warning("one %s has %d sessions, all that max_sessions_per_principal allows", kind, self._of_one)

    def cards(self) -> list[Card]:
        """All that are alive, in the order in which they came."""
        node = self.process.node
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
    process = current_node().named(name_of(company, session_id))
    if process is None or process.life:
        return None
    card = card_of(process)
    return None if card is None else (Ref.of(process), card)


def count_sessions(company: Company) -> int:
    """How many there are on this node, without asking any process."""
    process = current_node().named(company.name("sessions"))
    sessions = None if process is None else process.behaviour
    return len(sessions) if isinstance(sessions, Sessions) else 0


def card_of(process: Process) -> Card | None:
    """The card of a session's process, which is the one thing of it that others read."""
    session = process.behaviour
    return session.card if isinstance(session, Session) else None


# --- What may be given back when a crowd of sessions has gone.
# CPython gives memory back by the megabyte, and one small thing that stays keeps a whole one. Its cache of methods is made of such things: it
# holds on to the names by which methods were looked up, and C code makes a new text for such a name each time (`result`, when a task goes on).
# Those that were made among the sessions are all over their memory. To forget them takes microseconds, and the cache is full again as soon.
# Nothing more is done: no collection of garbage, which would hold up all sessions (sessions end without cycles, and Python collects by itself),
# and no `malloc_trim`: little of what stays is on the heap that it could give back.

CROWD: Final = 100
"""How many have to have gone."""
SOON: Final = 2.0
"""Seconds in which others may go as well."""

_forget: Callable[[], Any] | None = getattr(sys, "_clear_internal_caches", None) or getattr(
    sys, "_clear_type_cache", None
)


class Tidy:
    """The message to oneself that it is time."""


class Tidying:
    """One supervisor's count of sessions that have gone. The supervisor tells it of each, and when its `Tidy` message has come."""

    __slots__ = ("_due", "_gone")

    def __init__(self) -> None:
        """No session has gone."""
        self._gone = 0
        self._due = False

    def went(self) -> None:
        """One session has gone."""
        self._gone += 1
        if self._gone >= CROWD and not self._due:
            self._due = True
            send_after(SOON, self_pid(), Tidy())

    def tidy(self) -> None:
        """It is time."""
        self._gone = 0
        self._due = False
        if _forget is not None:
            _forget()
