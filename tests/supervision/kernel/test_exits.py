"""Exit signals, links and monitors: which processes die, and which are told."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    KILLED,
    NO_PROCESS,
    NORMAL,
    SHUTDOWN,
    ActorError,
    Crash,
    Down,
    Exit,
    ExitReason,
    Killed,
    NoConnection,
    Node,
    NotAnActor,
    Pid,
    ProcessExited,
    Quit,
    Shutdown,
    exit,
    inbox,
    is_alive,
    kill,
    link,
    monitor,
    receive,
    self_pid,
    spawn,
    spawn_link,
    spawn_monitor,
    start,
    start_link,
    start_monitor,
    stop,
    trap_exit,
    unlink,
    wait_down,
)
from greenroom.supervision.behaviours.refs import process_of, request
from greenroom.supervision.kernel import links

from .sample_servers import Log, Trapping, forever, turns

if TYPE_CHECKING:
    from collections.abc import Callable

ERROR = KeyError("x")
REASONS: list[ExitReason] = [SHUTDOWN, Shutdown("why"), KILLED, Crash(ERROR), NO_PROCESS]


async def on_trial(*, trapping: bool = False) -> Pid:
    """A started process that waits."""

    async def wait() -> None:
        trap_exit(trapping)
        begun.set()
        while True:
            await receive()

    begun = asyncio.Event()
    pid = spawn(wait)
    await begun.wait()
    return pid


# --- exit and kill


@pytest.mark.otp("proc_lib_SUITE", "stop")
@pytest.mark.parametrize("reason", REASONS, ids=str)
async def test_an_exit_signal_ends_a_process_with_that_reason(reason: ExitReason) -> None:
    pid = await on_trial()
    down = asyncio.ensure_future(wait_down(pid))
    await turns()
    exit(pid, reason)
    assert not is_alive(pid)
    assert await down == reason


async def test_an_exception_is_a_reason_too_but_a_class_is_not() -> None:
    ref = await start(Log)
    async with inbox() as me:
        watching = monitor(ref)
        for wrong in (ValueError, Shutdown, "why", None):
            with pytest.raises(TypeError, match=r"is not an exit reason|is a value, not a class"):
                exit(ref, wrong)
        exit(ref, ERROR)
        assert await me.receive() == Down(watching, ref.pid, Crash(ERROR))


async def test_normal_from_another_process_is_ignored() -> None:
    pid = await on_trial()
    exit(pid, NORMAL)
    await turns()
    assert is_alive(pid)


async def test_normal_from_oneself_is_the_end() -> None:
    async def quits() -> None:
        exit(self_pid(), NORMAL)
        await forever()

    assert await wait_down(spawn(quits)) == NORMAL


@pytest.mark.parametrize("reason", [*REASONS, NORMAL], ids=str)
async def test_a_process_that_traps_gets_a_message_instead(reason: ExitReason) -> None:
    async with inbox() as me:
        other = await start(Trapping)
        exit(other, reason)
        exit(me.pid, reason)
        assert await other.call(Log.read) == [Exit(me.pid, reason)]
        assert await me.receive() == Exit(me.pid, reason), "also its own, and also Killed, which is not kill"


async def test_nothing_traps_a_kill() -> None:
    async with inbox() as me:
        ref = await start(Trapping)
        watching = monitor(ref)
        link(ref)
        kill(ref)
        assert {await me.receive(), await me.receive()} == {Exit(ref.pid, KILLED), Down(watching, ref.pid, KILLED)}


async def test_a_signal_to_a_missing_process_is_dropped() -> None:
    gone = spawn(forever)
    kill(gone)
    await wait_down(gone)
    for who in (gone, "missing", Pid("elsewhere", 1, 1), Pid("node", 1, 1)):
        exit(who, SHUTDOWN)
        kill(who)
        assert not is_alive(who)


async def test_the_first_reason_stands() -> None:
    async def slow_to_die() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0.5)

    pid = spawn(slow_to_die)
    await turns()
    down = asyncio.ensure_future(wait_down(pid))
    await turns()
    exit(pid, Shutdown("first"))
    exit(pid, Shutdown("second"))
    kill(pid)
    assert await down == Shutdown("first")


async def test_a_process_ends_itself_by_quitting_with_a_reason() -> None:
    async def quits(reason: Any) -> None:
        try:
            raise Quit(reason)
        except Exception:  # noqa: BLE001 - that this does not stop it is the point
            await forever()

    assert await wait_down(spawn(quits, Shutdown("drained"))) == Shutdown("drained")
    assert await wait_down(spawn(quits, ERROR)) == Crash(ERROR)
    with pytest.raises(TypeError, match="'text' is not an exit reason"):
        Quit("text")  # type: ignore[arg-type]
    ref = await start(Log)

    def leave() -> None:
        raise Quit(Shutdown("from a call"))

    with pytest.raises(ProcessExited, match=r"shutdown \(from a call\)"):
        await ref.call(Log.do, leave)


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_process_that_ends_itself_in_a_call_does_not_answer_it(*, queued: bool, asynchronous: bool) -> None:
    ref = await start(Log)
    if queued:
        ref.send("so that the call is queued")

    def end() -> str:
        kill(ref)
        return "too late"

    async def end_async() -> str:
        return end()

    with pytest.raises(ProcessExited) as caught:
        await (ref.call(Log.do_async, end_async) if asynchronous else ref.call(Log.do, end))
    assert caught.value.reason == Killed()


async def test_the_mailbox_of_a_dying_process_is_not_handled() -> None:
    ref = await start(Log)
    seen: list[int] = []
    ref.cast(Log.do, partial(seen.append, 1))
    ref.cast(Log.do, partial(kill, ref))
    ref.cast(Log.do, partial(seen.append, 2))
    call = request(ref, Log.read)
    with pytest.raises(ProcessExited):
        await call.wait()
    assert seen == [1]


# --- links


async def test_a_link_works_both_ways() -> None:
    for victim in (0, 1):
        one, two = await start(Log), await start(Log)
        await one.call(Log.do, partial(link, two))
        kill((one, two)[victim])
        assert not is_alive(one)
        assert not is_alive(two)


@pytest.mark.parametrize("reason", REASONS, ids=str)
async def test_the_end_of_one_is_the_end_of_the_other_for_the_same_reason(reason: ExitReason) -> None:
    async with inbox() as me:
        one, two, far = await start(Log), await start(Log), await start(Log)
        await one.call(Log.do, lambda: link(two))
        await two.call(Log.do, lambda: link(far))
        watching = monitor(far)
        exit(one, reason)
        assert await me.receive() == Down(watching, far.pid, reason)


async def test_a_normal_end_is_no_reason_to_die() -> None:
    one, two = await start(Log), await start(Log)
    await one.call(Log.do, lambda: link(two))
    await stop(one)
    assert is_alive(two)
    process = process_of(two)
    assert process is not None
    assert process.links is None


async def test_a_trapping_process_hears_of_a_normal_end_too() -> None:
    async with inbox() as me:
        ref = await start_link(Log)
        await stop(ref)
        assert await me.receive() == Exit(ref.pid, NORMAL)


async def test_two_links_are_one_and_unlinking_takes_it_away() -> None:
    one, two = await start(Log), await start(Log)

    def tie() -> None:
        link(two)
        link(two)
        link(self_pid())

    await one.call(Log.do, tie)
    await two.call(Log.do, lambda: link(one))
    process, other = process_of(one), process_of(two)
    assert process is not None
    assert other is not None
    assert list(links.linked(process)) == [other]
    await one.call(Log.do, lambda: unlink(two))
    assert (process.links, other.links) == (None, None)
    await one.call(Log.do, lambda: unlink("missing"))
    kill(one)
    assert is_alive(two)


async def test_a_link_to_the_dead_is_an_exit_signal() -> None:
    gone = await start(Log)
    await stop(gone)
    async with inbox() as me:
        link(gone)
        assert await me.receive() == Exit(gone.pid, NO_PROCESS)
        elsewhere = Pid("elsewhere", 1, 1)
        link(elsewhere)
        assert await me.receive() == Exit(elsewhere, NoConnection())
        with pytest.raises(ActorError, match="cannot link: no process is registered as 'missing'"):
            link("missing")
    ref = await start(Log)
    with pytest.raises(ProcessExited, match="no such process"):
        await ref.call(Log.do, lambda: link(gone))


async def test_signals_travel_in_the_order_the_links_were_made(node: Node) -> None:
    async with inbox() as me:
        hub = await start(Log)
        refs = [await start(Log) for _ in range(50)]
        for ref in refs:
            await hub.call(Log.do, partial(link, ref))
            monitor(ref)
        kill(hub)
        assert [(await me.receive()).pid for _ in refs] == [ref.pid for ref in refs]


async def test_spawn_link_and_spawn_monitor_begin_with_the_process() -> None:
    async def fails() -> None:
        raise ERROR

    async with inbox() as me:
        assert await exits_of(me, spawn_link(fails)) == Crash(ERROR)
        pid, ref = spawn_monitor(fails)
        assert await me.receive() == Down(ref, pid, Crash(ERROR))


async def exits_of(me: Any, pid: Pid) -> ExitReason:
    message: Exit = await me.receive()
    assert message.pid == pid
    return message.reason


async def test_only_a_process_can_link_monitor_and_trap() -> None:
    ref = await start(Log)
    acts: dict[str, Callable[[], object]] = {
        "link": lambda: link(ref),
        "unlink": lambda: unlink(ref),
        "monitor": lambda: monitor(ref),
        "trap exits": trap_exit,
        "spawn a linked process": lambda: spawn_link(forever),
        "ask for its own pid": self_pid,
    }
    for verb, act in acts.items():
        with pytest.raises(NotAnActor, match=f"only a process can {verb}: call it in a process"):
            act()
    with pytest.raises(NotAnActor):
        await start_link(Log)
    with pytest.raises(NotAnActor):
        await start_monitor(Log)


async def test_trap_exit_says_what_it_was() -> None:
    async with inbox(trap_exit=False):
        assert [trap_exit(), trap_exit(), trap_exit(on=False), trap_exit(on=False)] == [False, True, True, False]
