"""serve, serve --watch and check as real processes."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from greenroom.cli.serve_command import changed_files, first_syntax_error, http_config, python_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]


class Program:
    """`greenroom …`, with what it writes to stderr line by line."""

    def __init__(self, folder: Path, *words: str) -> None:
        command = [sys.executable, "-m", "greenroom.cli", *words]
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def line(self) -> str:
        """Read the next line of stderr."""
        assert self.process.stderr is not None
        return self.process.stderr.readline().strip()

    def url(self) -> str:
        """Read the URL that the server reports."""
        return self.line().rpartition(" ")[2]

    def end(self) -> int:
        """Stop the program in order."""
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=20)
        return self.process.returncode


@pytest.fixture
def program(folder: Path) -> Iterator[Callable[..., Program]]:
    """Start a program; a program that still runs at the end of the test is killed by its pid."""
    started: list[Program] = []

    def start(*words: str) -> Program:
        started.append(Program(folder, *words))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            os.kill(each.process.pid, signal.SIGKILL)
        each.process.communicate()


def test_stdout_of_a_stdio_server_carries_the_protocol_only(program: Callable[..., Program], folder: Path) -> None:
    (folder / "loud.py").write_text('print("at import")\nfrom weather import server\nprint("and again")\n')
    served = program("serve", "loud.py")

    out, err = served.process.communicate('{"jsonrpc":"2.0","id":1,"method":"ping"}\n', timeout=20)

    assert (served.process.returncode, json.loads(out)) == (0, {"jsonrpc": "2.0", "id": 1, "result": {}})
    assert err.splitlines()[:2] == ["at import", "and again"]


@pytest.mark.parametrize(
    ("more", "lines"),
    [((), ["ping: ok"]), (("--log-json",), ['"method": "ping"']), (("--no-access-log",), [])],
    ids=["by itself", "as JSON", "not"],
)
def test_each_call_is_a_line_on_stderr_unless_it_is_switched_off(
    program: Callable[..., Program], more: tuple[str, ...], lines: list[str]
) -> None:
    served = program("serve", "weather.py", *more)
    _, err = served.process.communicate('{"jsonrpc":"2.0","id":1,"method":"ping"}\n', timeout=20)

    assert served.process.returncode == 0
    written = err.splitlines()
    assert len(written) == len(lines), err
    assert all(each in line for each, line in zip(lines, written, strict=True))


def test_a_server_is_served_over_http_and_seen(program: Callable[..., Program], typed: Type) -> None:
    served = program("serve", "weather.py", "--http", "0", "--inspect")
    url = served.url()

    assert typed("call", url, "forecast", "city=Oslo", "days=1").out == '["Oslo 0"]\n'
    seen = typed("tree", "weather")
    assert (seen.code, seen.out.splitlines()[1].strip()) == (0, url), seen.err
    assert "inspect socket" in seen.out
    assert served.end() == 0
    assert typed("tree").code == 4


@pytest.mark.parametrize("more", [(), ("--http", "0")], ids=["stdio", "http"])
def test_a_server_that_cannot_open_what_it_needs_says_in_which_line(
    program: Callable[..., Program], folder: Path, more: tuple[str, ...]
) -> None:
    code = "from greenroom import Server\nserver = Server('odd')\n\n@server.lifespan\nasync def around():\n    1 / 0\n    yield\n"
    (folder / "odd.py").write_text(code)
    served = program("serve", "odd.py", *more)
    _, err = served.process.communicate(timeout=60)

    last = "greenroom: odd.py has failed: ZeroDivisionError: division by zero (odd.py, line 6)"
    assert (served.process.returncode, err.splitlines()[-1]) == (1, last)
    assert "serves on" not in err


def test_which_pages_may_call_is_said_where_it_is_served(program: Callable[..., Program], typed: Type) -> None:
    url = program("serve", "weather.py", "--http", "0", "--origin", "https://good.example").url()

    assert typed("call", url, "dot", "-H", "Origin: https://good.example").code == 0
    assert "403" in typed("call", url, "dot", "-H", "Origin: https://bad.example").err


@pytest.mark.parametrize(
    ("origins", "allowed"), [(["none"], ()), (["any"], "any"), (["https://a.example"], ("https://a.example",))]
)
def test_where_other_machines_can_call_it_is_said_which_pages_may(origins: list[str], allowed: object) -> None:
    config = http_config("0.0.0.0:8000", origins)

    assert (config.host, config.port, config.allowed_origins) == ("0.0.0.0", 8000, allowed)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ("--http", "0.0.0.0:0"),
            "0.0.0.0 can be reached from other machines: name the web pages that may call with --origin",
        ),
        (("--http", "0", "--origin", "none", "--origin", "https://a.example"), "cannot be combined"),
        (("--http", "0", "--origin", "a page"), "--origin is written scheme://host[:port]"),
        (("--origin", "none"), "--origin is only for --http"),
        (("--http", "0.0.0.0:0", "--watch"), "name the web pages that may call"),
    ],
)
def test_invalid_origins_are_refused(typed: Type, words: tuple[str, ...], says: str) -> None:
    seen = typed("serve", "weather.py", *words)

    assert (seen.code, seen.out) == (2, "")
    assert says in seen.err


def test_a_port_that_is_taken_is_told_in_words(program: Callable[..., Program], typed: Type) -> None:
    port = program("serve", "weather.py", "--http", "0").url().split(":")[2].partition("/")[0]
    seen = typed("serve", "weather.py", "--http", port)

    assert seen.code == 1
    assert seen.err.startswith(f"greenroom: cannot listen on 127.0.0.1:{port}: ")


def test_a_server_begins_anew_when_its_file_changes_and_not_when_that_is_broken(
    program: Callable[..., Program], typed: Type, folder: Path
) -> None:
    served = program("serve", "weather.py", "--http", "0", "--watch")
    served.url()
    file = folder / "weather.py"
    good = file.read_text()

    file.write_text("def broken(:\n")
    assert "invalid syntax" in served.line()
    file.write_text(good.replace("no sun today", "rain today"))
    assert "weather.py changed: restarting" in _until(served, "changed")

    assert typed("call", _until(served, "serves").rpartition(" ")[2], "fail").out == "rain today\n"
    assert served.end() == 0


def test_a_folder_may_have_files_that_are_called_as_parts_of_python(
    typed: Type, node: Callable[[str], str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = node("v24.1.0")
    (folder / "below").mkdir()
    (folder / "below" / "json.py").write_text((folder / "weather.py").read_text())
    monkeypatch.chdir(folder / "below")

    assert typed("check", "json.py", "--suite", suite, "--scenario", "ping").code == 0


def _until(served: Program, word: str) -> str:
    while True:
        line = served.line()
        assert line, "it has ended"
        if word in line and "goes on as it was" not in line:
            return line


SLOW = """
import asyncio, sys
from greenroom import Server
server = Server("slow")

