"""Rows of revision 2026-07-28, each shown over HTTP by a server and a client that sends its requests one by one, without a session."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from msgspec import Meta
from tests.transports.http.engine_driver import EngineDriver, RecordedResponse

from greenroom import Accepted, Context, McpError, Server, Settings, ToolError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

VERSION = "2026-07-28"
PREFIX = "io.modelcontextprotocol/"
VERSION_KEY, INFO_KEY, ABLE_KEY, LEVEL_KEY = (
    f"{PREFIX}{name}" for name in ("protocolVersion", "clientInfo", "clientCapabilities", "logLevel")
)
SERVER = {f"{PREFIX}serverInfo": {"name": "rows", "version": "3.1"}}
META: dict[str, Any] = {VERSION_KEY: VERSION, ABLE_KEY: {}}
NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
CACHED = ("server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list")
READ = ("resources/read", {"uri": "test://one"})
EVERYTHING: list[tuple[str, dict[str, Any]]] = [
    *((method, {}) for method in CACHED),
    READ,
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "A"}},
    ),
]
"""A request of each method that has a result at once."""
REMOVED = (
    "initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe", "tasks/list", "tasks/result",
    "notifications/initialized", "roots/list", "sampling/createMessage", "elicitation/create", "no/such/method",
)  # fmt: skip


@dataclass
class Size:
    """A form with bounds."""

    metres: Annotated[float, Meta(ge=0.5, le=2.5)]


COLOUR = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


def rows_server() -> Server:
    """A server with something of everything. Its tools are not registered in the order of their names."""
    server = Server("rows", version="3.1", instructions="One by one.", settings=Settings(page_size=3))

    @server.tool
    def subtract(a: int, b: int) -> int:
        return a - b

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    def fail() -> str:
        raise ToolError("out of paint")

    @server.tool
    def refuse(code: int) -> str:
        raise McpError(code, "no", {"code": code})

    @server.tool
    async def ask(ctx: Context) -> str:
        match await ctx.elicit("Which colour?", COLOUR):
            case Accepted(colour):
                return str(colour["colour"])
            case other:
                return other.action

    @server.tool
    async def sample(ctx: Context) -> str:
        return (await ctx.sample("Say anything")).text

    @server.tool
    async def report(ctx: Context) -> str:
        for level in ("debug", "info", "error"):
            await ctx.log(level, f"at {level}")
        for done in (1, 1, 0.5, 2):
            await ctx.progress(done, 2)
        return "reported"

    @server.resource("test://one", "one")
    def one() -> str:
        return "1"

    @server.resource("test://each/{name}", "each")
    def each(name: str) -> str:
        return name

    @server.prompt
    def greet(who: str) -> str:
        return f"Hello {who}"

    @server.completion("who", prompt="greet")
    def complete(begun: str) -> list[str]:
        return [name for name in ("Ada", "Bob") if name.startswith(begun)]

    return server


class OneByOne:
    """Sends each request with an envelope and the headers that mirror it, and reads the answer."""

    def __init__(self, driver: EngineDriver) -> None:
        self.driver = driver

    async def send(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = META,
        headers: Mapping[str, str | None] | None = None,
        id: Any = 7,
    ) -> RecordedResponse:
        """The response to a request. Without `meta` it has no envelope."""
        response = RecordedResponse()
        await self.begin(response, method, params, meta=meta, headers=headers, id=id)
        return response

    async def begin(
        self,
        response: RecordedResponse,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = META,
        headers: Mapping[str, str | None] | None = None,
        id: Any = 7,
    ) -> None:
        """The same, recorded in this response."""
        sent: dict[str, Any] = {**(params or {})} if meta is None else {**(params or {}), "_meta": dict(meta)}
        said: dict[str, str | None] = {"mcp-protocol-version": VERSION, "mcp-method": method}
        if method in NAMES:
            said["mcp-name"] = sent[NAMES[method]]
        body = json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": sent}).encode()
        said |= {"content-type": "application/json", **(headers or {})}
        await self.driver.begin(response, "POST", "/mcp", said, body)

    async def result(self, method: str, params: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
        """The result of a request that succeeds."""
        response = await self.send(method, params, **more)
        assert response.status == 200
        found: dict[str, Any] = messages(response)[-1]["result"]
        return found

    async def error(self, method: str, params: Mapping[str, Any] | None = None, **more: Any) -> tuple[int, Any]:
        """The status and the error of a request that is refused; the error has the request's id."""
        response = await self.send(method, params, **more)
        message = messages(response)[-1]
        assert message["id"] == more.get("id", 7)
        return response.status, message["error"]

    async def call(self, tool: str, /, **arguments: Any) -> dict[str, Any]:
        """The result of a call."""
        return await self.result("tools/call", {"name": tool, "arguments": arguments})


