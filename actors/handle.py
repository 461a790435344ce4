"""A session as a transport holds it: the seam's `Session`, over the process.

It keeps nothing of its own, so any number of them may exist for one session, and none of them keeps it alive. Each method raises
`ProcessExited` when the session is gone, also in the middle of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .names import shown
from .session import Session

if TYPE_CHECKING:
    from greenroom.protocol.messages import Failure, Notification, Request, Response
    from greenroom.supervision import Ref
    from greenroom.transports.seam import Feed, Peer, Reply

    from .card import Card


class Handle:
    """One session's."""

    __slots__ = ("_card", "_peer", "_ref")

    def __init__(self, ref: Ref[Session], card: Card, peer: Peer | None = None) -> None:
        """`ref` is by pid: the name of a session never comes back. `peer` is who speaks now; None for whoever began it."""
        self._peer = peer
        self._ref = ref.within(None)  # deadlines are the session's; its end is an answer, too
        self._card = card

    @property
    def id(self) -> str:
        """What the peer calls it."""
        return self._card.id

    @property
    def version(self) -> str | None:
        """The revision that was agreed on; None before that."""
        return self._card.version

    @property
    def channel(self) -> Feed | None:
        """Where everything goes in a session that has one channel."""
        return self._card.channel

    @property
    def ref(self) -> Ref[Session]:
        """The process."""
        return self._ref

    async def request(self, request: Request, quiet: float | None = None) -> Reply:
        """Have it answer a request. On a channel that holds back too much already, that waits for its reader."""
        channel = self._card.channel
        if channel is not None and channel.full:
            await channel.room()
        return await self._ref.call(Session.request, request, self._peer, quiet)

    async def notify(self, notification: Notification) -> None:
        """Tell it something."""
        await self._ref.call(Session.notify, notification)

    async def respond(self, answer: Response | Failure) -> None:
        """Hand it the peer's answer to one of its own requests."""
        await self._ref.call(Session.respond, answer)

    async def listen(self, last_event_id: str | None = None) -> Feed:
        """Open the stream for what belongs to no request, or resume the one that the event was on."""
        return await self._ref.call(Session.listen, last_event_id)

    async def end(self) -> None:
        """The peer has done with it."""
        await self._ref.call(Session.end)

    def __repr__(self) -> str:
        return f"<Handle on session {shown(self._card.id)}>"
