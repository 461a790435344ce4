"""Pools and federations on another machine: what they run is there, and its loss is one answer."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from greenroom import Annex, Client, Command, ConfigError, Host, Pool, Server, ToolError
from greenroom.actors.federation.specs import UpstreamSpec

from . import machine_tools
from .engine_stage import eventually, gone
from .machine_stage import ROOT, gathered

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")

SERVER = """
import os
from greenroom import Server
server = Server("there")
@server.tool
def where() -> list[int]:
    return [os.getpid(), os.getppid()]
server.run()
"""


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


async def test_a_federations_annex_is_on_another_machine(tmp_path: Path) -> None:
    program = tmp_path / "there.py"
    program.write_text(SERVER, encoding="utf-8")
    async with gathered(tmp_path) as stage:
        member = await stage.joined("b", "--capability", "gpu=true")
        annex = Annex("far", cluster=stage.cluster, requires={"gpu": True})
        command = Command(sys.executable, str(program), cwd=str(ROOT))
        async with Host({"there": UpstreamSpec(command, isolation=annex)}) as host:
            pid, parent = await host.call("there:where", into=list[int])
            assert pid in member.below()
            assert parent in member.below("gr-")
        await eventually(lambda: pid not in member.below())


def test_what_requires_something_needs_a_cluster_that_knows_other_machines() -> None:
    with pytest.raises(ValueError, match="Cluster"):
        Pool(requires={"gpu": True})
    with pytest.raises(ConfigError, match="cluster"):
        Annex(requires={"gpu": True})
