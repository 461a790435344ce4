"""The way into a company that is on several nodes: a session begins where its peer comes first, and is found from everywhere.

Which node has it, its id says. What belongs to a principal and to no session is found in the same way: a task, by its own id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.tasks import NO_TASK
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.messages import Failure, encode_error, parse
from greenroom.protocol.versions import LATEST
from greenroom.supervision import ProcessExited
from greenroom.transports.seam import Answer

from .elsewhere import Elsewhere

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from greenroom.actors.company import Company
    from greenroom.protocol.messages import Notification, Request, Response
    from greenroom.supervision import Ref
    from greenroom.transports.seam import Entered, Feed, Peer, Reply, Session

    from .marks import Marks

_OF_ONE_TASK: Final = frozenset({"tasks/get", "tasks/result", "tasks/cancel"})


class EnsembleDoor:
    """That of one node."""

    def __init__(self, company: Company, marks: Marks, desks: Mapping[int, Ref[Any]]) -> None:
        """`desks` are those of the other nodes, by their place."""
        self._company = company
        self._marks = marks
        self._desks = desks

    async def enter(self, peer: Peer, hello: Request) -> Entered:
        """Begin a session, here."""
        return await self._company.enter(peer, hello)

    async def connect(self, peer: Peer) -> Session:
        """Begin a session with a channel, here."""
        return await self._company.connect(peer)

    def find(self, session_id: str, peer: Peer) -> Session | None:
        """The session of that id, if it may be this peer's: that of another node is asked for there, when something is wanted of it."""
        here = self._company.find(session_id, peer)
        if here is not None:
            return _Owners(here, peer, self, self._marks.place) if self._has_tasks_elsewhere(peer) else here
        found = self._marks.read(session_id)
        desk = None if found is None else self._desks.get(found[0])
        if found is None or desk is None:
            return None
        there = Elsewhere(session_id, desk, peer, channel=found[1])
        return _Owners(there, peer, self, found[0], there.confirm) if self._has_tasks_elsewhere(peer) else there

    def _has_tasks_elsewhere(self, peer: Peer) -> bool:
        """Whether there may be tasks of this peer's that were not begun in the session that it comes with."""
        return peer.principal is not None or self._company.tasks.store.durable

    async def once(self, peer: Peer, request: Request, version: str, quiet: float | None = None) -> Reply:
        """Answer one request without any session: here, unless it is about a task of another node."""
        here = self._marks.place
        elsewhere = await self.about_task(peer, request, version, here, quiet)
        return elsewhere or await self._company.once(peer, request, version, quiet)

    async def about_task(
        self, peer: Peer, request: Request, version: str, at: int, quiet: float | None = None
    ) -> Reply:
        """The reply, if it is about a task that is not at that place, where else it would be looked for."""
        if request.method not in _OF_ONE_TASK or request.method in self._company.own:
            return None
        id: Any = request.params.get("taskId")
        if not isinstance(id, str):
            return None
        found = self._marks.read(id)
        if found is None:
            return await self._about_old_task(peer, request, version, id)
        place = found[0]
        if place == at or not (place == self._marks.place or place in self._desks):
            return None
        return await self._ask(place, peer, request, version, quiet)

    async def _about_old_task(self, peer: Peer, request: Request, version: str, id: str) -> Answer | None:
        """Of one that was begun before all of us were: it is where its file is read now."""
        store = self._company.tasks.store
        if not store.durable or store.get(id) is not None:
            return None
        for place in self._desks:
            answer = await self._ask(place, peer, request, version)
            if isinstance(answer, Answer) and not isinstance(parse(answer.body), Failure):
                return answer
        return None

    async def _ask(self, place: int, peer: Peer, request: Request, version: str, quiet: float | None = None) -> Reply:
        """Have that node answer it, without a session."""
        if place == self._marks.place:
            return await self._company.once(peer, request, version, quiet)
        try:
            return await Elsewhere("", self._desks[place], peer, channel=False).once(request, version, quiet)
        except ProcessExited:
            return Answer(encode_error(request.id, McpError(ErrorCode.INVALID_PARAMS, NO_TASK)))


class _Owners:
    """A session whose peer may have tasks on any node: those of its principal, or of an earlier session of its own."""

    __slots__ = ("_at", "_confirm", "_door", "_peer", "_session")

    def __init__(
        self,
        session: Session,
        peer: Peer,
        door: EnsembleDoor,
        at: int,
        confirm: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`confirm` raises `NeverAsked` for a session of another node that is not this peer's; None for one that is here."""
        self._session = session
        self._peer = peer
        self._door = door
        self._at = at
        self._confirm = confirm

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def version(self) -> str | None:
        return self._session.version

    @property
    def channel(self) -> Feed | None:
        return self._session.channel

    async def request(self, request: Request, quiet: float | None = None) -> Reply:
        if self.channel is None and request.method in _OF_ONE_TASK:
            if self._confirm is not None:
                await self._confirm()  # the node that answers may be another, which knows nothing of the session
            answer = await self._door.about_task(self._peer, request, self.version or LATEST, self._at, quiet)
            if answer is not None:
                return answer
        return await self._session.request(request, quiet)

    async def notify(self, notification: Notification) -> None:
        await self._session.notify(notification)

    async def respond(self, answer: Response | Failure) -> None:
        await self._session.respond(answer)

    async def listen(self, last_event_id: str | None = None) -> Feed:
        return await self._session.listen(last_event_id)

    async def end(self) -> None:
        await self._session.end()
