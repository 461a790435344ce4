"""Spans and metrics made of single events, judged by the conventions; what a peer sends is cleaned; a broken provider harms nothing."""

from __future__ import annotations

import logging
import time
from importlib import import_module
from logging.handlers import BufferingHandler
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from greenroom.errors import ConfigError
from greenroom.event_types import CallEnded, CallStarted, ChildStarted, SessionClosed
from greenroom.observe import OpenTelemetry, open_telemetry
from greenroom.observe.open_telemetry import without_invalid
from greenroom.supervision.event_bus import bus, next_call, trace_context

from . import mcp_conventions
from .telemetry_helpers import Collector, collecting, id_of, parent_of, trace_of

if TYPE_CHECKING:
    from collections.abc import Generator

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
HTTP_PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"


@pytest.fixture
def collector() -> Generator[Collector]:
    """An OpenTelemetry that is installed."""
    with collecting() as found:
        yield found


def started(**fields: Any) -> int:
    """Emit the start of a call. Returns its number."""
    assert bus.listener is not None
    call = next_call()
    given: dict[str, Any] = {
        "side": "server",
        "program": "weather",
        "way": "session",
        "method": "tools/call",
        "name": "forecast",
        "request": "7",
    }
    bus.listener(CallStarted(call=call, **{**given, **fields}))
    return call


def ended(call: int, **fields: Any) -> None:
    """Emit the end of a call."""
    assert bus.listener is not None
    given: dict[str, Any] = {
        "side": "server",
        "program": "weather",
        "way": "session",
        "method": "tools/call",
        "name": "forecast",
        "outcome": "result",
        "seconds": 0.25,
    }
    bus.listener(CallEnded(call=call, **{**given, **fields}))


# --- the conventions


def test_the_table_of_conventions_agrees_with_the_published_constants() -> None:
    known: set[str] = set()
    for group in (
        "_incubating.attributes.mcp",
        "_incubating.attributes.gen_ai",
        "_incubating.attributes.jsonrpc",
        "_incubating.attributes.network",
    ):
        known |= _constants(f"opentelemetry.semconv.{group}_attributes")
    for group in ("client", "server", "error"):
        known |= _constants(f"opentelemetry.semconv.attributes.{group}_attributes")
    written = {each.name for attributes in mcp_conventions.SPANS.values() for each in attributes}
    written |= {each.name for metric in mcp_conventions.METRICS.values() for each in metric.attributes}
    # The package has this one only as the replacement that its deprecated attributes name.
    assert written - known == {"rpc.response.status_code"}
    assert {name for name in known if name.startswith("mcp.")} <= written


def _constants(module: str) -> set[str]:
    return {value for name, value in vars(import_module(module)).items() if name.isupper() and isinstance(value, str)}


def test_the_table_of_metrics_agrees_with_the_published_ones() -> None:
    made: dict[str, tuple[str, str]] = {}

    class Noting:
        def create_histogram(self, name: str, unit: str, description: str) -> None:
            made[name] = unit, description

    module = import_module("opentelemetry.semconv._incubating.metrics.mcp_metrics")
    for name, function in vars(module).items():
        if name.startswith("create_"):
            function(Noting())
    assert made == {name: (each.unit, each.description) for name, each in mcp_conventions.METRICS.items()}


def test_a_call_of_a_tool_over_http(collector: Collector) -> None:
    call = started(
        session="s1",
        revision="2025-11-25",
        transport="http",
        http_version="1.1",
        address="10.0.0.7:50123",
        trace={"traceparent": PARENT},
        http_trace={"traceparent": HTTP_PARENT},
    )
    ended(
        call,
        revision="2025-11-25",
        transport="http",
        http_version="1.1",
        address="10.0.0.7:50123",
        isolation="thread",
        queued=0.01,
    )
    span = collector.spans()[0]
    assert span.name == "tools/call forecast"
    assert span.kind is SpanKind.SERVER
    assert span.attributes == {
        "mcp.method.name": "tools/call",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "forecast",
        "jsonrpc.request.id": "7",
        "mcp.session.id": "s1",
        "mcp.protocol.version": "2025-11-25",
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": "1.1",
        "client.address": "10.0.0.7",
        "client.port": 50123,
        "greenroom.program": "weather",
        "greenroom.way": "session",
        "greenroom.isolation": "thread",
        "greenroom.queued": 0.01,
    }
    assert trace.format_trace_id(trace_of(span)) in PARENT
    assert span.parent is not None
    assert trace.format_span_id(span.parent.span_id) in PARENT
    assert [trace.format_span_id(link.context.span_id) for link in span.links] == ["00f067aa0ba902b8"]
    assert span.status.status_code is StatusCode.UNSET
    (point,) = collector.points("mcp.server.operation.duration")
    assert point.sum == 0.25
    assert "client.address" not in point.attributes
    assert point.attributes["gen_ai.tool.name"] == "forecast"


