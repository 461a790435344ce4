"""Typical mistakes with hosts, clients, gateways and configurations: messages say what was wrong and what to write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from greenroom import Client, Command, Host, NotReady, Server
from greenroom.actors.consent.rules import Permissions
from greenroom.actors.federation.federation_errors import UnknownServer
from greenroom.actors.federation.upstream_spec import UpstreamSpec
from greenroom.auth import OAuth
from greenroom.config.config_reader import read
from greenroom.errors import GreenroomError
from greenroom.host import Consent
from greenroom.transports import HttpRoute

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


WRONG: Any = 5
"""Mistakes that a type checker finds, and that a program finds at run time."""
DICT: Any = {"command": "uvx"}
PROMPTS: Any = ["prompts"]
LIST: Any = [Server("s")]
TUPLES: Any = [("deny", "x")]
TEXT: Any = "x"
UPSTREAM_ALONE: Any = Server("s")


def _one(request: Any) -> Any:
    return request


def _two(server: Any, request: Any) -> Any:
    return server, request


ONE: Any = _one
TWO: Any = _two


def _twice() -> None:
    server = Server("front")
    server.mount(Host({}))
    server.mount(Host({}))


async def _late() -> None:
    server = Server("front")
    async with server.started():
        server.mount(Host({}))


MADE: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "a command as one text": (
        lambda: Host({"git": "uvx mcp-server-git"}),
        ("not a URL", "Command('uvx', 'mcp-server-git')"),
    ),
    "a file": (lambda: Host({"x": "server.py"}), ("server.py is a file", "Command(sys.executable, 'server.py')")),
    "another scheme": (lambda: Host({"x": "ftp://example.org"}), ("ftp://", "http:// or https://")),
    "a number": (lambda: Host({"x": WRONG}), ("a URL, a Command(…), a Server", "5")),
    "a dict as of a file": (
        lambda: Host({"x": DICT}),
        ("a URL, a Command(…), a Server",),
    ),
    "a separator in an id": (lambda: Host({"a:b": Server("s")}), ("without ':'", "'a:b'")),
    "an empty id": (lambda: Host({"": Server("s")}), ("a server's id", "''")),
    "no program": (lambda: Host({"x": Command("")}), ("command",)),
    "an unknown policy for arguments": (
        lambda: Host({}, invalid=WRONG),
        ("'raise', 'result' or 'send'", "5"),
    ),
    "an empty separator": (lambda: Host({}, separator=""), ("separator", "one character or more")),
    "an alias of no tool": (lambda: Host({}, aliases={"log": "history"}), ("git:log", "'log'")),
    "two tools with one alias": (lambda: Host({}, aliases={"a:x": "y", "b:x": "y"}), ("y", "a", "b")),
    "an empty alias": (lambda: Host({}, aliases={"a:x": ""}), ("alias", "'a:x'", "empty")),
    "no list of tools": (lambda: UpstreamSpec(WRONG, lists=PROMPTS), ("tools among them", "prompts")),
    "no room for calls": (lambda: UpstreamSpec(WRONG, concurrent=0), ("concurrent is 1 or more",)),
    "a timeout that is none": (lambda: UpstreamSpec(WRONG, tool_timeout=0), ("tool_timeout is more than 0", "None")),
    "a client of a file": (
        lambda: Client("server.py"),
        ("server.py is a file", "Command(sys.executable, 'server.py')"),
    ),
    "a client without a scheme": (lambda: Client("localhost:8000/mcp"), ("localhost:8000/mcp", "not a URL")),
    "headers for a command": (
        lambda: Client(["uvx", "x"], headers={"A": "b"}),
        ("headers and auth are for a server at a URL",),
    ),
    "auth for a route": (
        lambda: Client(HttpRoute("https://x.example/mcp"), auth="abc"),
        ("write Client(HttpRoute(url, headers=…, credentials=…))",),
    ),
    "a token with its scheme": (
        lambda: Client("https://x.example/mcp", auth="Bearer abc"),
        ("one word", "without `Bearer`"),
    ),
    "a token in the open": (lambda: Client("http://x.example/mcp", auth="abc"), ("is not https", "token")),
    "auth of a wrong kind": (lambda: Client("https://x.example/mcp", auth=WRONG), ("a token, OAuth(…)", "int")),
    "a header with a line": (lambda: Client("https://x.example/mcp", headers={"A": "b\nc"}), ("A",)),
    "a secret without a client": (lambda: OAuth(client_secret="x"), ("client_secret and key need client_id",)),
    "half of the endpoints": (
        lambda: OAuth(token_endpoint="https://x.example"),
        ("both authorization_endpoint and token_endpoint, or neither",),
    ),
    "a port that is none": (lambda: OAuth(port=70000), ("0 to 65535", "70000")),
    "a client document without a path": (
        lambda: OAuth(client_metadata_url="https://x.example"),
        ("https URL with a path",),
    ),
    "no such file": (
        lambda: Host.from_config("/no/such/greenroom.toml"),
        ("/no/such/greenroom.toml", "cannot be read"),
    ),
    "servers in a list": (lambda: Host(LIST), ('Host({"notes": server})', "[")),
    "one server alone": (lambda: Host(UPSTREAM_ALONE), ('Host({"notes": server})',)),
    "a function for consent": (lambda: Host({}, consent=WRONG), ("Consent(ask=function)", "5")),
    "a text to ask": (lambda: Consent(ask=TEXT), ("ask has to be a function of one argument (question)", "'x'")),
    "a hook of two": (lambda: Consent(hook=TWO), ("hook has to be a function of one argument (question)",)),
    "permissions in a dict for consent": (lambda: Consent(DICT), ("Consent(Permissions([Rule(",)),
    "rules in a dict": (lambda: Permissions(DICT), ('Permissions([Rule("deny", "git:push")])', "{")),
    "rules in tuples": (lambda: Permissions(TUPLES), ('Permissions([Rule("deny", "git:push")])', "('deny', 'x')")),
    "no rules at all": (lambda: Permissions(WRONG), ('Permissions([Rule("deny", "git:push")])', "5")),
    "elicitation that is none": (lambda: Client(UPSTREAM_ALONE, elicitation=TEXT), ("1 (request)", "'x'")),
    "elicitation of two for a client": (lambda: Client(UPSTREAM_ALONE, elicitation=TWO), ("1 (request)",)),
    "elicitation of one for a host": (
        lambda: Host({}, elicitation=ONE),
        ("elicitation is a function of 2 (server, request)",),
    ),
    "sampling of one for a host": (lambda: Host({}, sampling=ONE), ("2 (server, request)",)),
    "a page of one for a host": (lambda: Host({}, url_elicitation=ONE), ("2 (server, request)",)),
    "roots of two for a host": (lambda: Host({}, roots=TWO), ("roots is a function of 1 (server)",)),
    "a log of one for a host": (lambda: Host({}, on_log=ONE), ("2 (server, message)",)),
    "progress that is none": (lambda: Client(UPSTREAM_ALONE, on_progress=TEXT), ("1 (step)",)),
    "a log of two for a client": (lambda: Client(UPSTREAM_ALONE, on_log=TWO), ("1 (message)",)),
    "notifications of two": (lambda: Client(UPSTREAM_ALONE, on_notification=TWO), ("1 (notification)",)),
    "roots of one for a client": (lambda: Client(UPSTREAM_ALONE, roots=ONE), ("roots is a function of 0 ()",)),
    "a host mounted twice": (_twice, ("prefix", "give this one another")),
    "a server to mount that runs": (lambda: asyncio.run(_late()), ("mount", "before")),
}


@pytest.mark.parametrize("mistake", MADE)
def test_a_mistake_in_code_is_named_with_what_to_write(mistake: str) -> None:
    make, says = MADE[mistake]
    with pytest.raises((GreenroomError, TypeError, ValueError)) as caught:
        make()
    said = str(caught.value)
    assert [each for each in says if each not in said] == [], said


WRITTEN: dict[str, tuple[str, tuple[str, ...]]] = {
    "no TOML": ("[server.x\n", ("greenroom.toml:1",)),
    "a table of another name": ('[servers.x]\ncommand = "y"\n', ("servers", "server")),
    "an unknown key": ('[server.x]\ncommandd = "y"\n', ("commandd", "did you mean command")),
    "neither command nor url": ("[server.x]\n", ("server x", "command")),
    "a url without its transport": ('[server.x]\nurl = "https://x.example"\n', ("transport", "http")),
    "a url that is none": ('[server.x]\ntransport = "http"\nurl = "x.example"\n', ("url", "http")),
    "a number for a text": ("[server.x]\ncommand = 5\n", ("command", "text")),
    "a text for a list": ('[server.x]\ncommand = "y"\nargs = "--fast"\n', ("args", "list")),
    "a text for seconds": ('[server.x]\ncommand = "y"\ntimeouts = { tool = "5s" }\n', ("timeouts.tool", "number")),
    "an unknown timeout": ('[server.x]\ncommand = "y"\ntimeouts = { tools = 5 }\n', ("tools", "did you mean tool")),
    "no such transport": (
        '[server.x]\ntransport = "websocket"\nurl = "https://x.example"\n',
        ("transport", "stdio", "http"),
    ),
    "a variable that is not set": ('[server.x]\ncommand = "${NO_SUCH_VARIABLE}"\n', ("NO_SUCH_VARIABLE",)),
    "an open variable": ('[server.x]\ncommand = "${HOME"\n', ("command", "}")),
    "a name with a blank": ('[server."my server"]\ncommand = "y"\n', ("my server",)),
    "a rule of a wrong kind": ("[permissions]\nallow = 5\n", ("allow", "list")),
    "an unknown verdict": ('[permissions]\npermit = ["x"]\n', ("permit",)),
    "no JSON": ("{", ("json:1",)),
    "JSON of a wrong kind": ("[]", ("json", "object")),
}


@pytest.mark.parametrize("mistake", WRITTEN)
def test_a_mistake_in_a_file_is_named_with_its_line_and_what_to_write(tmp_path: Path, mistake: str) -> None:
    text, says = WRITTEN[mistake]
    file = tmp_path / ("greenroom.json" if mistake.startswith(("no JSON", "JSON")) else "greenroom.toml")
    file.write_text(text)
    said = "\n".join(map(str, read(file).mistakes))
    assert str(file) in said
    assert [each for each in says if each not in said] == [], said


async def test_a_command_in_one_text_is_told_to_be_split() -> None:
    with pytest.raises(GreenroomError, match=r"write Command\('python', 'notes\.py'\)"):
        async with Client(Command("python notes.py")):
            raise AssertionError("it was started")


UPSTREAM = Server("up")


@UPSTREAM.tool
def forecast(city: str) -> str:
    return city


NOT_OPEN: dict[str, Callable[[Host], Any]] = {
    "tools": lambda host: host.tools(),
    "catalogue": lambda host: host.catalogue(),
    "to_anthropic": lambda host: host.to_anthropic(),
    "to_openai": lambda host: host.to_openai(),
    "to_gemini": lambda host: host.to_gemini(),
    "call": lambda host: host.call("up:forecast", city="Oslo"),
    "call_tool": lambda host: host.call_tool("up:forecast", {"city": "Oslo"}),
    "run": lambda host: host.run({"type": "tool_use", "id": "1", "name": "up__forecast", "input": {"city": "Oslo"}}),
    "a provider's call": lambda host: host.from_anthropic_call(
        {"type": "tool_use", "id": "1", "name": "up__forecast", "input": {}}
    ),
    "resources": lambda host: host.resources(),
    "prompts": lambda host: host.prompts(),
    "read_resource": lambda host: host.read_resource("up:note://one"),
    "get_prompt": lambda host: host.get_prompt("up:hello"),
    "pin": lambda host: host.pin(),
    "pin_report": lambda host: host.pin_report(),
    "its server": lambda host: host.server("up").call("forecast", city="Oslo"),
    "its mentions": lambda host: host.mentions.read("@up:note://one"),
    "its apps": lambda host: host.apps.open("up:forecast"),
    "the URI of an app": lambda host: host.apps.uri_of("up:forecast"),
    "the document of an app": lambda host: host.apps.read("up", "ui://up/board"),
    "its skills": lambda host: host.skills.list(),
    "one skill": lambda host: host.skills.get("up", "skill://a/SKILL.md"),
}


@pytest.mark.parametrize("word", NOT_OPEN)
async def test_a_host_that_is_not_open_says_so(word: str) -> None:
    host = Host({"up": UPSTREAM})
    with pytest.raises(NotReady, match="the host is not open: write `async with host:`"):
        await NOT_OPEN[word](host)


async def test_a_host_that_was_closed_says_so() -> None:
    async with Host({"up": UPSTREAM}) as host:
        pass
    with pytest.raises(NotReady, match="the host is not open"):
        await host.tools()


async def test_a_client_that_is_not_open_says_so() -> None:
    client = Client(UPSTREAM)
    for call in (client.call("forecast", city="Oslo"), client.list_tools(), client.ping(), client.notify("x")):
        with pytest.raises(NotReady, match="client of up is not open: write `async with client:`"):
            await call
    async with client:
        pass
    with pytest.raises(GreenroomError, match="closed: use it inside its `async with` block"):
        await client.list_tools()


async def test_a_configured_server_with_a_mistake_is_told_with_it_when_it_is_called(tmp_path: Path) -> None:
    file = tmp_path / "greenroom.toml"
    file.write_text('[server.desk]\ncommandd = "x"\n[server.unset]\ncommand = "${NO_SUCH_VARIABLE}"\n')
    async with Host.from_config(file) as host:
        block: dict[str, Any] = {"type": "tool_use", "id": "1", "name": "desk__call", "input": {}}
        read = str((await host.run(block))["content"])
        for call in (host.call("desk:call"), host.read_resource("desk:x"), host.call_tool("desk:call")):
            with pytest.raises(UnknownServer) as caught:
                await call
            assert str(caught.value).startswith("the server 'desk' was not started: ")
            assert f"{file}:2" in str(caught.value)
            assert "did you mean command" in str(caught.value)
            assert f"{file}:2" in read
        with pytest.raises(UnknownServer, match=r"toml:4: .*NO_SUCH_VARIABLE"):
            host.server("unset")
        with pytest.raises(UnknownServer, match="there is no server called 'unknown'"):
            await host.call("unknown:x")


async def _of(host: Host) -> None:
    await host.server("down").list_tools()


CALLED: dict[str, tuple[Callable[[Host], Any], tuple[str, ...]]] = {
    "a tool without its server": (lambda host: host.call("forecast", city="Oslo"), ("write up:forecast",)),
    "an unknown tool without its server": (lambda host: host.call("fly"), ("write SERVER:fly",)),
    "a resource without its server": (lambda host: host.read_resource("note"), ("write SERVER:note",)),
    "an unknown server": (lambda host: host.call("down:forecast", city="Oslo"), ("down", "up")),
    "an unknown tool": (lambda host: host.call("up:forcast", city="Oslo"), ("forcast", "up:forecast")),
    "a missing argument": (lambda host: host.call("up:forecast"), ("up:forecast", "city")),
    "an argument of a wrong type": (lambda host: host.call("up:forecast", city=5), ("city", "string")),
    "a server that is there": (lambda host: host.add("up", Server("x")), ("there is a server 'up' already", "replace")),
    "a server that is not there": (lambda host: host.remove("down"), ("down", "up")),
    "another server's words": (_of, ("down", "up")),
}


@pytest.mark.parametrize("mistake", CALLED)
async def test_a_mistake_in_a_call_is_named_with_what_to_write(mistake: str) -> None:
    call, says = CALLED[mistake]
    async with Host({"up": UPSTREAM}, patience=30.0) as host:
        await host.router.catalogue()
        with pytest.raises(GreenroomError) as caught:
            await call(host)
    said = str(caught.value)
    assert [each for each in says if each not in said] == [], said
