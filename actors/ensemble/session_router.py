"""Sessions of a company that is on several nodes: each lives where its peer came first, and is found from everywhere.

Which node has it, its id says. The way in is the node's `EnsembleRouter`, which hands out an `RemoteSession` for a session of another node: what is
said to that goes as an request to the `SessionServer` there, which asks the session. What belongs to a principal and to no session is found in
the same way: a task, by its own id. An request is a call of the kernel's, so the end of either side is its end as well.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.actors.process_names import short_id
from greenroom.actors.subscriptions import announce_gap, announce_list_changed, announce_resource_updated
from greenroom.actors.tasks import NO_TASK
from greenroom.actors.url_elicitations import ElicitationDone, find_eliciting_session
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.jsonrpc import (
    JsonRpcError,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    MessageLimits,
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
from greenroom.supervision.cluster.flow_control import answer_in_task
from greenroom.transports.interfaces import EncodedReply, FeedEvent, RequestNotDelivered

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.company import Company
    from greenroom.actors.task_store import TaskStore
    from greenroom.protocol.jsonrpc import JsonRpcMessage, RequestId
    from greenroom.supervision import Caller, ChildSpec, Pid
    from greenroom.supervision import Request as Asked
    from greenroom.transports.interfaces import Feed, Peer, SessionHandle, SessionReply, SessionStart

SESSION_SERVER: Final = "greenroom.session_server"
"""What the session server of each node is registered as."""
_OF_ONE_TASK: Final = frozenset({"tasks/get", "tasks/result", "tasks/cancel"})


class EnsembleRouter:
    """That of one node."""

    def __init__(self, company: Company, routed_ids: RoutedIds, session_servers: Mapping[int, Ref[Any]]) -> None:
        """`session_servers` are those of the other nodes, by their place."""
        self._company = company
        self._ids = routed_ids
        self._session_servers = session_servers

    async def start_session(self, peer: Peer, hello: JsonRpcRequest) -> SessionStart:
        """Begin a session, here."""
        return await self._company.start_session(peer, hello)

    async def connect(self, peer: Peer) -> SessionHandle:
        """Begin a session with a channel, here."""
        return await self._company.connect(peer)

    def find(self, session_id: str, peer: Peer) -> SessionHandle | None:
        """The session of that id, if it may be this peer's: that of another node is asked for there, when something is wanted of it."""
        here = self._company.find(session_id, peer)
        if here is not None:
            return _SessionAndTasks(here, peer, self, self._ids.slot) if self._has_tasks_elsewhere(peer) else here
        found = self._ids.read(session_id)
        session_server = None if found is None else self._session_servers.get(found[0])
        if found is None or session_server is None:
            return None
        there = RemoteSession(session_id, session_server, peer, channel=found[1])
        return (
            _SessionAndTasks(there, peer, self, found[0], there.confirm) if self._has_tasks_elsewhere(peer) else there
        )

    def _has_tasks_elsewhere(self, peer: Peer) -> bool:
        """Whether there may be tasks of this peer's that were not begun in the session that it comes with."""
        return peer.principal is not None or self._company.tasks.store.durable

    async def once(self, peer: Peer, request: JsonRpcRequest, version: str, quiet: float | None = None) -> SessionReply:
        """Answer one request without any session: here, unless it is about a task of another node."""
        here = self._ids.slot
        elsewhere = await self.about_task(peer, request, version, here, quiet)
        return elsewhere or await self._company.once(peer, request, version, quiet)

    async def about_task(
        self, peer: Peer, request: JsonRpcRequest, version: str, at: int, quiet: float | None = None
    ) -> SessionReply:
        """The reply, if it is about a task that is not at that place, where else it would be looked for."""
        if request.method not in _OF_ONE_TASK or request.method in self._company.method_handlers:
            return None
        id: Any = request.params.get("taskId")
        if not isinstance(id, str):
            return None
        found = self._ids.read(id)
        if found is None:
            return await self._about_old_task(peer, request, version, id)
        slot = found[0]
        if slot == at or not (slot == self._ids.slot or slot in self._session_servers):
            return None
        return await self._ask(slot, peer, request, version, quiet)

    async def _about_old_task(self, peer: Peer, request: JsonRpcRequest, version: str, id: str) -> EncodedReply | None:
        """Of one that was begun before all of us were: it is where its file is read now."""
        store = self._company.tasks.store
        if not store.durable or store.get(id) is not None:
            return None
        for slot in self._session_servers:
            answer = await self._ask(slot, peer, request, version)
            if isinstance(answer, EncodedReply) and not isinstance(parse(answer.body), JsonRpcError):
                return answer
        return None

    async def _ask(
        self, slot: int, peer: Peer, request: JsonRpcRequest, version: str, quiet: float | None = None
    ) -> SessionReply:
        """Have that node answer it, without a session."""
        if slot == self._ids.slot:
            return await self._company.once(peer, request, version, quiet)
        try:
            return await RemoteSession("", self._session_servers[slot], peer, channel=False).once(
                request, version, quiet
            )
        except ProcessExited:
            return EncodedReply(encode_error(request.id, McpError(ErrorCode.INVALID_PARAMS, NO_TASK)))


