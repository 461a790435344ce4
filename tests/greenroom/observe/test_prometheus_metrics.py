"""Metrics for Prometheus: the numbers of events, bounded labels, the formats, and several workers as one."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain_families
from tests.example_counts import examples

from greenroom import Client, Host, Server, ToolError
from greenroom import event_types as events
from greenroom.observe import PrometheusMetrics, WorkerMetrics
from greenroom.observe.event_meter import EventMeter, LabelValues, address_parts, error_type
from greenroom.observe.metric_table import METRICS, OTHER, UNKNOWN
from greenroom.observe.prometheus_metrics import MetricFamily
from greenroom.supervision.event_bus import bus

if TYPE_CHECKING:
    from collections.abc import Iterator

CALL: dict[str, Any] = {
    "side": "server",
    "program": "demo",
    "way": "session",
    "method": "tools/call",
    "name": "add",
    "outcome": "result",
    "seconds": 0.03,
}


def ended(**changes: Any) -> events.CallEnded:
    """A call that has ended: `CALL`, but for these fields."""
    fields: dict[str, Any] = {"call": 1, **CALL, **changes}
    return events.CallEnded(**fields)


@pytest.fixture
def metrics() -> Iterator[PrometheusMetrics]:
    with PrometheusMetrics() as counting:
        yield counting


def openmetrics_families(text: str) -> list[Any]:
    """The families that prometheus_client reads in a text of OpenMetrics."""
    return list(openmetrics.text_string_to_metric_families(text))  # type: ignore[no-untyped-call]


def emit(*happened: events.Event) -> None:
    assert bus.listener is not None
    for event in happened:
        bus.listener(event)


def values(metrics: PrometheusMetrics | WorkerMetrics, name: str) -> dict[str, float]:
    """The samples of that name: by their labels' values, joined."""
    return {
        " ".join(sample.labels[label] for label in sorted(sample.labels)): sample.value
        for family in plain_families(metrics.text().body.decode())
        for sample in family.samples
        if sample.name == name
    }


async def test_calls_of_a_real_server_are_counted_with_their_outcomes(metrics: PrometheusMetrics) -> None:
    server = Server("demo")

    @server.tool
    def divide(by: int) -> float:
        return 1 / by

    async with server.started(), Client(server) as client:
        for _ in range(3):
            await client.call("divide", by=2)
        with pytest.raises(ToolError):
            await client.call("divide", by=0)
    found = {
        (sample.labels["side"], sample.labels["outcome"]): sample.value
        for family in plain_families(metrics.text().body.decode())
        for sample in family.samples
        if sample.name == "greenroom_calls_total" and sample.labels.get("name") == "divide"
    }
    assert found == {
        ("server", "result"): 3,
        ("server", "worker_crashed"): 1,
        ("client", "result"): 3,
        ("client", "tool_error"): 1,
    }


def test_a_call_is_in_each_of_its_metrics_with_the_conventions_labels(metrics: PrometheusMetrics) -> None:
    emit(
        events.CallStarted(call=1, **{name: CALL[name] for name in ("side", "program", "way", "method", "name")}),
        events.CallStarted(call=2, side="client", program="git", way="upstream", method="prompts/get", name="ask"),
        ended(revision="2025-06-18", transport="http", http_version="1.1", isolation="loop"),
    )
    (family,) = [each for each in metrics.families() if each.name == "mcp_server_operation_duration_seconds"]
    labels = dict(family.samples[0].labels)
    assert labels.pop("le") == "0.01"
    assert labels == {
        "mcp_method_name": "tools/call",
        "gen_ai_tool_name": "add",
        "gen_ai_operation_name": "execute_tool",
        "mcp_protocol_version": "2025-06-18",
        "network_transport": "tcp",
        "network_protocol_name": "http",
        "network_protocol_version": "1.1",
        "program": "demo",
    }
    assert [sample.value for sample in family.samples] == [0, 0, *[1] * 13, 1, 0.03]
    assert values(metrics, "greenroom_call_in_flight") == {"git client upstream": 1}
    emit(
        events.CallEnded(
            call=2, side="client", program="git", way="upstream", method="prompts/get", name="ask", outcome="error",
            code=-32602, seconds=1, queued=0.5, transport="http", address="[::1]:8000",
        )
    )  # fmt: skip
    (sample, *_) = [each for each in _samples(metrics) if each.name.startswith("mcp_client_operation")]
    assert sample.labels["server_address"] == "::1"
    assert sample.labels["server_port"] == "8000"
    assert sample.labels["gen_ai_prompt_name"] == "ask"
    assert sample.labels["error_type"] == sample.labels["rpc_response_status_code"] == "-32602"
    assert values(metrics, "greenroom_call_in_flight") == {"git client upstream": 0}


