"""Spans and metrics of calls for OpenTelemetry, as its semantic conventions for MCP describe them.

::

    with OpenTelemetry():
        server.run("http")

Each call that this program answers is a span of kind SERVER, and each that it makes one of kind CLIENT, also where a gateway does both. A request carries its trace
in `params._meta`, and so does a job to a process of its own, so that the spans of a handler are children of its call wherever it runs.

Opt-in attributes (the arguments and results of tools) are never set, since events have none: a hook around calls may set them on the current span.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import time
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias, TypeVar

try:
    from opentelemetry import context as contexts
    from opentelemetry import metrics, propagate, trace
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "OpenTelemetry needs an extra: pip install 'greenroom[otel]'", name=missing.name
    ) from missing

from greenroom import __version__
from greenroom.errors import ConfigError
from greenroom.event_types import CallEnded, CallStarted, QuestionAsked, QuestionEnded
from greenroom.supervision import GenServer
from greenroom.supervision.event_bus import bus

from .event_meter import EventMeter, address_parts, error_type, question_error_type
from .metric_table import METRICS, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from typing import Self

    from opentelemetry.propagators.textmap import TextMapPropagator

    from greenroom.event_types import Event, Side
    from greenroom.supervision import ExitReason

    from .metric_table import Metric

    Attributes: TypeAlias = dict[str, str | int | float]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

_log: Final = logging.getLogger("greenroom.observe")

MOST_OPEN: Final = 65_536
"""How many spans may be open. Each call ends, so that only a fault reaches this; then the oldest spans are ended."""
_MOST_KEPT: Final = 4096
"""How many sets of attributes are kept for reuse."""
_SILENCE: Final = 60.0
"""Seconds between two log records about an error of OpenTelemetry."""
_GAUGES_LAST: Final = 0.5
"""Seconds for which gauges are not looked at again: a collection asks for each in turn."""
_ELSEWHERE: Final = frozenset({"thread", "process"})
"""Where a handler runs that is not in the event loop. An attribute costs a microsecond, and most calls need none at their end."""
_LEAST_QUEUED: Final = 0.001
"""Seconds of waiting that are worth an attribute."""
_LONGEST_NAME: Final = 256
_LONGEST_URI: Final = 1024
_LONGEST_MESSAGE: Final = 300

_NAMED: Final[Mapping[str, str]] = {
    "tools/call": "gen_ai.tool.name",
    "prompts/get": "gen_ai.prompt.name",
    "resources/read": "mcp.resource.uri",
    "resources/subscribe": "mcp.resource.uri",
    "resources/unsubscribe": "mcp.resource.uri",
}
"""By method, the attribute for what it names."""
_RESOURCE: Final = "mcp.resource.uri"
_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "tool_error": "the tool reported an error",
    "error": "the call ended with an error",
    "deadline": "the call took too long",
    "cancelled": "the caller cancelled it",
    "peer_gone": "the other end is gone",
    "worker_crashed": "the handler crashed",
    "process_ended": "the process that ran it ended",
    "refused": "a limit refused it",
}
"""Descriptions of a span's status for errors without a message."""

_QUESTION_DESCRIPTIONS: Final[Mapping[str, str]] = {
    "error": "the question was answered with an error",
    "lost": "no answer came",
}


class _OpenCall(NamedTuple):
    """The span of a call or a question that has not ended, and the context for what happens in it."""

    span: trace.Span
    context: contexts.Context
    started: CallStarted | None
    """None for a question."""


class _CallKind(NamedTuple):
    """What the spans of calls have in common that differ only in their ids and their peer."""

    span_name: str
    attributes: Attributes