def messages(response: RecordedResponse) -> list[Any]:
    """The messages of a response, whether it is JSON or a stream."""
    if not response.chunks:
        return [response.json]
    assert response.headers["content-type"].startswith("text/event-stream")
    lines = b"".join(response.chunks).splitlines()
    return [json.loads(line.removeprefix(b"data: ")) for line in lines if line.startswith(b"data: ")]


@asynccontextmanager
async def served(server: Server | None = None) -> AsyncGenerator[OneByOne]:
    """A client in front of a server."""
    async with (server or rows_server()).started() as company:
        yield OneByOne(EngineDriver.before(company))


# --- messages


@pytest.mark.row("26-M3")
@pytest.mark.row("26-M8")
@pytest.mark.parametrize(("method", "params"), [pytest.param(*one, id=one[0]) for one in EVERYTHING])
async def test_every_result_has_its_type_and_names_the_server(method: str, params: dict[str, Any]) -> None:
    async with served() as client:
        result = await client.result(method, params)
    assert result["resultType"] == "complete"
    assert result["_meta"] == SERVER


@pytest.mark.row("26-M3")
@pytest.mark.row("26-M8")
@pytest.mark.row("26-M1")
async def test_a_question_is_a_result_of_its_own_type_and_no_request() -> None:
    async with served() as client:
        asked = await client.send("tools/call", {"name": "ask"}, meta={**META, ABLE_KEY: {"elicitation": {}}})
    [message] = messages(asked)
    assert "method" not in message
    assert message["result"]["resultType"] == "input_required"
    assert message["result"]["_meta"] == SERVER


@pytest.mark.row("26-M6")
@pytest.mark.parametrize(
    ("meta", "named"),
    [
        (None, VERSION_KEY),
        ({}, VERSION_KEY),
        ({ABLE_KEY: {}, INFO_KEY: {"name": "x", "version": "1"}}, VERSION_KEY),
        ({VERSION_KEY: 20260728, ABLE_KEY: {}}, VERSION_KEY),
        ({VERSION_KEY: None, ABLE_KEY: {}}, VERSION_KEY),
        ({VERSION_KEY: VERSION}, ABLE_KEY),
        ({VERSION_KEY: VERSION, ABLE_KEY: None}, ABLE_KEY),
        ({VERSION_KEY: VERSION, ABLE_KEY: ["elicitation"]}, ABLE_KEY),
        ({VERSION_KEY: VERSION, ABLE_KEY: {}, INFO_KEY: "me"}, INFO_KEY),
    ],
)
@pytest.mark.parametrize("method", ["server/discover", "tools/list"])
async def test_an_incomplete_envelope_is_refused_with_the_member_that_is_wrong(
    meta: dict[str, Any] | None, named: str, method: str
) -> None:
    async with served() as client:
        status, error = await client.error(method, meta=meta, id="r-9")
    assert (status, error["code"]) == (400, -32602)
    assert f'"{named}"' in error["message"]


