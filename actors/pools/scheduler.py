"""The scheduler of a pool: the calls that wait for a worker, whose principals take turns, and how many workers there are.

::

    pool (one_for_all)
    ├─ staff       dynamic; a minder for each worker, never restarted
    └─ foreman     has the waiting calls and the free workers; starts minders, and lets them go

A worker that is lost while it had a call is replaced when the next call needs one, at once. One that does not come up, or that dies with
nothing to do, is not tried again and again: the callers that have no other worker to wait for get the reason, and each further attempt waits
longer. Jobs call it; when it dies, they hear so, and its successor begins with nothing.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, cast

from greenroom.protocol.errors import RequestCancelled
from greenroom.supervision import (
    TEMPORARY,
    Backoff,
    Down,
    DynamicSupervisor,
    GenServer,
    Pid,
    Ref,
    Reject,
    Shutdown,
    Stop,
    child,
    later,
    monitor,
    send_after,
    start_child,
)
from greenroom.supervision.fair_queue import FairQueue

from .handler_spec import plan_of, plans_of
from .remote_call import Outcome
from .worker_proxy import WORN, Lost, Minder, Ready, why_lost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from greenroom.actors.entries import Entry
    from greenroom.supervision import ExitReason, Timer

    from .pool import Pool
    from .pools import Premises
    from .remote_call import Claims, Order

_DOUBTED: Final = object()
_DOUBT: Final = 0.05
"""How long a worker whose call was ended may have it still, before another takes its place."""
_MOMENT: Final = 0.5
"""How often it is looked whether workers have begun with what they were given."""
_TOO_LONG: Final = 0.05
"""How long a call may last, before those that lie behind it go elsewhere."""
_STOPPING: Final = 1.5
"""How long a minder may take to end its worker in order; then its process is killed."""
UNUSED: Final = Shutdown("nothing runs in this pool any more")


@dataclass(eq=False, repr=False)
class Foreman(GenServer):
    """Of one pool, in one company."""

    traps_exit: ClassVar[bool] = True

    _pool: Pool
    _staff: Ref[DynamicSupervisor]
    _premises: Premises
    _settings: Mapping[str, Any]
    _entries: Callable[[], Sequence[Entry]]
    """Those that run here, as they are registered now: a worker has loaded them before it is ready."""

    def __post_init__(self) -> None:
        self._plans: dict[int, bytes] = {}
        self._hands: dict[Pid, Hand] = {}
        self._free: list[Hand] = []
        self._waiting: FairQueue[Order] = FairQueue()
        self._attempts = Attempts()
        self._hiring = False
        self._watching = False
        self._judged_at: float | None = None
        self._timers: dict[Callable[[], Stop | None], Timer] = {}
        """By what is to be done then."""

    def init(self) -> None:
        """Those that are to be warm are started now."""
        self._arm(self._pool.idle, self._look)
        self._staff_up()

    def terminate(self, reason: ExitReason) -> None:
        """Cancel the timers, close the claims, settle the calls: a successor would not know of these."""
        for timer in self._timers.values():
            timer.cancel()
        for hand in self._hands.values():
            if hand.claims is not None:
                hand.claims.close()
        for order in self._waiting:
            order.settle(Outcome(why=f"its pool was stopped ({reason})"))

    def report_state(self) -> str:
        """The number of workers, and of calls that wait."""
        return f"{len(self._hands)} workers, {len(self._free)} of them free, {len(self._waiting)} calls wait"

    # --- calls

    def submit(self, order: Order) -> Outcome:
        """Have it done: now, or when its turn comes. The answer is how it has ended."""
        cancelled = order.job.cancelled
        if cancelled:
            raise Reject(RequestCancelled(cancelled.reason or ""))
        order.caller = self.caller
        self._waiting.add(order.who, order)
        self._serve()
        self._give_ahead()
        if order not in self._waiting:
            return later()  # type: ignore[no-any-return]
        present = [hand for hand in self._hands.values() if not hand.is_leaving]
        if not present and not self._hiring:
            self._waiting.remove(order)
            return Outcome(why=self._attempts.why)
        coming = sum(hand.is_coming for hand in present) + self._hiring
        if len(self._waiting) > self._pool.queue + coming:
            busy = f"{len(present)} process{'es are' if len(present) != 1 else ' is'} busy"
            why = f"{busy}, and {len(self._waiting) - 1} calls wait for that already; try again later"
            displaced = self._waiting.displace(order.who, more=0)
            if displaced is None:
                self._waiting.remove(order)
                return Outcome(why=why)
            displaced.settle(Outcome(why=why))
        return later()  # type: ignore[no-any-return]

    def cancel(self, order: Order, why: str) -> None:
        """Cancel a call that its caller does not want any more; if it runs, it may notice."""
        hand, waited = self._withdraw(order)
        if waited:
            order.caller.fail(RequestCancelled(why))
        elif hand is not None:
            hand.ref.cast(Minder.cancel, order, why)

    def drop(self, order: Order) -> None:
        """The caller is gone: its worker is not waited for."""
        order.is_dropped = True
        hand, waited = self._withdraw(order)
        if hand is not None and not waited:
            hand.ref.cast(Minder.abandon, order)
            send_after(_DOUBT, self.pid, (_DOUBTED, order))

    def _withdraw(self, order: Order) -> tuple[Hand | None, bool]:
        """The worker that had it, and whether it waited here, or had not been begun there; then it does so no more."""
        hand = self._hand_of(order)
        if hand is not None and order is not hand.orders[0]:
            self._take_back(hand, [order])
        return hand, self._waiting.remove(order)

    def _hand_of(self, order: Order) -> Hand | None:
        hand = None if order.minder is None else self._hands.get(order.minder)
        return hand if hand is not None and order in hand.orders else None

    def _assign(self, hand: Hand, order: Order) -> bool:
        """Have it do that. False when no worker could find the handler."""
        plan = self._plan_of(order)
        if plan is None:
            return False
        if not hand.orders:
            hand.since = self._now()
        hand.number += 1
        hand.orders.append(order)
        order.minder, order.number = hand.ref.pid, hand.number
        hand.ref.cast(Minder.run, order, hand.number, plan)
        if self._judged_at is None:
            self._judge_soon()
        return True

    def _plan_of(self, order: Order) -> bytes | None:
        number = order.entry.handler.number
        try:
            if number not in self._plans:
                self._plans[number] = plan_of(order.entry)
        except Exception as error:  # noqa: BLE001 - what cannot be found there is its own call's failure
            order.caller.fail(error.with_traceback(None))  # its frames would hold a worker
        return self._plans.get(number)

    def _give_ahead(self) -> None:
        """Where all are busy, and there will not be more, those have their next calls lying before them."""
        if self._hiring or len(self._hands) < self._pool.most:
            return
        for hand in self._hands.values() if self._waiting else ():
            for _ in range(min(hand.room_ahead, len(self._waiting))):
                if not self._watching:
                    self._watching = True
                    self._arm(_TOO_LONG, self._look_ahead)
                order = self._waiting.take()
                if order is not None:
                    self._assign(hand, order)

    def _take_back(self, hand: Hand, orders: Sequence[Order]) -> None:
        """These wait again, before all others of their owner; those of them that its worker has not begun."""
        for order in hand.take_back(orders):
            self._wait_again(order)

    def _wait_again(self, order: Order) -> None:
        order.minder = None
        self._waiting.add_first(order.who, order)

    def _look_ahead(self) -> None:
        """Take back the calls behind one that lasts: they go to another worker, or wait for the first that is free."""
        self._watching = False
        soon = self._now() - _TOO_LONG
        for hand in self._hands.values():
            if len(hand.orders) > 1:
                if hand.since <= soon:
                    self._take_back(hand, hand.orders)
                    hand.is_brisk = False  # until it has come to an end of it
                else:
                    self._watching = True
        self._serve()
        if self._watching:
            self._arm(_TOO_LONG, self._look_ahead)

    def _judge_soon(self) -> None:
        self._judged_at = self._now() + _MOMENT
        self._arm(_MOMENT, self._judge)

    def _judge(self) -> None:
        now, due = self._now(), self._judged_at or 0.0
        self._judged_at = None
        verdict = judged(self._hands.values(), now, late=now - due > _MOMENT)
        for order in verdict.back:
            self._wait_again(order)
        for hand in verdict.hung:
            hand.ref.cast(Minder.give_up)
        if verdict.is_open:
            self._judge_soon()
        self._serve()

    def _serve(self) -> None:
        """Give waiting calls to free workers, and start workers for the rest."""
        while self._free and self._waiting:
            self._take(self._free.pop())
        self._staff_up()

    def _take(self, hand: Hand) -> None:
        """It can take a call: the first that waits, or none."""
        while (order := self._waiting.take()) is not None:
            if self._assign(hand, order):
                return
        hand.idle_since = self._now()
        self._free.append(hand)

    # --- workers

    def handle_info(self, message: Any) -> Stop | None:
        """What minders and clocks say."""
        match message:
            case Ready(minder=pid):
                hand = self._hands.get(pid)
                if hand is not None:
                    self._ready(hand, message)
            case Lost(minder=pid, why=why):
                if pid in self._hands:
                    self._hands[pid].why = why
            case Down(pid=Pid() as pid, reason=reason):
                hand = self._hands.pop(pid, None)
                if hand is not None:
                    self._gone(hand, reason)
            case (token, order) if token is _DOUBTED:
                self._doubt(order)
            case _ if callable(message) and message in self._timers:
                return cast("Stop | None", message())
            case _:
                super().handle_info(message)
        return None

    def _doubt(self, order: Order) -> None:
        """A call that was ended has not noticed at once, and may never: its worker is not waited for."""
        hand = self._hand_of(order)
        if hand is not None:
            hand.is_leaving = True
            self._take_back(hand, hand.orders)
            self._staff_up()

    def _ready(self, hand: Hand, said: Ready) -> None:
        if said.order is None:
            hand.is_coming = False
            hand.claims = said.claims
        else:
            self._attempts.succeeded()
            while hand.orders and hand.orders.popleft() is not said.order:
                ...
        hand.is_worn = hand.is_worn or said.worn
        hand.is_brisk, hand.since = True, self._now()
        hand.is_leaving = False  # also one that was doubted: its call has ended in time
        hand.is_leaving = hand.is_worn or self._surplus() > 0
        if hand.is_leaving:
            self._take_back(hand, hand.orders)
        if hand.orders:
            self._give_ahead()
        elif hand.is_leaving:
            self._let_go(hand)
        else:
            self._take(hand)
            self._give_ahead()

    def _surplus(self) -> int:
        return sum(not hand.is_leaving for hand in self._hands.values()) - self._pool.most

    def _let_go(self, hand: Hand) -> None:
        hand.is_leaving = True
        hand.ref.cast(Minder.retire)
        self._staff_up()

    def _gone(self, hand: Hand, reason: ExitReason) -> None:
        if hand in self._free:
            self._free.remove(hand)
        why = hand.why or why_lost(reason)
        if hand.orders:
            for order in hand.give_back():  # its process may live for a while: it has lost its minder, perhaps
                self._wait_again(order)
            for order in hand.orders:
                order.settle(Outcome(why=why))  # if its minder has not
        elif reason != WORN and (hand.is_coming or not hand.is_leaving):
            self._failed(why, hand.hired_at)
        self._staff_up()

    def _failed(self, why: str, began: float) -> None:
        """A worker did not come up, or died idle: the next attempt has to wait. Callers fail if they have only that to wait for."""
        pause = self._attempts.failed(why, self._now(), began)
        if pause is not None and self._pool.warm:
            self._arm(pause, self._try_again)
        if not any(not hand.is_leaving for hand in self._hands.values()):
            waiting, self._waiting = self._waiting, FairQueue()
            for order in waiting:
                order.settle(Outcome(why=why))

    def _staff_up(self) -> None:
        """See to it that there are as many as are needed, as far as there may be."""
        if not self._hiring and self._is_short():
            self._hiring = True
            self.ref().cast(Foreman.hire)

    def _is_short(self) -> bool:
        present = [hand for hand in self._hands.values() if not hand.is_leaving]
        if len(present) >= self._pool.most or not self._attempts.may_be_made(self._now()):
            return False
        coming = sum(hand.is_coming for hand in present)
        return len(present) < self._pool.warm or coming < len(self._waiting)

    async def hire(self) -> None:
        """Start minders, which open their processes by themselves."""
        try:
            entries = self._entries()
            while self._is_short():
                now, plans = self._now(), plans_of(entries, self._plans)
                spec = child(Minder, self.ref(), self._pool, self._premises, self._settings, plans)
                minder: Ref[Minder] = await start_child(self._staff, spec.but(restart=TEMPORARY, shutdown=_STOPPING))
                self._hands[minder.pid] = Hand(minder, now)
                monitor(minder)
        finally:
            self._hiring = False

    def _look(self) -> Stop | None:
        """Let workers go that have been idle for long; and stop, if no handler uses the pool."""
        now, idle = self._now(), self._pool.idle
        spare = sum(not hand.is_leaving for hand in self._hands.values()) - self._pool.warm
        for hand in [each for each in self._free if now - each.idle_since >= idle][: max(0, spare)]:
            self._free.remove(hand)
            self._let_go(hand)
        if not (self._hands or self._waiting or self._hiring or self._entries()):
            return Stop(UNUSED)  # its handlers were registered anew, with other pools
        self._arm(idle / 2, self._look)
        return None

    def _try_again(self) -> None:
        self._attempts.renew()
        self._staff_up()

    def _arm(self, seconds: float, action: Callable[[], Stop | None]) -> None:
        before = self._timers.get(action)
        if before is not None:
            before.cancel()
        self._timers[action] = send_after(seconds, self.pid, action)

    def _now(self) -> float:
        return self.process.node.now()


# --- A worker, as the foreman of its pool sees it: what it is at, what it was given ahead, and whether it counts.

_AHEAD: Final = 16
"""How many calls may be with one worker, the one that it is at included;"""
_FEW: Final = 8
"""and when it has so few, it gets more: several go out in one piece."""
_MOVES: Final = 3
"""How many workers may be lost before they began with a call, until that is its answer."""
_BEGINS: Final = 1.0
"""How long a worker that has nothing else to do may take to begin with a call; twice as long when the call was another's before."""


