"""Requests that are sent now and awaited later, alone and in collections."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    NO_CONNECTION,
    NO_PROCESS,
    SHUTDOWN,
    ActorError,
    BadReturn,
    CallTimeout,
    Crash,
    Exit,
    NotRegistered,
    On,
    Options,
    Pid,
    ProcessExited,
    Ref,
    Registry,
    Requests,
    ask_later,
    exit,
    inbox,
    is_alive,
    kill,
    request,
    start,
    start_link,
    via,
    wait_down,
)

from .servers import Stopped, Subject

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision import ExitReason, Request


async def ended(asked: Request[Any]) -> ExitReason:
    """The reason of a missing reply."""
    with pytest.raises(ProcessExited) as exited:
        await asked.wait()
    return exited.value.reason


@pytest.mark.otp("gen_server_SUITE", "send_request")
async def test_a_request_sent_now_is_answered_later() -> None:
    ref = await Options(name="my_test_name").start(Subject)
    by_name: Ref[Subject] = Ref("my_test_name")
    assert await request(by_name, Subject.started).wait() == "ok"
    assert await request(ref, Subject.delayed_answer, 0.001).wait() == "delayed"

    first, second = request(ref, Subject.call_within, 1), request(ref, Subject.next_call)
    assert [await first.wait(), await second.wait()] == ["ok", True]

    third = request(ref, Subject.call_within, 1)
    seen = [third.done]
    await asyncio.sleep(0)
    assert [*seen, third.done] == [False, True]
    assert await third.wait() == "ok"
    await asyncio.sleep(1.5)
    assert await request(ref, Subject.next_call).wait() is False


@pytest.mark.otp("gen_server_SUITE", "send_request")
async def test_a_wait_that_was_too_short_leaves_the_request_open() -> None:
    ref = await start(Subject)
    asked = request(ref, Subject.delayed_answer, 0.05)
    with pytest.raises(CallTimeout):
        await asked.wait(0)
    assert await asked.wait(None) == "delayed"
    assert await asked.wait(0) == "delayed"


@pytest.mark.otp("gen_server_SUITE", "send_request")
async def test_a_missing_process_raises_when_the_request_is_awaited() -> None:
    ref = await start(Subject)
    asked = ask_later(ref, "badreturn")
    with pytest.raises(ProcessExited) as exited:
        await asked.wait()
    assert isinstance(exited.value.__cause__, BadReturn)
    assert await ended(request(ref, Subject.started)) == NO_PROCESS

    missing: list[Ref[Subject]] = [Ref("missing"), Ref(via(await start(Registry), "missing"))]
    for each in missing:
        with pytest.raises(NotRegistered):
            await request(each, Subject.started).wait()
    elsewhere: list[Ref[Subject]] = [Ref(On("my_test_name", "unknown")), Ref(Pid("unknown", 1, 1))]
    for each in elsewhere:
        assert await ended(request(each, Subject.started)) == NO_CONNECTION


@pytest.mark.otp("gen_server_SUITE", "send_request")
async def test_a_name_in_a_registry_that_does_not_run_is_refused_in_the_sending() -> None:
    async with inbox() as me:
        registry = await start_link(Registry)
        reason = Crash(Stopped("foo2"))
        exit(registry, reason)
        assert await me.receive() == Exit(registry.pid, reason)
        missing: Ref[Subject] = Ref(via(registry, "missing"))
        with pytest.raises(ActorError):
            request(missing, Subject.started)


async def three(delays: tuple[float, float, float]) -> tuple[list[Ref[Subject]], Request[Any], Requests]:
    """Three servers, a request outside the collection, and one to each of them inside."""
    refs = [await start_link(Subject) for _ in range(3)]
    outside = request(refs[0], Subject.started)
    asked = Requests()
    for number, (ref, delay) in enumerate(zip(refs, delays, strict=True), 1):
        asked.add(request(ref, Subject.delayed_answer, delay), f"req{number}")
        assert len(asked) == number
    assert [each.label for each in asked] == ["req1", "req2", "req3"]
    return refs, outside, asked


async def labels(asked: Requests, *limits: float | None) -> list[Any]:
    """The labels in the order of replies; the collection shrinks by each."""
    found: list[Any] = []
    for limit in limits:
        size = len(asked)
        answered = await asked.next(limit)
        assert answered is not None
        assert await answered.wait(0) == "delayed"
        assert len(asked) == size - 1
        found.append(answered.label)
    return found


@pytest.mark.otp("gen_server_SUITE", "send_request_receive_reqid_collection")
@pytest.mark.otp("gen_server_SUITE", "send_request_wait_reqid_collection")
async def test_a_collection_gives_its_requests_as_they_are_answered() -> None:
    async with inbox():
        _, outside, asked = await three((0.4, 0.001, 0.2))
        assert await labels(asked, None, 5.678, 5) == ["req2", "req3", "req1"]
        assert await asked.next() is None
        assert await outside.wait() == "ok"


@pytest.mark.otp("gen_server_SUITE", "send_request_check_reqid_collection")
async def test_which_requests_are_answered_can_be_seen_without_waiting() -> None:
    async with inbox():
        _, outside, asked = await three((0.4, 0.001, 0.2))
        seen: list[list[Any]] = []
        for until in (0.1, 0.2, 0.2):
            await asyncio.sleep(until)
            assert outside.done
            seen.append([each.label for each in asked if each.done])
        assert seen == [["req2"], ["req2", "req3"], ["req1", "req2", "req3"]]
        assert await outside.wait(0) == "ok"
        assert sorted(await labels(asked, 0, 0, 0)) == ["req1", "req2", "req3"]
        assert await asked.next(0) is None


@pytest.mark.otp("gen_server_SUITE", "send_request_wait_reqid_collection")
async def test_a_collection_that_was_waited_for_too_shortly_can_be_waited_for_again() -> None:
    async with inbox():
        _, outside, asked = await three((1.0, 0.001, 0.5))
        assert await labels(asked, 0.1) == ["req2"]
        with pytest.raises(CallTimeout):
            await asked.next(0.1)
        assert [each.label for each in asked] == ["req1", "req3"]
        assert await labels(asked, 1.5, 1.5) == ["req3", "req1"]
        assert await outside.wait() == "ok"


@pytest.mark.otp("gen_server_SUITE", "send_request_receive_reqid_collection")
async def test_the_answers_of_a_collection_that_was_abandoned_vanish() -> None:
    async with inbox() as me:
        _, outside, asked = await three((1.0, 0.001, 0.5))
        assert await labels(asked, 0.1) == ["req2"]
        with pytest.raises(CallTimeout):
            await asked.next(0.1)
        left = list(asked)
        asked.abandon()
        assert len(asked) == 0
        assert await asked.next() is None
        await asyncio.sleep(2)
        for each in left:
            with pytest.raises(ActorError, match="abandoned"):
                await each.wait(0)
        assert me.pending() == ()
        assert await outside.wait() == "ok"


@pytest.mark.otp("gen_server_SUITE", "send_request_receive_reqid_collection")
@pytest.mark.otp("gen_server_SUITE", "send_request_wait_reqid_collection")
@pytest.mark.otp("gen_server_SUITE", "send_request_check_reqid_collection")
async def test_a_server_that_ends_answers_a_collection_with_its_reason() -> None:
    async with inbox():
        refs = [await start(Subject) for _ in range(3)]
        asked = Requests()
        asked.add(request(refs[0], Subject.delayed_answer, 0.4), "req1")
        asked.add(request(refs[1], Subject.stop_shutdown), "req2")
        asked.add(request(refs[2], Subject.delayed_answer, 0.2), "req3")
        with pytest.raises(ValueError, match="already"):
            asked.add(next(iter(asked)))
        first = await asked.next(5)
        assert first is not None
        assert first.label == "req2"
        assert await ended(first) == SHUTDOWN
        assert await labels(asked, None, None) == ["req3", "req1"]
        for ref in (refs[0], refs[2]):
            kill(ref)
            await wait_down(ref)
            assert not is_alive(ref)


@pytest.mark.otp("gen_server_SUITE", "send_request_receive_reqid_collection")
@pytest.mark.parametrize("make", [lambda: Requests().next(-1), lambda: answered().wait(float("nan"))])
async def test_a_bad_time_is_refused_also_when_there_is_nothing_to_wait_for(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="seconds"):
        await make()


def answered() -> Request[Any]:
    missing: Ref[Subject] = Ref("missing")
    return request(missing, Subject.started)
