"""Files of other programs that install edits: concurrent writes, links, and content that cannot be edited."""

from __future__ import annotations

import itertools
import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.cli.command_table import run

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]

URL = ("install", "http://127.0.0.1:1/mcp", "--to", "claude-code", "--name", "new")


def test_a_write_of_the_program_during_the_question_is_not_lost(
    typed: Type, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder.parent / "home" / ".claude.json"
    file.write_text('{"history": ["old"]}')
    asked: list[str] = []

    def thinks(path: Path, *, yes: bool) -> None:
        asked.append(path.name)
        if len(asked) == 1:
            file.write_text('{"history": ["old", "new"], "mcpServers": {"theirs": {"command": "true"}}}')
        assert not yes

    monkeypatch.setattr("greenroom.cli.install_command._confirm_write", thinks)
    seen = typed(*URL)

    assert (seen.code, asked) == (0, [".claude.json"] * 2)
    assert "was changed by another program: the change is repeated" in seen.err
    assert seen.out.count('+    "new": {') == 2
    found = json.loads(file.read_text())
    assert (found["history"], list(found["mcpServers"])) == (["old", "new"], ["theirs", "new"])
    kept = json.loads(file.with_name(".claude.json.before-greenroom").read_text())
    assert kept["history"] == ["old", "new"]
    assert sorted(each.name for each in file.parent.glob(".claude*")) == [file.name, f"{file.name}.before-greenroom"]


def test_a_program_that_never_stops_writing_is_left_alone(
    typed: Type, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder.parent / "home" / ".claude.json"
    count = itertools.count()

    def writes(path: Path, *, yes: bool) -> None:
        del path, yes
        file.write_text(json.dumps({"history": next(count)}))

    monkeypatch.setattr("greenroom.cli.install_command._confirm_write", writes)
    seen = typed(*URL)

    assert (seen.code, "is being changed by another program" in seen.err) == (1, True)
    assert "mcpServers" not in json.loads(file.read_text())
    assert [each.name for each in file.parent.glob(".claude*")] == [file.name]


def test_a_backup_is_not_written_through_a_link(typed: Type, folder: Path) -> None:
    (folder / ".mcp.json").write_text('{"mcpServers": {}}')
    profile = folder.parent / "home" / ".bash_profile"
    places = [folder / f".mcp.json.before-greenroom{end}" for end in ("", *(f"-{n}" for n in range(2, 10)))]
    for place in places[:2]:
        place.symlink_to(profile)

    assert typed(*URL, "--project", "--yes").code == 0
    assert places[2].read_text() == '{"mcpServers": {}}'
    for place in places[3:]:
        place.symlink_to(profile)
    assert typed(*URL[:-1], "more", "--project", "--yes").code == 0

    assert not profile.exists()
    assert not places[-1].is_symlink()
    assert list(json.loads(places[-1].read_text())["mcpServers"]) == ["new"]


def test_others_cannot_read_it_at_any_moment(typed: Type, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = folder / ".mcp.json"
    file.write_text('{"mcpServers": {"old": {"command": "true", "env": {"TOKEN": "very-secret"}}}}')
    file.chmod(0o600)
    rights: list[tuple[bool, int]] = []
    opens: Any = os.fdopen
    syncs = os.fsync

    def looks(descriptor: int) -> None:
        seen = os.fstat(descriptor)
        rights.append((seen.st_size > 0, stat.S_IMODE(seen.st_mode)))

    def opened(descriptor: int, *more: Any) -> Any:
        looks(descriptor)
        return opens(descriptor, *more)

    def synced(descriptor: int) -> None:
        looks(descriptor)
        syncs(descriptor)

    monkeypatch.setattr("os.fdopen", opened)
    monkeypatch.setattr("os.fsync", synced)
    before = os.umask(0o022)
    try:
        assert typed(*URL, "--project", "--yes").code == 0
    finally:
        os.umask(before)

    # the new file and the copy, each while it is empty and when it is full
    assert rights == [(False, 0o600), (True, 0o600)] * 2
    kept = file.with_name(".mcp.json.before-greenroom")
    assert [stat.S_IMODE(each.stat().st_mode) for each in (file, kept)] == [0o600, 0o600]


@pytest.mark.parametrize("deep", [70, 100_000])
def test_a_file_that_is_too_deep_is_left_alone(typed: Type, folder: Path, deep: int) -> None:
    text = '{"a":' * deep + "1" + "}" * deep
    (folder / ".mcp.json").write_text(text)

    seen = typed(*URL, "--project", "--yes")

    assert (seen.code, "64 levels deep: nothing was written" in seen.err) == (3, True)
    assert (folder / ".mcp.json").read_text() == text


def test_a_path_that_is_no_regular_file_does_not_block(typed: Type, folder: Path) -> None:
    os.mkfifo(folder / ".mcp.json")

    seen = typed(*URL, "--project", "--yes")

    assert (seen.code, "it is no file" in seen.err) == (3, True)


def test_text_of_a_repositorys_file_is_escaped_on_a_terminal(typed: Type, folder: Path) -> None:
    (folder / ".mcp.json").write_text('{"mcpServers": {"a\\u009b2J\\u202e": {"command": "true"}}}')

    seen = typed(*URL, "--project", "--yes")

    assert "a\\u009b2J\\u202e" in seen.out
    assert not {"\x9b", "\u202e"} & set(seen.out)


def test_the_question_shows_the_target_of_a_link(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    elsewhere = folder / "elsewhere.json"
    (folder / ".mcp.json").symlink_to(elsewhere)
    reading, writing = os.pipe()
    os.write(writing, b"n\n")
    monkeypatch.setattr("greenroom.cli.install_command.is_terminal", lambda: True)
    with os.fdopen(reading) as keys:
        monkeypatch.setattr("greenroom.cli.terminal_prompts.sys.stdin", keys)
        assert run([*URL, "--project"]) == 6
        monkeypatch.undo()

    assert f"Write this to .mcp.json, a link to {elsewhere.resolve()}?" in capfd.readouterr().err
    assert not elsewhere.exists()
    os.close(writing)


@pytest.mark.greenroom(clock="real")
def test_files_in_the_working_directory_shadow_no_python_module(
    typed: Type, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert typed("install", "weather.py", "--to", "cursor", "--name", "it", "--yes").code == 0
    entry = json.loads((folder.parent / "home" / ".cursor" / "mcp.json").read_text())["mcpServers"]["it"]
    there = folder.parent / "there"
    there.mkdir()
    (there / "json.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(there)

    seen = typed("call", "dot", "--", entry["command"], *entry["args"])
    assert (seen.code, seen.err) == (0, "")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"x": 1e999}', "the number 1e999 would lose digits"),
        ('{"x": 0.10000000000000000000001}', "the number 0.10000000000000000000001 would lose digits"),
        ('{"x": NaN}', "NaN is not JSON"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "'a' occurs twice in one object"),
    ],
)
def test_a_file_with_values_that_would_change_is_left_alone(typed: Type, folder: Path, text: str, why: str) -> None:
    (folder / ".mcp.json").write_text(text)

    seen = typed(*URL, "--project", "--yes")

    assert (seen.code, why in seen.err, "nothing was written" in seen.err) == (3, True, True)
    assert (folder / ".mcp.json").read_text() == text


def test_odd_values_are_written_as_they_were_read(typed: Type, folder: Path) -> None:
    was = '{"small": 1e-7, "large": 12345678901234567890, "half": "\\ud800", "é": 0.1}'
    (folder / ".mcp.json").write_bytes(b"\xef\xbb\xbf" + was.encode())

    assert typed(*URL, "--project", "--yes").code == 0

    now = json.loads((folder / ".mcp.json").read_text(encoding="utf-8"))
    assert now.pop("mcpServers")
    assert now == json.loads(was)
