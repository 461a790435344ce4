"""Sessions of a company that is on several nodes: each lives where its peer came first, and is found from everywhere.

Which node has it, its id says. The way in is the node's `EnsembleDoor`, which hands out an `Elsewhere` for a session of another node: what is
said to that goes as an errand to the `Desk` there, which asks the session. What belongs to a principal and to no session is found in
the same way: a task, by its own id. An errand is a call of the kernel's, so the end of either side is its end as well.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.actors.names import shown
from greenroom.actors.subscriptions import tell_changed, tell_gap, tell_updated
from greenroom.actors.tasks import NO_TASK
from greenroom.actors.visits import Visited, find_visited
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.messages import (
    Failure,
    Limits,
    Notification,
    Request,
    Response,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    parse,
)
from greenroom.protocol.versions import LATEST
from greenroom.supervision import (
    NO_PROCESS,
    SHUTDOWN,
    CallTimeout,
    Exit,
    GenServer,
    NoReply,
    NotRegistered,
    On,
    ProcessExited,
    Ref,
    ask_later,
    child,
    current_node,
    exit,
    link,
    multi_call,
    receive,
    spawn,
    whereis,
)
from greenroom.supervision.cluster.streams import answering
from greenroom.transports.interfaces import Answer, Event, NeverAsked

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.company import Company
    from greenroom.actors.task_store import TaskStore
    from greenroom.protocol.messages import Message, RequestId
    from greenroom.supervision import Caller, ChildSpec, Pid
    from greenroom.supervision import Request as Asked
    from greenroom.transports.interfaces import Entered, Feed, Peer, Reply, Session

DESK: Final = "greenroom.desk"
"""What the desk of each node is registered as."""
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


@dataclass(eq=False, repr=False, slots=True)
class _Owners:
    """A session whose peer may have tasks on any node: those of its principal, or of an earlier session of its own."""

    _session: Session
    _peer: Peer
    _door: EnsembleDoor
    _at: int
    _confirm: Callable[[], Awaitable[None]] | None = None
    """Raises `NeverAsked` for a session of another node that is not this peer's; None for one that is here."""

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


# --- A session of another node, as a transport holds it here: the seam's `Session`, over errands to the desk there.
# It knows nothing but the id, so it can be had of a session that has ended long ago: each method raises `ProcessExited` then, and when its node is
# lost, also in the middle of it. A feed that comes back is borrowed, and fetched batch by batch.

LOST: Final = "The session has ended before it answered. Send initialize to begin a new one."


class Elsewhere:
    """One session's."""

    __slots__ = ("_channel", "_desk", "_peer", "id")

    version: str | None = None

    def __init__(self, id: str, desk: Ref[Any], peer: Peer, *, channel: bool) -> None:
        """`desk` is that of the node where it lives; `channel` says that the peer listens there to one channel."""
        self.id = id
        self._desk = desk
        self._peer = peer
        self._channel = channel

    @property
    def channel(self) -> Feed | None:
        """Where everything goes; not here."""
        return _NOWHERE if self._channel else None

    async def request(self, request: Request, quiet: float | None = None) -> Reply:
        """Have it answer a request."""
        return self._reply(await self._errand("request", packed(request), quiet), request.id)

    async def notify(self, notification: Notification) -> None:
        """Tell it something."""
        await self._errand("notify", packed(notification))

    async def respond(self, answer: Response | Failure) -> None:
        """Hand it the peer's answer to one of its own requests."""
        await self._errand("respond", packed(answer))

    async def listen(self, last_event_id: str | None = None) -> Feed:
        """Open the stream for what belongs to no request, or resume the one that the event was on."""
        feed = self._reply(await self._errand("listen", last_event_id), None)
        assert feed is not None
        assert not isinstance(feed, Answer)
        return feed

    async def end(self) -> None:
        """The peer has done with it."""
        await self._errand("end")

    async def confirm(self) -> None:
        """Raises `NeverAsked` unless that node has the session, and it is this peer's."""
        await self._errand("confirm")

    async def once(self, request: Request, version: str, quiet: float | None = None) -> Reply:
        """Have that node answer it without any session."""
        return self._reply(await self._errand("once", packed(request), version, quiet), request.id)

    async def _errand(self, method: str, *args: Any) -> Any:
        home = whereis(DESK)
        if home is None:
            raise NeverAsked(NO_PROCESS, DESK)  # it is just being restarted
        if not _is_connected(self._desk):
            await self._meet()
        try:
            said = await self._desk.ask(Errand(home, self.id, self._peer, method, args))
        except NotRegistered as error:
            raise NeverAsked(error.reason, error.who) from error
        if isinstance(said, Unknown):
            raise NeverAsked(NO_PROCESS, shown(self.id))
        if isinstance(said, Gone):
            raise ProcessExited(NO_PROCESS, shown(self.id))
        return said

    async def _meet(self) -> None:
        """Have the two nodes connected before anything is sent: whether a lost first message arrived could not be known."""
        try:
            await self._desk.call(Desk.is_there)
        except ProcessExited as error:
            raise NeverAsked(error.reason, error.who) from error

    def _reply(self, said: Any, id: RequestId | None) -> Reply:
        match said:
            case Lent(name=name, lender=lender):
                return Borrowed(name, lender, id)
            case Taken():
                return _NOWHERE
            case _:
                return said  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<Elsewhere, session {shown(self.id)}>"


