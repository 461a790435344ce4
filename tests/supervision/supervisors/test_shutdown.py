"""Stopping children: no child can hang its supervisor, and its true exit reason is reported."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    KILLED,
    NO_PROCESS,
    NORMAL,
    SHUTDOWN,
    CallCycle,
    ChildSpec,
    Crash,
    DynamicSupervisor,
    Exit,
    GenServer,
    Patience,
    Pid,
    Quit,
    Shutdown,
    ShutdownError,
    Supervisor,
    child,
    count_children,
    current_node,
    exit,
    inbox,
    is_alive,
    kill,
    receive,
    spawn_link,
    start_child,
    start_link,
    stop,
    template,
    terminate_child,
    trap_exit,
    unlink,
    wait_down,
)

from .sample_children import Broken, Counter, Polite, heard, of, pids, ref_of, settled

if TYPE_CHECKING:
    from greenroom.supervision.kernel.process_messages import ExitReason


def now() -> float:
    return asyncio.get_running_loop().time()


class Loose(Polite):
    """Unlinks itself from its supervisor."""

    def init(self) -> None:
        parent = self._otp_process.parent
        assert parent is not None
        unlink(parent.pid)


async def test_a_child_that_unlinked_and_lingers_is_killed_when_its_time_is_over() -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Loose, 1000.0).but(shutdown=2.0)])
        ref = await ref_of(sup)
        begun = now()
        with heard() as reports:
            await terminate_child(sup, "Loose")
        assert now() - begun == 2.0
        assert not is_alive(ref)
        assert [report.reason for report in of(reports, ShutdownError)] == [KILLED]


async def test_a_child_that_unlinked_and_is_gone_does_not_hang_the_supervisor() -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Loose)])
        kill(await ref_of(sup))
        with heard() as reports:
            await terminate_child(sup, "Loose")
        assert [report.reason for report in of(reports, ShutdownError)] == [NO_PROCESS]


async def test_the_reason_of_one_that_died_before_is_found_in_the_mailbox() -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Counter).but(id=n) for n in range(3)], strategy="one_for_all")
        with heard() as reports:
            # All three die before the supervisor runs: it comes to know of the first, and has to stop the others.
            for pid in await pids(sup):
                exit(pid, Broken())
            assert (await count_children(sup)).active == 3
        errors = of(reports, ShutdownError)
        assert [report.child.id for report in errors] == [2, 1]
        assert all(isinstance(report.reason, Crash) for report in errors)


class Leaving(GenServer):
    """Ends for a reason of its own when it is told to shut down."""

    traps_exit = True

    def __init__(self, reason: ExitReason) -> None:
        self.reason = reason

    def terminate(self, reason: ExitReason) -> None:
        raise Quit(self.reason)


OTHER = Crash(Broken())


@pytest.mark.parametrize(
    ("restart", "reason", "told"),
    [
        ("permanent", SHUTDOWN, False),
        ("permanent", Shutdown("reached max restart intensity"), False),
        ("permanent", Shutdown("done"), True),
        ("permanent", NORMAL, True),
        ("permanent", OTHER, True),
        ("transient", Shutdown("done"), False),
        ("transient", NORMAL, False),
        ("transient", OTHER, True),
        ("temporary", NORMAL, False),
        ("temporary", OTHER, True),
    ],
)
async def test_which_ends_are_worth_a_report(restart: Any, reason: ExitReason, *, told: bool) -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Leaving, reason).but(restart=restart)])
        with heard() as reports:
            await stop(sup)
        assert [report.reason for report in of(reports, ShutdownError)] == [reason] * told


@pytest.mark.parametrize(("restart", "told"), [("permanent", True), ("transient", False)])
async def test_a_brutal_kill_child_that_had_already_shut_down(restart: Any, *, told: bool) -> None:
    async with inbox():
        children = [child(Counter), child(Counter).but(id="second", shutdown="brutal_kill", restart=restart)]
        sup = await start_link(Supervisor, children, strategy="one_for_all")
        first, second = [pid for pid in await pids(sup) if pid]
        with heard() as reports:
            exit(first, Broken())
            exit(second, SHUTDOWN)
            await settled(sup)
        assert [report.reason for report in of(reports, ShutdownError)] == [SHUTDOWN] * told


async def test_a_child_has_no_time_at_all_with_zero_seconds_unless_it_ends_at_once() -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Polite, 10.0).but(shutdown=0), child(Counter).but(shutdown=0)])
        with heard() as reports:
            await stop(sup)
        assert [(report.child.id, report.reason) for report in of(reports, ShutdownError)] == [("Polite", KILLED)]


async def test_a_stop_that_is_patient_for_ever_outlasts_any_goodbye() -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Polite, 10_000.0).but(shutdown="infinity")])
        begun = now()
        await stop(sup)
        assert now() - begun == 10_000


class Asking(GenServer):
    """Calls its supervisor while that waits for it: in `init`, or while stopping."""

    traps_exit = True

    def __init__(self, when: str, heard: list[BaseException]) -> None:
        self.when = when
        self.heard = heard

    async def init(self) -> None:
        if self.when == "init":
            await self.ask_above()

    async def terminate(self, reason: ExitReason) -> None:
        if self.when == "terminate":
            await self.ask_above()

    async def ask_above(self) -> None:
        parent = self._otp_process.parent
        assert parent is not None
        try:
            await count_children(parent.pid)
        except CallCycle as error:
            self.heard.append(error)


@pytest.mark.parametrize("when", ["init", "terminate"])
async def test_a_child_that_asks_the_supervisor_that_waits_for_it_is_refused_at_once(when: str) -> None:
    errors: list[BaseException] = []
    async with inbox():
        begun = now()
        sup = await start_link(Supervisor, [child(Asking, when, errors)])
        await stop(sup)
        assert now() == begun
    assert len(errors) == 1


async def test_a_supervisor_that_is_killed_while_it_stops_takes_its_children_along() -> None:
    async with inbox() as me:
        sup = await start_link(Supervisor, [child(Counter), child(Polite, 100.0).but(shutdown="infinity")])
        first, last = [pid for pid in await pids(sup) if pid]
        sup.cast(Supervisor.terminate_child, "Polite")
        await asyncio.sleep(1)
        kill(sup)
        assert (await me.receive()).reason == KILLED
        assert not is_alive(first)
        dying = current_node().process(last)
        assert dying is not None
        assert dying.callers is None  # nothing of the dead supervisor waits for it any more
        await wait_down(last, 200)


async def test_children_that_die_together_are_stopped_without_looking_through_the_mailbox_for_each() -> None:
    many = 3000
    async with inbox():
        sup = await start_link(
            Supervisor, [child(Counter).but(id=n) for n in range(many)], strategy="one_for_all", intensity=1
        )
        for pid in await pids(sup):
            kill(pid)
        assert (await count_children(sup)).active == many


async def plain() -> Pid:
    async def main() -> None:
        trap_exit()
        while True:
            message = await receive()
            if isinstance(message, Exit):
                return

    return spawn_link(main)


async def test_a_child_may_be_a_plain_process() -> None:
    async with inbox():
        sup = await start_link(Supervisor, [ChildSpec(id="plain", start=plain, restart="transient")])
        (pid,) = await pids(sup)
        assert pid is not None
        assert is_alive(pid)
        with heard() as reports:
            await stop(sup)
        assert not reports
        assert not is_alive(pid)


async def test_dynamic_children_are_stopped_all_at_once() -> None:
    async with inbox():
        told: list[Any] = []
        sup = await start_link(DynamicSupervisor, template(Polite).but(shutdown=2.0))
        for number, goodbye in enumerate((1.5, 0.5, 1.0, 5.0)):
            await start_child(sup, goodbye, told, number)
        begun = now()
        with heard() as reports:
            await stop(sup)
        assert now() - begun == 2.0
        assert told == [1, 2, 0]
        assert [(report.reason, report.child.count) for report in of(reports, ShutdownError)] == [(KILLED, 1)]


async def test_each_dynamic_child_with_a_spec_of_its_own_has_its_own_time() -> None:
    async with inbox():
        told: list[Any] = []
        sup = await start_link(DynamicSupervisor)
        times: list[tuple[Patience, float]] = [(1.0, 9.0), (3.0, 2.0), ("brutal_kill", 1.0), ("infinity", 4.0)]
        for shutdown, goodbye in times:
            await start_child(sup, child(Polite, goodbye, told, shutdown).but(shutdown=shutdown, restart="temporary"))
        begun = now()
        await stop(sup)
        assert now() - begun == 4.0
        assert told == [3.0, "infinity"]


async def test_many_that_fail_alike_are_one_report() -> None:
    async with inbox():
        sup = await start_link(DynamicSupervisor, template(Leaving).but(restart="temporary"))
        for number in range(10):
            await start_child(sup, Crash(Broken("alike")) if number % 2 else SHUTDOWN)
        with heard() as reports:
            await stop(sup)
        (report,) = of(reports, ShutdownError)
        assert report.child.count == 5
        assert str(report.child) == "5 children like 'Leaving'"
