"""One upstream of a federation: the state of one server, and its tree of processes.

::

    upstream (one_for_one, with its own restart intensity)
    ├─ lease            only with isolation: keeps the process in which the connections run
    ├─ connection       the connection to the server
    ├─ refresher        fetches the server's lists
    └─ probe            sends the one probe while the breaker is open

`Upstream` is no process: it outlives all of those, and is written in the event loop alone. When one of them dies the others go on, and the line
reaches the connection's successor. When they die too often their supervisor gives up, and the manager parks the upstream.
"""

from __future__ import annotations

import asyncio
import math
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import count
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.actors.client.connection_line import ConnectionLine, KnownNames
from greenroom.actors.client.errors import CircuitOpen, Parked, Unavailable
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.client.response_cache import LineCache
from greenroom.auth.errors import SignInError
from greenroom.errors import GreenroomError
from greenroom.protocol.cache_hints import LONGEST_CACHE, Cache
from greenroom.protocol.errors import PeerError
from greenroom.supervision import (
    Backoff,
    Crash,
    Exit,
    GenServer,
    Ref,
    RestartWindow,
    Supervisor,
    Wakeup,
    child,
    current_node,
    current_process,
    is_alive,
)
from greenroom.supervision.event_bus import bus
from greenroom.transports.client.interfaces import endpoint_of

from .breaker import Breaker, BreakerState
from .offering import EMPTY_OFFERING, LISTS, PARTS, Offering, Part, fetch_lists, seconds_to_keep
from .upstream_requests import RequestLimiter
from .upstream_spec import UpstreamState, UpstreamStatus, marked_away

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Hashable, Iterable, Mapping

    from greenroom.actors.client.interfaces import Line
    from greenroom.actors.client.listening import Listening
    from greenroom.actors.client.outgoing_envelope import ToolHeaders
    from greenroom.supervision import Continue, ExitReason, Ignore, NoReply, Pid, Process, Stop

    from .federation import Federation
    from .upstream_spec import UpstreamSpec

_serials: Final = count(1)


class ListFreshness(NamedTuple):
    """How long a list that was fetched can be relied on. Times are those of the loop's clock."""

    fetched_at: float
    fresh_until: float
    """Until when its server calls it fresh,"""
    public: bool
    """for all callers alike or for this one."""


