"""Text of servers and files, as commands write it.

`visible` is for what is shown of it, wherever it goes; `harmless` for an answer that was asked for, which programs get as it is. Behind both stands `tamed`,
through which all goes that commands write to a terminal.
"""

from __future__ import annotations

import re
import sys
from typing import Final

from greenroom.supervision.kernel.spelling import Lines, spell_what_is_logged, spelt, spelt_in_json, visible

__all__ = ["Lines", "harmless", "spell_what_is_logged", "spelt_in_json", "tamed", "visible"]

_OURS: Final = re.compile(r"(\x1b\[(?:[012]|3[123])m)")
"""The colours that we have, and their end."""
_LAYOUT: Final = "\n\t"


def harmless(text: str) -> str:
    """What a server has answered, as it may be written to a terminal: nothing in it moves the cursor, colours or hides. Programs get it as it is."""
    return spelt(text, but=_LAYOUT) if sys.stdout.isatty() else text


def tamed(text: str) -> str:
    """The same of a line of ours, in which our own colours stay."""
    parts = _OURS.split(text)
    return "".join(part if place % 2 else spelt(part, but=_LAYOUT) for place, part in enumerate(parts))
