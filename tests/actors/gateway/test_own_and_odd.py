"""A gateway's server keeps its own entries beside the upstreams', and an upstream's errors and odd answers are passed on."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Server
from greenroom.actors.worker_interfaces import Hooks
from greenroom.auth.auth_info import AuthInfo
from greenroom.protocol.errors import ErrorCode, McpError, PeerError
from greenroom.protocol.jsonrpc import JsonRpcRequest
from greenroom.protocol.versions import LATEST
from greenroom.transports.interfaces import Peer
from greenroom.wire_probe import WireProbe

from .recording_upstream import UNREACHABLE, Upstream, client, gateway, session_host

if TYPE_CHECKING:
    from greenroom.actors.client.interfaces import Progress

NOTE = "upstream://one/note://one"
UPDATED = "notifications/resources/updated"


def answering(name: str = "one", **answers: Any) -> Server:
    """An upstream with answers of its own: `tools_call` is what answers `tools/call`."""

    def answer(what: Any) -> Any:
        async def answered(job: Any, _: Any) -> Any:
            return what(job.params) if callable(what) else what

        return answered

    server = Server(name, hooks=Hooks(answers={key.replace("_", "/"): answer(what) for key, what in answers.items()}))

    @server.tool
    def known() -> None:
        raise NotImplementedError

    @server.prompt
    def asked() -> str:
        raise NotImplementedError

    @server.resource("note://one")
    def note() -> str:
        return "a note"

    return server


def front(upstream: Server, **options: Any) -> Server:
    server = Server("front", **options)
    server.mount(session_host({"one": upstream}, patience=1.0))
    return server


# --- resources that are followed


async def test_a_double_subscription_is_notified_once_and_an_ended_one_never() -> None:
    up = Upstream("one")
    async with WireProbe(gateway(up)) as probe:
        for _ in range(2):
            assert await probe.request("resources/subscribe", {"uri": NOTE}) == {}
        up.server.notify_resource_updated("note://one")
        await probe.wait_for_notifications(UPDATED)
        await probe.request("resources/unsubscribe", {"uri": NOTE})
        up.server.notify_resource_updated("note://one")
        await probe.request("resources/read", {"uri": NOTE})
        assert probe.notifications(UPDATED) == [{"uri": NOTE}]
        assert await probe.request("resources/unsubscribe", {"uri": NOTE}) == {}


async def test_a_subscription_that_the_upstream_refuses_is_refused_and_may_be_tried_again() -> None:
    refusals = [McpError(-32050, "not now", {"uri": "note://one"})]

    def subscribed(_: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return {}

    up = answering(resources_subscribe=subscribed)
    server = front(up)
    (mounted,) = server._gateways
    async with WireProbe(server) as probe:
        with pytest.raises(PeerError, match="not now") as caught:
            await probe.request("resources/subscribe", {"uri": NOTE})
        assert (caught.value.code, caught.value.data) == (-32050, {"uri": NOTE})
        await mounted.sweep(0.0)
        assert refusals == []
        assert await probe.request("resources/subscribe", {"uri": NOTE}) == {}


async def test_a_subscription_to_an_unreachable_upstream_is_refused_with_a_reason() -> None:
    server = Server("front")
    server.mount(session_host({"dead": UNREACHABLE}, patience=0.05))
    async with WireProbe(server) as probe:
        with pytest.raises(PeerError) as caught:
            await probe.request("resources/subscribe", {"uri": "upstream://dead/x:1"})
        assert caught.value.data["server"] == "dead"
        assert caught.value.data["reason"] in ("unavailable", "circuit_open", "parked")


async def test_the_servers_own_resources_are_subscribed_to_as_ever() -> None:
    server = gateway(Upstream("one"))

    @server.resource("own://one")
    def own() -> str:
        raise NotImplementedError

    async with WireProbe(server) as probe:
        await probe.request("resources/subscribe", {"uri": "own://one"})
        server.notify_resource_updated("own://one")
        assert await probe.wait_for_notifications(UPDATED) == [{"uri": "own://one"}]
        await probe.request("resources/unsubscribe", {"uri": "own://one"})
        server.notify_resource_updated("own://one")
        await probe.request("ping")
        assert len(probe.notifications(UPDATED)) == 1


async def test_a_server_that_answers_subscriptions_itself_does_so_for_what_is_its_own() -> None:
    seen: list[tuple[str, str]] = []

    async def answered(job: Any, _: Any) -> Any:
        seen.append((job.method, job.params["uri"]))
        return {}

    methods = ("resources/subscribe", "resources/unsubscribe")
    server = front(Upstream("one").server, hooks=Hooks(answers=dict.fromkeys(methods, answered)))
    async with WireProbe(server) as probe:
        for method in methods:
            for uri in ("own://one", NOTE):
                assert await probe.request(method, {"uri": uri}) == {}
    assert seen == [(method, "own://one") for method in methods]


# --- the server's own


async def test_the_servers_own_entries_are_answered_by_the_server() -> None:
    server = gateway(Upstream("one"))

    @server.prompt
    def mine(name: str) -> str:
        return f"Mine, {name}."

    @server.completion("name", prompt="mine")
    def names(value: str) -> list[str]:
        return [f"{value}!"]

    async with client(server) as peer:
        assert "Mine, Ann." in str(await peer.get_prompt("mine", name="Ann"))
        assert list((await peer.complete("mine", "name", "A")).values) == ["A!"]
        with pytest.raises(PeerError):
            await peer.get_prompt("one__nothing")


async def test_of_two_of_one_name_the_servers_own_is_served_and_the_log_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = gateway(Upstream("one"))

    @server.tool
    def one__add() -> str:
        return "mine"

    @server.prompt
    def one__greet() -> str:
        return "Mine."

    with caplog.at_level(logging.WARNING, "greenroom.gateway"):
        async with client(server) as peer:
            assert [each.name for each in await peer.list_tools()].count("one__add") == 1
            assert await peer.call("one__add") == "mine"
            assert [each.name for each in await peer.list_prompts()] == ["one__greet"]
            assert "Mine." in str(await peer.get_prompt("one__greet"))
    said = {record.getMessage() for record in caplog.records if record.name == "greenroom.gateway"}
    assert said == {
        f"the {kind} one__{name} of one is left out: the gateway's own server has one of that name"
        for kind, name in (("tool", "add"), ("prompt", "greet"))
    }


@pytest.mark.parametrize("scopes", [frozenset[str](), frozenset({"write"})])
async def test_forbidden_own_tools_are_not_listed_beside_the_upstreams(scopes: frozenset[str]) -> None:
    server = gateway(Upstream("one"))

    @server.tool(scopes=["write"])
    def erase() -> None:
        raise NotImplementedError

    async with WireProbe(server, peer=Peer("memory", "ann", auth=AuthInfo("ann", scopes=scopes))) as probe:
        names: set[str] = set()
        cursor: dict[str, Any] | None = {}
        while cursor is not None:
            page = await probe.request("tools/list", cursor)
            names |= {each["name"] for each in page["tools"]}
            cursor = {"cursor": page["nextCursor"]} if "nextCursor" in page else None
        assert "one__add" in names
        assert ("erase" in names) == bool(scopes)


# --- what is carried


async def test_the_arguments_of_an_upstreams_template_are_completed() -> None:
    up = Upstream("one")

    @up.server.completion("id", template="note://{id}/more")
    def ids(value: str) -> list[str]:
        return [f"{value}7"]

    async with WireProbe(gateway(up)) as probe:
        argument = {"name": "id", "value": "1"}
        ref = {"type": "ref/resource", "uri": "upstream://one/note://{id}/more"}
        found = await probe.request("completion/complete", {"ref": ref, "argument": argument})
        assert found["completion"]["values"] == ["17"]
        unknown = {"ref": {**ref, "uri": "upstream://missing/note://{id}/more"}, "argument": argument}
        assert (await probe.request("completion/complete", unknown))["completion"]["values"] == []


async def test_an_upstreams_progress_begins_the_time_of_silence_anew_also_where_the_client_does_not_ask_for_it() -> (
    None
):
    up = Upstream("one")

    @up.server.tool
    async def steps(ctx: Any) -> str:
        for number in range(4):
            await asyncio.sleep(59)
            ctx.progress(number)
        return "done"

    async with WireProbe(gateway(up)) as probe:
        reply = await probe.request("tools/call", {"name": "one__steps"}, within=1000)
        assert reply["content"][0]["text"] == "done"
        assert not probe.notifications("notifications/progress")


async def test_progress_that_is_no_number_is_passed_over() -> None:
    up = Upstream("one")

    @up.server.tool
    async def odd(ctx: Any) -> str:
        for number in (True, 7):
            assert ctx.notify("notifications/progress", {"progressToken": ctx.progress_token, "progress": number})
        return "done"

    async with client(gateway(up)) as peer:
        steps: list[Progress] = []
        assert (await peer.call_tool("one__odd", on_progress=steps.append)).text == "done"
        assert [each.progress for each in steps] == [7]
        assert await peer.call("one__odd") == "done"


async def test_a_call_that_fails_after_it_told_of_progress_fails_as_the_upstream_says() -> None:
    up = Upstream("one")

    @up.server.tool
    async def half(ctx: Any) -> None:
        ctx.progress(1, 2, "half")
        raise McpError(-32051, "the other half is missing")

    async with client(gateway(up)) as peer:
        steps: list[Progress] = []
        with pytest.raises(PeerError, match="the other half is missing") as caught:
            await peer.call_tool("one__half", on_progress=steps.append)
        assert caught.value.code == -32051
        assert [each.progress for each in steps] in ([], [1])


@pytest.mark.parametrize(
    "listed", [None, [{"message": "Sign in."}], [{"message": "x", "url": "file:///etc", "elicitationId": "1"}], "x"]
)
async def test_an_invalid_url_elicitation_is_passed_on_unchanged(listed: Any) -> None:
    def called(_: Any) -> Any:
        raise McpError(ErrorCode.URL_ELICITATION_REQUIRED, "go there", {"elicitations": listed})

    server = front(answering(tools_call=called))
    async with WireProbe(server, capabilities={"elicitation": {"url": {}}}) as probe:
        with pytest.raises(PeerError, match="go there") as caught:
            await probe.call("one__known")
        assert caught.value.code == ErrorCode.URL_ELICITATION_REQUIRED
        assert caught.value.data == {"elicitations": listed}


async def test_where_all_share_one_connection_an_upstream_that_is_away_is_told_at_once() -> None:
    host = session_host({"dead": UNREACHABLE}, patience=0.05)
    server = Server("front")
    server.mount(host, shared=True)
    async with WireProbe(server) as probe:
        async for standing in host.watch():
            if standing.cause is not None:
                break
        with pytest.raises(PeerError) as caught:
            await probe.request("resources/read", {"uri": "upstream://dead/x:1"})
        assert caught.value.data["server"] == "dead"
        assert caught.value.data["reason"] == "unavailable"


async def test_requests_without_a_session_share_the_hosts_connection_and_follow_nothing() -> None:
    up = Upstream("one")
    server = gateway(up)
    (mounted,) = server._gateways
    async with server.started() as company:
        peer = Peer("http")

        async def once(method: str, **params: Any) -> dict[str, Any]:
            answer = await company.once(peer, JsonRpcRequest(1, method, params), LATEST)
            return dict(json.loads(answer.body))

        for before in ("nothing", "x", "x"):
            answer = await once("tools/call", name="one__remember", arguments={"what": "x"})
            assert answer["result"]["content"][0]["text"] == before
        assert len(mounted.client_connections) == 0
        assert "no session" in (await once("resources/subscribe", uri=NOTE))["error"]["message"]
        assert (await once("resources/unsubscribe", uri=NOTE))["result"] == {}
