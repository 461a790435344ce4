"""Calls without an answer: of dead, dying and missing processes, of the caller itself, and of a process that waits for the caller."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    KILLED,
    NO_CONNECTION,
    NO_PROCESS,
    CallCycle,
    CallTimeout,
    Crash,
    GenServer,
    MailboxFull,
    Node,
    NotRegistered,
    Options,
    Pid,
    ProcessExited,
    Ref,
    Reject,
    exit,
    kill,
    later,
    self_pid,
    send_after,
    spawn,
    start,
    start_link,
    stop,
    wait_down,
)
from greenroom.supervision.behaviours.refs import request

from .faulty_servers import Breaks, Calm, Witness, forever, turns

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Asking = Callable[[Ref[Any]], Coroutine[Any, Any, Any]]

ASKINGS: dict[str, Asking] = {
    "call": lambda ref: ref.call(Calm.add),
    "call by address": lambda ref: Ref[Calm](ref.target).call(Calm.add),
    "ask": lambda ref: ref.ask("x"),
    "request": lambda ref: request(ref, Calm.add).wait(),
}
each_asking = pytest.mark.parametrize("asking", ASKINGS.values(), ids=ASKINGS)


@each_asking
async def test_a_call_to_the_dead_says_so_at_once(asking: Asking) -> None:
    ref = await start(Calm)
    await stop(ref)
    with pytest.raises(ProcessExited) as caught:
        await asking(ref)
    assert caught.value.reason == NO_PROCESS
    assert asyncio.get_running_loop().time() == 0


@each_asking
async def test_a_call_to_who_never_was_says_so_at_once(asking: Asking, node: Node) -> None:
    for target in (Pid(node.name, node.incarnation, 10**6), Pid(node.name, node.incarnation - 1, 1)):
        with pytest.raises(ProcessExited) as caught:
            await asking(Ref(target))
        assert caught.value.reason == NO_PROCESS
    with pytest.raises(ProcessExited) as caught:
        await asking(Ref(Pid("elsewhere", 1, 1)))
    assert caught.value.reason == NO_CONNECTION
    with pytest.raises(NotRegistered, match="no process is registered as 'missing'"):
        await asking(Ref("missing"))


@each_asking
async def test_a_call_to_the_dying_is_answered_when_it_is_gone(asking: Asking) -> None:
    class Slow(Calm):
        async def hang(self) -> None:
            try:
                await forever()
            finally:
                await asyncio.sleep(0.5)

    ref = await Options(name="slow").start(Slow)
    ref.cast(Slow.hang)
    await turns()
    kill(ref)
    with pytest.raises(ProcessExited) as caught:
        await asking(ref)
    assert caught.value.reason == KILLED
    assert asyncio.get_running_loop().time() == 0.5
    successor = await Options(name="slow").start(Slow)
    assert await successor.call(Calm.add) == 1, "a second attempt reaches the successor"


async def test_a_call_to_the_dying_has_its_deadline_all_the_same() -> None:
    async def slow_to_die() -> None:
        try:
            await forever()
        finally:
            await asyncio.sleep(0.75)

    ref = await start(Breaks)
    ref.cast(Breaks.do_async, slow_to_die)
    await turns()
    kill(ref)
    with pytest.raises(CallTimeout):
        await ref.within(0.5).call(Breaks.do, list)


@pytest.mark.parametrize("reason", [KILLED, Crash(KeyError("why"))], ids=str)
async def test_a_callee_that_dies_during_a_call_ends_it_at_once_with_the_reason(reason: Any) -> None:
    ref = await start(Breaks)
    ref.cast(Breaks.do_async, forever)
    calls = [request(ref, Breaks.do, list) for _ in range(3)]
    waiting = [asyncio.ensure_future(ref.call(Breaks.do, list)) for _ in range(3)]
    await turns()
    exit(ref, reason)
    for outcome in await asyncio.gather(*(call.wait() for call in calls), *waiting, return_exceptions=True):
        assert isinstance(outcome, ProcessExited)
        assert outcome.reason == reason
    assert asyncio.get_running_loop().time() == 0


async def test_a_callee_that_dies_between_sending_and_waiting_is_noticed() -> None:
    ref = await start(Breaks)
    call = request(ref, Breaks.do, list)
    kill(ref)
    await turns()
    with pytest.raises(ProcessExited, match="killed"):
        await call.wait()


async def test_an_answer_after_the_callees_death_comes_too_late() -> None:
    class Keeps(GenServer):
        def keep(self) -> Any:
            kept.append(self.caller)
            return later()

    kept: list[Any] = []
    ref = await start(Keeps)
    waiting = asyncio.ensure_future(ref.call(Keeps.keep))
    await turns()
    kill(ref)
    assert kept[0].reply(1) is False
    with pytest.raises(ProcessExited, match="killed"):
        await waiting


async def test_a_late_reply_is_discarded() -> None:
    ref = await start(Calm)
    with pytest.raises(CallTimeout):
        await ref.within(0.001).call(Calm.add_slowly)
    assert await ref.call(Calm.add_slowly) == 2, "the first answer, which came meanwhile, is not this one's"


async def test_a_mailbox_past_its_bound_says_no_and_loses_nothing(node: Node) -> None:
    ref = await Options(mailbox=10).start(Calm)
    gate = asyncio.Event()
    blocker = await Options(mailbox=10).start(Breaks)
    blocker.cast(Breaks.do_async, gate.wait)
    await turns()
    assert sum(blocker.cast(Breaks.do, list) for _ in range(1000)) == 10
    outcomes = await asyncio.gather(*(blocker.call(Breaks.do, list) for _ in range(100)), return_exceptions=True)
    assert {type(outcome) for outcome in outcomes} == {MailboxFull}
    gate.set()
    await turns()
    assert await blocker.call(Breaks.do, lambda: 1) == 1
    results = await asyncio.gather(*(ref.call(Calm.add_slowly) for _ in range(1000)), return_exceptions=True)
    answered = sorted(result for result in results if isinstance(result, int))
    assert answered == list(range(1, len(answered) + 1))
    assert {type(result) for result in results} == {int, MailboxFull}


async def test_a_timer_for_the_dead_does_nothing(node: Node) -> None:
    witness = Witness(node)
    ref = await Options(name="calm").start(Calm)
    timers = [send_after(1.0, who, "tick") for who in (ref, ref.pid, "calm", "missing")]
    kill(ref)
    await asyncio.sleep(2.0)
    for timer in timers:
        timer.cancel()
    assert witness.reports == []


# --- the caller itself, and a process that waits for the caller


class Asks(GenServer):
    """Calls the processes that it is given."""

    def __init__(self, *others: Ref[Any]) -> None:
        self.others = list(others)

    def tell(self, *others: Ref[Any]) -> None:
        self.others = list(others)

    async def ask_on(self) -> list[str]:
        try:
            return [str(self.ref().pid), *[each for other in self.others for each in await other.call(Asks.ask_on)]]
        except CallCycle as cycle:
            raise Reject(cycle) from cycle

    async def ask_with_handle_call(self) -> None:
        await self.others[0].ask("x")

    async def start_one_that_asks_back(self, *, link: bool) -> None:
        await (start_link if link else start)(AsksBack, self.ref())


class AsksBack(GenServer):
    """Calls its starter in `init`."""

    def __init__(self, starter: Ref[Asks]) -> None:
        self.starter = starter

    async def init(self) -> None:
        await self.starter.within(None).call(Asks.ask_on)


def path_of(*refs: Ref[Any]) -> str:
    return " → ".join(f"Asks {ref.pid}" for ref in refs)


async def test_a_call_to_oneself_is_refused_with_the_path() -> None:
    ref = await start(Asks)
    await ref.call(Asks.tell, ref)
    with pytest.raises(CallCycle) as caught:
        await ref.within(None).call(Asks.ask_on)
    assert str(caught.value) == f"a process cannot call itself: {path_of(ref, ref)}"
    with pytest.raises(ProcessExited, match="CallCycle: a process cannot call itself"):
        await ref.within(None).call(Asks.ask_with_handle_call)


@pytest.mark.parametrize("length", [2, 3, 20])
async def test_a_cycle_of_calls_is_refused_with_the_path(length: int) -> None:
    refs: list[Ref[Any]] = [(await start(Asks)).within(None) for _ in range(length)]
    for ref, following in zip(refs, [*refs[1:], refs[0]], strict=True):
        await ref.call(Asks.tell, following)
    for first in range(length):
        with pytest.raises(CallCycle) as caught:
            await refs[first].call(Asks.ask_on)
        around = refs[first:] + refs[:first]
        assert str(caught.value) == f"a cycle of calls can never end: {path_of(around[-1], *around)}"
    assert all([await stopped(ref) for ref in refs])


async def stopped(ref: Ref[Any]) -> bool:
    await stop(ref)
    return True


async def test_calls_that_meet_without_a_cycle_are_fine() -> None:
    bottom = await start(Asks)
    middle = [await start(Asks, bottom) for _ in range(5)]
    top = await start(Asks, *middle, bottom)
    answers = await asyncio.gather(
        *(top.call(Asks.ask_on) for _ in range(5)), *(one.call(Asks.ask_on) for one in middle)
    )
    assert len(answers[0]) == 1 + 2 * 5 + 1


@pytest.mark.parametrize("link", [False, True])
async def test_an_init_that_asks_its_starter_is_a_cycle(*, link: bool) -> None:
    ref = await start(Asks)
    with pytest.raises(ProcessExited, match=r"StartFailed: .*: crash: CallCycle: a cycle of calls can never end"):
        await ref.within(None).call(Asks.start_one_that_asks_back, link=link)


async def test_a_cycle_through_tasks_is_bounded_by_the_deadlines() -> None:
    # A task of a handler may outlive it: that the handler waits for it cannot be known.
    class Roundabout(Asks):
        async def gather(self) -> None:
            await asyncio.gather(self.ref().call(Asks.ask_on))

    ref = await start(Roundabout)
    with pytest.raises(CallTimeout):
        await ref.call(Roundabout.gather)
    assert isinstance(await wait_down(ref), Crash)


async def test_a_routine_that_calls_itself_is_refused_too() -> None:
    async def narcissus() -> None:
        me: Ref[Calm] = Ref(self_pid())
        await me.within(None).call(Calm.add)

    reason = await wait_down(spawn(narcissus))
    assert isinstance(reason, Crash)
    assert isinstance(reason.error, CallCycle)
