"""What a field may hold: each kind judges a value, and says the same of it as JSON Schema, for editors.

The two are one: whatever a kind refuses its schema refuses, and the other way round. So patterns are searched for, as JSON Schema does,
in a form that Python and editors read alike. What only this machine can know (is the variable set, is the file there) is nobody's kind.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from greenroom.protocol.wire import is_array, is_object

from .mistakes import nearest, quoted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .toml_lines import Path

MOST: Final = 1_000_000_000
"""No number has to be larger."""
ENOUGH: Final = 1000
"""After so many mistakes in one file it is not looked for more."""
NO_NUL: Final = r"[^\u0000]*"
VARIABLE: Final = r"\$\{"
"""Where this is found a text is made of variables, and what becomes of it is not known yet."""


def whole(pattern: str) -> str:
    """A pattern for all of a text: `$` alone means something else to Python than to editors."""
    return rf"^(?:{pattern})(?![\s\S])"


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


@dataclass(slots=True)
class Book:
    """Where kinds write what is wrong: the path to it, what, and what to write instead."""

    told: list[tuple[Path, str, str]] = field(default_factory=list["tuple[Path, str, str]"])

    @property
    def full(self) -> bool:
        """Whether there is so much wrong that nobody reads on."""
        return len(self.told) >= ENOUGH

    def tell(self, path: Path, what: str, hint: str = "") -> None:
        """One more."""
        self.told.append((path, what, hint))


class Kind(Protocol):
    """One of the following."""

    @property
    def said(self) -> str:
        """What it has to be, in words: a text, a whole number from 1."""
        ...

    def schema(self) -> dict[str, Any]:
        """The same for editors."""
        ...

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Write down what is wrong with it."""
        ...


@dataclass(frozen=True, slots=True)
class Text:
    """A text."""

    pattern: str = NO_NUL
    """What all of it is like."""
    said: str = "a text"
    variables: bool = False
    """Whether `${…}` may stand in it, of which nothing is known yet."""

    def schema(self) -> dict[str, Any]:
        """For editors."""
        if self.variables and self.pattern != NO_NUL:
            found = [{"pattern": whole(self.pattern)}, {"pattern": VARIABLE}]
            return {"type": "string", "pattern": whole(NO_NUL), "anyOf": found}
        return {"type": "string", "pattern": whole(self.pattern)}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Only its kind is told: it may be a secret."""
        if not isinstance(value, str):
            book.tell(path, f"has to be {self.said}, not {kind_of(value)}")
        elif not self.takes(value):
            book.tell(path, f"has to be {self.said}")

    def takes(self, value: str) -> bool:
        """Whether it is such a text."""
        if self.variables and re.search(VARIABLE, value):
            return "\0" not in value
        return _compiled(whole(self.pattern)).search(value) is not None


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false."""

    said: str = "true or false"

    def schema(self) -> dict[str, Any]:
        """For editors."""
        return {"type": "boolean"}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Nothing else stands for it."""
        if not isinstance(value, bool):
            quotes = isinstance(value, str) and value.lower() in {"true", "false"}
            hint = f"write {value.lower()} without quotes" if quotes else ""
            book.tell(path, f"has to be {self.said}, not {kind_of(value)}", hint)


@dataclass(frozen=True, slots=True)
class Number:
    """A number, from the least to the most."""

    least: float
    most: float = MOST
    more_than: bool = False
    """Whether the least itself is too little."""
    whole: bool = False
    what: str = ""

    @property
    def said(self) -> str:
        """In words."""
        kind = self.what or ("a whole number" if self.whole else "a number")
        begin = f"more than {self.least:g}" if self.more_than else f"{self.least:g} or more"
        return f"{kind}, {begin}" + (f", {self.most:g} at most" if self.most != MOST else "")

    def schema(self) -> dict[str, Any]:
        """For editors."""
        least = {"exclusiveMinimum" if self.more_than else "minimum": self.least}
        return {"type": "integer" if self.whole else "number", **least, "maximum": self.most}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Numbers are shown: they are no secrets."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            number = isinstance(value, str) and re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", value)
            book.tell(
                path, f"has to be {self.said}, not {kind_of(value)}", f"write {value} without quotes" if number else ""
            )
        elif not self._fits(value):
            book.tell(path, f"has to be {self.said}, not {_shown(value)}")

    def _fits(self, value: float) -> bool:
        if not (self.least < value if self.more_than else self.least <= value) or not value <= self.most:
            return False
        return not self.whole or isinstance(value, int) or value.is_integer()


def _shown(value: float) -> str:
    """In figures, if those are few: of too many Python refuses to make a text at all."""
    return "such a number" if isinstance(value, int) and abs(value) > 10**18 else f"{value}"


def seconds() -> Number:
    """A time."""
    return Number(0, more_than=True, what="a number of seconds")


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def said(self) -> str:
        """In words."""
        return f"{', '.join(self.words[:-1])} or {self.words[-1]}"

    def schema(self) -> dict[str, Any]:
        """For editors."""
        return {"enum": list(self.words)}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Whoever mistypes one hears which it probably is."""
        if not isinstance(value, str):
            book.tell(path, f"has to be {self.said}, not {kind_of(value)}")
        elif value not in self.words:
            book.tell(path, f"has to be {self.said}, not {quoted(value)}", nearest(value, self.words))


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of texts."""

    item: Text = Text()
    most: int = 10_000

    @property
    def said(self) -> str:
        """In words."""
        return "a list, each item " + self.item.said

    def schema(self) -> dict[str, Any]:
        """For editors."""
        return {"type": "array", "items": self.item.schema(), "maxItems": self.most}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Each item by itself."""
        if not is_array(value):
            hint = "put it in brackets: […]" if isinstance(value, str) else ""
            book.tell(path, f"has to be a list, not {kind_of(value)}", hint)
            return
        if len(value) > self.most:
            book.tell(path, f"has {len(value)} items, and may have {self.most}")
            return
        for index, one in enumerate(value):
            self.item.judge(one, (*path, index), book)


