"""Requests of the stateless era: each says what the client is, and ends by one of the results that the revision knows."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.connections import snapshot
from tests.example_counts import examples

from greenroom import Client, ClientSettings, ToolFailed
from greenroom.actors.client.client_handler import ClientHandler
from greenroom.actors.client.errors import RequestLost, RequestTimeout, StreamLost, Unsupported
from greenroom.actors.client.interfaces import Phase, Progress
from greenroom.actors.client.outgoing_envelope import OutgoingEnvelope
from greenroom.actors.settings import BadSetting
from greenroom.protocol.errors import BadAnswer, PeerError, RequestCancelled
from greenroom.protocol.jsonrpc import JsonRpcNotification, JsonRpcRequest
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost

from .client_helpers import playing
from .fake_server import SILENCE, After
from .stateless_stage import PREFIX, VERSION, in_turn, sent, stateless_stage

CALL: dict[str, Any] = {"name": "t", "arguments": {}}
DONE: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
EVERY = (
    "ping", "tools/list", "tools/call", "resources/list", "resources/templates/list", "resources/read", "prompts/list",
    "prompts/get", "completion/complete",
)  # fmt: skip


class Able(ClientHandler):
    """Declares everything, also what a session alone has."""

    def capabilities(self) -> dict[str, Any]:
        return {
            "roots": {"listChanged": True},
            "sampling": {"tools": {}},
            "elicitation": {"form": {}, "url": {}},
            "tasks": {"list": {}},
            "extensions": {"example.org/maps": {"zoom": 3}},
        }


# --- the envelope


@pytest.mark.row("26-M5", "26-M7", "26-V6", "26-F10")
async def test_each_request_says_its_revision_its_capabilities_and_its_name() -> None:
    stage = stateless_stage(answers=dict.fromkeys(EVERY, DONE))
    info = {"name": "me", "version": "7", "title": "I"}
    async with playing(stage, handler=Able(), client_info=info) as (line, _):
        for method in EVERY:
            await line.request(method, None if method.endswith("list") else CALL)
        for request in stage.requests:
            meta = request.params["_meta"]
            assert meta == {
                f"{PREFIX}protocolVersion": VERSION,
                f"{PREFIX}clientInfo": info,
                f"{PREFIX}clientCapabilities": {
                    "roots": {},
                    "sampling": {"tools": {}},
                    "elicitation": {"form": {}, "url": {}},
                    "extensions": {f"{PREFIX}tasks": {}, "example.org/maps": {"zoom": 3}},
                },
            }
        assert [request.method for request in stage.requests] == ["server/discover", "server/discover", *EVERY[1:]]


@pytest.mark.row("26-M5", "26-M15", "26-M16")
async def test_a_caller_adds_to_the_envelope_and_replaces_nothing_of_the_protocol() -> None:
    stage = stateless_stage(answers={"tools/call": DONE})
    forged: dict[str, Any] = {
        f"{PREFIX}protocolVersion": "1",
        f"{PREFIX}clientCapabilities": {"all": {}},
        "traceparent": "00-1",
    }
    async with playing(stage) as (line, _):
        await line.request("tools/call", {**CALL, "_meta": forged})
        [meta] = [each.params["_meta"] for each in stage.asked("tools/call")]
        assert (meta["traceparent"], meta[f"{PREFIX}protocolVersion"]) == ("00-1", VERSION)
        assert "all" not in meta[f"{PREFIX}clientCapabilities"]
        assert forged["traceparent"] == "00-1"


@pytest.mark.row("26-M5")
@settings(max_examples=examples(300))
@given(
    st.dictionaries(
        st.text(max_size=12) | st.sampled_from(["_meta", "name", "progressToken", f"{PREFIX}protocolVersion"]),
        st.none()
        | st.integers(-9, 9)
        | st.text(max_size=5)
        | st.dictionaries(st.text(max_size=5), st.none(), max_size=2),
        max_size=5,
    ),
    st.none() | st.integers(0, 9) | st.text(max_size=5),
)
def test_any_params_leave_with_one_whole_envelope(params: dict[str, Any], token: Any) -> None:
    envelope = OutgoingEnvelope({"name": "me", "version": "7"}, {"roots": {}})
    wire = json.loads(envelope.request(7, "tools/call", params, token=token, level="info"))
    meta = wire["params"].pop("_meta")
    assert meta[f"{PREFIX}protocolVersion"] == VERSION
    assert meta[f"{PREFIX}clientCapabilities"] == {"roots": {}}
    assert token is None or meta["progressToken"] == token
    assert wire["params"] == {name: value for name, value in params.items() if name != "_meta"}
    assert (wire["id"], wire["method"]) == (7, "tools/call")


@pytest.mark.row("26-M15", "26-V6")
@pytest.mark.parametrize(
    "id",
    [
        "maps",
        "/maps",
        "a b/maps",
        "example.org/",
        "example.org/a b",
        "dev.mcp/maps",
        "x.modelcontextprotocol/maps",
        "example.org/" + "m" * 999,
    ],
)
def test_an_extension_is_declared_under_an_id_that_the_grammar_allows(id: str) -> None:
    with pytest.raises(BadSetting, match="identifier of an extension") as bad:
        ClientSettings(capabilities={"extensions": {"example.org/maps": {}, id: {}}})
    assert len(str(bad.value)) < 1000


@pytest.mark.row("26-M10")
async def test_the_name_of_a_server_changes_nothing_that_is_sent() -> None:
    heard: list[list[Any]] = []
    for info in (
        {"name": "mcp", "version": "1"},
        {"name": "x" * 9000},
        {},
        None,
        "odd",
        ["mcp"],
        {"name": 7, "version": None},
    ):
        meta = {} if info is None else {f"{PREFIX}serverInfo": info}
        stage = stateless_stage(answers={"tools/call": DONE}, _meta=meta)
        async with playing(stage) as (line, _):
            await line.request("tools/call", CALL)
            assert line.welcome is not None
            assert isinstance(line.welcome.server_info, dict)
        heard.append([(each.method, each.params) for each in stage.requests])
    assert len(heard) == 7
    assert all(each == heard[0] for each in heard)


@pytest.mark.row("26-M2")
async def test_all_ids_are_integers_and_none_is_used_twice() -> None:
    """Also those of retries, of listed tools, and after a loss."""
    stage = stateless_stage(answers={"tools/list": {"tools": []}, "tools/call": PeerError(-32020, "wrong header")})
    async with playing(stage) as (line, _):
        with pytest.raises(PeerError):
            await line.request("tools/call", CALL)
        await stage.wire.break_off(ConnectionLost("pulled out"))
        await line.ready()
        await asyncio.gather(*(line.request("ping") for _ in range(20)))
        ids = [request.id for request in stage.requests]
        assert all(type(id) is int for id in ids)
        assert len(set(ids)) == len(ids) >= 25


@pytest.mark.row("26-M1")
async def test_a_stateless_client_writes_no_response_and_no_notification_but_cancelled() -> None:
    """Not even to a server that sends requests, which the revision forbids."""
    stage = stateless_stage(answers={"tools/call": After(2.0, DONE)})
    async with playing(stage, handler=Able()) as (line, _):
        call = asyncio.create_task(line.request("tools/call", CALL))
        await stage.wire.hears("tools/call")
        for number, method in enumerate(
            ("ping", "roots/list", "sampling/createMessage", "elicitation/create", "no/such")
        ):
            stage.wire.say(JsonRpcRequest(number, method, {}))
        await call
        assert await line.request("ping") == {}
        assert all(isinstance(each, JsonRpcRequest) for each in stage.wire.heard)


# --- results


@pytest.mark.row("26-M4")
@pytest.mark.parametrize("method", ["tools/call", "tools/list", "resources/read", "completion/complete"])
async def test_a_result_without_a_type_is_complete_and_one_with_an_unknown_type_is_no_success(method: str) -> None:
    stage = stateless_stage()
    async with playing(stage) as (line, _):
        for answer in (DONE, {"resultType": "complete", **DONE}):
            stage.answers[method] = answer
            assert await line.request(method, CALL) == answer
        unknown: list[Any] = ["done", "", "Complete", "example.org/odd", None, 7, ["complete"], {}]
        for kind in unknown:
            stage.answers[method] = {"resultType": kind, **DONE}
            with pytest.raises(BadAnswer, match="resultType"):
                await line.request(method, CALL)
        assert (await snapshot(line))["under_way"] == {}


@pytest.mark.row("26-M13")
@pytest.mark.parametrize("code", [-32002, -32000, -32001, -32003, -32010, -32019, -32042])
async def test_codes_of_older_servers_are_errors_like_any_other(code: int) -> None:
    """The caller gets code, text and data; nothing is sent again, and the connection stays."""
    stage = stateless_stage(answers={"resources/read": PeerError(code, "no such resource", {"uri": "x:y"})})
    async with playing(stage) as (line, _):
        with pytest.raises(PeerError, match="no such resource") as refused:
            await line.request("resources/read", {"uri": "x:y"})
        assert (refused.value.code, refused.value.data) == (code, {"uri": "x:y"})
        assert [request.method for request in stage.requests] == ["server/discover", "resources/read"]
        assert (line.generation, line.phase) == (1, Phase.READY)


# --- what the revision has no method for


@pytest.mark.row("26-F11")
async def test_a_log_level_is_part_of_each_later_request_and_needs_a_server_that_logs() -> None:
    stage = stateless_stage(answers={"tools/call": DONE})
    async with playing(stage) as (line, _):
        await line.request("tools/call", CALL)
        assert await line.request("logging/setLevel", {"level": "warning"}) == {}
        await line.request("tools/call", CALL)
        await line.request("tools/call", {**CALL, "_meta": {f"{PREFIX}logLevel": "debug"}})
        levels = [each.params["_meta"].get(f"{PREFIX}logLevel") for each in stage.asked("tools/call")]
        assert levels == [None, "warning", "debug"]
        assert not stage.asked("logging/setLevel")
    mute = stateless_stage(capabilities={"tools": {}})
    async with playing(mute) as (line, _):
        with pytest.raises(Unsupported, match="logging"):
            await line.request("logging/setLevel", {"level": "warning"})


@pytest.mark.row("26-V7")
async def test_what_a_server_does_not_declare_is_refused_unsent() -> None:
    stage = stateless_stage(capabilities={"tools": {}})
    async with playing(stage) as (line, _):
        for method in (
            "prompts/list",
            "resources/read",
            "completion/complete",
            "tasks/get",
            "tasks/update",
            "tasks/cancel",
        ):
            with pytest.raises(Unsupported):
                await line.request(method, {"taskId": "x"})
        assert [request.method for request in stage.requests] == ["server/discover"]


# --- cancellation and time


@pytest.mark.row("26-S2")
async def test_a_cancelled_request_is_named_once_and_its_late_answer_is_dropped() -> None:
    stage = stateless_stage(answers={"tools/call": After(5.0, DONE)})
    async with playing(stage) as (line, _):
        pending = line.begin("tools/call", CALL)
        await stage.wire.hears("tools/call")
        pending.cancel("enough")
        with pytest.raises(RequestCancelled):
            await pending.result()
        await stage.wire.hears("notifications/cancelled")
        await asyncio.sleep(20)
        assert stage.notes("notifications/cancelled") == [{"requestId": pending.id, "reason": "enough"}]
        assert (await snapshot(line))["strays"] == 1


@pytest.mark.row("26-H10")
async def test_over_http_a_cancelled_request_is_closed_and_nothing_is_said() -> None:
    stage = stateless_stage(answers={"tools/call": SILENCE})
    stage.is_http = True
    async with playing(stage) as (line, _):
        pending = line.begin("tools/call", CALL)
        await stage.wire.hears("tools/call")
        pending.cancel("enough")
        with pytest.raises(RequestCancelled):
            await pending.result()
        with pytest.raises(RequestTimeout):
            await line.request("tools/call", CALL, timeout=1.0)
        await snapshot(line)
        assert stage.wire.forgotten == [each.id for each in stage.asked("tools/call")]
        assert all(isinstance(each, JsonRpcRequest) for each in stage.wire.heard)


@pytest.mark.row("26-S6")
async def test_a_deadline_cancels_and_progress_does_not_move_it() -> None:
    stage = stateless_stage()

    def endless(request: JsonRpcRequest) -> object:
        token = request.params["_meta"]["progressToken"]
        for done in range(1, 100):
            told = JsonRpcNotification("notifications/progress", {"progressToken": token, "progress": done})
            asyncio.get_running_loop().call_later(done / 2 + 0.1, stage.wire.say, told)
        return SILENCE

    stage.answers["tools/call"] = endless
    heard: list[Progress] = []
    async with Client(stage) as client:
        began = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimeout):
            await client.within(3.0).call_tool("t", on_progress=heard.append)
        assert asyncio.get_running_loop().time() - began == pytest.approx(3.0)
        assert [each.progress for each in heard] == [1, 2, 3, 4, 5]
        await stage.wire.hears("notifications/cancelled")
        await asyncio.sleep(100)
        assert len(heard) == 5  # what comes after the end of a call is dropped


# --- losses


@pytest.mark.row("26-H12")
@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/list", None), ("resources/read", {"uri": "x:y"}), ("prompts/get", {"name": "p"}), ("ping", None)],
)
async def test_a_read_that_is_lost_is_sent_again_under_a_new_id(method: str, params: Any) -> None:
    stage = stateless_stage()
    on_the_wire = "server/discover" if method == "ping" else method
    async with playing(stage) as (line, _):
        stage.answers[on_the_wire] = in_turn(ConnectionLost("broken"), DONE)
        assert await line.request(method, params) == ({} if method == "ping" else DONE)
        ids = [each.id for each in stage.requests if each.method == on_the_wire][-2:]
        assert len(set(ids)) == 2


@pytest.mark.row("26-H12")
async def test_a_call_that_is_lost_is_not_sent_again_and_its_error_says_that_it_may_be_done() -> None:
    stage = stateless_stage(answers={"tools/call": ConnectionLost("broken")})
    async with playing(stage) as (line, _):
        with pytest.raises(StreamLost) as lost:
            await line.request("tools/call", CALL)
        assert (lost.value.maybe_done, lost.value.reason) == (True, "stream_lost")
        assert len(stage.asked("tools/call")) == 1


@pytest.mark.row("26-H12")
@pytest.mark.parametrize(
    ("failure", "said"), [(ConnectFailed("refused"), {}), (ConnectionLost("broken"), {"idempotent": True})]
)
async def test_a_call_that_never_left_or_may_be_repeated_is_sent_again(failure: Exception, said: Any) -> None:
    stage = stateless_stage(answers={"tools/call": in_turn(failure, DONE)})
    async with Client(stage) as client:
        assert (await client.call_tool("t", **said)).text == "done"
    assert len({each.id for each in stage.asked("tools/call")}) == 2


# --- headers that the server finds wrong


MIRRORED: dict[str, Any] = {"type": "object", "properties": {"area": {"type": "string", "x-mcp-header": "Area"}}}


@pytest.mark.row("26-P8", "26-P4")
async def test_a_call_with_wrong_headers_is_made_again_after_the_tools_are_listed_anew() -> None:
    """The tool has got an annotation since it was listed, on a later page."""
    stage = stateless_stage()
    stage.is_http = True
    page: dict[str, Any] = {"tools": [], "nextCursor": ""}
    last = {"tools": [{"name": "t", "inputSchema": MIRRORED}]}
    stage.answers |= {
        "tools/list": in_turn(page, last),
        "tools/call": in_turn(PeerError(-32020, "Mcp-Param-Area is missing"), DONE),
    }
    async with playing(stage) as (line, _):
        assert await line.request("tools/call", {"name": "t", "arguments": {"area": "Süd"}}) == DONE
        first, second = stage.asked("tools/call")
        headers = [dict(stage.wire.mirrored[each.id]) for each in (first, second)]
        assert first.id != second.id
        assert [each.get("mcp-param-area") for each in headers] == [None, "=?base64?U8O8ZA==?="]
        assert sent(stage, "tools/list") == [{}, {"cursor": ""}]
        assert sent(stage, "tools/call") == [{"name": "t", "arguments": {"area": "Süd"}}] * 2


@pytest.mark.row("26-P8")
async def test_headers_that_stay_wrong_are_an_error_after_one_more_call() -> None:
    stage = stateless_stage(answers={"tools/list": {"tools": []}, "tools/call": PeerError(-32020, "wrong")})
    stage.is_http = True
    async with playing(stage) as (line, _):
        with pytest.raises(PeerError, match="wrong"):
            await line.request("tools/call", CALL)
        assert [each.method for each in stage.requests] == ["server/discover", "tools/call", "tools/list", "tools/call"]


@pytest.mark.row("26-P8")
async def test_a_refused_call_is_not_said_done_where_the_tools_cannot_be_listed() -> None:
    stage = stateless_stage(answers={"tools/list": SILENCE, "tools/call": PeerError(-32020, "wrong")})
    async with playing(stage) as (line, _):
        call = line.begin("tools/call", CALL)
        await stage.wire.hears("tools/list")
        await stage.wire.break_off(ConnectionLost("pulled out"))
        with pytest.raises(RequestLost, match="pulled out") as lost:
            await call
        assert (lost.value.method, lost.value.maybe_done) == ("tools/call", False)


@pytest.mark.row("26-P8")
async def test_a_refused_call_is_not_made_again_for_a_caller_that_has_left() -> None:
    stage = stateless_stage(
        answers={"tools/list": SILENCE, "tools/call": PeerError(-32020, "wrong"), "prompts/list": {"prompts": []}}
    )
    async with playing(stage) as (line, _):
        call = line.begin("tools/call", CALL)
        await stage.wire.hears("tools/list")
        stage.wire.answer(stage.asked("tools/list")[0], {"tools": []})  # it is read before the connection learns that
        call.cancel()
        await line.request("prompts/list")
        assert len(stage.asked("tools/call")) == 1


# --- values


@pytest.mark.row("26-F2")
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "array", "items": {"type": "integer"}}, [1, 2]),
        ({"type": "integer"}, 7),
        ({"type": ["string", "null"]}, None),
        ({"const": False}, False),
        ({"anyOf": [{"type": "string"}, {"type": "number"}]}, 1.5),
        ({}, {"result": 3}),
    ],
)
async def test_structured_content_of_any_kind_is_the_value_and_is_checked_by_any_schema(
    schema: Any, value: Any
) -> None:
    tool = {"name": "t", "inputSchema": {"type": "object"}, "outputSchema": schema}
    content = [{"type": "text", "text": json.dumps(value)}]
    reply = {"resultType": "complete", "content": content, "structuredContent": value}
    stage = stateless_stage(answers={"tools/list": {"tools": [tool]}, "tools/call": reply})
    async with Client(stage) as client:
        assert await client.call("t") == value
        if schema:
            stage.answers["tools/call"] = {**reply, "structuredContent": {"no": "such value"}}
            with pytest.raises(BadAnswer):
                await client.call("t")


async def test_a_tool_that_fails_is_told_from_a_call_that_is_refused() -> None:
    stage = stateless_stage(
        answers={"tools/call": {"content": [{"type": "text", "text": "no paint"}], "isError": True}}
    )
    async with Client(stage) as client:
        with pytest.raises(ToolFailed, match="no paint"):
            await client.call("t")
        stage.answers["tools/call"] = PeerError(-32602, "Unknown tool: t")
        with pytest.raises(PeerError, match="Unknown tool"):
            await client.call("t")


@pytest.mark.row("26-F6")
async def test_an_empty_cursor_is_a_cursor() -> None:
    pages = {None: ("a", ""), "": ("b", " "), " ": ("c", None)}

    def page(request: JsonRpcRequest) -> dict[str, Any]:
        name, following = pages[request.params.get("cursor")]
        tools = [{"name": name, "inputSchema": {"type": "object"}}]
        return {"tools": tools} | ({} if following is None else {"nextCursor": following})

    stage = stateless_stage(answers={"tools/list": page})
    async with Client(stage) as client:
        assert [tool.name for tool in await client.list_tools()] == ["a", "b", "c"]
    assert sent(stage, "tools/list") == [{}, {"cursor": ""}, {"cursor": " "}]


@pytest.mark.row("26-J2")
async def test_a_schema_arrives_with_every_keyword() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"address": {"$anchor": "address", "type": "object"}},
        "properties": {"at": {"$ref": "#address"}, "who": {"$dynamicRef": "#x"}},
        "allOf": [{"anyOf": [{"required": ["at"]}, {"required": ["who"]}]}],
        "if": {"required": ["at"]},
        "then": {"minProperties": 1},
        "else": False,
        "unevaluatedProperties": False,
        "x-odd": [None],
    }
    stage = stateless_stage(answers={"tools/list": {"tools": [{"name": "t", "inputSchema": schema}]}})
    async with Client(stage) as client:
        [tool] = await client.list_tools()
    assert tool.input_schema == schema