@pytest.mark.parametrize(
    ("outcome", "code", "message", "error", "description"),
    [
        ("error", -32602, "no such city", "-32602", "no such city"),
        ("tool_error", None, "", "tool_error", "the tool reported an error"),
        ("deadline", -32001, "took too long", "-32001", "took too long"),
        ("peer_gone", None, "", "peer_gone", "the other end is gone"),
        ("process_ended", None, "", "process_ended", "the process that ran it ended"),
    ],
)
def test_an_error_is_the_code_or_the_kind_of_its_ending(
    collector: Collector, outcome: str, code: int | None, message: str, error: str, description: str
) -> None:
    ended(started(), outcome=outcome, code=code, message=message)
    span = collector.spans()[0]
    assert span.attributes is not None
    assert span.attributes["error.type"] == error
    assert span.attributes.get("rpc.response.status_code") == (None if code is None else error)
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, description)
    (point,) = collector.points("mcp.server.operation.duration")
    assert point.attributes["error.type"] == error


def test_a_call_that_ends_with_questions_has_no_error(collector: Collector) -> None:
    ended(started(way="exchange"), way="exchange", outcome="asks")
    assert "error.type" not in (collector.spans()[0].attributes or {})
    assert "error.type" not in collector.points("mcp.server.operation.duration")[0].attributes


def test_an_unregistered_name_is_no_target_and_no_label(collector: Collector) -> None:
    ended(started(name="x" * 5000), name="x" * 5000, is_known=False, outcome="error", code=-32602)
    span = collector.spans()[0]
    assert span.name == "tools/call"
    assert span.attributes is not None
    assert span.attributes["gen_ai.tool.name"] == "x" * 256
    assert collector.points("mcp.server.operation.duration")[0].attributes["gen_ai.tool.name"] == "_unknown"


def test_an_unknown_method_is_no_name_and_no_label(collector: Collector) -> None:
    call = started(method="evil/method", name="")
    ended(call, method="evil/method", name="", is_method_known=False, outcome="error", code=-32601)
    span = collector.spans()[0]
    assert span.name == "_unknown"
    assert (span.attributes or {})["mcp.method.name"] == "evil/method"
    assert collector.points("mcp.server.operation.duration")[0].attributes["mcp.method.name"] == "_unknown"


def test_a_uri_is_on_the_span_without_its_query_and_on_no_metric(collector: Collector) -> None:
    uri = "db://orders/1?token=secret"
    ended(started(method="resources/read", name=uri), method="resources/read", name=uri)
    span = collector.spans()[0]
    assert span.name == "resources/read"
    assert (span.attributes or {})["mcp.resource.uri"] == "db://orders/1"
    assert collector.points("mcp.server.operation.duration")[0].attributes == {
        "mcp.method.name": "resources/read",
        "greenroom.program": "weather",
    }


def test_uris_are_in_the_names_of_spans_where_that_is_asked_for() -> None:
    with collecting(resource_uri_in_names=True) as collector:
        ended(started(method="resources/read", name="db://orders"), method="resources/read", name="db://orders")
        assert [span.name for span in collector._spans.get_finished_spans()] == ["resources/read db://orders"]


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:80", "127.0.0.1", 80),
        ("[::1]:8000", "::1", 8000),
        ("example.com", "example.com", None),
        ("::1", "::1", None),
        ("host:99999999", "host:99999999", None),
        ("host:x", "host:x", None),
    ],
)
def test_a_client_names_its_server(collector: Collector, address: str, host: str, port: int | None) -> None:
    fields: dict[str, Any] = {"side": "client", "way": "client", "transport": "http", "address": address}
    ended(started(**fields), **fields)
    span = collector.spans()[0]
    found = span.attributes or {}
    assert span.kind is SpanKind.CLIENT
    assert (found.get("server.address"), found.get("server.port")) == (host, port)
    (point,) = collector.points("mcp.client.operation.duration")
    assert (point.attributes.get("server.address"), point.attributes.get("server.port")) == (host, port)


