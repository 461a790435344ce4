"""The HTTP engine: every check in its order, every status with its body, and replies as JSON or as a stream."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcResponse
from greenroom.transports.http_engine import HttpEngine, handle
from greenroom.transports.interfaces import HttpRefusal, Peer

from .engine_driver import BOTH, HELLO, EngineDriver, RecordedResponse, notification, parse_events
from .fake_sessions import FakeSessionRouter

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from greenroom.transports.http_request import BodyShare

VERBS = ["POST", "GET", "DELETE", "OPTIONS"]


# --- paths and methods


@pytest.mark.row("ST-04")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp?token=1", "/"])
async def test_the_endpoint_is_served_at_its_path_and_at_the_root(path: str) -> None:
    assert (await EngineDriver().post(HELLO, path=path)).status == 200


@pytest.mark.row("ST-04")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("path", ["/mcpx", "/mcp/x", "/other", "//mcp", "/MCP"])
async def test_other_paths_are_404(verb: str, path: str) -> None:
    response = await EngineDriver().ask(verb, path)
    assert (response.status, response.body) == (404, b"Not Found")


@pytest.mark.row("ST-04")
@pytest.mark.row("ST-16")
async def test_the_path_is_a_setting() -> None:
    driver = EngineDriver(path="/tools", serve_root=False)
    assert (await driver.post(HELLO, path="/tools")).status == 200
    assert (await driver.post(HELLO, path="/mcp")).status == 404
    assert (await driver.post(HELLO, path="/")).status == 404


@pytest.mark.row("ST-05")
@pytest.mark.row("ST-29")
@pytest.mark.parametrize("verb", ["PUT", "PATCH", "HEAD", "TRACE", "CONNECT", "PROPFIND", "post"])
async def test_other_methods_are_refused_and_the_allowed_ones_listed(verb: str) -> None:
    response = await EngineDriver().ask(verb)
    assert response.status == 405
    assert response.headers["allow"] == "POST, GET, DELETE, OPTIONS"
    assert response.error == (405, -32600, "Method not allowed")


@pytest.mark.row("ST-25")
async def test_get_and_delete_can_be_switched_off() -> None:
    driver = EngineDriver(enable_get=False)
    await driver.enter()
    response = await driver.ask("GET", headers={"mcp-session-id": "s1"})
    assert (response.status, response.headers["allow"]) == (405, "POST, DELETE, OPTIONS")
    driver = EngineDriver(allow_delete=False)
    session = await driver.enter()
    response = await driver.ask("DELETE", headers={"mcp-session-id": "s1"})
    assert (response.status, response.headers["allow"]) == (405, "POST, GET, OPTIONS")
    assert not session.ended


@pytest.mark.row("ST-13")
@pytest.mark.row("ST-16")
async def test_the_engine_runs_without_a_server() -> None:
    driver, response = EngineDriver(authenticator=_RecordingAuthenticator()), RecordedResponse()
    headers: list[tuple[str | bytes, str | bytes]] = [
        (b"HOST", "LocalHost:1"),
        ("AUTHORIZATION", b"ann"),
        ("Origin", "http://localhost"),
        (b"accept", b"application/json"),
        ("Accept", "text/event-stream"),
    ]
    await handle("POST", "/mcp?q=1", headers, json.dumps(HELLO).encode(), response, driver.engine)
    assert (response.status, response.said) == (200, ["reply"])
    assert response.headers["mcp-session-id"] == "s1"
    assert response.headers["access-control-allow-origin"] == "http://localhost"
    response = RecordedResponse()
    await handle("DELETE", "/mcp", [*headers, ("Mcp-Session-Id", "s1")], b"", response, driver.engine)
    assert response.status == 204


# --- host and origin


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("host", [None, "evil.example", "evil.example:9090"])
async def test_a_foreign_or_missing_host_is_refused_on_every_verb(verb: str, host: str | None) -> None:
    driver = EngineDriver()
    response = await driver.ask(verb, headers={"host": host, "mcp-session-id": "s1"})
    assert response.status == 403
    assert "allowed_hosts" in response.json["error"]["message"]
    assert driver.router.looked_for == []


@pytest.mark.row("SX-01")
@pytest.mark.row("SX-03")
@pytest.mark.row("SX-04")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example"])
async def test_a_foreign_origin_is_refused_on_every_verb_and_told_nothing(verb: str, origin: str) -> None:
    driver = EngineDriver()
    response = await driver.ask(verb, headers={"origin": origin, "mcp-session-id": "s1"})
    assert response.status == 403
    assert not any(name.startswith("access-control") for name in response.headers)
    assert driver.router.looked_for == []


@pytest.mark.row("SX-01")
async def test_a_missing_origin_is_refused_where_one_is_required() -> None:
    response = await EngineDriver(allow_missing_origin=False).post(HELLO)
    assert response.status == 403
    assert "allow_missing_origin" in response.json["error"]["message"]


@pytest.mark.row("SX-01")
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_a_cross_site_get_without_an_origin_is_refused(verb: str, site: str) -> None:
    driver = EngineDriver()
    response = await driver.ask(verb, headers={"sec-fetch-site": site, "mcp-session-id": "s1"})
    assert response.status == 403
    assert "allowed_origins" in response.json["error"]["message"]
    assert driver.router.looked_for == []


@pytest.mark.row("SX-01")
@pytest.mark.parametrize("site", ["none", "same-origin"])
async def test_a_same_site_get_without_an_origin_is_answered(site: str) -> None:
    assert (await EngineDriver().post(HELLO, {"sec-fetch-site": site})).status == 200


@pytest.mark.row("SX-06")
@pytest.mark.parametrize("origins", [[], "any", ["https://app.example"]])
async def test_programs_may_call_a_public_address_and_unlisted_pages_may_not(origins: Any) -> None:
    driver = EngineDriver(host="0.0.0.0", allowed_origins=origins, allowed_hosts=["mcp.example"])
    public = {"host": "mcp.example"}
    assert (await driver.post(HELLO, public)).status == 200
    response = await driver.post(HELLO, {**public, "origin": "https://evil.example"})
    assert response.status == (200 if origins == "any" else 403)
    # An attacker's name that resolves to this address, public or loopback, is in Host; without a list of hosts it is in Origin.
    assert (await driver.post(HELLO, {"host": "rebound.example"})).status == 403
    assert (await driver.post(HELLO, {"host": "127.0.0.1"})).status == 403
    open_names = EngineDriver(host="0.0.0.0", allowed_origins=[])
    rebound = {"host": "rebound.example", "origin": "http://rebound.example"}
    assert (await open_names.post(HELLO, rebound)).status == 403
    for verb in ("GET", "DELETE"):  # a browser omits the Origin for these, and no page can make it send the header
        assert (await open_names.ask(verb, headers={"host": "rebound.example"})).status == 400


@pytest.mark.row("SX-04")
async def test_a_page_of_an_allowed_origin_can_read_the_response() -> None:
    driver = EngineDriver()
    response = await driver.post(HELLO, {"origin": "http://localhost:3000"})
    assert response.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert response.headers["vary"] == "Origin"
    exposed = response.headers["access-control-expose-headers"].lower()
    assert {"www-authenticate", "mcp-session-id", "mcp-protocol-version"} == set(exposed.split(", "))
    refused = await driver.call("echo", headers={"origin": "http://localhost:3000", "mcp-session-id": "unknown"})
    assert refused.headers["access-control-allow-origin"] == "http://localhost:3000"


@pytest.mark.row("SX-04")
async def test_a_request_without_an_origin_gets_no_cors_headers() -> None:
    response = await EngineDriver().post(HELLO)
    assert not any(name.startswith("access-control") for name in response.headers)
    response = await EngineDriver(allowed_origins="any").post(HELLO, {"origin": "https://any.example"})
    assert response.headers["access-control-allow-origin"] == "https://any.example"


@pytest.mark.row("SX-05")
@pytest.mark.row("SX-04")
async def test_a_preflight_is_answered() -> None:
    class HeaderAuthenticator(_RecordingAuthenticator):
        headers = ("Authorization", "X-Key")

    authenticator = HeaderAuthenticator()
    response = await EngineDriver(authenticator=authenticator).ask(
        "OPTIONS", headers={"origin": "http://localhost:3000"}
    )
    assert (response.status, response.body) == (204, b"")
    assert response.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert response.headers["access-control-allow-methods"] == "POST, GET, DELETE, OPTIONS"
    allowed = response.headers["access-control-allow-headers"].lower().split(", ")
    assert {"content-type", "accept", "mcp-session-id", "mcp-protocol-version", "last-event-id"} < set(allowed)
    assert {"authorization", "x-key"} < set(allowed)
    assert authenticator.asked == []  # a preflight carries no credentials
    response = await EngineDriver().ask("OPTIONS")
    assert (response.status, response.headers) == (204, {"allow": "POST, GET, DELETE, OPTIONS"})


@pytest.mark.row("26-P9")
async def test_a_preflight_of_a_page_may_ask_for_mirrored_headers() -> None:
    asked = {"origin": "http://localhost:3000", "access-control-request-headers": "content-type,mcp-method,mcp-param-a"}
    response = await EngineDriver().ask("OPTIONS", headers=asked)
    allowed = response.headers["access-control-allow-headers"].split(", ")
    assert allowed[-2:] == ["mcp-method", "mcp-param-a"]
    assert "*" not in response.headers["access-control-allow-headers"]
    foreign = await EngineDriver().ask("OPTIONS", headers={**asked, "origin": "https://evil.example"})
    assert (foreign.status, "access-control-allow-headers" in foreign.headers) == (403, False)


@pytest.mark.row("26-P2")
async def test_a_client_with_a_session_may_send_a_mirrored_header_twice_or_wrong() -> None:
    driver = EngineDriver()
    plain, doubled = RecordedResponse(), RecordedResponse()
    kept = [("host", "127.0.0.1:9090"), ("accept", BOTH), ("content-type", "application/json")]
    mirrored = [
        ("Mcp-Name", "a"),
        ("mcp-name", "b"),
        ("Mcp-Method", "tools/call"),
        ("mcp-method", ""),
        ("mcp-param-a", "\x85"),
    ]
    body = json.dumps(HELLO).encode()
    await handle("POST", "/mcp", kept, body, plain, driver.engine)
    await handle("POST", "/mcp", [*kept, *mirrored], body, doubled, driver.engine)
    assert doubled.headers.pop("mcp-session-id") != plain.headers.pop("mcp-session-id")
    assert (doubled.status, doubled.headers, doubled.body) == (plain.status, plain.headers, plain.body)
    assert plain.status == 200


# --- authentication


class _RecordingAuthenticator:
    """An authenticator that accepts every caller that gives a name."""

    headers: tuple[str, ...] = ("Authorization",)

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Mapping[str, str]]] = []

    async def challenge_for_scopes(
        self, scopes: Collection[str], method: str, path: str, headers: Mapping[str, str], peer: Peer
    ) -> HttpRefusal:
        return HttpRefusal(403, [("www-authenticate", f"Bearer scope={' '.join(scopes)}")])

    async def authenticate(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> Peer | HttpRefusal:
        self.asked.append((method, path, headers))
        who = headers.get("authorization")
        if who == "crash":
            raise SystemExit(1)
        if who == "split":
            return HttpRefusal(401, [("www-authenticate", "Bearer\r\nset-cookie: a=b")])
        if who is None:
            return HttpRefusal(401, [("WWW-Authenticate", "Bearer")], b'{"error":"unauthorized"}')
        return Peer(peer.transport, peer.address, who)


@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_every_method_is_authenticated_before_a_session_is_looked_up(verb: str) -> None:
    authenticator = _RecordingAuthenticator()
    driver = EngineDriver(authenticator=authenticator)
    response = await driver.ask(verb, "/mcp?x=1", {"mcp-session-id": "s1", "accept": "nothing/at-all"}, b"{")
    assert (response.status, response.body) == (401, b'{"error":"unauthorized"}')
    assert response.headers == {"www-authenticate": "Bearer", "greenroom-instance": driver.instance}
    assert [(method, path) for method, path, _ in authenticator.asked] == [(verb, "/mcp?x=1")]
    assert driver.router.looked_for == []


async def test_only_refusals_before_a_session_was_reached_name_the_process() -> None:
    driver = EngineDriver(max_body=1000)
    await driver.post(HELLO)
    here = {"greenroom-instance": driver.instance}
    for status, response in [
        (404, await driver.call("echo", headers={"mcp-session-id": "s9"})),
        (400, await driver.post(b"{")),
        (413, await driver.post({"jsonrpc": "2.0", "id": 1, "method": "echo", "params": {"x": "y" * 1000}})),
        (406, await driver.call("echo", headers={"accept": "text/plain"})),
    ]:
        assert response.status == status
        assert response.headers | here == response.headers
    for method in ("echo", "stream", "exit"):
        assert "greenroom-instance" not in (await driver.call(method, headers={"mcp-session-id": "s1"})).headers
    assert driver.instance != EngineDriver().instance


async def test_processes_of_one_program_share_the_first_part_of_the_instance() -> None:
    one, other, stranger = (
        HttpEngine(FakeSessionRouter(), key=key)._instance[0][1] for key in (b"k" * 32, b"k" * 32, b"l" * 32)
    )
    assert one != other
    assert one.partition(".")[0] == other.partition(".")[0] != stranger.partition(".")[0]


async def test_the_principal_goes_with_every_session_lookup() -> None:
    driver = EngineDriver(authenticator=_RecordingAuthenticator())
    await driver.post(HELLO, {"authorization": "ann"})
    assert (await driver.call("echo", headers={"authorization": "ann"})).status == 200
    for verb in ("POST", "GET", "DELETE"):
        headers = {"authorization": "bob", "mcp-session-id": "s1", "content-type": "application/json"}
        foreign = await driver.ask(verb, headers=headers, body=b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        unknown = await driver.ask(
            verb, headers={**headers, "mcp-session-id": "nope"}, body=b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        )
        assert (foreign.status, foreign.headers, foreign.body) == (404, unknown.headers, unknown.body)


@pytest.mark.row("26-M14")
async def test_an_authenticator_that_crashes_or_injects_headers_fails_one_request_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver = EngineDriver(authenticator=_RecordingAuthenticator())
    with caplog.at_level(logging.CRITICAL):
        for who, version in itertools.product(("crash", "split"), (None, "2025-11-25", "2026-07-28")):
            response = await driver.post(HELLO, {"authorization": who, "mcp-protocol-version": version})
            assert response.error == (500, -32603, "Internal error")
            assert ("id" in response.json) == (version != "2026-07-28")
            assert "set-cookie" not in response.headers
    assert (await driver.post(HELLO, {"authorization": "ann"})).status == 200


# --- accepted types, content type and size


@pytest.mark.row("WC-16")
@pytest.mark.parametrize(
    "accept", ["application/json", "text/event-stream", "text/html", "application/json;q=0, */*;q=0"]
)
async def test_a_post_must_accept_json_and_event_streams(accept: str) -> None:
    response = await EngineDriver().post(HELLO, {"accept": accept})
    assert response.error == (406, -32600, "Accept header must include both application/json and text/event-stream")


@pytest.mark.row("WC-16")
@pytest.mark.parametrize("accept", [None, "*/*", BOTH, "text/event-stream;q=0.1, application/json"])
async def test_a_post_may_accept_anything_or_omit_the_header(accept: str | None) -> None:
    assert (await EngineDriver().post(HELLO, {"accept": accept})).status == 200


@pytest.mark.row("WC-16")
async def test_a_get_must_accept_event_streams() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    response = await driver.ask("GET", headers={"mcp-session-id": "s1", "accept": "application/json"})
    assert response.status == 406
    assert session.resumed == []


@pytest.mark.row("ST-26")
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json"]
)
async def test_a_content_type_other_than_json_is_refused(kind: str) -> None:
    response = await EngineDriver().post(HELLO, {"content-type": kind})
    assert response.status == 415
    assert "Unsupported Media Type" in response.error[2]


@pytest.mark.row("ST-26")
async def test_a_content_type_with_parameters_or_none_is_accepted() -> None:
    assert (await EngineDriver().post(HELLO, {"content-type": "application/json; charset=utf-8"})).status == 200
    assert (await EngineDriver().post(HELLO, {"content-type": None})).status == 200
    assert (await EngineDriver().post(HELLO, {"content-encoding": "gzip"})).status == 415
    assert (await EngineDriver().post(HELLO, {"content-encoding": "identity"})).status == 200


@pytest.mark.row("ST-27")
async def test_a_body_over_the_limit_is_refused_unread_if_its_length_says_so() -> None:
    driver = EngineDriver(max_body=100)

    async def unread(share: BodyShare) -> bytes:
        raise AssertionError

    for length in ("101", "9" * 5000):
        headers = {"content-type": "application/json", "content-length": length}
        response = await driver.ask("POST", headers=headers, body=unread)
        assert response.error[:2] == (413, -32600)
        assert response.error[2].startswith("Payload too large")
    assert (await driver.post(b" " * 101)).status == 413
    just = b'{"jsonrpc":"2.0","id":1,"method":"initialize"}'.ljust(100)
    assert (await driver.post(just)).status == 200
    assert (await driver.post(just, {"content-length": "100"})).status == 200


@pytest.mark.row("ST-27")
async def test_the_limit_of_a_body_can_be_raised() -> None:
    padding = b" " * 5_000_000
    assert (await EngineDriver().post(json.dumps(HELLO).encode() + padding)).status == 413
    assert (await EngineDriver(max_body=6_000_000).post(json.dumps(HELLO).encode() + padding)).status == 200


@pytest.mark.row("WC-12")
@pytest.mark.row("WC-13")
@pytest.mark.row("WC-14")
@pytest.mark.parametrize(
    ("body", "status", "code", "id"),
    [
        (b"", 400, -32700, None),
        (b"{", 400, -32700, None),
        (b'{"a":1}}', 400, -32700, None),
        (b"\xff\xfe", 400, -32700, None),
        (b"[]", 400, -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600, None),
        (b'"text"', 400, -32600, None),
        (b'{"jsonrpc":"1.0","id":7,"method":"ping"}', 400, -32600, 7),
        (b'{"id":7,"method":"ping"}', 400, -32600, 7),
        (b'{"jsonrpc":"2.0","id":"a"}', 400, -32600, "a"),
        (b"[" * 100_000, 400, -32700, None),
    ],
)
async def test_an_invalid_message_gets_an_error(body: bytes, status: int, code: int, id: Any) -> None:
    response = await EngineDriver().post(body)
    assert response.error[:2] == (status, code)
    assert response.json["id"] == id
    if body.startswith(b"[]"):
        assert "Batch requests are not supported" in response.error[2]


@pytest.mark.row("WC-11")
@pytest.mark.parametrize("id", [None, 1.5, {}, [], True])
async def test_an_id_must_be_text_or_a_whole_number(id: Any) -> None:
    driver = EngineDriver()
    await driver.enter()
    response = await driver.call("ping", id=id)
    assert response.error[:2] == (200, -32600)
    assert response.json["id"] is None


@pytest.mark.row("WC-18")
async def test_params_must_be_an_object() -> None:
    driver = EngineDriver()
    await driver.enter()
    response = await driver.post(
        {"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": []}, {"mcp-session-id": "s1"}
    )
    assert response.error[:2] == (200, -32602)
    assert response.json["id"] == 4


async def test_a_duplicate_single_valued_header_is_refused() -> None:
    driver = EngineDriver()
    response = RecordedResponse()
    headers = [("host", "localhost"), ("mcp-session-id", "s1"), ("Mcp-Session-Id", "s2")]
    await driver.engine.handle("POST", "/mcp", headers, b"{}", response)
    assert response.error[:2] == (400, -32600)
    assert "mcp-session-id" in response.error[2]


# --- revisions


@pytest.mark.row("WC-10")
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("version", ["1900-01-01", "2026-07-28", "", "2025-06-18, 2025-11-25"])
async def test_an_unknown_revision_is_refused_with_the_supported_ones(verb: str, version: str) -> None:
    driver = EngineDriver()
    session = await driver.enter()
    headers = {"mcp-session-id": "s1", "mcp-protocol-version": version, "content-type": "application/json"}
    response = await driver.ask(verb, headers=headers, body=b'{"jsonrpc":"2.0","id":9,"method":"ping"}')
    if version == "2026-07-28" and verb != "POST":  # a revision that has neither of them
        assert response.status == 405
        return
    assert response.status == 400
    assert b"2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05" in response.body
    if verb == "POST":
        assert response.error[1] == -32600
        assert response.json["id"] == 9
    assert not session.heard and not session.resumed and not session.ended  # noqa: PT018


@pytest.mark.row("WC-10")
@pytest.mark.parametrize("version", [None, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_supported_revisions_and_no_revision_are_accepted(version: str | None) -> None:
    driver = EngineDriver()
    await driver.enter()
    assert (await driver.call("ping", headers={"mcp-protocol-version": version})).status == 200


@pytest.mark.row("WC-10")
async def test_initialize_needs_no_revision_header() -> None:
    assert (await EngineDriver().post(HELLO, {"mcp-protocol-version": "1900-01-01"})).status == 200


@pytest.mark.row("WC-10")
@pytest.mark.row("ST-25")
async def test_the_check_of_the_revision_can_be_switched_off() -> None:
    driver = EngineDriver(validate_protocol_version=False)
    await driver.enter()
    assert (await driver.call("ping", headers={"mcp-protocol-version": "1900-01-01"})).status == 200


@pytest.mark.row("WC-10")
async def test_a_request_without_session_and_revision_is_taken_for_the_revision_before_the_header() -> None:
    driver = EngineDriver(session_enabled=False)
    await driver.call("ping")
    await driver.call("ping", headers={"mcp-protocol-version": "2025-06-18"})
    assert [version for _, version in driver.router.singles] == ["2025-03-26", "2025-06-18"]


# --- sessions


@pytest.mark.row("WC-09")
@pytest.mark.row("SE-04")
async def test_initialize_starts_a_session_and_returns_its_id() -> None:
    driver = EngineDriver()
    response = await driver.post(HELLO)
    assert response.said == ["reply"]
    said = {"content-type": "application/json", "mcp-session-id": "s1", "greenroom-instance": driver.instance}
    assert response.headers == said
    assert response.json["result"]["protocolVersion"] == "2025-11-25"
    assert list(driver.router.sessions) == ["s1"]


@pytest.mark.row("WC-09")
async def test_initialize_with_a_known_session_reuses_it_and_with_an_unknown_one_is_404() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    assert (await driver.post(HELLO, {"mcp-session-id": "s1"})).status == 200
    assert list(driver.router.sessions) == ["s1"]
    assert [request.method for request in session.heard] == ["initialize"]
    response = await driver.post(HELLO, {"mcp-session-id": "other"})
    assert response.error == (404, -32600, "Unknown Mcp-Session-Id")


@pytest.mark.row("WC-09")
async def test_other_requests_start_no_session() -> None:
    driver = EngineDriver()
    for message in ({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, notification()):
        assert (await driver.post(message)).status == 400
    assert driver.router.sessions == {}


async def test_a_refused_initialize_leaves_no_session() -> None:
    response = await EngineDriver(router=FakeSessionRouter(full=True)).post(HELLO)
    assert response.error == (503, -32603, "Maximum number of sessions reached")
    assert "mcp-session-id" not in response.headers


@pytest.mark.row("WC-08")
@pytest.mark.parametrize("message", [{"jsonrpc": "2.0", "id": 5, "method": "ping"}, notification()])
async def test_a_post_needs_a_known_session(message: dict[str, Any]) -> None:
    driver = EngineDriver()
    missing = await driver.post(message)
    assert missing.error == (400, -32600, "Mcp-Session-Id header required")
    unknown = await driver.post(message, {"mcp-session-id": "unknown"})
    assert unknown.error == (404, -32600, "Unknown Mcp-Session-Id")
    assert unknown.json["id"] == message.get("id")


@pytest.mark.row("WC-08")
@pytest.mark.row("SE-04")
@pytest.mark.parametrize("verb", ["GET", "DELETE"])
async def test_get_and_delete_need_a_known_session(verb: str) -> None:
    driver = EngineDriver()
    assert (await driver.ask(verb)).error == (400, -32600, "Mcp-Session-Id header required")
    unknown = await driver.ask(verb, headers={"mcp-session-id": "unknown"})
    assert unknown.error == (404, -32600, "Unknown Mcp-Session-Id")


@pytest.mark.row("SE-04")
async def test_delete_ends_the_session_and_later_requests_are_404() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    response = await driver.ask("DELETE", headers={"mcp-session-id": "s1"})
    assert (response.status, response.body) == (204, b"")
    assert session.ended
    assert (await driver.call("ping")).status == 404
    assert (await driver.ask("DELETE", headers={"mcp-session-id": "s1"})).status == 404


@pytest.mark.row("SE-03")
async def test_without_sessions_each_request_stands_alone() -> None:
    driver = EngineDriver(session_enabled=False)
    response = await driver.post(HELLO)
    assert (response.status, "mcp-session-id" in response.headers) == (200, False)
    assert (await driver.call("tools/list")).json["result"] == {"method": "tools/list"}
    assert (await driver.post(notification())).status == 202
    for verb in ("GET", "DELETE"):
        response = await driver.ask(verb, headers={"mcp-session-id": "s1"})
        assert (response.status, response.headers["allow"]) == (405, "POST, OPTIONS")
    assert driver.router.sessions == {}


@pytest.mark.row("ST-25")
async def test_sessions_can_be_optional() -> None:
    driver = EngineDriver(require_session=False)
    session = await driver.enter()
    assert (await driver.call("one", headers={"mcp-session-id": None})).status == 200
    assert (await driver.call("two")).status == 200
    assert [request.method for request, _ in driver.router.singles] == ["one"]
    assert [request.method for request in session.heard] == ["two"]
    assert (await driver.call("three", headers={"mcp-session-id": "unknown"})).status == 404


async def test_a_session_that_ends_during_a_request_is_reported_in_the_reply() -> None:
    driver = EngineDriver()
    await driver.enter()
    response = await driver.call("exit", id=8)
    assert response.error[:2] == (
        200,
        -32603,
    )  # not 404, on which the client would send the request again, although it may have been executed
    assert "initialize" in response.error[2]
    assert response.json["id"] == 8


@pytest.mark.row("WC-08")
async def test_a_session_that_ends_before_a_request_is_unknown() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    session.dying = True
    headers = {"mcp-session-id": "s1"}
    assert (await driver.post(notification(), headers)).error == (404, -32600, "Unknown Mcp-Session-Id")
    assert (await driver.ask("GET", headers=headers)).error == (404, -32600, "Unknown Mcp-Session-Id")
    assert (await driver.post({"jsonrpc": "2.0", "id": 3, "result": []}, headers)).status == 400
    assert (await driver.ask("DELETE", headers=headers)).status == 204


# --- replies


@pytest.mark.row("WC-07")
async def test_notifications_and_answers_are_accepted_without_content() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    headers = {"mcp-session-id": "s1"}
    messages: list[dict[str, Any]] = [
        notification("notifications/initialized"),
        notification("notifications/of-no-kind"),
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}},
    ]
    for message in messages:
        response = await driver.post(message, headers)
        assert (response.status, response.body, response.headers) == (202, b"", {})
    assert [type(each) for each in session.heard] == [
        JsonRpcNotification,
        JsonRpcNotification,
        JsonRpcResponse,
        JsonRpcError,
    ]


async def test_a_broken_answer_is_refused_and_still_reaches_its_waiter() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    response = await driver.post({"jsonrpc": "2.0", "id": 3, "result": []}, {"mcp-session-id": "s1"})
    assert response.error[:2] == (400, -32600)
    assert response.json["id"] is None
    (failure,) = session.heard
    assert (type(failure), failure.id) == (JsonRpcError, 3)


@pytest.mark.parametrize(
    ("message", "headers"),
    [
        (b"no message", {"mcp-session-id": "s1"}),
        ({"jsonrpc": "2.0", "id": 3, "method": 7}, {"mcp-session-id": "s1"}),
        ({"jsonrpc": "2.0", "id": 3, "result": []}, {}),
    ],
    ids=["no message", "a request", "an answer without a session"],
)
async def test_an_unreadable_message_looks_up_a_session_only_if_it_answers_one(
    message: Any, headers: dict[str, str]
) -> None:
    driver = EngineDriver()
    session = await driver.enter()
    looked = len(driver.router.looked_for)
    response = await driver.post(message, headers)
    assert response.status == 400
    assert session.heard == []
    assert len(driver.router.looked_for) == looked


@pytest.mark.row("WC-15")
@pytest.mark.row("ST-14")
async def test_a_single_reply_is_one_response() -> None:
    driver = EngineDriver()
    await driver.enter()
    response = await driver.call("echo", text="hi")
    assert response.said == ["reply"]
    assert (response.status, response.headers) == (200, {"content-type": "application/json"})
    assert response.json == {"jsonrpc": "2.0", "id": 1, "result": {"method": "echo", "params": {"text": "hi"}}}
    response = await driver.call("unknown")
    assert response.error[:2] == (200, -32601)


@pytest.mark.row("WC-17")
@pytest.mark.parametrize(
    ("accept", "status", "kind"),
    [
        ("application/json, text/event-stream", 200, "text/event-stream"),
        ("text/event-stream, application/json", 200, "text/event-stream"),
        ("text/event-stream", 200, "text/event-stream"),
        ("application/json", 202, None),
    ],
)
async def test_a_cancelled_call_is_answered_with_an_empty_stream_or_202(
    accept: str, status: int, kind: str | None
) -> None:
    driver = EngineDriver(accept="either")
    await driver.enter()
    response = await driver.call("forget", headers={"accept": accept})
    assert (response.status, response.headers.get("content-type")) == (status, kind)
    assert not [each for each in parse_events(response.body) if "data" in each]
    assert kind is not None or response.body == b""


@pytest.mark.row("ST-07")
@pytest.mark.row("ST-08")
@pytest.mark.row("ST-14")
async def test_a_call_that_sends_messages_first_is_answered_on_a_stream() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    response = await driver.call("stream", id="a", events=2)
    assert response.said[0] == "start"
    assert response.said[-1] == "end"
    assert set(response.said[1:-1]) == {"chunk"}
    assert response.headers == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        "mcp-session-id": "s1",
    }
    data = b"".join(response.chunks)
    assert data.startswith(b"id: p1:0\ndata: \n\nid: p1:1\ndata: {")
    events = parse_events(data)
    assert [event["id"] for event in events] == ["p1:0", "p1:1", "p1:2", "p1:3"]
    assert events[0]["data"] == ""
    assert '"id":"a"' in events[-1]["data"]
    assert session.feeds[0].left == 1


@pytest.mark.row("ST-06")
async def test_the_order_of_accept_can_decide_the_format() -> None:
    driver = EngineDriver(honour_accept_order=True)
    await driver.enter()
    response = await driver.call("echo", headers={"accept": "text/event-stream, application/json"})
    assert (response.status, response.headers["content-type"], response.said) == (200, "text/event-stream", ["reply"])
    (event,) = parse_events(response.body)
    assert '"method":"echo"' in event["data"]
    for accept in (BOTH, "*/*", None):
        response = await driver.call("echo", headers={"accept": accept})
        assert response.headers["content-type"] == "application/json"
    response = await EngineDriver(honour_accept_order=True).call(
        "echo", headers={"accept": "text/event-stream, application/json"}
    )
    assert response.status == 404  # a refusal is told by its status, and is no event


@pytest.mark.row("ST-06")
async def test_one_accepted_type_is_enough_where_that_is_allowed() -> None:
    driver = EngineDriver(accept="either")
    await driver.enter()
    response = await driver.call("echo", headers={"accept": "text/event-stream"})
    assert response.headers["content-type"] == "text/event-stream"
    response = await driver.call("stream", id=6, headers={"accept": "application/json"}, events=3)
    assert (response.said, response.json) == (["reply"], {"jsonrpc": "2.0", "id": 6, "result": {}})
    assert (await driver.call("echo", headers={"accept": "text/html"})).status == 406


async def test_a_stream_whose_session_dies_ends_with_an_error_as_reply() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    response = RecordedResponse()
    asking = asyncio.create_task(_call(driver, response, "stream", id=3, finish=False))
    await response.until(1)
    session.die()
    await asking
    last = parse_events(b"".join(response.chunks))[-1]
    assert '"id":3,"error"' in last["data"]
    assert response.said[-1] == "end"


async def test_an_interrupted_stream_gets_no_error_as_reply() -> None:
    driver = EngineDriver()
    session = await driver.enter()
    response = RecordedResponse()
    asking = asyncio.create_task(_call(driver, response, "stream", finish=False))
    await response.until(1)
    session.feeds[0].end()
    await asking
    assert [event["data"] for event in parse_events(b"".join(response.chunks))] == [""]


async def _call(driver: EngineDriver, response: RecordedResponse, method: str, id: Any = 1, **params: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()
    headers = {"mcp-session-id": "s1", "content-type": "application/json"}
    await driver.begin(response, "POST", "/mcp", headers, body)


@pytest.mark.row("SX-07")
async def test_an_exception_in_the_session_router_fails_one_request_only(caplog: pytest.LogCaptureFixture) -> None:
    driver = EngineDriver()
    await driver.enter()
    with caplog.at_level(logging.CRITICAL):
        response = await driver.call("raise")
    assert response.error == (500, -32603, "Internal error")
    assert (await driver.call("echo")).status == 200
