"""Servers on other nodes: stop, calls, multi-calls and casts, with reachable and unreachable nodes.

A global name is a key of a `Registry` on the node that asks; the nodes are real ones, with real links between them.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.supervision.cluster.core import two_nodes

from greenroom.supervision import (
    KILLED,
    NO_CONNECTION,
    NO_PROCESS,
    ActorError,
    CallTimeout,
    NotRegistered,
    On,
    Options,
    ProcessExited,
    Ref,
    Registry,
    abcast,
    inbox,
    is_alive,
    kill,
    multi_call,
    send,
    start,
    stop,
    via,
    wait_down,
    whereis,
)
from greenroom.supervision.cluster import framing as sealing
from greenroom.supervision.cluster.framing import Greeting, LinkRefused
from greenroom.supervision.cluster.peers import Peers
from greenroom.supervision.cluster.remote_spawn import launch_on, start_on, whereis_on

from .servers import Subject

pytestmark = pytest.mark.greenroom(clock="real", name="one")

NAME = "my_test_name"


def at(node: str) -> Ref[Subject]:
    """By name and node."""
    return Ref(On(NAME, node))


async def gone(who: Any, reason: object) -> None:
    """The error of a missing process, with its reason."""
    with pytest.raises(ProcessExited) as caught:
        await stop(who)
    assert caught.value.reason == reason


async def unanswered(who: Ref[Subject], *reasons: object) -> None:
    """The same, of a call."""
    with pytest.raises(ProcessExited) as caught:
        await who.call(Subject.ping)
    assert caught.value.reason in reasons


# --- stop


@pytest.mark.otp("gen_server_SUITE", "stop8")
async def test_a_server_of_another_node_is_stopped_by_its_pid() -> None:
    async with two_nodes.here() as one:
        async with two_nodes.other_node() as two:
            await one.connect(two.peers.addresses)
            ref = await start_on("two", Subject)
            await stop(ref)
            assert await wait_down(ref) == NO_PROCESS
            await gone(ref, NO_PROCESS)
            left = await start_on("two", Subject)
        await gone(left, NO_CONNECTION)


@pytest.mark.otp("gen_server_SUITE", "stop9")
async def test_a_server_of_another_node_is_stopped_by_its_name() -> None:
    async with two_nodes.here() as one:
        async with two_nodes.other_node() as two:
            await one.connect(two.peers.addresses)
            ref = await launch_on("two", Options(name=NAME), Subject)
            await stop(at("two"))
            assert await whereis_on("two", NAME) is None
            assert await wait_down(ref) == NO_PROCESS
            await gone(at("two"), NO_PROCESS)
        await gone(at("two"), NO_CONNECTION)


@pytest.mark.otp("gen_server_SUITE", "stop10")
async def test_a_server_of_another_node_is_stopped_by_its_name_in_a_registry() -> None:
    async with two_nodes.here() as one:
        async with two_nodes.other_node() as two:
            await one.connect(two.peers.addresses)
            registry = await start(Registry)
            name = via(registry, NAME)
            ref = await start_on("two", Subject)
            await registry.call(Registry.register, NAME, ref.pid)
            assert whereis(name) == ref.pid
            await stop(name)
            assert await registry.call(Registry.lookup, NAME) == []
            with pytest.raises(NotRegistered):
                await stop(name)
            again = await start_on("two", Subject)
            await registry.call(Registry.register, NAME, again.pid)
        assert await wait_down(again) == NO_CONNECTION
        assert await registry.call(Registry.lookup, NAME) == []
        with pytest.raises(NotRegistered):
            await stop(name)


# --- call


@pytest.mark.otp("gen_server_SUITE", "call_remote1")
async def test_a_name_in_a_registry_whose_server_on_another_node_has_died() -> None:
    async with two_nodes.pair():
        registry = await start(Registry)
        ref = await start_on("two", Subject)
        await registry.call(Registry.register, NAME, ref.pid)
        name: Ref[Subject] = Ref(via(registry, NAME))
        assert await name.call(Subject.started) == "ok"
        kill(ref)
        await unanswered(
            name, KILLED, NO_PROCESS
        )  # the registry's monitor may tell of the end before the call comes back


@pytest.mark.otp("gen_server_SUITE", "call_remote2")
async def test_a_pid_whose_server_on_another_node_has_died() -> None:
    async with two_nodes.pair():
        ref = await start_on("two", Subject)
        assert await ref.call(Subject.started) == "ok"
        kill(ref)
        await unanswered(ref, NO_PROCESS)


@pytest.mark.otp("gen_server_SUITE", "call_remote3")
async def test_a_name_on_another_node_whose_server_has_died() -> None:
    async with two_nodes.pair():
        ref = await launch_on("two", Options(name=NAME), Subject)
        assert await at("two").call(Subject.started) == "ok"
        kill(ref)
        await unanswered(at("two"), NO_PROCESS)


@pytest.mark.otp("gen_server_SUITE", "call_remote_n1")
async def test_a_name_in_a_registry_whose_node_is_gone() -> None:
    async with two_nodes.here() as one:
        registry = await start(Registry)
        name: Ref[Subject] = Ref(via(registry, NAME))
        async with two_nodes.other_node() as two:
            await one.connect(two.peers.addresses)
            ref = await start_on("two", Subject)
            await registry.call(Registry.register, NAME, ref.pid)
            assert await name.call(Subject.started) == "ok"
        assert await wait_down(ref) == NO_CONNECTION
        assert await registry.call(Registry.lookup, NAME) == []
        with pytest.raises(NotRegistered):
            await name.call(Subject.ping)


@pytest.mark.otp("gen_server_SUITE", "call_remote_n2")
async def test_a_pid_whose_node_is_gone() -> None:
    async with two_nodes.here() as one:
        async with two_nodes.other_node() as two:
            await one.connect(two.peers.addresses)
            ref = await start_on("two", Subject)
        await unanswered(ref, NO_CONNECTION)


@pytest.mark.otp("gen_server_SUITE", "call_remote_n3")
async def test_a_name_on_a_node_that_is_gone() -> None:
    async with two_nodes.here() as one:
        async with two_nodes.other_node() as two:
            await one.connect(two.peers.addresses)
            await launch_on("two", Options(name=NAME), Subject)
            assert await at("two").call(Subject.started) == "ok"
        await unanswered(at("two"), NO_CONNECTION)


# --- cast


@pytest.mark.otp("gen_server_SUITE", "cast_fast")
async def test_casting_to_a_node_that_never_comes_up_waits_for_nothing() -> None:
    async with two_nodes.here() as one:
        begun = time.perf_counter()
        for _ in range(1000):
            assert not at("nowhere").cast(Subject.ping)
        # A node that has an address, and at that address a peer that says nothing.
        one.introduce("mute", ("tcp:192.0.2.1:9",))
        for _ in range(1000):
            assert at("mute").cast(Subject.ping)
        abcast([at("nowhere"), at("mute")], Subject.ping)
        assert time.perf_counter() - begun < 1


# --- several at once


@pytest.mark.otp("gen_server_SUITE", "multicall_remote")
async def test_servers_of_one_name_on_five_nodes_are_asked_at_once() -> None:
    async with two_nodes.here() as one, AsyncExitStack() as stack:
        names = [f"node{number}" for number in range(5)]
        for name in names:
            two = await stack.enter_async_context(two_nodes.other_node(name))
            await one.connect(two.peers.addresses)
            await launch_on(name, Options(name=NAME), Subject)
        refs = [at(name) for name in names]
        answers = await multi_call(refs, Subject.started)
        assert list(answers.replies.items()) == [(ref, "ok") for ref in refs]
        assert answers.missing == {}
        answers = await multi_call(refs, Subject.delayed_answer, 0.05)
        assert set(answers.replies.values()) == {"delayed"}
        stopped = await multi_call(refs, Subject.stop)
        assert list(stopped.replies.values()) == ["ok"] * 5
        for name in names:
            while await whereis_on(name, NAME) is not None:
                pass
        answers = await multi_call(refs, Subject.started)
        assert answers.replies == {}
        assert [type(error) for error in answers.missing.values()] == [NotRegistered] * 5


@pytest.mark.otp("gen_server_SUITE", "multicall_down")
async def test_an_unreachable_node_is_missing_and_delays_no_other() -> None:
    async with two_nodes.pair() as (one, _):
        await launch_on("two", Options(name=NAME), Subject)
        one.introduce("down", ("unix:@missing",))
        begun = time.perf_counter()
        refs = [at("down"), at("two"), at("unheard-of")]
        answers = await multi_call(refs, Subject.started)
        assert time.perf_counter() - begun < 2.5
        assert answers.replies == {at("two"): "ok"}
        assert list(answers.missing) == [at("down"), at("unheard-of")]
        for error in answers.missing.values():
            assert isinstance(error, ProcessExited)
            assert error.reason == NO_CONNECTION


@pytest.mark.otp("gen_server_SUITE", "multicall_remote_old1")
@pytest.mark.otp("gen_server_SUITE", "multicall_remote_old2")
@pytest.mark.parametrize("older", [1, 2])
async def test_a_node_of_another_version_is_refused_in_words_and_is_missing(older: int) -> None:
    class Older(Peers):
        def greet(self) -> tuple[bytes, Greeting]:
            key, mine = super().greet()
            return key, Greeting(sealing.VERSION - older, *tuple(mine.__getattribute__(name) for name in FIELDS))

    async with (
        two_nodes.here() as one,
        two_nodes.other_node("now") as now,
        two_nodes.other_node("old", peers=Older) as old,
    ):
        await one.connect(now.peers.addresses)
        for node in ("now", "old"):
            await (now if node == "now" else old).do(_named, Subject)
        with pytest.raises(
            LinkRefused, match=rf"'old' speaks version {sealing.VERSION - older} .* run the same version"
        ):
            await one.connect(old.peers.addresses)
        with pytest.raises(LinkRefused):
            await old.do(old.peers.connect, one.addresses)
        one.introduce("old", old.peers.addresses)
        answers = await multi_call([at("now"), at("old")], Subject.started)
        assert answers.replies == {at("now"): "ok"}
        (error,) = answers.missing.values()
        assert isinstance(error, ProcessExited)
        assert error.reason == NO_CONNECTION


FIELDS = Greeting.__struct_fields__[1:]


async def _named(server: type[Subject]) -> None:
    await Options(name=NAME).start(server)


@pytest.mark.otp("gen_server_SUITE", "multicall_recv_opt_success")
@pytest.mark.otp("gen_server_SUITE", "multicall_recv_opt_timeout")
@pytest.mark.otp("gen_server_SUITE", "multicall_recv_opt_noconnection")
@pytest.mark.parametrize("outcome", ["success", "timeout", "noconnection"])
async def test_a_long_mailbox_makes_the_asking_of_several_no_slower(outcome: str) -> None:
    async with two_nodes.pair() as (one, two), two_nodes.other_node("three") as three, inbox() as me:
        await one.connect(three.peers.addresses)
        refs = [at("two"), at("three")]
        for node in ("two", "three"):
            await launch_on(node, Options(name=NAME), Subject)
        if outcome == "noconnection":
            await three.do(three.peers.close)
            await two_nodes.until(lambda: one.connected == ("two",))
            one.forget("three")

        async def ask() -> float:
            begun = time.perf_counter()
            if outcome == "timeout":
                answers = await multi_call([ref.within(0) for ref in refs], Subject.keep)
                assert [type(error) for error in answers.missing.values()] == [CallTimeout] * 2
            else:
                answers = await multi_call(refs, Subject.started)
                assert len(answers.replies) == (2 if outcome == "success" else 1)
                assert all(isinstance(error, ActorError) for error in answers.missing.values())
            return time.perf_counter() - begun

        empty = min([await ask() for _ in range(20)])
        for number in range(100_000):
            send(me.pid, number)
        full = min([await ask() for _ in range(20)])
        assert full < 10 * empty + 0.001, "answers do not pass the mailbox, so it is not searched for them"
        assert len(me.pending()) == 100_000
        assert two.name == "two"
        assert is_alive(at("two"))
