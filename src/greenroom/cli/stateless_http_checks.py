"""Checks of the stateless revision that are made over HTTP, and, at the end, those of everything that a server has sent in the whole run."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from greenroom.protocol.dialect import LATEST_DIALECT, STATELESS_DIALECT
from greenroom.protocol.jsonrpc import JSONRPC

from .raw_peer import PREFIX, HttpExchange, HttpPeer, PeerFailed, RawReply, RawRequest, object_in
from .stateless_checks import CHECKS as OTHER_CHECKS
from .stateless_probe import (
    BAD_REQUEST,
    HEADER_MISMATCH,
    NO_SUCH_TOOL,
    CheckedServer,
    CheckTable,
    Deviation,
    expect,
    expect_error,
    need,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .raw_peer import Json, SeenMessage

_LITERAL: Final = "=?base64?bGl0ZXJhbA==?="
"""A name that looks like an encoded one."""
_BROKEN_SENTINEL: Final = "=?base64?*not base64*?="
_UNAUTHORIZED: Final = 401
_NOT_ALLOWED: Final = 405
_ACCEPTED: Final = 202
_OK: Final = 200
_CLIENT_ERRORS: Final = range(400, 500)
_QUIET: Final = 0.3
_ENDS_WITHIN: Final = 2.0
_STATELESS_HEADERS: Final = {"MCP-Protocol-Version": STATELESS_DIALECT.version}
_FORBIDDEN_CODES: Final = frozenset({-32002, -32042})
_DEFINED_CODES: Final = frozenset({-32020, -32021, -32022})
_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_META_KEY: Final = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")
_HTTP: Final = ("http",)


CHECKS: Final = CheckTable(OTHER_CHECKS)
"""All checks. Those of the whole run come last."""


# --- Messages and streams


@CHECKS.add("H1", "should", _HTTP)
async def batches_are_refused(at: CheckedServer) -> str:
    """A batch is refused, and none of it is run."""
    batch = b"[" + b", ".join(RawRequest("server/discover", id=id).body for id in (1, 2)) + b"]"
    reply = await _post(at, batch)
    expect(not any("result" in each for each in reply.messages), f"a batch of two: {reply}")
    expect(reply.status in _CLIENT_ERRORS, f"a batch of two: {reply}")
    return str(reply)


@CHECKS.add("H3", "should", _HTTP)
async def streams_end_with_the_response(at: CheckedServer) -> str:
    """An event stream ends after its response."""
    exchange = await _stream(at)
    try:
        await exchange.until_response()
        further = await exchange.next(_ENDS_WITHIN)
    except PeerFailed as open_:
        raise Deviation(f"the stream is still open after its response: {open_}") from None
    finally:
        await exchange.close()
    expect(further is None, f"after the response came {further}")
    return f"{len(exchange.reply.messages)} messages, and the end"


@CHECKS.add("H4", on=_HTTP)
async def notifications_have_no_answer(at: CheckedServer) -> str:
    """An accepted notification is answered with 202 and no body, another with 4xx."""
    meta = RawRequest("server/discover", id=1).message["params"]["_meta"]
    message = {"jsonrpc": JSONRPC, "method": "notifications/check", "params": {"_meta": meta}}
    reply = await _post(at, json.dumps(message).encode(), {"Mcp-Method": "notifications/check"})
    accepted = reply.status == _ACCEPTED and not reply.body
    expect(accepted or reply.status in _CLIENT_ERRORS, f"HTTP {reply.status} with {len(reply.body)} bytes")
    expect(all("id" not in each for each in reply.messages), "the error for a notification has an id")
    return f"HTTP {reply.status}"


@CHECKS.add("H6", on=_HTTP)
async def version_headers_have_to_agree(at: CheckedServer) -> str:
    """A version header of another revision than the envelope's is refused, and starts no session."""
    return await _is_refused(
        at,
        {"MCP-Protocol-Version": LATEST_DIALECT.version},
        f"the header {LATEST_DIALECT.version} over an envelope of {STATELESS_DIALECT.version}",
    )


@CHECKS.add("H7", on=_HTTP)
async def version_headers_have_to_be_there(at: CheckedServer) -> str:
    """An enveloped request without the version header is refused, and starts no session."""
    return await _is_refused(at, {"MCP-Protocol-Version": None}, "an enveloped request without the header")


async def _is_refused(at: CheckedServer, headers: Mapping[str, str | None], what: str) -> str:
    reply = await at.peer.ask("server/discover", headers=headers)
    session = reply.header("mcp-session-id")
    expect(session is None, f"{what}: {reply}, and a session was started")
    expect_error(reply, HEADER_MISMATCH, what, BAD_REQUEST)
    return str(reply)


