"""The handshake: revision and capabilities."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom.protocol.errors import ErrorCode, McpError
from greenroom.protocol.methods import (
    METHODS,
    PeerSide,
    ServerFeatures,
    initialize_result,
    is_declared,
    missing_capability,
    read_initialize,
    required_capabilities,
)
from greenroom.protocol.versions import LATEST, SUPPORTED

HELLO: dict[str, Any] = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"roots": {}},
    "clientInfo": {"name": "a", "version": "1", "title": "A"},
}


@pytest.mark.row("WC-02")
def test_an_initialize_is_read_and_its_revision_negotiated() -> None:
    hello = read_initialize(dict(HELLO))
    assert hello.requested == hello.version == "2025-06-18"
    assert hello.capabilities == {"roots": {}}
    assert hello.client_info == {"name": "a", "version": "1", "title": "A"}
    newer = read_initialize({**HELLO, "protocolVersion": "2026-07-28"})
    assert (newer.requested, newer.version) == ("2026-07-28", LATEST)


@pytest.mark.row("WC-02")
@pytest.mark.row("WC-06")
@pytest.mark.parametrize("member", ["protocolVersion", "capabilities", "clientInfo"])
def test_an_initialize_with_a_missing_member_is_refused(member: str) -> None:
    with pytest.raises(McpError, match=f'"{member}" is missing') as caught:
        read_initialize({key: value for key, value in HELLO.items() if key != member})
    assert caught.value.code == ErrorCode.INVALID_PARAMS


def test_a_feature_that_is_off_is_not_declared() -> None:
    assert ServerFeatures().to_wire() == {}
    assert ServerFeatures(tools=True, resources=True, prompts=True).to_wire() == {
        "tools": {},
        "resources": {},
        "prompts": {},
    }
    assert ServerFeatures(tools_list_changed=True, resources_subscribe=True).to_wire() == {}


def test_a_feature_that_is_on_is_declared() -> None:
    features = ServerFeatures(
        tools=True,
        tools_list_changed=True,
        prompts=True,
        prompts_list_changed=True,
        resources=True,
        resources_subscribe=True,
        resources_list_changed=True,
        logging=True,
        completions=True,
        tasks={"list": {}},
        experimental={"x": {}},
    )
    assert features.to_wire() == {
        "tools": {"listChanged": True},
        "resources": {"subscribe": True, "listChanged": True},
        "prompts": {"listChanged": True},
        "logging": {},
        "completions": {},
        "tasks": {"list": {}},
        "experimental": {"x": {}},
    }


def test_capabilities_that_a_revision_lacks_are_left_out() -> None:
    features = ServerFeatures(completions=True, tasks={}, logging=True)
    assert [sorted(features.to_wire(version)) for version in SUPPORTED] == [
        ["completions", "logging", "tasks"],
        ["completions", "logging"],
        ["completions", "logging"],
        ["logging"],
    ]


def test_an_initialize_result_has_the_servers_name_and_version() -> None:
    assert initialize_result(LATEST, {"tools": {}}, {"name": "s", "version": "1"}) == {
        "protocolVersion": LATEST,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"},
    }
    assert initialize_result(LATEST, {}, {"name": "s", "version": "1"}, "read me")["instructions"] == "read me"


@pytest.mark.row("WC-06")
@pytest.mark.parametrize(
    "info", [{}, {"name": "s"}, {"version": "1"}, {"name": 1, "version": "1"}, {"name": "s", "version": None}]
)
def test_a_server_without_a_valid_name_or_version_is_an_internal_error(info: dict[str, Any]) -> None:
    with pytest.raises(McpError) as caught:
        initialize_result(LATEST, {}, info)
    assert caught.value.code == ErrorCode.INTERNAL_ERROR


def test_a_capability_is_declared_by_an_object_or_true() -> None:
    declared = {
        "tools": {"listChanged": True},
        "logging": {},
        "resources": {"subscribe": False},
        "prompts": None,
        "x": True,
    }
    for path in ("tools", "tools.listChanged", "logging", "resources", "x"):
        assert is_declared(declared, path)
    for path in (
        "resources.subscribe",
        "resources.listChanged",
        "prompts",
        "prompts.listChanged",
        "x.y",
        "tools.listChanged.z",
        "",
    ):
        assert not is_declared(declared, path)


@pytest.mark.parametrize(
    ("capabilities", "form", "url"),
    [
        ({}, False, False),
        ({"elicitation": {}}, True, False),
        ({"elicitation": {"form": {}}}, True, False),
        ({"elicitation": {"url": {}}}, False, True),
        ({"elicitation": {"form": {}, "url": {}}}, True, True),
        ({"elicitation": {"later": {}}}, True, False),
        ({"elicitation": None}, False, False),
    ],
)
def test_an_elicitation_that_names_no_mode_means_forms(capabilities: dict[str, Any], *, form: bool, url: bool) -> None:
    assert is_declared(capabilities, "elicitation.form") is form
    assert is_declared(capabilities, "elicitation.url") is url


@pytest.mark.row("SX-09")
@pytest.mark.parametrize(
    ("method", "params", "needed"),
    [
        ("roots/list", {}, ["roots"]),
        ("ping", {}, []),
        ("sampling/createMessage", {}, ["sampling"]),
        ("sampling/createMessage", {"tools": None}, ["sampling"]),
        ("sampling/createMessage", {"tools": []}, ["sampling", "sampling.tools"]),
        ("sampling/createMessage", {"includeContext": "none"}, ["sampling"]),
        ("sampling/createMessage", {"includeContext": "allServers"}, ["sampling", "sampling.context"]),
        ("sampling/createMessage", {"tools": [{"name": "a"}]}, ["sampling", "sampling.tools"]),
        ("sampling/createMessage", {"toolChoice": {"mode": "auto"}}, ["sampling", "sampling.tools"]),
        ("sampling/createMessage", {"task": {}}, ["sampling", "tasks.requests.sampling.createMessage"]),
        ("elicitation/create", {}, ["elicitation", "elicitation.form"]),
        ("elicitation/create", {"mode": "form"}, ["elicitation", "elicitation.form"]),
        ("elicitation/create", {"mode": "url"}, ["elicitation", "elicitation.url"]),
        ("notifications/message", {}, []),
        ("no/such", {}, []),
    ],
)
def test_a_request_to_a_client_needs_a_declared_capability(
    method: str, params: dict[str, Any], needed: list[str]
) -> None:
    assert required_capabilities(method, params, PeerSide.CLIENT) == needed
    everything: dict[str, Any] = {
        "roots": {},
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
        "tasks": {"requests": {"sampling": {"createMessage": {}}}},
    }
    assert missing_capability(method, params, everything, PeerSide.CLIENT) is None
    assert missing_capability(method, params, {}, PeerSide.CLIENT) == (needed[0] if needed else None)


@pytest.mark.row("SX-09", "SC-08")
def test_before_sub_capabilities_forms_and_context_needed_none() -> None:
    declared: dict[str, Any] = {"sampling": {}, "elicitation": {"url": {}}}
    for method, params in (("elicitation/create", {}), ("sampling/createMessage", {"includeContext": "allServers"})):
        assert missing_capability(method, params, declared, PeerSide.CLIENT, "2025-06-18") is None
        assert missing_capability(method, params, declared, PeerSide.CLIENT) is not None


def test_every_required_capability_can_be_declared() -> None:
    names = {"tools", "resources", "prompts", "logging", "completions", "tasks", "roots", "sampling", "elicitation"}
    for method in METHODS.values():
        if method.capability:
            assert method.capability.split(".")[0] in names