@dataclass(eq=False, repr=False, slots=True)
class _SessionAndTasks:
    """A session whose peer may have tasks on any node: those of its principal, or of an earlier session of its own."""

    _session: SessionHandle
    _peer: Peer
    _router: EnsembleRouter
    _at: int
    _confirm: Callable[[], Awaitable[None]] | None = None
    """Raises `RequestNotDelivered` for a session of another node that is not this peer's; None for one that is here."""

    @property
    def id(self) -> str:
        return self._session.id

    @property
    def version(self) -> str | None:
        return self._session.version

    @property
    def channel(self) -> Feed | None:
        return self._session.channel

    async def request(self, request: JsonRpcRequest, quiet: float | None = None) -> SessionReply:
        if self.channel is None and request.method in _OF_ONE_TASK:
            if self._confirm is not None:
                await self._confirm()  # the node that answers may be another, which knows nothing of the session
            answer = await self._router.about_task(self._peer, request, self.version or LATEST, self._at, quiet)
            if answer is not None:
                return answer
        return await self._session.request(request, quiet)

    async def notify(self, notification: JsonRpcNotification) -> None:
        await self._session.notify(notification)

    async def respond(self, answer: JsonRpcResponse | JsonRpcError) -> None:
        await self._session.respond(answer)

    async def listen(self, last_event_id: str | None = None) -> Feed:
        return await self._session.listen(last_event_id)

    async def end(self) -> None:
        await self._session.end()


# --- A session of another node, as a transport holds it here: the seam's `SessionHandle`, over requests to the session server there.
# It knows nothing but the id, so it can be had of a session that has ended long ago: each method raises `ProcessExited` then, and when its node is
# lost, also in the middle of it. A feed that comes back is borrowed, and fetched batch by batch.

LOST: Final = "The session has ended before it answered. Send initialize to begin a new one."


