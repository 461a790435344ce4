"""One trace through programs: from a client to a server, into its handler wherever that runs, to the user and back, through tasks and gateways."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.trace import SpanKind, format_span_id, format_trace_id

from greenroom import Client, Command, Server
from greenroom.protocol.dialect import HANDSHAKE_VERSIONS, STATELESS_DIALECT
from greenroom.wire_probe import WireProbe

from .telemetry_helpers import Collector, collecting, id_of, parent_of, trace_of

if TYPE_CHECKING:
    from collections.abc import Generator

PROGRAMS = str(Path(__file__).parent / "programs")
if PROGRAMS not in sys.path:
    sys.path.append(PROGRAMS)  # where workers look too
ERAS = [HANDSHAKE_VERSIONS[0], STATELESS_DIALECT.version]
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"

real = pytest.mark.greenroom(clock="real")


@pytest.fixture
def collector() -> Generator[Collector]:
    """An OpenTelemetry that is installed."""
    with collecting() as found:
        yield found


def traced_server(name: str = "traced", **options: Any) -> Server:
    """The server with the traced tools."""
    tools: Any = import_module("traced_tools")
    server: Server = tools.traced_server(name, **options)
    return server


async def called(collector: Collector, client: Client, tool: str) -> dict[str, str]:
    """Call a tool below a span of the program's own, and check its spans. Returns what the handler saw."""
    collector.spans()
    with collector.tracer.start_as_current_span("top") as top:
        seen: dict[str, str] = await client.call(tool)
    spans = [span for span in collector.spans() if span.name == f"tools/call {tool}"]
    (made,) = [span for span in spans if span.kind is SpanKind.CLIENT]
    (answered,) = [span for span in spans if span.kind is SpanKind.SERVER]
    assert parent_of(made) == top.get_span_context().span_id
    assert parent_of(answered) == id_of(made)
    assert seen["span"] == format_span_id(id_of(answered))
    assert seen["trace"] == format_trace_id(trace_of(answered)) == format_trace_id(top.get_span_context().trace_id)
    return seen


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("tool", ["in_loop", "in_thread", "in_own_loop"])
async def test_a_handler_is_in_the_trace_of_its_caller(collector: Collector, era: str, tool: str) -> None:
    async with Client(traced_server(), mode=era) as client:
        await called(collector, client, tool)


@real
@pytest.mark.parametrize("era", ERAS)
async def test_a_trace_goes_over_http(collector: Collector, era: str) -> None:
    server = traced_server()
    async with server.started(), Client(await server.listen(port=0), mode=era) as client:
        await called(collector, client, "in_loop")
    names = {"network.transport": "tcp", "network.protocol.name": "http", "network.protocol.version": "1.1"}
    for name in ("mcp.server.operation.duration", "mcp.client.operation.duration"):
        for point in collector.points(name):
            assert names.items() <= dict(point.attributes).items()
    for name in ("mcp.server.session.duration",) if era == ERAS[0] else ():
        (point,) = collector.points(name)
        assert names.items() <= dict(point.attributes).items()
    (point,) = collector.points("mcp.client.session.duration")
    assert point.attributes["network.transport"] == "tcp"
    assert point.attributes["server.address"] == "127.0.0.1"


@real
@pytest.mark.parametrize("era", ERAS)
async def test_a_trace_goes_over_stdio(collector: Collector, era: str) -> None:
    program = Path(PROGRAMS) / "traced_program.py"
    async with Client(Command(sys.executable, str(program)), mode=era) as client:
        with collector.tracer.start_as_current_span("top") as top:
            seen = await client.call("in_loop")
    span = collector.span("tools/call in_loop")
    assert seen["trace"] == format_trace_id(top.get_span_context().trace_id)
    assert seen["span"] not in (format_span_id(id_of(span)), format_span_id(top.get_span_context().span_id))
    assert (span.attributes or {})["network.transport"] == "pipe"


@real
async def test_a_process_of_its_own_is_in_the_trace(collector: Collector) -> None:
    async with Client(traced_server()) as client:
        await called(collector, client, "in_process")


async def test_baggage_reaches_the_handler(collector: Collector) -> None:
    async with traced_server().started() as company, WireProbe(company) as probe:
        meta = {"traceparent": PARENT, "baggage": "user=alice"}
        result = await probe.request("tools/call", {"name": "in_thread", "_meta": meta})
    seen = result["structuredContent"]
    assert (seen["trace"], seen["user"]) == (TRACE, "alice")
    assert collector.span("tools/call in_thread").attributes is not None


async def test_a_request_without_a_listener_has_no_trace() -> None:
    async with Client(traced_server()) as client:
        seen = await client.call("in_loop")
    assert seen["trace"] == "0" * 32
