"""Replies that ask for input: their shape, the checks of what a retry brings, and states that open for one principal, request and time alone."""

from __future__ import annotations

import base64
import json
import pickle
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from greenroom.protocol import methods
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError
from greenroom.protocol.input_required import (
    LONGEST_KEY,
    MAY_ASK,
    MOST_RECORDED,
    MOST_RESPONSES,
    QUESTION_METHODS,
    BadRequestState,
    RecordedAnswer,
    RecordedAnswers,
    RequestState,
    capability_object,
    check_response,
    default_key,
    input_required_result,
    missing_capability_error,
    question_digest,
    read_responses,
    request_digest,
    required_capabilities,
    stateless_params,
    undeclared,
)
from greenroom.protocol.sealing import LONGEST_SEAL, KeyRing
from greenroom.protocol.versions import STATELESS

RING = KeyRing([b"k" * 32])
CALL: dict[str, Any] = {"name": "book", "arguments": {"day": "monday", "seats": 2}}
ADA = "principal ada"
ACCEPT = {"action": "accept", "content": {"name": "Ada"}}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


# --- the reply


@pytest.mark.row("26-R1", "26-R3")
def test_a_reply_that_asks_has_its_questions_without_ids_and_its_state() -> None:
    questions: dict[str, tuple[str, dict[str, Any]]] = {
        "name": ("elicitation/create", {"message": "?"}),
        "where": ("roots/list", {}),
    }

    assert input_required_result(questions, "sealed") == {
        "resultType": "input_required",
        "inputRequests": {
            "name": {"method": "elicitation/create", "params": {"message": "?"}},
            "where": {"method": "roots/list", "params": {}},
        },
        "requestState": "sealed",
    }


@pytest.mark.row("26-R1")
def test_a_reply_that_asks_has_a_question_or_a_state() -> None:
    assert input_required_result({}, "sealed") == {"resultType": "input_required", "requestState": "sealed"}
    assert "requestState" not in input_required_result({"a": ("roots/list", {})})
    with pytest.raises(LocalProtocolError, match="a question or a state"):
        input_required_result({})


@pytest.mark.row("26-R3")
@pytest.mark.parametrize("method", ["ping", "tools/call", "tasks/get", "notifications/message", "server/discover", ""])
def test_only_questions_are_asked_in_a_reply(method: str) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be asked in a reply"):
        input_required_result({"a": (method, {})})


@pytest.mark.parametrize("key", ["", "x" * (LONGEST_KEY + 1), 7, None])
def test_a_key_is_a_text_of_some_length(key: Any) -> None:
    with pytest.raises(LocalProtocolError, match="the key of a question must be a text"):
        input_required_result({key: ("roots/list", {})})


def test_a_reply_asks_no_more_than_a_retry_may_answer() -> None:
    questions: dict[str, Any] = {str(n): ("roots/list", {}) for n in range(MOST_RESPONSES)}
    assert len(input_required_result(questions)["inputRequests"]) == MOST_RESPONSES
    read_responses({"inputResponses": dict.fromkeys(questions, ACCEPT)})
    with pytest.raises(LocalProtocolError, match="256 questions at once"):
        input_required_result({**questions, "more": ("roots/list", {})})


@pytest.mark.row("26-R2")
def test_only_three_methods_may_ask() -> None:
    assert {"tools/call", "prompts/get", "resources/read"} == MAY_ASK
    assert all(methods.METHODS[method].exists_in(STATELESS) for method in MAY_ASK)
    assert {"elicitation/create", "sampling/createMessage", "roots/list"} == QUESTION_METHODS


# --- the retry


@pytest.mark.row("26-R11")
def test_the_fields_of_a_retry_are_read() -> None:
    assert read_responses(CALL) == (None, None)
    assert read_responses({**CALL, "inputResponses": {}}) == ({}, None)
    assert read_responses({**CALL, "inputResponses": {"a": ACCEPT, "unknown": {}}, "requestState": ""}) == (
        {"a": ACCEPT, "unknown": {}},
        "",
    )


MALFORMED: list[tuple[dict[str, Any], str]] = [
    ({"inputResponses": None}, '"inputResponses" must be an object'),
    ({"inputResponses": [ACCEPT]}, '"inputResponses" must be an object'),
    ({"inputResponses": "x"}, '"inputResponses" must be an object'),
    ({"inputResponses": {"user_name": 12345}}, 'the input response "user_name" must be an object'),
    ({"inputResponses": {"a": None}}, 'the input response "a" must be an object'),
    ({"inputResponses": {"a": [ACCEPT]}}, 'the input response "a" must be an object'),
    ({"inputResponses": {str(n): {} for n in range(MOST_RESPONSES + 1)}}, "may have 256 members, and has 257"),
    ({"requestState": None}, '"requestState" must be a string'),
    ({"requestState": {"a": 1}}, '"requestState" must be a string'),
    ({"requestState": "x" * (LONGEST_SEAL + 1)}, '"requestState" may have 262144 characters, and has 262145'),
]


