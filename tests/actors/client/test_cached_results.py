"""A line with a cache: what it answers without asking the server, and what it asks again. The server is a fake one of the stateless era, on virtual time."""

from __future__ import annotations

import asyncio
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import BadAnswer, Cache, Client, Command, ConfigError, ResponseCache, Server, SyncClient
from greenroom.actors.client.client_handler import ClientHandler
from greenroom.actors.client.connection_line import ConnectionLine
from greenroom.actors.client.errors import ClientClosed, RequestLost, RequestTimeout
from greenroom.actors.client.interfaces import Phase
from greenroom.actors.client.response_cache import LineCache
from greenroom.actors.client.server_connection import ServerConnection
from greenroom.actors.client.settings import ClientSettings
from greenroom.auth.client.auth_option import CallerCredentials, CallerIdentity, credentials_for
from greenroom.protocol.envelope import SUBSCRIPTION_ID_KEY
from greenroom.protocol.errors import PeerError
from greenroom.protocol.jsonrpc import JsonRpcNotification
from greenroom.supervision import start
from greenroom.transports.client.errors import ConnectionLost
from greenroom.transports.client.http_route import HttpRoute

from .client_helpers import phase
from .fake_server import SILENCE, After, Stage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from pathlib import Path

    from greenroom.protocol.jsonrpc import JsonRpcRequest

MODERN = "2026-07-28"
READ = {"uri": "book://a"}


def hinted(ttl: float, scope: str = "private", **members: Any) -> dict[str, Any]:
    return {"resultType": "complete", "ttlMs": ttl, "cacheScope": scope, **members}


def counting(ttl: float = 60_000, scope: str = "private", **members: Any) -> Any:
    """An answer that says how many came before it."""
    numbers = iter(range(1000))

    def answer(_: object) -> dict[str, Any]:
        return hinted(ttl, scope, n=next(numbers), **members)

    return answer


def modern_stage(stage: Stage | None = None, **capabilities: Any) -> Stage:
    """A fake server of the stateless era."""
    stage = stage or Stage()
    lists = {"tools": {"listChanged": True}, "resources": {"listChanged": True, "subscribe": True}, "prompts": {}}
    declared = capabilities or lists
    stage.answers["server/discover"] = hinted(0, supportedVersions=[MODERN], capabilities=declared)
    for method in ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"):
        stage.answers[method] = counting()

    def listen(request: JsonRpcRequest) -> Any:
        about = {"notifications": request.params["notifications"], "_meta": {SUBSCRIPTION_ID_KEY: request.id}}
        stage.wire.say(JsonRpcNotification("notifications/subscriptions/acknowledged", about))
        return SILENCE

    stage.answers["subscriptions/listen"] = listen
    return stage


@asynccontextmanager
async def caching(
    stage: Stage,
    cache: ResponseCache | None = None,
    *,
    handler: ClientHandler | None = None,
    tools_changed: Callable[[], object] | None = None,
    **who: Any,
) -> AsyncGenerator[ConnectionLine]:
    """A line to that server, with a cache."""
    line = ConnectionLine("stage", ClientSettings(mode=MODERN))
    line.use_cache(LineCache(cache or ResponseCache(), stage, line.key, **who))
    line.tools_changed = tools_changed
    await start(ServerConnection, line, stage, handler or ClientHandler())
    try:
        await line.ready()
        yield line
    finally:
        await line.close()


async def change(stage: Stage, method: str, **params: Any) -> None:
    """Announce a change on the newest listen of the newest wire."""
    await stage.wire.hears("subscriptions/listen")
    newest = stage.asked("subscriptions/listen")[-1]
    stage.wire.say(
        JsonRpcNotification(f"notifications/{method}", {**params, "_meta": {SUBSCRIPTION_ID_KEY: newest.id}})
    )


@pytest.mark.row("26-C3")
async def test_a_fresh_result_is_not_fetched_again() -> None:
    stage = modern_stage()
    async with caching(stage) as line:
        first = await line.request("tools/list")
        assert await line.request("tools/list", {"_meta": {"traceparent": "x"}}) == first
        assert (await line.request("tools/list", {"cursor": "2"}))["n"] == 1
        assert (await line.request("resources/read", READ))["n"] == 0
        assert (await line.request("resources/read", {"uri": "book://b"}))["n"] == 1
        assert (await line.request("resources/read", READ))["n"] == 0
        assert len(stage.asked("tools/list")) == len(stage.asked("resources/read")) == 2


