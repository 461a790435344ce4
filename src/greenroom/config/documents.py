"""One file as it was read: its value, the line of everything in it, and why it could not be read if that is so.

Reading never waits for long and never takes much: a file is a regular one, of a megabyte at most.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final, cast

from greenroom.protocol.wire import is_object

from .json_lines import NotJson, read
from .mistakes import Mistake, Source, quoted
from .toml_lines import Lines, TooDeep, positions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .toml_lines import Path

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


class Unreadable(Exception):
    """A file that cannot be had."""

    def __init__(self, what: str, hint: str = "", line: int = 0) -> None:
        """What is wrong with it."""
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.line = line


@dataclass(slots=True)
class Document:
    """One file."""

    path: FilePath
    value: Mapping[str, Any] = field(default_factory=dict[str, Any])
    toml: bool = True
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    """Those that keep it from being read."""
    offsets: Mapping[Path, int] = field(default_factory=dict["Path", int])
    twice: list[tuple[Path, int, int]] = field(default_factory=list["tuple[Path, int, int]"])
    lines: Lines = field(default_factory=lambda: Lines(""))
    folder: FilePath | None = None
    """What relative paths in it count from."""

    @property
    def readable(self) -> bool:
        """Whether it could be read."""
        return not self.mistakes

    def line(self, path: Path) -> int:
        """The line of what is there, or of what it would be in."""
        while path and path not in self.offsets:
            path = path[:-1]
        return self.lines.of(self.offsets[path]) if path else 1

    def source(self, path: Path) -> Source:
        """The same, with the file."""
        return Source(str(self.path), self.line(path))

    def mistake(self, path: Path, what: str, hint: str = "", *, harmless: bool = False) -> Mistake:
        """Something is wrong there, that is no server's."""
        name = ".".join(map(str, path)) or None
        return Mistake(self.source(path), None, name, what, hint, harmless)


def load(path: FilePath, folder: FilePath | None = None) -> Document:
    """Read a file. What is wrong with it stands in `mistakes`."""
    document = Document(path, toml=path.suffix.lower() != ".json", folder=folder or path.parent)
    server: str | None = None
    text = ""
    try:
        text = read_text(path)
        document.lines = Lines(text)
        if document.toml:
            _bounded(text)
            document.value = tomllib.loads(text)
            document.offsets = positions(text)
        else:
            made = read(text)
            document.value, document.offsets, document.twice = _object(made.value), made.positions, made.twice
    except tomllib.TOMLDecodeError as error:
        problem, server = _toml_problem(str(error), text)
    except TooDeep as error:
        problem = Unreadable("has a name of too many parts", "nobody needs as many", document.lines.of(error.offset))
    except RecursionError:
        problem = Unreadable("has too many lists or tables in each other", "nobody needs as many")
    except NotJson as error:
        half = _HALF if error.offset >= len(text.rstrip()) else ""
        problem = Unreadable(f"is no JSON: {error.what}", half, document.lines.of(error.offset))
    except Unreadable as error:
        problem = error
    except ValueError:
        digits = _DIGITS.search(text)
        if digits is None:
            raise
        line = document.lines.of(digits.start())
        problem = Unreadable("has a number of more digits than anybody needs", "write a smaller one", line)
    else:
        return document
    document.mistakes.append(Mistake(Source(str(path), problem.line), server, None, problem.what, problem.hint))
    return document


def _bounded(text: str) -> None:
    """The standard library's reader takes a time that grows with the square of a name's parts."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _DOTS and _QUOTED.sub("", line).count(".") > _DOTS:
            raise Unreadable("has a name of too many parts", "nobody needs as many", number)


def _object(value: Any) -> Mapping[str, Any]:
    if not is_object(value):
        raise Unreadable("has to be an object", 'as in {"mcpServers": {…}}', 1)
    return value


def read_text(path: FilePath) -> str:
    """All of a file. Raises `Unreadable`."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        hint = "write it, or name another file" if missing else "see who may read it"
        raise Unreadable(f"cannot be read: {error.strerror}", hint) from None
    except ValueError:
        raise Unreadable("is no path", "name another file") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise Unreadable("is no file", "name one")
    with open(descriptor, "rb") as file:  # noqa: PTH123 - what is open already
        try:
            data = cast("bytes | None", file.read(LARGEST + 1))
        except OSError as error:
            raise Unreadable(f"cannot be read: {error.strerror}") from None
    if data is None:
        raise Unreadable("is no file", "name one")  # it has nothing to say just now, as a device may
    if len(data) > LARGEST:
        raise Unreadable(f"is larger than {LARGEST} bytes", "a configuration is a small text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Unreadable("is no text in UTF-8", "save it as UTF-8", data.count(b"\n", 0, error.start) + 1) from None


def at_home(name: str) -> FilePath:
    """A path whose `~` is somebody's folder. Raises `Unreadable`."""
    try:
        return FilePath(name).expanduser()
    except RuntimeError:
        raise Unreadable("begins with a ~ for whose folder nobody is known", "write the whole path") from None


def _toml_problem(message: str, text: str) -> tuple[Unreadable, str | None]:
    """What the reader says, with the line, and the server that it is in if that is to be seen."""
    found = _AT.search(message)
    at_end = found is not None and found["line"] is None
    lines = Lines(text)
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
        return Unreadable(twice, "keep one of them; nothing of this file holds until then", line), server
    return Unreadable(
        f"is no TOML: {_plain(what)}", _HALF if at_end else "nothing of this file holds until then", line
    ), server


def _plain(what: str) -> str:
    """The reader quotes characters, of which some are no text."""
    return "".join(one if one.isprintable() else " " for one in what[:1].lower() + what[1:])
