"""One trace through programs: from a client to a server, into its handler wherever that runs, to the user and back, through tasks and gateways."""

from __future__ import annotations

import json
import logging
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id

from greenroom import Client, ClientSettings, Command, Context, Host, HttpConfig, PeerError, Server, Settings
from greenroom.protocol.dialect import HANDSHAKE_VERSIONS, STATELESS_DIALECT
from greenroom.supervision.logs import JsonLines
from greenroom.wire_probe import WireProbe

from .telemetry_helpers import Collector, collecting, id_of, parent_of, trace_of

if TYPE_CHECKING:
    from collections.abc import Generator

PROGRAMS = str(Path(__file__).parent / "programs")
if PROGRAMS not in sys.path:
    sys.path.append(PROGRAMS)  # where workers look too
ERAS = [HANDSHAKE_VERSIONS[0], STATELESS_DIALECT.version]
WAYS = {ERAS[0]: "session", ERAS[1]: "exchange"}
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


class _Lines(logging.Handler):
    """Keeps records as JSON, made at once, as a handler of a program does."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@pytest.mark.parametrize("tool", ["telling", "telling_in_thread"])
async def test_logs_name_the_trace_of_their_call(collector: Collector, tool: str) -> None:
    server, handler = Server("telling"), _Lines()
    author = logging.getLogger("author")

    async def telling() -> None:
        author.info("at work")

    def telling_in_thread() -> None:
        author.info("at work")

    server.tool(telling)
    server.tool(telling_in_thread)
    access = logging.getLogger("greenroom.access")
    for logger in (author, access):
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
    try:
        async with Client(server) as client:
            await client.call(tool)
    finally:
        for logger in (author, access):
            logger.removeHandler(handler)
            logger.setLevel(logging.NOTSET)
    (span,) = [each for each in collector.spans() if each.kind is SpanKind.SERVER and each.name == f"tools/call {tool}"]
    wanted = {"trace_id": format_trace_id(trace_of(span)), "span_id": format_span_id(id_of(span))}
    (own,) = [line for line in handler.lines if line["logger"] == "author"]
    (called,) = [line for line in handler.lines if line.get("name") == tool]
    assert wanted.items() <= own.items()
    assert wanted.items() <= called.items()


async def test_logs_without_a_trace_name_none(collector: Collector) -> None:
    record = logging.LogRecord("author", logging.INFO, "", 0, "at home", None, None)
    assert "trace_id" not in json.loads(JsonLines().format(record))
    with collector.tracer.start_as_current_span("top") as top:
        found = json.loads(JsonLines().format(record))
    assert found["span_id"] == format_span_id(top.get_span_context().span_id)


# --- tasks


@pytest.mark.parametrize("trace", [PARENT, ""])
async def test_the_work_of_a_task_is_in_the_trace_of_the_call_that_created_it(collector: Collector, trace: str) -> None:
    async with traced_server().started() as company, WireProbe(company) as probe:
        collector.spans()
        meta = {"_meta": {"traceparent": trace}} if trace else {}
        begun = await probe.request("tools/call", {"name": "working", "task": {}, **meta})
        result = await probe.request("tasks/result", {"taskId": begun["task"]["taskId"]})
    spans = {(span.attributes or {}).get("greenroom.way"): span for span in collector.spans() if "working" in span.name}
    creating, work = spans["session"], spans["task"]
    assert parent_of(work) == id_of(creating)
    assert result["structuredContent"]["span"] == format_span_id(id_of(work))
    assert result["structuredContent"]["trace"] == format_trace_id(trace_of(creating))
    assert (format_trace_id(trace_of(creating)) == TRACE) is bool(trace)


# --- gateways


@pytest.mark.parametrize("above", ERAS)
@pytest.mark.parametrize("below", ERAS)
async def test_one_trace_goes_through_a_gateway(collector: Collector, above: str, below: str) -> None:
    front = Server("front")
    front.mount(Host({"up": traced_server()}, settings=ClientSettings(mode=below)))
    async with Client(front, mode=above) as client:
        collector.spans()
        with collector.tracer.start_as_current_span("top") as top:
            seen = await client.call("up__in_thread")
        spans = [span for span in collector.spans() if span.name.startswith("tools/call")]
    by_way = {
        ((span.attributes or {})["greenroom.way"], (span.attributes or {})["greenroom.program"]): span for span in spans
    }
    ways = [("client", "front"), (WAYS[above], "front"), ("upstream", "up"), (WAYS[below], "traced")]
    parents = [top.get_span_context().span_id, *(id_of(by_way[each]) for each in ways)]
    assert [parent_of(by_way[each]) for each in ways] == parents[:-1]
    assert seen["span"] == format_span_id(parents[-1])
    assert {trace_of(span) for span in spans} == {top.get_span_context().trace_id}
    assert len(spans) == len(ways)


# --- questions


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("tool", ["asking", "asking_in_thread"])
async def test_a_handler_is_in_the_trace_before_and_after_its_question(
    collector: Collector, era: str, tool: str
) -> None:
    answering: list[dict[str, str]] = []

    def answer(form: Any) -> Any:
        answering.append(import_module("traced_tools").ids())
        return form.accept({"how": "well"})

    async with Client(traced_server(), mode=era, elicitation=answer) as client:
        collector.spans()
        with collector.tracer.start_as_current_span("top") as top:
            seen = await client.call(tool)
        spans = collector.spans()
    (made,) = [span for span in spans if span.kind is SpanKind.CLIENT and span.name == f"tools/call {tool}"]
    rounds = [span for span in spans if span.kind is SpanKind.SERVER and span.name == f"tools/call {tool}"]
    assert [parent_of(span) for span in rounds] == [id_of(made)] * len(rounds)
    assert {trace_of(span) for span in spans} == {top.get_span_context().trace_id}
    assert (seen["span before"], seen["span"]) == (format_span_id(id_of(rounds[0])), format_span_id(id_of(rounds[-1])))
    questions = {span.kind: span for span in spans if span.name == "elicitation/create"}
    if era == ERAS[0]:
        assert len(rounds) == 1
        asked, answered = questions[SpanKind.CLIENT], questions[SpanKind.SERVER]
        assert (parent_of(asked), parent_of(answered)) == (id_of(rounds[0]), id_of(asked))
        assert answering[0]["span"] == format_span_id(id_of(answered))
        (point,) = [
            point
            for point in collector.points("mcp.client.operation.duration")
            if point.attributes["mcp.method.name"] == "elicitation/create"
        ]
        assert point.attributes["mcp.protocol.version"] == era
    else:
        assert len(rounds) == 2
        assert [(span.attributes or {}).get("greenroom.outcome") for span in rounds] == ["asks", None]
        assert questions == {}


@real
async def test_a_question_of_another_process_is_in_the_trace(collector: Collector) -> None:
    server = Server("asking")
    server.tool(import_module("traced_tools").asking, isolation="process")
    async with Client(server, mode=ERAS[0], elicitation=lambda form: form.accept({"how": "well"})) as client:
        collector.spans()
        await client.call("asking")
        spans = {(span.kind, span.name): span for span in collector.spans()}
    call = spans[SpanKind.SERVER, "tools/call asking"]
    asked, answered = (spans[kind, "elicitation/create"] for kind in (SpanKind.CLIENT, SpanKind.SERVER))
    assert (parent_of(asked), parent_of(answered)) == (id_of(call), id_of(asked))


async def test_a_span_of_the_handler_is_the_parent_of_its_question(collector: Collector) -> None:
    server = Server("asking")

    @server.tool
    async def ask(ctx: Context) -> None:
        with collector.tracer.start_as_current_span("inner"):
            await ctx.roots()

    async with Client(server, mode=ERAS[0], roots=["file:///stage"]) as client:
        await client.call("ask")
    spans = {(span.kind, span.name): span for span in collector.spans()}
    asked = spans[SpanKind.CLIENT, "roots/list"]
    assert parent_of(asked) == id_of(spans[SpanKind.INTERNAL, "inner"])
    assert parent_of(spans[SpanKind.SERVER, "roots/list"]) == id_of(asked)


async def test_a_question_without_an_answer_is_an_error(collector: Collector) -> None:
    def refuse(_: Any) -> Any:
        raise ValueError("not today")

    async with Client(traced_server(), mode=ERAS[0], elicitation=refuse) as client:
        with pytest.raises(PeerError):
            await client.call("asking")
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        (span,) = [
            each
            for each in collector._spans.get_finished_spans()
            if each.name == "elicitation/create" and each.kind is kind
        ]
        assert span.status.status_code is StatusCode.ERROR
        assert (span.attributes or {})["error.type"] == "_OTHER"


async def test_a_span_of_the_handler_goes_on_after_its_question(collector: Collector) -> None:
    server = Server("asking")

    @server.tool
    async def ask(ctx: Context) -> None:
        with collector.tracer.start_as_current_span("inner"):
            await ctx.roots()
            with collector.tracer.start_as_current_span("innermost"):
                pass
        with collector.tracer.start_as_current_span("after"):
            pass

    async with Client(server, mode=ERAS[1], roots=["file:///stage"]) as client:
        await client.call("ask")
    spans = collector.spans()
    by_name = {span.name: span for span in spans if span.kind is SpanKind.INTERNAL}
    first, second = (span for span in spans if span.kind is SpanKind.SERVER and span.name == "tools/call ask")
    assert parent_of(by_name["innermost"]) == id_of(by_name["inner"])
    assert parent_of(by_name["inner"]) == id_of(first)
    assert parent_of(by_name["after"]) in (id_of(first), id_of(second))
    assert len({trace_of(span) for span in (first, second, *by_name.values())}) == 1


# --- an application around the endpoint


@pytest.mark.parametrize("is_carried", [True, False])
async def test_the_span_of_the_application_around_is_linked_or_the_parent(
    collector: Collector, *, is_carried: bool
) -> None:
    server = traced_server(settings=Settings(sessions=False))
    params: dict[str, Any] = {"name": "in_loop"}
    if is_carried:
        params["_meta"] = {"traceparent": PARENT}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    both = "application/json, text/event-stream"
    headers = {"accept": both, "content-type": "application/json", "host": "127.0.0.1"}
    around: list[int] = []

    async def instrumented(scope: Any, receive: Any, send: Any) -> None:
        with collector.tracer.start_as_current_span("POST") as span:
            around.append(span.get_span_context().span_id)
            await app(scope, receive, send)

    app = server.asgi(HttpConfig(session_enabled=False))
    async with server.started():
        transport = httpx.ASGITransport(instrumented)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", trust_env=False) as client:
            response = await client.post("/mcp", json=call, headers=headers)
    assert response.status_code == 200, response.text
    span = collector.span("tools/call in_loop")
    links = [link.context.span_id for link in span.links]
    if is_carried:
        assert span.parent is not None
        assert format_span_id(span.parent.span_id) in PARENT
        assert links == around
    else:
        assert (parent_of(span), links) == (around[0], [])
