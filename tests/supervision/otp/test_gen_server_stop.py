"""Stopping a server from outside: by pid and by name, with a reason, in time and not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    NO_PROCESS,
    NORMAL,
    CallTimeout,
    Crash,
    Down,
    Exit,
    GenServer,
    Node,
    NotRegistered,
    On,
    Options,
    ProcessExited,
    Ref,
    Registry,
    Shutdown,
    inbox,
    introspect,
    is_alive,
    monitor,
    register,
    start,
    start_link,
    start_monitor,
    stop,
    via,
)

from .servers import Crashed, Stopped, Subject, crash_reports, raised_in

if TYPE_CHECKING:
    from greenroom.supervision import ExitReason


@pytest.mark.otp("gen_server_SUITE", "stop1")
async def test_a_stopped_server_is_gone_when_stop_returns() -> None:
    ref = await start(Subject)
    await stop(ref)
    assert not is_alive(ref)
    with pytest.raises(ProcessExited) as exited:
        await stop(ref)
    assert exited.value.reason == NO_PROCESS


@pytest.mark.otp("gen_server_SUITE", "stop2")
async def test_a_requested_abnormal_reason_is_no_error_for_the_caller_of_stop(node: Node) -> None:
    reports = crash_reports(node)
    reason = Crash(Stopped())
    async with inbox() as me:
        ref, watch = await start_monitor(Subject)
        await stop(ref, reason, None)
        assert not is_alive(ref)
        assert await me.receive() == Down(watch, ref.pid, reason)
        assert [report.reason for report in reports] == [reason]


@pytest.mark.otp("gen_server_SUITE", "stop3")
@pytest.mark.parametrize("timeout", ["infinty", -5, float("nan")])
async def test_a_time_that_is_none_is_refused_before_anything_happens(timeout: Any) -> None:
    ref = await start(Subject)
    with pytest.raises(ValueError, match="seconds"):
        await stop(ref, NORMAL, timeout)
    assert await ref.call(Subject.ping) == "pong"
    await stop(ref)
    assert not is_alive(ref)


async def stops_by(address: Any, ref: Ref[Subject]) -> None:
    await stop(address)
    assert not is_alive(ref)
    with pytest.raises(NotRegistered):
        await stop(address)


@pytest.mark.otp("gen_server_SUITE", "stop4")
async def test_a_server_is_stopped_by_its_name() -> None:
    await stops_by("to_stop", await Options(name="to_stop").start(Subject))


@pytest.mark.otp("gen_server_SUITE", "stop5")
async def test_a_server_is_stopped_by_its_name_and_node(node: Node) -> None:
    await stops_by(On("to_stop", node.name), await Options(name="to_stop").start(Subject))


@pytest.mark.otp("gen_server_SUITE", "stop6")
@pytest.mark.otp("gen_server_SUITE", "stop7")
async def test_a_server_is_stopped_by_its_name_in_a_registry() -> None:
    name = via(await start(Registry), "to_stop")
    await stops_by(name, await Options(name=name).start(Subject))


async def test_a_stop_that_takes_too_long_is_told_and_goes_on() -> None:
    class Slow(Subject):
        async def terminate(self, reason: ExitReason) -> None:  # type: ignore[override]
            await asyncio.sleep(1)

    async with inbox() as me:
        ref, watch = await start_monitor(Slow)
        with pytest.raises(CallTimeout):
            await stop(ref, Shutdown("slowly"), 0.1)
        assert await me.receive() == Down(watch, ref.pid, Shutdown("slowly"))


async def test_a_server_that_stops_itself_and_waits_for_that_is_told_at_once() -> None:
    class Selfish(Subject):
        async def end(self) -> None:
            await stop(self.ref())

    ref = await start(Selfish)
    with pytest.raises(ProcessExited, match="cannot stop itself"):
        await ref.within(None).call(Selfish.end)


async def test_a_suspended_server_can_be_stopped() -> None:
    ref = await start(Subject)
    await introspect.suspend(ref)
    ref.tell("never handled")
    await stop(ref, timeout=1)
    assert not is_alive(ref)


async def test_the_answer_of_a_call_that_stops_comes_after_terminate() -> None:
    done: list[str] = []

    class Orderly(Subject):
        async def terminate(self, reason: ExitReason) -> None:  # type: ignore[override]
            await asyncio.sleep(1)
            done.append("terminated")

    ref = await start(Orderly)
    assert await ref.call(Orderly.stop, NORMAL) == "ok"
    assert done == ["terminated"]


class Bare(GenServer):
    """Has no callback at all."""


@pytest.mark.otp("gen_server_SUITE", "undef_terminate1")
@pytest.mark.otp("gen_server_SUITE", "undef_terminate2")
@pytest.mark.parametrize("reason", [NORMAL, Crash(Stopped())])
async def test_a_server_without_terminate_stops_with_the_reason_that_was_asked_for(reason: ExitReason) -> None:
    async with inbox() as me:
        ref, watch = await start_monitor(Bare)
        await stop(ref, reason, None)
        assert await me.receive() == Down(watch, ref.pid, reason)


@pytest.mark.otp("gen_server_SUITE", "undef_in_terminate")
async def test_an_error_in_terminate_is_what_stop_raises() -> None:
    class Broken(Bare):
        def terminate(self, reason: ExitReason) -> None:
            self.there_is_no_such_method()  # type: ignore[attr-defined]

    async with inbox() as me:
        ref, watch = await start_monitor(Broken)
        with pytest.raises(ProcessExited) as exited:
            await stop(ref)
        assert isinstance(exited.value.__cause__, AttributeError)
        assert await me.receive() == Down(watch, ref.pid, exited.value.reason)


@pytest.mark.otp("gen_server_SUITE", "terminate_crash_format")
async def test_a_crash_in_terminate_replaces_the_reason_and_the_caller_has_its_answer(node: Node) -> None:
    reports = crash_reports(node)
    crash = Crashed("terminate")
    stopped = Stopped()
    async with inbox() as me:
        ref = await start_link(Subject, None, crash)
        assert await ref.call(Subject.stop, stopped) == "ok"
        assert await me.receive(timeout=5) == Exit(ref.pid, Crash(crash))
    first, last = reports
    assert (first.reason, last.reason, last.during) == (Crash(stopped), Crash(crash), "terminate")
    for report in reports:
        assert report.last_message is not None
        assert report.last_message.startswith("call stop(")
        assert "state=Crashed('terminate')" in str(report.state)
        assert report.client == f"inbox {me.pid}"
        assert "ref.call(Subject.stop, stopped)" in report.client_stack
    assert raised_in(crash) == "terminate"


async def test_the_end_of_its_parent_ends_a_server_that_traps_exits_and_terminate_runs() -> None:
    class Trapping(Subject):
        traps_exit = True

        def terminate(self, reason: ExitReason) -> None:
            seen.append(reason)

    seen: list[ExitReason] = []
    async with inbox("witness") as witness:
        async with inbox("parent"):
            ref = await start_link(Trapping)
            register("child", ref.pid)
        watch = monitor("child")
        assert (await witness.receive()).ref is watch
    assert seen == [Shutdown()]