def _samples(metrics: PrometheusMetrics) -> list[Any]:
    return [
        sample for family in plain_families(metrics.text().body.decode()) for sample in family.samples
    ]  # of prometheus_client


def test_each_event_but_details_reaches_its_metrics(metrics: PrometheusMetrics) -> None:
    emit(
        events.RequestRefused(program="demo", kind="origin", setting="allowed_origins", transport="http"),
        events.SessionOpened(side="server", program="demo", session="s1", revision="r", transport="http"),
        events.SessionOpened(side="server", program="demo", session="s2", revision="r", transport="http"),
        events.SessionClosed(side="server", program="demo", session="s1", revision="r", seconds=3, is_failure=True),
        events.StreamOpened(program="demo", stream=1, kind="listen"),
        events.StreamOpened(program="demo", stream=2, kind="call"),
        events.StreamClosed(program="demo", stream=2, kind="call", seconds=1, is_evicted=True),
        events.QuestionAsked(side="server", program="demo", question=1, method="elicitation/create"),
        events.QuestionAsked(side="server", program="demo", question=2, method="elicitation/create"),
        events.QuestionEnded(
            side="server", program="demo", question=1, method="elicitation/create", outcome="accept", seconds=1
        ),
        events.TaskCreated(program="demo", task="t1", method="tools/call"),
        events.TaskCreated(program="demo", task="t2", method="tools/call"),
        events.TaskEnded(program="demo", task="t1", method="tools/call", status="failed", seconds=1),
        events.UpstreamChanged(program="hub", upstream="git", before="", state="starting"),
        events.UpstreamChanged(program="hub", upstream="git", before="starting", state="ready"),
        events.BreakerChanged(program="hub", upstream="git", state="open"),
        events.SignInEnded(side="client", program="git", kind="oauth", is_failure=True),
        events.PoolWorkerStarted(program="demo", pool="render", process=11),
        events.PoolWorkerStarted(program="demo", pool="render", process=12),
        events.PoolWorkerEnded(program="demo", pool="render", process=11, signal="SIGSEGV", is_failure=True),
        events.ChildStarted(node="n", supervisor="s", child="1", kind="Session", pid="<n.1>"),
        events.ChildStarted(node="n", supervisor="s", child="1", kind="Session", pid="<n.1>", is_restart=True),
        events.ChildEnded(node="n", supervisor="s", child="1", kind="Session", reason="x", is_start=True),
        events.ProcessCrashed(node="n", label="session 7", kind="Session", pid="<n.1>", reason="x"),
        events.SupervisorGaveUp(
            node="n", supervisor="s", kind="Top", child="1", reason="x", intensity=1, period=1
        ),
        events.ProcessLeaked(node="n", label="l", kind="Session", pid="<n.1>", reason="killed"),
        events.LoopBlocked(node="n", label="l", kind="Session", pid="<n.1>", seconds=2),
        events.LoopLagged(node="n", seconds=0.002),
        events.ActDone(act="kill", target="<n.1>", principal="ada"),
    )  # fmt: skip
    expected = {
        "greenroom_request_refusals_total": {"origin demo allowed_origins http": 1},
        "greenroom_session_open": {"demo server http": 1},
        "mcp_server_session_duration_seconds_count": {"_OTHER r demo": 1},
        "greenroom_stream_open": {"listen demo": 1},
        "greenroom_stream_evictions_total": {"call demo": 1},
        "greenroom_question_open": {"elicitation/create demo server": 1},
        "greenroom_questions_total": {"elicitation/create accept demo server": 1},
        "greenroom_task_open": {"demo": 1},
        "greenroom_tasks_total": {"demo failed": 1},
        "greenroom_upstream_state": {"hub starting git": 0, "hub ready git": 1},
        "greenroom_upstream_changes_total": {"hub starting git": 1, "hub ready git": 1},
        "greenroom_breaker_state": {"hub open git": 1},
        "greenroom_breaker_changes_total": {"hub open git": 1},
        "greenroom_sign_ins_total": {"oauth failure git client": 1},
        "greenroom_pool_workers": {"render demo": 1},
        "greenroom_pool_losses_total": {"render demo SIGSEGV": 1},
        "greenroom_process_restarts_total": {"Session": 1},
        "greenroom_process_start_failures_total": {"Session": 1},
        "greenroom_process_crashes_total": {"Session": 1},
        "greenroom_supervisor_gave_up_total": {"Top": 1},
        "greenroom_process_leaks_total": {"Session": 1},
        "greenroom_loop_blocks_total": {"Session": 1},
        "greenroom_loop_lag_seconds_count": {"": 1},
        "greenroom_acts_total": {"kill done": 1},
    }
    found = {
        name: {label: value for label, value in values(metrics, name).items() if value or name.endswith("state")}
        for name in expected
    }
    assert found == expected
    emit(events.UpstreamChanged(program="hub", upstream="git", before="ready", state="stopped"))
    assert values(metrics, "greenroom_upstream_state") == values(metrics, "greenroom_breaker_state") == {}


