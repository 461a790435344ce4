"""Machines that join, take nodes and are lost: member programs on loopback, each with a Thespian system of its own."""

from __future__ import annotations

import os
import signal
import socket
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.free_ports import free_port

from greenroom import ConfigError
from greenroom.supervision import (
    NO_CONNECTION,
    Crash,
    ProcessExited,
    Ref,
    StartFailed,
    Supervisor,
    monitor,
    start,
    stop,
)
from greenroom.supervision.cluster import os_processes
from greenroom.supervision.cluster.cluster import Cluster, NodeOwner
from greenroom.supervision.cluster.cluster_settings import ClusterSettings, NodeSpec
from greenroom.supervision.cluster.machines import MachineUp
from greenroom.supervision.cluster.node_records import NodeLost

from .engine_fixtures import Hand, eventually, gone
from .machine_fixtures import BEAT, KEY, Machines, Member, gathered, key_file
from .tcp_listeners import listeners

if TYPE_CHECKING:
    from pathlib import Path

    from greenroom.supervision.kernel.process_messages import Down

pytestmark = [pytest.mark.greenroom(clock="real"), pytest.mark.deep]

SILENCE = BEAT * 3


def why(refused: pytest.ExceptionInfo[StartFailed]) -> str:
    return str(refused.value)


class Watched:
    """A host, and how it ended."""

    def __init__(self, stage: Machines, host: Ref[NodeOwner]) -> None:
        self.me = stage.me
        self.ref = monitor(host)

    async def lost(self) -> NodeLost:
        heard: Down = await self.me.receive(lambda each: getattr(each, "ref", None) is self.ref, timeout=20)
        assert isinstance(heard.reason, Crash)
        assert isinstance(heard.reason.error, NodeLost)
        return heard.reason.error


