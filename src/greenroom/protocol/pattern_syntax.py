"""The syntax of patterns in ECMA-262's dialect: read as a tree, and said again in Python's dialect."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final, TypeAlias

from greenroom.errors import GreenroomError

DEEPEST: Final = 40


class BadPattern(GreenroomError):
    """The pattern is wrong, or has something in it that is not supported. Says what."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character: of these ranges of code points, of these categories of Unicode, or of neither."""

    ranges: tuple[tuple[int, int], ...]
    categories: tuple[tuple[str, bool], ...] = ()
    negated: bool = False

    def has(self, character: str) -> bool:
        """Whether the character is one of them. A category that is paired with True is meant negated."""
        code = ord(character)
        found = any(first <= code <= last for first, last in self.ranges)
        if not found and self.categories:
            category = unicodedata.category(character)
            found = any(category.startswith(name) is not excluded for name, excluded in self.categories)
        return found is not self.negated


@dataclass(frozen=True, slots=True)
class Edge:
    """A place between characters: `^`, `$`, `b` or `B`."""

    kind: str

    def holds(self, before: str, here: str) -> bool:
        """Whether the place between these two (each empty where the text ends) is one."""
        if self.kind == "^":
            return not before
        if self.kind == "$":
            return not here
        border = (bool(before) and WORD.has(before)) is not (bool(here) and WORD.has(here))
        return border is (self.kind == "b")


