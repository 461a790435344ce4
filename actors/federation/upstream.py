"""One registration of a federation: what is known of a server, and its tree of processes.

::

    upstream (one_for_one, with a budget of its own)
    ├─ tenant           where its connections run in another process: sees to it that there is one
    ├─ connection       the way to the server
    ├─ curator          keeps what the server offers
    └─ sentry           sends the one probe while the breaker is open

`Upstream` is no process: it outlives all of those, and is written in the loop alone. When one of them dies the others go on: the line finds
the connection's successor by its name. When they die too often their supervisor gives up, and the steward parks them.
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.client.seam import Phase
from greenroom.supervision import Crash, Exit, Ref, Supervisor, child, is_alive
from greenroom.supervision.kernel import clock
from greenroom.supervision.supervisors.intensity import RestartWindow

from .breaker import Breaker
from .curator import Curator
from .gate import Gate
from .news import Bell
from .offering import NOTHING, PARTS, Offering
from .sentry import Sentry
from .specs import Standing, State

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from greenroom.actors.client.seam import Line
    from greenroom.supervision import (
        AlreadyRegistered,
        Continue,
        ExitReason,
        Ignore,
        NoReply,
        Pid,
        StartFailed,
        Stop,
    )
    from greenroom.supervision.supervisors.children import Child

    from .annexes import Room
    from .offering import Part
    from .specs import UpstreamSpec

_serials: Final = count(1)


class Upstream:
    """What stays while its processes come and go. Another one takes its place when it is replaced."""

    def __init__(
        self,
        id: str,
        spec: UpstreamSpec,
        source: random.Random,
        room: Room | None = None,
        also: Collection[Part] = (),
    ) -> None:
        """`source` is where the jitter comes from; `room` is where its connections run, if not here; `also` are lists to keep besides its spec's."""
        self.id = id
        self.name = str(id)
        self.spec = spec
        self.serial = next(_serials)
        self.room = room
        self._also = also
        self.connection, made = spec.connected(id, room)
        self.line: Line = made
        """The bare line: nothing is bounded on it, and no breaker asked."""
        self.breaker = Breaker(spec.breaker, source)
        self.gate = Gate(self, self.breaker)
        self.bell = Bell()
        """Rings whenever anything of this is different."""
        self.offering: Offering = NOTHING
        self.fetched = False
        """Whether its lists were ever had,"""
        self.had: frozenset[Part] = frozenset()
        """and which of them."""
        self.curator: Pid | None = None
        """Who fetches them."""
        self.trouble: Exception | None = None
        """Why its lists could not be had the last time."""
        self.pid: Pid | None = None
        """Its supervisor, once it was started."""
        self.running = False
        self.last_end: ExitReason | None = None
        """Why the last of its processes that died did."""
        self.parked: Exception | None = None
        self.parkings = 0
        self.since = 0.0
        """When its processes were started last."""
        self.falls = RestartWindow(spec.intensity, spec.period)
        self.was_ready = False
        self.level: str | None = None
        """What it was last told to log."""
        self.leave_by: float | None = None
        """Until when what is under way has time, once it is to go."""
        self.gone = False
        self.stopped = False
        """Whether the whole federation was stopped, so that nobody will start it again."""
        self.tell: Callable[[Upstream], object] | None = None
        """Whom a change of its state is told to, and of what it offers."""
        self._told: object = None

    def __repr__(self) -> str:
        return f"<Upstream {self.name} {self.standing.state.value}>"

    @property
    def standing(self) -> Standing:
        """How it is."""
        state, cause = self._judge()
        return Standing(self.id, state, cause)

    def _judge(self) -> tuple[State, BaseException | None]:
        if self.gone or (self.stopped and not self.running):
            return State.STOPPED, None
        if self.leave_by is not None:
            return State.STOPPING, None
        if self.parked is not None:
            return State.PARKED, self.parked
        status = self.line.status
        if status.phase is Phase.PARKED:
            return State.PARKED, status.cause
        if not self.breaker.closed:
            return State.OPEN, self.breaker.cause
        if self.running and status.phase is Phase.READY:
            return (State.READY, None) if self.trouble is None else (State.DEGRADED, self.trouble)
        cause = status.cause
        if cause is None and isinstance(self.last_end, Crash):
            return State.DEGRADED, self.last_end.error
        if self.was_ready or status.attempts or cause is not None or self.last_end is not None:
            return State.DEGRADED, cause
        return State.STARTING, None

    @property
    def lists(self) -> tuple[Part, ...]:
        """Which of its lists are kept."""
        return tuple(part for part in PARTS if part in self.spec.lists or part in self._also)

    def complete(self) -> None:
        """More lists are kept than were."""
        if self.curator is not None and is_alive(self.curator):
            curator: Ref[Curator] = Ref(self.curator)
            curator.cast(Curator.complete)

    @property
    def settled(self) -> bool:
        """Whether it is as good as it will be for now: ready with its lists, or parked."""
        state = self.standing.state
        return state is State.PARKED or (state is State.READY and self.fetched)

    @property
    def connected(self) -> bool:
        """Whether the process of the connection is there, whatever it is at."""
        pid = self.line.pid
        return self.running and pid is not None and is_alive(pid)

    def refresh(self) -> None:
        """Something may be different: tell whoever wants to know."""
        status = self.line.status
        self.was_ready = self.was_ready or (self.running and status.phase is Phase.READY)
        now = (self._judge(), status.phase, status.generation, status.attempts, self.running, self.offering)
        if now != self._told:
            self._told = now
            if self.tell is not None:
                self.tell(self)
        self.bell.ring()

    async def set_level(self, level: str, timeout: float | None) -> None:
        """Say what the server is to log. A line that keeps the level says it again after each handshake."""
        keep: Any = getattr(self.line, "set_level", None)
        if keep is None:
            await self.line.request("logging/setLevel", {"level": level}, timeout=timeout)
        else:
            await keep(level, timeout=timeout)
        self.level = level

    # --- for its processes

    def rises(self, pid: Pid, now: float) -> None:
        """Its supervisor runs."""
        self.pid = pid
        self.running = True
        self.stopped = False
        self.since = now
        self.parked = None
        self.gate.open()
        self.refresh()

    def falls_down(self) -> None:
        """Its supervisor does not run any more."""
        self.running = False
        self.gate.shut()
        if self.stopped:
            self.gate.abandon()
        self.refresh()

    def park(self, cause: Exception) -> None:
        """Nothing of it is tried any more, for long."""
        self.parked = cause
        self.gate.abandon()
        self.refresh()

    def publish(self, offering: Offering, parts: Iterable[Part]) -> None:
        """What it offers now, by one assignment; these lists are as they were just fetched."""
        self.offering = offering
        self.had |= frozenset(parts)
        self.fetched = True
        self.trouble = None
        self.refresh()

    def troubled(self, error: Exception) -> None:
        """Its lists could not be had."""
        self.trouble = error
        self.refresh()