@CHECKS.add("H7.bare", on=_HTTP)
async def bare_requests_are_refused(at: CheckedServer) -> str:
    """Without a handshake era, a request with neither envelope nor version header is refused."""
    welcome = await at.initialize()
    need("protocolVersion" not in welcome.result, "the server has a handshake, too")
    reply = await at.peer.ask("tools/list", enveloped=False)
    expect(bool(reply.error) and reply.status == BAD_REQUEST, f"tools/list without anything: {reply}")
    return str(reply)


@CHECKS.add("H9", "should", _HTTP)
async def closed_streams_stop_the_work(at: CheckedServer) -> str:
    """Closing the response stream stops the work."""
    at.tool("check_slow_state")
    key = at.key()
    exchange = await at.open_call(at.tool("check_slow"), {"key": key}, meta={"progressToken": key})
    try:
        expect(await exchange.next() is not None, "the call ended at once")
    finally:
        await exchange.close()
    return f"stopped after {await at.until(key, 'stopped', 'after the disconnect'):.1f} s"


@CHECKS.add("H9.silent", "should", _HTTP)
async def disconnects_before_an_answer_stop_the_work(at: CheckedServer) -> str:
    """A disconnect before anything was sent stops the work."""
    at.tool("check_slow_state")
    key = at.key()
    exchange = await at.open_call(at.tool("check_slow"), {"key": key})
    try:
        await at.until(key, "waiting", "it was not begun:")
    finally:
        await exchange.close()
    return f"stopped after {await at.until(key, 'stopped', 'after the disconnect'):.1f} s"


@CHECKS.add("H11.methods", "should", _HTTP)
async def get_and_delete_are_refused(at: CheckedServer) -> str:
    """GET and DELETE have no meaning: 405, or another 4xx beside a handshake era."""
    statuses = list[int | None]()
    for verb in ("GET", "DELETE"):
        exchange = await at.http.send(verb, _STATELESS_HEADERS, judged=False)
        try:
            reply = await exchange.finish(_ENDS_WITHIN)
        except PeerFailed as open_:
            raise Deviation(f"{verb}: HTTP {exchange.reply.status}, and {open_}") from None
        statuses.append(reply.status)
        expect(reply.status in _CLIENT_ERRORS, f"{verb}: HTTP {reply.status}")
    welcome = await at.initialize()
    if "protocolVersion" not in welcome.result:
        expect(statuses == [_NOT_ALLOWED] * 2, f"GET and DELETE: HTTP {statuses[0]} and {statuses[1]}")
    return f"HTTP {statuses[0]} and {statuses[1]}"


@CHECKS.add("H11.session", "should", _HTTP)
async def sessions_are_ignored(at: CheckedServer) -> str:
    """Mcp-Session-Id and Last-Event-ID of a client are ignored, and no session is started."""
    headers = {"Mcp-Session-Id": "check-no-such-session", "Last-Event-ID": "check-no-such-event"}
    for given in ({}, headers):
        reply = await at.peer.ask("server/discover", headers=given)
        expect(reply.kind == "complete", f"with {', '.join(given) or 'neither'}: {reply}")
        session = reply.header("mcp-session-id")
        expect(session is None, f"the answer has the Mcp-Session-Id {session!r}")
    return "both are ignored"


@CHECKS.add("H11.events", "should", _HTTP)
async def streams_are_not_resumable(at: CheckedServer) -> str:
    """Streams have no event ids, no retry and no event before the first message."""
    streams = [await _stream(at)]
    if object_in(at.capabilities, "tools").get("listChanged"):
        listening, _ = await at.listen({"toolsListChanged": True})
        streams.append(cast("HttpExchange", listening))
    try:
        await streams[0].until_response()
    finally:
        for each in streams:
            await each.close()
    for frame in (frame for each in streams for frame in each.reply.frames):
        for name in ("id", "retry"):
            expect(not frame.values(name), f"an event has the {name} {''.join(frame.values(name))!r}")
        expect(bool(frame.data), "an event without data came first")
    return f"{len(streams)} streams of plain events"


@CHECKS.add("H13", "should", _HTTP)
async def streams_are_not_buffered(at: CheckedServer) -> str:
    """Event streams tell proxies not to buffer them."""
    exchange = await _stream(at)
    await exchange.close()
    found = exchange.reply.header("x-accel-buffering")
    expect((found or "").lower() == "no", f"X-Accel-Buffering: {found or 'missing'}")
    return "X-Accel-Buffering: no"


