"""Who minds one worker: opens its process, hands it one call at a time, passes on what comes back, and ends it.

It belongs to a pool's staff and is never restarted: the foreman, who monitors it, starts another when one is needed. It ends when its worker does,
and says why in its reason; its own end takes the worker with it. Whatever happens, the call that it has is answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.supervision import (
    CallTimeout,
    Continue,
    Down,
    Exit,
    GenServer,
    Shutdown,
    Stop,
    monitor,
    send_after,
    wait_down,
)

from . import words
from .losses import WorkerLost, is_cut_off, why_lost, why_not_started
from .words import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from greenroom.supervision import ExitReason, Monitor, Pid, Ref, Timer

    from .order import Order
    from .pool import Pool
    from .premises import Bench, Premises

_OPEN: Final = object()
_HARD: Final = object()
_CREDIT: Final = 256
"""After so many words of a handler it is told how many have come."""
_PATIENCE: Final = 0.25
"""How long a call that was ended may take to be over, before its process is."""
_LAST_WORDS: Final = 5.0
"""How long it may take until it is known how a process has ended."""
WORN: Final = Shutdown("the worker was replaced")


class Ready(NamedTuple):
    """A minder to its foreman: the worker can take a call. `worn` when it had better not take another one."""

    minder: Pid
    worn: bool = False


class Lost(NamedTuple):
    """A minder to its foreman: the worker has ended, or did not come up; why, as a clause."""

    minder: Pid
    why: str


class Minder(GenServer):
    """Of one worker."""

    traps_exit: ClassVar[bool] = True

    def __init__(
        self,
        foreman: Ref[Any],
        pool: Pool,
        premises: Premises,
        settings: Mapping[str, Any],
        plans: Mapping[int, bytes],
    ) -> None:
        """`plans` are the handlers that the worker loads before it is ready."""
        self._foreman = foreman
        self._pool = pool
        self._premises = premises
        self._settings = settings
        self._plans = dict(plans)
        self._known = set(plans)
        self._bench: Bench
        self._seat: Ref[Any]
        self._watching: Monitor | None = None
        self._order: Order | None = None
        self._calls = 0
        self._timer: Timer | None = None

    def init(self) -> Continue:
        """The foreman goes on; the process takes its time."""
        return Continue(_OPEN)

    async def handle_continue(self, token: Any) -> Stop | None:  # noqa: ARG002 - there is one only
        """Open a process, and seat somebody there."""
        bench = None
        try:
            bench = self._bench = await self._premises.open(self._pool)
            self._seat = await bench.seat(self.ref(), self._settings, self._plans)
        except Exception as error:  # noqa: BLE001 - whatever kept it from coming up, the callers hear of it
            why = why_not_started(error)
            if bench is not None and is_cut_off(error):
                ended = await _ending(bench, _LAST_WORDS)
                why = why if ended is None else f"{why_lost(ended, self._pool)} when it was to begin"
            return self._over(why)
        self._watching = monitor(self._seat)
        self._foreman.send(Ready(self.pid))
        return None

    # --- from the foreman

    def run(self, order: Order, plan: bytes) -> None:
        """Have the worker do this; it has nothing else to do."""
        self._order = order
        self._calls += 1
        number = order.entry.handler.number
        if number not in self._known:
            self._known.add(number)
            self._seat.send([words.PLAN, number, plan])
        self._bench.busy(True)  # noqa: FBT003 - a switch
        self._seat.send([words.RUN, self._calls, number, order.errand, order.facts])

    def cancel(self, order: Order, why: str) -> None:
        """Nobody wants it any more."""
        if order is self._order:
            self._seat.send([words.CANCEL, self._calls, why])

    def abandon(self, order: Order) -> None:
        """It has had its time to notice that: end it, and with it the process if need be."""
        if order is self._order:
            self._seat.send([words.STOP, self._calls])
            self._timer = send_after(_PATIENCE, self.pid, (_HARD, order))

    def retire(self) -> Stop:
        """Its time is over."""
        return Stop(WORN)

    # --- from the worker

    async def _lost(self, reason: ExitReason) -> Stop:
        """The seat is gone. How its process has ended is known a moment later."""
        ended = await _ending(self._bench, _LAST_WORDS)
        if ended is None:  # a process without anybody in it is no use
            self._bench.end()
        return self._gone(reason if ended is None else ended)

    def _gone(self, reason: ExitReason) -> Stop:
        why = why_lost(reason, self._pool)
        self._settle(Outcome(why=why))
        return self._over(why)

    def _over(self, why: str) -> Stop:
        self._foreman.send(Lost(self.pid, why))
        return Stop(Shutdown(WorkerLost(why)))

    def handle_info(self, message: Any) -> Any:
        """What the worker says, and what becomes of it."""
        match message:
            case [kind, int() as call, *rest]:
                if call == self._calls and self._order is not None:
                    self._heard(self._order, kind, rest)
            case Down(ref=ref, reason=reason) if ref is self._watching:
                return self._lost(reason)
            case Exit(pid=pid, reason=reason) if self._watching is not None and pid == self._bench.who.pid:
                return self._gone(reason)
            case Exit():
                return None
            case (token, order) if token is _HARD:
                if order is self._order:
                    self._bench.end()
            case _:
                super().handle_info(message)
        return None

    def _heard(self, order: Order, kind: int, rest: list[Any]) -> None:
        job = order.job
        match kind, rest:
            case words.DONE, [body, error, why, crash, worn]:
                self._done(Outcome(body, error, why, crash, worn))
            case words.SAID, [str() as method, params]:
                self._count(order)
                job.voice.emit(method, params)
            case words.LOG, [str() as level, data, logger]:
                self._count(order)
                job.voice.log(level, data, logger)
            case words.ASK, [int() as question, str() as method, params, timeout]:
                order.ask(self._seat, self._calls, question, (method, params, timeout))
            case words.UNASK, [int() as question]:
                order.unask(question)
            case words.EXPECT, [ids]:
                job.house.expect(job.facts.session_id, job.key if job.task is None else None, ids)
            case words.UPDATED, [str() as uri, extra]:
                job.house.updated(uri, extra)
            case words.CHANGED, [changed]:
                job.house.list_changed(changed)
            case words.AWAY, [retry]:
                job.voice.interrupt_stream(retry)
            case _:
                self._otp_unexpected("message", str(kind))

    def _count(self, order: Order) -> None:
        order.taken += 1
        if order.taken % _CREDIT == 0:
            self._seat.send([words.HEARD, self._calls, order.taken])

    def _done(self, outcome: Outcome) -> None:
        self._settle(outcome)
        self._bench.busy(False)  # noqa: FBT003 - a switch
        most = self._pool.max_calls
        self._foreman.send(Ready(self.pid, outcome.worn or (most is not None and self._calls >= most)))

    def _settle(self, outcome: Outcome) -> None:
        order, self._order = self._order, None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if order is not None:
            order.settle(outcome)

    def terminate(self, reason: ExitReason) -> None:
        """Whatever it ends of: nobody waits for it any longer."""
        self._settle(Outcome(why=why_lost(reason, self._pool)))


async def _ending(bench: Bench, seconds: float) -> ExitReason | None:
    """How a process has ended; None when it has not."""
    try:
        return await wait_down(bench.who, seconds)
    except CallTimeout:
        return None
