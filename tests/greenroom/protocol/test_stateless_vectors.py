"""Values of revision 2026-07-28, one or several for each type of its schema that has an example there, go through our types unchanged."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from greenroom.protocol.errors import McpError, RemoteProtocolError
from greenroom.protocol.methods import METHODS

from .stateless_vectors import METHOD_TYPES, VECTORS, round_trip

TYPES_WITH_EXAMPLES = 88


@pytest.mark.row("26-M20")
@pytest.mark.parametrize(
    ("kind", "value"),
    [pytest.param(kind, one, id=f"{kind}-{n}") for kind, some in VECTORS.items() for n, one in enumerate(some)],
)
def test_a_value_of_each_type_comes_back_unchanged(kind: str, value: Any) -> None:
    given = copy.deepcopy(value)
    assert round_trip(kind, given) == value
    assert given == value


def test_every_type_with_an_example_has_a_value() -> None:
    assert len(VECTORS) == TYPES_WITH_EXAMPLES
    assert all(VECTORS.values())


@pytest.mark.row("26-M20")
def test_the_revision_has_the_methods_of_the_schema_and_no_others() -> None:
    asked = {"elicitation/create", "sampling/createMessage", "roots/list"}
    assert {name for name, method in METHODS.items() if method.exists_in("2026-07-28")} == {
        *METHOD_TYPES.values()
    } - asked


def _without(value: Any, path: tuple[Any, ...]) -> Any:
    """A copy without that member, which it must have."""
    changed = copy.deepcopy(value)
    place = changed
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return changed


REQUIRED: dict[str, list[tuple[Any, ...]]] = {
    "CallToolRequest": [
        ("params", "name"),
        ("method",),
        ("params", "_meta", "io.modelcontextprotocol/clientCapabilities"),
    ],
    "GetPromptRequest": [("params", "name")],
    "ReadResourceRequest": [("params", "uri")],
    "CompleteRequest": [("params", "ref"), ("params", "ref", "type"), ("params", "argument", "value")],
    "SubscriptionsListenRequest": [("params", "notifications")],
    "DiscoverRequest": [("params", "_meta"), ("params", "_meta", "io.modelcontextprotocol/protocolVersion")],
    "DiscoverResult": [("supportedVersions",), ("capabilities",)],
    "ListToolsResult": [("tools",)],
    "ReadResourceResult": [("contents",), ("contents", 0, "uri")],
    "GetPromptResult": [("messages",), ("messages", 0, "role")],
    "CompleteResult": [("completion",), ("completion", "values")],
    "ProgressNotification": [("params", "progressToken"), ("params", "progress")],
    "LoggingMessageNotification": [("params", "level"), ("params", "data")],
    "ResourceUpdatedNotification": [("params", "uri")],
    "ElicitResult": [("action",)],
    "InputRequests": [("colour", "params", "message"), ("word", "params", "maxTokens")],
    "InputResponses": [("colour", "action"), ("word", "model")],
    "CreateMessageResult": [("role",), ("content",), ("model",)],
    "Tool": [("name",), ("inputSchema",)],
    "Resource": [("name",), ("uri",)],
    "ImageContent": [("data",), ("mimeType",)],
    "ToolResultContent": [("toolUseId",), ("content",)],
    "EmbeddedResource": [("resource",), ("resource", "uri")],
}
"""Members without which our types refuse the first value of the type."""


@pytest.mark.parametrize(
    ("kind", "path"),
    [pytest.param(kind, path, id=f"{kind}-{path[-1]}") for kind, some in REQUIRED.items() for path in some],
)
def test_a_value_without_a_required_member_is_refused(kind: str, path: tuple[Any, ...]) -> None:
    value = VECTORS[kind][0]
    with pytest.raises((McpError, RemoteProtocolError, ValueError)):
        round_trip(kind, _without(value, path))
