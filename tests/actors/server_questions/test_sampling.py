"""Conversations with the client's model: with tools, by the rules, and typed when they come back."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom import (
    Audio,
    BadAnswer,
    Context,
    Image,
    McpError,
    PeerError,
    Sampled,
    Text,
    ToolError,
    ToolResult,
    ToolUse,
    assistant_message,
    image,
    text,
    user_message,
)
from greenroom.protocol.content import check_sampling
from greenroom.protocol.definitions import Tool
from greenroom.protocol.errors import LocalProtocolError
from greenroom.protocol.methods import unsupported_error

from .question_server import EVERYTHING, result_text, running_question_server

if TYPE_CHECKING:
    from collections.abc import Callable

WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "The weather of a city.",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def use(id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": "weather", "input": arguments}


def result(id: str, words: str = "fine") -> dict[str, Any]:
    return {"type": "tool_result", "toolUseId": id, "content": [{"type": "text", "text": words}]}


def words(text: str = "hello") -> dict[str, Any]:
    return {"type": "text", "text": text}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def answered(*blocks: Any, stop: str | None = "endTurn") -> dict[str, Any]:
    return {"role": "assistant", "model": "parrot", "content": list(blocks), "stopReason": stop}


# --- the flow


@pytest.mark.row("SC-05", "SC-11")
async def test_a_model_uses_tools_and_gets_their_results() -> None:
    asked: list[dict[str, Any]] = []
    turns = [
        answered(words("Let me see."), use("c1", city="Paris"), use("c2", city="Oslo"), stop="toolUse"),
        {**answered(), "content": words("Paris is better.")},
    ]

    def model(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return turns[len(asked) - 1]

    async def travel(ctx: Context) -> str:
        """Ask for a destination."""
        question = user_message("Paris or Oslo?")
        first = await ctx.sample(
            question, tools=[WEATHER], tool_choice="required", system_prompt="Be brief.", max_tokens=100
        )
        assert first.stop_reason == "toolUse"
        assert first.text == "Let me see."
        uses = first.tool_uses
        assert uses == [ToolUse("c1", "weather", {"city": "Paris"}), ToolUse("c2", "weather", {"city": "Oslo"})]
        results = [ToolResult.of(uses[0], "sunny"), ToolResult.of(uses[1], ToolError("no such city"))]
        last = await ctx.sample([question, first, user_message(results)], tools=[WEATHER], tool_choice="none")
        assert (last.stop_reason, last.tool_uses, last.model) == ("endTurn", [], "parrot")
        return last.text

    async with running_question_server(travel) as stage:
        probe = await stage.probe({"sampling/createMessage": model})
        assert result_text(await probe.call("travel")) == "Paris is better."
    first, last = asked
    question = {"role": "user", "content": words("Paris or Oslo?")}
    assert first == {
        "messages": [question],
        "maxTokens": 100,
        "systemPrompt": "Be brief.",
        "tools": [WEATHER],
        "toolChoice": {"mode": "required"},
    }
    assert last["toolChoice"] == {"mode": "none"}
    assert last["messages"] == [
        question,
        {"role": "assistant", "content": turns[0]["content"]},
        {
            "role": "user",
            "content": [
                {**result("c1", "sunny"), "isError": False},
                {**result("c2", "no such city"), "isError": True},
            ],
        },
    ]


@pytest.mark.row("SC-05")
async def test_all_sampling_options_are_sent() -> None:
    asked: list[dict[str, Any]] = []

    def model(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return answered(words())

    async with running_question_server() as stage:
        await stage.probe({"sampling/createMessage": model})
        [card] = await stage.server.peers.all()
        await stage.server.session(card.id).sample(
            ["one", image(b"\x89PNG", "image/png"), user_message([text("two"), "three"]), assistant_message("four")],
            max_tokens=7,
            temperature=0.5,
            stop=["\n"],
            model_preferences={"hints": [{"name": "claude"}], "speedPriority": 0.9},
            include_context="allServers",
            tools=[Tool("t", {"type": "object"})],
            metadata={"user": "u1"},
        )
        raw = {"messages": [user(words())], "maxTokens": 5}
        assert (await stage.server.peers.sample(card.id, raw))["model"] == "parrot"
    assert asked[0] == {
        "messages": [
            {"role": "user", "content": words("one")},
            {
                "role": "user",
                "content": {"type": "image", "data": base64.b64encode(b"\x89PNG").decode(), "mimeType": "image/png"},
            },
            {"role": "user", "content": [words("two"), words("three")]},
            {"role": "assistant", "content": words("four")},
        ],
        "maxTokens": 7,
        "temperature": 0.5,
        "stopSequences": ["\n"],
        "modelPreferences": {"hints": [{"name": "claude"}], "speedPriority": 0.9},
        "includeContext": "allServers",
        "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
        "metadata": {"user": "u1"},
    }
    assert asked[1] == raw


# --- who is asked


@pytest.mark.row("SX-09")
@pytest.mark.row("SC-08")
@pytest.mark.parametrize(
    ("sampling", "version", "options", "needed"),
    [
        ({}, "2025-11-25", {"tools": [WEATHER]}, "sampling.tools"),
        ({"context": {}}, "2025-11-25", {"tool_choice": "none"}, "sampling.tools"),
        ({}, "2025-11-25", {"messages": [assistant(use("c")), user(result("c"))]}, "sampling.tools"),
        ({"tools": {}}, "2025-11-25", {"include_context": "thisServer"}, "sampling.context"),
        ({"tools": {}}, "2025-06-18", {"tools": [WEATHER]}, "has no sampling with tools"),
        ({"tools": {}}, "2024-11-05", {"messages": [assistant(use("c")), user(result("c"))]}, "has no sampling with"),
        (None, "2025-11-25", {}, "'sampling'"),
    ],
)
async def test_only_what_the_client_has_declared_is_asked_of_it(
    sampling: Any, version: str, options: dict[str, Any], needed: str
) -> None:
    async with running_question_server() as stage:
        capabilities = {} if sampling is None else {"sampling": sampling}
        probe = await stage.probe(capabilities=capabilities, version=version)
        [card] = await stage.server.peers.all()
        sample: Any = stage.server.session(card.id).sample
        with pytest.raises(McpError, match=needed) as refused:
            await sample(**{"messages": "hello", **options})
        assert refused.value.code == -32600
        assert not isinstance(refused.value, PeerError)
        assert [each for each in probe.received if "method" in each] == []


@pytest.mark.row("SC-08")
async def test_questions_that_need_no_capability_are_sent() -> None:
    asked: list[dict[str, Any]] = []

    def model(params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return {"role": "assistant", "model": "m", "content": words()}

    async with running_question_server() as stage:
        await stage.probe({"sampling/createMessage": model}, capabilities={"sampling": {}}, version="2025-06-18")
        await stage.probe({"sampling/createMessage": model}, capabilities={"sampling": {}})
        old, new = [stage.server.session(card.id) for card in await stage.server.peers.all()]
        await old.sample(user_message(["one", "two"]), include_context="thisServer")
        await new.sample(user_message(["one", "two"]), include_context="none")
    assert [one["content"] for one in asked[0]["messages"]] == [words("one"), words("two")]  # room for one block each
    assert asked[0]["includeContext"] == "thisServer"
    assert [one["content"] for one in asked[1]["messages"]] == [[words("one"), words("two")]]


# --- the rules

RIGHT: tuple[list[Any], ...] = (
    [],
    [user(words())],
    [assistant(words())],
    [user(words(), words()), user(words())],
    [user(words()), assistant(words(), use("a"), use("b")), user(result("b"), result("a")), assistant(words())],
    [assistant(use("a")), user(result("a")), assistant(use("a")), user(result("a")), user(words())],
    [assistant(use("a")), {"role": "user", "content": result("a")}],
)
WRONG: tuple[tuple[list[Any], str], ...] = (
    ([{"content": words()}], r"messages\[0\]: .*not None"),
    ([user(words()), {"role": "system", "content": words()}], r"messages\[1\]: .*'system'"),
    ([user()], r"messages\[0\]: it is empty"),
    ([{"role": "user"}], r"messages\[0\]: 'NoneType' is no complete block"),
    ([user("text")], "'str' is no complete block"),
    ([user({"type": "text"})], "'text' is no complete block"),
    ([user({"type": "resource_link", "uri": "a:b", "name": "c"})], "'resource_link' is no complete block"),
    ([assistant({"type": "tool_use", "id": "a", "name": "b"})], "'tool_use' is no complete block"),
    ([assistant({"type": "tool_use", "id": ["a"], "name": "b", "input": {}})], "'tool_use' is no complete block"),
    ([assistant(use("a")), user({"type": "tool_result", "toolUseId": "a"})], "'tool_result' is no complete block"),
    ([assistant(use("a")), user(result("a"), words())], r"messages\[1\]: .*nothing else in it, but this one has text"),
    ([assistant(use("a"))], "end before tool use 'a' got its result"),
    ([assistant(use("a")), user(words())], r"messages\[1\]: tool use 'a' needs its tool_result here"),
    ([assistant(use("a")), assistant(words()), user(result("a"))], r"messages\[1\]: tool use 'a' needs"),
    ([assistant(use("a"), use("b")), user(result("a"))], r"messages\[1\]: tool use 'b' needs"),
    ([user(result("a"))], r"messages\[0\]: there is a result for tool use 'a'"),
    ([assistant(use("a")), user(result("a"), result("b"))], "result for tool use 'b'"),
    ([assistant(use("a")), user(result("a"), result("a"))], "'a' is answered twice"),
    ([assistant(use("a"), use("a")), user(result("a"))], "'a' is used twice"),
    ([user(use("a")), user(result("a"))], "only the assistant uses tools"),
    ([assistant(use("a")), assistant(result("a"))], "tool results belong to the user"),
)


@pytest.mark.row("SC-05")
@pytest.mark.parametrize("messages", RIGHT)
def test_valid_conversations(messages: list[Any]) -> None:
    check_sampling({"messages": messages, "maxTokens": 1})


@pytest.mark.row("SC-05")
@pytest.mark.parametrize(("messages", "why"), WRONG)
def test_invalid_conversations_are_refused(messages: list[Any], why: str) -> None:
    with pytest.raises(LocalProtocolError, match=why):
        check_sampling({"messages": messages, "maxTokens": 1})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"tools": [{"inputSchema": {"type": "object"}}]}, r"tools\[0\]: a tool needs a name"),
        ({"tools": [{"name": "a"}]}, "inputSchema of a"),
        ({"tools": [{"name": "a", "inputSchema": {"type": "array"}}]}, "inputSchema of a"),
        ({"tools": [WEATHER, WEATHER]}, r"tools\[1\]: there are two tools called weather"),
        ({"tools": [WEATHER], "tool_choice": "weather"}, "tool_choice must be one of auto, required, none"),
        ({"tool_choice": "required"}, "there are no tools"),
        ({"include_context": "everything"}, "include_context must be one of"),
        ({"max_tokens": 0}, "max_tokens must be 1 or more"),
        ({"max_tokens": "many"}, "maxTokens"),
        ({"messages": [user(result("a"))]}, "did not use"),
    ],
)
async def test_bad_sampling_options_are_refused_before_the_client_is_asked(options: dict[str, Any], why: str) -> None:
    async with running_question_server() as stage:
        probe = await stage.probe()
        [card] = await stage.server.peers.all()
        sample: Any = stage.server.session(card.id).sample
        with pytest.raises(LocalProtocolError, match=why):
            await sample(**{"messages": "hello", **options})
        assert [each for each in probe.received if "method" in each] == []


class Counted(str):
    """An id that counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __str__(self) -> str:
        return self

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize("twice", ["once", "twice"])
def test_ids_of_tool_uses_are_compared_with_few_others(monkeypatch: pytest.MonkeyPatch, twice: str) -> None:
    many = 500
    ids = [f"a{number}" for number in range(many)]
    said = [assistant(*(use(Counted(id)) for id in ids)), user(*(result(Counted(id)) for id in ids))]
    if twice == "twice":
        said[0]["content"] += [use(Counted(id)) for id in ids]
    monkeypatch.setattr(Counted, "compared", 0)
    if twice == "twice":
        with pytest.raises(LocalProtocolError, match="is used twice"):
            check_sampling({"messages": said})
    else:
        check_sampling({"messages": said})
    assert 0 < Counted.compared < 10 * many


