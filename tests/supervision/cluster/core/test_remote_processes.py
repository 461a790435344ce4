"""Processes of another node: called, sent to, monitored, linked and ended like local ones."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    KILLED,
    NO_CONNECTION,
    NO_PROCESS,
    NORMAL,
    SHUTDOWN,
    ActorError,
    AlreadyRegistered,
    CallTimeout,
    Crash,
    Down,
    Exit,
    ExitReason,
    MailboxFull,
    NotRegistered,
    On,
    Options,
    Pid,
    ProcessExited,
    Ref,
    Shutdown,
    StartFailed,
    StartTimeout,
    current_node,
    demonitor,
    exit,
    inbox,
    introspect,
    is_alive,
    kill,
    link,
    monitor,
    register,
    send,
    spawn,
    stop,
    unlink,
    whereis,
)
from greenroom.supervision.cluster import CannotTravel, RemoteError, remote_node
from greenroom.supervision.cluster.remote_spawn import launch_on, start_on, whereis_on

from .two_nodes import Counter, Far, Trapper, pair, until

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.greenroom(clock="real")


class Private:
    """A value that cannot travel."""


# --- calls


async def test_all_the_words_of_a_ref_reach_a_process_of_another_node() -> None:
    async with pair(), inbox() as me:
        ref = await start_on("two", Counter, 2)
        assert await ref.call(Counter.add, 3) == 5
        assert await ref.call(Counter.add_later, by=1) == 6
        assert await ref.ask("what") == ("asked", "what", me.pid)
        assert ref.cast(Counter.add, 10)
        assert ref.tell("this")
        assert ref.send({"that": (1, 2)})
        assert send(ref.pid, me.pid)
        assert await ref.call(Counter.all_heard) == [("told", "this"), {"that": (1, 2)}, me.pid]
        assert await ref.call(Counter.add, 0) == 16


async def test_a_call_has_one_answer_whatever_becomes_of_the_callee() -> None:
    async with pair():
        ref = await start_on("two", Counter)
        with pytest.raises(ProcessExited) as caught:
            await ref.call(Counter.fail, KeyError("gone"))
        assert isinstance(caught.value.reason, Crash)
        assert repr(caught.value.reason.error) == "KeyError('gone')"
        assert caught.value.__cause__ is caught.value.reason.error
        assert "raise error" in str(caught.value.reason.error.__cause__), "where it was raised over there"
        with pytest.raises(ProcessExited) as caught:
            await ref.call(Counter.add)
        assert caught.value.reason == NO_PROCESS


async def test_a_waiting_caller_gets_the_end_of_the_actor_at_once() -> None:
    async with pair() as (_, two):
        ends: list[tuple[Callable[[Any], None], Any]] = [(kill, KILLED), (lambda who: exit(who, SHUTDOWN), SHUTDOWN)]
        for end, reason in ends:
            ref = await start_on("two", Counter)
            call = asyncio.create_task(ref.within(None).call(Counter.hold))
            await whereis_on("two", "it has got there")
            end(ref)
            with pytest.raises(ProcessExited) as caught:
                await call
            assert caught.value.reason == reason
        ref = await start_on("two", Counter)
        call = asyncio.create_task(ref.within(None).call(Counter.hold))
        await whereis_on("two", "it has got there")
        await two.do(_disconnect, two)
        with pytest.raises(ProcessExited) as caught:
            await call
        assert caught.value.reason == NO_CONNECTION


async def _disconnect(two: Far) -> None:
    for name in two.peers.connected:
        two.peers.disconnect(name)


async def test_a_call_whose_caller_stopped_waiting_ends_on_the_other_node_too() -> None:
    async with pair() as (_, two):
        ref = await start_on("two", Counter)
        with pytest.raises(CallTimeout):
            await ref.within(0.01).call(Counter.hold)
        cancelled = asyncio.create_task(ref.call(Counter.hold))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait((cancelled,))

        async def callers() -> int:
            return sum(len(each.callers) for each in two.peers._remotes.values())

        async with asyncio.timeout(5):
            while await two.do(callers):
                pass


async def test_a_late_answer_is_nobodys() -> None:
    async with pair():
        ref = await start_on("two", Counter)
        with pytest.raises(CallTimeout):
            await ref.within(0.01).call(Counter.add_when_told)
        ref.cast(Counter.go)
        async with asyncio.timeout(5):
            while await ref.call(Counter.add, 0) != 1:
                pass
        assert await ref.call(Counter.add) == 2


async def test_a_value_that_cannot_travel_is_refused_by_its_sender_and_harms_no_link() -> None:
    async with pair():
        ref = await start_on("two", Counter)
        with pytest.raises(CannotTravel, match="Private"):
            await ref.call(Counter.echo, Private())
        with pytest.raises(CannotTravel):
            ref.send(lambda: 1)
        with pytest.raises(CannotTravel):
            ref.cast(Counter.echo, object())
        with pytest.raises(CannotTravel):
            await start_on("two", Counter, object())  # type: ignore[arg-type]
        assert await ref.call(Counter.add) == 1


async def test_an_answer_that_cannot_travel_is_an_error_of_that_call_alone() -> None:
    async with pair():
        ref = await start_on("two", Maker)
        with pytest.raises(CannotTravel, match="Private"):
            await ref.call(Maker.make)
        assert await ref.call(Counter.add) == 1


class Maker(Counter):
    """Has methods that return and raise values that cannot travel."""

    def make(self) -> Any:
        """One of them."""
        return Private()

    def quit_with(self) -> None:
        """End with a reason that is made of one."""
        exit(self.pid, Shutdown(Private()))

    def deep(self) -> Any:
        """More levels than may travel."""
        value: list[Any] = []
        for _ in range(5000):
            value = [value]
        return value


async def test_an_answer_of_any_depth_is_an_error_or_an_answer() -> None:
    async with pair():
        ref = await start_on("two", Maker)
        with pytest.raises(CannotTravel, match="deeper"):
            await ref.call(Maker.deep)
        assert await ref.call(Counter.add) == 1


async def test_a_reason_that_cannot_travel_goes_in_words() -> None:
    async with pair(), inbox() as me:
        ref = await start_on("two", Maker)
        monitor(ref)
        link(ref)
        assert ref.cast(Maker.quit_with)
        reasons = [(await me.receive()).reason for _ in range(2)]
        assert [type(reason) for reason in reasons] == [Shutdown, Shutdown]
        assert all("Private" in str(reason) for reason in reasons)


async def test_a_bounded_mailbox_refuses_remote_callers() -> None:
    async with pair():
        ref = await launch_on("two", Options(mailbox=1), Counter)
        held = asyncio.create_task(ref.within(None).call(Counter.hold))
        await whereis_on("two", "it is at it")
        ref.send("one")
        with pytest.raises(MailboxFull):
            await ref.call(Counter.add)
        kill(ref)
        with pytest.raises(ProcessExited):
            await held


async def test_a_link_that_is_full_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    async with pair() as (_, two):
        ref = await start_on("two", Counter)
        gate = two.freeze()
        monkeypatch.setattr(remote_node, "ROOM", 1024)
        taken = 0
        while ref.cast(Counter.echo, bytes(1 << 20)):
            taken += 1
            await asyncio.sleep(0)
        assert taken
        with pytest.raises(MailboxFull, match="link"):
            await ref.call(Counter.add)
        monkeypatch.undo()
        gate.set()
        assert await ref.call(Counter.add) == 1, "and all is well again"


class Asker(Counter):
    """Calls another server while it is called."""

    async def ask_other(self, other: Ref[Any], me: Ref[Any]) -> Any:
        """Have the other one call me."""
        return await other.within(0.2).call(Asker.ask_back, me)

    async def ask_back(self, who: Ref[Any]) -> Any:
        """Call."""
        return await who.within(0.1).call(Counter.add)


async def test_a_cycle_of_calls_over_two_nodes_ends_by_its_deadline() -> None:
    async with pair() as (_, two):
        near, away = await start_on(current_node().name, Asker), await two.start(Asker)
        with pytest.raises(ProcessExited) as caught:
            await near.call(Asker.ask_other, Ref(away.pid), Ref(near.pid))
        assert isinstance(caught.value.reason, Crash)
        assert isinstance(caught.value.reason.error, ProcessExited | CallTimeout)


# --- names


async def test_names_of_another_node() -> None:
    async with pair(), inbox() as me:
        ref = await launch_on("two", Options(name="bob"), Counter, (7,))
        by_name: Ref[Counter] = Ref(On("bob", "two"))
        assert await by_name.call(Counter.add) == 8
        assert await whereis_on("two", "bob") == ref.pid
        assert await whereis_on("two", "unknown") is None
        with pytest.raises(NotRegistered):
            await Ref[Any](On("unknown", "two")).ask(1)
        with pytest.raises(ProcessExited) as caught:
            await Ref[Any](On("bob", "three")).ask(1)
        assert caught.value.reason == NO_CONNECTION
        seen = monitor(On("bob", "two"))
        await stop(On("bob", "two"), SHUTDOWN)
        assert await me.receive() == Down(seen, None, SHUTDOWN, On("bob", "two"))
        seen = monitor(On("bob", "two"))
        assert await me.receive() == Down(seen, None, NO_PROCESS, On("bob", "two"))


async def test_a_monitor_of_a_name_is_of_who_has_it_at_that_time() -> None:
    async with pair(), inbox() as me:
        first = await launch_on("two", Options(name="bob"), Counter)
        early = monitor(On("bob", "two"))
        kill(first)
        assert (await me.receive()).ref is early
        second = await launch_on("two", Options(name="bob"), Counter)
        late = monitor(On("bob", "two"))
        call = asyncio.create_task(Ref[Counter](On("bob", "two")).within(None).call(Counter.hold))
        await whereis_on("two", "bob")
        assert me.pending() == ()
        kill(second)
        assert (await me.receive()).ref is late
        with pytest.raises(ProcessExited):
            await call


async def test_operations_of_local_processes_only_are_refused_with_a_reason() -> None:
    async with pair(), inbox():
        ref = await launch_on("two", Options(name="bob"), Counter)
        with pytest.raises(ActorError, match="whereis_on"):
            link(On("bob", "two"))
        with pytest.raises(ActorError, match="each node has names of its own"):
            register("carl", ref.pid)
        with pytest.raises(ActorError, match="knows which process"):
            whereis(On("bob", "two"))
        with pytest.raises(ActorError, match="inspect it there"):
            await introspect.get_state(ref)
        with pytest.raises(CannotTravel):
            monitor(On(Private(), "two"))
        assert is_alive(ref)


# --- monitors and links


async def test_each_monitor_gets_one_down_and_removed_monitors_get_none() -> None:
    async with pair(), inbox() as me:
        ref = await start_on("two", Counter)
        kept, lost = [monitor(ref) for _ in range(3)], [monitor(ref) for _ in range(3)]
        for each in lost:
            assert demonitor(each)
        ref.send("x")
        exit(ref, Shutdown("enough"))
        assert [await me.receive() for _ in kept] == [Down(each, ref.pid, Shutdown("enough")) for each in kept]
        after = monitor(ref)
        assert await me.receive() == Down(after, ref.pid, NO_PROCESS)
        assert me.pending() == ()


async def test_a_down_comes_behind_what_was_sent_before() -> None:
    async with pair(), inbox() as me:
        ref = await start_on("two", Talker)
        monitor(ref)
        ref.send((me.pid, 50))
        got = [await me.receive() for _ in range(51)]
        assert got[:50] == list(range(50))
        assert isinstance(got[50], Down)


class Talker(Counter):
    """Sends much, and ends."""

    def handle_info(self, message: Any) -> None:
        """The receiver, and the amount."""
        who, many = message
        for each in range(many):
            send(who, each)
        exit(self.pid, SHUTDOWN)


@pytest.mark.parametrize("reason", [SHUTDOWN, KILLED, Shutdown(("a", 1)), NORMAL], ids=str)
async def test_the_end_of_who_is_linked_there_is_an_exit_here(reason: ExitReason) -> None:
    async with pair(), inbox() as me:
        ref = await launch_on("two", Options(), Counter, link=True)
        if reason == KILLED:
            kill(ref)
        else:
            await stop(ref, reason)
        assert await me.receive() == Exit(ref.pid, reason)
        assert me.pending() == ()


async def test_a_crash_there_ends_who_is_linked_here() -> None:
    async with pair(), inbox() as me:
        ref = await start_on("two", Counter)

        async def tied() -> None:
            link(ref)
            ref.cast(Counter.fail, ValueError("v"))
            await asyncio.Event().wait()

        seen = monitor(spawn(tied))
        down = await me.receive()
        assert down.ref is seen
        assert repr(down.reason) == "Crash(error=ValueError('v'))"


async def test_the_end_of_who_is_linked_here_ends_or_reaches_them_there() -> None:
    async with pair():
        plain, trapping = await start_on("two", Counter), await start_on("two", Trapper)
        ready = asyncio.Event()

        async def tied() -> None:
            link(plain)
            link(trapping)
            ready.set()
            await asyncio.Event().wait()

        near = spawn(tied)
        await ready.wait()
        async with inbox() as me:
            seen = monitor(plain)
            exit(near, Shutdown("bye"))
            assert await me.receive() == Down(seen, plain.pid, Shutdown("bye"))
        heard = await trapping.call(Counter.all_heard)
        assert heard == [Exit(near, Shutdown("bye"))]


async def test_no_exit_passes_a_link_that_was_taken_away() -> None:
    async with pair(), inbox() as me:
        ref = await start_on("two", Counter)
        link(ref)
        unlink(ref)
        seen = monitor(ref)
        kill(ref)
        assert await me.receive() == Down(seen, ref.pid, KILLED)
        assert await whereis_on("two", "nothing else comes") is None
        assert me.pending() == ()


async def test_a_link_to_the_dead_is_an_exit_at_once() -> None:
    async with pair(), inbox() as me:
        ref = await start_on("two", Counter)
        await stop(ref)
        link(ref)
        assert await me.receive() == Exit(ref.pid, NO_PROCESS)
        link(Pid("nowhere", 1, 1))
        assert await me.receive() == Exit(Pid("nowhere", 1, 1), NO_CONNECTION)


async def test_exit_signals_are_trapped_on_the_other_node_and_name_their_sender() -> None:
    async with pair(), inbox() as me:
        ref = await start_on("two", Trapper)
        exit(ref, Crash(ValueError("boo")))
        exit(ref, NORMAL)
        (first, second) = await ref.call(Counter.all_heard)
        assert first.pid == second.pid == me.pid
        assert repr(first.reason) == "Crash(error=ValueError('boo'))"
        assert second.reason == NORMAL


async def test_stop_of_a_remote_server_runs_its_terminate() -> None:
    async with pair(), inbox() as me:
        ref = await start_on("two", Leaver)
        ref.send(me.pid)
        await stop(ref, Shutdown("now"))
        assert await me.receive() == Shutdown("now")
        with pytest.raises(ProcessExited) as caught:
            await stop(ref)
        assert caught.value.reason == NO_PROCESS


class Leaver(Counter):
    """Says goodbye."""

    def terminate(self, reason: Any) -> None:
        """Send a message to the process whose pid was sent to it."""
        send(self.heard[0], reason)


# --- threads


async def test_sending_from_another_thread_of_this_node() -> None:
    async with pair(), inbox() as me:
        ref: Ref[Counter] = await start_on("two", Counter)

        def work() -> int:
            assert threading.current_thread() is not threading.main_thread()
            assert ref.send("from a thread")
            assert send(ref, "and again")
            assert ref.cast(Counter.add, 5)
            assert send(On("unknown", "two"), "lost")
            return 1

        assert await asyncio.to_thread(work) == 1
        assert await ref.call(Counter.all_heard) == ["from a thread", "and again"]
        assert await ref.call(Counter.add, 0) == 5

        def end() -> None:
            exit(ref, SHUTDOWN)

        seen = monitor(ref)
        await asyncio.to_thread(end)
        assert await me.receive() == Down(seen, ref.pid, SHUTDOWN)


async def test_a_call_from_another_threads_loop() -> None:
    async with pair(), inbox():
        ref: Ref[Counter] = await start_on("two", Counter)

        async def inside() -> int:
            return await ref.call(Counter.add, 3) + await Ref[Counter](ref.pid).call(Counter.add, 1)

        assert await asyncio.to_thread(lambda: asyncio.run(inside())) == 7


# --- starting


class Slow(Counter):
    """Takes long to start."""

    async def init(self) -> None:
        """For ever."""
        await asyncio.Event().wait()


class Broken(Counter):
    """Fails to start."""

    def init(self) -> None:
        """It fails."""
        raise ValueError("broken")


async def test_a_start_that_fails_says_why_as_it_would_here() -> None:
    async with pair(), inbox() as me:
        for linked in (False, True):
            with pytest.raises(StartFailed) as caught:
                await launch_on("two", Options(), Broken, link=linked)
            assert isinstance(caught.value.reason, Crash)
            assert str(caught.value.__cause__) == "broken"
        with pytest.raises(StartTimeout):
            await launch_on("two", Options(timeout=0.01), Slow)
        await launch_on("two", Options(name="a"), Counter)
        with pytest.raises(AlreadyRegistered):
            await launch_on("two", Options(name="a"), Counter)
        with pytest.raises(ProcessExited) as lost:
            await start_on("nowhere", Counter)
        assert lost.value.reason == NO_CONNECTION
        assert me.pending() == (), "no exit besides the error"


async def test_a_cancelled_start_leaves_no_process() -> None:
    async with pair() as (_, two):
        before = len(two.background.node.processes)
        starting = asyncio.create_task(launch_on("two", Options(name="slow"), Slow))
        while await whereis_on("two", "slow") is None:
            pass
        starting.cancel()
        await asyncio.wait((starting,))
        while await whereis_on("two", "slow") is not None:
            pass
        await until(lambda: len(two.background.node.processes) == before)


async def test_the_loss_of_a_starter_ends_what_it_was_starting() -> None:
    async with pair() as (peers, two):
        before = len(two.background.node.processes)
        starting = asyncio.create_task(launch_on("two", Options(name="slow"), Slow))
        while await whereis_on("two", "slow") is None:
            pass
        peers.disconnect("two")
        with pytest.raises(ProcessExited) as caught:
            await starting
        assert caught.value.reason == NO_CONNECTION
        await until(lambda: len(two.background.node.processes) == before)


class Local(Counter):
    """Fails with an error whose class only its own code knows."""

    def fail_inside(self) -> None:
        """Such a one."""

        class Inner(Exception):
            pass

        raise Inner("words")


async def test_errors_that_cannot_be_made_here_keep_their_name_and_words() -> None:
    async with pair():
        ref = await start_on("two", Local)
        with pytest.raises(ProcessExited) as caught:
            await ref.call(Local.fail_inside)
        assert isinstance(caught.value.reason, Crash)
        error = caught.value.reason.error
        assert isinstance(error, RemoteError)
        assert (error.kind.rpartition(".")[2], error.text) == ("Inner", "words")


def test_a_remote_error_says_what_it_was() -> None:
    assert str(RemoteError("Inner", "words")) == "Inner: words"
    assert str(RemoteError("Inner", "")) == "Inner"
