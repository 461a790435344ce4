"""The methods of `Client`, against a server in the same program."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import (
    BadAnswer,
    Client,
    ClientSettings,
    ConfigError,
    Context,
    Image,
    McpError,
    Message,
    NotReady,
    PeerError,
    Progress,
    RequestCancelled,
    RequestTimeout,
    Server,
    Settings,
    Structured,
    Text,
    ToolError,
    ToolFailed,
    TooManyPages,
    Unsupported,
    image,
)
from greenroom.actors.client.errors import NotInRevision
from greenroom.protocol.errors import LocalProtocolError
from greenroom.protocol.function_parameters import BadHint

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator


@dataclass
class Day:
    name: str
    high: int


@pytest.fixture
def server() -> Server:  # noqa: C901 - a tool for each thing
    server = Server("weather", version="2.0", instructions="Ask for the weather.", settings=Settings(page_size=2))

    @server.tool
    def forecast(city: str, days: int = 2) -> list[Day]:
        """What comes."""
        return [Day(f"{city} {n}", n) for n in range(days)]

    @server.tool
    def today(into: str = "", timeout: int = 0) -> Day:
        return Day(into, timeout)

    @server.tool
    def words() -> str:
        return "it rains"

    @server.tool
    def picture() -> Any:
        return image(b"\x89PNG", "image/png")

    @server.tool
    def nothing() -> None: ...

    @server.tool
    def fails(why: str) -> str:
        raise ToolError(why)

    @server.tool
    def refuses() -> str:
        raise McpError(-32099, "not today", {"until": "tomorrow"})

    @server.tool(output_schema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    def lies() -> Any:
        return Structured({"n": "many"})

    @server.tool
    async def counts(ctx: Context, to: int) -> int:
        for n in range(to):
            await ctx.progress(n + 1, to, f"step {n + 1}")
        return to

    @server.tool
    async def waits(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.cancelled.wait()
        return "gone"

    @server.tool(long_running=True)
    async def job(n: int) -> int:
        return n * 2

    @server.resource("weather://now")
    def now() -> str:
        return "rain"

    @server.resource("weather://map")
    def chart() -> bytes:
        return b"\x00\x01"

    @server.resource("weather://{city}/report")
    def report(city: str) -> str:
        return f"rain in {city}"

    @server.prompt
    def pack(city: str, days: str = "1") -> str:
        return f"pack for {days} days in {city}"

    @server.completion("city", prompt="pack")
    def cities(value: str, ctx: Context) -> list[str]:
        return [city for city in ("Oslo", "Osaka", "Rome") if city.startswith(value)]

    return server


@pytest.fixture(params=["legacy", "2026-07-28"])
async def client(server: Server, request: pytest.FixtureRequest) -> AsyncGenerator[Client]:
    async with Client(server, mode=request.param) as client:
        yield client


def structured(client: Client, value: Any) -> Any:
    """A value that is no object, as the client's revision has it in a structured result."""
    return value if client.welcome.is_stateless else {"result": value}


# --- tools


@pytest.mark.row("CL-10")
async def test_a_call_gives_the_value(client: Client) -> None:
    assert await client.call("forecast", city="Oslo") == [{"name": "Oslo 0", "high": 0}, {"name": "Oslo 1", "high": 1}]
    assert await client.call("forecast", city="Oslo", days=1, into=list[Day]) == [Day("Oslo 0", 0)]
    assert await client.call("today", {"into": "x", "timeout": 3}, into=Day) == Day("x", 3)
    assert await client.call("words") == "it rains"
    assert await client.call("words", into=str) == "it rains"
    assert await client.call("picture") == Image(b"\x89PNG", "image/png")
    assert await client.call("picture", into=bytes) == b"\x89PNG"
    assert await client.call("nothing") is None


