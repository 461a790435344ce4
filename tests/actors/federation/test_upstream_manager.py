"""The upstream manager while other processes die, are parked, or fail to start: no server is lost, and no removed one is revived."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.actors.client.fake_server import SILENCE

from greenroom.actors.client.errors import ClientClosed, Parked
from greenroom.actors.federation.upstream_spec import UpstreamSpec, UpstreamState
from greenroom.errors import ConfigError
from greenroom.supervision import Ref, StartFailed, current_node, is_alive, kill, whereis, which_children
from greenroom.supervision.testing import kill as kill_and_wait

from .fake_upstreams import Upstairs, all_ready, call, federated, none_leaving, reaches, spec

if TYPE_CHECKING:
    from greenroom.actors.federation.federation import Federation


class Connecting:
    """A way to connect that fails when it is told to, before there is any connection."""

    def __init__(self) -> None:
        self.broken = False

    def __call__(self, id: str, given: UpstreamSpec) -> Any:
        made, line = replace(given, connect=None).connected(id)

        async def start() -> Any:
            if self.broken:
                raise OSError("nothing to connect with")
            return await made.start()

        return made.but(start=start), line


async def parked(federation: Federation, id: str = "git") -> None:
    """Kill it until it is parked."""
    kill(federation.whereis(id))
    await reaches(federation, id, UpstreamState.PARKED)


async def test_a_parked_upstream_is_revived_in_time_though_the_manager_has_died() -> None:
    async with federated({"git": spec(Upstairs(), intensity=0)}) as federation:
        await all_ready(federation)
        await parked(federation)
        await asyncio.sleep(10.0)
        await kill_and_wait(whereis(federation.name("manager")))
        with pytest.raises(Parked):
            await call(federation, "git")
        await reaches(federation, "git", UpstreamState.READY, within=200.0)
        assert asyncio.get_running_loop().time() >= 30.0
        assert await call(federation, "git") == "echo"


async def test_an_upstream_that_dies_with_the_manager_is_started_again() -> None:
    async with federated({"git": spec(Upstairs()), "other": spec(Upstairs())}) as federation:
        await all_ready(federation)
        before, other = federation.whereis("git"), federation.whereis("other")
        kill(whereis(federation.name("manager")))
        kill(before)
        assert await call(federation, "git") == "echo"
        assert federation.whereis("git") not in (None, before)
        assert federation.whereis("other") == other


async def test_a_parked_upstream_that_is_stopped_is_not_revived() -> None:
    stage = Upstairs()
    async with federated({"git": spec(stage, intensity=0)}) as federation:
        await all_ready(federation)
        await parked(federation)
        wires = len(stage.wires)
        await federation.stop("git")
        await asyncio.sleep(200.0)
        assert len(stage.wires) == wires
        assert federation.ids() == ()


async def test_an_upstream_that_fails_again_soon_is_parked_for_longer() -> None:
    loop = asyncio.get_running_loop()
    async with federated({"git": spec(Upstairs(), intensity=0)}) as federation:
        await all_ready(federation)
        waited: list[float] = []
        for well in (1.0, 1.0, 700.0):
            await asyncio.sleep(well)
            await parked(federation)
            began = loop.time()
            await reaches(federation, "git", UpstreamState.READY, within=200.0)
            waited.append(loop.time() - began)
        assert waited == [30.0, 60.0, 30.0]


async def test_a_failed_start_raises_and_leaves_nothing() -> None:
    connecting = Connecting()
    connecting.broken = True
    async with federated({"other": spec(Upstairs())}) as federation:
        await all_ready(federation)
        with pytest.raises(StartFailed, match="nothing to connect with"):
            await federation.start("git", spec(Upstairs(), connect=connecting))
        assert federation.ids() == ("other",)
        before = federation.whereis("other")
        with pytest.raises(StartFailed, match="nothing to connect with"):
            await federation.replace("other", spec(Upstairs(), connect=connecting))
        await none_leaving(federation)
        assert not federation.arriving
        assert federation.whereis("other") == before
        assert await call(federation, "other") == "echo"
        connecting.broken = False
        await federation.start("git", spec(Upstairs(), connect=connecting))
        await all_ready(federation, "git")


async def test_an_upstream_whose_restart_fails_is_parked_and_tried_later() -> None:
    connecting = Connecting()
    async with federated({"git": spec(Upstairs(), connect=connecting)}) as federation:
        await all_ready(federation)
        connecting.broken = True
        kill(federation.whereis("git"))
        cause = await reaches(federation, "git", UpstreamState.PARKED)
        assert "nothing to connect with" in str(cause)
        with pytest.raises(Parked):
            await call(federation, "git")
        connecting.broken = False
        await reaches(federation, "git", UpstreamState.READY, within=200.0)
        assert asyncio.get_running_loop().time() == 30.0


async def test_a_killed_drain_job_is_run_again_and_the_server_is_stopped() -> None:
    stage = Upstairs()
    stage.answers["tools/call"] = SILENCE
    async with federated({"git": spec(stage, grace=5.0)}) as federation:
        await all_ready(federation)
        pid = federation.whereis("git")
        under_way = asyncio.ensure_future(call(federation, "git"))
        await asyncio.sleep(0)
        stopping = asyncio.ensure_future(federation.stop("git"))
        await asyncio.sleep(1.0)
        for each in await which_children(federation.jobs):
            await kill_and_wait(each.pid)
        await stopping
        assert asyncio.get_running_loop().time() == 5.0
        assert not is_alive(pid)
        with pytest.raises(ClientClosed):
            await under_way


async def test_a_stray_message_does_not_end_the_manager_and_its_state_is_reported() -> None:
    async with federated({"git": spec(Upstairs())}) as federation:
        await all_ready(federation)
        manager = whereis(federation.name("manager"))
        assert manager is not None
        Ref(manager).send("what is this")
        await federation.start("other", spec(Upstairs()))
        assert whereis(federation.name("manager")) == manager
        process = current_node().process(manager)
        assert process is not None
        behaviour: Any = process.behaviour
        assert behaviour.report_state() == "2 upstreams, 0 arriving, 0 leaving"


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"lists": ("prompts",)}, "lists are some of tools, .* tools among them, not prompts"),
        ({"lists": ()}, "not none"),
        ({"isolation": "thread"}, "isolation is 'process' or a ConnectionProcess"),
        ({"isolation": "process", "connect": Connecting()}, "isolation is for a route"),
        ({"tool_timeout": 0}, "tool_timeout is more than 0 seconds, or None for no limit, not 0"),
        ({"settling": float("inf")}, "settling is a number of seconds, not inf"),
    ],
)
def test_an_invalid_spec_is_refused_with_the_reason(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        spec(Upstairs(), **wrong)
