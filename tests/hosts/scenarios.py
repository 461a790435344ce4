"""The scenarios on two hosts: each has a cluster of its own, makes one thing go wrong, and says what it measured."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from tests.supervision.cluster import machine_tools
from tests.supervision.cluster.engine_fixtures import Hand, eventually, gone
from tests.supervision.cluster.machine_fixtures import ROOT, Member, key_file

from greenroom import Client, Command, Pool, RequestLost, Server, ToolError
from greenroom import Host as ServersHost
from greenroom.actors.federation.upstream_spec import UpstreamSpec, UpstreamState
from greenroom.host import ConnectionProcess
from greenroom.supervision import NO_CONNECTION, NO_PROCESS, Crash, ProcessExited, StartFailed, monitor, stop
from greenroom.supervision.cluster.node_records import NodeLost

from .network import HERE, THERE, listening
from .two_hosts import PORT, SILENT, Clock, cluster, ended, machine, placed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from .network import Field

    Act: TypeAlias = Callable[[Field, Path], Coroutine[Any, Any, str]]

ACTS: dict[str, Act] = {}
PROGRAM = ROOT / "tests/supervision/cluster/programs/where_server.py"


def act(function: Act) -> Act:
    """One of them."""
    ACTS[function.__name__] = function
    return function


@act
async def a_machine_joins_and_takes_a_node_by_its_capability(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        clock = Clock()
        await machine(stage, field)
        joined = str(clock)
        clock = Clock()
        host, hand, pid = await placed(stage)
        took = str(clock)
        assert pid in field.inside(field.there)
        assert pid not in field.inside(field.here)
        clock = Clock()
        for _ in range(200):
            await hand.call(Hand.process_id)
        call = clock() / 200 * 1e6
        await stop(host, timeout=20)
        await gone(pid)
        return (
            f"joined {joined} after its program was started, a node is there within {took}, a call takes {call:.0f} us"
        )


@act
async def an_unmet_requirement_lists_the_machines(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        await machine(stage, field, "b", "--nodes", "1")
        with pytest.raises(StartFailed) as caught:
            await stage.host(requires={"tpu": True})
        assert "requires tpu=true" in str(caught.value)
        assert "b (gpu=true, 0 of 1 nodes)" in str(caught.value)
        with pytest.raises(StartFailed) as caught:
            await stage.host(requires={"gpu": True}, preload=("no_such_module_anywhere",))
        assert "machine b could not import" in str(caught.value)
        return "with what was required and what there is"


@act
async def no_process_listens_on_all_addresses(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        await machine(stage, field)
        await placed(stage)
        here, there = listening(field.here), listening(field.there)
        assert {address for address, _ in here} == {HERE}, here
        assert {address for address, _ in there} == {THERE}, there
        return f"{len(here)} sockets at {HERE}, {len(there)} at {THERE}, none elsewhere"


@act
async def a_killed_process_there_is_known_by_its_signal(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        await machine(stage, field)
        host, hand, pid = await placed(stage)
        of_host, of_hand = monitor(host), monitor(hand)
        clock = Clock()
        os.kill(pid, signal.SIGKILL)
        assert await ended(stage, of_hand) == NO_CONNECTION
        heard = str(clock)
        reason = await ended(stage, of_host)
        assert isinstance(reason, Crash)
        assert isinstance(reason.error, NodeLost)
        assert reason.error.ending.signal == signal.SIGKILL
        return f"NoConnection after {heard}, the signal after {clock}"


@act
async def a_stopped_process_there_is_hung_and_killed(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        await machine(stage, field)
        host, hand, pid = await placed(stage)
        of_host, of_hand = monitor(host), monitor(hand)
        clock = Clock()
        os.kill(pid, signal.SIGSTOP)
        assert await ended(stage, of_hand) == NO_CONNECTION
        heard = clock()
        reason = await ended(stage, of_host)
        assert reason.error.ending.hung
        await gone(pid)
        assert heard <= SILENT, heard
        return f"NoConnection after {heard:.2f} s, the process is gone after {clock() - heard:.2f} s more"


@act
async def a_killed_daemon_there_is_replaced(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        member = await machine(stage, field)
        host, _, pid = await placed(stage)
        of_host = monitor(host)
        clock = Clock()
        os.kill(member.below("gr-daemon")[0], signal.SIGKILL)
        assert isinstance(await ended(stage, of_host), Crash)
        await gone(pid)
        lost = str(clock)
        await stage.up("b")
        back = str(clock)
        await placed(stage)
        return f"its nodes are gone after {lost}, the machine is back after {back}"


@act
async def thespian_dies_there_and_no_node_notices(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        member = await machine(stage, field)
        _, hand, pid = await placed(stage)
        admin = member.below("gr-thespian")[0]
        clock = Clock()
        os.kill(admin, signal.SIGKILL)
        await eventually(lambda: bool(member.below("gr-forkserver")) and admin not in member.below())
        assert await hand.call(Hand.process_id) == pid
        await placed(stage)
        return f"the next node is there after {clock}"


@act
async def a_killed_member_program_is_a_lost_machine(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        member = await machine(stage, field)
        host, hand, _ = await placed(stage)
        of_host, of_hand = monitor(host), monitor(hand)
        below = member.below()
        clock = Clock()
        member.kill()
        assert await ended(stage, of_hand) == NO_CONNECTION
        heard = str(clock)
        assert (await ended(stage, of_host)).error.ending.lost
        await stage.down("b")
        await gone(*below)
        member.process.wait()
        assert not field.inside(field.there)
        return f"NoConnection after {heard}, no process is left there after {clock}"


@act
async def a_machine_that_loses_its_power_is_lost(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        member = await machine(stage, field)
        host, hand, _ = await placed(stage)
        of_host, of_hand = monitor(host), monitor(hand)
        clock = Clock()
        field.cut()
        for pid in field.inside(field.there):
            with suppress(ProcessLookupError):  # it went with one that was killed before it
                os.kill(pid, signal.SIGKILL)
        member.process.wait()
        assert await ended(stage, of_hand) == NO_CONNECTION
        heard = clock()
        assert (await ended(stage, of_host)).error.ending.lost
        await stage.down("b")
        took = clock()
        assert max(heard, took) <= SILENT, (heard, took)
        field.heal()
        clock = Clock()
        await machine(stage, field)
        await placed(stage)
        return f"NoConnection after {heard:.2f} s, the machine after {took:.2f} s; started anew it has a node after {clock}"


@act
async def a_stopped_machine_is_lost_and_comes_back(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        member = await machine(stage, field)
        host, _, pid = await placed(stage)
        of_host = monitor(host)
        below = [member.pid, *member.below()]
        clock = Clock()
        for each in below:
            os.kill(each, signal.SIGSTOP)
        event = await stage.down("b")
        heard = clock()
        assert "nothing was heard" in event.why, event
        assert isinstance(await ended(stage, of_host), Crash)
        assert heard <= SILENT, heard
        clock = Clock()
        for each in reversed(below):
            os.kill(each, signal.SIGCONT)
        await stage.up("b")
        back = str(clock)
        await gone(pid)
        await placed(stage)
        return f"lost after {heard:.2f} s, back {back} after it goes on"


@act
async def a_cut_cable_is_noticed_at_both_ends_and_heals(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        await machine(stage, field)
        host, hand, pid = await placed(stage)
        of_host, of_hand = monitor(host), monitor(hand)
        clock = Clock()
        field.cut()
        assert await ended(stage, of_hand) == NO_CONNECTION
        heard = clock()
        assert (await ended(stage, of_host)).error.ending.lost
        await stage.down("b")
        took = clock()
        await gone(pid)  # it has lost its home
        alone = clock()
        assert max(heard, took) <= SILENT, (heard, took)
        assert alone <= SILENT + 3.0, alone
        with pytest.raises(ProcessExited) as caught:
            await hand.call(Hand.process_id)
        assert caught.value.reason == NO_CONNECTION
        with pytest.raises(StartFailed, match="no machine of the cluster has that"):
            await stage.host(requires={"gpu": True})
        clock = Clock()
        field.heal()
        await stage.up("b")
        back = str(clock)
        await placed(stage)
        with pytest.raises(ProcessExited) as caught:
            await hand.call(Hand.process_id)
        assert caught.value.reason in (NO_CONNECTION, NO_PROCESS)
        return (
            f"NoConnection after {heard:.2f} s, its node ended itself after {alone:.2f} s; "
            f"back {back} after it was plugged in"
        )


@act
async def a_cable_that_was_cut_for_long_heals_as_fast(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        await machine(stage, field)
        field.cut()
        await stage.down("b")
        await asyncio.sleep(6.0)  # until both have tried often, and in vain: that is what is to be seen
        clock = Clock()
        field.heal()
        await stage.up("b")
        back = str(clock)
        await placed(stage)
        return f"back {back} after it was plugged in"


@act
async def who_has_another_key_is_refused(field: Field, folder: Path) -> str:
    other = folder / "other"
    other.mkdir()
    key = key_file(other, "some other key of as many bytes")
    async with cluster(folder) as stage:
        stranger = stage.member("stranger", "--capability", "gpu=true", key=key, listen=THERE, prefix=field.over_there)
        await eventually(lambda: bool(stranger.below("gr-forkserver")))
        await machine(stage, field)
        assert [each.name for each in await stage.known()] == ["b"]
        _, _, pid = await placed(stage)
        assert pid not in stranger.below()
        return "it never joins, and others do"


@act
async def forged_frames_at_every_port_do_nothing(field: Field, folder: Path) -> str:
    mark = folder / "mark"
    poison = b"cposix\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR."
    frames = (poison, b"%d>%s" % (len(poison), poison), b"\x00\x00\x00\x10" + bytes(16), b"GET / HTTP/1.1\r\n\r\n")
    async with cluster(folder) as stage:
        await machine(stage, field)
        _, hand, _ = await placed(stage)
        doors = listening(field.here) | listening(field.there)
        for address, port in sorted(doors):
            for data in frames:
                with closing(socket.create_connection((address, port), timeout=5)) as sock:
                    sock.sendall(data)
        assert await hand.call(Hand.process_id)
        await placed(stage)
        assert not mark.exists()
        return f"{len(doors) * len(frames)} of them at {len(doors)} ports"


@act
async def an_application_that_is_started_again_finds_its_machines(field: Field, folder: Path) -> str:
    key = key_file(folder)
    member = Member(f"{HERE}:{PORT}", key, "b", "--capability", "gpu=true", listen=THERE, prefix=field.over_there)
    took: list[str] = []
    try:
        for _ in range(2):
            async with cluster(folder) as stage:
                clock = Clock()
                await stage.up("b")
                took.append(str(clock))
                await placed(stage)
            await eventually(lambda: not member.below("gr-application-"))
    finally:
        assert await member.end() == 0
    return f"after {' and '.join(took)}"


@act
async def a_pool_there_is_cut_off_during_a_call_and_is_back(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        await machine(stage, field)
        server = Server("here")
        pool = Pool(size=2, cluster=stage.cluster, requires={"gpu": True})
        server.tool(isolation=pool)(machine_tools.where)
        server.tool(isolation=pool)(machine_tools.stay)
        async with Client(server) as client:
            clock = Clock()
            assert await client.call("where", into=int) in field.inside(field.there)
            first = str(clock)
            mark = folder / "mark"
            call = asyncio.ensure_future(client.call("stay", mark=str(mark)))
            await eventually(mark.exists)
            clock = Clock()
            field.cut()
            with pytest.raises(ToolError, match="its process was lost"):
                await call
            heard = clock()
            assert heard <= SILENT, heard
            await stage.down("b")
            await gone(int(mark.read_text()))
            alone = clock()
            with pytest.raises(ToolError, match="no machine of the cluster fits"):
                await client.call("where")
            clock = Clock()
            field.heal()
            await stage.up("b")
            assert await client.call("where", into=int) in field.inside(field.there)
            return (
                f"the first call took {first}; the one that was cut off has its error after {heard:.2f} s, its process "
                f"ended after {alone:.2f} s; the next result came {clock} after it was plugged in"
            )


@act
async def a_connection_process_there_is_cut_off_during_a_call_and_is_back(field: Field, folder: Path) -> str:
    async with cluster(folder) as stage:
        await machine(stage, field)
        process = ConnectionProcess("far", cluster=stage.cluster, requires={"gpu": True})
        program = Command(sys.executable, PROGRAM, cwd=ROOT)
        async with ServersHost({"there": UpstreamSpec(program, isolation=process)}) as host:
            clock = Clock()
            assert set(await host.call("there:where", into=list[int])) <= set(field.inside(field.there))
            first = str(clock)
            mark = folder / "mark"
            call = asyncio.ensure_future(host.call("there:stay", mark=str(mark)))
            await eventually(mark.exists)
            clock = Clock()
            field.cut()
            with pytest.raises(RequestLost) as lost:
                await call
            heard = clock()
            assert lost.value.maybe_done
            assert heard <= SILENT, heard
            await stage.down("b")
            await gone(int(mark.read_text()))
            alone = clock()
            clock = Clock()
            field.heal()
            await stage.up("b")
            await eventually(lambda: host.status()["there"].state is UpstreamState.READY, 60)
            assert set(await host.call("there:where", into=list[int])) <= set(field.inside(field.there))
            return (
                f"the first call took {first}; the one that was cut off has its error after {heard:.2f} s, its server "
                f"ended after {alone:.2f} s; the next result came {clock} after it was plugged in"
            )
