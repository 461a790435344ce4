"""Routing of sessions and tasks in a company that runs on several nodes: a session lives on the node where its peer first came, and can be used on all of them.

An id says which node has it. A transport asks its node's `EnsembleRouter`, which returns a `RemoteSession` for a session of another node; its methods send a
`SessionRequest` to the `SessionServer` there, which calls the session. Tasks, which belong to a principal and not to a session, are found by their own ids in the
same way. A `SessionRequest` is an ordinary call between processes, so it ends when either side does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.actors.subscriptions import announce_gap, announce_list_changed, announce_resource_updated
from greenroom.actors.tasks import NO_TASK
from greenroom.actors.url_elicitations import ElicitationDone, find_eliciting_session
from greenroom.protocol.dialect import LATEST_DIALECT
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
from greenroom.transports.interfaces import EncodedReply, FeedEvent, RequestNotDelivered, short_id

from .routed_ids import RoutedIds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from greenroom.actors.catalogue import Kind
    from greenroom.actors.company import Company
    from greenroom.actors.process_names import ProcessName
    from greenroom.actors.task_store import TaskStore
    from greenroom.protocol.jsonrpc import JsonRpcMessage, RequestId
    from greenroom.supervision import Caller, ChildSpec, Pid
    from greenroom.supervision import Request as Asked
    from greenroom.transports.interfaces import Feed, Peer, SessionHandle, SessionReply, SessionStart

SESSION_SERVER: Final = "greenroom.session_server"
"""The registered name of each node's session server."""
_OF_ONE_TASK: Final = frozenset({"tasks/get", "tasks/result", "tasks/cancel"})


class EnsembleRouter:
    """Finds sessions and tasks on all nodes, for the transports of one node."""

    def __init__(self, company: Company, routed_ids: RoutedIds, session_servers: Mapping[int, Ref[Any]]) -> None:
        """`session_servers` are those of the other nodes, by their slots."""
        self._company = company
        self._ids = routed_ids
        self._session_servers = session_servers

    @property
    def max_in_flight(self) -> int:
        """How many requests of one peer may be in flight at once."""
        return self._company.max_in_flight

    @property
    def program(self) -> str:
        """The server's name in events."""
        return self._company.program

    @property
    def process_name(self) -> ProcessName:
        """The name of the process whose end is the end of the server on this node."""
        return self._company.process_name

    async def start_session(self, peer: Peer, hello: JsonRpcRequest) -> SessionStart:
        """Begin a session on this node."""
        return await self._company.start_session(peer, hello)

    async def connect(self, peer: Peer) -> SessionHandle:
        """Begin a session with a channel on this node."""
        return await self._company.connect(peer)

    def find(self, session_id: str, peer: Peer) -> SessionHandle | None:
        """The session of that id, if this peer may use it. For a session of another node that is checked there, when it is first used."""
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
        """Whether this peer may have tasks that were not begun in its present session."""
        return peer.principal is not None or self._company.tasks.store.durable

    async def once(self, peer: Peer, request: JsonRpcRequest, version: str, quiet: float | None = None) -> SessionReply:
        """Answer one request without a session: on this node, unless it is about a task of another."""
        here = self._ids.slot
        elsewhere = await self.about_task(peer, request, version, here, quiet)
        return elsewhere or await self._company.once(peer, request, version, quiet)

    async def exchange(
        self, peer: Peer, request: JsonRpcRequest, headers: Mapping[str, str] | None = None, quiet: float | None = None
    ) -> SessionReply:
        """Answer one request of the stateless era: on this node, unless it goes on with a call or is about a task of another."""
        slot = self._slot_of(peer, request)
        if slot is not None and slot != self._ids.slot and slot in self._session_servers:
            there = RemoteSession("", self._session_servers[slot], peer, channel=False)
            try:
                return await there.exchange(request, headers, quiet)
            except RequestNotDelivered:
                pass  # the node is gone, and with it the call or task: this node says so, or runs an idempotent tool again
            except ProcessExited:
                lost = McpError(ErrorCode.INTERNAL_ERROR, "The process that worked on this request has ended")
                return EncodedReply(encode_error(request.id, lost))
        return await self._company.exchange(peer, request, headers, quiet)

    def _slot_of(self, peer: Peer, request: JsonRpcRequest) -> int | None:
        """The slot of the node that has the call or the task which the request names; None if it names none."""
        id: Any = None
        if request.method in _OF_ONE_TASK or request.method == "tasks/update":
            id = request.params.get("taskId")
        elif "requestState" in request.params:
            id = self._company.exchanges.parked_id(peer, request)
        found = self._ids.read(id) if isinstance(id, str) else None
        return None if found is None else found[0]

    async def about_task(
        self, peer: Peer, request: JsonRpcRequest, version: str, at: int, quiet: float | None = None
    ) -> SessionReply:
        """The reply, if the request is about a task that is not in slot `at`, where it would be looked for otherwise."""
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
        """A task whose id is older than this ensemble: it is on the node that has read its file."""
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
        """Have that node answer, without a session."""
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
    """A session of a peer that may have tasks on any node, from its principal's or its own earlier sessions."""

    _session: SessionHandle
    _peer: Peer
    _router: EnsembleRouter
    _at: int
    _confirm: Callable[[], Awaitable[None]] | None = None
    """Raises `RequestNotDelivered` when the session of another node is not this peer's; None for a session of this node."""

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
                await self._confirm()  # the node that has the task may be another, which does not know the session
            answer = await self._router.about_task(
                self._peer, request, self.version or LATEST_DIALECT.version, self._at, quiet
            )
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


