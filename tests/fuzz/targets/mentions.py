"""Mentions in a text, and templates filled from the words after them: found mentions occur in the text, and words stay in their places."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from tests.fuzz.fuzz_target import Target, numbers, seeded

from greenroom.actors.mentions.mention_reader import (
    TemplateWordsError,
    expand,
    mentions,
    partial_mention,
    placeholders,
    words_after,
)

TEXTS = (
    b"issue://{owner}/{number}\0See @git:issue ada 7, and @web:'a b' \"x y\".",
    b"file:///{path*}\0@a.b-c_d:file:///etc/hosts",
    b"x:{?a,b}{&c}{#d}\0@a:b 1 2 3 4",
    b"x:{a}{a}{+b}\0(@a:x \xc3\xa9 @b:y)",
    b'{a:3}{.b}{/c}{;d}\0mail ada@example.org @a: @:b @a:"',
    b"note://readme\0@a:note://readme?!",
    b"{}{,}{a,,b}{ a }\0@a:'b\"c' '\"' \"'\"",
)
WORDS = (
    *(b"@", b":", b"@a:", b'"', b"'", b" ", b"\t", b"\n", b"(", b")", b".", b",", b"{", b"}", b"{a}", b"{+b}", b"{c*}"),
    *(
        b"{?d,e}",
        b"%",
        b"%2F",
        b"/",
        b"..",
        b"\0",
        "é".encode(),
        "\u00a0".encode(),
        "\u202e".encode(),
        b"\xff",
        b"word",
    ),
)
SIMPLE = re.compile(r"\{([A-Za-z0-9_][A-Za-z0-9_.]*)\}")
PLACE = re.compile(r"[A-Za-z0-9_.-]{1,64}")


def check(data: bytes) -> None:
    front, rest = numbers(data, 1)
    template, _, text = rest.decode(errors="replace").partition("\0")
    words = found_in(text, most=front[0], sentence=bool(front[0] & 1))
    filled_in(template, words)
    now = partial_mention(text)
    if now is not None:
        assert text.endswith(now.prefix)
        assert "@" in text
        assert now.resource is None or now.server is not None


def found_in(text: str, *, most: int, sentence: bool) -> list[str]:
    """The mentions in order; the words after the last one."""
    place = 0
    words: list[str] = []
    for mention in mentions(text):
        assert place <= mention.start < mention.end <= len(text)
        assert text[mention.start] == "@"
        assert PLACE.fullmatch(mention.server)
        stands = text[mention.start : mention.end]
        bare = stands.removeprefix(f"@{mention.server}:")
        assert bare in (mention.resource, f'"{mention.resource}"', f"'{mention.resource}'")
        words, end = words_after(text, mention.end, most, sentence=sentence)
        assert len(words) <= most
        assert mention.end <= end <= len(text)
        assert all(word in text[mention.end : end] for word in words)
        place = mention.end
    return words


def filled_in(template: str, words: list[str]) -> None:
    """Assert that each word is in its place, escaped."""
    names = placeholders(template)
    assert len(set(names)) == len(names)
    try:
        uri = expand(template, words)
    except TemplateWordsError:
        assert len(words) != len(names) or "" in words
        return
    assert len(words) == len(names)
    if SIMPLE.sub("", template).count("{") == 0:
        values = dict(zip(names, words, strict=True))
        assert uri == SIMPLE.sub(lambda place: quote(values[place[1]], safe=""), template)
    if "%" not in template:
        assert all(word in unquote(uri) for word in words)


TARGET = Target("mentions", check, lambda: seeded(TEXTS, b"\0", b"\2", b"\3"), WORDS)
