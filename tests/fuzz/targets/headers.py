"""Headers: `Host` and `Origin` admit what a strict reader would, and nothing breaks out of a response."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tests.fuzz.fuzz_target import Target, seeded

from greenroom.transports import http_request as checks
from greenroom.transports.asgi import relative_path
from greenroom.transports.http_config import LOOPBACK_NAMES, HttpConfig
from greenroom.transports.http_request import cors_headers

if TYPE_CHECKING:
    from collections.abc import Sequence

LOCAL = HttpConfig()
PUBLIC = HttpConfig(
    host="0.0.0.0", allowed_hosts=["good.example", "[2001:db8::1]:8"], allowed_origins=["https://good.example"]
)
HOSTS, ORIGINS = checks.AllowedHosts(LOCAL), checks.AllowedOrigins(LOCAL)
PUBLIC_HOSTS, PUBLIC_ORIGINS = checks.AllowedHosts(PUBLIC), checks.AllowedOrigins(PUBLIC)
NAMES = ("host", "origin", "accept", "content-type", "mcp-session-id", "x-other", "content-length")

TEXTS = (
    b"host: localhost:80\norigin: http://localhost:9\naccept: application/json;q=0.9, text/event-stream",
    b"Host: good.example\norigin: https://good.example:443\naccept: */*;q=0",
    b"host: [2001:db8::1]:8\norigin: null\ncontent-type: application/json; charset=utf-8",
    b"host: localhost@evil.example\norigin: http://localhost.evil.example",
    b"host: a\nhost: b\norigin: http://[::1]:1",
    b"mcp-session-id: x\r\nset-cookie: a\nx-other: \x00\xff",
)
WORDS = (
    *(
        b"localhost",
        b"127.0.0.1",
        b"[::1]",
        b"good.example",
        b"https://",
        b"http://",
        b":443",
        b"@",
        b"#",
        b"?",
        b"null",
        b"%",
    ),
    *(b"application/json", b"text/event-stream", b"*/*", b";q=0", b",", b"\r", b"\t", b" ", b"\x00", b"\xa0", b"\x85"),
    *(name.encode() + b": " for name in NAMES),
)


def check(data: bytes) -> None:
    pairs = [(name, value) for name, _, value in (line.partition(b":") for line in data.split(b"\n"))]
    try:
        headers = checks.headers_by_name(pairs)
    except checks.DuplicateHeader as twice:
        names = [name.decode("latin-1").lower() for name, _ in pairs]
        assert names.count(str(twice)) > 1
        return
    host, origin = headers.get("host"), headers.get("origin")
    if HOSTS.allow(host):
        assert netloc(host) in LOOPBACK_NAMES, host
    if PUBLIC_HOSTS.allow(host):
        assert netloc(host) in ("good.example", "2001:db8::1"), host
    if origin is not None and origin != "null":
        if ORIGINS.allow(origin):
            assert named(origin) in LOOPBACK_NAMES, origin
        if PUBLIC_ORIGINS.allow(origin):
            assert named(origin) == "good.example", origin
            assert origin.lower() in ("https://good.example", "https://good.example:443") or ":" in origin[8:], origin
        if ORIGINS.allow(origin) or PUBLIC_ORIGINS.allow(origin):
            safe(cors_headers(origin))
    elif origin == "null":
        assert not PUBLIC_ORIGINS.allow(origin)
    else:
        assert PUBLIC_ORIGINS.allow(None), "browsers name their origin, so a request without one is a program's"
    accepted = checks.accepted_types(headers.get("accept", ""))
    assert len(set(accepted)) == len(accepted) <= 2
    checks.is_json(headers.get("content-type"))
    for value in headers.values():
        safe(checks.preflight_headers(("POST",), (), {"origin": "null", "access-control-request-headers": value}))
    for name, value in headers.items():
        try:
            safe([checks.checked_header(name, value)])
        except ValueError:
            continue
        path = relative_path({"path": value, "root_path": name})
        assert path


def netloc(host: str | None) -> str | None:
    """The name in a `Host`, as parsed by the standard library."""
    assert host
    return named(f"http://{host}")


def named(address: str) -> str | None:
    parts = urlsplit(address)
    assert parts.username is None
    assert not parts.path
    assert not parts.query
    return parts.hostname


def safe(headers: Sequence[tuple[str, str]]) -> None:
    for name, value in headers:
        assert re.fullmatch(r"[!-~]+", name)
        assert re.fullmatch(r"[ -~\t]*", value)


TARGET = Target("headers", check, lambda: seeded(TEXTS, b""), WORDS, longest=400)