@pytest.mark.row("26-C4")
async def test_a_result_is_fetched_again_when_its_time_is_over_and_not_before_it_is_needed() -> None:
    stage = modern_stage()
    stage.answers["tools/list"] = counting(2000)
    async with caching(stage) as line:
        assert (await line.request("tools/list"))["n"] == 0
        await asyncio.sleep(1.5)
        assert await line.request("tools/list") == hinted(500, n=0)
        await asyncio.sleep(10)
        assert len(stage.asked("tools/list")) == 1
        assert (await line.request("tools/list"))["n"] == 1


@pytest.mark.row("26-C4")
async def test_a_result_without_time_to_live_is_fetched_each_time() -> None:
    stage = modern_stage()
    stage.answers["tools/list"] = counting(0)
    async with caching(stage) as line:
        assert [(await line.request("tools/list"))["n"] for _ in range(3)] == [0, 1, 2]


@pytest.mark.row("26-C4")
async def test_a_cursor_that_fails_drops_all_pages() -> None:
    stage = modern_stage()
    pages = counting()

    def page(request: JsonRpcRequest) -> Any:
        gone = request.params.get("cursor") == "gone"
        return PeerError(-32602, "no such cursor") if gone else pages(request)

    stage.answers["tools/list"] = page
    async with caching(stage) as line:
        await line.request("tools/list")
        await line.request("tools/list", {"cursor": "2"})
        with pytest.raises(PeerError):
            await line.request("tools/list", {"cursor": "gone"})
        assert (await line.request("tools/list"))["n"] == 2
        assert (await line.request("tools/list", {"cursor": "2"}))["n"] == 3


@pytest.mark.row("26-C5")
async def test_news_make_a_result_stale_before_anyone_is_told_of_them() -> None:
    stage = modern_stage()
    fetched: asyncio.Queue[Any] = asyncio.Queue()

    def fetch() -> None:
        fetched.put_nowait(line.begin("tools/list"))

    async with caching(stage, tools_changed=fetch) as line:
        assert (await line.request("tools/list"))["n"] == 0
        await line.request("prompts/list")
        await change(stage, "tools/list_changed")
        assert (await (await fetched.get()))["n"] == 1
        assert (await line.request("tools/list"))["n"] == 1
        assert (await line.request("prompts/list"))["n"] == 0


@pytest.mark.row("26-C5")
async def test_an_updated_resource_is_read_again() -> None:
    stage = modern_stage()
    async with caching(stage) as line:
        for uri in ("book://a", "book://b"):
            await line.request("resources/read", {"uri": uri})
        async with line.subscribe("book://a") as updates:
            await change(stage, "resources/updated", uri="book://a")
            await anext(aiter(updates))
        assert (await line.request("resources/read", READ))["n"] == 2
        assert (await line.request("resources/read", {"uri": "book://b"}))["n"] == 1


@pytest.mark.row("26-C5")
async def test_an_answer_that_was_requested_before_the_news_is_not_kept() -> None:
    stage = modern_stage()
    answers = counting()
    stage.answers["tools/list"] = lambda request: After(1.0, answers(request))
    async with caching(stage, tools_changed=lambda: None) as line:
        asked = line.begin("tools/list")
        await stage.wire.hears("tools/list")
        await change(stage, "tools/list_changed")
        assert (await asked)["n"] == 0
        assert (await line.request("tools/list"))["n"] == 1
        assert (await line.request("tools/list"))["n"] == 1


@pytest.mark.row("26-C5")
async def test_a_connection_that_opens_anew_keeps_nothing() -> None:
    stage = modern_stage()
    async with caching(stage) as line:
        await line.request("tools/list")
        await stage.wire.break_off(ConnectionLost("pulled out"))
        await phase(line, Phase.READY, lambda status: status.generation == 2)
        assert (await line.request("tools/list"))["n"] == 1


@pytest.mark.row("26-C5")
async def test_a_fresh_result_is_given_while_the_server_is_away_and_not_when_the_client_is_closed() -> None:
    stage = modern_stage()
    async with caching(stage) as line:
        await line.request("tools/list")
        stage.failures = [ConnectionLost("away")] * 5
        await stage.wire.break_off(ConnectionLost("pulled out"))
        await phase(line, Phase.BACKOFF)
        assert (await line.request("tools/list"))["n"] == 0
    with pytest.raises(ClientClosed):
        await line.request("tools/list")


