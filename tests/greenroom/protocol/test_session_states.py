"""The table of session states: it is total, and has the properties that sessions rely on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.errors import ErrorCode, PeerError
from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcRequest, JsonRpcResponse
from greenroom.protocol.methods import (
    TABLE,
    UNGATED,
    SessionAction,
    SessionEvent,
    SessionState,
    next_transition,
    session_event,
)

BOTH = (TABLE, UNGATED)


def test_the_table_has_a_transition_for_every_state_and_event() -> None:
    for table in BOTH:
        assert set(table) == set(itertools.product(SessionState, SessionEvent))


def test_a_refused_message_keeps_the_state_and_has_an_error_text() -> None:
    for table in BOTH:
        for (state, event), rule in table.items():
            if rule.action is not SessionAction.TAKE:
                assert rule.state is state
            assert bool(rule.error_message) == (rule.action is SessionAction.REFUSE)
            if rule.action is SessionAction.REFUSE:
                assert event in {
                    SessionEvent.INITIALIZE,
                    SessionEvent.PING,
                    SessionEvent.REQUEST,
                }  # only requests can be answered
                assert rule.error().code == ErrorCode.INVALID_REQUEST
                assert rule.error().message == rule.error_message


def test_a_closed_session_stays_closed_and_says_so() -> None:
    for table in BOTH:
        assert {table[SessionState.CLOSED, event].action for event in SessionEvent} == {
            SessionAction.IGNORE,
            SessionAction.REFUSE,
        }
        assert all(table[state, SessionEvent.END].state is SessionState.CLOSED for state in SessionState)


@pytest.mark.row("WC-24")
def test_a_session_accepts_only_ping_before_it_is_ready() -> None:
    for state in (SessionState.NEW, SessionState.INITIALIZING):
        assert next_transition(state, JsonRpcRequest(1, "ping")).is_accepted
        for method in ("tools/list", "logging/setLevel", "tasks/get", "no/such"):
            rule = next_transition(state, JsonRpcRequest(1, method))
            assert rule.action is SessionAction.REFUSE
            assert rule.error_message.startswith("Server not initialized")
    assert next_transition(SessionState.READY, JsonRpcRequest(1, "tools/list")).is_accepted


@pytest.mark.row("WC-24")
def test_an_ungated_session_accepts_requests_in_every_open_state() -> None:
    for state in (SessionState.NEW, SessionState.INITIALIZING, SessionState.READY):
        assert next_transition(state, JsonRpcRequest(1, "tools/list"), gate=False).is_accepted
    assert not next_transition(SessionState.CLOSED, JsonRpcRequest(1, "tools/list"), gate=False).is_accepted


@pytest.mark.row("WC-22")
@pytest.mark.parametrize("word", ["notifications/initialized", "initialized"])
def test_the_handshake(word: str) -> None:
    state = SessionState.NEW
    for message, expected in (
        (JsonRpcNotification(word), SessionState.NEW),
        (JsonRpcRequest(1, "initialize"), SessionState.INITIALIZING),
        (SessionEvent.REJECTED, SessionState.NEW),
        (JsonRpcRequest(1, "initialize"), SessionState.INITIALIZING),
        (JsonRpcRequest(1, "ping"), SessionState.INITIALIZING),
        (JsonRpcNotification(word), SessionState.READY),
        (JsonRpcNotification(word), SessionState.READY),
        (JsonRpcRequest(1, "tools/call"), SessionState.READY),
        (JsonRpcResponse(1, {}), SessionState.READY),
        (JsonRpcRequest(1, "initialize"), SessionState.INITIALIZING),
        (JsonRpcNotification(word), SessionState.READY),
        (SessionEvent.END, SessionState.CLOSED),
        (JsonRpcRequest(1, "initialize"), SessionState.CLOSED),
    ):
        state = next_transition(state, message).state
        assert state is expected


def test_every_message_is_an_event() -> None:
    assert session_event(JsonRpcRequest(1, "initialize")) is SessionEvent.INITIALIZE
    assert session_event(JsonRpcRequest(1, "initialized")) is SessionEvent.REQUEST
    assert session_event(JsonRpcRequest(1, "ping")) is SessionEvent.PING
    assert session_event(JsonRpcRequest(1, "notifications/initialized")) is SessionEvent.REQUEST
    assert session_event(JsonRpcNotification("ping")) is SessionEvent.NOTIFICATION
    assert session_event(JsonRpcNotification("initialize")) is SessionEvent.NOTIFICATION
    assert session_event(JsonRpcNotification("initialized")) is SessionEvent.INITIALIZED
    assert (
        session_event(JsonRpcResponse(1, {}))
        is session_event(JsonRpcError(None, PeerError(1, "")))
        is SessionEvent.ANSWER
    )


@given(st.lists(st.sampled_from(SessionEvent)), st.booleans())
def test_a_session_is_ready_only_after_its_handshake(events: list[SessionEvent], gate: bool) -> None:  # noqa: FBT001
    state = SessionState.NEW
    begun = False
    for event in events:
        rule = next_transition(state, event, gate=gate)
        begun = (begun or (event is SessionEvent.INITIALIZE and rule.is_accepted)) and not (
            event is SessionEvent.REJECTED and rule.is_accepted
        )
        if rule.state is SessionState.READY:
            assert begun
        state = rule.state
