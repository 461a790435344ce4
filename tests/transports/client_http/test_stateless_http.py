"""The stateless era over HTTP: each request is a POST of its own, whose headers repeat what its body says, and whose stream is all that it has."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, PeerError
from greenroom.actors.client.era_verdicts import PROCESS_VERDICTS
from greenroom.actors.client.errors import StreamLost
from greenroom.actors.client.handshake import ToolLeftOut
from greenroom.protocol.errors import RequestCancelled
from greenroom.supervision import current_node

from .scripted_server import answer, event, scripted_server

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from .scripted_server import ReceivedRequest, ScriptedServer

VERSION = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
EXTENSION = f"{PREFIX}tasks"
DONE: dict[str, Any] = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
CAPABILITIES: dict[str, Any] = {
    "tools": {}, "resources": {}, "prompts": {}, "completions": {}, "logging": {}, "extensions": {EXTENSION: {}},
}  # fmt: skip


async def discover(received: ReceivedRequest) -> None:
    """Answer `server/discover`, with headers of a session that there is not."""
    result = {"resultType": "complete", "supportedVersions": [VERSION], "capabilities": CAPABILITIES, "ttlMs": 0}
    await received.result({**result, "cacheScope": "private"}, mcp_session_id="none", mcp_protocol_version=VERSION)


@asynccontextmanager
async def stateless(**handlers: Any) -> AsyncGenerator[tuple[Client, ScriptedServer]]:
    """A client of a scripted server that knows no handshake; `tools_call` is the handler of `tools/call`."""
    async with scripted_server() as server:
        server.on("server/discover", discover)
        for name, handler in handlers.items():
            server.on(name.replace("_", "/"), handler)
        async with Client(server.url, elicitation=lambda request: request.accept({"name": "Ann"})) as client:
            yield client, server


async def done(received: ReceivedRequest) -> None:
    await received.result(DONE)


def listing(*tools: dict[str, Any]) -> Any:
    """The handler of `tools/list`."""

    async def list_tools(received: ReceivedRequest) -> None:
        await received.result({"resultType": "complete", "tools": list(tools)})

    return list_tools


# --- what leaves


@pytest.mark.row("26-H1", "26-H2", "26-H6", "26-M1", "26-P1", "26-M5")
async def test_every_message_is_a_post_of_one_request_whose_headers_repeat_it() -> None:
    task = {"taskId": "t 1", "status": "working", "createdAt": "", "lastUpdatedAt": "", "ttlMs": None}
    asked: list[tuple[str, dict[str, Any], str | None]] = [
        ("tools/list", {}, None),
        ("tools/call", {"name": "add", "arguments": {}}, "add"),
        ("prompts/get", {"name": "greet"}, "greet"),
        ("resources/read", {"uri": "file:///a%20b.txt"}, "file:///a%20b.txt"),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "a", "value": ""}},
            None,
        ),
        ("tasks/get", {"taskId": "t 1"}, "t 1"),
        ("tasks/update", {"taskId": "t 1", "inputResponses": {}}, "t 1"),
        ("tasks/cancel", {"taskId": "t 1"}, "t 1"),
        ("resources/templates/list", {}, None),
    ]
    async with stateless() as (client, server):
        for method, params, _ in asked:
            server.on(method, lambda received: received.result({**task, **DONE}))
            await client.request(method, params)
        await client.ping()
    assert [each.method for each in server.requests] == ["POST"] * (len(asked) + 2)  # no GET, and no DELETE at the end
    names: dict[str, str | None] = {"server/discover": None, **{method: name for method, _, name in asked}}
    for received in server.requests:
        message, headers = received.message, received.headers
        assert received.body[:1] == b"{"
        assert list(message) == ["jsonrpc", "id", "method", "params"]
        assert headers["mcp-protocol-version"] == message["params"]["_meta"][f"{PREFIX}protocolVersion"] == VERSION
        assert headers["mcp-method"] == message["method"]
        assert headers.get("mcp-name") == names[message["method"]]
        assert headers["accept"] == "application/json, text/event-stream"
        assert headers["content-type"] == "application/json"
        assert not {"mcp-session-id", "last-event-id"} & set(headers)


SENTINEL = "=?base64?QUJD?="


@pytest.mark.row("26-P3")
@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("plain name", "plain name"),
        ("=?base64?no end", "=?base64?no end"),
        ("Zürich", "=?base64?WsO8cmljaA==?="),
        (" edge", "=?base64?IGVkZ2U=?="),
        ("edge\t", "=?base64?ZWRnZQk=?="),
        ("a\r\nMcp-Method: ping", "=?base64?YQ0KTWNwLU1ldGhvZDogcGluZw==?="),
        (SENTINEL, "=?base64?PT9iYXNlNjQ/UVVKRD89?="),
        ("\N{GRINNING FACE}", "=?base64?8J+YgA==?="),
    ],
)
async def test_a_name_that_no_header_holds_or_that_looks_encoded_is_encoded(name: str, header: str) -> None:
    async with stateless(tools_call=done, resources_read=done) as (client, server):
        await client.call_tool(name)
        [call] = server.seen("tools/call")
        assert (call.headers["mcp-name"], call.headers["mcp-method"]) == (header, "tools/call")
        assert call.message["params"]["name"] == name


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "area": {"type": "string", "x-mcp-header": "Area"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "deep": {"type": "object", "properties": {"on": {"type": "boolean", "x-mcp-header": "On"}}},
        "plain": {"type": "string"},
    },
}


@pytest.mark.row("26-P4", "26-P3")
@pytest.mark.parametrize(
    ("arguments", "headers"),
    [
        ({"area": "north", "count": 42, "deep": {"on": True}}, {"area": "north", "count": "42", "on": "true"}),
        ({"area": "Süd ", "deep": {"on": False}}, {"area": "=?base64?U8O8ZCA=?=", "on": "false"}),
        ({"area": "", "count": 0}, {"area": "", "count": "0"}),
        ({"area": SENTINEL}, {"area": "=?base64?PT9iYXNlNjQ/UVVKRD89?="}),
        ({"area": None, "count": None, "deep": None, "plain": "x"}, {}),
        ({"count": -(2**53) + 1, "deep": {}}, {"count": "-9007199254740991"}),
        ({}, {}),
    ],
)
async def test_annotated_arguments_are_mirrored_from_their_exact_place(
    arguments: dict[str, Any], headers: dict[str, str]
) -> None:
    async with stateless(tools_list=listing({"name": "t", "inputSchema": SCHEMA}), tools_call=done) as (client, server):
        await client.list_tools()
        await client.call_tool("t", arguments)
        [call] = server.seen("tools/call")
        mirrored = {
            name.removeprefix("mcp-param-"): value for name, value in call.headers.items() if "mcp-param" in name
        }
        assert mirrored == headers
        assert call.message["params"]["arguments"] == arguments


@pytest.mark.row("26-P6")
async def test_tools_with_wrong_annotations_are_left_out_and_reported_once_by_name() -> None:
    def annotated(**schema: Any) -> dict[str, Any]:
        return {
            "name": "wrong " + schema.get("type", "?"),
            "inputSchema": {"type": "object", "properties": {"a": schema}},
        }

    wrong = [annotated(type=kind, **{"x-mcp-header": "A"}) for kind in ("number", "object", "array", "null")]
    wrong.append({**annotated(type="string", **{"x-mcp-header": "two words"}), "name": "wrong words"})
    good = [{"name": "good", "inputSchema": SCHEMA}, {"name": "plain", "inputSchema": {"type": "object"}}]
    reports: list[ToolLeftOut] = []
    async with stateless(tools_list=listing(good[0], *wrong, good[1]), tools_call=done) as (client, _):
        current_node().reports.subscribe(lambda each: reports.append(each) if type(each) is ToolLeftOut else None)
        for _ in range(3):
            assert [tool.name for tool in await client.list_tools()] == ["good", "plain"]
        assert [each.name for each in reports] == [tool["name"] for tool in wrong]
        assert all(each.why and each.name in str(each) for each in reports)
        assert (await client.call_tool("good", {"area": "x"})).text == "done"


@pytest.mark.row("26-P8")
async def test_a_refused_header_costs_one_list_and_one_more_call() -> None:
    """The server has annotated an argument since the tools were listed."""

    async def checked(received: ReceivedRequest) -> None:
        if "mcp-param-area" in received.headers:
            await received.result(DONE)
        else:
            error = {"code": -32020, "message": "Mcp-Param-Area is missing"}
            await received.json({"jsonrpc": "2.0", "id": received.id, "error": error}, 400)

    bare = {"name": "t", "inputSchema": {"type": "object"}}
    async with stateless(tools_list=listing(bare), tools_call=checked) as (client, server):
        await client.list_tools()
        server.on("tools/list", listing({"name": "t", "inputSchema": SCHEMA}))
        assert (await client.call_tool("t", {"area": "north"})).text == "done"
        first, second = server.seen("tools/call")
        assert first.id != second.id
        assert [each.message["method"] for each in server.requests[1:]] == [
            "tools/list", "tools/call", "tools/list", "tools/call",
        ]  # fmt: skip


# --- what comes back


@pytest.mark.row("26-H2", "26-H13")
async def test_either_content_type_is_read_and_comments_ids_and_retries_mean_nothing() -> None:
    async def streamed(received: ReceivedRequest) -> None:
        token = received.message["params"]["_meta"]["progressToken"]
        told = {"method": "notifications/progress", "params": {"progressToken": token, "progress": 1}}
        log = {"method": "notifications/message", "params": {"level": "info", "data": "hello"}}
        notes = [event({"jsonrpc": "2.0", **note}, id=str(n), retry=1) for n, note in enumerate((told, log))]
        await received.stream(b": alive\n\n", event(id="0", retry=1), *notes, b":\n\n")
        await received.send(b": alive\n\n" + event(answer(received.id, DONE)))
        received.close()

    heard: list[Any] = []
    async with scripted_server() as server:
        server.on("server/discover", discover)
        server.on("tools/call", streamed)
        async with Client(server.url, on_log=lambda log: heard.append(log.data)) as client:
            reply = await client.call_tool("t", on_progress=lambda step: heard.append(step.progress))
            server.on("tools/call", done)
            assert (reply.text, (await client.call_tool("t")).text) == ("done", "done")
        assert heard == [1, "hello"]
        assert [each.method for each in server.requests] == ["POST"] * 3
        assert not any("last-event-id" in each.headers for each in server.requests)


@pytest.mark.row("26-M14")
@pytest.mark.parametrize(
    ("status", "named"), [(200, True), (200, False), (400, True), (400, False), (404, True), (404, False), (500, True)]
)
async def test_an_error_in_the_body_is_the_answer_to_the_request_of_that_post(status: int, *, named: bool) -> None:
    """With the request's id, or with none, since the server could not read it."""

    async def refused(received: ReceivedRequest) -> None:
        error: dict[str, Any] = {"jsonrpc": "2.0", "error": {"code": -32601, "message": "no such method"}}
        await received.json({**error, "id": received.id} if named else error, status)

    async with stateless(tools_call=refused) as (client, server):
        with pytest.raises(PeerError, match="no such method"):
            await client.call_tool("t")
        server.on("tools/call", done)
        assert (await client.call_tool("t")).text == "done"
        assert "initialize" not in [each.message["method"] for each in server.requests]
        assert client.protocol_version == VERSION


