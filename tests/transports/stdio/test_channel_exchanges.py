"""Requests that name their revision, on a channel that a session may share: each line is judged by itself."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.envelope import SUBSCRIPTION_ID_KEY
from greenroom.protocol.jsonrpc import JsonRpcNotification, encode_notification, encode_result
from greenroom.transports.interfaces import Peer
from greenroom.transports.session_channel import MemoryPeer, SessionChannel

from .fake_sessions import FakeSessionRouter, enveloped, line, until

if TYPE_CHECKING:
    from collections.abc import Sequence


class Wire:
    """A channel whose output is a list, and stays unread while it is closed."""

    def __init__(self, router: FakeSessionRouter) -> None:
        self.sent: list[dict[str, Any]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.waiting = 0
        self.channel = SessionChannel(router, Peer("memory"), self.send)

    async def send(self, messages: Sequence[bytes]) -> None:
        self.waiting += 1
        await self.open.wait()
        self.waiting -= 1
        self.sent += [json.loads(each) for each in messages]

    async def say(self, *lines: bytes) -> None:
        for each in lines:
            await self.channel.receive(each)

    async def hears(self, count: int) -> list[dict[str, Any]]:
        """All that was sent, when it is so much."""
        await until(lambda: len(self.sent) >= count)
        return self.sent


def ids(messages: list[dict[str, Any]]) -> list[Any]:
    return [each.get("id") for each in messages]


def code(message: dict[str, Any]) -> int:
    found: int = message["error"]["code"]
    return found


async def settle() -> None:
    """Let everything happen that can."""
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.row("26-V8")
@pytest.mark.row("26-M17")
async def test_each_line_is_judged_by_itself_and_both_eras_are_served_at_once() -> None:
    router = FakeSessionRouter()
    async with MemoryPeer(router) as wire:
        await wire.send(enveloped("echo", 1, text="new"))
        assert [json.loads(each)["result"] for each in await wire.receive()] == [{"echo": "new"}]
        assert router.sessions == []
        await wire.send(line("echo", 2, text="old"))
        assert [json.loads(each)["result"] for each in await wire.receive()] == [{"echo": {"text": "old"}}]
        await wire.send(enveloped("echo", 3, text="new again"))
        assert [json.loads(each)["id"] for each in await wire.receive()] == [3]
        assert [each.id for each in router.sessions[0].requests] == [2]
        assert [each.id for each in router.exchanged] == [1, 3]


@pytest.mark.row("26-M14")
async def test_a_line_whose_id_cannot_be_read_gets_an_error_without_one_until_a_session_begins() -> None:
    async with MemoryPeer(FakeSessionRouter()) as wire:
        for said, null in (
            (None, True),
            (enveloped("echo", 1, text="new"), False),
            (line("echo", 2, text="old"), True),
        ):
            if said is not None:
                await wire.send(said)
                await wire.receive()
            await wire.send(b'{"jsonrpc": "2.0", "id": 3, "method": ')
            (refusal,) = [json.loads(each) for each in await wire.receive()]
            assert refusal["error"]["code"] == -32700
            assert ("id" in refusal) is null


async def test_calls_interleave_and_none_waits_for_another() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("hold", 1), enveloped("hold", "two"), enveloped("echo", 3, text="quick"))
    assert ids(await wire.hears(1)) == [3]
    router.held["two"].set_result(encode_result("two", {}))
    assert ids(await wire.hears(2)) == [3, "two"]
    assert wire.channel.pending == 1
    router.held[1].set_result(encode_result(1, {}))
    assert ids(await wire.hears(3)) == [3, "two", 1]
    assert wire.channel.pending == 0


@pytest.mark.row("26-S2")
async def test_a_cancelled_call_is_stopped_and_nothing_more_is_sent_for_it() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("hold", 1), enveloped("feed", "1"))
    await until(lambda: bool(router.held) and bool(router.feeds))
    await wire.say(enveloped("notifications/cancelled", requestId="1", reason="enough"))
    router.feeds[0].push(encode_notification("said", {}))
    await wire.say(line("notifications/cancelled", requestId=1))
    await settle()
    assert router.cancelled == [1]
    assert router.feeds[0].left == 1
    assert wire.sent == []
    assert wire.channel.session is None
    await wire.say(enveloped("echo", 1), enveloped("echo", "1"))
    assert ids(await wire.hears(2)) == [1, "1"]


@pytest.mark.row("26-S2")
async def test_a_reply_that_waits_for_the_peer_to_read_is_dropped_when_its_request_is_cancelled() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    wire.open.clear()
    await wire.say(enveloped("echo", 1), enveloped("echo", 2), enveloped("echo", 3))
    await settle()
    await wire.say(enveloped("notifications/cancelled", requestId=2))
    wire.open.set()
    await wire.hears(2)
    await settle()
    assert ids(wire.sent) == [1, 3]


async def test_a_request_that_is_cancelled_before_it_has_begun_leaves_nothing() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("echo", 1), enveloped("notifications/cancelled", requestId=1), enveloped("echo", 1))
    await settle()
    assert ids(wire.sent) == [1]
    assert wire.channel.pending == 0
    assert await wire.channel.wait_settled(1)


@pytest.mark.parametrize("odd", [None, True, 1.0, [1], {"id": 1}])
async def test_a_cancellation_whose_id_is_none_cancels_nothing(odd: Any) -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("hold", 1))
    await until(lambda: bool(router.held))
    await wire.say(enveloped("notifications/cancelled", requestId=odd), line("notifications/cancelled", requestId=odd))
    await settle()
    assert router.cancelled == []
    assert wire.channel.pending == 1
    wire.channel._exchanges.cancel(1)
    await settle()


@pytest.mark.row("26-M2")
async def test_an_id_in_flight_is_refused_in_both_eras_whichever_has_it() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("hold", 1), line("hold", 2))
    forwarding = asyncio.create_task(wire.channel.forward_replies())
    await until(lambda: bool(router.held) and bool(router.sessions))
    await wire.say(enveloped("echo", 1), line("echo", 1), enveloped("echo", 2))
    assert ids(await wire.hears(3)) == [1, 1, 2]
    assert {code(each) for each in wire.sent} == {-32600}
    assert "in use" in wire.sent[0]["error"]["message"]
    await wire.say(enveloped("echo", "1"), enveloped("echo", "2"))  # other ids than the numbers
    assert ids(await wire.hears(5))[3:] == ["1", "2"]
    router.held[1].set_result(encode_result(1, {}))
    assert ids(await wire.hears(6))[5:] == [1]
    await wire.channel.end()
    forwarding.cancel()


async def test_a_cancellation_of_a_request_of_the_session_goes_there_whatever_its_envelope() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("echo", 9), line("hold", 1), line("hold", 2))
    await wire.say(line("notifications/cancelled", requestId=1), enveloped("notifications/cancelled", requestId=2))
    await wire.say(enveloped("notifications/cancelled", requestId=3), enveloped("notifications/odd"))
    heard = [each for each in router.sessions[0].heard if isinstance(each, JsonRpcNotification)]
    assert [each.params["requestId"] for each in heard] == [1, 2]
    await wire.channel.end()


@pytest.mark.parametrize("odd", [None, True, 1.0, [1], {"id": 1}])
async def test_a_cancellation_without_an_id_in_a_channel_with_a_session_goes_nowhere(odd: Any) -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(line("echo", 1), enveloped("echo", 2))
    await wire.say(enveloped("notifications/cancelled", requestId=odd))
    assert [each for each in router.sessions[0].heard if isinstance(each, JsonRpcNotification)] == []
    await wire.channel.end()


async def test_no_session_begins_for_notifications_of_a_peer_that_has_none() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("notifications/cancelled", requestId=1))
    await wire.say(enveloped("echo", 1))
    await wire.hears(1)
    await wire.say(line("notifications/cancelled", requestId=1))
    assert router.sessions == []
    await wire.say(line("notifications/initialized"))
    assert len(router.sessions) == 1
    await wire.channel.end()


@pytest.mark.row("26-L4")
@pytest.mark.row("26-L5")
@pytest.mark.row("26-L6")
@pytest.mark.row("26-S4")
async def test_listens_interleave_and_each_ends_with_its_result_and_a_cancellation() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("subscriptions/listen", 1), enveloped("subscriptions/listen", "1"), enveloped("echo", 2))
    assert ids(await wire.hears(1)) == [2]
    first, second = router.feeds
    second.push(encode_notification("changed", {"by": "second"}))
    await wire.hears(2)
    first.push(encode_notification("changed", {"by": "first"}))
    await wire.hears(3)
    assert [each["params"]["by"] for each in wire.sent[1:]] == ["second", "first"]
    assert wire.channel.pending == 0  # no reply of theirs is due
    assert await wire.channel.wait_settled(1)
    # In this order: clients that read the cancellation first take the listen for lost, and the result for a stray.
    for id, (result, told) in zip((1, "1"), (wire.sent[3:5], wire.sent[5:7]), strict=True):
        assert told["method"] == "notifications/cancelled"
        assert told["params"]["requestId"] == id
        assert told["params"]["_meta"] == {SUBSCRIPTION_ID_KEY: id}
        assert result == {"jsonrpc": "2.0", "id": id, "result": {"finished": True}}
    assert len(wire.sent) == 7
    assert [feed.left for feed in router.feeds] == [1, 1]


@pytest.mark.row("26-S2")
async def test_a_listen_that_its_client_cancels_ends_without_a_word() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("subscriptions/listen", 1))
    await until(lambda: bool(router.feeds))
    await wire.say(enveloped("notifications/cancelled", requestId=1))
    await settle()
    assert wire.sent == []
    assert router.feeds[0].left == 1


async def test_a_listen_whose_process_has_died_ends_with_an_error_that_says_what_to_do() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("subscriptions/listen", 1))
    await until(lambda: bool(router.feeds))
    router.feeds[0].end()
    error, told = await wire.hears(2)
    assert (told["method"], told["params"]["requestId"]) == ("notifications/cancelled", 1)
    assert (error["id"], code(error)) == (1, -32603)
    assert "listen again" in error["error"]["message"]
    assert wire.channel._exchanges.settled.is_set() or await wire.channel.wait_settled(1)


async def test_a_listen_that_begins_while_the_channel_ends_is_finished_at_once() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("subscriptions/listen", 1))
    assert router.feeds == []  # it has not begun
    assert await wire.channel.wait_settled(1)
    assert ids(wire.sent) == [1, None]


async def test_more_requests_than_the_bound_are_refused_and_those_of_both_eras_count() -> None:
    router = FakeSessionRouter(max_in_flight=3)
    wire = Wire(router)
    await wire.say(line("hold", "s"), enveloped("hold", 1), enveloped("subscriptions/listen", 2))
    await until(lambda: bool(router.held) and bool(router.feeds))
    await wire.say(enveloped("echo", 3), line("echo", 4))
    refused = await wire.hears(2)
    assert ids(refused) == [3, 4]
    for each in refused:
        assert code(each) == -32603
        assert each["error"]["message"] == "Too many requests at once: at most 3 may be in flight"
        assert each["error"]["data"] == {"reason": "too_many_requests", "maybe_done": False}
    await wire.say(enveloped("notifications/cancelled", requestId=1), enveloped("echo", 3))
    assert "result" in (await wire.hears(3))[2]
    await wire.channel.end()


async def test_a_peer_that_reads_nothing_is_made_to_wait_and_loses_no_reply() -> None:
    router = FakeSessionRouter(max_in_flight=4)
    wire = Wire(router)
    wire.open.clear()
    saying = asyncio.create_task(wire.say(*(enveloped("echo", number) for number in range(50))))
    await settle()
    assert len(router.exchanged) == 5
    assert wire.waiting == 1  # one reply is being sent, and four wait for that
    assert not saying.done()
    wire.open.set()
    await saying
    assert ids(await wire.hears(50)) == list(range(50))


async def test_a_feed_is_not_read_while_the_peer_does_not_read() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    wire.open.clear()
    await wire.say(enveloped("feed", 1))
    await until(lambda: bool(router.feeds))
    feed = router.feeds[0]
    for number in range(10):
        feed.push(encode_notification("said", {"number": number}))
        await settle()
    assert feed.taken == 1
    feed.push(encode_result(1, {}), 1)
    wire.open.set()
    await wire.hears(11)
    assert [each["params"]["number"] for each in wire.sent[:10]] == list(range(10))
    assert wire.sent[10]["id"] == 1
    feed.end()
    await until(lambda: feed.left == 1)


async def test_what_is_in_flight_at_the_end_gets_an_error_and_its_work_stops() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("hold", 1), enveloped("hold", 2))
    await until(lambda: len(router.held) == 2)
    assert not await wire.channel.wait_settled(0.01)
    await wire.channel.end()
    assert await wire.channel.wait_settled(1)
    assert [(each["id"], code(each)) for each in wire.sent] == [(1, -32603), (2, -32603)]
    assert sorted(router.cancelled, key=str) == [1, 2]
    assert wire.channel.pending == 0


async def test_an_exchange_that_ends_without_a_reply_frees_its_id() -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("nothing", 1))
    await settle()
    assert (wire.sent, wire.channel.pending) == ([], 0)
    await wire.say(enveloped("echo", 1))
    assert ids(await wire.hears(1)) == [1]


async def test_an_unexpected_error_is_an_internal_error_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    router = FakeSessionRouter()
    wire = Wire(router)
    await wire.say(enveloped("break", 1))
    (reply,) = await wire.hears(1)
    assert (reply["id"], code(reply)) == (1, -32603)
    assert "secret" not in json.dumps(reply)
    assert "secret" in caplog.text


async def test_an_output_without_a_reader_is_no_error_of_a_request(caplog: pytest.LogCaptureFixture) -> None:
    async def send(_messages: Sequence[bytes]) -> None:
        raise BrokenPipeError

    router = FakeSessionRouter()
    channel = SessionChannel(router, Peer("memory"), send)
    with caplog.at_level(logging.DEBUG):
        await channel.receive(enveloped("echo", 1))
        assert await channel.wait_settled(1)
    assert (channel.pending, caplog.text) == (0, "")
