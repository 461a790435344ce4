"""What the processes of a company are registered as: the company's own key, the role, and for a session its id.

Names stand in drawings, reports and errors. A session's id is as good as a ticket to it, so they show no more than its beginning.
"""

from __future__ import annotations

import secrets
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.protocol.methods import SessionState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.transports.interfaces import Peer

    from .reply_sinks import ChannelFeed

_SHORT_ID_CHARACTERS: Final = 8
"""How much of an id is told: enough to tell two sessions apart, and far too little to guess one."""

_serials: Final = count(1)


class CompanyKey(NamedTuple):
    """What tells one company's names from another's."""

    name: str
    serial: int

    def __str__(self) -> str:
        return self.name if self.serial == 1 else f"{self.name}-{self.serial}"

    @classmethod
    def new(cls, name: str) -> CompanyKey:
        """A key that no other company has."""
        return cls(name, next(_serials))


class ProcessName(NamedTuple):
    """The name of one process."""

    company: CompanyKey
    role: str
    id: str = ""

    def __repr__(self) -> str:
        return f"{self.company}/{self.role}" + (f"/{short_id(self.id)}" if self.id else "")

    def __str__(self) -> str:
        return repr(self)


def new_id(kind: str, *, channel: bool = False) -> str:  # noqa: ARG001 - for another `IdFactory` that puts more into an id
    """An id that cannot be guessed, for a session (with a channel, or without) or a task."""
    return f"{kind}_{secrets.token_hex(16)}"


def short_id(session_id: str) -> str:
    """A session's id as it may be told."""
    return f"{session_id.removeprefix('mcp_')[:_SHORT_ID_CHARACTERS]}…"


# --- What may be known of a session without asking it: its id, whose it is, and what was agreed.
# The session writes it; transports and lists of sessions read it. It dies with its session: nothing finds it but through the process.


class SessionInfo:
    """One session's."""

    __slots__ = (
        "channel",
        "claimed",
        "client_capabilities",
        "client_info",
        "created",
        "id",
        "visible_to_peer",
        "peer",
        "state",
        "version",
    )

    def __init__(self, id: str, peer: Peer, channel: ChannelFeed | None, created: float) -> None:
        """Before anything was said. `created` is a moment on the loop's clock."""
        self.id = id
        self.peer = peer
        self.channel = channel
        self.created = created
        self.version: str | None = None
        self.client_info: Mapping[str, Any] = {}
        self.client_capabilities: Mapping[str, Any] = {}
        self.state = SessionState.NEW
        self.visible_to_peer = True
        """Whether it is a session to its peer: a peer is not told of one that stands behind a single request."""
        self.claimed = False
        """Whether the opener of the session has got it: it may have gone away in between."""

    @property
    def ready(self) -> bool:
        """Whether the peer has said that it is initialized."""
        return self.state is SessionState.READY

    def __repr__(self) -> str:
        return f"<SessionInfo of {short_id(self.id)}, {self.version or 'nothing agreed'}>"
