"""One channel of a real server, for a session and for requests that stand alone, at the same time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as search
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom import Accepted, Context, Server
from greenroom.protocol.envelope import (
    CLIENT_CAPABILITIES_KEY,
    LOG_LEVEL_KEY,
    PROTOCOL_VERSION_KEY,
    SUBSCRIPTION_ID_KEY,
)
from greenroom.protocol.errors import PeerError
from greenroom.protocol.jsonrpc import encode_result
from greenroom.supervision.testing import run as run_virtual
from greenroom.wire_probe import WireProbe

from .fake_sessions import FakeSessionRouter, enveloped, line
from .test_channel_exchanges import Wire, settle

ABILITIES: dict[str, Any] = {"elicitation": {"form": {}}, "sampling": {}, "roots": {}}


@dataclass
class Guest:
    """Who comes."""

    name: str


def playhouse() -> tuple[Server, asyncio.Event, asyncio.Event]:
    """A server, and two events: a call waits, and it was stopped."""
    server, waiting, stopped = Server("house"), asyncio.Event(), asyncio.Event()

    @server.tool
    async def ask(ctx: Context) -> str:
        match await ctx.elicit("Who comes?", Guest):
            case Accepted(guest):
                return f"{guest.name} comes"
            case other:
                return other.action

    @server.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(1, to + 1):
            await ctx.progress(number, to)
            await ctx.info(number)
            await asyncio.sleep(1)
        return "counted"

    @server.tool
    async def wait() -> str:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    @server.tool
    def grow() -> str:
        server.registry.register_tool("grown", lambda: "new")
        return "grown"

    return server, waiting, stopped


def alone(params: dict[str, Any] | None = None, **meta: Any) -> dict[str, Any]:
    """The params of a request that stands alone."""
    return {
        **(params or {}),
        "_meta": {PROTOCOL_VERSION_KEY: "2026-07-28", CLIENT_CAPABILITIES_KEY: ABILITIES, **meta},
    }


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@pytest.mark.row("26-V8")
@pytest.mark.row("26-M17")
async def test_two_peers_of_two_eras_ask_and_are_asked_on_one_channel() -> None:
    server, *_ = playhouse()

    def agree(params: Any) -> dict[str, Any]:
        return {"action": "accept", "content": {"name": "Old"}}

    answers: dict[str, Any] = {"elicitation/create": agree}
    async with WireProbe(server, capabilities=ABILITIES, answers=answers) as peer:
        old, new = await peer.ask("tools/call", call("ask")), await peer.ask("tools/call", alone(call("ask")))
        asked = (await peer.answer(new))["result"]
        assert asked["resultType"] == "input_required"
        (key,) = asked["inputRequests"]
        finished = (await peer.answer(old))["result"]
        assert (finished["content"][0]["text"], "resultType" in finished) == ("Old comes", False)
        response = {key: {"action": "accept", "content": {"name": "New"}}}
        again = {**call("ask"), "inputResponses": response, "requestState": asked["requestState"]}
        done = await peer.request("tools/call", alone(again))
        assert (done["content"][0]["text"], done["resultType"]) == ("New comes", "complete")
        assert len([each for each in peer.received if each.get("method") == "elicitation/create"]) == 1


@pytest.mark.row("26-F7")
@pytest.mark.row("26-S5")
async def test_messages_of_a_request_come_before_its_reply_and_the_session_has_its_own_level() -> None:
    server, *_ = playhouse()
    async with WireProbe(server) as peer:
        await peer.request("logging/setLevel", {"level": "debug"})
        quiet = await peer.ask("tools/call", alone(call("count", to=2), progressToken="a"))
        chatty = await peer.ask("tools/call", alone(call("count", to=2), progressToken="b", **{LOG_LEVEL_KEY: "info"}))
        await peer.answer(quiet)
        await peer.answer(chatty)
        reported = peer.notifications("notifications/progress")
        for token in ("a", "b"):
            assert [each["progress"] for each in reported if each["progressToken"] == token] == [1, 2]
        assert [each["data"] for each in peer.notifications("notifications/message")] == [1, 2]
        ends = [n for n, each in enumerate(peer.received) if each.get("id") in (quiet, chatty)]
        told = [n for n, each in enumerate(peer.received) if each.get("method") == "notifications/progress"]
        assert max(told) < min(ends)  # both counted at the same time


@pytest.mark.row("26-S2")
async def test_cancelling_stops_the_work_and_nothing_more_is_sent_for_it() -> None:
    server, waiting, stopped = playhouse()
    async with WireProbe(server, greet=False) as peer:
        id = await peer.ask("tools/call", alone(call("wait")))
        await waiting.wait()
        await peer.cancel(id, "enough")
        await stopped.wait()
        await peer.request("server/discover", alone())
        await asyncio.sleep(5)
        assert [each["id"] for each in peer.received] == [id + 1]


@pytest.mark.row("26-L2")
@pytest.mark.row("26-L4")
@pytest.mark.row("26-L5")
@pytest.mark.row("26-S4")
async def test_listens_on_a_channel_are_told_apart_by_their_ids() -> None:
    server, *_ = playhouse()
    async with WireProbe(server, greet=False) as peer:
        tools = await peer.ask("subscriptions/listen", alone({"notifications": {"toolsListChanged": True}}))
        none = await peer.ask("subscriptions/listen", alone({"notifications": {}}))
        acknowledged = await peer.wait_for_notifications("notifications/subscriptions/acknowledged", 2)
        filters = {each["_meta"][SUBSCRIPTION_ID_KEY]: each["notifications"] for each in acknowledged}
        assert filters == {tools: {"toolsListChanged": True}, none: {}}
        await peer.request("tools/call", alone(call("grow")))
        (change,) = await peer.wait_for_notifications("notifications/tools/list_changed")
        assert change["_meta"][SUBSCRIPTION_ID_KEY] == tools
        with pytest.raises(PeerError, match="in use"):
            await _same_id(peer, tools)
        await peer.cancel(tools)
        await peer.request("server/discover", alone())
        assert not peer.notifications("notifications/cancelled")


async def _same_id(peer: WireProbe, id: int) -> None:
    """Send a request with an id that is in flight."""
    await peer.send(enveloped("server/discover", id))
    answer = await peer.answer(id)
    raise PeerError.from_wire(answer["error"])


@search(max_examples=examples(200), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["new", "old", "cancel", "cancel-alone", "release"]),
            st.sampled_from([0, 1, "0", "1"]),
            st.sampled_from(["echo", "hold"]),
        ),
        max_size=25,
    )
)
def test_whatever_the_order_each_request_has_one_reply_unless_it_was_cancelled(
    steps: list[tuple[str, str | int, str]],
) -> None:
    run_virtual(lambda: _play(steps))


async def _play(steps: list[tuple[str, str | int, str]]) -> None:
    """Compare a channel with a model of it: which ids are in flight, and in which era."""
    router = FakeSessionRouter()
    wire = Wire(router)
    forwarding = asyncio.create_task(wire.channel.forward_replies())
    in_flight: dict[str | int, str] = {}
    expected: list[tuple[str | int, bool]] = []
    for action, id, method in steps:
        if action in ("new", "old"):
            if in_flight.get(id) == action == "old":
                continue  # the session refuses that, and this one is fake
            await wire.say((enveloped if action == "new" else line)(method, id))
            if id in in_flight:
                expected.append((id, False))
            elif method == "echo":
                expected.append((id, True))
            else:
                in_flight[id] = action
        elif action == "release":
            era = in_flight.pop(id, None)
            await settle()
            if era == "new":
                router.held[id].set_result(encode_result(id, {}))
            elif era == "old":
                session = router.sessions[0]
                session.answer(next(each for each in session.held if each.id == id and type(each.id) is type(id)))
            expected += [(id, True)] if era else []
        else:
            await wire.say((line if action == "cancel" else enveloped)("notifications/cancelled", requestId=id))
            in_flight.pop(id, None)
        await settle()
        assert [(each["id"], "result" in each) for each in wire.sent] == expected
        assert wire.channel.pending == len(in_flight)
    assert [each["id"] for each in wire.sent] == [id for id, _ in expected]
    await wire.channel.end()
    await settle()
    forwarding.cancel()
    ended = wire.sent[len(expected) :]
    assert sorted(map(repr, (each["id"] for each in ended))) == sorted(map(repr, in_flight))
    assert all("error" in each for each in ended)
