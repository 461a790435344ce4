"""Pools and federations on another machine: what they run is there, and its loss is one answer."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

import pytest

from greenroom import Client, Command, ConfigError, Host, Pool, RequestLost, Server, ToolError
from greenroom.actors.federation.upstream_spec import UpstreamSpec, UpstreamState
from greenroom.host import ConnectionProcess

from . import machine_tools
from .engine_fixtures import eventually, gone
from .machine_fixtures import ROOT, gathered

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.greenroom(clock="real"), pytest.mark.deep]

THERE = Command(sys.executable, ROOT / "tests/supervision/cluster/programs/where_server.py", cwd=ROOT)


async def test_a_pool_runs_on_another_machine(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        member = await stage.joined("b", "--capability", "gpu=true")
        server = Server("here")
        pool = Pool(size=2, cluster=stage.cluster, requires={"gpu": True})
        server.tool(isolation=pool)(machine_tools.where)
        server.tool(isolation=pool)(machine_tools.die)
        async with Client(server) as client:
            pid = await client.call("where", into=int)
            assert pid in member.below("gr-")
            with pytest.raises(ToolError, match="SIGSEGV"):
                await client.call("die")
            again = await client.call("where", into=int)
            assert again in member.below("gr-")
        await gone(pid, again)


async def test_a_connection_process_runs_on_another_machine(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        member = await stage.joined("b", "--capability", "gpu=true")
        process = ConnectionProcess("far", cluster=stage.cluster, requires={"gpu": True})
        async with Host({"there": UpstreamSpec(THERE, isolation=process)}) as host:
            pid, parent = await host.call("there:where", into=list[int])
            assert pid in member.below()
            assert parent in member.below("gr-")
        await eventually(lambda: pid not in member.below())


async def test_a_pools_call_on_a_machine_that_is_lost_has_one_answer_and_the_next_machine_has_the_next_call(
    tmp_path: Path,
) -> None:
    async with gathered(tmp_path) as stage:
        member = await stage.joined("b", "--capability", "gpu=true")
        server = Server("here")
        pool = Pool(size=2, cluster=stage.cluster, requires={"gpu": True})
        server.tool(isolation=pool)(machine_tools.where)
        server.tool(isolation=pool)(machine_tools.stay)
        async with Client(server) as client:
            mark = tmp_path / "there"
            call = asyncio.ensure_future(client.call("stay", mark=str(mark)))
            await eventually(mark.exists)
            below = member.below()
            member.kill()
            with pytest.raises(ToolError, match="its process was lost"):
                await call
            await gone(*below)
            await stage.down("b")
            with pytest.raises(ToolError, match="could not be started: no machine of the cluster fits"):
                await client.call("where")
            again = await stage.joined("b", "--capability", "gpu=true")
            assert await client.call("where", into=int) in again.below("gr-")


async def test_a_call_to_a_connection_on_a_lost_machine_has_one_answer_and_the_server_returns_with_the_machine(
    tmp_path: Path,
) -> None:
    async with gathered(tmp_path) as stage:
        member = await stage.joined("b", "--capability", "gpu=true")
        process = ConnectionProcess("far", cluster=stage.cluster, requires={"gpu": True})
        async with Host({"there": UpstreamSpec(THERE, isolation=process)}) as host:
            mark = tmp_path / "there"
            call = asyncio.ensure_future(host.call("there:stay", mark=str(mark)))
            await eventually(mark.exists)
            below = member.below()
            member.kill()
            with pytest.raises(RequestLost) as lost:
                await call
            assert lost.value.maybe_done
            await gone(*below)
            await stage.down("b")
            again = await stage.joined("b", "--capability", "gpu=true")
            await eventually(lambda: host.status()["there"].state is UpstreamState.READY)
            pid, _ = await host.call("there:where", into=list[int])
            assert pid in again.below()


def test_a_pool_with_requirements_needs_a_cluster() -> None:
    with pytest.raises(ValueError, match="Cluster"):
        Pool(requires={"gpu": True})
    with pytest.raises(ConfigError, match="cluster"):
        ConnectionProcess(requires={"gpu": True})