def test_what_a_client_learns_by_its_call_is_on_the_span(collector: Collector) -> None:
    fields: dict[str, Any] = {"side": "client", "way": "client", "method": "initialize", "name": ""}
    ended(started(**fields), **fields, revision="2025-11-25", transport="stdio")
    span = collector.spans()[0]
    assert (span.attributes or {})["mcp.protocol.version"] == "2025-11-25"
    assert collector.points("mcp.client.operation.duration")[0].attributes["network.transport"] == "pipe"


def test_sessions_are_measured(collector: Collector) -> None:
    assert bus.listener is not None
    for side, failed in (("server", False), ("client", True)):
        bus.listener(
            SessionClosed(
                side=side,  # type: ignore[arg-type]  # one of the two
                program="weather",
                session="s",
                revision="2025-11-25",
                transport="http",
                http_version="2",
                address="10.1.2.3:443",
                seconds=12.0,
                is_failure=failed,
            )
        )
    (point,) = collector.points("mcp.server.session.duration")
    assert point.sum == 12.0
    assert "error.type" not in point.attributes
    (point,) = collector.points("mcp.client.session.duration")
    assert point.attributes["error.type"]
    assert (point.attributes["server.address"], point.attributes["server.port"]) == ("10.1.2.3", 443)


def test_what_only_a_supervised_system_has_is_measured_too(collector: Collector) -> None:
    assert bus.listener is not None
    call = started()
    bus.listener(ChildStarted(node="n", supervisor="top", child="git", kind="Upstream", pid="<1.2>", is_restart=True))
    found = collector.metrics()
    assert {name for name, metric in found.items() if metric.unit == ""} == set()
    (point,) = [each for each in collector.points("greenroom.process.restarts") if each.value]
    assert (point.value, dict(point.attributes)) == (1, {"greenroom.kind": "Upstream"})
    (point,) = collector.points("greenroom.call.in_flight")
    assert (point.value, point.attributes["greenroom.program"]) == (1, "weather")
    assert collector.points("greenroom.thread.busy")[0].value >= 0
    ended(call)


def test_a_metric_leads_to_a_trace(collector: Collector) -> None:
    call = started()
    ended(call)
    (point,) = collector.points("mcp.server.operation.duration")
    assert [each.span_id for each in point.exemplars] == [id_of(collector.spans()[0])]


def test_nothing_is_looked_at_after_it_was_uninstalled() -> None:
    collector = Collector()
    with collector.telemetry:
        assert collector.points("greenroom.thread.busy")
    assert collector.points("greenroom.thread.busy") == []


# --- parents


def test_the_code_around_a_local_call_is_its_parent(collector: Collector) -> None:
    with collector.tracer.start_as_current_span("mine") as mine:
        ended(started(way="local", request=""), way="local")
    span = collector.span("tools/call forecast")
    assert parent_of(span) == mine.get_span_context().span_id


def test_the_code_around_a_call_with_a_trace_is_linked(collector: Collector) -> None:
    with collector.tracer.start_as_current_span("mine") as mine:
        ended(started(trace={"traceparent": PARENT}))
    span = collector.span("tools/call forecast")
    assert span.parent is not None
    assert trace.format_span_id(span.parent.span_id) in PARENT
    assert [link.context.span_id for link in span.links] == [mine.get_span_context().span_id]


def test_the_http_request_is_the_parent_where_there_is_nothing_better(collector: Collector) -> None:
    ended(started(http_trace={"traceparent": HTTP_PARENT}))
    span = collector.spans()[0]
    assert span.parent is not None
    assert trace.format_span_id(span.parent.span_id) in HTTP_PARENT
    assert not span.links


