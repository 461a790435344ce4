"""What was typed: `@server:resource word word`, in a line of its own or in the middle of a text. Pure.

A resource is what stands behind the colon up to a space, in quotes where it has some itself. How many of the words behind it are its own is for the
template to say. An address (`ada@example.org`) is no mention: an `@` counts at the beginning and behind a space or a bracket.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_MENTION: Final = re.compile(
    r"(?<![^\s([{<\"'])@(?P<server>[A-Za-z0-9_.-]{1,64}):(?P<resource>\"[^\"]*\"|'[^']*'|[^\s\"']+)"
)
_WORD: Final = re.compile(r"[ \t]+(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<bare>[^\s\"'@][^\s\"']*))")
_BARE: Final = re.compile(r"[^\s\"'@][^\s\"']*")
_TRAILING: Final = ".,;!?)]}>"


class Mention(NamedTuple):
    """One, where it stands in the text."""

    server: str
    resource: str
    start: int
    end: int

    def __str__(self) -> str:
        return f"@{self.server}:{self.resource}"


class Typing(NamedTuple):
    """What somebody is in the middle of: the server, or None while that is being typed; what stands there so far, and the words before it."""

    server: str | None
    resource: str | None
    prefix: str
    words: tuple[str, ...] = ()


def mentions(text: str) -> list[Mention]:
    """All mentions of a text, in order."""
    return [_mention(found) for found in _MENTION.finditer(text)]


def _mention(found: re.Match[str]) -> Mention:
    written, end = found["resource"], found.end()
    if written[0] in "\"'":
        return Mention(found["server"], written[1:-1], found.start(), end)
    bare = written.rstrip(_TRAILING) or written  # the full stop belongs to the sentence
    return Mention(found["server"], bare, found.start(), end - (len(written) - len(bare)))


def words_behind(text: str, start: int, most: int, *, sentence: bool = False) -> tuple[list[str], int]:
    """Up to so many words of the text from there on, and where they end. Another mention is no word of this one.

    In a `sentence` the comma or full stop behind a word is not its own, and ends the words.
    """
    words: list[str] = []
    while len(words) < most and (found := _WORD.match(text, start)):
        quoted = found["double"] if found["double"] is not None else found["single"]
        word = found["bare"] if quoted is None else quoted
        kept = (word.rstrip(_TRAILING) or word) if sentence and quoted is None else word
        words.append(kept)
        start = found.end() - (len(word) - len(kept))
        if kept != word:
            break
    return words, start


def as_typed(word: str) -> str | None:
    """How a resource, or a word behind it, is typed so that it is read as what it is; None for what cannot be: it has both kinds of quotes, or is no line."""
    if not word.isprintable():
        return None  # somebody else's server wrote it, and somebody's terminal is to show it
    if _BARE.fullmatch(word) and word[-1] not in _TRAILING:
        return word
    mark = next((mark for mark in "\"'" if word and mark not in word), None)
    return None if mark is None else f"{mark}{word}{mark}"


def typing(text: str) -> Typing | None:
    """What is being typed at the end of the text; None when that is no mention."""
    at = max((found.start() for found in re.finditer(r"(?<![^\s([{<\"'])@", text)), default=-1)
    if at < 0:
        return None
    server, colon, rest = text[at + 1 :].partition(":")
    if not colon:
        return None if re.search(r"\s", server) else Typing(None, None, server)
    if rest[:1] in ("'", '"'):
        end = rest.find(rest[0], 1)
        resource, space, behind = rest[1:end], rest[end + 1 : end + 2], rest[end + 2 :]
        if end < 0 or not space:
            return Typing(server, None, rest)
    else:
        resource, space, behind = rest.partition(" ")
    if not space:
        return Typing(server, None, resource)
    *words, prefix = behind.split(" ")
    return Typing(server, resource, prefix, tuple(word for word in words if word))