@dataclass(eq=False, repr=False)
class Upstream:
    """The state of one server that outlives its processes. A replacement is another `Upstream`."""

    id: str
    spec: UpstreamSpec
    federation: Federation

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.name = str(self.id)
        spec = self.spec
        self.serial = next(_serials)
        self.connection_process = self.federation.connection_process(self.id, spec)
        """The process in which its connections run; None for this one."""
        self.known_names = KnownNames()
        self.connection, made = spec.connected(self.id, self.connection_process, self.federation.patience)
        self.line: Line = made
        """The connection's own line, without limiter and breaker."""
        self.equip(made, spec)
        self.breaker = Breaker(spec.breaker, current_node().random)
        self.limiter = RequestLimiter(self)
        self.calls_beside = 0
        """Calls in progress on other connections than `line`, which pass no limiter: those of a gateway's clients."""
        self.wakeup = Wakeup()
        """Woken whenever any of this state changes."""
        self.offering: Offering = EMPTY_OFFERING
        self.fetched = self.inherited = False
        """Whether there are lists at all, and whether they are still those of the replaced server."""
        self.fetched_lists: frozenset[Part] = frozenset()
        """The lists that were fetched."""
        self._freshness: dict[Part, ListFreshness] = {}
        self._freshening_since: float | None = None
        """Since when lists are being fetched because they are old."""
        self.refresher: Pid | None = None
        """The process that fetches the lists."""
        self.list_error: Exception | None = None
        """Why the last fetch of its lists failed."""
        self.pid: Pid | None = None
        """The pid of its supervisor, once that was started."""
        self.running = self.was_ready = False
        self.last_end: ExitReason | None = None
        """The exit reason of its process that died last."""
        self.parked: Exception | None = None
        self.parkings = 0
        self.given_up: Exception | None = None
        """Why it was last parked, until it is ready again or retried."""
        self._forgiven = 0
        self._hastened = False
        self.revive_at: float | None = None
        """The time on the loop's clock when it is revived after it was parked,"""
        self.wake_at: float | None = None
        """and when a parked connection is retried."""
        self.since = 0.0
        """When its tree was started last."""
        self.restarts = RestartWindow(spec.intensity, spec.period)
        self.level: str | None = None
        """The log level last set at the server."""
        self.leave_by: float | None = None
        """The end of the grace for requests under way, once it is being stopped."""
        self.sign_in: SignInError | None = None
        """The error of the last call that had an outcome, if it was that a user has to sign in first."""
        self.gone = False
        self.stopped = False
        """Whether the whole federation was stopped, so that no restart follows."""
        self._last_state: object = None
        self._noted: tuple[UpstreamState | None, float, BreakerState] = (None, 0.0, BreakerState.CLOSED)
        """The state that was announced last, since when it is in that, and the breaker's."""
        self._marked: tuple[Offering, Offering] | None = None

    def __repr__(self) -> str:
        return f"<Upstream {self.name} {self.status.state.value}>"

    def equip(self, line: Line, spec: UpstreamSpec, principal: Hashable = None) -> None:
        """Give a line to this server what all lines of the federation share. `principal` is on whose behalf it is used; None for the federation."""
        federation = self.federation
        if not isinstance(line, ConnectionLine):
            return
        line.verdicts = federation.verdicts
        line.known_names = self.known_names
        line.host = federation.key.name
        if federation.cache is not None:
            server = self.serial, endpoint_of(spec.route) or id(spec.route)
            line.use_cache(LineCache(federation.cache, spec.route, line.key, server=server, principal=principal))

    def forget_results(self) -> None:
        """Forget what is kept of this server's lists and resources."""
        if isinstance(self.line, ConnectionLine) and self.line.cache is not None:
            self.line.cache.forget()

    @property
    def status(self) -> UpstreamStatus:
        """The present status."""
        state, cause = self._state_and_cause()
        in_progress = self.limiter.under_way + self.limiter.waiting + self.calls_beside
        welcome = self.line.welcome
        return UpstreamStatus(
            self.id,
            state,
            cause,
            self._next_attempt(state),
            in_progress,
            self.left_out_tools,
            "" if welcome is None else welcome.version,
            since=self._loop.time() - self._noted[1] if state is self._noted[0] else None,
            waiting=self.limiter.waiting,
            breaker=self.breaker.state.value,
            restarts=max(0, self.line.status.generation - 1),
            process=self.line.server_process if isinstance(self.line, ConnectionLine) else None,
        )

    @property
    def left_out_tools(self) -> Mapping[str, str]:
        """The listed tools that cannot be called over HTTP, by name, and why: their `x-mcp-header` is invalid."""
        return {} if self.tool_headers is None else dict(self.tool_headers.left_out)

    @property
    def tool_headers(self) -> ToolHeaders | None:
        """The headers that calls of listed tools need; None for another kind of client."""
        return self.line.tool_headers if isinstance(self.line, ConnectionLine) else None

    def _next_attempt(self, state: UpstreamState) -> float | None:
        """Seconds until the next attempt in this state; None when none is due."""
        match state:
            case UpstreamState.PARKED | UpstreamState.NEEDS_SIGN_IN:
                due = self.revive_at if self.parked is not None else self.wake_at
                return None if due is None else max(0.0, due - self._loop.time())
            case UpstreamState.OPEN if not self.breaker.tripped:
                return self.breaker.retry_in(self._loop.time())
            case UpstreamState.OPEN | UpstreamState.DEGRADED:
                status = self.line.status
                trying = status.phase in (Phase.CONNECTING, Phase.INITIALIZING)
                return 0.0 if trying else status.retry_in
            case _:
                return None

    def _state_and_cause(self) -> tuple[UpstreamState, BaseException | None]:
        if self.gone or (self.stopped and not self.running):
            return UpstreamState.STOPPED, None
        if self.leave_by is not None:
            return UpstreamState.STOPPING, None
        if self.parked is not None and not self._hastened:
            return UpstreamState.PARKED, self.parked
        status = self.line.status
        if status.phase is Phase.PARKED:
            return (UpstreamState.NEEDS_SIGN_IN if needs_user(status.cause) else UpstreamState.PARKED), status.cause
        if self.sign_in is not None and self.running and status.phase is Phase.READY:
            return UpstreamState.NEEDS_SIGN_IN, self.sign_in
        if not self.breaker.closed:
            return UpstreamState.OPEN, self.breaker.cause
        if self.running and status.phase is Phase.READY:
            return (UpstreamState.READY, None) if self.list_error is None else (UpstreamState.DEGRADED, self.list_error)
        cause = status.cause
        if cause is None and isinstance(self.last_end, Crash):
            return UpstreamState.DEGRADED, self.last_end.error
        if self.was_ready or status.attempts or cause is not None or self.last_end is not None:
            return UpstreamState.DEGRADED, cause
        return UpstreamState.STARTING, None

    def note_sign_in(self, error: BaseException | None) -> None:
        """Note from a call's outcome whether a user has to sign in first. Outcomes other than a reply or a sign-in error change nothing."""
        before = self.sign_in
        if error is None or isinstance(error, PeerError):
            self.sign_in = None
        elif isinstance(error, SignInError) and needs_user(error):
            self.sign_in = error
        if (before is None) != (self.sign_in is None):
            self.refresh()

    def refusal(self) -> Exception | None:
        """The error with which all requests are refused now; None if they may be sent or wait.

        Requests wait for a first start, and for the first attempt after a loss. After a failed attempt they are refused at once, with the time
        of the next attempt.
        """
        state, cause = self._state_and_cause()
        why = cause if isinstance(cause, Exception) else None
        if state is UpstreamState.NEEDS_SIGN_IN:
            return (
                copy(why) if self.line.status.phase is not Phase.READY else None
            )  # each caller adds its own traceback
        if state is UpstreamState.PARKED:
            return Parked(self.name, why, self._next_attempt(state))
        if not self.breaker.closed:
            return CircuitOpen(self.name, why, self._next_attempt(UpstreamState.OPEN))
        if self._absent():
            return Unavailable(self.name, why or self.given_up, self._next_attempt(UpstreamState.DEGRADED))
        return None

    def _absent(self) -> bool:
        """Whether an attempt has failed since it was last ready."""
        status = self.line.status
        if self.federation.patience is None or status.phase is Phase.READY:
            return False
        return self.given_up is not None or status.attempts > self._forgiven

    def retry_now(self) -> None:
        """It is being retried now: requests wait for that as for a first start."""
        self.breaker.retry_now(self._loop.time())
        self.breaker.restore()
        self.given_up = None
        self._hastened = True
        self._forgiven = self.line.status.attempts

    @property
    def shown(self) -> Offering:
        """The lists to show to clients: while it cannot be reached, as its spec's `away` says."""
        away = self.spec.away
        if away == "keep" or not self.fetched or self.refusal() is None:
            return self.offering
        if away == "withdraw":
            return self.offering.with_lists({"tools": ()})
        if self._marked is None or self._marked[0] is not self.offering:
            tools = [marked_away(one) for one in self.offering.tools.values()]
            self._marked = self.offering, self.offering.with_lists({"tools": tools})
        return self._marked[1]

    @property
    def own_offering(self) -> Offering | None:
        """The lists that were fetched from this very server; None before that."""
        return self.offering if self.fetched and not self.inherited else None

    @property
    def lists(self) -> tuple[Part, ...]:
        """The lists to keep."""
        return tuple(part for part in PARTS if part in self.spec.lists or part in self.federation.kept)

    def complete(self) -> None:
        """Fetch lists that are to be kept and were not fetched yet."""
        if self.refresher is not None and is_alive(self.refresher):
            Ref[ListRefresher](self.refresher).cast(ListRefresher.complete)

    def old_lists(self, parts: Iterable[Part]) -> tuple[Part, ...]:
        """Those of these lists that are too old to be shown without asking the server, while it can be asked."""
        if self.line.status.phase is not Phase.READY or self.list_error is not None:
            return ()  # the next handshake fetches everything, and a fetch that failed is repeated by itself
        now = self._loop.time()
        return tuple(part for part in parts if self._old_at(part) <= now)

    def _old_at(self, part: Part) -> float:
        """From when on a list is fetched again before it is shown."""
        known = self._freshness.get(part)
        if known is None:
            return math.inf
        listening: Listening | None = getattr(getattr(self.line, "readers", None), "listening", None)
        is_heard = listening is None or listening.hears(LISTS[part].changed)
        said = known.fresh_until - known.fetched_at
        return known.fetched_at + seconds_to_keep(part, said, self.line.welcome, is_heard=is_heard)

    def freshen(self, parts: tuple[Part, ...], patience: float) -> float | None:
        """Fetch these lists again, unless that is under way. Returns the time until when readers wait for them; None when they have waited in vain."""
        now = self._loop.time()
        if self._freshening_since is None:
            self._freshening_since = now
            if self.refresher is not None and is_alive(self.refresher):
                Ref[ListRefresher](self.refresher).cast(ListRefresher.fetch_now, parts)
        until = self._freshening_since + patience
        return until if until > now else None

    def cache_of(self, part: Part) -> Cache:
        """For how long clients may keep this list, by what its server says. A list that is not what the server would send is not to be kept."""
        known = self._freshness.get(part)
        if known is None or self.shown is not self.offering:
            return Cache(0.0)
        return Cache(min(max(0.0, known.fresh_until - self._loop.time()), LONGEST_CACHE), public=known.public)

    @property
    def settled(self) -> bool:
        """Whether its start is over: ready with its lists, parked, or waiting for a sign-in."""
        state = self.status.state
        return state in (UpstreamState.PARKED, UpstreamState.NEEDS_SIGN_IN) or (
            state is UpstreamState.READY and self.fetched
        )

    @property
    def connected(self) -> bool:
        """Whether the connection's process runs, in whatever phase."""
        pid = self.line.pid
        return self.running and pid is not None and is_alive(pid)

    def refresh(self) -> None:
        """Update the state after a possible change, and wake its watchers."""
        status = self.line.status
        if self.running and status.phase is Phase.READY:
            self.was_ready = True
            self.given_up, self._forgiven = None, 0
            self.breaker.restore()
        elif status.phase is Phase.PARKED:
            self.given_up = status.cause
        elif self.was_ready and status.attempts and self._absent():
            self.breaker.trip(self._loop.time(), status.cause)
            self.limiter.refuse_waiting()
        now = (self._state_and_cause(), status.phase, status.generation, status.attempts, self.running, self.offering)
        if now != self._last_state:
            self._last_state = now
            if self.federation.members.get(self.id) is self:
                self.federation.change_feed.tell(self.id)
        self._note_state(now[0][0])
        self.wakeup.wake()

    def _note_state(self, state: UpstreamState) -> None:
        """Announce another state to the listeners of events, of the upstream or its breaker."""
        before, since, breaker_before = self._noted
        self._noted = state, since if state is before else self._loop.time(), self.breaker.state
        if bus.listener is None:
            return
        from .upstream_events import announce_breaker, announce_state  # noqa: PLC0415 - only a program with a listener loads the events

        if state is not before:
            announce_state(self, "" if before is None else before.value)
        if self.breaker.state is not breaker_before:
            announce_breaker(self)

    async def changed(self, until: float | None) -> bool:
        """Wait for any change, or until that time; False when it is over already."""
        left = None if until is None else until - self._loop.time()
        if left is not None and left <= 0:
            return False
        await self.wakeup.wait(left)
        return True

    async def set_level(self, level: str, timeout: float | None) -> None:
        """Set the server's log level. The line sets it again after each reconnect, if it can."""
        keep: Any = getattr(self.line, "set_level", None)
        if keep is None:
            await self.line.request("logging/setLevel", {"level": level}, timeout=timeout)
        else:
            await keep(level, timeout=timeout)
        self.level = level

    # --- called by its processes

    def on_started(self, pid: Pid, now: float) -> None:
        """Its supervisor has started."""
        self.pid = pid
        self.running = True
        self.stopped = False
        self.since = now
        self.parked = None
        self._hastened = False
        self.limiter.open()
        self.refresh()

    def on_stopped(self) -> None:
        """Its supervisor has ended."""
        self.running = False
        self.limiter.shut()
        if self.stopped:
            self.limiter.abandon()
        self.refresh()

    def park(self, cause: Exception) -> None:
        """Park it: fail its requests, and make no attempt until it is revived."""
        self.parked = self.given_up = cause
        self._hastened = False
        self.limiter.abandon()
        self.refresh()

    def publish(
        self, offering: Offering, parts: Iterable[Part], freshness: Mapping[Part, ListFreshness] = MappingProxyType({})
    ) -> None:
        """Set the lists, by one assignment; `parts` were just fetched."""
        self.offering = offering
        self.known_names.learn("tools/call", list(offering.tools.values()))
        self.known_names.learn("prompts/get", list(offering.prompts.values()))
        self.fetched_lists |= frozenset(parts)
        self._freshness |= freshness
        self._freshening_since = None
        self.fetched = True
        self.inherited = False
        self.list_error = None
        self.refresh()

    def on_list_failure(self, error: Exception) -> None:
        """The fetch of its lists failed."""
        self.list_error = error
        self._freshening_since = None
        self.refresh()


