"""Starting a server: with and without a name, linked, monitored, in time and not, and failing in every way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    IGNORE,
    KILLED,
    NO_PROCESS,
    ActorError,
    AlreadyRegistered,
    BadReturn,
    Continue,
    Crash,
    Down,
    Exit,
    Node,
    NotRegistered,
    Options,
    ProcessExited,
    Quit,
    Ref,
    Registry,
    Shutdown,
    StartFailed,
    StartIgnored,
    StartTimeout,
    Stop,
    inbox,
    is_alive,
    register,
    start,
    start_monitor,
    via,
    wait_down,
    whereis,
)

from .servers import Bailout, Stopped, Subject, crash_reports

if TYPE_CHECKING:
    from greenroom.supervision import Inbox

KINDS = ["start", "start_link", "start_monitor"]
SCOPES = ["local", "registry"]


async def begin(
    kind: str, outcome: Any = None, options: Options | None = None, server: type[Subject] = Subject
) -> Ref[Subject]:
    """Start a server in one of the three ways; `outcome` is that of its init."""
    by = Options() if options is None else options
    if kind == "start_monitor":
        ref, _ = await by.start_monitor(server, outcome)
        return ref
    return await (by.start if kind == "start" else by.start_link)(server, outcome)


async def name_in(scope: str) -> Any:
    return "my_test_name" if scope == "local" else via(await start(Registry), "my_test_name")


async def told_of_the_end(kind: str, me: Inbox) -> None:
    """A linked starter gets an exit signal, one that monitors a Down, and either only one of them."""
    if kind != "start":
        ended = await me.receive(timeout=5)
        assert isinstance(ended, Exit if kind == "start_link" else Down)
        assert isinstance(ended.reason, Crash)
        assert isinstance(ended.reason.error, Stopped)
    assert me.pending() == ()


@pytest.mark.otp("gen_server_SUITE", "start")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_starts_answers_and_stops(kind: str) -> None:
    async with inbox() as me:
        ref = await begin(kind)
        assert await ref.call(Subject.started) == "ok"
        assert await ref.call(Subject.stop) == "ok"
        await wait_down(ref)
        with pytest.raises(ProcessExited) as exited:
            await ref.within(0.001).call(Subject.started)
        assert exited.value.reason == NO_PROCESS
        await told_of_the_end(kind, me)


@pytest.mark.otp("gen_server_SUITE", "start")
async def test_an_init_that_is_quick_enough_comes_through() -> None:
    ref = await Options(timeout=1).start(Subject, 0.5)
    assert await ref.call(Subject.started) == "ok"


@pytest.mark.otp("gen_server_SUITE", "start")
@pytest.mark.otp("gen_server_SUITE", "loop_start_fail")
@pytest.mark.parametrize("kind", KINDS)
async def test_an_init_that_takes_too_long_is_killed_before_its_start_is_told(kind: str, node: Node) -> None:
    async with inbox() as me:
        before = len(node.processes)
        for _ in range(5):
            with pytest.raises(StartTimeout) as late:
                await begin(kind, 1.0, Options(timeout=0.2, name="slow"))
            assert late.value.reason == KILLED
            assert len(node.processes) == before
            assert whereis("slow") is None
        assert me.pending() == ()


@pytest.mark.otp("gen_server_SUITE", "start")
@pytest.mark.parametrize("kind", KINDS)
async def test_an_init_that_ignores_or_stops_leaves_neither_exit_nor_down(kind: str, node: Node) -> None:
    reports = crash_reports(node)
    reason = Crash(Stopped())
    async with inbox() as me:
        with pytest.raises(StartIgnored):
            await begin(kind, IGNORE)
        with pytest.raises(StartFailed) as orderly:
            await begin(kind, Stop(Shutdown("foobar")))
        assert orderly.value.reason == Shutdown("foobar")
        assert reports == []
        with pytest.raises(StartFailed) as failed:
            await begin(kind, Stop(reason))
        assert failed.value.reason is reason
        assert [(report.during, report.reason) for report in reports] == [("init", reason)]
        assert me.pending() == ()


@pytest.mark.otp("gen_server_SUITE", "start")
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("kind", KINDS)
async def test_a_name_belongs_to_one_server_and_is_free_when_that_is_gone(kind: str, scope: str, node: Node) -> None:
    name = await name_in(scope)
    async with inbox() as me:
        options = Options(name=name)
        ref = await begin(kind, options=options)
        by_name: Ref[Subject] = Ref(name)
        assert await by_name.call(Subject.started) == "ok"
        before = len(node.processes)
        with pytest.raises(AlreadyRegistered) as taken:
            await begin(kind, options=options)
        assert taken.value.pid == ref.pid
        assert len(node.processes) == before
        assert me.pending() == ()

        assert await by_name.call(Subject.stop) == "ok"
        await wait_down(ref)
        with pytest.raises(ProcessExited):
            await ref.within(0.001).call(Subject.started)
        with pytest.raises(NotRegistered):
            await by_name.call(Subject.started)
        await told_of_the_end(kind, me)


class Grabbing(Subject):
    """Takes an exclusive resource, then fails to start."""

    async def init(self) -> Any:
        register("grabbed")
        return await super().init()


FAILURES: list[tuple[Any, type[ActorError]]] = [
    (Stop(Crash(Bailout())), StartFailed),
    (IGNORE, StartIgnored),
    (4711, StartFailed),
    (Bailout(), StartFailed),
    (Quit(Shutdown("bailout")), StartFailed),
    (SystemExit(3), StartFailed),
]


@pytest.mark.otp("gen_server_SUITE", "loop_start_fail")
@pytest.mark.parametrize(("outcome", "error"), FAILURES, ids=lambda value: repr(value)[:20])
@pytest.mark.parametrize("kind", KINDS)
async def test_a_failed_start_is_told_when_all_that_it_had_is_free_again(
    kind: str, outcome: Any, error: type[ActorError]
) -> None:
    async with inbox() as me:
        reasons: list[Any] = []
        for _ in range(5):
            with pytest.raises(error) as failed:
                await begin(kind, outcome, server=Grabbing)
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


class Unwinding(Subject):
    """Its init leaves a task behind that takes a moment to be cancelled."""

    async def init(self) -> Any:
        async def linger() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.5)

        self.task = asyncio.create_task(linger())
        await asyncio.sleep(0)
        return await super().init()


@pytest.mark.otp("gen_server_SUITE", "loop_start_fail")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_failed_start_waits_for_the_tasks_of_its_init_to_unwind(kind: str) -> None:
    async with inbox():
        for _ in range(3):
            with pytest.raises(StartIgnored):
                await begin(kind, IGNORE, Options(name="unwinding"), Unwinding)


@pytest.mark.otp("gen_server_SUITE", "otp_7669")
@pytest.mark.parametrize("scope", SCOPES)
@pytest.mark.parametrize("kind", KINDS)
async def test_the_name_of_a_start_that_was_ignored_or_stopped_is_free_at_once(kind: str, scope: str) -> None:
    name = await name_in(scope)
    async with inbox():
        for outcome, error in (*[(IGNORE, StartIgnored)] * 100, *[(Stop(Crash(Stopped())), StartFailed)] * 10):
            with pytest.raises(error):
                await begin(kind, outcome, Options(name=name))
            assert whereis(name) is None


@pytest.mark.otp("gen_server_SUITE", "start")
async def test_a_monitoring_start_misses_no_death_however_soon_it_comes() -> None:
    async with inbox() as me:
        ref, watch = await start_monitor(Subject, Continue(Stop(Shutdown("brief"))))
        down = await me.receive(timeout=1)
        assert down == Down(watch, ref.pid, Shutdown("brief"))
        assert not is_alive(ref)
