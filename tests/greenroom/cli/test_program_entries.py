"""The files that install writes to, which are other programs' as well: they write to them at the same time, and a repository brings its own."""

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


def test_what_the_program_writes_while_somebody_thinks_is_not_lost(
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
    assert "has been written to meanwhile: the change anew" in seen.err
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

    assert (seen.code, "is written to all the time" in seen.err) == (1, True)
    assert "mcpServers" not in json.loads(file.read_text())
    assert [each.name for each in file.parent.glob(".claude*")] == [file.name]


def test_what_was_there_is_not_kept_through_a_link_that_leads_elsewhere(typed: Type, folder: Path) -> None:
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

    assert (seen.code, "64 values in each other: nothing was written" in seen.err) == (3, True)
    assert (folder / ".mcp.json").read_text() == text


def test_what_is_no_file_is_waited_for_by_nobody(typed: Type, folder: Path) -> None:
    os.mkfifo(folder / ".mcp.json")

    seen = typed(*URL, "--project", "--yes")

    assert (seen.code, "it is no file" in seen.err) == (3, True)


def test_what_stands_in_a_repositorys_file_does_nothing_to_a_terminal(typed: Type, folder: Path) -> None:
    (folder / ".mcp.json").write_text('{"mcpServers": {"a\\u009b2J\\u202e": {"command": "true"}}}')

    seen = typed(*URL, "--project", "--yes")

    assert "a\\u009b2J\\u202e" in seen.out
    assert not {"\x9b", "\u202e"} & set(seen.out)


def test_who_is_asked_knows_where_a_link_leads(
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

    assert f"Write this to .mcp.json, which is {elsewhere.resolve()}?" in capfd.readouterr().err
    assert not elsewhere.exists()
    os.close(writing)


@pytest.mark.greenroom(clock="real")
def test_what_lies_where_a_program_starts_it_is_not_taken_for_pythons_own(
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
        ('{"x": 1e999}', "the number 1e999 is more exact"),
        ('{"x": 0.10000000000000000000001}', "the number 0.10000000000000000000001 is more exact"),
        ('{"x": NaN}', "NaN is no JSON"),
        ('{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}', "'a' stands there twice in one object"),
    ],
)
def test_what_would_not_be_written_as_it_was_read_is_left_alone(typed: Type, folder: Path, text: str, why: str) -> None:
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
