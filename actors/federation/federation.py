"""A federation: many servers, each kept by a supervisor of its own, so that whatever happens to one is no other's affair.

::

    federation (rest_for_one)
    ├─ upstreams            a tree for each server: see `upstream`
    ├─ jobs                 processes that wait for an upstream to be ready, or to finish its calls
    └─ manager              starts, replaces, stops and parks upstreams

`Federation` itself is no process. It holds what outlives each of them (the roster of wanted upstreams), and hosts and gateways hold a
reference to it. Looking never waits: the roster and each catalogue are immutable, and replaced by one assignment.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast
from weakref import WeakSet

from greenroom.actors.client.errors import ClientClosed, InitTimeout, Parked, Unavailable
from greenroom.actors.client.interfaces import Phase, Status
from greenroom.actors.client.notification_readers import GAP
from greenroom.actors.process_names import CompanyKey, ProcessName
from greenroom.actors.successor_supervisor import SuccessorSupervisor
from greenroom.supervision import DynamicSupervisor, NotRegistered, Ref, TaskSupervisor, Wakeup, child, whereis

from .offering import EMPTY_OFFERING
from .upstream_manager import UpstreamManager
from .upstream_requests import UpstreamRequest
from .upstream_spec import PATIENCE, ConnectionProcess, OfferingChange, UpstreamState, UpstreamStatus

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Callable,
        Collection,
        Generator,
        Hashable,
        Iterable,
        Mapping,
    )
    from types import TracebackType

    from greenroom.actors.client.interfaces import Line, ServerNotification, ServerWelcome, Updates
    from greenroom.supervision import ChildSpec, Pid

    from .connection_processes import ConnectionProcesses, ConnectionProcessRef
    from .offering import Offering, Part
    from .upstream import Upstream
    from .upstream_spec import UpstreamSpec

_INTENSITY: Final = 5
_PERIOD: Final = 10.0
_MANAGER_TIMEOUT: Final = 5.0
"""How long to wait for another steward when one has died, in seconds."""


class Federation:
    """One federation, before and while it runs."""

    def __init__(
        self,
        first: Mapping[str, UpstreamSpec] | None = None,
        *,
        name: str = "federation",
        patience: float | None = PATIENCE,
    ) -> None:
        """`first` are the servers to begin with, by id; `start` adds more. One that does not come up does not hold up the others.

        A request waits for a server that is started, or started again, as long as its deadline and `patience` allow; it is refused at once where an
        attempt has failed. None waits as long as the deadline allows, whatever has failed.
        """
        self.patience = patience
        self.key = CompanyKey.new(name)
        self.initial: Mapping[str, UpstreamSpec] = dict(first or {})
        self.members: Mapping[str, Upstream] = MappingProxyType({})
        """The upstreams that are wanted. The steward writes it."""
        self.arriving: dict[int, Upstream] = {}
        """Upstreams that are about to take a place."""
        self.leaving: dict[int, Upstream] = {}
        """Upstreams that have lost it, and still have something under way."""
        self.kept: set[Part] = set()
        """Which lists are kept of all of them, whatever their specs say."""
        self.change_feed = ChangeFeed()
        """Tells which upstreams' states have changed."""
        self.manager_started = Wakeup()
        """Rings when a steward is there."""
        self.upstreams: Ref[DynamicSupervisor] = Ref(self.name("upstreams"), None)
        self.jobs: Ref[TaskSupervisor] = Ref(self.name("jobs"), None)
        self._manager: Ref[UpstreamManager] = Ref(self.name("manager"), None)
        self._connection_processes: ConnectionProcesses | None = None

    def __repr__(self) -> str:
        return f"<Federation {self.key}, {len(self.members)} servers>"

    def name(self, role: str) -> ProcessName:
        """What the process with that role is registered as."""
        return ProcessName(self.key, role)

    def child_spec(self) -> ChildSpec[Ref[SuccessorSupervisor]]:
        """The whole federation as a child, for any supervisor."""
        children: list[ChildSpec[Any]] = [
            child(DynamicSupervisor).but(id="upstreams", name=self.name("upstreams")),
            child(TaskSupervisor).but(id="jobs", name=self.name("jobs")),
            child(UpstreamManager, self).but(id="manager", name=self.name("manager")),
        ]
        tree = child(SuccessorSupervisor, children, intensity=_INTENSITY, period=_PERIOD, strategy="rest_for_one")
        return tree.but(id=self.key, name=self.name("federation"))

    # --- the servers in it

    async def start(self, id: str, spec: UpstreamSpec) -> Pid:
        """Begin with a server; returns the pid of its supervisor. It need not be reachable: look at its state, or wait for `ready`.

        Of any number that start the same id at once one wins, and the others get `AlreadyRegistered`, which has the pid.
        """
        await self._manager_running()
        pid = await self._manager.call(UpstreamManager.start, id, spec)
        assert pid is not None
        return pid

    async def stop(self, id: str, grace: float | None = None) -> None:
        """End with a server; its id is free at once. Raises `NotRegistered`.

        What is under way may still be answered for `grace` seconds (its spec's, by default), and then gets `ClientClosed`; what is new
        gets that at once.
        """
        await self._manager_running()
        await self._manager.call(UpstreamManager.stop, id, grace)

    def lacks_server(self, id: str) -> bool:
        """Whether there is no such server, nor one to begin with."""
        return id not in self.members and id not in self.initial

    async def start_or_replace(
        self, id: str, spec: UpstreamSpec, *, ready_within: float = 30.0, keep_old: bool = False
    ) -> None:
        """As `replace`; and as `start` where an earlier replacement came no further than removing the server."""
        if self.lacks_server(id):
            await self.start(id, spec)
        else:
            await self.replace(id, spec, ready_within=ready_within, keep_old=keep_old)

    async def replace(
        self, id: str, spec: UpstreamSpec, *, ready_within: float = 30.0, keep_old: bool = False
    ) -> Pid | None:
        """Have another server, or another way to it, under the same id. The new one is started beside the old.

        When it is ready, or the time is over, the name moves, and what was under way comes to its end on the old one within its grace.
        With `keep_old` a new one that is not ready in time is given up instead, and `Unavailable` raised.
        """
        await self._manager_running()
        return await self._manager.call(UpstreamManager.replace, id, spec, ready_within, keep_old=keep_old)

    async def wait_departed(self, upstream: Upstream) -> None:
        """Wait until the processes of one that was removed or replaced have ended: what was under way has its outcome then."""
        while upstream.running and not upstream.gone:
            await upstream.wakeup.wait()

    async def _manager_running(self) -> None:
        """Between two stewards, wait for the next one: no steward has seen the request yet, so it need not be lost."""
        if whereis(self.name("manager")) is None and whereis(self.name("federation")) is not None:
            await self.manager_started.wait(_MANAGER_TIMEOUT)

    def retry(self, id: str) -> None:
        """Try now: whatever was parked, backs off or has its breaker open. Nothing when there is no such server."""
        upstream = self.members.get(id)
        if upstream is not None:
            upstream.retry_now()  # at once: requests wait for it from now on
            upstream.line.retry()
            self._manager.cast(UpstreamManager.retry, id)

    def ids(self) -> Collection[str]:
        """The servers in it."""
        return tuple(self.members)

    def whereis(self, id: str) -> Pid | None:
        """The supervisor of a server, if it runs just now."""
        upstream = self.members.get(id)
        return upstream.pid if upstream is not None and upstream.running else None

    def clients(self) -> dict[str, Pid]:
        """All that run, with the pids of their supervisors."""
        return {id: each.pid for id, each in self.members.items() if each.running and each.pid is not None}

    def connection_process(self, id: str, spec: UpstreamSpec) -> ConnectionProcessRef | None:
        """Where the connections of such a server run, if not here: a process of its own is another one each time."""
        if spec.isolation is None:
            return None
        if self._connection_processes is None:
            from .connection_processes import ConnectionProcesses  # noqa: PLC0415 - most need no other process

            self._connection_processes = ConnectionProcesses(self.key, self.upstreams)
        return self._connection_processes.connection_process(
            spec.isolation if isinstance(spec.isolation, ConnectionProcess) else ConnectionProcess(id)
        )

    async def process_id(self, id: str) -> int:
        """The process in which a server's connections run, as the system knows it: our own, or that of its annex. Raises `KeyError`."""
        room = self.members[id].connection_process
        return os.getpid() if room is None else await room.process_id()

    def extra_connection(self, id: str, spec: UpstreamSpec) -> tuple[ChildSpec[Any], Line]:
        """Another connection to such a server: the child that keeps it, and the line. It runs where that of the federation does."""
        upstream = self.members.get(id)
        own = None if upstream is None or upstream.spec.isolation != spec.isolation else upstream.connection_process
        return spec.connected(id, own or self.connection_process(id, spec), self.patience)

    def line(self, id: str, who: Hashable = None) -> FederatedLine | None:
        """The way to a server; None when there is no such server. It stays good whatever happens to that.

        `who` is the principal for whom it asks: where more wait than may go, principals take turns.
        """
        return FederatedLine(self, id, who) if id in self.members else None

    def serial(self, id: str) -> int | None:
        """Which server it is that has this id now: another number after it was replaced; None when there is none."""
        upstream = self.members.get(id)
        return None if upstream is None else upstream.serial

    # --- how they are

    def status(self, id: str) -> UpstreamStatus:
        """How a server is: its state, and why it is not ready."""
        upstream = self.members.get(id)
        return UpstreamStatus(id, UpstreamState.STOPPED) if upstream is None else upstream.status

    def statuses(self) -> dict[str, UpstreamStatus]:
        """All of them."""
        return {id: each.status for id, each in self.members.items()}

    @contextmanager
    def count_call(self, id: str) -> Generator[None]:
        """Count a call of a server that goes over `another` connection: it is in progress for as long as the block lasts."""
        upstream = self.members.get(id)
        if upstream is None:
            yield
            return
        upstream.calls_beside += 1
        try:
            yield
        finally:
            upstream.calls_beside -= 1

    def watch(self) -> AsyncGenerator[UpstreamStatus, None]:
        """How each server is, and then each change of that, from now on without end. A slow reader gets the latest of each."""
        return self._watch(self.change_feed.reader(self.members, lambda id: self.status(cast("str", id))))

    async def _watch(self, read: ChangeReader[UpstreamStatus]) -> AsyncGenerator[UpstreamStatus, None]:
        last: dict[str, UpstreamStatus] = {}
        async for standing in read:
            if last.get(standing.id) == standing:
                continue
            if standing.state is UpstreamState.STOPPED:
                if last.pop(standing.id, None) is None:
                    continue
            else:
                last[standing.id] = standing
            yield standing

    # --- what they offer

    def known(self, id: str) -> Offering | None:
        """What a server offers as far as that is known, at once; None when its lists were never had."""
        upstream = self.members.get(id)
        return upstream.offering if upstream is not None and upstream.fetched else None

    def refusal(self, id: str) -> Exception | None:
        """Why calls of this server fail just now, before they are sent; None where they would go, or wait for it to be started."""
        upstream = self.members.get(id)
        return None if upstream is None else upstream.limiter.refusal()

    def shown(self, id: str) -> Offering | None:
        """What is known of a server's offering as it is to be listed: while calls of it fail, as its spec's `away` says."""
        upstream = self.members.get(id)
        return upstream.shown if upstream is not None and upstream.fetched else None

    def timeout(self, id: str, method: str) -> float | None:
        """How long such a request of a server may take whose caller does not say."""
        upstream = self.members.get(id)
        return None if upstream is None else upstream.spec.patience(method)

    def keep(self, *parts: Part) -> None:
        """Keep these lists of all servers from now on, also of those whose specs fetch them on demand only."""
        if not self.kept.issuperset(parts):
            self.kept.update(parts)
            for upstream in self.members.values():
                upstream.complete()

    async def listed(self, *parts: Part, timeout: float | None) -> dict[str, Exception]:
        """Keep these lists, and wait until they are here, of all servers that have said what they offer. Returns the servers that failed to, and why."""
        self.keep(*parts)
        wanted = frozenset(parts)
        missing = [id for id, each in self.members.items() if each.fetched and not each.fetched_lists >= wanted]
        asked = (self.offering(id, timeout=timeout, parts=parts) for id in missing)
        failed: dict[str, Exception] = {}
        for id, answer in zip(missing, await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(answer, Exception):
                failed[id] = answer
            elif isinstance(answer, BaseException):
                raise answer
        return failed

    async def offering(self, id: str, *, timeout: float | None = 30.0, parts: Collection[Part] = ()) -> Offering:
        """What a server offers, once that is known, with these lists. Raises `ClientError` when it is parked, stopped, or takes too long."""
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            upstream = self.members.get(id)
            if upstream is None:
                raise ClientClosed(f"{id} is not in the federation")
            if upstream.fetched and upstream.fetched_lists.issuperset(parts):
                return upstream.offering
            refusal = upstream.limiter.refusal() or upstream.list_error
            if refusal is not None:
                raise refusal
            if not await upstream.changed(until):
                state = upstream.status.state.value
                slow = InitTimeout(f"it is still {state} after {timeout:g} s" if timeout else f"it is {state}")
                raise Unavailable(upstream.name, upstream.line.status.cause or slow, upstream.line.status.retry_in)

    def changes(self) -> AsyncGenerator[OfferingChange, None]:
        """What is different in what servers offer, as it is `shown`: each difference once, from now on without end.

        A server that comes has everything new, and one that is stopped has everything gone. A reader that is slow gets several at once.
        """
        seen = {id: each.shown for id, each in self.members.items()}
        return self._changes(seen, self.change_feed.reader((), self._offered))

    async def _changes(
        self, seen: dict[str, Offering], read: ChangeReader[tuple[str, Offering]]
    ) -> AsyncGenerator[OfferingChange, None]:
        async for id, offering in read:
            differences = seen.get(id, EMPTY_OFFERING).until(offering)
            if id in self.members:
                seen[id] = offering
            else:
                seen.pop(id, None)
            if differences:
                yield OfferingChange(id, differences, offering)

    def _offered(self, id: Hashable) -> tuple[str, Offering]:
        upstream = self.members.get(cast("str", id))
        return cast("str", id), EMPTY_OFFERING if upstream is None else upstream.shown

    # --- for the steward

    def admit(self, upstream: Upstream) -> None:
        """It has its place."""
        self.members = MappingProxyType({**self.members, upstream.id: upstream})
        self.change_feed.tell(upstream.id)

    def run_in_worker(self, old: Upstream, new: Upstream) -> None:
        """Another one has its place. What that offers is what the old one did, until it is known."""
        if not new.fetched:
            new.offering, new.fetched, new.fetched_lists = old.offering, old.fetched, old.fetched_lists
            new.inherited = old.fetched
        self.admit(new)
        old.wakeup.wake()

    def unregister(self, upstream: Upstream) -> None:
        """It has it no more."""
        self.members = MappingProxyType({id: each for id, each in self.members.items() if each is not upstream})
        self.change_feed.tell(upstream.id)
        upstream.wakeup.wake()


# --- The line to one server of a federation, by its id: it outlives restarts and replacements, and each request passes the gate.
# The line survives restarts of the upstream. A request sent while it is down waits for the next one, within its deadline; a request that is
# refused just now fails at once, and says why.

_DEFAULT: Final[Any] = ...


class FederatedLine:
    """A `Line`, made by `Federation.line`."""

    __slots__ = ("_federation", "_id", "_who")

    def __init__(self, federation: Federation, id: str, who: Hashable) -> None:
        """`who` is the principal for whom it asks: where many wait, principals take turns."""
        self._federation = federation
        self._id = id
        self._who = who

    def __repr__(self) -> str:
        return f"<FederatedLine {self._id}, {self.status.phase.value}>"

    @property
    def _upstream(self) -> Upstream | None:
        return self._federation.members.get(self._id)

    @property
    def pid(self) -> Pid | None:
        """The connection's process, if it runs just now."""
        upstream = self._upstream
        return None if upstream is None else upstream.line.pid

    @property
    def name(self) -> str:
        """What the server is called here."""
        return str(self._id)

    @property
    def status(self) -> Status:
        """How it is."""
        upstream = self._upstream
        if upstream is None:
            return Status(Phase.CLOSED)
        if upstream.parked is not None:
            return Status(Phase.PARKED, upstream.parked, generation=upstream.line.status.generation)
        return upstream.line.status

    @property
    def welcome(self) -> ServerWelcome | None:
        """What the server last said of itself."""
        upstream = self._upstream
        return None if upstream is None else upstream.line.welcome

    # --- asking

    def begin(  # noqa: PLR0913 - what can be said of a request
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = _DEFAULT,
        wait: bool = True,
        progress: bool = False,
        token: str | int | None = None,
        idempotent: bool | None = None,
    ) -> UpstreamRequest:
        """Send a request, when it is its turn."""
        upstream = self._upstream
        seconds = timeout
        if timeout is _DEFAULT:
            seconds = None if upstream is None else upstream.spec.patience(method)
        options = {"progress": progress, "token": token, "idempotent": idempotent}
        request = UpstreamRequest(method, params, seconds, wait, self._who, options)
        if upstream is None:
            request.fail(self._closed())
        else:
            upstream.limiter.admit(request)
        return request

    def _closed(self) -> ClientClosed:
        return ClientClosed(f"{self.name} is not in the federation any more")

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = _DEFAULT,
        wait: bool = True,
    ) -> dict[str, Any]:
        """Send a request and wait for its result."""
        return await self.begin(method, params, timeout=timeout, wait=wait).result()

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell the server something; that passes by the gate, and is not waited for."""
        await self._passed().line.notify(method, params)

    async def set_level(self, level: str, *, timeout: float | None = _DEFAULT) -> None:
        """Say what the server is to log, now, after each new handshake, and when another one takes its place."""
        upstream = self._passed()
        await upstream.set_level(level, upstream.spec.settings.request_timeout if timeout is _DEFAULT else timeout)

    def _passed(self) -> Upstream:
        """The upstream, of which nothing is refused just now."""
        upstream = self._upstream
        if upstream is None:
            raise self._closed()
        if (refusal := upstream.limiter.refusal()) is not None:
            raise refusal
        return upstream

    async def ready(self, timeout: float | None = _DEFAULT) -> ServerWelcome:
        """Wait until it is ready. Raises `Parked` and `ClientClosed` as soon as it is."""
        upstream = self._upstream
        if timeout is _DEFAULT:
            timeout = 30.0 if upstream is None else upstream.spec.settings.init_timeout
        until = None if timeout is None else asyncio.get_running_loop().time() + timeout
        while True:
            upstream = self._upstream
            if upstream is None:
                raise self._closed()
            _, state, cause = upstream.status
            welcome = upstream.line.welcome
            if upstream.running and upstream.line.status.phase is Phase.READY and welcome is not None:
                return welcome
            why = cause if isinstance(cause, Exception) else None
            if state is UpstreamState.NEEDS_SIGN_IN:
                raise copy(why) if why is not None else Parked(self.name)
            if state is UpstreamState.PARKED:
                raise Parked(self.name, why)
            if not await upstream.changed(until):
                if why is None:
                    raise InitTimeout(f"{self.name} is still {state.value} after {timeout:g} s")
                raise Unavailable(self.name, why, upstream.line.status.retry_in)

    # --- hearing

    def subscribe(self, uri: str) -> Updates:
        """Updates of a resource, for as long as the block lasts."""
        return RelayedUpdates(self._federation, self._id, lambda line: line.subscribe(uri))

    def listen(self, *methods: str) -> Updates:
        """Notifications of these methods, or of all."""
        return RelayedUpdates(self._federation, self._id, lambda line: line.listen(*methods))

    async def watch(self) -> AsyncIterator[Status]:
        """The present status, and each one that comes after it; slow readers get the latest."""
        last: Status | None = None
        async for status in self._federation.change_feed.reader(
            [self._id], lambda id: self.status if id == self._id else None
        ):
            if status != last:
                last = status
                yield status
            if status.phase is Phase.CLOSED:
                return

    # --- the connection

    def retry(self) -> None:
        """Try now: out of backoff or parked, and past the breaker's pause."""
        self._federation.retry(self._id)

    async def close(self, timeout: float | None = _DEFAULT) -> None:
        """Take the server out of the federation; what is under way has `timeout` seconds left."""
        try:
            await self._federation.stop(self._id, None if timeout is _DEFAULT else timeout)
        except NotRegistered:
            return


