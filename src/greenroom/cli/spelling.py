"""What somebody else wrote, as a terminal may get it: a server's names, messages and last words move no cursor, set no title, and look like nothing of ours.

`visible` is for what is shown of it, wherever it goes; `harmless` for an answer that was asked for, which programs get as it is. Behind both stands
`tamed`, through which all goes that commands write to a terminal: what nobody has thought of is spelt out there.
"""

from __future__ import annotations

import logging
import re
import sys
import unicodedata
from typing import Final

_UNSEEN: Final = frozenset(("Cc", "Cf", "Cs", "Zl", "Zp"))
_OURS: Final = re.compile(r"(\x1b\[(?:[012]|3[123])m)")
"""The colours that we have, and their end."""
_STARTS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What a terminal may obey, besides ends of lines and tabs."""


def visible(text: str, longest: int | None = None, *, lines: bool = False) -> str:
    """What somebody else wrote, as it can be shown: what moves a cursor, colours or hides is spelt out. One line, unless it may have several."""
    if longest is not None and len(text) > longest:
        text = f"{text[:longest]}…"
    text = text.replace("\r\n", "\n").replace("\t", " ") if lines else " ".join(text.split())
    return "".join(each if each == "\n" or unicodedata.category(each) not in _UNSEEN else _spelt(each) for each in text)


def harmless(text: str) -> str:
    """What a server has answered, as it may be written to a terminal: nothing in it moves the cursor or colours. Programs get it as it is."""
    return _STARTS.sub(lambda found: _spelt(found[0]), text) if sys.stdout.isatty() else text


def tamed(text: str) -> str:
    """The same of a line of ours, in which our own colours stay."""
    parts = _OURS.split(text)
    return "".join(
        part if place % 2 else _STARTS.sub(lambda found: _spelt(found[0]), part) for place, part in enumerate(parts)
    )


def _spelt(sign: str) -> str:
    return f"\\u{ord(sign):04x}"


class Lines(logging.Formatter):
    """Of what is logged: it may quote what a program has said before it died."""

    def format(self, record: logging.LogRecord) -> str:
        """One record, with its traceback if it has one."""
        return visible(super().format(record), lines=True)


def spell_what_is_logged() -> None:
    """Also where a command says nothing of logging, and the standard library writes warnings down by itself."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(Lines())