@pytest.mark.row("26-M7")
@pytest.mark.row("26-M10")
@pytest.mark.parametrize(("method", "params"), [pytest.param(*one, id=one[0]) for one in EVERYTHING])
async def test_a_client_is_answered_alike_with_any_name_and_with_none(method: str, params: dict[str, Any]) -> None:
    async with served() as client:
        unnamed = await client.result(method, params)
        for info in ({}, {"name": "rows", "version": "3.1"}, {"name": "", "version": ""}):
            assert unnamed == await client.result(method, params, meta={**META, INFO_KEY: info})


@pytest.mark.row("26-M9")
async def test_a_capability_counts_for_the_request_that_declares_it_alone() -> None:
    async with served() as client:
        able: dict[str, Any] = {**META, ABLE_KEY: {"sampling": {}}}
        assert (await client.result("tools/call", {"name": "sample"}, meta=able))["resultType"] == "input_required"
        status, error = await client.error("tools/call", {"name": "sample"})
    assert (status, error["code"]) == (400, -32021)
    assert error["data"] == {"requiredCapabilities": {"sampling": {}}}


@pytest.mark.row("26-M11")
@pytest.mark.row("26-M12")
@pytest.mark.parametrize("code", [-32000, -32001, -32002, -32019, -32023, -32042, -32050, -32099])
async def test_a_reserved_code_of_a_handler_is_not_sent(code: int) -> None:
    async with served() as client:
        _, error = await client.error("tools/call", {"name": "refuse", "arguments": {"code": code}})
    assert error["code"] == (-32602 if code == -32002 else -32603)
    assert error["data"] == {"code": code}


@pytest.mark.row("26-M12")
@pytest.mark.parametrize("code", [-31999, -32768, 5, -32603])
async def test_other_codes_of_a_handler_are_sent_as_they_are(code: int) -> None:
    async with served() as client:
        _, error = await client.error("tools/call", {"name": "refuse", "arguments": {"code": code}})
    assert error["code"] == code


@pytest.mark.row("26-M14")
@pytest.mark.row("26-M2")
@pytest.mark.row("26-H1")
@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"jsonrpc": "2.0", "id": 1, ', -32700),
        (b'{"jsonrpc": "2.0", "id": null, "method": "tools/list"}', -32600),
        (b'{"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"}', -32600),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}]', -32600),
        (b'{"jsonrpc": "2.0", "id": 1, "result": {}}', -32600),
        (b"7", -32600),
    ],
)
async def test_a_message_whose_id_cannot_be_read_gets_an_error_without_one(body: bytes, code: int) -> None:
    async with served() as client:
        response = await client.driver.post(body, {"mcp-protocol-version": VERSION, "mcp-method": "tools/list"})
    assert response.json["error"]["code"] == code
    assert "id" not in response.json


@pytest.mark.row("26-M18")
@pytest.mark.row("26-F3")
async def test_lists_are_the_same_for_every_client_and_in_one_order() -> None:
    async with served() as client:
        able: dict[str, Any] = {
            **META,
            ABLE_KEY: {"sampling": {}, "elicitation": {}},
            INFO_KEY: {"name": "other", "version": "2"},
        }
        for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list"):
            first = await client.result(method)
            assert first == await client.result(method, meta=able)
        tools = [tool["name"] for page in await all_pages(client, "tools/list") for tool in page["tools"]]
    assert tools == sorted(tools)
    assert len(set(tools)) == len(tools) == 7


async def all_pages(client: OneByOne, method: str) -> list[dict[str, Any]]:
    """All pages of a list."""
    found = [await client.result(method)]
    while "nextCursor" in found[-1]:
        found.append(await client.result(method, {"cursor": found[-1]["nextCursor"]}))
    return found


@pytest.mark.row("26-M19")
@pytest.mark.row("26-H8")
@pytest.mark.parametrize("method", REMOVED)
async def test_a_method_that_the_revision_does_not_have_is_not_found(method: str) -> None:
    async with served() as client:
        status, error = await client.error(method)
    assert (status, error["code"]) == (404, -32601)