class OpenTelemetry:
    """Traces and measures the calls of this program, from `install` to `uninstall`, or in a `with` block.

    Without providers and a propagator, the program's own are used: the providers that `opentelemetry.trace.set_tracer_provider` and its sibling set, before or
    after, and the propagator that is set now. `resource_uri_in_names` puts the URIs of resources into the names of spans; use it where there are few.
    """

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
        propagator: TextMapPropagator | None = None,
        *,
        resource_uri_in_names: bool = False,
    ) -> None:
        self.home: Final = __name__
        self.is_of_environment = False
        """Whether `telemetry_of_environment` has made it, so that worker processes can make theirs in the same way."""
        self._propagator = propagate.get_global_textmap() if propagator is None else propagator
        self.fields: Sequence[str] = tuple(sorted(self._propagator.fields))
        """The keys by which requests carry their trace."""
        self._uri_in_names = resource_uri_in_names
        self._tracer = trace.get_tracer("greenroom", __version__, tracer_provider)
        self._meter = EventMeter(self._find_series)
        has_metrics = not isinstance(meter_provider, metrics.NoOpMeterProvider)
        self._instruments = self._make_instruments(metrics.get_meter("greenroom", __version__, meter_provider))
        self._open: dict[int, _OpenCall] = {}
        self._kinds: dict[tuple[str, ...], _CallKind] = {}
        self._labels: dict[tuple[str, tuple[str, ...]], Attributes] = {}
        self._gauges: tuple[float, list[tuple[Metric, tuple[str, ...], float]]] = (-math.inf, [])
        self._quiet_until = 0.0
        self._unsubscribe: Callable[[], None] | None = None
        # Metrics that are switched off cost nothing.
        others: tuple[Callable[[Any], None], ...] = (self._meter,) if has_metrics else ()
        self._takers: dict[type[Event], tuple[Callable[[Any], None], ...]] = {
            CallStarted: (self._start_span, *others),
            CallEnded: (self._count_call, self._end_span) if has_metrics else (self._end_span,),
            QuestionAsked: (self._start_question, *others),
            QuestionEnded: (*others, self._end_question),
        }
        self._other_takers = others

    # --- for the program

    def install(self) -> Self:
        """Begin. Raises `ConfigError` where another one is installed."""
        if bus.tracer is not None:
            raise ConfigError("this program is traced already: install one OpenTelemetry, before the first server runs")
        bus.tracer = self
        self._unsubscribe = bus.subscribe(self._on_event)
        self._meter.take_up()
        return self

    def uninstall(self) -> None:
        """Stop. Spans of calls that have not ended are ended now."""
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = bus.tracer = None
            while self._open:
                self._end_oldest()

    def __enter__(self) -> Self:
        return self.install()

    def __exit__(self, *error: object) -> None:
        self.uninstall()

    # --- for the bus: whatever a provider does, no call is harmed

    def _on_event(self, event: Event) -> None:
        for take in self._takers.get(type(event), self._other_takers):
            try:
                take(event)
            except Exception:  # noqa: BLE001 - it is logged
                self._log_error()

    def enter(self, call: int) -> None:
        """Make the span of the call the current one, for all that its worker does from now on."""
        opened = self._open.get(call)
        # In a later round of a call, the handler may be within a span of its own, which stays.
        if opened is not None and not trace.get_current_span().is_recording():
            contexts.attach(opened.context)  # never detached: the context is the worker's own, and ends with it

    def carrier(self, call: int) -> dict[str, str]:
        """The trace of the call, for an outgoing request or a job; for 0 that of the code that runs now."""
        carried: dict[str, str] = {}
        opened = self._open.get(call)
        if opened is not None or not call:
            try:
                context = contexts.get_current() if opened is None else opened.context
                self._propagator.inject(carried, context)  # pyright: ignore[reportArgumentType] - its own default
            except Exception:  # noqa: BLE001 - it is logged
                self._log_error()
        return carried

    def ids_of(self, call: int) -> tuple[str, str] | None:
        """The trace and the span of a call, in hexadecimal digits; for 0 those of the code that runs now."""
        opened = self._open.get(call)
        if opened is None and call:
            return None
        found = (trace.get_current_span() if opened is None else opened.span).get_span_context()
        if not found.is_valid:
            return None
        return trace.format_trace_id(found.trace_id), trace.format_span_id(found.span_id)

    def _log_error(self) -> None:
        """Log the exception, unless one was logged a moment ago: a broken provider fails at each call."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _SILENCE
            _log.exception(
                "OpenTelemetry failed; calls go on without it (further errors are not logged for %g s)", _SILENCE
            )

    # --- calls

    def _start_span(self, started: CallStarted) -> None:
        parent = contexts.get_current()
        links: list[trace.Link] | None = None
        side = started.side
        # Nothing but the code around it may be the origin of most calls.
        if side == "server" and (started.trace is not None or started.creator or started.http_trace is not None):
            parent, links = self._origin(started, parent)
        name, common = self._kind_of(started)
        attributes = common | _peer_attributes(side, started.session, started.address)
        if started.request:
            attributes["jsonrpc.request.id"] = _text(started.request)
        if started.task:
            attributes["greenroom.task"] = _text(started.task)
        span = self._tracer.start_span(name, parent, _KINDS[side], attributes, links)
        self._keep_open(started.call, span, parent, started)

    def _origin(
        self, started: CallStarted, ambient: contexts.Context
    ) -> tuple[contexts.Context, list[trace.Link] | None]:
        """The parent of a call that this program answers, and its links.

        The parent is what the request says in `_meta`, or what made the call: the task's creator, the code around it, or the HTTP request. The others are linked.
        """
        candidates: list[contexts.Context] = []
        if started.trace is not None:
            candidates.append(self._extracted(started.trace))
        creator = self._open.get(started.creator) if started.creator else None
        if creator is not None:
            candidates.insert(0, creator.context)
        if ambient:
            candidates.append(ambient)
        if started.http_trace is not None:
            candidates.append(self._extracted(started.http_trace))
        chosen: contexts.Context | None = None
        links: list[trace.Link] = []
        for each in candidates:
            found = trace.get_current_span(each).get_span_context()
            if not found.is_valid:
                continue
            if chosen is None:
                chosen = each
            else:
                links.append(trace.Link(found))
        return (candidates or [ambient])[0] if chosen is None else chosen, links or None

    def _extracted(self, carried: Mapping[str, str]) -> contexts.Context:
        return self._propagator.extract(without_invalid(carried), contexts.Context())

    def _kind_of(self, started: CallStarted) -> _CallKind:
        key = (
            started.side,
            started.program,
            started.way,
            started.method,
            started.name,
            started.revision,
            started.transport,
            started.http_version,
        )
        found = self._kinds.get(key)
        if found is None:
            found = self._make_kind(started)
            # A peer chooses names: long ones are not kept.
            if len(started.name) + len(started.method) <= _LONGEST_NAME:
                _keep(self._kinds, key, found)
        return found

    def _make_kind(self, started: CallStarted) -> _CallKind:
        span_name = method = _text(started.method)
        attributes: Attributes = {"mcp.method.name": method, **_network(started.transport, started.http_version)}
        if method == "tools/call":
            attributes["gen_ai.operation.name"] = "execute_tool"
        if started.revision:
            attributes["mcp.protocol.version"] = _text(started.revision)
        if started.program:
            attributes["greenroom.program"] = _text(started.program)
        attributes["greenroom.way"] = started.way
        if started.name and (attribute := _NAMED.get(method)):
            attributes[attribute] = short = _short(attribute, started.name)
            if attribute is not _RESOURCE or self._uri_in_names:
                span_name = f"{method} {short}"
        return _CallKind(span_name, attributes)

    def _end_span(self, ended: CallEnded) -> None:
        opened = self._open.pop(ended.call, None)
        if opened is None or opened.started is None:
            return
        span, started = opened.span, opened.started
        if span.is_recording():
            if not ended.is_method_known:
                span.update_name(UNKNOWN)
            elif not ended.is_known:
                span.update_name(_text(started.method))
            attributes: Attributes = {}
            if ended.outcome != "result":
                attributes["greenroom.outcome"] = ended.outcome
                self._note_error(span, ended, attributes)
            if ended.isolation in _ELSEWHERE:
                attributes["greenroom.isolation"] = ended.isolation
            if ended.queued >= _LEAST_QUEUED:
                attributes["greenroom.queued"] = ended.queued
            if ended.revision and not started.revision:
                attributes["mcp.protocol.version"] = _text(ended.revision)
            if attributes:
                span.set_attributes(attributes)
        span.end()

    @staticmethod
    def _note_error(span: trace.Span, ended: CallEnded, attributes: Attributes) -> None:
        if error := error_type(ended):
            attributes["error.type"] = error
            if ended.code is not None:
                attributes["rpc.response.status_code"] = error
            text = _text(ended.message, _LONGEST_MESSAGE) or _DESCRIPTIONS.get(ended.outcome)
            span.set_status(trace.StatusCode.ERROR, text)

    # --- questions: a server's requests to its client, where the server is the sender

    def _start_question(self, asked: QuestionAsked) -> None:
        if not asked.request:
            return  # part of a reply, or of a task: the next request, or the task's call, has the trace
        carried = contexts.Context() if asked.trace is None else self._extracted(asked.trace)
        call = self._open.get(asked.call)
        has_parent = trace.get_current_span(carried).get_span_context().is_valid
        parent = call.context if call is not None and not has_parent else carried
        attributes: Attributes = {
            "mcp.method.name": _text(asked.method),
            "jsonrpc.request.id": _text(asked.request),
            "greenroom.program": _text(asked.program),
            **_network(asked.transport, asked.http_version),
        }
        if asked.revision:
            attributes["mcp.protocol.version"] = _text(asked.revision)
        kind = _KINDS["client" if asked.side == "server" else "server"]
        span = self._tracer.start_span(_text(asked.method), parent, kind, attributes)
        self._keep_open(asked.question, span, parent)

    def _end_question(self, ended: QuestionEnded) -> None:
        opened = self._open.pop(ended.question, None)
        if opened is None:
            return
        opened.span.set_attribute("greenroom.outcome", ended.outcome)
        if error := question_error_type(ended):
            opened.span.set_attribute("error.type", error)
            opened.span.set_status(trace.StatusCode.ERROR, _QUESTION_DESCRIPTIONS[ended.outcome])
        opened.span.end()

    def _keep_open(
        self, number: int, span: trace.Span, parent: contexts.Context, call: CallStarted | None = None
    ) -> None:
        if len(self._open) >= MOST_OPEN:
            self._end_oldest()
        self._open[number] = _OpenCall(span, trace.set_span_in_context(span, parent), call)

    def _end_oldest(self) -> None:
        try:
            opened = self._open.pop(next(iter(self._open)))
            opened.span.end()
        except Exception:  # noqa: BLE001 - it is logged; another thread may have ended that one
            self._log_error()

    # --- metrics

    def _make_instruments(self, meter: metrics.Meter) -> dict[str, Callable[[float, Attributes], None]]:
        made: dict[str, Callable[[float, Attributes], None]] = {}
        for metric in METRICS:
            if metric.kind == "histogram":
                made[metric.name] = meter.create_histogram(
                    metric.name, metric.unit, metric.help, explicit_bucket_boundaries_advisory=metric.buckets
                ).record
            elif metric.kind == "counter":
                made[metric.name] = meter.create_counter(metric.name, metric.unit, metric.help).add
            else:
                look = partial(self._observe, metric)
                meter.create_observable_gauge(metric.name, [look], metric.unit, metric.help)
        return made

    def _count_call(self, ended: CallEnded) -> None:
        """Count a call in its own context, so that the metric has its trace as an exemplar."""
        opened = self._open.get(ended.call)
        if opened is None:
            self._meter(ended)
            return
        token = contexts.attach(opened.context)
        try:
            self._meter(ended)
        finally:
            contexts.detach(token)

    def _find_series(self, metric: Metric, values: tuple[str, ...]) -> Callable[[float], None]:
        instrument, attributes = self._instruments[metric.name], self._labelled(metric, values)
        return lambda number: instrument(number, attributes)

    def _observe(self, metric: Metric, _options: metrics.CallbackOptions) -> Iterable[metrics.Observation]:
        """The values of a gauge. All gauges of one collection are looked at together."""
        if self._unsubscribe is None:
            return
        now = time.monotonic()
        if now - self._gauges[0] > _GAUGES_LAST:
            self._gauges = now, list(self._meter.gauges())
        for each, values, number in self._gauges[1]:
            if each is metric:
                yield metrics.Observation(number, self._labelled(metric, values))

    def _labelled(self, metric: Metric, values: tuple[str, ...]) -> Attributes:
        key = (metric.name, values)
        found: Attributes | None = self._labels.get(key)
        if found is None:
            found = {name: value for name, value in zip(metric.labels, values, strict=True) if value}
            if (port := found.pop(_PORT, None)) is not None and str(port).isdecimal():
                found[_PORT] = int(port)
            _keep(self._labels, key, found)
        return found


_KINDS: Final = {"server": trace.SpanKind.SERVER, "client": trace.SpanKind.CLIENT}
_SESSIONS: Final = {"server": "mcp.session.id", "client": "greenroom.connection"}
"""What the session of an event is: a client's is a connection of this program, in either era."""
_PEERS: Final = {"server": "client", "client": "server"}
_PORT: Final = "server.port"