def _is_connected(desk: Ref[Any]) -> bool:
    target, elsewhere = desk.target, current_node().elsewhere
    connected: tuple[str, ...] = getattr(elsewhere, "connected", ())
    return isinstance(target, On) and target.node in connected


class Borrowed:
    """A feed of another node. It ends when that feed does, and when its node is lost, then with the answer that it owes."""

    __slots__ = ("_asked", "_lender", "_over", "_owes", "name")

    def __init__(self, name: str, lender: Pid, owes: RequestId | None) -> None:
        """`owes` is the id of the request that it has to answer before it ends, if there is one."""
        self.name = name
        self._lender: Ref[Any] = Ref(lender)
        self._owes = owes
        self._asked: Asked[Any] | None = None
        self._over = False

    async def next(self, timeout: float | None = None) -> Sequence[Event] | None:
        """What has come since the last time; empty when the time was up first; None when it has ended."""
        if self._over:
            return None
        if self._asked is None:
            self._asked = ask_later(self._lender, None)
        try:
            said = await self._asked.wait(timeout)
        except CallTimeout:
            return ()
        except ProcessExited:
            return self._lost()
        self._asked = None
        if said is None:
            self._over = True
            return None
        events = [Event(*each) for each in said]
        if self._owes is not None and any(event.answers == self._owes for event in events):
            self._owes = None
        return events

    def _lost(self) -> Sequence[Event] | None:
        self._over = True
        owes, self._owes = self._owes, None
        if owes is None:
            return None
        body = encode_error(owes, McpError(ErrorCode.INTERNAL_ERROR, LOST))
        return [Event("", body, answers=owes)]

    def leave(self) -> None:
        """The reader is gone; what was not fetched stays there for the next one."""
        if not self._over:
            self._over = True
            exit(self._lender.pid, SHUTDOWN)
        if self._asked is not None:
            self._asked.abandon()
            self._asked = None


class _Nowhere:
    """The channel of a session of another node: its events are read on that node, by the holder of its stream."""

    name = "channel"

    async def next(self, timeout: float | None = None) -> Sequence[Event] | None:  # noqa: ARG002 - nothing ever comes
        """Nothing comes here."""
        return None

    def leave(self) -> None:
        """No-op: it has no reader here."""


_NOWHERE: Final = _Nowhere()


# --- The desk of one node: takes errands of the others for sessions that live here, and hears what all nodes are to hear.
# It waits for nothing: an errand is answered from a task of its own. When the desk dies, its callers on other nodes hear so; its successor begins with
# a gap, after which all subscribers, on this node and on others, are told again of all that they wait for.

_FLUSH: Final = object()
_WITH_A_MESSAGE: Final = frozenset({"request", "notify", "respond", "once"})


