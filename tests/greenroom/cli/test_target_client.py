"""Targets of commands: Python code with any name and behaviour, and configured servers with their timeouts."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.example_counts import one_in

from greenroom.actors.client.errors import ClientClosed, InputRefused, RequestLost, TaskLost, TooManyPages, Unsupported
from greenroom.actors.consent.rules import ConsentDenied
from greenroom.actors.mentions.mention_reader import TemplateWordsError
from greenroom.cli import login_command
from greenroom.cli.exit_codes import exit_code_for
from greenroom.errors import ConfigError, GreenroomError
from greenroom.protocol.errors import PeerError
from greenroom.supervision import ActorError
from greenroom.supervision.kernel.errors import InternalError
from greenroom.transports.client.errors import ConnectFailed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]


def shown(value: object) -> str:
    words: Any = value
    return " ".join(words) if isinstance(value, tuple) else ""


SLOW = '''
import asyncio, sys
from greenroom import Context, Server

server = Server("slow")

@server.tool
async def slow() -> str:
    """Never."""
    await asyncio.Event().wait()
    return "never"

@server.resource("slow://never")
async def never() -> str:
    """Never."""
    return await slow()

if __name__ == "__main__":
    if "hang" in sys.argv:
        sys.stdin.read()
    else:
        server.run()
'''


@pytest.fixture
def slow(folder: Path) -> Callable[[str], None]:
    """A configured server that answers too late, and its timeouts."""

    def write(times: str, *args: str) -> None:
        (folder / "slow.py").write_text(SLOW)
        words = json.dumps(["slow.py", *args])
        (folder / "greenroom.toml").write_text(
            f"[server.slow]\ncommand = {sys.executable!r}\nargs = {words}\n\n[server.slow.timeouts]\n{times}\n"
        )

    return write


# --- timeouts


@pytest.mark.parametrize(
    ("times", "args", "words", "what"),
    [
        ("tool = 0.2", (), ("call", "slow", "slow"), "tools/call"),
        ("request = 0.2", (), ("read", "slow", "slow://never"), "resources/read"),
        ("connect = 0.2", ("hang",), ("list", "slow"), ""),
    ],
    ids=["tool", "request", "connect"],
)
def test_a_configured_server_has_the_times_of_its_configuration(
    typed: Type, slow: Callable[..., None], times: str, args: tuple[str, ...], words: tuple[str, ...], what: str
) -> None:
    slow(times, *args)
    seen = typed(*words)

    assert (seen.code, seen.out) == (4, "")
    assert "0.2" in seen.err
    assert what in seen.err


@pytest.mark.parametrize("name", ["GREENROOM_MCP_TOOL_TIMEOUT", "MCP_TOOL_TIMEOUT"])
@pytest.mark.parametrize("where", [("slow",), ("slow.py",)], ids=["configured", "file"])
def test_the_environment_says_how_long_a_tool_may_take(
    typed: Type, slow: Callable[..., None], monkeypatch: pytest.MonkeyPatch, name: str, where: tuple[str, ...]
) -> None:
    slow("request = 30")
    monkeypatch.setenv(name, "0.2")
    seen = typed("call", *where, "slow")

    assert (seen.code, "tools/call" in seen.err, "0.2" in seen.err) == (4, True, True)


def test_a_typed_timeout_overrides_the_file_and_the_environment(
    typed: Type, slow: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow("tool = 300", "hang")
    monkeypatch.setenv("GREENROOM_MCP_TIMEOUT", "300")
    monkeypatch.setenv("GREENROOM_MCP_TOOL_TIMEOUT", "300")

    assert "0.3" in typed("list", "slow", "--timeout", "0.3").err
    assert "0.3" in typed("call", "slow.py", "slow", "--timeout", "0.3").err


@pytest.mark.parametrize("typed_", ["0", "-1", "nan", "inf", "soon"])
def test_an_invalid_timeout_is_a_usage_error(typed: Type, typed_: str) -> None:
    seen = typed("list", "weather.py", "--timeout", typed_)

    assert (seen.code, f"{typed_!r} is not a number of seconds" in seen.err) == (2, True)


# --- the port of the redirect


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The port of the redirect after a sign-in."""
    found: list[int] = []

    async def signed_in(place: Any) -> None:
        found.append(place.auth.port)

    monkeypatch.setattr(login_command, "_sign_in", signed_in)
    monkeypatch.setattr(login_command, "is_terminal", lambda: True)

    def of(typed: Type, *words: str) -> int:
        assert typed("login", "http://127.0.0.1:9/mcp", *words).code == 0
        return found.pop()

    return of