# --- versions


@pytest.mark.row("26-V1")
@pytest.mark.row("26-V2")
async def test_discover_needs_nothing_before_it_and_says_what_is_there() -> None:
    async with served() as client:
        found = await client.result("server/discover")
    assert found == {
        "resultType": "complete",
        "supportedVersions": [VERSION],
        "capabilities": {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
        },
        "instructions": "One by one.",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": SERVER,
    }


@pytest.mark.row("26-V3")
@pytest.mark.parametrize("version", ["2027-01-01", "v9", "", "2025-11-25", "2024-11-05"])
async def test_a_revision_that_is_not_served_is_refused_with_those_that_are(version: str) -> None:
    async with served() as client:
        meta = {**META, VERSION_KEY: version}
        status, error = await client.error("tools/list", meta=meta, headers={"mcp-protocol-version": version})
        discovered = await client.result("server/discover")
    assert (status, error["code"]) == (400, -32022)
    assert error["data"] == {"supported": discovered["supportedVersions"], "requested": version}


@pytest.mark.row("26-V8")
@pytest.mark.row("26-H7")
async def test_sessions_and_single_requests_are_served_at_one_address_at_the_same_time() -> None:
    async with served() as client:
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"}}
        before = {"mcp-protocol-version": None, "mcp-method": None}
        begun = await client.send("initialize", hello, meta=None, headers=before)
        session = {"mcp-session-id": begun.headers["mcp-session-id"], "mcp-method": None}
        legacy = {**session, "mcp-protocol-version": "2025-11-25"}
        assert begun.json["result"]["protocolVersion"] == "2025-11-25"
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await client.driver.post(ready, {**legacy, "mcp-method": None})).status == 202
        assert (await client.send("ping", meta=None, headers=legacy)).json["result"] == {}
        assert (await client.call("add", a=1, b=1))["resultType"] == "complete"
        call = {"name": "add", "arguments": {"a": 1, "b": 1}}
        old = (await client.send("tools/call", call, meta=None, headers={**legacy, "mcp-name": None})).json["result"]
        assert "resultType" not in old
        assert old["content"] == [{"type": "text", "text": "2"}]
        status, error = await client.error("ping", headers={"mcp-session-id": session["mcp-session-id"]})
        assert (status, error["code"]) == (404, -32601)  # the envelope decides, and not the session's id


@pytest.mark.row("26-H7")
async def test_a_request_with_an_envelope_and_without_the_header_is_refused() -> None:
    async with served() as client:
        for said in (None, "2025-11-25", "2025-03-26"):
            status, error = await client.error("tools/list", headers={"mcp-protocol-version": said})
            assert (status, error["code"]) == (400, -32020)


@pytest.mark.row("26-V9")
async def test_an_initialize_with_an_envelope_learns_the_revision() -> None:
    async with served() as client:
        status, error = await client.error("initialize", {"protocolVersion": "2025-11-25"})
    assert (status, error["code"], error["data"]) == (404, -32601, {"supported": [VERSION]})


# --- HTTP


@pytest.mark.row("26-H3")
@pytest.mark.row("26-S5")
async def test_a_call_that_reports_is_a_stream_with_its_own_messages_and_then_its_response() -> None:
    async with served() as client:
        meta = {**META, "progressToken": "p", LEVEL_KEY: "debug"}
        response = await client.send("tools/call", {"name": "report"}, meta=meta)
        quiet = await client.send("tools/call", {"name": "report"})
    *told, answer = messages(response)
    assert [one["method"].removeprefix("notifications/") for one in told] == [*["message"] * 3, *["progress"] * 2]
    assert [one["params"]["progress"] for one in told[3:]] == [1, 2]
    assert answer["id"] == 7
    assert response.said[-1] == "end"
    assert quiet.said == ["reply"]
    assert quiet.headers["content-type"] == "application/json"