def test_the_work_of_a_task_belongs_to_the_call_that_created_it(collector: Collector) -> None:
    creating = started(trace={"traceparent": PARENT})
    work = started(way="task", task="t1", creator=creating, request="", trace={"traceparent": PARENT})
    ended(creating)
    ended(work, way="task", task="t1")
    first, second = collector.spans()
    assert parent_of(second) == id_of(first)
    assert trace_of(first) == trace_of(second)
    assert (second.attributes or {})["greenroom.task"] == "t1"


def test_baggage_goes_to_the_handler_and_on(collector: Collector) -> None:
    call = started(trace={"traceparent": PARENT, "baggage": "user=alice"})
    carried = collector.telemetry.carrier(call)
    assert carried["baggage"] == "user=alice"
    assert carried["traceparent"].split("-")[1] in PARENT
    ended(call)
    assert trace.format_span_id(id_of(collector.spans()[0])) == carried["traceparent"].split("-")[2]


def test_another_process_continues_the_trace(collector: Collector) -> None:
    call = started()
    carried = collector.telemetry.carrier(call)

    def elsewhere() -> tuple[str, str]:
        module = import_module(collector.telemetry.home)
        module.enter_carried(carried)
        found = get_current_span().get_span_context()
        return trace.format_trace_id(found.trace_id), trace.format_span_id(found.span_id)

    from contextvars import Context as Variables  # noqa: PLC0415 - only here

    assert Variables().run(elsewhere) == tuple(carried["traceparent"].split("-")[1:3])
    ended(call)


# --- what a peer sends


@pytest.mark.parametrize(
    "carried",
    [
        {"traceparent": PARENT},
        {"traceparent": PARENT, "tracestate": "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"},
        {"traceparent": PARENT, "baggage": "userId=alice,serverNode=DF%2028,isProduction=false"},
        {"traceparent": PARENT, "baggage": "a=b;c=d;e"},
    ],
)
def test_valid_traces_are_kept(carried: dict[str, str]) -> None:
    assert without_invalid(carried) == carried


@pytest.mark.parametrize(
    ("carried", "left"),
    [
        ({"traceparent": "00-xyz"}, {}),
        ({"traceparent": f"{PARENT}\n"}, {}),
        ({"tracestate": "a=b,=c"}, {}),
        ({"tracestate": "a=" + "b" * 600}, {}),
        ({"tracestate": ", a=b ,"}, {"tracestate": "a=b"}),
        ({"baggage": "a=b, =c, d = e ; f = g ,h"}, {"baggage": "a=b,d=e;f=g"}),
        ({"baggage": "\udc80=b"}, {}),
        (
            {"b3": "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1"},
            {"b3": "0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-1"},
        ),
        ({"b3": "a\nb"}, {}),
    ],
)
def test_invalid_traces_are_dropped(carried: dict[str, str], left: dict[str, str]) -> None:
    assert without_invalid(carried) == left


@given(
    st.fixed_dictionaries(
        {}, optional={name: st.text(max_size=300) for name in ("traceparent", "tracestate", "baggage")}
    )
)
def test_no_trace_makes_the_library_log_or_raise(carried: dict[str, str]) -> None:
    handler = BufferingHandler(1000)
    logger = logging.getLogger("opentelemetry")
    logger.addHandler(handler)
    try:
        propagate.extract(without_invalid(carried), Context())
    finally:
        logger.removeHandler(handler)
    assert handler.buffer == []


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,5}", fullmatch=True), st.from_regex(r"[a-z0-9]{0,8}", fullmatch=True), max_size=8
    )
)
def test_valid_baggage_arrives(members: dict[str, str]) -> None:
    text = " , ".join(f"{key}\t=  {value}" for key, value in members.items())
    context = propagate.extract(without_invalid({"baggage": text}), Context())
    assert baggage.get_all(context) == members


@pytest.mark.parametrize("text", ["\t" * 8000, "a=" + " " * 8000, "a=1" + "\t" * 8000 + "b", ";" * 8000, "," * 8000])
def test_hostile_baggage_takes_linear_time(text: str) -> None:
    took = min(_seconds_to_clean(text) for _ in range(3))
    assert took < 0.01, "the propagator itself takes 0.04 s, and four times as much for twice the length"


