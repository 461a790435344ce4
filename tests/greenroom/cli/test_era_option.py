"""`--era`, what `greenroom inspect` tells of a server's era and of what may be kept, and what commands remember of servers."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.client.era_verdict_file import EraVerdictFile
from greenroom.cli.inspect_command import oddities
from greenroom.protocol.dialect import LATEST_DIALECT, STATELESS_DIALECT
from greenroom.transports.client.server_command import Command

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]

OLD, NEW = LATEST_DIALECT.version, STATELESS_DIALECT.version
BOOKS = """
from greenroom import Cache, Server

server = Server("books", cache={"tools/list": Cache(60), "prompts/list": Cache(30, public=True)})

@server.tool
def lend(title: str) -> str:
    '''Lend a book.'''
    return title

if __name__ == "__main__":
    server.run()
"""
# The server answers `initialize` alone, in words that would move a terminal's cursor.
STUBBORN = r"""
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        told = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": told}), flush=True)
    elif "id" in asked:
        if asked["method"] == "server/discover":
            with open("asked", "a") as file:
                file.write("x")
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -32601, "message": "\x1b[2Jnever"}}), flush=True)
"""


@pytest.fixture
def books(folder: Path) -> str:
    (folder / "books.py").write_text(BOOKS)
    return "books.py"


def inspected(typed: Type, *words: str) -> dict[str, Any]:
    seen = typed("inspect", "--json", *words)
    assert seen.code == 0, seen.err
    found: dict[str, Any] = json.loads(seen.out)
    return found


@pytest.mark.parametrize(("era", "version"), [("auto", NEW), ("modern", NEW), ("legacy", OLD)])
def test_the_era_is_as_typed(typed: Type, books: str, era: str, version: str) -> None:
    assert inspected(typed, "--era", era, books)["protocol"] == version
    assert typed("call", "--era", era, books, "lend", "title=Emma").out == "Emma\n"
    assert typed("list", "--era", era, "--json", books).code == 0


def test_a_server_of_the_handshake_era_alone_is_refused_in_the_modern_one(typed: Type, folder: Path) -> None:
    (folder / "old.py").write_text(STUBBORN)
    refused = typed("inspect", "--era", "modern", "--", sys.executable, "old.py")
    assert refused.code != 0
    assert "server/discover" in refused.err
    assert "\x1b" not in refused.err


def test_an_era_of_another_name_is_refused(typed: Type, books: str) -> None:
    refused = typed("inspect", "--era", "2025", books)
    assert refused.code == 2
    assert "'auto', 'legacy', 'modern'" in refused.err


def test_the_typed_era_is_used_instead_of_the_configured_mode(typed: Type, books: str, folder: Path) -> None:
    command, words = json.dumps(sys.executable), json.dumps([books])
    (folder / "greenroom.toml").write_text(f'[server.library]\ncommand = {command}\nargs = {words}\nmode = "legacy"\n')
    assert inspected(typed, "library", "--config", "greenroom.toml")["protocol"] == OLD
    assert inspected(typed, "--era", "auto", "library", "--config", "greenroom.toml")["protocol"] == NEW


def test_inspect_tells_what_was_negotiated_and_what_is_cached(typed: Type, books: str) -> None:
    found = inspected(typed, books)
    assert (found["era"], found["evidence"]) == ("modern", "it answers server/discover")
    (tools,) = found["cached"]
    assert {name: tools[name] for name in ("method", "param", "scope")} == {
        "method": "tools/list",
        "param": None,
        "scope": "private",
    }
    assert 0 < tools["seconds_left"] <= 60
    text = typed("inspect", books).out
    assert f"speaks {NEW} (modern): it answers server/discover" in text
    assert "cached: tools/list for 60 s (private)" in text


def test_inspect_tells_that_nothing_is_cached(typed: Type) -> None:
    assert "cached: nothing" in typed("inspect", "weather.py").out


def test_inspect_tells_of_extensions(typed: Type, folder: Path) -> None:
    (folder / "pages.py").write_text(
        "from greenroom import Extension, Server\n"
        'server = Server("pages", extensions=[Extension("com.example/pages", settings={"size": 3})])\n'
    )
    assert "extensions: com.example/pages" in typed("inspect", "pages.py").out


def test_inspect_tells_why_a_handshake_was_made(typed: Type, folder: Path) -> None:
    (folder / "old.py").write_text(STUBBORN)
    command = ("--", sys.executable, "old.py")
    first = inspected(typed, *command)
    assert first["era"] == "legacy"
    assert first["evidence"].startswith("it answers initialize, and server/discover with: ")
    assert first["cached"] == []
    assert (
        inspected(typed, *command)["evidence"] == first["evidence"]
    )  # it asks again, as the server may have been updated
    text = typed("inspect", *command).out
    assert f"speaks {OLD} (legacy): it answers initialize, and server/discover with: " in text
    assert "\x1b" not in text
    assert "cached" not in text


@pytest.mark.row("26-V10")
def test_a_later_command_knows_what_an_earlier_one_has_found_out(typed: Type, folder: Path) -> None:
    (folder / "old.py").write_text(STUBBORN)
    command = ("--", sys.executable, "old.py")
    endpoint = Command(sys.executable, "old.py").endpoint
    asked = folder / "asked"
    for words, questions in ((("list",), 1), (("list",), 1), (("list", "--era", "auto"), 2), (("inspect",), 3)):
        assert typed(*words, *command).code == 0
        assert EraVerdictFile().of(endpoint) == OLD
        assert len(asked.read_text()) == questions


@pytest.mark.parametrize(("era", "degrees"), [("modern", set[str]()), ("legacy", {"wrong"})])
def test_a_result_of_any_type_is_odd_in_the_handshake_era_alone(era: str, degrees: set[str]) -> None:
    tool = {"name": "count", "description": "Counts.", "inputSchema": {"type": "object"}}
    listed = {"tools": [{**tool, "outputSchema": {"type": "integer"}}]}
    assert {each.degree for each in oddities(listed, any_output=era == "modern")} == degrees
    assert [
        each.degree for each in oddities({"tools": [{**tool, "inputSchema": {"type": "integer"}}]}, any_output=True)
    ]
