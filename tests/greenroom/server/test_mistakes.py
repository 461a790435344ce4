"""Mistakes of a server's author are reported where they are made, with what to write instead."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from enum import Flag
from typing import TYPE_CHECKING, Any, TypedDict

import pytest

from greenroom import ConfigError, Icon, McpServer, RegistrationError, Server, Settings, ToolAnnotations
from greenroom.wire_probe import WireProbe

if TYPE_CHECKING:
    from collections.abc import Callable


build: Any = Server
setting: Any = Settings
"""Decorate without a type checker's help."""


class City(TypedDict):
    name: str


class Partial(TypedDict, total=False):
    days: int


def tool() -> str:
    return "ok"


@pytest.mark.row("RG-05", "RG-08")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"title": 5}, '"title" must be a string'),
        ({"description": 5}, '"description" must be a string'),
        ({"meta": "x"}, "meta is a dict"),
        ({"icons": "http://x/y.png"}, "icons is a list of Icon"),
        ({"icons": [5]}, "icons"),
        ({"icons": [{"source": "http://x/y.png"}]}, "src"),
        ({"annotations": {"readOnlyHint": "yes"}}, '"annotations.readOnlyHint" must be a boolean'),
        ({"bogus": 1}, "a tool has no option 'bogus': it has"),
        ({"titel": "x"}, "did you mean title"),
    ],
)
def test_options_that_clients_would_choke_on_are_refused(options: dict[str, Any], why: str) -> None:
    server = Server("x")
    with pytest.raises(RegistrationError, match=why):
        server.tool(**options)(tool)
    assert server.registry.catalogue.tool("tool") is None


def test_options_that_are_right_stay_right() -> None:
    server = Server("x")
    hints = {"readOnlyHint": True, "com.example/mine": [1]}
    server.tool("one", icons=[Icon("https://x/y.png")], annotations=hints, meta={"a": 1})(tool)
    server.tool("two", icons=({"src": "data:,x", "sizes": ["any"]},), annotations=ToolAnnotations(read_only_hint=True))(
        tool
    )
    one = server.registry.catalogue.tool("one")
    assert one is not None
    assert one.wire["annotations"] == hints


@pytest.mark.parametrize(("word", "said"), [("tool", 5), ("prompt", []), ("tool", object())])
def test_a_decorator_argument_that_is_neither_function_nor_name_is_refused(word: str, said: Any) -> None:
    with pytest.raises(RegistrationError, match="neither a function nor a name"):
        getattr(Server("x"), word)(said)


def test_a_method_in_a_class_body_is_told_where_it_belongs() -> None:
    server = Server("x")
    with pytest.raises(RegistrationError, match=r"it is a method of Desk.*McpServer.*Desk\(\)\.ring"):

        class Desk:  # pyright: ignore[reportUnusedClass] - its body is what goes wrong
            @server.tool
            def ring(self) -> str:
                return "ring"

    class Bell:
        def ring(self) -> str:
            return "ring"

    server.tool("bell")(Bell().ring)
    with pytest.raises(RegistrationError, match="method of Bell"):
        server.tool("knock")(Bell.ring)

    def odd(self: str) -> str:
        return self

    server.tool(odd)


@pytest.mark.parametrize("hint", [City, Partial])
async def test_a_typed_dict_is_one_parameter(hint: Any) -> None:
    server = Server("x")

    def plan(where: Any) -> str:
        return ", ".join(f"{name}={value}" for name, value in where.items())

    plan.__annotations__["where"] = hint
    server.tool(plan)
    server.prompt("plan")(plan)
    async with server.started() as company, WireProbe(company) as peer:
        given = {"name": "Oslo"} if hint is City else {"days": 3}
        (text,) = (await peer.call("plan", where=given))["content"]
        assert text["text"] in ("name=Oslo", "days=3")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: build("x", settings={}), r"settings must be Settings"),
        (lambda: build("x", settings={"page_size": 3}), r"settings must be Settings"),
        (lambda: build("x").asgi({}), r"config must be HttpConfig"),
        (lambda: build("x", instructions=5), "instructions must be a text"),
        (lambda: setting(title=b"x"), "title must be a text"),
    ],
)
def test_a_servers_constructor_arguments_are_checked(make: Callable[[], object], why: str) -> None:
    with pytest.raises((ConfigError, ValueError), match=why):
        make()


class Right(Flag):
    READ = 1
    WRITE = 2


@pytest.mark.row("RG-24")
@pytest.mark.parametrize(
    ("hint", "where", "why"),
    [
        (Right, "x", "Right is a Flag.*a list of an Enum's members"),
        (list[Right], "return", "its return hint: Right is a Flag"),
        (Iterable[int], "return", "its return hint: an Iterable may be infinite"),
        (Iterator[int], "return", "its return hint: .*Iterator.* has no schema"),
    ],
)
def test_hints_that_no_schema_can_keep_are_refused(hint: Any, where: str, why: str) -> None:
    def give(x: Any = None) -> Any:
        return x

    give.__annotations__[where] = hint
    with pytest.raises(RegistrationError, match=why):
        Server("x").tool(give)


def test_methods_of_a_class_based_server_are_no_mistake() -> None:
    from greenroom import tool as offer  # noqa: PLC0415 - only here it is a method's decorator

    class Demo(McpServer):
        @offer
        def ring(self) -> str:
            return "ring"

    assert Demo.server("x").registry.catalogue.tool("ring") is not None


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("port", ["taken", 99999])
def test_an_invalid_port_is_reported_without_internal_frames(port: Any, workers: int | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1] if port == "taken" else port
        with pytest.raises((OSError, ConfigError), match=r"the port is in use|port must be") as told:
            named.run("http", port=number, workers=workers)
    here, *ours = [frame.name for frame in told.traceback]
    assert here == "test_an_invalid_port_is_reported_without_internal_frames"
    assert ours == ["checked", "run"]  # which looks at the names of its arguments first
    assert told.value.__suppress_context__


named = Server("named")