@pytest.mark.row("26-R14")
async def test_each_round_is_a_new_post_and_the_interim_result_ends_the_stream_before_it() -> None:
    form = {"message": "who?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    ended: list[bool] = []

    async def asks(received: ReceivedRequest) -> None:
        params = received.message["params"]
        if "inputResponses" in params:
            ended.append(first.writer.is_closing())
            await received.result({**DONE, "structuredContent": params["inputResponses"]})
            return
        question = {
            "resultType": "input_required",
            "requestState": "s",
            "inputRequests": {"who": {"method": "elicitation/create", "params": form}},
        }
        await received.stream(event(answer(received.id, question)))
        received.close()

    async with stateless(tools_call=asks) as (client, server):
        first: Any = None

        async def remembered(received: ReceivedRequest) -> None:
            nonlocal first
            first = first or received
            await asks(received)

        server.on("tools/call", remembered)
        reply = await client.call_tool("t")
        assert reply.structured_content == {"who": {"action": "accept", "content": {"name": "Ann"}}}
        before, after = server.seen("tools/call")
        assert (before.id == after.id, after.message["params"]["requestState"], ended) == (False, "s", [True])
        assert after.headers["mcp-name"] == "t"


# --- cancellation and losses


@pytest.mark.row("26-H10", "26-H9")
@pytest.mark.parametrize("streams", [True, False], ids=["stream", "json"])
async def test_cancelling_closes_the_response_and_says_nothing(*, streams: bool) -> None:
    async def waits(received: ReceivedRequest) -> None:
        if streams:
            await received.stream(b": alive\n\n")
        await received.gone()

    async with stateless(tools_call=waits) as (client, server):
        call = client.start_tool("t")
        [received] = await server.until("tools/call")
        call.cancel("enough")
        with pytest.raises(RequestCancelled):
            await call.result()
        await received.gone()
        server.on("tools/call", done)
        assert (await client.call_tool("t")).text == "done"
        assert [each.message["method"] for each in server.requests] == ["server/discover", "tools/call", "tools/call"]


@pytest.mark.row("26-H12")
@pytest.mark.parametrize("begun", [True, False], ids=["stream", "no response"])
async def test_a_call_whose_stream_breaks_is_lost_and_a_read_is_asked_again(*, begun: bool) -> None:
    async def breaks(received: ReceivedRequest) -> None:
        server.on(received.message["method"], done)
        if begun:
            await received.stream(event(id="7", retry=1))
        received.reset()

    async with stateless(tools_call=breaks, resources_read=breaks) as (client, server):
        with pytest.raises(StreamLost):
            await client.call_tool("t")
        assert await client.request("resources/read", {"uri": "x:y"}) == DONE
        first, second = server.seen("resources/read")
        assert first.id != second.id
        assert len(server.seen("tools/call")) == 1
        assert {each.method for each in server.requests} == {"POST"}


# --- servers that change


OLD_REFUSALS: dict[str, tuple[int, Any]] = {
    "TypeScript 1.x": (400, {"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: Unsupported protocol version (supported versions: 2025-11-25)"}, "id": None}),
    "Python 1.x": (400, {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "Bad Request: Unsupported protocol version: 2026-07-28"}}),
    "no session": (400, {"jsonrpc": "2.0", "error": {"code": -32000, "message": "Bad Request: Mcp-Session-Id header is required"}, "id": None}),
    "stateless": (400, {"jsonrpc": "2.0", "id": 0, "error": {"code": -32022, "message": "Unsupported", "data": {"supported": ["2025-11-25"]}}}),
}  # fmt: skip


