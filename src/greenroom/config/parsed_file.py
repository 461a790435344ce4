"""A parsed configuration file: its value, the line of each key, and the reason if it could not be read.

Reading is bounded in time and memory: a file has to be a regular file of at most one megabyte.
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
"""More digits than Python converts to an int."""
_QUOTED: Final = re.compile(r"\"[^\"\\]*(?:\\.[^\"\\]*)*\"?|'[^']*'?", re.DOTALL)
_DOTS: Final = 500
_HALF: Final = "was it written only in part?"
_TWICE: Final = ("cannot declare", "cannot overwrite", "cannot mutate", "cannot redefine")


class UnreadableFile(Exception):
    """A file that cannot be read or parsed."""

    def __init__(self, what: str, hint: str = "", line: int = 0) -> None:
        """`what` is the reason, `hint` what to do, `line` where."""
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.line = line


@dataclass(slots=True)
class ParsedFile:
    """A configuration file and its content."""

    path: FilePath
    folder: FilePath
    """The folder for relative paths in the file."""
    value: Mapping[str, Any] = field(default_factory=dict[str, Any])
    toml: bool = True
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    """Mistakes because of which it could not be parsed."""
    offsets: Mapping[KeyPath, int] = field(default_factory=dict["KeyPath", int])
    twice: list[tuple[KeyPath, int, int]] = field(default_factory=list["tuple[KeyPath, int, int]"])
    lines: LineNumbers = field(default_factory=lambda: LineNumbers(""))

    @property
    def readable(self) -> bool:
        """Whether it could be parsed."""
        return not self.mistakes

    def line(self, path: KeyPath) -> int:
        """The line of a key, or of the nearest table above it."""
        while path and path not in self.offsets:
            path = path[:-1]
        return self.lines.of(self.offsets[path]) if path else 1

    def source(self, path: KeyPath) -> Source:
        """The file and line of a key."""
        return Source(str(self.path), self.line(path))

    def mistake(self, path: KeyPath, what: str, hint: str = "") -> Mistake:
        """A mistake at a key outside of servers."""
        name = ".".join(map(str, path)) or None
        return Mistake(self.source(path), None, name, what, hint)


def load(path: FilePath, folder: FilePath | None = None) -> ParsedFile:
    """Read and parse a file. Mistakes are in `mistakes` of the result."""
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
        problem = UnreadableFile("has lists or tables nested too deeply", "reduce the nesting")
    except InvalidJson as error:
        half = _HALF if error.offset >= len(text.rstrip()) else ""
        problem = UnreadableFile(f"is not JSON: {error.what}", half, document.lines.of(error.offset))
    except UnreadableFile as error:
        problem = error
    except ValueError:
        digits = _DIGITS.search(text)
        if digits is None:
            raise
        line = document.lines.of(digits.start())
        problem = UnreadableFile("has a number with too many digits", "write a smaller one", line)
    else:
        return document
    document.mistakes.append(Mistake(Source(str(path), problem.line), server, None, problem.what, problem.hint))
    return document


def _check_name_parts(text: str) -> None:
    """Reject names with too many dotted parts: tomllib takes time quadratic in the number of parts."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _DOTS and _QUOTED.sub("", line).count(".") > _DOTS:
            raise _too_many_parts(number)


def _too_many_parts(line: int) -> UnreadableFile:
    return UnreadableFile("has a name with too many parts", "use fewer dots", line)


def _object(value: Any) -> Mapping[str, Any]:
    if not is_object(value):
        raise UnreadableFile("has to be an object", 'as in {"mcpServers": {…}}', 1)
    return value


def read_text(path: FilePath) -> str:
    """The text of a file. Raises `UnreadableFile`."""
    # Not `open(path)`: without O_NONBLOCK, opening a FIFO would wait for a writer, and the check of the file's type would come too late.
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        hint = "create it, or name another file" if missing else "check its permissions"
        raise UnreadableFile(f"cannot be read: {error.strerror}", hint) from None
    except ValueError:
        raise UnreadableFile("is not a path", "name another file") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFile("is not a regular file", "name one")
    with open(descriptor, "rb") as file:  # noqa: PTH123 - the file is already open
        try:
            data = cast("bytes | None", file.read(LARGEST + 1))
        except OSError as error:
            raise UnreadableFile(f"cannot be read: {error.strerror}") from None
    if data is None:
        raise UnreadableFile("is not a regular file", "name one")  # a non-blocking device without data returns None
    if len(data) > LARGEST:
        raise UnreadableFile(f"is larger than {LARGEST} bytes", "a configuration file is small")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile("is not UTF-8 text", "save it as UTF-8", data.count(b"\n", 0, error.start) + 1) from None


def expand_home(name: str) -> FilePath:
    """The path with `~` expanded. Raises `UnreadableFile`."""
    try:
        return FilePath(name).expanduser()
    except RuntimeError:
        raise UnreadableFile("begins with ~ and an unknown user", "write the whole path") from None


