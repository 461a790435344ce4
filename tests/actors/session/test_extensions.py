"""Extensions: a server's own methods in both eras, what is declared, and what clients get that have not declared the extension."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

import httpx
import pytest
from tests.actors.tasks.stateless_client import StatelessClient

from greenroom import Context, Extension, Hooks, McpError, McpServer, RegistrationError, Server, ToolError
from greenroom.actors.settings import Settings
from greenroom.auth.auth_info import AuthInfo
from greenroom.errors import ConfigError
from greenroom.protocol.envelope import CLIENT_CAPABILITIES_KEY, PROTOCOL_VERSION_KEY
from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.jsonrpc import JsonRpcRequest
from greenroom.protocol.methods import METHODS
from greenroom.protocol.versions import STATELESS, SUPPORTED
from greenroom.transports.interfaces import Peer
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.actors.worker_interfaces import AroundHook

ID = "com.example/notes"
ABLE: dict[str, Any] = {"extensions": {ID: {"depth": 2}}}
CHANGED = "notifications/notes/changed"


@dataclass
class Query:
    tag: str
    limit: int = 10


class Filter(TypedDict):
    tag: str


def notes(**options: Any) -> Extension:
    extension = Extension(ID, settings={"search": True}, notifications=[CHANGED], **options)

    @extension.method("notes/list")
    async def list_notes(query: Query, ctx: Context) -> dict[str, Any]:
        told = bool(extension.notify(ctx, CHANGED, {"tag": query.tag}))
        return {
            "notes": [query.tag] * query.limit,
            "extensions": dict(ctx.client_extensions),
            "told": told,
            "name": ctx.name,
        }

    @extension.method("notes/count", requires_client=False)
    async def count(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"params": params, "extensions": dict(ctx.client_extensions)}

    @extension.method("notes/where")
    def where() -> dict[str, Any]:
        return {"is_loop": threading.current_thread() is threading.main_thread()}

    @extension.method("notes/fail")
    async def fail(params: Filter) -> None:
        match params["tag"]:
            case "mcp":
                raise McpError(-1, "not today", {"when": "tomorrow"})
            case "tool":
                raise ToolError("no such note")
            case "text":
                return "a text"  # type: ignore[return-value]
            case "crash":
                raise RuntimeError("secret")
            case "exit":
                raise SystemExit(3)
            case _:
                return None

    @extension.method("notes/wait", timeout=0.05)
    async def wait(ctx: Context) -> None:
        await asyncio.Event().wait()

    @extension.method("notes/erase", scopes=["erase"])
    async def erase() -> None:
        """Erase."""

    return extension


def server_with(*extensions: Extension, **options: Any) -> Server:
    return Server("notebook", extensions=extensions, **options)


async def refusal(waiting: Awaitable[Any]) -> PeerError:
    with pytest.raises(PeerError) as refused:
        await waiting
    return refused.value


# --- declaring


@pytest.mark.row("26-V6")
@pytest.mark.parametrize("version", SUPPORTED)
async def test_a_handshake_declares_the_servers_extensions(version: str) -> None:
    async with WireProbe(server_with(notes()), version=version) as probe:
        assert probe.welcome["capabilities"]["extensions"] == {ID: {"search": True}}
    async with WireProbe(Server("plain"), version=version) as probe:
        assert "extensions" not in probe.welcome["capabilities"]


@pytest.mark.row("26-V6")
async def test_discover_declares_the_servers_extensions() -> None:
    async with server_with(notes(), Extension("a/b")).started() as company:
        found = await StatelessClient(company).result("server/discover")
        assert found["capabilities"]["extensions"] == {ID: {"search": True}, "a/b": {}}
    async with Server("plain").started() as company:
        found = await StatelessClient(company).result("server/discover")
        assert "extensions" not in found["capabilities"]


@pytest.mark.row("26-V6")
async def test_an_extension_may_be_added_later() -> None:
    server = Server("notebook")
    async with server.started() as company:
        client = StatelessClient(company, capabilities=ABLE)
        assert (await client.error("notes/list", tag="a"))["code"] == ErrorCode.METHOD_NOT_FOUND
        server.extend(notes())
        assert (await client.result("notes/list", tag="a", limit=1))["notes"] == ["a"]
        assert ID in (await client.result("server/discover"))["capabilities"]["extensions"]


# --- calling


@pytest.mark.row("26-V6")
@pytest.mark.parametrize("version", SUPPORTED)
async def test_a_client_with_the_extension_calls_its_methods_after_a_handshake(version: str) -> None:
    async with WireProbe(server_with(notes()), version=version, capabilities=ABLE) as probe:
        found = await probe.request("notes/list", {"tag": "a", "limit": 2, "_meta": {"x/y": 1}})
        assert found == {
            "notes": ["a", "a"],
            "extensions": {ID: {"depth": 2}},
            "told": True,
            "name": "notes/list",
        }
        assert probe.notifications(CHANGED) == [{"tag": "a"}]
        assert await probe.request("notes/fail", {"tag": "none"}) == {}


@pytest.mark.row("26-V6")
@pytest.mark.row("26-M8")
async def test_a_client_with_the_extension_calls_its_methods_without_a_session() -> None:
    async with server_with(notes()).started() as company:
        found = await StatelessClient(company, capabilities=ABLE).result("notes/list", tag="a", limit=1)
        assert found["notes"] == ["a"]
        assert found["extensions"] == {ID: {"depth": 2}}
        assert found["resultType"] == "complete"
        assert found["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "notebook"
        assert "ttlMs" not in found


@pytest.mark.row("26-V7")
async def test_without_the_extension_the_request_is_refused_by_the_missing_capability() -> None:
    async with server_with(notes()).started() as company:
        declared: list[dict[str, Any]] = [{}, {"extensions": {}}, {"extensions": {ID: True}}, {"extensions": [ID]}]
        for capabilities in declared:
            reply = await StatelessClient(company, capabilities=capabilities).reply("notes/list", tag="a")
            assert reply.status == 400
            error = await StatelessClient(company, capabilities=capabilities).error("notes/list", tag="a")
            assert error["code"] == ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert error["data"] == {"requiredCapabilities": {"extensions": {ID: {}}}}


@pytest.mark.row("26-V7")
async def test_nothing_is_remembered_of_the_extensions_of_earlier_requests() -> None:
    async with server_with(notes()).started() as company:
        client = StatelessClient(company, capabilities=ABLE)
        await client.result("notes/list", tag="a")
        client.capabilities = {}
        assert (await client.error("notes/list", tag="a"))["code"] == ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY


@pytest.mark.row("26-V7")
async def test_without_the_extension_a_session_refuses_its_methods_and_keeps_all_others() -> None:
    async with WireProbe(server_with(notes())) as probe:
        refused = await refusal(probe.request("notes/list", {"tag": "a"}))
        assert refused.code == ErrorCode.INVALID_REQUEST
        assert f"needs the extension {ID}, which the client has not declared" in refused.message
        assert await probe.request("tools/list") == {"tools": []}


@pytest.mark.row("26-V7")
async def test_a_request_without_any_handshake_may_have_the_extension() -> None:
    async with server_with(notes()).started() as company:
        request = JsonRpcRequest(1, "notes/list", {"tag": "a", "limit": 1})
        reply = await company.once(Peer("test"), request, SUPPORTED[0])
        assert json.loads(reply.body)["result"]["notes"] == ["a"]


@pytest.mark.row("26-V7")
async def test_a_method_may_be_for_clients_without_the_extension_too() -> None:
    async with server_with(notes()).started() as company, WireProbe(company) as probe:
        given = {"a": [1, None]}
        assert await probe.request("notes/count", given) == {"params": given, "extensions": {}}
        found = await StatelessClient(company, capabilities={}).result("notes/count", **given)
        assert found["params"] == given
    async with server_with(notes(requires_client=False)).started() as company, WireProbe(company) as probe:
        found = await probe.request("notes/list", {"tag": "a", "limit": 1})
        assert (found["notes"], found["told"]) == (["a"], False)
        assert probe.notifications(CHANGED) == []


@pytest.mark.row("26-V7")
async def test_a_method_of_no_extension_is_unknown_in_both_eras() -> None:
    async with server_with(notes()).started() as company, WireProbe(company, capabilities=ABLE) as probe:
        assert (await refusal(probe.request("notes/lists", {}))).code == ErrorCode.METHOD_NOT_FOUND
        reply = await StatelessClient(company, capabilities=ABLE).reply("notes/lists")
        assert reply.status == 404
        assert b"-32601" in reply.body


async def test_a_request_before_the_handshake_does_not_reach_an_extension() -> None:
    async with WireProbe(server_with(notes()), greet=False, capabilities=ABLE) as probe:
        assert "initialize" in (await refusal(probe.request("notes/count", {}))).message


# --- hostile params


@pytest.mark.row("26-V7")
@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({}, "tag: is missing"),
        ({"tag": 3}, "tag: expected a string"),
        ({"tag": "a", "limit": "many"}, "limit: expected an integer"),
        ({"tag": "a", "_meta": 3}, '"_meta" must be an object'),
    ],
)
async def test_params_that_do_not_fit_are_refused_with_the_member(params: dict[str, Any], why: str) -> None:
    async with server_with(notes()).started() as company, WireProbe(company, capabilities=ABLE) as probe:
        refused = await refusal(probe.request("notes/list", params))
        assert refused.code == ErrorCode.INVALID_PARAMS
        assert refused.message.startswith("Invalid params for notes/list: ")
        assert why in refused.message
        if "_meta" not in params:
            error = await StatelessClient(company, capabilities=ABLE).error("notes/list", **params)
            assert (error["code"], why in error["message"]) == (ErrorCode.INVALID_PARAMS, True)


async def test_members_that_a_later_client_adds_are_left_out() -> None:
    async with WireProbe(server_with(notes()), capabilities=ABLE) as probe:
        assert (await probe.request("notes/list", {"tag": "a", "limit": 1, "later": {}}))["notes"] == ["a"]


async def test_an_error_quotes_little_of_the_params() -> None:
    async with WireProbe(server_with(notes()), capabilities=ABLE) as probe:
        refused = await refusal(probe.request("notes/list", {"tag": ["x" * 100_000]}))
        assert len(refused.message) < 1000


async def test_members_of_the_protocol_are_no_params_of_the_method() -> None:
    async with server_with(notes()).started() as company, WireProbe(company) as probe:
        given = {"x": 1, "_meta": {"progressToken": 1}, "inputResponses": {}, "requestState": "s"}
        assert (await probe.request("notes/count", given))["params"] == {"x": 1}


# --- the limits of any other handler


@pytest.mark.parametrize("is_stateless", [False, True])
@pytest.mark.parametrize(
    ("tag", "code", "message"),
    [
        ("mcp", -1, "not today"),
        ("tool", ErrorCode.INTERNAL_ERROR, "no such note"),
        ("text", ErrorCode.INTERNAL_ERROR, "Internal error"),
        ("crash", ErrorCode.INTERNAL_ERROR, "Internal error"),
        ("exit", ErrorCode.INTERNAL_ERROR, "Internal error"),
    ],
)
async def test_a_failing_handler_is_one_error_and_the_next_request_is_answered(
    tag: str, code: int, message: str, *, is_stateless: bool
) -> None:
    async with server_with(notes()).started() as company, WireProbe(company, capabilities=ABLE) as probe:
        client = StatelessClient(company, capabilities=ABLE)
        if is_stateless:
            error = await client.error("notes/fail", tag=tag)
        else:
            error = (await refusal(probe.request("notes/fail", {"tag": tag}))).to_wire()
        assert (error["code"], error["message"]) == (code, message)
        assert error.get("data") == ({"when": "tomorrow"} if tag == "mcp" else None)
        assert (await probe.request("notes/count", {}))["params"] == {}
        assert (await client.result("notes/count"))["params"] == {}


async def test_a_method_has_its_own_timeout_in_both_eras() -> None:
    async with server_with(notes()).started() as company, WireProbe(company, capabilities=ABLE) as probe:
        refused = await refusal(probe.request("notes/wait", {}))
        assert refused.message == "notes/wait timed out after 0.05 s"
        error = await StatelessClient(company, capabilities=ABLE).error("notes/wait")
        assert error["message"] == "notes/wait timed out after 0.05 s"


async def test_a_plain_function_runs_in_a_thread_and_a_cancelled_call_ends() -> None:
    extension = Extension(ID, requires_client=False)
    started, ended = asyncio.Event(), asyncio.Event()

    @extension.method("notes/hang")
    async def hang() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with server_with(notes()).started() as company, WireProbe(company, capabilities=ABLE) as probe:
        assert await probe.request("notes/where", {}) == {"is_loop": False}
    async with server_with(extension).started() as company, WireProbe(company) as probe:
        await probe.ask("notes/hang", {})
        await asyncio.wait_for(started.wait(), 5)
        await probe.cancel(2)
        await asyncio.wait_for(ended.wait(), 5)


async def test_scopes_apply_to_methods() -> None:
    granted = AuthInfo("ann", scopes=frozenset({"erase"}))
    async with server_with(notes()).started() as company:
        able = StatelessClient(company, Peer("test", principal="ann", auth=granted), ABLE)
        assert (await able.result("notes/erase"))["resultType"] == "complete"
        refused = await StatelessClient(company, capabilities=ABLE).reply("notes/erase")
        assert (refused.status, refused.needs) == (403, ("erase",))
        async with WireProbe(company, capabilities=ABLE) as probe:
            assert (await refusal(probe.request("notes/erase", {}))).data == {"required_scopes": ["erase"]}


async def test_hooks_surround_methods_of_extensions() -> None:
    seen: list[str] = []

    async def around(method: str, ctx: Context, proceed: Callable[[], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        seen.append(method)
        return {**await proceed(), "by": "hook"}

    hook: AroundHook = around
    async with WireProbe(server_with(notes(), hooks=Hooks(around=hook))) as probe:
        assert (await probe.request("notes/count", {}))["by"] == "hook"
    assert seen == ["notes/count"]


async def test_a_method_of_an_extension_cannot_ask_the_client_without_a_session() -> None:
    extension = Extension(ID, requires_client=False)

    @extension.method("notes/ask")
    async def ask(ctx: Context) -> dict[str, Any]:
        return {"roots": [root.uri for root in await ctx.roots()]}

    async with server_with(extension).started() as company:
        client = StatelessClient(company, capabilities={"roots": {}})
        assert "cannot ask the client" in (await client.error("notes/ask"))["message"]

    def answer(params: dict[str, Any]) -> dict[str, Any]:
        return {"roots": [{"uri": "file:///r"}]}

    async with WireProbe(server_with(extension), capabilities={"roots": {}}, answers={"roots/list": answer}) as probe:
        assert await probe.request("notes/ask", {}) == {"roots": ["file:///r"]}


async def test_a_class_and_settings_may_bring_extensions() -> None:
    class Notebook(McpServer):
        pass

    server = Notebook.server(extensions=[notes()], settings=Settings(instructions="x"))
    async with WireProbe(server) as probe:
        assert probe.welcome["capabilities"]["extensions"] == {ID: {"search": True}}


async def test_an_extension_brings_tools_of_its_own() -> None:
    class WithTool(Extension):
        def attach(self, registry: Any) -> None:
            registry.register_tool("note", lambda: "noted")

    async with WireProbe(server_with(WithTool(ID))) as probe:
        assert (await probe.call("note"))["content"] == [{"type": "text", "text": "noted"}]


# --- mistakes are refused where they are written


def method_refusal(name: Any, function: Any = None, **options: Any) -> str:
    async def answer() -> None: ...

    with pytest.raises(RegistrationError) as refused:
        Extension(ID).method(name, **options)(function or answer)
    return str(refused.value)


@pytest.mark.row("26-V6")
@pytest.mark.parametrize("name", sorted(METHODS))
def test_no_extension_takes_a_method_of_the_protocol(name: str) -> None:
    assert "method" in method_refusal(name)


@pytest.mark.row("26-V6")
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("list", "with a slash in it"),
        ("/list", "with a slash in it"),
        ("notes/", "with a slash in it"),
        ("notes/a b", "with a slash in it"),
        ("notes/list\n", "with a slash in it"),
        ("n/" + "x" * 127, "with a slash in it"),
        (3, "with a slash in it"),
        ("tasks/mine", "the protocol has this name itself"),
        ("notifications/mine", "the protocol has this name itself"),
        ("server/mine", "the protocol has this name itself"),
    ],
)
def test_a_name_that_cannot_be_a_method_is_refused(name: Any, why: str) -> None:
    assert why in method_refusal(name)


def test_a_handler_that_cannot_be_called_is_refused() -> None:
    def of_two(x: int, y: int) -> int:
        return x + y

    assert "it gets the params as one value" in method_refusal("a/b", of_two)
    assert "runs in this process" in method_refusal("a/b", notes, isolation="process")
    assert "timeout is more than 0" in method_refusal("a/b", timeout=-1)
    assert "scopes is a list" in method_refusal("a/b", scopes="erase")

    async def number(params: int) -> None: ...

    assert "params must be a dict, a dataclass" in method_refusal("a/b", number)


def test_what_an_extension_declares_is_checked() -> None:
    mistakes: list[tuple[Callable[[], Extension], str]] = [
        (lambda: Extension("notes"), "has no prefix"),
        (lambda: Extension("dev.mcp/x"), "reserved"),
        (lambda: Extension("io.modelcontextprotocol/tasks"), "the server has it already"),
        (lambda: Extension(ID, settings={"x": object()}), "cannot be written as JSON"),
        (lambda: Extension(ID, settings=[1]), "settings is a dict"),  # type: ignore[arg-type]
        (lambda: Extension(ID, notifications="x"), "a list of names"),
        (lambda: Extension(ID, notifications=["notes/changed"]), "no name for a notification"),
        (lambda: Extension(ID, notifications=["notifications/message"]), "no name for a notification"),
    ]
    for make, why in mistakes:
        with pytest.raises(RegistrationError, match=why):
            make()
    with pytest.raises(ConfigError, match="an extension is a value of its own"):
        Server("x", extensions=[ID])  # type: ignore[list-item]


def test_an_extension_and_a_methods_name_are_there_once() -> None:
    with pytest.raises(RegistrationError, match="the server has it already"):
        server_with(notes(), notes())
    other = Extension("com.example/other")
    other.method("notes/list")(lambda: None)
    with pytest.raises(RegistrationError, match=f"method 'notes/list': {ID} has it already"):
        server_with(notes(), other)
    with pytest.raises(RegistrationError, match="has it already"):
        other.method("notes/list")


async def test_a_notification_that_was_not_named_is_refused() -> None:
    extension = Extension(ID, requires_client=False, notifications=[CHANGED])
    said: list[str] = []

    @extension.method("notes/tell")
    async def tell(ctx: Context) -> None:
        try:
            await extension.notify(ctx, "notifications/notes/other")
        except ValueError as error:
            said.append(str(error))

    async with WireProbe(server_with(extension)) as probe:
        await probe.request("notes/tell", {})
    assert said == [
        f"{ID} has no notification 'notifications/notes/other': it has {CHANGED}; name it in Extension(notifications=[…])"
    ]


# --- over HTTP


@pytest.mark.row("26-V7")
async def test_an_own_method_over_http_has_the_statuses_and_streams_of_any_request() -> None:
    server = server_with(notes())
    async with server.started(), httpx.AsyncClient(trust_env=False) as client:
        url = await server.listen(port=0)

        async def post(method: str, capabilities: dict[str, Any], **params: Any) -> httpx.Response:
            meta = {PROTOCOL_VERSION_KEY: STATELESS, CLIENT_CAPABILITIES_KEY: capabilities}
            headers = {
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": STATELESS,
                "Mcp-Method": method,
            }
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
            return await client.post(url, json=message, headers=headers)

        refused = await post("notes/list", {}, tag="a")
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32021)
        unknown = await post("notes/none", ABLE)
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, -32601)
        plain = await post("notes/count", {}, a=1)
        assert (plain.status_code, plain.json()["result"]["params"]) == (200, {"a": 1})
        stream = await post("notes/list", ABLE, tag="a", limit=1)
        assert stream.headers["content-type"].startswith("text/event-stream")
        messages = [json.loads(line[6:]) for line in stream.text.splitlines() if line.startswith("data: {")]
        assert [each.get("method") for each in messages] == [CHANGED, None]
        assert messages[1]["result"]["notes"] == ["a"]
