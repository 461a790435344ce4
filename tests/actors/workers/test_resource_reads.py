"""Reading resources: which function is called, with which arguments, and how its value becomes contents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.content import text_resource
from greenroom.protocol.errors import McpError
from greenroom.protocol.handler_results import WithMeta

if TYPE_CHECKING:
    from greenroom.actors.context import Context

    from .job_runner import FakeServices, JobRunner


def first(path: str) -> str:
    return f"first {path}"


def second(name: str) -> str:
    return f"second {name}"


def both(args: dict[str, str]) -> str:
    return f"{args['x']}+{args['y']}"


def same(x: str) -> str:
    return x


async def read(runner: JobRunner, uri: str) -> dict[str, Any]:
    return await (await runner.start("resources/read", {"uri": uri})).result()


RETURNED: list[tuple[Any, dict[str, Any]]] = [
    ("text", {"uri": "a://b", "mimeType": "text/plain", "text": "text"}),
    (b"\x00\x01", {"uri": "a://b", "mimeType": "application/octet-stream", "blob": "AAE="}),
    ({"text": "t", "mimeType": "text/html"}, {"uri": "a://b", "mimeType": "text/html", "text": "t"}),
    ({"blob": b"\x00", "mimeType": "x/y"}, {"uri": "a://b", "mimeType": "x/y", "blob": "AA=="}),
    ({"n": 1}, {"uri": "a://b", "mimeType": "application/json", "text": '{"n":1}'}),
]


@pytest.mark.row("RG-16")
@pytest.mark.parametrize(("value", "contents"), RETURNED)
async def test_a_resources_return_value_becomes_its_contents(
    services: FakeServices, runner: JobRunner, value: Any, contents: dict[str, Any]
) -> None:
    async def resource() -> Any:
        return value

    services.resource("a://b", resource)
    assert await read(runner, "a://b") == {"contents": [contents]}


@pytest.mark.row("RG-16")
async def test_a_resource_may_have_many_parts(services: FakeServices, runner: JobRunner) -> None:
    async def parts() -> list[Any]:
        return [{"text": "1"}, text_resource("a://own", "2")]

    services.resource("a://b", parts)
    assert await read(runner, "a://b") == {
        "contents": [{"uri": "a://b", "mimeType": "text/plain", "text": "1"}, {"uri": "a://own", "text": "2"}]
    }


@pytest.mark.row("RG-09")
async def test_the_registered_media_type_is_for_what_names_none(services: FakeServices, runner: JobRunner) -> None:
    services.resource("a://b", lambda: "# hello", mime_type="text/markdown")
    assert (await read(runner, "a://b"))["contents"][0]["mimeType"] == "text/markdown"


@pytest.mark.row("RG-22", "TF-24")
async def test_a_resource_sees_its_uri_and_params_in_its_context(services: FakeServices, runner: JobRunner) -> None:
    async def resource(ctx: Context) -> str:
        return f"{ctx.uri} {ctx.params['uri']} {ctx.name}"

    services.resource("a://b", resource)
    assert (await read(runner, "a://b"))["contents"][0]["text"] == "a://b a://b a://b"


async def test_a_resource_may_take_the_requests_params_in_one_dict(services: FakeServices, runner: JobRunner) -> None:
    async def resource(args: dict[str, Any]) -> str:
        return str(args["uri"])

    services.resource("a://b", resource)
    assert (await read(runner, "a://b"))["contents"][0]["text"] == "a://b"


@pytest.mark.row("RG-17", "RG-18")
async def test_the_exact_resource_goes_before_templates_and_the_first_template_before_others(
    services: FakeServices, runner: JobRunner
) -> None:
    services.template("file:///{path}", first)
    services.template("file:///etc/{name}", second)
    services.resource("file:///etc/motd", lambda: "exact")
    assert (await read(runner, "file:///etc/motd"))["contents"][0]["text"] == "exact"
    assert (await read(runner, "file:///etc/hosts"))["contents"][0]["text"] == "first etc/hosts"


@pytest.mark.row("RG-17", "RG-19")
async def test_variables_are_passed_by_name_decoded_and_converted(services: FakeServices, runner: JobRunner) -> None:
    async def day(city: str, number: int, ctx: Context) -> str:
        return f"{city} {number + 1} {ctx.variables} {ctx.uri}"

    services.template("weather://{city}/days/{number}", day)
    text = (await read(runner, "weather://New%20York/days/3"))["contents"][0]["text"]
    assert text == ("New York 4 {'city': 'New York', 'number': '3'} weather://New%20York/days/3")


@pytest.mark.row("RG-17")
async def test_variables_may_be_passed_in_one_dict(services: FakeServices, runner: JobRunner) -> None:
    services.template("a://{x}/{y}", both)
    assert (await read(runner, "a://1/2"))["contents"][0]["text"] == "1+2"


async def test_a_variable_that_does_not_fit_its_hint_is_the_readers_error(
    services: FakeServices, runner: JobRunner
) -> None:
    async def day(number: int) -> str:
        return str(number)

    services.template("days://{number}", day)
    error = await (await runner.start("resources/read", {"uri": "days://three"})).error()
    assert error["code"] == -32602
    assert "number" in error["message"]


@pytest.mark.row("WC-26", "RG-06")
async def test_an_unknown_resource_is_an_error_with_its_uri(services: FakeServices, runner: JobRunner) -> None:
    services.template("a://{x}", same)
    for uri in ("b://c", "a://../etc"):
        error = await (await runner.start("resources/read", {"uri": uri})).error()
        assert error == {"code": -32002, "message": "Resource not found", "data": {"uri": uri}}


@pytest.mark.row("WC-19")
async def test_meta_and_errors_go_through(services: FakeServices, runner: JobRunner) -> None:
    def gone() -> str:
        raise McpError(-32002, "gone", {"uri": "a://gone"})

    services.resource("a://meta", lambda: WithMeta("x", {"age": 1}))
    services.resource("a://gone", gone)
    assert (await read(runner, "a://meta"))["_meta"] == {"age": 1}
    error = await (await runner.start("resources/read", {"uri": "a://gone"})).error()
    assert error == {"code": -32002, "message": "gone", "data": {"uri": "a://gone"}}