# --- A session of another node as a transport uses it: a `SessionHandle` over requests to the session server there.
# It knows only the id, so it can be made for a session that has ended long ago: its methods raise `ProcessExited` then, and when its node is lost, also in the middle of
# a request. A feed in a reply stays on its node, and is fetched batch by batch.

LOST: Final = "The session has ended before it answered. Send initialize to begin a new one."


class RemoteSession:
    """A session that lives on another node."""

    __slots__ = ("_channel", "_peer", "_session_server", "id")

    version: str | None = None

    def __init__(self, id: str, session_server: Ref[Any], peer: Peer, *, channel: bool) -> None:
        """`session_server` is that of the session's node; `channel` says that the peer listens to one channel there."""
        self.id = id
        self._session_server = session_server
        self._peer = peer
        self._channel = channel

    @property
    def channel(self) -> Feed | None:
        """The channel of the session, whose events are read on its own node."""
        return _REMOTE_CHANNEL if self._channel else None

    async def request(self, request: JsonRpcRequest, quiet: float | None = None) -> SessionReply:
        """Have the session answer a request."""
        return self._reply(await self._ask_node("request", pack_message(request), quiet), request.id)

    async def notify(self, notification: JsonRpcNotification) -> None:
        """Pass a notification to the session."""
        await self._ask_node("notify", pack_message(notification))

    async def respond(self, answer: JsonRpcResponse | JsonRpcError) -> None:
        """Pass the peer's response to a request of the session."""
        await self._ask_node("respond", pack_message(answer))

    async def listen(self, last_event_id: str | None = None) -> Feed:
        """Open the stream for messages that belong to no request, or resume the one with that event."""
        feed = self._reply(await self._ask_node("listen", last_event_id), None)
        assert feed is not None
        assert not isinstance(feed, EncodedReply)
        return feed

    async def end(self) -> None:
        """End the session for the peer."""
        await self._ask_node("end")

    async def confirm(self) -> None:
        """Raise `RequestNotDelivered` unless the session exists there and is this peer's."""
        await self._ask_node("confirm")

    async def once(self, request: JsonRpcRequest, version: str, quiet: float | None = None) -> SessionReply:
        """Have that node answer, without a session."""
        return self._reply(await self._ask_node("once", pack_message(request), version, quiet), request.id)

    async def exchange(
        self, request: JsonRpcRequest, headers: Mapping[str, str] | None, quiet: float | None
    ) -> SessionReply:
        """Have that node answer a request of the stateless era. Cancelling the wait cancels it there."""
        asked = await self._ask_node(
            "exchange", pack_message(request), None if headers is None else dict(headers), quiet
        )
        return self._reply(asked, request.id)

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
        """Connect the two nodes before anything is sent: if the first message were lost, it would be unknown whether it had arrived."""
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
    """A feed of another node. It ends when that feed does; when its node is lost, with an error for the request that it still has to answer."""

    __slots__ = ("_feed_process", "_over", "_pending", "_unanswered", "name")

    def __init__(self, name: str, feed_process: Pid, unanswered: RequestId | None) -> None:
        """`unanswered` is the id of the request that the feed has to answer before it ends, if any."""
        self.name = name
        self._feed_process: Ref[Any] = Ref(feed_process)
        self._unanswered = unanswered
        self._pending: Asked[Any] | None = None
        self._over = False

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:
        """The events since the last call: empty after the timeout, None when the feed has ended."""
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
        """The reader is gone. Events that were not fetched stay on the other node, for the next reader."""
        if not self._over:
            self._over = True
            exit(self._feed_process.pid, SHUTDOWN)
        if self._pending is not None:
            self._pending.abandon()
            self._pending = None