def _keep(table: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    if len(table) >= _MOST_KEPT:
        table.clear()
    table[key] = value


def _short(attribute: str, name: str) -> str:
    """The name as an attribute; the query of a URI is left out, since it may hold secrets."""
    return _text(name.partition("?")[0], _LONGEST_URI) if attribute is _RESOURCE else _text(name)


def _text(text: str, longest: int = _LONGEST_NAME) -> str:
    """The text, shortened, and without the surrogates that would make an exporter drop everything that it was about to send."""
    text = text[:longest]
    return text if text.isascii() else text.encode(errors="replace").decode()


@lru_cache(maxsize=64)
def _network(transport: str, http_version: str) -> Mapping[str, str | int]:
    """The attributes of a transport; none for one inside this program."""
    if transport == "stdio":
        return {"network.transport": "pipe"}
    if transport == "http":
        version = {"network.protocol.version": _text(http_version)} if http_version else {}
        return {"network.transport": "tcp", "network.protocol.name": "http", **version}
    return {}


@lru_cache(maxsize=4096)
def _peer_attributes(side: Side, session: str, address: str) -> dict[str, str | int | float]:
    """The attributes of a session or connection, and of the address of its other end."""
    found: dict[str, str | int | float] = {_SESSIONS[side]: _text(session)} if session else {}
    if address:
        host, port = address_parts(address)
        whose = _PEERS[side]
        found[f"{whose}.address"] = _text(host)
        if port:
            found[f"{whose}.port"] = int(port)
    return found


# --- What a peer sends as its trace. The propagators of OpenTelemetry log each invalid part, so that a peer could fill the log, and take 46 ms of the loop for 8 KB
# of tabs in `baggage`. So only what they would accept reaches them.

_PARENT: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-[\x21-\x7e]{0,200})?")
_STATE_MEMBER: Final = re.compile(
    r"(?:[a-z][_0-9a-z*/-]{0,255}|[a-z0-9][_0-9a-z*/-]{0,240}@[a-z][_0-9a-z*/-]{0,13})="
    r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_TOKEN: Final = r"[\x21\x23-\x27\x2a\x2b\x2d\x2e\x30-\x39\x41-\x5a\x5e-\x7a\x7c\x7e]+"  # noqa: S105 - of a grammar
_VALUE: Final = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"
_BAGGAGE_MEMBER: Final = re.compile(f"{_TOKEN}={_VALUE}(?:;{_TOKEN}(?:={_VALUE})?)*")
_LONGEST_STATE: Final = 512
_LONGEST_MEMBER: Final = 4096
_MOST_MEMBERS: Final = 64
_MOST_STATES: Final = 32


def without_invalid(carried: Mapping[str, str]) -> dict[str, str]:
    """The carrier without what is invalid in it; of baggage, the valid members are kept."""
    found: dict[str, str] = {}
    for field, value in carried.items():
        if field == "traceparent":
            if _PARENT.fullmatch(value):
                found[field] = value
        elif field == "tracestate":
            members = [each.strip(" \t") for each in value.split(",")] if len(value) <= _LONGEST_STATE else []
            members = [each for each in members if each]
            if members and len(members) <= _MOST_STATES and all(map(_STATE_MEMBER.fullmatch, members)):
                found[field] = ",".join(members)
        elif field == "baggage":
            if members := [each for each in map(_baggage_member, value.split(",")[:_MOST_MEMBERS]) if each]:
                found[field] = ",".join(members)
        elif len(value) <= _LONGEST_STATE and value.isascii() and value.isprintable():
            found[field] = value
    return found


def _baggage_member(text: str) -> str:
    """One member without white space; empty for an invalid one."""
    if len(text) > _LONGEST_MEMBER:
        return ""
    text = ";".join("=".join(part.strip(" \t") for part in each.split("=", 1)) for each in text.split(";"))
    return text if _BAGGAGE_MEMBER.fullmatch(text) else ""


def enter_carried(carried: Mapping[str, str]) -> None:
    """Continue a trace in another process of the operating system: `carried` is what `OpenTelemetry.carrier` returned there."""
    contexts.attach(propagate.extract(dict(carried)))


# --- `greenroom serve --otel`: the SDK as the variables OTEL_* of the environment say, for programs that have not configured it.

_INSTALL: Final = "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
_PROTOCOLS: Final = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
"""By the protocol of OTLP, the exporter's name among entry points."""
_SERVICE: Final = "service.name"


@contextmanager
def telemetry_of_environment(name: str) -> Generator[None]:
    """Trace and measure during the block. `name` is the service's, unless the environment has one. What was collected is sent in the end.

    The variables are those of OpenTelemetry: OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_TRACES_EXPORTER, OTEL_SERVICE_NAME and so on. Providers that the program has set stay,
    and so does an `OpenTelemetry` that it has installed.

    Raises:
        ConfigError: The SDK or an exporter is not installed, or a variable is wrong.

    """
    if bus.tracer is not None:
        yield
        return
    stops = _configure_sdk(name)
    telemetry = OpenTelemetry()
    telemetry.is_of_environment = True
    try:
        with telemetry:
            yield
    finally:
        for stop in stops:
            stop()


class WorkerTelemetry(GenServer):
    """The telemetry of a worker process, whose main program has that of the environment."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, name: str) -> None:
        """`name` is the service's."""
        self._name = name
        self._open = ExitStack()

    def init(self) -> None:
        """Begin."""
        self._open.enter_context(telemetry_of_environment(self._name))

    async def terminate(self, reason: ExitReason) -> None:  # noqa: ARG002 - however it ends
        """Send what was collected."""
        await asyncio.to_thread(self._open.close)


def _configure_sdk(name: str) -> list[Callable[[], object]]:
    """Set the providers that the program has not set. Returns what shuts them down."""
    try:
        from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415 - the SDK is no dependency
        from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader  # noqa: PLC0415 - same
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - same
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - same
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - same
    except ModuleNotFoundError as error:
        raise ConfigError(f"OpenTelemetry's SDK is not installed: {_INSTALL}") from error
    stops: list[Callable[[], object]] = []
    resource = Resource.create()
    if str(resource.attributes.get(_SERVICE, "")).startswith("unknown_service"):
        resource = resource.merge(Resource({_SERVICE: name}))
    is_traced, is_measured = _is_unset(trace.get_tracer_provider()), _is_unset(metrics.get_meter_provider())
    # All are made before any is set: a provider that is set stays.
    span_exporters, metric_exporters = (
        _exporters(signal) if wanted else [] for signal, wanted in (("traces", is_traced), ("metrics", is_measured))
    )
    if is_traced:
        tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
        for exporter in span_exporters:
            tracers.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(tracers)
        stops.append(tracers.shutdown)
    if is_measured:
        readers = [
            each if isinstance(each, MetricReader) else PeriodicExportingMetricReader(each) for each in metric_exporters
        ]
        meters = MeterProvider(readers, resource, shutdown_on_exit=False)
        metrics.set_meter_provider(meters)
        stops.append(meters.shutdown)
    return stops


def _is_unset(provider: object) -> bool:
    """Whether this is the API's own stand-in for a provider."""
    return type(provider).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics"))


def _exporters(signal: str) -> list[Any]:
    """The exporters of traces or metrics."""
    variable = f"OTEL_{signal.upper()}_EXPORTER"
    names = [each.strip() for each in os.environ.get(variable, "").split(",") if each.strip()] or ["otlp"]
    return [_exporter(signal, variable, name) for name in names if name != "none"]


def _exporter(signal: str, variable: str, name: str) -> Any:
    entry = name
    if name == "otlp":
        variables = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
        protocol = next(filter(None, map(os.environ.get, variables)), "http/protobuf")
        if protocol not in _PROTOCOLS:
            raise ConfigError(f"{variables[1]} is {' or '.join(_PROTOCOLS)}, not {protocol!r}")
        entry = _PROTOCOLS[protocol]
    found = next(iter(entry_points(group=f"opentelemetry_{signal}_exporter", name=entry)), None)
    if found is None:
        kind = "grpc" if entry.endswith("grpc") else "http"
        hint = _INSTALL.replace("http", kind) if name == "otlp" else "none, console and otlp are the usual ones"
        raise ConfigError(f"{variable}={name}: no installed package has that exporter: {hint}")
    try:
        return found.load()()
    except Exception as error:
        raise ConfigError(f"{variable}={name}: the exporter cannot be made: {error}") from error
