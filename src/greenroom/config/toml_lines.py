"""Where in a TOML text each key and each item of a list stands. The standard library's reader keeps no positions.

It is given texts that have been read already, so it judges nothing: it goes through the text once, and knows of TOML what is needed to tell a
key from a value. That it finds the very keys that the reader finds is tested with any text that there is.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from typing import Final, TypeAlias

Path: TypeAlias = "tuple[str | int, ...]"

_BLANK: Final = re.compile(r"[ \t]*")
_SPACE: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_LITERAL: Final = re.compile(r"'[^'\n]*'")
_BASIC: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LONG_LITERAL: Final = re.compile(r"'''.*?'''(?:'{1,2})?", re.DOTALL)
_LONG_BASIC: Final = re.compile(r'"""(?:[^\\]|\\.)*?"""(?:"{1,2})?', re.DOTALL)
_DEEPEST: Final = 64
_SCALAR: Final = re.compile(r"[^,\]}#\n]*")


class TooDeep(ValueError):
    """More names with dots between them than anybody writes. `offset` is where."""

    def __init__(self, offset: int) -> None:
        """It begins there."""
        super().__init__(offset)
        self.offset = offset


class Lines:
    """Line numbers of a text, from 1."""

    def __init__(self, text: str) -> None:
        """Of this one."""
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def of(self, offset: int) -> int:
        """The line that this place is in."""
        return bisect_right(self._starts, offset)


def positions(text: str) -> dict[Path, int]:
    """The offset of each key, by the path to it, where it is named first; of each item of a list, where it begins. Raises `TooDeep`."""
    return _Finder(text).run()


class _Finder:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._found: dict[Path, int] = {}
        self._tables: dict[Path, int] = {}
        """How many there are so far of each list of tables."""

    def run(self) -> dict[Path, int]:
        table: Path = ()
        while True:
            self._skip(_SPACE)
            if self._at >= len(self._text):
                return self._found
            if self._text.startswith("[[", self._at):
                table = self._header(2)
            elif self._text.startswith("[", self._at):
                table = self._header(1)
            else:
                self._pair(table)

    def _skip(self, what: re.Pattern[str]) -> str:
        found = what.match(self._text, self._at)
        assert found is not None, f"no TOML at {self._at}"
        self._at = found.end()
        return found.group()

    def _mark(self, path: Path, offset: int) -> None:
        self._found.setdefault(path, offset)

    def _header(self, brackets: int) -> Path:
        self._at += brackets
        keys = self._key()
        self._at += brackets
        path: Path = ()
        for key, offset in keys[:-1]:
            path = self._latest((*path, key), offset)
        key, offset = keys[-1]
        path = (*path, key)
        self._mark(path, offset)
        if brackets == 1:
            return path
        index = self._tables.get(path, -1) + 1
        self._tables[path] = index
        self._mark((*path, index), offset)
        return (*path, index)

    def _latest(self, path: Path, offset: int) -> Path:
        """A name in a header leads into the last table of a list."""
        self._mark(path, offset)
        return (*path, self._tables[path]) if path in self._tables else path

    def _key(self) -> list[tuple[str, int]]:
        keys: list[tuple[str, int]] = []
        while True:
            self._skip(_BLANK)
            began = self._at
            if len(keys) == _DEEPEST:
                raise TooDeep(began)
            keys.append((self._name(), began))
            self._skip(_BLANK)
            if not self._text.startswith(".", self._at):
                return keys
            self._at += 1

    def _name(self) -> str:
        if self._text.startswith("'", self._at):
            return self._skip(_LITERAL)[1:-1]
        if self._text.startswith('"', self._at):
            name: str = tomllib.loads(f"name = {self._skip(_BASIC)}")["name"]
            return name
        return self._skip(_BARE)

    def _pair(self, table: Path) -> None:
        path = table
        for key, offset in self._key():
            path = (*path, key)
            self._mark(path, offset)
        self._at += 1  # the sign between them
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: Path) -> None:
        here = self._text[self._at : self._at + 3]
        if here == '"""':
            self._skip(_LONG_BASIC)
        elif here == "'''":
            self._skip(_LONG_LITERAL)
        elif here.startswith('"'):
            self._skip(_BASIC)
        elif here.startswith("'"):
            self._skip(_LITERAL)
        elif here.startswith("["):
            self._list(path)
        elif here.startswith("{"):
            self._inline(path)
        else:
            self._skip(_SCALAR)

    def _list(self, path: Path) -> None:
        self._at += 1
        index = 0
        while True:
            self._skip(_SPACE)
            if self._text.startswith("]", self._at):
                break
            self._mark((*path, index), self._at)
            self._value((*path, index))
            index += 1
            self._skip(_SPACE)
            if self._text.startswith(",", self._at):
                self._at += 1
        self._at += 1

    def _inline(self, path: Path) -> None:
        self._at += 1
        while True:
            self._skip(_SPACE)
            if self._text.startswith("}", self._at):
                break
            self._pair(path)
            self._skip(_SPACE)
            if self._text.startswith(",", self._at):
                self._at += 1
        self._at += 1
