"""The clients' own connections to upstreams: one for each principal, or for each client that has not said who it is.

What an upstream remembers of a connection (a working directory, a login, a page that is open) is remembered of one principal, and nobody
else comes near it. There are so many such connections and no more: the one that was idle longest makes room, and one that nobody has
used for a while is closed. Which clients share one also follows from what they can do, since that is what the upstream is told.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import aclosing
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import msgspec

from greenroom.actors.client.errors import ClientError, Unavailable
from greenroom.actors.client.seam import Phase
from greenroom.protocol.errors import PeerError
from greenroom.protocol.shapes import LEVELS
from greenroom.supervision import start_child, whereis
from greenroom.supervision.kernel.current import current

from .desk import Desk, DeskHandler, abilities_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Hashable

    from greenroom.actors.client.seam import Line, Status
    from greenroom.actors.context import Context
    from greenroom.actors.names import Name
    from greenroom.supervision import Pid

    from .seam import Hosted

T = TypeVar("T")

MOST: Final = 64
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

    __slots__ = ("desk", "generation", "home", "level", "line", "since")

    def __init__(self, line: Line, desk: Desk, home: Pid) -> None:
        """`home` is whose child it is; `since` is when it was used last."""
        self.home = home
        self.line = line
        self.desk = desk
        self.generation = 0
        self.level: tuple[int | None, int] = (None, 0)
        """What it was told to log, and in which of its lives."""
        self.since = 0.0


class Lodgings:
    """All of them, of one gateway."""

    def __init__(
        self,
        host: Hosted,
        outside: Callable[[str], Context],
        completed: Callable[[str], object],
        most: int = MOST,
        idle: float = IDLE,
    ) -> None:
        """`outside` makes the context of a session that has no call under way; `completed` is told of visits that are over."""
        self._host = host
        self._outside = outside
        self._completed = completed
        self._most = most
        self._idle = idle
        self._lodgers: dict[Key, Lodger] = {}
        self._opening: dict[Key, asyncio.Future[Lodger]] = {}
        self._levels: dict[str, str] = {}
        self._closing: set[asyncio.Future[Any]] = set()
        self.supervisor: Name | None = None
        """Whose children they are, once there is one: what that is called."""

    def __len__(self) -> int:
        return len(self._lodgers)

    async def of(self, server: str, ctx: Context) -> Lodger:
        """The connection for whoever's call this is, ready. Raises `ClientError`, at once if the server cannot be reached now."""
        principal = ctx.principal
        session = ctx.session_id if principal is None else ""
        abilities = abilities_of(ctx.client_capabilities)
        key = Key(
            server, self._host.turn(server), principal, session, msgspec.json.encode(abilities, order="deterministic")
        )
        lodger = self._lodgers.pop(key, None)
        if lodger is None or lodger.line.status.phase in (Phase.CLOSED, Phase.CLOSING) or lodger.home != self._home():
            opening = self._opening.get(key)
            if opening is None:
                opening = self._opening[key] = _apart(self._open(key, abilities))
                opening.add_done_callback(lambda _: self._opening.pop(key, None))
            lodger = await asyncio.shield(opening)
            self._lodgers.pop(key, None)
        self._lodgers[key] = lodger  # the one that was used last is the last
        lodger.since = asyncio.get_running_loop().time()
        lodger.desk.sessions[ctx.session_id] = None
        await self._usable(lodger)
        return lodger

    def _home(self) -> Pid | None:
        """The supervisor, as it is now: when it dies, all connections have died with it, and its successor knows nothing of them."""
        return None if self.supervisor is None else whereis(self.supervisor)

    async def _open(self, key: Key, abilities: dict[str, Any]) -> Lodger:
        self._make_room()
        home = self._home()
        if self.supervisor is None or home is None:
            raise Unavailable(key.server)
        desk = Desk(key.server, self._outside)
        may_ask = partial(self._host.agent.may_ask_users, key.server)
        handler = DeskHandler(desk, abilities, self._completed, may_ask)
        spec, line = self._host.connection(key.server, handler)
        await start_child(home, spec.but(restart="transient"))
        lodger = Lodger(line, desk, home)
        try:
            await self._usable(lodger)
        except BaseException:
            self._close(lodger)
            raise
        # Here, and not where it is waited for: whoever that was may have gone away.
        lodger.since = asyncio.get_running_loop().time()
        self._lodgers[key] = lodger
        return lodger

    async def _usable(self, lodger: Lodger) -> None:
        """Wait while it is on its way. One that is away is told of at once: who asked can ask again."""
        line = lodger.line
        if line.status.phase is not Phase.READY:
            async with aclosing(_statuses(line)) as statuses:
                async for status in statuses:
                    if status.phase is Phase.READY:
                        break
                    if status.phase not in (Phase.CONNECTING, Phase.INITIALIZING):
                        raise Unavailable(line.name, status.cause, status.retry_in)
        if line.status.generation != lodger.generation:
            lodger.generation = line.status.generation
            lodger.desk.begin_anew()
        if self._levels:
            await self._attune(lodger)

    def _make_room(self) -> None:
        if len(self._lodgers) + len(self._opening) <= self._most:
            return
        for key, lodger in self._lodgers.items():
            if not lodger.desk.busy:
                del self._lodgers[key]
                self._close(lodger)
                return
        raise NoRoom(f"{len(self._lodgers)} connections to upstreams are in use, and there may be no more")

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
                self._close(lodger)

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

    def _close(self, lodger: Lodger) -> None:
        closing = _apart(lodger.line.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def _statuses(line: Line) -> AsyncGenerator[Status]:
    async for status in line.watch():
        yield status


def _apart(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """In a task of its own: several clients may wait for it, and whoever asked first may go away."""
    context = copy_context()
    context.run(current.set, None)
    return asyncio.get_running_loop().create_task(work, context=context)