async def test_a_node_goes_to_the_machine_that_has_what_it_requires(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        first = stage.member("plain")
        second = stage.member("strong", "--capability", "gpu=true", "--capability", "cores=8")
        assert {(await stage.up(each)).name for each in ("plain", "strong")} == {"plain", "strong"}
        assert [dict(each.capabilities) for each in await stage.known() if each.name == "strong"] == [
            {"gpu": True, "cores": 8}
        ]
        pid, host = 0, None
        for requires, member in (
            ({"gpu": True}, second),
            ({"cores": 8, "gpu": True}, second),
            ({"machine": "plain"}, first),
        ):
            host = await stage.host(requires=requires, preload=("tests.supervision.cluster.engine_fixtures",))
            hand = await stage.hand(host)
            pid = await hand.call(Hand.process_id)
            assert pid == await host.call(NodeOwner.process_id)
            assert pid in member.below("gr-")
        at_home = await stage.host(requires={"machine": "home"}, path=tuple(sys.path))
        assert await at_home.call(NodeOwner.process_id) in os_processes.descendants(os.getpid())
        assert host is not None
        await stop(host, timeout=20)
        await gone(pid)


async def test_of_equals_each_gets_as_many(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        members = [stage.member(name, "--capability", "zone=x") for name in ("one", "two")]
        for member in members:
            await stage.up(member.name)
        hosts = [await stage.host(requires={"zone": "x"}) for _ in range(6)]
        assert [len(member.below("gr-node-")) for member in members] == [3, 3]
        # The machine with fewer gets the next.
        before = {pid for member in members for pid in member.below("gr-node-")}
        one = set(members[0].below("gr-node-"))
        for host in hosts:
            pid = await host.call(NodeOwner.process_id)
            if pid in one:
                await stop(host, timeout=20)
                await gone(pid)
        again = [await (await stage.host(requires={"zone": "x"})).call(NodeOwner.process_id) for _ in range(3)]
        assert not before & set(again)
        assert [len(member.below("gr-node-")) for member in members] == [3, 3]


async def test_a_requirement_that_no_machine_meets_or_has_room_for_is_an_error(tmp_path: Path) -> None:
    async with gathered(tmp_path, capabilities={"disk": "fast"}) as stage:
        await stage.joined("small", "--capability", "gpu=true", "--nodes", "1")
        with pytest.raises(StartFailed) as refused:
            await stage.host(requires={"tpu": 4})
        assert (
            "requires tpu=4, and no machine of the cluster has that; there are: home (disk=fast); small (gpu=true, 0 of 1 nodes)"
            in why(refused)
        )
        host = await stage.host(requires={"gpu": True})
        with pytest.raises(StartFailed) as refused:
            await stage.host(requires={"gpu": True})
        assert "every machine that fits is full" in why(refused)
        await stop(host, timeout=20)
        assert await (await stage.host(requires={"gpu": True})).call(NodeOwner.process_id)


async def test_a_module_that_is_not_there_is_named_with_the_machine(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        member = await stage.joined("bare")
        with pytest.raises(StartFailed) as refused:
            await stage.host(requires={"machine": "bare"}, preload=("no_module_of_that_name",))
        assert "machine bare could not import what it needs" in why(refused)
        assert "No module named 'no_module_of_that_name'" in why(refused)
        await eventually(lambda: not member.below("gr-node-"))


async def test_a_process_that_is_killed_elsewhere_tells_how_it_ended(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        await stage.joined("b")
        host = await stage.host(requires={"machine": "b"})
        watched = Watched(stage, host)
        hand = await stage.hand(host)
        watch = monitor(hand)
        os.kill(await host.call(NodeOwner.process_id), signal.SIGKILL)
        heard: Down = await stage.me.receive(lambda each: getattr(each, "ref", None) is watch, timeout=20)
        assert heard.reason == NO_CONNECTION
        ending = (await watched.lost()).ending
        assert (ending.signal, ending.lost, ending.hung) == (signal.SIGKILL, False, False)
        with pytest.raises(ProcessExited, match="connect"):
            await hand.call(Hand.process_id)


async def test_a_process_that_hangs_elsewhere_is_killed_there(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        await stage.joined("b")
        host = await stage.host(requires={"machine": "b"})
        watched = Watched(stage, host)
        pid = await host.call(NodeOwner.process_id)
        os.kill(pid, signal.SIGSTOP)
        assert (await watched.lost()).ending.hung
        await gone(pid)


@pytest.mark.deep
@pytest.mark.parametrize("part", ["gr-forkserver", "gr-thespian"])
async def test_thespian_is_replaced_elsewhere_and_no_node_notices(tmp_path: Path, part: str) -> None:
    async with gathered(tmp_path) as stage:
        member = await stage.joined("b")
        host = await stage.host(requires={"machine": "b"})
        watched = Watched(stage, host)
        hand = await stage.hand(host)
        pid = await hand.call(Hand.process_id)
        victims = member.below(part)
        os.kill(victims[0], signal.SIGKILL)
        await eventually(lambda: bool(member.below("gr-forkserver")) and victims[0] not in member.below())
        assert await hand.call(Hand.process_id) == pid
        # It is in the convention again, and takes nodes.
        other = await stage.host(requires={"machine": "b"})
        # How the first ends is known, although the process that made it is gone.
        os.kill(pid, signal.SIGKILL)
        assert (await watched.lost()).ending.signal == signal.SIGKILL
        assert await (await stage.hand(other)).call(Hand.process_id) != pid


async def test_the_end_of_a_daemon_elsewhere_is_that_of_its_nodes_and_the_machine_comes_back(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        member = await stage.joined("b")
        host = await stage.host(requires={"machine": "b"})
        watched = Watched(stage, host)
        pid = await host.call(NodeOwner.process_id)
        os.kill(member.below("gr-daemon")[0], signal.SIGKILL)
        assert (await watched.lost()).node
        await gone(pid)
        await stage.down("b")
        await stage.up("b")
        assert await (await stage.host(requires={"machine": "b"})).call(NodeOwner.process_id)


async def test_a_machine_whose_program_is_killed_is_lost_with_all_that_was_there(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        member = await stage.joined("b")
        host = await stage.host(requires={"machine": "b"})
        watched = Watched(stage, host)
        hand = await stage.hand(host)
        watch = monitor(hand)
        below = member.below()
        assert len(below) >= 5
        member.kill()
        heard: Down = await stage.me.receive(lambda each: getattr(each, "ref", None) is watch, timeout=20)
        assert heard.reason == NO_CONNECTION
        assert (await watched.lost()).ending.lost
        await stage.down("b")
        await gone(*below)
        with pytest.raises(StartFailed, match="no machine of the cluster has that"):
            await stage.host(requires={"machine": "b"})
        # Another run of the program is the same machine.
        await stage.joined("b")
        again = await stage.host(requires={"machine": "b"})
        assert await (await stage.hand(again)).call(Hand.process_id)
        with pytest.raises(ProcessExited):
            await hand.call(Hand.process_id)


async def test_a_machine_that_says_nothing_is_lost_and_comes_back(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        member = await stage.joined("b")
        host = await stage.host(requires={"machine": "b"})
        watched = Watched(stage, host)
        pid = await host.call(NodeOwner.process_id)
        os.kill(member.pid, signal.SIGSTOP)
        event = await stage.down("b")
        assert "nothing was heard" in event.why
        assert (await watched.lost()).ending.lost
        os.kill(member.pid, signal.SIGCONT)
        await stage.up("b")
        await gone(pid)
        assert await (await stage.host(requires={"machine": "b"})).call(NodeOwner.process_id)


async def test_machines_listen_where_they_were_told_to_alone(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        member = await stage.joined("b")
        await stage.host(requires={"machine": "b"})
        found = listeners(*os_processes.descendants(os.getpid()), os.getpid(), *member.below(), member.pid)
        assert {address for address, _ in found} == {"127.0.0.1"}
        assert ("127.0.0.1", int(stage.convention.rpartition(":")[2])) in found


async def test_a_machine_with_another_key_does_not_join(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        other = tmp_path / "other"
        other.mkdir()
        stranger = stage.member("stranger", key=key_file(other, "some other key of as many bytes"))
        await eventually(lambda: bool(stranger.below("gr-forkserver")))
        await stage.joined("b")
        assert [each.name for each in await stage.known()] == ["b"]
        with pytest.raises(StartFailed, match="no machine of the cluster has that"):
            await stage.host(requires={"machine": "stranger"})


async def test_a_machine_with_another_version_gets_an_error_with_both_versions(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = tmp_path / "old"
    (old / "greenroom-0.0.1.dist-info").mkdir(parents=True)
    (old / "greenroom-0.0.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: greenroom\nVersion: 0.0.1\n", encoding="utf-8"
    )
    async with gathered(tmp_path) as stage:
        member = stage.member("old", prefix=("env", f"PYTHONPATH={old}"))
        said = "machine old runs greenroom 0.0.1, and machine home runs greenroom"
        await eventually(lambda: said in member.said())
        await eventually(lambda: said in caplog.text)
        assert await stage.known() == []


@pytest.mark.deep
async def test_two_machines_of_one_name_are_told_apart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with gathered(tmp_path) as stage:
        first = await stage.joined("b")
        stage.member("b")
        await eventually(lambda: "two machines are called b" in caplog.text)
        host = await stage.host(requires={"machine": "b"})
        assert await host.call(NodeOwner.process_id) in first.below()
        # The other takes over when the first is gone.
        first.kill()
        await stage.down("b")
        assert isinstance(await stage.up("b"), MachineUp)


@pytest.mark.deep
async def test_garbage_at_every_port_does_nothing(tmp_path: Path) -> None:
    async with gathered(tmp_path) as stage:
        member = await stage.joined("b")
        host = await stage.host(requires={"machine": "b"})
        mark = tmp_path / "mark"
        poison = b"cposix\nsystem\n(S'touch " + str(mark).encode() + b"'\ntR."
        ports = listeners(*os_processes.descendants(os.getpid()), os.getpid(), *member.below(), member.pid)
        for address, port in ports:
            for data in (
                poison,
                b"%d>%s" % (len(poison), poison),
                b"\x00\x00\x00\x10" + bytes(16),
                b"GET / HTTP/1.1\r\n\r\n",
            ):
                with closing(socket.create_connection((address, port), timeout=5)) as sock:
                    sock.sendall(data)
        assert await (await stage.hand(host)).call(Hand.process_id)
        assert await (await stage.host(requires={"machine": "b"})).call(NodeOwner.process_id)
        assert not mark.exists()


@pytest.mark.deep
async def test_a_machine_that_waits_joins_the_application_that_comes_back(tmp_path: Path) -> None:
    port = free_port()
    key = key_file(tmp_path)
    member = Member(f"127.0.0.1:{port}", key, "b", "--heartbeat", str(BEAT))
    try:
        for _ in range(2):
            async with gathered(tmp_path, port=port) as stage:
                await stage.up("b")
                assert await (await stage.host(requires={"machine": "b"})).call(NodeOwner.process_id)
            await eventually(lambda: not member.below("gr-node-"))
    finally:
        assert await member.end() == 0


async def test_a_port_that_is_taken_is_said_to_be(tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        settings = ClusterSettings(convention=f"127.0.0.1:{port}", key=KEY.encode(), intensity=0)
        with pytest.raises(StartFailed, match=f"127.0.0.1:{port}"):
            await start(Supervisor, [Cluster(settings).child_spec()], intensity=0)


async def test_requirements_of_other_machines_need_a_convention(tmp_path: Path) -> None:
    del tmp_path
    cluster = Cluster(ClusterSettings(capabilities={"gpu": True}))
    tree = await start(Supervisor, [cluster.child_spec()])
    try:
        await cluster.start_node(NodeSpec(requires={"gpu": True}))
        with pytest.raises(StartFailed, match="set `convention` in the cluster's settings") as refused:
            await cluster.start_node(NodeSpec(requires={"tpu": True}))
        assert isinstance(refused.value.__cause__, ConfigError) or "tpu=true" in str(refused.value)
    finally:
        await stop(tree, timeout=20)
