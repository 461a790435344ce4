"""What strangers say, in words that may be shown: in a message, a log, a terminal."""

from __future__ import annotations

from typing import Final

_SAID: Final = 300


def quoted(code: str, detail: str | None) -> str:
    """An error of somebody else's, in words that may be shown."""
    return f"the authorization server refuses: {plain(code)}{f' ({plain(detail)})' if detail else ''}"


def plain(words: str) -> str:
    """One line of it, without what a terminal would take for more than text."""
    return "".join(each if each.isprintable() else " " for each in words[:_SAID]).strip()