class RelayedUpdates:
    """Updates of the server behind an id: when it is replaced the reader is told of a gap, and hears its successor.

    As any reader, it may be iterated without its block, and then listens for as long as the loop lasts.
    """

    def __init__(self, federation: Federation, id: str, open: Callable[[Line], Updates]) -> None:  # noqa: A002 - what it does
        """`open` asks a line for its updates."""
        self._federation = federation
        self._id = id
        self._open = open
        self._upstream: Upstream | None = None
        self._updates: Updates | None = None
        self._entered = False

    async def __aenter__(self) -> Self:
        if not await self._enter():
            raise ClientClosed(f"{self._id} is not in the federation")
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered = False
        await self._leave()

    async def __aiter__(self) -> AsyncIterator[ServerNotification]:
        alone = not self._entered
        if alone:
            await self.__aenter__()
        try:
            while (updates := self._updates) is not None:
                async for told in updates:
                    yield told
                before = self._upstream
                await self._leave()
                while before is not None and self._awaits(before):
                    await before.wakeup.wait()
                if await self._enter():
                    yield GAP
        finally:
            if alone:
                await self.__aexit__(None, None, None)

    def _awaits(self, before: Upstream) -> bool:
        """Whether the server is still away: neither have its processes come again (they were parked, perhaps) nor has another upstream."""
        there = self._federation.members.get(self._id) is before and not before.gone
        return there and before.line.status.phase in (Phase.CLOSING, Phase.CLOSED)

    async def _enter(self) -> bool:
        upstream = self._federation.members.get(self._id)
        if upstream is None:
            return False
        updates = self._open(upstream.line)
        await updates.__aenter__()
        self._upstream, self._updates = upstream, updates
        return True

    async def _leave(self) -> None:
        updates, self._updates = self._updates, None
        if updates is not None:
            await updates.__aexit__(None, None, None)


