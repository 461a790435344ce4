"""The report bus: which reports reach subscribers, and that a failing subscriber does no harm."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    Crash,
    CrashReport,
    GenServer,
    Node,
    ProcessExited,
    Report,
    StartFailed,
    Unexpected,
    exit,
    inbox,
    is_alive,
    kill,
    self_pid,
    send,
    spawn,
    start,
    start_link,
    wait_down,
)
from greenroom.supervision.behaviours.refs import request

from .sample_servers import Log, forever, reports_of, shut_down, turns

if TYPE_CHECKING:
    from collections.abc import Callable

ERROR = ValueError("x")


def fail() -> None:
    raise ERROR


@pytest.mark.otp("proc_lib_SUITE", "crash")
async def test_a_crash_is_reported_with_all_that_is_known(node: Node) -> None:
    crashes: list[CrashReport] = reports_of(node, CrashReport)
    async with inbox("mother") as me:
        ref = await start_link(Log)
        ref.cast(Log.note, 1)
        with pytest.raises(ProcessExited):
            await ref.call(Log.do, fail)
        (report,) = crashes
        assert (report.pid, report.label, report.reason) == (ref.pid, "Log", Crash(ERROR))
        assert report.last_message is not None
        assert report.last_message.startswith("call do(")
        assert report.state == "seen=[1]"
        assert report.ancestors == (f"mother {me.pid}",)
        assert (report.during, report.client) == ("handler", f"mother {me.pid}")


@pytest.mark.otp("proc_lib_SUITE", "crash")
async def test_an_orderly_end_is_not_reported(node: Node) -> None:
    reports = reports_of(node)
    for end in (shut_down, kill):
        end(await start(Log))
        await turns()
    kill(spawn(forever))
    await turns()
    assert reports == []


async def test_an_unexpected_message_is_reported_and_the_server_goes_on(node: Node) -> None:
    class Plain(GenServer):
        pass

    unexpected: list[Unexpected] = reports_of(node, Unexpected)
    ref = await start(Plain)
    ref.send("a message")
    ref.tell("a request")
    with pytest.raises(TypeError, match=r"Plain answers no ask\(\): 'a question'; call one of its methods instead"):
        await ref.ask("a question")
    assert [(report.kind, report.message) for report in unexpected] == [
        ("message", "'a message'"),
        ("cast", "'a request'"),
    ]
    assert is_alive(ref)


async def test_a_subscription_ends_when_it_is_ended(node: Node) -> None:
    heard: list[Report] = []
    unsubscribe = node.reports.subscribe(heard.append)
    reason = await wait_down(spawn(crash))
    assert isinstance(reason, Crash)
    unsubscribe()
    unsubscribe()
    await wait_down(spawn(crash))
    assert len(heard) == 1


async def crash() -> None:
    raise ERROR


@pytest.mark.parametrize(
    "error", [RuntimeError("x"), SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr
)
async def test_a_subscriber_that_raises_disturbs_no_other(
    error: BaseException, node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    def bad(_: Report) -> None:
        raise error

    node.reports.subscribe(bad)
    heard = reports_of(node)
    calm, ref = await start(Log), await start(Log)
    with caplog.at_level(logging.ERROR, "greenroom.supervision"), pytest.raises(ProcessExited):
        await ref.call(Log.do, fail)
    assert "a subscriber of reports raised" in caplog.text
    assert len(heard) == 1
    assert await calm.call(Log.read) == []


async def test_a_subscriber_may_send_the_report_to_a_process(node: Node) -> None:
    keeper = await start(Log)
    node.reports.subscribe(keeper.send)
    reason = await wait_down(spawn(crash))
    assert [report.reason for report in await keeper.call(Log.read)] == [reason]


async def other() -> None:
    await forever()


@pytest.mark.parametrize("how", ["sync", "async", "task", "init", "terminate", "leak"])
async def test_a_subscriber_may_kill_start_and_send_in_the_middle_of_a_death(how: str, node: Node) -> None:
    class Dies(Log):
        def __init__(self, *, at_once: bool = False) -> None:
            super().__init__()
            if at_once:
                raise ERROR

        def terminate(self, reason: Any) -> None:
            if how == "terminate":
                raise ERROR

    victims = [await start(Log) for _ in range(3)]
    started: list[Any] = []

    def act(report: Report) -> None:
        for victim in victims:
            kill(victim)
        kill(report.pid)
        exit(report.pid, ERROR)
        send(report.pid, "are you there?")
        started.append(spawn(other))

    node.reports.subscribe(act)
    if how == "init":
        with pytest.raises(StartFailed):
            await start(Dies, at_once=True)
    else:
        ref = await start(Dies)
        ref.cast(Log.do_async, ACTS[how])
        waiting = [request(ref, Log.read) for _ in range(2)]
        await asyncio.sleep(5.0)
        assert not is_alive(ref)
        for each in waiting:
            with pytest.raises(ProcessExited):
                await each.wait(0)
    assert not any(is_alive(victim) for victim in victims)
    assert started
    assert all(is_alive(pid) for pid in started)


async def fail_in_a_task() -> None:
    async def exits() -> None:
        raise SystemExit(1)

    await asyncio.gather(exits())


async def will_not_end() -> None:
    kill(self_pid())
    for _ in range(3):
        try:
            await asyncio.sleep(10.0)
        except asyncio.CancelledError:
            continue


async def fail_async() -> None:
    await asyncio.sleep(0)
    raise ERROR


async def fail_sync() -> None:
    fail()


ACTS: dict[str, Callable[[], Any]] = {
    "sync": fail_sync,
    "async": fail_async,
    "terminate": fail_async,
    "task": fail_in_a_task,
    "leak": will_not_end,
}
