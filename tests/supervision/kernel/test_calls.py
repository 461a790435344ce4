"""Calls: exactly one outcome each, and typed errors for wrong ones."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    NO_PROCESS,
    CallTimeout,
    Crash,
    GenServer,
    Node,
    ProcessExited,
    Reject,
    Unexpected,
    is_alive,
    kill,
    replying,
    start,
    wait_down,
)
from greenroom.supervision.behaviours.refs import process_of, request

from .counter_server import Counter, Twice
from .sample_servers import Log, reports_of, turns

if TYPE_CHECKING:
    from collections.abc import Callable


# --- answers


async def test_a_method_reference_is_a_call() -> None:
    ref = await start(Counter, 1)
    assert await ref.call(Counter.add, 2) == 3
    assert await ref.call(Counter.add, 2, times=3) == 9
    assert await ref.call(Counter.add_slowly, 1) == 10
    await ref.call(Counter.nothing)
    assert ref.cast(Counter.add, 5)
    assert ref.cast(Counter.add_slowly, 5)
    assert await ref.call(Counter.add, 0) == 20
    assert await ref.ask({"any": "thing"}) == {"any": "thing"}


async def test_an_overridden_method_answers_to_the_base_classs_name() -> None:
    ref = await start(Twice)
    assert await ref.call(Counter.add, 2) == 4
    assert await ref.call(Twice.add, 2) == 8
    ref.cast(Counter.add, 1)
    ref.cast(Counter.add, 1)
    assert await ref.call(Counter.add_slowly, 0) == 12


async def test_two_classes_do_not_share_what_they_know_of_methods() -> None:
    plain, twice = await start(Counter), await start(Twice)
    for _ in range(2):
        await plain.call(Counter.add, 1)
        await twice.call(Counter.add, 1)
    assert await plain.call(Counter.add, 0) == 2
    assert await twice.call(Counter.add, 0) == 4


async def test_a_function_of_the_server_is_a_method_of_ones_own() -> None:
    ref = await start(Counter, 4)

    def double(server: Counter, by: int) -> int:
        server.count *= by
        return server.count

    assert await ref.call(double, 2) == 8
    assert await ref.call(lambda server: server.count) == 8
    assert [await ref.call(lambda server: server.count) for _ in range(2)] == [8, 8]
    assert await ref.call(functools.partial(double, by=3)) == 24


async def test_an_answer_may_come_later_and_once() -> None:
    ref = await start(Counter)
    calls = [request(ref, Counter.keep), request(ref, Counter.keep_slowly)]
    inline = asyncio.ensure_future(ref.call(Counter.keep))
    await turns()
    assert await ref.call(Counter.release, 7) == [True] * 3
    assert await ref.call(Counter.release, 8) == [False] * 3
    assert [await call.wait() for call in calls] == [7, 7]
    assert await inline == 7


@pytest.mark.parametrize("queued", [False, True])
async def test_a_second_answer_is_dropped(*, queued: bool) -> None:
    ref = await start(Counter)
    if queued:
        ref.cast(Counter.nothing)
    assert await ref.call(Counter.reply_early) == -1
    assert await ref.call(Counter.reply_and_break) == -1
    assert await wait_down(ref) == NO_PROCESS


async def test_an_answer_may_be_the_last_or_go_on() -> None:
    ref = await start(Counter, 5)
    assert await ref.call(Counter.go_on) == 5
    assert await ref.call(Counter.last) == 105
    assert not is_alive(ref)
    other = await start(Counter)
    assert await other.ask("stop") == "stopped"
    assert not is_alive(other)


@pytest.mark.parametrize("queued", [False, True])
async def test_a_rejected_call_raises_at_the_caller_and_the_server_goes_on(node: Node, *, queued: bool) -> None:
    reports = reports_of(node)
    ref = await start(Counter, 4)
    for method in (Counter.divide, Counter.divide_slowly):
        if queued:
            ref.cast(Counter.nothing)
        with pytest.raises(ZeroDivisionError, match="not by 0"):
            await ref.call(method, 0)
        assert await ref.call(method, 2) == 2
    with pytest.raises(LookupError):
        await ref.ask(LookupError())
    with pytest.raises(RuntimeError, match=r"StopIteration\(3\) cannot be raised from an await"):
        await ref.ask(StopIteration(3))
    assert reports == []
    with pytest.raises(TypeError, match="Reject carries an exception"):
        Reject("why")  # type: ignore[arg-type]


async def test_a_rejected_cast_is_told_of_and_the_server_goes_on(node: Node) -> None:
    unexpected: list[Unexpected] = reports_of(node, Unexpected)
    ref = await start(Counter, 4)
    for _ in range(3):
        ref.cast(Counter.divide, 0)
        ref.cast(Counter.divide_slowly, 0)
    assert await ref.call(Counter.add, 0) == 4
    assert [report.message for report in unexpected] == ["cast divide(0)", "cast divide_slowly(0)"] * 3


# --- what does not fit


@pytest.mark.parametrize("queued", [False, True])
async def test_arguments_that_do_not_fit_are_the_callers_fault(node: Node, *, queued: bool) -> None:
    ref: Any = await start(Counter)
    for method in (Counter.add, Counter.add_slowly):
        for args, kwargs in [((), {}), ((1, 2, 3), {}), ((1,), {"tims": 2}), ((), {"number": 1, "self": 2})]:
            if queued:
                ref.cast(Counter.nothing)
            with pytest.raises(TypeError, match=method.__name__):
                await ref.call(method, *args, **kwargs)
    assert await ref.call(Counter.add, 1) == 1


async def test_a_cast_that_does_not_fit_is_told_of(node: Node) -> None:
    unexpected: list[Unexpected] = reports_of(node, Unexpected)
    ref: Any = await start(Counter)
    for _ in range(3):  # the first is looked up, the others are known
        assert ref.cast(Counter.add)
        assert ref.cast(Counter.add, 1, 2, 3)
    assert await ref.call(Counter.add, 1) == 1
    assert [report.message for report in unexpected] == ["cast add()", "cast add(1, 2, 3)"] * 3


@pytest.mark.parametrize("queued", [False, True])
@pytest.mark.parametrize("method", [Counter.broken_type, Counter.broken_call])
async def test_a_type_error_inside_a_method_is_the_servers(method: Callable[[Counter], None], *, queued: bool) -> None:
    ref = await start(Counter)
    if queued:
        ref.cast(Counter.nothing)
    with pytest.raises(ProcessExited, match="crash: TypeError"):
        await ref.call(method)


@pytest.mark.parametrize("queued", [False, True])
async def test_a_call_that_names_no_method_is_refused(node: Node, *, queued: bool) -> None:
    unexpected: list[Unexpected] = reports_of(node, Unexpected)
    ref: Any = await start(Counter)
    if queued:
        ref.cast(Counter.nothing)
    with pytest.raises(TypeError, match=r"Log\.note is not a method of Counter"):
        await ref.call(Log.note, 1)
    with pytest.raises(TypeError, match=r"Twice\.add is not a method of Counter"):
        await ref.call(Twice.add, 1)
    with pytest.raises(TypeError, match=r"is bound to an instance: write Counter\.add"):
        await ref.call(Counter().add, 1)
    with pytest.raises(TypeError, match=r"'add' is not a method of Counter: write Counter\.name_of_the_method"):
        await ref.call("add", 1)
    with pytest.raises(TypeError, match="unhashable"):
        await ref.call(["add"], 1)
    assert await ref.call(Counter.cached, 3) == 3
    ref.cast("add", 1)
    ref.cast(["add"], 1)
    ref.cast(Log.note, 1)
    assert await ref.call(Counter.add, 1) == 1
    assert len(unexpected) == 3


# --- deadlines


async def test_a_call_has_a_deadline_and_none_is_no_limit() -> None:
    loop = asyncio.get_running_loop()
    ref = await start(Counter)
    for seconds in (5.0, 0.25, 0.0):
        began = loop.time()
        with pytest.raises(CallTimeout) as caught:
            await (ref if seconds == 5.0 else ref.within(seconds)).call(Counter.keep)
        assert (caught.value.seconds, loop.time() - began) == (seconds, seconds)
        assert str(caught.value) == f"Counter {ref.pid} did not answer within {seconds:g} s"
    waiting = asyncio.ensure_future(ref.within(None).call(Counter.keep))
    await asyncio.sleep(10**6)
    await ref.call(Counter.release, 3)
    assert await waiting == 3


@pytest.mark.parametrize("seconds", [-1, float("nan"), "5"])
async def test_an_impossible_timeout_is_refused_as_a_deadline(seconds: Any) -> None:
    ref = await start(Counter)
    with pytest.raises(ValueError, match="give 0 or more seconds, or None for no limit"):
        ref.within(seconds)


async def test_a_late_reply_is_dropped_and_the_next_call_is_answered_right() -> None:
    ref = await start(Counter)
    with pytest.raises(CallTimeout):
        await ref.within(0.5).ask("later")
    second = asyncio.ensure_future(ref.within(0.75).call(Counter.keep))
    await asyncio.sleep(0.6)
    assert not second.done(), "the late answer to the first is not the answer to the second"
    await ref.call(Counter.release, 2)
    assert await second == 2


async def test_a_caller_that_gives_up_leaves_nothing_behind(node: Node) -> None:
    ref = await start(Counter)
    callers = [asyncio.ensure_future(ref.call(Counter.keep)) for _ in range(10)]
    await turns()
    for each in callers:
        each.cancel()
    await asyncio.gather(*callers, return_exceptions=True)
    process = process_of(ref)
    assert process is not None
    assert process.callers is None
    assert await ref.call(Counter.release, 1) == [False] * 10
    assert is_alive(ref)


async def test_a_killed_caller_leaves_nothing_behind() -> None:
    ref = await start(Counter)
    caller = await start(Log)
    caller.cast(Log.do_async, lambda: ref.call(Counter.keep))
    await turns()
    kill(caller)
    await wait_down(caller)
    process = process_of(ref)
    assert process is not None
    assert process.callers is None
    assert await ref.call(Counter.release, 1) == [False]


async def test_a_bad_idle_timeout_crashes_the_server_and_hangs_no_caller() -> None:
    class Wrong(GenServer):
        def sync(self) -> None:
            return replying(None, idle_after="soon")  # type: ignore[arg-type]

        async def asynchronous(self) -> None:
            return self.sync()

    for queued in (False, True):
        for method in (Wrong.sync, Wrong.asynchronous):
            ref = await start(Wrong)
            if queued:
                ref.cast(lambda _: None)
            call = request(ref, method) if queued else asyncio.ensure_future(ref.call(method))
            reason = await wait_down(ref)
            assert isinstance(reason, Crash)
            assert isinstance(reason.error, TypeError | ValueError)
            del call


async def test_a_server_whose_own_machinery_breaks_dies_of_the_error_all_the_same() -> None:
    class Broken(GenServer):
        def fall(self) -> None:
            raise KeyError("the error")

        async def fall_slowly(self) -> None:
            self.fall()

        def _otp_on_error(self, entry: Any, error: BaseException) -> None:
            raise SystemExit("the machinery")

    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    for method in (Broken.fall, Broken.fall_slowly):
        for queued in (False, True):
            ref = await start(Broken)
            if queued:
                ref.cast(lambda _: None)
            with pytest.raises(ProcessExited, match="crash: KeyError: 'the error'"):
                await ref.call(method)
    assert [str(error) for error in told] == ["the machinery"] * 4


async def test_a_message_a_server_sends_itself_in_a_call_is_handled_after_the_call() -> None:
    ref = await start(Log)

    def send_to_itself() -> str:
        ref.send("later")
        assert ref.cast(Log.note, "later still")
        return "first"

    assert await ref.call(Log.do, send_to_itself) == "first"
    assert await ref.call(Log.read) == ["later", "later still"]
