"""Callers of the stateless era, with a principal and without: who is asked what, and who hears of which change."""

from __future__ import annotations

import asyncio
import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.tasks.stateless_client import ABLE, FOLLOWS_TASKS, StatelessClient, asking, ended

from greenroom import Cache, Client, Server, Settings, UrlElicitation, UrlElicitationRequired
from greenroom.actors.company import UnknownSession
from greenroom.protocol.envelope import LOG_LEVEL_KEY
from greenroom.protocol.errors import McpError, PeerError
from greenroom.transports.interfaces import Peer

from .bridged_pair import LEGACY, MODERN, bridged_pair
from .recording_upstream import Upstream, gateway, session_host

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenroom.actors.company import Company
    from greenroom.transports.interfaces import Feed

BOTH = pytest.mark.parametrize("back", [LEGACY, MODERN])
CONFIRM: dict[str, Any] = {"name": "one__confirm", "arguments": {}}
NOTE = "upstream://one/note://one"


def stranger(company: Company, capabilities: dict[str, Any] = ABLE, transport: str = "http") -> StatelessClient:
    return StatelessClient(company, Peer(transport), capabilities)


async def retried(client: StatelessClient, asked: dict[str, Any], action: str) -> str:
    (key,) = asked["inputRequests"]
    answers = {key: {"action": action, "content": {"yes": True}}}
    result = await client.result("tools/call", **CONFIRM, inputResponses=answers, requestState=asked["requestState"])
    return str(result["content"][0]["text"])


@BOTH
@pytest.mark.row("26-R8")
async def test_callers_without_a_principal_are_each_asked_their_own_question(back: str) -> None:
    server = gateway(Upstream("one"), mode=back)
    async with server.started() as company:
        callers = [stranger(company) for _ in range(3)]
        asked = [await each.result("tools/call", **CONFIRM) for each in callers]
        assert company.exchanges.parked == 3
        actions = ["accept", "decline", "cancel"]
        for caller, question, action in reversed(list(zip(callers, asked, actions, strict=True))):
            assert await retried(caller, question, action) == action
        assert company.exchanges.parked == 0


@BOTH
@pytest.mark.parametrize("idempotent", [True, False])
async def test_after_a_restart_of_the_gateway_only_an_idempotent_tool_is_called_again(
    back: str,
    idempotent: bool,  # noqa: FBT001 - a parameter
) -> None:
    up, runs, keys = Upstream("one"), list[str](), ("A" * 43,)
    call: dict[str, Any] = {"name": "one__order", "arguments": {}}

    @up.server.tool(annotations={"idempotentHint": idempotent})
    async def order(ctx: Any) -> str:
        runs.append("")
        return str((await ctx.elicit("Sure?", {"type": "object", "properties": {}})).action)

    asked: dict[str, Any] = {}
    async with up.server.started():
        for _ in range(2):
            server = Server("front", settings=Settings(seal_keys=keys))
            server.mount(session_host({"one": up.server}, mode=back, patience=5.0))
            async with server.started() as company:
                client = stranger(company)
                await client.result("tools/list")
                if not asked:
                    asked = await client.result("tools/call", **call)
                    continue
                (key,) = asked["inputRequests"]
                answers: dict[str, Any] = {"inputResponses": {key: {"action": "accept", "content": {}}}}
                answer = await client.answer("tools/call", **call, **answers, requestState=asked["requestState"])
                if idempotent:
                    assert answer["result"]["content"][0]["text"] == "accept"
                else:
                    assert answer["error"]["data"] == {"reason": "gone", "maybe_done": True}
    assert len(runs) == (2 if idempotent else 1)


async def test_no_session_at_an_upstream_serves_a_second_stranger() -> None:
    up = Upstream("one")
    server = gateway(up)
    async with server.started() as company:
        for _ in range(3):
            reply = await stranger(company).call("one__remember", what="mine")
            assert reply["content"][0]["text"] == "nothing"
        assert len(up.memory) == 3
        (mounted,) = server._gateways
        assert len(mounted.client_connections) == 0
        with pytest.raises(UnknownSession):  # whatever the upstream would ask later reaches no caller
            await up.server.session(next(iter(up.memory))).elicit("Still there?")


