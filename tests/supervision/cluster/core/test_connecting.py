"""How nodes find, lose and find each other again: dialling, both at once, incarnations, names, silence, and closing."""

from __future__ import annotations

import asyncio
import gc
import time
import weakref
from typing import Any

import pytest

from greenroom.supervision import (
    KILLED,
    NO_CONNECTION,
    NO_PROCESS,
    CallTimeout,
    Down,
    Exit,
    On,
    Options,
    Pid,
    ProcessExited,
    Ref,
    current_node,
    demonitor,
    exit,
    inbox,
    kill,
    link,
    monitor,
    start,
    stop,
    unlink,
    wait_down,
)
from greenroom.supervision.cluster.framing import LinkRefused
from greenroom.supervision.cluster.peers import NodeDown, NodeUp, Peering, Peers
from greenroom.supervision.cluster.remote_spawn import launch_on, start_on, whereis_on

from .two_nodes import KEY, PATIENCE, Counter, Far, here, other_node, pair, until

pytestmark = pytest.mark.greenroom(clock="real", name="one")


async def _ready(one: Peers, two: Far) -> None:
    await one.wait_for(two.name)
    await two.do(two.peers.wait_for, one.node.name)


# --- dialling


async def test_a_node_that_was_introduced_is_dialled_when_something_is_said_to_it() -> None:
    async with here() as one, other_node() as two:
        ref = await two.start(Counter, 5)
        one.introduce("two", two.peers.addresses)
        assert not one.connected
        ref.cast(Counter.add, 1)
        assert await Ref[Counter](ref.pid).call(Counter.add, 1) == 7, "in the order in which it was said"
        assert one.connected == ("two",)


async def test_after_a_loss_it_is_dialled_again_and_the_process_is_still_there() -> None:
    async with pair() as (one, _), inbox() as me:
        ref = Ref[Counter]((await start_on("two", Counter)).pid)
        seen = monitor(ref)
        link(ref)
        one.disconnect("two")
        got = [await me.receive(), await me.receive()]
        assert Down(seen, ref.pid, NO_CONNECTION) in got
        assert Exit(ref.pid, NO_CONNECTION) in got
        assert await ref.call(Counter.add) == 1, "it could not be reached, and can be again"
        again = monitor(ref)
        kill(ref)
        down = await me.receive()
        assert down.ref is again
        assert down.reason != NO_CONNECTION
        assert me.pending() == (), "what has fired once stays fired"


async def test_an_unreachable_process_is_no_connection_and_one_of_an_earlier_incarnation_is_no_process() -> None:
    async with here() as one, inbox() as me:
        async with other_node() as two:
            await one.connect(two.peers.addresses)
            old = await two.start(Counter)
        await until(lambda: not one.connected)
        with pytest.raises(ProcessExited) as caught:
            await Ref[Counter](old.pid).call(Counter.add)
        assert caught.value.reason == NO_CONNECTION
        assert await wait_down(old.pid) == NO_CONNECTION
        async with other_node() as two:
            await one.connect(two.peers.addresses)
            with pytest.raises(ProcessExited) as caught:
                await Ref[Counter](old.pid).call(Counter.add)
            assert caught.value.reason == NO_PROCESS
            seen = monitor(old.pid)
            assert await me.receive() == Down(seen, old.pid, NO_PROCESS)


async def test_items_posted_while_dialling_reach_only_the_incarnation_they_were_meant_for() -> None:
    async with here() as one, other_node() as two, inbox() as me:
        ref = await two.start(Counter)
        old = Pid("two", ref.pid.incarnation - 1, ref.pid.serial)
        one.introduce("two", two.peers.addresses)
        calls = [asyncio.create_task(Ref[Counter](pid).call(Counter.add, 1)) for pid in (old, ref.pid)]
        seen = monitor(old)
        exit(old, KeyError("for another"))
        assert await calls[1] == 1
        with pytest.raises(ProcessExited) as caught:
            await calls[0]
        assert caught.value.reason == NO_PROCESS
        assert await me.receive() == Down(seen, old, NO_PROCESS)
        assert await Ref[Counter](ref.pid).call(Counter.add, 0) == 1


