"""The clients' own connections to upstreams: one for each principal and server, or for each session without a principal.

State that an upstream keeps for a connection (a working directory, a login, an open page) so belongs to one principal. The number of
connections is bounded, and idle ones are closed after a while. One principal has at most half of the connections that the others do not
use, so that there is always one left for another principal; a principal at its share makes room by closing its own idle ones. Clients share a
connection only if they have the same capabilities, since those are declared to the upstream.

A call of the stateless era that may be asked something has a connection to a handshake server for itself, so that each question, and each log message,
is known to be its own; of callers without a principal no connection is used again. An upstream of the stateless era says to which call a question
belongs, and has one connection for all callers with the same capabilities.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from greenroom.actors.catalogue import quota_key
from greenroom.actors.client.errors import ClientError, InitTimeout, Unavailable
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.context import peer_of
from greenroom.actors.federation.offering import EMPTY_OFFERING, LISTS, PARTS, changed_lists, fetch_lists
from greenroom.auth.client.auth_option import caller_identity
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import PeerError
from greenroom.protocol.wire_shapes import LOG_LEVELS
from greenroom.supervision import Wakeup, detached_task, start_child, whereis

from .era_bridge import PLAIN, UpstreamTraits, wanted_level
from .forwarding_handler import ForwardingHandler, forwardable_capabilities

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Hashable, Iterable, Mapping

    from greenroom.actors.client.client_handler import ClientHandler
    from greenroom.actors.client.interfaces import Line, Status
    from greenroom.actors.client.notification_readers import NotificationReaders
    from greenroom.actors.context import Context
    from greenroom.actors.federation.federation import Federation
    from greenroom.actors.federation.offering import Offering, Part
    from greenroom.actors.federation.tool_router import ToolRouter
    from greenroom.actors.process_names import ProcessName
    from greenroom.auth.client.auth_option import CallerIdentity
    from greenroom.supervision import ChildSpec, Pid

T = TypeVar("T")
_log: Final = logging.getLogger("greenroom.gateway")

MOST_CONNECTIONS: Final = 128
"""The most connections of one gateway. A single principal has at most 64."""
IDLE_SECONDS: Final = 300.0
_SET_LEVEL_TIMEOUT: Final = 5.0
_MOST_PAGES: Final = 1000
"""How many open URL elicitations of one upstream are known."""


class TooManyConnections(ClientError):
    """All connections are in use, or all of this client's share."""

    reason = "no_room"


class ConnectionKey(NamedTuple):
    """Calls with equal keys share a connection."""

    server: str
    incarnation: int
    principal: Hashable
    session: str
    """The session's id; empty where there is a principal, and for calls without a session."""
    capabilities: bytes
    is_local: bool = False
    """Whether it is for the calls without a session of the one client on standard streams."""
    number: int = 0
    """The number of a connection that one call has for itself, among those that are equal otherwise; 0 for a connection that calls share."""


# --- Which client an upstream's question is for. A question of the stateless era belongs to a known call. One of a handshake server does not say to
# which of our requests it belongs. So a connection belongs to one session, or to one principal with several, and knows which sessions have calls under way on it. A question goes to
# that session if there is exactly one; otherwise the upstream gets an error, since to ask the wrong user is worse. An abandoned call still counts,
# because the upstream may still be working on it.