def test_every_event_is_in_the_table_or_is_known_to_count_for_nothing() -> None:
    counted = EventMeter(lambda metric, labels: partial(print, metric, labels))._handlers
    assert {kind.__name__ for kind in events.EVENT_TYPES if kind not in counted} == {
        "CallStep",
        "FramePassed",
        "ServerWrote",
    }
    sources = {kind.__name__ for kind in events.EVENT_TYPES} | {"processes", "threads", "upstreams"}
    assert {metric.source for metric in METRICS} <= sources


def test_unregistered_names_are_one_label(metrics: PrometheusMetrics) -> None:
    emit(*(ended(is_known=False, name=f"secret-{n}") for n in range(100)))
    emit(*(ended(is_method_known=False, method=f"odd/{n}") for n in range(100)))
    emit(*(ended(method="resources/read", name=f"file:///{n}") for n in range(9)))
    assert "odd/" not in repr(list(metrics._meter._call_series))  # which would keep each, however long
    found = values(metrics, "greenroom_calls_total")
    assert sorted(found.values()) == [9, 100, 100]
    text = metrics.text().body.decode()
    assert "secret-" not in text
    assert "odd/" not in text
    assert "file:" not in text
    assert UNKNOWN in text


HOSTILE = st.text(max_size=300) | st.sampled_from(['a"b', "a\\n", "\ud800", "\x00", "{}", "a\nb", "€" * 400])


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(HOSTILE, HOSTILE, HOSTILE, HOSTILE, st.integers()), min_size=1, max_size=20))
def test_hostile_texts_are_labels_that_both_parsers_read(texts: list[tuple[str, str, str, str, int]]) -> None:
    with PrometheusMetrics() as metrics:
        for name, method, program, revision, code in texts:
            emit(
                events.CallEnded(
                    call=1, side="client", program=program, way="client", method=method, name=name, outcome="error",
                    code=code, seconds=0.1, revision=revision, transport=name, address=method,
                ),
                ended(name=name),
                events.RequestRefused(program=program, kind=name, setting=method),
                events.ProcessCrashed(node="n", label=name, kind=method, pid=name, reason=revision),
                events.UpstreamChanged(program=program, upstream=name, before="", state=method, reason=revision),
            )  # fmt: skip
        plain = metrics.text().body.decode()
        rich = metrics.text("application/openmetrics-text").body.decode()
        for read in (plain_families(plain), openmetrics_families(rich)):
            counted = sum(
                sample.value for family in read for sample in family.samples if sample.name == "greenroom_calls_total"
            )
            assert counted == 2 * len(texts)


