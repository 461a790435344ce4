"""Replies of a state machine that come later, from another process, or together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    NO_PROCESS,
    CallTimeout,
    ProcessExited,
    Ref,
    Request,
    Requests,
    Shutdown,
    inbox,
    kill,
    request,
    spawn,
    start,
)
from greenroom.supervision.statem import AskEvent, Call, Event, Next

from .machines import STYLES, Mapped, Phone, is_gone

if TYPE_CHECKING:
    from greenroom.supervision import Caller

styles = pytest.mark.parametrize("style", STYLES)


@pytest.mark.otp("gen_statem_SUITE", "reply_by_alias_with_payload")
async def test_any_process_may_answer_a_caller_and_only_once() -> None:
    answered: list[bool] = []

    async def clerk(caller: Caller[Any], what: str) -> None:
        answered.append(caller.reply(what))

    def begin(_: Mapped, event: Event) -> Any:
        if isinstance(event, AskEvent | Call):
            spawn(clerk, event.caller, "the first")
            spawn(clerk, event.caller, "the second")

    ref = await start(Mapped, Next("start"), {"start": begin})
    assert await ref.ask("anything") in ("the first", "the second")
    await asyncio.sleep(0.1)
    assert answered == [True, False]


async def three(
    style: type[Any], delays: tuple[float, float, float]
) -> tuple[list[Ref[Phone]], Request[Any], Requests]:
    """Three machines, a request outside the collection, and one to each of them inside."""
    refs: list[Ref[Phone]] = [await start(style) for _ in range(3)]
    outside = request(refs[0], Phone.alive)
    asked = Requests()
    for number, (ref, delay) in enumerate(zip(refs, delays, strict=True), 1):
        asked.add(request(ref, Phone.delayed_answer, delay), f"req{number}")
        assert len(asked) == number
    return refs, outside, asked


async def labels(asked: Requests, *limits: float | None) -> list[Any]:
    """The labels in the order of replies; the collection shrinks by each."""
    found: list[Any] = []
    for limit in limits:
        answered = await asked.next(limit)
        assert answered is not None
        assert await answered.wait(0) == "delayed"
        found.append(answered.label)
    return found


@pytest.mark.otp("gen_statem_SUITE", "send_request_receive_reqid_collection")
@pytest.mark.otp("gen_statem_SUITE", "send_request_wait_reqid_collection")
@pytest.mark.otp("gen_statem_SUITE", "send_request_check_reqid_collection")
@styles
async def test_a_collection_gives_its_requests_as_they_are_answered(style: type[Any]) -> None:
    refs, outside, asked = await three(style, (0.4, 0.001, 0.2))
    await asyncio.sleep(0.1)
    assert [each.label for each in asked if each.done] == ["req2"]
    assert await labels(asked, None, 5.678, 5) == ["req2", "req3", "req1"]
    assert await asked.next() is None
    assert await outside.wait() == "yes"
    for ref in refs:
        assert await ref.call(Phone.stop, Shutdown()) == "stopped"
        await is_gone(ref)


@pytest.mark.otp("gen_statem_SUITE", "send_request_receive_reqid_collection")
@pytest.mark.otp("gen_statem_SUITE", "send_request_wait_reqid_collection")
@styles
async def test_a_collection_is_waited_for_again_or_abandoned(style: type[Any]) -> None:
    async with inbox() as me:
        _, outside, asked = await three(style, (1.0, 0.001, 0.5))
        assert await labels(asked, 0.1) == ["req2"]
        with pytest.raises(CallTimeout):
            await asked.next(0.1)
        assert [each.label for each in asked] == ["req1", "req3"]
        assert await labels(asked, 1.5) == ["req3"]
        asked.abandon()
        assert len(asked) == 0
        await asyncio.sleep(2)
        assert await outside.wait() == "yes"
        assert me.pending() == ()


@pytest.mark.otp("gen_statem_SUITE", "send_request_receive_reqid_collection")
@pytest.mark.otp("gen_statem_SUITE", "send_request_wait_reqid_collection")
@pytest.mark.otp("gen_statem_SUITE", "send_request_check_reqid_collection")
@styles
async def test_a_machine_that_is_not_there_answers_a_collection_with_that(style: type[Any]) -> None:
    refs, outside, asked = await three(style, (0.4, 0.001, 0.2))
    with pytest.raises(ValueError, match="already"):
        asked.add(next(iter(asked)))
    asked.abandon()
    kill(refs[1])
    for number, (ref, delay) in enumerate(zip(refs, (0.4, 0.001, 0.2), strict=True), 1):
        asked.add(request(ref, Phone.delayed_answer, delay), f"req{number}")
    first = await asked.next(2)
    assert first is not None
    assert first.label == "req2"
    with pytest.raises(ProcessExited) as exited:
        await first.wait()
    assert exited.value.reason == NO_PROCESS
    assert await labels(asked, None, None) == ["req3", "req1"]
    assert await outside.wait() == "yes"
