"""The bus of events: a listener affects neither the code that emits nor other listeners, whatever it does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from greenroom.event_types import ActDone, CallStep
from greenroom.supervision.event_bus import EventBus

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.event_types import Event

ACT = ActDone(act="park", target="git", principal="ada")


def emit(bus: EventBus, event: Event = ACT) -> None:
    if bus.listener is not None:
        bus.listener(event)


def emit_detail(bus: EventBus, event: Event) -> None:
    if bus.detail_listener is not None:
        bus.detail_listener(event)


@pytest.mark.parametrize("error", [ValueError("odd"), RecursionError("deep"), asyncio.CancelledError()])
def test_an_error_of_a_listener_is_logged_and_the_next_one_hears_the_event(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    bus, heard = EventBus(), list[object]()

    def fail(event: Event) -> None:
        raise error

    bus.subscribe(fail)
    bus.subscribe(heard.append)
    emit(bus)
    assert heard == [ACT]
    assert "a listener of events raised on 'ActDone'" in caplog.text


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_the_end_of_the_program_is_no_error_of_a_listener(error: type[BaseException]) -> None:
    bus = EventBus()

    def end(event: Event) -> None:
        raise error

    bus.subscribe(end)
    with pytest.raises(error):
        emit(bus)


def test_a_listener_may_subscribe_and_unsubscribe_in_the_middle_of_an_event() -> None:
    bus, heard, late = EventBus(), list[object](), list[object]()
    ends: list[Callable[[], None]] = []

    def change(event: Event) -> None:
        ends.pop()()
        ends.append(bus.subscribe(late.append))

    ends.append(bus.subscribe(change))
    end = bus.subscribe(heard.append)
    emit(bus)
    assert (heard, late) == ([ACT], [])
    emit(bus)
    assert (heard, late) == ([ACT, ACT], [ACT])
    for each in (end, end, *ends):
        each()
    assert bus.listener is None


def test_details_go_only_to_listeners_that_ask_for_them() -> None:
    bus, events, details = EventBus(), list[object](), list[object]()
    step = CallStep(call=1, step="queued")
    bus.subscribe(events.append)
    emit_detail(bus, step)
    bus.subscribe(details.append, details=True)
    emit_detail(bus, step)
    emit(bus)
    assert (events, details) == ([ACT], [step, ACT])