def test_a_flood_of_names_takes_a_bounded_number_of_series() -> None:
    with PrometheusMetrics() as metrics:
        for number in range(20_000):
            emit(
                events.CallEnded(
                    call=number, side="client", program=f"server {number % 700}", way="client", method="tools/call",
                    name=f"tool {number}", outcome="error", code=number, seconds=0.1, address=f"host{number}:{number}",
                    revision=str(number), transport="http",
                ),
                events.RequestRefused(program=f"p{number}", kind=f"k{number}", setting=f"s{number}"),
            )  # fmt: skip
        families = {family.name: family for family in metrics.families()}
        assert len(families["greenroom_calls"].samples) <= 6_001
        assert sum(sample.value for sample in families["greenroom_calls"].samples) == 20_000
        assert len(metrics._meter._call_series) <= 4_096
        assert all(len(numbers) <= 6_001 for numbers in metrics._numbers._series.values())
        assert any(OTHER in dict(sample.labels).values() for sample in families["greenroom_calls"].samples)


def test_a_server_with_very_many_tools_and_codes_takes_no_labels_and_series_of_others() -> None:
    upstream: dict[str, Any] = {"side": "client", "way": "upstream", "outcome": "error"}
    with PrometheusMetrics() as metrics:
        for number in range(10_000):
            emit(ended(**upstream, program="hostile", name=f"flood {number}", code=number))
        for program in ("quiet", "demo"):
            for number in range(60):
                emit(ended(**{**upstream, "program": program}, name=f"{program} {number}", code=-32602))
        families = {family.name: family for family in metrics.families()}
    for name, label in (("greenroom_calls", "name"), ("mcp_client_operation_duration_seconds", "gen_ai_tool_name")):
        known = {dict(sample.labels).get(label) for sample in families[name].samples}
        assert {f"{program} {number}" for program in ("quiet", "demo") for number in range(60)} <= known
        assert len(known) <= 700
    codes = {dict(each.labels).get("error_type") for each in families["mcp_client_operation_duration_seconds"].samples}
    assert {"-32602", OTHER} <= codes
    assert len(codes) <= 128


def test_a_label_is_clean_short_and_one_of_few() -> None:
    label = LabelValues(3)
    assert label("") == ""
    assert label("a\x00b") == "a\\u0000b"
    assert label("x" * 1000) == "x" * 128
    assert [label("one"), label("two"), label("one")] == ["one", OTHER, "one"]


@pytest.mark.parametrize("secret", ["s", "s" * 200])
def test_a_label_has_no_credentials_of_a_url_however_long(secret: str) -> None:
    assert LabelValues(3)(f"https://user:{secret}@shop.test:81/x") == "shop.test:81"


def test_acts_that_were_not_done_are_counted_without_their_reasons(metrics: PrometheusMetrics) -> None:
    for target in ("<n.1>", "<n.2>"):
        said = f"not done: there is no process {target} any more"
        emit(events.ActDone(act="kill", target=target, principal="ada", outcome=said))
    emit(events.ActDone(act="kill", target="<n.3>", principal="ada"))
    assert values(metrics, "greenroom_acts_total") == {"kill not_done": 2, "kill done": 1}


def test_metrics_that_are_closed_twice_leave_their_registry_once() -> None:
    with PrometheusMetrics() as metrics:
        metrics.close()
    assert list(metrics.registry.collect()) == []


