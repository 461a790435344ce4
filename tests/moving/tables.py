"""The tables of the page: the names of each library that each section has, and what the sections have to have."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SECTIONS: Final[Mapping[str, str]] = {
    "The server": "server",
    "The decorator tool": "tool",
    "The decorator resource": "resource",
    "The decorator prompt": "prompt",
    "The decorator completion": "completion",
    "The decorator custom_route": "custom_route",
    "Running": "running",
    "Other members of a server": "methods",
    "The context": "context",
    "The client": "client",
    "Requests of a client": "requests",
    "Options of these requests": "request options",
    "Names to import": "imports",
    "Authentication": "auth",
    "Middleware, transforms and providers": "plumbing",
    "Ways to a server": "ways",
    "The command line": "commands",
}
"""By the page's heading, what `signatures.py` calls it."""
LIBRARIES: Final = ("mcp", "FastMCP")
DIFFERENT: Final = "Differences on the wire"


def rows_of(page: str, heading: str) -> list[list[str]]:
    """The cells of a section's table, without its head."""
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    lines = [line for line in (found[1] if found else "").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in map(_spaced, lines[2:])]


def _spaced(line: str) -> str:
    """An empty cell is a cell."""
    return re.sub(r"^\| \| ", "|  | ", re.sub(r"\| \| ", "|  | ", line)).removeprefix("|").removesuffix("|")


def names_of(page: str, heading: str) -> dict[str, list[str]]:
    """By library, all names in its column."""
    found: dict[str, list[str]] = {library: [] for library in LIBRARIES}
    for cells in rows_of(page, heading):
        for library, cell in zip(LIBRARIES, cells, strict=False):
            found[library] += re.findall(r"`([^`]+)`", cell)
    return found


def complaints(page: str, signatures: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Names that a library has and the page lacks, or the other way round; and rows without a name of ours."""
    for heading, section in SECTIONS.items():
        rows = rows_of(page, heading)
        for cells in rows:
            if len(cells) != len(LIBRARIES) + 1 or not cells[-1]:
                yield f"{heading}: this row has not one cell for each library and one for us: {' | '.join(cells)}"
        found = names_of(page, heading)
        for library in LIBRARIES:
            had, has = found[library], set(signatures[library][section])
            for name in sorted(has - set(had)):
                yield f"{heading}: {library} has {name!r}, which the page has not"
            for name in sorted(set(had) - has):
                yield f"{heading}: the page has {name!r}, which {library} has not"
            for name in sorted({name for name in had if had.count(name) > 1}):
                yield f"{heading}: the page has {name!r} of {library} more than once"