@pytest.mark.row("CL-10")
async def test_a_call_of_a_tool_gives_all_of_the_answer_and_raises_no_failure(client: Client) -> None:
    reply = await client.call_tool("fails", {"why": "no clouds"})
    assert (reply.is_error, reply.text, reply.raw["isError"]) == (True, "no clouds", True)
    reply = await client.call_tool("today")
    assert (reply.structured_content, reply.is_error) == ({"name": "", "high": 0}, False)
    assert reply.content == [Text('{"name":"","high":0}')]


async def test_a_failed_tool_says_why(client: Client) -> None:
    with pytest.raises(ToolFailed, match=r"^fails: no clouds$") as failed:
        await client.call("fails", why="no clouds")
    assert isinstance(failed.value, ToolError)
    assert (failed.value.name, failed.value.reply.is_error, failed.value.content) == (
        "fails",
        True,
        [Text("no clouds")],
    )


@pytest.mark.row("CL-19")
async def test_an_error_of_the_servers_has_its_code_and_its_data(client: Client) -> None:
    with pytest.raises(PeerError, match="not today") as failed:
        await client.call("refuses")
    code = -32603 if client.welcome.is_stateless else -32099  # the later revision keeps these codes for itself
    assert (failed.value.code, failed.value.data) == (code, {"until": "tomorrow"})
    with pytest.raises(PeerError) as failed:
        await client.call("no such tool")
    assert failed.value.code == -32602


async def test_an_answer_that_is_not_what_was_promised_or_wanted_is_told_with_all_that_is_wrong(server: Server) -> None:
    async with Client(server) as client:
        with pytest.raises(BadAnswer, match="the reply of lies does not match its output schema: n: ") as failed:
            await client.call("lies")
        assert [problem.path for problem in failed.value.problems] == [("n",)]
        assert (await client.call_tool("lies")).structured_content == {"n": "many"}
        with pytest.raises(BadAnswer, match="the result of words is no int"):
            await client.call("words", into=int)
        with pytest.raises(BadHint):
            await client.call("words", into=object())
    async with Client(server, check_output=False) as client:
        assert await client.call("lies") == {"n": "many"}


async def test_tools_that_change_promise_something_else(server: Server, client: Client) -> None:
    assert await client.call("today", into=Day) == Day("", 0)

    def instead() -> list[int]:
        return [1]

    async with client.listen("notifications/tools/list_changed") as updates:
        server.registry.register_tool("today", instead)
        await anext(aiter(updates))
    assert await client.call("today") == [1]


@pytest.mark.row("CL-11")
async def test_progress_comes_before_the_result_and_in_order(server: Server) -> None:
    told: list[Any] = []

    async def tell(step: Progress) -> None:
        await asyncio.sleep(0)
        told.append(step.message)

    async with Client(server, on_progress=lambda step: told.append(step.progress)) as client:
        await client.call_tool("counts", {"to": 3}, on_progress=tell)
        assert told == ["step 1", "step 2", "step 3"]
        assert await client.call("counts", to=2) == 2
        assert told[3:] == [1, 2]


