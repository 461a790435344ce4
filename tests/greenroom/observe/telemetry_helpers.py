"""A real collector of spans and metrics in memory, for tests."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from greenroom.observe.open_telemetry import OpenTelemetry

from .mcp_conventions import problems_of_metric, problems_of_span

if TYPE_CHECKING:
    from collections.abc import Generator

    from opentelemetry.sdk.metrics.export import Metric
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import Tracer


class Collector:
    """What an OpenTelemetry with providers of its own has collected."""

    def __init__(self, **options: Any) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        self.tracer_provider = TracerProvider()
        self.tracer_provider.add_span_processor(SimpleSpanProcessor(self._spans))
        self.meter_provider = MeterProvider([self._reader])
        self.tracer: Tracer = self.tracer_provider.get_tracer("the author's")
        self.telemetry = OpenTelemetry(self.tracer_provider, self.meter_provider, **options)

    def spans(self) -> list[ReadableSpan]:
        """The spans that have ended, in that order, and begin again; each of ours is judged."""
        found = list(self._spans.get_finished_spans())
        self._spans.clear()
        for each in found:
            if each.instrumentation_scope is not None and each.instrumentation_scope.name == "greenroom":
                is_task = (each.attributes or {}).get("greenroom.way") in ("task", "local")
                assert problems_of_span(each, is_task=is_task) == [], each.to_json()
        return found

    def span(self, name: str, **attributes: Any) -> ReadableSpan:
        """The one span with this name and these attributes (with `_` for a dot)."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        found = [
            each
            for each in self.spans()
            if each.name == name and all((each.attributes or {}).get(key) == value for key, value in wanted.items())
        ]
        assert len(found) == 1, found
        return found[0]

    def metrics(self) -> dict[str, Metric]:
        """The metrics by name; those of the conventions are judged."""
        data = self._reader.get_metrics_data()
        found = (
            {}
            if data is None
            else {
                metric.name: metric
                for resource in data.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            }
        )
        for name, metric in found.items():
            if name.startswith("mcp."):
                assert problems_of_metric(metric) == [], metric.to_json()
        return found

    def points(self, name: str) -> list[Any]:
        """The data points of a metric."""
        metric = self.metrics().get(name)
        return [] if metric is None else list(metric.data.data_points)


@contextmanager
def collecting(**options: Any) -> Generator[Collector]:
    """Install one, and shut its providers down in the end."""
    collector = Collector(**options)
    try:
        with collector.telemetry:
            yield collector
    finally:
        collector.tracer_provider.shutdown()
        collector.meter_provider.shutdown()


def parent_of(span: ReadableSpan) -> int | None:
    """The id of the parent's span."""
    return None if span.parent is None else span.parent.span_id


def id_of(span: ReadableSpan) -> int:
    """The span's own id."""
    assert span.context is not None
    return int(span.context.span_id)


def trace_of(span: ReadableSpan) -> int:
    """The id of the span's trace."""
    assert span.context is not None
    return int(span.context.trace_id)
