"""The page on moving: what its check finds, and that the words of ours that it names are there."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

import greenroom
from greenroom import Client, Context, Server, auth, host, transports
from greenroom.actors.server_registry import ServerRegistry
from greenroom.client import PendingCall

from .meant import MEANT
from .tables import DIFFERENT, SECTIONS, complaints, names_of, rows_of

PAGE = Path(__file__).parents[2] / "docs/how-to/move-from-fastmcp-or-the-sdk.md"
TEXT = PAGE.read_text(encoding="utf-8")
EMPTY = {section: list[str]() for section in SECTIONS.values()}
SMALL = """# A page

## Running

| mcp | FastMCP | greenroom |
| --- | --- | --- |
| `run` | `run`, `run_async` | `server.run()` |
| | `sockets` | there is none, because |

## Another
"""


def test_a_section_is_read_by_library() -> None:
    assert names_of(SMALL, "Running") == {"mcp": ["run"], "FastMCP": ["run", "run_async", "sockets"]}


@pytest.mark.parametrize(
    ("page", "mcp", "fastmcp", "complaint"),
    [
        (SMALL, ["run"], ["run", "run_async", "sockets"], ""),
        (SMALL, ["run", "host"], ["run", "run_async", "sockets"], "mcp has 'host', which the page has not"),
        (SMALL, ["run"], ["run", "sockets"], "the page has 'run_async', which FastMCP has not"),
        (
            SMALL.replace("there is none, because", ""),
            ["run"],
            ["run", "run_async", "sockets"],
            "this row has not one cell for each",
        ),
        (
            SMALL.replace("| | `sockets`", "| `run` | `sockets`"),
            ["run"],
            ["run", "run_async", "sockets"],
            "'run' of mcp more than once",
        ),
    ],
)
def test_missing_and_invented_entries_are_reported(
    page: str, mcp: list[str], fastmcp: list[str], complaint: str
) -> None:
    found = list(complaints(page, {"mcp": {**EMPTY, "running": mcp}, "FastMCP": {**EMPTY, "running": fastmcp}}))
    assert complaint in "\n".join(found)
    assert bool(found) == bool(complaint)


def test_the_page_tells_the_differences_that_are_meant_and_no_other() -> None:
    assert {cells[0] for cells in rows_of(TEXT, DIFFERENT)} == set(MEANT)


OWNERS: dict[str, Any] = {
    "server": Server("x"),
    "client": Client("http://127.0.0.1:1/mcp"),
    "ctx": Context,
    "call": PendingCall,
    "company.registry": ServerRegistry,
    "server.registry": Server("x").registry,
}


def ours() -> str:
    """All code in the third cells."""
    cells = "\n".join(cells[-1] for heading in SECTIONS for cells in rows_of(TEXT, heading))
    return "\n".join(re.findall(r"`([^`]+)`", cells))


def slots_of(owner: Any) -> set[str]:
    """The attributes of an instance: a context's are set when it is made."""
    return {*dir(owner), *(slot for each in getattr(owner, "__mro__", ()) for slot in getattr(each, "__slots__", ()))}


@pytest.mark.parametrize("owner", OWNERS)
def test_our_words_are_there(owner: str) -> None:
    said = set(re.findall(rf"\b{re.escape(owner)}\.(?!registry|py\b)([a-z_]+)", ours()))
    assert said
    assert said <= slots_of(OWNERS[owner])


@pytest.mark.parametrize("kind", ["Settings", "HttpConfig", "ClientSettings", "Hooks"])
def test_our_options_are_there(kind: str) -> None:
    said = {word for inside in re.findall(rf"\b{kind}\((.*)\)", ours()) for word in re.findall(r"(\w+)=", inside)}
    assert said
    assert said <= {each.name for each in dataclasses.fields(getattr(greenroom, kind))}


def test_every_name_in_the_tables_can_be_imported() -> None:
    said = set(re.findall(r"(?<![\w.])([A-Z]\w+)\(", ours()))
    assert len(said) > 20
    assert said <= {*greenroom.__all__, *auth.__all__, *host.__all__, *transports.__all__}