@pytest.mark.parametrize(
    ("outcome", "code", "told"),
    [
        ("result", None, ""),
        ("asks", None, ""),
        ("tool_error", None, "tool_error"),
        ("error", None, "_OTHER"),
        ("error", -32602, "-32602"),
        ("deadline", None, "timeout"),
        ("refused", None, "refused"),
    ],
)
def test_an_error_type_is_the_code_or_the_outcome(outcome: events.Outcome, code: int | None, told: str) -> None:
    assert error_type(ended(outcome=outcome, code=code)) == told


@pytest.mark.parametrize(
    ("outcome", "told"), [("cancelled", ""), ("peer_gone", ""), ("process_ended", ""), ("refused", "refused")]
)
def test_a_listen_that_ended_has_no_error_type(outcome: events.Outcome, told: str) -> None:
    assert error_type(ended(method=events.LISTEN, outcome=outcome)) == told


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:80", ("127.0.0.1", "80")),
        ("[::1]:80", ("::1", "80")),
        ("example.com", ("example.com", "")),
        ("", ("", "")),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, parts: tuple[str, str]) -> None:
    assert address_parts(address) == parts


@pytest.mark.parametrize(
    ("accept", "rich"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text;version=1.0.0;escaping=x\r\nset-cookie: a, text/plain;q=0.5", True),
        ("text/plain;q=0.9, Application/OpenMetrics-Text; version=0.0.1; q=0.5", True),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text; q=0.0", False),
        ("application/openmetrics-text;q=0.01", True),
    ],
)
def test_the_format_is_negotiated_and_never_echoes_the_request(
    metrics: PrometheusMetrics, accept: str, *, rich: bool
) -> None:
    page = metrics.text(accept)
    kind = "application/openmetrics-text; version=1.0.0" if rich else "text/plain; version=0.0.4"
    assert page.content_type == f"{kind}; charset=utf-8"
    assert page.body.endswith(b"# EOF\n") is rich


def test_metrics_of_the_programs_own_registry_are_on_the_page() -> None:
    registry = CollectorRegistry()
    Counter("orders", "Orders.", ["kind"], registry=registry).labels("big").inc(5)
    with PrometheusMetrics(registry) as metrics:
        assert values(metrics, "orders_total") == {"big": 5}
    assert b"greenroom_" not in metrics.text().body
    assert bus.listener is None


def test_workers_are_added_up_and_a_counter_never_falls() -> None:
    registry = CollectorRegistry()
    Gauge("load", "Load.", registry=registry).set(2)
    with PrometheusMetrics(registry) as metrics:
        emit(
            ended(),
            events.SessionOpened(side="server", program="demo", session="1", revision=""),
        )
        encoded = msgspec.json.encode(metrics.families())
    answer = msgspec.json.decode(encoded, type=list[MetricFamily])
    workers = WorkerMetrics()
    workers.update("worker 1 of 4711", answer)
    workers.update("worker 2 of 4712", answer)
    assert sum(values(workers, "greenroom_calls_total").values()) == 2
    assert list(values(workers, "mcp_server_operation_duration_seconds_count").values()) == [2]
    assert list(values(workers, "greenroom_session_open").values()) == [2]
    assert values(workers, "load") == {"": 4}
    workers.drop("worker 2 of 4712")
    workers.drop("worker 2 of 4712")
    assert sum(values(workers, "greenroom_calls_total").values()) == 2
    assert list(values(workers, "greenroom_session_open").values()) == [1]
    workers.update("worker 2 of 4713", answer)
    assert sum(values(workers, "greenroom_calls_total").values()) == 3
    text = workers.text("application/openmetrics-text").body.decode()
    assert [family.name for family in openmetrics_families(text)].count("greenroom_calls") == 1


