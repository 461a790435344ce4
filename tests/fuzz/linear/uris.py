"""URIs of a peer, their templates, and other names: cursors, mentions, permission patterns, hosts, origins."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from tests.fuzz.linearity import Reader

from greenroom.actors.client.response_cache import ResponseCache, cache_key
from greenroom.actors.consent import rules as globs
from greenroom.actors.mentions import mention_reader as grammar
from greenroom.protocol import pagination
from greenroom.protocol import provider_rules as provider_names
from greenroom.protocol.elicitation_forms import check_url
from greenroom.protocol.errors import LocalProtocolError, McpError
from greenroom.protocol.uri_templates import UriTemplate
from greenroom.transports import http_request as http_checks

if TYPE_CHECKING:
    from collections.abc import Callable

TEMPLATES = tuple(
    map(UriTemplate, ("a://{x}", "a://{+x}", "a://{x}/{y}", "a://{+x}/{+y}/z", "a://b/{x}.{y}", "a://{a}-{b}-{c}"))
)
UNITS = {
    "letters": "a",
    "slashes": "/",
    "percents": "%",
    "percents in percents": "%25",
    "letters and slashes": "a/",
    "points": "../",
    "dashes": "-",
    "what is no ASCII": "é",
    "zeros": "%00",
}


def _made(front: str, unit: str, end: str) -> Callable[[int], str]:
    return lambda size: front + unit * ((size - len(front) - len(end)) // len(unit)) + end


def _uris(text: str) -> None:
    for template in TEMPLATES:
        template.match(text)
    with suppress(LocalProtocolError):
        check_url(text)


def _names(text: str) -> None:
    provider_names.provider_name(text)
    provider_names.claude_name(text, text)
    globs.matches("a*b", text)
    globs.may_begin("*a?*", text)
    with suppress(McpError):
        pagination.read_cursor(text, "tool")
    http_checks.parse_host(text)
    http_checks.parse_origin(text)
    http_checks.accepted_types(text)


def _updates(text: str) -> None:
    cache = ResponseCache()
    for uri in (text, "a://", "https://a"):
        key = cache_key("server", b"", "resources/read", {"uri": uri})
        if key is not None:
            cache.fetch(key, "ada").settle({"ttlMs": 1000, "contents": []}, None, "ada", 0.0)
    cache.on_notification("server", "notifications/resources/updated", {"uri": text})


def _mentions(text: str) -> None:
    for each in grammar.mentions(text):
        grammar.words_after(text, each.end, 8)
    grammar.partial_mention(text)


_URIS = {
    f"{front} {what} {end}".strip(): _made(front, unit, end)
    for front in ("a://", "https://")
    for what, unit in UNITS.items()
    for end in ("", "\x01")
}
_TEXTS = {
    **{what: _made("", unit, "") for what, unit in UNITS.items()},
    **{
        f"{unit!r} behind {front!r}": _made(front, unit, "")
        for front in ("", "@a:", "@a:b ", "http://")
        for unit in (
            "@",
            "@a:",
            "@a:b ",
            '"',
            "' ",
            "* ",
            ":1",
            ",",
            ";q=0,",
            "application/json,",
            "_",
            "__",
            "[",
            "@a:'",
        )
    },
}

READERS = (
    Reader(
        "uris", _uris, _URIS, sizes=(256, 1024, 4096, 8192), moves=0.08
    ),  # 14.8 and 16.1 million for 4 KiB of slashes
    Reader("names", _names, _TEXTS),
    Reader("updates", _updates, _URIS),
    Reader("mentions", _mentions, _TEXTS),
)
