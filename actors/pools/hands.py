"""A worker, as the foreman of its pool sees it: what it is at, what it was given ahead, and whether it counts."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from greenroom.supervision import Ref

    from .claims import Claims
    from .minder import Minder
    from .order import Order


_AHEAD: Final = 16
"""How many calls may be with one worker, the one that it is at included;"""
_FEW: Final = 8
"""and when it has so few, it gets more: several go out in one piece."""
_MOVES: Final = 3
"""How many workers may be lost before they began with a call, until that is its answer."""
_BEGINS: Final = 1.0
"""How long a worker that has nothing else to do may take to begin with a call; twice as long when the call was another's before."""


class Hand:
    """A worker, as the foreman sees it."""

    __slots__ = (
        "begun",
        "claims",
        "hired_at",
        "idle_since",
        "is_brisk",
        "is_coming",
        "is_leaving",
        "is_worn",
        "number",
        "orders",
        "ref",
        "since",
        "why",
    )

    def __init__(self, ref: Ref[Minder]) -> None:
        """It was just told to come up."""
        self.ref = ref
        self.hired_at = 0.0
        self.is_coming = True
        self.is_brisk = True
        """Whether it goes on: what it is at has not lasted for long."""
        self.is_worn = False
        """It was said that it had better be replaced."""
        self.is_leaving = False
        """It is about to end, or to be ended, and counts no more."""
        self.claims: Claims | None = None
        self.number = 0
        """How many calls it was given."""
        self.orders: deque[Order] = deque()
        """What it is at, and what it was given ahead."""
        self.begun = 0
        """Which of its calls it is known to have begun, the last of them."""
        self.since = 0.0
        """When it began with the first of these, as far as can be known here."""
        self.idle_since = 0.0
        self.why = ""
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
    """What was taken from them; whoever stands last was the first."""
    is_open: bool
    """Whether it is too early to say of some."""


def judged(hands: Iterable[Hand], now: float, *, late: bool) -> Verdict:
    """Who of them hangs, which their silence would not show: a worker that has a call may be silent.

    `late` when we were held up ourselves: then nobody is judged in this turn. Where all are slow, each next worker has longer to begin.
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