def test_the_longest_mailbox_of_workers_is_the_longest_of_theirs() -> None:
    def answer(value: float) -> list[MetricFamily]:
        return msgspec.convert(
            [["greenroom_mailbox_longest", "gauge", "h", "", [["greenroom_mailbox_longest", [["kind", "A"]], value]]]],
            type=list[MetricFamily],
        )

    workers = WorkerMetrics()
    for number, value in enumerate((3, 7, 5)):
        workers.update(str(number), answer(value))
    assert values(workers, "greenroom_mailbox_longest") == {"A": 7}


async def test_processes_are_looked_at_once_a_second_from_any_thread(
    metrics: PrometheusMetrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    before = values(metrics, "greenroom_processes")
    async with Server("demo").started():
        assert values(metrics, "greenroom_processes") == before
        now[0] += 1.1
        here = values(metrics, "greenroom_processes")
        there: list[dict[str, float]] = []
        now[0] += 1.1
        thread = threading.Thread(target=lambda: there.append(values(metrics, "greenroom_processes")))
        thread.start()
        thread.join()
        assert here == there[0]
        assert here["SessionSupervisor"] == before.get("SessionSupervisor", 0) + 1  # nodes of other threads count, too
        assert values(metrics, "greenroom_process_restarts_total")["SessionSupervisor"] == 0


def test_names_and_labels_are_what_prometheus_allows() -> None:
    names = [metric.prometheus_name for metric in METRICS]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z][a-z_]*", metric.prometheus_name), metric.name
        assert not metric.prometheus_name.endswith(("_total", "_count", "_sum", "_bucket", "_created", "_info"))
        assert len(set(metric.prometheus_labels)) == len(metric.labels)
        assert bool(metric.buckets) is (metric.kind == "histogram")
        assert not {"le", "job", "instance"} & set(metric.prometheus_labels)


def test_without_the_extra_the_error_says_what_to_install() -> None:
    program = "import sys; sys.modules['prometheus_client'] = None\nfrom greenroom.observe import PrometheusMetrics"
    done = subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, check=False, text=True)
    assert "pip install 'greenroom[prometheus]'" in done.stderr


async def test_an_upstream_has_its_state_and_its_queue(metrics: PrometheusMetrics) -> None:
    server = Server("demo")
    started: list[None] = []
    full, release = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait() -> int:
        started.append(None)
        if len(started) == 16:  # as many as are sent at once
            full.set()
        await release.wait()
        return 1

    async with Host() as host:
        await host.add("slow", server)
        calls = [asyncio.create_task(host.call_tool("slow:wait", {})) for _ in range(19)]
        await full.wait()
        assert values(metrics, "greenroom_upstream_queue") == {"host slow": 3}
        assert values(metrics, "greenroom_upstream_state")["host ready slow"] == 1
        release.set()
        await asyncio.gather(*calls)
        assert values(metrics, "greenroom_upstream_queue") == {"host slow": 0}
    assert values(metrics, "greenroom_upstream_state") == values(metrics, "greenroom_upstream_queue") == {}


async def test_metrics_that_come_late_show_what_is_open_and_a_gauge_stays_at_0() -> None:
    server = Server("shop")

    @server.tool
    def add() -> int:
        return 1

    async with Host() as host:
        await host.add("shop", server)
        await host.call_tool("shop:add", {})
        with PrometheusMetrics() as late:
            assert values(late, "greenroom_upstream_state") == {"host ready shop": 1}
            assert values(late, "greenroom_upstream_changes_total") == {}
            assert values(late, "greenroom_session_open") == {"shop client memory": 1}
            emit(events.CallStarted(call=-1, side="server", program="demo", way="session", method="ping"))
            assert values(late, "greenroom_call_in_flight") == {"demo server session": 1}
            emit(ended(call=-1))
            assert values(late, "greenroom_call_in_flight") == {"demo server session": 0}
            with PrometheusMetrics() as later:
                assert values(later, "greenroom_session_open") == {"shop client memory": 1}
                assert values(later, "greenroom_call_in_flight") == {}
            await host.remove("shop")
            assert values(late, "greenroom_session_open") == {"shop client memory": 0}
            assert values(late, "greenroom_upstream_state") == {}
