"""What a docstring says of a function and of each of its parameters, in Google's style.

Only the sections that name things are taken apart (`Args:`, `Parameters:`, `Attributes:` …); all that is not about parameters,
results or errors is the description.
"""

from __future__ import annotations

import re
from functools import lru_cache
from inspect import cleandoc
from typing import Final, NamedTuple

_NAMING: Final = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "attributes"}
_OTHER: Final = {"returns", "return", "yields", "yield", "raises", "raise"}
_SECTION: Final = re.compile(r"([A-Za-z][A-Za-z ]*):\s*$")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)[ \t]*(?:\([^)]*\))?[ \t]*:[ \t]*(.*)$")


class Docstring(NamedTuple):
    """The description, and what is said of each name."""

    description: str
    names: dict[str, str]


@lru_cache(maxsize=1024)
def read(text: str | None) -> Docstring:
    """Take a docstring apart. No docstring is an empty one."""
    kept: list[str] = []
    names: dict[str, str] = {}
    section: str | None = None
    entry: str | None = None
    depth = 0  # how far the entries of a section stand in
    for line in cleandoc(text or "").splitlines():
        bare = line.strip()
        inset = len(line) - len(line.lstrip())
        heading = _SECTION.match(line)
        if heading and heading[1].lower() in _NAMING | _OTHER:
            section, entry, depth = heading[1].lower(), None, 0
        elif section is None:
            kept.append(line)
        elif bare and not inset:  # the section is over
            section = None
            kept.append(line)
        elif bare and section in _NAMING:
            depth = depth or inset
            found = _ENTRY.match(bare) if inset <= depth else None
            if found:
                entry = str(found[1])
                names[entry] = found[2]
            elif entry is not None:
                names[entry] = f"{names[entry]} {bare}".strip()
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip(), names)
