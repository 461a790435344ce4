"""What it costs to be seen: a `tools/call` in a session, without a listener and with the listeners that this project ships.

The cost of a listener is measured as a difference: the same session answers calls with it and without it in turns, so that both have the same load beside them.

There is no row for a call without a listener, since no tree has both it and the code without events. `benchmarks.compare_commits 8fde5bac --only "session, worker"`
shows its processor time beside the last tree without events. By Callgrind's count of 600 such calls, it took 313,350 instructions there and 316,370 here: 1.0 % more.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

from greenroom.observe import OpenTelemetry, PrometheusMetrics, subscribe
from greenroom.protocol.jsonrpc import JsonRpcRequest, parse
from greenroom.transports.interfaces import EncodedReply

from .benchmark_types import Run, benchmark
from .serving import layers

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextlib import AbstractContextManager

    from opentelemetry.sdk.trace import ReadableSpan

    from greenroom.event_types import Event
    from greenroom.transports.interfaces import SessionHandle

TURN: Final = 250
"""Calls with the listener, before as many without it."""
METRICS: Final = 12.0
"""Microseconds that metrics may take of a call."""
SPANS: Final = 45.0
"""Microseconds that spans may take of a call."""


class NothingExported(SpanExporter):
    """Takes spans, and sends them nowhere."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - the exporter's interface
        """Take them."""
        return SpanExportResult.SUCCESS


def tracer_provider() -> TracerProvider:
    """A provider whose spans go nowhere."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(NothingExported()))
    return provider


async def answer(session: SessionHandle, messages: Sequence[JsonRpcRequest]) -> float:
    """The processor time in which the session answers these calls."""
    began = time.process_time()
    for message in messages:
        assert isinstance(await session.request(message), EncodedReply)
    return time.process_time() - began


async def record_difference(run: Run, listening: Callable[[], AbstractContextManager[object]]) -> None:
    """Record what a listener adds to a call, once for each two turns."""
    turns = max(2, run.count // TURN)
    async with layers.entered() as (_, session):
        numbers = iter(range(2 * (turns + 1) * TURN))

        def calls() -> list[JsonRpcRequest]:
            found = [parse(layers.call(next(numbers))) for _ in range(TURN)]
            return [each for each in found if isinstance(each, JsonRpcRequest)]

        for turn in range(turns + 1):
            without = await answer(session, calls())
            with listening():
                heard = await answer(session, calls())
            if turn:  # what is loaded and made once is not a call's
                run.record((heard - without) / TURN)


@contextmanager
def unsubscribing(unsubscribe: Callable[[], None]) -> Generator[None]:
    """A subscription for a block."""
    try:
        yield
    finally:
        unsubscribe()


def ignore(event: Event) -> None:
    """Do nothing with an event."""


@benchmark("events: + a listener", count=10_000)
async def heard_by_one(run: Run) -> None:
    """What it adds to a call that both of its events are made, for a listener that does nothing."""
    await record_difference(run, lambda: unsubscribing(subscribe(ignore)))


@benchmark("events: + metrics", count=10_000, target=METRICS)
async def measured(run: Run) -> None:
    """What Prometheus's metrics add to a call."""
    await record_difference(run, PrometheusMetrics)


@benchmark("events: + spans", count=10_000, target=SPANS)
async def traced(run: Run) -> None:
    """What a span of OpenTelemetry adds to a call, with an exporter that sends nothing."""
    await record_difference(run, lambda: OpenTelemetry(tracer_provider(), NoOpMeterProvider()))


@benchmark("events: a bare span", count=10_000)
def bare(run: Run) -> None:
    """A span of OpenTelemetry around nothing (`tracer.start_as_current_span`), with the same exporter: the least that a span can cost."""
    tracer = tracer_provider().get_tracer("bare")
    with run.measured():
        for _ in range(run.count):
            with tracer.start_as_current_span("tools/call echo"):
                pass