def _seconds_to_clean(text: str) -> float:
    began = time.process_time()
    propagate.extract(without_invalid({"baggage": text}), Context())
    return time.process_time() - began


def test_long_fields_and_other_types_are_no_trace() -> None:
    assert trace_context({"traceparent": 5, "baggage": "x" * 8193, "other": "y"}) is None


_TEXT = st.text(st.characters(exclude_categories=()), max_size=40)


@given(
    fields=st.fixed_dictionaries(
        {},
        optional={
            "name": _TEXT,
            "method": _TEXT | st.sampled_from(["tools/call", "prompts/get", "resources/read"]),
            "program": _TEXT,
            "revision": _TEXT,
            "transport": _TEXT | st.sampled_from(["http", "stdio"]),
            "http_version": _TEXT,
            "address": _TEXT,
        },
    ),
    begun=st.fixed_dictionaries({}, optional={"request": _TEXT, "session": _TEXT, "task": _TEXT}),
    end=st.fixed_dictionaries(
        {"outcome": st.sampled_from(["result", "tool_error", "error", "asks", "cancelled", "refused"])},
        optional={
            "code": st.integers(-(2**53), 2**53),
            "message": _TEXT,
            "is_known": st.booleans(),
            "is_method_known": st.booleans(),
        },
    ),
)
def test_hostile_texts_make_valid_spans(fields: dict[str, Any], begun: dict[str, Any], end: dict[str, Any]) -> None:
    with collecting() as collector:
        ended(started(**fields, **begun), **fields, **end)
        (span,) = collector._spans.get_finished_spans()
        spans_kind = mcp_conventions.SPANS[span.kind]
        assert list(mcp_conventions._problems_of_attributes(span.attributes or {}, spans_kind)) == []
        assert encode_spans([span]).SerializeToString()
        assert all(len(str(value)) <= 1024 for value in (span.attributes or {}).values())


# --- the bus


def test_one_is_installed_at_a_time(collector: Collector) -> None:
    with pytest.raises(ConfigError, match="install one"):
        OpenTelemetry().install()
    assert bus.tracer is collector.telemetry


def test_open_spans_are_ended_with_it() -> None:
    collector = Collector()
    with collector.telemetry:
        started()
        assert collector._spans.get_finished_spans() == ()
    assert [span.name for span in collector._spans.get_finished_spans()] == ["tools/call forecast"]
    assert bus.tracer is None
    collector.telemetry.uninstall()


def test_spans_of_calls_that_never_end_are_bounded(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_telemetry, "MOST_OPEN", 3)
    calls = [started(name=f"tool-{number}") for number in range(5)]
    assert [span.name for span in collector._spans.get_finished_spans()] == ["tools/call tool-0", "tools/call tool-1"]
    for call in calls:
        ended(call)
    assert len(collector._spans.get_finished_spans()) == 5
    assert collector.telemetry._open == {}


def test_kept_attributes_are_bounded(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_telemetry, "_MOST_KEPT", 10)
    for number in range(50):
        ended(started(method=f"m/{number}"), method=f"m/{number}")
    assert 0 < len(collector.telemetry._kinds) <= 10
    collector.telemetry._kinds.clear()
    ended(started(name="n" * 300))
    assert collector.telemetry._kinds == {}


class _Broken(TracerProvider):
    def get_tracer(self, *args: Any, **options: Any) -> Any:
        class Broken:
            def start_span(self, *args: Any) -> None:
                raise RuntimeError("broken")

        return Broken()


def test_a_broken_provider_is_logged_once_and_harms_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with OpenTelemetry(_Broken()):
        for _ in range(5):
            call = started()
            assert bus.tracer is not None
            bus.tracer.enter(call)
            assert bus.tracer.carrier(call) == {}
            ended(call)
    assert [record.name for record in caplog.records] == ["greenroom.observe"]
    assert "broken" in caplog.text


def test_a_program_without_a_provider_passes_its_trace_on() -> None:
    with OpenTelemetry():
        call = started(trace={"traceparent": PARENT})
        assert bus.tracer is not None
        assert bus.tracer.carrier(call) == {"traceparent": PARENT}
        ended(call)
