"""The registry as programs use it: five kinds by name, local calls without a session, and notifications."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.catalogue import NotFound, RegistrationError
from greenroom.actors.catalogue_entries import tool_entry
from greenroom.actors.handler_options import PromptOptions, ResourceOptions, TemplateOptions, ToolOptions
from greenroom.actors.subscriptions import Subscriptions
from greenroom.protocol.errors import McpError, ToolError
from greenroom.protocol.validation_errors import Mismatch
from greenroom.supervision import CallTimeout, Crash, Pid, ProcessExited
from greenroom.supervision.testing import Probe

from .registry_services import RegistryServices, next_announcement, until

if TYPE_CHECKING:
    from greenroom.actors.context import Context


async def hello(name: str) -> str:
    return f"hello {name}"


def suggest(value: str) -> list[str]:
    return [value]


@pytest.mark.row("RG-05", "RG-06", "RG-09", "RG-10", "RG-11", "RG-12")
async def test_five_kinds_are_registered_and_removed_by_name(services: RegistryServices) -> None:
    registry = services.registry
    await registry.register_tool("t", hello)
    await registry.register_resource("r", lambda: "x", ResourceOptions(uri="a://r"))
    await registry.register_resource_template("tt", hello, TemplateOptions(uri_template="a://{name}"))
    await registry.register_prompt("p", hello)
    await registry.register_completion(("prompt", "p", "name"), suggest)
    assert [name for name, _ in registry.list_tools()] == ["t"]
    assert registry.list_resources()[0][1]["uri"] == "a://r"
    assert registry.list_resource_templates()[0][1]["uriTemplate"] == "a://{name}"
    assert registry.list_prompts()[0][1]["arguments"] == [{"name": "name", "required": True}]
    assert registry.find(("prompt", "p", "name"), "completion") is not None
    assert await registry.unregister_tool("t")
    assert await registry.unregister_resource("r")
    assert await registry.unregister_resource_template("tt")
    assert await registry.unregister_prompt("p")
    assert await registry.unregister_completion(("prompt", "p", "name"))
    assert not await registry.unregister_tool("t")
    assert registry.list_tools() == registry.list_resources() == registry.list_prompts() == []
    assert registry.find(("prompt", "p", "name"), "completion") is None


@pytest.mark.row("RG-05", "RG-23")
async def test_registering_a_name_again_replaces_it_unless_that_is_not_wanted(services: RegistryServices) -> None:
    async def other(name: str) -> str:
        return f"goodbye {name}"

    await services.registry.register_tool("t", hello)
    await services.registry.register_tool("t", other)
    assert await services.registry.call_tool("t", {"name": "Ada"}) == "goodbye Ada"
    with pytest.raises(RegistrationError, match="already"):
        await services.registry.register_tool("t", hello, replace=False)


@pytest.mark.row("RG-30")
async def test_tools_have_short_words(services: RegistryServices) -> None:
    await services.registry.reg("t", hello)
    assert await services.registry.run("t", {"name": "Ada"}) == "hello Ada"
    assert [name for name, _ in services.registry.all()] == ["t"]
    found = services.registry.find("t")
    assert found is not None
    assert await services.registry.unreg("t")


@pytest.mark.row("RG-07")
async def test_registered_entries_can_be_called_without_a_session(services: RegistryServices) -> None:
    async def uri(ctx: Context) -> str:
        return f"{ctx.uri} {ctx.session_id!r} {ctx.request_id}"

    def blocking(n: int, ctx: Context) -> int:
        assert not ctx.progress(1)
        assert not ctx.log("info", "x")
        return n + 1

    await services.registry.register_tool("t", blocking)
    await services.registry.register_resource("r", uri, ResourceOptions(uri="a://r"))
    await services.registry.register_prompt("p", hello)
    assert await services.registry.call_tool("t", {"n": 1}) == 2
    assert await services.registry.read_resource("r") == "a://r '' None"
    assert await services.registry.get_prompt("p", {"name": "Ada"}) == "hello Ada"


@pytest.mark.row("RG-07")
async def test_a_program_lists_and_uses_all_kinds_without_a_session(services: RegistryServices) -> None:
    def about(name: str) -> str:
        return f"about {name}"

    registry = services.registry
    await registry.register_tool("t", about, ToolOptions(description="T"))
    await registry.register_resource("r", lambda: "x", ResourceOptions(uri="a://r"))
    await registry.register_resource_template("rt", about, TemplateOptions(uri_template="a://{name}"))
    await registry.register_prompt("p", about, PromptOptions(description="P"))
    listed = (
        registry.list_tools(),
        registry.list_resources(),
        registry.list_resource_templates(),
        registry.list_prompts(),
    )
    assert [[name for name, _ in each] for each in listed] == [["t"], ["r"], ["rt"], ["p"]]
    assert [listed[0][0][1]["description"], listed[1][0][1]["uri"]] == ["T", "a://r"]
    assert [listed[2][0][1]["uriTemplate"], listed[3][0][1]["description"]] == ["a://{name}", "P"]
    assert await registry.call_tool("t", {"name": "Ada"}) == "about Ada"
    assert await registry.read_resource("r") == "x"
    assert await registry.get_prompt("p", {"name": "Ada"}) == "about Ada"
    for call, kind in (
        (registry.call_tool, "tool"),
        (registry.read_resource, "resource"),
        (registry.get_prompt, "prompt"),
    ):
        with pytest.raises(NotFound) as missing:
            await call("other")
        assert (missing.value.kind, missing.value.name) == (kind, "other")


@pytest.mark.row("RG-07")
async def test_local_calls_raise_what_went_wrong(services: RegistryServices) -> None:
    async def fails(how: str) -> None:
        if how == "exit":
            sys.exit(3)
        raise {"tool": ToolError("no"), "value": ValueError("no")}[how]

    async def asks(ctx: Context) -> Any:
        return await ctx.sample("x")

    await services.registry.register_tool("fails", fails)
    await services.registry.register_tool("asks", asks)
    for call in (services.registry.call_tool, services.registry.read_resource, services.registry.get_prompt):
        with pytest.raises(NotFound):
            await call("unknown")
    with pytest.raises(ToolError):
        await services.registry.call_tool("fails", {"how": "tool"})
    with pytest.raises(ValueError, match="no"):
        await services.registry.call_tool("fails", {"how": "value"})
    with pytest.raises(Mismatch):
        await services.registry.call_tool("fails", {"who": 1})
    with pytest.raises(McpError, match="local call"):
        await services.registry.call_tool("asks")
    with pytest.raises(ProcessExited) as ended:
        await services.registry.call_tool("fails", {"how": "exit"})
    assert isinstance(ended.value.reason, Crash)
    assert isinstance(ended.value.reason.error, SystemExit)


async def test_a_local_call_that_is_given_up_ends_its_function(services: RegistryServices) -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("ended")

    await services.registry.register_tool("t", waits)
    calling = asyncio.create_task(services.registry.call_tool("t"))
    await asyncio.sleep(1)
    calling.cancel()
    await asyncio.wait([calling])
    await asyncio.sleep(0)
    assert ended == ["ended"]


async def test_a_local_call_has_its_handlers_own_deadline(services: RegistryServices) -> None:
    flags: list[Context] = []

    def waits(ctx: Context) -> None:
        flags.append(ctx)
        ctx.cancelled.wait_in_thread()

    await services.registry.register_tool("t", waits, ToolOptions(timeout=2))
    with pytest.raises(CallTimeout):
        await services.registry.call_tool("t")
    await until(lambda: not services.bulkheads.running)
    assert flags[0].cancelled.reason == "the caller is gone"


@pytest.mark.row("RG-22", "RG-23")
async def test_declaring_works_before_the_company_runs_and_after() -> None:
    services = RegistryServices()
    services.registry.declare(tool_entry("early", hello))
    with pytest.raises(RegistrationError, match="already"):
        services.registry.declare(tool_entry("early", hello))
    assert [name for name, _ in services.registry.list_tools()] == ["early"]
    await services.open()
    services.registry.declare(tool_entry("late", hello))
    await services.registry.ready()
    assert [name for name, _ in services.registry.list_tools()] == ["early", "late"]


def test_declaring_works_without_any_loop() -> None:
    services = RegistryServices()
    services.registry.declare(tool_entry("a", hello), tool_entry("b", hello))
    assert [name for name, _ in services.registry.list_tools()] == ["a", "b"]
    assert repr(services.registry) == "<ServerRegistry, version 2>"


# --- notifications


@pytest.mark.row("RG-21", "SC-04")
async def test_every_change_of_a_list_is_announced_to_every_session(services: RegistryServices) -> None:
    sessions = [Probe(), Probe()]
    for session in sessions:
        await services.subscriptions.call(Subscriptions.join, session.pid)
    registry = services.registry
    steps: list[tuple[Any, str]] = [
        (lambda: registry.register_tool("t", hello), "tools"),
        (lambda: registry.unregister_tool("t"), "tools"),
        (lambda: registry.register_resource("r", lambda: "x", ResourceOptions(uri="a://r")), "resources"),
        (
            lambda: registry.register_resource_template("t", hello, TemplateOptions(uri_template="b://{name}")),
            "resources",
        ),
        (lambda: registry.register_prompt("p", hello, PromptOptions()), "prompts"),
    ]
    for step, which in steps:
        await step()
        for session in sessions:
            assert await next_announcement(session) == (f"notifications/{which}/list_changed", {})
    await registry.register_completion(("prompt", "p", "name"), suggest)
    await registry.unregister_tool("unknown")
    for session in sessions:
        await session.expect_nothing(within=1)
    registry.notify_list_changed("prompt")
    assert await next_announcement(sessions[0]) == ("notifications/prompts/list_changed", {})


@pytest.mark.row("RG-21")
async def test_a_hundred_registrations_are_one_announcement(services: RegistryServices) -> None:
    session = Probe()
    await services.subscriptions.call(Subscriptions.join, session.pid)
    for n in range(100):
        await services.registry.register_tool(f"t{n}", hello, ToolOptions())
    assert await next_announcement(session) == ("notifications/tools/list_changed", {})
    await session.expect_nothing(within=1)


@pytest.mark.row("SC-01")
async def test_an_updated_resource_is_announced_to_its_subscribers(services: RegistryServices) -> None:
    reader, other = Probe(), Probe()
    await services.subscriptions.call(Subscriptions.subscribe, reader.pid, "a://r")
    await services.subscriptions.call(Subscriptions.subscribe, other.pid, "a://other")
    services.registry.notify_resource_updated("a://r", {"title": "New"})
    assert await next_announcement(reader) == ("notifications/resources/updated", {"uri": "a://r", "title": "New"})
    await other.expect_nothing(within=1)
    assert isinstance(reader.pid, Pid)
