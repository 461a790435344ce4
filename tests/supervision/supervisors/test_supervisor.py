"""Supervisors beyond OTP's own suite: wrong start functions, retries, and Python's own cases."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from greenroom.supervision import (
    IGNORE,
    KILLED,
    SHUTDOWN,
    ActorError,
    AlreadyPresent,
    AlreadyRegistered,
    AlreadyStarted,
    BadReturn,
    BadSpec,
    ChildNotFound,
    ChildRestarting,
    ChildRunning,
    ChildSpec,
    ChildTerminated,
    Crash,
    Exit,
    FailedToStartChild,
    GenServer,
    Options,
    Pid,
    ProcessExited,
    ProgressReport,
    Quit,
    ReachedMaxRestartIntensity,
    Ref,
    Shutdown,
    StartError,
    StartFailed,
    StartIgnored,
    StartRaised,
    Supervisor,
    Unexpected,
    child,
    count_children,
    delete_child,
    get_childspec,
    inbox,
    is_alive,
    kill,
    restart_child,
    spawn,
    start_child,
    start_link,
    stop,
    terminate_child,
    whereis,
    which_child,
    which_children,
)

from .sample_children import (
    Broken,
    Counter,
    Dependent,
    Polite,
    SlowDependent,
    World,
    heard,
    kept_of,
    of,
    pids,
    ref_of,
    settled,
)


class Office(Supervisor):
    """Determines its children in `init`."""

    def __init__(self, size: int, *, closed: bool = False) -> None:
        super().__init__([child(Counter, number).but(id=number) for number in range(size)], strategy="rest_for_one")
        self.closed = closed

    async def init(self) -> Any:
        await asyncio.sleep(1)
        return IGNORE if self.closed else await super().init()

    def size(self) -> int:
        return len(self.which_children())


@pytest.mark.otp("supervisor_test", "start_link/3")
async def test_deriving_from_it_gives_a_supervisor_with_state_and_methods_of_its_own() -> None:
    async with inbox():
        office = await start_link(Office, 3)
        assert await office.call(Office.size) == 3
        assert [each.id for each in await which_children(office)] == [2, 1, 0]
        with pytest.raises(StartIgnored):
            await start_link(Office, 3, closed=True)


class Forgetful(Supervisor):
    """Does not call the constructor that it overrides."""

    def __init__(self) -> None:
        self.size = 3


async def test_a_constructor_that_forgets_its_base_is_told_so() -> None:
    async with inbox():
        with pytest.raises(StartFailed) as caught:
            await start_link(Forgetful)
        assert "super().__init__" in str(caught.value.__cause__)


@pytest.mark.otp("supervisor_test", "start_child/2 with valid child spec")
@pytest.mark.otp("supervisor_test", "start_child/2 supports new child spec")
@pytest.mark.otp("supervisor_test", "start_child/2 supports new child spec as tuple")
async def test_start_child_gives_what_the_start_function_gave() -> None:
    async def start() -> tuple[Ref[Counter], str]:
        return await start_link(Counter, 1), "extra"

    async with inbox():
        sup = await start_link(Supervisor)
        ref, extra = await start_child(sup, ChildSpec(id="pair", start=start))
        assert extra == "extra"
        assert await ref.call(Counter.add, 1) == 2
        counter = await start_child(sup, child(Counter, 5))
        assert await counter.call(Counter.add, 1) == 6
        assert await sup.call(Supervisor.which_child, "Counter") == await which_child(sup, "Counter")


@pytest.mark.otp("supervisor_test", "start_link/3 with local")
async def test_the_functions_take_a_ref_a_pid_or_a_name() -> None:
    async with inbox():
        sup = await Options(name="sup").start_link(Supervisor, [child(Counter)])
        assert await which_children("sup") == await which_children(sup.pid) == await which_children(sup)


async def test_the_functions_wait_as_long_as_a_start_takes() -> None:
    class Slow(GenServer):
        async def init(self) -> None:
            await asyncio.sleep(1000)

    async with inbox():
        sup = await start_link(Supervisor)
        assert is_alive(await start_child(sup, child(Slow)))


# --- start functions that do what they must not


@pytest.mark.parametrize("error", [Broken(), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
async def test_a_start_function_that_raises_anything_is_a_failed_start(error: BaseException) -> None:
    async def start() -> Pid:
        raise error

    spec = ChildSpec(id="bad", start=start)
    async with inbox():
        with heard() as reports, pytest.raises(StartFailed) as caught:
            await start_link(Supervisor, [spec])
        assert caught.value.reason == Shutdown(FailedToStartChild("bad", Crash(error)))
        assert caught.value.__cause__ is error
        assert str(caught.value.reason).startswith("shutdown (child 'bad' failed to start: crash: ")
        (report,) = of(reports, StartError)
        assert not report.reported
        sup = await start_link(Supervisor)
        with pytest.raises(StartRaised) as raised:
            await start_child(sup, spec)
        assert raised.value.reason == Crash(error)
        assert await which_children(sup) == []


async def test_a_start_function_may_quit_with_a_reason() -> None:
    async def start() -> Pid:
        raise Quit(Shutdown("not today"))

    async with inbox():
        sup = await start_link(Supervisor)
        with pytest.raises(StartFailed) as caught:
            await start_child(sup, ChildSpec(id="bad", start=start))
        assert caught.value.reason == Shutdown("not today")


@pytest.mark.parametrize("value", [None, 7, (), (7, "extra"), "name"])
async def test_a_start_function_that_returns_no_process_is_a_failed_start(value: Any) -> None:
    async def start() -> Any:
        return value

    async with inbox():
        sup = await start_link(Supervisor)
        with pytest.raises(StartFailed) as caught:
            await start_child(sup, ChildSpec(id="bad", start=start))
        assert isinstance(caught.value.__cause__, BadReturn)
        assert "neither a Ref nor a pid" in str(caught.value.__cause__)


async def test_a_child_without_a_link_is_pointed_out() -> None:
    async def main() -> None:
        await asyncio.sleep(1)

    async def start() -> Pid:
        return spawn(main)

    async with inbox():
        with heard() as reports:
            sup = await start_link(Supervisor, [ChildSpec(id="loose", start=start)])
        (report,) = of(reports, Unexpected)
        assert "runs without a link" in report.message
        assert (await which_child(sup, "loose")).state == "running"


async def test_a_name_that_is_taken_is_told_as_such() -> None:
    async with inbox():
        other = await Options(name="taken").start_link(Counter)
        sup = await start_link(Supervisor)
        with pytest.raises(AlreadyRegistered) as caught:
            await start_child(sup, child(Counter).but(name="taken"))
        assert caught.value.pid == other.pid


# --- mistakes of callers


async def test_mistakes_of_callers_hurt_the_callers_alone() -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Counter)])
        bad: Any = "Counter"
        unhashable: Any = []
        with pytest.raises(BadSpec):
            await start_child(sup, bad)
        with pytest.raises(BadSpec, match="significant"):
            await start_child(sup, child(Counter).but(id=2, restart="transient", significant=True))
        with pytest.raises(TypeError):
            await start_child(sup)
        for function in (terminate_child, restart_child, delete_child, which_child, get_childspec):
            for id in ("missing", unhashable):
                with pytest.raises(ChildNotFound):
                    await function(sup, id)
        with pytest.raises(AlreadyStarted) as started:
            await start_child(sup, child(Counter))
        assert started.value.pid == (await which_child(sup, "Counter")).pid
        with pytest.raises(ChildRunning):
            await restart_child(sup, "Counter")
        with pytest.raises(ChildRunning):
            await delete_child(sup, "Counter")
        await terminate_child(sup, "Counter")
        with pytest.raises(AlreadyPresent):
            await start_child(sup, child(Counter))
        with heard() as reports:
            sup.send("junk")
            assert await count_children(sup) == (1, 0, 0, 1)
        assert [report.message for report in of(reports, Unexpected)] == ["'junk'"]


@pytest.mark.parametrize("error", [AlreadyPresent("a"), AlreadyStarted("a", Pid("n", 1, 2)), ChildNotFound("a")])
def test_errors_say_which_child(error: ActorError) -> None:
    assert "'a'" in str(error)


# --- restarts


async def test_a_failing_restart_is_tried_again_and_counted_until_it_is_too_much() -> None:
    async with inbox() as me:
        world = World()
        sup = await start_link(Supervisor, [child(Dependent, world)], intensity=4)
        ref = await ref_of(sup)
        world.there = False
        with heard() as reports:
            kill(ref)
            assert (await me.receive()).reason == Shutdown("reached max restart intensity")
        assert len(of(reports, ChildTerminated)) == 1
        assert len(of(reports, StartError)) == 4
        (report,) = of(reports, ReachedMaxRestartIntensity)
        assert (report.intensity, report.period, report.child.id) == (4, 5.0, "Dependent")


async def test_between_attempts_the_supervisor_answers() -> None:
    async with inbox():
        world = World()
        sup = await start_link(Supervisor, [child(SlowDependent, world)], intensity=100)
        world.there = False
        kill(await ref_of(sup))
        for _ in range(5):
            assert (await which_children(sup))[0].state == "restarting"
        with pytest.raises(ChildRestarting):
            await restart_child(sup, "SlowDependent")
        with pytest.raises(ChildRestarting):
            await delete_child(sup, "SlowDependent")
        with pytest.raises(AlreadyPresent):
            await start_child(sup, child(SlowDependent, world))
        await terminate_child(sup, "SlowDependent")
        assert (await which_child(sup, "SlowDependent")).state == "undefined"
        tries = len(world.tries)
        await asyncio.sleep(100)
        assert len(world.tries) == tries
        world.there = True
        assert is_alive(await restart_child(sup, "SlowDependent"))


async def test_a_retry_that_was_asked_for_before_the_child_was_started_by_hand_is_void() -> None:
    async with inbox():
        world = World()
        sup = await start_link(Supervisor, [child(Dependent, world)], intensity=3)
        world.there = False
        kill(await ref_of(sup))
        # Behind the first failed attempt: a stop, a start by hand, and only then the retry that it had asked for.
        sup.cast(Supervisor.terminate_child, "Dependent")
        await settled(sup)
        world.there = True
        await restart_child(sup, "Dependent")
        tries = len(world.tries)
        for _ in range(2):
            kill(await ref_of(sup))
            await settled(sup)
        assert len(world.tries) == tries + 2
        assert is_alive(sup)


async def test_a_bound_of_the_mailbox_does_not_stop_a_retry() -> None:
    async with inbox():
        world = World()
        sup = await Options(mailbox=1).start_link(Supervisor, [child(SlowDependent, world)], intensity=2)
        world.there = False
        kill(await ref_of(sup))
        await asyncio.sleep(0.5)
        assert sup.send("in the way")
        assert not sup.send("one too many")
        await asyncio.sleep(1)  # the first attempt has failed, with the mailbox full
        world.there = True
        await asyncio.sleep(1)
        assert (await which_children(sup))[0].state == "running"
        assert len(world.tries) == 3


async def test_the_count_of_restarts_is_shown_and_a_start_by_hand_is_none() -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Counter)], intensity=5)
        for _ in range(2):
            kill(await ref_of(sup))
            await settled(sup)
        await terminate_child(sup, "Counter")
        await restart_child(sup, "Counter")
        (one,) = kept_of(sup)
        assert one.restarts == 2


async def test_intensity_is_per_supervisor_and_counts_in_virtual_seconds() -> None:
    async with inbox() as me:
        sup = await start_link(Supervisor, [child(Counter)], intensity=1, period=2)
        for _ in range(3):
            kill(await ref_of(sup))
            await asyncio.sleep(2.01)
        assert is_alive(sup)
        kill(await ref_of(sup))
        await asyncio.sleep(1.98)
        kill(await ref_of(sup))
        assert isinstance(await me.receive(), Exit)


async def test_a_crash_is_restarted_with_the_callers_already_told() -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Counter).but(name="counter")])
        ref: Ref[Counter] = Ref("counter")
        with pytest.raises(ProcessExited) as caught:
            await ref.call(Counter.crash)
        assert isinstance(caught.value.__cause__, Broken)
        await settled(sup)
        assert await ref.call(Counter.add, 2) == 2


# --- order, reports, memory


@pytest.mark.otp("supervisor_test", "start_link/2")
async def test_children_start_in_order_and_stop_in_reverse() -> None:
    told: list[Any] = []
    async with inbox():
        sup = await start_link(
            Supervisor,
            [child(Polite, 0.0, told, name).but(id=name) for name in "cab"],
            strategy="one_for_all",
            intensity=3,
        )
        before = await pids(sup)
        assert before == sorted(before, key=lambda pid: pid.serial if pid else 0)
        kill(await ref_of(sup, 1))
        await settled(sup)
        assert told == ["b", "c"]
        after = await pids(sup)
        assert after == sorted(after, key=lambda pid: pid.serial if pid else 0)
        told.clear()
        await stop(sup)
        assert told == ["b", "a", "c"]


async def test_progress_tells_who_asked() -> None:
    async with inbox():
        with heard() as reports:
            sup = await start_link(Supervisor, [child(Counter)])
            await start_child(sup, child(Counter).but(id="asked"))
            kill(await ref_of(sup))
            await settled(sup)
        progress = of(reports, ProgressReport)
        assert [(report.child.id, report.asked_for) for report in progress] == [
            ("Counter", False),
            ("asked", True),
            ("Counter", False),
        ]
        assert all(is_alive(report.child.pid) for report in progress[1:])


async def test_a_report_says_where_in_the_tree() -> None:
    async with inbox():
        with heard() as reports:
            top = await Options(name="top").start_link(Supervisor, [child(Supervisor, [child(Counter)])])
            inner = await ref_of(top)
            kill(await ref_of(inner))
            await settled(inner)
        (report,) = of(reports, ChildTerminated)
        assert report.supervisor == f"Supervisor {inner.pid}"
        assert report.ancestors[0] == f"Supervisor {top.pid}"
        assert report.child.start == "Counter()"
        assert report.reason == KILLED
        assert report.context == "child_terminated"
        assert [each.supervisor for each in of(reports, ProgressReport)][1] == f"top {top.pid}"


class Load:
    """A start argument of a child."""


@pytest.mark.parametrize(("restart", "kept"), [("permanent", True), ("transient", True), ("temporary", False)])
async def test_how_a_temporary_child_was_started_is_not_kept(restart: Any, *, kept: bool) -> None:
    async with inbox():
        sup = await start_link(Supervisor)
        load = Load()
        seen = weakref.ref(load)
        ref = await start_child(sup, child(Counter, 0, load).but(restart=restart))
        await ref.call(drop)
        del load
        gc.collect()
        assert (seen() is not None) == kept


def drop(counter: Counter) -> None:
    counter.more = ()


async def test_a_supervisor_dies_with_its_parent_and_its_children_with_it() -> None:
    async with inbox():
        async with inbox():
            sup = await start_link(Supervisor, [child(Supervisor, [child(Counter).but(name="deep")]), child(Counter)])
            assert whereis("deep")
        await asyncio.sleep(0.1)
        assert not is_alive(sup)
        assert not whereis("deep")


async def test_when_two_children_die_at_once_each_is_restarted_once() -> None:
    async with inbox():
        sup = await start_link(Supervisor, [child(Counter).but(id=n) for n in range(5)], intensity=2)
        before = await pids(sup)
        for pid in before[1:3]:
            kill(pid)
        await settled(sup)
        after = await pids(sup)
        assert [new == old for new, old in zip(after, before, strict=True)] == [True, False, False, True, True]


async def test_shutting_down_a_significant_child_ends_its_supervisor_orderly() -> None:
    async with inbox() as me:
        sup = await start_link(
            Supervisor,
            [child(Counter).but(restart="transient", significant=True), child(Counter).but(id="other")],
            auto_shutdown="any_significant",
        )
        await stop(await ref_of(sup))
        assert (await me.receive()).reason == SHUTDOWN
