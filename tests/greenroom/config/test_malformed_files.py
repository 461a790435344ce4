"""Malformed and hostile files: each mistake is reported in words, and none does harm."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from greenroom.config.config_reader import read
from greenroom.config.variables import Variables

if TYPE_CHECKING:
    from .config_files import Workspace

FINE = '[server.fine]\ncommand = "uvx"\n'
NINES = "9" * 5000


def first(workspace: Workspace, text: str, name: str = "greenroom.toml") -> str:
    """The first mistake in a text."""
    (workspace.folder / name).write_bytes(text.encode())
    config = workspace.read(name)
    assert not config.good
    return workspace.shown(config)[0]


@pytest.mark.parametrize("text", ["\ufeff" + FINE, FINE.replace("\n", "\r\n"), "\ufeff\r\n" + FINE + "\r\n"])
def test_how_another_system_saves_a_text_does_not_matter(workspace: Workspace, text: str) -> None:
    (workspace.folder / "greenroom.toml").write_bytes(text.encode())
    config = workspace.read("greenroom.toml")
    assert (config.good, list(config.servers)) == (True, ["fine"])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{FINE}budget = {{ queue = {NINES} }}", "greenroom.toml:3: has a number with too many digits"),
        (f"{FINE}budget = {{ queue = 0x{'f' * 100_000} }}", "greenroom.toml:3: server fine: budget.queue: has to be"),
        (f"{FINE}disabled = 0x{'f' * 100_000}", "greenroom.toml:3: server fine: disabled: has to be true or false"),
        (f"{FINE}timeouts = {{ tool = 1e400 }}", "greenroom.toml:3: server fine: timeouts.tool: has to be"),
        (FINE + 'command = "b"', "greenroom.toml:3: server fine: 'command' is defined twice; keep one"),
        ('server.a.command = "x"\n[server.a]\n', "greenroom.toml:2: server a: is defined twice; keep one"),
        (FINE + FINE, "greenroom.toml:3: server fine: is defined twice: first in line 1; keep one"),
        ('[server."g\u0456t"]\ncommand = "x"', "characters a-z, 0-9, _ and -; '\u0456' is U+0456"),
        ('[server."a:b"]\ncommand = "x"', "greenroom.toml:1: server a:b: the name has to be"),
        ('[server."${NAME}"]\ncommand = "x"', "server ${NAME}: the name has to be"),
        ("[[server.a]]\ncommand = 'x'", "server a: has to be a table, not a list"),
        ("server = " + "{ a = " * 200 + "1" + "}" * 200, "server a: a: there is no such field"),
        ("a = " + "{ a = " * 3000 + "1" + "}" * 3000, "has lists or tables nested too deeply"),
        ("import = ['~unknown-user/x.json']", "import.0: begins with ~ and an unknown user"),
        ("import = [" + "'x.json'," * 5000 + "]", "import: has 5000 items, and may have 50"),
        ("[server.a]\ncommand = '" + "${A:-" * 50_000 + "x" + "}" * 50_000 + "'", "has variables nested too deeply"),
        ("[server.a]\ncommand = '${MY_NAME}'", "set it, or write ${MY_NAME:-default}"),
        (
            "[server.a]\ncommand = 'x'\nenv = { 'A_${B}' = 'x' }",
            "env.A_${B}: the name has to be a name without = and without ${",
        ),
        ("[server.a]\ncommand = 'x'\ninherit = ['${B}']", "inherit.0: has to be a name without = and without ${"),
        ("[server.a]\ncommand = '${'", "write ${NAME} or ${NAME:-default}"),
        ("[permissions]\ndeny = ['elicit(fine)']", "'elicit(fine)' is not a tool: only Elicit("),
        ("[permissions]\ndeny = ['\u0415licit(fine)']", r"'\u0415licit(fine)' is not a tool"),
        ("[permissions]\ndeny = ['Bash(rm:*)']", "'Bash(rm:*)' is not a tool"),
    ],
    ids=range(23),
)
def test_malformed_files_are_reported_in_words(workspace: Workspace, text: str, says: str) -> None:
    assert says in first(workspace, text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            '{"mcpServers": {"a": {"comm',
            "greenroom.json:1: is not JSON: the file ends before it is complete; was it written",
        ),
        ('{"mcpServers": {"a": {"comm\n"x": 1}', "is not JSON: a string does not end on its line"),
        ('{"servers": {"a": {"command": "x", "envFile": "~unknown-user/x"}}}', "begins with ~ and an unknown user"),
    ],
)
def test_malformed_files_of_other_programs_are_reported(workspace: Workspace, text: str, says: str) -> None:
    assert says in first(workspace, text, "greenroom.json")


def test_a_rule_for_a_name_that_only_looks_like_a_servers_shows_the_difference(workspace: Workspace) -> None:
    [told] = workspace.toml(f"{FINE}[permissions]\ndeny = ['f\u0456ne:*']\n")
    assert r"can never match: there is no server called 'f\u0456ne'" in told


@pytest.mark.parametrize("name", ["a\nwarning: no mistakes", "a\x1b[2Jb", "a\u202eb", "a" * 100_000])
def test_no_name_can_write_on_somebodys_terminal(workspace: Workspace, name: str) -> None:
    written = name.replace("\n", "\\n").replace("\x1b", "\\u001b")
    for text in (f'[server."{written}"]\ncommand = "x"', f'[server.a]\n"{written}" = 1', f'"{written}" = 1'):
        for told in first(workspace, text), str(workspace.read("greenroom.toml").mistakes[-1]):
            assert told.isprintable()
            assert len(told) < 1000


def test_a_path_that_is_no_regular_file_is_reported(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = workspace.folder
    (folder / "loop.toml").symlink_to("loop.toml")
    (folder / "dangling.toml").symlink_to("nothing")
    workspace.write("real.toml", FINE)
    (folder / "link.toml").symlink_to("real.toml")
    (folder / "zero.toml").symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo")
    monkeypatch.chdir(folder)  # the path of a socket has to be short
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.toml")
        assert workspace.read("link.toml").good
        for name in (
            "loop.toml",
            "dangling.toml",
            "zero.toml",
            "socket.toml",
            "real.toml/x.toml",
            "a\0b.toml",
            "x" * 5000,
        ):
            assert "cannot be read" in workspace.messages(name)[0] or "is no" in workspace.messages(name)[0], name
    workspace.write("vs.json", '{"servers": {"a": {"command": "x", "envFile": "fifo"}}}')
    assert "envFile: is not a regular file (fifo)" in workspace.messages("vs.json")[0]


def test_where_the_current_folder_was_removed_what_is_named_is_read_all_the_same(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workspace.write("greenroom.toml", FINE)
    gone = workspace.folder / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(workspace.folder / "config"))
    gone.rmdir()

    assert list(read(path, environment={}).servers) == ["fine"]
    assert list(read(path, environment={}, project="here").servers) == ["fine"]
    assert read(environment={}).servers == {}
    assert Variables({}, Path("/p"), editor=True).expand("${cwd}")[1] == []


def test_a_folder_that_is_closed_to_us_or_a_name_that_is_too_long_is_nobodys_end(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(workspace.folder / "config"))
    assert read(environment={"GREENROOM_PROJECT_DIR": "x" * 5000}).servers == {}

    closed = workspace.folder / "closed"
    here = closed / "here"
    here.mkdir(parents=True)
    workspace.write("closed/here/greenroom.toml", FINE)
    real = Path.lstat

    def lstat(path: Path) -> os.stat_result:
        if path.parent == closed and path != here:
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(Path, "lstat", lstat)
    monkeypatch.chdir(here)
    assert list(read(environment={}).servers) == ["fine"]


def test_a_users_own_file_that_leads_in_circles_is_told_and_nothing_is_allowed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(workspace.folder))
    (workspace.folder / "greenroom").mkdir()
    (workspace.folder / "greenroom" / "greenroom.toml").symlink_to("greenroom.toml")
    config = read(environment={}, project=workspace.folder)
    assert "Too many levels of symbolic links" in config.mistakes[0].what
    assert config.doubtful


def test_ten_thousand_servers_are_read_and_looked_up_in_no_time(workspace: Workspace) -> None:
    text = "".join(f"[server.s{n}]\ncommand = 'x'\n[server.s{n}.permissions]\nallow = ['a']\n" for n in range(8000))
    workspace.write("greenroom.toml", text)
    before = time.process_time()
    config = workspace.read("greenroom.toml")
    assert (config.good, len(config.servers), config.ruled) == (True, 8000, True)
    assert config.permissions.of_tool("s7999", "a").verdict == "allow"
    assert time.process_time() - before < 20
