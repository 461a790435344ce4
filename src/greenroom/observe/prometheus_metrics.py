"""`PrometheusMetrics`: the metric table as Prometheus scrapes it. The one importer of prometheus_client (extra `prometheus`).

Numbers are kept here and not in prometheus_client's own counters, which cost as much: so the numbers of several workers can be sent to their parent and added up,
without files. prometheus_client writes the text, and has the program's own metrics in its registry.
"""

from __future__ import annotations

import re
import threading
from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

try:
    from prometheus_client import CollectorRegistry
    from prometheus_client import generate_latest as plain_text
    from prometheus_client import metrics_core as prometheus
    from prometheus_client.openmetrics import exposition as openmetrics
    from prometheus_client.registry import Collector
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "metrics for Prometheus need an extra: pip install 'greenroom[prometheus]'", name=missing.name
    ) from missing

from greenroom.supervision.event_bus import bus

from .event_meter import EventMeter
from .metric_table import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Self

    from .metric_table import Metric

_PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_REFUSED: Final = re.compile(r"q *= *0(?:\.0{0,3})?")
_MAXIMA: Final = frozenset(metric.prometheus_name for metric in METRICS if metric.is_maximum)


class MetricsPage(NamedTuple):
    """The answer to a scrape."""

    content_type: str
    body: bytes


class MetricSample(msgspec.Struct, frozen=True, array_like=True):
    """One number: the name of its sample, its labels in their order, and the value."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class MetricFamily(msgspec.Struct, frozen=True, array_like=True):
    """All samples of one metric, as a worker sends them to its parent."""

    name: str
    kind: str
    help: str
    unit: str
    samples: tuple[MetricSample, ...]


class _Numbers:
    """The counters and histograms of one program, by metric and labels."""

    def __init__(self) -> None:
        # Reentrant: the collector of garbage may run anything in the middle of a change, also code that emits events.
        self._lock = threading.RLock()
        self._series: dict[str, dict[tuple[str, ...], list[float]]] = {metric.name: {} for metric in METRICS}
        """A counter is one number; a histogram has one for each bucket, one for larger values, and the sum."""

    def find(self, metric: Metric, labels: tuple[str, ...]) -> Callable[[float], None]:
        """What adds to a counter, or observes a value, from any thread. It may be kept."""
        lock, buckets = self._lock, metric.buckets
        with lock:
            series = self._series[metric.name]
            numbers = series.get(labels)
            if numbers is None:
                numbers = series[labels] = [0.0] * (len(buckets) + 2 if buckets else 1)

        def add(value: float) -> None:
            with lock:
                numbers[-1] += value

        def observe(value: float) -> None:
            with lock:
                numbers[bisect_left(buckets, value)] += 1
                numbers[-1] += value

        return observe if buckets else add

    def read(self, metric: Metric) -> list[tuple[tuple[str, ...], list[float]]]:
        """The numbers of a metric, by labels."""
        with self._lock:
            return [(labels, list(numbers)) for labels, numbers in self._series[metric.name].items()]


class _TableCollector(Collector):
    """The metric table in a registry of prometheus_client."""

    def __init__(self, collect: Callable[[], Iterable[MetricFamily]]) -> None:
        self._collect = collect

    def describe(self) -> Iterator[prometheus.Metric]:
        """The names, without looking at any number."""
        for metric in METRICS:
            yield _prometheus_family(_family(metric, []))

    def collect(self) -> Iterator[prometheus.Metric]:
        """The families of a scrape."""
        return map(_prometheus_family, self._collect())


class PrometheusMetrics:
    """Counts the events of this program from now on, shows what is open already, and writes them as Prometheus reads them.

    `registry` is one of prometheus_client's, such as its `REGISTRY` with metrics of your own; without it there is a new one. Any thread may read.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """Subscribes to the events of this program."""
        self.registry = CollectorRegistry() if registry is None else registry
        self._numbers = _Numbers()
        self._meter = EventMeter(self._numbers.find)
        self._collector = _TableCollector(self._table_families)
        self.registry.register(self._collector)
        self._unsubscribe = bus.subscribe(self._meter)
        self._meter.take_up()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Count no further events, and take the metrics out of the registry. A no-op the second time."""
        if not self._is_closed:
            self._is_closed = True
            self._unsubscribe()
            self.registry.unregister(self._collector)

    def text(self, accept: str = "") -> MetricsPage:
        """The metrics of the registry, as OpenMetrics where the request's `Accept` has that, else in Prometheus' text format."""
        return _written(self.registry, accept)

    def families(self) -> list[MetricFamily]:
        """The metrics of the registry as plain values that msgspec encodes, for the parent of several workers (`WorkerMetrics`)."""
        return [_plain_family(family) for family in self.registry.collect()]

    def _table_families(self) -> Iterator[MetricFamily]:
        read: defaultdict[str, list[tuple[tuple[str, ...], list[float]]]] = defaultdict(list)
        for gauge, labels, value in self._meter.gauges():
            read[gauge.name].append((labels, [value]))
        for metric in METRICS:
            yield _family(metric, read[metric.name] if metric.kind == "gauge" else self._numbers.read(metric))


class WorkerMetrics:
    """The metrics of several workers as one page: the parent asks each for its `PrometheusMetrics.families()`.

    Counters and histograms are added up, and so are gauges, except for the longest mailbox. What a worker that has ended had counted stays, since a counter must
    not fall; its gauges go.
    """

    def __init__(self) -> None:
        """No worker has answered yet."""
        self._last: dict[str, list[MetricFamily]] = {}
        self._ended: list[MetricFamily] = []

    def update(self, worker: str, families: list[MetricFamily]) -> None:
        """Take the answer of a worker. `worker` names one operating system's process: its successor has another name."""
        self._last[worker] = families

    def drop(self, worker: str) -> None:
        """A worker has ended: what it counted stays, and its gauges go."""
        counted = [family for family in self._last.pop(worker, ()) if family.kind != "gauge"]
        self._ended = merged([self._ended, counted])

    def text(self, accept: str = "") -> MetricsPage:
        """The page. A worker that did not answer this time is in it with its last answer."""
        registry = CollectorRegistry()
        families = merged([self._ended, *self._last.values()])
        registry.register(_Fixed(families))
        return _written(registry, accept)