class Desk(GenServer):
    """One on each node of an ensemble."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, company: Company, others: Sequence[Ref[Desk]], renew: Callable[[], object]) -> None:
        """`others` are the desks of all other nodes, by name, whether they are there or not. `renew` reads certificates again."""
        self._company = company
        self._others = tuple(others)
        self._renew = renew
        self._lists: dict[Kind, None] = {}
        self._resources: dict[str, Mapping[str, Any]] = {}
        self._armed = False

    def init(self) -> None:
        """What was to be told when a predecessor died, was not."""
        for each in self._others:
            each.cast(Desk.heard_gap)

    # --- errands

    def handle_call(self, request: Any, caller: Caller[Any]) -> NoReply:
        """A peer of another node has, or says that it has, a session here."""
        if not isinstance(request, Errand):
            return super().handle_call(request, caller)  # type: ignore[return-value]
        _ = answering(caller, self._answer(request))
        return NoReply()

    async def _answer(self, errand: Errand) -> Any:
        company, (_, id, peer, method, args) = self._company, errand
        if method in _WITH_A_MESSAGE:
            args = (unpacked(args[0]), *args[1:])
        try:
            if method == "once":
                return _lent(await company.once(peer, *args), errand)
            handle = company.find(id, peer)
            if handle is None:
                return Unknown()
            if method != "confirm":
                reply = await getattr(handle, method)(*args)
                if method == "listen" or (method == "request" and handle.channel is None):
                    return _lent(reply, errand)
        except ProcessExited:
            return Gone()
        return Taken()

    # --- what all are to hear

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """A resource has changed, and its readers here have been told."""
        self._resources[uri] = extra
        self._arm()

    def list_changed(self, kind: Kind) -> None:
        """What all nodes offer has changed."""
        self._lists[kind] = None
        self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self.ref().send(_FLUSH)  # behind what waits already: all of that is told in one piece

    def _flush(self) -> None:
        self._armed = False
        lists, self._lists = list(self._lists), {}
        resources, self._resources = self._resources, {}
        for each in self._others:
            each.cast(Desk.heard, lists, resources)

    def heard(self, lists: Sequence[Kind], resources: Mapping[str, Mapping[str, Any]]) -> None:
        """Another node says so."""
        company = self._company
        for kind in lists:
            tell_changed(company.subscriptions, company.board, kind)
        for uri, extra in resources.items():
            tell_updated(company.subscriptions, company.board, uri, extra)

    def heard_gap(self) -> None:
        """Another node may have had something to tell, and did not."""
        tell_gap(self._company.subscriptions, self._company.board)

    def completed(self, elicitation_id: str) -> None:
        """A user has done with the page to which a session's peer sent them."""
        found = find_visited(current_node(), self._company, elicitation_id)
        if found is not None:
            found.send(Visited(elicitation_id))

    def broadcast(self, method: str, params: Mapping[str, Any]) -> NoReply:
        """Send a notification to all sessions of this node; the answer is to how many."""
        _ = answering(self.caller, self._company.peers.broadcast_here(method, params))
        return NoReply()

    def renew_certificates(self) -> None:
        """Read them again."""
        self._renew()

    # --- acquaintance

    def is_there(self) -> bool:
        """It is, if it can say so."""
        return True

    def meet(self, name: str, addresses: Sequence[str]) -> None:
        """Another node is there, and this is where."""
        elsewhere: Any = current_node().elsewhere
        elsewhere.introduce(name, tuple(addresses))

    def handle_info(self, message: Any) -> None:
        """It is time to tell."""
        if message is _FLUSH:
            self._flush()
        elif type(message) is not Exit:
            super().handle_info(message)


def _lent(reply: Reply, errand: Errand) -> Answer | Lent | None:
    """The reply as it travels: an answer does, and a feed stays."""
    return reply if reply is None or isinstance(reply, Answer) else Lent(reply.name, spawn(lend, reply, errand.home))


# --- Lending a feed to another node: the process that has it here, and gives the events to the reader there, a batch for each question.
# So nothing is on its way that was not asked for, and events not yet fetched stay where the session keeps them for a client that comes back. It is
# tied to the desk that it was lent to: when that node is lost, the feed has no reader any more.

UNFETCHED: Final = 10.0
"""Seconds after which a feed that was never asked for is taken back: its reader has gone away meanwhile."""


async def lend(feed: Feed, home: Pid) -> None:
    """Serve the feed until it has ended; its reader on the other node ends this process on leaving."""
    patience: float | None = UNFETCHED
    try:
        link(home)
        while True:
            caller = await receive(timeout=patience)
            patience = None
            events = await feed.next()
            caller.reply(None if events is None else [tuple(event) for event in events])
            if events is None:
                return
    except CallTimeout:
        return
    finally:
        feed.leave()


# --- Making a company one of several: its name, the nodes that it tells, and the door and the desk through which the others reach it.


@dataclass(frozen=True, slots=True)
class Place:
    """One node's place among all of an ensemble: which of `names` it is. The key is theirs alone."""

    number: int
    names: tuple[str, ...]
    key: bytes = field(repr=False)

    def desks(self) -> dict[int, Ref[Desk]]:
        """Those of the others, by their places, whether they are there just now or not."""
        return {number: Ref(On(DESK, name), None) for number, name in enumerate(self.names) if number != self.number}


class Spread:
    """What one node of an ensemble adds to a company, which has not begun yet."""

    def __init__(self, company: Company, place: Place, renew: Callable[[], object]) -> None:
        """`renew` reads certificates again, when another node wants it."""
        desks = place.desks()
        marks = Marks(place.key, place.number)
        self.door = EnsembleDoor(company, marks, desks)
        self.child: ChildSpec[Ref[Desk]] = child(Desk, company, tuple(desks.values()), renew).but(id="desk", name=DESK)
        company.new_id = marks.new
        of_place: Callable[[int], TaskStore] | None = getattr(company.tasks.store, "of_place", None)
        if of_place is not None:
            company.tasks.store = of_place(place.number)
        company.others = _Others(tuple(desks.values()))


