"""The clients' own connections to upstreams: one for each principal, or for each client that has not said who it is.

What an upstream remembers of a connection (a working directory, a login, a page that is open) is remembered of one principal, and nobody
else comes near it. There are so many such connections and no more, and one that nothing has used for a while is closed. One principal has at most half of
those that the others do not use, so that there is always one for another principal; whose share is full makes room by closing its own idle ones. Which clients share one also follows from what they can do, since that is what the upstream is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from greenroom.actors.callers import share_of
from greenroom.actors.client.errors import ClientError, InitTimeout, Unavailable
from greenroom.actors.client.seam import Phase
from greenroom.actors.context import peer_of
from greenroom.actors.federation.curator import changed_method, every_entry, parts_changed
from greenroom.actors.federation.offering import NOTHING, PARTS
from greenroom.auth.client.per_caller import identity_of
from greenroom.errors import GreenroomError
from greenroom.protocol.errors import PeerError
from greenroom.protocol.shapes import LEVELS
from greenroom.supervision import start_child, whereis
from greenroom.supervision.kernel.current import current

from .desk import Desk, DeskHandler, abilities_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable

    from greenroom.actors.client.seam import Line, Status
    from greenroom.actors.context import Context
    from greenroom.actors.federation.offering import Offering, Part
    from greenroom.actors.names import Name
    from greenroom.auth.client.per_caller import CallerIdentity
    from greenroom.supervision import Pid

    from .seam import Hosted

T = TypeVar("T")
_log: Final = logging.getLogger("greenroom.gateway")

MOST: Final = 128
"""Of which one principal has at most 64."""
IDLE: Final = 300.0
_ATTUNING: Final = 5.0


class NoRoom(ClientError):
    """All connections that there may be are in use."""

    reason = "no_room"


class Key(NamedTuple):
    """Who shares a connection."""

    server: str
    turn: int
    principal: Hashable
    session: str
    """Only where there is no principal."""
    abilities: bytes


class Lodger:
    """A connection that belongs to somebody."""

    __slots__ = ("desk", "fetching", "generation", "home", "level", "line", "own", "owner", "since", "stale")

    def __init__(self, line: Line, desk: Desk, home: Pid, owner: Hashable) -> None:
        """`home` is whose child it is, `owner` whose share it takes; `since` is when it was used last."""
        self.home = home
        self.owner = owner
        self.line = line
        self.desk = desk
        self.generation = 0
        self.level: tuple[int | None, int] = (None, 0)
        """What it was told to log, and in which of its lives."""
        self.since = 0.0
        self.own: Offering | None = None
        """What the server offers on this connection, once it has said that this is not what it offers to the host."""
        self.stale: set[Part] = set()
        """The lists that have changed on this connection since they were fetched."""
        self.fetching: asyncio.Task[None] | None = None

    def changed(self, method: str) -> bool:
        """The server says that lists have changed. False where the clients have heard that already, and not asked since."""
        parts = parts_changed(method)
        fresh = not self.stale.issuperset(parts)
        self.stale.update(parts)
        return fresh


class Lodgings:
    """All of them, of one gateway."""

    def __init__(
        self,
        host: Hosted,
        outside: Callable[[str], Context],
        completed: Callable[[str], object],
        notify: Callable[[str, str, dict[str, Any]], bool],
        most: int = MOST,
        idle: float = IDLE,
    ) -> None:
        """`outside` makes the context of a session that has no call under way; `completed` is told of visits that are over; `notify` tells a session."""
        self._notify = notify
        self._host = host
        self._outside = outside
        self._completed = completed
        self._most = most
        self._idle = idle
        self._lodgers: dict[Key, Lodger] = {}
        self._opening: dict[Key, asyncio.Future[Lodger]] = {}
        self._arriving: dict[Key, Lodger] = {}
        self._departed: dict[str, int] = {}
        """The last turn of each server that was removed or replaced: no connection to it is used from then on."""
        self._owners: dict[Key, Hashable] = {}
        """Whose share those take that are being opened."""
        self._levels: dict[str, str] = {}
        self._closing: set[asyncio.Future[Any]] = set()
        self.supervisor: Name | None = None
        """Whose children they are, once there is one: what that is called."""

    def __len__(self) -> int:
        return len(self._lodgers)

    async def of(self, server: str, ctx: Context) -> Lodger:
        """The connection for whoever's call this is, ready. Raises `ClientError`, at once if the server cannot be reached now."""
        # Before anything is opened or dismissed: a refused caller takes no place.
        caller = identity_of(ctx.auth, ctx.principal) if self._host.per_caller(server) else None
        abilities = abilities_of(ctx.client_capabilities)
        key = self._key(server, ctx, abilities)
        lodger = self._lodgers.pop(key, None)
        if lodger is not None and caller is not None and lodger.line.status.phase is Phase.PARKED:
            _ = self._close(lodger)  # the caller's login was no good; it may be another one by now
            lodger = None
        if lodger is None or lodger.line.status.phase in (Phase.CLOSED, Phase.CLOSING) or lodger.home != self._home():
            opening = self._opening.get(key)
            if opening is None:
                owner = share_of(peer_of(ctx), ctx.session_id)
                self._make_room(owner)
                self._owners[key] = owner
                opening = self._opening[key] = _apart(self._open(key, owner, abilities, caller))
                opening.add_done_callback(lambda _: self._opened(key))
            lodger = await asyncio.shield(opening)
            self._lodgers.pop(key, None)
        self._lodgers[key] = lodger  # the one that was used last is the last
        lodger.since = asyncio.get_running_loop().time()
        lodger.desk.sessions[ctx.session_id] = None
        await self._usable(lodger)
        return lodger

    def _key(self, server: str, ctx: Context, abilities: dict[str, Any]) -> Key:
        principal = ctx.principal
        session = ctx.session_id if principal is None else ""
        encoded = msgspec.json.encode(abilities, order="deterministic")
        return Key(server, self._host.turn(server), principal, session, encoded)

    async def varied(self, ctx: Context) -> dict[str, Lodger]:
        """This client's connections on which servers offer something else than to the host, with their lists as they are now."""
        varied = [lodger for lodger in self._lodgers.values() if lodger.own is not None or lodger.stale]
        if not varied:
            return {}
        abilities = abilities_of(ctx.client_capabilities)
        found: dict[str, Lodger] = {}
        for server in {lodger.line.name for lodger in varied} & set(self._host.federation.ids()):
            lodger = self._lodgers.get(self._key(server, ctx, abilities))
            if lodger is not None and (lodger.own is not None or lodger.stale):
                found[server] = lodger
        await asyncio.gather(*(self._listed(server, lodger) for server, lodger in found.items() if lodger.stale))
        return {server: lodger for server, lodger in found.items() if lodger.own is not None}

    async def _listed(self, server: str, lodger: Lodger) -> None:
        """Fetch what has changed, once for all who want it."""
        if lodger.fetching is None or lodger.fetching.done():
            lodger.fetching = _apart(self._fetch(server, lodger))
        await asyncio.shield(lodger.fetching)

    async def _fetch(self, server: str, lodger: Lodger) -> None:
        parts, lodger.stale = lodger.stale, set()
        most = self._host.most_pages(server)
        try:
            lists: dict[Part, list[Any]] = {
                part: await every_entry(lodger.line, part, most) for part in PARTS if part in parts
            }
        except GreenroomError as error:
            lodger.stale |= parts  # asked again with the next list
            _log.info("the lists of %s for one client could not be had: %s", server, error)
            return
        before = lodger.own or self._host.federation.known(server) or NOTHING
        lodger.own = before.with_lists(lists)

    def _lists_changed(self, lodger: Lodger, method: str) -> None:
        if lodger.changed(method):
            for session in lodger.desk.sessions:
                self._notify(session, method, {})

    def _opened(self, key: Key) -> None:
        self._opening.pop(key, None)
        self._arriving.pop(key, None)
        self._owners.pop(key, None)

    def _home(self) -> Pid | None:
        """The supervisor, as it is now: when it dies, all connections have died with it, and its successor knows nothing of them."""
        return None if self.supervisor is None else whereis(self.supervisor)

    async def _open(
        self, key: Key, owner: Hashable, abilities: dict[str, Any], caller: CallerIdentity | None
    ) -> Lodger:
        home = self._home()
        if self.supervisor is None or home is None:
            raise Unavailable(key.server)
        desk = Desk(key.server, self._outside)
        may_ask = partial(self._host.agent.may_ask_users, key.server)
        handler = DeskHandler(
            desk, abilities, self._completed, may_ask, lambda method: self._lists_changed(lodger, method)
        )
        spec, line = self._host.connection(key.server, handler, caller)
        lodger = self._arriving[key] = Lodger(line, desk, home, owner)
        await start_child(home, spec.but(restart="transient"))
        try:
            await self._usable(lodger)
        except BaseException:
            _ = self._close(lodger)
            raise
        if self._departed.get(key.server, 0) >= key.turn:
            _ = self._close(lodger)
            raise Unavailable(key.server)
        # Here, and not where it is waited for: whoever that was may have gone away.
        lodger.since = asyncio.get_running_loop().time()
        self._lodgers[key] = lodger
        self._owners.pop(key, None)  # in the same turn: counted in both, it would take two places of the owner's share
        return lodger

    async def _usable(self, lodger: Lodger) -> None:
        """Wait while it is on its way, within the host's patience. Raises `Unavailable`, at once where the connection is away."""
        line = lodger.line
        if line.status.phase is not Phase.READY:
            patience = self._host.agent.patience
            try:
                async with asyncio.timeout(patience):
                    await _ready(line)
            except TimeoutError:
                slow = InitTimeout(f"it is still {line.status.phase.value} after {patience:g} s")
                raise Unavailable(line.name, slow) from None
        if line.status.generation != lodger.generation:
            lodger.generation = line.status.generation
            lodger.desk.begin_anew()
            lodger.stale.clear()
            if lodger.own is not None:  # the server's session is another one, and has what all begin with
                lodger.own = None
                for part in PARTS:
                    self._lists_changed(lodger, changed_method(part))
                lodger.stale.clear()
        if self._levels:
            await self._attune(lodger)

    def _make_room(self, owner: Hashable) -> None:
        """Have a place for one more of this owner's, which an idle one may have to leave. Raises `NoRoom`."""
        own = list(self._owners.values()).count(owner)
        others = len(self._owners) - own
        idle: dict[Hashable, list[Key]] = {}
        for key, lodger in self._lodgers.items():
            own += lodger.owner == owner
            if not lodger.desk.busy:
                idle.setdefault(lodger.owner, []).append(key)
            else:
                others += lodger.owner != owner
        share = max(1, (self._most - others) // 2)
        if own >= share:
            if owner not in idle:
                raise NoRoom(
                    f"{own} connections to upstreams are in use here for one client, which is its share of {self._most}"
                )
            self._dismiss(idle[owner][0])
        elif len(self._lodgers) + len(self._owners) >= self._most:
            if not idle:
                raise NoRoom(f"{self._most} connections to upstreams are in use, and there may be no more")
            self._dismiss(max(idle.values(), key=len)[0])  # the owner with most of them can spare one best

    def _dismiss(self, key: Key) -> None:
        _ = self._close(self._lodgers.pop(key))

    def dismiss(self, desk: Desk) -> None:
        """Close one connection: its caller's login was taken back, and its streams would go on."""
        for key in [key for key, lodger in self._lodgers.items() if lodger.desk is desk]:
            self._dismiss(key)

    def sweep(self, now: float, lives: Callable[[str], bool]) -> None:
        """Close what nobody has used for a while, and what belongs to sessions that have ended."""
        for session in [one for one in self._levels if not lives(one)]:
            del self._levels[session]
        for key, lodger in tuple(self._lodgers.items()):
            for session in [one for one in lodger.desk.sessions if not lives(one)]:
                lodger.desk.forget(session)
            orphan = key.principal is None and not lives(key.session)
            if not lodger.desk.busy and (orphan or now - lodger.since >= self._idle):
                del self._lodgers[key]
                _ = self._close(lodger)

    async def depart(self, server: str, turn: int, grace: float) -> None:
        """The server was removed or replaced: calls under way have so many seconds, then get `ClientClosed`. Returns when the connections are closed."""
        self._departed[server] = turn
        for key, lodger in tuple(self._arriving.items()):
            if key.server == server and key.turn <= turn:
                _ = self._close(
                    lodger
                )  # what waits for it fails now: a call that was not sent has no claim on the grace
        leaving = [key for key in self._lodgers if key.server == server and key.turn <= turn]
        closing = [self._close(self._lodgers.pop(key), grace) for key in leaving]
        # Shielded: an interrupted removal does not leave the processes behind.
        await asyncio.gather(*map(asyncio.shield, closing))

    async def set_level(self, session: str, level: str) -> None:
        """Hear of a session's upstreams so much of what they log: of several sessions on one connection, as much as the most curious wants."""
        self._levels[session] = level
        for lodger in tuple(self._lodgers.values()):
            if session in lodger.desk.sessions:
                await self._attune(lodger)

    async def _attune(self, lodger: Lodger) -> None:
        """Have the upstream log what its clients want to hear, where it can log, and they have said so."""
        wanted = [LEVELS.index(level) for one in lodger.desk.sessions if (level := self._levels.get(one)) is not None]
        welcome = lodger.line.welcome
        key = (min(wanted, default=None), lodger.generation)
        if not wanted or key == lodger.level or welcome is None or "logging" not in welcome.capabilities:
            return
        lodger.level = key
        with contextlib.suppress(ClientError, PeerError):
            await lodger.line.request("logging/setLevel", {"level": LEVELS[min(wanted)]}, timeout=_ATTUNING)

    def lines_of(self, session: str) -> list[Line]:
        """The connections that a session has used."""
        return [lodger.line for lodger in self._lodgers.values() if session in lodger.desk.sessions]

    def _close(self, lodger: Lodger, grace: float = 0.0) -> asyncio.Future[None]:
        closing = _apart(_closed(lodger, grace))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        return closing


async def _closed(lodger: Lodger, grace: float) -> None:
    if grace > 0 and lodger.desk.busy:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await lodger.desk.quiet()
    lodger.desk.close()
    await lodger.line.close()


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


def _apart(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """In a task of its own: several clients may wait for it, and whoever asked first may go away."""
    context = copy_context()
    context.run(current.set, None)
    return asyncio.get_running_loop().create_task(work, context=context)
