"""Typical mistakes at the command line: messages say what was wrong and what to write; exit codes tell users from servers."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from greenroom.cli import check_command
from greenroom.cli.command_table import run

if TYPE_CHECKING:
    from pathlib import Path

SERVER = """
from greenroom import Context, Server

server = Server("weather")

@server.tool
def forecast(city: str, days: int = 3, quick: bool = False) -> str:
    return city

@server.tool
async def ask(ctx: Context) -> str:
    return str(await ctx.elicit("Really?", {"type": "object", "properties": {"yes": {"type": "boolean"}}}))

@server.resource("row://{id}", name="row")
def row(id: str) -> str:
    return id

@server.prompt
def pack(city: str) -> str:
    return city
"""

FILES = {
    "weather.py": SERVER,
    "none.py": "x = 1\n",
    "two.py": 'from greenroom import Server\none, two = Server("one"), Server("two")\n',
    "broken.py": "def f(:\n",
    "fails.py": "raise RuntimeError('no database')\n",
    "needs.py": "import no_such_library\n",
    "list.json": "[1]",
    "greenroom.toml": '[server.sky]\ncommand = "/no/such/program"\n[server.sea]\ntransport = "http"\nurl = "http://127.0.0.1:1/mcp"\n',
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))  # programs of this user that run meanwhile are none of its
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "GREENROOM_TRACEBACK", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        monkeypatch.delitem(sys.modules, name.partition(".")[0], raising=False)
    return tmp_path


MISTAKES: list[tuple[str, int, tuple[str, ...]]] = [
    # what there is not
    ("serv weather.py", 2, ("No such command 'serv'", "Did you mean 'serve'")),
    ("serve", 2, ("name a server", "module:server", "--config FILE")),
    ("serve wether.py", 2, ("the file wether.py does not exist",)),
    ("serve weather:app", 2, ("no server called 'app'", "it has server")),
    ("serve nomodule:server", 2, ("the module 'nomodule'", "neither in this folder nor on the path")),
    ("serve none.py", 2, ("none.py should have one server", "it has none")),
    ("serve two.py", 2, ("it has one, two", "two.py:one")),
    ("serve broken.py", 1, ("broken.py cannot be loaded", "SyntaxError", "line 1")),
    ("serve fails.py", 1, ("fails.py cannot be loaded", "RuntimeError: no database", "line 1")),
    ("serve needs.py", 1, ("No module named 'no_such_library'", "needs.py")),
    # options
    ("serve weather.py --http", 2, ("--http", "requires an argument")),
    ("serve weather.py --http eight", 2, ("HOST:PORT", "'eight'")),
    ("serve weather.py --http 99999", 2, ("HOST:PORT", "'99999'")),
    ("serve weather.py --http 8000 --stdio", 2, ("either --stdio or --http",)),
    ("serve weather.py --workers 2", 2, ("--workers is only for --http",)),
    ("serve weather.py --watch", 2, ("--watch is only for --http",)),
    ("serve weather.py --http 8000 --origin nothing", 2, ("scheme://host[:port]", "'nothing'")),
    ("serve weather.py --http 8000 --workers many", 2, ("--workers", "'many'")),
    ("serve weather.py --port 8000", 2, ("No such option", "--port")),
    ("list weather.py --only tool", 2, ("--only", "'tool'", "tools")),
    ("list weather.py --timeout soon", 2, ("'soon'", "number of seconds")),
    ("list weather.py --config nowhere.toml --env A", 2, ("NAME=value",)),
    ("list http://127.0.0.1:1/mcp --header Token", 2, ("'Name: value'",)),
    ("list http://127.0.0.1:1/mcp --env A=1", 2, ("--env is only for a command",)),
    # where to go
    ("list", 2, ("name a server", "a URL", "behind --")),
    ("list ftp://example.org", 2, ("ftp://", "http:// or https://")),
    ("list http://127.0.0.1:1/mcp", 4, ("http://127.0.0.1:1", "no server listens there")),
    ("list sy", 3, ("no server is called 'sy'", "did you mean sky")),
    ("list weather", 3, ("no server is called 'weather'", "write weather.py")),
    ("list --", 2, ("the command behind -- is missing",)),
    ("list weather.py -- echo", 2, ("either weather.py or a command behind --",)),
    ("list -- /no/such/program", 4, ("/no/such/program",)),
    ("serve weather.py -- echo", 2, ("serve takes no command behind --",)),
    # calls
    ("call weather.py", 2, ("name the server", "and a tool")),
    ("call weather.py forcast city=Oslo", 2, ("no tool 'forcast'", "did you mean forecast")),
    ("call weather.py nothing", 2, ("no tool 'nothing'", "forecast")),
    ("call weather.py forecast", 1, ("city",)),
    ("call weather.py forecast Oslo", 2, ("'Oslo' is not an argument", "key=value")),
    ("call weather.py forecast city=Oslo days=many", 2, ("days must be of type integer", "'many'")),
    ("call weather.py forecast city=Oslo city=Rome", 2, ("city is given twice", "city:='[…]'")),
    ("call weather.py forecast days:=three", 2, ("days after := is not JSON", "for text write days=")),
    ("call weather.py forecast --args-json {city}", 2, ("--args-json is not JSON",)),
    ("call weather.py forecast --args-json @list.json", 2, ("a JSON object", "member for each argument")),
    ("call weather.py forecast --args-json @gone.json", 2, ("gone.json", "No such file")),
    ("call weather.py ask", 6, ("weather.py asks: Really?", "no terminal", "--yes")),
    ("read weather.py rows", 2, ("no resource 'rows'", "did you mean row")),
    ("read weather.py row", 2, ("id=…",)),
    ("read weather.py row id=1 more=2", 2, ("needs 1 words", "<id>")),
    ("prompt weather.py packs", 2, ("no prompt 'packs'", "did you mean pack")),
    ("prompt weather.py pack", 2, ("pack needs city=…",)),
    ("prompt weather.py pack town=Oslo", 2, ("no argument 'town'", "it has city")),
    # other commands
    ("new json", 2, ("json.py would shadow", "json-server can")),
    ("new class", 2, ("class is a Python keyword", "class-server can")),
    ("new 1st", 2, ("'1st' cannot be a server's name", "a letter first")),
    ("install weather.py", 2, ("--to", "claude")),
    ("install weather.py --to emacs", 2, ("'emacs'", "cursor", "codex")),
    ("install https://x.example/mcp --to claude", 2, ("no URLs", "[server.x]", "greenroom install --config")),
    ("install weather.py --to cursor", 6, ("nothing was written", "--yes")),
    ("install nothing-here --to cursor --yes", 3, ("no server is called 'nothing-here'", "sky")),
    ("install --to cursor --yes -- no-such-program", 2, ("the program 'no-such-program' is not installed",)),
    ("install weather --to cursor --remove --yes", 2, ("has no server 'weather'",)),
    ("tree", 4, ("--inspect", "inspect=True")),
    ("config check", 3, ("greenroom.toml:1", "the program '/no/such/program' cannot be found", "install it")),
    ("config effective nope:tool", 3, ("no server is called 'nope'", "sky")),
    ("login weather.py", 5, ("where a browser is", "--device")),
    ("whoami elsewhere", 3, ("no server is called 'elsewhere'",)),
    ("logout sea", 2, ("sea", 'oauth = "auto"')),
]


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize(("typed", "code", "says"), MISTAKES, ids=[each[0] for each in MISTAKES])
@pytest.mark.usefixtures("folder")
def test_a_mistake_is_named_with_what_to_write(
    capfd: pytest.CaptureFixture[str], typed: str, code: int, says: tuple[str, ...]
) -> None:
    found = run(typed.split())
    written = capfd.readouterr()
    said = written.err + written.out
    assert (found, [each for each in says if each not in said], "Traceback" in said) == (code, [], False), said


@pytest.mark.greenroom(clock="real")
@pytest.mark.usefixtures("folder")
def test_a_port_that_is_taken_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["serve", "weather.py", "--http", str(port)]) != 0
    said = capfd.readouterr().err
    assert str(port) in said
    assert "choose another port" in said


@pytest.mark.greenroom(clock="real")
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "typed", ["call weather.py nope --json", "config effective nope:x --json", "read weather.py nope --json"]
)
def test_a_program_that_asked_for_json_gets_the_mistake_as_json(capfd: pytest.CaptureFixture[str], typed: str) -> None:
    code = run(typed.split())
    said = json.loads(capfd.readouterr().out)["error"]
    assert (said["exit_code"], "nope" in said["message"]) == (code, True)


@pytest.mark.usefixtures("folder")
def test_the_suite_of_a_check_that_is_not_there_is_named(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(_node: str) -> str:
        return "v24.0.0"

    monkeypatch.setattr(check_command, "_node_version", version)
    monkeypatch.setattr("shutil.which", str)
    assert run(["check", "weather.py", "--suite", "/no/file"]) == 2
    assert "--suite: the file /no/file" in capfd.readouterr().err
