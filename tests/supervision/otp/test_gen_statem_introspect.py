"""Introspection of a state machine, changes of its state, and the log records of its crash."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from greenroom.supervision import CallTimeout, Options, ProcessExited, inbox, request, start, wait_down
from greenroom.supervision.introspect import get_state, replace_state, resume, status, suspend
from greenroom.supervision.statem import (
    POSTPONE,
    After,
    Event,
    GenericTimeout,
    GenStatem,
    Info,
    Internal,
    Keep,
    Next,
    NextEvent,
    TellEvent,
    state,
)

from .machines import STYLES, Line, Mapped, Phone, stops
from .servers import Crashed

styles = pytest.mark.parametrize("style", STYLES)


@pytest.mark.otp("gen_statem_SUITE", "sys1")
@styles
async def test_a_suspended_machine_answers_when_it_is_resumed(style: type[Any]) -> None:
    ref = await start(style)
    assert (await status(ref)).behaviour is style
    await suspend(ref)
    asked = request(ref, Phone.alive)
    with pytest.raises(CallTimeout):
        await asked.wait(3)
    assert (await status(ref)).waiting == 1
    await resume(ref)
    assert await asked.wait() == "yes"
    await stops(ref)


@pytest.mark.otp("gen_statem_SUITE", "get_state")
@styles
async def test_state_and_data_can_be_seen_by_pid_and_by_name_and_suspended_too(style: type[Any]) -> None:
    async with inbox() as me:
        ref = await Options(name="gstm").start(style, None, me.pid)
        for who in (ref, ref.pid, "gstm"):
            seen = await get_state(who)
            assert (seen["state"], seen["data"]) == (Line.IDLE, me.pid)
            assert await get_state(who, timeout=5) == seen
        await suspend(ref)
        assert (await get_state(ref, 5))["state"] is Line.IDLE
        await resume(ref)
        await stops(ref)
        assert me.pending() == ()


@pytest.mark.otp("gen_statem_SUITE", "replace_state")
@styles
async def test_state_and_data_are_replaced_or_neither(style: type[Any]) -> None:
    def fails(fields: dict[str, Any]) -> dict[str, Any]:
        fields["state"] = Line.TIMEOUT
        raise Crashed("fail")

    async def seen() -> tuple[Any, Any]:
        fields = await get_state(ref)
        return fields["state"], fields["data"]

    ref = await start(style)
    replaced = await replace_state(ref, lambda fields: fields | {"data": "replaced"})
    assert (replaced["state"], replaced["data"]) == (Line.IDLE, "replaced") == await seen()
    await replace_state(ref, lambda fields: fields | {"state": Line.WAITING, "data": "again"}, 5)
    assert await seen() == (Line.WAITING, "again")
    with pytest.raises(Crashed, match="fail"):
        await replace_state(ref, fails)
    assert await seen() == (Line.WAITING, "again")
    await suspend(ref)
    await replace_state(ref, lambda fields: fields | {"data": f"{fields['data']} and again"})
    await resume(ref)
    assert await ref.call(Phone.get) == (Line.WAITING, "again and again")
    # a state that does not exist is not touched until an event comes
    await replace_state(ref, lambda fields: fields | {"state": "error"})
    assert (await seen())[0] == "error"
    await replace_state(ref, lambda fields: fields | {"state": Line.WAITING})
    await stops(ref)


@pytest.mark.otp("gen_statem_SUITE", "format_log_1")
@pytest.mark.otp("gen_statem_SUITE", "format_log_2")
@pytest.mark.otp("gen_statem_SUITE", "format_log_with_process_label")
@pytest.mark.parametrize("label", [None, "a label"])
async def test_the_end_of_a_machine_reads_with_all_that_it_had_before_it(
    label: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "greenroom.supervision")

    def begin(_: Mapped, event: Event) -> Any:
        match event:
            case TellEvent("postpone"):
                return Keep(POSTPONE)
            case Info("go"):
                timer = After(5, GenericTimeout("t", "message"))
                return Keep(NextEvent(Internal("crash")), NextEvent(Internal(list(range(15)))), timer)
            case _:
                raise Crashed("on the spot")

    ref = await Options(label=label).start(Mapped, Next("start"), {"start": begin}, {"token": "s3cr3t"})
    ref.tell("postpone")
    ref.send("go")
    await wait_down(ref)
    (text,) = (record.getMessage() for record in caplog.records)
    at = 0
    for part in (
        f"{label or 'Mapped'} {ref.pid}",
        "Crashed: on the spot",
        "last message: continue Internal(content='crash')",
        "state='start'",
        "queued=(Internal(content=[0, 1, 2,",
        "postponed=(TellEvent(request='postpone'),)",
        "timers=(GenericTimeout(name='t', content='message'),)",
        "data={'token': <hidden>}",
    ):
        found = text.find(part, at)
        assert found >= 0, f"{part!r} is not in {text[at:]!r}"
        at = found
    assert "\n" not in text


class Faulty(GenStatem[Line]):
    """Has no data, and dies of any event."""

    initial = Line.IDLE

    @state(*Line)
    def everywhere(self, event: Event) -> Any:
        raise Crashed


@pytest.mark.otp("gen_statem_SUITE", "format_log_1")
@pytest.mark.otp("gen_statem_SUITE", "format_log_2")
async def test_the_end_of_a_machine_with_nothing_before_it_reads_shortly(caplog: pytest.LogCaptureFixture) -> None:
    async with inbox() as me:
        ref = await start(Faulty)
        with pytest.raises(ProcessExited):
            await ref.ask("x")
        (text,) = (record.getMessage() for record in caplog.records)
    assert text.endswith(f"last message: call 'x'; state: state=<Line.IDLE: 'idle'>; asked by inbox {me.pid}")
