"""Questions as values: what they send, how their answers are read when the handler runs again, and what a handler may return instead of data."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.server_questions import (
    Accepted,
    Answers,
    ClientRequester,
    Declined,
    Dismissed,
    Elicited,
    Question,
    Root,
    Sampled,
    returns_question,
)
from greenroom.protocol.content import ToolResult
from greenroom.protocol.errors import ErrorCode, LocalProtocolError, McpError
from greenroom.protocol.function_parameters import BadHint
from greenroom.protocol.handler_results import WithMeta, prompt_result, resource_contents, return_schema_of, tool_result
from greenroom.protocol.input_required import (
    MOST_RECORDED,
    InputRequired,
    RecordedAnswers,
    RequestState,
    question_digest,
)
from greenroom.protocol.sealing import KeyRing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


@dataclass
class Name:
    """A form with one field."""

    name: str


NAME = Question.elicit("What is your name?", Name)
AGREE = Question.elicit("Do you agree?")
ROOTS = Question.roots()
GREETING = Question.sample("Write a greeting", max_tokens=50)

ADA = {"action": "accept", "content": {"name": "Ada"}}
HELLO = {"role": "assistant", "content": {"type": "text", "text": "Hello"}, "model": "m"}
FOLDERS = {"roots": [{"uri": "file:///work", "name": "work"}]}

RING = KeyRing([b"k" * 32])
CALL: dict[str, Any] = {"name": "greet", "arguments": {}}


class Recorder(ClientRequester):
    """Answers each question of the awaited form with a given result, and notes it."""

    def __init__(self, result: dict[str, Any]) -> None:
        self.result = result
        self.sent: list[tuple[str, Mapping[str, Any] | None]] = []

    @returns_question
    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        key: str | None = None,
    ) -> dict[str, Any]:
        self.sent.append((method, params))
        return self.result


@pytest.mark.row("26-R3")
async def test_both_forms_of_a_question_send_the_same_and_read_the_same() -> None:
    tools = [{"name": "a", "inputSchema": {"type": "object"}}]
    cases: list[tuple[Question[Any], dict[str, Any], Callable[[Recorder], Awaitable[Any]]]] = [
        (NAME, ADA, lambda ctx: ctx.elicit("What is your name?", Name)),
        (NAME, {"action": "decline"}, lambda ctx: ctx.elicit("What is your name?", Name)),
        (AGREE, {"action": "accept"}, lambda ctx: ctx.elicit("Do you agree?")),
        (AGREE, {"action": "cancel"}, lambda ctx: ctx.elicit("Do you agree?")),
        (ROOTS, FOLDERS, lambda ctx: ctx.roots()),
        (GREETING, HELLO, lambda ctx: ctx.sample("Write a greeting", max_tokens=50)),
        (
            Question.elicit_url("Sign in", "https://a.example/{elicitation_id}", "7"),
            {"action": "accept"},
            lambda ctx: ctx.elicit_url("Sign in", "https://a.example/{elicitation_id}", "7"),
        ),
        (
            Question.sample(
                ["a"],
                system_prompt="s",
                temperature=0.5,
                stop=["."],
                model_preferences={"costPriority": 1},
                include_context="none",
                tools=tools,
                tool_choice="auto",
                metadata={"m": 1},
            ),
            HELLO,
            lambda ctx: ctx.sample(
                ["a"],
                system_prompt="s",
                temperature=0.5,
                stop=["."],
                model_preferences={"costPriority": 1},
                include_context="none",
                tools=tools,
                tool_choice="auto",
                metadata={"m": 1},
            ),
        ),
    ]
    for question, result, ask in cases:
        ctx = Recorder(result)
        awaited = await ask(ctx)

        assert ctx.sent == [(question.method, question.params)]
        assert question.answer_of(result) == awaited


def test_the_values_of_answers_are_those_of_the_awaited_form() -> None:
    assert NAME.answer_of(ADA) == Accepted(Name("Ada"))
    assert NAME.answer_of({"action": "decline"}) == Declined()
    assert NAME.answer_of({"action": "cancel"}) == Dismissed()
    assert AGREE.answer_of({"action": "accept"}) == Accepted(None)
    assert ROOTS.answer_of(FOLDERS) == [Root("file:///work", "work")]
    assert GREETING.answer_of(HELLO).text == "Hello"


@pytest.mark.row("26-R11")
@pytest.mark.parametrize(
    ("question", "response", "says"),
    [
        (NAME, {"action": "accept", "content": {}}, "does not fit the form"),
        (NAME, {"action": "accept"}, "the answer must be an object"),
        (NAME, {"action": "accept", "content": {"name": 7}}, "does not fit the form"),
        (NAME, {"action": "perhaps"}, '"action" must be'),
        (NAME, FOLDERS, '"action" is missing'),
        (GREETING, ADA, '"role" is missing'),
        (GREETING, {"role": "assistant", "content": 7, "model": "m"}, '"content" must be'),
        (ROOTS, {"roots": "all"}, '"roots" must be a list'),
    ],
)
def test_an_answer_that_does_not_fit_is_the_clients_error(
    question: Question[Any], response: dict[str, Any], says: str
) -> None:
    with pytest.raises(McpError) as caught:
        Answers({question.key: response}).get(question)

    assert caught.value.code == ErrorCode.INVALID_PARAMS
    assert says in caught.value.message
    assert caught.value.data == {"key": question.key, "reason": "bad_response"}


# --- questions


@pytest.mark.row("26-R4")
def test_equal_questions_have_one_key_and_others_another() -> None:
    again = Question.elicit("What is your name?", Name)

    assert again is not NAME
    assert (again.key, again.digest) == (NAME.key, NAME.digest)
    others = [
        Question.elicit("What is your name?"),
        Question.elicit("What is your Name?", Name),
        AGREE,
        ROOTS,
        GREETING,
        Question.sample("Write a greeting", max_tokens=51),
    ]
    assert len({each.key for each in [NAME, *others]}) == 7
    assert NAME.key == f"elicitation-{question_digest(NAME.method, NAME.wire_params).hex()[:12]}"


def test_a_question_may_be_given_a_key() -> None:
    named = Question.elicit("What is your name?", Name, key="user_name")

    assert named.key == "user_name"
    assert named.digest == NAME.digest
    assert [Question.roots(key="a").key, Question.sample("a", key="b").key] == ["a", "b"]
    assert Question.elicit_url("a", "https://a.example", "1", key="c").key == "c"


@pytest.mark.row("26-F8")
def test_a_page_is_asked_for_without_its_id_and_answered_with_it() -> None:
    page = Question.elicit_url("Sign in", "https://a.example/{elicitation_id}", "id-7")

    assert page.wire_params == {"mode": "url", "message": "Sign in", "url": "https://a.example/id-7"}
    assert page.answer_of({"action": "accept"}) == Accepted("id-7")
    assert page.answer_of({"action": "decline"}) == Declined()
    assert page.key != Question.elicit_url("Sign in", "https://a.example/{elicitation_id}", "id-8").key


def test_a_question_that_no_client_would_accept_is_refused_where_it_is_asked() -> None:
    with pytest.raises(BadHint):
        Question.elicit("?", dict)
    with pytest.raises(LocalProtocolError, match="tells the user why"):
        InputRequired(Question.elicit("", Name))
    with pytest.raises(LocalProtocolError, match="tells the user why"):
        InputRequired(Question.elicit("", Name, key="a"))
    with pytest.raises(LocalProtocolError):
        InputRequired(Question.sample([ToolResult("1", [])], key="a"))


def test_a_question_shows_its_method_and_no_text() -> None:
    assert repr(NAME) == "<Question elicitation/create>"
    assert repr(Question.roots(key="where")) == "<Question where>"


# --- the reply


@pytest.mark.row("26-R1", "26-R3", "26-R4")
def test_a_handler_ends_with_its_questions_and_a_sealed_state() -> None:
    required = InputRequired(NAME, Question.roots(key="where"), state={"step": 1})

    wire = required.to_wire(RING, "principal ada", "tools/call", CALL, expires=10.0, round_number=3)

    state = wire.pop("requestState")
    assert wire == {
        "resultType": "input_required",
        "inputRequests": {
            NAME.key: {
                "method": "elicitation/create",
                "params": {
                    "message": "What is your name?",
                    "requestedSchema": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}},
                        "required": ["name"],
                    },
                },
            },
            "where": {"method": "roots/list", "params": {}},
        },
    }
    opened = RequestState.open(RING, state, "principal ada", "tools/call", CALL, 9.0)
    assert (opened.value, opened.round, opened.exchange, opened.expires) == ({"step": 1}, 3, "", 10.0)
    assert required.asked == [("elicitation/create", NAME.wire_params), ("roots/list", {})]


def test_a_state_alone_is_a_reply() -> None:
    wire = InputRequired(state="later").to_wire(RING, "", "tools/call", CALL, expires=10.0)

    assert "inputRequests" not in wire
    assert RequestState.open(RING, wire["requestState"], "", "tools/call", CALL, 9.0).value == "later"


@pytest.mark.row("26-R4")
def test_two_questions_with_one_key_are_refused() -> None:
    with pytest.raises(
        LocalProtocolError, match=r"two questions have the key 'a': give one of them another, with key="
    ):
        InputRequired(NAME, Question.roots(key="a"), Question.sample("x", key="a"))
    with pytest.raises(LocalProtocolError, match="two questions have the key"):
        InputRequired(NAME, Question.elicit("What is your name?", Name))
    with pytest.raises(LocalProtocolError, match="the key of a question"):
        InputRequired(Question.roots(key="x" * 200))


def test_a_state_is_a_json_value() -> None:
    assert InputRequired(state=Name("Ada")).state == {"name": "Ada"}
    with pytest.raises(LocalProtocolError, match="the state of an InputRequired must be a JSON value"):
        InputRequired(state=object())


def test_a_reply_that_requires_input_crosses_processes() -> None:
    required = InputRequired(NAME, Question.roots(key="where"), state={"step": 1})

    copy = pickle.loads(pickle.dumps(required))

    assert isinstance(copy, InputRequired)
    assert [each.key for each in copy.questions] == [NAME.key, "where"]
    assert copy.asked == required.asked
    assert copy.state == {"step": 1}
    assert str(copy) == str(required) == f"the client has to answer first: {NAME.key}, where"


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_handler_may_return_what_it_may_raise(wrapped: bool) -> None:  # noqa: FBT001
    required = InputRequired(NAME)
    value: Any = WithMeta(required, {}) if wrapped else required
    readers: list[Callable[[Any], Any]] = [tool_result, partial(resource_contents, uri="a:b"), prompt_result]
    for read in readers:
        with pytest.raises(InputRequired) as caught:
            read(value)
        assert caught.value is required


def test_the_hint_of_a_return_value_leaves_out_the_questions() -> None:
    def greet() -> Name | InputRequired:
        raise NotImplementedError

    def plain() -> Name:
        raise NotImplementedError

    def never() -> InputRequired:
        raise NotImplementedError

    schemas = [return_schema_of(each) for each in (greet, plain, never)]
    assert schemas[0] is not None
    assert schemas[1] is not None
    assert schemas[0].schema == schemas[1].schema
    assert schemas[2] is None


# --- the answers


def greet(answers: Answers) -> str:
    """A handler in the stateless form: two rounds, each with another question."""
    match answers.require(NAME):
        case Accepted(who):
            return f"{answers.require(GREETING).text}, {who.name}!"
        case _:
            return "Hello, stranger!"


def next_round(
    required: InputRequired, answers: RecordedAnswers, responses: dict[str, Any], ring: KeyRing = RING
) -> tuple[Answers, RecordedAnswers]:
    """What a server does between two rounds: seal the answers so far, and open them with the retry."""
    wire = required.to_wire(ring, "", "tools/call", CALL, expires=10.0, answers=answers)
    state = RequestState.open(ring, wire["requestState"], "", "tools/call", CALL, 9.0)
    recorded = RecordedAnswers(state.answers)
    return Answers(responses, recorded), recorded


@pytest.mark.row("26-R12")
def test_a_handler_runs_again_with_the_answers_of_all_rounds() -> None:
    recorded = RecordedAnswers()
    answers = Answers(None, recorded)
    with pytest.raises(InputRequired) as first:
        greet(answers)
    assert [each.key for each in first.value.questions] == [NAME.key]

    answers, recorded = next_round(first.value, recorded, {NAME.key: ADA})
    with pytest.raises(InputRequired) as second:
        greet(answers)
    assert [each.key for each in second.value.questions] == [GREETING.key]

    answers, recorded = next_round(second.value, recorded, {GREETING.key: HELLO})
    assert greet(answers) == "Hello, Ada!"


@pytest.mark.row("26-R11")
def test_a_missing_answer_is_asked_for_again_and_unknown_keys_are_ignored() -> None:
    answers = Answers({"wrong_key": ADA, "another": {"a": 1}})

    assert NAME not in answers
    assert answers.get(NAME) is None
    with pytest.raises(InputRequired) as caught:
        answers.require(NAME, ROOTS, GREETING)
    assert [each.key for each in caught.value.questions] == [NAME.key, ROOTS.key, GREETING.key]


@pytest.mark.row("26-R11")
def test_only_what_is_missing_is_asked_for_again() -> None:
    recorded = RecordedAnswers()
    with pytest.raises(InputRequired) as caught:
        Answers({ROOTS.key: FOLDERS}, recorded).require(NAME, ROOTS, GREETING, state="kept")
    assert [each.key for each in caught.value.questions] == [NAME.key, GREETING.key]
    assert caught.value.state == "kept"

    answers, _ = next_round(caught.value, recorded, {NAME.key: ADA, GREETING.key: HELLO})
    name, roots, greeting = answers.require(NAME, ROOTS, GREETING)
    assert (name, roots, greeting.text) == (Accepted(Name("Ada")), [Root("file:///work", "work")], "Hello")


def test_no_roots_at_all_are_an_answer() -> None:
    assert Answers({ROOTS.key: {"roots": []}}).require(ROOTS) == []


def test_one_required_answer_is_itself_and_two_are_a_pair() -> None:
    answers = Answers({NAME.key: ADA, AGREE.key: {"action": "accept"}})

    one: Elicited[Name] = answers.require(NAME)
    pair: tuple[Elicited[Name], Elicited[None]] = answers.require(NAME, AGREE)
    assert pair == (one, Accepted(None)) == (Accepted(Name("Ada")), Accepted(None))
    assert answers.require(NAME, AGREE, NAME, AGREE) == (*pair, *pair)


def test_an_answer_may_come_before_its_question() -> None:
    assert greet(Answers({NAME.key: ADA, GREETING.key: HELLO, "extra": {}})) == "Hello, Ada!"


def test_an_answer_that_is_given_again_replaces_the_first() -> None:
    bob = {"action": "accept", "content": {"name": "Bob"}}
    recorded = RecordedAnswers()
    Answers({NAME.key: ADA}, recorded).require(NAME)

    answers, recorded = next_round(InputRequired(NAME), recorded, {NAME.key: bob})
    assert answers.get(NAME) == Accepted(Name("Bob"))
    answers, recorded = next_round(InputRequired(ROOTS), recorded, {})
    assert answers.get(NAME) == Accepted(Name("Bob"))
    assert NAME in answers


def test_an_answer_is_not_taken_for_another_question_with_its_key() -> None:
    first = Question.elicit("Delete the draft?", key="confirm")
    recorded = RecordedAnswers()
    Answers({"confirm": {"action": "accept"}}, recorded).require(first)

    answers, _ = next_round(InputRequired(ROOTS), recorded, {})
    assert answers.get(first) == Accepted(None)
    assert answers.get(Question.elicit("Delete everything?", key="confirm")) is None


def test_answers_that_no_state_can_carry_end_the_call_and_are_not_asked_for_again() -> None:
    long = {**HELLO, "content": {"type": "text", "text": "x" * MOST_RECORDED}}
    recorded = RecordedAnswers()
    answers = Answers({GREETING.key: long}, recorded)
    answers.require(GREETING)

    with pytest.raises(LocalProtocolError, match="keep them elsewhere, and put their id in state="):
        InputRequired(NAME).to_wire(RING, "", "tools/call", CALL, expires=10.0, answers=recorded)


def test_answers_show_no_answer() -> None:
    answers = Answers({NAME.key: ADA})

    assert repr(answers) == "<Answers, 1 of this request>"


def test_sampled_text_of_an_earlier_round_is_the_same_value() -> None:
    recorded = RecordedAnswers()
    first: Sampled = Answers({GREETING.key: HELLO}, recorded).require(GREETING)

    answers, _ = next_round(InputRequired(ROOTS), recorded, {})
    assert answers.require(GREETING) == first
