"""The supervisor of a company's sessions, which is also the only list of them.

Sessions are temporary: a peer whose session has ended has to begin a new one, under another id. The limits on sessions (of all, and of one caller) are checked
in this process, so two peers that arrive at the same moment cannot both get the last place, and a refused session costs nothing.
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
    """One caller has reached `max_sessions_per_principal`."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"one caller may have {limit} sessions")
        self.limit = limit


class SessionSupervisor(DynamicSupervisor):
    """The supervisor of all sessions."""

    def __init__(self, *, max_children: int | None = None, per_caller: int | None = None) -> None:
        """`per_caller` is how many sessions one caller may have."""
        super().__init__(max_children=max_children)
        self._per_caller = per_caller
        self._callers: dict[Pid, Caller] = {}
        self._counts: dict[Caller, int] = {}
        self._warned_at = -_MINUTE
        self._cache_clearing = MethodCacheClearing()

    async def admit(self, caller: Caller | None, spec: ChildSpec[Ref[SessionProcess]]) -> Ref[SessionProcess]:
        """Start a session for this caller. Raises `TooManySessions`."""
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
        """Count the ended sessions, and release their places."""
        if type(message) is ClearMethodCache:
            self._cache_clearing.clear()
            return None
        if type(message) is Exit:
            self._release(message.pid)
            self._cache_clearing.on_session_end()
        return super().handle_info(message)

    async def terminate_child(self, id: Any) -> None:
        """End a session, and release its place."""
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
            kind = caller[0]  # "principal" or "address"; the caller itself may be a secret
            log.warning("one %s has %d sessions, all that max_sessions_per_principal allows", kind, self._per_caller)

    def session_infos(self) -> list[SessionInfo]:
        """The live sessions, the oldest first."""
        node = self.process.node
        found = (node.process(each.pid) for each in self.children() if each.pid is not None)
        return [info for each in found if each is not None and (info := session_info_of(each)) is not None]


async def open_session(
    company: Company, info: SessionInfo, reply_sink: ReplySink, *, gated: bool = True
) -> Ref[SessionProcess]:
    """Start a session. Raises `MaxChildren` when there are too many, and `TooManySessions` when its caller has too many."""
    spec = child(SessionProcess, company, info, reply_sink, gated=gated)
    options = Options(name=session_process_name(company, info.id), label="session")
    spec = spec.but(restart="temporary", options=options)
    return await company.sessions.call(SessionSupervisor.admit, caller_key(info.peer), spec)


def session_process_name(company: Company, session_id: str) -> ProcessName:
    """The name under which a session's process is registered."""
    return ProcessName(company.key, "session", session_id)


def find_session(company: Company, session_id: str) -> tuple[Ref[SessionProcess], SessionInfo] | None:
    """The session with this id, if it is alive."""
    process = current_node().named(session_process_name(company, session_id))
    if process is None or process.life:
        return None
    info = session_info_of(process)
    return None if info is None else (Ref.of(process), info)


def count_sessions(company: Company) -> int:
    """The number of sessions on this node, read without asking a process."""
    process = current_node().named(company.name("sessions"))
    sessions = None if process is None else process.behaviour
    return len(sessions) if isinstance(sessions, SessionSupervisor) else 0


def session_info_of(process: Process) -> SessionInfo | None:
    """The `SessionInfo` of a session's process, the only part of it that other processes read."""
    session = process.behaviour
    return session.info if isinstance(session, SessionProcess) else None


# --- Releasing memory after many sessions have ended.
# CPython returns memory by the megabyte (an arena), and one small object keeps a whole arena. Its method cache holds
# such objects: the names by which methods were looked up, and C code makes a new string for such a name at each
# lookup (`result`, when a task goes on). Names made while sessions ran lie all over the sessions' memory. Clearing
# the cache takes microseconds, and it fills again as fast. The alternatives cost more: a garbage collection would
# stop all sessions (they end without cycles, and Python collects by itself), and `malloc_trim` finds little, since
# hardly any of what stays is on the heap it could return.

ENDED_BEFORE_CLEARING: Final = 100
"""How many sessions have to end before the cache is cleared."""
CLEARING_DELAY: Final = 2.0
"""Seconds to wait for further sessions to end."""

_clear_method_cache: Callable[[], Any] | None = getattr(sys, "_clear_internal_caches", None) or getattr(
    sys, "_clear_type_cache", None
)


class ClearMethodCache:
    """The supervisor's delayed message to itself: clear the method cache."""


class MethodCacheClearing:
    """Counts ended sessions, and clears the interpreter's method cache after many of them."""

    __slots__ = ("_ended", "_scheduled")

    def __init__(self) -> None:
        self._ended = 0
        self._scheduled = False

    def on_session_end(self) -> None:
        """Count one ended session."""
        self._ended += 1
        if self._ended >= ENDED_BEFORE_CLEARING and not self._scheduled:
            self._scheduled = True
            send_after(CLEARING_DELAY, self_pid(), ClearMethodCache())

    def clear(self) -> None:
        """Clear the cache. Called when the `ClearMethodCache` message arrives."""
        self._ended = 0
        self._scheduled = False
        if _clear_method_cache is not None:
            _clear_method_cache()
