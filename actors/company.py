"""A company: all processes that serve a server's peers, as one supervision tree.

::

    company (one_for_one)
    ├─ …                the server's lifespans, if it has any
    ├─ registry         the only writer of the catalogue
    ├─ subscriptions    tells sessions of changes
    ├─ workers          a process for each job of a session
    ├─ exchanges        a process for each request of the stateless era
    ├─ tasks            a process for each unfinished task, and one that removes expired records
    ├─ pools            of processes, for handlers that are to run in one
    ├─ sessions         a process for each session
    └─ listeners        sockets and pipes; the first to stop

`Company` itself is no process. It holds what outlives each of them (the reference to the current catalogue, the table
of subscriptions) and knows them by name, so a restarted process is found again. It is the transports' `SessionRouter`
and the workers' `WorkerServices`. Any number of companies may run in one node: their names differ.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, Final, Protocol, overload

from greenroom.protocol.dialect import LATEST_DIALECT
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.jsonrpc import encode_error, encode_notification
from greenroom.protocol.methods import is_declared
from greenroom.protocol.revision_downgrade import downgrade, prepare_params
from greenroom.protocol.sealing import KeyRing
from greenroom.protocol.serialization import to_jsonable
from greenroom.protocol.wire_shapes import LOG_LEVELS
from greenroom.supervision import (
    ActorError,
    DynamicSupervisor,
    MaxChildren,
    ProcessExited,
    Ref,
    Supervisor,
    TaskSupervisor,
    Threads,
    child,
    current_node,
)
from greenroom.transports.access_log import log_refusal
from greenroom.transports.interfaces import EncodedReply, SessionStart, short_id

from .bulkheads import Bulkheads
from .catalogue import CatalogueRef
from .exchange_table import Exchanges
from .exclusive_supervisor import ExclusiveSupervisor, named_child
from .peer_channels import AskPeer, ask_session, log_body
from .process_names import CompanyKey, ProcessName, SessionInfo, new_id
from .reply_sinks import AnswerOnlySink, ChannelReplySink, SingleFeed, SingleStreamSink, StreamReplySink
from .running_trees import note_tree
from .server_registry import Readiness, ServerRegistry, registrar_child
from .session import ENDED, REFUSED, SessionProcess, check_introduction
from .session_supervisor import SessionSupervisor, TooManySessions, find_session, open_session, session_info_of
from .settings import Settings, key_ring_of
from .subscriptions import (
    Subscriptions,
    SubscriptionTable,
    announce_list_changed,
    announce_resource_updated,
    subscriptions_child,
)
from .task_store import default_task_store
from .tasks import CompanyTasks, tasks_child
from .url_elicitations import ElicitationDone, ExpectElicitations, find_eliciting_session
from .worker import execute_job
from .worker_interfaces import Hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
    from greenroom.supervision import ChildSpec, Pid
    from greenroom.transports.interfaces import Feed, Peer, SessionReply

    from .catalogue import Kind
    from .pools.pools import Pools, ProcessProvider
    from .reply_sinks import ReplySink
    from .server_registry import CatalogueRegistrar, WaitFor
    from .task_store import TaskStore
    from .worker_interfaces import AroundHook, Job, MethodHandler

_INTENSITY: Final = 5
_PERIOD: Final = 10.0


class Company:
    """One company, before and while it runs."""

    def __init__(  # noqa: PLR0913 - all of them optional
        self,
        settings: Settings | None = None,
        *,
        catalogue_ref: CatalogueRef | None = None,
        hooks: Hooks | None = None,
        listeners: Sequence[ChildSpec[Any]] = (),
        wait_for: WaitFor = None,
        task_store: TaskStore | None = None,
        process_provider: ProcessProvider | None = None,
        work: Callable[[Job], Coroutine[Any, Any, None]] = execute_job,
    ) -> None:
        """`listeners` are the children that accept peers; more can be started under `listeners` later.

        Registering waits until `wait_for` is there. Tasks are kept in memory unless there is a `task_store`. `work`
        is what a worker does with a job.
        """
        self.hooks = Hooks() if hooks is None else hooks
        self.catalogue_ref = CatalogueRef() if catalogue_ref is None else catalogue_ref
        self.work = work
        self.subscription_table = SubscriptionTable()
        self._pools: Pools | None = None
        self.settings: Settings
        self.set_up(Settings() if settings is None else settings)
        self.key = CompanyKey.new(self.settings.name)
        self.workers: Ref[TaskSupervisor] = Ref(self.name("workers"), None)
        self.tasks = CompanyTasks(self, default_task_store() if task_store is None else task_store)
        """The tasks, and the supervisor of their processes."""
        self.sessions: Ref[SessionSupervisor] = Ref(self.name("sessions"), None)
        self.exchanges = Exchanges(self)
        """The requests of the stateless era."""
        self.subscriptions: Ref[Subscriptions] = Ref(self.name("subscriptions"))
        registrar: Ref[CatalogueRegistrar] = Ref(self.name("registry"))
        self.registry = ServerRegistry(self, registrar)
        self.peers = ConnectedPeers(self)
        """The connected peers, and how to reach them when none of their calls is in flight."""
        self.new_id: IdFactory = new_id
        """Makes the ids of sessions and tasks: hard to guess, and with the node in it where there are several."""
        self.other_nodes: OtherNodes | None = None
        """The other nodes of this company; None when it is on one node."""
        self._readiness = Readiness(wait_for)
        self.listeners: Ref[Supervisor] = Ref(self.name("listeners"), None)
        self._listeners = tuple(listeners)
        self._process_provider = process_provider

    def set_up(self, settings: Settings) -> None:
        """Replace the settings, before the company runs. Its processes keep the name that it was made with."""
        self.settings = settings
        self.bulkheads = Bulkheads(settings.tool_threads, settings.principal_threads)
        self.threads = Threads(settings.tool_threads)
        """Where plain hooks run."""
        self.sealing = key_ring_of(settings) or KeyRing.random()
        """Seals the values that peers keep for this company."""
        self._pools = None

    def share_key(self, secret: bytes) -> None:
        """Seal with a key that all nodes with this secret have, unless the settings name keys. Call it before the company runs."""
        if key_ring_of(self.settings) is None:
            self.sealing = KeyRing.shared(secret)

    @property
    def pools(self) -> Pools:
        """The pools, which run handlers in processes of their own."""
        if self._pools is None:
            from .pools.pools import Pools  # noqa: PLC0415 - few companies have any, and it is much to load

            self._pools = Pools(self.key, self.settings, self.catalogue_ref, self._process_provider)
        return self._pools

    @property
    def method_handlers(self) -> Mapping[str, MethodHandler]:
        """The server's own code for methods that it answers instead of the catalogue."""
        return self.hooks.answers

    @property
    def around(self) -> AroundHook | None:
        """The hook around every answer, if there is one."""
        return self.hooks.around

    def name(self, role: str) -> ProcessName:
        """The registered name of the process with that role."""
        return ProcessName(self.key, role)

    def expect_elicitations(self, session_id: str, key: int | None, ids: Sequence[str]) -> None:
        """Note that a peer is about to get these URL elicitations, on behalf of a call, so that it can be told when its user is done."""
        found = find_session(self, session_id)
        if found is not None:
            found[0].send(ExpectElicitations(key, ids))

    def child_spec(
        self, listeners: Sequence[ChildSpec[Any]] = (), *, first: Sequence[ChildSpec[Any]] = ()
    ) -> ChildSpec[Ref[ExclusiveSupervisor]]:
        """The whole company as a child, for any supervisor. `listeners` are added to those it was made with.

        `first` start before all other children here, and stop last.
        """
        note_tree(self, self.name("company"))
        settings = self.settings
        doors = [named_child(each, self.name(f"listener {each.id}")) for each in (*self._listeners, *listeners)]
        children: list[ChildSpec[Any]] = [
            *first,
            registrar_child(
                self.name("registry"), self.catalogue_ref, self._readiness, self.subscriptions, self.subscription_table
            ),
            subscriptions_child(self.name("subscriptions"), self.subscription_table),
            child(TaskSupervisor).but(id="workers", name=self.name("workers")),
            child(TaskSupervisor).but(id="exchanges", name=self.name("exchanges")),
            tasks_child(self),
            *self._pool_children(),
            child(
                SessionSupervisor, max_children=settings.max_sessions, per_caller=settings.max_sessions_per_principal
            ).but(id="sessions", name=self.name("sessions")),
            child(ExclusiveSupervisor, doors, intensity=_INTENSITY, period=_PERIOD).but(
                id="listeners", name=self.name("listeners")
            ),
        ]
        return child(ExclusiveSupervisor, children, intensity=_INTENSITY, period=_PERIOD).but(
            id=self.key, name=self.name("company")
        )

    # --- announcements to sessions

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """Announce a changed resource to the sessions that subscribed to it, on all nodes."""
        announce_resource_updated(self.subscriptions, self.subscription_table, uri, extra)
        if self.other_nodes is not None:
            self.other_nodes.updated(uri, extra)

    def list_changed(self, kind: Kind) -> None:
        """Announce a changed list to all sessions, on all nodes."""
        announce_list_changed(self.subscriptions, self.subscription_table, kind)
        if self.other_nodes is not None:
            self.other_nodes.list_changed(kind)

    def completed(self, elicitation_id: str) -> bool:
        """Report that a user is done with a page, whichever node has sent them there. Returns whether a client may be told."""
        return self.peers.elicitation_complete(elicitation_id)

    def _pool_children(self) -> list[ChildSpec[Any]]:
        children: list[ChildSpec[Any]] = [
            child(DynamicSupervisor, intensity=_INTENSITY, period=_PERIOD).but(id="pools", name=self.name("pools"))
        ]
        if self.catalogue_ref.current.isolated:
            children.append(self.pools.opening_spec())
        return children

    # --- called by transports

    @property
    def max_in_flight(self) -> int:
        """How many requests of one peer may be in flight at once."""
        return self.settings.max_in_flight

    @property
    def program(self) -> str:
        """The server's name in events."""
        return self.settings.name

    @property
    def process_name(self) -> ProcessName:
        """The name of the process whose end is the end of the server."""
        return self.name("company")

    async def start_session(self, peer: Peer, hello: JsonRpcRequest) -> SessionStart:
        """Begin a session with an `initialize` request. Nothing is kept of one that is refused."""
        try:
            check_introduction(hello.params)
        except McpError as error:
            log_refusal(error.message, status=400, peer=peer, method=hello.method, program=self.program)
            return SessionStart(None, EncodedReply(encode_error(hello.id, error), 400))
        try:
            session = await self._open(peer, StreamReplySink(self.settings))
        except McpError as error:
            return SessionStart(None, EncodedReply(encode_error(hello.id, error), 503))
        try:
            answer = await session.request(hello)
        except ProcessExited:
            ended = McpError(ErrorCode.INTERNAL_ERROR, "The session ended before it was initialized")
            return SessionStart(None, EncodedReply(encode_error(hello.id, ended), 500))
        except BaseException:
            session.ref.cast(
                SessionProcess.close, REFUSED
            )  # the opener was cancelled, and the session's id was never sent
            raise
        assert isinstance(answer, EncodedReply)
        if session.version is None:
            session.ref.cast(SessionProcess.close, REFUSED)
            return SessionStart(None, answer if answer.status != 200 else answer._replace(status=500))  # noqa: PLR2004
        return SessionStart(session, answer)

    async def connect(self, peer: Peer) -> LocalSessionHandle:
        """Begin a session with a channel."""
        return await self._open(peer, ChannelReplySink(self.settings))

    def find(self, session_id: str, peer: Peer) -> LocalSessionHandle | None:
        """The session with that id, if it belongs to this peer: another principal's looks unknown."""
        found = find_session(self, session_id)
        if found is None or found[1].peer.principal != peer.principal:
            return None
        return LocalSessionHandle(*found, peer)

    @overload
    async def once(
        self, peer: Peer, request: JsonRpcRequest, version: str | None = None, quiet: None = None
    ) -> EncodedReply: ...

    @overload
    async def once(
        self, peer: Peer, request: JsonRpcRequest, version: str | None = None, quiet: float | None = None
    ) -> SessionReply: ...

    async def once(
        self, peer: Peer, request: JsonRpcRequest, version: str | None = None, quiet: float | None = None
    ) -> SessionReply:
        """Answer one request without a session. `version` is the revision that the request names.

        With `quiet`, messages before the reply come on a feed, which is also made after so many seconds without a
        message.
        """
        reply_sink = AnswerOnlySink() if quiet is None else SingleStreamSink(self.settings)
        try:
            session = await self._open(peer, reply_sink, gated=False, version=version)
        except McpError as error:
            return EncodedReply(encode_error(request.id, error), 503)
        lent = False
        try:
            reply = await session.request(request, quiet)
            if reply is not None and not isinstance(reply, EncodedReply):
                lent = True
                return SingleFeed(reply, lambda: session.ref.cast(SessionProcess.close, REFUSED))
        except ProcessExited:
            return EncodedReply(
                encode_error(request.id, McpError(ErrorCode.INTERNAL_ERROR, "Internal server error")), 500
            )
        finally:
            if not lent:
                session.ref.cast(SessionProcess.close, REFUSED)
        return reply

    async def exchange(
        self, peer: Peer, request: JsonRpcRequest, headers: Mapping[str, str] | None = None, quiet: float | None = None
    ) -> SessionReply:
        """Answer one request of the stateless era; see `Exchanges.answer`."""
        return await self.exchanges.answer(peer, request, headers, quiet)

    async def _open(
        self, peer: Peer, reply_sink: ReplySink, *, gated: bool = True, version: str | None = None
    ) -> LocalSessionHandle:
        id = self.new_id("mcp", channel=reply_sink.channel is not None)
        info = SessionInfo(id, peer, reply_sink.channel, asyncio.get_running_loop().time())
        info.version = version
        info.visible_to_peer = gated
        try:
            ref = await open_session(self, info, reply_sink, gated=gated)
        except (ActorError, TooManySessions) as error:
            raise self._refuse_session(peer, error) from error
        info.claimed = True
        return LocalSessionHandle(ref, info)

    def _refuse_session(self, peer: Peer, error: ActorError | TooManySessions) -> McpError:
        """Log why a peer gets no session. Returns the error for the peer."""
        match error:
            case MaxChildren():
                message, setting = "Maximum number of sessions reached", "max_sessions"
            case TooManySessions(limit=limit):
                message = f"Maximum number of sessions reached: one caller may have {limit}; end some first"
                setting = "max_sessions_per_principal"
            case _:
                message, setting = "No session can be started just now: try again", ""
        log_refusal(message, status=503, peer=peer, setting=setting, program=self.program)
        return McpError(ErrorCode.INTERNAL_ERROR, message)