class RemoteSession:
    """One session's."""

    __slots__ = ("_channel", "_peer", "_session_server", "id")

    version: str | None = None

    def __init__(self, id: str, session_server: Ref[Any], peer: Peer, *, channel: bool) -> None:
        """`session_server` is that of the node where it lives; `channel` says that the peer listens there to one channel."""
        self.id = id
        self._session_server = session_server
        self._peer = peer
        self._channel = channel

    @property
    def channel(self) -> Feed | None:
        """Where everything goes; not here."""
        return _REMOTE_CHANNEL if self._channel else None

    async def request(self, request: JsonRpcRequest, quiet: float | None = None) -> SessionReply:
        """Have it answer a request."""
        return self._reply(await self._ask_node("request", pack_message(request), quiet), request.id)

    async def notify(self, notification: JsonRpcNotification) -> None:
        """Tell it something."""
        await self._ask_node("notify", pack_message(notification))

    async def respond(self, answer: JsonRpcResponse | JsonRpcError) -> None:
        """Hand it the peer's answer to one of its own requests."""
        await self._ask_node("respond", pack_message(answer))

    async def listen(self, last_event_id: str | None = None) -> Feed:
        """Open the stream for what belongs to no request, or resume the one that the event was on."""
        feed = self._reply(await self._ask_node("listen", last_event_id), None)
        assert feed is not None
        assert not isinstance(feed, EncodedReply)
        return feed

    async def end(self) -> None:
        """The peer has done with it."""
        await self._ask_node("end")

    async def confirm(self) -> None:
        """Raises `RequestNotDelivered` unless that node has the session, and it is this peer's."""
        await self._ask_node("confirm")

    async def once(self, request: JsonRpcRequest, version: str, quiet: float | None = None) -> SessionReply:
        """Have that node answer it without any session."""
        return self._reply(await self._ask_node("once", pack_message(request), version, quiet), request.id)

    async def _ask_node(self, method: str, *args: Any) -> Any:
        home = whereis(SESSION_SERVER)
        if home is None:
            raise RequestNotDelivered(NO_PROCESS, SESSION_SERVER)  # it is just being restarted
        if not _is_connected(self._session_server):
            await self._connect_nodes()
        try:
            reply = await self._session_server.ask(SessionRequest(home, self.id, self._peer, method, args))
        except NotRegistered as error:
            raise RequestNotDelivered(error.reason, error.who) from error
        if isinstance(reply, NoSuchSession):
            raise RequestNotDelivered(NO_PROCESS, short_id(self.id))
        if isinstance(reply, SessionEndedMeanwhile):
            raise ProcessExited(NO_PROCESS, short_id(self.id))
        return reply

    async def _connect_nodes(self) -> None:
        """Have the two nodes connected before anything is sent: whether a lost first message arrived could not be known."""
        try:
            await self._session_server.call(SessionServer.confirm_running)
        except ProcessExited as error:
            raise RequestNotDelivered(error.reason, error.who) from error

    def _reply(self, reply: Any, id: RequestId | None) -> SessionReply:
        match reply:
            case FeedHandle(name=name, feed_process=feed_process):
                return RemoteFeed(name, feed_process, id)
            case AcceptedMessage():
                return _REMOTE_CHANNEL
            case _:
                return reply  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<RemoteSession {short_id(self.id)}>"


def _is_connected(session_server: Ref[Any]) -> bool:
    target, elsewhere = session_server.target, current_node().remote_nodes
    connected: tuple[str, ...] = getattr(elsewhere, "connected", ())
    return isinstance(target, On) and target.node in connected


class RemoteFeed:
    """A feed of another node. It ends when that feed does, and when its node is lost, then with the answer that it owes."""

    __slots__ = ("_feed_process", "_over", "_pending", "_unanswered", "name")

    def __init__(self, name: str, feed_process: Pid, unanswered: RequestId | None) -> None:
        """`unanswered` is the id of the request that it has to answer before it ends, if there is one."""
        self.name = name
        self._feed_process: Ref[Any] = Ref(feed_process)
        self._unanswered = unanswered
        self._pending: Asked[Any] | None = None
        self._over = False

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        """What has come since the last time; empty when the time was up first; None when it has ended."""
        if self._over:
            return None
        if self._pending is None:
            self._pending = ask_later(self._feed_process, None)
        try:
            reply = await self._pending.wait(timeout)
        except CallTimeout:
            return ()
        except ProcessExited:
            return self._lost()
        self._pending = None
        if reply is None:
            self._over = True
            return None
        events = [FeedEvent(*each) for each in reply]
        if self._unanswered is not None and any(event.answers == self._unanswered for event in events):
            self._unanswered = None
        return events

    def _lost(self) -> Sequence[FeedEvent] | None:
        self._over = True
        unanswered, self._unanswered = self._unanswered, None
        if unanswered is None:
            return None
        body = encode_error(unanswered, McpError(ErrorCode.INTERNAL_ERROR, LOST))
        return [FeedEvent("", body, answers=unanswered)]

    def leave(self) -> None:
        """The reader is gone; what was not fetched stays there for the next one."""
        if not self._over:
            self._over = True
            exit(self._feed_process.pid, SHUTDOWN)
        if self._pending is not None:
            self._pending.abandon()
            self._pending = None


