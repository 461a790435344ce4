"""One policy for listing and calling; sessions, streams and tasks belong to the principal that created them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from tests.transports.http.engine_driver import RecordedResponse, parse_events

from greenroom import Client, Context, McpError, McpServer, RegistrationError, Server, ToolOptions, tool
from greenroom.actors.catalogue_entries import tool_entry
from greenroom.auth.auth_info import AuthInfo
from greenroom.auth.bearer_tokens import BearerAuth
from greenroom.auth.shared_secrets import CustomAuth

from .auth_test_server import Reception, bearer, call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

WHO: dict[str, dict[str, Any]] = {
    "root": {"subject": "root", "scopes": ["read", "write"]},
    "ann": {"subject": "ann", "scopes": ["read"]},
    "ann, more": {"subject": "ann", "scopes": ["read", "write"]},
    "bob": {"subject": "bob", "scopes": []},
    "odd": {"subject": "odd", "scopes": None},
}
SHOWN = {name: bearer(name.replace(", ", "-")) for name in WHO}
LISTS = {
    "tools/list": ("tools", "name"),
    "resources/list": ("resources", "name"),
    "resources/templates/list": ("resourceTemplates", "name"),
    "prompts/list": ("prompts", "name"),
}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "tool": ("tools/call", {"name": "change", "arguments": {}}),
    "task": ("tools/call", {"name": "change", "arguments": {}, "task": {"ttl": 1000}}),
    "resource": ("resources/read", {"uri": "vault://key"}),
    "subscribe": ("resources/subscribe", {"uri": "vault://key"}),
    "template": ("resources/read", {"uri": "vault://shelf/a"}),
    "prompt": ("prompts/get", {"name": "plan"}),
    "completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "plan"}, "argument": {"name": "x", "value": ""}},
    ),
    "of a template": (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "vault://shelf/{box}"}, "argument": {"name": "box", "value": ""}},
    ),
}


def provider() -> CustomAuth:
    known = {name.replace(", ", "-"): entry for name, entry in WHO.items()}

    def find(token: str) -> dict[str, Any] | None:
        return known.get(token)

    return CustomAuth(find)


def vault(**options: Any) -> tuple[Server, list[str]]:
    server = Server("vault", **options)
    ran: list[str] = []

    @server.tool
    def look() -> str:
        return "seen"

    @server.tool(scopes=["read", "write"], task_support="optional")
    def change() -> str:
        ran.append("tool")
        return "changed"

    @server.resource("vault://key", "key", scopes=["read", "write"])
    def key() -> str:
        ran.append("resource")
        return "key"

    @server.resource("vault://shelf/{box}", "shelf", scopes=("write",))
    def shelf(box: str) -> str:
        ran.append("template")
        return box

    @server.prompt(scopes=["write"])
    def plan(x: str = "") -> str:
        ran.append("prompt")
        return x

    @server.completion("x", prompt="plan")
    def xs(value: str) -> list[str]:
        ran.append("completion")
        return [value]

    @server.completion("box", template="vault://shelf/{box}")
    def boxes(value: str) -> list[str]:
        ran.append("of a template")
        return [value]

    return server, ran


@asynccontextmanager
async def opened(server: Server, **config: Any) -> AsyncGenerator[Reception]:
    async with server.started():
        desk = Reception(server, **config)
        try:
            yield desk
        finally:
            await desk.close()


def request(method: str, params: dict[str, Any] | None = None, id: Any = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


async def ask(
    desk: Reception, who: str, session: str, method: str, params: dict[str, Any] | None = None
) -> RecordedResponse:
    more = {"mcp_session_id": session} if session else {}
    return await desk.ask("POST", SHOWN[who], request(method, params), **more)


async def hears(paper: RecordedResponse, word: bytes) -> None:
    while word not in b"".join(paper.chunks):
        paper.news.clear()
        await paper.news.wait()


async def names(desk: Reception, who: str, session: str) -> set[str]:
    found: set[str] = set()
    for method, (member, word) in LISTS.items():
        paper = await ask(desk, who, session, method)
        found |= {each[word] for each in paper.json["result"][member]}
    return found


@pytest.mark.row("TF-12")
@pytest.mark.parametrize("plain", [False, True])
async def test_lists_show_what_can_be_called(*, plain: bool) -> None:
    server, _ = vault(auth=provider())
    async with opened(server, plain=plain) as desk:
        for who in ("root", "ann", "bob", "odd", "root"):  # what is kept for one is not shown to another
            session = "" if plain else await desk.enter(SHOWN[who])
            seen = {"look", "change", "key", "shelf", "plan"} if who == "root" else {"look"}
            assert await names(desk, who, session) == seen
            assert await names(desk, who, session) == seen


@pytest.mark.row("TF-12")
@pytest.mark.parametrize("what", CALLS)
@pytest.mark.parametrize("plain", [False, True])
async def test_a_call_that_lacks_a_scope_is_403_and_says_which(what: str, *, plain: bool) -> None:
    server, ran = vault(auth=provider(), required_scopes=[])
    method, params = CALLS[what]
    async with opened(server, plain=plain) as desk:
        for who in ("ann", "bob", "odd"):
            session = "" if plain else await desk.enter(SHOWN[who])
            paper = await ask(desk, who, session, method, params)
            assert paper.error[:2] == (403, -32600)
            needed = paper.json["error"]["data"]["required_scopes"]
            assert set(needed) in ({"write"}, {"read", "write"})
            asked = paper.headers["www-authenticate"]
            assert 'error="insufficient_scope"' in asked
            assert f'scope="{" ".join(needed)}"' in asked
            assert paper.headers["content-type"] == "application/json"
            assert paper.json["id"] == 1
        assert ran == []
        if not plain:
            session = await desk.enter(SHOWN["root"])
            assert (await ask(desk, "root", session, method, params)).status == 200


@pytest.mark.row("TF-12")
async def test_a_stronger_token_in_the_same_session_is_enough_and_a_weaker_one_is_not() -> None:
    server, ran = vault(auth=provider())
    async with opened(server) as desk:
        session = await desk.enter(SHOWN["ann"])
        for who, status in (("ann", 403), ("ann, more", 200), ("ann", 403)):
            assert (await ask(desk, who, session, *CALLS["tool"])).status == status
            assert ("change" in await names(desk, who, session)) == (status == 200)
        assert ran == ["tool"]


@pytest.mark.row("TF-12")
async def test_over_the_old_stream_the_error_comes_on_it() -> None:
    server, ran = vault(auth=provider())
    async with opened(server, old_sse=True) as desk:
        stream, where = await desk.open_old(SHOWN["ann"])
        hello = {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": {"name": "o", "version": "1"}}
        await desk.ask("POST", SHOWN["ann"], request("initialize", hello, 0), path=where)
        await desk.ask("POST", SHOWN["ann"], {"jsonrpc": "2.0", "method": "notifications/initialized"}, path=where)
        assert (await desk.ask("POST", SHOWN["ann"], request(*CALLS["tool"]), path=where)).status == 202
        await hears(stream, b"required_scopes")
        assert len(parse_events(b"".join(stream.chunks))) == 3
        assert ran == []


@pytest.mark.row("TF-12")
async def test_without_an_identity_no_scoped_tool_may_be_called() -> None:
    server, ran = vault()
    async with Client(server) as client:
        assert [each.name for each in (await client.list_tools())] == ["look"]
        with pytest.raises(McpError, match="needs the scopes read write"):
            await client.call_tool("change")
    async with opened(server) as desk:
        session = await desk.enter({})
        paper = await desk.ask("POST", {}, request(*CALLS["tool"]), mcp_session_id=session)
        assert paper.error[:2] == (403, -32600)
        assert "www-authenticate" not in paper.headers
    assert ran == []


@pytest.mark.row("TF-12")
async def test_a_service_of_methods_keeps_to_it_as_well() -> None:
    class Vault(McpServer):
        @tool(scopes=["write"])
        async def change(self) -> str:
            return "changed"

        async def list_tools(self, cursor: str | None, ctx: Context) -> Any:
            return [{"name": "own", "inputSchema": {"type": "object"}}]

        async def call_tool(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
            return f"{name} for {ctx.auth.subject}"

    async with opened(Vault.server(auth=provider())) as desk:
        for who, seen, status in (("bob", {"own"}, 403), ("root", {"own", "change"}, 200)):
            session = await desk.enter(SHOWN[who])
            paper = await ask(desk, who, session, "tools/list")
            assert {each["name"] for each in paper.json["result"]["tools"]} == seen
            assert (await desk.ask("POST", SHOWN[who], call("change"), mcp_session_id=session)).status == status
            paper = await desk.ask("POST", SHOWN[who], call("own"), mcp_session_id=session)
            assert paper.json["result"]["content"][0]["text"] == f"own for {who}"


@pytest.mark.parametrize("wrong", ["admin", [5], ["a b"], [""], ['a"'], None, 7])
def test_scopes_that_are_none_are_refused_when_they_are_said(wrong: Any) -> None:
    server = Server("s")
    with pytest.raises(RegistrationError, match="scope"):
        server.tool("t", scopes=wrong)(lambda: "x")
    with pytest.raises(RegistrationError, match="scope"):
        server.resource("a://b", "r", scopes=wrong)(lambda: "x")


@pytest.mark.row("SA-21")
async def test_a_task_and_a_replay_of_another_principal_look_unknown() -> None:
    server, _ = vault(auth=provider())
    begun, go = asyncio.Event(), asyncio.Event()

    @server.tool(task_support="optional")
    async def slow(ctx: Context) -> str:
        begun.set()
        await ctx.progress(1)
        await go.wait()
        return f"the secret of {ctx.auth.subject}"

    async with opened(server) as desk:
        ann, bob = await desk.enter(SHOWN["ann"]), await desk.enter(SHOWN["bob"])
        paper = await ask(desk, "ann", ann, "tools/call", {"name": "slow", "arguments": {}, "task": {}})
        task = paper.json["result"]["task"]["taskId"]
        go.set()
        result = await ask(desk, "ann", ann, "tasks/result", {"taskId": task})
        assert "the secret of ann" in result.body.decode()
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            foreign = await ask(desk, "bob", bob, method, {"taskId": task})
            unknown = await ask(desk, "bob", bob, method, {"taskId": "task-that-never-was"})
            assert foreign.json["error"] == unknown.json["error"]
        assert (await ask(desk, "bob", bob, "tasks/list")).json["result"]["tasks"] == []
        again = await desk.enter(SHOWN["ann"])  # another session of hers
        assert (await ask(desk, "ann", again, "tasks/get", {"taskId": task})).json["result"]["taskId"] == task
        go.clear()
        stream = await desk.ask(
            "POST",
            SHOWN["ann"],
            {**call("slow", id=9), "params": {"name": "slow", "arguments": {}, "_meta": {"progressToken": 1}}},
            mcp_session_id=ann,
        )
        mark = parse_events(await stream.until(1))[0]["id"]
        for verb, message in (("GET", None), ("POST", call("look")), ("DELETE", None)):
            foreign = await desk.ask(verb, SHOWN["bob"], message, mcp_session_id=ann, last_event_id=mark)
            assert foreign.status == 404
        replay = await desk.ask("GET", SHOWN["bob"], mcp_session_id=bob, last_event_id=mark)
        go.set()
        await hears(stream, b"secret of ann")
        assert b"secret" not in b"".join(replay.chunks)


@pytest.mark.row("TF-12")
async def test_a_tool_that_gets_scopes_before_its_worker_runs_is_not_run() -> None:
    server, ran = vault(auth=provider())
    async with opened(server) as desk:
        session = await desk.enter(SHOWN["bob"])
        asked = asyncio.create_task(ask(desk, "bob", session, "tools/call", {"name": "late", "arguments": {}}))

        @server.tool
        async def late() -> str:
            ran.append("late")
            return "ran"

        entry = tool_entry("late", late, ToolOptions(scopes=["write"]))
        original = server.company.work

        async def work(job: Any) -> None:
            server.company.catalogue_ref.write(lambda catalogue: catalogue.put(entry))
            await original(job)

        server.company.work = work
        paper = await asked
        assert paper.json["error"]["data"] == {"required_scopes": ["write"]}
        assert ran == []


def test_audience_is_no_default() -> None:
    assert AuthInfo("x").audience == ()
    with pytest.raises(Exception, match="audience"):
        BearerAuth(secret="s" * 40)