class UpstreamSupervisor(Supervisor):
    """The supervisor of one upstream's processes."""

    def __init__(self, upstream: Upstream) -> None:
        """`upstream` is the state that its processes share."""
        children: list[Any] = [
            *(() if upstream.connection_process is None else (upstream.connection_process.lease_spec(),)),
            upstream.connection.but(id="connection"),
            child(ListRefresher, upstream).but(id="refresher"),
            child(BreakerProbe, upstream).but(id="probe"),
        ]
        spec = upstream.spec
        super().__init__(children, intensity=spec.intensity, period=spec.period)
        self._upstream = upstream

    async def init(self) -> Continue | NoReply | Ignore | Stop | None:
        """Start the children, and tell the upstream."""
        begun = await super().init()
        if begun is None:
            self._upstream.on_started(self.pid, self.process.node.now())
        return begun

    async def terminate(self, reason: ExitReason) -> None:
        """Stop the children, and tell the upstream: when the whole federation stops, the manager may be gone already."""
        await super().terminate(reason)
        self._upstream.on_stopped()

    def on_restart(self) -> None:
        """A child was restarted, perhaps the connection: send the requests that wait for it."""
        self._upstream.limiter.open()

    def handle_info(self, message: Any) -> Stop | Awaitable[Stop | None] | None:
        """Keep the reason of a child that ended, as the cause if this supervisor gives up."""
        if type(message) is Exit and any(each.pid == message.pid for each in self.children()):
            self._upstream.last_end = message.reason
            self._upstream.refresh()
        return super().handle_info(message)


