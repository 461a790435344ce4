"""One registration of a federation: what is known of a server, and its tree of processes.

::

    upstream (one_for_one, with a budget of its own)
    ├─ lease            where its connections run in another process: sees to it that there is one
    ├─ connection       the way to the server
    ├─ refresher        keeps what the server offers
    └─ probe            sends the one probe while the breaker is open

`Upstream` is no process: it outlives all of those, and is written in the loop alone. When one of them dies the others go on: the line finds
the connection's successor by its name. When they die too often their supervisor gives up, and the steward parks them.
"""

from __future__ import annotations

import asyncio
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.client.errors import CircuitOpen, Parked, Unavailable
from greenroom.actors.client.interfaces import Phase
from greenroom.auth.errors import SignInError
from greenroom.errors import GreenroomError
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

from .breaker import Breaker
from .offering import EMPTY_OFFERING, LISTS, PARTS, Offering, Part, fetch_lists
from .upstream_requests import RequestLimiter
from .upstream_spec import UpstreamState, UpstreamStatus, marked_away

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterable

    from greenroom.actors.client.interfaces import Line
    from greenroom.supervision import (
        Continue,
        ExitReason,
        Ignore,
        NoReply,
        Pid,
        Process,
        Stop,
    )

    from .federation import Federation
    from .upstream_spec import UpstreamSpec

_serials: Final = count(1)


