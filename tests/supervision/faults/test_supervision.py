"""Faults under supervisors: crashes at every moment of a life, children that do not stop, supervisors that are killed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from greenroom.supervision import (
    BRUTAL_KILL,
    KILLED,
    SHUTDOWN,
    CallTimeout,
    ChildSpec,
    ChildTerminated,
    Crash,
    Down,
    ExitReason,
    GenServer,
    Node,
    Options,
    ProcessExited,
    ReachedMaxRestartIntensity,
    Ref,
    Shutdown,
    ShutdownError,
    StartError,
    StartFailed,
    Supervisor,
    child,
    exit,
    inbox,
    is_alive,
    kill,
    monitor,
    start,
    start_link,
    stop,
    trap_exit,
    unlink,
    wait_down,
    whereis,
)
from greenroom.supervision.behaviours.refs import process_of
from greenroom.supervision.kernel import links

from .faulty_servers import Breaks, Calm, Witness, forever, raises, turns


class Sick(Calm):
    """Crashes where it is told to; the list is shared with the test, and shrinks with each crash."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__()
        self.faults = faults

    def strike(self, moment: str) -> None:
        if self.faults and self.faults[0] == moment:
            self.faults.pop(0)
            raise ValueError(moment)

    async def init(self) -> None:
        self.strike("init")
        await asyncio.sleep(0)
        self.strike("late init")

    def work(self) -> int:
        self.strike("call")
        return self.add()

    async def work_slowly(self) -> int:
        await asyncio.sleep(0.1)
        self.strike("late call")
        return self.add()

    def terminate(self, reason: ExitReason) -> None:
        self.strike("terminate")


def sick(faults: list[str]) -> ChildSpec[Ref[Sick]]:
    return child(Sick, faults).but(name="sick")


SICK: Ref[Sick] = Ref("sick", 60.0)


async def test_a_crash_in_a_call_is_answered_and_its_successor_answers_the_next(node: Node) -> None:
    witness = Witness(node)
    faults = ["call"]
    async with inbox():
        await start_link(Supervisor, [sick(faults), child(Calm)])
        with pytest.raises(ProcessExited, match="crash: ValueError: call"):
            await SICK.call(Sick.work)
        await turns(100)
        assert await SICK.call(Sick.work) == 1
    assert [type(report) for report in witness.reports].count(ChildTerminated) == 1