@pytest.mark.row("26-C5")
@pytest.mark.parametrize("stale_seconds", [0.0, 60.0])
async def test_a_stale_result_is_given_only_if_that_is_set_and_no_answer_came(stale_seconds: float) -> None:
    stage = modern_stage()
    stage.answers["tools/list"] = counting(1000)
    async with caching(stage, ResponseCache(stale_seconds=stale_seconds)) as line:
        await line.request("tools/list")
        await asyncio.sleep(2)
        for silence, error in ((SILENCE, RequestTimeout), (ConnectionLost("broken"), RequestLost)):
            stage.answers["tools/list"] = silence
            asked = line.begin("tools/list", timeout=2.0)
            if stale_seconds:
                assert await asked == hinted(0, n=0)
            else:
                with pytest.raises(error):
                    await asked
        cancelled = line.begin("tools/list")
        cancelled.cancel()
        with pytest.raises(Exception, match="cancel"):
            await cancelled
        stage.answers["tools/list"] = PeerError(-32603, "failed")
        with pytest.raises(PeerError):
            await line.request("tools/list")
        stage.answers["tools/list"] = SILENCE
        with pytest.raises(RequestTimeout):
            await line.request("tools/list", timeout=2.0)


class Answering(ClientHandler):
    """Answers questions."""

    def capabilities(self) -> dict[str, Any]:
        return {"roots": {}}

    async def handle_request(self, method: str, params: dict[str, Any]) -> Any:
        del method, params
        return {"roots": []}


@pytest.mark.row("26-R13")
async def test_neither_an_interim_result_nor_the_answer_to_a_retry_is_kept() -> None:
    stage = modern_stage()
    numbers = counting()

    def asks(request: JsonRpcRequest) -> Any:
        if "inputResponses" in request.params:
            return numbers(request)
        question: dict[str, Any] = {"method": "roots/list", "params": {}}
        return hinted(60_000) | {"resultType": "input_required", "inputRequests": {"roots": question}}

    stage.answers["resources/read"] = asks
    async with caching(stage, handler=Answering()) as line:
        assert [(await line.request("resources/read", READ))["n"] for _ in range(2)] == [0, 1]
        assert len(stage.asked("resources/read")) == 4
        assert line.cache is not None
        assert line.cache.cache.count == 0


@pytest.mark.row("26-C3")
async def test_lines_share_what_is_public_and_keep_apart_what_is_private() -> None:
    stage, cache = modern_stage(), ResponseCache()
    stage.answers["tools/list"] = counting(scope="public")
    told = asyncio.Event()
    async with (
        caching(stage, cache, server="books") as one,
        caching(stage, cache, server="books", tools_changed=told.set) as other,
    ):
        for method in ("tools/list", "prompts/list"):
            await one.request(method)
        assert (await other.request("tools/list"))["n"] == 0
        assert (await other.request("prompts/list"))["n"] == 1
        await change(stage, "tools/list_changed")
        await told.wait()
        assert (await one.request("tools/list"))["n"] == 1


@pytest.mark.row("26-C3")
async def test_a_principal_has_its_results_on_each_of_its_lines_and_no_other_has_them() -> None:
    stage, cache = modern_stage(), ResponseCache()
    async with caching(stage, cache, server="books", principal="ada") as line:
        await line.request("prompts/list")
    async with caching(stage, cache, server="books", principal="ada") as again:
        assert (await again.request("prompts/list"))["n"] == 0
    async with caching(stage, cache, server="books", principal="bob") as other:
        assert (await other.request("prompts/list"))["n"] == 1
    async with caching(stage, cache, server="other", principal="ada") as elsewhere:
        assert (await elsewhere.request("prompts/list"))["n"] == 2


@pytest.mark.row("26-C3")
async def test_a_client_that_declares_something_else_gets_a_result_of_its_own() -> None:
    stage, cache = modern_stage(), ResponseCache()
    stage.answers["tools/list"] = counting(scope="public")
    async with caching(stage, cache, server="books") as one:
        await one.request("tools/list")
    async with caching(stage, cache, server="books", handler=Answering()) as other:
        assert (await other.request("tools/list"))["n"] == 1


