"""What events add up to: right counts, and a bounded memory in storms of hostile events."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom import event_types as events
from greenroom.observe import event_record, event_views, program_views
from greenroom.observe.event_record import EventRecord, bounded
from greenroom.observe.metric_table import OTHER, UNKNOWN

HOSTILE = "\x1b[2J\u202e<script>alert(1)</script>\u0000" + "x" * 20_000


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def call(number: int, name: str = "add", *, side: events.Side = "server", **fields: Any) -> events.CallStarted:
    """The beginning of a call."""
    given: dict[str, Any] = {"program": "shop", "way": "session", "method": "tools/call"}
    return events.CallStarted(call=number, side=side, name=name, **{**given, **fields})


def end(begun: events.CallStarted, outcome: events.Outcome = "result", **fields: Any) -> events.CallEnded:
    """Its end."""
    rest: dict[str, Any] = {"seconds": 0.1, **fields}
    return events.CallEnded(
        call=begun.call,
        side=begun.side,
        program=begun.program,
        way=begun.way,
        method=begun.method,
        name=begun.name,
        outcome=outcome,
        host=begun.host,
        **rest,
    )


def crash(reason: str, kind: str = "Worker", **fields: Any) -> events.ProcessCrashed:
    """A crash."""
    return events.ProcessCrashed(node="node", label=kind, kind=kind, pid="<node.7>", reason=reason, **fields)


OUTCOMES: list[events.Outcome] = ["result", "tool_error", "error", "asks", "cancelled", "worker_crashed", "refused"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["server", "client"]), st.sampled_from("abc"), st.sampled_from(OUTCOMES), st.booleans()
        )
    )
)
def test_each_call_is_counted_once_by_its_side_name_and_outcome(
    made: list[tuple[events.Side, str, events.Outcome, bool]],
) -> None:
    record = EventRecord(Clock())
    open_calls = {"server": 0, "client": 0}
    for number, (side, name, outcome, ends) in enumerate(made, 1):
        begun = call(number, name, side=side)
        record.take(begun)
        if ends:
            record.take(end(begun, outcome))
        else:
            open_calls[side] += 1
    over = [(side, name, outcome) for side, name, outcome, ends in made if ends]
    assert {side: counts.in_flight for side, counts in record.sides.items()} == open_calls
    assert {side: counts.calls for side, counts in record.sides.items()} == {
        side: sum(each[0] == side for each in over) for side in ("server", "client")
    }
    for key, counts in record.names.items():
        own = [each[2] for each in over if each[:2] == (key[0], key[3])]
        assert counts.calls == len(own)
        assert counts.outcomes["tool_error"] == own.count("tool_error")
        assert counts.crashes == own.count("worker_crashed")
        assert counts.refused == own.count("refused")
        assert counts.failed == sum(each in ("error", "worker_crashed", "refused") for each in own)


@pytest.mark.parametrize("side", ["server", "client"])
def test_a_listen_has_no_duration_and_fails_only_where_it_did_not_come_about(side: events.Side) -> None:
    record = EventRecord(Clock())
    ends: list[events.Outcome] = ["result", "cancelled", "peer_gone", "process_ended", "refused"]
    for number, outcome in enumerate(ends, 1):
        record.take(end(call(number, "", side=side, method=events.LISTEN), outcome, seconds=3_600.0))
    record.take(end(call(9, side=side)))
    counts = record.sides[side]
    assert (counts.calls, counts.failed) == (6, 1)
    (listens,) = [each for each in record.names.values() if each.method == events.LISTEN]
    assert (listens.calls, listens.failed, listens.window.spread(1_000.0).count) == (5, 1, 0)
    for window in (counts.window, *(each.window for each in record.programs.values())):
        assert window.spread(1_000.0).longest == 0.1


def test_the_rate_of_a_tool_is_of_the_same_time_as_the_programs() -> None:
    clock = Clock()
    record = EventRecord(clock)
    record.begin()
    clock.now += 40
    for number in range(8):
        record.take(end(call(number)))
    (tool,) = record.names.values()
    rates = [each.per_second(clock.now) for each in (record.sides["server"].rate, tool.rate)]
    assert rates == [pytest.approx(0.2), pytest.approx(0.2)]


def test_a_call_that_began_before_the_record_is_not_in_flight_after_its_end() -> None:
    record = EventRecord(Clock())
    record.take(end(call(1)))
    assert (record.sides["server"].in_flight, record.sides["server"].calls) == (0, 1)


def test_more_calls_in_flight_than_are_kept_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_record, "MOST_OPEN_CALLS", 3)
    record = EventRecord(Clock())
    begun = [call(number) for number in range(1, 8)]
    for each in begun:
        record.take(each)
    assert (len(record.calls), record.sides["server"].in_flight) == (3, 7)
    for each in begun:
        record.take(end(each))
    assert (len(record.calls), record.sides["server"].in_flight) == (0, 0)


def test_names_that_are_not_registered_are_one_and_too_many_are_one_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_record, "MOST_NAMES", 64)
    record = EventRecord(Clock())
    for number in range(1, 50):
        record.take(end(call(number, f"secret-{number}"), is_known=False))
    for number in range(50, 80):
        record.take(end(call(number, f"tool-{number}")))
    names = {key[3]: counts.calls for key, counts in record.names.items()}
    assert names == {UNKNOWN: 49, **{f"tool-{number}": 1 for number in range(50, 66)}, OTHER: 14}


def test_a_server_with_very_many_names_takes_no_rows_of_others() -> None:
    record = EventRecord(Clock())
    for number in range(5_000):
        record.take(end(call(number, f"flood-{number}", side="client", program="hostile", host="gateway")))
    for program in ("quiet", "later"):
        for number in range(100):
            record.take(end(call(number, f"tool-{number}", side="client", program=program, host="gateway")))
    rows = Counter(key[1] for key in record.names)
    assert (rows["quiet"], rows["later"]) == (100, 100)
    assert 400 < rows["hostile"] <= event_record.MOST_NAMES // 3


def test_resources_of_one_scheme_are_one_name() -> None:
    record = EventRecord(Clock())
    for number in range(1, 30):
        record.take(end(call(number, f"file:///home/{number}", method="resources/read")))
    assert {key[3] for key in record.names} == {"file:…"}


def test_one_principal_that_floods_leaves_the_last_calls_of_the_others() -> None:
    record = EventRecord(Clock())
    quiet = call(1, principal="quiet")
    record.take(quiet)
    record.take(end(quiet))
    for number in range(2, 3_000):
        begun = call(number, principal="loud")
        record.take(begun)
        record.take(end(begun))
    assert any(each.started.principal == "quiet" for each in record.ended)
    assert len(record.ended) <= event_record.MOST_ENDED_CALLS


def test_a_call_keeps_its_first_steps_and_its_last_one() -> None:
    record = EventRecord(Clock())
    record.take(call(1))
    for number in range(500):
        record.take(events.CallStep(call=1, step="progress", text=str(number)))
    seen = record.calls[1]
    assert len(seen.steps) == event_record.MOST_STEPS
    assert (seen.steps[0][2], seen.steps[-1][2]) == ("0", "499")
    assert seen.dropped == 500 - event_record.MOST_STEPS


def test_crashes_are_grouped_by_kind_and_reason_without_what_varies() -> None:
    clock = Clock()
    record = EventRecord(clock)
    for number in range(9):
        record.take(crash(f"KeyError: 'order {number}' at 0x7f{number:010x}"))
        clock.now += 1
    record.take(crash("ValueError: no", "Clerk"))
    groups = [event_views.crash_group(each, clock.now) for each in record.crashes.values()]
    assert [(each.kind, each.count) for each in groups] == [("Worker", 9), ("Clerk", 1)]
    assert sum(groups[0].per_minute) == 9
    assert len(record.crashes[next(iter(record.crashes))].latest) == event_record.MOST_CRASHES
    assert record.totals["crashes"] == 10


def size_of(value: Any, seen: set[int]) -> int:
    """The bytes of a value with all that it holds."""
    kind: Any = value.__class__
    if id(value) in seen or issubclass(kind, type) or callable(value):
        return 0
    seen.add(id(value))
    size = sys.getsizeof(value)
    if issubclass(kind, dict):
        return size + sum(size_of(key, seen) + size_of(each, seen) for key, each in value.items())
    if issubclass(kind, list | tuple | set | frozenset) or kind.__name__ in ("deque", "OrderedDict"):
        return size + sum(size_of(each, seen) for each in value)
    names = [
        *getattr(kind, "__slots__", ()),
        *getattr(value, "__dict__", {}),
        *getattr(value, "__struct_fields__", ()),
    ]
    return size + sum(size_of(getattr(value, name, None), seen) for name in names)


def storm(record: EventRecord, count: int) -> None:
    """Events of each kind, with names and texts that a hostile peer chooses, of which nothing ends in order."""
    for number in range(1, count + 1):
        text = f"{number}{HOSTILE}"
        kinds: list[events.Event] = [
            call(number, text, principal=text[:50], trace={"traceparent": text, "baggage": text}),
            end(call(number, text), "error", message=text, detail=text),
            call(-number, text),
            events.CallStep(call=-number, step="log", text=text),
            events.RequestRefused(program="shop", kind=text, method=text),
            events.SessionOpened(side="client", program="shop", session=text[:40], revision=text, peer=text),
            events.StreamOpened(program="shop", stream=number, kind="listen", session=text),
            events.QuestionAsked(side="server", program="shop", question=number, method=text),
            events.TaskCreated(program="shop", task=text[:40], method=text, name=text),
            events.TaskEnded(program="shop", task=text, method=text, name=text, status=text, seconds=1.0)
            if number % 50 == 0
            else events.BreakerChanged(program="shop", upstream=text[:40], state="open", reason=text),
            events.UpstreamChanged(program="shop", upstream=text[:40], before=text, state=text, reason=text),
            events.PoolWorkerEnded(program=text[:40], pool="1", process=1, signal="SIGSEGV", is_failure=True),
            crash(text, text, state=text, stack=text, last_message=text, ancestors=(text,) * 100),
            events.LoopBlocked(node="node", label=text, kind=text, pid="<node.1>", seconds=1.0, stack=text),
        ]
        for each in kinds:
            record.take(each)


def test_a_storm_of_hostile_events_is_bounded_in_number_and_bytes() -> None:
    record = EventRecord(Clock())
    storm(record, 2_100)
    first = size_of(record, set())
    storm(record, 700)
    assert size_of(record, set()) < min(first * 1.1, 45_000_000)
    assert len(record.crashes) <= event_record.MOST_GROUPS
    assert len(record.notices) <= event_record.MOST_NOTICES
    assert len(record.names) <= event_record.MOST_NAMES + 2
    assert len(record.sessions.entries) <= event_record.MOST_OPEN


def test_a_long_text_of_an_event_is_cut_and_a_short_event_is_left_as_it_is() -> None:
    plain = call(1)
    assert bounded(plain) is plain
    long = bounded(crash(HOSTILE, stack=HOSTILE + "end", ancestors=(HOSTILE,)))
    assert max(len(long.reason), len(long.ancestors[0])) <= 512
    assert long.stack.endswith("end")
    traced = bounded(call(1, trace={"traceparent": "00-1", "baggage": HOSTILE}))
    assert traced.trace == {"traceparent": "00-1"}


@pytest.mark.parametrize("kind", events.EVENT_TYPES, ids=lambda kind: kind.__name__)
def test_each_event_is_a_line_in_words(kind: type[events.Event]) -> None:
    values: dict[Any, Any] = {float: 1.0, int: 1, bool: True, bytes: b"{}", str: HOSTILE}
    fields: dict[str, Any] = {}
    for each in msgspec.structs.fields(kind):
        if each.required:
            choices = getattr(each.type, "__args__", None)
            fields[each.name] = values.get(each.type) if each.type in values else choices[0] if choices else ""
    line = event_views.notice(1, 2.0, kind(**fields), with_data=True)
    assert line.kind == kind.__name__
    assert line.text != kind.__name__ or kind is events.FramePassed
    assert len(line.text) < 1_000
    assert "\x1b" not in line.text
    assert line.data is not None
    assert "body" not in line.data


def test_what_began_before_a_pause_is_forgotten_and_what_happened_stays() -> None:
    record = EventRecord(lambda: 1_000.0)
    call: dict[str, Any] = {"side": "server", "program": "p", "way": "session", "method": "ping"}
    for number in (1, 2):
        record.take(events.CallStarted(call=number, **call))
    record.take(events.CallEnded(call=1, **call, outcome="result", seconds=1.0))
    record.take(events.StreamOpened(program="p", stream=3, kind="call"))
    record.forget_open()
    record.take(events.CallEnded(call=2, **call, outcome="result", seconds=1.0))
    side = record.sides["server"]
    assert (side.in_flight, side.calls, len(record.calls), len(record.streams), len(record.ended)) == (0, 2, 0, 0, 1)


def test_calls_in_flight_are_counted_under_the_names_of_those_that_ended() -> None:
    record = EventRecord(lambda: 1_000.0)
    read: dict[str, Any] = {"side": "server", "program": "p", "way": "session", "method": "resources/read"}
    for number in (1, 2):
        record.take(events.CallStarted(call=number, name=f"note://{number}", **read))
    record.take(events.CallEnded(call=1, name="note://1", outcome="result", seconds=1.0, **read))
    assert {name: record.names[name].calls for name in program_views.calls_in_flight(record)} == {
        ("server", "p", "resources/read", "note:…", ""): 1
    }