class _RemoteFeedChannel:
    """The channel of a session of another node: its events are read on that node, by the holder of its stream."""

    name = "channel"

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:  # noqa: ARG002 - nothing ever comes
        """Nothing comes here."""
        return None

    def leave(self) -> None:
        """No-op: it has no reader here."""


_REMOTE_CHANNEL: Final = _RemoteFeedChannel()


# --- The session server of one node: takes requests of the others for sessions that live here, and hears what all nodes are to hear.
# It waits for nothing: an request is answered from a task of its own. When the session server dies, its callers on other nodes hear so; its successor begins with
# a gap, after which all subscribers, on this node and on others, are told again of all that they wait for.

_FLUSH: Final = object()
_WITH_A_MESSAGE: Final = frozenset({"request", "notify", "respond", "once"})


class SessionServer(GenServer):
    """One on each node of an ensemble."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, company: Company, others: Sequence[Ref[SessionServer]], renew: Callable[[], object]) -> None:
        """`others` are the session servers of all other nodes, by name, whether they are there or not. `renew` reads certificates again."""
        self._company = company
        self._others = tuple(others)
        self._renew = renew
        self._lists: dict[Kind, None] = {}
        self._resources: dict[str, Mapping[str, Any]] = {}
        self._armed = False

    def init(self) -> None:
        """What was to be told when a predecessor died, was not."""
        for each in self._others:
            each.cast(SessionServer.on_gap)

    # --- requests

    def handle_call(self, request: Any, caller: Caller[Any]) -> NoReply:
        """A peer of another node has, or says that it has, a session here."""
        if not isinstance(request, SessionRequest):
            return super().handle_call(request, caller)  # type: ignore[return-value]
        _ = answer_in_task(caller, self._answer(request))
        return NoReply()

    async def _answer(self, request: SessionRequest) -> Any:
        company, (_, id, peer, method, args) = self._company, request
        if method in _WITH_A_MESSAGE:
            args = (unpack_message(args[0]), *args[1:])
        try:
            if method == "once":
                return _travelling_reply(await company.once(peer, *args), request)
            handle = company.find(id, peer)
            if handle is None:
                return NoSuchSession()
            if method != "confirm":
                reply = await getattr(handle, method)(*args)
                if method == "listen" or (method == "request" and handle.channel is None):
                    return _travelling_reply(reply, request)
        except ProcessExited:
            return SessionEndedMeanwhile()
        return AcceptedMessage()

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
            each.cast(SessionServer.on_changes, lists, resources)

    def on_changes(self, lists: Sequence[Kind], resources: Mapping[str, Mapping[str, Any]]) -> None:
        """Another node says so."""
        company = self._company
        for kind in lists:
            announce_list_changed(company.subscriptions, company.subscription_table, kind)
        for uri, extra in resources.items():
            announce_resource_updated(company.subscriptions, company.subscription_table, uri, extra)

    def on_gap(self) -> None:
        """Another node may have had something to tell, and did not."""
        announce_gap(self._company.subscriptions, self._company.subscription_table)

    def completed(self, elicitation_id: str) -> None:
        """A user has done with the page to which a session's peer sent them."""
        found = find_eliciting_session(current_node(), self._company, elicitation_id)
        if found is not None:
            found.send(ElicitationDone(elicitation_id))

    def broadcast(self, method: str, params: Mapping[str, Any]) -> NoReply:
        """Send a notification to all sessions of this node; the answer is to how many."""
        _ = answer_in_task(self.caller, self._company.peers.broadcast_here(method, params))
        return NoReply()

    def renew_certificates(self) -> None:
        """Read them again."""
        self._renew()

    # --- acquaintance

    def confirm_running(self) -> bool:
        """It is, if it can say so."""
        return True

    def introduce(self, name: str, addresses: Sequence[str]) -> None:
        """Another node is there, and this is where."""
        elsewhere: Any = current_node().remote_nodes
        elsewhere.introduce(name, tuple(addresses))

    def handle_info(self, message: Any) -> None:
        """It is time to tell."""
        if message is _FLUSH:
            self._flush()
        elif type(message) is not Exit:
            super().handle_info(message)