async def test_every_caller_of_a_crashing_process_is_answered(node: Node) -> None:
    async with inbox():
        await start_link(Supervisor, [sick(["late call"])])
        calls = [asyncio.ensure_future(SICK.call(Sick.work_slowly)) for _ in range(10)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert {str(outcome).partition("exited")[2] for outcome in outcomes} == {
            " before it answered: crash: ValueError: late call"
        }
        assert await SICK.call(Sick.work_slowly) == 1


@pytest.mark.parametrize("moment", ["init", "late init"])
async def test_a_crash_in_init_fails_the_start_of_the_whole(moment: str, node: Node) -> None:
    witness = Witness(node)
    async with inbox() as me:
        with pytest.raises(StartFailed, match=f"child 'Sick' failed to start: crash: ValueError: {moment}"):
            await start_link(Supervisor, [child(Calm), sick([moment])])
        assert me.pending() == ()
        assert len(node.processes) == 1, "what had started was stopped again"
    assert [report.child.id for report in witness.reports if isinstance(report, StartError)] == ["Sick"]


@pytest.mark.parametrize("moment", ["init", "late init"])
async def test_a_crash_during_a_restart_is_tried_again(moment: str, node: Node) -> None:
    witness = Witness(node)
    async with inbox():
        top = await start_link(Supervisor, [sick(["call", moment, moment])], intensity=3)
        with pytest.raises(ProcessExited):
            await SICK.call(Sick.work)
        await turns(100)
        assert await SICK.call(Sick.work) == 1
        assert is_alive(top)
    assert sum(isinstance(report, StartError) for report in witness.reports) == 2


async def test_too_many_crashes_during_restarts_end_the_supervisor(node: Node) -> None:
    witness = Witness(node)
    async with inbox() as me:
        top = await start_link(Supervisor, [sick(["call", *["init"] * 10]), child(Calm)], intensity=3)
        watching = monitor(top)
        with pytest.raises(ProcessExited):
            await SICK.call(Sick.work)
        down = await me.receive(lambda message: isinstance(message, Down))
        assert down == Down(watching, top.pid, Shutdown("reached max restart intensity"))
        assert len(node.processes) == 1
    assert sum(isinstance(report, ReachedMaxRestartIntensity) for report in witness.reports) == 1


async def test_a_crash_in_terminate_is_reported_and_stops_nothing(node: Node) -> None:
    witness = Witness(node)

    class SickToTheEnd(Sick):
        traps_exit = True

    async with inbox():
        top = await start_link(Supervisor, [child(SickToTheEnd, ["terminate"]), child(Calm)])
        await stop(top, SHUTDOWN)
        assert len(node.processes) == 1
    errors = [report for report in witness.reports if isinstance(report, ShutdownError)]
    assert [str(report.reason) for report in errors] == ["crash: ValueError: terminate"]


async def test_a_crash_in_terminate_after_a_crash_is_the_reason_and_restarts_all_the_same() -> None:
    async with inbox():
        await start_link(Supervisor, [sick(["call", "terminate"])])
        with pytest.raises(ProcessExited, match="crash: ValueError: terminate"):
            await SICK.call(Sick.work)
        await turns(100)
        assert await SICK.call(Sick.work) == 1


# --- children that refuse


class Refuses(GenServer):
    """Traps exits, unlinks from its supervisor, and ignores shutdown."""

    traps_exit = True

    def __init__(self, *, deaf: bool = False) -> None:
        self.deaf = deaf

    def init(self) -> None:
        process = self._otp_process
        assert process.parent is not None
        unlink(process.parent.pid)
        assert process not in links.linked(process.parent)

    async def handle_info(self, message: object) -> None:
        await forever()

    async def terminate(self, reason: ExitReason) -> None:
        while self.deaf:
            try:
                await forever()
            except asyncio.CancelledError:
                asyncio.get_running_loop().call_later(10.0, self.relent)
        await forever()

    def relent(self) -> None:
        self.deaf = False


@pytest.mark.parametrize(("shutdown", "seconds"), [(2.0, 2.0), (BRUTAL_KILL, 0.0)])
async def test_a_child_that_unlinks_and_refuses_to_stop_is_killed_in_its_time(
    shutdown: Any, seconds: float, node: Node
) -> None:
    witness = Witness(node)
    loop = asyncio.get_running_loop()
    async with inbox():
        top = await start_link(Supervisor, [child(Refuses).but(shutdown=shutdown), child(Calm)])
        began = loop.time()
        await stop(top, SHUTDOWN)
        assert loop.time() - began == seconds
        assert len(node.processes) == 1
    assert sum(isinstance(report, ShutdownError) for report in witness.reports) == (shutdown == 2.0)


async def test_a_child_that_swallows_its_kill_is_abandoned_and_the_stop_goes_on(node: Node) -> None:
    witness = Witness(node)
    loop = asyncio.get_running_loop()
    async with inbox():
        top = await start_link(Supervisor, [child(Calm), child(Refuses, deaf=True).but(shutdown=2.0)])
        began = loop.time()
        await stop(top, SHUTDOWN)
        assert loop.time() - began == 2.0 + node.kill_grace
        assert len(node.processes) == 1
    assert [report.label for report in witness.leaks()] == ["Refuses"]
    await asyncio.sleep(100.0)


# --- supervisors that are killed


def rooms(depth: int, notes: list[str], *, named: bool) -> ChildSpec[Any]:
    """A tree: at each level a supervisor with a plain child, a trapping one, and the next level."""
    children: list[ChildSpec[Any]] = [child(Calm), child(Trapping, notes)]
    if depth:
        children.append(rooms(depth - 1, notes, named=named))
    spec = child(Supervisor, children).but(id="rooms", options=Options(label=f"rooms {depth}"))
    return spec.but(name=f"rooms {depth}") if named else spec


class Trapping(Calm):
    """Records its exit."""

    traps_exit = True

    def __init__(self, notes: list[str]) -> None:
        super().__init__()
        self.notes = notes

    def terminate(self, reason: ExitReason) -> None:
        self.notes.append(str(reason))


@pytest.mark.parametrize("named", [False, True])
async def test_a_supervisor_that_is_killed_takes_its_tree_down_and_no_other(node: Node, *, named: bool) -> None:
    # With names, as in OTP: the first attempts meet names that the old tree, which stops in order, still has.
    notes: list[str] = []
    children = [rooms(3, notes, named=named), child(Calm).but(id="beside", name="beside")]
    async with inbox() as me:
        await start_link(Supervisor, children, intensity=10 if named else 1)
        beside, old = whereis("beside"), set(node.processes)
        (victim,) = (each.pid for each in node.processes.values() if each.label == "rooms 3")
        watching = monitor(victim)
        kill(victim)
        assert await me.receive() == Down(watching, victim, KILLED)
        await turns(100)
        assert whereis("beside") == beside
        assert len(set(node.processes) - old) == 12, "as many as there were, and all of them new"
        assert len(node.processes) == len(old)
        assert notes[:4] == ["killed", "shutdown", "shutdown", "shutdown"], "who traps can clean up, at every level"
        assert {each.label for each in node.processes.values()} >= {f"rooms {depth}" for depth in range(4)}
    assert node.leaks == 0


async def test_a_supervisor_that_is_killed_while_it_starts_a_child_leaves_no_child(node: Node) -> None:
    class Slow(Calm):
        async def init(self) -> None:
            trap_exit()
            await forever()

    async with inbox() as me:
        starting = asyncio.ensure_future(start_link(Supervisor, [child(Calm), child(Slow)]))
        await turns()
        (victim,) = (each for each in node.processes.values() if each.label == "Supervisor")
        kill(victim.pid)
        with pytest.raises(StartFailed) as caught:
            await starting
        assert caught.value.reason == KILLED
        await turns()
        assert [each.pid for each in node.processes.values()] == [me.pid]


async def test_a_supervisor_that_is_killed_while_it_stops_a_child_leaves_no_child(node: Node) -> None:
    class Slow(Calm):
        traps_exit = True

        async def terminate(self, reason: ExitReason) -> None:
            await asyncio.sleep(1000.0)

    async with inbox() as me:
        top = await start_link(Supervisor, [child(Slow).but(shutdown=2000.0, name="slow")])
        stopping = asyncio.ensure_future(stop(top, SHUTDOWN))
        await turns()
        kill(top)
        with pytest.raises(ProcessExited, match="killed"):
            await stopping
        slow = whereis("slow")
        assert slow is not None, "it is still at its own terminate, as in OTP"
        assert await wait_down(slow, None) == SHUTDOWN
        assert [each.pid for each in node.processes.values()] == [me.pid]


async def test_a_supervisor_that_is_told_to_crash_is_one_like_any_other(node: Node) -> None:
    async with inbox() as me:
        top = await start_link(Supervisor, [child(Calm).but(name="calm")])
        watching = monitor(top)
        with pytest.raises(ProcessExited, match="crash: ValueError: not its own"):
            await top.call(lambda _: raises(ValueError("not its own"))())
        down = await me.receive(lambda message: isinstance(message, Down))
        assert (down.ref, type(down.reason)) == (watching, Crash)
        assert whereis("calm") is None
        assert len(node.processes) == 1


async def test_a_child_that_blocks_its_supervisors_stop_does_not_block_calls_to_others(node: Node) -> None:
    async with inbox():
        top = await start_link(Supervisor, [child(Refuses).but(shutdown=5.0)])
        calm = await start(Calm)
        stopping = asyncio.ensure_future(stop(top, SHUTDOWN))
        await turns()
        assert await calm.call(Calm.add) == 1
        with pytest.raises(CallTimeout):
            await top.within(1.0).call(Supervisor.which_children)
        await stopping


async def test_exits_from_strangers_are_no_business_of_a_supervisor(node: Node) -> None:
    async with inbox():
        top = await start_link(Supervisor, [child(Breaks).but(name="breaks")])
        stranger = await start(Breaks)
        await stranger.call(Breaks.do, lambda: exit(top, ValueError("from a stranger")))
        await turns()
        assert is_alive(top)
        process = process_of(top)
        assert process is not None
        assert whereis("breaks") is not None
