"""Calls: answered at once, later, by another process, too late or never."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    NO_PROCESS,
    BadReturn,
    CallCycle,
    Caller,
    CallTimeout,
    Crash,
    Exit,
    GenServer,
    Node,
    NotRegistered,
    Options,
    ProcessExited,
    Ref,
    Unexpected,
    inbox,
    is_alive,
    kill,
    later,
    multi_call,
    self_pid,
    send,
    spawn,
    spawn_monitor,
    start,
    start_link,
    stop,
    wait_down,
)

from .servers import Stopped, Subject

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@pytest.mark.otp("gen_server_SUITE", "call")
async def test_a_call_is_answered_at_once_or_later() -> None:
    async with inbox():
        ref = await Options(name="my_test_name").start_link(Subject)
        by_name: Ref[Subject] = Ref("my_test_name")
        assert await by_name.call(Subject.started) == "ok"
        assert await ref.call(Subject.delayed_answer, 0.001) == "delayed"
        assert await ref.within(0.03).call(Subject.delayed_answer, 0.001) == "delayed"


@pytest.mark.otp("gen_server_SUITE", "call")
async def test_an_idle_timeout_comes_after_the_time_that_a_reply_gave() -> None:
    ref = await start(Subject)
    assert await ref.call(Subject.call_within, 1) == "ok"
    await asyncio.sleep(0.5)
    assert await ref.call(Subject.next_call)
    assert await ref.call(Subject.call_within, 1) == "ok"
    await asyncio.sleep(1.5)
    assert not await ref.call(Subject.next_call)


@pytest.mark.otp("gen_server_SUITE", "call")
async def test_an_answer_that_comes_too_late_is_nobodys() -> None:
    async with inbox() as me:
        ref = await start_link(Subject)
        with pytest.raises(CallTimeout):
            await ref.within(0.001).call(Subject.delayed_answer, 0.03)
        assert await ref.call(Subject.ping) == "pong"
        await asyncio.sleep(1)
        assert me.pending() == ()
        assert is_alive(ref)


@pytest.mark.otp("gen_server_SUITE", "call")
async def test_a_bad_return_crashes_the_server_and_is_what_the_caller_hears() -> None:
    async with inbox() as me:
        ref = await start_link(Subject)
        with pytest.raises(ProcessExited) as exited:
            await ref.ask("badreturn")
        assert isinstance(exited.value.__cause__, BadReturn)
        assert "'badreturn'" in str(exited.value)
        assert await me.receive() == Exit(ref.pid, exited.value.reason)


async def test_a_bad_time_is_refused_before_anything_is_sent() -> None:
    ref = await start(Subject)
    for seconds in (-1, float("nan"), "5"):
        with pytest.raises(ValueError, match="seconds"):
            ref.within(seconds)  # type: ignore[arg-type]


class Selfish(GenServer):
    """Calls itself."""

    async def by(self, how: str) -> Any:
        me: Ref[Selfish] = self.ref()
        if how == "method":
            return await me.call(Selfish.by, "method")
        return await me.within(None).ask("anything")

    def handle_call(self, request: Any, caller: Caller[Any]) -> Any:
        raise AssertionError(request, caller)


@pytest.mark.otp("gen_server_SUITE", "calling_self")
@pytest.mark.parametrize("how", ["method", "ask"])
async def test_a_server_that_calls_itself_is_told_at_once(how: str) -> None:
    ref = await start(Selfish)
    with pytest.raises(ProcessExited) as exited:
        await ref.within(None).call(Selfish.by, how)
    assert isinstance(exited.value.__cause__, CallCycle)
    assert "cannot call itself" in str(exited.value)


@pytest.mark.otp("gen_server_SUITE", "calling_self")
@pytest.mark.parametrize("seconds", [5.0, None])
async def test_a_process_that_calls_itself_is_told_at_once_and_gets_nothing(seconds: float | None) -> None:
    async with inbox() as me:

        async def selfish() -> None:
            ref: Ref[Subject] = Ref(self_pid(), seconds)
            with pytest.raises(CallCycle):
                await ref.call(Subject.ping)
            send(me.pid, "refused")

        spawn(selfish)
        assert await me.receive(timeout=0.001) == "refused"


@pytest.mark.processor_time
@pytest.mark.otp("gen_server_SUITE", "call_with_huge_message_queue")
async def test_a_call_costs_the_same_whatever_lies_in_the_callers_mailbox() -> None:
    async with inbox() as me:
        ref = await start(Subject)
        waits: Ref[Subject] = await start(Queued)

        async def cost() -> float:
            best = float("inf")
            for _ in range(5):
                begun = time.process_time()
                for _ in range(200):
                    await ref.call(Subject.ping)
                    await waits.call(Subject.ping)
                best = min(best, time.process_time() - begun)
            return best

        await cost()
        empty = await cost()
        for number in range(100_000):
            send(me.pid, number)
        assert await cost() < 10 * empty
        assert len(me) == 100_000


class Queued(Subject):
    """Answers in a worker task, so that its callers wait."""

    async def ping(self) -> str:  # type: ignore[override]
        await asyncio.sleep(0)
        return "pong"


class Exchange(GenServer):
    """Passes its callers on to another process."""

    def __init__(self, to: Callable[[Caller[Any]], object]) -> None:
        self.to = to

    def give(self, what: str) -> Any:
        self.to(self.caller)
        return later()

    def handle_call(self, request: Any, caller: Caller[Any]) -> Any:
        self.to(caller)
        return later()


@pytest.mark.otp("gen_server_SUITE", "reply_by_alias_with_payload")
@pytest.mark.parametrize("how", ["call", "ask"])
async def test_any_process_may_answer_a_caller_and_only_once(how: str) -> None:
    answered: list[bool] = []

    async def clerk(caller: Caller[Any], what: str) -> None:
        answered.append(caller.reply(what))

    def by_two_others(caller: Caller[Any]) -> None:
        spawn(clerk, caller, "the first")
        spawn(clerk, caller, "the second")

    async with inbox() as me:
        ref = await start(Exchange, by_two_others)
        asked: Awaitable[Any] = ref.call(Exchange.give, "anything") if how == "call" else ref.ask("anything")
        assert await asked in ("the first", "the second")
        await asyncio.sleep(0.1)
        assert answered == [True, False]
        assert me.pending() == ()


@pytest.mark.otp("gen_server_SUITE", "reply_by_alias_with_payload")
async def test_an_answer_for_a_caller_that_is_gone_is_dropped() -> None:
    kept: list[Caller[Any]] = []
    async with inbox() as me:
        ref = await start(Exchange, kept.append)

        async def client() -> None:
            await ref.call(Exchange.give, "anything")

        pid, _ = spawn_monitor(client)
        await asyncio.sleep(0.1)
        assert kept[0].pid == pid
        kill(pid)
        await wait_down(pid)
        assert kept[0].over
        assert not kept[0].reply("too late")
        assert len(me) == 1


@pytest.mark.otp("gen_server_SUITE", "multicall")
async def test_several_are_asked_at_once_and_answer_in_the_order_they_were_named() -> None:
    async with inbox() as me:
        first = await Options(name="my_test_name").start_link(Subject)
        second = await start_link(Subject)
        refs: list[Ref[Subject]] = [second, Ref("my_test_name")]
        begun = asyncio.get_running_loop().time()
        answers = await multi_call(refs, Subject.delayed_answer, 0.1)
        assert asyncio.get_running_loop().time() - begun == pytest.approx(0.1)
        assert list(answers.replies.items()) == [(refs[0], "delayed"), (refs[1], "delayed")]
        assert answers.missing == {}

        for seconds, within in ((0.5, True), (1.5, False)):
            assert set((await multi_call(refs, Subject.call_within, 1)).replies.values()) == {"ok"}
            await asyncio.sleep(seconds)
            assert set((await multi_call(refs, Subject.next_call)).replies.values()) == {within}

        stopped = await multi_call(refs, Subject.stop)
        assert list(stopped.replies.values()) == ["ok", "ok"]
        ends = [await me.receive(timeout=1) for _ in refs]
        assert {end.pid for end in ends} == {first.pid, second.pid}
        assert all(isinstance(end.reason, Crash) and isinstance(end.reason.error, Stopped) for end in ends)


async def test_a_server_that_does_not_answer_is_missing_with_its_reason() -> None:
    async with inbox() as me:
        alive, dead, slow = [await start(Subject) for _ in range(3)]
        await stop(dead)

        class Crashing(Subject):
            def delayed_answer(self, seconds: float) -> str:
                raise Stopped

        crashing: Ref[Any] = await start(Crashing)
        missing: Ref[Subject] = Ref("missing")
        late = slow.within(0.05)
        answers = await multi_call([missing, alive, dead, crashing, late], Subject.delayed_answer, 0.1)
        assert answers.replies == {alive: "delayed"}
        assert list(answers.missing) == [missing, dead, crashing, late]
        assert [type(error) for error in answers.missing.values()] == [
            NotRegistered,
            ProcessExited,
            ProcessExited,
            CallTimeout,
        ]
        await asyncio.sleep(1)
        assert me.pending() == ()


async def test_a_call_to_an_unregistered_name_is_an_error() -> None:
    by_name: Ref[Subject] = Ref("missing")
    with pytest.raises(NotRegistered):
        await by_name.call(Subject.ping)
    ref = await start(Subject)
    await stop(ref)
    with pytest.raises(ProcessExited) as exited:
        await ref.call(Subject.ping)
    assert exited.value.reason == NO_PROCESS


async def test_an_answer_that_is_nobodys_is_not_unexpected_either(node: Node) -> None:
    found: list[Any] = []
    node.reports.subscribe(lambda report: found.append(report) if isinstance(report, Unexpected) else None)
    asking = await start(Asking)
    assert await asking.call(Asking.ask, await start(Subject)) == "too late"
    await asyncio.sleep(1)
    assert found == []


class Asking(GenServer):
    """Calls other servers with a short timeout."""

    async def ask(self, other: Ref[Subject]) -> str:
        try:
            return await other.within(0.01).call(Subject.delayed_answer, 0.1)
        except CallTimeout:
            return "too late"