@server.tool
async def rest() -> str:
    print("it has begun", file=sys.stderr, flush=True)
    await asyncio.sleep(600)
    return "done"
"""


@pytest.mark.parametrize("sessions", ["--sessions", "--no-sessions"])
def test_a_call_that_outlasts_the_grace_is_answered_before_the_program_ends(
    program: Callable[..., Program], folder: Path, sessions: str
) -> None:
    (folder / "slow.py").write_text(SLOW)
    served = program("serve", "slow.py", "--http", "0", "--drain-grace", "0.1", sessions)
    place = urlsplit(served.url()).netloc
    connection = http.client.HTTPConnection(place, timeout=60)
    headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}

    def send(message: dict[str, object]) -> None:
        connection.request("POST", "/mcp", json.dumps({"jsonrpc": "2.0", **message}), headers)

    if sessions == "--sessions":
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        send({"id": 1, "method": "initialize", "params": about})
        answer = connection.getresponse()
        headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        answer.read()
        send({"method": "notifications/initialized"})
        connection.getresponse().read()
    send({"id": 2, "method": "tools/call", "params": {"name": "rest", "arguments": {}}})
    assert "it has begun" in _until(served, "begun")
    served.process.send_signal(signal.SIGTERM)
    answer = connection.getresponse()
    error = json.loads(answer.read())

    assert (answer.status, error["id"], error["error"]["code"]) == (200, 2, -32603)
    assert "may have been done or not" in error["error"]["message"]
    served.process.communicate(timeout=60)
    assert served.process.returncode == 0
    connection.close()


def test_watch_is_for_http(typed: Type) -> None:
    assert "--watch is only for --http" in typed("serve", "weather.py", "--watch").err


def test_which_files_are_looked_at(tmp_path: Path) -> None:
    for name in ("a.py", "b.txt", ".hidden/c.py", "venv/pyvenv.cfg", "venv/d.py", "pkg/e.py", "node_modules/f.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    seen = python_files(tmp_path)

    assert sorted(path.relative_to(tmp_path).as_posix() for path in seen) == ["a.py", "pkg/e.py"]
    (tmp_path / "a.py").write_text("x =\n")
    os.utime(tmp_path / "a.py", ns=(1, 1))
    (tmp_path / "pkg" / "e.py").unlink()
    different = changed_files(seen, python_files(tmp_path))
    assert [path.name for path in different] == ["a.py", "e.py"]
    assert "a.py" in (first_syntax_error(different) or "")
    assert first_syntax_error([tmp_path / "pkg" / "e.py"]) is None


# --- check, with a fake suite


SUITE = """
import json, sys, pathlib, subprocess, time
words = sys.argv[sys.argv.index("server"):]
name, place = words[words.index("--scenario") + 1], pathlib.Path(words[words.index("--output-dir") + 1])
assert words[words.index("--url") + 1].startswith("http://127.0.0.1:")
if name == "unknown": sys.exit("no such scenario")
if name == "endless":
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    time.sleep(600)
if name == "garbled":
    (place / "checks.json").write_text('[{"what": 1')
    sys.exit()