@pytest.mark.row("26-H5")
async def test_a_page_of_another_origin_is_refused() -> None:
    async with served() as client:
        assert (await client.send("tools/list", headers={"origin": "http://evil.example"})).status == 403
        assert (await client.send("tools/list", headers={"origin": "http://127.0.0.1:9090"})).status == 200


@pytest.mark.row("26-H9")
@pytest.mark.parametrize("reports", [False, True])
async def test_a_client_that_goes_away_ends_the_work_and_is_sent_nothing_more(*, reports: bool) -> None:
    server = Server("waits")
    began, ended = asyncio.Event(), asyncio.Event()

    @server.tool
    async def wait(ctx: Context) -> None:
        if reports:
            await ctx.progress(1)
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await ctx.progress(2)
            ended.set()

    async with served(server) as client:
        response = RecordedResponse()
        meta = {**META, "progressToken": "p"}
        waiting = asyncio.create_task(client.begin(response, "tools/call", {"name": "wait"}, meta=meta))
        await began.wait()
        if reports:
            await response.until(1)
        before = [*response.said]
        waiting.cancel()
        await ended.wait()
        await asyncio.gather(waiting, return_exceptions=True)
    assert response.said == before == (["start", "chunk"] if reports else [])


@pytest.mark.row("26-H11")
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_there_is_no_get_and_no_delete(method: str) -> None:
    async with served() as client:
        response = await client.driver.ask(method, "/mcp", {"mcp-protocol-version": VERSION, "mcp-session-id": "s1"})
    assert response.status == 405
    assert response.headers["allow"] == "POST"


@pytest.mark.row("26-H11")
async def test_session_ids_and_marks_are_ignored_and_never_sent() -> None:
    async with served() as client:
        headers = {"mcp-session-id": "of-a-proxy", "last-event-id": "g0:3"}
        meta = {**META, "progressToken": 1}
        for tool in ("add", "report"):
            params = {"name": tool, "arguments": {"a": 1, "b": 2} if tool == "add" else {}}
            response = await client.send("tools/call", params, meta=meta, headers=headers)
            assert response.status == 200
            assert "mcp-session-id" not in response.headers
            lines = b"".join(response.chunks).splitlines()
            assert bool(lines) == (tool == "report")
            assert [line for line in lines if line.startswith((b"id", b"retry"))] == []
            assert lines[:1] != [b"data:"]


# --- rounds


