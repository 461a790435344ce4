"""One file as it was read: its value, the line of everything in it, and why it could not be read if that is so.

Reading never waits for long and never takes much: a file is a regular one, of a megabyte at most.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from greenroom.protocol.serialization import is_object

from .mistakes import Mistake, Source, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LARGEST: Final = 1024 * 1024
_AT: Final = re.compile(r"\(at (?:line (?P<line>\d+), column \d+|end of document)\)\Z")
_HEADER: Final = re.compile(
    r"^[ \t]*\[[ \t]*(?:server[ \t]*\.[ \t]*)(?P<name>[A-Za-z0-9_-]+|\"[^\"\n]*\"|'[^'\n]*')", re.MULTILINE
)
_DIGITS: Final = re.compile(r"[0-9_]{4300}")
"""So many are more than Python makes a number of."""
_QUOTED: Final = re.compile(r"\"[^\"\\]*(?:\\.[^\"\\]*)*\"?|'[^']*'?", re.DOTALL)
_DOTS: Final = 500
_HALF: Final = "was it written only in part?"
_TWICE: Final = ("cannot declare", "cannot overwrite", "cannot mutate", "cannot redefine")


class UnreadableFile(Exception):
    """A file that cannot be had."""

    def __init__(self, what: str, hint: str = "", line: int = 0) -> None:
        """What is wrong with it."""
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.line = line


@dataclass(slots=True)
class ParsedFile:
    """One file."""

    path: FilePath
    folder: FilePath
    """What relative paths in it count from."""
    value: Mapping[str, Any] = field(default_factory=dict[str, Any])
    toml: bool = True
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    """Those that keep it from being read."""
    offsets: Mapping[KeyPath, int] = field(default_factory=dict["KeyPath", int])
    twice: list[tuple[KeyPath, int, int]] = field(default_factory=list["tuple[KeyPath, int, int]"])
    lines: LineNumbers = field(default_factory=lambda: LineNumbers(""))

    @property
    def readable(self) -> bool:
        """Whether it could be read."""
        return not self.mistakes

    def line(self, path: KeyPath) -> int:
        """The line of what is there, or of what it would be in."""
        while path and path not in self.offsets:
            path = path[:-1]
        return self.lines.of(self.offsets[path]) if path else 1

    def source(self, path: KeyPath) -> Source:
        """The same, with the file."""
        return Source(str(self.path), self.line(path))

    def mistake(self, path: KeyPath, what: str, hint: str = "") -> Mistake:
        """Something is wrong there, that is no server's."""
        name = ".".join(map(str, path)) or None
        return Mistake(self.source(path), None, name, what, hint)


def load(path: FilePath, folder: FilePath | None = None) -> ParsedFile:
    """Read a file. What is wrong with it stands in `mistakes`."""
    document = ParsedFile(path, folder or path.parent, toml=path.suffix.lower() != ".json")
    server: str | None = None
    text = ""
    try:
        text = read_text(path)
        document.lines = LineNumbers(text)
        if document.toml:
            _check_name_parts(text)
            document.value = tomllib.loads(text)
            document.offsets = TomlPositions(text).positions
        else:
            made = JsonParser(text)
            document.value, document.offsets, document.twice = _object(made.value), made.positions, made.twice
    except tomllib.TOMLDecodeError as error:
        problem, server = _toml_problem(str(error), text)
    except RecursionError:
        problem = UnreadableFile("has too many lists or tables in each other", "nobody needs as many")
    except InvalidJson as error:
        half = _HALF if error.offset >= len(text.rstrip()) else ""
        problem = UnreadableFile(f"is no JSON: {error.what}", half, document.lines.of(error.offset))
    except UnreadableFile as error:
        problem = error
    except ValueError:
        digits = _DIGITS.search(text)
        if digits is None:
            raise
        line = document.lines.of(digits.start())
        problem = UnreadableFile("has a number of more digits than anybody needs", "write a smaller one", line)
    else:
        return document
    document.mistakes.append(Mistake(Source(str(path), problem.line), server, None, problem.what, problem.hint))
    return document


