"""The federation: connections to many servers, each under a supervisor of its own, so that the failure of one affects no other.

::

    federation (rest_for_one)
    ├─ upstreams            dynamic; one tree for each server: see `upstream`
    ├─ jobs                 processes that wait for an upstream to be ready, or to finish its calls
    └─ manager              starts, replaces, stops and parks upstreams

`Federation` itself is no process. It holds the state that outlives each of them (the table of upstreams), and hosts and gateways hold a
reference to it. Reading never waits: the table and each offering are immutable, and replaced by one assignment.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, cast
from weakref import WeakSet

from greenroom.actors.client.connection_line import ConnectionLine
from greenroom.actors.client.era_verdicts import PROCESS_VERDICTS
from greenroom.actors.client.errors import ClientClosed, InitTimeout, Parked, Unavailable
from greenroom.actors.client.interfaces import Phase, Status
from greenroom.actors.client.notification_readers import GAP
from greenroom.actors.exclusive_supervisor import ExclusiveSupervisor
from greenroom.actors.process_names import CompanyKey, ProcessName
from greenroom.actors.running_trees import note_tree
from greenroom.protocol.cache_hints import merged_cache
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

    from greenroom.actors.client.era_verdicts import EraVerdicts
    from greenroom.actors.client.interfaces import Line, ServerNotification, ServerWelcome, Updates
    from greenroom.actors.client.response_cache import ResponseCache
    from greenroom.protocol.cache_hints import Cache
    from greenroom.supervision import ChildSpec, Pid

    from .connection_processes import ConnectionProcesses, ConnectionProcessRef
    from .offering import Offering, Part
    from .upstream import Upstream
    from .upstream_spec import UpstreamSpec

_INTENSITY: Final = 5
_PERIOD: Final = 10.0
_FRESHEN_PATIENCE: Final = 2.0
"""Seconds to wait for lists that are fetched again because they are old: after that the old ones are shown."""
_MANAGER_TIMEOUT: Final = 5.0
"""Seconds to wait for the next manager when one has died."""


class Federation:
    """The handle of one federation, before and while it runs."""

    def __init__(
        self,
        first: Mapping[str, UpstreamSpec] | None = None,
        *,
        name: str = "federation",
        patience: float | None = PATIENCE,
        cache: ResponseCache | None = None,
        verdicts: EraVerdicts | None = None,
    ) -> None:
        """`first` are the initial servers by id; `start` adds more. A server that does not start does not delay the others.

        A request waits for a server that is being started or restarted as long as its deadline and `patience` allow, and is refused at once after
        a failed attempt. With `patience=None` it waits until its deadline, whatever has failed. `cache` keeps results of all connections, and
        `verdicts` which revision each server spoke last.
        """
        self.patience = patience
        self.cache = cache
        self.verdicts = PROCESS_VERDICTS if verdicts is None else verdicts
        self.key = CompanyKey.new(name)
        self.initial: Mapping[str, UpstreamSpec] = dict(first or {})
        self.members: Mapping[str, Upstream] = MappingProxyType({})
        """The wanted upstreams by id. Written by the manager."""
        self.arriving: dict[int, Upstream] = {}
        """Upstreams that were started and are not members yet, by serial."""
        self.leaving: dict[int, Upstream] = {}
        """Upstreams that are no longer members and still have requests under way, by serial."""
        self.kept: set[Part] = set()
        """The lists to keep of all upstreams, whatever their specs say."""
        self.change_feed = ChangeFeed()
        """Announces the ids of upstreams whose state has changed."""
        self.manager_started = Wakeup()
        """Woken when a manager has started."""
        self.upstreams: Ref[DynamicSupervisor] = Ref(self.name("upstreams"), None)
        self.jobs: Ref[TaskSupervisor] = Ref(self.name("jobs"), None)
        self._manager: Ref[UpstreamManager] = Ref(self.name("manager"), None)
        self._connection_processes: ConnectionProcesses | None = None

    def __repr__(self) -> str:
        return f"<Federation {self.key}, {len(self.members)} servers>"

    def name(self, role: str) -> ProcessName:
        """The registered name of the process with that role."""
        return ProcessName(self.key, role)

    def child_spec(self) -> ChildSpec[Ref[ExclusiveSupervisor]]:
        """The federation as a child of any supervisor."""
        note_tree(self, self.name("federation"))
        children: list[ChildSpec[Any]] = [
            child(DynamicSupervisor).but(id="upstreams", name=self.name("upstreams")),
            child(TaskSupervisor).but(id="jobs", name=self.name("jobs")),
            child(UpstreamManager, self).but(id="manager", name=self.name("manager")),
        ]
        tree = child(ExclusiveSupervisor, children, intensity=_INTENSITY, period=_PERIOD, strategy="rest_for_one")
        return tree.but(id=self.key, name=self.name("federation"))

    # --- the servers

    async def start(self, id: str, spec: UpstreamSpec) -> Pid:
        """Add a server; returns the pid of its supervisor. The server need not be reachable: read its status, or wait for `ready`.

        Of several concurrent starts of one id one wins; the others raise `AlreadyRegistered`, which has the pid.
        """
        await self._manager_running()
        pid = await self._manager.call(UpstreamManager.start, id, spec)
        assert pid is not None
        return pid

    async def stop(self, id: str, grace: float | None = None) -> None:
        """Remove a server; its id is free at once. Raises `NotRegistered`.

        Requests under way have `grace` seconds (its spec's, by default) and then fail with `ClientClosed`; new ones fail at once.
        """
        await self._manager_running()
        await self._manager.call(UpstreamManager.stop, id, grace)

    def lacks_server(self, id: str) -> bool:
        """Whether this id is neither a member nor an initial server."""
        return id not in self.members and id not in self.initial

    async def start_or_replace(
        self, id: str, spec: UpstreamSpec, *, ready_within: float = 30.0, keep_old: bool = False
    ) -> None:
        """As `replace`, or as `start` where an interrupted replacement has left no server."""
        if self.lacks_server(id):
            await self.start(id, spec)
        else:
            await self.replace(id, spec, ready_within=ready_within, keep_old=keep_old)

    async def replace(
        self, id: str, spec: UpstreamSpec, *, ready_within: float = 30.0, keep_old: bool = False
    ) -> Pid | None:
        """Replace the server under an id. The new one is started beside the old one.

        When it is ready, or the time is over, the id moves to it; requests under way finish on the old one within its grace.
        With `keep_old` a new one that is not ready in time is stopped instead, and `Unavailable` raised.
        """
        await self._manager_running()
        return await self._manager.call(UpstreamManager.replace, id, spec, ready_within, keep_old=keep_old)

    async def wait_departed(self, upstream: Upstream) -> None:
        """Wait until the processes of a removed or replaced upstream have ended: all its requests are settled then."""
        while upstream.running and not upstream.gone:
            await upstream.wakeup.wait()

    async def _manager_running(self) -> None:
        """Between two managers, wait for the next one: no manager has seen the request yet, so it need not fail."""
        if whereis(self.name("manager")) is None and whereis(self.name("federation")) is not None:
            await self.manager_started.wait(_MANAGER_TIMEOUT)

    def retry(self, id: str) -> None:
        """Connect now: out of parking, backoff or an open breaker. A no-op for an unknown id."""
        upstream = self.members.get(id)
        if upstream is not None:
            upstream.retry_now()  # here and not in the manager: requests made from now on wait for it
            upstream.line.retry()
            self._manager.cast(UpstreamManager.retry, id)

    def ids(self) -> Collection[str]:
        """The ids of the members."""
        return tuple(self.members)

    def whereis(self, id: str) -> Pid | None:
        """The supervisor of a server, while it runs."""
        upstream = self.members.get(id)
        return upstream.pid if upstream is not None and upstream.running else None

    def clients(self) -> dict[str, Pid]:
        """The pids of the supervisors of all servers that run."""
        return {id: each.pid for id, each in self.members.items() if each.running and each.pid is not None}

    def connection_process(self, id: str, spec: UpstreamSpec) -> ConnectionProcessRef | None:
        """The process in which connections to such a server run; None for this program. With `"process"` each call makes another one."""
        if spec.isolation is None:
            return None
        if self._connection_processes is None:
            from .connection_processes import ConnectionProcesses  # noqa: PLC0415 - most programs need no connection process

            self._connection_processes = ConnectionProcesses(self.key, self.upstreams)
        return self._connection_processes.connection_process(
            spec.isolation if isinstance(spec.isolation, ConnectionProcess) else ConnectionProcess(id)
        )

    async def process_id(self, id: str) -> int:
        """The operating system's id of the process in which a server's connections run. Raises `KeyError`."""
        room = self.members[id].connection_process
        return os.getpid() if room is None else await room.process_id()

    def extra_connection(self, id: str, spec: UpstreamSpec, principal: Hashable = None) -> tuple[ChildSpec[Any], Line]:
        """One more connection to such a server, in the same process as the federation's own: its child spec, and its line.

        `principal` is on whose behalf it is used: results that are for one user alone are kept for each principal by itself.
        """
        upstream = self.members.get(id)
        own = None if upstream is None or upstream.spec.isolation != spec.isolation else upstream.connection_process
        child_spec, line = spec.connected(id, own or self.connection_process(id, spec), self.patience)
        if upstream is not None and isinstance(line, ConnectionLine) and isinstance(upstream.line, ConnectionLine):
            line.tool_headers = upstream.line.tool_headers  # tools are listed on the federation's own connection
        if upstream is not None:
            upstream.equip(line, spec, principal)
        return child_spec, line

    def line(self, id: str, who: Hashable = None) -> FederatedLine | None:
        """The line to a server; None for an unknown id. It stays valid when the server is restarted or replaced.

        `who` is the principal on whose behalf requests are sent: waiting principals take turns.
        """
        return FederatedLine(self, id, who) if id in self.members else None

    def serial(self, id: str) -> int | None:
        """A number that changes when the server with this id is replaced; None for an unknown id."""
        upstream = self.members.get(id)
        return None if upstream is None else upstream.serial

    # --- status

    def status(self, id: str) -> UpstreamStatus:
        """The status of a server: its state, and why it is not ready."""
        upstream = self.members.get(id)
        return UpstreamStatus(id, UpstreamState.STOPPED) if upstream is None else upstream.status

    def statuses(self) -> dict[str, UpstreamStatus]:
        """The status of every server."""
        return {id: each.status for id, each in self.members.items()}

    @contextmanager
    def count_call(self, id: str) -> Generator[None]:
        """Count a call over an `extra_connection` as in progress for as long as the block lasts."""
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
        """The status of each server, then each change, without end. Slow readers get the latest of each server."""
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

    # --- offerings

    def known(self, id: str) -> Offering | None:
        """A server's lists as last fetched, without waiting; None before the first fetch."""
        upstream = self.members.get(id)
        return upstream.offering if upstream is not None and upstream.fetched else None

    def refusal(self, id: str) -> Exception | None:
        """The error with which calls fail now, before they are sent; None if they would be sent, or wait for the server to start."""
        upstream = self.members.get(id)
        return None if upstream is None else upstream.limiter.refusal()

    def shown(self, id: str) -> Offering | None:
        """A server's lists to show to clients: while its calls fail, as its spec's `away` says."""
        upstream = self.members.get(id)
        return upstream.shown if upstream is not None and upstream.fetched else None

    def timeout(self, id: str, method: str) -> float | None:
        """The default timeout of such a request to this server."""
        upstream = self.members.get(id)
        return None if upstream is None else upstream.spec.patience(method)

    def keep(self, *parts: Part) -> None:
        """Keep these lists of all servers from now on, also where their specs fetch them on demand only."""
        if not self.kept.issuperset(parts):
            self.kept.update(parts)
            for upstream in self.members.values():
                upstream.complete()

    async def freshen(self, *parts: Part) -> None:
        """Fetch these lists again from servers that no longer call them fresh, and wait for that a moment. Failures leave the lists as they are."""
        while waits := [
            upstream.changed(until)
            for upstream in self.members.values()
            if (old := upstream.old_lists(parts)) and (until := upstream.freshen(old, _FRESHEN_PATIENCE)) is not None
        ]:
            await asyncio.gather(*waits)

    def cache_of(self, part: Part) -> Cache:
        """For how long, and for whom, clients may keep this list of all servers: no longer than any of the servers says."""
        return merged_cache(each.cache_of(part) for each in self.members.values())

    async def listed(self, *parts: Part, timeout: float | None) -> dict[str, Exception]:
        """Keep these lists, and wait for them from all servers whose lists are known at all. Returns the errors of servers that failed."""
        self.keep(*parts)
        await self.freshen(*parts)
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
        """A server's lists, with at least these, waiting for them if need be. Raises `ClientError` when it is parked, stopped, or too slow."""
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
        """The changes of the lists as `shown`, each once, from now on without end.

        All entries of a new server are added, all of a stopped one removed. A slow reader gets several changes as one.
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

    # --- for the manager

    def admit(self, upstream: Upstream) -> None:
        """Make the upstream a member."""
        self.members = MappingProxyType({**self.members, upstream.id: upstream})
        self.change_feed.tell(upstream.id)

    def hand_over(self, old: Upstream, new: Upstream) -> None:
        """Give the old upstream's id to the new one, which offers the old one's lists until its own are fetched."""
        if not new.fetched:
            new.offering, new.fetched, new.fetched_lists = old.offering, old.fetched, old.fetched_lists
            new.inherited = old.fetched
        self.admit(new)
        old.wakeup.wake()

    def unregister(self, upstream: Upstream) -> None:
        """Remove the upstream from the members."""
        self.members = MappingProxyType({id: each for id, each in self.members.items() if each is not upstream})
        self.change_feed.tell(upstream.id)
        upstream.wakeup.wake()


# --- The line to one server of a federation, by its id. It survives restarts and replacements of the upstream, and each request passes the
# limiter. A request sent while the upstream is down waits for it, up to its deadline; a refused request fails at once with the reason.

_DEFAULT: Final[Any] = ...


class FederatedLine:
    """A `Line`, made by `Federation.line`."""

    __slots__ = ("_federation", "_id", "_who")

    def __init__(self, federation: Federation, id: str, who: Hashable) -> None:
        """`who` is the principal on whose behalf requests are sent: waiting principals take turns."""
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
        """The connection's process, while it runs."""
        upstream = self._upstream
        return None if upstream is None else upstream.line.pid

    @property
    def name(self) -> str:
        """The server's id."""
        return str(self._id)

    @property
    def status(self) -> Status:
        """The connection's present status."""
        upstream = self._upstream
        if upstream is None:
            return Status(Phase.CLOSED)
        if upstream.parked is not None:
            return Status(Phase.PARKED, upstream.parked, generation=upstream.line.status.generation)
        return upstream.line.status

    @property
    def welcome(self) -> ServerWelcome | None:
        """The server's description of itself from the last opening of the connection."""
        upstream = self._upstream
        return None if upstream is None else upstream.line.welcome

    # --- requests

    def begin(  # noqa: PLR0913 - the options of a request
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = _DEFAULT,
        wait: bool = True,
        progress: bool = False,
        token: str | int | None = None,
        idempotent: bool | None = None,
        as_task: bool = False,
    ) -> UpstreamRequest:
        """Send a request when the limiter admits it."""
        upstream = self._upstream
        seconds = timeout
        if timeout is _DEFAULT:
            seconds = None if upstream is None else upstream.spec.patience(method)
        options: dict[str, Any] = {"progress": progress, "token": token, "idempotent": idempotent}
        if as_task:
            options["as_task"] = True
        request = UpstreamRequest(method, params, seconds, wait, self._who, options)
        if upstream is None:
            request.refuse(self._closed(), self._federation.key.name, self.name)
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
        """Send a notification. It is not limited or queued."""
        await self._passed().line.notify(method, params)

    async def set_level(self, level: str, *, timeout: float | None = _DEFAULT) -> None:
        """Set the server's log level, now, after each reconnect, and for its replacement."""
        upstream = self._passed()
        await upstream.set_level(level, upstream.spec.settings.request_timeout if timeout is _DEFAULT else timeout)

    def _passed(self) -> Upstream:
        """The upstream. Raises while it refuses requests."""
        upstream = self._upstream
        if upstream is None:
            raise self._closed()
        if (refusal := upstream.limiter.refusal()) is not None:
            raise refusal
        return upstream

    async def ready(self, timeout: float | None = _DEFAULT) -> ServerWelcome:
        """Wait until the server is ready. Raises as soon as it is parked or removed."""
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

    # --- notifications

    def subscribe(self, uri: str) -> Updates:
        """Updates of a resource, for as long as the block lasts."""
        return RelayedUpdates(self._federation, self._id, lambda line: line.subscribe(uri))

    def listen(self, *methods: str) -> Updates:
        """Notifications of these methods, or of all."""
        return RelayedUpdates(self._federation, self._id, lambda line: line.listen(*methods))

    async def watch(self) -> AsyncIterator[Status]:
        """The present status, and each one after it; slow readers get the latest."""
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
        """Connect now: out of backoff, parking, or the breaker's cooldown."""
        self._federation.retry(self._id)

    async def close(self, timeout: float | None = _DEFAULT) -> None:
        """Remove the server from the federation; requests under way have `timeout` seconds left."""
        try:
            await self._federation.stop(self._id, None if timeout is _DEFAULT else timeout)
        except NotRegistered:
            return


class RelayedUpdates:
    """Notifications of the server behind an id: when it is replaced the reader gets a gap, and then its successor's.

    It may be iterated without its block, and then listens until the loop is left.
    """

    def __init__(self, federation: Federation, id: str, open: Callable[[Line], Updates]) -> None:  # noqa: A002 - the name says what it does
        """`open` gets the updates from a line."""
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
                async for notification in updates:
                    yield notification
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
        """Whether to wait on: neither were its processes restarted (they may be parked) nor was it replaced."""
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


# --- The change feed: readers learn which keys have changed since they last read.
# A slow reader keeps one mark for each key, so its memory is bounded and no change is lost: it reads the value of the moment when it reads.
# Readers are held weakly: one without an owner is forgotten.

R_co = TypeVar("R_co", covariant=True)


class ChangeFeed:
    """Announces changes to its readers, by key."""

    __slots__ = ("_readers",)

    def __init__(self) -> None:
        self._readers: WeakSet[ChangeReader[object]] = WeakSet()

    def tell(self, key: Hashable) -> None:
        """Announce a change of this key."""
        for each in tuple(self._readers):
            each.mark(key)

    def reader(self, keys: Iterable[Hashable], read: Callable[[Hashable], R_co | None]) -> ChangeReader[R_co]:
        """A reader that yields `read(key)` for each of these keys, then for each changed key; None is skipped."""
        reader = ChangeReader(keys, read)
        self._readers.add(reader)
        return reader


class ChangeReader(Generic[R_co]):
    """An endless async iterator over changed values, for one task at a time."""

    __slots__ = ("__weakref__", "_bell", "_marked", "_read")

    def __init__(self, keys: Iterable[Hashable], read: Callable[[Hashable], R_co | None]) -> None:
        """Made by `ChangeFeed.reader`."""
        self._marked: dict[Hashable, None] = dict.fromkeys(keys)
        self._read = read
        self._bell = Wakeup()

    def mark(self, key: Hashable) -> None:
        """Mark this key as changed."""
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
