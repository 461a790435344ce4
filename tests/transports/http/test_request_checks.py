"""Checks of requests: hosts and origins are compared by their parts, media types by their meaning, and a header cannot contain another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.mirrored_headers import HeaderMismatch, HeaderPlan, MirroredParameter, decode_header_value
from greenroom.transports import http_request as checks
from greenroom.transports.http_config import HttpConfig
from greenroom.transports.http_request import EVENTS, JSON, AllowedHosts, AllowedOrigins

LOCAL_HOSTS = ["localhost", "localhost:9090", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:9090", "LocalHost:80"]
FOREIGN_HOSTS = [
    None,
    "",
    "evil.example",
    "evil.example:9090",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1:9090.evil.example",
    "127.0.0.1@evil.example",
    "localhost, evil.example",
    "localhost:port",
    "::1",
    "[::2]",
    "0.0.0.0",
    "localhost\x00",
    "http://localhost",
]


@pytest.mark.parametrize("host", LOCAL_HOSTS)
def test_loopback_names_are_allowed_on_a_loopback_address(host: str) -> None:
    assert AllowedHosts(HttpConfig()).allow(host)


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_a_foreign_or_missing_host_is_not_allowed(host: str | None) -> None:
    assert not AllowedHosts(HttpConfig()).allow(host)


def test_an_empty_list_allows_no_host_and_any_allows_all() -> None:
    assert not AllowedHosts(HttpConfig(allowed_hosts=[])).allow("localhost")
    assert AllowedHosts(HttpConfig(allowed_hosts="any")).allow("evil.example")
    assert not AllowedOrigins(HttpConfig(allowed_origins=[])).allow("http://localhost")


def test_a_listed_host_may_have_a_port() -> None:
    hosts = AllowedHosts(
        HttpConfig(allowed_hosts=["api.example:8443", "other.example", "[2001:db8::1]", "2001:db8::2"])
    )
    assert hosts.allow("api.example:8443")
    assert not hosts.allow("api.example:443")
    assert not hosts.allow("api.example")
    assert hosts.allow("OTHER.example:1")
    assert hosts.allow("[2001:db8::1]:7")
    assert hosts.allow("[2001:db8::2]")


def test_the_host_that_is_listened_on_is_allowed() -> None:
    assert AllowedHosts(HttpConfig(host="127.0.0.2")).allow("127.0.0.2:9090")


@pytest.mark.row("SX-01")
@pytest.mark.row("SX-02")
@pytest.mark.parametrize("scheme", ["http", "https", "HTTP", "Https"])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
@pytest.mark.parametrize("port", ["", ":80", ":3000"])
def test_pages_of_this_machine_are_allowed_by_default(scheme: str, host: str, port: str) -> None:
    assert AllowedOrigins(HttpConfig()).allow(f"{scheme}://{host}{port}")


@pytest.mark.row("SX-01")
@pytest.mark.row("SX-02")
@pytest.mark.row("SX-03")
@pytest.mark.parametrize(
    "origin",
    [
        "null",
        "",
        "http://evil.example",
        "http://localhost.evil.example",
        "http://127.0.0.1.evil.example",
        "http://localhost@evil.example",
        "http://evil.example/localhost",
        "http://localhost/",
        "localhost",
        "//localhost",
        "ftp://localhost",
        "file://localhost",
        "http://localhost:80:80",
        "http://localhost http://evil.example",
        "http://localhost\r\nx: y",
        "http://[::1",
        "http://0.0.0.0",
    ],
)
def test_other_pages_are_not_allowed_by_default(origin: str) -> None:
    assert not AllowedOrigins(HttpConfig()).allow(origin)


@pytest.mark.row("SX-01")
def test_listed_origins_match_scheme_host_and_port_and_not_prefixes() -> None:
    origins = AllowedOrigins(HttpConfig(allowed_origins=["https://app.example", "http://dev.example:3000"]))
    assert origins.allow("https://app.example")
    assert origins.allow("https://APP.example:443")
    assert not origins.allow("http://app.example")
    assert not origins.allow("https://app.example:444")
    assert not origins.allow("https://app.example.evil.example")
    assert origins.allow("http://dev.example:3000")
    assert not origins.allow("http://dev.example")
    assert not origins.allow("http://localhost")


@pytest.mark.row("SX-03")
def test_null_is_an_origin_which_may_be_listed() -> None:
    assert AllowedOrigins(HttpConfig(allowed_origins=["null"])).allow("null")
    assert not AllowedOrigins(HttpConfig(allowed_origins=["https://app.example"])).allow("null")
    assert AllowedOrigins(HttpConfig(allowed_origins="any")).allow("null")


@pytest.mark.row("ST-02")
def test_a_missing_origin_is_allowed_unless_configured() -> None:
    assert AllowedOrigins(HttpConfig()).allow(None)
    assert not AllowedOrigins(HttpConfig(allow_missing_origin=False)).allow(None)
    assert AllowedOrigins(HttpConfig(host="0.0.0.0", allowed_origins=["https://a.example"])).allow(None)
    assert not AllowedOrigins(HttpConfig(host="0.0.0.0", allowed_origins="any", allow_missing_origin=False)).allow(None)


@pytest.mark.row("WC-16")
@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("application/json, text/event-stream", (JSON, EVENTS)),
        ("text/event-stream,application/json", (EVENTS, JSON)),
        ("*/*", (JSON, EVENTS)),
        ("APPLICATION/JSON;q=0.5 , Text/Event-Stream; charset=utf-8", (JSON, EVENTS)),
        ("application/*, text/*", (JSON, EVENTS)),
        ("application/json", (JSON,)),
        ("application/json, text/event-stream;q=0", (JSON,)),
        ("application/json;q=0.0, */*", (JSON, EVENTS)),
        ("text/html, application/jsonx", ()),
        ("", ()),
        (",;,", ()),
    ],
)
def test_accept_headers_are_parsed_by_meaning(header: str, taken: tuple[str, ...]) -> None:
    assert checks.accepted_types(header) == taken


@pytest.mark.row("ST-26")
@pytest.mark.parametrize(
    ("kind", "is_it"),
    [
        (None, True),
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("text/plain", False),
        ("application/jsonx", False),
        ("application/json-patch+json", False),
        ("multipart/form-data; application/json", False),
        ("", False),
    ],
)
def test_content_types_for_json_are_recognised(kind: str | None, is_it: bool) -> None:  # noqa: FBT001
    assert checks.is_json(kind) is is_it


@pytest.mark.parametrize(
    ("name", "value"),
    [("x", "a\r\nset-cookie: b"), ("x", "a\nb"), ("x", "a\x00"), ("x", "é"), ("x\r\n", "a"), ("x:", "a"), ("", "a")],
)
def test_a_header_cannot_contain_another(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="invalid header"):
        checks.checked_header(name, value)


def test_headers_are_joined_by_name_and_single_ones_must_be_single() -> None:
    folded = checks.headers_by_name([("Accept", " a "), (b"ACCEPT", b"b"), ("X-Y", "z")])
    assert folded == {"accept": "a, b", "x-y": "z"}
    with pytest.raises(checks.DuplicateHeader):
        checks.headers_by_name([("Host", "a"), ("host", "a")])


@given(st.text(max_size=40))
def test_no_text_crashes_a_check(text: str) -> None:
    AllowedHosts(HttpConfig()).allow(text)
    AllowedOrigins(HttpConfig()).allow(text)
    checks.accepted_types(text)
    checks.is_json(text)
    assert text == "null" or checks.parse_origin(text) is None or "://" in text


# --- mirrored headers


@pytest.mark.row("26-P2")
@pytest.mark.parametrize("name", ["Mcp-Method", "mcp-name", "MCP-PARAM-REGION", b"Mcp-Param-A"])
def test_a_mirrored_header_that_came_twice_equals_nothing(name: str | bytes) -> None:
    key = (name.decode() if isinstance(name, bytes) else name).lower()
    for values in (("a", "b"), ("a", "a"), ("", ""), ("a, b", "c")):
        (folded,) = checks.headers_by_name((name, value) for value in values).values()
        with pytest.raises(ValueError, match="came twice"):
            decode_header_value(folded)
        for body in (folded, ", ".join(values), *values):
            with pytest.raises(HeaderMismatch):
                HeaderPlan((MirroredParameter(key, "A", ("a",)),)).check({"a": body}, {key: folded})


@pytest.mark.row("26-P2", "26-P7")
def test_a_mirrored_value_loses_blanks_and_tabs_at_its_edges_and_nothing_else() -> None:
    assert checks.headers_by_name([("Mcp-Name", " \t a b\t ")]) == {"mcp-name": "a b"}
    for edge in (b"\xa0", b"\x85", b"\x0b", b"\x1c"):
        folded = checks.headers_by_name([(b"Mcp-Name", b" a" + edge)])
        assert folded == {"mcp-name": "a" + edge.decode("latin-1")}
        assert checks.headers_by_name([(b"Accept", b" a" + edge)]) == {"accept": "a"}


ALLOWED = "Content-Type, Accept, Mcp-Session-Id, MCP-Protocol-Version, Last-Event-ID"


@pytest.mark.row("26-P9")
@pytest.mark.parametrize(
    ("asked", "more"),
    [
        (None, ""),
        ("", ""),
        ("content-type, mcp-protocol-version, mcp-session-id", ""),
        ("authorization,x-key,mcp,mcp-,mcp-params-a,mcp-names,x-mcp-name", ""),
        ("mcp-param-,mcp-param- ,mcp-param-é,mcp-param-a b,mcp-param-a\x00,mcp-param-a\r\nx: y,mcp-param-(", ""),
        ("content-type,mcp-method,mcp-name,mcp-protocol-version", ", mcp-method, mcp-name"),
        ("Mcp-Method , \tMCP-NAME", ", mcp-method, mcp-name"),
        ("mcp-param-region,mcp-param-zone,mcp-param-region", ", mcp-param-region, mcp-param-zone"),
        ("Mcp-Param-A.b!~", ", mcp-param-a.b!~"),
        ("*", ""),
    ],
)
def test_a_preflight_allows_the_mirrored_headers_it_asks_for_and_no_others(asked: str | None, more: str) -> None:
    headers = {"origin": "http://localhost"} | ({} if asked is None else {"access-control-request-headers": asked})
    answer = dict(checks.preflight_headers(("POST",), ("X-Key",), headers))
    assert answer["access-control-allow-headers"] == f"{ALLOWED}, X-Key{more}"
    assert checks.preflight_headers(("POST",), (), {"access-control-request-headers": "mcp-name"}) == (
        ("allow", "POST"),
    )


@pytest.mark.row("26-P9")
def test_a_preflight_reads_a_bounded_list_and_allows_no_half_of_a_name() -> None:
    names = [f"mcp-param-{n:04}" for n in range(10_000)]
    headers = {"origin": "http://localhost", "access-control-request-headers": ",".join(names)}
    answer = dict(checks.preflight_headers(("POST",), (), headers))["access-control-allow-headers"]
    allowed = answer.removeprefix(f"{ALLOWED}, ").split(", ")
    assert allowed == names[: len(allowed)]
    assert 250 < len(allowed) < 300
    headers["access-control-request-headers"] = "mcp-param-" + "a" * 10_000
    assert dict(checks.preflight_headers(("POST",), (), headers))["access-control-allow-headers"] == ALLOWED


@given(st.text(st.characters(codec="latin-1")))
def test_a_preflight_answers_any_list_of_headers(asked: str) -> None:
    for name, value in checks.preflight_headers(
        ("POST",), (), {"origin": "http://localhost", "access-control-request-headers": asked}
    ):
        assert checks.checked_header(name, value) == (name, value)
