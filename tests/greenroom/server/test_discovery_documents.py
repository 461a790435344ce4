"""The published documents by which clients and people find a server."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.transports.stdio.child_programs import EVERYTHING

from greenroom.cli.install_command import code_command, code_stdio_command, desktop_entry, desktop_file

PAGE = "docs/how-to/connect-clients.md"


@pytest.mark.row("ST-22")
@pytest.mark.parametrize(
    ("platform", "environment", "file"),
    [
        ("darwin", {}, "home/Library/Application Support/Claude/claude_desktop_config.json"),
        ("win32", {"APPDATA": "roaming"}, "roaming/Claude/claude_desktop_config.json"),
        ("win32", {}, "home/AppData/Roaming/Claude/claude_desktop_config.json"),
        ("linux", {}, "home/.config/Claude/claude_desktop_config.json"),
        ("linux", {"XDG_CONFIG_HOME": "settings"}, "settings/Claude/claude_desktop_config.json"),
    ],
)
def test_the_file_is_where_each_system_keeps_it(platform: str, environment: dict[str, str], file: str) -> None:
    assert desktop_file(platform, Path("home"), environment) == Path(file)


@pytest.mark.row("ST-22")
def test_a_folder_that_is_there_already_is_taken(tmp_path: Path) -> None:
    folder = tmp_path / ".config" / "claude"
    folder.mkdir(parents=True)
    assert desktop_file("linux", tmp_path, {}).parent == folder
    (tmp_path / ".config" / "Claude").mkdir(exist_ok=True)
    assert desktop_file("linux", tmp_path, {}).parent.name == "Claude"


@pytest.mark.row("ST-22")
def test_the_published_command_starts_a_server(root: Path) -> None:
    entry = desktop_entry("everything", sys.executable, [str(EVERYTHING), "stdio", "1"], {"UNITS": "metric"})
    started = entry["mcpServers"]["everything"]
    assert started["env"] == {"UNITS": "metric"}
    assert "env" not in desktop_entry("x")["mcpServers"]["x"]
    [hello] = re.findall(r"```json\n(.*)\n```", (root / PAGE).read_text())
    done = subprocess.run(
        [started["command"], *started["args"]],
        input=hello.encode() + b"\n",
        capture_output=True,
        check=True,
        timeout=20,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answer["result"]["serverInfo"]["name"] == "everything"


@pytest.mark.row("ST-22")
def test_commands_are_quoted_as_a_shell_wants_them() -> None:
    typed = code_command("a b", "http://localhost/mcp", {"X-Who": "it's me"})
    assert shlex.split(typed)[3:] == [
        "a b",
        "--transport",
        "http",
        "http://localhost/mcp",
        "--header",
        "X-Who: it's me",
    ]
    assert shlex.split(code_stdio_command("a", ["run it", "--now"], {"K": "v w"}))[3:] == [
        "a",
        "--env",
        "K=v w",
        "--",
        "run it",
        "--now",
    ]


@pytest.mark.row("OP-05")
def test_json_is_read_by_one_library_and_the_page_says_which_and_why(root: Path) -> None:
    page = (root / "docs/dependencies.md").read_text()
    assert re.search(r"\*\*msgspec\*\*: JSON in and out", page)
    rooms = [root / name for name in ("actors", "auth", "supervision", "transports", "src/greenroom/protocol")]
    readers = [
        file.name
        for room in rooms
        for file in room.rglob("*.py")
        if re.search(r"\bjson\.loads\(|import (orjson|ujson|simplejson|rapidjson)", file.read_text(encoding="utf-8"))
    ]
    assert set(readers) <= {"jsonrpc.py"}  # the one that reads, and asks for a second opinion on what it refuses