status = "FAILURE" if name == "tools-list" else "SUCCESS"
folder = place / f"server-{name}-x"
folder.mkdir()
(folder / "checks.json").write_text(json.dumps([
    {"name": "A", "description": "It is so", "status": status, "errorMessage": "it is not"}, {"name": "B", "status": "INFO"}]))
"""


@pytest.fixture
def node(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A program called node that reports a version and runs Python."""

    def make(version: str) -> str:
        bin_ = folder / "bin"
        bin_.mkdir()
        script = f'#!/bin/sh\n[ "$1" = --version ] && echo {version} && exit\nexec {sys.executable} "$@"\n'
        (bin_ / "node").write_text(script)
        (bin_ / "node").chmod(0o755)
        (folder / "suite.py").write_text(SUITE)
        monkeypatch.setenv("PATH", str(bin_), prepend=os.pathsep)
        return str(folder / "suite.py")

    return make


def test_a_suite_judges_by_what_fits_any_server(typed: Type, node: Callable[[str], str]) -> None:
    seen = typed("check", "weather.py", "--suite", node("v24.1.0"))

    assert seen.code == 1, seen.err
    assert seen.out.splitlines() == [
        "passed  server-initialize  (1 of 1 checks)",
        "passed  ping  (1 of 1 checks)",
        "passed  dns-rebinding-protection  (1 of 1 checks)",
        "failed  tools-list  (0 of 1 checks)",
        "        It is so: it is not",
        "passed  resources-list  (1 of 1 checks)",
        "passed  prompts-list  (1 of 1 checks)",
        "passed  logging-set-level  (1 of 1 checks)",
    ]


def test_a_scenario_without_checks_has_not_passed(typed: Type, node: Callable[[str], str]) -> None:
    suite = node("v24.1.0")

    assert typed("check", "weather.py", "--suite", suite, "--scenario", "ping").code == 0
    seen = typed("check", "weather.py", "--suite", suite, "--scenario", "unknown")
    assert (seen.code, seen.out) == (1, "not run  unknown  (0 of 0 checks)\n")
    assert "no such scenario" in seen.err
    assert list(json.loads(typed("check", "weather.py", "--suite", suite, "--scenario", "ping", "--json").out)) == [
        "ping"
    ]