# --- A session as a transport holds it: the interface `SessionHandle`, over the session's process.
# It has no state of its own, so any number of handles may exist for one session, and none keeps it alive. Each method
# raises `ProcessExited` when the session is gone, or goes meanwhile.


class LocalSessionHandle:
    """A handle on one session of this node."""

    __slots__ = ("_info", "_peer", "_ref")

    def __init__(self, ref: Ref[SessionProcess], info: SessionInfo, peer: Peer | None = None) -> None:
        """`ref` is by pid, as a session's name is never used again.

        `peer` is the current caller; None for the one that began the session.
        """
        self._peer = peer
        self._ref = ref.within(None)  # no timeout here: the session has its own, and its death raises `ProcessExited`
        self._info = info

    @property
    def id(self) -> str:
        """The session's id."""
        return self._info.id

    @property
    def version(self) -> str | None:
        """The agreed revision; None before the handshake."""
        return self._info.version

    @property
    def channel(self) -> Feed | None:
        """The session's one feed, if it has a channel."""
        return self._info.channel

    @property
    def ref(self) -> Ref[SessionProcess]:
        """The session's process."""
        return self._ref

    async def request(self, request: JsonRpcRequest, quiet: float | None = None) -> SessionReply:
        """Send a request. On a channel that is full, this waits until its reader has caught up."""
        channel = self._info.channel
        if channel is not None and channel.full:
            await channel.room()
        return await self._ref.call(SessionProcess.request, request, self._peer, quiet)

    async def notify(self, notification: JsonRpcNotification) -> None:
        """Send a notification."""
        await self._ref.call(SessionProcess.notify, notification)

    async def respond(self, answer: JsonRpcResponse | JsonRpcError) -> None:
        """Hand over the peer's reply to one of the session's own requests."""
        await self._ref.call(SessionProcess.respond, answer)

    async def listen(self, last_event_id: str | None = None) -> Feed:
        """Open the general stream, or resume the one that the event was on."""
        return await self._ref.call(SessionProcess.listen, last_event_id)

    async def end(self) -> None:
        """End the session."""
        await self._ref.call(SessionProcess.end)

    def __repr__(self) -> str:
        return f"<LocalSessionHandle on {short_id(self._info.id)}>"


