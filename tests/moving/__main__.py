"""The command: `python -m tests.moving`, a part of `make interop`.

The page on moving from the official SDK or FastMCP is held against both libraries' signatures; then each of five servers that were written for
one of them is started beside the same server here, and both are asked the same.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

from .comparing import compare
from .meant import MEANT
from .pairs import HERE, PAIRS, REFEREES
from .tables import DIFFERENT, LIBRARIES, complaints, rows_of

PAGE = HERE.parents[1] / "docs" / "how-to" / "move-from-fastmcp-or-the-sdk.md"
INTERPRETERS = {"mcp": "mcp-2", "FastMCP": "fastmcp"}
LONGEST = 600


def signatures(library: str) -> dict[str, Any]:
    """The command for a library, in its own interpreter."""
    python = REFEREES / INTERPRETERS[library] / "bin" / "python"
    script = HERE / "python" / "signatures.py"
    done = subprocess.run(
        (str(python), str(script), library.lower()), capture_output=True, text=True, check=True, timeout=60
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


async def pairs(wrong: list[str]) -> set[str]:
    """Compare them all; which of the differences that are meant were met."""
    used: set[str] = set()
    for pair in PAIRS:
        found = await compare(pair, used)
        wrong += [f"{pair.name}: {where}: {_short(left)} there, {_short(right)} here" for where, left, right in found]
        _say(f"{pair.name:<12} {pair.library:<8} {len(pair.requests):>3} requests  {'WRONG' if found else 'right'}")
    return used


def main() -> int:
    """Check the tables, and compare the pairs; 1 when anything is wrong."""
    page = PAGE.read_text(encoding="utf-8")
    known = {library: signatures(library) for library in LIBRARIES}
    wrong = list(complaints(page, known))
    names = sum(len(section) for library in known.values() for section in library.values())
    _say(f"{names} names of {len(known)} libraries on the page")
    used = asyncio.run(pairs(wrong))
    told = {cells[0] for cells in rows_of(page, DIFFERENT)}
    wrong += [f"no pair shows it: {words}" for words in MEANT.keys() - used]
    wrong += [f"the page does not tell it: {words}" for words in MEANT.keys() - told]
    wrong += [f"the page tells it, and nothing checks it: {words}" for words in told - MEANT.keys()]
    for line in wrong:
        _say(line)
    _say(f"moving: {len(PAIRS)} comparisons, {len(MEANT)} differences that are meant, {len(wrong)} wrong")
    return int(bool(wrong))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _short(value: Any) -> str:
    return json.dumps(value, sort_keys=True)[:LONGEST]


if __name__ == "__main__":
    sys.exit(main())