@pytest.mark.row("26-R14")
async def test_a_question_ends_its_stream_and_the_answer_is_a_new_post_with_a_stream_of_its_own() -> None:
    server = Server("rounds")

    @server.tool
    async def paint(ctx: Context) -> str:
        await ctx.progress(1)
        answer = await ctx.elicit("Which colour?", COLOUR)
        await ctx.progress(2)
        assert isinstance(answer, Accepted)
        return str(answer.value["colour"])

    def meta(token: str) -> dict[str, Any]:
        return {**META, ABLE_KEY: {"elicitation": {}}, "progressToken": token}

    def reported(message: Any) -> tuple[Any, Any]:
        return message["params"]["progressToken"], message["params"]["progress"]

    async with served(server) as client:
        first = await client.send("tools/call", {"name": "paint"}, meta=meta("one"), id=1)
        assert first.said == ["start", "chunk", "chunk", "end"]
        before, asked = messages(first)
        assert (reported(before), asked["id"], asked["result"]["resultType"]) == (("one", 1), 1, "input_required")
        [key] = asked["result"]["inputRequests"]
        retry: dict[str, Any] = {
            "name": "paint",
            "requestState": asked["result"]["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"colour": "red"}}},
        }
        second = await client.send("tools/call", retry, meta=meta("two"), id=2)
        after, answer = messages(second)
        assert (reported(after), answer["id"], answer["result"]["resultType"]) == (("two", 2), 2, "complete")
        assert answer["result"]["content"] == [{"type": "text", "text": "red"}]
        assert (second.said[-1], len(messages(first))) == ("end", 2)


# --- caching


@pytest.mark.row("26-C1")
@pytest.mark.row("26-C6")
@pytest.mark.parametrize(("method", "params"), [pytest.param(*one, id=one[0]) for one in EVERYTHING])
async def test_lists_and_reads_have_cache_hints_and_other_results_have_none(
    method: str, params: dict[str, Any]
) -> None:
    async with served() as client:
        result = await client.result(method, params)
    hints = {name: result.get(name) for name in ("ttlMs", "cacheScope")}
    expected = {"ttlMs": 0, "cacheScope": "private"} if method in (*CACHED, READ[0]) else dict.fromkeys(hints)
    assert hints == expected


@pytest.mark.row("26-C1")
async def test_a_question_has_no_cache_hints() -> None:
    async with served() as client:
        asked = await client.result("tools/call", {"name": "ask"}, meta={**META, ABLE_KEY: {"elicitation": {}}})
    assert not {"ttlMs", "cacheScope"} & set(asked)


@pytest.mark.row("26-C2")
async def test_all_pages_of_a_list_have_one_scope() -> None:
    async with served() as client:
        pages = await all_pages(client, "tools/list")
    assert len(pages) == 3
    assert {page["cacheScope"] for page in pages} == {"private"}


# --- features


@pytest.mark.row("26-F1")
@pytest.mark.parametrize(
    "params", [{"name": "none"}, {"name": "none", "arguments": {}}, {"name": "add", "arguments": [1]}]
)
async def test_an_unknown_tool_or_a_malformed_call_is_an_error(params: dict[str, Any]) -> None:
    async with served() as client:
        _, error = await client.error("tools/call", params)
    assert error["code"] == -32602


@pytest.mark.row("26-F1")
async def test_bad_arguments_and_failures_of_a_tool_are_results() -> None:
    async with served() as client:
        for tool, arguments in (("add", {"a": "x"}), ("fail", {})):
            result = await client.call(tool, **arguments)
            assert (result["isError"], result["resultType"]) == (True, "complete")


@pytest.mark.row("26-F4")
async def test_a_resource_that_does_not_exist_is_an_error_with_its_uri() -> None:
    async with served() as client:
        for uri in ("test://none", "other:x"):
            _, error = await client.error("resources/read", {"uri": uri})
            assert (error["code"], error["data"]) == (-32602, {"uri": uri})
        assert (await client.result(*READ))["contents"][0]["text"] == "1"


@pytest.mark.row("26-F5")
@pytest.mark.parametrize("params", [{"name": "none"}, {"name": "greet"}, {"name": "greet", "arguments": {"who": 1}}])
async def test_an_unknown_prompt_or_a_missing_argument_is_an_error(params: dict[str, Any]) -> None:
    async with served() as client:
        _, error = await client.error("prompts/get", params)
    assert error["code"] == -32602


@pytest.mark.row("26-F6")
@pytest.mark.parametrize("method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list"])
async def test_a_cursor_that_was_never_given_is_an_error(method: str) -> None:
    async with served() as client:
        _, error = await client.error(method, {"cursor": "p-none"})
        assert error["code"] == -32602


@pytest.mark.row("26-F7")
@pytest.mark.parametrize(
    ("level", "heard"), [(None, []), ("debug", ["debug", "info", "error"]), ("error", ["error"]), ("alert", [])]
)
async def test_log_messages_are_for_requests_that_ask_for_their_level(level: str | None, heard: list[str]) -> None:
    async with served() as client:
        loud = asyncio.create_task(client.send("tools/call", {"name": "report"}, meta={**META, LEVEL_KEY: "debug"}))
        meta = META if level is None else {**META, LEVEL_KEY: level}
        response = await client.send("tools/call", {"name": "report"}, meta=meta, id=8)
        await loud
    *told, answer = messages(response)
    assert [one["params"]["level"] for one in told] == heard
    assert answer["id"] == 8


