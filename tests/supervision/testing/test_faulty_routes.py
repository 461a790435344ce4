"""`FaultyRoute` in front of a plain owner, a real server and a rogue server, on virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom import Server
from greenroom.protocol.jsonrpc import (
    JsonRpcError,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    encode_request,
    encode_result,
)
from greenroom.supervision import Exit, Inbox, Ref, Shutdown, exit, inbox
from greenroom.testing import FaultyRoute, RogueRoute
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost, ProcessDied
from greenroom.transports.client.interfaces import Inbound, InboundItem, InvalidMessage
from greenroom.transports.client.memory_route import MemoryRoute

pytestmark = pytest.mark.greenroom


async def hear(me: Inbox, count: int = 1) -> list[InboundItem]:
    """The next `count` items from a wire."""
    heard: list[InboundItem] = []
    while len(heard) < count:
        mail = await me.receive(lambda mail: isinstance(mail, Inbound | Exit), timeout=60)
        assert isinstance(mail, Inbound), mail
        heard += mail.items
    return heard


def ids(heard: list[InboundItem]) -> list[object]:
    """The ids of the responses."""
    return [each.id for each in heard if isinstance(each, JsonRpcResponse | JsonRpcError)]


def why(end: Exit) -> object:
    """The error with which the wire ended."""
    assert isinstance(end.reason, Shutdown)
    return end.reason.detail


def call(id: int, tool: str = "echo") -> bytes:
    """A call of a tool of the rogue server."""
    return encode_request(id, "tools/call", {"name": tool, "arguments": {"text": f"{id}"}})


async def test_without_rules_it_is_the_route_itself() -> None:
    server = Server("plain")
    async with server.started() as company, inbox() as me:
        rough = FaultyRoute(MemoryRoute(company))
        wire = rough.open(me.pid)
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        wire.send(encode_request(1, "initialize", hello), 1)
        (answer,) = await hear(me)
        assert isinstance(answer, JsonRpcResponse)
        assert answer.result["serverInfo"]["name"] == "plain"
        exit(wire.pid, Shutdown("done"))
        assert (await me.receive(lambda mail: isinstance(mail, Exit))).reason == Shutdown("done")


async def test_a_dropped_message_never_arrives_and_the_next_one_does() -> None:
    async with inbox() as me:
        rough = FaultyRoute(RogueRoute())
        wire = rough.open(me.pid)
        rough.out.drop("tools/call", times=1)
        rough.back.drop("ping", times=1)
        wire.send(call(1), 1)
        wire.send(encode_request(2, "ping"), 2)
        wire.send(call(3), 3)
        assert ids(await hear(me)) == [3]
        assert (rough.out.matched, rough.back.matched) == (1, 1)
        exit(wire.pid, Shutdown())


async def test_a_delayed_message_is_overtaken() -> None:
    async with inbox() as me:
        rough = FaultyRoute(RogueRoute())
        wire = rough.open(me.pid)
        rough.out.delay(5.0, times=1)
        rough.back.delay(1.0, "ping", times=1)
        wire.send(call(1), 1)
        wire.send(encode_request(2, "ping"), 2)
        wire.send(call(3), 3)
        assert ids(await hear(me, 3)) == [3, 2, 1]
        exit(wire.pid, Shutdown())


async def test_a_doubled_message_is_handled_twice_or_answered_twice() -> None:
    async with inbox() as me:
        route = RogueRoute()
        rough = FaultyRoute(route)
        wire = rough.open(me.pid)
        rough.out.double("tools/call", times=1)
        wire.send(call(1, "count"), 1)
        assert ids(await hear(me, 2)) == [1, 1]
        assert route.rogues[0].calls == 2
        rough.back.double(times=1)
        wire.send(call(2, "count"), 2)
        assert ids(await hear(me, 2)) == [2, 2]
        assert route.rogues[0].calls == 3
        exit(wire.pid, Shutdown())


async def test_a_garbled_response_is_reported_with_its_request() -> None:
    async with inbox() as me:
        rough = FaultyRoute(RogueRoute())
        wire = rough.open(me.pid)
        rough.back.garble("tools/call", times=1)
        wire.send(call(7), 7)
        (broken,) = await hear(me)
        assert isinstance(broken, InvalidMessage)
        assert broken.error.response_to == 7
        rough.out.garble(times=1)
        wire.send(call(8), 8)
        wire.send(call(9), 9)
        assert ids(await hear(me)) == [9], "what arrived garbled is no request that could be answered"
        exit(wire.pid, Shutdown())


async def order_of(seed: int) -> list[object]:
    """The order in which five shuffled responses arrive."""
    async with inbox() as me:
        rough = FaultyRoute(RogueRoute(), seed=seed)
        wire = rough.open(me.pid)
        rough.back.shuffle(5)
        for id in range(5):
            wire.send(call(id), id)
        order = ids(await hear(me, 5))
        exit(wire.pid, Shutdown())
        return order


async def test_a_seed_is_an_order() -> None:
    orders = [await order_of(seed) for seed in range(6)]
    assert all(sorted(map(str, order)) == list("01234") for order in orders)
    assert len({str(order) for order in orders}) > 1
    assert await order_of(3) == orders[3]


async def test_a_held_message_waits_until_it_is_released() -> None:
    async with inbox() as me:
        rough = FaultyRoute(RogueRoute())
        wire = rough.open(me.pid)
        rough.back.hold("tools/call")
        wire.send(call(1), 1)
        wire.send(encode_request(2, "ping"), 2)
        assert ids(await hear(me)) == [2]
        rough.clear()
        assert ids(await hear(me)) == [1]
        exit(wire.pid, Shutdown())


async def test_a_cut_wire_is_dead_and_the_next_one_is_not() -> None:
    async with inbox() as me:
        rough = FaultyRoute(RogueRoute())
        first = rough.open(me.pid)
        first.send(call(1), 1)
        await hear(me)
        rough.cut()
        end = await me.receive(lambda mail: isinstance(mail, Exit))
        assert end.pid == first.pid
        assert isinstance(why(end), ConnectionLost)
        second = rough.open(me.pid)
        second.send(call(2), 2)
        assert ids(await hear(me)) == [2]
        exit(second.pid, Shutdown())


async def test_attempts_are_refused_as_often_as_was_said() -> None:
    async with inbox() as me:
        rough = FaultyRoute(RogueRoute())
        rough.refuse(2)
        for _ in range(2):
            rough.open(me.pid)
            end = await me.receive(lambda mail: isinstance(mail, Exit))
            assert isinstance(why(end), ConnectFailed)
        third = rough.open(me.pid)
        third.send(call(1), 1)
        assert ids(await hear(me)) == [1]
        assert rough.opened == 3
        exit(third.pid, Shutdown())


async def test_the_end_of_the_real_wire_is_the_end_of_this_one_with_its_reason() -> None:
    async with inbox() as me:
        wire = FaultyRoute(RogueRoute("exits")).open(me.pid)
        wire.send(call(1), 1)
        end = await me.receive(lambda mail: isinstance(mail, Exit))
        died = why(end)
        assert isinstance(died, ProcessDied)
        assert died.status == 3


def test_a_rule_for_no_message_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or more"):
        FaultyRoute(RogueRoute()).out.drop(times=0)


async def heard_of(manner: str, count: int, **options: Any) -> list[InboundItem]:
    """The items that a rogue server sends for one call."""
    async with inbox() as me:
        wire = RogueRoute(manner, **options).open(me.pid)
        wire.send(call(1), 1)
        heard = await hear(me, count)
        exit(wire.pid, Shutdown())
        return heard


async def test_rogues_do_what_they_are_there_for() -> None:
    def results(heard: list[InboundItem]) -> list[str]:
        return [type(each).__name__ for each in heard]

    assert results(await heard_of("garbage", 3)) == ["InvalidMessage", "InvalidMessage", "JsonRpcResponse"]
    assert results(await heard_of("only-garbage", 1)) == ["InvalidMessage"]
    assert len(await heard_of("flood", 51, amount=50)) == 51
    assert len(await heard_of("flood-for-ever", 20)) >= 20
    assert ids(await heard_of("twice", 2)) == [1, 1]
    assert ids(await heard_of("late", 1, seconds=30.0)) == [1]
    assert ids(await heard_of("other-id", 2)) == [1_000_000, "1"]
    (wrong,) = await heard_of("wrong-shape", 1)
    assert isinstance(wrong, InvalidMessage)
    assert wrong.error.response_to == 1
    (huge,) = await heard_of("huge", 1, amount=5000)
    assert isinstance(huge, JsonRpcResponse)
    assert len(huge.result["content"][0]["text"]) == 5000
    asked, answer = await heard_of("asks", 2)
    assert not isinstance(asked, InvalidMessage)
    assert ids([answer]) == [1]
    assert ids(await heard_of("twice", 1, after=1)) == [1]


def test_a_manner_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="half-line"):
        RogueRoute("sulks")


async def test_rules_match_responses_as_response_and_invalid_frames_as_nothing() -> None:
    async with inbox() as me:
        rough = FaultyRoute(RogueRoute("asks"))
        rough.out.drop("response")
        wire = rough.open(me.pid)
        wire.send(call(1), 1)
        asked, _ = await hear(me, 2)
        assert isinstance(asked, JsonRpcRequest)
        wire.send(encode_result(asked.id, {}))
        wire.send(b"no message at all")
        assert (rough.out.matched, rough.back.matched) == (1, 0)
        rough.back.hold(asked.method)
        wire.send(call(2), 2)
        assert ids(await hear(me)) == [2]
        assert rough.back.matched == 1
        exit(wire.pid, Shutdown())


async def test_a_notification_that_is_garbled_is_nobodys_answer() -> None:
    async with inbox() as me:
        rough = FaultyRoute(RogueRoute("flood", amount=2))
        rough.back.garble(times=1)
        wire = rough.open(me.pid)
        wire.send(call(1), 1)
        first, second, answer = await hear(me, 3)
        assert isinstance(first, InvalidMessage)
        assert first.error.response_to is None
        assert isinstance(second, JsonRpcNotification)
        assert ids([answer]) == [1]
        exit(wire.pid, Shutdown())


async def test_attempts_are_refused_for_ever_and_for_any_reason_until_they_are_admitted() -> None:
    async with inbox() as me:
        rough = FaultyRoute(RogueRoute())
        rough.refuse(error=ConnectFailed("the line is dug up"))
        for _ in range(3):
            rough.open(me.pid)
            end = await me.receive(lambda mail: isinstance(mail, Exit))
            assert str(why(end)) == "the line is dug up"
        rough.clear()
        wire = rough.open(me.pid)
        wire.send(call(1), 1)
        assert ids(await hear(me)) == [1]
        exit(wire.pid, Shutdown())


async def test_frames_after_the_end_and_unexpected_mails_are_harmless() -> None:
    async with inbox() as me:
        rough = FaultyRoute(RogueRoute())
        wire = rough.open(me.pid)
        Ref[Any](wire.pid).send("what is this")
        wire.send(call(1), 1)
        assert ids(await hear(me)) == [1]
        rough.cut()
        await me.receive(lambda mail: isinstance(mail, Exit))
        wire.send(call(2), 2)
        wire.forget(2)
        second = rough.open(me.pid)
        second.send(call(3), 3)
        assert ids(await hear(me)) == [3]
        exit(second.pid, Shutdown())


async def test_of_very_many_requests_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("greenroom.testing.faulty_routes.MOST_METHODS", 2)
    async with inbox() as me:
        rough = FaultyRoute(RogueRoute())
        rough.out.hold("tools/call")
        rough.back.drop("tools/call")
        wire = rough.open(me.pid)
        for id in range(3):
            wire.send(call(id), id)
        rough.out.release()
        assert ids(await hear(me)) == [0], "the other two are known for what they answer, and dropped"
        exit(wire.pid, Shutdown())
