"""No command writes through a symbolic link that leads out of the project."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]

# The command, the path that is a link, and whether the link leads to a folder.
WRITES = {
    "install": (("install", "http://127.0.0.1:1/mcp", "--to", "claude-code", "--project", "--yes"), ".mcp.json", False),
    "install below": (("install", "http://127.0.0.1:1/mcp", "--to", "cursor", "--project", "--yes"), ".cursor", True),
    "remove": (("install", "sky", "--to", "vscode", "--project", "--yes", "--remove"), ".vscode/mcp.json", False),
    "new": (("new", "sky"), "sky", True),
    "new below": (("new", "below/sky"), "below", True),
    "call": (("call", "weather.py", "dot", "--save", "out"), "out", True),
    "call a file": (("call", "weather.py", "dot", "--save", "out"), "out/1.png", False),
    "read": (("read", "weather.py", "weather://photo", "--save", "photo.png"), "photo.png", False),
    "inspect": (("inspect", "weather.py", "--save", "seen.json"), "seen.json", False),
}
SERVERS = {"mcpServers": {}, "servers": {"sky": {"type": "http", "url": "http://127.0.0.1:1/mcp"}}}


def linked(project: Path, name: str, target: Path, *, is_folder: bool, exists: bool) -> None:
    if exists and is_folder:
        target.mkdir(parents=True)
    elif exists:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(SERVERS))
    place = project / name
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(target)


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("exists", [True, False], ids=["leads to something", "leads to nothing"])
@pytest.mark.parametrize("case", WRITES)
def test_no_command_writes_through_a_link_that_leads_out_of_the_project(
    typed: Type, folder: Path, case: str, *, exists: bool
) -> None:
    words, name, is_folder = WRITES[case]
    if case == "remove" and not exists:
        exists = True  # --remove needs an existing entry
    outside = folder.parent / "outside"
    outside.mkdir()
    linked(folder, name, outside / "victim", is_folder=is_folder, exists=exists)
    before = files_below(outside)
    seen = typed(*words)
    assert seen.code != 0
    assert "is a link to" in " ".join(seen.err.split())
    assert files_below(outside) == before
    assert (outside / "victim").exists() == exists


@pytest.mark.parametrize("case", WRITES)
def test_a_link_to_another_place_in_the_project_is_followed(typed: Type, folder: Path, case: str) -> None:
    words, name, is_folder = WRITES[case]
    linked(folder, name, folder / "inside" / "place", is_folder=is_folder, exists=True)
    before = files_below(folder / "inside")
    assert typed(*words).code == 0
    assert (folder / name).is_symlink()
    assert files_below(folder / "inside") != before


def test_the_users_own_files_may_be_links(typed: Type, folder: Path) -> None:
    dotfiles = folder.parent / "dotfiles" / "cursor.json"
    dotfiles.parent.mkdir()
    dotfiles.write_text("{}")
    own = folder.parent / "home" / ".cursor" / "mcp.json"
    own.parent.mkdir()
    own.symlink_to(dotfiles)
    assert typed("install", "http://127.0.0.1:1/mcp", "--to", "cursor", "--yes").code == 0
    assert own.is_symlink()
    assert "127.0.0.1" in dotfiles.read_text()


def test_a_path_elsewhere_that_was_typed_is_written(typed: Type, folder: Path) -> None:
    other = folder.parent / "other.json"
    assert typed("inspect", "weather.py", "--save", str(other)).code == 0
    assert typed("inspect", "weather.py", "--save", "../another.json").code == 0
    assert other.read_bytes() == (folder.parent / "another.json").read_bytes()
