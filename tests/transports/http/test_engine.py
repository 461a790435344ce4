"""The engine: every check in its order, every status with its body, and answers as JSON or as a stream."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.protocol.jsonrpc import JsonRpcError, JsonRpcNotification, JsonRpcResponse
from greenroom.transports.http_engine import HttpEngine, handle
from greenroom.transports.interfaces import HttpRefusal, Peer

from .engine_driver import BOTH, HELLO, Desk, Paper, note, sse
from .fake_sessions import FakeDoor

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from greenroom.transports.http_request import BodyShare

VERBS = ["POST", "GET", "DELETE", "OPTIONS"]


# --- where


@pytest.mark.row("ST-04")
@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp?token=1", "/"])
async def test_the_endpoint_is_at_its_path_and_at_the_root(path: str) -> None:
    assert (await Desk().post(HELLO, path=path)).status == 200


@pytest.mark.row("ST-04")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("path", ["/mcpx", "/mcp/x", "/other", "//mcp", "/MCP"])
async def test_nothing_is_anywhere_else(verb: str, path: str) -> None:
    paper = await Desk().ask(verb, path)
    assert (paper.status, paper.body) == (404, b"Not Found")


@pytest.mark.row("ST-04")
@pytest.mark.row("ST-16")
async def test_the_path_can_be_chosen() -> None:
    desk = Desk(path="/tools", serve_root=False)
    assert (await desk.post(HELLO, path="/tools")).status == 200
    assert (await desk.post(HELLO, path="/mcp")).status == 404
    assert (await desk.post(HELLO, path="/")).status == 404


@pytest.mark.row("ST-05")
@pytest.mark.row("ST-29")
@pytest.mark.parametrize("verb", ["PUT", "PATCH", "HEAD", "TRACE", "CONNECT", "PROPFIND", "post"])
async def test_other_methods_are_refused_with_those_that_are_not(verb: str) -> None:
    paper = await Desk().ask(verb)
    assert paper.status == 405
    assert paper.headers["allow"] == "POST, GET, DELETE, OPTIONS"
    assert paper.error == (405, -32600, "Method not allowed")


@pytest.mark.row("ST-25")
async def test_get_and_delete_can_be_switched_off() -> None:
    desk = Desk(enable_get=False)
    await desk.enter()
    paper = await desk.ask("GET", headers={"mcp-session-id": "s1"})
    assert (paper.status, paper.headers["allow"]) == (405, "POST, DELETE, OPTIONS")
    desk = Desk(allow_delete=False)
    session = await desk.enter()
    paper = await desk.ask("DELETE", headers={"mcp-session-id": "s1"})
    assert (paper.status, paper.headers["allow"]) == (405, "POST, GET, OPTIONS")
    assert not session.ended


@pytest.mark.row("ST-13")
@pytest.mark.row("ST-16")
async def test_the_engine_knows_no_server() -> None:
    desk, paper = Desk(gatekeeper=_Keeper()), Paper()
    headers: list[tuple[str | bytes, str | bytes]] = [
        (b"HOST", "LocalHost:1"),
        ("AUTHORIZATION", b"ann"),
        ("Origin", "http://localhost"),
        (b"accept", b"application/json"),
        ("Accept", "text/event-stream"),
    ]
    await handle("POST", "/mcp?q=1", headers, json.dumps(HELLO).encode(), paper, desk.engine)
    assert (paper.status, paper.said) == (200, ["reply"])
    assert paper.headers["mcp-session-id"] == "s1"
    assert paper.headers["access-control-allow-origin"] == "http://localhost"
    paper = Paper()
    await handle("DELETE", "/mcp", [*headers, ("Mcp-Session-Id", "s1")], b"", paper, desk.engine)
    assert paper.status == 204


# --- from where


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("host", [None, "evil.example", "evil.example:9090"])
async def test_a_foreign_or_missing_host_is_refused_on_every_verb(verb: str, host: str | None) -> None:
    desk = Desk()
    paper = await desk.ask(verb, headers={"host": host, "mcp-session-id": "s1"})
    assert paper.status == 403
    assert "allowed_hosts" in paper.json["error"]["message"]
    assert desk.door.looked_for == []


@pytest.mark.row("SX-01")
@pytest.mark.row("SX-03")
@pytest.mark.row("SX-04")
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost.evil.example"])
async def test_a_foreign_origin_is_refused_on_every_verb_and_told_nothing(verb: str, origin: str) -> None:
    desk = Desk()
    paper = await desk.ask(verb, headers={"origin": origin, "mcp-session-id": "s1"})
    assert paper.status == 403
    assert not any(name.startswith("access-control") for name in paper.headers)
    assert desk.door.looked_for == []


@pytest.mark.row("SX-01")
async def test_a_missing_origin_is_refused_where_it_must_be_there() -> None:
    paper = await Desk(allow_missing_origin=False).post(HELLO)
    assert paper.status == 403
    assert "allow_missing_origin" in paper.json["error"]["message"]


@pytest.mark.row("SX-01")
@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
async def test_a_page_elsewhere_whose_browser_sends_no_origin_is_refused(verb: str, site: str) -> None:
    desk = Desk()
    paper = await desk.ask(verb, headers={"sec-fetch-site": site, "mcp-session-id": "s1"})
    assert paper.status == 403
    assert "allowed_origins" in paper.json["error"]["message"]
    assert desk.door.looked_for == []


@pytest.mark.row("SX-01")
@pytest.mark.parametrize("site", ["none", "same-origin"])
async def test_a_browser_that_fetches_for_its_user_is_answered(site: str) -> None:
    assert (await Desk().post(HELLO, {"sec-fetch-site": site})).status == 200


@pytest.mark.row("SX-06")
@pytest.mark.parametrize("origins", [[], "any", ["https://app.example"]])
async def test_programs_may_call_a_public_address_and_unlisted_pages_may_not(origins: Any) -> None:
    desk = Desk(host="0.0.0.0", allowed_origins=origins, allowed_hosts=["mcp.example"])
    public = {"host": "mcp.example"}
    assert (await desk.post(HELLO, public)).status == 200
    paper = await desk.post(HELLO, {**public, "origin": "https://evil.example"})
    assert paper.status == (200 if origins == "any" else 403)
    # A name of the attacker's that leads here, to the public address or to loopback, is in Host; without a list, it is in Origin.
    assert (await desk.post(HELLO, {"host": "rebound.example"})).status == 403
    assert (await desk.post(HELLO, {"host": "127.0.0.1"})).status == 403
    open_names = Desk(host="0.0.0.0", allowed_origins=[])
    rebound = {"host": "rebound.example", "origin": "http://rebound.example"}
    assert (await open_names.post(HELLO, rebound)).status == 403
    for verb in ("GET", "DELETE"):  # of these a browser leaves the Origin out; no page can make it send the header
        assert (await open_names.ask(verb, headers={"host": "rebound.example"})).status == 400


@pytest.mark.row("SX-04")
async def test_a_page_that_may_call_can_read_the_answer() -> None:
    desk = Desk()
    paper = await desk.post(HELLO, {"origin": "http://localhost:3000"})
    assert paper.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert paper.headers["vary"] == "Origin"
    exposed = paper.headers["access-control-expose-headers"].lower()
    assert {"www-authenticate", "mcp-session-id", "mcp-protocol-version"} == set(exposed.split(", "))
    refused = await desk.call("echo", headers={"origin": "http://localhost:3000", "mcp-session-id": "nobody"})
    assert refused.headers["access-control-allow-origin"] == "http://localhost:3000"


@pytest.mark.row("SX-04")
async def test_whoever_is_no_page_gets_no_such_headers() -> None:
    paper = await Desk().post(HELLO)
    assert not any(name.startswith("access-control") for name in paper.headers)
    paper = await Desk(allowed_origins="any").post(HELLO, {"origin": "https://any.example"})
    assert paper.headers["access-control-allow-origin"] == "https://any.example"


@pytest.mark.row("SX-05")
@pytest.mark.row("SX-04")
async def test_a_preflight_is_answered() -> None:
    class Keeper(_Keeper):
        headers = ("Authorization", "X-Key")

    keeper = Keeper()
    paper = await Desk(gatekeeper=keeper).ask("OPTIONS", headers={"origin": "http://localhost:3000"})
    assert (paper.status, paper.body) == (204, b"")
    assert paper.headers["access-control-allow-origin"] == "http://localhost:3000"
    assert paper.headers["access-control-allow-methods"] == "POST, GET, DELETE, OPTIONS"
    allowed = paper.headers["access-control-allow-headers"].lower().split(", ")
    assert {"content-type", "accept", "mcp-session-id", "mcp-protocol-version", "last-event-id"} < set(allowed)
    assert {"authorization", "x-key"} < set(allowed)
    assert keeper.asked == []  # a preflight carries no credentials
    paper = await Desk().ask("OPTIONS")
    assert (paper.status, paper.headers) == (204, {"allow": "POST, GET, DELETE, OPTIONS"})


# --- who


class _Keeper:
    """A gatekeeper that lets those in who say who they are."""

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
async def test_the_gatekeeper_is_asked_on_every_verb_before_a_session_is_looked_up(verb: str) -> None:
    keeper = _Keeper()
    desk = Desk(gatekeeper=keeper)
    paper = await desk.ask(verb, "/mcp?x=1", {"mcp-session-id": "s1", "accept": "nothing/at-all"}, b"{")
    assert (paper.status, paper.body) == (401, b'{"error":"unauthorized"}')
    assert paper.headers == {"www-authenticate": "Bearer", "greenroom-instance": desk.instance}
    assert [(method, path) for method, path, _ in keeper.asked] == [(verb, "/mcp?x=1")]
    assert desk.door.looked_for == []


async def test_every_refusal_before_a_session_has_heard_says_which_process_it_is_and_no_other_answer_does() -> None:
    desk = Desk(max_body=1000)
    await desk.post(HELLO)
    here = {"greenroom-instance": desk.instance}
    for status, paper in [
        (404, await desk.call("echo", headers={"mcp-session-id": "s9"})),
        (400, await desk.post(b"{")),
        (413, await desk.post({"jsonrpc": "2.0", "id": 1, "method": "echo", "params": {"x": "y" * 1000}})),
        (406, await desk.call("echo", headers={"accept": "text/plain"})),
    ]:
        assert paper.status == status
        assert paper.headers | here == paper.headers
    for method in ("echo", "stream", "exit"):
        assert "greenroom-instance" not in (await desk.call(method, headers={"mcp-session-id": "s1"})).headers
    assert desk.instance != Desk().instance


async def test_processes_of_one_program_say_so_and_are_told_apart() -> None:
    one, other, stranger = (
        HttpEngine(FakeDoor(), key=key)._instance[0][1] for key in (b"k" * 32, b"k" * 32, b"l" * 32)
    )
    assert one != other
    assert one.partition(".")[0] == other.partition(".")[0] != stranger.partition(".")[0]


async def test_whose_session_it_is_goes_with_every_lookup() -> None:
    desk = Desk(gatekeeper=_Keeper())
    await desk.post(HELLO, {"authorization": "ann"})
    assert (await desk.call("echo", headers={"authorization": "ann"})).status == 200
    for verb in ("POST", "GET", "DELETE"):
        headers = {"authorization": "bob", "mcp-session-id": "s1", "content-type": "application/json"}
        foreign = await desk.ask(verb, headers=headers, body=b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
        unknown = await desk.ask(
            verb, headers={**headers, "mcp-session-id": "nope"}, body=b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        )
        assert (foreign.status, foreign.headers, foreign.body) == (404, unknown.headers, unknown.body)


async def test_a_gatekeeper_that_crashes_or_splits_headers_costs_one_request(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(gatekeeper=_Keeper())
    with caplog.at_level(logging.CRITICAL):
        for who in ("crash", "split"):
            paper = await desk.post(HELLO, {"authorization": who})
            assert paper.error == (500, -32603, "Internal error")
            assert "set-cookie" not in paper.headers
    assert (await desk.post(HELLO, {"authorization": "ann"})).status == 200


# --- what is accepted, and what it is


@pytest.mark.row("WC-16")
@pytest.mark.parametrize(
    "accept", ["application/json", "text/event-stream", "text/html", "application/json;q=0, */*;q=0"]
)
async def test_a_post_has_to_accept_both(accept: str) -> None:
    paper = await Desk().post(HELLO, {"accept": accept})
    assert paper.error == (406, -32600, "Accept header must include both application/json and text/event-stream")


@pytest.mark.row("WC-16")
@pytest.mark.parametrize("accept", [None, "*/*", BOTH, "text/event-stream;q=0.1, application/json"])
async def test_a_post_may_accept_anything_or_not_say(accept: str | None) -> None:
    assert (await Desk().post(HELLO, {"accept": accept})).status == 200


@pytest.mark.row("WC-16")
async def test_a_get_has_to_accept_streams() -> None:
    desk = Desk()
    session = await desk.enter()
    paper = await desk.ask("GET", headers={"mcp-session-id": "s1", "accept": "application/json"})
    assert paper.status == 406
    assert session.resumed == []


@pytest.mark.row("ST-26")
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "text/json"]
)
async def test_only_json_is_taken(kind: str) -> None:
    paper = await Desk().post(HELLO, {"content-type": kind})
    assert paper.status == 415
    assert "Unsupported Media Type" in paper.error[2]


@pytest.mark.row("ST-26")
async def test_json_with_parameters_is_taken_and_so_is_what_says_nothing() -> None:
    assert (await Desk().post(HELLO, {"content-type": "application/json; charset=utf-8"})).status == 200
    assert (await Desk().post(HELLO, {"content-type": None})).status == 200
    assert (await Desk().post(HELLO, {"content-encoding": "gzip"})).status == 415
    assert (await Desk().post(HELLO, {"content-encoding": "identity"})).status == 200


@pytest.mark.row("ST-27")
async def test_too_large_a_body_is_refused_and_not_even_read_if_it_says_so() -> None:
    desk = Desk(max_body=100)

    async def unread(share: BodyShare) -> bytes:
        raise AssertionError

    for length in ("101", "9" * 5000):
        headers = {"content-type": "application/json", "content-length": length}
        paper = await desk.ask("POST", headers=headers, body=unread)
        assert paper.error[:2] == (413, -32600)
        assert paper.error[2].startswith("Payload too large")
    assert (await desk.post(b" " * 101)).status == 413
    just = b'{"jsonrpc":"2.0","id":1,"method":"initialize"}'.ljust(100)
    assert (await desk.post(just)).status == 200
    assert (await desk.post(just, {"content-length": "100"})).status == 200


@pytest.mark.row("ST-27")
async def test_the_bound_can_be_above_the_usual_one() -> None:
    padding = b" " * 5_000_000
    assert (await Desk().post(json.dumps(HELLO).encode() + padding)).status == 413
    assert (await Desk(max_body=6_000_000).post(json.dumps(HELLO).encode() + padding)).status == 200


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
async def test_what_is_no_message_gets_an_error(body: bytes, status: int, code: int, id: Any) -> None:
    paper = await Desk().post(body)
    assert paper.error[:2] == (status, code)
    assert paper.json["id"] == id
    if body.startswith(b"[]"):
        assert "Batch requests are not supported" in paper.error[2]


@pytest.mark.row("WC-11")
@pytest.mark.parametrize("id", [None, 1.5, {}, [], True])
async def test_an_id_is_text_or_a_whole_number(id: Any) -> None:
    desk = Desk()
    await desk.enter()
    paper = await desk.call("ping", id=id)
    assert paper.error[:2] == (200, -32600)
    assert paper.json["id"] is None


@pytest.mark.row("WC-18")
async def test_params_are_an_object() -> None:
    desk = Desk()
    await desk.enter()
    paper = await desk.post({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": []}, {"mcp-session-id": "s1"})
    assert paper.error[:2] == (200, -32602)
    assert paper.json["id"] == 4


async def test_a_header_that_has_one_value_may_come_once_only() -> None:
    desk = Desk()
    paper = Paper()
    headers = [("host", "localhost"), ("mcp-session-id", "s1"), ("Mcp-Session-Id", "s2")]
    await desk.engine.handle("POST", "/mcp", headers, b"{}", paper)
    assert paper.error[:2] == (400, -32600)
    assert "mcp-session-id" in paper.error[2]


# --- revisions


@pytest.mark.row("WC-10")
@pytest.mark.parametrize("verb", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize("version", ["1900-01-01", "2026-07-28", "", "2025-06-18, 2025-11-25"])
async def test_an_unknown_revision_is_refused_with_those_that_are_known(verb: str, version: str) -> None:
    desk = Desk()
    session = await desk.enter()
    headers = {"mcp-session-id": "s1", "mcp-protocol-version": version, "content-type": "application/json"}
    paper = await desk.ask(verb, headers=headers, body=b'{"jsonrpc":"2.0","id":9,"method":"ping"}')
    assert paper.status == 400
    assert b"2025-11-25, 2025-06-18, 2025-03-26, 2024-11-05" in paper.body
    if verb == "POST":
        assert paper.error[1] == -32600
        assert paper.json["id"] == 9
    assert not session.heard and not session.resumed and not session.ended  # noqa: PT018


@pytest.mark.row("WC-10")
@pytest.mark.parametrize("version", [None, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_known_revisions_and_none_are_fine(version: str | None) -> None:
    desk = Desk()
    await desk.enter()
    assert (await desk.call("ping", headers={"mcp-protocol-version": version})).status == 200


@pytest.mark.row("WC-10")
async def test_initialize_is_not_asked_for_its_revision() -> None:
    assert (await Desk().post(HELLO, {"mcp-protocol-version": "1900-01-01"})).status == 200


@pytest.mark.row("WC-10")
@pytest.mark.row("ST-25")
async def test_the_check_can_be_switched_off() -> None:
    desk = Desk(validate_protocol_version=False)
    await desk.enter()
    assert (await desk.call("ping", headers={"mcp-protocol-version": "1900-01-01"})).status == 200


@pytest.mark.row("WC-10")
async def test_who_says_nothing_without_a_session_is_taken_to_speak_the_revision_before_the_header() -> None:
    desk = Desk(session_enabled=False)
    await desk.call("ping")
    await desk.call("ping", headers={"mcp-protocol-version": "2025-06-18"})
    assert [version for _, version in desk.door.singles] == ["2025-03-26", "2025-06-18"]


# --- sessions


@pytest.mark.row("WC-09")
@pytest.mark.row("SE-04")
async def test_initialize_makes_a_session_and_says_its_id() -> None:
    desk = Desk()
    paper = await desk.post(HELLO)
    assert paper.said == ["reply"]
    said = {"content-type": "application/json", "mcp-session-id": "s1", "greenroom-instance": desk.instance}
    assert paper.headers == said
    assert paper.json["result"]["protocolVersion"] == "2025-11-25"
    assert list(desk.door.sessions) == ["s1"]


@pytest.mark.row("WC-09")
async def test_initialize_with_a_known_session_reuses_it_and_with_an_unknown_one_is_404() -> None:
    desk = Desk()
    session = await desk.enter()
    assert (await desk.post(HELLO, {"mcp-session-id": "s1"})).status == 200
    assert list(desk.door.sessions) == ["s1"]
    assert [request.method for request in session.heard] == ["initialize"]
    paper = await desk.post(HELLO, {"mcp-session-id": "other"})
    assert paper.error == (404, -32600, "Unknown Mcp-Session-Id")


@pytest.mark.row("WC-09")
async def test_nothing_else_makes_a_session() -> None:
    desk = Desk()
    for message in ({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, note()):
        assert (await desk.post(message)).status == 400
    assert desk.door.sessions == {}


async def test_a_refused_initialize_has_no_session() -> None:
    paper = await Desk(door=FakeDoor(full=True)).post(HELLO)
    assert paper.error == (503, -32603, "Maximum number of sessions reached")
    assert "mcp-session-id" not in paper.headers


@pytest.mark.row("WC-08")
@pytest.mark.parametrize("message", [{"jsonrpc": "2.0", "id": 5, "method": "ping"}, note()])
async def test_a_post_needs_a_session_that_is_known(message: dict[str, Any]) -> None:
    desk = Desk()
    missing = await desk.post(message)
    assert missing.error == (400, -32600, "Mcp-Session-Id header required")
    unknown = await desk.post(message, {"mcp-session-id": "nobody"})
    assert unknown.error == (404, -32600, "Unknown Mcp-Session-Id")
    assert unknown.json["id"] == message.get("id")


@pytest.mark.row("WC-08")
@pytest.mark.row("SE-04")
@pytest.mark.parametrize("verb", ["GET", "DELETE"])
async def test_get_and_delete_need_one_too(verb: str) -> None:
    desk = Desk()
    assert (await desk.ask(verb)).error == (400, -32600, "Mcp-Session-Id header required")
    unknown = await desk.ask(verb, headers={"mcp-session-id": "nobody"})
    assert unknown.error == (404, -32600, "Unknown Mcp-Session-Id")


@pytest.mark.row("SE-04")
async def test_delete_ends_the_session_and_all_after_it_is_404() -> None:
    desk = Desk()
    session = await desk.enter()
    paper = await desk.ask("DELETE", headers={"mcp-session-id": "s1"})
    assert (paper.status, paper.body) == (204, b"")
    assert session.ended
    assert (await desk.call("ping")).status == 404
    assert (await desk.ask("DELETE", headers={"mcp-session-id": "s1"})).status == 404


@pytest.mark.row("SE-03")
async def test_without_sessions_each_request_stands_alone() -> None:
    desk = Desk(session_enabled=False)
    paper = await desk.post(HELLO)
    assert (paper.status, "mcp-session-id" in paper.headers) == (200, False)
    assert (await desk.call("tools/list")).json["result"] == {"method": "tools/list"}
    assert (await desk.post(note())).status == 202
    for verb in ("GET", "DELETE"):
        paper = await desk.ask(verb, headers={"mcp-session-id": "s1"})
        assert (paper.status, paper.headers["allow"]) == (405, "POST, OPTIONS")
    assert desk.door.sessions == {}


@pytest.mark.row("ST-25")
async def test_sessions_can_be_offered_and_not_required() -> None:
    desk = Desk(require_session=False)
    session = await desk.enter()
    assert (await desk.call("one", headers={"mcp-session-id": None})).status == 200
    assert (await desk.call("two")).status == 200
    assert [request.method for request, _ in desk.door.singles] == ["one"]
    assert [request.method for request in session.heard] == ["two"]
    assert (await desk.call("three", headers={"mcp-session-id": "nobody"})).status == 404


async def test_a_session_that_ends_over_a_request_is_said_to_have_ended() -> None:
    desk = Desk()
    await desk.enter()
    paper = await desk.call("exit", id=8)
    assert paper.error[:2] == (200, -32603)  # no 404, which would have it sent again: it may have been done
    assert "initialize" in paper.error[2]
    assert paper.json["id"] == 8


@pytest.mark.row("WC-08")
async def test_a_session_that_ends_between_two_moments_is_an_unknown_one() -> None:
    desk = Desk()
    session = await desk.enter()
    session.dying = True
    headers = {"mcp-session-id": "s1"}
    assert (await desk.post(note(), headers)).error == (404, -32600, "Unknown Mcp-Session-Id")
    assert (await desk.ask("GET", headers=headers)).error == (404, -32600, "Unknown Mcp-Session-Id")
    assert (await desk.post({"jsonrpc": "2.0", "id": 3, "result": []}, headers)).status == 400
    assert (await desk.ask("DELETE", headers=headers)).status == 204


# --- answers


@pytest.mark.row("WC-07")
async def test_what_needs_no_answer_is_accepted() -> None:
    desk = Desk()
    session = await desk.enter()
    headers = {"mcp-session-id": "s1"}
    messages: list[dict[str, Any]] = [
        note("notifications/initialized"),
        note("notifications/of-no-kind"),
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}},
    ]
    for message in messages:
        paper = await desk.post(message, headers)
        assert (paper.status, paper.body, paper.headers) == (202, b"", {})
    assert [type(each) for each in session.heard] == [
        JsonRpcNotification,
        JsonRpcNotification,
        JsonRpcResponse,
        JsonRpcError,
    ]


async def test_a_broken_answer_is_refused_and_still_reaches_whoever_waits_for_it() -> None:
    desk = Desk()
    session = await desk.enter()
    paper = await desk.post({"jsonrpc": "2.0", "id": 3, "result": []}, {"mcp-session-id": "s1"})
    assert paper.error[:2] == (400, -32600)
    assert paper.json["id"] is None
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
async def test_no_session_is_looked_up_for_an_unreadable_message_unless_it_answers_one_there(
    message: Any, headers: dict[str, str]
) -> None:
    desk = Desk()
    session = await desk.enter()
    looked = len(desk.door.looked_for)
    paper = await desk.post(message, headers)
    assert paper.status == 400
    assert session.heard == []
    assert len(desk.door.looked_for) == looked


@pytest.mark.row("WC-15")
@pytest.mark.row("ST-14")
async def test_an_answer_is_one_reply() -> None:
    desk = Desk()
    await desk.enter()
    paper = await desk.call("echo", text="hi")
    assert paper.said == ["reply"]
    assert (paper.status, paper.headers) == (200, {"content-type": "application/json"})
    assert paper.json == {"jsonrpc": "2.0", "id": 1, "result": {"method": "echo", "params": {"text": "hi"}}}
    paper = await desk.call("unknown")
    assert paper.error[:2] == (200, -32601)


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
async def test_a_cancelled_call_is_answered_with_a_stream_of_nothing_or_202(
    accept: str, status: int, kind: str | None
) -> None:
    desk = Desk(accept="either")
    await desk.enter()
    paper = await desk.call("forget", headers={"accept": accept})
    assert (paper.status, paper.headers.get("content-type")) == (status, kind)
    assert not [each for each in sse(paper.body) if "data" in each]
    assert kind is not None or paper.body == b""


@pytest.mark.row("ST-07")
@pytest.mark.row("ST-08")
@pytest.mark.row("ST-14")
async def test_what_says_something_first_is_answered_on_a_stream() -> None:
    desk = Desk()
    session = await desk.enter()
    paper = await desk.call("stream", id="a", events=2)
    assert paper.said[0] == "start"
    assert paper.said[-1] == "end"
    assert set(paper.said[1:-1]) == {"chunk"}
    assert paper.headers == {
        "content-type": "text/event-stream",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        "mcp-session-id": "s1",
    }
    data = b"".join(paper.chunks)
    assert data.startswith(b"id: p1:0\ndata: \n\nid: p1:1\ndata: {")
    events = sse(data)
    assert [event["id"] for event in events] == ["p1:0", "p1:1", "p1:2", "p1:3"]
    assert events[0]["data"] == ""
    assert '"id":"a"' in events[-1]["data"]
    assert session.feeds[0].left == 1


@pytest.mark.row("ST-06")
async def test_the_order_of_accept_can_decide() -> None:
    desk = Desk(honour_accept_order=True)
    await desk.enter()
    paper = await desk.call("echo", headers={"accept": "text/event-stream, application/json"})
    assert (paper.status, paper.headers["content-type"], paper.said) == (200, "text/event-stream", ["reply"])
    (event,) = sse(paper.body)
    assert '"method":"echo"' in event["data"]
    for accept in (BOTH, "*/*", None):
        paper = await desk.call("echo", headers={"accept": accept})
        assert paper.headers["content-type"] == "application/json"
    paper = await Desk(honour_accept_order=True).call("echo", headers={"accept": "text/event-stream, application/json"})
    assert paper.status == 404  # a refusal is read from the status, and is no event


@pytest.mark.row("ST-06")
async def test_one_of_the_two_is_enough_where_that_is_allowed() -> None:
    desk = Desk(accept="either")
    await desk.enter()
    paper = await desk.call("echo", headers={"accept": "text/event-stream"})
    assert paper.headers["content-type"] == "text/event-stream"
    paper = await desk.call("stream", id=6, headers={"accept": "application/json"}, events=3)
    assert (paper.said, paper.json) == (["reply"], {"jsonrpc": "2.0", "id": 6, "result": {}})
    assert (await desk.call("echo", headers={"accept": "text/html"})).status == 406


async def test_a_stream_whose_session_dies_says_so_in_place_of_the_answer() -> None:
    desk = Desk()
    session = await desk.enter()
    paper = Paper()
    asking = asyncio.create_task(_call(desk, paper, "stream", id=3, finish=False))
    await paper.until(1)
    session.die()
    await asking
    last = sse(b"".join(paper.chunks))[-1]
    assert '"id":3,"error"' in last["data"]
    assert paper.said[-1] == "end"


async def test_a_stream_that_is_only_interrupted_says_nothing_of_the_kind() -> None:
    desk = Desk()
    session = await desk.enter()
    paper = Paper()
    asking = asyncio.create_task(_call(desk, paper, "stream", finish=False))
    await paper.until(1)
    session.feeds[0].end()
    await asking
    assert [event["data"] for event in sse(b"".join(paper.chunks))] == [""]


async def _call(desk: Desk, paper: Paper, method: str, id: Any = 1, **params: Any) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode()
    headers = {"mcp-session-id": "s1", "content-type": "application/json"}
    await desk.begin(paper, "POST", "/mcp", headers, body)


@pytest.mark.row("SX-07")
async def test_what_the_company_raises_is_this_requests_own_trouble(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    await desk.enter()
    with caplog.at_level(logging.CRITICAL):
        paper = await desk.call("raise")
    assert paper.error == (500, -32603, "Internal error")
    assert (await desk.call("echo")).status == 200