class _RemoteFeedChannel:
    """The channel of a session of another node; its events are read on that node, by the reader of its stream."""

    name = "channel"

    async def next(self, timeout: float | None = None) -> Sequence[FeedEvent] | None:  # noqa: ARG002 - nothing ever comes
        """No events come here."""
        return None

    def leave(self) -> None:
        """No-op."""


_REMOTE_CHANNEL: Final = _RemoteFeedChannel()


# --- The session server of a node: it answers other nodes' requests for sessions that live here, and tells them, and is told, what changes.
# It waits for nothing: each request is answered from a task. When it dies, its callers on other nodes get an error; its successor does not know which changes it has
# missed, so it announces a gap, after which subscribers on all nodes are notified of everything that they subscribe to.

_FLUSH: Final = object()
_WITH_A_MESSAGE: Final = frozenset({"request", "notify", "respond", "once", "exchange"})


class SessionServer(GenServer):
    """One per node of an ensemble."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, company: Company, others: Sequence[Ref[SessionServer]], renew: Callable[[], object]) -> None:
        """`others` are the session servers of all other nodes, running or not. `renew` reads certificates again."""
        self._company = company
        self._others = tuple(others)
        self._renew = renew
        self._lists: dict[Kind, None] = {}
        self._resources: dict[str, Mapping[str, Any]] = {}
        self._armed = False

    def init(self) -> None:
        """Announce a gap: changes that a predecessor was to send may be lost."""
        for each in self._others:
            each.cast(SessionServer.on_gap)

    def handle_call(self, request: Any, caller: Caller[Any]) -> NoReply:
        """A peer of another node uses a session that should be here."""
        if not isinstance(request, SessionRequest):
            return super().handle_call(request, caller)  # type: ignore[return-value]
        _ = answer_in_task(caller, self._answer(request))
        return NoReply()

    async def _answer(self, request: SessionRequest) -> Any:
        company, (_, id, peer, method, args) = self._company, request
        if method in _WITH_A_MESSAGE:
            args = (unpack_message(args[0]), *args[1:])
        try:
            if method in ("once", "exchange"):
                return _travelling_reply(await getattr(company, method)(peer, *args), request)
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

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """A resource has changed; its readers on this node have been told."""
        self._resources[uri] = extra
        self._arm()

    def list_changed(self, kind: Kind) -> None:
        """A list that all nodes offer has changed."""
        self._lists[kind] = None
        self._arm()

    def _arm(self) -> None:
        if not self._armed:
            self._armed = True
            self.ref().send(
                _FLUSH
            )  # behind the messages that wait already, so that all their changes are sent in one piece

    def _flush(self) -> None:
        self._armed = False
        lists, self._lists = list(self._lists), {}
        resources, self._resources = self._resources, {}
        for each in self._others:
            each.cast(SessionServer.on_changes, lists, resources)

    def on_changes(self, lists: Sequence[Kind], resources: Mapping[str, Mapping[str, Any]]) -> None:
        """Another node reports changes."""
        company = self._company
        for kind in lists:
            announce_list_changed(company.subscriptions, company.subscription_table, kind)
        for uri, extra in resources.items():
            announce_resource_updated(company.subscriptions, company.subscription_table, uri, extra)

    def on_gap(self) -> None:
        """Another node may have lost changes that it was to report."""
        announce_gap(self._company.subscriptions, self._company.subscription_table)

    def completed(self, elicitation_id: str) -> None:
        """A user is done with a page to which the peer of a session has sent them."""
        found = find_eliciting_session(current_node(), self._company, elicitation_id)
        if found is not None:
            found.send(ElicitationDone(elicitation_id))

    def broadcast(self, method: str, params: Mapping[str, Any]) -> NoReply:
        """Send a notification to all sessions of this node; replies with their number."""
        _ = answer_in_task(self.caller, self._company.peers.broadcast_here(method, params))
        return NoReply()

    def renew_certificates(self) -> None:
        """Read certificates again."""
        self._renew()

    def confirm_running(self) -> bool:
        """True: the session server runs."""
        return True

    def introduce(self, name: str, addresses: Sequence[str]) -> None:
        """Another node runs at these addresses."""
        elsewhere: Any = current_node().remote_nodes
        elsewhere.introduce(name, tuple(addresses))

    def handle_info(self, message: Any) -> None:
        """Send the collected changes."""
        if message is _FLUSH:
            self._flush()
        elif type(message) is not Exit:
            super().handle_info(message)


def _travelling_reply(reply: SessionReply, request: SessionRequest) -> EncodedReply | FeedHandle | None:
    """The reply as it is sent: an answer itself, and a handle for a feed."""
    return (
        reply
        if reply is None or isinstance(reply, EncodedReply)
        else FeedHandle(reply.name, spawn(serve_feed, reply, request.home))
    )


# --- Giving a feed to another node: a process here reads it, and sends the reader there one batch for each request.
# So nothing is sent that was not asked for, and events that were not fetched stay in the session for a client that comes back. The process is linked to the session
# server that asked: when that node is lost, the feed has no reader.

UNFETCHED: Final = 10.0
"""Seconds after which a feed that was never read is closed: its reader has gone in the meantime."""


async def serve_feed(feed: Feed, home: Pid) -> None:
    """Serve the feed until it ends; its reader on the other node ends this process on leaving."""
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


# --- One node of an ensemble: its slot, and what it adds to the company.


@dataclass(frozen=True, slots=True)
class NodeSlot:
    """The slot of one node among all, which is the index of its name. `key` is known to these nodes only."""

    number: int
    names: tuple[str, ...]
    key: bytes = field(repr=False)

    def session_servers(self) -> dict[int, Ref[SessionServer]]:
        """The session servers of the other nodes by slot, running or not."""
        return {
            number: Ref(On(SESSION_SERVER, name), None)
            for number, name in enumerate(self.names)
            if number != self.number
        }


class EnsembleMember:
    """The parts that a node of an ensemble adds to its company, which has not started yet."""

    def __init__(self, company: Company, slot: NodeSlot, renew: Callable[[], object]) -> None:
        """`renew` reads certificates again, when another node asks for it."""
        session_servers = slot.session_servers()
        routed_ids = RoutedIds(slot.key, slot.number)
        self.router = EnsembleRouter(company, routed_ids, session_servers)
        self.child: ChildSpec[Ref[SessionServer]] = child(
            SessionServer, company, tuple(session_servers.values()), renew
        ).but(id="session_server", name=SESSION_SERVER)
        company.new_id = routed_ids.new
        company.share_key(slot.key)
        of_place: Callable[[int], TaskStore] | None = getattr(company.tasks.store, "of_place", None)
        if of_place is not None:
            company.tasks.store = of_place(slot.number)
        company.other_nodes = _OtherNodes(tuple(session_servers.values()))


class _OtherNodes:
    """The other nodes, as the company calls them: changes that may be collected go through the node's own session server, everything else at once."""

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
        """The number of sessions that the other nodes have reached; a lost node counts as none."""
        answers = await multi_call(
            [each.within(5.0) for each in self._session_servers], SessionServer.broadcast, method, params
        )
        return sum(answers.replies.values())


