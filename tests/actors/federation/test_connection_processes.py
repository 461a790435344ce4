"""Connection processes: owners, leases and the barrier, with a scripted process starter, on virtual time.

That connections run in such a process, and survive what happens to it, is in `tests/actors/isolation`.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.federation.connection_processes import (
    ConnectionProcesses,
    ConnectionProcessOwner,
    ConnectionProcessStarter,
)
from greenroom.actors.federation.upstream_spec import ConnectionProcess
from greenroom.actors.process_names import CompanyKey, ProcessName
from greenroom.supervision import (
    SHUTDOWN,
    Crash,
    DynamicSupervisor,
    GenServer,
    ProcessExited,
    Ref,
    StartFailed,
    Supervisor,
    child,
    current_node,
    exit,
    is_alive,
    receive,
    spawn,
    start,
    start_link,
    stop,
    wait_down,
    whereis,
    which_children,
)
from greenroom.supervision.cluster.machines import NothingFits

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.actors.federation.connection_processes import ConnectionProcessRef
    from greenroom.supervision import ChildSpec, ExitReason, Pid
    from greenroom.transports.client.remote_wire import NodeLease

NOWHERE = NothingFits({"gpu": True}, ("home",))


class House(GenServer):
    """Stands for a process elsewhere."""

    def __init__(self, slow: float) -> None:
        self._slow = slow

    async def terminate(self, reason: ExitReason) -> None:
        await asyncio.sleep(self._slow)


class Houses(ConnectionProcessStarter):
    """A process starter whose outcomes a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.failures: list[Exception] = []
        self.houses: list[Ref[Any]] = []
        self.asked: list[float] = []
        self.slow = 0.0

    def child_spec(self) -> ChildSpec[Any]:
        return child(DynamicSupervisor).but(id="houses")

    async def open(self, process: ConnectionProcess) -> tuple[Ref[Any], str]:
        self.asked.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        self.houses.append(await start_link(House, self.slow))
        return self.houses[-1], f"house-{len(self.houses)}"


@asynccontextmanager
async def built() -> AsyncGenerator[tuple[ConnectionProcessRef, Houses]]:
    """A connection process of a federation, without leases."""
    key, houses = CompanyKey.new("processes"), Houses()
    upstreams = ProcessName(key, "upstreams")
    top = await start(Supervisor, [child(DynamicSupervisor).but(id="upstreams", name=upstreams)])
    processes = ConnectionProcesses(key, Ref(upstreams, None))
    processes._starter = houses
    try:
        yield processes.connection_process(ConnectionProcess("a")), houses
    finally:
        await stop(top)


def moves_in(room: ConnectionProcessRef) -> tuple[Pid, asyncio.Future[NodeLease]]:
    """A lease that is held until the test ends it."""
    inside: asyncio.Future[NodeLease] = asyncio.get_running_loop().create_future()

    async def live() -> None:
        try:
            inside.set_result(await room.acquire())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            inside.set_exception(error)
        await receive()

    return spawn(live), inside


def state_of(owner: Pid) -> str:
    """As a crash report would have it."""
    process = current_node().process(owner)
    assert process is not None
    return str(process.behaviour.report_state())  # type: ignore[attr-defined]


async def leaves(pid: Pid) -> None:
    exit(pid, SHUTDOWN)
    await wait_down(pid)


async def test_concurrent_leases_share_one_process_and_the_last_return_stops_it() -> None:
    async with built() as (room, houses):
        some = [moves_in(room) for _ in range(3)]
        leases = [await inside for _, inside in some]
        assert {each.node for each in leases} == {"house-1"}
        owner = leases[0].owner
        assert state_of(owner) == "connection process a on house-1, 3 leases"
        for pid, _ in some[1:]:
            await leaves(pid)
        assert is_alive(houses.houses[0].pid)
        await leaves(some[0][0])
        await wait_down(owner)
        assert not is_alive(houses.houses[0].pid)


async def test_a_lease_during_shutdown_starts_another_process() -> None:
    async with built() as (room, houses):
        houses.slow = 5.0
        first, inside = moves_in(room)
        owner = (await inside).owner
        await leaves(first)
        _, inside = moves_in(room)
        assert (await inside).node == "house-2"
        assert not is_alive(owner)
        assert asyncio.get_running_loop().time() == 5.0
        houses.slow = 0.0


async def test_a_failed_start_is_raised_to_all_waiting_leases() -> None:
    async with built() as (room, houses):
        houses.failures = [NOWHERE, LookupError("a bug of ours")]
        for error in tuple(houses.failures):
            _, inside = moves_in(room)
            with pytest.raises(type(error), match=str(error)[:20]):
                await inside
        _, inside = moves_in(room)
        assert (await inside).node == "house-1"


async def test_a_process_that_keeps_closing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Pid] = []

    async with built() as (room, _):

        async def closing(_: ConnectionProcesses, process: ConnectionProcess) -> Ref[ConnectionProcessOwner]:
            assert process is room.spec
            tries.append(pid := spawn(asyncio.sleep, 1.0))
            return Ref(pid, None)

        monkeypatch.setattr(ConnectionProcesses, "owner", closing)
        _, inside = moves_in(room)
        with pytest.raises(ProcessExited):
            await inside
        assert len(tries) == 5


@pytest.mark.parametrize("error", [NOWHERE, StartFailed(Crash(NOWHERE))])
async def test_without_a_machine_the_lease_tries_again_and_no_process_dies(error: Exception) -> None:
    async with built() as (room, houses):
        houses.failures = [error, error]
        upstream = await start(Supervisor, [room.lease_spec()], intensity=0)
        await asyncio.sleep(90.0)
        assert houses.asked == [0.0, 30.0, 60.0]
        assert is_alive(upstream.pid)
        exit(houses.houses[0].pid, Crash(MemoryError("too much")))
        await wait_down(upstream)  # the upstream counts the failures of its process


async def test_a_lease_crashes_when_its_process_fails_to_start() -> None:
    async with built() as (room, houses):
        houses.failures = [StartFailed(Crash(OSError("no such program")))]
        upstream = await start(Supervisor, [room.lease_spec()], intensity=0)
        await wait_down(upstream)
        assert houses.asked == [0.0]


async def test_stray_messages_end_no_process() -> None:
    async with built() as (room, _):
        upstream = await start(Supervisor, [room.lease_spec()], intensity=0)
        owner = await room.processes.owner(room.spec)
        await asyncio.sleep(1.0)
        (tenant,) = await which_children(upstream)
        for each in (owner, tenant.ref):
            assert each is not None
            each.send("what is this")
        await asyncio.sleep(1.0)
        assert state_of(owner.pid) == "connection process a on house-1, 1 leases"
        assert is_alive(upstream.pid)
        await stop(upstream)


@pytest.mark.parametrize("stays", [0.0, 3.0, 60.0])
async def test_the_shutdown_waits_for_leases_that_are_being_returned(stays: float) -> None:
    loop = asyncio.get_running_loop()
    async with built() as (room, houses):
        pid, inside = moves_in(room)
        owner = (await inside).owner
        loop.call_later(stays, exit, pid, SHUTDOWN)
        house = houses.houses[0].pid
    assert loop.time() == min(stays, 10.0)
    assert not is_alive(house)
    assert not is_alive(owner)
    assert whereis(ProcessName(room.processes._key, "connection processes")) is None