async def test_the_one_client_on_standard_streams_keeps_its_session_at_an_upstream() -> None:
    server = gateway(Upstream("one"))
    async with server.started() as company:
        first, again = stranger(company, transport="stdio"), stranger(company, transport="stdio")
        assert (await first.call("one__remember", what="a"))["content"][0]["text"] == "nothing"
        (mounted,) = server._gateways
        await mounted.sweep(asyncio.get_running_loop().time())
        assert (await again.call("one__remember", what="b"))["content"][0]["text"] == "a"


async def test_strangers_share_one_connection_to_an_upstream_that_has_no_sessions() -> None:
    server = gateway(Upstream("one"), mode=MODERN)
    async with server.started() as company:
        await stranger(company, {}).result("tools/list")
        # More than a client's connection asks at once: each of these waits for another user.
        asked = await asyncio.gather(*(stranger(company).result("tools/call", **CONFIRM) for _ in range(100)))
        (mounted,) = server._gateways
        assert len(mounted.client_connections) == 1
        for each in asked:
            assert await retried(stranger(company), each, "accept") == "accept"


async def test_a_question_that_belongs_to_no_call_is_declined() -> None:
    up = Upstream("one")
    server = gateway(up)
    async with server.started() as company:
        ann = StatelessClient(company, Peer("test", principal="ann"), ABLE)
        await ann.call("one__remember", what="x")
        (session,) = up.memory
        with pytest.raises(McpError) as caught:
            await up.server.session(session).elicit("Sure?")
        assert (caught.value.code, caught.value.data) == (-32601, {"reason": "no_call"})


async def test_strangers_that_can_be_asked_nothing_share_the_hosts_own_connection() -> None:
    up = Upstream("one")
    server = gateway(up)
    async with server.started() as company:
        for before in ("nothing", "a"):
            reply = await stranger(company, {}).call("one__remember", what="a")
            assert reply["content"][0]["text"] == before
        (mounted,) = server._gateways
        assert len(mounted.client_connections) == 0


@BOTH
async def test_an_upstream_logs_for_the_very_request_that_asks_for_messages(back: str) -> None:
    up = Upstream("one")
    server = gateway(up, mode=back)
    async with server.started():
        heard: dict[str, list[Any]] = {"debug": [], "error": []}

        async def talk(level: Any) -> None:
            async with Client(server, mode=MODERN, on_log=lambda said: heard[level].append(said.data)) as client:
                await client.set_log_level(level)
                await client.call("one__chat")

        await asyncio.gather(*map(talk, heard))
        assert heard == {"debug": ["small talk", "trouble"], "error": ["trouble"]}


@pytest.mark.parametrize(("back", "connections"), [(LEGACY, 2), (MODERN, 1)])
async def test_after_a_call_was_given_up_only_a_session_may_still_speak_of_it(back: str, connections: int) -> None:
    up = Upstream("one")
    server = gateway(up, mode=back)
    async with server.started() as company:
        ann = StatelessClient(company, Peer("test", principal="ann"), ABLE)
        await ann.result("tools/list")
        meta = {"_meta": {LOG_LEVEL_KEY: "info"}}
        waiting = asyncio.ensure_future(ann.result("tools/call", name="one__wait", arguments={}, **meta))
        await up.waiting.wait()
        waiting.cancel()
        await up.cancelled.wait()
        (mounted,) = server._gateways
        while any(each.busy for each in mounted.client_connections._connections.values()):  # noqa: ASYNC110 - it ends in a moment
            await asyncio.sleep(0)
        await ann.result("tools/call", name="one__add", arguments={"a": 1, "b": 2}, **meta)
        assert len(mounted.client_connections) == connections


# --- pages


class Gate(Upstream):
    """Its tool needs a page to be visited first, and says so by the error of sessions."""

    def __init__(self) -> None:
        super().__init__("one")
        self.visited = False

        @self.server.tool
        def enter() -> str:
            if not self.visited:
                raise UrlElicitationRequired(UrlElicitation("Sign in.", "https://example.org/{elicitation_id}", "e-1"))
            return "in"