async def _stream(at: CheckedServer) -> HttpExchange:
    """An event stream of which one message was read: progress, or the acknowledgement of a listen."""
    exchange = await at.open_call(at.tool("test_tool_with_progress"), {}, meta={"progressToken": "stream"})
    assert isinstance(exchange, HttpExchange)
    await exchange.next()
    if not exchange.reply.streamed:
        await exchange.close()
    need(exchange.reply.streamed, "the server answers with one JSON object")
    return exchange


async def _post(at: CheckedServer, body: bytes, headers: Mapping[str, str] | None = None) -> RawReply:
    whole = {**_STATELESS_HEADERS, "Mcp-Method": "server/discover", **(headers or {})}
    return await (await at.http.send("POST", whole, body)).finish()


# --- Mirrored headers


@CHECKS.add("P2", on=_HTTP)
async def method_headers_are_compared(at: CheckedServer) -> str:
    """A missing, wrong or differently written Mcp-Method is refused, its name in any case is accepted."""
    for value in (None, "tools/list", "Server/Discover"):
        reply = await at.peer.ask("server/discover", headers={"Mcp-Method": value})
        expect_error(reply, HEADER_MISMATCH, f"Mcp-Method: {value or 'missing'}", BAD_REQUEST)
    reply = await at.peer.ask("server/discover", headers={"mCP-mETHOD": "server/discover"})
    expect(reply.kind == "complete", f"the header written mCP-mETHOD: {reply}")
    return "three are refused"


def _named(at: CheckedServer, name: str) -> tuple[str, Json]:
    """A request that names what the server does not have, so that it runs nothing."""
    need(at.capabilities.keys() & {"tools", "prompts", "resources"}, "the server has nothing that is called by name")
    if "tools" in at.capabilities:
        return "tools/call", {"name": name, "arguments": {}}
    return ("prompts/get", {"name": name}) if "prompts" in at.capabilities else ("resources/read", {"uri": name})


@CHECKS.add("P2.name", on=_HTTP)
async def name_headers_are_compared(at: CheckedServer) -> str:
    """A missing or wrong Mcp-Name is refused."""
    method, params = _named(at, NO_SUCH_TOOL)
    for value in (None, "another", NO_SUCH_TOOL.upper()):
        reply = await at.peer.ask(method, params, headers={"Mcp-Name": value})
        expect_error(reply, HEADER_MISMATCH, f"Mcp-Name: {value or 'missing'}", BAD_REQUEST)
    return "three are refused"


@CHECKS.add("P3", on=_HTTP)
async def encoded_names_are_decoded(at: CheckedServer) -> str:
    """An encoded Mcp-Name is decoded before it is compared."""
    for name in (NO_SUCH_TOOL, "grüße 世界"):
        method, params = _named(at, name)
        reply = await at.peer.ask(method, params, headers={"Mcp-Name": _encoded(name)})
        expect(reply.code != HEADER_MISMATCH, f"{name!r} in base64: {reply}")
    return "two encoded names are understood"


@CHECKS.add("P3.literal", on=_HTTP)
async def names_that_look_encoded(at: CheckedServer) -> str:
    """A name that looks like an encoded one has to be encoded."""
    method, params = _named(at, _LITERAL)
    proper = await at.peer.ask(method, params)
    expect(proper.code != HEADER_MISMATCH, f"the name {_LITERAL}, encoded: {proper}")
    plain = await at.peer.ask(method, params, headers={"Mcp-Name": _LITERAL})
    expect_error(plain, HEADER_MISMATCH, f"the name {_LITERAL}, as it is", BAD_REQUEST)
    return f"as it is: {plain}"


@CHECKS.add("P3.broken", on=_HTTP)
async def broken_encodings_are_refused(at: CheckedServer) -> str:
    """An Mcp-Name in base64 that is none is refused."""
    method, params = _named(at, NO_SUCH_TOOL)
    reply = await at.peer.ask(method, params, headers={"Mcp-Name": _BROKEN_SENTINEL})
    expect_error(reply, HEADER_MISMATCH, f"Mcp-Name: {_BROKEN_SENTINEL}", BAD_REQUEST)
    return str(reply)


def _encoded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


async def _mirrored(at: CheckedServer, arguments: Json, **headers: str) -> RawReply:
    sent = {f"Mcp-Param-{name}": value for name, value in headers.items()}
    return await at.call(at.tool("check_header"), arguments, headers=sent)