async def test_a_server_with_a_handshake_gives_no_hints() -> None:
    stage, cache = Stage(), ResponseCache()
    stage.answers["tools/list"] = counting()
    line = ConnectionLine("stage", ClientSettings(mode="legacy"))
    line.use_cache(LineCache(cache, stage, line.key))
    line.supervised = True  # so that a request waits for the connection, whose era is not known yet
    early = line.begin("tools/list", timeout=5)
    await start(ServerConnection, line, stage, ClientHandler())
    assert (await early)["n"] == 0
    assert [(await line.request("tools/list"))["n"] for _ in range(2)] == [1, 2]
    assert cache.count == 0
    await line.close()


async def test_a_line_with_a_handshake_gets_nothing_that_another_one_has_kept() -> None:
    stage, cache = modern_stage(), ResponseCache()
    stage.answers["tools/list"] = counting(scope="public")
    async with caching(stage, cache, server="books") as modern:
        await modern.request("tools/list")
    line = ConnectionLine("stage", ClientSettings(mode="legacy"))
    line.use_cache(LineCache(cache, stage, line.key, server="books"))
    await start(ServerConnection, line, stage, ClientHandler())
    await line.ready()
    assert (await line.request("tools/list"))["n"] == 1
    await line.close()


@pytest.mark.row("26-C5")
async def test_nothing_is_kept_over_a_gap_of_the_listen() -> None:
    stage = modern_stage()
    told = asyncio.Event()
    async with caching(stage, tools_changed=told.set) as line:
        await stage.wire.hears("subscriptions/listen")
        await line.request("prompts/list")
        first = stage.asked("subscriptions/listen")[0]
        stage.wire.answer(first, hinted(0, _meta={SUBSCRIPTION_ID_KEY: first.id}))  # the server ends it
        await stage.wire.hears("subscriptions/listen", 2)
        await told.wait()
        assert (await line.request("prompts/list"))["n"] == 1
        assert line.generation == 1


def test_lines_over_http_share_private_results_only_with_the_same_login() -> None:
    url, cache = "https://books.example/mcp", ResponseCache()

    def authorization(route: HttpRoute, line: str, principal: Any = None) -> Any:
        return LineCache(cache, route, line, principal=principal)._authorization

    def route(token: str) -> HttpRoute:
        return HttpRoute(url, credentials=credentials_for(token, url))

    assert authorization(route("a"), "1") == authorization(route("a"), "2") != authorization(route("b"), "3")
    assert authorization(route("a"), "1", "ada") != authorization(route("a"), "1", "bob")
    personal = HttpRoute(url, credentials=CallerCredentials(lambda _: "t", CallerIdentity("ada", None, None), url))
    assert authorization(personal, "1", "ada") is None  # a login that was taken back ends with the next request


# --- what is learnt from a page that was not fetched by this line