# --- The messages between session servers.
# Messages of the protocol are sent as the bytes that they would be on the wire: so no node walks through a caller's arguments twice.

_LIMITS: Final = MessageLimits.of_size(1 << 30)  # the node that received it has checked its own limits


class SessionRequest(NamedTuple):
    """A request to the session server of a session's node, for a peer that has come to another node."""

    home: Pid
    """The session server that sends it. When it ends, a feed in the reply has no reader."""
    session: str
    peer: Peer
    method: str
    """A method of the `SessionHandle`; or "once", "exchange", or "confirm", which only asks whether the session exists."""
    args: tuple[Any, ...] = ()
    """The arguments; a message of the protocol is packed."""


class FeedHandle(NamedTuple):
    """The reply is a feed: `feed_process`, on the session's node, sends its events to the process that asks."""

    name: str
    feed_process: Pid


class NoSuchSession(NamedTuple):
    """The peer has no such session."""


class SessionEndedMeanwhile(NamedTuple):
    """The session has ended during the request."""


class AcceptedMessage(NamedTuple):
    """The message was accepted; its results come where the peer listens."""


def pack_message(message: JsonRpcMessage) -> bytes:
    """Encode a message in order to pass it on."""
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
    """Decode it."""
    return parse(data, _LIMITS)
