"""Callers that cannot be told from each other: nothing that an upstream says too late, or in another era, reaches another one of them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.client.fake_server import SILENCE
from tests.actors.federation.era_upstreams import EraUpstream
from tests.actors.tasks.stateless_client import ABLE, StatelessClient

from greenroom import Server, Settings
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.actors.gateway import upstream_subscriptions
from greenroom.protocol.envelope import LOG_LEVEL_KEY
from greenroom.protocol.errors import PeerError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
from greenroom.transports.client.errors import ConnectionLost
from greenroom.transports.interfaces import Peer

from .bridged_pair import LEGACY, MODERN
from .recording_upstream import Upstream, client, gateway, session_host
from .test_callers_that_stand_alone import NOTE, Gate, opened, read, stranger

if TYPE_CHECKING:
    from tests.actors.client.fake_server import StageWire

    from greenroom.actors.company import Company


def front_of(stage: EraUpstream) -> Server:
    server = Server("front")
    server.mount(session_host({"one": stage}, mode="auto", patience=5.0))
    return server


def wires_with(stage: EraUpstream, method: str) -> list[StageWire]:
    """The wires on which such a request came, the first one first."""
    return [wire for wire in stage.wires if any(getattr(heard, "method", "") == method for heard in wire.heard)]


async def came(stage: EraUpstream, method: str, count: int) -> None:
    """Wait until so many of these requests have reached the upstream."""
    async with asyncio.timeout(20):
        while len(stage.asked(method)) < count:  # noqa: ASYNC110 - a count, not an event
            await asyncio.sleep(0.01)


async def heard_by(company: Company, heard: list[Any]) -> None:
    """Call a tool, with all log messages."""
    caller = stranger(company, {})
    params = {"name": "one__echo", "arguments": {}, "_meta": {LOG_LEVEL_KEY: "debug"}}
    feed: Any = await company.exchange(caller.peer, caller.request("tools/call", params), quiet=0.05)
    try:
        while (events := await feed.next()) is not None:
            heard += [json.loads(event.data) for event in events if event.data]
    finally:
        feed.leave()


async def test_a_late_message_of_a_call_that_was_given_up_reaches_no_other_caller() -> None:
    stage = EraUpstream("echo")
    stage.answers["tools/call"] = lambda _: SILENCE
    async with front_of(stage).started() as company:
        await stranger(company, {}).result("tools/list")
        anns, bobs = list[Any](), list[Any]()
        ann = asyncio.create_task(heard_by(company, anns))
        await came(stage, "tools/call", 1)
        (wire,) = wires_with(stage, "tools/call")
        await asyncio.sleep(0.1)
        wire.say(JsonRpcNotification("notifications/message", {"level": "info", "data": "for Ann"}))
        while not anns:  # noqa: ASYNC110 - it is on its way
            await asyncio.sleep(0.01)
        ann.cancel()
        bob = asyncio.create_task(heard_by(company, bobs))
        await came(stage, "tools/call", 2)
        wire.say(JsonRpcNotification("notifications/message", {"level": "error", "data": "for Ann"}))
        wires_with(stage, "tools/call")[-1].say(
            JsonRpcNotification("notifications/message", {"level": "info", "data": "for Bob"})
        )
        while not bobs:  # noqa: ASYNC110 - it is on its way
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        bob.cancel()
        assert [said["params"]["data"] for said in bobs] == ["for Bob"]


async def test_no_stranger_is_asked_in_a_session_that_several_share_since_their_server_changed_its_era() -> None:
    stage = EraUpstream("echo")
    stage.answers["resources/read"] = lambda _: SILENCE
    async with front_of(stage).started() as company:
        await stranger(company).result("tools/list")
        ann, bob = (
            asyncio.create_task(stranger(company).answer("resources/read", uri=f"upstream://one/a:{who}"))
            for who in ("ann", "bob")
        )
        await came(stage, "resources/read", 2)
        stage.deploy(stateless=False)
        for wire in [each for each in stage.wires if not each.ended]:
            await wire.break_off(ConnectionLost("deployed anew"))
        await came(stage, "resources/read", 4)
        wire = wires_with(stage, "resources/read")[-1]
        anns, bobs = (each for each in wire.heard if getattr(each, "method", "") == "resources/read")
        assert isinstance(anns, JsonRpcRequest)
        assert isinstance(bobs, JsonRpcRequest)
        wire.say(JsonRpcResponse(anns.id, {"contents": []}))
        assert "result" in await ann
        form: dict[str, Any] = {"message": "Ann, really?", "requestedSchema": {"type": "object", "properties": {}}}
        wire.say(JsonRpcRequest("late", "elicitation/create", form))
        refused = await wire.hears(lambda message: getattr(message, "id", None) == "late")
        assert isinstance(refused, JsonRpcError)
        assert refused.error.data == {"reason": "whose_call"}
        wire.say(JsonRpcResponse(bobs.id, {"contents": []}))
        assert (await bob)["result"]["contents"] == []


async def test_nothing_is_kept_of_a_call_that_was_sent_again_after_a_page() -> None:
    up = Gate()
    server = gateway(up)
    (mounted,) = server._gateways
    async with server.started() as company:
        ann = StatelessClient(company, Peer("test", principal="ann"), {"elicitation": {"url": {}}})
        call: dict[str, Any] = {"name": "one__enter", "arguments": {}}
        asked = await ann.result("tools/call", **call)
        (key,) = asked["inputRequests"]
        up.visited = True
        up.server.elicitation_complete("e-1")
        answer = {"inputResponses": {key: {"action": "accept"}}, "requestState": asked["requestState"]}
        assert (await ann.result("tools/call", **call, **answer))["content"][0]["text"] == "in"
        (connection,) = mounted.client_connections._connections.values()
        assert not connection.busy
        assert not connection._by_params, "the address of an object that is gone may be that of another call's"


@pytest.mark.row("26-M16")
@pytest.mark.parametrize("principal", [None, "ann"])
async def test_an_upstream_is_asked_for_messages_only_by_calls_whose_caller_asks_for_them(
    principal: str | None,
) -> None:
    stage = EraUpstream("echo")
    async with front_of(stage).started() as company:
        caller = StatelessClient(company, Peer("http", principal=principal), ABLE)
        await caller.result("tools/list")
        for meta in ({}, {LOG_LEVEL_KEY: "error"}, {}):
            await caller.result("tools/call", name="one__echo", arguments={}, _meta=meta)
        said = [request.params["_meta"].get(LOG_LEVEL_KEY) for request in stage.asked("tools/call")]
        assert sorted(said, key=str) == [None, None, "error"]


@pytest.mark.parametrize("back", [LEGACY, MODERN])
async def test_one_stranger_leaves_others_room_to_follow_resources(back: str) -> None:
    """All of them share one connection, and an upstream bounds what it announces on one."""
    up = Upstream("one")
    server = gateway(up, mode=back)
    (mounted,) = server._gateways
    async with server.started() as company:
        ann, bob = (StatelessClient(company, Peer("http", address), {}) for address in ("192.0.2.1:1", "192.0.2.2:1"))
        await ann.result("resources/list")
        everything = [f"upstream://one/note://{number}/more" for number in range(1000)]
        anns, followed = await opened(ann, resourceSubscriptions=everything)
        assert followed["resourceSubscriptions"] == everything[:450]
        bobs, followed = await opened(bob, resourceSubscriptions=[NOTE, everything[0]])
        assert followed["resourceSubscriptions"] == [NOTE, everything[0]]
        up.server.notify_resource_updated("note://one")
        (told,) = await read(bobs)
        assert told["params"]["uri"] == NOTE
        anns.leave()
        bobs.leave()
        while len(mounted.upstream_subscriptions):  # noqa: ASYNC110 - the processes end in a moment
            await asyncio.sleep(0)
        assert not mounted.upstream_subscriptions._shared
        assert not mounted.upstream_subscriptions._counts


async def test_the_subscriptions_of_one_caller_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_subscriptions, "MOST_EACH", 3)
    server = gateway(Upstream("one"))
    async with server.started(), client(server, "ann") as ann, client(server, "bob") as bob:
        company = server.company
        listener = StatelessClient(company, Peer("test", principal="ann"), {})
        uris = [NOTE, *(f"upstream://one/note://{number}/more" for number in range(3))]
        feed, followed = await opened(listener, resourceSubscriptions=uris)
        assert followed["resourceSubscriptions"] == uris[:3]
        with pytest.raises(PeerError) as caught:
            async with ann.subscribe(NOTE):
                pass
        assert caught.value.data == {"server": "one", "reason": "no_room"}
        async with bob.subscribe(NOTE):
            feed.leave()


def test_as_many_questions_may_be_open_on_a_connection_as_calls_may_wait_for_their_users() -> None:
    """All strangers share the connection, and each may have its own share of the calls that wait."""
    settings = UpstreamSpec(EraUpstream()).personal(None).settings
    assert settings.max_server_requests >= Settings().max_parked