@CHECKS.add("P7", on=_HTTP)
async def parameter_headers_are_compared(at: CheckedServer) -> str:
    """An argument without its Mcp-Param header, or with another value there, is refused."""
    sent: list[tuple[Json, dict[str, str]]] = [
        ({"region": "north"}, {}),
        ({"region": "north"}, {"Region": "south"}),
        ({"region": "north"}, {"Region": "North"}),
        ({"region": "north"}, {"Region": _BROKEN_SENTINEL}),
        ({"count": 42}, {"Count": "43"}),
        ({"count": 42}, {"Count": "many"}),
    ]
    for arguments, headers in sent:
        reply = await _mirrored(at, arguments, **headers)
        expect_error(reply, HEADER_MISMATCH, f"{json.dumps(arguments)} with {headers or 'no header'}", BAD_REQUEST)
    return f"{len(sent)} are refused"


@CHECKS.add("P7.accepted", on=_HTTP)
async def correct_parameter_headers_are_accepted(at: CheckedServer) -> str:
    """A mirrored argument is accepted, plain or encoded; null and a missing one need no header."""
    sent: list[tuple[Json, dict[str, str]]] = [
        ({}, {}),
        ({"region": "north", "count": 42}, {"Region": "north", "Count": "42"}),
        ({"region": "grüße"}, {"Region": _encoded("grüße")}),
        ({"region": "north"}, {"Region": _encoded("north")}),
        ({"region": _LITERAL}, {"Region": _encoded(_LITERAL)}),
    ]
    for arguments, headers in sent:
        reply = await _mirrored(at, arguments, **headers)
        expect(not reply.error, f"{json.dumps(arguments, ensure_ascii=False)} with {headers or 'no header'}: {reply}")
    null = await _mirrored(at, {"region": None})
    expect(null.code != HEADER_MISMATCH, f"null without a header: {null}")
    return f"{len(sent) + 1} are accepted"


@CHECKS.add("P7.numeric", "should", _HTTP)
async def integers_are_compared_by_value(at: CheckedServer) -> str:
    """An integer is compared by value: 42.0 is 42."""
    reply = await _mirrored(at, {"count": 42}, Count="42.0")
    expect(not reply.error, f"42 with the header 42.0: {reply}")
    return "42.0 is accepted"


@CHECKS.add("P9", on=_HTTP)
async def preflights_allow_the_headers(at: CheckedServer) -> str:
    """A server that answers preflights lets pages send the mirrored headers."""
    wanted = ("content-type", "mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-region")
    asked = {
        "Origin": at.http.origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": ", ".join(wanted),
    }
    reply = await (await at.http.send("OPTIONS", asked, judged=False)).finish()
    need(reply.header("access-control-allow-origin"), f"it answers no preflight: HTTP {reply.status}")
    allowed = {each.strip().lower() for each in (reply.header("access-control-allow-headers") or "").split(",")}
    missing = [] if "*" in allowed else [name for name in wanted if name not in allowed]
    expect(not missing, f"it does not allow {', '.join(missing)}")
    return "it allows them"


# --- Authorization


async def _challenge(at: CheckedServer) -> RawReply:
    """The answer to a request without credentials."""
    request = RawRequest("server/discover", id=1)
    reply = await (await at.http.send("POST", request.headers, request.body, request=request, bare=True)).finish()
    need(reply.status == _UNAUTHORIZED, "the server asks for no credentials")
    return reply


@CHECKS.add("A10", on=_HTTP)
async def challenges_name_the_metadata(at: CheckedServer) -> str:
    """A request without credentials is told where the metadata of the resource are, and they name the server."""
    challenge = (await _challenge(at)).header("www-authenticate") or ""
    found = re.search(r'resource_metadata="([^"]+)"', challenge)
    if found is None:
        raise Deviation(f"WWW-Authenticate: {challenge or 'missing'} names no resource_metadata")
    metadata = await _metadata(at, found[1])
    expect(
        str(metadata.get("resource", "")).rstrip("/") == at.http.url.rstrip("/"),
        f"resource is {metadata.get('resource')!r}",
    )
    expect(bool(metadata.get("authorization_servers")), "the metadata name no authorization server")
    return f"they are at {urlsplit(found[1]).path}"


async def _metadata(at: CheckedServer, url: str) -> Json:
    elsewhere = HttpPeer(url)
    expect(elsewhere.authority == at.http.authority, f"the metadata are on another host: {elsewhere.authority}")
    reply = await (await elsewhere.send("GET", {"Accept": "application/json"})).finish()
    expect(reply.status == _OK and bool(reply.messages), f"{url}: HTTP {reply.status}")
    return reply.messages[0]


