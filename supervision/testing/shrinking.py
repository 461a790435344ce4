"""Makes a plan that fails as small as can be: fewer faults, then rounder times and no extras, then plainer kinds.

Deterministic, and bounded: the same plan and the same answers give the same plan, after at most so many tries. The
search itself neither runs nor awaits anything; it asks, and is told.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Final, TypeAlias

from .faults import kind_of
from .plans import FaultPlan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Iterator

    from .plans import Fault

TRIES: Final = 200

Search: TypeAlias = "Generator[FaultPlan, bool, FaultPlan]"
"""Yields plans to try, is sent whether each fails, and returns the smallest that did."""


def shrink(plan: FaultPlan, fails: Callable[[FaultPlan], bool], *, tries: int = TRIES) -> FaultPlan:
    """The smallest plan found that still `fails`. Raises `ValueError` when the plan given does not."""
    search = _search(plan, tries)
    answer: bool | None = None
    while True:
        try:
            candidate = next(search) if answer is None else search.send(answer)
        except StopIteration as end:
            return _found(plan, end)
        answer = fails(candidate)


async def shrink_async(
    plan: FaultPlan, fails: Callable[[FaultPlan], bool | Awaitable[bool]], *, tries: int = TRIES
) -> FaultPlan:
    """As `shrink`, with a `fails` that may be awaited."""
    search = _search(plan, tries)
    answer: bool | None = None
    while True:
        try:
            candidate = next(search) if answer is None else search.send(answer)
        except StopIteration as end:
            return _found(plan, end)
        told = fails(candidate)
        answer = await told if inspect.isawaitable(told) else told


def _found(plan: FaultPlan, end: StopIteration) -> FaultPlan:
    found: FaultPlan | None = end.value
    if found is None:
        raise ValueError(f"this plan does not fail, so there is nothing to shrink:\n{plan}")
    return found


class _Best:
    """The smallest plan so far, and what was tried."""

    def __init__(self, plan: FaultPlan, tries: int) -> None:
        self.plan = plan
        self._tries = tries
        self._seen: set[FaultPlan] = {plan}

    def better(self, candidate: FaultPlan) -> Search:
        """Ask of a candidate; it is the best if it fails as well. Returns what is the best then."""
        if candidate not in self._seen and self._tries > 0:
            self._seen.add(candidate)
            self._tries -= 1
            if (yield candidate):
                self.plan = candidate
        return self.plan


def _search(plan: FaultPlan, tries: int) -> Generator[FaultPlan, bool, FaultPlan | None]:
    if not (yield plan):
        return None
    best = _Best(plan, tries)
    before = None
    while before != best.plan:
        before = best.plan
        yield from _fewer(best)
        yield from _simpler(best, _rounder)
        yield from _simpler(best, _plainer)
    return best.plan


def _fewer(best: _Best) -> Generator[FaultPlan, bool, None]:
    """Delta debugging: leave out halves, then quarters, and so on down to single faults."""
    size = len(best.plan)
    while size:
        at = 0
        while at < len(best.plan):
            faults = best.plan.faults
            smaller = FaultPlan(faults[:at] + faults[at + size :])
            if (yield from best.better(smaller)) != smaller:
                at += size
        size //= 2


def _simpler(best: _Best, variants: Callable[[Fault], Iterator[Fault]]) -> Generator[FaultPlan, bool, None]:
    """For each fault, the first variant of it that does as well, until there is none."""
    at = 0
    while at < len(best.plan):
        faults = best.plan.faults
        for variant in variants(faults[at]):
            candidate = FaultPlan((*faults[:at], variant, *faults[at + 1 :]))
            if (yield from best.better(candidate)) == candidate:
                break
        else:
            at += 1


def _rounder(fault: Fault) -> Iterator[Fault]:
    """A rounder time, and without what is not needed; each of them shorter to write than the one before."""
    for field in ("reason", "count", "seconds"):
        if getattr(fault, field) is not None:
            yield fault.but(**{field: None})
    if fault.which != 0:
        yield fault.but(which=0)
    for field in ("at", "seconds"):
        value: float | None = getattr(fault, field)
        if value:
            for digits in (0, 1, 2, 3):
                rounded = round(value, digits)
                if len(f"{rounded:g}") < len(repr(value).removesuffix(".0")):
                    yield fault.but(**{field: rounded})
    if fault.at:
        yield fault.but(at=0.0)


def _plainer(fault: Fault) -> Iterator[Fault]:
    for kind in kind_of(fault.what).simpler:
        yield fault.but(what=kind)