BLOCKS = st.sampled_from([words(), use("a"), use("b"), result("a"), result("b"), {"type": "odd"}])


@st.composite
def conversations(draw: st.DrawFn) -> list[dict[str, Any]]:
    roles = draw(st.lists(st.sampled_from(["user", "assistant"]), max_size=5))
    return [{"role": role, "content": draw(st.lists(BLOCKS, max_size=3))} for role in roles]


@given(conversations())
def test_accepted_conversations_keep_the_specifications_rules(messages: list[dict[str, Any]]) -> None:
    try:
        check_sampling({"messages": messages})
    except LocalProtocolError as refused:
        assert str(refused)
        return
    for place, message in enumerate(messages):
        kinds = [block["type"] for block in message["content"]]
        if "tool_result" in kinds:
            assert set(kinds) == {"tool_result"}
            assert message["role"] == "user"
        uses = {block["id"] for block in message["content"] if block["type"] == "tool_use"}
        if uses:
            following = messages[place + 1]["content"]
            assert {block.get("toolUseId") for block in following} == uses


# --- the answers


@pytest.mark.row("SC-05")
def test_the_models_answer_is_typed() -> None:
    picture = base64.b64encode(b"\x89PNG").decode()
    odd = {"type": "odd", "x": 1}
    found = Sampled.of(
        answered(
            {**words("a"), "_meta": {"cached": True}},
            {"type": "image", "data": picture, "mimeType": "image/png"},
            {"type": "audio", "data": "", "mimeType": "audio/wav"},
            {**use("c", city="Oslo"), "_meta": {"k": 1}},
            odd,
            words("b"),
            stop="toolUse",
        )
    )
    assert found.blocks == [
        Text("a", meta={"cached": True}),
        Image(b"\x89PNG", "image/png"),
        Audio(b"", "audio/wav"),
        ToolUse("c", "weather", {"city": "Oslo"}, {"k": 1}),
        odd,
        Text("b"),
    ]
    assert found.text == "ab"
    assert found.message == assistant_message(found.content)
    single = Sampled.of({"role": "assistant", "model": "m", "content": use("c")})
    assert [each.id for each in single.tool_uses] == ["c"]
    assert single.stop_reason is None


