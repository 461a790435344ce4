"""Processes of a test are started in order, restart when they die, and are stopped in reverse."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import (
    CallTimeout,
    ChildTerminated,
    Crash,
    GenServer,
    Killed,
    NotRegistered,
    Options,
    ProgressReport,
    Ref,
    StartFailed,
    child,
    is_alive,
    register,
    send_after,
    spawn,
    start,
    whereis,
)
from greenroom.supervision.supervisors.child_spec import Backoff
from greenroom.supervision.supervisors.dynamic_supervisor import DynamicSupervisor
from greenroom.supervision.supervisors.supervision_tree import start_child
from greenroom.supervision.testing import (
    CollectedReports,
    Probe,
    kill,
    restart_of,
    run,
    start_supervised,
    stop_supervised,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from greenroom.supervision import ExitReason


class Counter(GenServer):
    def __init__(self, value: int = 0) -> None:
        self.value = value

    def add(self, n: int) -> int:
        self.value += n
        return self.value

    def boom(self) -> None:
        raise ValueError("boom")


class Ending(GenServer):
    traps_exit = True

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def terminate(self, reason: ExitReason) -> None:
        self.log.append(f"{self.name}: {reason}")


def test_the_last_that_was_started_is_the_first_that_is_stopped() -> None:
    log: list[str] = []

    async def main() -> None:
        await start_supervised(Ending, "one", log)
        await start_supervised(Ending, "two", log)
        await start_supervised(child(Ending, "three", log).but(id="third"))

    run(main)
    assert log == ["three: shutdown", "two: shutdown", "one: shutdown"]


async def test_start_supervised_returns_a_typed_ref() -> None:
    counter = await start_supervised(Counter, 2)
    assert await counter.call(Counter.add, 3) == 5


async def test_a_start_that_fails_is_told() -> None:
    class Never(GenServer):
        def init(self) -> None:
            raise OSError("no")

    with pytest.raises(StartFailed):
        await start_supervised(Never)


async def test_the_plugin_hands_it_out_as_a_fixture(start_supervised: Callable[..., Awaitable[Ref[Counter]]]) -> None:
    assert is_alive(await start_supervised(Counter))


async def test_kill_waits_for_the_end() -> None:
    counter = await start(Counter)
    assert await kill(counter) == Killed()
    assert not is_alive(counter)
    with pytest.raises(NotRegistered):
        await kill(counter)
    with pytest.raises(NotRegistered):
        await kill("missing")


async def test_kill_waits_for_the_successor_under_a_supervisor() -> None:
    counter = await start_supervised(Counter, 2)
    again = await kill(counter, successor=True)
    assert again != counter
    assert await again.call(Counter.add, 1) == 3
    assert asyncio.get_running_loop().time() == 0


async def test_kill_waits_for_the_successor_of_a_name() -> None:
    counter = await start_supervised(child(Counter).but(name="hits"))
    old = whereis("hits")
    again = await kill(Ref[Counter]("hits"), successor=True)
    assert old == counter.pid
    assert again.pid == whereis("hits") != old


async def test_a_name_may_be_taken_over_by_any_process() -> None:
    await Options(name="hits").start(Counter)

    async def heir() -> None:
        await asyncio.sleep(2)
        register("hits")
        await asyncio.sleep(60)

    pid = spawn(heir)
    assert (await kill("hits", successor=True)).pid == pid


async def test_a_restart_after_a_crash_is_seen(reports: CollectedReports) -> None:
    counter = await start_supervised(Counter)
    async with restart_of(counter) as again:
        with pytest.raises(RuntimeError, match="when the block"):
            _ = again.ref
        counter.cast(Counter.boom)
    assert is_alive(again.ref)
    terminated = await reports.expect(ChildTerminated)
    assert isinstance(terminated.reason, Crash)
    assert len(reports.of(ProgressReport)) == 2


async def test_a_restart_that_is_postponed_is_seen_at_its_very_moment() -> None:
    counter = await start_supervised(child(Counter, 7).but(backoff=Backoff(first=2, jitter=0)))
    again = await kill(counter, successor=True)
    assert asyncio.get_running_loop().time() == 2
    assert await again.call(Counter.add, 0) == 7


async def test_children_of_a_dynamic_supervisor_come_back_too() -> None:
    rooms = await start_supervised(DynamicSupervisor)
    one = await start_child(rooms, child(Counter, 1))
    await start_child(rooms, child(Counter, 2))
    again = await kill(one, successor=True)
    assert await again.call(Counter.add, 10) == 11


async def test_a_process_that_does_not_restart_is_reported() -> None:
    counter = await start_supervised(child(Counter).but(restart="temporary"))
    with pytest.raises(CallTimeout, match="did not come back within 3 s"):
        await kill(counter, successor=True, within=3)
    assert asyncio.get_running_loop().time() >= 3
    living = await start_supervised(child(Counter).but(id="other"))
    with pytest.raises(CallTimeout, match="did not end within 1 s"):
        async with restart_of(living, within=1):
            pass


async def test_a_process_that_can_have_no_successor_is_refused() -> None:
    with pytest.raises(LookupError, match="no supervisor and no name"):
        await kill(await start(Counter), successor=True)


async def test_a_child_can_be_stopped_early() -> None:
    counter = await start_supervised(Counter)
    other = await start_supervised(Counter)
    await stop_supervised(counter)
    assert not is_alive(counter)
    await stop_supervised("Counter 2")
    assert not is_alive(other)
    assert is_alive(await start_supervised(Counter))
    with pytest.raises(NotRegistered):
        await stop_supervised(counter)


async def test_the_supervisor_of_a_test_never_gives_up(probe: Probe) -> None:
    counter = await start_supervised(Counter)
    for _ in range(20):
        counter = await kill(counter, successor=True)
    send_after(1, probe, "still here")
    await probe.expect("still here", within=2)
    assert is_alive(counter)
