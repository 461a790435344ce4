"""All reports of a node, kept for a test to look at."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from greenroom.supervision.kernel import clock
from greenroom.supervision.kernel.reports import CrashReport, Leaked, LoopBlocked, Report
from greenroom.supervision.logs import tell

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.kernel.node import Node

R = TypeVar("R", bound=Report)

WITHIN = 1.0
FAULTS = (CrashReport, Leaked, LoopBlocked)
"""Reports that say of a process that it did something wrong."""


class Collected(list[Report]):
    """A list of all reports since the node was opened, in order."""

    def __init__(self, node: Node) -> None:
        """Begin to collect."""
        super().__init__()
        self._node = node
        self._open: list[Report] = []
        self._times: list[float] = []
        self._waiting: asyncio.Event | None = None
        self.end = node.reports.subscribe(self._collect)

    def _collect(self, report: Report) -> None:
        self.append(report)
        self._open.append(report)
        self._times.append(clock.now(self._node.loop))
        if self._waiting is not None:
            self._waiting.set()

    def of(self, kind: type[R]) -> list[R]:
        """Those of one kind."""
        return [report for report in self if isinstance(report, kind)]

    async def expect(self, kind: type[R], *where: Callable[[R], object], within: float = WITHIN) -> R:
        """The next report of a kind that fits and was not taken before; fails when none comes in time."""
        __tracebackhide__ = True
        deadline = clock.now(self._node.loop) + within
        while True:
            for index, report in enumerate(self._open):
                if isinstance(report, kind) and all(condition(report) for condition in where):
                    del self._open[index]
                    return report
            self._waiting = asyncio.Event()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._waiting.wait()
            except TimeoutError:
                came = "".join(f"\n  {_words(report)}" for report in self._open) or " nothing"
                raise AssertionError(f"no {kind.__name__} came within {within:g} s; not expected:{came}") from None
            finally:
                self._waiting = None

    def unexpected(self, *kinds: type[Report]) -> list[Report]:
        """Those that no `expect` has taken: of the given kinds, or else all that tell of a fault."""
        return [report for report in self._open if isinstance(report, kinds or FAULTS)]

    def assert_all_expected(self, *kinds: type[Report]) -> None:
        """Fails when `unexpected` finds some."""
        __tracebackhide__ = True
        left = self.unexpected(*kinds)
        if left:
            raise AssertionError(
                "".join(["reports that nobody expected:", *(f"\n  {_words(report)}" for report in left)])
            )

    def lines(self) -> list[str]:
        """All of them in words, with their times."""
        return [f"at {at:g} s: {_words(report)}" for at, report in zip(self._times, self, strict=True)]


def _words(report: Report) -> str:
    return tell(report)[1]
