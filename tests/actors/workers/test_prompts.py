"""Prompts and completions: texts in, messages and suggestions out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.catalogue_entries import completion_entry
from greenroom.protocol.errors import ErrorCode
from greenroom.protocol.handler_results import Completion, PromptResult, assistant_message, user_message
from greenroom.protocol.versions import STATELESS

if TYPE_CHECKING:
    from greenroom.actors.context import Context

    from .job_runner import FakeServices, JobRunner


async def get(runner: JobRunner, name: str, **arguments: str) -> dict[str, Any]:
    return await (await runner.start("prompts/get", {"name": name, "arguments": arguments})).result()


@pytest.mark.row("RG-20")
async def test_a_prompt_may_be_a_text_messages_or_all_of_it(services: FakeServices, runner: JobRunner) -> None:
    async def text(topic: str) -> str:
        """Ask about a topic."""
        return f"What is {topic}?"

    async def messages(topic: str) -> list[Any]:
        return [user_message(f"What is {topic}?"), assistant_message("Let me think.")]

    async def whole(topic: str) -> PromptResult:
        return PromptResult([user_message(topic)], "about it")

    services.prompt(text)
    services.prompt(messages)
    services.prompt(whole)
    assert await get(runner, "text", topic="tea") == {
        "description": "Ask about a topic.",
        "messages": [{"role": "user", "content": {"type": "text", "text": "What is tea?"}}],
    }
    assert [message["role"] for message in (await get(runner, "messages", topic="x"))["messages"]] == [
        "user",
        "assistant",
    ]
    assert (await get(runner, "whole", topic="x"))["description"] == "about it"


@pytest.mark.row("RG-11", "WC-18")
async def test_arguments_of_a_prompt_are_converted_to_their_hints(services: FakeServices, runner: JobRunner) -> None:
    async def plan(city: str, days: int = 2, loud: bool = False) -> str:  # noqa: FBT001, FBT002 - it is about such hints
        return f"{city} {days + 1} {loud}"

    services.prompt(plan)
    text = (await get(runner, "plan", city="5", days="3", loud="true"))["messages"][0]["content"]["text"]
    assert text == "5 4 True"
    for arguments, part in (
        ({}, "city must be given"),
        ({"city": "x", "days": "many"}, "days"),
        ({"city": "x", "no": "1"}, "no"),
    ):
        calling = await runner.start("prompts/get", {"name": "plan", "arguments": arguments})
        error = await calling.error()
        assert error["code"] == -32602
        assert part in error["message"]


async def test_a_prompt_may_take_all_in_one_dict_and_its_context(services: FakeServices, runner: JobRunner) -> None:
    async def free(args: dict[str, str], ctx: Context) -> str:
        return f"{ctx.name} {sorted(args)}"

    services.prompt(free, arguments=[{"name": "a", "required": True}, "b"])
    assert (await get(runner, "free", a="1", c="2"))["messages"][0]["content"]["text"] == "free ['a', 'c']"
    error = await (await runner.start("prompts/get", {"name": "free"})).error()
    assert error["message"] == "Invalid arguments for free: a must be given"


@pytest.mark.row("WC-26", "RG-06")
async def test_a_prompt_that_is_not_there_is_an_error_with_its_name(runner: JobRunner) -> None:
    error = await (await runner.start("prompts/get", {"name": "unknown"})).error()
    assert error == {"code": -32602, "message": "Unknown prompt: unknown"}


# --- completions


async def complete(
    runner: JobRunner, ref: dict[str, str], value: str, name: str = "city", **context: str
) -> dict[str, Any]:
    params: dict[str, Any] = {"ref": ref, "argument": {"name": name, "value": value}}
    if context:
        params["context"] = {"arguments": context}
    result = await (await runner.start("completion/complete", params)).result()
    found: dict[str, Any] = result["completion"]
    return found


PROMPT = {"type": "ref/prompt", "name": "plan"}
TEMPLATE = {"type": "ref/resource", "uri": "weather://{city}"}


@pytest.mark.row("RG-12", "WC-27")
async def test_completions_are_for_prompts_and_templates(services: FakeServices, runner: JobRunner) -> None:
    async def cities(value: str, ctx: Context) -> list[str]:
        return [
            city
            for city in ("Oslo", "Ottawa", "Paris")
            if city.startswith(value) and city not in ctx.variables.values()
        ]

    def few(typed: str) -> tuple[list[str], dict[str, Any]]:
        return [f"{typed}1"], {"has_more": True}

    services.put(completion_entry(("prompt", "plan", "city"), cities))
    services.put(completion_entry(("resource_template", "weather://{city}", "city"), few))
    assert await complete(runner, PROMPT, "O") == {"values": ["Oslo", "Ottawa"], "total": 2, "hasMore": False}
    assert (await complete(runner, PROMPT, "O", first="Oslo"))["values"] == ["Ottawa"]
    assert await complete(runner, TEMPLATE, "x") == {"values": ["x1"], "hasMore": True}


@pytest.mark.row("WC-27")
async def test_without_a_completion_there_are_no_suggestions(runner: JobRunner) -> None:
    found = await complete(runner, PROMPT, "O")
    assert found["values"] == []
    assert not found["hasMore"]


@pytest.mark.row("26-F5")
@pytest.mark.parametrize(
    ("ref", "shown"), [(PROMPT, "prompt: plan"), (TEMPLATE, "resource template: weather://{city}")]
)
async def test_in_the_stateless_era_a_completion_for_what_is_not_there_is_an_error(
    services: FakeServices, runner: JobRunner, ref: dict[str, str], shown: str
) -> None:
    params = {"ref": ref, "argument": {"name": "city", "value": "O"}}
    error = await (await runner.start("completion/complete", params, version=STATELESS)).error()
    assert error == {"code": ErrorCode.INVALID_PARAMS, "message": f"Unknown {shown}"}

    async def plan(city: str) -> str:
        return city

    services.prompt(plan)
    found = await (await runner.start("completion/complete", {**params, "ref": PROMPT}, version=STATELESS)).result()
    assert found["completion"]["values"] == []


@pytest.mark.row("WC-27", "RG-12")
async def test_a_hundred_suggestions_travel_at_the_most(services: FakeServices, runner: JobRunner) -> None:
    services.put(completion_entry(("prompt", "plan", "city"), lambda: [str(n) for n in range(150)]))
    found = await complete(runner, PROMPT, "")
    assert (len(found["values"]), found["total"], found["hasMore"]) == (100, 150, True)
    services.put(completion_entry(("prompt", "plan", "city"), lambda: Completion(["a"], total=7)))
    assert await complete(runner, PROMPT, "") == {"values": ["a"], "total": 7, "hasMore": True}


@pytest.mark.row("WC-27", "TF-25")
async def test_a_completion_that_is_no_list_of_texts_is_an_internal_error(
    services: FakeServices, runner: JobRunner
) -> None:
    services.put(completion_entry(("prompt", "plan", "city"), lambda: 7))
    params = {"ref": PROMPT, "argument": {"name": "city", "value": ""}}
    assert await (await runner.start("completion/complete", params)).error() == {
        "code": -32603,
        "message": "Internal error",
    }