MIRRORED = {"type": "object", "properties": {"area": {"type": "string", "x-mcp-header": "Area"}}}
COUNTS = {"name": "count", "inputSchema": {"type": "object"}, "outputSchema": {"type": "integer"}}
PAINTS = {"name": "paint", "inputSchema": MIRRORED}
BAD = {"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}}


class HttpStage(Stage):
    """A fake server at a URL, to which all clients come without a login."""

    endpoint = "https://books.example/mcp"
    authorization = "anonymous"


def listing_stage(*tools: dict[str, Any]) -> Stage:
    stage = modern_stage(HttpStage())
    stage.is_http = True
    stage.answers["tools/list"] = lambda _: hinted(60_000, "public", tools=[dict(tool) for tool in tools])
    stage.answers["tools/call"] = {"resultType": "complete", "content": [], "structuredContent": "seven"}
    return stage


@pytest.mark.row("26-P4")
async def test_headers_and_result_types_are_learnt_from_a_page_that_another_client_has_fetched() -> None:
    stage, cache = listing_stage(COUNTS, PAINTS, BAD), ResponseCache()
    async with Client(stage, cache=cache) as one:
        assert [tool.name for tool in await one.list_tools()] == ["count", "paint"]
    async with Client(stage, cache=cache) as other:
        assert [tool.name for tool in await other.list_tools()] == ["count", "paint"]
        await other.call_tool("paint", {"area": "north"})
        with pytest.raises(BadAnswer, match="output schema"):
            await other.call("count")
    assert len(stage.asked("tools/list")) == 1
    painted = stage.asked("tools/call")[0]
    assert ("mcp-param-area", "north") in {(name.lower(), value) for name, value in stage.wires[1].mirrored[painted.id]}


@pytest.mark.row("26-P8")
async def test_a_list_whose_headers_were_wrong_is_not_given_again() -> None:
    stage = listing_stage({**PAINTS, "inputSchema": {"type": "object"}})
    async with Client(stage) as client:
        await client.list_tools()
        stage.answers["tools/list"] = hinted(60_000, "public", tools=[PAINTS])
        done: dict[str, Any] = {"resultType": "complete", "content": []}
        answers = iter([PeerError(-32020, "Mcp-Param-Area is missing"), done])
        stage.answers["tools/call"] = lambda _: next(answers)
        await client.call_tool("paint", {"area": "north"})
        assert [tool.input_schema for tool in await client.list_tools()] == [MIRRORED]


# --- clients


@pytest.fixture
def server() -> Server:
    server = Server("books", cache=Cache(60))

    @server.tool
    def lend(title: str) -> str:
        return title

    @server.resource("book://a", cache=Cache(60, public=True))
    def a() -> str:
        return "a"

    return server


@pytest.mark.row("26-C3")
async def test_a_client_keeps_results_unless_it_has_no_cache(server: Server) -> None:
    async with Client(server) as kept, Client(server, cache=False) as without:
        assert without.cache is None
        assert kept.cache is not None
        for client in (kept, without):
            assert [tool.name for tool in await client.list_tools()] == ["lend"]
            assert (await client.read_resource("book://a")).text == "a"
        found = [(each.method, each.param, each.public) for each in kept.cached()]
        assert found == [("tools/list", None, False), ("resources/read", "book://a", True)]
        assert without.cached() == []


async def test_a_shared_cache_is_given_to_each_client(server: Server) -> None:
    cache = ResponseCache()
    async with server.started():
        url = await server.listen(port=0)
        async with Client(url, cache=cache) as one, Client(url, cache=cache) as other:
            await one.read_resource("book://a")
            before = cache.count
            await other.read_resource("book://a")
            assert cache.count == before == 1


@pytest.mark.parametrize("wrong", [None, 60, "yes"])
def test_a_cache_of_another_kind_is_refused(server: Server, wrong: Any) -> None:
    with pytest.raises(ConfigError, match="cache is a ResponseCache, True or False"):
        Client(server, cache=wrong)


def test_a_script_has_a_cache_too(server: Server) -> None:
    with SyncClient(server) as client:
        assert [tool.name for tool in client.list_tools()] == ["lend"]
        assert [tool.name for tool in client.list_tools()] == ["lend"]
        assert client._client.cache is not None
        assert client._client.cache.count == 1


@pytest.mark.row("26-C5")
async def test_a_client_over_http_lists_a_changed_tool_at_once(server: Server) -> None:
    async with server.started():
        url = await server.listen(port=0)
        async with Client(url) as client, client.listen("notifications/tools/list_changed") as updates:
            assert [tool.name for tool in await client.list_tools()] == ["lend"]

            @server.tool
            def give_back(title: str) -> str:
                return title

            await anext(aiter(updates))
            assert [tool.name for tool in await client.list_tools()] == ["give_back", "lend"]
            assert len(client.cached()) == 1


PROGRAM = """
import os, sys
from greenroom import Cache, Server

server = Server("books", cache=Cache(60))

@server.resource("book://count", cache=Cache(60))
def count() -> str:
    with open(sys.argv[1], "a") as file:
        file.write("x")
    with open(sys.argv[1]) as file:
        return file.read()

@server.tool
def crash() -> str:
    os._exit(3)

server.run()
"""


@pytest.mark.row("26-C5")
async def test_a_program_that_was_started_again_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "books.py").write_text(PROGRAM)
    async with Client(Command(sys.executable, "books.py", "count", cwd=tmp_path)) as client:
        texts = [(await client.read_resource("book://count")).text for _ in range(2)]
        with pytest.raises(RequestLost):
            await client.call("crash")
        await client.line.ready()
        assert texts == ["x", "x"]
        assert (await client.read_resource("book://count")).text == "xx"