@dataclass(frozen=True, slots=True)
class TextMap:
    """Names, and a text for each."""

    name: Text = Text()
    value: Text = Text()
    without: tuple[str, ...] = ()
    """Names that are somebody else's, whatever their letters' case."""

    @property
    def said(self) -> str:
        """In words."""
        return f"a table of names, each with {self.value.said}"

    def schema(self) -> dict[str, Any]:
        """For editors."""
        names: dict[str, Any] = {"pattern": whole(self.name.pattern)}
        if self.without:
            names["not"] = {"pattern": whole("|".join(map(_any_case, self.without)))}
        return {"type": "object", "propertyNames": names, "additionalProperties": self.value.schema()}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Each by itself."""
        if not is_object(value):
            book.tell(path, f"has to be a table, not {kind_of(value)}")
            return
        for name, one in value.items():
            if not self.name.takes(name):
                book.tell((*path, name), f"has to be called by {self.name.said}")
            elif name.lower() in self.without:
                book.tell((*path, name), "is what the transport itself has to say", "leave it out")
            self.value.judge(one, (*path, name), book)


def _any_case(name: str) -> str:
    return "".join(f"[{one.upper()}{one}]" if one.isalpha() else re.escape(one) for one in name)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a table."""

    kind: Kind
    says: str
    """What it is, for people: a sentence or two."""
    default: str = ""
    """What holds without it, for people."""


@dataclass(frozen=True, slots=True)
class Table:
    """Fields by their names, and no others."""

    fields: Mapping[str, Field]
    meant: Mapping[str, str] = field(default_factory=dict[str, str])
    """What people write for a field because another program calls it so."""
    together: Callable[[Mapping[str, Any], Path, Book], None] | None = None
    """Which fields go together,"""
    together_schema: tuple[dict[str, Any], ...] = ()
    """and the same for editors."""
    said: str = "a table"

    def schema(self) -> dict[str, Any]:
        """For editors."""
        found: dict[str, Any] = {
            "type": "object",
            "properties": {name: _described(one) for name, one in self.fields.items()},
            "additionalProperties": False,
        }
        return {**found, "allOf": list(self.together_schema)} if self.together_schema else found

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Each field, then all together."""
        if not is_object(value):
            book.tell(path, f"has to be a table, not {kind_of(value)}")
            return
        for name, one in value.items():
            if book.full:
                return
            known = self.fields.get(name)
            if known is None:
                meant = self.meant.get(name)
                hint = f"write {meant}" if meant else nearest(name, self.fields, _there_are(self.fields))
                book.tell((*path, name), "there is no such field", hint)
            else:
                known.kind.judge(one, (*path, name), book)
        if self.together is not None:
            self.together(value, path, book)


def _described(one: Field) -> dict[str, Any]:
    default = f" Default: {one.default}." if one.default else ""
    return {"description": one.says + default, **one.kind.schema()}


def _there_are(fields: Mapping[str, Field]) -> str:
    return f"there are {', '.join(fields)}"


@dataclass(frozen=True, slots=True)
class Tables:
    """Names, and a table for each."""

    name: Text
    table: Table
    said: str = "a table of tables"

    def schema(self) -> dict[str, Any]:
        """For editors."""
        names = {"pattern": whole(self.name.pattern)}
        return {"type": "object", "propertyNames": names, "additionalProperties": self.table.schema()}

    def judge(self, value: Any, path: Path, book: Book) -> None:
        """Each by itself."""
        if not is_object(value):
            book.tell(path, f"has to be a table, not {kind_of(value)}")
            return
        for name, one in value.items():
            if not self.name.takes(name):
                book.tell((*path, name), f"has to be called by {self.name.said}", _stranger(name))
            self.table.judge(one, (*path, name), book)


def _stranger(name: str) -> str:
    """Which sign is none of ours: it may look as if it were."""
    found = next((one for one in name if not one.isascii()), None)
    return "" if found is None else f"{quoted(found)} is U+{ord(found):04X}"


def kind_of(value: Any) -> str:
    """What somebody has written instead, without saying it."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    if value is None:
        return "null"
    if is_array(value):
        return "a list"
    return "a table" if is_object(value) else "a date or a time"
