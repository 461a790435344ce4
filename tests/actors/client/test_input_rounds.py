"""Rounds: a server of the stateless era ends a request with questions, and the client sends it again with the answers."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.connections import snapshot
from tests.example_counts import examples

from greenroom import Client, Mismatch
from greenroom.actors.client.client_handler import AskingCall, ClientHandler, asking_call
from greenroom.actors.client.errors import ClientClosed, InputRefused, RequestTimeout
from greenroom.actors.client.input_rounds import read_input_required
from greenroom.protocol.errors import BadAnswer, McpError, RequestCancelled
from greenroom.protocol.input_required import QUESTION_METHODS
from greenroom.transports.client.errors import ConnectionLost

from .client_helpers import playing
from .fake_server import After, Stage
from .stateless_stage import asking, in_turn, sent, stateless_stage

CALL: dict[str, Any] = {"name": "t", "arguments": {"a": 1}}
DONE: dict[str, Any] = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}
ANNE: dict[str, Any] = {"action": "accept", "content": {"name": "anne"}}
STATE = ' {"b":1 ,"a":"ü\\u2028\\ud83d\\ude00"}\n='
"""A state that no writer of JSON would give back as it is, were it read."""


class Answering(ClientHandler):
    """Answers every question in the way that the test says; by default with a name."""

    def __init__(self, answer: Any = ANNE) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.calls: list[AskingCall | None] = []

    def capabilities(self) -> dict[str, Any]:
        return {"elicitation": {}, "sampling": {"context": {}}, "roots": {"listChanged": True}}

    def handle_request(self, method: str, params: dict[str, Any]) -> Any:
        self.asked.append((method, params))
        self.calls.append(asking_call())
        answer = self.answer
        if isinstance(answer, Exception):
            raise answer
        return answer(method, params) if callable(answer) else answer


async def silent(_method: str, _params: dict[str, Any]) -> dict[str, Any]:
    """A user who never answers."""
    await asyncio.Event().wait()
    return ANNE


def script(*answers: Any, method: str = "tools/call") -> Stage:
    """A server that answers with each of these in turn."""
    return stateless_stage(answers={method: in_turn(*answers)})


# --- the retry


@pytest.mark.row("26-R6", "26-R8")
@pytest.mark.parametrize(
    ("method", "params"),
    [("tools/call", CALL), ("prompts/get", {"name": "p"}), ("resources/read", {"uri": "x:y"})],
)
async def test_the_retry_is_the_same_request_with_the_answers_and_the_state_as_it_came(
    method: str, params: dict[str, Any]
) -> None:
    handler = Answering()
    stage = script(asking("name", state=STATE), DONE, DONE, method=method)
    given_params = {**params, "_meta": {"traceparent": "00-1"}}
    async with playing(stage, handler=handler) as (line, _):
        assert await line.request(method, given_params) == DONE
        first, second = stage.asked(method)
        assert first.id != second.id
        assert first.params["_meta"] == second.params["_meta"]
        assert sent(stage, method) == [params, {**params, "inputResponses": {"name": ANNE}, "requestState": STATE}]
        assert handler.calls == [AskingCall(method, given_params, first.id)]
        await line.request(method, given_params)
        assert sent(stage, method)[-1] == params  # nothing is left of it for a later request
        assert given_params == {**params, "_meta": {"traceparent": "00-1"}}


@pytest.mark.row("26-R6")
async def test_without_a_state_the_retry_has_none() -> None:
    stage = script(asking("name", state="once"), asking("name"), DONE)
    async with playing(stage, handler=Answering()) as (line, _):
        await line.request("tools/call", CALL)
        assert [each.get("requestState", "none") for each in sent(stage, "tools/call")] == ["none", "once", "none"]


@pytest.mark.row("26-R6", "26-F11")
async def test_several_questions_are_handled_side_by_side_and_answered_together_under_their_keys() -> None:
    began: list[str] = []
    all_here = asyncio.Event()

    async def slow(method: str, _params: dict[str, Any]) -> dict[str, Any]:
        began.append(method)
        if len(began) == 3:
            all_here.set()
        await all_here.wait()
        return {"of": method}

    questions: dict[str, Any] = {
        "a": asking("x")["inputRequests"]["x"],
        "": {"method": "roots/list"},
        "c" * 50: {
            "method": "sampling/createMessage",
            "params": {"messages": [], "maxTokens": 5, "includeContext": "thisServer"},
        },
    }
    stage = script({"resultType": "input_required", "inputRequests": questions}, DONE)
    async with playing(stage, handler=Answering(slow)) as (line, _):
        await line.request("tools/call", CALL)
        answers = {key: {"of": question["method"]} for key, question in questions.items()}
        assert sent(stage, "tools/call")[1] == {**CALL, "inputResponses": answers}
        assert not any("resultType" in each for each in answers.values())


@pytest.mark.row("26-R8")
async def test_parallel_requests_keep_their_answers_and_states_apart() -> None:
    """While one waits for its user, others of the same name come and go."""
    release = asyncio.Event()

    async def later(_method: str, _params: dict[str, Any]) -> dict[str, Any]:
        await release.wait()
        return ANNE

    def answer(request: Any) -> Any:
        if "inputResponses" in request.params or request.params["name"] == "plain":
            return DONE
        return asking("name", state=f"of {request.params['arguments']['n']}")

    stage = stateless_stage(answers={"tools/call": answer})
    async with playing(stage, handler=Answering(later)) as (line, _):
        waiting = [
            asyncio.create_task(line.request("tools/call", {"name": "t", "arguments": {"n": n}})) for n in (1, 2)
        ]
        await stage.wire.hears("tools/call", 2)
        assert await line.request("tools/call", {"name": "plain"}) == DONE
        release.set()
        await asyncio.gather(*waiting)
        assert sent(stage, "tools/call")[2] == {"name": "plain"}
        retries = [each for each in sent(stage, "tools/call") if "inputResponses" in each]
        assert sorted((each["arguments"]["n"], each["requestState"]) for each in retries) == [(1, "of 1"), (2, "of 2")]


@pytest.mark.row("26-R7", "26-R12")
async def test_rounds_are_bounded() -> None:
    stage = stateless_stage(answers={"tools/call": asking("name", state="s")})
    async with playing(stage, handler=Answering(), max_rounds=3) as (line, _):
        with pytest.raises(BadAnswer, match="3 rounds"):
            await line.request("tools/call", CALL)
        assert len(stage.asked("tools/call")) == 4
        assert (await snapshot(line))["under_way"] == {}


@pytest.mark.row("26-R7")
async def test_a_state_alone_is_sent_back_at_once_and_then_ever_more_slowly() -> None:
    times: list[float] = []

    def answer(_request: Any) -> Any:
        times.append(asyncio.get_running_loop().time())
        return asking(state=str(len(times)))

    stage = stateless_stage(answers={"tools/call": answer})
    async with playing(stage, max_rounds=8, request_timeout=None) as (line, _):
        with pytest.raises(BadAnswer, match="8 rounds"):
            await line.request("tools/call", CALL)
    assert [each.get("requestState") for each in sent(stage, "tools/call")] == [None, *map(str, range(1, 9))]
    assert not any("inputResponses" in each for each in sent(stage, "tools/call"))
    pauses = [later - sooner for sooner, later in pairwise(times)]
    assert pauses[0] == 0
    assert all(pause > 0.05 for pause in pauses[1:])
    assert 1.0 < sum(pauses) < 40.0


# --- ends


async def test_one_deadline_holds_for_all_rounds_and_the_user() -> None:
    handler = Answering(silent)
    stage = script(After(1.0, asking("name", state="s")))
    async with playing(stage, handler=handler) as (line, _):
        began = asyncio.get_running_loop().time()
        with pytest.raises(RequestTimeout):
            await line.request("tools/call", CALL, timeout=4.0)
        assert asyncio.get_running_loop().time() - began == pytest.approx(4.0)
        assert len(handler.asked) == 1
        assert (await snapshot(line))["server_requests"] == []
        assert len(stage.asked("tools/call")) == 1
        assert (
            stage.notes("notifications/cancelled") == []
        )  # the server has answered, and does nothing that could be cancelled


async def test_a_caller_that_gives_up_ends_the_question_to_its_user() -> None:
    ended = asyncio.Event()

    async def forever(_method: str, _params: dict[str, Any]) -> dict[str, Any]:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ANNE

    stage = script(asking("one", "two"))
    async with playing(stage, handler=Answering(forever)) as (line, _):
        pending = line.begin("tools/call", CALL)
        await stage.wire.hears("tools/call")
        await snapshot(line)
        pending.cancel("enough")
        with pytest.raises(RequestCancelled):
            await pending.result()
        await ended.wait()
        assert (await snapshot(line))["server_requests"] == []


@pytest.mark.parametrize("answer", [McpError(-32000, "no user"), ValueError("a secret"), ["no", "object"]])
async def test_a_question_without_an_answer_ends_the_request_as_a_typed_error(answer: Any) -> None:
    """The server is not asked again with a lie, and the other questions of the round end as well."""
    stage = script(asking("name", "other"), DONE)
    async with playing(stage, handler=Answering(answer)) as (line, _):
        with pytest.raises(InputRefused) as refused:
            await line.request("tools/call", CALL)
        assert (refused.value.method, refused.value.question) == ("tools/call", "elicitation/create")
        assert len(stage.asked("tools/call")) == 1
        assert (await snapshot(line))["server_requests"] == []
        assert await line.request("tools/call", CALL) == DONE


async def test_a_loss_while_the_user_thinks_does_not_lose_the_request() -> None:
    """Nothing is under way then: the retry goes to the next connection."""
    release = asyncio.Event()

    async def later(_method: str, _params: dict[str, Any]) -> dict[str, Any]:
        await release.wait()
        return ANNE

    stage = script(asking("name", state="s"), DONE)
    handler = Answering(later)
    async with playing(stage, handler=handler) as (line, _):
        call = asyncio.create_task(line.request("tools/call", CALL))
        await stage.wire.hears("tools/call")
        await snapshot(line)
        await stage.wire.break_off(ConnectionLost("pulled out"))
        await line.ready()
        release.set()
        assert await call == DONE
        assert [
            len([each for each in wire.heard if getattr(each, "method", "") == "tools/call"]) for wire in stage.wires
        ] == [1, 1]
        assert len(handler.asked) == 1


async def test_closing_ends_what_waits_for_a_user() -> None:
    stage = script(asking("name"))
    async with playing(stage, handler=Answering(silent)) as (line, _):
        call = asyncio.create_task(line.request("tools/call", CALL))
        await stage.wire.hears("tools/call")
        await snapshot(line)
        await line.close()
        with pytest.raises(ClientClosed):
            await call


# --- what a server must not ask


INVALID: list[tuple[dict[str, Any], str]] = [
    ({}, "neither"),
    ({"inputRequests": {}}, "neither"),
    ({"inputRequests": []}, "inputRequests"),
    ({"inputRequests": "ask"}, "inputRequests"),
    ({"requestState": 7}, "requestState"),
    ({"requestState": {"a": 1}}, "requestState"),
    ({"requestState": "x" * 2_000_000}, "requestState"),
    ({"inputRequests": {"k": None}}, "methods"),
    ({"inputRequests": {"k": {"method": "tools/call"}}}, "methods"),
    ({"inputRequests": {"k": {"method": "ping"}}}, "methods"),
    ({"inputRequests": {"k": {"method": ["elicitation/create"]}}}, "methods"),
    ({"inputRequests": {"k": {"method": "roots/list", "params": [1]}}}, "params"),
    ({"inputRequests": {"k" * 5000: {"method": "roots/list"}}}, "key"),
    ({"inputRequests": {str(n): {"method": "roots/list"} for n in range(5000)}}, "questions"),
]


@pytest.mark.parametrize(("result", "word"), INVALID, ids=lambda value: str(value)[:40])
async def test_an_invalid_question_ends_the_request_and_nothing_else(result: dict[str, Any], word: str) -> None:
    handler = Answering()
    stage = script({"resultType": "input_required", **result}, DONE)
    async with playing(stage, handler=handler) as (line, _):
        with pytest.raises(BadAnswer, match=word) as bad:
            await line.request("tools/call", CALL)
        assert len(str(bad.value)) < 500
        assert handler.asked == []
        assert await line.request("tools/call", CALL) == DONE


@pytest.mark.parametrize("method", ["tools/list", "completion/complete", "ping", "tasks/get"])
async def test_only_three_methods_may_be_answered_by_a_question(method: str) -> None:
    stage = stateless_stage(
        capabilities={"tools": {}, "completions": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    )
    handler = Answering()
    async with playing(stage, handler=handler) as (line, _):
        stage.answers["server/discover" if method == "ping" else method] = asking("name")
        with pytest.raises(BadAnswer):
            await line.request(method, {"taskId": "x"})
        assert handler.asked == []


class Unable(Answering):
    """Declares forms alone."""

    def capabilities(self) -> dict[str, Any]:
        return {"elicitation": {"form": {}}}


@pytest.mark.row("26-F9")
@pytest.mark.parametrize(
    "question",
    [
        {"method": "roots/list"},
        {"method": "sampling/createMessage", "params": {}},
        {"method": "elicitation/create", "params": {"mode": "url", "url": "https://x.example"}},
    ],
)
async def test_what_was_not_declared_is_not_answered(question: dict[str, Any]) -> None:
    handler = Unable()
    stage = script(
        {"resultType": "input_required", "inputRequests": {"a": asking("x")["inputRequests"]["x"], "b": question}}
    )
    async with playing(stage, handler=handler) as (line, _):
        with pytest.raises(BadAnswer, match="has not declared"):
            await line.request("tools/call", CALL)
        assert handler.asked == []


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=6)
    | st.sampled_from(["elicitation/create", "roots/list"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["method", "params", "key", ""]) | st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=15,
)


@settings(max_examples=examples(500))
@given(_values, _values)
def test_any_result_is_questions_and_a_state_or_a_bad_answer(requests: Any, state: Any) -> None:
    result = {"resultType": "input_required", "inputRequests": requests, "requestState": state}
    try:
        questions, read = read_input_required("tools/call", result)
    except BadAnswer as error:
        assert len(str(error)) < 500
        return
    assert read is state is None or read == state
    assert questions.keys() == (requests or {}).keys()
    assert {method for method, _ in questions.values()} <= QUESTION_METHODS
    assert questions or read is not None


# --- the same through the public names


@pytest.mark.row("26-F12")
async def test_a_form_may_have_bounds_and_defaults_that_are_no_integers() -> None:
    form = {
        "type": "object",
        "properties": {
            "metres": {"type": "number", "minimum": 0.5, "maximum": 2.5, "default": 1.25},
            "count": {"type": "integer", "minimum": 1.0, "default": 2},
        },
    }
    params = {"message": "How long?", "requestedSchema": form}
    question = {
        "resultType": "input_required",
        "inputRequests": {"size": {"method": "elicitation/create", "params": params}},
    }
    refused: list[str] = []

    async def fill(request: Any) -> Any:
        for wrong in (0.25, 2.75):
            with pytest.raises(Mismatch, match="metres") as error:
                request.accept({"metres": wrong})
            refused.append(str(error.value))
        return request.accept()

    stage = script(question, DONE)
    async with Client(stage, elicitation=fill) as client:
        assert (await client.call_tool("t")).text == "done"
    answers = sent(stage, "tools/call")[1]["inputResponses"]
    assert answers == {"size": {"action": "accept", "content": {"metres": 1.25, "count": 2}}}
    assert len(refused) == 2
