"""A history is the same in each replay, and the checker finds violations."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from greenroom.supervision import (
    ActorError,
    CallTimeout,
    MailboxFull,
    Options,
    ProcessExited,
    ask_later,
    current_node,
    kill,
    request,
    spawn,
    start,
    stop,
    wait_down,
)
from greenroom.supervision.introspect import get_state, suspend
from greenroom.supervision.testing import History, HistoryEvent, assert_clean, check, record, run, start_supervised

from .recording_servers import Box

if TYPE_CHECKING:
    from greenroom.supervision.testing.histories import Kind


async def busy() -> History:
    """Calls with each kind of outcome."""
    with record(messages=True) as recorder:
        box = await start_supervised(Box)
        assert await box.call(Box.put, "hat") == 1
        box.cast(Box.put, "coat")
        box.send("glove")
        with pytest.raises(TypeError):
            await box.call(Box.put)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
        with pytest.raises(CallTimeout):
            await box.within(1).call(Box.wait)
        await box.call(Box.answer_last_first)  # too late
        waiting = asyncio.create_task(box.call(Box.wait))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.wait([waiting])
        waiting = asyncio.create_task(box.call(Box.wait))
        await asyncio.sleep(1)
        kill(box)
        with pytest.raises(ProcessExited):
            await waiting
        small = await Options(mailbox=1).start(Box)
        await suspend(small)
        small.send("one")
        with pytest.raises(MailboxFull):
            await small.call(Box.look)
        kill(small)
        await wait_down(small)
    return recorder.history


def test_each_call_has_one_outcome_of_each_kind() -> None:
    history = run(busy)
    assert check(history) == []
    calls = [call for call in history.calls() if call.callee.startswith("Box")]
    assert [(call.request, call.outcome.kind) for call in calls if call.outcome is not None] == [
        ("call put('hat')", "answered"),
        ("call put()", "failed"),
        ("call wait()", "expired"),
        ("call answer_last_first()", "answered"),
        ("call wait()", "abandoned"),
        ("call wait()", "exited"),
        ("system suspend", "answered"),
        ("call look()", "refused"),
    ]
    assert calls[2].seconds == 1
    assert {call.caller for call in calls} == {"outside"}
    assert [event.what for event in history.of("late")] == ["a reply after the call had ended"]
    assert [event.what for event in history.of("sent", who="Box")] == ["cast put('coat')", "info 'glove'", "info 'one'"]
    assert [event.what for event in history.of("died", who="Box")] == ["killed", "killed"]


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_the_same_run_has_the_same_text_and_survives_json(seed: int | None) -> None:
    first, second = run(busy, seed=seed), run(busy, seed=seed)
    assert first.text() == second.text()
    assert History.load(first.dump()).text() == first.text()
    assert "0x" not in first.text()


async def test_a_death_comes_before_the_outcomes_that_it_causes() -> None:
    with record() as recorder:
        box = await start(Box)
        waiting = request(box, Box.wait)
        await box.call(Box.look)
        kill(box)
        with pytest.raises(ProcessExited):
            await waiting.wait()
    kinds = [event.kind for event in recorder.history.events if event.kind in ("died", "exited")]
    assert kinds == ["died", "exited"]


async def test_the_caller_of_a_recorded_call_is_named() -> None:
    box = await start(Box)

    async def visitor() -> None:
        await box.call(Box.put, "umbrella")

    with record() as recorder:
        await wait_down(spawn(visitor))
    (call,) = recorder.history.calls()
    assert call.caller.endswith("visitor <node.2>")
    assert call.callee == "Box <node.1>"


async def test_abandoned_calls_and_calls_of_missing_processes_have_outcomes() -> None:
    with record() as recorder:
        box = await start(Box)
        request(box, Box.wait).abandon()
        await box.call(Box.look)
        ref = box
        await stop(box)
        with pytest.raises(ProcessExited):
            await ask_later(ref, "there?").wait()
    assert check(recorder.history) == []
    assert "abandoned" in [event.kind for event in recorder.history.events]


async def test_nothing_is_left_when_a_recorder_stops() -> None:
    node = current_node()
    budget = node.inline_budget
    box = await start(Box)
    with record() as recorder:
        await box.call(Box.look)
        assert node.inline_budget == 0
        with pytest.raises(ActorError, match="has a recorder already"), record():
            pass
    length = len(recorder.history)
    assert node.inline_budget == budget
    assert "create" not in vars(node)
    assert await box.call(Box.put, "hat") == 1
    await get_state(box)
    kill(box)
    await start(Box)
    assert len(recorder.history) == length


async def test_a_call_that_is_under_way_is_found_unless_it_may_be() -> None:
    with record() as recorder:
        box = await start(Box)
        waiting = request(box, Box.wait)
        await box.call(Box.look)
    assert [finding.rule for finding in check(recorder.history)] == ["no outcome"]
    assert check(recorder.history, finished=False) == []
    waiting.abandon()


async def test_answers_out_of_order_are_found_unless_they_may_be() -> None:
    with record() as recorder:
        box = await start(Box)
        both = [request(box, Box.wait), request(box, Box.wait)]
        await box.call(Box.answer_last_first)
        for each in both:
            assert await each.wait() == "now"
    (finding,) = [each for each in check(recorder.history) if "#2 before #1" in each.what]
    assert finding.rule == "out of order"
    assert len(finding.events) == 4
    assert "Box <node.1> answered #2 before #1" in str(finding)
    assert check(recorder.history, unordered=["B*"]) == []


def history(*events: tuple[Kind, str, str | None, int | None]) -> History:
    return History([HistoryEvent(number, float(number), *_order(event)) for number, event in enumerate(events, 1)])


def _order(event: tuple[Kind, str, str | None, int | None]) -> tuple[Kind, str, str, str | None, int | None]:
    kind, who, by, call = event
    return kind, who, "", by, call


A, B = "A <node.1>", "B <node.2>"


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        (history(("called", A, B, 1), ("answered", A, A, 1), ("expired", A, None, 1)), "two outcomes"),
        (history(("answered", A, A, 1), ("called", A, B, 1)), "outcome first"),
        (history(("answered", A, A, 1)), "unknown call"),
        (history(("called", A, B, 1), ("died", A, None, None), ("answered", A, A, 1)), "after death"),
        (history(("died", B, None, None), ("called", A, B, 1), ("exited", A, None, 1)), "after death"),
        (history(("died", A, None, None), ("died", A, None, None)), "two deaths"),
        (history(("died", A, None, None), ("born", A, None, None)), "after death"),
    ],
    ids=["two", "first", "unknown", "reply", "call", "deaths", "born"],
)
def test_violations_in_a_history_are_found(wrong: History, rule: str) -> None:
    (finding,) = check(wrong)
    assert finding.rule == rule
    with pytest.raises(AssertionError, match=rule):
        assert_clean(wrong)


def test_a_clean_history_is_clean() -> None:
    assert_clean(run(busy))
