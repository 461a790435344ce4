"""Each kind of fault does what it promises to its target, at its time."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    CallTimeout,
    Crash,
    CrashReport,
    ExitReason,
    Leaked,
    ProcessExited,
    Ref,
    Shutdown,
    Supervisor,
    child,
    is_alive,
    kill,
    request,
    spawn,
    start,
    statem,
    wait_down,
    watch,
)
from greenroom.supervision.introspect import get_state, status
from greenroom.supervision.statem import Event, GenStatem, Next, Reply, Result, event, state
from greenroom.supervision.testing import (
    CollectedReports,
    Fault,
    FaultContext,
    FaultInjected,
    FaultPlan,
    InjectedFault,
    fault_kind,
    fault_kinds,
    inject,
    start_supervised,
)

from .recording_servers import Box, StubbornBox

if TYPE_CHECKING:
    from greenroom.supervision import Node


def plan(what: str, target: str = "Box", at: float = 0.0, **more: Any) -> FaultPlan:
    return FaultPlan.of(Fault(at, what, target, **more))


async def done(faults: FaultPlan) -> None:
    """Wait until all faults were applied."""
    await (await inject(faults)).wait()


# --- plans


def test_a_plan_is_in_order_and_the_same_after_json() -> None:
    later, sooner, same = (
        Fault(2, "kill", "@a"),
        Fault(1, "hang", "a/*", seconds=3),
        Fault(2, "raise", "#1", which="all"),
    )
    made = FaultPlan.of(later, sooner, same)
    assert list(made) == [sooner, later, same]
    assert FaultPlan.load(made.dump()) == made == FaultPlan.load(made.dump(indent=2))
    assert str(made) == "1 s: hang a/* seconds=3\n2 s: kill @a\n2 s: raise #1[all]"
    assert str(FaultPlan()) == "no faults"


@pytest.mark.parametrize(
    "wrong", [{"at": -1}, {"at": float("nan")}, {"seconds": -1}, {"count": 0}, {"target": ""}, {"target": "@"}]
)
def test_an_impossible_fault_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="a fault"):
        Fault(0, "kill", "Box").but(**wrong)


async def test_a_kind_that_there_is_not_is_refused_before_anything_happens() -> None:
    with pytest.raises(LookupError, match="no kind of fault called 'explode'"):
        await inject(FaultPlan.of(Fault(0, "kill", "Box"), Fault(0, "explode", "Box")))


# --- targets


async def _house() -> None:
    office = child(Supervisor, [child(Box).but(id="desk 1"), child(Box).but(id="desk 2", name="till")])
    await start(Supervisor, [office.but(id="office"), child(StubbornBox)], intensity=9)


@pytest.mark.parametrize(
    ("fault", "hit"),
    [
        (Fault(0, "suspend", "Box"), [3]),
        (Fault(0, "suspend", "Box", which=1), [4]),
        (Fault(0, "suspend", "Box", which=-1), [5]),
        (Fault(0, "suspend", "Box", which=3), []),
        (Fault(0, "suspend", "Box", which="all"), [3, 4, 5]),
        (Fault(0, "suspend", "Stub*"), [5]),
        (Fault(0, "suspend", "@till"), [4]),
        (Fault(0, "suspend", "#5"), [5]),
        (Fault(0, "suspend", "#50"), []),
        (Fault(0, "suspend", "#x"), []),
        (Fault(0, "suspend", "office/desk 2"), [4]),
        (Fault(0, "suspend", "office/*", which="all"), [3, 4]),
        (Fault(0, "suspend", "Supervisor/office/till"), [4]),
        (Fault(0, "suspend", "/Supervisor/office/Box"), [3]),
        (Fault(0, "suspend", "/office/Box"), []),
        (Fault(0, "suspend", "/Supervisor/**/desk 1"), [3]),
        (Fault(0, "suspend", "/**", which="all"), [1, 2, 3, 4, 5]),
        (Fault(0, "suspend", "Missing"), []),
    ],
    ids=str,
)
async def test_a_fault_hits_the_processes_that_its_target_names(
    fault: Fault, hit: list[int], reports: CollectedReports
) -> None:
    await _house()
    injection = await inject(FaultPlan.of(fault))
    await injection.wait()
    assert [report.pid.serial for report in reports.of(FaultInjected) if report.label != "fault-injection"] == hit
    assert bool(injection.missed) == (not hit)


async def test_the_target_of_a_fault_is_looked_up_when_its_time_comes() -> None:
    first = await start_supervised(Box)
    injection = await inject(
        FaultPlan.of(Fault(1, "kill", "Box"), Fault(2, "kill", "Box"), Fault(3, "kill", "Missing"))
    )
    await injection.wait()
    assert [report.fault.at for report in injection.injected] == [1, 2]
    assert injection.injected[0].pid == first.pid != injection.injected[1].pid
    assert [report.why for report in injection.missed] == ["no process matches Missing"]


async def test_faults_happen_on_time_counted_from_the_injection() -> None:
    loop = asyncio.get_running_loop()
    box = await start(Box)
    await asyncio.sleep(10)
    await inject(plan("kill", at=2.5))
    await wait_down(box)
    assert loop.time() == 12.5


# --- kinds


@pytest.mark.parametrize(
    ("what", "reason", "why"),
    [
        ("kill", None, "killed"),
        ("exit", None, "shutdown"),
        ("exit", "killed", "killed"),
        ("exit", "shutdown: tired", "shutdown (tired)"),
        ("exit", "oh", "crash: InjectedFault: oh"),
        ("crash", None, "crash: InjectedFault: crash"),
        ("stop", None, "normal"),
        ("stop", "shutdown", "shutdown"),
        ("task_exit", "bye", "crash: SystemExit: bye"),
    ],
)
async def test_deaths(what: str, reason: str | None, why: str) -> None:
    box = await start(Box)
    await inject(plan(what, reason=reason))
    assert str(await wait_down(box)) == why


async def test_a_normal_exit_signal_is_nothing_to_it() -> None:
    box = await start(Box)
    await done(plan("exit", reason="normal"))
    assert await box.call(Box.look) == []


async def test_the_next_handler_raises_and_the_report_names_its_message(reports: CollectedReports) -> None:
    box = await start(Box)
    await done(plan("raise", reason="ink"))
    await get_state(box)  # looking in is no message
    with pytest.raises(ProcessExited) as ended:
        await box.call(Box.put, "hat")
    assert isinstance(ended.value.__cause__, InjectedFault)
    crash = await reports.expect(CrashReport)
    assert crash.last_message == "call put('hat')"
    assert crash.state == "things=[], waiting=[]"


async def test_a_handler_hangs_for_a_while_and_then_does_what_it_should() -> None:
    box = await start(Box)
    await done(plan("hang", seconds=3))
    with pytest.raises(CallTimeout):
        await box.within(2).call(Box.put, "hat")
    assert await box.call(Box.look) == ["hat"]
    assert asyncio.get_running_loop().time() == 3


async def test_a_handler_hangs_for_ever_or_until_the_injection_is_closed() -> None:
    box = await start(Box)
    injection = await inject(plan("hang"))
    await injection.wait()
    box.cast(Box.put, "hat")
    await asyncio.sleep(1000)
    assert (await asyncio.gather(box.call(Box.look), injection.close()))[0] == ["hat"]
    assert injection.is_over


async def test_a_handler_that_swallows_cancellation_is_abandoned_when_killed(reports: CollectedReports) -> None:
    box = await start(Box)
    await done(plan("swallow"))
    box.cast(Box.put, "hat")
    await asyncio.sleep(1)
    kill(box)
    await wait_down(box)
    await reports.expect(Leaked)


async def test_a_handler_blocks_the_loop() -> None:
    box = await start(Box)
    await done(plan("block", seconds=0.001))
    assert await box.call(Box.put, "hat") == 1


async def test_suspended_for_a_while() -> None:
    box = await start(Box)
    injection = await inject(FaultPlan.of(Fault(0, "suspend", "Box", seconds=4), Fault(0, "raise", "Box")))
    await injection.wait()
    assert (await status(box)).suspended
    with pytest.raises(ProcessExited):
        await box.call(Box.look)
    assert asyncio.get_running_loop().time() == 4


async def test_resumed_early() -> None:
    box = await start(Box)
    await inject(FaultPlan.of(Fault(0, "suspend", "Box", seconds=4), Fault(2, "resume", "Box")))
    await asyncio.sleep(1)
    assert await box.call(Box.look) == []
    assert asyncio.get_running_loop().time() == 2


async def test_a_lost_link_is_a_lost_child() -> None:
    house = await start(Supervisor, [child(Box).but(name="box")])
    await done(plan("unlink"))
    kill(house)
    await wait_down(house)
    assert is_alive(Ref[Box]("box"))


async def test_messages_are_dropped() -> None:
    box = await start(Box)
    await done(plan("drop", count=2))
    for thing in ("hat", "coat", "glove"):
        assert box.cast(Box.put, thing)
    assert await box.call(Box.look) == ["glove"]


async def test_messages_are_delayed() -> None:
    box = await start(Box)
    await done(plan("delay", seconds=2))
    box.cast(Box.put, "hat")
    box.cast(Box.put, "coat")
    assert await box.call(Box.look) == ["coat"]
    await asyncio.sleep(3)
    assert await box.call(Box.look) == ["coat", "hat"]


async def test_messages_are_duplicated_and_calls_are_answered_once() -> None:
    box = await start(Box)
    await done(plan("duplicate", count=2))
    box.cast(Box.put, "hat")
    assert await box.call(Box.put, "coat") == 3
    assert await box.call(Box.look) == ["hat", "hat", "coat", "coat"]


@pytest.mark.parametrize("what", ["raise", "hang", "swallow", "block", "suspend", "resume", "unlink"])
async def test_a_fault_that_cannot_apply_is_missed(what: str) -> None:
    async def idle() -> None:
        await asyncio.Event().wait()

    spawn(idle)
    injection = await inject(plan(what, "*idle"))
    await injection.wait()
    assert injection.injected == []
    assert len(injection.missed) == 1


async def test_traps_that_have_not_gone_off_are_taken_away(node: Node) -> None:
    box = await start(Box)
    budget = node.inline_budget
    injection = await inject(FaultPlan.of(Fault(0, "raise", "Box"), Fault(0, "hang", "Box"), Fault(0, "drop", "Box")))
    await injection.wait()
    await injection.close()
    assert node.inline_budget == budget
    assert await box.call(Box.put, "hat") == 1


async def test_several_traps_go_off_one_after_the_other() -> None:
    box = await start(Box)
    await done(FaultPlan.of(Fault(0, "hang", "Box", seconds=1), Fault(0, "raise", "Box")))
    outcomes = await asyncio.gather(box.call(Box.look), box.call(Box.look), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} <= {list, ProcessExited}
    assert ProcessExited in {type(outcome) for outcome in outcomes}


@fault_kind("forget", simpler=())
def _forget(moment: FaultContext) -> None:
    server: Any = moment.process.behaviour.inner
    server.things.clear()


async def test_a_kind_of_ones_own() -> None:
    assert "forget" in fault_kinds()
    box = await start(Box)
    await box.call(Box.put, "hat")
    await done(plan("forget"))
    assert await box.call(Box.look) == []
    with pytest.raises(ValueError, match="already"):
        fault_kind("kill")(_forget)


async def test_dying_processes_and_the_injection_are_no_targets() -> None:
    box = await start(StubbornBox)
    reason: ExitReason = Shutdown("x")
    assert not isinstance(reason, Crash)
    injection = await inject(FaultPlan.of(Fault(0, "kill", "#1"), Fault(0, "kill", "#1"), Fault(0, "kill", "fault-*")))
    await wait_down(box)
    await injection.wait()
    assert len(injection.injected) == 1
    assert len(injection.missed) == 2


# --- machines, and answers that come later


class Light(Enum):
    OFF = "off"
    ON = "on"


class Lamp(GenStatem[Light]):
    initial = Light.OFF

    @event
    def switch(self) -> str:
        raise NotImplementedError

    @state(Light.OFF, to=(Light.ON,))
    def off(self, event: Event) -> Result[Light]:
        match event:
            case statem.Call(Lamp.switch, caller=caller):
                return Next(Light.ON, Reply(caller, "on"))
            case _:
                return self.unexpected(event)

    @state(Light.ON, to=(Light.OFF,))
    def on(self, event: Event) -> Result[Light]:
        match event:
            case statem.Call(Lamp.switch, caller=caller):
                return Next(Light.OFF, Reply(caller, "off"))
            case _:
                return self.unexpected(event)


@pytest.mark.parametrize("what", ["hang", "block", "suspend", "delay"])
async def test_a_machine_is_held_up_and_goes_on(what: str) -> None:
    lamp = await start(Lamp)
    await done(plan(what, "Lamp", seconds=0.01))
    assert await lamp.call(Lamp.switch) == "on"
    assert await lamp.call(Lamp.switch) == "off"


async def test_a_machine_raises_in_its_next_event(reports: CollectedReports) -> None:
    lamp = await start(Lamp)
    await lamp.call(Lamp.switch)
    await done(plan("raise", "Lamp"))
    with pytest.raises(ProcessExited):
        await lamp.call(Lamp.switch)
    crash = await reports.expect(CrashReport)
    assert crash.last_message == "call switch()"
    assert "ON" in (crash.state or "")


async def test_a_hung_handler_can_still_reply_later() -> None:
    box = await start(Box)
    await done(plan("hang", seconds=1))
    waiting = request(box, Box.wait)
    await box.call(Box.answer_last_first)
    assert await waiting.wait() == "now"


async def test_a_recorded_handler_can_be_intercepted() -> None:
    box = await start(Box)
    watching = watch(box, kinds=("message",))
    await done(FaultPlan.of(Fault(0, "hang", "Box", seconds=1), Fault(0, "hang", "Box", seconds=1)))
    assert await box.call(Box.put, "hat") == 1
    assert await box.call(Box.put, "coat") == 2
    assert [note.what for note in watching.notes] == ["call put('hat')", "call put('coat')"]
    assert asyncio.get_running_loop().time() == 2