@pytest.mark.row("26-R11")
@pytest.mark.parametrize(("fields", "says"), MALFORMED)
def test_malformed_fields_of_a_retry_are_named(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(McpError) as caught:
        read_responses({**CALL, **fields})

    assert caught.value.code == ErrorCode.INVALID_PARAMS
    assert says in caught.value.message


@given(OBJECTS)
@example({"inputResponses": {"\ud800" * 500: 1}})
def test_any_params_are_read_or_refused_shortly(params: dict[str, Any]) -> None:
    try:
        responses, state = read_responses(params)
    except McpError as error:
        assert error.code == ErrorCode.INVALID_PARAMS
        assert len(error.message) < 1000
    else:
        assert responses is None or all(type(each) is dict for each in responses.values())
        assert state is None or type(state) is str


@pytest.mark.row("26-R11")
@pytest.mark.parametrize(
    ("method", "good", "bad"),
    [
        ("elicitation/create", ACCEPT, {"action": "maybe"}),
        ("elicitation/create", {"action": "decline"}, {"content": {}}),
        ("elicitation/create", {"action": "cancel", "extra": 1}, {"action": "accept", "content": {"a": {"nested": 1}}}),
        ("sampling/createMessage", {"role": "user", "content": {}, "model": "m"}, {"role": "user", "content": {}}),
        ("roots/list", {"roots": [{"uri": "file:///a"}]}, {"roots": {"uri": "file:///a"}}),
        ("roots/list", {"roots": []}, {}),
    ],
)
def test_a_response_is_checked_by_the_method_of_its_question(
    method: str, good: dict[str, Any], bad: dict[str, Any]
) -> None:
    assert check_response(method, good, "a") is good
    with pytest.raises(McpError) as caught:
        check_response(method, bad, "user_name")
    assert type(caught.value) is McpError
    assert caught.value.code == ErrorCode.INVALID_PARAMS
    assert caught.value.message.startswith('Invalid params: the input response "user_name": ')
    assert caught.value.data == {"key": "user_name", "reason": "bad_response"}


# --- capabilities

TOOLS: dict[str, Any] = {"messages": [], "maxTokens": 1, "tools": [{"name": "a", "inputSchema": {}}]}
CONTEXT: dict[str, Any] = {"messages": [], "maxTokens": 1, "includeContext": "thisServer"}


@pytest.mark.row("26-R5", "26-F9")
@pytest.mark.parametrize(
    ("method", "params", "declared", "needed"),
    [
        ("elicitation/create", {}, {"elicitation": {}}, None),
        ("elicitation/create", {"mode": "form"}, {"elicitation": {}}, None),
        ("elicitation/create", {}, {"elicitation": {"form": {}}}, None),
        ("elicitation/create", {}, {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ("elicitation/create", {}, {}, {"elicitation": {"form": {}}}),
        ("elicitation/create", {}, {"sampling": {}, "roots": {}}, {"elicitation": {"form": {}}}),
        ("elicitation/create", {"mode": "url"}, {"elicitation": {}}, {"elicitation": {"url": {}}}),
        ("elicitation/create", {"mode": "url"}, {"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}),
        ("elicitation/create", {"mode": "url"}, {"elicitation": {"url": {}}}, None),
        ("elicitation/create", {}, {"elicitation": None}, {"elicitation": {"form": {}}}),
        ("elicitation/create", {}, {"elicitation": False}, {"elicitation": {"form": {}}}),
        ("sampling/createMessage", {}, {"sampling": {}}, None),
        ("sampling/createMessage", {}, {"elicitation": {}}, {"sampling": {}}),
        ("sampling/createMessage", TOOLS, {"sampling": {}}, {"sampling": {"tools": {}}}),
        ("sampling/createMessage", TOOLS, {"sampling": {"context": {}}}, {"sampling": {"tools": {}}}),
        ("sampling/createMessage", TOOLS, {"sampling": {"tools": {}}}, None),
        ("sampling/createMessage", CONTEXT, {"sampling": {}}, {"sampling": {"context": {}}}),
        ("sampling/createMessage", CONTEXT, {"sampling": {"context": {}}}, None),
        ("sampling/createMessage", {"includeContext": "none"}, {"sampling": {}}, None),
        ("sampling/createMessage", {**TOOLS, **CONTEXT}, {"sampling": {}}, {"sampling": {"context": {}, "tools": {}}}),
        ("roots/list", {}, {"roots": {}}, None),
        ("roots/list", {}, {"roots": {"listChanged": True}}, None),
        ("roots/list", {}, {}, {"roots": {}}),
    ],
)
def test_a_question_needs_what_it_uses_mode_by_mode(
    method: str, params: dict[str, Any], declared: dict[str, Any], needed: dict[str, Any] | None
) -> None:
    assert required_capabilities(method, params, declared) == needed


@pytest.mark.row("26-R5")
def test_questions_that_are_asked_together_name_all_that_they_need() -> None:
    questions: list[tuple[str, dict[str, Any]]] = [
        ("elicitation/create", {"mode": "url"}),
        ("elicitation/create", {}),
        ("sampling/createMessage", TOOLS),
        ("roots/list", {}),
    ]
    everything: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {"tools": {}}, "roots": {}}

    assert undeclared(questions, {"roots": {}}) == everything
    assert undeclared(questions, everything) is None
    assert undeclared([], {}) is None


@pytest.mark.row("26-M9")
def test_the_error_of_a_missing_capability_has_it_as_an_object() -> None:
    error = missing_capability_error({"elicitation": {"url": {}}, "roots": {}}, "The tool 'book'")

    assert error.to_wire() == {
        "code": -32021,
        "message": "The tool 'book' needs the client capability elicitation.url and roots: declare it in the request's _meta",
        "data": {"requiredCapabilities": {"elicitation": {"url": {}}, "roots": {}}},
    }


def test_dotted_paths_become_one_object() -> None:
    assert capability_object(["a", "a.b", "a.c.d", "e"]) == {"a": {"b": {}, "c": {"d": {}}}, "e": {}}


@pytest.mark.row("26-F8")
def test_a_url_is_asked_for_without_an_id() -> None:
    asked = {"mode": "url", "message": "Sign in", "url": "https://a.example/?id=7", "elicitationId": "7"}

    wire = {"mode": "url", "message": "Sign in", "url": "https://a.example/?id=7"}
    assert stateless_params("elicitation/create", asked) == wire
    assert stateless_params("elicitation/create", wire) == wire
    with pytest.raises(LocalProtocolError, match="must be https"):
        stateless_params("elicitation/create", {**wire, "url": "http://a.example/"})
    with pytest.raises(LocalProtocolError, match="the id of an elicitation"):
        stateless_params("elicitation/create", {**asked, "elicitationId": ""})


@pytest.mark.row("26-F9")
def test_the_mode_of_a_form_stays_as_it_was_written() -> None:
    form: dict[str, Any] = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}

    assert stateless_params("elicitation/create", form) == form
    assert stateless_params("elicitation/create", {**form, "mode": "form", "task": {"ttl": 1}}) == {
        **form,
        "mode": "form",
    }


# --- digests


@pytest.mark.row("26-R10")
def test_a_request_stays_the_same_through_its_rounds() -> None:
    first = request_digest("tools/call", {**CALL, "_meta": {"progressToken": 1}})
    retry = {**CALL, "_meta": {"a": 2}, "inputResponses": {"a": ACCEPT}, "requestState": "x"}

    assert request_digest("tools/call", retry) == first == request_digest("tools/call", CALL)
    backwards = {"arguments": {"seats": 2, "day": "monday"}, "name": "book"}
    assert request_digest("tools/call", backwards) == first


@pytest.mark.row("26-R10")
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("prompts/get", CALL),
        ("tools/call", {**CALL, "name": "cancel"}),
        ("tools/call", {**CALL, "arguments": {"day": "monday", "seats": 3}}),
        ("tools/call", {**CALL, "arguments": {"day": "monday", "seats": "2"}}),
        ("tools/call", {**CALL, "arguments": {"day": "monday"}}),
        ("tools/call", {"name": "book"}),
        ("tools/call", {**CALL, "task": {}}),
    ],
)
def test_another_method_or_other_params_are_another_request(method: str, params: dict[str, Any]) -> None:
    assert request_digest(method, params) != request_digest("tools/call", CALL)


@given(OBJECTS, OBJECTS)
def test_digests_agree_exactly_for_equal_json(one: dict[str, Any], two: dict[str, Any]) -> None:
    salient = [{name: value for name, value in each.items() if name != "_meta"} for each in (one, two)]
    texts = [json.dumps(each, sort_keys=True) for each in salient]

    assert (question_digest("roots/list", one) == question_digest("roots/list", two)) == (texts[0] == texts[1])
    assert question_digest("roots/list", one) != request_digest("roots/list", one)


def test_a_question_that_is_not_json_is_refused_with_the_reason() -> None:
    with pytest.raises(LocalProtocolError, match="cannot be written as JSON"):
        question_digest("elicitation/create", {"message": object()})
    with pytest.raises(LocalProtocolError, match="lone surrogate"):
        question_digest("elicitation/create", {"message": "\ud800"})


def test_the_key_of_a_question_follows_from_its_digest() -> None:
    digest = question_digest("elicitation/create", {"message": "?"})

    assert default_key("elicitation/create", digest) == f"elicitation-{digest.hex()[:12]}"
    assert default_key("roots/list", digest).startswith("roots-")


# --- recorded answers

ONE, TWO = question_digest("roots/list", {}), question_digest("elicitation/create", {})


def test_equal_questions_get_their_answers_in_turn_and_each_answer_once() -> None:
    recorded = RecordedAnswers()
    for digest, answer in ((ONE, {"n": 1}), (TWO, {"n": 2}), (ONE, {"n": 3})):
        recorded.add(digest, answer)
    again = RecordedAnswers(recorded.recorded)

    assert [again.take(ONE), again.take(ONE), again.take(ONE)] == [{"n": 1}, {"n": 3}, None]
    assert [again.take(TWO), again.take(TWO)] == [{"n": 2}, None]
    assert again.recorded == recorded.recorded


def test_answers_of_this_run_are_not_taken_again_and_are_kept_for_the_next() -> None:
    recorded = RecordedAnswers([RecordedAnswer(ONE, {"n": 1})])
    recorded.add(TWO, {"n": 2})

    assert recorded.take(TWO) is None
    assert recorded.find(TWO) == {"n": 2}
    assert recorded.recorded == [RecordedAnswer(ONE, {"n": 1}), RecordedAnswer(TWO, {"n": 2})]


def test_a_new_answer_replaces_the_earlier_one() -> None:
    recorded = RecordedAnswers([RecordedAnswer(ONE, {"n": 1}), RecordedAnswer(TWO, {"n": 2})])
    recorded.put(ONE, {"n": 3})

    assert recorded.find(ONE) == {"n": 3}
    assert recorded.recorded == [RecordedAnswer(TWO, {"n": 2}), RecordedAnswer(ONE, {"n": 3})]


def test_beyond_the_limit_no_answer_is_kept_and_the_state_says_so() -> None:
    full = RecordedAnswers()
    empty = len(b'{"a":""}') + 16
    full.add(ONE, {"a": "x" * (MOST_RECORDED - empty)})
    assert full.recorded is not None

    recorded = RecordedAnswers(full.recorded)
    recorded.add(TWO, {})
    assert recorded.recorded is None
    recorded.add(ONE, {})
    recorded.put(ONE, {})
    assert recorded.recorded is None
    assert recorded.find(ONE) is None

    text = state(answers=recorded.recorded).seal(RING, ADA)
    opened = open_state(text)
    assert opened.answers is None
    assert RecordedAnswers(opened.answers).recorded is None


def test_replacing_an_answer_frees_its_room() -> None:
    recorded = RecordedAnswers()
    for _ in range(10):
        recorded.put(ONE, {"a": "x" * (MOST_RECORDED // 2)})

    assert recorded.recorded is not None
    again = RecordedAnswers(recorded.recorded)
    again.add(TWO, {"a": "x" * (MOST_RECORDED // 2)})
    assert again.recorded is None


# --- states


def state(**fields: Any) -> RequestState:
    given: dict[str, Any] = {"expires": 1000.0, "request": request_digest("tools/call", CALL), **fields}
    return RequestState(**given)


def open_state(
    text: str, owner: str = ADA, method: str = "tools/call", params: dict[str, Any] = CALL, now: float = 999.0
) -> RequestState:
    return RequestState.open(RING, text, owner, method, params, now)


@given(JSON, st.integers(1, 2**40), st.text(max_size=40), st.lists(st.builds(RecordedAnswer, st.binary(), OBJECTS)))
def test_a_state_opens_as_it_was_sealed(value: Any, number: int, name: str, answers: list[RecordedAnswer]) -> None:
    sealed = state(round=number, exchange=name, answers=answers, value=value)

    assert open_state(sealed.seal(RING, ADA)) == sealed


def test_the_largest_recorded_answers_fit_in_a_state() -> None:
    recorded = RecordedAnswers()
    for number in range(MOST_RECORDED // (16 + len(b"{}"))):
        recorded.add(number.to_bytes(16, "big"), {})
    assert recorded.recorded is not None

    assert open_state(state(answers=recorded.recorded).seal(RING, ADA)).answers == recorded.recorded


def refused(text: str, **arguments: Any) -> BadRequestState:
    with pytest.raises(BadRequestState) as caught:
        open_state(text, **arguments)
    assert caught.value.code == ErrorCode.INVALID_PARAMS
    assert caught.value.data == {"reason": caught.value.reason}
    assert '"requestState"' in caught.value.message
    return caught.value


@pytest.mark.row("26-R9")
@given(st.data())
def test_a_changed_state_is_refused(data: st.DataObject) -> None:
    text = state(value="x").seal(RING, ADA)
    place = data.draw(st.integers(0, len(text) - 1))
    letter = data.draw(st.sampled_from("AZaz09-_=. é"))
    changed = text[:place] + ("B" if letter == text[place] else letter) + text[place + 1 :]

    assert refused(changed).reason == "tampered"
    assert refused(text[:place]).reason == "tampered"


@pytest.mark.row("26-R9")
@given(st.text(max_size=200))
def test_a_state_that_was_never_sealed_is_refused(text: str) -> None:
    assert refused(text).reason == "tampered"


@pytest.mark.row("26-R9", "26-R10")
@pytest.mark.parametrize("owner", ["principal eve", "", "local", "session ", "principal ada ", "principal \ud800"])
def test_a_state_of_another_principal_looks_like_a_changed_one(owner: str) -> None:
    foreign, changed = refused(state().seal(RING, ADA), owner=owner), refused("x" * 100)

    assert foreign.to_wire() == changed.to_wire()
    assert str(foreign) == str(changed)


def test_a_foreign_state_is_not_told_to_be_expired_or_for_another_request() -> None:
    text = state(expires=1.0).seal(RING, ADA)

    assert refused(text, owner="principal eve", method="prompts/get").reason == "tampered"
    assert refused(text).reason == "expired"


@pytest.mark.row("26-R10")
@pytest.mark.parametrize(("now", "is_open"), [(0.0, True), (999.999, True), (1000.0, False), (1e12, False)])
def test_a_state_expires(now: float, is_open: bool) -> None:  # noqa: FBT001
    text = state().seal(RING, ADA)

    if is_open:
        assert open_state(text, now=now) == state()
    else:
        assert refused(text, now=now).reason == "expired"


@pytest.mark.row("26-R10")
def test_a_state_is_refused_on_another_request() -> None:
    text = state().seal(RING, ADA)

    assert open_state(text, params={**CALL, "inputResponses": {}, "requestState": text, "_meta": {}}) == state()
    assert refused(text, method="prompts/get").reason == "other_request"
    assert refused(text, params={**CALL, "name": "cancel"}).reason == "other_request"
    assert refused(text, params={**CALL, "arguments": {}}).reason == "other_request"


def test_a_state_sealed_for_another_purpose_or_with_another_key_is_refused() -> None:
    payload = b'[1000.0,"",1,"",[],null]'

    assert refused(RING.seal("login", payload, ADA.encode())).reason == "tampered"
    assert refused(state().seal(KeyRing.random(), ADA)).reason == "tampered"


def test_a_state_in_a_form_of_another_version_has_expired() -> None:
    for payload in (b"{}", b"[]", b"[1000.0]", b'["x","",1,"",[],null]', b"\xff"):
        error = refused(RING.seal("request state", payload, ADA.encode()))
        assert (error.reason, error.detail) == ("expired", "format")


def test_later_versions_may_add_to_a_state() -> None:
    known = b'[1000.0,"%s",2]' % _base64(request_digest("tools/call", CALL))
    assert open_state(RING.seal("request state", known, ADA.encode())) == state(round=2)

    longer = b'[1000.0,"%s",1,"",[],null,"new"]' % _base64(request_digest("tools/call", CALL))
    assert open_state(RING.seal("request state", longer, ADA.encode())) == state()


def _base64(raw: bytes) -> bytes:

    return base64.b64encode(raw)


def test_the_detail_for_the_log_is_not_on_the_wire() -> None:
    error = refused("x" * 100)

    assert error.detail == "version"
    assert "version" not in json.dumps(error.to_wire())
    assert pickle.loads(pickle.dumps(error)).detail == "version"


def test_a_state_that_is_too_long_is_not_sealed() -> None:
    with pytest.raises(LocalProtocolError, match="too long to be sealed"):
        state(value="x" * LONGEST_SEAL).seal(RING, ADA)
