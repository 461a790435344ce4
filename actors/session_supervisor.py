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

from .catalogue import caller_key
from .process_names import ProcessName
from .session import SessionProcess

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.supervision import ChildSpec, Pid, Process, Stop

    from .catalogue import Caller
    from .company import Company
    from .process_names import SessionInfo
    from .reply_sinks import ReplySink

log: Final = logging.getLogger("greenroom.sessions")

_MINUTE: Final = 60.0


class TooManySessions(GreenroomError):
    """One caller has as many sessions as one may have."""

    def __init__(self, limit: int) -> None:
        """`limit` is how many."""
        super().__init__(f"one caller may have {limit} sessions")
        self.limit = limit


class SessionSupervisor(DynamicSupervisor):
    """The supervisor."""

    def __init__(self, *, max_children: int | None = None, per_caller: int | None = None) -> None:
        """`per_caller` is how many sessions one caller may have."""
        super().__init__(max_children=max_children)
        self._per_caller = per_caller
        self._callers: dict[Pid, Caller] = {}
        self._counts: dict[Caller, int] = {}
        self._warned_at = -_MINUTE
        self._cache_clearing = MethodCacheClearing()

    async def admit(self, caller: Caller | None, spec: ChildSpec[Ref[SessionProcess]]) -> Ref[SessionProcess]:
        """Start one for this caller, if there is room for it."""
        if caller is None or self._per_caller is None:
            return await self.start_child(spec)  # type: ignore[no-any-return]
        count = self._counts.get(caller, 0)
        if count >= self._per_caller:
            self._warn(caller)
            raise Reject(TooManySessions(self._per_caller))
        ref: Ref[SessionProcess] = await self.start_child(spec)
        self._callers[ref.pid] = caller
        self._counts[caller] = count + 1
        return ref

    def handle_info(self, message: Any) -> Stop | Awaitable[Stop | None] | None:
        """A session has ended: its caller may have another."""
        if type(message) is ClearMethodCache:
            self._cache_clearing.clear()
            return None
        if type(message) is Exit:
            self._release(message.pid)
            self._cache_clearing.on_session_end()
        return super().handle_info(message)

    async def terminate_child(self, id: Any) -> None:
        """End one; the same."""
        await super().terminate_child(id)
        self._release(getattr(id, "pid", id))

    def _release(self, pid: Pid) -> None:
        caller = self._callers.pop(pid, None)
        if caller is not None:
            left = self._counts.pop(caller) - 1
            if left:
                self._counts[caller] = left

    def _warn(self, caller: Caller) -> None:
        now = self.process.node.now()
        if now - self._warned_at >= _MINUTE:
            self._warned_at = now
            kind = caller[0]  # who it is may be a secret
            log.warning("one %s has %d sessions, all that max_sessions_per_principal allows", kind, self._per_caller)

    def session_infos(self) -> list[SessionInfo]:
        """All that are alive, in the order in which they came."""
        node = self.process.node
        found = (node.process(each.pid) for each in self.children() if each.pid is not None)
        return [info for each in found if each is not None and (info := session_info_of(each)) is not None]


async def open_session(
    company: Company, info: SessionInfo, reply_sink: ReplySink, *, gated: bool = True
) -> Ref[SessionProcess]:
    """Start a session. Raises `MaxChildren` when there are too many, and `TooManySessions` when its caller has."""
    spec = child(SessionProcess, company, info, reply_sink, gated=gated)
    options = Options(name=session_process_name(company, info.id), label="session")
    spec = spec.but(restart="temporary", options=options)
    return await company.sessions.call(SessionSupervisor.admit, caller_key(info.peer), spec)


def session_process_name(company: Company, session_id: str) -> ProcessName:
    """What the process is registered as."""
    return ProcessName(company.key, "session", session_id)


def find_session(company: Company, session_id: str) -> tuple[Ref[SessionProcess], SessionInfo] | None:
    """The session with this id, if it is alive."""
    process = current_node().named(session_process_name(company, session_id))
    if process is None or process.life:
        return None
    info = session_info_of(process)
    return None if info is None else (Ref.of(process), info)


def count_sessions(company: Company) -> int:
    """How many there are on this node, without asking any process."""
    process = current_node().named(company.name("sessions"))
    sessions = None if process is None else process.behaviour
    return len(sessions) if isinstance(sessions, SessionSupervisor) else 0


def session_info_of(process: Process) -> SessionInfo | None:
    """The info of a session's process, which is the one thing of it that others read."""
    session = process.behaviour
    return session.info if isinstance(session, SessionProcess) else None


# --- What may be given back when a crowd of sessions has gone.
# CPython gives memory back by the megabyte, and one small thing that stays keeps a whole one. Its cache of methods is made of such things: it
# holds on to the names by which methods were looked up, and C code makes a new text for such a name each time (`result`, when a task goes on).
# Those that were made among the sessions are all over their memory. To forget them takes microseconds, and the cache is full again as soon.
# Nothing more is done: no collection of garbage, which would hold up all sessions (sessions end without cycles, and Python collects by itself),
# and no `malloc_trim`: little of what stays is on the heap that it could give back.

ENDED_BEFORE_CLEARING: Final = 100
"""How many have to have gone."""
CLEARING_DELAY: Final = 2.0
"""Seconds in which others may go as well."""

_clear_method_cache: Callable[[], Any] | None = getattr(sys, "_clear_internal_caches", None) or getattr(
    sys, "_clear_type_cache", None
)


class ClearMethodCache:
    """The message to oneself that it is time."""


class MethodCacheClearing:
    """One supervisor's count of sessions that have gone. The supervisor tells it of each, and when its `ClearMethodCache` message has come."""

    __slots__ = ("_scheduled", "_ended")

    def __init__(self) -> None:
        """No session has gone."""
        self._ended = 0
        self._scheduled = False

    def on_session_end(self) -> None:
        """One session has gone."""
        self._ended += 1
        if self._ended >= ENDED_BEFORE_CLEARING and not self._scheduled:
            self._scheduled = True
            send_after(CLEARING_DELAY, self_pid(), ClearMethodCache())

    def clear(self) -> None:
        """It is time."""
        self._ended = 0
        self._scheduled = False
        if _clear_method_cache is not None:
            _clear_method_cache()