@dataclass(eq=False, repr=False)
class ClientConnection:
    """A connection of one principal, of one session, or of one call, and the calls under way on it."""

    server: str
    _outside: Callable[[str], Context]
    """Makes the context of a session that has no call under way."""
    supervisor_pid: Pid | None = None
    """The pid of the supervisor that it is a child of."""
    owner: Hashable = None
    """The principal, or session, to whose share it counts."""
    key: ConnectionKey | None = None

    def __post_init__(self) -> None:
        self.line: Line
        """Set right after construction: the handler that the line needs refers to this object."""
        self.generation = 0
        self.level: tuple[int | None, int] = (None, 0)
        """The log level that was set, and the generation of the connection in which."""
        self.call_level: int | None = None
        """The log level of the call that has the connection for itself."""
        self.since = 0.0
        """When it was used last, on the loop's clock."""
        self.own_offering: Offering | None = None
        """The server's lists on this connection, once it has announced that they differ from those on the host's."""
        self.stale: set[Part] = set()
        """The lists that have changed on this connection since they were fetched."""
        self.fetching: asyncio.Task[None] | None = None
        self.sessions: dict[str, None] = {}
        """The sessions that have used it."""
        self.waiting = 0
        """How many calls wait until it is ready."""
        self._numbers = count()
        self._calls: dict[int, Context] = {}
        self._params: dict[int, Mapping[str, Any]] = {}
        self._by_params: dict[int, Context] = {}
        """The contexts of calls by the identity of the params that were sent."""
        self._cancels: dict[int, Callable[[str], object]] = {}
        self.closed = False
        """Whether it was closed: its server was removed, and the grace for calls under way is over."""
        self._idle_event = asyncio.Event()
        self._idle_event.set()
        self._given_up: set[str] = set()
        self._pages: dict[str, None] = {}
        self._page_visited = Wakeup()

    @property
    def traits(self) -> UpstreamTraits:
        """How calls on it are to be bridged."""
        return UpstreamTraits.of(self.line.welcome)

    @property
    def busy(self) -> bool:
        """Whether a call is under way, or waits for the connection."""
        return bool(self._calls) or self.waiting > 0

    @property
    def is_free(self) -> bool:
        """Whether the upstream works on nothing here: a question would belong to the next call alone."""
        return not self._calls and not self._given_up

    @property
    def is_unused(self) -> bool:
        """Whether there is no client that a question could be for: neither a call, nor a session."""
        return self.is_free and not any(self.sessions)

    @property
    def mixes_strangers(self) -> bool:
        """Whether callers that cannot be told from each other share a session here: its server has changed its era during their calls."""
        key = self.key
        return key is not None and not key.number and _is_strangers(key) and not self.traits.is_stateless

    @property
    def is_followed(self) -> bool:
        """Whether a resource is followed here, for a client that is told of its changes."""
        readers: NotificationReaders | None = getattr(self.line, "readers", None)
        return readers is not None and bool(readers.by_uri)

    async def wait_idle(self) -> None:
        """Wait until no call is under way."""
        await self._idle_event.wait()

    def enter(self, ctx: Context) -> int:
        """Register a call. Returns its number."""
        number = next(self._numbers)
        self._calls[number] = ctx
        self._idle_event.clear()
        self.sessions[ctx.session_id] = None
        return number

    def set_cancel(self, number: int, cancel: Callable[[str], object]) -> None:
        """Set the function that cancels the upstream request of this call."""
        self._cancels[number] = cancel

    def set_params(self, number: int, params: Mapping[str, Any]) -> None:
        """Set the params with which this call is sent: the very object, by which a question names its call."""
        self._forget_params(number)
        self._params[number] = params  # kept: only so long does its identity name the call
        self._by_params[id(params)] = self._calls[number]

    def context_of(self, params: Mapping[str, Any]) -> Context | None:
        """The context of the call that was sent with these params; None for one that has ended."""
        return self._by_params.get(id(params))

    def close(self) -> None:
        """Cancel all requests under way, so that the upstream is notified and the connection ends without waiting for them."""
        self.closed = True
        for cancel in tuple(self._cancels.values()):
            cancel("the server was removed")

    def leave(self, number: int, *, answered: bool) -> None:
        """A call has ended. Without an answer, the upstream may still be working on it."""
        ctx = self._calls.pop(number)
        self._cancels.pop(number, None)
        self._forget_params(number)
        if not self._calls:
            self._idle_event.set()
        if not answered:
            self._given_up.add(ctx.session_id)

    @property
    def may_say_more(self) -> bool:
        """Whether something may come of a call that was given up: in a session a question, otherwise only messages, which must not reach another stranger."""
        key = self.key
        is_heard = self.call_level is not None and key is not None and _is_strangers(key)
        return is_heard or not self.traits.is_stateless

    def _forget_params(self, number: int) -> None:
        if (params := self._params.pop(number, None)) is not None:
            del self._by_params[id(params)]

    def forget(self, session: str) -> None:
        """Forget a session that has ended. Its abandoned calls still count as running."""
        self.sessions.pop(session, None)

    def remember_pages(self, ids: Iterable[Any]) -> None:
        """Remember the ids of URL elicitations that this upstream has made: it may report only these as completed."""
        for id in ids:
            if isinstance(id, str):
                self._pages[id] = None
        while len(self._pages) > _MOST_PAGES:
            del self._pages[next(iter(self._pages))]

    def take_page(self, id: object) -> str | None:
        """Remove and return the id, if it is of a URL elicitation of this upstream."""
        if not isinstance(id, str) or self._pages.pop(id, self) is not None:
            return None
        self._page_visited.wake()
        return id

    async def wait_visited(self, ids: Collection[str], seconds: float) -> None:
        """Wait until the upstream has reported these URL elicitations as completed, or for so many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._pages.keys().isdisjoint(ids):
                    await self._page_visited.wait()

    def on_new_session(self) -> None:
        """The upstream has a new session, in which no abandoned call runs."""
        self._given_up.clear()

    def context_for_question(self) -> Context | None:
        """The context of the one session that a question can be for; None if there is none, or more than one."""
        if self.mixes_strangers:
            return None
        working = {ctx.session_id for ctx in self._calls.values()} | self._given_up
        candidates = working or set(self.sessions)
        if len(candidates) != 1:
            return None
        (session,) = candidates
        calls = tuple(self._calls.values())
        if not session:  # requests that stand alone: there is nothing to ask but the one call
            return calls[0] if len(calls) == 1 and not self._given_up else None
        # With several calls of one session, use none of their streams: the chosen call could end before the question is answered.
        return calls[0] if len(calls) == 1 and calls[0].session_id == session else self._outside(session)


@dataclass(eq=False, repr=False)
class ClientConnections:
    """All client connections of one gateway."""

    _host: GatewayHost
    _outside: Callable[[str], Context]
    """Makes the context of a session that has no call under way."""
    _completed: Callable[[str], object]
    """Called with the id of a URL elicitation that is completed."""
    _announce: Callable[[ClientConnection, str], object]
    """Tells the clients of a connection that a list has changed on it, by the method of the notification."""
    _most: int = MOST_CONNECTIONS
    _idle: float = IDLE_SECONDS

    def __post_init__(self) -> None:
        self._connections: dict[ConnectionKey, ClientConnection] = {}
        self._opening: dict[ConnectionKey, asyncio.Future[ClientConnection]] = {}
        self._arriving: dict[ConnectionKey, ClientConnection] = {}
        self._departed: dict[str, int] = {}
        """The last incarnation of each server that was removed or replaced: connections up to that one are not used any more."""
        self._owners: dict[ConnectionKey, Hashable] = {}
        """The owners of the connections that are being opened."""
        self._levels: dict[str, str] = {}
        self._reserved: set[ConnectionKey] = set()
        """The keys of connections that one call has for itself."""
        self._closing: set[asyncio.Future[Any]] = set()
        self.supervisor: ProcessName | None = None
        """The name of the supervisor of the connections, once there is one."""
        self.supervisor_started = Wakeup()
        """Woken whenever that supervisor has started."""

    def __len__(self) -> int:
        return len(self._connections)

    async def connection_for(self, server: str, ctx: Context) -> ClientConnection:
        """The ready connection for the client of this call. Raises `ClientError`, at once if the server cannot be reached now.

        The caller gives it back with `release`, after its call.
        """
        # Before a connection is opened or closed: a refused caller must not take one from others.
        caller = caller_identity(ctx.auth, ctx.principal) if self._host.per_caller(server) else None
        capabilities = forwardable_capabilities(ctx.client_capabilities)
        key = self._key(server, ctx, capabilities)
        level = None if ctx.session_id else wanted_level(ctx.meta)
        # What a handshake server asks or logs can only be told to belong to a call if there is no other one on its connection.
        if not ctx.session_id and (level is not None or (capabilities and not self.traits(server).is_stateless)):
            key = self._free_key(key)
        try:
            connection = await self._connection(key, ctx, capabilities, caller, level)
            if not key.number and capabilities and _is_strangers(key) and not connection.traits.is_stateless:
                # The server has changed its era, and callers may not share the session that it has now. Calls under way may end.
                if self._connections.get(key) is connection:
                    _ = self._close(self._connections.pop(key), self._idle)
                key = self._free_key(key)
                connection = await self._connection(key, ctx, capabilities, caller, level)
        except BaseException:
            self._reserved.discard(key)
            raise
        return connection

    async def _connection(
        self,
        key: ConnectionKey,
        ctx: Context,
        capabilities: dict[str, Any],
        caller: CallerIdentity | None,
        level: str | None,
    ) -> ClientConnection:
        connection = self._connections.pop(key, None)
        if connection is not None and caller is not None and connection.line.status.phase is Phase.PARKED:
            _ = self._close(connection)  # the caller's login was refused; the caller may have another one by now
            connection = None
        if (
            connection is None
            or connection.line.status.phase in (Phase.CLOSED, Phase.CLOSING)
            or connection.supervisor_pid != self._supervisor_pid()
        ):
            opening = self._opening.get(key)
            if opening is None:
                owner = quota_key(peer_of(ctx), ctx.session_id)
                self._make_room(owner)
                self._owners[key] = owner
                opening = self._opening[key] = detached_task(self._open(key, owner, capabilities, caller))
                opening.add_done_callback(lambda _: self._opened(key))
            connection = await asyncio.shield(opening)
            self._connections.pop(key, None)
        self._connections[key] = connection  # moved to the end: the order of the dict is that of the last use
        connection.since = asyncio.get_running_loop().time()
        connection.sessions[ctx.session_id] = None
        if key.number:
            connection.call_level = None if level is None else LOG_LEVELS.index(level)
        connection.waiting += 1
        try:
            await self._usable(connection)
        finally:
            connection.waiting -= 1
        return connection

    def release(self, connection: ClientConnection) -> None:
        """The call for which the connection was given has ended. One that may still ask a stranger's questions is closed."""
        key = connection.key
        if key is None or not key.number:
            return
        self._reserved.discard(key)
        if _is_strangers(key) and not connection.traits.is_stateless:
            self.dismiss(connection)

    def traits(self, server: str) -> UpstreamTraits:
        """How calls of this server are to be bridged, by what it said on the host's own connection."""
        line = self._host.federation.line(server)
        return PLAIN if line is None else UpstreamTraits.of(line.welcome)

    def _key(self, server: str, ctx: Context, capabilities: dict[str, Any]) -> ConnectionKey:
        principal = ctx.principal
        session = ctx.session_id if principal is None else ""
        encoded = msgspec.json.encode(capabilities, order="deterministic")
        is_local = principal is None and not session and peer_of(ctx).transport == "stdio"
        return ConnectionKey(server, self._host.incarnation(server), principal, session, encoded, is_local)

    def _free_key(self, key: ConnectionKey) -> ConnectionKey:
        """The key of a connection for one call of the stateless era, which may be asked for as long as its user thinks. It is reserved."""

        def is_free(key: ConnectionKey) -> bool:
            held = self._connections.get(key)
            return key not in self._reserved and key not in self._opening and (held is None or held.is_free)

        free = next(filter(is_free, (key._replace(number=number) for number in count(1))))
        self._reserved.add(free)
        return free

    async def differing(self, ctx: Context) -> dict[str, ClientConnection]:
        """This client's connections on which the servers' lists differ from the host's, with their lists fetched."""
        varied = [
            connection
            for connection in self._connections.values()
            if connection.own_offering is not None or connection.stale
        ]
        if not varied:
            return {}
        capabilities = forwardable_capabilities(ctx.client_capabilities)
        found: dict[str, ClientConnection] = {}
        for server in {connection.line.name for connection in varied} & set(self._host.federation.ids()):
            key = self._key(server, ctx, capabilities)
            # Where calls have connections for themselves, those one after another have the first of them. A stranger's is its own.
            for each in (key,) if _is_strangers(key) else (key, key._replace(number=1)):
                connection = self._connections.get(each)
                if connection is not None and (connection.own_offering is not None or connection.stale):
                    found[server] = connection
        await asyncio.gather(
            *(self._listed(server, connection) for server, connection in found.items() if connection.stale)
        )
        return {server: connection for server, connection in found.items() if connection.own_offering is not None}

    async def _listed(self, server: str, connection: ClientConnection) -> None:
        """Fetch the changed lists, once for all concurrent callers."""
        if connection.fetching is None or connection.fetching.done():
            connection.fetching = detached_task(self._fetch(server, connection))
        await asyncio.shield(connection.fetching)

    async def _fetch(self, server: str, connection: ClientConnection) -> None:
        parts, connection.stale = connection.stale, set()
        most = self._host.most_pages(server)
        try:
            lists = await fetch_lists(connection.line, parts, most)
        except GreenroomError as error:
            connection.stale |= parts  # fetched again with the next list request
            _log.info("the lists of %s for one client could not be fetched: %s", server, error)
            return
        before = connection.own_offering or self._host.federation.known(server) or EMPTY_OFFERING
        connection.own_offering = before.with_lists({part: each.entries for part, each in lists.items()})

    def _lists_changed(self, connection: ClientConnection, method: str) -> None:
        """Pass on that lists have changed, unless the clients were told before and have not listed since."""
        parts = changed_lists(method)
        if not connection.stale.issuperset(parts):
            connection.stale.update(parts)
            self._announce(connection, method)

    def _opened(self, key: ConnectionKey) -> None:
        self._opening.pop(key, None)
        self._arriving.pop(key, None)
        self._owners.pop(key, None)

    def _supervisor_pid(self) -> Pid | None:
        """The present pid of the supervisor. A connection with another one has died with its supervisor."""
        return None if self.supervisor is None else whereis(self.supervisor)

    async def _wait_for_supervisor(self, server: str) -> Pid:
        """The supervisor. After a restart the host serves calls a moment before the supervisor runs: such a call waits, within the patience."""
        pid = self._supervisor_pid()
        if pid is None and self.supervisor is not None:
            await self.supervisor_started.wait(self._host.router.patience)
            pid = self._supervisor_pid()
        if pid is None:
            raise Unavailable(server)
        return pid

    async def _open(
        self, key: ConnectionKey, owner: Hashable, capabilities: dict[str, Any], caller: CallerIdentity | None
    ) -> ClientConnection:
        home = await self._wait_for_supervisor(key.server)
        connection = ClientConnection(key.server, self._outside, home, owner, key)
        handler = ForwardingHandler(
            connection,
            capabilities,
            self._completed,
            partial(self._host.router.may_ask_users, key.server),
            partial(self._lists_changed, connection),
        )
        principal = key.principal, key.session, owner
        spec, connection.line = self._host.connection(key.server, handler, caller, principal)
        self._arriving[key] = connection
        await start_child(home, spec.but(restart="transient"))
        try:
            await self._usable(connection)
        except BaseException:
            _ = self._close(connection)
            raise
        if self._departed.get(key.server, 0) >= key.incarnation:
            _ = self._close(connection)
            raise Unavailable(key.server)
        # Here, and not in the call that waits for it: that call may have been cancelled.
        connection.since = asyncio.get_running_loop().time()
        self._connections[key] = connection
        self._owners.pop(
            key, None
        )  # without an await in between: counted in both, it would take two of the owner's share
        return connection

    async def _usable(self, connection: ClientConnection) -> None:
        """Wait for the connection, within the host's patience. Raises `Unavailable`, at once after a failed attempt."""
        line = connection.line
        if line.status.phase is not Phase.READY:
            patience = self._host.router.patience
            try:
                async with asyncio.timeout(patience):
                    await _ready(line)
            except TimeoutError:
                slow = InitTimeout(f"it is still {line.status.phase.value} after {patience:g} s")
                raise Unavailable(line.name, slow) from None
        if line.status.generation != connection.generation:
            connection.generation = line.status.generation
            connection.on_new_session()
            connection.stale.clear()
            if connection.own_offering is not None:  # a new session of the server, which offers the common lists again
                connection.own_offering = None
                for part in PARTS:
                    self._lists_changed(connection, LISTS[part].changed)
                connection.stale.clear()
        if self._levels or connection.call_level is not None:
            await self._set_lowest_level(connection)

    def _make_room(self, owner: Hashable) -> None:
        """Make room for one more connection of this owner, by closing an idle one if need be. Raises `TooManyConnections`."""
        own = list(self._owners.values()).count(owner)
        others = len(self._owners) - own
        idle: dict[Hashable, list[ConnectionKey]] = {}
        for key, connection in self._connections.items():
            own += connection.owner == owner
            if not connection.busy and key not in self._reserved:
                idle.setdefault(connection.owner, []).append(key)
            else:
                others += connection.owner != owner
        share = max(1, (self._most - others) // 2)
        if own >= share:
            if owner not in idle:
                raise TooManyConnections(
                    f"{own} connections to upstreams are in use here for one client, which is its share of {self._most}"
                )
            self._dismiss(idle[owner][0])
        elif len(self._connections) + len(self._owners) >= self._most:
            if not idle:
                raise TooManyConnections(f"{self._most} connections to upstreams are in use, and there may be no more")
            self._dismiss(max(idle.values(), key=len)[0])  # of the owner with the most idle ones

    def _dismiss(self, key: ConnectionKey) -> None:
        _ = self._close(self._connections.pop(key))

    def dismiss(self, wanted: ClientConnection) -> None:
        """Close one connection: its caller's login was revoked, and its open streams would continue."""
        for key in [key for key, connection in self._connections.items() if connection is wanted]:
            self._dismiss(key)

    def sweep(self, now: float, lives: Callable[[str], bool]) -> None:
        """Close connections that were idle for long, and those of sessions that have ended."""
        for session in [one for one in self._levels if not lives(one)]:
            del self._levels[session]
        for key, connection in tuple(self._connections.items()):
            for session in [one for one in connection.sessions if not lives(one)]:
                connection.forget(session)
            orphan = bool(key.session) and not lives(key.session)
            if connection.is_followed and not orphan:
                connection.since = now
            if not connection.busy and key not in self._reserved and (orphan or now - connection.since >= self._idle):
                del self._connections[key]
                _ = self._close(connection)

    async def depart(self, server: str, incarnation: int, grace: float) -> None:
        """The server was removed or replaced: calls under way have `grace` seconds, then fail with `ClientClosed`. Returns when the connections are closed."""
        self._departed[server] = incarnation
        for key, connection in tuple(self._arriving.items()):
            if key.server == server and key.incarnation <= incarnation:
                _ = self._close(connection)  # calls that wait for it fail now: the grace is for calls that were sent
        leaving = [key for key in self._connections if key.server == server and key.incarnation <= incarnation]
        closing = [self._close(self._connections.pop(key), grace) for key in leaving]
        # Shielded: if the removal is cancelled, the connections are closed all the same.
        await asyncio.gather(*map(asyncio.shield, closing))

    async def set_level(self, session: str, level: str) -> None:
        """Set a session's log level at its upstreams. Of several sessions on one connection, the most detailed level is set."""
        self._levels[session] = level
        for connection in tuple(self._connections.values()):
            if session in connection.sessions:
                await self._set_lowest_level(connection)

    async def _set_lowest_level(self, connection: ClientConnection) -> None:
        """Set the most detailed level of the connection's sessions, if any has set one and the upstream can log. In the stateless era each request says it."""
        wanted = [
            LOG_LEVELS.index(level) for one in connection.sessions if (level := self._levels.get(one)) is not None
        ]
        if connection.call_level is not None:
            wanted.append(connection.call_level)
        welcome = connection.line.welcome
        key = (min(wanted, default=None), connection.generation)
        if not wanted or key == connection.level or welcome is None or "logging" not in welcome.capabilities:
            return
        if connection.traits.is_stateless:
            return
        connection.level = key
        with contextlib.suppress(ClientError, PeerError):
            await connection.line.request(
                "logging/setLevel", {"level": LOG_LEVELS[min(wanted)]}, timeout=_SET_LEVEL_TIMEOUT
            )

    def level_of(self, ctx: Context) -> str | None:
        """The lowest level of log messages that the client of this call wants, as far as it has said so."""
        return self._levels.get(ctx.session_id) if ctx.session_id else wanted_level(ctx.meta)

    def lines_of(self, session: str) -> list[Line]:
        """The lines of the connections that a session has used."""
        return [connection.line for connection in self._connections.values() if session in connection.sessions]

    def _close(self, connection: ClientConnection, grace: float = 0.0) -> asyncio.Future[None]:
        closing = detached_task(_closed(connection, grace))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing


def _is_strangers(key: ConnectionKey) -> bool:
    """Whether the connection is for calls whose callers cannot be told from each other."""
    return key.principal is None and not key.session and not key.is_local


async def _closed(connection: ClientConnection, grace: float) -> None:
    if grace > 0 and connection.busy:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await connection.wait_idle()
    connection.close()
    await connection.line.close()


async def _ready(line: Line) -> None:
    async with aclosing(_statuses(line)) as statuses:
        async for status in statuses:
            if status.phase is Phase.READY:
                return
            if status.phase not in (Phase.CONNECTING, Phase.INITIALIZING):
                raise Unavailable(line.name, status.cause, status.retry_in)


async def _statuses(line: Line) -> AsyncGenerator[Status]:
    async for status in line.watch():
        yield status


# --- The interface that a gateway needs of a host: its tools, its federation, more connections to each server, and to be kept open.


class GatewayHost(Protocol):
    """A host of many servers."""

    @property
    def router(self) -> ToolRouter:
        """The router for the tools of all servers."""
        ...

    @property
    def federation(self) -> Federation:
        """The servers, each with the host's own connection."""
        ...

    def connection(
        self, id: str, handler: ClientHandler, caller: CallerIdentity | None = None, principal: Hashable = None
    ) -> tuple[ChildSpec[Any], Line]:
        """One more connection to a server for this principal: its child spec, and its line. Raises `UnknownServer`, `CallerNotSignedIn`."""
        ...

    def per_caller(self, id: str) -> bool:
        """Whether each caller has its own login at this server: then the host's own connection serves no caller."""
        ...

    def most_pages(self, id: str) -> int:
        """The most pages of a list of this server. Raises `UnknownServer`."""
        ...

    def incarnation(self, id: str) -> int:
        """A number that changes when the server with this id is replaced."""
        ...

    def on_departure(self, depart: Callable[[str, int, float], Awaitable[None]]) -> None:
        """Call `depart` with the id, the incarnation and the grace in seconds of each server that is removed or replaced."""

    async def open(self) -> None:
        """Keep it running, until `close`."""

    async def close(self) -> None:
        """Release it."""