@dataclass(slots=True, eq=False)
class Hand:
    """A worker, as the foreman sees it: at first it was just told to come up."""

    ref: Ref[Minder]
    hired_at: float = 0.0
    is_coming: bool = True
    is_brisk: bool = True
    """Whether it goes on: what it is at has not lasted for long."""
    is_worn: bool = False
    """It was said that it had better be replaced."""
    is_leaving: bool = False
    """It is about to end, or to be ended, and counts no more."""
    claims: Claims | None = None
    number: int = 0
    """How many calls it was given."""
    orders: deque[Order] = field(default_factory=deque["Order"])
    """What it is at, and what it was given ahead."""
    begun: int = 0
    """Which of its calls it is known to have begun, the last of them."""
    since: float = 0.0
    """When it began with the first of these, as far as can be known here."""
    idle_since: float = 0.0
    why: str = ""
    """How it ended, as its minder knows it."""

    @property
    def room_ahead(self) -> int:
        """How many calls may be given to it now that it will come to later."""
        goes_on = self.claims is not None and self.is_brisk and not self.is_leaving
        return _AHEAD - len(self.orders) if goes_on and 0 < len(self.orders) <= _FEW else 0

    def take_back(self, orders: Sequence[Order]) -> list[Order]:
        """Of these, the ones that lie behind what it is at, and that it has not begun: it has them no more."""
        claims = self.claims
        behind = [order for order in tuple(self.orders)[1:] if order in orders]
        taken = [order for order in reversed(behind) if claims is not None and claims.take(order.number)]
        for order in taken:
            self.orders.remove(order)
        return taken

    def give_back(self) -> list[Order]:
        """It is gone: what it has not begun, the first of them last. What it may have begun stays here."""
        back = self.take_back(self.orders)
        first = self.orders[0]
        may_move = self.claims is not None and not first.is_unwanted and first.moved < _MOVES
        if may_move and not self.has_begun():
            first.moved += 1
            back.append(self.orders.popleft())
        return back

    @property
    def is_in_question(self) -> bool:
        """Whether it has a call that it may not have begun, and that could be given to another."""
        if not self.orders or self.claims is None or self.is_leaving:
            return False
        first = self.orders[0]
        return first.number != self.begun and not first.is_unwanted

    def has_begun(self) -> bool:
        """Whether it has begun its first call. If not, it never will."""
        assert self.claims is not None
        first = self.orders[0]
        if self.claims.take(first.number):
            return False
        self.begun = first.number
        return True