@pytest.mark.row("CB-08")
def test_the_port_that_is_typed_wins_over_the_environments(
    typed: Type, port: Callable[..., int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert port(typed) == 0
    monkeypatch.setenv("GREENROOM_MCP_OAUTH_PORT", "7001")
    assert port(typed) == 7001
    assert port(typed, "--mcp-oauth-port", "7002") == 7002
    assert typed("login", "http://127.0.0.1:9/mcp", "--mcp-oauth-port", "70000").code == 2


@pytest.mark.row("CB-08")
def test_the_port_that_is_typed_wins_over_a_servers_own(
    typed: Type, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_command, "is_terminal", lambda: True)
    (folder / "greenroom.toml").write_text(
        '[server.one]\ntransport = "http"\nurl = "http://127.0.0.1:9/mcp"\noauth = "auto"\noauth_config = { port = 7003 }\n'
    )
    monkeypatch.setenv("GREENROOM_MCP_OAUTH_PORT", "7001")
    found: list[int] = []

    async def signed_in(place: Any) -> None:
        found.append(place.auth.port)

    monkeypatch.setattr(login_command, "_sign_in", signed_in)
    typed("login", "one")
    typed("login", "one", "--mcp-oauth-port", "7002")

    assert found == [7003, 7002]


@pytest.mark.usefixtures("port")
@pytest.mark.parametrize(
    "words", [("list", "sky"), ("call", "weather.py", "fail"), ("login", "http://127.0.0.1:9/mcp")]
)
def test_a_variable_that_is_wrong_is_told_and_passed_over(
    typed: Type, folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    (folder / "greenroom.toml").write_text(
        f'[server.sky]\ncommand = {sys.executable!r}\nargs = ["-c", "import weather; weather.server.run()"]\n'
    )
    monkeypatch.setenv("GREENROOM_MCP_OAUTH_PORT", "abc")
    seen = typed(*words)

    assert seen.code == (1 if "fail" in words else 0)
    said = "greenroom: environment: GREENROOM_MCP_OAUTH_PORT: has to be a whole number from 0 to 65535, not 'abc'"
    assert seen.err.splitlines() == [f"{said}; it is ignored"]


# --- Python code


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero (odd.py, line 2)"),
        ("def f(:", "SyntaxError: "),
        ("import nowhere_at_all", "ModuleNotFoundError: No module named 'nowhere_at_all' (odd.py, line 2)"),
        ("raise SystemExit(3)", "SystemExit: 3 (odd.py, line 2)"),
        ("import helper", "ZeroDivisionError: division by zero (helper.py, line 1)"),
        ("from greenroom import Server\nServer('x').tool(print)", "(odd.py, line 3)"),
    ],
    ids=["raises", "syntax", "import", "exits", "helper", "registers"],
)
@pytest.mark.parametrize("target", ["odd.py", "odd:server"])
def test_code_that_cannot_be_loaded_is_its_authors_affair(
    typed: Type, folder: Path, code: str, says: str, target: str
) -> None:
    (folder / "helper.py").write_text("1 / 0\n")
    (folder / "odd.py").write_text(f"# odd\n{code}\n")
    seen = typed("list", target)

    assert (seen.code, seen.out) == (1, "")
    assert seen.err.startswith(f"greenroom: {target.removesuffix(':server')} cannot be loaded: ")
    assert says in seen.err
    assert len(seen.err.splitlines()) == 1


@pytest.mark.parametrize("words", [("list", "odd.py"), ("list", "odd:server")], ids=" ".join)
def test_an_exception_of_a_running_server_is_reported_with_its_authors_line(
    typed: Type, folder: Path, words: tuple[str, ...]
) -> None:
    code = "from greenroom import Server\nserver = Server('odd')\n\n@server.lifespan\nasync def around():\n    1 / 0\n    yield\n"
    (folder / "odd.py").write_text(code)
    seen = typed(*words)

    assert (seen.code, seen.out) == (1, "")
    place = words[1].removesuffix(":server")
    assert (
        seen.err.splitlines()[-1]
        == f"greenroom: {place} has failed: ZeroDivisionError: division by zero (odd.py, line 6)"
    )


LOUD = '''
import os
print("at import")
os.write(1, b"and below Python\\n")
from greenroom import Server
server = Server("loud")

@server.tool
def loud() -> str:
    """Prints."""
    print("in the tool")
    return "quiet"

@server.tool(isolation="process")
def far(number: int) -> int:
    """In another process."""
    return number * 2
'''


@pytest.mark.parametrize("words", [("list", "loud.py"), ("call", "loud.py", "loud"), ("inspect", "loud.py")])
def test_output_of_imported_code_is_not_in_the_answer(typed: Type, folder: Path, words: tuple[str, ...]) -> None:
    (folder / "loud.py").write_text(LOUD)
    seen = typed(*words, "--json")

    assert json.loads(seen.out)
    assert {"at import", "and below Python"} <= set(seen.err.splitlines())


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize("name", one_in(2, ["json.py", "wave.py", "weather.server.py", "pytest.py"]))
def test_a_file_is_that_file_whatever_else_has_its_name(
    typed: Type, folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    (folder / name).write_text(LOUD)

    assert typed("call", name, "loud").out == "quiet\n"
    assert typed("call", name, "far", "number=21").out == "42\n"
    assert sys.modules["json"] is json
    assert sys.modules["pytest"] is pytest


def test_a_file_that_serves_without_a_guard_is_imported_up_to_there(typed: Type, folder: Path) -> None:
    (folder / "bare.py").write_text(LOUD + "\nserver.run()\nraise AssertionError('never')\n")

    assert typed("call", "bare.py", "loud").out == "quiet\n"


# --- attribution of errors


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (TemplateWordsError("it wants 2 words"), 2),
        (ConfigError("x"), 3),
        (Unsupported("prompts/list", "prompts"), 1),
        (TooManyPages("x"), 1),
        (TaskLost("t1", "cancelled"), 1),
        (InputRefused("tools/call", "elicitation/create", ValueError("no user")), 1),
        (PeerError(-32601, "no"), 1),
        (GreenroomError("whatever else it is"), 1),
        (PermissionError(13, "Permission denied", "x"), 1),
        (ConnectFailed("x"), 4),
        (RequestLost("x", ConnectFailed("y")), 4),
        (ClientClosed("x"), 4),
        (ConnectionRefusedError(), 4),
        (TimeoutError(), 4),
        (ActorError("x"), 4),
        (ConsentDenied("x", "y"), 6),
        (InternalError("x"), 70),
        (ZeroDivisionError(), 70),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_each_error_has_the_code_of_whose_fault_it_was(error: BaseException, code: int) -> None:
    assert exit_code_for(error) == code


RAW = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "server/discover":
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "Method not found"}}), flush=True)
    if asked["method"] == "initialize":
        info = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {}, "serverInfo": {"name": "raw", "version": "0"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": info}), flush=True)
"""


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("read", "x://y", "--", sys.executable, "raw.py"), 1, "the server does not declare resources"),
        (("prompt", "pack", "--", sys.executable, "raw.py"), 1, "the server does not declare prompts"),
        (("read", "weather.py", "x://y"), 1, "Resource not found"),
        (("list", "http://"), 2, "http://"),
        (("list", "http://127.0.0.1:9/mcp", "-H", "Bad Name: x"), 2, "Bad Name"),
        (("list", "-e", "=x", "--", "true"), 2, "--env is written NAME=value"),
        (("list", "absent"), 3, "no server is called 'absent'"),
        (("list", "weather"), 3, "to name the file, write weather.py"),
        (("list", "ftp://127.0.0.1/mcp"), 2, "ftp:// cannot reach a server"),
        (("list", "HTTP://127.0.0.1:9/mcp"), 4, "no server listens there"),
        (("call", "weather.py", "forcast"), 2, "no tool 'forcast': did you mean forecast?"),
        (("call", "weather.py", "forcast", "--args-json", "{}"), 2, "no tool 'forcast': did you mean forecast?"),
        (("install", "--to", "cursor", "--remove"), 2, "name the server to remove"),
        (("serve", "plain.py", "--http", "1", "--workers", "two"), 2, "'two' is not a valid whole number"),
        (("serve", "plain.py", "--http", "1", "--workers", "0"), 2, "0 is not in the range"),
        (("serve", "plain.py", "--http", "0", "--workers", "65"), 2, "65 is not in the range"),
        (("read", "weather.py", "photo", "--save", "no/such/folder"), 1, "no/such/folder: No such file or directory"),
        (("call", "weather.py", "dot", "--save", "plain.py"), 1, "plain.py: File exists"),
        (("call", "weather.py", "echo", "--args-json", "@."), 2, "Is a directory"),
        (("call", "weather.py", "echo", "--args-json", "@bytes"), 2, "bytes: "),
        (("inspect", "weather.py", "--save", "no/such/folder"), 1, "no/such/folder: No such file or directory"),
        (("inspect", "weather.py", "--against", "none.json"), 2, "none.json"),
        (("new", "plain.py/in-a-file"), 1, "plain.py/in-a-file: Not a directory"),
    ],
    ids=shown,
)
def test_an_exception_is_attributed_to_the_server_or_to_greenroom(
    typed: Type, folder: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    (folder / "plain.py").write_text("from greenroom import Server\nserver = Server('plain')\n")
    (folder / "raw.py").write_text(RAW)
    (folder / "bytes").write_bytes(b"\xff\xfe\xfd")
    seen = typed(*words)

    assert (seen.code, seen.out) == (code, "")
    assert says in " ".join(seen.err.split())
    assert "Traceback" not in seen.err
    assert "Errno" not in seen.err