async def test_a_page_that_an_upstream_with_sessions_needs_is_a_question_of_the_call() -> None:
    up = Gate()
    server = gateway(up)
    shown: list[str] = []

    def visit(page: Any) -> Any:
        shown.append(page.url)
        up.visited = True
        up.server.elicitation_complete("e-1")
        return page.accept()

    async with Client(server, mode=MODERN, url_elicitation=visit) as client:
        assert await client.call("one__enter") == "in"
    assert shown == ["https://example.org/e-1"]


async def test_a_page_that_is_declined_is_an_error_of_the_call() -> None:
    async with gateway(Gate()).started() as company:
        able = stranger(company, {"elicitation": {"url": {}}})
        call: dict[str, Any] = {"name": "one__enter", "arguments": {}}
        asked = await able.result("tools/call", **call)
        ((key, question),) = asked["inputRequests"].items()
        assert question["params"] == {"mode": "url", "message": "Sign in.", "url": "https://example.org/e-1"}
        answer = {"inputResponses": {key: {"action": "decline"}}, "requestState": asked["requestState"]}
        error = await able.error("tools/call", **call, **answer)
        assert (error["code"], error["data"]) == (-32603, {"server": "one", "reason": "input_refused"})


# --- changes


async def opened(client: StatelessClient, **wish: Any) -> tuple[Feed, dict[str, Any]]:
    """An open listen, and what the server acknowledges."""
    request = client.request("subscriptions/listen", {"notifications": wish})
    feed: Any = await client.company.exchange(client.peer, request, quiet=math.inf)
    (first,) = await read(feed)
    assert first["method"] == "notifications/subscriptions/acknowledged"
    return feed, first["params"]["notifications"]


async def read(feed: Any) -> Sequence[dict[str, Any]]:
    return [json.loads(event.data) for event in await feed.next(10.0) or ()]


