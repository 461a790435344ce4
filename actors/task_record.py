"""What is known of a task: one frozen value, a new one for each change, and the rules by which it changes.

A record says everything that a peer may ask for, the result included, so whoever has it needs no process. Only the task's own collector makes
its next one, and the store keeps the newest. Moments are seconds since 1970, on the company's clock.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import msgspec

from greenroom.errors import GreenroomError
from greenroom.protocol.json import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.transports.seam import Peer

Status: TypeAlias = Literal["working", "input_required", "completed", "failed", "cancelled"]
TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
RELATED: Final = "io.modelcontextprotocol/related-task"
"""Where a message's `_meta` names the task that it belongs to."""

_NEXT: Final[Mapping[str, frozenset[str]]] = {
    "working": frozenset({"input_required", *TERMINAL}),
    "input_required": frozenset({"working", *TERMINAL}),
    **{status: frozenset[str]() for status in TERMINAL},
}


class BadTransition(GreenroomError):
    """A task cannot go from the one status to the other."""

    def __init__(self, before: str, after: str) -> None:
        """As it was, and as it was to be."""
        super().__init__(before, after)

    def __str__(self) -> str:
        return f"a task that is {self.args[0]} cannot become {self.args[1]}"


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One task at one moment. `owner` is whose it is (`owner_of`); nobody else may know that it exists."""

    id: str
    owner: str
    session_id: str = ""
    """The session that it was asked for in, which may be gone by now."""
    method: str = "tools/call"
    name: str = ""
    status: Status = "working"
    message: str | None = None
    created: float
    updated: float
    ended: float | None = None
    ttl: float
    """For how many seconds it is kept when it has ended."""
    poll: float | None = None
    """How many seconds the peer should wait before it asks again."""
    result: bytes | None = None
    """What the request would have been answered with, as JSON: a result…"""
    error: bytes | None = None
    """…or an error. Neither before the end."""

    @property
    def terminal(self) -> bool:
        """Whether it has ended."""
        return self.status in TERMINAL

    @property
    def expires(self) -> float:
        """From when on it need not be kept; never before it has ended."""
        return math.inf if self.ended is None else self.ended + self.ttl

    @property
    def size(self) -> int:
        """How many bytes it holds."""
        return len(self.result or b"") + len(self.error or b"")

    def moved(
        self,
        status: Status,
        now: float,
        message: str | None = None,
        *,
        result: bytes | None = None,
        error: bytes | None = None,
    ) -> TaskRecord:
        """As it is from now on. Raises `BadTransition`."""
        if status not in _NEXT[self.status]:
            raise BadTransition(self.status, status)
        now = max(now, self.updated)
        ended = now if status in TERMINAL else None
        return msgspec.structs.replace(
            self, status=status, updated=now, ended=ended, message=message, result=result, error=error
        )

    def to_wire(self) -> dict[str, Any]:
        """The revision's `Task`."""
        wire: dict[str, Any] = {
            "taskId": self.id,
            "status": self.status,
            "createdAt": written(self.created),
            "lastUpdatedAt": written(self.updated),
            "ttl": _milliseconds(self.ttl),
        }
        if self.message is not None:
            wire["statusMessage"] = self.message
        if self.poll is not None:
            wire["pollInterval"] = _milliseconds(self.poll)
        return wire


def owner_of(peer: Peer, session_id: str) -> str:
    """Whose the tasks of a peer are: its principal's; without one, the local user's where that is who speaks, else its session's.

    A principal that cannot be told from another one in writing owns nothing, and its sessions stand for it.
    """
    principal = peer.principal
    if isinstance(principal, str):
        return f"principal {principal}"
    if principal is not None and type(principal).__repr__ is not object.__repr__:
        return f"principal {type(principal).__name__} {principal!r}"
    return "local" if peer.transport == "stdio" and principal is None else f"session {session_id}"


def belongs_to_session(owner: str) -> bool:
    """Whether nobody can ask for the task any more when its session is gone."""
    return owner.startswith("session ")


def written(moment: float) -> str:
    """A moment as the wire has it: RFC 3339, with milliseconds, in UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def related(params: Mapping[str, Any], id: str) -> dict[str, Any]:
    """The same params, or result, with the word that they belong to that task."""
    meta: Any = params.get("_meta")
    kept = meta if is_object(meta) else {}
    return {**params, "_meta": {**kept, RELATED: {"taskId": id}}}


def _milliseconds(seconds: float) -> int:
    return math.ceil(seconds * 1000 - 1e-6)