@dataclass(eq=False, repr=False)
class Upstream:
    """What stays while its processes come and go. Another one takes its place when it is replaced."""

    id: str
    spec: UpstreamSpec
    federation: Federation

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.name = str(self.id)
        spec = self.spec
        self.serial = next(_serials)
        self.connection_process = self.federation.connection_process(self.id, spec)
        """Where its connections run, if not here."""
        self.connection, made = spec.connected(self.id, self.connection_process, self.federation.patience)
        self.line: Line = made
        """The bare line: nothing is bounded on it, and no breaker asked."""
        self.breaker = Breaker(spec.breaker, current_node().random)
        self.limiter = RequestLimiter(self)
        self.calls_beside = 0
        """Calls in progress on other connections than `line`, which pass no gate: those of a gateway's clients."""
        self.wakeup = Wakeup()
        """Rings whenever anything of this is different."""
        self.offering: Offering = EMPTY_OFFERING
        self.fetched = self.inherited = False
        """Whether its lists were ever had, and whether they are still those of the server that had the id before it."""
        self.fetched_lists: frozenset[Part] = frozenset()
        """Which of them."""
        self.refresher: Pid | None = None
        """The process that fetches them."""
        self.list_error: Exception | None = None
        """Why its lists could not be had the last time."""
        self.pid: Pid | None = None
        """Its supervisor, once it was started."""
        self.running = False
        self.last_end: ExitReason | None = None
        """Why the last of its processes that died did."""
        self.parked: Exception | None = None
        self.parkings = 0
        self.given_up: Exception | None = None
        """Why it was last parked, until it is ready again, or is to be tried at once."""
        self._forgiven = 0
        self._hastened = False
        self.revive_at: float | None = None
        """When it is tried again after it was parked, on the loop's clock,"""
        self.wake_at: float | None = None
        """and when a connection that has given up is."""
        self.since = 0.0
        """When its processes were started last."""
        self.restarts = RestartWindow(spec.intensity, spec.period)
        self.was_ready = False
        self.level: str | None = None
        """What it was last told to log."""
        self.leave_by: float | None = None
        """Until when what is under way has time, once it is to go."""
        self.sign_in: SignInError | None = None
        """Why the last call that had an outcome had none of the server's: a user has to sign in first."""
        self.gone = False
        self.stopped = False
        """Whether the whole federation was stopped, so that it is not started again."""
        self._last_state: object = None
        self._marked: tuple[Offering, Offering] | None = None

    def __repr__(self) -> str:
        return f"<Upstream {self.name} {self.status.state.value}>"

    @property
    def status(self) -> UpstreamStatus:
        """How it is."""
        state, cause = self._state_and_cause()
        in_progress = self.limiter.under_way + self.limiter.waiting + self.calls_beside
        return UpstreamStatus(self.id, state, cause, self._next_attempt(state), in_progress)

    def _next_attempt(self, state: UpstreamState) -> float | None:
        """In how many seconds it is tried again, in a state in which it is."""
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
        """A call has ended: with an error that a user has to sign in first, with another outcome, or with none that says anything of that."""
        before = self.sign_in
        if error is None or isinstance(error, PeerError):
            self.sign_in = None
        elif isinstance(error, SignInError) and needs_user(error):
            self.sign_in = error
        if (before is None) != (self.sign_in is None):
            self.refresh()

    def refusal(self) -> Exception | None:
        """Why no request may go to it or wait for it, as far as that does not depend on the request.

        One waits while it is started for the first time, or for the first time after it was lost. Once an attempt has failed the caller is told
        so at once, with the time of the next one.
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
        """It is tried again now, and requests wait for that as they do for a first start."""
        self.breaker.retry_now(self._loop.time())
        self.breaker.restore()
        self.given_up = None
        self._hastened = True
        self._forgiven = self.line.status.attempts

    @property
    def shown(self) -> Offering:
        """What clients that list it see: while it is away, as its spec says."""
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
        """What it has listed itself; None before that."""
        return self.offering if self.fetched and not self.inherited else None

    @property
    def lists(self) -> tuple[Part, ...]:
        """Which of its lists are kept."""
        return tuple(part for part in PARTS if part in self.spec.lists or part in self.federation.kept)

    def complete(self) -> None:
        """More lists are kept than were."""
        if self.refresher is not None and is_alive(self.refresher):
            Ref[ListRefresher](self.refresher).cast(ListRefresher.complete)

    @property
    def settled(self) -> bool:
        """Whether it is as good as it will be for now: ready with its lists, or parked."""
        state = self.status.state
        return state in (UpstreamState.PARKED, UpstreamState.NEEDS_SIGN_IN) or (
            state is UpstreamState.READY and self.fetched
        )

    @property
    def connected(self) -> bool:
        """Whether the process of the connection is there, whatever it is at."""
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
        self.wakeup.wake()

    async def changed(self, until: float | None) -> bool:
        """Wait until anything of it is different, or until that moment; False when it is past already."""
        left = None if until is None else until - self._loop.time()
        if left is not None and left <= 0:
            return False
        await self.wakeup.wait(left)
        return True

    async def set_level(self, level: str, timeout: float | None) -> None:
        """Say what the server is to log. A line that keeps the level says it again after each handshake."""
        keep: Any = getattr(self.line, "set_level", None)
        if keep is None:
            await self.line.request("logging/setLevel", {"level": level}, timeout=timeout)
        else:
            await keep(level, timeout=timeout)
        self.level = level

    # --- for its processes

    def on_started(self, pid: Pid, now: float) -> None:
        """Its supervisor runs."""
        self.pid = pid
        self.running = True
        self.stopped = False
        self.since = now
        self.parked = None
        self._hastened = False
        self.limiter.open()
        self.refresh()

    def on_stopped(self) -> None:
        """Its supervisor does not run any more."""
        self.running = False
        self.limiter.shut()
        if self.stopped:
            self.limiter.abandon()
        self.refresh()

    def park(self, cause: Exception) -> None:
        """Nothing of it is tried any more, for long."""
        self.parked = self.given_up = cause
        self._hastened = False
        self.limiter.abandon()
        self.refresh()

    def publish(self, offering: Offering, parts: Iterable[Part]) -> None:
        """What it offers now, by one assignment; these lists are as they were just fetched."""
        self.offering = offering
        self.fetched_lists |= frozenset(parts)
        self.fetched = True
        self.inherited = False
        self.list_error = None
        self.refresh()

    def on_list_failure(self, error: Exception) -> None:
        """Its lists could not be had."""
        self.list_error = error
        self.refresh()


class UpstreamSupervisor(Supervisor):
    """The supervisor of one registration."""

    def __init__(self, upstream: Upstream) -> None:
        """Its processes are told of the registration they work for."""
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
        """Start them."""
        begun = await super().init()
        if begun is None:
            self._upstream.on_started(self.pid, self.process.node.now())
        return begun

    async def terminate(self, reason: ExitReason) -> None:
        """Stop them, and record it: when the whole federation stops, nothing else does."""
        await super().terminate(reason)
        self._upstream.on_stopped()

    def on_restart(self) -> None:
        """It may be the connection, for which requests wait."""
        self._upstream.limiter.open()

    def handle_info(self, message: Any) -> Stop | Awaitable[Stop | None] | None:
        """One of them has ended: its reason is kept, to say later why this gave up."""
        if type(message) is Exit and any(each.pid == message.pid for each in self.children()):
            self._upstream.last_end = message.reason
            self._upstream.refresh()
        return super().handle_info(message)


def needs_user(error: BaseException | None) -> bool:
    """Whether a user has to sign in before it goes on. A login that lacks a scope for one tool is good for the others."""
    return (
        isinstance(error, SignInError)
        and not error.temporary
        and bool(error.url)
        and error.code != "insufficient_scope"
    )


# --- The curator of an upstream: keeps what its server offers, all pages of all lists, and fetches anew what has changed.
# It is told by the line: of a new handshake, after which everything is fetched, and of `list_changed`, after which that list is. Whatever
# comes within a moment, or while it fetches, is one more fetch and not many; a list that turns out to be the same is not announced. When it
# dies, what it had fetched stays, and its successor fetches again.

_CHANGED: Final = tuple(dict.fromkeys(each.changed for each in LISTS.values()))
_AGAIN: Final = Backoff(first=1.0, factor=2.0, longest=60.0, jitter=0.5)
"""How long to wait before lists that could not be had are asked for again."""


class ListRefresher(GenServer):
    """One for each upstream. Two tasks follow the line, and a third one fetches."""

    def __init__(self, upstream: Upstream) -> None:
        """What it fetches goes there."""
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
        """How the connection is: after each handshake, everything is fetched."""
        upstream = self._upstream
        async for status in upstream.line.watch():
            upstream.refresh()
            if status.phase is Phase.READY and status.generation != self._generation:
                self._generation = status.generation
                self._fetch(upstream.lists, at_once=True)

    async def _hear(self) -> None:
        """What the server says of its lists."""
        async with self._upstream.line.listen(*_CHANGED) as updates:
            async for told in updates:
                kept = self._upstream.lists
                parts: tuple[Part, ...] = tuple(part for part in kept if told.gap or LISTS[part].changed == told.method)
                if parts:
                    self._fetch(parts)

    def complete(self) -> None:
        """Fetch the lists that are wanted now and were not kept until now."""
        upstream = self._upstream
        missing: tuple[Part, ...] = tuple(part for part in upstream.lists if part not in upstream.fetched_lists)
        if missing and upstream.line.status.phase is Phase.READY:  # else the next handshake asks for it
            self._fetch(missing, pause=0.0)

    def _fetch(self, parts: tuple[Part, ...], *, at_once: bool = False, pause: float | None = None) -> None:
        self._wanted.update(parts)
        if at_once and self._fetching is not None:
            self._fetching.cancel()  # which waits for a connection that is gone, or to ask that one again
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
                break  # the next handshake asks for everything
            parts, self._wanted = self._wanted, set()
            try:
                lists = await fetch_lists(upstream.line, parts, upstream.spec.settings.max_pages)
            except GreenroomError as error:
                self._wanted |= parts
                upstream.on_list_failure(error)
                pause = _AGAIN.delay(tries, current_node().random)
                tries += 1
            else:
                tries = 0
                upstream.publish(upstream.offering.with_lists(lists), parts)

    def report_state(self) -> str:
        """How much it keeps."""
        offering = self._upstream.offering
        return ", ".join(f"{len(offering.part(part))} {part}" for part in PARTS)


# --- The sentry of an upstream: while the breaker is open it sends the one probe, a ping, each time that it is due.
# It also wakes a connection that has given up, after a long while. When it dies in the middle of a probe, that one is taken for
# failed in time, and its successor sends the next.


class BreakerProbe(GenServer):
    """One for each upstream. It has no messages: one task keeps watch."""

    def __init__(self, upstream: Upstream) -> None:
        """What it watches."""
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
        except PeerError as error:  # a server that knows no ping is there as well
            if error.code in upstream.breaker.settings.peer_codes:
                failure = error
        except GreenroomError as error:
            failure = error
        upstream.breaker.record_probe(ticket, failed=failure is not None, now=self._now(), cause=failure)
        upstream.refresh()
        upstream.limiter.pump()

    def _wake(self) -> float | None:
        """In how many seconds a connection that has given up is told to try again; None when it has not."""
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


# --- Tasks without which a process is of no use: whatever one of them raises is the process's crash, which its supervisor hears of.
# Left to itself a task that has failed is a line in asyncio's log, and the process that it worked for stays, and does nothing any more.


def vital_task(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Have the calling process do it beside its messages."""
    task = asyncio.create_task(work)
    task.add_done_callback(partial(_done, current_process("begin a vital task")))
    return task


def _done(process: Process, task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        process.crash(error)