async def test_a_node_that_answers_under_another_name_is_lost_at_once() -> None:
    async with here() as one, other_node("three") as three:
        one.introduce("two", three.peers.addresses)
        with pytest.raises(ProcessExited) as caught:
            await Ref[Any](On("anything", "two")).within(None).ask(1)
        assert caught.value.reason == NO_CONNECTION


async def test_an_address_without_a_listener_is_an_error_at_once() -> None:
    async with here() as one:
        for address in ("unix:@unused-address", "unix:/no/listener", "tcp:127.0.0.1:1"):
            with pytest.raises(LinkRefused, match="no node could be reached"):
                await one.connect((address,))
        for address in ("", "unix:", "tcp:", "tcp:localhost", "http://x", "tcp:h:port"):
            with pytest.raises(LinkRefused, match="not an address"):
                await one.connect((address,))
        with pytest.raises(LinkRefused, match="no address"):
            await one.connect(())
        one.introduce("two", ("unix:@unused-address",))
        calls = [asyncio.create_task(Ref[Any](Pid("two", 1, n)).within(None).ask(1)) for n in range(3)]
        for call in calls:
            with pytest.raises(ProcessExited) as caught:
                await call
            assert caught.value.reason == NO_CONNECTION


async def test_a_second_dialling_keeps_the_link_that_is_there() -> None:
    async with pair() as (one, two), inbox() as me:
        ref = await start_on("two", Counter)
        monitor(ref)
        assert await one.connect(two.peers.addresses) == "two"
        assert await two.do(two.peers.connect, one.addresses) == "one"
        assert await asyncio.gather(*(one.connect(two.peers.addresses) for _ in range(5))) == ["two"] * 5
        assert await ref.call(Counter.add) == 1
        assert me.pending() == ()
        assert len(one._links) == 1


@pytest.mark.parametrize("name", ["a-lesser", "z-greater"])
async def test_two_that_dial_each_other_at_once_keep_one_link_and_lose_nothing(name: str) -> None:
    async with other_node(name) as two:
        for _ in range(20):
            async with here() as one, inbox() as me:
                ref = await two.start(Counter)
                one.watch(Ref(me.pid))
                one.introduce(name, two.peers.addresses)

                async def dial_back(one: Peers = one) -> None:
                    two.peers.introduce("one", one.addresses)
                    await two.peers.connect(one.addresses)

                there = asyncio.create_task(two.do(dial_back))
                near = Ref[Counter](ref.pid)
                calls = [near.call(Counter.add) for _ in range(10)]
                assert await asyncio.gather(*calls) == list(range(1, 11))
                await there
                await _ready(one, two)
                assert await near.call(Counter.add) == 11
                assert me.pending() == (NodeUp(name),)
                assert one.connected == (name,)


async def test_a_flood_of_diallings_from_both_ends_makes_one_link() -> None:
    async with here() as one, other_node() as two:

        async def dial_back() -> list[str]:
            return await asyncio.gather(*(two.peers.connect(one.addresses) for _ in range(10)))

        there = asyncio.create_task(two.do(dial_back))
        assert set(await asyncio.gather(*(one.connect(two.peers.addresses) for _ in range(10)))) == {"two"}
        assert set(await there) == {"one"}
        await until(lambda: len(one._links) == 1)
        assert await (await start_on("two", Counter)).call(Counter.add) == 1


# --- incarnations and names


async def test_a_node_that_is_started_anew_takes_the_place_of_its_former_life() -> None:
    async with pair() as (one, two), inbox() as me:
        one.watch(Ref(me.pid))
        old = await start_on("two", Counter)
        gate = two.freeze()
        try:
            async with other_node() as again:
                await again.do(again.peers.connect, one.addresses)
                assert [await me.receive(), await me.receive()] == [
                    NodeDown("two", "it has connected anew"),
                    NodeUp("two"),
                ]
                assert await wait_down(old) == NO_PROCESS
                assert await (await start_on("two", Counter)).call(Counter.add) == 1
                gate.set()
                with pytest.raises(LinkRefused, match="newer life"):
                    await two.do(two.peers.connect, one.addresses)
        finally:
            gate.set()