# --- The interface to the other nodes of a company.


class IdFactory(Protocol):
    """Makes ids."""

    def __call__(self, kind: str, *, channel: bool = False) -> str:
        """An id for a session, which may have a channel, or for a task."""
        ...


class OtherNodes(Protocol):
    """The other nodes of a company. Nothing here waits, except `broadcast`."""

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """Announce a changed resource."""

    def list_changed(self, kind: Kind) -> None:
        """Announce a changed list."""

    def completed(self, elicitation_id: str) -> None:
        """Report that a user is done with a page."""

    def renew_certificates(self) -> None:
        """Read the certificates again."""

    async def broadcast(self, method: str, params: Mapping[str, Any]) -> int:
        """Send a notification to all sessions of the other nodes; returns to how many."""
        ...


# --- Messages to peers outside of their calls: to one session by its id, to all, or to those with a capability.
# Sessions are found by name, or listed by their supervisor. A notification goes onto a session's general stream
# (`g0`) or its channel, and is kept there for a while when it has no reader.


class UnknownSession(ProcessExited):
    """No session has that id, or it has ended."""

    def __str__(self) -> str:
        return f"there is no session {self.who!r}: it has ended, or never existed"


class ConnectedPeers:
    """The peers that are connected to a company."""

    __slots__ = ("_company",)

    def __init__(self, company: Company) -> None:
        self._company = company

    # --- finding sessions

    async def all(self) -> list[SessionInfo]:
        """The initialized sessions, the oldest first."""
        session_infos = await self._company.sessions.within(None).call(SessionSupervisor.session_infos)
        return [info for info in session_infos if info.ready]

    async def able_to(self, capability: str) -> list[SessionInfo]:
        """The sessions whose client has declared a capability: `sampling`, `elicitation`, `elicitation.url`, `roots`."""
        return [info for info in await self.all() if is_declared(info.client_capabilities, capability)]

    def whereis(self, session_id: str) -> Pid | None:
        """The pid of a session."""
        found = find_session(self._company, session_id)
        return None if found is None else found[0].pid

    def ref(self, session_id: str) -> Ref[SessionProcess]:
        """A reference to a session's process. Raises `UnknownSession`."""
        return self._find(session_id)[0]

    def info(self, session_id: str) -> SessionInfo:
        """The public facts of a session. Raises `UnknownSession`."""
        return self._find(session_id)[1]

    async def snapshot(self, session_id: str) -> dict[str, Any]:
        """The state of a session, for inspection."""
        return await self.ref(session_id).call(SessionProcess.snapshot)

    async def subscriptions(self, session_id: str) -> list[str]:
        """The resources that a session has subscribed to."""
        return await self._company.subscriptions.call(Subscriptions.subscriptions, self.ref(session_id).pid)

    async def end(self, session_id: str) -> None:
        """End a session. One that has ended already is no error."""
        found = find_session(self._company, session_id)
        if found is not None:
            try:
                await found[0].call(SessionProcess.end)
            except ProcessExited:
                return

    # --- notifications

    def notify(self, session_id: str, method: str, params: Mapping[str, Any] | None = None) -> bool:
        """Send a notification to one peer. False when its session is gone."""
        found = find_session(self._company, session_id)
        if found is None:
            return False
        fitted = downgrade(method, dict(params or {}), found[1].version)
        return found[0].cast(SessionProcess.notify_peer, encode_notification(method, fitted))

    def progress(
        self, session_id: str, token: str | int, progress: float, total: float | None = None, message: str | None = None
    ) -> bool:
        """Report progress to one peer, for a token that it has sent."""
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        return self.notify(session_id, "notifications/progress", params)

    def log(self, session_id: str, level: str, data: Any, logger: str | None = None) -> bool:
        """Send a log message to one peer, unless its level is higher. A message with an unknown level is not sent."""
        found = find_session(self._company, session_id) if level in LOG_LEVELS else None
        return found is not None and found[0].cast(SessionProcess.notify_peer, log_body(level, data, logger), level)

    async def set_log_level(self, session_id: str, level: str) -> None:
        """Set the lowest level of log messages that one peer gets."""
        await self.ref(session_id).call(SessionProcess.set_level, level)

    async def broadcast(self, method: str, params: Mapping[str, Any] | None = None) -> int:
        """Send a notification to all sessions, on all nodes; returns to how many."""
        others, sent = self._company.other_nodes, dict(params or {})
        if others is None:
            return await self.broadcast_here(method, sent)
        return sum(await asyncio.gather(self.broadcast_here(method, sent), others.broadcast(method, sent)))

    async def broadcast_here(self, method: str, params: Mapping[str, Any]) -> int:
        """Send a notification to all sessions of this node; returns to how many."""
        bodies: dict[str | None, bytes] = {}
        reached = 0
        for info in await self.all():
            body = bodies.get(info.version)
            if body is None:
                fitted = downgrade(method, dict(params), info.version)
                body = bodies[info.version] = encode_notification(method, fitted)
            found = find_session(self._company, info.id)
            reached += found is not None and found[0].cast(SessionProcess.notify_peer, body)
        return reached

    # --- questions

    async def ask(
        self, session_id: str, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Send a request to one peer, and wait for its result.

        Raises `McpError` (its answer, or a capability that it has not declared), `NoStream` when it cannot be reached
        now, `CallTimeout` after `timeout` seconds (the company's `ask_timeout` unless given; `math.inf` waits for
        ever), `ProcessExited` when its session ends, `LocalProtocolError` for params that no client would accept.
        """
        seconds = self._company.settings.ask_timeout if timeout is None else timeout
        ref, info = self._find(session_id)
        prepared = prepare_params(method, to_jsonable(dict(params or {})), info.version or LATEST_DIALECT.version)
        return await ask_session(ref, AskPeer(None, method, prepared, None if seconds == math.inf else seconds))

    async def sample(self, session_id: str, params: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Ask the client's model (`sampling/createMessage`)."""
        return await self.ask(session_id, "sampling/createMessage", params, timeout)

    async def elicit(self, session_id: str, params: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Ask the user (`elicitation/create`)."""
        return await self.ask(session_id, "elicitation/create", params, timeout)

    def elicitation_complete(self, elicitation_id: str) -> bool:
        """Tell the one client that was asked to send its user to this page that the user is done.

        False when no client waits for that page: none was asked to send a user there, the session has ended, the user
        declined, or the client was told already. Where there are other nodes, True as well when they were asked to
        tell it.
        """
        company = self._company
        found = find_eliciting_session(current_node(), company, elicitation_id)
        if found is not None:
            return found.send(ElicitationDone(elicitation_id))
        if company.other_nodes is not None:
            company.other_nodes.completed(elicitation_id)
        return company.other_nodes is not None

    def elicited(self, elicitation_id: str) -> SessionInfo | None:
        """The session that was asked to send its user to a page; None when there is none, or no longer.

        The user who opens the page has to be its principal.
        """
        found = find_eliciting_session(current_node(), self._company, elicitation_id)
        process = None if found is None else current_node().process(found.pid)
        return None if process is None else session_info_of(process)

    async def roots(self, session_id: str, timeout: float | None = None) -> list[dict[str, Any]]:
        """The client's roots."""
        result = await self.ask(session_id, "roots/list", {}, timeout)
        roots: list[dict[str, Any]] = result["roots"]
        return roots

    def _find(self, session_id: str) -> tuple[Ref[SessionProcess], SessionInfo]:
        found = find_session(self._company, session_id)
        if found is None:
            raise UnknownSession(ENDED, session_id)
        return found
