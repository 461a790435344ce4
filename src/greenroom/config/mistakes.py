"""What is wrong with a configuration: every mistake a value of its own, which says where it is, what it is, and what to write instead.

Reading does not stop at the first one. Values never get into a message where they may be secrets: only names and kinds do.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from greenroom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_MOST_SHOWN: Final = 20
"""Mistakes that an error shows; `mistakes` has all of them."""
_LONG: Final = 60
_LONGEST: Final = 4096


@dataclass(frozen=True, slots=True, order=True)
class Source:
    """A line of a file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Mistake:
    """One of them."""

    source: Source
    server: str | None
    """None when it is not a server's."""
    field: str | None
    """With dots, as in TOML: `timeouts.tool`."""
    what: str
    hint: str = ""
    """What to write instead, or to do."""
    harmless: bool = False
    """Whether everything works all the same: it is said, and prevents nothing."""

    def __str__(self) -> str:
        server = "" if self.server is None else f"server {self.server}"
        where = "".join(f"{_printable(part, _LONG)}: " for part in (server, self.field or "") if part)
        said = f"{self.what}{f'; {self.hint}' if self.hint else ''}"
        return f"{_printable(str(self.source), _LONGEST)}: {where}{_printable(said, _LONGEST)}"


RULES_UNREADABLE: Final = Mistake(
    Source("permissions", 0),
    None,
    None,
    "not all of them could be read, so nothing is allowed without asking",
    "put the others right",
    harmless=True,
)
"""What is said of a whole configuration, as long as it holds, where a rule may have been lost."""


class BadConfig(ConfigError):
    """A configuration that nothing can be done with. `mistakes` are all that were found."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        """At least one."""
        super().__init__(mistakes)
        self.mistakes = tuple(mistakes)

    def __str__(self) -> str:
        lines = [str(one) for one in self.mistakes[:_MOST_SHOWN]]
        if len(self.mistakes) > _MOST_SHOWN:
            lines.append(f"and {len(self.mistakes) - _MOST_SHOWN} more")
        return "\n".join(lines)


def nearest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint: what was probably meant."""
    found = get_close_matches(name[:_LONG].lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {found[0]}?" if found else otherwise


def known_servers(name: str, known: Sequence[str]) -> str:
    """A hint for a name that no server has: what was probably meant, or which servers there are."""
    return nearest(name, known, f"there are {', '.join(known)}" if known else "none is configured")


def quoted(word: str) -> str:
    """A word from a file, as it may stand in a message: on one line, and not for ever."""
    return f"{_printable(word, _LONG)!r}"


def _printable(text: str, most: int) -> str:
    """As it may be shown on a terminal, which obeys some signs."""
    shown = "".join(one if one.isprintable() else "�" for one in text[:most])
    return shown if len(text) <= most else f"{shown}…"