@pytest.mark.row("SC-11")
@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"role": "assistant", "model": "m"},
        {"role": "assistant", "model": "m", "content": "text"},
        {"role": "assistant", "content": words()},
        {"role": "system", "model": "m", "content": words()},
        answered("text"),
        answered({"type": "text"}),
        answered({"type": "image", "data": "%%%", "mimeType": "image/png"}),
        answered({"type": "tool_use", "id": "c", "name": "weather"}),
        answered(use("c"), use("c")),
    ],
)
async def test_an_answer_that_is_none_is_an_error_of_its_own_type(answer: dict[str, Any]) -> None:
    async with running_question_server() as stage:
        await stage.probe({"sampling/createMessage": lambda _: answer})
        [card] = await stage.server.peers.all()
        with pytest.raises(BadAnswer) as refused:
            await stage.server.session(card.id).sample("hello", tools=[WEATHER])
        assert refused.value.code == -32603


@pytest.mark.row("SC-05")
@pytest.mark.parametrize("code", [-1, -32602])
async def test_the_users_no_is_the_clients_error(code: int) -> None:
    async def refuses(_: Any) -> Any:
        await asyncio.sleep(1)
        raise McpError(code, "no")

    async with running_question_server() as stage:
        await stage.probe({"sampling/createMessage": refuses})
        [card] = await stage.server.peers.all()
        with pytest.raises(PeerError) as refused:
            await stage.server.session(card.id).sample("hello")
        assert (refused.value.code, isinstance(refused.value, BadAnswer)) == (code, False)


@pytest.mark.parametrize(
    ("value", "content", "failed"),
    [
        ("fine", [words("fine")], False),
        ({"a": 1}, [words('{"a":1}')], False),
        (ToolError("no"), [words("no")], True),
        (None, [], False),
    ],
)
def test_a_result_is_made_of_what_a_tool_may_return(value: Any, content: list[Any], failed: bool) -> None:  # noqa: FBT001
    made = ToolResult.of("c", value)
    assert made.to_wire() == {"type": "tool_result", "toolUseId": "c", "content": content, "isError": failed}
    check_sampling({"messages": [assistant(use("c")), user(made.to_wire())]})


async def test_a_plain_function_samples_too() -> None:
    def ask(ctx: Context) -> str:
        return ctx.wait(ctx.sample("hello", tools=[WEATHER])).tool_uses[0].name

    answers: dict[str, Callable[[Any], Any]] = {"sampling/createMessage": lambda _: answered(use("c"), stop="toolUse")}
    async with running_question_server(ask) as stage:
        probe = await stage.probe(answers, capabilities=EVERYTHING)
        assert result_text(await probe.call("ask")) == "weather"


def test_a_request_that_the_client_did_not_declare_is_an_invalid_request() -> None:
    assert unsupported_error("no").code == -32600
