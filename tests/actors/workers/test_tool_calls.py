"""A tool call from its params to its result: styles of functions, validation, and results."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest

from greenroom.actors.catalogue import caller_key, quota_key_of_job
from greenroom.actors.settings import Settings
from greenroom.protocol.errors import McpError, ToolError
from greenroom.protocol.handler_results import CallToolResult, Structured, WithMeta
from greenroom.transports.interfaces import Peer
from greenroom.transports.open_connections import address_of

if TYPE_CHECKING:
    from greenroom.actors.context import Context
    from greenroom.actors.worker_interfaces import Job

    from .job_runner import FakeServices, JobRunner


@pytest.mark.row("TF-01", "TF-03")
async def test_an_async_function_with_hints_is_a_tool(services: FakeServices, runner: JobRunner) -> None:
    async def greet(name: str, times: int = 1) -> str:
        return " ".join([f"Hello, {name}!"] * times)

    services.tool(greet)
    assert await runner.text("greet", name="Ada", times=2) == "Hello, Ada! Hello, Ada!"


async def test_a_call_finds_out_once_which_caller_it_counts_for(
    services: FakeServices, runner: JobRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Job] = []

    def counted(job: Job) -> object:
        asked.append(job)
        return quota_key_of_job(job)

    monkeypatch.setattr("greenroom.actors.worker.quota_key_of_job", counted)

    def count(name: str) -> int:
        return len(name)

    services.tool(count)
    assert await runner.text("count", name="Ada") == "3"
    assert len(asked) == 1


def test_the_address_of_a_caller_is_parsed_once() -> None:
    peer = Peer("http", "198.51.100.77:1")
    assert caller_key(peer) == ("address", "198.51.100.77")
    before = address_of.cache_info().misses
    for port in range(100):
        assert caller_key(Peer("http", f"198.51.100.77:{port}")) == ("address", "198.51.100.77")
    assert address_of.cache_info().misses == before


@pytest.mark.row("TF-01")
async def test_a_function_may_want_its_context_beside_its_arguments(services: FakeServices, runner: JobRunner) -> None:
    async def by_name(city: str, ctx: Any) -> str:
        return f"{ctx.tool_name} {city}"

    async def by_hint(where: Context, city: str) -> str:
        return f"{where.tool_name} {city}"

    async def by_written_hint(where: "Context | None", city: str) -> str:  # noqa: UP037 - it is about the quotes
        assert where is not None
        return f"{where.tool_name} {city}"

    for function in (by_name, by_hint, by_written_hint):
        services.tool(function)
        assert await runner.text(function.__name__, city="Oslo") == f"{function.__name__} Oslo"
        schema = (await _listed(services))[function.__name__]["inputSchema"]
        assert list(schema["properties"]) == ["city"]


async def _listed(services: FakeServices) -> dict[str, Any]:
    tools: Any = services.catalogue_ref.current.all("tool")
    return {name: entry.wire for name, entry in tools.items()}


@pytest.mark.row("TF-01")
async def test_a_function_may_take_all_arguments_in_one_dict(services: FakeServices, runner: JobRunner) -> None:
    whole: Any = eval("lambda args: ','.join(sorted(args))")  # with a hint, it is an argument of that name

    async def one(args: dict[str, Any]) -> str:
        return ",".join(sorted(args))

    bare: Any = eval("lambda arguments, ctx: f'{ctx.request_id} {sorted(arguments)}'")  # a function without hints

    services.tool(whole, "whole")
    services.tool(one)
    services.tool(bare, "bare")
    assert await runner.text("whole", b=1, a=2) == "a,b"
    assert await runner.text("bare", x=1) == "r2 ['x']"
    assert await runner.text("one", args={"b": 1}) == "b"
    assert (await _listed(services))["whole"]["inputSchema"] == {"type": "object"}
    assert list((await _listed(services))["one"]["inputSchema"]["properties"]) == ["args"]


@pytest.mark.row("TF-01")
async def test_plain_functions_run_in_a_thread_with_their_context(services: FakeServices, runner: JobRunner) -> None:
    import threading  # noqa: PLC0415 - what it is about

    def where(ctx: Context) -> str:
        return f"{threading.current_thread() is threading.main_thread()} {ctx.tool_name}"

    services.tool(where)
    assert await runner.text("where") == "False where"


async def test_methods_partials_lambdas_and_objects_are_functions(services: FakeServices, runner: JobRunner) -> None:
    class Shop:
        def __init__(self, name: str) -> None:
            self.name = name

        async def price(self, item: str) -> str:
            return f"{item} at {self.name}"

        async def __call__(self, item: str) -> str:
            return f"called for {item}"

    async def add(a: int, b: int) -> str:
        return str(a + b)

    services.tool(Shop("Ann's").price, "price")
    services.tool(Shop("Ann's"), "shop")
    services.tool(partial(add, b=10), "add_ten")
    services.tool(lambda: "light", "lamp")
    assert await runner.text("price", item="tea") == "tea at Ann's"
    assert await runner.text("shop", item="tea") == "called for tea"
    assert await runner.text("add_ten", a=5) == "15"
    assert await runner.text("lamp") == "light"


async def test_a_plain_function_may_return_an_awaitable(services: FakeServices, runner: JobRunner) -> None:
    async def slow(n: int) -> str:
        return f"waited {n}"

    services.tool(lambda: slow(3), "lazy")
    assert await runner.text("lazy") == "waited 3"


async def test_a_plain_function_may_be_told_to_run_in_the_loop(services: FakeServices, runner: JobRunner) -> None:
    import asyncio  # noqa: PLC0415 - what it is about

    def quick() -> str:
        asyncio.get_running_loop()
        return "in the loop"

    services.tool(quick, isolation="loop")
    assert await runner.text("quick") == "in the loop"


# --- what comes out


@dataclass
class Weather:
    city: str
    degrees: float


RETURNED: list[tuple[Any, dict[str, Any]]] = [
    ("hello", {"content": [{"type": "text", "text": "hello"}], "isError": False}),
    ({"a": 1}, {"content": [{"type": "text", "text": '{"a":1}'}], "isError": False}),
    ({"type": "text", "text": "as is"}, {"content": [{"type": "text", "text": "as is"}], "isError": False}),
    (None, {"content": [], "isError": False}),
    (
        [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}],
        {"content": [{"type": "text", "text": "1"}, {"type": "text", "text": "2"}], "isError": False},
    ),
    (ToolError("no luck"), {"content": [{"type": "text", "text": "no luck"}], "isError": True}),
    (
        Structured({"n": 1}),
        {"content": [{"type": "text", "text": '{"n":1}'}], "structuredContent": {"n": 1}, "isError": False},
    ),
    (
        WithMeta("x", {"trace": 7}),
        {"content": [{"type": "text", "text": "x"}], "isError": False, "_meta": {"trace": 7}},
    ),
    (WithMeta("x", {}), {"content": [{"type": "text", "text": "x"}], "isError": False}),
    (CallToolResult.error("bad"), {"content": [{"type": "text", "text": "bad"}], "isError": True}),
]


@pytest.mark.row("TF-03", "TF-04", "TF-05", "TF-06", "TF-11")
@pytest.mark.parametrize(("value", "result"), RETURNED)
async def test_a_tools_return_value_becomes_its_result(
    services: FakeServices, runner: JobRunner, value: Any, result: Any
) -> None:
    async def tool() -> Any:
        return value

    services.tool(tool)
    assert await runner.result("tool") == result


@pytest.mark.row("TF-04", "TF-09")
async def test_a_raised_tool_error_is_a_result_for_the_model(services: FakeServices, runner: JobRunner) -> None:
    async def loop_error() -> None:
        raise ToolError("the road is closed", {"retry": False})

    def thread_error() -> None:
        raise ToolError("the road is closed", {"retry": False})

    services.tool(loop_error)
    services.tool(thread_error)
    for name in ("loop_error", "thread_error"):
        assert await runner.result(name) == {
            "content": [{"type": "text", "text": "the road is closed"}],
            "isError": True,
            "_meta": {"retry": False},
        }


@pytest.mark.row("TF-09", "TF-11", "TF-25")
async def test_an_mcp_error_that_is_raised_or_returned_is_the_answer(services: FakeServices, runner: JobRunner) -> None:
    async def raised() -> None:
        raise McpError(-32042, "go there first", {"elicitations": []})

    async def returned() -> McpError:
        return McpError(-32042, "go there first", {"elicitations": []})

    services.tool(raised)
    services.tool(returned)
    for name in ("raised", "returned"):
        error = await (await runner.call(name)).error()
        assert error == {"code": -32042, "message": "go there first", "data": {"elicitations": []}}


@pytest.mark.row("TF-05", "WC-19")
async def test_a_return_hint_is_a_promise_of_structured_content(services: FakeServices, runner: JobRunner) -> None:
    async def forecast(city: str) -> list[Weather]:
        return [Weather(city, 3.5)]

    async def count() -> int:
        return 3

    services.tool(forecast)
    services.tool(count)
    assert (await runner.result("forecast", city="Oslo"))["structuredContent"] == {
        "result": [{"city": "Oslo", "degrees": 3.5}]
    }
    assert (await runner.result("count"))["structuredContent"] == {"result": 3}
    assert (await runner.result("count"))["content"] == [{"type": "text", "text": "3"}]
    assert (await _listed(services))["forecast"]["outputSchema"]["required"] == ["result"]


@pytest.mark.row("TF-26")
async def test_a_promise_that_is_broken_is_the_tools_error_and_not_its_callers(
    services: FakeServices, runner: JobRunner
) -> None:
    async def count() -> int:
        return "three"  # type: ignore[return-value]

    services.tool(count)
    result = await runner.result("count")
    assert result["isError"]
    assert "result" in result["content"][0]["text"]


# --- what goes in


@pytest.mark.row("TF-07", "TF-10", "WC-18")
async def test_all_invalid_arguments_are_reported_and_never_reach_the_function(
    services: FakeServices, runner: JobRunner
) -> None:
    calls: list[str] = []

    async def book(city: str, days: Annotated[int, "how long"], kind: Literal["bus", "train"]) -> str:
        calls.append(city)
        return "booked"

    services.tool(book)
    result = await runner.result("book", days="three", kind="boat", more=1)
    assert result["isError"]
    text = result["content"][0]["text"]
    for name in ("city", "days", "kind", "more"):
        assert name in text
    assert calls == []
    assert await runner.text("book", city="Oslo", days=3, kind="bus") == "booked"


@pytest.mark.row("TF-10")
async def test_a_tool_without_parameters_takes_none(services: FakeServices, runner: JobRunner) -> None:
    async def now() -> str:
        return "now"

    services.tool(now)
    assert (await _listed(services))["now"]["inputSchema"] == {"type": "object", "additionalProperties": False}
    assert (await runner.result("now", extra=1))["isError"]
    assert await (await runner.call("now", None)).result() == {
        "content": [{"type": "text", "text": "now"}],
        "isError": False,
    }


SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 1}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.row("TF-07", "TF-08", "RG-08")
async def test_schemas_written_by_hand_are_checked_when_asked_to(services: FakeServices, runner: JobRunner) -> None:
    async def free(n: Any) -> Structured:
        return Structured({"n": n})

    services.tool(free, "open", input_schema=SCHEMA, output_schema=SCHEMA)
    services.tool(free, "checked", input_schema=SCHEMA, output_schema=SCHEMA, validate_input=True)
    services.tool(free, "promising", input_schema=SCHEMA, output_schema=SCHEMA, validate_output=True)
    assert not (await runner.result("open", n="x"))["isError"]
    result = await runner.result("checked", n=0)
    assert result["isError"]
    assert "n" in result["content"][0]["text"]
    assert (await runner.result("promising", n=0))["isError"]
    assert (await runner.result("promising", n=2))["structuredContent"] == {"n": 2}


@pytest.mark.row("TF-10", "TF-08")
async def test_a_strict_company_checks_all_schemas_unless_a_tool_opts_out(
    runner: JobRunner, services: FakeServices
) -> None:
    async def free(n: Any) -> Structured:
        return Structured({"n": n})

    services.settings = Settings(strict=True)
    services.tool(free, "checked", input_schema=SCHEMA, output_schema=SCHEMA)
    services.tool(free, "open", input_schema=SCHEMA, validate_input=False)
    assert (await runner.result("checked", n=0))["isError"]
    assert not (await runner.result("open", n=0))["isError"]


async def test_arguments_beside_a_schema_by_hand_must_still_be_parameters(
    services: FakeServices, runner: JobRunner
) -> None:
    async def narrow(n: Any, o: Any = 0) -> str:
        return "in"

    async def wide(n: Any = 0, **more: Any) -> str:
        return f"{n} {sorted(more)}"

    services.tool(narrow, input_schema={"type": "object"})
    services.tool(wide, input_schema={"type": "object"})
    result = await runner.result("narrow", m=1)
    assert result["isError"]
    assert "n: is missing" in result["content"][0]["text"]
    assert "m: there is no such argument" in result["content"][0]["text"]
    assert await runner.text("wide", a=1, b=2) == "0 ['a', 'b']"


@pytest.mark.row("WC-26", "RG-06")
async def test_a_tool_that_is_not_there_is_an_error_with_its_name(runner: JobRunner) -> None:
    assert await (await runner.call("unknown")).error() == {"code": -32602, "message": "Unknown tool: unknown"}
    error = await (await runner.call("x" * 5000)).error()
    assert len(error["message"]) < 300


async def test_a_call_goes_to_the_tool_that_was_there_when_it_began(services: FakeServices, runner: JobRunner) -> None:
    async def first() -> str:
        return "first"

    async def second() -> str:
        return "second"

    services.tool(first, "tool")
    calling = await runner.call("tool")
    services.tool(second, "tool")
    later = await runner.call("tool")
    assert (await later.result())["content"][0]["text"] == "second"
    assert (await calling.result())["content"][0]["text"] in ("first", "second")
