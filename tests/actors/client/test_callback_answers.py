"""Requests of a server to its client: typed questions and checked answers, each independent of the others; and notifications."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from greenroom import (
    Client,
    ClientHandler,
    ClientSettings,
    Context,
    ElicitationRequest,
    LogMessage,
    McpError,
    Message,
    Mismatch,
    Root,
    Sampled,
    SamplingRequest,
    Server,
    ServerNotification,
    Text,
    ToolUse,
    UrlElicitationRequest,
    image,
)
from greenroom.actors.client.errors import InputRefused
from greenroom.actors.server_questions import Accepted, Declined, Dismissed
from greenroom.client_callbacks import roots_result

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "Ada"},
        "age": {"type": "integer", "minimum": 0},
        "row": {"type": "string", "enum": ["stalls", "gods"], "default": "gods"},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["glasses", "programme"]}},
    },
    "required": ["name", "age"],
}


def form(schema: dict[str, Any] = FORM) -> ElicitationRequest:
    return ElicitationRequest.of({"message": "who?", "requestedSchema": schema})


def sampling(**params: Any) -> SamplingRequest:
    said = [{"role": "user", "content": {"type": "text", "text": "hello"}}]
    return SamplingRequest.of({"messages": said, "maxTokens": 10, **params})


def curious() -> Server:
    server = Server("curious")

    @server.tool
    async def model(ctx: Context, prompt: str = "hello") -> str:
        said = await ctx.sample(prompt, system_prompt="Be brief.", max_tokens=5)
        return f"{said.model}: {said.text}"

    @server.tool
    async def user(ctx: Context) -> str:
        return repr(await ctx.elicit("How many?", FORM))

    @server.tool
    async def page(ctx: Context) -> str:
        return (await ctx.elicit_url("Pay.", "https://pay.example/{elicitation_id}", "e1")).action

    @server.tool
    async def places(ctx: Context) -> str:
        return " ".join(f"{root.uri}={root.name}" for root in await ctx.roots())

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.info("one", logger="stage")
        await ctx.error({"n": 2})
        return "said"

    return server


# --- the questions by themselves


def test_a_form_has_its_fields_and_defaults() -> None:
    asked = form()
    assert (asked.message, list(asked.fields), asked.required) == (
        "who?",
        ["name", "age", "row", "extras"],
        ["name", "age"],
    )
    assert asked.defaults() == {"name": "Ada", "row": "gods"}


def test_an_acceptance_has_the_defaults_and_what_was_given() -> None:
    assert form().accept(age=3).value == {"name": "Ada", "row": "gods", "age": 3}
    assert form().accept({"age": 3}, name="Bob", row=None).value == {"name": "Bob", "age": 3}
    assert form().to_result({"age": 3, "name": "Bob"})["content"]["row"] == "gods"


def test_an_acceptance_that_does_not_fit_says_all_that_is_wrong() -> None:
    with pytest.raises(Mismatch) as failed:
        form().accept(age="old", row="roof", shoe=44)
    assert sorted(problem.path for problem in failed.value.errors) == [("age",), ("row",), ("shoe",)]
    with pytest.raises(Mismatch, match="age: is missing"):
        form().accept()


def test_a_form_that_cannot_be_checked_is_answered_all_the_same() -> None:
    assert form({"type": "object", "properties": {"x": {"type": "nonsense"}}}).accept(x=1).value == {"x": 1}


@pytest.mark.parametrize("params", [{}, {"requestedSchema": 1}, {"requestedSchema": {"properties": []}}])
def test_an_elicitation_without_a_form_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(McpError, match="requestedSchema"):
        ElicitationRequest.of(params)


@pytest.mark.parametrize(
    ("said", "action"),
    [
        (True, "accept"),
        (Accepted({"age": 1}), "accept"),
        ({"age": 1}, "accept"),
        ({"action": "accept", "content": {"age": 1}}, "accept"),
        (False, "decline"),
        (Declined(), "decline"),
        (form().decline(), "decline"),
        ({"action": "decline"}, "decline"),
        (None, "cancel"),
        (Dismissed(), "cancel"),
        (form().cancel(), "cancel"),
    ],
)
def test_an_answer_may_be_short(said: Any, action: str) -> None:
    schema: dict[str, Any] = {**FORM, "required": []}
    assert form(schema).to_result(said)["action"] == action


def test_an_invalid_elicitation_answer_is_refused() -> None:
    with pytest.raises(TypeError, match=r"request.accept\(…\)"):
        form().to_result("yes")


def test_a_page_is_shown_and_never_logged() -> None:
    visit = UrlElicitationRequest.of({"message": "Pay.", "url": "https://pay.example/?t=1", "elicitationId": "e1"})
    assert (visit.url, visit.elicitation_id, visit.to_result(visit.accept())) == (
        "https://pay.example/?t=1",
        "e1",
        {"action": "accept"},
    )
    assert visit.to_result(visit.decline()) == {"action": "decline"}
    assert "pay.example" not in repr(visit)
    for url in (None, "file:///etc/passwd", "javascript:alert(1)"):
        with pytest.raises(McpError, match="http"):
            UrlElicitationRequest.of({"url": url})


def test_a_conversation_is_messages_of_blocks() -> None:
    asked = sampling(systemPrompt="s", temperature=0.5, stopSequences=["x"], toolChoice={"mode": "none"})
    assert asked.messages == [Message("user", Text("hello"))]
    assert (asked.text, asked.max_tokens, asked.system_prompt, asked.temperature) == ("hello", 10, "s", 0.5)
    assert (asked.stop_sequences, asked.tool_choice, asked.include_context) == (["x"], "none", "none")


def test_a_conversation_that_no_model_takes_is_refused() -> None:
    with pytest.raises(McpError) as failed:
        sampling(messages=[{"role": "assistant", "content": {"type": "tool_use", "id": "1", "name": "t", "input": {}}}])
    assert failed.value.code == -32602
    with pytest.raises(McpError, match=r"does not declare sampling\.tools"):
        SamplingRequest.of({"messages": [], "maxTokens": 1, "tools": []}, tools=False)


USE = ToolUse("u1", "price", {})


@pytest.mark.parametrize(
    ("said", "content", "stop"),
    [
        ("hi", {"type": "text", "text": "hi"}, "endTurn"),
        (["hi", USE], [{"type": "text", "text": "hi"}, USE.to_wire()], "toolUse"),
        (image(b"\x00", "image/png"), {"type": "image", "data": "AA==", "mimeType": "image/png"}, "endTurn"),
        (Message("assistant", "hi"), {"type": "text", "text": "hi"}, "endTurn"),
        (
            {"role": "assistant", "content": {"type": "text", "text": "hi"}, "stopReason": "x"},
            {"type": "text", "text": "hi"},
            "x",
        ),
        (
            Sampled("assistant", {"type": "text", "text": "hi"}, "m", "endTurn"),
            {"type": "text", "text": "hi"},
            "endTurn",
        ),
    ],
)
def test_a_models_reply_becomes_a_sampling_result(said: Any, content: Any, stop: str) -> None:
    result = sampling().to_result(said)
    assert (result["content"], result["stopReason"], result["role"]) == (content, stop, "assistant")
    assert result["model"]


@pytest.mark.parametrize("said", [None, 7, [], {"n": 1}])
def test_an_invalid_sampling_reply_is_refused(said: Any) -> None:
    with pytest.raises(TypeError):
        sampling().to_result(said)


def test_an_answer_of_a_model_has_its_name() -> None:
    said = sampling().answer(["x", USE], model="parrot")
    assert (said.model, said.stop_reason, said.text, said.tool_uses) == ("parrot", "toolUse", "x", [USE])
    assert sampling().refusal().code == -1


def test_roots_are_paths_and_uris() -> None:
    assert roots_result([Path("/srv/data"), "/srv", "https://x.example/y", Root("a:b", "c"), {"uri": "d:e"}])[
        "roots"
    ] == [
        {"uri": "file:///srv/data", "name": "data"},
        {"uri": "file:///srv", "name": "srv"},
        {"uri": "https://x.example/y"},
        {"uri": "a:b", "name": "c"},
        {"uri": "d:e"},
    ]
    with pytest.raises(TypeError, match="roots are a list"):
        Client(curious(), roots="/srv")


# --- through a connection


@pytest.mark.row("CL-20", "CL-21")
async def test_functions_answer_sync_and_async() -> None:
    where: list[str] = []

    def blocking(request: SamplingRequest) -> str:
        where.append(threading.current_thread().name)
        assert request.system_prompt == "Be brief."
        return request.text.upper()

    async def asks(request: ElicitationRequest) -> Any:
        await asyncio.sleep(0)
        return request.accept(age=7)

    client = Client(
        curious(),
        sampling=blocking,
        elicitation=asks,
        url_elicitation=lambda visit: visit.url.endswith("/e1"),
        roots=["/srv"],
    )
    async with client:
        assert await client.call("model") == "unknown: HELLO"
        assert where != [threading.current_thread().name]
        assert await client.call("user") == "Accepted(value={'name': 'Ada', 'row': 'gods', 'age': 7})"
        assert await client.call("page") == "accept"
        assert await client.call("places") == "file:///srv=srv"
        await client.set_roots(lambda: [Path("/opt")])
        assert await client.call("places") == "file:///opt=opt"
        await client.set_roots(path for path in ("/a", "/b"))
        for _ in range(2):
            assert await client.call("places") == "file:///a=a file:///b=b"


ERAS = pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])


@ERAS
async def test_capabilities_without_a_function_are_not_declared(mode: str) -> None:
    async with Client(curious(), mode=mode) as client:
        for tool in ("model", "user", "page", "places"):
            with pytest.raises(McpError) as failed:
                await client.call(tool)
            assert failed.value.code == (-32021 if client.welcome.is_stateless else -32600)
        with pytest.raises(ValueError, match=r"roots=\[\]"):
            await client.set_roots([])


async def test_a_function_that_fails_is_an_internal_error_for_the_server_and_nothing_else_suffers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(request: SamplingRequest) -> str:
        raise RuntimeError("the model is gone: secret")

    def refuses(request: ElicitationRequest) -> Any:
        return request.accept(age="secret")

    async with Client(curious(), sampling=broken, elicitation=refuses, mode="legacy") as client:
        for tool in ("model", "user"):
            with pytest.raises(McpError) as failed:
                await client.call(tool)
            assert failed.value.code == -32603
            assert "secret" not in str(failed.value)
        assert await client.call("talk") == "said"
    assert "the model is gone" in caplog.text
    async with Client(curious(), sampling=broken, elicitation=refuses, mode="2026-07-28") as client:
        for tool, question in (("model", "sampling/createMessage"), ("user", "elicitation/create")):
            with pytest.raises(InputRefused) as refused:  # the server gets nothing at all, and the caller its own error
                await client.call(tool)
            assert refused.value.question == question
        assert await client.call("talk") == "said"


async def test_the_users_no_has_its_code() -> None:
    def no(request: SamplingRequest) -> str:
        raise request.refusal("not now")

    async with Client(curious(), sampling=no, elicitation=lambda request: False, mode="legacy") as client:
        with pytest.raises(McpError, match="not now") as failed:
            await client.call("model")
        assert failed.value.code == -1
        assert await client.call("user") == "Declined()"
    async with Client(curious(), sampling=no, elicitation=lambda request: False, mode="2026-07-28") as client:
        with pytest.raises(InputRefused, match="not now") as refused:
            await client.call("model")
        assert isinstance(refused.value.cause, McpError)
        assert await client.call("user") == "Declined()"


@ERAS
async def test_a_slow_answer_delays_no_other_request(mode: str) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(request: SamplingRequest) -> str:
        asked.set()
        await answer.wait()
        return "at last"

    async with Client(curious(), sampling=slow, mode=mode) as client:
        waiting = asyncio.ensure_future(client.call("model"))
        await asked.wait()
        assert await client.call("talk") == "said"
        await client.ping()
        assert not waiting.done()
        answer.set()
        assert await waiting == "unknown: at last"


@ERAS
async def test_logs_and_notifications_come_in_order(mode: str) -> None:
    logs: list[LogMessage] = []
    told: list[ServerNotification] = []

    async def log(message: LogMessage) -> None:
        await asyncio.sleep(0)
        logs.append(message)

    both = asyncio.Event()

    def hear(word: ServerNotification) -> None:
        told.append(word)
        if len(told) == 2:
            both.set()

    async with Client(curious(), on_log=log, on_notification=hear, mode=mode) as client:
        await client.call("talk")
        await asyncio.wait_for(both.wait(), 5)
        assert [(one.level, str(one), one.logger) for one in logs] == [
            ("info", "one", "stage"),
            ("error", '{"n":2}', None),
        ]
        assert [one.method for one in told] == ["notifications/message"] * 2


@pytest.mark.row("CL-22", "CL-23")
@ERAS
async def test_a_handler_does_what_no_function_does(mode: str) -> None:
    class Rest(ClientHandler):
        def __init__(self) -> None:
            self.life: list[str] = []

        def capabilities(self) -> Any:
            return {"roots": {}}

        def init(self, line: Any) -> None:
            self.life.append("init")

        def handle_request(self, method: str, params: dict[str, Any]) -> Any:
            return {"roots": [{"uri": "rest:here"}]}

        def handle_notification(self, method: str, params: dict[str, Any]) -> None:
            self.life.append(method)

        def terminate(self) -> None:
            self.life.append("terminate")

    rest = Rest()
    async with Client(curious(), handler=rest, sampling=lambda request: "x", mode=mode) as client:
        assert await client.call("places") == "rest:here=None"
        assert await client.call("model") == "unknown: x"
        await client.call("talk")
    assert rest.life == ["init", "notifications/message", "notifications/message", "terminate"]


@pytest.mark.row("CL-07")
async def test_a_model_that_uses_tools_is_declared_by_the_settings() -> None:
    server = Server("buyer")

    @server.tool
    async def buy(ctx: Context) -> str:
        said = await ctx.sample("Three seats.", tools=[{"name": "price", "inputSchema": {"type": "object"}}])
        return said.tool_uses[0].name

    def model(request: SamplingRequest) -> ToolUse:
        return ToolUse("1", request.tools[0]["name"], {})

    settings = ClientSettings(capabilities={"sampling": {"tools": {}}})
    async with Client(server, sampling=model, settings=settings) as client:
        assert await client.call("buy") == "price"


@pytest.mark.parametrize(
    ("params", "wrong"),
    [
        ({}, "messages"),
        ({"messages": 1, "maxTokens": 1}, "messages"),
        ({"messages": [], "maxTokens": "x"}, "maxTokens"),
        ({"messages": [], "maxTokens": None}, "maxTokens"),
        ({"messages": [], "maxTokens": 1, "tools": True}, "tools"),
        ({"messages": [], "maxTokens": 1, "systemPrompt": 7}, "systemPrompt"),
        ({"messages": [], "maxTokens": 1, "temperature": "hot"}, "temperature"),
        ({"messages": [], "maxTokens": 1, "stopSequences": ["x", 1]}, "stopSequences"),
        ({"messages": [], "maxTokens": 1, "modelPreferences": []}, "modelPreferences"),
    ],
)
def test_a_malformed_conversation_is_refused_with_the_member_that_is_wrong(params: dict[str, Any], wrong: str) -> None:
    with pytest.raises(McpError, match=wrong) as refused:
        SamplingRequest.of(params)
    assert refused.value.code == -32602


def test_members_of_a_conversation_that_are_null_are_left_out() -> None:
    asked = SamplingRequest.of({"messages": [], "maxTokens": 1, "systemPrompt": None, "tools": None})
    assert (asked.system_prompt, asked.tools) == (None, ())