def _toml_problem(message: str, text: str) -> tuple[UnreadableFile, str | None]:
    """The message of tomllib as a mistake with its line, and the name of the server at that line if it is known."""
    found = _AT.search(message)
    at_end = found is not None and found["line"] is None
    lines = LineNumbers(text)
    line = lines.of(len(text.rstrip())) if found is None or at_end else int(found["line"])
    what = message[: found.start()].rstrip() if found else message
    headers = [one for one in _HEADER.finditer(text) if lines.of(one.start()) <= line]
    server = headers[-1]["name"].strip("\"'") if headers else None
    if what.lower().startswith(_TWICE):
        header = headers[-1] if headers and lines.of(headers[-1].start()) == line else None
        if header is None:  # a repeated key, not a repeated table
            key = text.split("\n")[line - 1].partition("=")[0].strip()
            twice = f"{quoted(key)} is defined twice"
        else:
            first = next(one for one in headers if one["name"].strip("\"'") == server)
            began = lines.of(first.start())
            twice = "is defined twice" + (f": first in line {began}" if began != line else "")
        return UnreadableFile(twice, "keep one of them; until then the whole file is ignored", line), server
    return UnreadableFile(
        f"is not TOML: {_printable(what)}", _HALF if at_end else "until then the whole file is ignored", line
    ), server


def _printable(what: str) -> str:
    """The message of tomllib with unprintable characters replaced: it quotes characters of the file."""
    return "".join(one if one.isprintable() else " " for one in what[:1].lower() + what[1:])


# --- JSON with comments and trailing commas, as VS Code and Cursor accept it. The parser records the position of each key, and repeated keys.
# The standard library's parser accepts no comments and records no positions. Plain JSON has the same value in both parsers.

_SPACE: Final = re.compile(r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?P<float>(?:\.\d+)?(?:[eE][+-]?\d+)?)", re.ASCII)
_scan: Final[Callable[[str, int, bool], tuple[str, int]]] = vars(json.decoder)["scanstring"]
"""The standard library's scanner of JSON strings, which has no public name. The alternative is a scanner in Python with its own copy of the rules for escapes."""
_OPEN: Final = re.compile(r'(?:[^"\\\n]|\\.)*\\?')
"""A string without a closing quote, up to the end of the file."""
_WORDS: Final = {"true": True, "false": False, "null": None}
_ENDS: Final = "the file ends before it is complete"
_DEEPEST: Final = 64
_LONGEST_NUMBER: Final = 300


class InvalidJson(ValueError):
    """The text is not JSON. `offset` is the position of the mistake."""

    def __init__(self, what: str, offset: int) -> None:
        """`what` describes the mistake."""
        super().__init__(what)
        self.what = what
        self.offset = offset


class _Scanner:
    """A position in a text, and the offsets of keys found so far."""

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
    """Parses a JSON text: its value, and the offset of each key and item. Raises `InvalidJson`."""

    def __init__(self, text: str) -> None:
        """Parse the whole text."""
        super().__init__(text)
        self.twice: list[tuple[KeyPath, int, int]] = []
        """Repeated keys: the path, the first offset and the second. The last value counts."""
        self.value = self._value((), 0)
        self._space()
        if self._at < len(text):
            raise InvalidJson("text follows after the end of the value", self._at)

    def _space(self) -> str:
        """Skip white space and comments; returns the next character, or "" at the end."""
        self._skip(_SPACE)
        return self._text[self._at : self._at + 1]

    def _value(self, path: KeyPath, depth: int) -> Any:
        if depth > _DEEPEST:
            raise InvalidJson(f"objects and lists are nested more than {_DEEPEST} levels deep", self._at)
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
        raise InvalidJson("a value is missing here" if here else _ENDS, self._at)

    def _number(self, found: re.Match[str]) -> int | float:
        if len(found.group()) > _LONGEST_NUMBER:
            raise InvalidJson("a number with too many digits", self._at)
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
                "a string does not end on its line, or has a character that JSON forbids", error.pos
            ) from None
        if any("\ud800" <= one <= "\udfff" for one in text):
            raise InvalidJson("a string has a lone surrogate", began)
        return text

    def _object(self, path: KeyPath, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for here in self._members("}"):
            if here != '"':
                raise InvalidJson("a name in quotes is missing here" if here else _ENDS, self._at)
            began = self._at
            key = self._string()
            place = (*path, key)
            if key in found:
                self.twice.append((place, self.positions[place], began))
            else:
                self.positions[place] = began
            if self._space() != ":":
                raise InvalidJson("a colon is missing after the name", self._at)
            self._at += 1
            found[key] = self._value(place, depth + 1)
        return found

    def _list(self, path: KeyPath, depth: int) -> list[Any]:
        found: list[Any] = []
        for _ in self._members("]"):
            found.append(self._value((*path, len(found)), depth + 1))
        return found

    def _members(self, end: str) -> Iterator[str]:
        """Yield the first character of each member; the loop's body has to consume the member."""
        self._at += 1
        while (here := self._space()) != end:
            yield here
            here = self._space()
            if here == ",":
                self._at += 1
            elif here != end:
                raise InvalidJson(f"a comma or {end} is missing here" if here else _ENDS, self._at)
        self._at += 1


# --- Positions of keys and list items in a TOML text, because tomllib records none.
# The text has been parsed by tomllib before, so this scanner validates nothing: it goes through the text once and only tells keys from values. Property tests
# compare the keys that both find.

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
        """Find the starts of the lines."""
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def of(self, offset: int) -> int:
        """The line number of an offset."""
        return bisect_right(self._starts, offset)


class TomlPositions(_Scanner):
    """The first offset of each key, and the offset of each list item, by path. Raises `UnreadableFile` for a name with too many parts."""

    def __init__(self, text: str) -> None:
        """Scan the whole text."""
        super().__init__(text)
        self._tables: dict[KeyPath, int] = {}
        """The number of tables so far in each array of tables."""
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
            if path in self._tables:  # a header's name refers to the last table of an array of tables
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
        self._at += 1  # the = between key and value
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
        """Yield the index of each item of a list or inline table; the loop's body has to consume the item."""
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