@pytest.mark.parametrize(("version", "says"), [("v20.1.0", "this is v20.1.0"), ("", "Node is not installed")])
def test_without_its_node_it_says_so(
    typed: Type, node: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, version: str, says: str
) -> None:
    if version:
        node(version)
    else:
        monkeypatch.setenv("PATH", "/nowhere")

    seen = typed("check", "weather.py")

    assert (seen.code, says in seen.err) == (4, True)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("git",), 3, "no server is called 'git'"),
        (("sky",), 2, "sky is a program"),
        (("sea",), 2, "sea needs headers, a login or SSE"),
        (("--", "uvx", "mcp-server-git"), 2, "the official suite speaks HTTP only"),
        (("gone.py",), 2, "the file gone.py does not exist"),
        (("broken.py",), 1, "broken.py cannot be loaded: ZeroDivisionError: division by zero (broken.py, line 2)"),
    ],
)
def test_a_target_that_check_cannot_test_is_refused_with_a_reason(
    typed: Type, node: Callable[[str], str], folder: Path, words: tuple[str, ...], code: int, says: str
) -> None:
    suite = node("v24.1.0")
    (folder / "broken.py").write_text("print('before')\n1 / 0\n")
    (folder / "greenroom.toml").write_text(
        '[server.sky]\ncommand = "uvx"\n[server.sea]\ntransport = "http"\nurl = "http://127.0.0.1:1/mcp"\nheaders = { A = "b" }\n'
    )
    seen = typed("check", "--suite", suite, *words)

    assert (seen.code, seen.out) == (code, "")
    assert says in seen.err


def test_a_configured_url_is_judged(
    typed: Type, node: Callable[[str], str], program: Callable[..., Program], folder: Path
) -> None:
    suite = node("v24.1.0")
    url = program("serve", "weather.py", "--http", "0").url()
    (folder / "greenroom.toml").write_text(f'[server.sky]\ntransport = "http"\nurl = "{url}"\n')

    assert typed("check", "sky", "--suite", suite, "--scenario", "ping").out == "passed  ping  (1 of 1 checks)\n"


def test_output_of_the_checked_server_is_read_and_is_not_in_the_answer(
    typed: Type, node: Callable[[str], str], folder: Path
) -> None:
    suite = node("v24.1.0")
    noise = "\nimport sys\nfor stream in (sys.stdout, sys.stderr):\n    print('x' * 300_000, file=stream, flush=True)\n"
    (folder / "noisy.py").write_text(f"{noise}from weather import server\n{noise}")

    seen = typed("check", "noisy.py", "--suite", suite, "--scenario", "ping", "--json")

    assert (seen.code, seen.err) == (0, "")
    assert [each["status"] for each in json.loads(seen.out)["ping"]] == ["SUCCESS"]


@pytest.mark.parametrize(
    ("scenario", "says"),
    [("endless", "the suite did not end within 0.5 seconds"), ("garbled", "the result cannot be read")],
)
def test_a_suite_that_says_nothing_has_found_nothing_good(
    typed: Type, node: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, scenario: str, says: str
) -> None:
    suite = node("v24.1.0")
    if scenario == "endless":
        monkeypatch.setattr("greenroom.cli.check_command._ENDS_WITHIN", 0.5)

    seen = typed("check", "weather.py", "--suite", suite, "--scenario", scenario)

    assert (seen.code, says in seen.out) == (1, True)


def test_a_node_that_does_not_even_say_its_version_is_none(
    typed: Type, node: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    node("v24.1.0")
    (folder / "bin" / "node").write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr("greenroom.cli.check_command._STARTS_WITHIN", 0.5)

    seen = typed("check", "weather.py")

    assert (seen.code, "Node is not installed" in seen.err) == (4, True)
