"""What becomes of requests, results, errors and tools between two eras."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.actors.client.errors import InputRefused
from greenroom.actors.client.interfaces import ServerWelcome
from greenroom.actors.gateway.era_bridge import (
    UpstreamTool,
    UpstreamTraits,
    bridged_error,
    bridged_result,
    forwarded_meta,
    listed_tool,
    needs_task,
    wanted_level,
)
from greenroom.actors.gateway.upstream_calls import refused_question
from greenroom.actors.task_record import RELATED_TASK
from greenroom.protocol.dialect import LATEST_DIALECT, OLDEST_DIALECT, STATELESS_DIALECT
from greenroom.protocol.envelope import LOG_LEVEL_KEY, PROTOCOL_VERSION_KEY, SERVER_INFO_KEY, SUBSCRIPTION_ID_KEY
from greenroom.protocol.errors import McpError
from greenroom.protocol.methods import TASKS_EXTENSION

PLAIN, MODERN = UpstreamTraits(), UpstreamTraits(is_stateless=True)
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
OBJECTS: Any = st.dictionaries(
    st.sampled_from(["_meta", "resultType", "structuredContent", "content", "ttlMs", "cacheScope", "isError", "x"]),
    JSON,
)
TRACE = {"traceparent": "00-1-2-01", "tracestate": "a=b", "baggage": "k=v"}


def welcome(version: str, **capabilities: Any) -> ServerWelcome:
    return ServerWelcome(version, capabilities, {"name": "up", "version": "1"})


@pytest.mark.parametrize(
    ("given_welcome", "traits"),
    [
        (None, PLAIN),
        (welcome(LATEST_DIALECT.version), PLAIN),
        (welcome(LATEST_DIALECT.version, tasks={"requests": {"tools": {"call": {}}}}), (False, "session")),
        (welcome(LATEST_DIALECT.version, tasks={"list": {}}), PLAIN),
        (welcome(OLDEST_DIALECT.version, tasks={"requests": {"tools": {"call": {}}}}), PLAIN),
        (welcome(STATELESS_DIALECT.version), MODERN),
        (welcome(STATELESS_DIALECT.version, tasks={"requests": {"tools": {"call": {}}}}), MODERN),
        (welcome(STATELESS_DIALECT.version, extensions={TASKS_EXTENSION: {}}), (True, "extension")),
        (welcome(STATELESS_DIALECT.version, extensions={TASKS_EXTENSION: None}), MODERN),
    ],
)
def test_the_traits_of_an_upstream_follow_from_its_revision_and_capabilities(
    given_welcome: ServerWelcome | None, traits: Any
) -> None:
    assert UpstreamTraits.of(given_welcome) == traits


@pytest.mark.row("26-M16")
@pytest.mark.parametrize("front", [LATEST_DIALECT, STATELESS_DIALECT])
@pytest.mark.parametrize("traits", [PLAIN, MODERN])
def test_trace_context_and_keys_of_others_pass_and_those_of_the_protocol_do_not(front: Any, traits: Any) -> None:
    meta = {**TRACE, "com.example/k": 1, "progressToken": 7, PROTOCOL_VERSION_KEY: "x", "dev.mcp/k": 2}
    kept = forwarded_meta(meta, front, traits, "info")
    assert {name: kept.pop(name) for name in TRACE} == TRACE
    assert kept.pop("com.example/k") == 1
    if front is LATEST_DIALECT and traits is PLAIN:
        assert kept == {PROTOCOL_VERSION_KEY: "x", "dev.mcp/k": 2}, "between sessions nothing is changed"
    else:
        assert kept == ({LOG_LEVEL_KEY: "info"} if traits is MODERN else {})


@pytest.mark.row("26-M16")
@pytest.mark.parametrize(
    ("front", "traits"), [(STATELESS_DIALECT, PLAIN), (STATELESS_DIALECT, MODERN), (LATEST_DIALECT, MODERN)]
)
def test_a_result_says_nothing_in_the_name_of_the_protocol(front: Any, traits: Any) -> None:
    """An upstream could name a subscription, a task or a request of this gateway's client."""
    meta = {**TRACE, "com.example/k": 1}
    forged = {SUBSCRIPTION_ID_KEY: 3, RELATED_TASK: {"taskId": "t"}, SERVER_INFO_KEY: {"name": "x"}, "progressToken": 1}
    found = bridged_result("tools/call", {"content": [], "_meta": {**meta, **forged}}, front, traits)
    assert found == {"content": [], "_meta": meta}
    assert "_meta" not in bridged_result("tools/call", {"content": [], "_meta": forged}, front, traits)


@pytest.mark.parametrize(
    ("said", "level"), [("info", "info"), ("loud", None), (3, None), (["info"], None), (None, None)]
)
def test_the_level_that_a_request_asks_for_is_one_of_the_protocols(said: Any, level: str | None) -> None:
    assert wanted_level({LOG_LEVEL_KEY: said}) == level