class Deaf(Upstream):
    """An upstream whose resources cannot be followed."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.server = Server(name, settings=Settings(capabilities={"resources": {"listChanged": True}}))

        @self.server.resource("note://one")
        def note() -> str:
            return "a note"


@BOTH
@pytest.mark.row("26-L2")
async def test_a_listen_acknowledges_what_the_upstreams_can_follow(back: str) -> None:
    up = Upstream("one")
    server = gateway(up, Deaf("two"), mode=back)
    async with server.started() as company:
        client = stranger(company)
        await client.result("resources/list")
        uris = [NOTE, "upstream://two/note://one", "upstream://none/x:1", "own://any"]
        feed, honoured = await opened(client, toolsListChanged=True, resourceSubscriptions=uris)
        assert honoured["toolsListChanged"] is True
        assert honoured["resourceSubscriptions"] == [NOTE, "own://any"]
        up.server.notify_resource_updated("note://one")
        (told,) = await read(feed)
        assert (told["method"], told["params"]["uri"]) == ("notifications/resources/updated", NOTE)
        (mounted,) = server._gateways
        assert len(mounted.upstream_subscriptions) == 1
        feed.leave()
        while len(mounted.upstream_subscriptions):  # noqa: ASYNC110 - the process ends in a moment
            await asyncio.sleep(0)


# --- tasks


@BOTH
@pytest.mark.row("26-T10")
async def test_a_task_belongs_to_the_principal_that_called_and_without_one_to_whatever_has_its_id(back: str) -> None:
    async with bridged_pair(MODERN, back) as pair:
        company = pair.server.company
        ann = StatelessClient(company, Peer("test", principal="ann"))
        bob = StatelessClient(company, Peer("test", principal="bob"))
        await ann.result("tools/list")
        id = await ann.start("up__research", topic="tea")
        (key,) = await asking(ann, id)
        for method in ("tasks/get", "tasks/cancel"):
            assert (await bob.error(method, taskId=id))["code"] == -32602
        assert (await bob.error("tasks/update", taskId=id, inputResponses={}))["code"] == -32602
        await ann.result(
            "tasks/update", taskId=id, inputResponses={key: {"action": "accept", "content": {"yes": True}}}
        )
        task = await ended(ann, id)
        assert task["result"]["content"][0]["text"] == "tea: True"
        assert len(id) > 20
        other = await stranger(company, FOLLOWS_TASKS).start("up__research", topic="milk")
        assert await asking(stranger(company, FOLLOWS_TASKS), other), "the id is what gives access"


async def test_a_call_that_its_upstream_answers_at_once_is_no_task() -> None:
    async with bridged_pair(MODERN, MODERN) as pair:
        ann = StatelessClient(pair.server.company, Peer("test", principal="ann"))
        await ann.result("tools/list")
        reply = await ann.call("up__add", a=1, b=2)
        assert (reply["resultType"], reply["content"][0]["text"]) == ("complete", "3")


@pytest.mark.row("26-T1")
async def test_a_client_that_follows_no_tasks_gets_the_result_of_the_upstreams_task() -> None:
    async with bridged_pair(MODERN, MODERN) as pair:
        ann = StatelessClient(pair.server.company, Peer("test", principal="ann"), ABLE)
        call: dict[str, Any] = {"name": "up__research", "arguments": {"topic": "tea"}}
        asked = await ann.result("tools/call", **call)
        (key,) = asked["inputRequests"]
        answers = {key: {"action": "accept", "content": {"yes": True}}}
        reply = await ann.result("tools/call", **call, inputResponses=answers, requestState=asked["requestState"])
        assert (reply["resultType"], reply["content"][0]["text"]) == ("complete", "tea: True")


# --- what a list and a result say


@pytest.mark.row("26-C2")
async def test_a_merged_list_is_kept_no_longer_and_by_no_more_callers_than_each_of_its_parts() -> None:
    async def hint(*caches: Any) -> tuple[int, str]:
        servers = {f"s{number}": Server(f"s{number}", cache=cache) for number, cache in enumerate(caches)}
        for each in servers.values():
            each.registry.register_tool("t", lambda: "x")
        front = Server("front")
        front.mount(session_host(servers, mode=MODERN, patience=5.0))
        async with front.started() as company:
            found = await stranger(company).result("tools/list")
            assert len(found["tools"]) == len(caches)
            return found["ttlMs"], found["cacheScope"]

    ttl, scope = await hint(Cache(60, public=True), Cache(600, public=True))
    assert 50_000 < ttl <= 60_000
    assert scope == "public"
    assert (await hint(Cache(60, public=True), Cache(600)))[1] == "private"
    assert (await hint(Cache(60, public=True), None))[0] == 0


@pytest.mark.greenroom(clock="real")
@BOTH
@pytest.mark.row("26-P7")
async def test_arguments_in_headers_are_compared_here_and_written_anew_for_the_upstream(back: str) -> None:
    async with bridged_pair(MODERN, back, over_http=True) as pair:
        schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}

        @pair.up.server.tool(input_schema=schema)
        def where(region: str) -> str:
            return region

        company = pair.server.company
        while "up__where" not in {tool.name for tool in await pair.peer.list_tools()}:  # noqa: ASYNC110 - the change is on its way
            await asyncio.sleep(0.01)
        assert await pair.peer.call("up__where", region="Größe") == "Größe"
        client = StatelessClient(company)
        headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "up__where"}
        request = client.request("tools/call", {"name": "up__where", "arguments": {"region": "x"}})
        for said in ({}, {"mcp-param-region": "y"}):
            reply: Any = await company.exchange(client.peer, request, {**headers, **said})
            error = json.loads(reply.body)["error"]
            assert (reply.status, error["code"], error["data"]) == (400, -32020, {"header": "Mcp-Param-Region"})


async def test_an_error_of_the_upstreams_envelope_is_none_of_the_client() -> None:
    up = Upstream("one")

    @up.server.tool
    def odd() -> None:
        raise McpError(-32020, "Header mismatch", {"header": "Mcp-Name"})

    async with Client(gateway(up, mode=MODERN), mode=MODERN) as client:
        with pytest.raises(PeerError) as caught:
            await client.call("one__odd")
        assert caught.value.code == -32603
