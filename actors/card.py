"""What anybody may know of a session without asking it: its id, whose it is, and what was agreed.

The session writes it; transports and lists of sessions read it. It dies with its session: nothing finds it but through the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from greenroom.protocol.automaton import State

from .names import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.transports.seam import Peer

    from .channel import Channel


class Card:
    """One session's."""

    __slots__ = (
        "channel",
        "claimed",
        "client_capabilities",
        "client_info",
        "created",
        "id",
        "lasting",
        "peer",
        "state",
        "version",
    )

    def __init__(self, id: str, peer: Peer, channel: Channel | None, created: float) -> None:
        """Before anything was said. `created` is a moment on the loop's clock."""
        self.id = id
        self.peer = peer
        self.channel = channel
        self.created = created
        self.version: str | None = None
        self.client_info: Mapping[str, Any] = {}
        self.client_capabilities: Mapping[str, Any] = {}
        self.state = State.NEW
        self.lasting = True
        """Whether it is a session to its peer: one that stands behind a single request is told to nobody."""
        self.claimed = False
        """Whether whoever opened the session has got it: they may have gone away in between."""

    @property
    def ready(self) -> bool:
        """Whether the peer has said that it is initialized."""
        return self.state is State.READY

    def __repr__(self) -> str:
        return f"<Card of session {shown(self.id)}, {self.version or 'nothing agreed'}>"
