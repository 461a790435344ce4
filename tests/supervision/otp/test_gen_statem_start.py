"""Starting a state machine: with and without a name, linked, monitored, in time and not, and failing in every way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    IGNORE,
    KILLED,
    NORMAL,
    SHUTDOWN,
    ActorError,
    AlreadyRegistered,
    BadReturn,
    Crash,
    Down,
    Exit,
    Node,
    Options,
    Quit,
    Ref,
    Registry,
    Shutdown,
    StartFailed,
    StartIgnored,
    StartTimeout,
    Stop,
    acknowledge,
    become,
    exit,
    inbox,
    register,
    self_pid,
    start,
    start_link,
    start_monitor,
    start_routine_link,
    stop,
    trap_exit,
    via,
    wait_down,
    whereis,
)
from greenroom.supervision.statem import Next

from .machines import STYLES, Board, Line, Phone, in_state, is_gone, stops, works, works_in_calls
from .servers import Bailout, Stopped, crash_reports

if TYPE_CHECKING:
    from greenroom.supervision import Inbox

styles = pytest.mark.parametrize("style", STYLES)
KINDS = ["start", "start_link", "start_monitor"]


async def begin(kind: str, style: type[Any], outcome: Any = None, options: Options | None = None) -> Ref[Phone]:
    """Start a machine in one of the three ways; `outcome` is that of its init."""
    by = Options() if options is None else options
    if kind == "start_monitor":
        ref, _ = await by.start_monitor(style, outcome)
        return ref
    started: Ref[Phone] = await (by.start if kind == "start" else by.start_link)(style, outcome)
    return started


async def all_of_it(ref: Ref[Phone], me: Inbox) -> None:
    await works(ref, me)
    await works_in_calls(ref, me)


async def told_of_the_end(kind: str, me: Inbox) -> None:
    """A linked starter gets an exit signal, one that monitors a Down, and either only one of them."""
    if kind != "start":
        ended = await me.receive(timeout=5)
        assert isinstance(ended, Exit if kind == "start_link" else Down)
        assert ended.reason == NORMAL
    assert me.pending() == ()


@pytest.mark.otp("gen_statem_SUITE", "start1")
@pytest.mark.otp("gen_statem_SUITE", "start6")
@pytest.mark.parametrize("kind", KINDS)
@styles
async def test_a_machine_starts_works_and_stops(kind: str, style: type[Any]) -> None:
    async with inbox() as me:
        ref = await begin(kind, style)
        await all_of_it(ref, me)
        await stops(ref)
        await told_of_the_end(kind, me)


@pytest.mark.otp("gen_statem_SUITE", "start2")
@styles
async def test_a_machine_that_is_told_to_shut_down_does(style: type[Any]) -> None:
    async with inbox() as me:
        ref = await start(style)
        await all_of_it(ref, me)
        assert await ref.call(Phone.stop, SHUTDOWN) == "stopped"
        await is_gone(ref)
        assert me.pending() == ()


@pytest.mark.otp("gen_statem_SUITE", "start3")
@pytest.mark.otp("gen_statem_SUITE", "loop_start_fail")
@pytest.mark.parametrize("kind", KINDS)
@styles
async def test_an_init_that_takes_too_long_is_killed_and_one_that_is_in_time_comes_through(
    kind: str, style: type[Any], node: Node
) -> None:
    async with inbox() as me:
        ref = await begin("start", style, 0.1, Options(timeout=0.2))
        await all_of_it(ref, me)
        await stops(ref)
        before = len(node.processes)
        for _ in range(5):
            with pytest.raises(StartTimeout) as late:
                await begin(kind, style, 1.0, Options(timeout=0.2, name="slow"))
            assert late.value.reason == KILLED
            assert len(node.processes) == before
            assert whereis("slow") is None
        assert me.pending() == ()


@pytest.mark.otp("gen_statem_SUITE", "start4")
@pytest.mark.otp("gen_statem_SUITE", "start5a")
@pytest.mark.otp("gen_statem_SUITE", "start5b")
@pytest.mark.parametrize("kind", KINDS)
@styles
async def test_an_init_that_ignores_or_stops_leaves_neither_exit_nor_down(
    kind: str, style: type[Any], node: Node
) -> None:
    reports = crash_reports(node)
    reason = Crash(Stopped())
    async with inbox() as me:
        with pytest.raises(StartIgnored):
            await begin(kind, style, IGNORE)
        with pytest.raises(StartFailed) as orderly:
            await begin(kind, style, Stop(Shutdown("foobar")))
        assert orderly.value.reason == Shutdown("foobar")
        assert reports == []
        with pytest.raises(StartFailed) as failed:
            await begin(kind, style, Stop(reason))
        assert failed.value.reason is reason
        assert [(report.during, report.reason) for report in reports] == [("init", reason)]
        assert me.pending() == ()


@pytest.mark.otp("gen_statem_SUITE", "start7")
@pytest.mark.otp("gen_statem_SUITE", "start8")
@pytest.mark.otp("gen_statem_SUITE", "start9")
@pytest.mark.otp("gen_statem_SUITE", "start10")
@pytest.mark.otp("gen_statem_SUITE", "start12")
@pytest.mark.parametrize("scope", ["local", "registry"])
@pytest.mark.parametrize("kind", KINDS)
@styles
async def test_a_name_belongs_to_one_machine(kind: str, scope: str, style: type[Any]) -> None:
    name: Any = "my_stm" if scope == "local" else via(await start(Registry), "my_stm")
    options = Options(name=name)
    async with inbox() as me:
        ref = await begin(kind, style, options=options)
        by_name: Ref[Phone] = Ref(name)
        for other in KINDS:
            with pytest.raises(AlreadyRegistered) as taken:
                await begin(other, style, options=options)
            assert taken.value.pid == ref.pid
        await all_of_it(ref, me)
        await all_of_it(by_name, me)
        await stops(by_name)
        await told_of_the_end(kind, me)


@pytest.mark.otp("gen_statem_SUITE", "start11")
@pytest.mark.parametrize("scope", ["local", "registry"])
@styles
async def test_a_name_is_free_when_its_machine_was_stopped(scope: str, style: type[Any]) -> None:
    name: Any = "my_stm" if scope == "local" else via(await start(Registry), "my_stm")
    options = Options(name=name)
    async with inbox() as me:
        first = await begin("start_link", style, options=options)
        await stops(first)
        second = await begin("start_link", style, options=options)
        by_name: Ref[Phone] = Ref(name)
        assert by_name.pid == second.pid
        await stops(by_name)
        assert [(await me.receive()).pid for _ in range(2)] == [first.pid, second.pid]
        assert me.pending() == ()


FAILURES: list[tuple[Any, type[ActorError]]] = [
    (Stop(Crash(Bailout())), StartFailed),
    (IGNORE, StartIgnored),
    (4711, StartFailed),
    (Bailout(), StartFailed),
    (Quit(Shutdown("bailout")), StartFailed),
    (SystemExit(3), StartFailed),
]


@pytest.mark.otp("gen_statem_SUITE", "loop_start_fail")
@pytest.mark.parametrize(("outcome", "error"), FAILURES, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_failed_start_is_told_when_all_that_it_had_is_free_again(
    kind: str, outcome: Any, error: type[ActorError]
) -> None:
    class Grabbing(Board):
        async def init(self) -> Any:
            register("grabbed")
            return await super().init()

    async with inbox() as me:
        reasons: list[Any] = []
        for _ in range(5):
            with pytest.raises(error) as failed:
                await begin(kind, Grabbing, outcome)
            reasons.append(getattr(failed.value, "reason", None))
            assert whereis("grabbed") is None
        assert me.pending() == ()
        match outcome:
            case Stop(reason=reason) | Quit(reason=reason):
                assert reasons == [reason] * 5
            case BaseException():
                assert reasons == [Crash(outcome)] * 5
            case 4711:
                assert all(isinstance(reason.error, BadReturn) and "4711" in str(reason) for reason in reasons)
            case _:
                assert reasons == [None] * 5


@pytest.mark.otp("gen_statem_SUITE", "next_events")
@styles
async def test_events_that_come_next_keep_their_order(style: type[Any]) -> None:
    ref: Ref[Phone] = await start(style)
    ref.cast(Phone.say, ("next", "a", "b", "c"))
    assert await ref.call(Phone.get) == (Line.NEXT_EVENTS, [])
    await stop(ref)
    await is_gone(ref)


async def by_hand(name: Any = None, claim: Any = None) -> None:
    """Prepare, acknowledge the start, and become a machine."""
    trap_exit()
    if isinstance(name, str):
        register(name)
    elif name is not None:
        name.register(self_pid())
    acknowledge()
    become(Board(), name=claim, first=Next(Line.IDLE))


@pytest.mark.otp("gen_statem_SUITE", "enter_loop")
@pytest.mark.parametrize("scope", ["none", "local", "registry"])
async def test_a_process_becomes_a_machine_of_the_name_it_has(scope: str) -> None:
    names: dict[str, Any] = {"none": None, "local": "armitage", "registry": via(await start(Registry), "armitage")}
    name = names[scope]
    async with inbox() as me:
        ref: Ref[Phone] = await start_routine_link(by_hand, name, name)
        await in_state(ref if name is None else Ref(name), Line.IDLE)
        await stops(ref)
        assert await me.receive() == Exit(ref.pid, NORMAL)
        if name is None:
            return
        # not with a name that it has not, nor with one that another process has
        for taken in (False, True):
            if taken:
                register(name) if isinstance(name, str) else name.register(me.pid)
            other = await start_routine_link(by_hand, None, name)
            ended = await me.receive(timeout=1)
            assert ended.pid == other.pid
            assert "not registered to this process" in str(ended.reason)
        assert whereis(name) == me.pid


@pytest.mark.otp("gen_statem_SUITE", "enter_loop")
async def test_the_starter_of_a_process_that_becomes_a_machine_is_its_parent() -> None:
    async with inbox() as me:
        ref: Ref[Phone] = await start_routine_link(by_hand)
        assert await ref.call(Phone.alive) == "yes"
        exit(ref, SHUTDOWN)
        assert await me.receive() == Exit(ref.pid, SHUTDOWN)


@pytest.mark.otp("gen_statem_SUITE", "enter_loop")
async def test_only_a_spawned_process_can_become_a_machine() -> None:
    async with inbox():
        with pytest.raises(ActorError, match="only a process made by"):
            become(Board())


async def test_a_monitor_is_there_from_the_first_moment() -> None:
    async with inbox() as me:
        ref, watch = await start_monitor(Board, Next(Line.IDLE))
        linked = await start_link(Board)
        await stop(ref)
        await stop(linked)
        assert await me.receive() == Down(watch, ref.pid, NORMAL)
        assert await me.receive() == Exit(linked.pid, NORMAL)
        assert await wait_down(ref) is not None
