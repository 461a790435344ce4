"""A company: everything that serves peers, as one supervised tree with names of its own.

::

    company (one_for_one)
    ├─ …                what the server has opened for as long as it runs, if anything
    ├─ registry         who writes the catalogue
    ├─ subscriptions    who wants to hear of which change
    ├─ workers          a process for each piece of user code
    ├─ tasks            a process for each task that has not ended, and who looks after their records
    ├─ pools            of processes, for handlers that are to run in one
    ├─ sessions         a process for each peer
    └─ listeners        sockets and pipes; the first to stop

`Company` itself is no process. It holds what outlives each of them (the shelf with the catalogue, the board with the subscriptions) and
knows them by name, so whoever is restarted is found again. It is the transports' `Door`, and the workers' `House`. Any number of companies
may live in one node: their names differ.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, overload

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.messages import encode_error
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
)
from greenroom.transports.access_log import log_refusal
from greenroom.transports.seam import Answer, Entered

from .agreement import check_hello
from .bulkheads import Bulkheads
from .card import Card
from .catalogue import Shelf
from .handle import Handle
from .hooks import Hooks
from .names import Key, Name, new_id
from .outlets import SingleFeed, ToAnswer, ToChannel, ToOneStream, ToStreams
from .peers import Peers
from .readiness import Readiness
from .registrar import registrar_child
from .registry import Registry
from .session import REFUSED, Session
from .sessions import Sessions, TooManySessions, find_session, open_session
from .settings import Settings
from .subscriptions import Board, subscriptions_child, tell_changed, tell_updated
from .task_keeper import tasks_child
from .task_store import MemoryTaskStore
from .tasks import Tasks
from .tree import Tree, named
from .visits import Expects
from .worker import work

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from greenroom.protocol.messages import Request
    from greenroom.supervision import ChildSpec
    from greenroom.transports.seam import Peer, Reply

    from .catalogue import Kind
    from .jobs import Around, Job, Own
    from .others import NewId, Others
    from .outlets import Outlet
    from .pools.pools import Pools
    from .pools.premises import Premises
    from .readiness import WaitFor
    from .registrar import Registrar
    from .subscriptions import Subscriptions
    from .task_store import TaskStore

_INTENSITY: Final = 5
_PERIOD: Final = 10.0


class Company:
    """One company, before and while it runs."""

    def __init__(  # noqa: PLR0913 - whatever may be brought along, and all of it need not be
        self,
        settings: Settings | None = None,
        *,
        shelf: Shelf | None = None,
        hooks: Hooks | None = None,
        listeners: Sequence[ChildSpec[Any]] = (),
        wait_for: WaitFor = None,
        task_store: TaskStore | None = None,
        premises: Premises | None = None,
        work: Callable[[Job], Coroutine[Any, Any, None]] = work,
    ) -> None:
        """`listeners` are the children that let peers in; more can be started under `listeners` later.

        Who registers something waits until `wait_for` has come. Tasks are in memory unless there is a `task_store`. `premises` is where
        handlers run that are to have processes of their own, and `work` what a worker does with a job.
        """
        self.hooks = Hooks() if hooks is None else hooks
        self.shelf = Shelf() if shelf is None else shelf
        self.work = work
        self.board = Board()
        self._pools: Pools | None = None
        self.settings: Settings
        self.set_up(Settings() if settings is None else settings)
        self.key = Key.new(self.settings.name)
        self.workers: Ref[TaskSupervisor] = Ref(self.name("workers"), None)
        self.tasks = Tasks(self, MemoryTaskStore() if task_store is None else task_store)
        """The tasks, and who has them."""
        self.sessions: Ref[Sessions] = Ref(self.name("sessions"), None)
        self.subscriptions: Ref[Subscriptions] = Ref(self.name("subscriptions"))
        registrar: Ref[Registrar] = Ref(self.name("registry"))
        self.registry = Registry(self, registrar)
        self.peers = Peers(self)
        """Who is there, and how to reach them when no call of theirs is under way."""
        self.new_id: NewId = new_id
        """What sessions and tasks are called: something that nobody can guess, and that tells where they are if there are several nodes."""
        self.others: Others | None = None
        """The nodes that this company is on besides this one."""
        self._readiness = Readiness(wait_for)
        self.listeners: Ref[Supervisor] = Ref(self.name("listeners"), None)
        self._listeners = tuple(listeners)
        self._premises = premises

    def set_up(self, settings: Settings) -> None:
        """Take these settings instead, before it runs. Its processes keep the name that it was made with."""
        self.settings = settings
        self.bulkheads = Bulkheads(settings.tool_threads, settings.principal_threads)
        self.threads = Threads(settings.tool_threads)
        """Where plain hooks run."""
        self._pools = None

    @property
    def pools(self) -> Pools:
        """Who runs handlers in processes of their own."""
        if self._pools is None:
            from .pools.pools import Pools  # noqa: PLC0415 - few companies have any, and it is much to load

            self._pools = Pools(self.key, self.settings, self.shelf, self._premises)
        return self._pools

    @property
    def own(self) -> Mapping[str, Own]:
        """By method: what the server answers by code of its own, instead of from the catalogue."""
        return self.hooks.answers

    @property
    def around(self) -> Around | None:
        """What stands around whatever answers."""
        return self.hooks.around

    def name(self, role: str) -> Name:
        """What the process with that role is registered as."""
        return Name(self.key, role)

    def expect(self, session_id: str, key: int | None, ids: Sequence[str]) -> None:
        """A peer is about to hear of these pages, on behalf of a call, and wants to know when its user has done with them."""
        found = find_session(self, session_id)
        if found is not None:
            found[0].send(Expects(key, ids))

    def child_spec(
        self, listeners: Sequence[ChildSpec[Any]] = (), *, first: Sequence[ChildSpec[Any]] = ()
    ) -> ChildSpec[Ref[Tree]]:
        """The whole company as a child, for any supervisor; `listeners` let peers in besides those that it was made with.

        `first` start before everybody else here, and stop last.
        """
        settings = self.settings
        doors = [named(each, self.name(f"listener {each.id}")) for each in (*self._listeners, *listeners)]
        children: list[ChildSpec[Any]] = [
            *first,
            registrar_child(self.name("registry"), self.shelf, self._readiness, self.subscriptions, self.board),
            subscriptions_child(self.name("subscriptions"), self.board),
            child(TaskSupervisor).but(id="workers", name=self.name("workers")),
            tasks_child(self),
            *self._pool_children(),
            child(Sessions, max_children=settings.max_sessions, of_one=settings.max_sessions_per_principal).but(
                id="sessions", name=self.name("sessions")
            ),
            child(Tree, doors, intensity=_INTENSITY, period=_PERIOD).but(id="listeners", name=self.name("listeners")),
        ]
        return child(Tree, children, intensity=_INTENSITY, period=_PERIOD).but(id=self.key, name=self.name("company"))

    # --- what all are to hear

    def updated(self, uri: str, extra: Mapping[str, Any]) -> None:
        """A resource has changed: whoever subscribed to it is told, on whichever node they are."""
        tell_updated(self.subscriptions, self.board, uri, extra)
        if self.others is not None:
            self.others.updated(uri, extra)

    def list_changed(self, kind: Kind) -> None:
        """What is offered has changed, everywhere."""
        tell_changed(self.subscriptions, self.board, kind)
        if self.others is not None:
            self.others.list_changed(kind)

    def completed(self, elicitation_id: str) -> bool:
        """A user has done with the page that they were sent to, whichever node has sent them there."""
        return self.peers.elicitation_complete(elicitation_id)

    def _pool_children(self) -> list[ChildSpec[Any]]:
        children: list[ChildSpec[Any]] = [
            child(DynamicSupervisor, intensity=_INTENSITY, period=_PERIOD).but(id="pools", name=self.name("pools"))
        ]
        if self.shelf.catalogue.isolated:
            children.append(self.pools.opening_spec())
        return children

    # --- the door

    async def enter(self, peer: Peer, hello: Request) -> Entered:
        """Begin a session with an `initialize` request. Nothing is kept of one that is refused."""
        try:
            check_hello(hello.params)
        except McpError as error:
            log_refusal(error.message, status=400, peer=peer, method=hello.method)
            return Entered(None, Answer(encode_error(hello.id, error), 400))
        try:
            session = await self._open(peer, ToStreams(self.settings))
        except McpError as error:
            return Entered(None, Answer(encode_error(hello.id, error), 503))
        try:
            answer = await session.request(hello)
        except ProcessExited:
            ended = McpError(ErrorCode.INTERNAL_ERROR, "The session ended before it was initialized")
            return Entered(None, Answer(encode_error(hello.id, ended), 500))
        except BaseException:
            session.ref.cast(Session.close, REFUSED)  # whoever wanted it has gone away, and nobody else knows of it
            raise
        assert isinstance(answer, Answer)
        if session.version is None:
            session.ref.cast(Session.close, REFUSED)
            return Entered(None, answer if answer.status != 200 else answer._replace(status=500))  # noqa: PLR2004
        return Entered(session, answer)

    async def connect(self, peer: Peer) -> Handle:
        """Begin a session with a channel, before anything was said."""
        return await self._open(peer, ToChannel(self.settings))

    def find(self, session_id: str, peer: Peer) -> Handle | None:
        """The session of that id, if it is this peer's: a foreign one looks unknown."""
        found = find_session(self, session_id)
        if found is None or found[1].peer.principal != peer.principal:
            return None
        return Handle(*found, peer)

    @overload
    async def once(self, peer: Peer, request: Request, version: str | None = None, quiet: None = None) -> Answer: ...

    @overload
    async def once(
        self, peer: Peer, request: Request, version: str | None = None, quiet: float | None = None
    ) -> Reply: ...

    async def once(self, peer: Peer, request: Request, version: str | None = None, quiet: float | None = None) -> Reply:
        """Answer one request without any session. `version` is the revision that the request says it speaks.

        With `quiet`, what is said before the answer comes on a feed, which is also made after so many seconds without a word.
        """
        outlet = ToAnswer() if quiet is None else ToOneStream(self.settings)
        try:
            session = await self._open(peer, outlet, gated=False, version=version)
        except McpError as error:
            return Answer(encode_error(request.id, error), 503)
        lent = False
        try:
            reply = await session.request(request, quiet)
            if reply is not None and not isinstance(reply, Answer):
                lent = True
                return SingleFeed(reply, lambda: session.ref.cast(Session.close, REFUSED))
        except ProcessExited:
            return Answer(encode_error(request.id, McpError(ErrorCode.INTERNAL_ERROR, "Internal server error")), 500)
        finally:
            if not lent:
                session.ref.cast(Session.close, REFUSED)
        return reply

    async def _open(self, peer: Peer, outlet: Outlet, *, gated: bool = True, version: str | None = None) -> Handle:
        id = self.new_id("mcp", channel=outlet.channel is not None)
        card = Card(id, peer, outlet.channel, asyncio.get_running_loop().time())
        card.version = version
        card.lasting = gated
        try:
            ref = await open_session(self, card, outlet, gated=gated)
        except (ActorError, TooManySessions) as error:
            raise self._no_session(peer, error) from error
        card.claimed = True
        return Handle(ref, card)

    def _no_session(self, peer: Peer, error: ActorError | TooManySessions) -> McpError:
        """Why there is no session for a peer, for the log and for the peer."""
        match error:
            case MaxChildren():
                message, setting = "Maximum number of sessions reached", "max_sessions"
            case TooManySessions(limit=limit):
                message = f"Maximum number of sessions reached: one caller may have {limit}; end some first"
                setting = "max_sessions_per_principal"
            case _:
                message, setting = "No session can be started just now: try again", ""
        log_refusal(message, status=503, peer=peer, setting=setting)
        return McpError(ErrorCode.INTERNAL_ERROR, message)