@pytest.mark.row("26-F7")
@pytest.mark.parametrize("level", ["loud", "", 3, ["debug"]])
async def test_a_level_that_there_is_not_is_refused(level: Any) -> None:
    async with served() as client:
        status, error = await client.error("tools/call", {"name": "report"}, meta={**META, LEVEL_KEY: level})
    assert (status, error["code"]) == (400, -32602)


# --- what handlers have


@pytest.mark.row("26-M16")
async def test_trace_context_reaches_the_handler() -> None:
    server = Server("traces")

    @server.tool
    def traced(ctx: Context) -> dict[str, Any]:
        return {name: value for name, value in ctx.meta.items() if not name.startswith(PREFIX)}

    sent = {
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
        "tracestate": "vendor=1",
        "baggage": "user=ada",
    }
    async with served(server) as client:
        result = await client.result("tools/call", {"name": "traced"}, meta={**META, **sent})
    assert json.loads(result["content"][0]["text"]) == sent


@pytest.mark.row("26-F11")
@pytest.mark.row("26-F12")
async def test_what_is_deprecated_still_works_and_bounds_are_numbers() -> None:
    server = Server("deprecated")

    @server.tool
    async def everything(ctx: Context) -> str:
        await ctx.info("working")
        async with asyncio.TaskGroup() as group:
            said = group.create_task(ctx.sample("Say yes", include_context="thisServer", key="said"))
            roots = group.create_task(ctx.roots(key="roots"))
            size = group.create_task(ctx.elicit("How large?", Size, key="size"))
        return f"{said.result().text} {roots.result()[0].uri} {size.result()}"

    able: dict[str, Any] = {
        **META,
        ABLE_KEY: {"sampling": {"context": {}}, "roots": {}, "elicitation": {}},
        LEVEL_KEY: "info",
    }
    params: dict[str, Any] = {"name": "everything"}
    answers = {
        "said": {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "parrot"},
        "roots": {"roots": [{"uri": "file:///a"}]},
        "size": {"action": "accept", "content": {"metres": 1.25}},
    }
    async with served(server) as client:
        response = await client.send("tools/call", params, meta=able)
        told, asked = messages(response)
        assert told["params"] == {"level": "info", "data": "working"}
        questions = asked["result"]["inputRequests"]
        assert questions["said"]["params"]["includeContext"] == "thisServer"
        metres = questions["size"]["params"]["requestedSchema"]["properties"]["metres"]
        assert (metres["type"], metres["minimum"], metres["maximum"]) == ("number", 0.5, 2.5)
        retry = {**params, "inputResponses": answers, "requestState": asked["result"]["requestState"]}
        result = await client.result("tools/call", retry, meta=able, id=8)
    assert result["content"][0]["text"] == "yes file:///a Accepted(value=Size(metres=1.25))"


@pytest.mark.row("26-J2")
async def test_a_schema_is_listed_as_it_was_written() -> None:
    schema: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {"way": {"$anchor": "way", "enum": ["post", "phone"]}},
        "properties": {"way": {"$ref": "#way"}, "number": {"type": "string", "x-own": [1]}},
        "if": {"properties": {"way": {"const": "phone"}}},
        "then": {"required": ["number"]},
        "allOf": [{"anyOf": [{"required": ["way"]}, True]}],
        "dependentRequired": {"number": ["way"]},
        "unevaluatedProperties": False,
    }
    server = Server("schemas")

    @server.tool(input_schema=schema)
    def send(arguments: dict[str, Any]) -> int:
        return len(arguments)

    async with served(server) as client:
        [tool] = (await client.result("tools/list"))["tools"]
    assert tool["inputSchema"] == schema