@dataclass(frozen=True, slots=True)
class Chain:
    """One after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of them."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """Again and again; `most` is None where there is no end."""

    body: Node
    least: int
    most: int | None
    lazy: bool


@dataclass(frozen=True, slots=True)
class Group:
    """A group that can be referred to, by number and perhaps by name."""

    body: Node
    name: str | None


@dataclass(frozen=True, slots=True)
class Look:
    """A look ahead or back: `?=`, `?!`, `?<=` or `?<!`."""

    body: Node
    kind: str


@dataclass(frozen=True, slots=True)
class Same:
    """What a group matched before, once more."""

    group: str


Node: TypeAlias = OneOf | Edge | Chain | Choice | Repeat | Group | Look | Same

_LAST: Final = 0x10FFFF
_DIGIT: Final = ((0x30, 0x39),)
_WORD: Final = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACE: Final = (
    (0x09, 0x0D), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A),
    (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF),
)  # fmt: skip
WORD: Final = OneOf(_WORD)
_DOT: Final = OneOf(((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029)), negated=True)
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_CONTROLS: Final = {"t": 0x09, "n": 0x0A, "v": 0x0B, "f": 0x0C, "r": 0x0D, "0": 0x00}
_QUANTIFIER: Final = re.compile(r"(\*|\+|\?|\{(\d{1,9})(,(\d{1,9})?)?\})(\??)")
_CODE: Final = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|u\{([0-9A-Fa-f]{1,6})\}|c([A-Za-z])")
_PROPERTY: Final = re.compile(r"([pP])\{(?:General_Category=|gc=)?([A-Z][a-z]?|Letter|Number|Punctuation|Symbol)\}")
_GROUP: Final = re.compile(r"\((\?:|\?=|\?!|\?<=|\?<!|\?<([A-Za-z_]\w*)>|(?!\?))")


def parse(source: str) -> Node:
    """The pattern as a tree. Raises `BadPattern`."""
    reader = _Reader(source)
    tree = reader.choice(0)
    if reader.place < len(source):
        raise reader.wrong("there is a `)` without a `(`")
    return tree


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.place = 0
        self.groups = 0

    def wrong(self, why: str) -> BadPattern:
        return BadPattern(f"the pattern {self.source!r} is not supported: {why}, at character {self.place}")

    @property
    def here(self) -> str:
        return self.source[self.place : self.place + 1]

    def took(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.source, self.place)
        if found:
            self.place = found.end()
        return found

    def choice(self, depth: int) -> Node:
        if depth > DEEPEST:
            raise self.wrong("its groups stand too deep in each other")
        branches = [self.chain(depth)]
        while self.here == "|":
            self.place += 1
            branches.append(self.chain(depth))
        return branches[0] if len(branches) == 1 else Choice(tuple(branches))

    def chain(self, depth: int) -> Node:
        parts: list[Node] = []
        while self.here and self.here not in "|)":
            atom = self.atom(depth)
            if found := self.took(_QUANTIFIER):
                if isinstance(atom, Edge):
                    raise self.wrong("there is nothing to repeat")
                atom = self.repeat(atom, found)
            parts.append(atom)
        return parts[0] if len(parts) == 1 else Chain(tuple(parts))

    def repeat(self, body: Node, found: re.Match[str]) -> Node:
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(found[1], (int(found[2] or 0), None))
        if found[2]:
            most = None if found[3] == "," else int(found[4] or found[2])
        if most is not None and most < least:
            raise self.wrong("a repetition ends before it starts")
        return Repeat(body, least, most, bool(found[5]))

    def atom(self, depth: int) -> Node:
        here = self.here
        if here in "*+?":
            raise self.wrong("there is nothing to repeat")
        if here == "(":
            return self.group(depth)
        self.place += 1
        match here:
            case "^" | "$":
                return Edge(here)
            case ".":
                return _DOT
            case "[":
                return self.char_class()
            case "\\":
                return self.escape()
            case _:
                return _just(ord(here))

    def group(self, depth: int) -> Node:
        found = self.took(_GROUP)
        if found is None:
            raise self.wrong("a group starts with something unknown; there are no flags inside of patterns")
        body = self.choice(depth + 1)
        if self.here != ")":
            raise self.wrong("a `(` is never closed")
        self.place += 1
        match found[1]:
            case "?:":
                return body
            case "?=" | "?!" | "?<=" | "?<!":
                return Look(body, found[1])
            case _:
                return Group(body, found[2])

    def escape(self) -> Node:
        here = self.here
        if here in ("b", "B"):
            self.place += 1
            return Edge(here)
        if found := self.took(re.compile(r"[1-9]\d?|k<([A-Za-z_]\w*)>")):
            return Same(found[1] or found[0])
        return self.escaped()

    def escaped(self) -> OneOf:
        """What a backslash stands before, alone or in a class."""
        if found := self.took(_PROPERTY):
            return OneOf((), ((found[2][:1] if len(found[2]) > 2 else found[2], found[1] == "P"),))  # noqa: PLR2004 - a name
        if found := self.took(_CODE):
            code = ord(found[4].upper()) - 64 if found[4] else int(found[1] or found[2] or found[3], 16)
            if code > _LAST:
                raise self.wrong("there is no such character")
            return _just(code)
        here = self.here
        self.place += 1
        if here.lower() in _CLASSES and here:
            return OneOf(_CLASSES[here.lower()], negated=here.isupper())
        if here in _CONTROLS:
            return _just(_CONTROLS[here])
        if not here or here.isalnum():
            raise self.wrong(f"nobody knows what \\{here} is" + (" (write ^ and $)" if here in "AzZ" and here else ""))
        return _just(ord(here))

    def char_class(self) -> OneOf:
        negated = self.here == "^"
        self.place += negated
        ranges: list[tuple[int, int]] = []
        categories: list[tuple[str, bool]] = []
        while self.here != "]":
            first = self.in_class()
            single = len(first.ranges) == 1 and first.ranges[0][0] == first.ranges[0][1] and not first.negated
            if single and self.here == "-" and self.source[self.place + 1 : self.place + 2] not in ("]", ""):
                self.place += 1
                last = self.in_class()
                low, high = first.ranges[0][0], last.ranges[0][1] if len(last.ranges) == 1 else -1
                if high < low:
                    raise self.wrong("a range ends before it starts")
                ranges.append((low, high))
                continue
            ranges += _inverted(first.ranges) if first.negated else first.ranges
            categories += first.categories
        self.place += 1
        return OneOf(tuple(ranges), tuple(categories), negated)

    def in_class(self) -> OneOf:
        here = self.here
        if not here:
            raise self.wrong("a `[` is never closed")
        self.place += 1
        if here != "\\":
            return _just(ord(here))
        if self.here == "b":
            self.place += 1
            return _just(0x08)
        return self.escaped()


def _just(code: int) -> OneOf:
    return OneOf(((code, code),))


def _inverted(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """All the other code points; the ranges are in order."""
    found: list[tuple[int, int]] = []
    start = 0
    for first, last in ranges:
        if first > start:
            found.append((start, first - 1))
        start = last + 1
    return (*found, (start, _LAST))


def to_python(node: Node) -> str | None:
    """The pattern in Python's dialect; None where that has no word for it. `re` may still refuse it."""
    try:
        return _said(node)
    except LookupError:
        return None


def _said(node: Node) -> str:
    match node:
        case OneOf():
            return _said_class(node)
        case Edge(kind):
            return {"^": r"\A", "$": r"\Z", "b": r"(?a:\b)", "B": r"(?a:\B)"}[kind]
        case Chain(parts):
            return "".join(_said(part) for part in parts)
        case Choice(branches):
            return f"(?:{'|'.join(_said(branch) for branch in branches)})"
        case Repeat(body, least, most, lazy):
            return f"(?:{_said(body)}){{{least},{'' if most is None else most}}}{'?' if lazy else ''}"
        case Group(body, name):
            return f"(?P<{name}>{_said(body)})" if name else f"({_said(body)})"
        case Look(body, kind):
            return f"({kind}{_said(body)})"
        case Same(group):
            return f"(?:\\{group})" if group.isdigit() else f"(?P={group})"


def _said_class(one: OneOf) -> str:
    if one.categories:
        raise LookupError("Python's patterns know no categories")
    if not one.ranges:
        return r"[\s\S]" if one.negated else r"(?!)"
    inside = "".join(f"{_code(first)}-{_code(last)}" for first, last in one.ranges)
    return f"[{'^' if one.negated else ''}{inside}]"


def _code(code: int) -> str:
    return f"\\U{code:08x}"
