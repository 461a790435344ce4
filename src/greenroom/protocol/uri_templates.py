"""URI templates: matching a URI in linear time, and expanding a template.

Supported syntax, after RFC 6570:

- ``{name}`` one segment: at least one character, no ``/``; it stops where the following text can begin. As the last part of a template
    it takes the rest, slashes included, so that ``file:///{path}`` matches ``file:///etc/hosts``; `segments=True` limits it
    to one segment there as well;
- ``{+name}`` and ``{name*}`` any number of segments, as many as they can.

Values are percent-decoded once. A URI does not match if a value would be empty, not UTF-8 after decoding, contain a NUL, or escape its folder: have ``..`` as a
segment, with either kind of slash and however often it was encoded; or, unless the template has ``{+name}``, begin with a slash or a drive letter. A value is
still untrusted text; but joined to a folder it stays below the folder, unless it is the value of ``{+name}``, which may be a whole path.

Linear time by bit parallelism: a set of positions is one integer with a bit for each, and a template's part moves the whole set at once, by a shift
for a character and by an addition, whose carry runs through the bits, for a variable. There is no backtracking, so no
URI is slow: about 10 µs for an ordinary URI that matches, 0.2 µs for one whose beginning differs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, unquote, unquote_to_bytes

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from collections.abc import Mapping

URI_LIMIT = 65_536
"""The longest URI that is matched, in bytes."""


class BadTemplate(GreenroomError, ValueError):
    """The template is malformed. Raised when it is registered, not when it is matched."""


class TemplateVariable(NamedTuple):
    """A variable of a template."""

    name: str
    crosses: bool
    """Whether its value may contain slashes."""
    greedy: bool
    """Whether it takes the longest match; otherwise it stops where the following text can begin."""
    reserved: bool
    """Whether it was written `{+name}`: its value may be an absolute path."""


class UriTemplate:
    """A compiled URI template. Templates with the same text are equal."""

    def __init__(self, text: str, *, segments: bool = False) -> None:
        """Raises `BadTemplate` with what is wrong and where."""
        self.text = text
        self.segments = segments
        self.parts = tuple(_parts(text, segments=segments))
        self.names = tuple(part.name for part in self.parts if isinstance(part, TemplateVariable))
        self._steps = tuple(part if isinstance(part, TemplateVariable) else part.encode() for part in self.parts)
        first, last = (self._steps[0], self._steps[-1]) if self._steps else (b"", b"")
        self._prefix = first if isinstance(first, bytes) else b""
        self._suffix = last if isinstance(last, bytes) else b""

    def match(self, uri: str) -> dict[str, str] | None:
        """The decoded values of the variables; None if the URI does not match or a value is not allowed."""
        try:
            raw = uri.encode()
        except UnicodeEncodeError:
            return None
        if not raw.startswith(self._prefix) or not raw.endswith(self._suffix) or len(raw) > URI_LIMIT:
            return None
        found = self._cut(raw)
        if found is None:
            return None
        values: dict[str, str] = {}
        for variable, piece in found:
            value = _decode(piece)
            if value is None or escapes_folder(value, rooted=not variable.reserved):
                return None
            values[variable.name] = value
        return values

    def expand(self, values: Mapping[str, str]) -> str:
        """The URI with these values. Raises `BadTemplate` for a missing or empty value."""
        pieces: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                pieces.append(part)
                continue
            value = values.get(part.name, "")
            if not value:
                raise BadTemplate(f"{self.text!r}: no value for {part.name!r}")
            pieces.append(quote(value, safe=_RESERVED if part.reserved else "/" if part.crosses else ""))
        return "".join(pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UriTemplate) and (self.text, self.segments) == (other.text, other.segments)

    def __hash__(self) -> int:
        return hash((self.text, self.segments))

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def _cut(self, raw: bytes) -> list[tuple[TemplateVariable, bytes]] | None:
        """The bytes of each variable.

        First backwards: from which positions can the rest of the template match the rest of the URI? A position is the number of bytes after it; bit
        number p of a set is position p, and bit p of a mask is the byte that ends at position p. Then forwards, choosing each variable's end among
        the positions from which the rest can match.
        """
        size = len(raw)
        anything, slash = (1 << size) - 1, _mask(raw, b"/")
        masks = dict[int, int]()
        places = 1
        later = [places]  # for each part, from the last: the positions where the following part may begin
        for step in reversed(self._steps):
            if isinstance(step, bytes):
                for byte in reversed(step):
                    if byte not in masks:
                        masks[byte] = _mask(raw, bytes((byte,)))
                    places = (places & masks[byte]) << 1
            else:
                takes = anything if step.crosses else anything & ~slash
                places = (places & takes) << 1
                places |= ((places & takes) + takes) ^ takes
            if not places:
                return None
            later.append(places)
        if not places >> size & 1:
            return None
        return self._choose(raw, later[-2::-1])

    def _choose(self, raw: bytes, later: list[int]) -> list[tuple[TemplateVariable, bytes]]:
        size = len(raw)
        start = 0
        found: list[tuple[TemplateVariable, bytes]] = []
        for step, places in zip(self._steps, later, strict=True):
            if isinstance(step, bytes):
                start += len(step)
                continue
            furthest = size if step.crosses or (slash := raw.find(b"/", start)) < 0 else slash
            open_to = places & ((1 << (size - start)) - 1)  # behind `start`
            open_to = open_to >> (size - furthest) << (size - furthest)
            end = size - ((open_to & -open_to) if step.greedy else open_to).bit_length() + 1
            found.append((step, raw[start:end]))
            start = end
        return found


def escapes_folder(value: str, *, rooted: bool = True) -> bool:
    """Whether a value may lead out of the folder that it is joined to.

    With `rooted`, an absolute path does too. Undoes repeated percent-encoding; a value with more than `_LAYERS` layers counts as hostile.
    """
    for _ in range(_LAYERS):
        if "\0" in value or any(segment.strip() == ".." for segment in _SLASHES.split(value)):
            return True
        if rooted and _ROOTED.match(value):
            return True
        inner = unquote(value, errors="replace") if "%" in value else value
        if inner == value:
            return False
        value = inner
    return True


_LAYERS = 8
_SLASHES = re.compile(r"[/\\]")
_ROOTED = re.compile(r"[/\\]|[A-Za-z]:[/\\]")
_RESERVED = ":/?#[]@!$&'()*+,;="
_EXPRESSION = re.compile(r"(?P<operator>[+#./;?&=,!@|]?)(?P<name>[^:*]*)(?P<modifier>.*)", re.DOTALL)
_PIECE = re.compile(r"([^{}]+)|\{([^}]*+)(\}?)|\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*")


def _mask(raw: bytes, byte: bytes) -> int:
    """The positions of a byte, as a set of the positions where it ends."""
    # The bytes are translated to the digits 0 and 1 and read as one binary number, all in C: a loop in Python
    # takes 4 times as long for 35 bytes, and 35 times for 8,000.
    table = bytearray(b"0" * 256)
    table[byte[0]] = ord("1")
    return int(raw.translate(bytes(table)) or b"0", 2)


def _decode(piece: bytes) -> str | None:
    try:
        return unquote_to_bytes(piece).decode()
    except UnicodeDecodeError:
        return None


def _parts(text: str, *, segments: bool) -> list[str | TemplateVariable]:
    """Split a template into texts and variables. Raises `BadTemplate`."""
    parts: list[str | TemplateVariable] = []
    names: set[str] = set()
    for found in _PIECE.finditer(text):
        literal, expression, closed = found.groups()
        if literal is not None:
            parts.append(literal)
            continue
        if expression is None:
            raise BadTemplate(f"{text!r}: a '}}' at {found.start()} that nothing opens")
        if not closed:
            raise BadTemplate(f"{text!r}: the '{{' at {found.start()} is never closed")
        variable = _variable(text, expression, last=found.end() == len(text) and not segments)
        if parts and isinstance(parts[-1], TemplateVariable):
            raise BadTemplate(
                f"{text!r}: a text is missing between {parts[-1].name!r} and {variable.name!r} to separate them"
            )
        if variable.name in names:
            raise BadTemplate(f"{text!r}: {variable.name!r} occurs twice")
        names.add(variable.name)
        parts.append(variable)
    return parts


def _variable(text: str, expression: str, *, last: bool) -> TemplateVariable:
    read = _EXPRESSION.fullmatch(expression)
    assert read is not None, expression
    operator, name, modifier = read["operator"], read["name"], read["modifier"]
    if operator not in {"", "+"} or modifier not in {"", "*"}:
        raise BadTemplate(f"{text!r}: {{{expression}}} is not supported; there are {{name}}, {{+name}} and {{name*}}")
    if not _NAME.fullmatch(name):
        raise BadTemplate(f"{text!r}: {{{expression}}} does not name a variable (letters, digits, underscores)")
    crosses = bool(operator or modifier)
    return TemplateVariable(name, crosses or last, crosses, operator == "+")