class _Others:
    """The other nodes, as a company speaks to them: by way of its own desk what may be collected for a moment, else at once."""

    def __init__(self, desks: Sequence[Ref[Desk]]) -> None:
        self._desks = desks
        self._own: Ref[Desk] = Ref(DESK)

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        self._own.cast(Desk.updated, uri, extra)

    def list_changed(self, kind: Kind) -> None:
        self._own.cast(Desk.list_changed, kind)

    def completed(self, elicitation_id: str) -> None:
        for each in self._desks:
            each.cast(Desk.completed, elicitation_id)

    def renew_certificates(self) -> None:
        for each in self._desks:
            each.cast(Desk.renew_certificates)

    async def broadcast(self, method: str, params: Mapping[str, Any]) -> int:
        """How many sessions the other nodes reached; a node that is lost meanwhile counts as none."""
        answers = await multi_call([each.within(5.0) for each in self._desks], Desk.broadcast, method, params)
        return sum(answers.replies.values())


# --- The messages between desks: an errand, and its outcome. All of it travels, in one piece with whatever else the link has to carry.
# Messages of the protocol go as the bytes that they would be on the wire: no node has to walk through a caller's arguments twice.

_LIMITS: Final = Limits.of_size(1 << 30)  # the node that received it has checked it against its limits already


class Errand(NamedTuple):
    """To the desk of the node where a session lives, on behalf of a peer that has come to another one."""

    home: Pid
    """The desk that it comes from: when that is gone, a borrowed feed has no reader."""
    session: str
    peer: Peer
    method: str
    """Of the session's `Session`; or "once" of the company's `Door`, or "confirm", which asks only whether there is such a session."""
    args: tuple[Any, ...] = ()
    """Its arguments; a message of the protocol is packed."""


class Lent(NamedTuple):
    """The answer is a feed: the `lender` process on the session's node gives its events to the process that asks."""

    name: str
    lender: Pid


class Unknown(NamedTuple):
    """There is no such session of that peer."""


class Gone(NamedTuple):
    """There was, and it has ended in the middle of this."""


class Taken(NamedTuple):
    """It was taken note of; what it brings comes where the peer listens."""


def packed(message: Message) -> bytes:
    """A message, to be sent on."""
    match message:
        case Request(id=id, method=method, params=params):
            return encode_request(id, method, params)
        case Notification(method=method, params=params):
            return encode_notification(method, params)
        case Response(id=id, result=result):
            return encode_result(id, result)
        case Failure(id=id, error=error):
            return encode_error(id, error)


def unpacked(data: bytes) -> Any:
    """The message again."""
    return parse(data, _LIMITS)


# --- Ids that tell on which node the session or task that they name lives, to nodes that have the key and to no others.
# A mark of four bytes is appended to the random part. It is what a keyed hash makes of that part, and the node's number is folded into its last
# byte: so no table is shared, an invented id is refused without asking any other node, and clients do not learn how many nodes there are.

MOST: Final = 64
"""How many nodes can be told apart."""
_CHANNEL: Final = 0x80
_SIZE: Final = 4


class Marks:
    """Those of one node. All nodes of an ensemble have the same key."""

    __slots__ = ("_key", "place")

    def __init__(self, key: bytes, place: int) -> None:
        """`place` is this node's number, from 0."""
        if not 0 <= place < MOST:
            raise ValueError(f"a place is 0 to {MOST - 1}, not {place!r}")
        self._key = key
        self.place = place

    def __repr__(self) -> str:
        return f"<Marks of {self.place}>"

    def new(self, kind: str, *, channel: bool = False) -> str:
        """An id that cannot be guessed. `channel` says that the session it names has one channel, and no streams."""
        token = secrets.token_hex(16)
        return f"{kind}_{token}{self._mark(token, self.place | (_CHANNEL if channel else 0))}"

    def read(self, id: str) -> tuple[int, bool] | None:
        """On which node it lives, and whether it has a channel; None for what no node of ours has made."""
        _, _, rest = id.partition("_")
        token, mark = rest[: -2 * _SIZE], rest[-2 * _SIZE :]
        try:
            said = bytes.fromhex(mark)
        except ValueError:
            return None
        if len(said) != _SIZE or len(token) != 32 or not token.isascii():  # noqa: PLR2004 - as `new` makes it
            return None
        made = self._hash(token)
        if not hmac.compare_digest(said[:-1], made[:-1]):
            return None
        what = said[-1] ^ made[-1]
        place = what & ~_CHANNEL
        return (place, bool(what & _CHANNEL)) if place < MOST else None

    def _mark(self, token: str, what: int) -> str:
        made = self._hash(token)
        return (made[:-1] + bytes((made[-1] ^ what,))).hex()

    def _hash(self, token: str) -> bytes:
        return blake2b(token.encode(), digest_size=_SIZE, key=self._key).digest()