# --- Readers of news: each is told which keys have changed since it last looked.
# What is kept for a slow reader is one mark a key, so it can neither fill memory nor lose anything: it reads what is true when it reads.
# A reader that is held no more is forgotten.

R_co = TypeVar("R_co", covariant=True)


class ChangeFeed:
    """Tells its readers what has changed, by key."""

    __slots__ = ("_readers",)

    def __init__(self) -> None:
        """Without readers."""
        self._readers: WeakSet[ChangeReader[object]] = WeakSet()

    def tell(self, key: Hashable) -> None:
        """Something about it is different."""
        for each in tuple(self._readers):
            each.mark(key)

    def reader(self, keys: Iterable[Hashable], read: Callable[[Hashable], R_co | None]) -> ChangeReader[R_co]:
        """One more. It is given `read` of each of these keys, and of each key that is told after them; None is passed over."""
        reader = ChangeReader(keys, read)
        self._readers.add(reader)
        return reader


class ChangeReader(Generic[R_co]):
    """An endless async iterator, for one task at a time."""

    __slots__ = ("__weakref__", "_bell", "_marked", "_read")

    def __init__(self, keys: Iterable[Hashable], read: Callable[[Hashable], R_co | None]) -> None:
        """Made by `ChangeFeed.reader`."""
        self._marked: dict[Hashable, None] = dict.fromkeys(keys)
        self._read = read
        self._bell = Wakeup()

    def mark(self, key: Hashable) -> None:
        """That key is to be read."""
        self._marked[key] = None
        self._bell.wake()

    def __aiter__(self) -> ChangeReader[R_co]:
        return self

    async def __anext__(self) -> R_co:
        while True:
            while self._marked:
                key = next(iter(self._marked))
                del self._marked[key]
                value = self._read(key)
                if value is not None:
                    return value
            await self._bell.wait()
