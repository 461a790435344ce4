"""Updates: several bounded readers share one subscription, which is renewed after each handshake; gaps are reported."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from greenroom.actors.client.connection_line import ConnectionLine, connection_spec
from greenroom.actors.client.errors import Unsupported
from greenroom.actors.client.handshake import RestoreRefused
from greenroom.actors.client.interfaces import Phase, ServerNotification
from greenroom.protocol.errors import PeerError
from greenroom.protocol.jsonrpc import JsonRpcNotification
from greenroom.supervision import Report, current_node, kill, wait_down
from greenroom.transports.client.errors import ConnectionLost
from greenroom.transports.client.interfaces import StreamGap

from .client_helpers import phase, playing
from .fake_server import After, Stage

if TYPE_CHECKING:
    from greenroom.actors.client.interfaces import Updates

UPDATED = "notifications/resources/updated"


def updated(uri: str) -> JsonRpcNotification:
    return JsonRpcNotification(UPDATED, {"uri": uri})


async def take(updates: Updates, count: int) -> list[ServerNotification]:
    found: list[ServerNotification] = []
    async for told in updates:
        found.append(told)
        if len(found) == count:
            break
    return found


def stage() -> Stage:
    made = Stage()
    made.answers |= {"resources/subscribe": {}, "resources/unsubscribe": {}, "logging/setLevel": {}}
    return made


@pytest.mark.row("CL-12", "CL-23")
async def test_several_readers_of_one_resource_and_the_server_asked_once() -> None:
    async with playing(stage()) as (line, played):
        async with line.subscribe("a:1") as one, line.subscribe("a:1") as two, line.subscribe("a:2") as other:
            played.wire.say(updated("a:1"), updated("a:2"), updated("a:3"))
            assert await take(one, 1) == await take(two, 1) == [ServerNotification(UPDATED, {"uri": "a:1"})]
            assert await take(other, 1) == [ServerNotification(UPDATED, {"uri": "a:2"})]
            assert [each.params["uri"] for each in played.asked("resources/subscribe")] == ["a:1", "a:2"]
        assert [each.params["uri"] for each in played.asked("resources/unsubscribe")] == ["a:2", "a:1"]


async def test_concurrent_subscribers_share_one_subscribe_request() -> None:
    played = stage()
    played.answers["resources/subscribe"] = After(1.0, {})

    async with playing(played) as (line, _):

        async def read() -> float:
            async with line.subscribe("a:1"):
                return asyncio.get_running_loop().time()

        assert await asyncio.gather(*(read() for _ in range(5))) == [pytest.approx(1.0)] * 5
        assert len(played.asked("resources/subscribe")) == 1
        assert len(played.asked("resources/unsubscribe")) == 1


async def test_a_subscription_that_is_refused_leaves_nothing() -> None:
    played = stage()
    played.answers["resources/subscribe"] = PeerError(-32002, "no such thing")
    async with playing(played) as (line, _):
        with pytest.raises(PeerError):
            async with line.subscribe("a:1"):
                pytest.fail("it was refused")
        assert line.readers.by_uri == {}
        assert not line.readers.granted
    async with playing(Stage(capabilities={"resources": {}})) as (line, _):
        with pytest.raises(Unsupported):
            async with line.subscribe("a:1"):
                pytest.fail("it was refused")


@pytest.mark.row("CL-12", "CL-13")
async def test_after_a_loss_the_level_and_the_subscriptions_are_restored_and_the_gap_is_told() -> None:
    async with playing(stage()) as (line, played):
        await line.request("logging/setLevel", {"level": "warning"})
        async with line.subscribe("a:1") as one, line.listen("notifications/message") as log:
            await played.wire.break_off(ConnectionLost("cut"))
            await phase(line, Phase.READY, lambda status: status.generation == 2)
            await played.wire.hears("resources/subscribe")
            assert [each.params for each in played.asked("logging/setLevel")] == [{"level": "warning"}] * 2
            assert [each.params for each in played.asked("resources/subscribe")] == [{"uri": "a:1"}] * 2
            played.wire.say(updated("a:1"), JsonRpcNotification("notifications/message", {"level": "error", "data": 1}))
            first, second = await take(one, 2)
            assert (first.gap, second.params) == (True, {"uri": "a:1"})
            assert [told.gap for told in await take(log, 2)] == [True, False]


async def test_a_subscription_that_is_not_restored_is_reported() -> None:
    reports: list[Report] = []
    current_node().reports.subscribe(reports.append)
    async with playing(stage()) as (line, played), line.subscribe("a:1") as one:
        played.answers["resources/subscribe"] = PeerError(-32002, "no such thing")
        await played.wire.break_off(ConnectionLost("cut"))
        assert [told.gap for told in await take(one, 1)] == [True]
        await line.request("ping")
        assert [report.method for report in reports if isinstance(report, RestoreRefused)] == ["resources/subscribe"]


async def test_a_reader_that_does_not_read_finds_a_gap() -> None:
    async with playing(stage(), max_updates=4) as (line, played), line.listen("n") as updates:
        for number in range(100):
            played.wire.say(JsonRpcNotification("n", {"n": number}))
        await line.request("ping")
        found = await take(updates, 4)
        assert found[0].gap
        assert [told.params["n"] for told in found[1:]] == [97, 98, 99]


async def test_a_stream_that_was_cut_is_a_gap_for_all() -> None:
    async with playing(stage()) as (line, played), line.listen() as everything, line.listen("a", "b") as some:
        played.wire.say(
            JsonRpcNotification("a", {}),
            JsonRpcNotification("c", {}),
            StreamGap("cut"),
            StreamGap("cut"),
            JsonRpcNotification("b", {}),
        )
        assert [told.method for told in await take(everything, 4)] == ["a", "c", "", "b"]
        assert [told.method for told in await take(some, 3)] == ["a", "", "b"]


async def test_readers_end_with_the_client() -> None:
    async with playing(stage()) as (line, played), line.listen() as updates:
        played.wire.say(JsonRpcNotification("last", {}))
        await line.request("ping")
        await line.close()
        assert [told.method async for told in updates] == ["last"]


@pytest.mark.row("CL-12")
@pytest.mark.parametrize("how", ["closed", "killed"])
async def test_readers_of_a_closed_connection_end_whenever_they_began(how: str) -> None:
    async with playing(stage()) as (line, _), line.listen() as before:
        if how == "killed":
            assert line.pid is not None
            kill(line.pid)
            await wait_down(line.pid)
        else:
            await line.close()
        async with line.listen() as after, asyncio.timeout(1.0):
            assert await take(before, 1) == await take(after, 1) == []


@pytest.mark.row("CL-12")
async def test_closing_a_line_that_is_between_two_connections_ends_its_readers() -> None:
    line = ConnectionLine("git")
    connection_spec(stage(), line=line)
    async with line.listen() as updates:
        await line.close()
        async with asyncio.timeout(1.0):
            assert await take(updates, 1) == []


async def test_a_reader_without_its_block_listens_for_as_long_as_its_loop_lasts() -> None:
    async with playing(stage()) as (line, played):
        news = line.listen("notifications/tools/list_changed")
        heard = asyncio.ensure_future(anext(aiter(news)))
        await asyncio.sleep(0)
        played.wire.say(JsonRpcNotification("notifications/tools/list_changed", {}))
        assert (await heard).method == "notifications/tools/list_changed"

        subscription = line.subscribe("a:1")
        reading = aiter(subscription)
        heard = asyncio.ensure_future(anext(reading))
        await played.wire.hears("resources/subscribe")
        await asyncio.sleep(0)
        played.wire.say(updated("a:1"))
        assert (await heard).params == {"uri": "a:1"}
        await reading.aclose()  # type: ignore[attr-defined]
        await played.wire.hears("resources/unsubscribe")
