"""The registered names of a company's processes (company key, role, session id), and `SessionInfo`.

Names appear in trees, reports and errors. A session's id is a bearer secret, so names show only its first characters.
"""

from __future__ import annotations

import secrets
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.methods import SessionState
from greenroom.transports.interfaces import short_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.transports.interfaces import Peer

    from .reply_sinks import ChannelFeed

_serials: Final = count(1)


class CompanyKey(NamedTuple):
    """The part of a process name that tells one company from another."""

    name: str
    serial: int

    def __str__(self) -> str:
        return self.name if self.serial == 1 else f"{self.name}-{self.serial}"

    @classmethod
    def new(cls, name: str) -> CompanyKey:
        """A key that no other company has."""
        return cls(name, next(_serials))


class ProcessName(NamedTuple):
    """The registered name of one process."""

    company: CompanyKey
    role: str
    id: str = ""

    def __repr__(self) -> str:
        return f"{self.company}/{self.role}" + (f"/{short_id(self.id)}" if self.id else "")

    def __str__(self) -> str:
        return repr(self)


def new_id(kind: str, *, channel: bool = False) -> str:  # noqa: ARG001 - for another `IdFactory` that puts more into an id
    """A new id that cannot be guessed, for a session (with or without a channel) or a task."""
    return f"{kind}_{secrets.token_hex(16)}"


def short_task_id(task_id: str) -> str:
    """The first characters of a task's id, for logs and reports: the id may be all that gives access to the task."""
    return short_id(task_id.removeprefix("task_"))


# --- The public facts of a session: its id, its peer and the agreed revision.
# The session writes them; transports and lists of sessions read them, without asking its process. They are reachable
# only through the process, and go with it.


class SessionInfo:
    """The public facts of one session."""

    __slots__ = (
        "channel",
        "claimed",
        "client_capabilities",
        "client_info",
        "created",
        "id",
        "peer",
        "state",
        "version",
        "visible_to_peer",
    )

    def __init__(self, id: str, peer: Peer, channel: ChannelFeed | None, created: float) -> None:
        """`created` is a moment on the loop's clock."""
        self.id = id
        self.peer = peer
        self.channel = channel
        self.created = created
        self.version: str | None = None
        self.client_info: Mapping[str, Any] = {}
        self.client_capabilities: Mapping[str, Any] = {}
        self.state = SessionState.NEW
        self.visible_to_peer = True
        """Whether the peer knows of the session. A single request without a session has one that it is not told of."""
        self.claimed = False
        """Whether the opener has taken the session: it may have gone away meanwhile."""

    @property
    def ready(self) -> bool:
        """Whether the peer has sent `notifications/initialized`."""
        return self.state is SessionState.READY

    def __repr__(self) -> str:
        return f"<SessionInfo of {short_id(self.id)}, {self.version or 'nothing agreed'}>"