def _check_name_parts(text: str) -> None:
    """The standard library's reader takes a time that grows with the square of a name's parts."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _DOTS and _QUOTED.sub("", line).count(".") > _DOTS:
            raise _too_many_parts(number)


def _too_many_parts(line: int) -> UnreadableFile:
    return UnreadableFile("has a name of too many parts", "nobody needs as many", line)


def _object(value: Any) -> Mapping[str, Any]:
    if not is_object(value):
        raise UnreadableFile("has to be an object", 'as in {"mcpServers": {…}}', 1)
    return value


def read_text(path: FilePath) -> str:
    """All of a file. Raises `UnreadableFile`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        hint = "write it, or name another file" if missing else "see who may read it"
        raise UnreadableFile(f"cannot be read: {error.strerror}", hint) from None
    except ValueError:
        raise UnreadableFile("is no path", "name another file") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFile("is no file", "name one")
    with open(descriptor, "rb") as file:  # noqa: PTH123 - what is open already
        try:
            data = cast("bytes | None", file.read(LARGEST + 1))
        except OSError as error:
            raise UnreadableFile(f"cannot be read: {error.strerror}") from None
    if data is None:
        raise UnreadableFile("is no file", "name one")  # it has nothing to say just now, as a device may
    if len(data) > LARGEST:
        raise UnreadableFile(f"is larger than {LARGEST} bytes", "a configuration is a small text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile("is no text in UTF-8", "save it as UTF-8", data.count(b"\n", 0, error.start) + 1) from None


def expand_home(name: str) -> FilePath:
    """A path whose `~` is a user's folder. Raises `UnreadableFile`."""
    try:
        return FilePath(name).expanduser()
    except RuntimeError:
        raise UnreadableFile("begins with a ~ for whose folder nobody is known", "write the whole path") from None


def _toml_problem(message: str, text: str) -> tuple[UnreadableFile, str | None]:
    """What the reader says, with the line, and the server that it is in if that is to be seen."""
    found = _AT.search(message)
    at_end = found is not None and found["line"] is None
    lines = LineNumbers(text)
    line = lines.of(len(text.rstrip())) if found is None or at_end else int(found["line"])
    what = message[: found.start()].rstrip() if found else message
    headers = [one for one in _HEADER.finditer(text) if lines.of(one.start()) <= line]
    server = headers[-1]["name"].strip("\"'") if headers else None
    if what.lower().startswith(_TWICE):
        header = headers[-1] if headers and lines.of(headers[-1].start()) == line else None
        if header is None:  # a key, and not a whole server
            key = text.split("\n")[line - 1].partition("=")[0].strip()
            twice = f"{quoted(key)} stands there twice"
        else:
            first = next(one for one in headers if one["name"].strip("\"'") == server)
            began = lines.of(first.start())
            twice = "stands there twice" + (f": it begins in line {began}" if began != line else "")
        return UnreadableFile(twice, "keep one of them; nothing of this file holds until then", line), server
    return UnreadableFile(
        f"is no TOML: {_printable(what)}", _HALF if at_end else "nothing of this file holds until then", line
    ), server


def _printable(what: str) -> str:
    """The reader quotes characters, of which some are no text."""
    return "".join(one if one.isprintable() else " " for one in what[:1].lower() + what[1:])


# --- JSON as editors let people write it: with comments and a comma too many. Read with the place of each key, and with what came twice.
# VS Code and Cursor take such files for their own. What another reader takes without either has the very same value here.

_SPACE: Final = re.compile(r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?P<float>(?:\.\d+)?(?:[eE][+-]?\d+)?)", re.ASCII)
_scan: Final[Callable[[str, int, bool], tuple[str, int]]] = vars(json.decoder)["scanstring"]
"""What the standard library reads texts with."""
_OPEN: Final = re.compile(r'(?:[^"\\\n]|\\.)*\\?')
"""A text that nothing closes, up to the end."""
_WORDS: Final = {"true": True, "false": False, "null": None}
_ENDS: Final = "the file ends before it is complete"
_DEEPEST: Final = 64
_LONGEST_NUMBER: Final = 300


class InvalidJson(ValueError):
    """The text is none. `offset` is where that shows."""

    def __init__(self, what: str, offset: int) -> None:
        """`what` is wrong there."""
        super().__init__(what)
        self.what = what
        self.offset = offset


class _Scanner:
    """A place in a text, which moves on, and the offsets that were found."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at: int = 0
        self.positions: dict[KeyPath, int] = {}

    def _skip(self, what: re.Pattern[str]) -> str:
        found = what.match(self._text, self._at)
        assert found is not None, f"nothing of the kind at {self._at}"
        self._at = found.end()
        return found.group()


class JsonParser(_Scanner):
    """A text that is read: its value, and where each key and each item stands. Raises `InvalidJson`."""

    def __init__(self, text: str) -> None:
        """All of it."""
        super().__init__(text)
        self.twice: list[tuple[KeyPath, int, int]] = []
        """Keys that came again: the path, where it was first, and where again. The value is the last one's."""
        self.value = self._value((), 0)
        self._space()
        if self._at < len(text):
            raise InvalidJson("something follows where the text is over", self._at)

    def _space(self) -> str:
        """The sign behind it; none at the end."""
        self._skip(_SPACE)
        return self._text[self._at : self._at + 1]

    def _value(self, path: KeyPath, depth: int) -> Any:
        if depth > _DEEPEST:
            raise InvalidJson(f"more than {_DEEPEST} objects and lists inside each other", self._at)
        here = self._space()
        self.positions.setdefault(path, self._at)
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
        raise InvalidJson("here has to be a value" if here else _ENDS, self._at)

    def _number(self, found: re.Match[str]) -> int | float:
        if len(found.group()) > _LONGEST_NUMBER:
            raise InvalidJson("a number of more digits than anybody needs", self._at)
        self._at = found.end()
        return float(found.group()) if found["float"] else int(found.group())

    def _string(self) -> str:
        began = self._at
        try:
            text, self._at = _scan(self._text, began + 1, True)  # noqa: FBT003 - strict: no control characters
        except json.JSONDecodeError as error:
            if _OPEN.fullmatch(self._text, began + 1):
                raise InvalidJson(_ENDS, len(self._text)) from None
            raise InvalidJson(
                "a text in quotes that does not end on its line, or has a sign that JSON does not take", error.pos
            ) from None
        if any("\ud800" <= one <= "\udfff" for one in text):
            raise InvalidJson("half of a pair of surrogates, which is no text", began)
        return text

    def _object(self, path: KeyPath, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for here in self._members("}"):
            if here != '"':
                raise InvalidJson("here has to be a name in quotes" if here else _ENDS, self._at)
            began = self._at
            key = self._string()
            place = (*path, key)
            if key in found:
                self.twice.append((place, self.positions[place], began))
            else:
                self.positions[place] = began
            if self._space() != ":":
                raise InvalidJson("a name is followed by a colon", self._at)
            self._at += 1
            found[key] = self._value(place, depth + 1)
        return found

    def _list(self, path: KeyPath, depth: int) -> list[Any]:
        found: list[Any] = []
        for _ in self._members("]"):
            found.append(self._value((*path, len(found)), depth + 1))
        return found

    def _members(self, end: str) -> Iterator[str]:
        """The sign that each member begins with; the loop's body reads the member before the next."""
        self._at += 1
        while (here := self._space()) != end:
            yield here
            here = self._space()
            if here == ",":
                self._at += 1
            elif here != end:
                raise InvalidJson(f"here has to be a comma or {end}" if here else _ENDS, self._at)
        self._at += 1


# --- Where in a TOML text each key and each item of a list stands. The standard library's reader keeps no positions.
# It is given texts that have been read already, so it judges nothing: it goes through the text once, and knows of TOML what is needed to tell a
# key from a value. That it finds the very keys that the reader finds is tested with any text that there is.

KeyPath: TypeAlias = "tuple[str | int, ...]"

_BLANK: Final = re.compile(r"[ \t]*")
_TOML_LINES_SPACE: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_LITERAL: Final = re.compile(r"'[^'\n]*'")
_BASIC: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_LONG_LITERAL: Final = re.compile(r"'''.*?'''(?:'{1,2})?", re.DOTALL)
_LONG_BASIC: Final = re.compile(r'"""(?:[^\\]|\\.)*?"""(?:"{1,2})?', re.DOTALL)
_TEXTS: Final = (('"""', _LONG_BASIC), ("'''", _LONG_LITERAL), ('"', _BASIC), ("'", _LITERAL))
_SCALAR: Final = re.compile(r"[^,\]}#\n]*")


class LineNumbers:
    """Line numbers of a text, from 1."""

    def __init__(self, text: str) -> None:
        """Of this one."""
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def of(self, offset: int) -> int:
        """The line that this place is in."""
        return bisect_right(self._starts, offset)


class TomlPositions(_Scanner):
    """The offset of each key, by the path to it, where it is named first; of each item of a list, where it begins. Raises `UnreadableFile` for a name of too many parts."""

    def __init__(self, text: str) -> None:
        """All of it."""
        super().__init__(text)
        self._tables: dict[KeyPath, int] = {}
        """How many there are so far of each list of tables."""
        table: KeyPath = ()
        self._skip(_TOML_LINES_SPACE)
        while self._at < len(text):
            if text.startswith("[", self._at):
                table = self._header(2 if text.startswith("[[", self._at) else 1)
            else:
                self._pair(table)
            self._skip(_TOML_LINES_SPACE)

    def _mark(self, path: KeyPath, offset: int) -> KeyPath:
        self.positions.setdefault(path, offset)
        return path

    def _header(self, brackets: int) -> KeyPath:
        self._at += brackets
        keys = self._key()
        self._at += brackets
        path: KeyPath = ()
        for key, offset in keys[:-1]:
            path = self._mark((*path, key), offset)
            if path in self._tables:  # a name in a header leads into the last table of a list
                path = (*path, self._tables[path])
        key, offset = keys[-1]
        path = self._mark((*path, key), offset)
        if brackets == 1:
            return path
        index = self._tables[path] = self._tables.get(path, -1) + 1
        return self._mark((*path, index), offset)

    def _key(self) -> list[tuple[str, int]]:
        keys: list[tuple[str, int]] = []
        while True:
            self._skip(_BLANK)
            began = self._at
            if len(keys) == _DEEPEST:
                raise _too_many_parts(LineNumbers(self._text).of(began))
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

    def _pair(self, table: KeyPath) -> None:
        path = table
        for key, offset in self._key():
            path = self._mark((*path, key), offset)
        self._at += 1  # the sign between them
        self._skip(_BLANK)
        self._value(path)

    def _value(self, path: KeyPath) -> None:
        if self._text.startswith("[", self._at):
            for index in self._items("]"):
                self._value(self._mark((*path, index), self._at))
        elif self._text.startswith("{", self._at):
            for _ in self._items("}"):
                self._pair(path)
        else:
            self._skip(next((like for begins, like in _TEXTS if self._text.startswith(begins, self._at)), _SCALAR))

    def _items(self, end: str) -> Iterator[int]:
        """The number of each item of a list or table on one line; the loop's body reads the item before the next."""
        self._at += 1
        for index in count():
            self._skip(_TOML_LINES_SPACE)
            if self._text.startswith(end, self._at):
                break
            yield index
            self._skip(_TOML_LINES_SPACE)
            if self._text.startswith(",", self._at):
                self._at += 1
        self._at += 1