class Verdict(NamedTuple):
    """What became of the workers that could have been hanging."""

    hung: list[Hand]
    """These do not even begin with what they are given: their processes are to be ended."""
    back: list[Order]
    """Calls that were taken from them, in reverse: the last here was the first."""
    is_open: bool
    """Whether it is too early to say of some."""


def judged(hands: Iterable[Hand], now: float, *, late: bool) -> Verdict:
    """Which workers hang, which their silence would not show: a worker that has a call may be silent.

    `late` when the scheduler itself was held up: then no worker is judged in this turn. Where all are slow, each next worker has longer to begin.
    """
    hung: list[Hand] = []
    back: list[Order] = []
    is_open = False
    for hand in hands:
        if not hand.is_in_question:
            continue
        first = hand.orders[0]
        if late or now - hand.since < _BEGINS * 2**first.moved:
            is_open = True
        elif not hand.has_begun():
            back += [*hand.take_back(hand.orders), hand.orders.popleft()]
            first.moved += 1
            if hand.orders:
                hand.since = now  # it has come to itself in this moment, and begun with another
            else:
                hand.is_leaving = True
                hung.append(hand)
    return Verdict(hung, back, is_open)


# --- How often it is tried to have a worker, when those that were started do not come up, or die with nothing to do: more and more seldom.

_PAUSES: Final = Backoff(first=0.25, longest=30.0)


class Attempts:
    """Of one pool."""

    def __init__(self) -> None:
        """None has failed yet."""
        self._failures = 0
        self._failed_at = -math.inf
        self._again_at = 0.0
        self.why = ""
        """Why the last one has."""

    def succeeded(self) -> None:
        """A worker has done what it is for; to have come up is not enough."""
        self._failures = 0

    def failed(self, why: str, now: float, began: float) -> float | None:
        """One more has, that began then: how long to wait for the next; None when that is known already, or need not wait.

        Workers that are lost together, as all are with the process that had started them, are one failure: none of them was an attempt after another.
        """
        self.why = why
        if began < self._failed_at:
            return None
        self._failures += 1
        self._failed_at = now
        if self._failures == 1:
            return None
        pause = _PAUSES.most(self._failures - 2)
        self._again_at = now + pause
        return pause

    def may_be_made(self, now: float) -> bool:
        """Whether it is time for the next one."""
        return self._failures <= 1 or now >= self._again_at

    def renew(self) -> None:
        """It is."""
        self._again_at = 0.0
