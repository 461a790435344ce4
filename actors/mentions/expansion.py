"""A server's URI template, filled in from words in the order in which they were typed. Pure; after RFC 6570, level 3.

A placeholder that appears again takes the same word again, so a template wants as many words as it has different names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_EXPRESSION: Final = re.compile(r"\{([+#./;?&]?)([^{}]*)\}")
_VARIABLE: Final = re.compile(r"([A-Za-z0-9_.%-]+)(?:\*|:[0-9]+)?")
_RESERVED: Final = ":/?#[]@!$&'()*+,;="


class _Style(NamedTuple):
    first: str
    between: str
    named: bool
    safe: str


_STYLES: Final[Mapping[str, _Style]] = {
    "": _Style("", ",", named=False, safe=""),
    "+": _Style("", ",", named=False, safe=_RESERVED),
    "#": _Style("#", ",", named=False, safe=_RESERVED),
    ".": _Style(".", ".", named=False, safe=""),
    "/": _Style("/", "/", named=False, safe=""),
    ";": _Style(";", ";", named=True, safe=""),
    "?": _Style("?", "&", named=True, safe=""),
    "&": _Style("&", "&", named=True, safe=""),
}


class WrongWords(GreenroomError):
    """The words do not fill in the template: which it wants, and how many were typed."""


def placeholders(template: str) -> tuple[str, ...]:
    """The different names of a template, in the order in which they first appear."""
    names = (name for found in _EXPRESSION.finditer(template) for name in _names(found[2]))
    return tuple(dict.fromkeys(names))


def expand(template: str, words: Sequence[str]) -> str:
    """The URI that has these words in its places. Raises `WrongWords`."""
    names = placeholders(template)
    if len(words) != len(names):
        wanted = " ".join(f"<{name}>" for name in names) or "none"
        raise WrongWords(f"{template} wants {len(names)} words, {wanted}, and has {len(words)}")
    if "" in words:
        raise WrongWords(f"{template}: <{names[words.index('')]}> is empty")
    return fill(template, dict(zip(names, words, strict=True)))


def fill(template: str, values: Mapping[str, str]) -> str:
    """The URI with these values."""
    return _EXPRESSION.sub(lambda found: _expanded(found, values), template)


def _expanded(found: re.Match[str], values: Mapping[str, str]) -> str:
    style = _STYLES[found[1]]
    pieces = [
        f"{name}={quote(values[name], safe=style.safe)}"
        if style.named
        else quote(values[name], safe=style.safe or ("/" if many else ""))
        for name, many in _variables(found[2])
    ]
    return style.first + style.between.join(pieces) if pieces else ""


def _names(written: str) -> list[str]:
    return [name for name, _ in _variables(written)]


def _variables(written: str) -> list[tuple[str, bool]]:
    """Each name, and whether it may be many segments."""
    found = [(_VARIABLE.fullmatch(part.strip()), part.strip().endswith("*")) for part in written.split(",")]
    return [(match[1], many) for match, many in found if match is not None]