async def test_a_link_that_the_other_end_has_lost_is_replaced() -> None:
    async with pair(heartbeat=0.05) as (one, two), inbox() as me:
        one.watch(Ref(me.pid))
        # as if the end of its socket had not arrived: the other node does not know the link any more
        await two.do(_forget_links, two)
        await two.do(two.peers.connect, one.addresses)
        events = [await me.receive(), await me.receive()]
        assert [type(event) for event in events] == [NodeDown, NodeUp]
        assert await (await start_on("two", Counter)).call(Counter.add) == 1


async def _forget_links(two: Far) -> None:
    for name, remote in tuple(two.peers._remotes.items()):
        link = remote.link
        assert link is not None
        two.peers._links[link] = None
        remote.lose()
        del two.peers._remotes[name]


async def test_two_nodes_of_one_name_are_refused() -> None:
    async with here() as one, other_node("one") as other:
        with pytest.raises(LinkRefused, match="give each node a name of its own"):
            await one.connect(other.peers.addresses)
        with pytest.raises(LinkRefused, match="give each node a name of its own"):
            await one.connect(one.addresses)


async def test_watchers_get_an_event_for_each_node() -> None:
    async with here() as one, inbox() as me:
        one.watch(Ref(me.pid))
        async with other_node() as two:
            await one.connect(two.peers.addresses)
            assert await me.receive() == NodeUp("two")
        down = await me.receive()
        assert isinstance(down, NodeDown)
        assert down.name == "two"
        one.unwatch(Ref(me.pid))
        async with other_node() as two:
            await one.connect(two.peers.addresses)
        await until(lambda: not one.connected)
        assert me.pending() == ()


async def test_waiting_for_a_node() -> None:
    async with here() as one, other_node() as two:
        with pytest.raises(CallTimeout, match="node two did not connect"):
            await one.wait_for("two", 0)
        assert one._waiting == {}
        waiting = asyncio.create_task(one.wait_for("two"))
        await one.connect(two.peers.addresses)
        await waiting
        await one.wait_for("two", 0)


# --- silence


