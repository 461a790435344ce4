"""What listeners of events hear in a test, and a tracer whose carriers show the number of the call."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from greenroom.event_types import CallEnded, CallStarted, Event
from greenroom.supervision.event_bus import bus

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

T = TypeVar("T", bound=Event)


class HeardEvents(list[Event]):
    """All events of a block, in order."""

    def of(self, kind: type[T]) -> list[T]:
        """Those of one class."""
        return [each for each in self if isinstance(each, kind)]

    def ended(self, method: str, way: str = "") -> list[CallEnded]:
        """How the calls of this method ended, on one way or on all."""
        return [each for each in self.of(CallEnded) if each.method == method and way in ("", each.way)]

    def unbalanced(self) -> list[int]:
        """The calls that have not started once and ended once."""
        counts = Counter[int]()
        for each in self:
            if isinstance(each, CallStarted):
                counts[each.call] += 1
            elif isinstance(each, CallEnded):
                counts[each.call] -= 1
        twice = Counter(each.call for each in self.of(CallStarted))
        return sorted({call for call, count in counts.items() if count} | {call for call, n in twice.items() if n > 1})


@contextmanager
def hearing(*, details: bool = False) -> Generator[HeardEvents]:
    """The events of a block; with `details` also steps of calls, and frames."""
    heard = HeardEvents()
    unsubscribe = bus.subscribe(heard.append, details=details)
    try:
        yield heard
    finally:
        unsubscribe()


class NumberTracer:
    """A tracer whose carrier has the number of the call as its trace and span."""

    home: str = __name__
    fields: Sequence[str] = ("traceparent", "tracestate", "baggage")

    is_of_environment = False

    def enter(self, call: int) -> None:
        """A no-op."""

    def carrier(self, call: int) -> Mapping[str, str]:
        """The trace context of the call."""
        return {"traceparent": f"00-{call:032x}-{call:016x}-01", "tracestate": "ours=1"}

    def ids_of(self, call: int) -> tuple[str, str] | None:
        """The number, as both."""
        return f"{call:032x}", f"{call:016x}"


def call_in(traceparent: str) -> int:
    """The number of the call in a trace context of `NumberTracer`."""
    return int(traceparent.split("-")[1], 16)


@contextmanager
def tracing() -> Generator[HeardEvents]:
    """The events of a block in which a tracer follows the calls."""
    with hearing() as heard:
        bus.tracer = NumberTracer()
        try:
            yield heard
        finally:
            bus.tracer = None