def needs_user(error: BaseException | None) -> bool:
    """Whether the server is unusable until a user signs in. A login that only lacks a scope for one tool does not count."""
    return (
        isinstance(error, SignInError)
        and not error.temporary
        and bool(error.url)
        and error.code != "insufficient_scope"
    )


# --- The list refresher of an upstream: fetches all pages of the server's lists, and fetches again what has changed.
# It follows the line: a new handshake makes it fetch everything, a `list_changed` notification that list. Changes that come within the
# settling time, or during a fetch, lead to one more fetch; a list that turns out to be the same is not announced. When the refresher
# dies, the fetched lists stay, and its successor fetches again.

_CHANGED: Final = tuple(dict.fromkeys(each.changed for each in LISTS.values()))
_AGAIN: Final = Backoff(first=1.0, factor=2.0, longest=60.0, jitter=0.5)
"""The pauses after a fetch that failed."""


class ListRefresher(GenServer):
    """Keeps one upstream's lists up to date. Two tasks follow the line, and a third one fetches."""

    def __init__(self, upstream: Upstream) -> None:
        """`upstream` receives the lists."""
        self._upstream = upstream
        self._wanted: set[Part] = set()
        self._fetching: asyncio.Task[None] | None = None
        self._generation: int | None = None
        self._tasks: list[asyncio.Task[None]] = []

    def init(self) -> None:
        """Follow the line."""
        self._upstream.refresher = self.pid
        self._tasks = [vital_task(self._follow()), vital_task(self._hear())]

    async def _follow(self) -> None:
        """Follow the connection's status: after each handshake, fetch everything."""
        upstream = self._upstream
        async for status in upstream.line.watch():
            upstream.refresh()
            if status.phase is Phase.READY and status.generation != self._generation:
                self._generation = status.generation
                self._fetch(upstream.lists, at_once=True)

    async def _hear(self) -> None:
        """Follow the server's notifications of changed lists."""
        async with self._upstream.line.listen(*_CHANGED) as updates:
            async for notification in updates:
                kept = self._upstream.lists
                parts: tuple[Part, ...] = tuple(
                    part for part in kept if notification.gap or LISTS[part].changed == notification.method
                )
                if parts:
                    self._fetch(parts)

    def complete(self) -> None:
        """Fetch the lists that are to be kept and were not fetched yet."""
        upstream = self._upstream
        missing: tuple[Part, ...] = tuple(part for part in upstream.lists if part not in upstream.fetched_lists)
        if missing and upstream.line.status.phase is Phase.READY:  # otherwise the next handshake fetches everything
            self._fetch(missing, pause=0.0)

    def fetch_now(self, parts: tuple[Part, ...]) -> None:
        """Fetch these lists again: they are old."""
        self._fetch(parts, pause=0.0)

    def _fetch(self, parts: tuple[Part, ...], *, at_once: bool = False, pause: float | None = None) -> None:
        self._wanted.update(parts)
        if at_once and self._fetching is not None:
            self._fetching.cancel()  # it waits for a connection that is gone, or for its pause
            self._fetching = None
        if self._fetching is None or self._fetching.done():
            settling = self._upstream.spec.settling if pause is None else pause
            self._fetching = vital_task(self._fetch_all(0.0 if at_once else settling))

    async def _fetch_all(self, pause: float) -> None:
        upstream = self._upstream
        tries = 0
        while self._wanted:
            await asyncio.sleep(pause)
            pause = upstream.spec.settling
            if upstream.line.status.phase is not Phase.READY:
                break  # the next handshake fetches everything
            parts, self._wanted = self._wanted, set()
            headers = upstream.tool_headers if "tools" in parts else None
            if headers is not None:
                headers.begin_list()
            try:
                lists = await fetch_lists(upstream.line, parts, upstream.spec.settings.max_pages)
            except GreenroomError as error:
                self._wanted |= parts
                upstream.on_list_failure(error)
                pause = _AGAIN.delay(tries, current_node().random)
                tries += 1
            else:
                tries = 0
                if headers is not None:
                    headers.end_list()
                now = self.process.node.now()
                entries: dict[Part, list[Any]] = {part: each.entries for part, each in lists.items()}
                freshness: dict[Part, ListFreshness] = {
                    part: ListFreshness(now, each.fresh_until, each.public) for part, each in lists.items()
                }
                upstream.publish(upstream.offering.with_lists(entries), parts, freshness)

    def report_state(self) -> str:
        offering = self._upstream.offering
        return ", ".join(f"{len(offering.part(part))} {part}" for part in PARTS)


