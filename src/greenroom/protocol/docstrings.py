"""Docstrings in the styles of Google, numpy and Sphinx: a function's description, and those of its parameters.

Only sections that describe names are parsed (`Args:`, underlined `Parameters`, `:param name:` …). Everything that is not about parameters,
results or errors is the description.
"""

from __future__ import annotations

import re
from functools import lru_cache
from inspect import cleandoc
from typing import Final, NamedTuple

_NAMING: Final = {
    "args",
    "arguments",
    "parameters",
    "params",
    "other parameters",
    "keyword args",
    "keyword arguments",
    "attributes",
}
_OTHER: Final = {"returns", "return", "yields", "yield", "receives", "raises", "raise", "warns"}
_SECTION: Final = re.compile(r"([A-Za-z][A-Za-z ]*):\s*$")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)[ \t]*+(?:\([^)]*\)[ \t]*+)?:[ \t]*+(.*)$")
_UNDERLINE: Final = re.compile(r"-{3,}\s*$")
_NUMPY_ENTRY: Final = re.compile(r"(\*{0,2}\w+(?:[ \t]*+,[ \t]*+\*{0,2}\w+)*+)[ \t]*+(?::.*)?$")
_FIELD: Final = re.compile(
    r":(param|parameter|arg|argument|key|keyword|var|ivar|type|vartype|returns?|rtype|yields?|raises?|except|exception)\b([^:]*):[ \t]*+(.*)$"
)
_OF_NAMES: Final = frozenset({"param", "parameter", "arg", "argument", "key", "keyword", "var", "ivar"})


class Docstring(NamedTuple):
    """A parsed docstring: the description, and the description of each name."""

    description: str
    names: dict[str, str]


@lru_cache(maxsize=1024)
def parse_docstring(text: str | None) -> Docstring:
    """Parse a docstring. None gives an empty result."""
    reader = _DocstringParser()
    lines = cleandoc(text or "").splitlines()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        reader.take(line, is_heading=_UNDERLINE.match(following) is not None)
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(reader.kept)).strip(), reader.names)


class _DocstringParser:
    """The parser's state: description lines, descriptions of names, and the current section."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.names: dict[str, str] = {}
        self._style: str | None = None
        self._is_naming = False
        self._entries: list[str] = []
        """The names that the next lines describe."""
        self._depth = 0
        """The indentation of entries in a Google-style section."""

    def take(self, line: str, *, is_heading: bool) -> None:
        """Read the next line. `is_heading`: the line is underlined."""
        bare = line.strip()
        inset = len(line) - len(line.lstrip())
        known = _NAMING | _OTHER
        if is_heading and not inset and bare.lower() in known:
            self._begin("numpy", is_naming=bare.lower() in _NAMING)
        elif (heading := _SECTION.match(line)) and heading[1].lower() in known:
            self._begin("google", is_naming=heading[1].lower() in _NAMING)
        elif field := _FIELD.match(line):
            words = field[2].split()
            self._begin("sphinx", is_naming=field[1] in _OF_NAMES and bool(words))
            self._name([words[-1].lstrip("*")] if self._is_naming else [], field[3])
        elif self._style is None:
            self.kept.append(line)
        elif self._style == "numpy" and _UNDERLINE.match(line):
            return
        elif self._style == "numpy" and bare and not inset and not is_heading and (entry := _NUMPY_ENTRY.match(bare)):
            self._name([name.strip().lstrip("*") for name in entry[1].split(",")] if self._is_naming else [], "")
        elif bare and not inset:  # end of the section
            self._style, self._entries = None, []
            self.kept.append(line)
        elif bare and self._style == "google" and self._is_naming and self._begins_entry(bare, inset):
            return
        elif bare:
            for name in self._entries:
                self.names[name] = f"{self.names[name]} {bare}".strip()

    def _begin(self, style: str, *, is_naming: bool) -> None:
        self._style, self._is_naming, self._entries, self._depth = style, is_naming, [], 0

    def _begins_entry(self, bare: str, inset: int) -> bool:
        self._depth = self._depth or inset
        found = _ENTRY.match(bare) if inset <= self._depth else None
        if found:
            self._name([str(found[1])], found[2])
        return found is not None

    def _name(self, names: list[str], description: str) -> None:
        self._entries = names
        for name in names:
            self.names[name] = description