class _Fixed(Collector):
    def __init__(self, families: list[MetricFamily]) -> None:
        self._families = families

    def collect(self) -> Iterator[prometheus.Metric]:
        return map(_prometheus_family, self._families)


def merged(answers: Iterable[Iterable[MetricFamily]]) -> list[MetricFamily]:
    """The families of several workers as one: samples with the same name and labels are added up, or are the largest of theirs."""
    families: dict[str, MetricFamily] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for answer in answers:
        for family in answer:
            if families.setdefault(family.name, family).kind != family.kind:
                continue  # another metric of the same name, in a program whose workers differ
            total = values.setdefault(family.name, {})
            for sample in family.samples:
                key = (sample.name, sample.labels)
                if key not in total:
                    total[key] = sample.value
                elif family.name in _MAXIMA or family.kind in _UNSUMMED or sample.name.endswith("_created"):
                    total[key] = max(total[key], sample.value)
                else:
                    total[key] += sample.value
    return [
        msgspec.structs.replace(
            family,
            samples=tuple(MetricSample(name, labels, value) for (name, labels), value in values[family.name].items()),
        )
        for family in families.values()
    ]


_UNSUMMED: Final = frozenset({"info", "stateset"})
"""Kinds whose samples are 1 or 0."""


def _family(metric: Metric, series: Iterable[tuple[tuple[str, ...], list[float]]]) -> MetricFamily:
    name = metric.prometheus_name
    samples: list[MetricSample] = []
    for values, numbers in series:
        labels = tuple(each for each in zip(metric.prometheus_labels, values, strict=True) if each[1])
        match metric.kind:
            case "counter":
                samples.append(MetricSample(f"{name}_total", labels, numbers[0]))
            case "gauge":
                samples.append(MetricSample(name, labels, numbers[0]))
            case "histogram":
                *counts, total = numbers
                reached = 0.0
                for bound, count in zip((*map(repr, metric.buckets), "+Inf"), counts, strict=True):
                    reached += count
                    samples.append(MetricSample(f"{name}_bucket", (*labels, ("le", bound)), reached))
                samples.append(MetricSample(f"{name}_count", labels, reached))
                samples.append(MetricSample(f"{name}_sum", labels, total))
    return MetricFamily(name, metric.kind, metric.help, "seconds" if metric.unit == "s" else "", tuple(samples))


def _plain_family(family: prometheus.Metric) -> MetricFamily:
    samples = (
        MetricSample(sample.name, tuple(sample.labels.items()), float(sample.value)) for sample in family.samples
    )
    return MetricFamily(family.name, family.type, family.documentation, family.unit, tuple(samples))


def _prometheus_family(family: MetricFamily) -> prometheus.Metric:
    made = prometheus.Metric(family.name, family.help, family.kind, family.unit)
    for sample in family.samples:
        made.add_sample(sample.name, dict(sample.labels), sample.value)
    return made


def _written(registry: CollectorRegistry, accept: str) -> MetricsPage:
    """The text in the format that was asked for. prometheus_client's own negotiation would put a requester's text into the content type."""
    for accepted in accept.lower().split(","):
        kind, *parameters = (each.strip() for each in accepted.split(";"))
        if kind == "application/openmetrics-text" and not any(_REFUSED.fullmatch(each) for each in parameters):
            return MetricsPage(_OPENMETRICS, openmetrics.generate_latest(registry))  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]
    return MetricsPage(_PLAIN, plain_text(registry))
