"""A hundred thousand processes: a chain of links, all stopping at once, all getting a message at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    KILLED,
    SHUTDOWN,
    Down,
    Exit,
    GenServer,
    Node,
    Options,
    exit,
    inbox,
    kill,
    link,
    monitor,
    start,
    start_link,
    stop,
    unlink,
)
from greenroom.supervision.behaviours.refs import process_of
from greenroom.supervision.testing import VirtualLoop

from .faulty_servers import Witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision import Ref

MANY = 100_000
FEWER = 10_000  # for the variants of what is shown with many


class Bead(GenServer):
    """One of very many processes."""

    def tie(self, other: Ref[Bead]) -> None:
        link(other)

    def untie(self, other: Ref[Bead]) -> None:
        unlink(other)

    async def slowly(self, gate: asyncio.Event) -> None:
        await gate.wait()

    async def at_once(self, told: list[int]) -> None:
        told[0] += 1

    def stop_now(self) -> None:
        exit(self.pid, SHUTDOWN)


class TrappingBead(Bead):
    """The same, with an orderly stop."""

    traps_exit = True


async def chain(server: type[Bead], length: int) -> list[Ref[Any]]:
    refs: list[Ref[Any]] = [await start(server)]
    for _ in range(length - 1):
        refs.append(await start(server))
        await refs[-1].call(Bead.tie, refs[-2])
    return refs


@pytest.mark.deep
@pytest.mark.parametrize(("length", "end"), [(MANY, 0), (FEWER, FEWER // 2), (FEWER, FEWER - 1)])
async def test_a_chain_of_a_hundred_thousand_links_falls_from_any_end(length: int, end: int, node: Node) -> None:
    witness = Witness(node)
    async with inbox() as me:
        refs = await chain(Bead, length)
        watched = [monitor(refs[0]), monitor(refs[-1])]
        kill(refs[end])
        downs: list[Down] = [await me.receive(), await me.receive()]
        assert {down.ref for down in downs} == set(watched)
        assert {down.reason for down in downs} == {KILLED}
        assert len(node.processes) == 1
    assert witness.leaks() == []


async def test_a_chain_falls_while_its_beads_are_at_work(node: Node) -> None:
    async with inbox() as me:
        refs = await chain(Bead, 1000)
        for ref in refs:
            ref.cast(Bead.slowly, asyncio.Event())
        await asyncio.sleep(0.1)
        assert node.workers.busy == 1000
        watching = monitor(refs[-1])
        exit(refs[0], SHUTDOWN)
        assert await me.receive() == Down(watching, refs[-1].pid, SHUTDOWN)
        assert len(node.processes) == 1
        assert node.leaks == 0


async def test_a_chain_whose_beads_trap_stops_at_the_first(node: Node) -> None:
    async with inbox():
        refs = await chain(TrappingBead, 1000)
        kill(refs[0])
        assert len(node.processes) == 1000
        assert await refs[1].call(lambda _: "well") == "well"


@pytest.mark.deep
async def test_a_hundred_thousand_linked_to_one_fall_with_it_and_each_is_heard_of(node: Node) -> None:
    async with inbox() as me:
        hub = await start(Bead)
        for _ in range(MANY):
            ref = await start(Bead)
            await ref.call(Bead.tie, hub)
            monitor(ref)
        kill(hub)
        assert len(me) == MANY
        assert len({message.ref for message in me.pending()}) == MANY
        assert len(node.processes) == 1


ENDS: dict[str, Callable[[Ref[Any]], object]] = {
    "kill": kill,
    "exit": lambda ref: exit(ref, SHUTDOWN),
    "cast": lambda ref: ref.cast(Bead.stop_now),
}


@pytest.mark.parametrize(("how", "many"), [("exit", MANY), ("kill", FEWER), ("cast", FEWER)])
async def test_a_hundred_thousand_stop_at_once(how: str, many: int, node: Node) -> None:
    async with inbox() as me:
        refs = [await start_link(Bead) for _ in range(many)]
        for ref in refs:
            ENDS[how](ref)
        for _ in range(10_000):
            if len(me) == many:
                break
            await asyncio.sleep(0)
        reason = KILLED if how == "kill" else SHUTDOWN
        assert all(message == Exit(ref.pid, reason) for message, ref in zip(me.pending(), refs, strict=True))
        assert len(node.processes) == 1
    assert node.leaks == 0


@pytest.mark.deep
async def test_a_hundred_thousand_that_trap_stop_at_once(node: Node) -> None:
    async with inbox() as me:
        refs = [await start_link(TrappingBead) for _ in range(MANY)]
        for ref in refs:
            exit(ref, SHUTDOWN)
        assert {(await me.receive(timeout=None)).reason for _ in refs} == {SHUTDOWN}
        assert len(node.processes) == 1


@pytest.mark.deep
async def test_a_hundred_thousand_told_at_once_use_one_worker(node: Node) -> None:
    refs = [await start(Bead) for _ in range(MANY)]
    told = [0]
    most = 0
    for ref in refs:
        ref.cast(Bead.at_once, told)
    while told[0] < MANY:
        await asyncio.sleep(0)
        most = max(most, len(node.workers))
    assert most == 1


@pytest.mark.deep
@pytest.mark.parametrize(("server", "many"), [(Bead, MANY), (TrappingBead, FEWER)])
def test_a_node_with_a_hundred_thousand_closes(server: type[Bead], many: int) -> None:
    node = Node(watchdog=None)

    async def main() -> None:
        async with node:
            for _ in range(many):
                await start(server)

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert node.processes == {}


async def test_the_names_of_very_many_are_free_again(node: Node) -> None:
    refs = [await Options(name=number).start(Bead) for number in range(FEWER)]
    await stop(refs[0])
    for ref in refs[1:]:
        kill(ref)
    assert node.names == {}
    assert all(process_of(ref) is None for ref in refs)
