"""What leaves a program by the OTLP exporter: spans and metrics at a receiver, from `greenroom serve --otel` with and without workers; and what a dead receiver harms."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from tests.free_ports import free_port

from greenroom import Client, Server
from greenroom.errors import ConfigError
from greenroom.observe import OpenTelemetry
from greenroom.observe.open_telemetry import telemetry_of_environment
from greenroom.supervision.event_bus import bus

from .otlp_receiver import OtlpReceiver, plain, receiving

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")

PROGRAM = """
from opentelemetry import trace
from greenroom import Server

server = Server("weather", version="1.2")


@server.tool
def forecast(city: str) -> str:
    with trace.get_tracer("author").start_as_current_span("look it up"):
        return f"rain in {city}"
"""


@pytest.fixture
def receiver() -> Generator[OtlpReceiver]:
    """A receiver on this machine."""
    with receiving() as found:
        yield found


@contextmanager
def served(folder: Path, *words: str, **environment: str) -> Generator[tuple[str, subprocess.Popen[str]]]:
    """The program, served over HTTP; it is ended in order."""
    (folder / "weather.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "greenroom.cli", "serve", "weather.py", "--http", "0", *words]
    with subprocess.Popen(
        command, cwd=folder, env=os.environ | environment, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            while "serves on" not in line:
                assert line, "it has ended"
                line = process.stderr.readline()
            yield line.split()[-1], process
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
            assert process.returncode == 0


async def test_serve_sends_traces_and_metrics(receiver: OtlpReceiver, tmp_path: Path) -> None:
    with served(tmp_path, "--otel", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url) as (url, _):
        async with Client(url) as client:
            await client.call("forecast", city="Oslo")
    spans = {span.name: (resource, span) for resource, span in receiver.spans}
    resource, called = spans["tools/call forecast"]
    _, inner = spans["look it up"]
    assert resource["service.name"] == "weather"
    assert inner.parent_span_id == called.span_id
    assert called.kind == called.SPAN_KIND_SERVER
    attributes = plain(called.attributes)
    assert attributes["gen_ai.tool.name"] == "forecast"
    assert attributes["network.protocol.version"] == "1.1"
    metrics = {metric.name: metric for _, metric in receiver.metrics}
    points = [plain(point.attributes) for point in metrics["mcp.server.operation.duration"].histogram.data_points]
    assert "forecast" in {point.get("gen_ai.tool.name") for point in points}
    assert metrics["mcp.server.operation.duration"].unit == "s"


async def test_each_worker_sends_its_own(receiver: OtlpReceiver, tmp_path: Path) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
        "OTEL_SERVICE_NAME": "mine",
        "OTEL_METRICS_EXPORTER": "none",
    }
    with served(tmp_path, "--otel", "--workers", "2", **environment) as (url, _):
        for _ in range(4):
            async with Client(url) as client:
                await client.call("forecast", city="Oslo")
    names = Counter(span.name for _, span in receiver.spans)
    assert (names["tools/call forecast"], names["look it up"]) == (4, 4)
    assert {resource["service.name"] for resource, _ in receiver.spans} == {"mine"}
    assert receiver.metrics == []


async def test_without_the_option_nothing_is_sent(receiver: OtlpReceiver, tmp_path: Path) -> None:
    with served(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url) as (url, _):
        async with Client(url) as client:
            await client.call("forecast", city="Oslo")
    assert receiver.spans == []


async def test_a_dead_receiver_harms_no_call(tmp_path: Path) -> None:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port()}", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with served(tmp_path, "--otel", **environment) as (url, _):
        async with Client(url) as client:
            assert await client.call("forecast", city="Oslo") == "rain in Oslo"
        ended = time.monotonic()
    assert time.monotonic() - ended < 10


async def test_a_program_exports_by_its_own_provider(receiver: OtlpReceiver) -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{receiver.url}/v1/traces")))
    server = Server("weather")

    @server.tool
    def forecast(city: str) -> str:
        return f"rain in {city}"

    with OpenTelemetry(provider):
        async with Client(server) as client:
            await client.call("forecast", city="Oslo")
    provider.shutdown()
    by_kind = {span.kind: span for _, span in receiver.spans if span.name == "tools/call forecast"}
    assert sorted(by_kind) == [2, 3]  # SERVER, CLIENT
    assert by_kind[2].parent_span_id == by_kind[3].span_id


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"OTEL_TRACES_EXPORTER": "jaeger"}, "OTEL_TRACES_EXPORTER=jaeger: no installed package has that exporter"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-grpc",
        ),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
            "OTEL_EXPORTER_OTLP_PROTOCOL is http/protobuf or grpc, not 'http/json'",
        ),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "what"}, "OTEL_METRICS_EXPORTER=what"),
    ],
)
def test_a_wrong_variable_says_what_to_do(
    variables: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as caught, telemetry_of_environment("weather"):
        pass
    assert says in str(caught.value)
    assert bus.tracer is None


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    with pytest.raises(ConfigError, match="pip install opentelemetry-sdk"), telemetry_of_environment("weather"):
        pass


def test_what_a_program_has_installed_stays() -> None:
    with OpenTelemetry() as own:
        with telemetry_of_environment("weather"):
            assert bus.tracer is own
        assert bus.tracer is own
