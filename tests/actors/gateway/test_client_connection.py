"""Which client an upstream's question is forwarded to, or none."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.context import CallIsOver
from greenroom.actors.gateway.client_connections import ClientConnection
from greenroom.actors.gateway.forwarding_handler import ForwardingHandler, forwardable_capabilities
from greenroom.actors.peer_channels import NoStream
from greenroom.protocol.dialect import LATEST_DIALECT
from greenroom.protocol.errors import McpError


class Caller:
    """A minimal context."""

    protocol_version = LATEST_DIALECT.version

    def __init__(self, session_id: str, *, in_call: bool = True) -> None:
        self.session_id = session_id
        self.in_call = in_call
        self.asked: list[tuple[str, Any]] = []
        self.logged: list[tuple[Any, ...]] = []

    async def request(self, method: str, params: Any) -> dict[str, Any]:
        self.asked.append((method, params))
        return {"by": self.session_id}

    def log(self, *said: Any) -> None:
        self.logged.append(said)


def outside(session: str) -> Any:
    return Caller(session, in_call=False)


def desk() -> ClientConnection:
    return ClientConnection("git", outside)


def caller(session: str) -> Any:
    return Caller(session)


def test_the_calling_session_is_asked_on_its_calls_stream() -> None:
    one = desk()
    assert one.context_for_question() is None
    number = one.enter(caller("a"))
    found: Any = one.context_for_question()
    assert (found.session_id, found.in_call) == ("a", True)
    one.leave(number, answered=True)
    found = one.context_for_question()
    assert (found.session_id, found.in_call) == ("a", False)


def test_of_several_calls_of_one_client_none_is_the_way() -> None:
    one = desk()
    first = one.enter(caller("a"))
    one.enter(caller("a"))
    found: Any = one.context_for_question()
    assert (found.session_id, found.in_call) == ("a", False)  # the call whose stream it took might end first
    one.leave(first, answered=True)
    found = one.context_for_question()
    assert (found.session_id, found.in_call) == ("a", True)


@pytest.mark.parametrize("error", [CallIsOver("sample"), NoStream("sample")])
def test_a_client_that_is_gone_is_an_error_of_its_own(error: Exception) -> None:
    one = desk()
    who = caller("a")

    async def request(method: str, params: Any) -> dict[str, Any]:
        raise error

    who.request = request
    one.enter(who)
    with pytest.raises(McpError, match="is gone"):
        asyncio.run(ForwardingHandler(one, {}, print).handle_request("roots/list", {}))


def test_with_two_candidate_sessions_neither_is_asked() -> None:
    one = desk()
    first, second = one.enter(caller("a")), one.enter(caller("b"))
    assert one.context_for_question() is None
    one.leave(first, answered=True)
    found: Any = one.context_for_question()
    assert found.session_id == "b"
    one.leave(second, answered=True)
    assert one.context_for_question() is None  # both have used it, and neither has a call at work


def test_an_abandoned_call_still_counts_as_running() -> None:
    one = desk()
    one.leave(one.enter(caller("a")), answered=False)
    one.enter(caller("b"))
    assert one.context_for_question() is None
    one.on_new_session()
    found: Any = one.context_for_question()
    assert found.session_id == "b"


def test_a_call_without_a_session_is_asked_only_if_the_question_can_belong_to_no_other() -> None:
    one = desk()
    ada, eve = caller(""), caller("")
    first = one.enter(ada)
    assert one.context_for_question() is ada
    second = one.enter(eve)
    assert one.context_for_question() is None
    one.leave(first, answered=True)
    assert one.context_for_question() is eve
    one.leave(second, answered=False)
    assert one.context_for_question() is None, "there is no session to ask outside of a call"
    one.enter(caller(""))
    assert one.context_for_question() is None, "the call that was given up may ask"
    assert not one.is_free


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.booleans()), max_size=20))
def test_an_ambiguous_question_is_asked_of_no_session(steps: list[tuple[str, bool, bool]]) -> None:
    one = desk()
    under_way: dict[int, str] = {}
    given_up: set[str] = set()
    for session, leaves, answered in steps:
        if leaves and under_way:
            number, who = under_way.popitem()
            one.leave(number, answered=answered)
            given_up |= set() if answered else {who}
        else:
            under_way[one.enter(caller(session))] = session
        working = set(under_way.values()) | given_up
        found: Any = one.context_for_question()
        if working:
            assert (found is None) == (len(working) > 1)
            assert found is None or {found.session_id} == working


def test_which_requests_are_forwarded() -> None:
    one = desk()
    who = caller("a")
    one.enter(who)
    completed: list[str] = []
    handler = ForwardingHandler(one, {"sampling": {}}, completed.append)
    assert handler.capabilities() == {"sampling": {}}
    params: dict[str, Any] = {"messages": [], "_meta": {"progressToken": 1}, "task": {}}
    assert asyncio.run(handler.handle_request("sampling/createMessage", params)) == {"by": "a"}
    assert who.asked.pop() == ("sampling/createMessage", {"messages": []})
    with pytest.raises(McpError, match="Method not found"):
        asyncio.run(handler.handle_request("tasks/list", {}))
    handler.handle_notification("notifications/message", {"level": "info", "data": 1, "logger": "x"})
    handler.handle_notification("notifications/message", {"level": "shout", "data": 1})
    handler.handle_notification("notifications/elicitation/complete", {"elicitationId": "e1"})  # another upstream's
    asked = {"mode": "url", "elicitationId": "e1", "url": "https://example.org", "message": "Go"}
    asyncio.run(handler.handle_request("elicitation/create", asked))
    for said in ("e1", "e1", None, ["e1"]):
        handler.handle_notification("notifications/elicitation/complete", {"elicitationId": said})
    handler.handle_notification("notifications/unknown", {})
    assert who.logged == [("info", 1, "git.x")]
    assert completed == ["e1"]
    one.enter(caller("b"))
    with pytest.raises(McpError, match="not certain"):
        asyncio.run(handler.handle_request("roots/list", {}))
    handler.handle_notification("notifications/message", {"level": "info", "data": "a secret"})
    assert len(who.logged) == 1


@pytest.mark.parametrize(
    ("declared", "lent"),
    [
        ({}, {}),
        ({"sampling": {}, "experimental": {"x": {}}}, {"sampling": {}}),
        ({"sampling": {"tools": {}, "other": {}}}, {"sampling": {"tools": {}}}),
        ({"elicitation": {"url": {}, "form": {}}}, {"elicitation": {"form": {}, "url": {}}}),
        ({"roots": {"listChanged": True}}, {"roots": {"listChanged": True}}),
        ({"roots": {"listChanged": 3}, "sampling": None, "tasks": {}}, {"roots": {}}),
    ],
)
def test_an_upstream_is_told_what_the_client_can_do_and_no_more(declared: Any, lent: Any) -> None:
    assert forwardable_capabilities(declared) == lent