async def test_a_function_for_progress_that_fails_takes_nothing_with_it(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(step: Progress) -> None:
        raise ValueError(step.progress)

    assert (await client.call_tool("counts", {"to": 2}, on_progress=fail)).data == structured(client, 2)
    assert caplog.text.count("the function for the progress of counts failed") == 2


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
async def test_a_function_for_progress_ends_neither_the_loop_nor_its_call(
    client: Client, error: type[BaseException]
) -> None:
    async def leave(step: Progress) -> None:
        raise error(step.progress)

    assert (await client.call_tool("counts", {"to": 2}, on_progress=leave)).data == structured(client, 2)
    assert await client.call("counts", to=1) == 1


@pytest.mark.row("CL-15")
async def test_a_call_can_be_held_on_to_followed_and_cancelled(client: Client) -> None:
    call = client.start_tool("counts", {"to": 2})
    assert [step.progress async for step in call.progress()] == [1, 2]
    assert (await call).structured_content == structured(client, 2)
    assert "counts" in repr(call)
    call = client.start_tool("waits")
    async for _ in call.progress():
        call.cancel("enough")
    with pytest.raises(RequestCancelled, match="enough"):
        await call.result()


@pytest.mark.row("CL-16")
async def test_a_deadline_is_of_one_view_only(client: Client) -> None:
    quick = client.within(0.05)
    with pytest.raises(RequestTimeout, match="tools/call"):
        await quick.call("waits")
    assert await client.within(None).call("words") == "it rains"
    assert "within(0.05)" in repr(quick)


# --- lists and readings


@pytest.mark.row("CL-08", "CL-09")
async def test_lists_come_whole_and_by_the_page(client: Client) -> None:
    tools = await client.list_tools()
    assert len(tools) == 11
    promising = ["counts", "forecast", "lies", "today"]
    if client.welcome.is_stateless:  # what a task promises is told in this revision alone
        promising = sorted([*promising, "job"])
    assert [tool.name for tool in tools if tool.output_schema] == promising
    page = await client.list_tools_page()
    assert len(page) == 2
    assert page.next_cursor is not None
    assert [tool.name for tool in await client.list_tools_page(page.next_cursor)] == [tool.name for tool in tools[2:4]]
    assert {resource.uri for resource in await client.list_resources()} == {"weather://now", "weather://map"}
    assert [template.uri_template for template in await client.list_resource_templates()] == ["weather://{city}/report"]
    assert [prompt.name for prompt in await client.list_prompts()] == ["pack"]


@pytest.mark.row("CL-09")
async def test_a_list_without_an_end_is_given_up(server: Server) -> None:
    async with Client(server, settings=ClientSettings(max_pages=3)) as client:
        with pytest.raises(TooManyPages, match="weather has more than 3 pages"):
            await client.list_tools()


@pytest.mark.row("CL-12")
async def test_resources_are_read_and_watched(server: Server, client: Client) -> None:
    assert (await client.read_resource("weather://now")).text == "rain"
    assert (await client.read_resource("weather://map")).blob == b"\x00\x01"
    assert (await client.read_resource("weather://Rome/report")).text == "rain in Rome"
    with pytest.raises(PeerError):
        await client.read_resource("weather://nowhere/at/all")
    async with client.subscribe("weather://now") as updates:
        server.notify_resource_updated("weather://now")
        told = await anext(aiter(updates))
    assert told.params["uri"] == "weather://now"


@pytest.mark.row("CL-13")
async def test_prompts_are_rendered_and_completed(client: Client) -> None:
    prompt = await client.get_prompt("pack", city="Oslo", days=3)
    assert prompt.messages == [Message("user", Text("pack for 3 days in Oslo"))]
    assert (await client.get_prompt("pack", {"city": "Oslo"})).text == "pack for 1 days in Oslo"
    [listed] = await client.list_prompts()
    for of in ("pack", listed, {"type": "ref/prompt", "name": "pack"}):
        assert (await client.complete(of, "city", "Os")).values == ["Oslo", "Osaka"]


async def test_templates_are_named_by_what_they_are(client: Client) -> None:
    [template] = await client.list_resource_templates()
    for of in ("weather://{city}/report", template):
        assert (await client.complete(of, "city", "Os", {"other": "x"})).values == []


@pytest.mark.row("CL-13", "CL-24")
async def test_the_server_says_who_it_is_and_answers(client: Client) -> None:
    assert client.server_info["version"] == "2.0"
    assert client.protocol_version == ("2026-07-28" if client.welcome.is_stateless else "2025-11-25")
    assert client.instructions == "Ask for the weather."
    assert "tools" in client.server_capabilities
    assert await client.ping() >= 0
    await client.set_log_level("error")
    with pytest.raises(ValueError, match="level is one of"):
        await client.set_log_level("loud")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert await client.request("ping") == {}
    await client.notify("notifications/initialized")
    assert client.status.phase.value == "ready"


@pytest.mark.row("CL-04", "CL-18")
async def test_an_unsupported_request_is_refused_without_sending_it() -> None:
    silent = Client(Server("silent"))
    with pytest.raises(NotReady, match="open the client"):
        _ = silent.server_info
    with pytest.raises(NotReady):
        await silent.call("anything")
    async with silent:
        with pytest.raises(Unsupported, match="completion"):
            await silent.complete("pack", "city")


# --- tasks


@pytest.mark.row("CL-14", "TF-13")
async def test_tasks_are_begun_waited_for_and_read(server: Server) -> None:
    async with Client(server, mode="legacy") as client:
        asked = await client.call_tool("job", {"n": 4}, task=60)
        assert asked.task is not None
        assert (await client.tasks_wait(asked.task)).status == "completed"
        assert (await client.tasks_result(asked.task)).structured_content == {"result": 8}
        assert (await client.tasks_get(asked.task.id)).over
        assert [task.id for task in await client.tasks_list()] == [asked.task.id]
        with pytest.raises(PeerError) as failed:
            await client.tasks_cancel(asked.task)
        assert failed.value.code == -32602
        with pytest.raises(NotInRevision, match="has no tasks/update: pass functions that answer"):
            await client.tasks_update(asked.task, {})


@pytest.mark.row("26-T6", "26-T11")
async def test_the_same_methods_serve_tasks_of_the_stateless_era(server: Server) -> None:
    async with Client(server, mode="2026-07-28") as client:
        assert await client.call("job", n=4) == 8
        asked = await client.call_tool("job", {"n": 4}, task=60)
        assert asked.task is not None
        assert (await client.tasks_wait(asked.task)).status == "completed"
        assert (await client.tasks_result(asked.task)).data == 8
        ended = await client.tasks_get(asked.task.id)
        assert ended.result is not None
        assert ended.result["structuredContent"] == 8
        assert (await client.tasks_cancel(asked.task)).status == "completed"
        with pytest.raises(
            NotInRevision, match=r"2026-07-28, which the server speaks, has no tasks/list: keep the ids"
        ):
            await client.tasks_list()


@pytest.mark.row("CL-10", "TF-13")
async def test_a_task_that_was_not_asked_for_is_read_all_the_same(server: Server) -> None:
    async with Client(server, mode="legacy") as client:
        reply = await client.call_tool("job", {"n": 4})
        assert reply.task is not None
        assert reply.task.id in reply.text
        assert (await client.tasks_result(reply.task)).data == {"result": 8}


# --- targets


@pytest.mark.parametrize(
    ("target", "advice"),
    [
        ("uvx mcp-server-git", "write Command('uvx', 'mcp-server-git')"),
        ("server.py", r"write Command\(sys.executable, 'server.py'\)"),
        (Path("server.py"), r"write Command\(sys.executable"),
        ("ws://there", "ws:// is not supported"),
        (7, "not 7"),
        ([], "a target is a URL"),
    ],
)
def test_an_invalid_target_is_refused_with_what_to_write(target: Any, advice: str) -> None:
    with pytest.raises(ConfigError, match=advice.replace("('", r"\('").replace("')", r"'\)")):
        Client(target)


@pytest.mark.row("CL-10")
@pytest.mark.greenroom
async def test_arguments_that_cannot_be_written_are_refused_before_anything_is_sent() -> None:
    within: dict[str, Any] = {}
    within["itself"] = within
    async with Client(Server("strict")) as client:
        with pytest.raises(
            LocalProtocolError, match="the arguments of 'add' cannot be written as JSON: nested too deeply"
        ):
            await client.call("add", a=within)
        with pytest.raises(
            LocalProtocolError, match="the params of my/word cannot be written as JSON: object cannot be expressed"
        ):
            await client.request("my/word", {"it": object()})