async def judged(peers: Peers, times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait until that node has checked its heartbeats so many times."""
    left, enough, look = times, asyncio.Event(), Peers._check_heartbeats

    def counted(looking: Peers) -> None:
        nonlocal left
        look(looking)
        left -= looking is peers
        if left <= 0:
            enough.set()

    with monkeypatch.context() as patch:
        patch.setattr(Peers, "_check_heartbeats", counted)
        async with asyncio.timeout(PATIENCE):
            await enough.wait()


async def test_a_node_that_falls_silent_is_lost_and_one_that_may_be_silent_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pair(heartbeat=0.05, misses=2) as (one, two), inbox() as me:
        one.watch(Ref(me.pid))
        one.allow_silence("two", on=True)
        gate = two.freeze()
        await judged(
            one, 24, monkeypatch
        )  # as long as three losses would take: four checks a heartbeat, two heartbeats each
        assert one.connected == ("two",)
        one.allow_silence("two", on=False)
        down = await me.receive()
        assert down.name == "two"
        assert "nothing was heard of it" in down.why
        gate.set()


async def test_nodes_with_nothing_to_say_stay_connected(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(heartbeat=0.02, misses=3) as (one, _), inbox() as me:
        one.watch(Ref(me.pid))
        await judged(one, 60, monkeypatch)  # five times the allowed silence: four checks a heartbeat, three heartbeats
        assert one.connected == ("two",)
        assert me.pending() == ()


async def test_a_node_whose_own_loop_hung_gives_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair(heartbeat=0.05, misses=2) as (one, two):
        two.peers.allow_silence("one", on=True)  # it would be right to give this node up
        time.sleep(0.3)  # noqa: ASYNC251 - this node's own loop hangs
        await judged(one, 8, monkeypatch)
        assert one.connected == ("two",)


# --- references


async def test_a_remote_process_is_forgotten_when_it_is_not_held() -> None:
    async with pair() as (one, _), inbox() as me:
        remote = one._remotes["two"]
        pids = [(await start_on("two", Counter)).pid for _ in range(50)]
        for pid in pids:
            assert await Ref[Counter](pid).call(Counter.add) == 1
            Ref(pid).send("x")
        gc.collect()
        assert len(remote._proxies) == 0
        held = [monitor(pid) for pid in pids[:10]]
        for pid in pids[10:20]:
            link(pid)
        calls = [asyncio.create_task(Ref[Counter](pid).within(None).call(Counter.hold)) for pid in pids[20:30]]
        waiting = [asyncio.create_task(wait_down(pid, None)) for pid in pids[30:40]]
        await whereis_on("two", "all of it is there")
        gc.collect()
        assert len(remote._proxies) == 40, "what is monitored, linked, called and awaited is held by that alone"
        one.disconnect("two")
        assert {(await me.receive()).reason for _ in range(20)} == {NO_CONNECTION}
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(each) for each in answers} == {ProcessExited}
        assert {await each for each in waiting} == {NO_CONNECTION}
        ended = weakref.ref(remote)
        del remote, held, calls, answers, waiting
        await asyncio.sleep(0)
        gc.collect()
        assert ended() is None


async def test_nothing_is_kept_of_what_is_over() -> None:
    async with pair() as (one, two), inbox() as me:
        ref = await start_on("two", Counter)
        for _ in range(20):
            await ref.call(Counter.add)
            seen = monitor(ref)
            link(ref)
            unlink(ref)
            demonitor(seen)
        kill(ref)
        assert await wait_down(ref) in {KILLED, NO_PROCESS}
        assert await whereis_on("two", "and all is said") is None
        near = one._remotes["two"]
        assert (near.calls, near._numbers, near.armed) == ({}, {}, {})

        async def left() -> tuple[int, int]:
            remote = two.peers._remotes["one"]
            return len(remote.watches), len(remote.callers)

        assert await two.do(left) == (0, 0)
        assert me.pending() == ()


# --- the end


async def test_closing_notifies_all_watchers_and_leaves_nothing() -> None:
    async with other_node() as two, inbox() as me:
        peers = Peers(current_node(), KEY)
        peering = await start(Peering, peers)
        await peers.connect(two.peers.addresses)
        ref = await start_on("two", Counter)
        seen = monitor(ref)
        waiting = asyncio.create_task(peers.wait_for("unknown", None))
        for _ in range(100):
            ref.cast(Counter.add)
        await asyncio.sleep(0)
        await stop(peering)
        assert await me.receive() == Down(seen, ref.pid, NO_CONNECTION)
        with pytest.raises(Exception, match="closed"):
            await waiting
        assert not peers._links
        assert current_node().remote_nodes is None
        await until(lambda: not two.peers.connected)

        async def count() -> int:
            return await Ref[Counter](ref.pid).call(Counter.add, 0)

        assert await two.do(count) == 100, "what was said before it was closed has arrived"


async def test_a_link_that_is_not_read_any_more_does_not_delay_closing() -> None:
    async with other_node() as two:
        peers = Peers(current_node(), KEY, heartbeat=60)
        peering = await start(Peering, peers)
        await peers.connect(two.peers.addresses)
        ref = await start_on("two", Counter)
        gate = two.freeze()
        ref.cast(Counter.echo, bytes(20_000_000))
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            await stop(peering)
        assert not peers._links
        gate.set()


async def test_the_end_of_the_peering_is_the_end_of_its_links_however_it_ends() -> None:
    async with other_node() as two:
        peers = Peers(current_node(), KEY)
        peering = await start(Peering, peers)
        await peers.connect(two.peers.addresses)
        spawn_server = await whereis_on("one", "greenroom.spawn_server")
        assert spawn_server is not None
        kill(spawn_server)
        await wait_down(peering)
        assert current_node().remote_nodes is None
        await until(lambda: not two.peers.connected)
        peering = await start(Peering, Peers(current_node(), KEY))
        kill(peering)
        assert await wait_down(peering) in {KILLED, NO_PROCESS}
        async with here() as again:
            await again.connect(two.peers.addresses)
            assert await (await launch_on("two", Options(), Counter)).call(Counter.add) == 1
