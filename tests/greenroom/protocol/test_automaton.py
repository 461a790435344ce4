"""Which messages are legal when: the table is total, and has the properties that sessions rely on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.messages import Failure, Notification, Request, Response
from greenroom.protocol.methods import TABLE, UNGATED, Event, State, Verdict, event_of, judge

BOTH = (TABLE, UNGATED)


def test_there_is_a_rule_for_everything() -> None:
    for table in BOTH:
        assert set(table) == set(itertools.product(State, Event))


def test_a_refusal_changes_nothing_and_says_why() -> None:
    for table in BOTH:
        for (state, event), rule in table.items():
            if rule.verdict is not Verdict.TAKE:
                assert rule.state is state
            assert bool(rule.why) == (rule.verdict is Verdict.REFUSE)
            if rule.verdict is Verdict.REFUSE:
                assert event in {Event.INITIALIZE, Event.PING, Event.REQUEST}  # only those can be answered
                assert rule.error().code == ErrorCode.INVALID_REQUEST
                assert rule.error().message == rule.why


def test_a_closed_session_stays_closed_and_says_so() -> None:
    for table in BOTH:
        assert {table[State.CLOSED, event].verdict for event in Event} == {Verdict.IGNORE, Verdict.REFUSE}
        assert all(table[state, Event.END].state is State.CLOSED for state in State)


@pytest.mark.row("WC-24")
def test_before_it_is_ready_a_session_takes_nothing_but_ping() -> None:
    for state in (State.NEW, State.INITIALIZING):
        assert judge(state, Request(1, "ping")).taken
        for method in ("tools/list", "logging/setLevel", "tasks/get", "no/such"):
            rule = judge(state, Request(1, method))
            assert rule.verdict is Verdict.REFUSE
            assert rule.why.startswith("Server not initialized")
    assert judge(State.READY, Request(1, "tools/list")).taken


@pytest.mark.row("WC-24")
def test_without_the_gate_it_takes_requests_all_the_time() -> None:
    for state in (State.NEW, State.INITIALIZING, State.READY):
        assert judge(state, Request(1, "tools/list"), gate=False).taken
    assert not judge(State.CLOSED, Request(1, "tools/list"), gate=False).taken


@pytest.mark.row("WC-22")
@pytest.mark.parametrize("word", ["notifications/initialized", "initialized"])
def test_the_handshake(word: str) -> None:
    state = State.NEW
    for message, expected in (
        (Notification(word), State.NEW),
        (Request(1, "initialize"), State.INITIALIZING),
        (Event.REJECTED, State.NEW),
        (Request(1, "initialize"), State.INITIALIZING),
        (Request(1, "ping"), State.INITIALIZING),
        (Notification(word), State.READY),
        (Notification(word), State.READY),
        (Request(1, "tools/call"), State.READY),
        (Response(1, {}), State.READY),
        (Request(1, "initialize"), State.INITIALIZING),
        (Notification(word), State.READY),
        (Event.END, State.CLOSED),
        (Request(1, "initialize"), State.CLOSED),
    ):
        state = judge(state, message).state
        assert state is expected


def test_every_message_is_an_event() -> None:
    assert event_of(Request(1, "initialize")) is Event.INITIALIZE
    assert event_of(Request(1, "initialized")) is Event.REQUEST
    assert event_of(Request(1, "ping")) is Event.PING
    assert event_of(Request(1, "notifications/initialized")) is Event.REQUEST
    assert event_of(Notification("ping")) is Event.NOTIFICATION
    assert event_of(Notification("initialize")) is Event.NOTIFICATION
    assert event_of(Notification("initialized")) is Event.INITIALIZED
    assert event_of(Response(1, {})) is event_of(Failure(None, PeerError(1, ""))) is Event.ANSWER


@given(st.lists(st.sampled_from(Event)), st.booleans())
def test_a_session_is_ready_only_after_its_handshake(events: list[Event], gate: bool) -> None:  # noqa: FBT001
    state = State.NEW
    begun = False
    for event in events:
        rule = judge(state, event, gate=gate)
        begun = (begun or (event is Event.INITIALIZE and rule.taken)) and not (event is Event.REJECTED and rule.taken)
        if rule.state is State.READY:
            assert begun
        state = rule.state
