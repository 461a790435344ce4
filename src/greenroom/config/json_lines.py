"""JSON as editors let people write it: with comments and a comma too many. Read with the place of each key, and with what came twice.

VS Code and Cursor take such files for their own. What another reader takes without either has the very same value here.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from .toml_lines import Path

_SPACE: Final = re.compile(r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?P<float>(?:\.\d+)?(?:[eE][+-]?\d+)?)", re.ASCII)
_scan: Final[Callable[[str, int, bool], tuple[str, int]]] = vars(json.decoder)["scanstring"]
"""What the standard library reads texts with."""
_OPEN: Final = re.compile(r'(?:[^"\\\n]|\\.)*\\?')
"""A text that nothing closes, up to the end."""
_WORDS: Final = {"true": True, "false": False, "null": None}
_DEEPEST: Final = 64
_LONGEST_NUMBER: Final = 300


class NotJson(ValueError):
    """The text is none. `offset` is where that shows."""

    def __init__(self, what: str, offset: int) -> None:
        """`what` is wrong there."""
        super().__init__(what)
        self.what = what
        self.offset = offset


class Read(NamedTuple):
    """A text that was read."""

    value: Any
    positions: dict[Path, int]
    twice: list[tuple[Path, int, int]]
    """Keys that came again: the path, where it was first, and where again. The value is the last one's."""


def read(text: str) -> Read:
    """Read it. Raises `NotJson`."""
    return _Reader(text).run()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: dict[Path, int] = {}
        self._twice: list[tuple[Path, int, int]] = []

    def run(self) -> Read:
        value = self._value((), 0)
        self._space()
        if self._at < len(self._text):
            raise NotJson("something follows where the text is over", self._at)
        return Read(value, self._found, self._twice)

    def _space(self) -> str:
        found = _SPACE.match(self._text, self._at)
        if found is not None:
            self._at = found.end()
        return self._text[self._at : self._at + 1]

    def _value(self, path: Path, depth: int) -> Any:
        if depth > _DEEPEST:
            raise NotJson(f"more than {_DEEPEST} objects and lists inside each other", self._at)
        here = self._space()
        self._found.setdefault(path, self._at)
        if here == "{":
            return self._object(path, depth)
        if here == "[":
            return self._list(path, depth)
        if here == '"':
            return self._string()
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            return self._number(number)
        for word, value in _WORDS.items():
            if self._text.startswith(word, self._at):
                self._at += len(word)
                return value
        if not here:
            raise NotJson("the file ends before it is complete", self._at)
        raise NotJson("here has to be a value", self._at)

    def _number(self, found: re.Match[str]) -> int | float:
        if len(found.group()) > _LONGEST_NUMBER:
            raise NotJson("a number of more digits than anybody needs", self._at)
        self._at = found.end()
        return float(found.group()) if found["float"] else int(found.group())

    def _string(self) -> str:
        began = self._at
        try:
            text, self._at = _scan(self._text, began + 1, True)  # noqa: FBT003 - strict: no control characters
        except json.JSONDecodeError as error:
            if _OPEN.fullmatch(self._text, began + 1):
                raise NotJson("the file ends before it is complete", len(self._text)) from None
            raise NotJson(
                "a text in quotes that does not end on its line, or has a sign that JSON does not take", error.pos
            ) from None
        if any("\ud800" <= one <= "\udfff" for one in text):
            raise NotJson("half of a pair of surrogates, which is no text", began)
        return text

    def _object(self, path: Path, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._at += 1
        while (here := self._space()) != "}":
            if here != '"':
                raise NotJson(
                    "the file ends before it is complete" if not here else "here has to be a name in quotes", self._at
                )
            began = self._at
            key = self._string()
            place = (*path, key)
            if key in found:
                self._twice.append((place, self._found[place], began))
            else:
                self._found[place] = began
            if self._space() != ":":
                raise NotJson("a name is followed by a colon", self._at)
            self._at += 1
            found[key] = self._value(place, depth + 1)
            self._comma("}")
        self._at += 1
        return found

    def _list(self, path: Path, depth: int) -> list[Any]:
        found: list[Any] = []
        self._at += 1
        while self._space() != "]":
            found.append(self._value((*path, len(found)), depth + 1))
            self._comma("]")
        self._at += 1
        return found

    def _comma(self, end: str) -> None:
        here = self._space()
        if here == ",":
            self._at += 1
        elif here != end:
            raise NotJson(
                "the file ends before it is complete" if not here else f"here has to be a comma or {end}", self._at
            )