def _travelling_reply(reply: SessionReply, request: SessionRequest) -> EncodedReply | FeedHandle | None:
    """The reply as it travels: an answer does, and a feed stays."""
    return (
        reply
        if reply is None or isinstance(reply, EncodedReply)
        else FeedHandle(reply.name, spawn(serve_feed, reply, request.home))
    )


# --- Lending a feed to another node: the process that has it here, and gives the events to the reader there, a batch for each question.
# So nothing is on its way that was not asked for, and events not yet fetched stay where the session keeps them for a client that comes back. It is
# tied to the session server that it was lent to: when that node is lost, the feed has no reader any more.

UNFETCHED: Final = 10.0
"""Seconds after which a feed that was never asked for is taken back: its reader has gone away meanwhile."""


async def serve_feed(feed: Feed, home: Pid) -> None:
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


# --- Making a company one of several: its name, the nodes that it tells, and the door and the session server through which the others reach it.


@dataclass(frozen=True, slots=True)
class NodeSlot:
    """One node's place among all of an ensemble: which of `names` it is. The key is theirs alone."""

    number: int
    names: tuple[str, ...]
    key: bytes = field(repr=False)

    def session_servers(self) -> dict[int, Ref[SessionServer]]:
        """Those of the others, by their places, whether they are there just now or not."""
        return {
            number: Ref(On(SESSION_SERVER, name), None)
            for number, name in enumerate(self.names)
            if number != self.number
        }


class EnsembleMember:
    """What one node of an ensemble adds to a company, which has not begun yet."""

    def __init__(self, company: Company, slot: NodeSlot, renew: Callable[[], object]) -> None:
        """`renew` reads certificates again, when another node wants it."""
        session_servers = slot.session_servers()
        routed_ids = RoutedIds(slot.key, slot.number)
        self.router = EnsembleRouter(company, routed_ids, session_servers)
        self.child: ChildSpec[Ref[SessionServer]] = child(
            SessionServer, company, tuple(session_servers.values()), renew
        ).but(id="session_server", name=SESSION_SERVER)
        company.new_id = routed_ids.new
        of_place: Callable[[int], TaskStore] | None = getattr(company.tasks.store, "of_place", None)
        if of_place is not None:
            company.tasks.store = of_place(slot.number)
        company.other_nodes = _OtherNodes(tuple(session_servers.values()))


class _OtherNodes:
    """The other nodes, as a company speaks to them: by way of its own session server what may be collected for a moment, else at once."""

    def __init__(self, session_servers: Sequence[Ref[SessionServer]]) -> None:
        self._session_servers = session_servers
        self._own: Ref[SessionServer] = Ref(SESSION_SERVER)

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        self._own.cast(SessionServer.updated, uri, extra)

    def list_changed(self, kind: Kind) -> None:
        self._own.cast(SessionServer.list_changed, kind)

    def completed(self, elicitation_id: str) -> None:
        for each in self._session_servers:
            each.cast(SessionServer.completed, elicitation_id)

    def renew_certificates(self) -> None:
        for each in self._session_servers:
            each.cast(SessionServer.renew_certificates)

    async def broadcast(self, method: str, params: Mapping[str, Any]) -> int:
        """How many sessions the other nodes reached; a node that is lost meanwhile counts as none."""
        answers = await multi_call(
            [each.within(5.0) for each in self._session_servers], SessionServer.broadcast, method, params
        )
        return sum(answers.replies.values())


# --- The messages between session servers: an request, and its outcome. All of it travels, in one piece with whatever else the link has to carry.
# Messages of the protocol go as the bytes that they would be on the wire: no node has to walk through a caller's arguments twice.

