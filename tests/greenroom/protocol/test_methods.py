"""The table of methods, and the check of params and results."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.dialect import DIALECTS
from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.methods import (
    METHODS,
    MessageDirection,
    MethodKind,
    PeerSide,
    check_params,
    check_result,
    find_method,
    method_not_found,
    methods_of,
)
from greenroom.protocol.wire_shapes import LOG_LEVELS


def test_every_method_is_in_some_revision_and_under_its_own_name() -> None:
    assert {method.name for version in DIALECTS for method in methods_of(version)} == set(METHODS)
    for name, method in METHODS.items():
        assert method.name == name
        assert method.since in DIALECTS
        assert (method.result is None) == (method.kind is MethodKind.NOTIFICATION)
        assert name.startswith("notifications/") == (method.kind is MethodKind.NOTIFICATION)


@pytest.mark.row("WC-15")
def test_a_method_is_found_by_name_revision_and_receiver() -> None:
    assert find_method("tools/call") is METHODS["tools/call"]
    assert find_method("tasks/get", "2025-11-25") is METHODS["tasks/get"]
    assert find_method("tasks/get", "2025-06-18") is None
    assert find_method("sampling/createMessage", "2025-11-25", PeerSide.SERVER) is None
    assert find_method("sampling/createMessage", "2025-11-25", PeerSide.CLIENT) is METHODS["sampling/createMessage"]
    assert (
        find_method("ping", "2024-11-05", PeerSide.SERVER)
        is find_method("ping", "2024-11-05", PeerSide.CLIENT)
        is not None
    )
    assert find_method("server/discover", "2026-07-28", PeerSide.SERVER) is METHODS["server/discover"]
    assert find_method("server/discover", "2025-11-25") is None
    assert find_method("ping", "2026-07-28") is None
    for stranger in ("tools/Call", "tools", "", "TOOLS/CALL", "tools/call ", "server/Discover"):
        assert find_method(stranger) is None


@pytest.mark.row("WC-22")
def test_the_old_name_of_initialized_is_understood() -> None:
    assert find_method("initialized", "2024-11-05", PeerSide.SERVER) is METHODS["notifications/initialized"]


@pytest.mark.row("WC-15")
@pytest.mark.row("WC-26")
def test_an_unknown_method_is_named_but_never_at_length() -> None:
    assert method_not_found("tools/fly") == McpError(ErrorCode.METHOD_NOT_FOUND, "Method not found: tools/fly")
    assert len(method_not_found("x" * 100_000).message) < 300


def test_the_side_that_must_declare_a_capability() -> None:
    assert METHODS["tools/call"].declarer(PeerSide.SERVER) is PeerSide.SERVER
    assert METHODS["sampling/createMessage"].declarer(PeerSide.CLIENT) is PeerSide.CLIENT
    assert METHODS["notifications/tools/list_changed"].declarer(PeerSide.CLIENT) is PeerSide.SERVER
    assert METHODS["notifications/roots/list_changed"].declarer(PeerSide.SERVER) is PeerSide.CLIENT
    assert METHODS["notifications/elicitation/complete"].declarer(PeerSide.CLIENT) is PeerSide.CLIENT


def test_directions_reach_the_ends_that_they_name() -> None:
    assert [side for side in PeerSide if MessageDirection.TO_SERVER.reaches(side)] == [PeerSide.SERVER]
    assert [side for side in PeerSide if MessageDirection.TO_CLIENT.reaches(side)] == [PeerSide.CLIENT]
    assert [side for side in PeerSide if MessageDirection.BOTH.reaches(side)] == list(PeerSide)
    assert [side.other for side in PeerSide] == [PeerSide.SERVER, PeerSide.CLIENT]


HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "a", "version": "1"},
}
GOOD: dict[str, dict[str, Any]] = {
    "initialize": HELLO,
    "tools/call": {"name": "a"},
    "resources/read": {"uri": "a:b"},
    "resources/subscribe": {"uri": "a:b"},
    "resources/unsubscribe": {"uri": "a:b"},
    "prompts/get": {"name": "a"},
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "a"}, "argument": {"name": "a", "value": ""}},
    "logging/setLevel": {"level": "info"},
    "tasks/get": {"taskId": "a"},
    "tasks/result": {"taskId": "a"},
    "tasks/cancel": {"taskId": "a"},
    "sampling/createMessage": {"messages": [], "maxTokens": 1},
    "elicitation/create": {"message": "a"},
    "notifications/progress": {"progressToken": 1, "progress": 0.5},
    "notifications/message": {"level": "info", "data": None},
    "notifications/resources/updated": {"uri": "a:b"},
    "notifications/elicitation/complete": {"elicitationId": "a"},
    "subscriptions/listen": {"notifications": {}},
    "notifications/subscriptions/acknowledged": {"notifications": {}},
    "notifications/tasks/status": {
        "taskId": "a",
        "status": "working",
        "ttl": None,
        "createdAt": "2026-01-01T00:00:00Z",
        "lastUpdatedAt": "2026-01-01T00:00:00Z",
    },
}
"""The minimal params of each method; methods that are not listed need none."""

ALL = sorted(METHODS)


@pytest.mark.parametrize("name", ALL)
def test_minimal_params_are_accepted_and_unknown_members_ignored(name: str) -> None:
    params = GOOD.get(name, {})
    check_params(name, dict(params))
    check_params(name, {**params, "later": {"x": [1]}, "_meta": {"progressToken": "a", "x/y": 1}})


def complaint(name: str, params: dict[str, Any]) -> str:
    with pytest.raises(McpError) as caught:
        check_params(name, params)
    assert caught.value.code == ErrorCode.INVALID_PARAMS
    start = f"Invalid params for {name}: "
    assert caught.value.message.startswith(start)
    return caught.value.message.removeprefix(start)


@pytest.mark.row("WC-18")
@pytest.mark.parametrize("name", ALL)
def test_a_missing_required_member_is_named(name: str) -> None:
    needed = GOOD.get(name, {})
    for member in needed:
        without = {key: value for key, value in needed.items() if key != member}
        assert complaint(name, without) == f'"{member}" is missing'


@pytest.mark.row("WC-18")
@pytest.mark.parametrize("name", ALL)
def test_a_member_of_a_wrong_type_is_named(name: str) -> None:
    for member, value in GOOD.get(name, {}).items():
        if member in {"data", "ttl"}:
            continue
        wrong: Any
        for wrong in (None, True, 1, 1.5, "a", ["a"], {"a": 1}):
            number = type(value) is float and type(wrong) in {int, float}
            if type(wrong) is type(value) or number or (member == "progressToken" and type(wrong) is str):
                continue
            said = complaint(name, {**GOOD[name], member: wrong})
            assert said.startswith(f'"{member}" must be ')


@pytest.mark.row("WC-18")
@pytest.mark.parametrize(
    ("name", "members", "said"),
    [
        ("tools/call", {"arguments": []}, '"arguments" must be an object, not a list'),
        ("tools/call", {"arguments": "{}"}, '"arguments" must be an object, not a string'),
        ("tools/call", {"task": 1}, '"task" must be an object, not an integer'),
        ("tools/call", {"task": {"ttl": "1"}}, '"task.ttl" must be a number, not a string'),
        ("tools/call", {"_meta": []}, '"_meta" must be an object, not a list'),
        (
            "ping",
            {"_meta": {"progressToken": 1.5}},
            '"_meta.progressToken" must be an integer or a string, not a number',
        ),
        ("tools/list", {"cursor": 1}, '"cursor" must be a string, not an integer'),
        ("prompts/get", {"arguments": {"a": 1}}, '"arguments[...]" must be a string, not an integer'),
        ("completion/complete", {"ref": {}}, '"ref.type" is missing'),
        ("completion/complete", {"ref": {"type": "ref/tool"}}, '"ref.type" must be one of ref/prompt, ref/resource'),
        ("completion/complete", {"ref": {"type": "ref/resource", "name": "a"}}, '"ref.uri" is missing'),
        ("completion/complete", {"argument": {"name": "a"}}, '"argument.value" is missing'),
        (
            "completion/complete",
            {"argument": {"name": 1, "value": ""}},
            '"argument.name" must be a string, not an integer',
        ),
        (
            "completion/complete",
            {"context": {"arguments": {"a": 1}}},
            '"context.arguments[...]" must be a string, not an integer',
        ),
        ("completion/complete", {"context": {"arguments": []}}, '"context.arguments" must be an object, not a list'),
        ("elicitation/create", {"mode": "voice"}, '"mode" must be one of form, url'),
        ("sampling/createMessage", {"messages": [1]}, '"messages[0]" must be an object, not an integer'),
    ],
)
def test_a_wrong_nested_member_is_named_by_its_path(name: str, members: dict[str, Any], said: str) -> None:
    assert complaint(name, {**GOOD.get(name, {}), **members}) == said


@pytest.mark.row("WC-06")
@pytest.mark.row("WC-02")
@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"protocolVersion": 1}, '"protocolVersion" must be a string, not an integer'),
        ({"capabilities": []}, '"capabilities" must be an object, not a list'),
        ({"clientInfo": "a"}, '"clientInfo" must be an object, not a string'),
        ({"clientInfo": {}}, '"clientInfo.name" is missing'),
        ({"clientInfo": {"name": "a"}}, '"clientInfo.version" is missing'),
        ({"clientInfo": {"name": "a", "version": 1}}, '"clientInfo.version" must be a string, not an integer'),
    ],
)
def test_initialize_needs_a_revision_capabilities_and_a_name(members: dict[str, Any], said: str) -> None:
    assert complaint("initialize", {**HELLO, **members}) == said


@pytest.mark.row("WC-28")
def test_a_log_level_is_one_of_eight() -> None:
    assert LOG_LEVELS == ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
    for level in LOG_LEVELS:
        assert check_params("logging/setLevel", {"level": level}).level == level
    for level in ("Info", "warn", "", "fatal"):
        assert complaint("logging/setLevel", {"level": level}).startswith('"level" must be one of ')


def test_null_in_an_optional_member_counts_as_missing() -> None:
    params: dict[str, Any] = {"name": "a", "arguments": None, "task": None, "_meta": None, "other": None}
    assert check_params("tools/call", params).arguments is None
    assert params == {"name": "a", "other": None}
    page: dict[str, Any] = {"cursor": None}
    assert check_params("tools/list", page).cursor is None
    assert page == {}
    assert check_params("tools/list", {"cursor": ""}).cursor == ""


def test_other_conversion_errors_are_reported_as_they_are() -> None:
    assert complaint("notifications/progress", {"progressToken": 1, "progress": 10**400}) == (
        '"progress" is wrong: number out of range'
    )
    assert complaint("prompts/get", {"name": "a", "arguments": {1: "a"}}).startswith("it is wrong: expected `str`")


def test_an_error_about_params_quotes_no_value() -> None:
    secret = "s3cret" * 1000
    for name, params in (
        ("logging/setLevel", {"level": secret}),
        ("completion/complete", {"ref": {"type": secret}, "argument": {}}),
        ("prompts/get", {"name": "a", "arguments": {secret: 1}}),
    ):
        said = complaint(name, params)
        assert "s3cret" not in said
        assert len(said) < 200


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["_meta", "name", "arguments", "ref", "type", "uri", "argument", "value", "level", "cursor", "context"]
            ),
            inner,
        )
    ),
    max_leaves=10,
)


@given(
    st.sampled_from(ALL), st.dictionaries(st.sampled_from(["_meta", "name", "arguments", "ref", "uri", "level"]), _JSON)
)
def test_any_params_are_converted_or_refused(name: str, params: dict[str, Any]) -> None:
    try:
        assert check_params(name, params) is not None
    except McpError as refused:
        assert refused.code == ErrorCode.INVALID_PARAMS
        assert len(refused.message) < 250


def test_results_are_checked_like_params() -> None:
    assert check_result("roots/list", {"roots": []}).roots == []
    assert check_result("elicitation/create", {"action": "decline"}).action == "decline"
    many = {"role": "assistant", "content": [{"type": "text", "text": "a"}], "model": "m"}
    assert check_result("sampling/createMessage", many).model == "m"
    assert check_result("ping", {"anything": 1}) is not None
    for name, result, said in (
        ("roots/list", {}, '"roots" is missing'),
        ("elicitation/create", {"action": "maybe"}, '"action" must be one of accept, cancel, decline'),
        (
            *("sampling/createMessage", {"role": "assistant", "content": "a", "model": "m"}),
            '"content" must be an object or a list, not a string',
        ),
        (
            *("elicitation/create", {"action": "accept", "content": {"a": {"b": 1}}}),
            re.escape('"content[...]" must be a boolean, an integer, a number, a string or a list, not an object'),
        ),
    ):
        with pytest.raises(McpError, match=f"Invalid result of {name}: {said}") as caught:
            check_result(name, result)
        assert caught.value.code == ErrorCode.INTERNAL_ERROR
