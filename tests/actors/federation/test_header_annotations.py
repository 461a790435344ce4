"""Annotations of arguments that HTTP headers repeat (`x-mcp-header`): what of them a federation keeps, mirrors, leaves out and shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.actors.client.fake_server import StageWire
from tests.example_counts import examples

from greenroom.actors.federation.offering import EMPTY_OFFERING
from greenroom.actors.federation.tool_catalogue import Naming, merge
from greenroom.actors.federation.tool_router import ToolRouter
from greenroom.protocol.errors import PeerError
from greenroom.protocol.mirrored_headers import (
    ANNOTATION,
    BadHeaderAnnotation,
    header_plan_of,
    without_header_annotations,
)
from greenroom.supervision import DynamicSupervisor, start, start_child, stop

from .era_upstreams import EraUpstream
from .fake_upstreams import all_ready, call, federated, spec

if TYPE_CHECKING:
    from greenroom.protocol.jsonrpc import JsonRpcRequest, RequestId
    from greenroom.supervision import Pid
    from greenroom.transports.client.interfaces import Headers

REGION = {"type": "object", "properties": {"region": {"type": "string", ANNOTATION: "Region"}}}
WRONG = {"type": "object", "properties": {"region": {"type": "number", ANNOTATION: "Region"}}}
PLAIN = {"type": "object", "properties": {"region": {"type": "string"}}}


def tool(name: str, schema: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": schema}


class WebWire(StageWire):
    """A wire that carries headers, as HTTP does."""

    def send(self, frame: bytes, id: RequestId | None = None, *, ordered: bool = False, mirrored: Headers = ()) -> None:
        assert isinstance(self.stage, WebUpstream)
        self.stage.mirrored.append(dict(mirrored))
        super().send(frame, id, ordered=ordered, mirrored=mirrored)


class WebUpstream(EraUpstream):
    """A server behind HTTP whose tools have these schemas."""

    def __init__(self, schemas: dict[str, Any]) -> None:
        super().__init__()
        self.is_http = True
        self.schemas = schemas
        self.mirrored: list[dict[str, str]] = []
        """The mirrored headers of each message."""
        self.answers["tools/list"] = self.listing

    def listing(self, _: JsonRpcRequest) -> dict[str, Any]:
        return {"tools": [tool(name, schema) for name, schema in self.schemas.items()]}

    def open(self, owner: Pid) -> StageWire:
        wire = WebWire(self, owner)
        self.wires.append(wire)
        return wire

    def parameters(self) -> list[dict[str, str]]:
        """The headers for arguments, by call."""
        found = [headers for headers in self.mirrored if headers.get("mcp-method") == "tools/call"]
        return [{name: value for name, value in each.items() if name.startswith("mcp-param-")} for each in found]


@pytest.mark.row("26-P6")
async def test_a_tool_with_a_wrong_annotation_is_left_out_and_named_in_the_status_until_it_is_right() -> None:
    stage = WebUpstream({"good": REGION, "bad": WRONG, "plain": PLAIN})
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        assert list((await federation.offering("git")).tools) == ["good", "plain"]
        assert list(federation.status("git").left_out) == ["bad"]
        assert "number" in federation.status("git").left_out["bad"]
        stage.schemas["bad"] = REGION
        changes = federation.changes()
        stage.changed()
        assert (await anext(changes)).differences.tools.added == {"bad"}
        assert federation.status("git").left_out == {}


async def test_a_tool_that_was_left_out_is_forgotten_when_its_server_has_it_no_more() -> None:
    stage = WebUpstream({"good": REGION, "bad": WRONG, "worse": WRONG})
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        del stage.schemas["bad"]
        stage.schemas["new"] = PLAIN
        changes = federation.changes()
        stage.changed()
        assert (await anext(changes)).differences.tools.added == {"new"}
        assert list(federation.status("git").left_out) == ["worse"]


@pytest.mark.row("26-P4")
async def test_arguments_are_mirrored_by_the_servers_own_schema_also_on_a_callers_first_call() -> None:
    stage = WebUpstream({"log": REGION})
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        line = federation.line("git")
        assert line is not None
        await line.request("tools/call", {"name": "log", "arguments": {"region": "Malmö"}})
        supervisor = await start(DynamicSupervisor)
        child_spec, own = federation.extra_connection("git", spec(stage))
        await start_child(supervisor, child_spec)
        await own.request("tools/call", {"name": "log", "arguments": {"region": "Oslo"}})
        assert stage.parameters() == [{"mcp-param-region": "=?base64?TWFsbcO2?="}, {"mcp-param-region": "Oslo"}]
        assert stage.executions("tools/list") == 1
        await stop(supervisor)


@pytest.mark.row("26-P8")
async def test_a_call_that_is_refused_for_a_header_is_made_again_by_the_schema_of_now() -> None:
    stage = WebUpstream({"log": PLAIN})
    async with federated({"git": spec(stage)}) as federation:
        await all_ready(federation)
        stage.schemas["log"] = REGION  # and it announces nothing
        done: list[dict[str, str]] = []

        def answer(request: JsonRpcRequest) -> Any:
            if "mcp-param-region" not in stage.mirrored[-1]:
                return PeerError(-32020, "Header mismatch: Mcp-Param-Region is missing")
            done.append(stage.mirrored[-1])
            return {"content": [{"type": "text", "text": "done"}]}

        stage.answers["tools/call"] = answer
        line = federation.line("git")
        assert line is not None
        assert (await line.request("tools/call", {"name": "log", "arguments": {"region": "x"}}))["content"]
        assert len(done) == 1


async def test_two_servers_may_use_the_same_header_for_different_tools() -> None:
    one, other = WebUpstream({"log": REGION}), WebUpstream({"log": REGION})
    async with federated({"one": spec(one), "other": spec(other)}) as federation:
        await all_ready(federation)
        catalogue = await ToolRouter(federation).catalogue()
        assert [each.name for each in catalogue] == ["one:log", "other:log"]
        assert all(each.header_plan is not None for each in catalogue)
        for id in ("one", "other"):
            assert await call(federation, id, "log") == "log"


def test_a_wrong_annotation_of_a_server_on_stdio_is_taken_off_what_clients_see() -> None:
    """Such a server is called without headers. A client over HTTP would refuse the tool for its annotation, and needs none."""
    offering = EMPTY_OFFERING.with_lists({"tools": [tool("good", REGION), tool("bad", WRONG), tool("plain", PLAIN)]})
    assert offering.header_plans.keys() == {"good"}
    assert offering.bad_annotations.keys() == {"bad"}
    catalogue = merge({"git": offering}, Naming())
    listed = {one.tool: one.listed_as(one.tool) for one in catalogue}
    assert listed["good"]["inputSchema"] == REGION
    assert listed["bad"]["inputSchema"] == {"type": "object", "properties": {"region": {"type": "number"}}}
    assert listed["plain"]["inputSchema"] == PLAIN
    assert catalogue.tools["git:bad"].definition["inputSchema"] == WRONG  # which pins are compared with
    away = offering.with_lists({"tools": [{**one, "description": "away"} for one in offering.tools.values()]})
    marked = merge({"git": offering}, Naming(), shown={"git": away}).tools["git:bad"].listed_as("bad")
    assert marked["description"] == "away"
    assert marked["inputSchema"] == listed["bad"]["inputSchema"]


def test_the_plans_of_tools_follow_their_list() -> None:
    first = EMPTY_OFFERING.with_lists({"tools": [tool("log", REGION)]})
    assert first.with_lists({"prompts": [{"name": "p"}]}).header_plans is first.header_plans
    assert first.with_lists({"tools": [tool("log", PLAIN)]}).header_plans == {}
    assert first.with_lists({"tools": [tool("log", dict(REGION))]}) is first


NAMES = st.sampled_from(
    ["properties", "items", "anyOf", "$defs", "type", "enum", "const", "default", ANNOTATION, "a", "b"]
)
SCHEMAS = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["string", "integer", "number", "Region", "a b"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=30,
)


@given(SCHEMAS)
@settings(max_examples=examples(400))
def test_whatever_a_schema_is_without_annotations_it_is_valid_and_otherwise_as_it_was(schema: Any) -> None:
    offering = EMPTY_OFFERING.with_lists({"tools": [tool("any", schema)]})
    assert offering.header_plans.keys() | offering.bad_annotations.keys() <= {"any"}
    bare = without_header_annotations(tool("any", schema))["inputSchema"]
    assert header_plan_of(bare) is None
    try:
        plan = header_plan_of(schema)
    except BadHeaderAnnotation as error:
        assert offering.bad_annotations == {"any": str(error)}
        assert offering.listable("any")["inputSchema"] == bare
    else:
        assert offering.header_plans == ({} if plan is None else {"any": plan})
        assert offering.listable("any")["inputSchema"] == schema
        if plan is None:
            assert bare == schema or ANNOTATION in str(schema)


def test_a_property_may_be_called_like_the_annotation() -> None:
    schema = {
        "type": "object",
        "properties": {ANNOTATION: {"type": "string"}, "a": {"type": "string", "default": {ANNOTATION: 1}}},
    }
    assert without_header_annotations(tool("log", schema)) == tool("log", schema)
    assert EMPTY_OFFERING.with_lists({"tools": [tool("log", schema)]}).header_plans == {}