class UpstreamTree(Supervisor):
    """The supervisor of one registration."""

    def __init__(self, upstream: Upstream) -> None:
        """Its processes are told of the registration they work for."""
        children: list[Any] = [
            *(() if upstream.room is None else (upstream.room.tenant(),)),
            upstream.connection.but(id="connection"),
            child(Curator, upstream).but(id="curator"),
            child(Sentry, upstream).but(id="sentry"),
        ]
        spec = upstream.spec
        super().__init__(children, intensity=spec.intensity, period=spec.period)
        self._upstream = upstream

    async def init(self) -> Continue | NoReply | Ignore | Stop | None:
        """Start them."""
        begun = await super().init()
        if begun is None:
            self._upstream.rises(self.pid, clock.now(self._otp_process.node.loop))
        return begun

    async def terminate(self, reason: ExitReason) -> None:
        """Stop them, and say so: when the whole federation stops, nobody else does."""
        await super().terminate(reason)
        self._upstream.falls_down()

    async def _otp_bring_up(self, child: Child, *, again: bool = False) -> StartFailed | AlreadyRegistered | None:
        error = await super()._otp_bring_up(child, again=again)
        if again and error is None:
            self._upstream.gate.open()  # perhaps it was the connection for which somebody waits
        return error

    def handle_info(self, message: Any) -> Stop | Awaitable[Stop | None] | None:
        """One of them has ended: remembered, for whoever asks why this gave up."""
        if type(message) is Exit and message.pid in self._otp_by_pid:
            self._upstream.last_end = message.reason
            self._upstream.refresh()
        return super().handle_info(message)
