"""Mistakes in a configuration: each is a value with its place, its description and what to write instead.

Reading continues after a mistake, so all are reported at once. A message names fields and types, never a value that may be a secret.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from greenroom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MOST_SHOWN: Final = 20
"""How many mistakes the text of an error shows; `mistakes` has all of them."""
_LONG: Final = 60
_LONGEST: Final = 4096


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """A file and a line in it; line 0 is the whole file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake in a configuration."""

    source: Source
    server: str | None
    """The server's name; None for a mistake outside of servers."""
    field: str | None
    """The field, with dots as in TOML: `timeouts.tool`."""
    what: str
    hint: str = ""
    """The text to write instead, or another remedy."""
    harmless: bool = False
    """Whether it is only a warning: the configuration is used in any case."""

    def __str__(self) -> str:
        server = "" if self.server is None else f"server {self.server}"
        where = "".join(f"{_printable(part, _LONG)}: " for part in (server, self.field or "") if part)
        text = f"{self.what}{f'; {self.hint}' if self.hint else ''}"
        return f"{_printable(str(self.source), _LONGEST)}: {where}{_printable(text, _LONGEST)}"


RULES_UNREADABLE: Final = Mistake(
    Source("permissions", 0),
    None,
    None,
    "some rules could not be read, so nothing is allowed without asking",
    "correct the other mistakes",
    harmless=True,
)
"""The warning of a configuration in which a rule may have been lost."""


class BadConfig(ConfigError):
    """A configuration that cannot be used. `mistakes` lists all mistakes."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        """`mistakes` has at least one entry."""
        super().__init__(mistakes)
        self.mistakes = tuple(mistakes)

    def __str__(self) -> str:
        lines = [str(one) for one in self.mistakes[:_MOST_SHOWN]]
        if len(self.mistakes) > _MOST_SHOWN:
            lines.append(f"and {len(self.mistakes) - _MOST_SHOWN} more")
        return "\n".join(lines)


def nearest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint with the nearest known name, or `otherwise`."""
    found = get_close_matches(name[:_LONG].lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {found[0]}?" if found else otherwise


def known_servers(name: str, known: Sequence[str]) -> str:
    """A hint for an unknown server: the nearest name, or all servers."""
    return nearest(name, known, f"there are {', '.join(known)}" if known else "no server is configured")


def quoted(word: str) -> str:
    """A word from a file for a message: on one line and of bounded length."""
    return f"{_printable(word, _LONG)!r}"


def _printable(text: str, most: int) -> str:
    """The text with unprintable characters replaced, because a terminal could interpret them."""
    shown = "".join(one if one.isprintable() else "�" for one in text[:most])
    return shown if len(text) <= most else f"{shown}…"