_LIMITS: Final = MessageLimits.of_size(1 << 30)  # the node that received it has checked it against its limits already


class SessionRequest(NamedTuple):
    """To the session server of the node where a session lives, on behalf of a peer that has come to another one."""

    home: Pid
    """The session server that it comes from: when that is gone, a borrowed feed has no reader."""
    session: str
    peer: Peer
    method: str
    """Of the session's `SessionHandle`; or "once" of the company's `Door`, or "confirm", which asks only whether there is such a session."""
    args: tuple[Any, ...] = ()
    """Its arguments; a message of the protocol is packed."""


class FeedHandle(NamedTuple):
    """The answer is a feed: the `feed_process` process on the session's node gives its events to the process that asks."""

    name: str
    feed_process: Pid


class NoSuchSession(NamedTuple):
    """There is no such session of that peer."""


class SessionEndedMeanwhile(NamedTuple):
    """There was, and it has ended in the middle of this."""


class AcceptedMessage(NamedTuple):
    """It was taken note of; what it brings comes where the peer listens."""


def pack_message(message: JsonRpcMessage) -> bytes:
    """A message, to be sent on."""
    match message:
        case JsonRpcRequest(id=id, method=method, params=params):
            return encode_request(id, method, params)
        case JsonRpcNotification(method=method, params=params):
            return encode_notification(method, params)
        case JsonRpcResponse(id=id, result=result):
            return encode_result(id, result)
        case JsonRpcError(id=id, error=error):
            return encode_error(id, error)


def unpack_message(data: bytes) -> Any:
    """The message again."""
    return parse(data, _LIMITS)


# --- Ids that tell on which node the session or task that they name lives, to nodes that have the key and to no others.
# A mark of four bytes is appended to the random part. It is what a keyed hash makes of that part, and the node's number is folded into its last
# byte: so no table is shared, an invented id is refused without asking any other node, and clients do not learn how many nodes there are.

MAX_NODES: Final = 64
"""How many nodes can be told apart."""
_CHANNEL: Final = 0x80
_SIZE: Final = 4


class RoutedIds:
    """Those of one node. All nodes of an ensemble have the same key."""

    __slots__ = ("_key", "slot")

    def __init__(self, key: bytes, slot: int) -> None:
        """`slot` is this node's number, from 0."""
        if not 0 <= slot < MAX_NODES:
            raise ValueError(f"a place is 0 to {MAX_NODES - 1}, not {slot!r}")
        self._key = key
        self.slot = slot

    def __repr__(self) -> str:
        return f"<RoutedIds of slot {self.slot}>"

    def new(self, kind: str, *, channel: bool = False) -> str:
        """An id that cannot be guessed. `channel` says that the session it names has one channel, and no streams."""
        token = secrets.token_hex(16)
        return f"{kind}_{token}{self._mark(token, self.slot | (_CHANNEL if channel else 0))}"

    def read(self, id: str) -> tuple[int, bool] | None:
        """On which node it lives, and whether it has a channel; None for what no node of ours has made."""
        _, _, rest = id.partition("_")
        token, mark = rest[: -2 * _SIZE], rest[-2 * _SIZE :]
        try:
            sent_mark = bytes.fromhex(mark)
        except ValueError:
            return None
        if len(sent_mark) != _SIZE or len(token) != 32 or not token.isascii():  # noqa: PLR2004 - as `new` makes it
            return None
        made = self._hash(token)
        if not hmac.compare_digest(sent_mark[:-1], made[:-1]):
            return None
        what = sent_mark[-1] ^ made[-1]
        slot = what & ~_CHANNEL
        return (slot, bool(what & _CHANNEL)) if slot < MAX_NODES else None

    def _mark(self, token: str, what: int) -> str:
        made = self._hash(token)
        return (made[:-1] + bytes((made[-1] ^ what,))).hex()

    def _hash(self, token: str) -> bytes:
        return blake2b(token.encode(), digest_size=_SIZE, key=self._key).digest()