# --- The breaker probe of an upstream: while the breaker is open it sends one ping (`server/discover` in the stateless era), each time that a probe is due.
# It also retries a parked connection after a long pause. When it dies during a ping, the breaker counts that probe as failed after a while,
# and its successor sends the next one.


class BreakerProbe(GenServer):
    """Sends the probes of one upstream. It receives no messages: one task does the work."""

    def __init__(self, upstream: Upstream) -> None:
        """`upstream` has the breaker to probe for."""
        self._upstream = upstream
        self._wakings = 0
        self._task: asyncio.Task[None] | None = None

    def init(self) -> None:
        """Begin."""
        self._task = vital_task(self._watch())

    def _now(self) -> float:
        return self.process.node.now()

    async def _watch(self) -> None:
        upstream = self._upstream
        while True:
            ticket = upstream.breaker.probe(self._now())
            if ticket is not None:
                await self._probe(ticket)
                continue
            waits = [each for each in (upstream.breaker.retry_in(self._now()), self._wake()) if each is not None]
            await upstream.wakeup.wait(min(waits, default=None))

    async def _probe(self, ticket: int) -> None:
        upstream = self._upstream
        upstream.refresh()
        failure: GreenroomError | None = None
        try:
            await upstream.line.request("ping", timeout=upstream.breaker.settings.probe_timeout)
        except PeerError as error:  # an error reply: the server is alive, even if it does not implement ping
            if error.code in upstream.breaker.settings.peer_codes:
                failure = error
        except GreenroomError as error:
            failure = error
        upstream.breaker.record_probe(ticket, failed=failure is not None, now=self._now(), cause=failure)
        upstream.refresh()
        upstream.limiter.pump()

    def _wake(self) -> float | None:
        """Retry a parked connection when it is time. Returns the seconds until then; None when it is not parked."""
        upstream = self._upstream
        if upstream.line.status.phase is not Phase.PARKED:
            upstream.wake_at = None
            if upstream.line.status.phase is Phase.READY:
                self._wakings = 0
            return None
        now = self._now()
        if upstream.wake_at is None:
            upstream.wake_at = now + upstream.spec.revive.delay(self._wakings, current_node().random)
        if upstream.wake_at <= now:
            upstream.wake_at = None
            self._wakings += 1
            upstream.line.retry()
            return None
        return upstream.wake_at - now


# --- Vital tasks: an exception in one crashes the process that it works for, so that the supervisor restarts it.
# A plain task that fails is only a line in asyncio's log, and its process would stay alive and do nothing.


def vital_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run this beside the calling process's messages, and crash the process if it raises."""
    task = asyncio.create_task(work)
    task.add_done_callback(partial(_done, current_process("begin a vital task")))
    return task


def _done(process: Process, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        process.crash(error)
