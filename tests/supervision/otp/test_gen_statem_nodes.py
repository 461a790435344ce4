"""State machines on another node, stopped while it is reachable and after it was lost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.supervision.cluster.core import two_nodes

from greenroom.supervision import (
    NO_CONNECTION,
    NO_PROCESS,
    NotRegistered,
    On,
    Options,
    ProcessExited,
    Registry,
    start,
    stop,
    via,
    wait_down,
    whereis,
)
from greenroom.supervision.cluster.remote_spawn import launch_on, start_on, whereis_on

from .machines import STYLES

pytestmark = [
    pytest.mark.greenroom(clock="real", name="one"),
    pytest.mark.parametrize("style", STYLES),
]

NAME = "to_stop"


async def gone(who: Any, reason: object) -> None:
    """The error of a missing process, with its reason."""
    with pytest.raises(ProcessExited) as caught:
        await stop(who)
    assert caught.value.reason == reason


@pytest.mark.otp("gen_statem_SUITE", "stop8")
async def test_a_machine_of_another_node_is_stopped_by_its_pid(style: type[Any]) -> None:
    async with two_nodes.here() as one:
        async with two_nodes.other_node() as two:
            await one.connect(two.peers.addresses)
            ref = await start_on("two", style)
            await stop(ref)
            assert await wait_down(ref) == NO_PROCESS
            await gone(ref, NO_PROCESS)
            left = await start_on("two", style)
        await gone(left, NO_CONNECTION)


@pytest.mark.otp("gen_statem_SUITE", "stop9")
async def test_a_machine_of_another_node_is_stopped_by_its_name(style: type[Any]) -> None:
    async with two_nodes.here() as one:
        async with two_nodes.other_node() as two:
            await one.connect(two.peers.addresses)
            await launch_on("two", Options(name=NAME), style)
            await stop(On(NAME, "two"))
            assert await whereis_on("two", NAME) is None
            await gone(On(NAME, "two"), NO_PROCESS)
        await gone(On(NAME, "two"), NO_CONNECTION)


@pytest.mark.otp("gen_statem_SUITE", "stop10")
async def test_a_machine_of_another_node_is_stopped_by_its_name_in_a_registry(style: type[Any]) -> None:
    async with two_nodes.here() as one:
        async with two_nodes.other_node() as two:
            await one.connect(two.peers.addresses)
            registry = await start(Registry)
            name = via(registry, NAME)
            ref = await start_on("two", style)
            await registry.call(Registry.register, NAME, ref.pid)
            assert whereis(name) == ref.pid
            await stop(name)
            assert await registry.call(Registry.lookup, NAME) == []
            with pytest.raises(NotRegistered):
                await stop(name)
            again = await start_on("two", style)
            await registry.call(Registry.register, NAME, again.pid)
        assert await wait_down(again) == NO_CONNECTION
        assert await registry.call(Registry.lookup, NAME) == []
        with pytest.raises(NotRegistered):
            await stop(name)