@CHECKS.add("A9", "should", _HTTP)
async def offline_access_is_not_asked_for(at: CheckedServer) -> str:
    """Neither the challenge nor the metadata ask for offline_access."""
    challenge = (await _challenge(at)).header("www-authenticate") or ""
    expect("offline_access" not in challenge, f"WWW-Authenticate: {challenge}")
    found = re.search(r'resource_metadata="([^"]+)"', challenge)
    metadata = {} if found is None else await _metadata(at, found[1])
    expect("offline_access" not in json.dumps(metadata.get("scopes_supported")), "scopes_supported has it")
    return "neither does"


@CHECKS.add("A10.every", on=_HTTP)
async def credentials_are_not_remembered(at: CheckedServer) -> str:
    """Each request needs its own credentials, on the same connection too."""
    await _challenge(at)
    request = RawRequest("server/discover", id=1)
    line = await at.http.connect()
    try:
        first = await at.peer.ask("server/discover", line=line)
        need(first.kind == "complete", f"no credentials that are let in: name them with --header: {first}")
        sending = await at.http.send("POST", request.headers, request.body, request=request, line=line, bare=True)
        second = await sending.finish()
    finally:
        await line.close()
    expect(second.status == _UNAUTHORIZED, f"a second request without credentials: {second}")
    return "HTTP 401 for the second request of a connection"


# --- Seen in the whole run


def _seen(at: CheckedServer) -> Iterator[SeenMessage]:
    """The messages that belong to requests of this revision."""
    return (each for each in at.peer.seen if each.enveloped)


@CHECKS.add("M1")
async def servers_send_no_requests(at: CheckedServer) -> str:
    """The server sends no request."""
    wrong = [each.message["method"] for each in _seen(at) if "method" in each.message and "id" in each.message]
    expect(not wrong, f"it sent {', '.join(sorted(set(wrong)))}")
    return f"none among {sum(1 for _ in _seen(at))} messages"


@CHECKS.add("M8", "should")
async def results_name_the_server(at: CheckedServer) -> str:
    """Every result names the server in _meta."""
    found = [(each.method, each.message["result"]) for each in _seen(at) if "result" in each.message]
    infos = [(method, object_in(result, "_meta", f"{PREFIX}serverInfo")) for method, result in found]
    nameless = sorted({method for method, info in infos if not isinstance(info.get("name"), str)})
    expect(not nameless, f"the results of {', '.join(nameless)} do not")
    return f"all {len(found)} results do"


@CHECKS.add("M12")
async def codes_are_those_of_the_revision(at: CheckedServer) -> str:
    """Of the codes reserved for the protocol, only those that this revision defines are sent."""
    codes = _codes(at)
    expect(all(isinstance(code, int) for code, _ in codes), f"codes that are no integers: {_coded(codes)}")
    reserved = {each for each in codes if -32099 <= each[0] <= -32020 and each[0] not in _DEFINED_CODES}  # noqa: PLR2004 - the protocol's range
    wrong = reserved | {each for each in codes if each[0] in _FORBIDDEN_CODES}
    expect(not wrong, f"it sent {_coded(wrong)}")
    return f"{', '.join(map(str, sorted({code for code, _ in codes}))) or 'no errors'}"


@CHECKS.add("M12.legacy", "should")
async def legacy_codes_are_not_sent(at: CheckedServer) -> str:
    """Codes of the legacy range, -32000 to -32019, are not sent."""
    wrong = {each for each in _codes(at) if each[0] in range(-32019, -31999) and each[0] not in _FORBIDDEN_CODES}
    expect(not wrong, f"it sent {_coded(wrong)}")
    return "none was seen"


def _codes(at: CheckedServer) -> set[tuple[Any, str]]:
    """The codes of all errors, each with the method that it answered. Of what is no integer, the JSON."""
    found = [
        (object_in(each.message, "error").get("code"), each.method) for each in _seen(at) if "error" in each.message
    ]
    return {(code if isinstance(code, int) else json.dumps(code), method) for code, method in found}


def _coded(codes: set[tuple[Any, str]]) -> str:
    return ", ".join(sorted(f"{code} for {method or 'what is no request'}" for code, method in codes))


@CHECKS.add("M15")
async def meta_keys_follow_the_grammar(at: CheckedServer) -> str:
    """Keys of _meta follow the grammar."""
    keys = {str(key) for each in _seen(at) for key in _meta(each.message)}
    wrong = sorted(key for key in keys if not _META_KEY.fullmatch(key))
    expect(not wrong, f"it sent {', '.join(map(repr, wrong))}")
    return f"{len(keys)} keys"


def _meta(message: Json) -> Json:
    return {**object_in(message, "result", "_meta"), **object_in(message, "params", "_meta")}
