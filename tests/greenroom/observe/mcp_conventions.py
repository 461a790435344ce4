"""The semantic conventions for MCP, written down: spans, metrics, their attributes, types, requirement levels, units and buckets. It judges what is collected.

From docs/gen-ai/mcp.md of open-telemetry/semantic-conventions-genai, status Development, with semantic conventions 1.41.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from opentelemetry.trace import SpanKind, StatusCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from opentelemetry.sdk.metrics.export import Metric
    from opentelemetry.sdk.trace import ReadableSpan

Level = Literal["required", "conditional", "recommended", "opt-in"]


class Attribute(NamedTuple):
    """An attribute of the conventions."""

    name: str
    type: type
    level: Level


OWN: Final = "greenroom."
"""The prefix of attributes that are ours."""
BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)

_OF_ALL_SPANS: Final = (
    Attribute("mcp.method.name", str, "required"),
    Attribute("error.type", str, "conditional"),
    Attribute("gen_ai.prompt.name", str, "conditional"),
    Attribute("gen_ai.tool.name", str, "conditional"),
    Attribute("jsonrpc.request.id", str, "conditional"),
    Attribute("mcp.resource.uri", str, "conditional"),
    Attribute("rpc.response.status_code", str, "conditional"),
    Attribute("gen_ai.operation.name", str, "recommended"),
    Attribute("jsonrpc.protocol.version", str, "recommended"),
    Attribute("mcp.protocol.version", str, "recommended"),
    Attribute("mcp.session.id", str, "recommended"),
    Attribute("network.protocol.name", str, "recommended"),
    Attribute("network.protocol.version", str, "recommended"),
    Attribute("network.transport", str, "recommended"),
    Attribute("gen_ai.tool.call.arguments", object, "opt-in"),
    Attribute("gen_ai.tool.call.result", object, "opt-in"),
)
SPANS: Final[Mapping[SpanKind, Sequence[Attribute]]] = {
    SpanKind.CLIENT: (
        *_OF_ALL_SPANS,
        Attribute("server.address", str, "recommended"),
        Attribute("server.port", int, "recommended"),
    ),
    SpanKind.SERVER: (
        *_OF_ALL_SPANS,
        Attribute("client.address", str, "recommended"),
        Attribute("client.port", int, "recommended"),
    ),
}
"""The attributes of spans, by kind."""

_OF_SESSIONS: Final = (
    Attribute("error.type", str, "conditional"),
    Attribute("jsonrpc.protocol.version", str, "recommended"),
    Attribute("mcp.protocol.version", str, "recommended"),
    Attribute("network.protocol.name", str, "recommended"),
    Attribute("network.protocol.version", str, "recommended"),
    Attribute("network.transport", str, "recommended"),
)
_OF_OPERATIONS: Final = (
    *_OF_SESSIONS,
    Attribute("mcp.method.name", str, "required"),
    Attribute("gen_ai.prompt.name", str, "conditional"),
    Attribute("gen_ai.tool.name", str, "conditional"),
    Attribute("rpc.response.status_code", str, "conditional"),
    Attribute("gen_ai.operation.name", str, "recommended"),
    Attribute("mcp.resource.uri", str, "opt-in"),
)
_OF_A_SERVER: Final = (
    Attribute("server.address", str, "recommended"),
    Attribute("server.port", int, "recommended"),
)


class Histogram(NamedTuple):
    """A metric of the conventions; each is a histogram."""

    name: str
    description: str
    attributes: Sequence[Attribute]
    unit: str = "s"
    buckets: Sequence[float] = BUCKETS


METRICS: Final[Mapping[str, Histogram]] = {
    each.name: each
    for each in (
        Histogram(
            "mcp.client.operation.duration",
            "The duration of the MCP request or notification as observed on the sender from the time it was sent until the response or ack is received.",
            (*_OF_OPERATIONS, *_OF_A_SERVER),
        ),
        Histogram(
            "mcp.server.operation.duration",
            "MCP request or notification duration as observed on the receiver from the time it was received until the result or ack is sent.",
            _OF_OPERATIONS,
        ),
        Histogram(
            "mcp.client.session.duration",
            "The duration of the MCP session as observed on the MCP client.",
            (*_OF_SESSIONS, *_OF_A_SERVER),
        ),
        Histogram(
            "mcp.server.session.duration",
            "The duration of the MCP session as observed on the MCP server.",
            _OF_SESSIONS,
        ),
    )
}

_NAMES: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}
_WITH_URI: Final = ("resources/read", "resources/subscribe", "resources/unsubscribe")
_TRANSPORTS: Final = ("tcp", "quic", "pipe", "unix", "udp")


def problems_of_span(span: ReadableSpan, *, is_task: bool = False) -> list[str]:
    """What is not as the conventions say. The work of a task is no request."""
    if span.kind not in SPANS:
        return [f"its kind is {span.kind}"]
    found: dict[str, Any] = dict(span.attributes or {})
    problems = [*_problems_of_attributes(found, SPANS[span.kind])]
    method = found.get("mcp.method.name", "")
    target = found.get(_NAMES.get(method, ""))
    if span.name not in (method, f"{method} {target}", "_unknown"):
        problems.append(f"its name is {span.name!r}")
    if "jsonrpc.request.id" not in found and not is_task:
        problems.append("jsonrpc.request.id is missing")
    if method in _NAMES and target is None:
        problems.append(f"{_NAMES[method]} is missing")
    if method in _WITH_URI and "mcp.resource.uri" not in found:
        problems.append("mcp.resource.uri is missing")
    if (span.status.status_code is StatusCode.ERROR) is not ("error.type" in found):
        problems.append(f"its status is {span.status.status_code}, and error.type is {found.get('error.type')}")
    if span.status.status_code is StatusCode.ERROR and not span.status.description:
        problems.append("its status has no description")
    return [*problems, *_problems_of_values(found, method)]


def problems_of_metric(metric: Metric) -> list[str]:
    """What is not as the conventions say, of a collected metric whose name begins with `mcp.`."""
    convention = METRICS.get(metric.name)
    if convention is None:
        return [f"{metric.name} is no metric of the conventions"]
    problems: list[str] = []
    if metric.unit != convention.unit:
        problems.append(f"its unit is {metric.unit!r}")
    if metric.description != convention.description:
        problems.append(f"its description is {metric.description!r}")
    points: Any = metric.data.data_points
    for point in points:
        if tuple(point.explicit_bounds) != tuple(convention.buckets):
            problems.append(f"its buckets are {point.explicit_bounds}")
        found: dict[str, Any] = dict(point.attributes)
        problems += _problems_of_attributes(found, convention.attributes)
        if "operation" in metric.name:
            problems += _problems_of_values(found, found.get("mcp.method.name", ""))
        if "mcp.resource.uri" in found or any("://" in str(value) for value in found.values()):
            problems.append("a URI is the value of a label")
    return problems


def _problems_of_attributes(found: Mapping[str, Any], allowed: Sequence[Attribute]) -> Iterator[str]:
    by_name = {each.name: each for each in allowed}
    for name, value in found.items():
        if name.startswith(OWN):
            continue
        if name not in by_name:
            yield f"the conventions have no {name} here"
        elif not isinstance(value, by_name[name].type):
            yield f"{name} is a {type(value).__name__}"
    for each in allowed:
        if each.level == "required" and each.name not in found:
            yield f"{each.name} is missing"


def _problems_of_values(found: Mapping[str, Any], method: str) -> Iterator[str]:
    """Rules that spans and metrics share."""
    if (found.get("gen_ai.operation.name") == "execute_tool") is not (method == "tools/call"):
        yield f"gen_ai.operation.name is {found.get('gen_ai.operation.name')} for {method}"
    code = found.get("rpc.response.status_code")
    if code is not None and (code != found.get("error.type") or not code.lstrip("-").isdigit()):
        yield f"rpc.response.status_code is {code}, and error.type {found.get('error.type')}"
    transport = found.get("network.transport")
    if transport is not None and transport not in _TRANSPORTS:
        yield f"network.transport is {transport}"
    if (found.get("network.protocol.name") == "http") is not (transport == "tcp"):
        yield f"network.transport is {transport} for {found.get('network.protocol.name')}"
    for side in ("client", "server"):
        if f"{side}.port" in found and f"{side}.address" not in found:
            yield f"{side}.port without {side}.address"
