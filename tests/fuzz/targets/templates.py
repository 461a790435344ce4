"""URI templates: matches agree with a regular expression; no value is empty or escapes, and no match is slow."""

from __future__ import annotations

import re

from tests.fuzz.fuzz_target import Target, numbers, seeded

from greenroom.protocol.uri_templates import BadTemplate, TemplateVariable, UriTemplate, escapes_folder

TEXTS = (
    b"note://{title}\0note://a%20b",
    b"file:///{path}\0file:///etc/hosts",
    b"x://{a}/{b}-{c}\0x://1/2-3-4",
    b"{+a}/{b*}x\0c:/d/e/fx",
    b"x:{a.b}\0x:%252e%252e",
    b"x:{a}/{a}\0x:1/2",
    b"x:{?a}\0x:",
    b"{a}a{b}aa{+c}\0aaaaaaaaaaaa/aaa",
    b"x:{a}\0x:..\\b",
    "é{a}é\0éééé".encode(),
)
WORDS = (
    b"{a}",
    b"{+b}",
    b"{c*}",
    b"{",
    b"}",
    b"/",
    b"..",
    b"%2e",
    b"%2F",
    b"%25",
    b"%00",
    b"\\",
    b"C:",
    b"\0",
    b"\xc3\xa9",
    b"-",
)
EASY = 4  # variables, and
SHORT = 60  # bytes of a URI: a regular expression tries them all


def check(data: bytes) -> None:
    front, rest = numbers(data, 1)
    text, _, uri = rest.decode(errors="surrogateescape").partition("\0")
    try:
        template = UriTemplate(text, segments=bool(front[0] & 1))
    except (BadTemplate, UnicodeEncodeError):
        return
    values = template.match(uri)
    for name, value in (values or {}).items():
        assert name in template.names
        assert value
        assert "\0" not in value
        assert ".." not in value.replace("\\", "/").split("/")
    if values is not None:
        template.expand(values)
    try:
        raw = uri.encode()
    except UnicodeEncodeError:
        assert values is None
        return
    if len(template.names) <= EASY and len(raw) <= SHORT:
        assert values == tried(template, raw)


def tried(template: UriTemplate, uri: bytes) -> dict[str, str] | None:
    """The same by a backtracking regular expression."""
    pattern = b""
    for part in template.parts:
        if isinstance(part, TemplateVariable):
            pattern += b"(" + (b"." if part.crosses else b"[^/]") + (b"+)" if part.greedy else b"+?)")
        else:
            pattern += re.escape(part.encode())
    found = re.fullmatch(pattern, uri, re.DOTALL)
    if found is None:
        return None
    values: dict[str, str] = {}
    variables = [part for part in template.parts if isinstance(part, TemplateVariable)]
    for variable, piece in zip(variables, found.groups(), strict=True):
        try:
            value = _ESCAPED.sub(lambda digits: bytes((int(digits[1], 16),)), piece).decode()
        except UnicodeDecodeError:
            return None
        if escapes_folder(value, rooted=not variable.reserved):
            return None
        values[variable.name] = value
    return values


_ESCAPED = re.compile(rb"%([0-9a-fA-F]{2})")

TARGET = Target("templates", check, lambda: seeded(TEXTS, b"\0", b"\1"), WORDS, longest=300)