@settings(max_examples=examples(300))
@given(OBJECTS, st.sampled_from([LATEST_DIALECT, STATELESS_DIALECT]), st.booleans(), st.booleans())
def test_any_result_is_bridged_without_members_of_the_other_era(
    result: dict[str, Any],
    front: Any,
    is_stateless: bool,  # noqa: FBT001 - drawn
    wraps: bool,  # noqa: FBT001 - drawn
) -> None:
    before = repr(result)
    found = bridged_result("resources/read", result, front, UpstreamTraits(is_stateless=is_stateless), wraps=wraps)
    assert repr(result) == before, "the upstream's result may be kept in a cache"
    if not is_stateless and not front.is_stateless:
        assert found is result
        return
    assert "resultType" not in found
    assert SERVER_INFO_KEY not in (found.get("_meta") or {})
    if is_stateless and not front.is_stateless:
        assert "ttlMs" not in found
        assert "cacheScope" not in found
        data = found.get("structuredContent")
        assert data is None or isinstance(data, dict), "sessions have objects only"


@pytest.mark.parametrize(
    ("code", "data", "front", "becomes"),
    [
        (-32602, {"uri": "a:b"}, LATEST_DIALECT, -32002),
        (-32602, {"uri": "a:b"}, STATELESS_DIALECT, -32602),
        (-32602, None, LATEST_DIALECT, -32602),
        (-32602, {"uri": 3}, LATEST_DIALECT, -32602),
        (-32020, None, STATELESS_DIALECT, -32603),
        (-32022, {"supported": []}, LATEST_DIALECT, -32603),
        (-32021, {"requiredCapabilities": {}}, STATELESS_DIALECT, -32021),
        (-32021, {"requiredCapabilities": {}}, LATEST_DIALECT, -32600),
        (-1, None, LATEST_DIALECT, -1),
    ],
)
def test_errors_of_an_upstream_that_stands_alone_have_codes_of_the_clients_era(
    code: int, data: Any, front: Any, becomes: int
) -> None:
    assert bridged_error(McpError(code, "no", data), "resources/read", front, MODERN).code == becomes


@pytest.mark.parametrize(
    ("cause", "code", "data"),
    [
        (McpError(-1, "User rejected"), -32603, {"server": "up", "reason": "input_refused", "question": "roots/list"}),
        (ValueError("a secret"), -32603, {"server": "up", "reason": "input_refused", "question": "roots/list"}),
        (
            McpError(-32021, "needs roots", {"requiredCapabilities": {"roots": {}}}),
            -32021,
            {"requiredCapabilities": {"roots": {}}},
        ),
    ],
)
def test_a_question_without_an_answer_is_an_error_that_says_which_and_no_secret(
    cause: Any, code: int, data: Any
) -> None:
    error = refused_question("up", InputRefused("tools/call", "roots/list", cause))
    assert (error.code, error.data) == (code, data)
    assert "a secret" not in error.message
    assert ("User rejected" in error.message) == ("User rejected" in str(cause))


def test_an_error_of_a_session_is_handed_on() -> None:
    error = McpError(-32002, "no", {"uri": "a:b"})
    assert bridged_error(error, "resources/read", STATELESS_DIALECT, PLAIN) is error


@pytest.mark.parametrize("support", [None, "forbidden", "optional", "required", 3])
@pytest.mark.parametrize("tasks", ["none", "session", "extension"])
def test_a_tool_may_be_called_as_a_task_where_its_upstream_can_do_that(support: Any, tasks: Any) -> None:
    traits = UpstreamTraits(is_stateless=tasks == "extension", tasks=tasks)
    definition = {"name": "t", "execution": {"taskSupport": support}}
    tool = UpstreamTool.of("up__t", definition, traits, None)
    able = tasks == "extension" or (tasks == "session" and support in ("optional", "required"))
    assert tool.as_task == ("optional" if able else "forbidden")
    assert tool.defer_task == (tasks == "extension"), "such an upstream decides for each call"
    shown = {"name": "up__t"}
    assert listed_tool(shown, definition, STATELESS_DIALECT, traits) is shown
    assert ("execution" in listed_tool(shown, definition, LATEST_DIALECT, traits)) == able
    assert needs_task(definition, traits) == (support == "required" and tasks != "extension")


def test_results_that_may_be_no_objects_are_promised_under_result_to_sessions_alone() -> None:
    definition: dict[str, Any] = {"name": "t", "outputSchema": {"type": "array", "$defs": {"a": {}}}}
    listed = listed_tool(definition, definition, LATEST_DIALECT, MODERN)
    assert listed["outputSchema"]["properties"] == {"result": {"type": "array"}}
    assert listed["outputSchema"]["$defs"] == {"a": {}}
    assert listed_tool(definition, definition, LATEST_DIALECT, PLAIN) is definition
    found = bridged_result("tools/call", {"structuredContent": {"a": 1}}, LATEST_DIALECT, MODERN, wraps=True)
    assert found["structuredContent"] == {"result": {"a": 1}}
    failed = {"structuredContent": {"a": 1}, "isError": True}
    assert bridged_result("tools/call", failed, LATEST_DIALECT, MODERN, wraps=True)["structuredContent"] == {"a": 1}