@pytest.mark.row("26-V10")
@pytest.mark.parametrize("kind", OLD_REFUSALS)
async def test_a_url_that_has_become_older_gets_the_call_after_a_handshake(kind: str) -> None:
    status, body = OLD_REFUSALS[kind]

    async def older(received: ReceivedRequest) -> None:
        await received.json({**body, "id": received.id if body["id"] == 0 else body["id"]}, status)

    async with stateless(tools_call=done) as (client, server):
        assert (await client.call_tool("t")).text == "done"
        server.on("server/discover", older)

        async def handshake_or_refusal(received: ReceivedRequest) -> None:
            await (server.behave if "mcp-session-id" in received.headers else older)(received)

        server.on("tools/call", handshake_or_refusal)
        assert (await client.call_tool("t")).text == "hi"
        assert client.protocol_version == "2025-11-25"
        refused, taken = server.seen("tools/call")[1:]
        assert refused.id != taken.id
        assert PROCESS_VERDICTS.of(server.url) in ("2025-11-25", None)


@pytest.mark.row("26-V10")
async def test_a_url_that_has_become_stateless_gets_the_call_without_a_session() -> None:
    async with scripted_server() as server, Client(server.url) as client:
        assert (await client.call_tool("t")).text == "hi"
        assert client.protocol_version == "2025-11-25"

        async def refused(received: ReceivedRequest) -> None:
            if received.headers.get("mcp-protocol-version") == VERSION:
                await received.result(DONE)
                return
            error = {"code": -32022, "message": "Unsupported protocol version", "data": {"supported": [VERSION]}}
            await received.json({"jsonrpc": "2.0", "id": received.id, "error": error}, 400)

        server.on("server/discover", discover)
        server.on("initialize", refused)
        server.on("tools/call", refused)
        assert (await client.call_tool("t")).text == "done"
        assert client.protocol_version == VERSION
        assert "mcp-session-id" not in server.seen("tools/call")[-1].headers
