"""The scenarios: conversations, played over every transport, and single HTTP requests."""

from __future__ import annotations

import json
from collections.abc import Mapping  # noqa: TC003 - a dataclass has it
from dataclasses import dataclass, field
from typing import Any

from .raw_wires import BOTH, INFO

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
OLDEST, LATEST = REVISIONS[0], REVISIONS[-1]

# --- the steps of a conversation


@dataclass(frozen=True)
class Ask:
    """A request whose reply is waited for; with `until`, that notification instead."""

    method: str
    params: Any = None
    id: Any = None
    until: str = ""


@dataclass(frozen=True)
class Tell:
    """A notification."""

    method: str
    params: Any = None


@dataclass(frozen=True)
class Raw:
    """Bytes for which there is one reply."""

    data: bytes


@dataclass(frozen=True)
class End:
    """Wait until nothing more comes for that request."""

    id: Any


@dataclass(frozen=True)
class WaitUntilReceived:
    """Wait until so many of these notifications have arrived."""

    method: str
    count: int = 1


@dataclass(frozen=True)
class Listen:
    """Streamable HTTP: open the standalone stream; with `last`, resume after that event, to the end of that stream."""

    last: str = ""


@dataclass(frozen=True)
class AskAbout:
    """A request about the last task that was started."""

    method: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    field: str = "taskId"


@dataclass(frozen=True)
class Conversation:
    """The steps after the handshake, or instead of it if `greets` is False."""

    name: str
    steps: tuple[Any, ...]
    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    capabilities: Mapping[str, Any] = field(default_factory=dict[str, Any])
    greets: bool = True
    transports: str = "http stateless sse stdio memory asgi plain"
    revisions: tuple[str, ...] = REVISIONS


def call(name: Any, arguments: Any = None, *, token: Any = None, id: Any = None, until: str = "", **more: Any) -> Ask:
    """A call of a tool."""
    params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return Ask("tools/call", {**params, **more, **meta}, id, until)


def complete(ref: Any, name: str, value: str, **more: Any) -> Ask:
    """A request for completions."""
    return Ask("completion/complete", {"ref": ref, "argument": {"name": name, "value": value}, **more})


def level(name: Any) -> Ask:
    """A request for log messages of a level."""
    return Ask("logging/setLevel", {"level": name})


def hello(**changes: Any) -> Ask:
    """The handshake."""
    params = {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": INFO} | changes
    return Ask("initialize", {name: value for name, value in params.items() if value is not ...})


PROGRESS = "notifications/progress"
CANCELLED = "notifications/cancelled"
NO_STATE = "http sse stdio memory asgi"
STREAMS = "http sse stdio memory"

_SINGLE: dict[str, Ask | Raw] = {
    "ping": Ask("ping"),
    "ping-text-id": Ask("ping", id="one"),
    "ping-meta": Ask("ping", {"_meta": {"a": 1}}),
    "tools-list": Ask("tools/list"),
    "tools-list-page": Ask("tools/list", {"cursor": "dG9vbDpibGluaw"}),
    "tools-list-bad-cursor": Ask("tools/list", {"cursor": "nonsense"}),
    "tools-list-cursor-number": Ask("tools/list", {"cursor": 7}),
    "call": call("add", {"a": 1, "b": 2}),
    "call-thread": call("add_in_a_thread", {"a": 1, "b": 2}),
    "call-unicode": call("echo", {"text": 'grün \u2028 \U0001f3ad " \\ \n'}),
    "call-default": call("echo"),
    "call-structured": call("forecast", {"city": "Oslo"}),
    "call-media": call("media", {}),
    "call-nothing": call("nothing", {}),
    "call-fail": call("fail", {}),
    "call-crash": call("crash", {}),
    "call-refuse": call("refuse", {}),
    "call-lie": call("lie", {}),
    "call-unknown": call("nobody", {}),
    "call-missing-argument": call("add", {"a": 1}),
    "call-wrong-argument": call("add", {"a": "one", "b": 2}),
    "call-more-arguments": call("add", {"a": 1, "b": 2, "c": 3}),
    "call-arguments-list": call("add", [1, 2]),
    "call-no-name": Ask("tools/call", {"arguments": {}}),
    "call-name-number": call(5, {}),
    "call-no-params": Ask("tools/call"),
    "call-progress": call("count", {"to": 2}, token="p"),
    "call-progress-number": call("count", {"to": 1}, token=7),
    "call-progress-unasked": call("count", {"to": 2}),
    "call-progress-token-list": call("count", {"to": 1}, token=[1]),
    "call-log": call("narrate", {}),
    "call-announce": call("announce", {}),
    "call-task-sync": call("cast_part", {}),
    "call-optional-task": call("forget", {}),
    "resources-list": Ask("resources/list"),
    "templates-list": Ask("resources/templates/list"),
    "read": Ask("resources/read", {"uri": "stage://script"}),
    "read-blob": Ask("resources/read", {"uri": "stage://poster"}),
    "read-template": Ask("resources/read", {"uri": "stage://scene/4"}),
    "read-template-bad": Ask("resources/read", {"uri": "stage://scene/four"}),
    "read-unknown": Ask("resources/read", {"uri": "stage://nothing"}),
    "read-broken": Ask("resources/read", {"uri": "stage://broken"}),
    "read-no-uri": Ask("resources/read", {}),
    "subscribe": Ask("resources/subscribe", {"uri": "stage://dial"}),
    "subscribe-unknown": Ask("resources/subscribe", {"uri": "stage://nothing"}),
    "unsubscribe": Ask("resources/unsubscribe", {"uri": "stage://dial"}),
    "prompts-list": Ask("prompts/list"),
    "prompt": Ask("prompts/get", {"name": "greet", "arguments": {"who": "Ann"}}),
    "prompt-image": Ask("prompts/get", {"name": "picture"}),
    "prompt-unknown": Ask("prompts/get", {"name": "nobody"}),
    "prompt-missing": Ask("prompts/get", {"name": "greet", "arguments": {}}),
    "prompt-number": Ask("prompts/get", {"name": "greet", "arguments": {"who": 5}}),
    "prompt-broken": Ask("prompts/get", {"name": "stumble"}),
    "complete": complete({"type": "ref/prompt", "name": "greet"}, "mood", "c"),
    "complete-template": complete({"type": "ref/resource", "uri": "stage://scene/{number}"}, "number", "1"),
    "complete-unknown": complete({"type": "ref/prompt", "name": "nobody"}, "mood", "c"),
    "complete-argument-unknown": complete({"type": "ref/prompt", "name": "greet"}, "nothing", "c"),
    "complete-bad-ref": complete({"type": "ref/tool", "name": "greet"}, "mood", "c"),
    "complete-context": complete(
        {"type": "ref/prompt", "name": "greet"}, "mood", "ca", context={"arguments": {"who": "x"}}
    ),
    "level": level("error"),
    "level-unknown": level("loud"),
    "level-missing": Ask("logging/setLevel", {}),
    "tasks-list": Ask("tasks/list"),
    "tasks-get-unknown": Ask("tasks/get", {"taskId": "nothing"}),
    "tasks-cancel-unknown": Ask("tasks/cancel", {"taskId": "nothing"}),
    "tasks-result-unknown": Ask("tasks/result", {"taskId": "nothing"}),
    "unknown-method": Ask("curtain/raise", {"fast": True}),
    "client-method": Ask("sampling/createMessage", {"messages": [], "maxTokens": 1}),
    "notification-as-request": Ask("notifications/initialized"),
    "params-list": Ask("tools/list", [1]),
    "params-null": Raw(b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":null}'),
    "initialize-again": hello(),
    "id-null": Raw(b'{"jsonrpc":"2.0","id":null,"method":"ping"}'),
    "id-fraction": Raw(b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}'),
    "id-bool": Raw(b'{"jsonrpc":"2.0","id":true,"method":"ping"}'),
    "id-list": Raw(b'{"jsonrpc":"2.0","id":[1],"method":"ping"}'),
    "id-large": Raw(b'{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}'),
    "malformed": Raw(b'{"jsonrpc":"2.0","id":1,"method":"ping"'),
    "no-json": Raw(b"nonsense"),
    "not-utf8": Raw(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff"}}'),
    "text": Raw(b'"text"'),
    "number": Raw(b"5"),
    "object": Raw(b"{}"),
    "no-version": Raw(b'{"id":1,"method":"ping"}'),
    "wrong-version": Raw(b'{"jsonrpc":"1.0","id":1,"method":"ping"}'),
    "method-number": Raw(b'{"jsonrpc":"2.0","id":1,"method":5}'),
    "key-twice": Raw(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}'),
    "not-a-number": Raw(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}'),
    "deep": Raw(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":' + b"[" * 600 + b"]" * 600 + b"}}"),
    "both-result-and-error": Raw(b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}'),
    "batch": Raw(b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"tools/list"}]'),
    "batch-empty": Raw(b"[]"),
    "batch-broken": Raw(b'[1,{"jsonrpc":"2.0","id":1,"method":"ping"}]'),
}

_CLIENT: dict[str, Any] = {
    "sampling": {},
    "elicitation": {"form": {}, "url": {}},
    "roots": {"listChanged": True},
}
_SAID = {"role": "assistant", "content": {"type": "text", "text": "yes"}, "model": "m", "stopReason": "endTurn"}
_ROOTS = {"roots": [{"uri": "file:///here", "name": "here"}]}
_ERROR = {"code": -1, "message": "User rejected it"}


def _asked(name: str, tool: Ask, method: str, answer: Any, **capabilities: Any) -> Conversation:
    return Conversation(name, (tool,), {method: answer}, capabilities or _CLIENT)


_FORM, _URL, _MODEL = call("ask_user", {}), call("pay", {}), call("ask_model", {"question": "Is it?"})
_QUESTIONS = (
    _asked("sampling", _MODEL, "sampling/createMessage", _SAID),
    _asked("sampling-refused", _MODEL, "sampling/createMessage", _ERROR),
    _asked("sampling-broken", _MODEL, "sampling/createMessage", {"role": "assistant"}),
    _asked("sampling-undeclared", _MODEL, "sampling/createMessage", _SAID, roots={}),
    _asked("form", _FORM, "elicitation/create", {"action": "accept", "content": {"name": "Ann", "seats": 3}}),
    _asked("form-default", _FORM, "elicitation/create", {"action": "accept", "content": {"name": "Ann"}}),
    _asked("form-wrong", _FORM, "elicitation/create", {"action": "accept", "content": {"seats": "x"}}),
    _asked("form-declined", _FORM, "elicitation/create", {"action": "decline"}),
    _asked("form-cancelled", _FORM, "elicitation/create", {"action": "cancel"}),
    _asked("form-strange", _FORM, "elicitation/create", {"action": "shrug"}),
    _asked("form-undeclared", _FORM, "elicitation/create", {"action": "decline"}, roots={}),
    _asked("form-old-capability", _FORM, "elicitation/create", {"action": "decline"}, elicitation={}),
    _asked("url", _URL, "elicitation/create", {"action": "accept"}),
    _asked("url-declined", _URL, "elicitation/create", {"action": "decline"}),
    _asked("url-undeclared", _URL, "elicitation/create", {"action": "decline"}, elicitation={}),
    _asked("url-required", call("backstage", {}), "elicitation/create", {"action": "decline"}),
    _asked("roots", call("where", {}), "roots/list", _ROOTS),
    _asked("roots-unknown-method", call("where", {}), "roots/list", {"code": -32601, "message": "Method not found"}),
    _asked("roots-undeclared", call("where", {}), "roots/list", _ROOTS, sampling={}),
    _asked("server-pings", call("ask_ping", {}), "ping", {}),
)

_TASK: dict[str, Any] = {"task": {"ttl": 60000}}
_SEVERAL = (
    Conversation("notifications", (Tell("notifications/initialized"), Tell("notifications/roots/list_changed"), Ask("ping"))),
    Conversation("notification-unknown", (Tell("notifications/applause", {"loud": True}), Ask("ping"))),
    Conversation("notification-bad", (Tell(CANCELLED, {"reason": 5}), Tell(PROGRESS, {}), Ask("ping"))),
    Conversation("method-as-notification", (Tell("tools/list"), Tell("nothing/at/all"), Ask("ping"))),
    Conversation("cancel-unknown", (Tell(CANCELLED, {"requestId": 99, "reason": "why not"}), Ask("ping"))),
    Conversation(
        "cancel",
        (
            call("wait", {}, token="p", id=7, until=PROGRESS),
            Tell(CANCELLED, {"requestId": 7, "reason": "changed my mind"}),
            End(7),
            Ask("ping"),
        ),
        transports=STREAMS,
    ),
    Conversation(
        "same-id",
        (
            call("wait", {}, token="p", id=7, until=PROGRESS),
            Raw(b'{"jsonrpc":"2.0","id":7,"method":"ping"}'),
            Tell(CANCELLED, {"requestId": 7}),
            End(7),
        ),
        transports="http stdio memory",
    ),
    Conversation("id-again", (Ask("ping", id=3), Ask("ping", id=3), Ask("ping", id="3"))),
    Conversation("log-levels", (level("debug"), call("narrate", {}), level("error"), call("narrate", {})), transports=NO_STATE),
    Conversation(
        "answer-unasked",
        (Raw(b'{"jsonrpc":"2.0","id":77,"result":{}}'), Raw(b'{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"x"}}')),
        transports="http stateless asgi plain",
    ),
    Conversation(
        "subscription",
        (
            Ask("resources/subscribe", {"uri": "stage://dial"}),
            Listen(),
            call("turn", {}),
            WaitUntilReceived("notifications/resources/updated"),
            Ask("resources/unsubscribe", {"uri": "stage://dial"}),
            call("turn", {}),
            Ask("ping"),
        ),
        transports=STREAMS,
    ),
    Conversation(
        "list-changed",
        (Listen(), call("grow", {}), WaitUntilReceived("notifications/tools/list_changed"), Ask("ping")),
        transports=STREAMS,
    ),
    Conversation("listen-twice", (Listen(), Listen(), Ask("ping")), transports="http"),
    Conversation("pages", (Ask("tools/list"), Ask("tools/list", {"cursor": "dG9vbDpibGluaw"}), Ask("ping")), transports="http"),
    Conversation(
        "resume",
        (call("blink", {}, token="p"), Listen("p1:1"), Listen("p1:0"), Listen("p1:99"), Ask("ping")),
        transports="http",
    ),
    Conversation("resume-answered", (call("count", {"to": 2}, token="p"), Listen("p1:2"), Ask("ping")), transports="http"),
    Conversation("resume-strange", (Listen("nonsense"), Ask("ping")), transports="http"),
    Conversation("resume-other", (Listen("p7:0"), Ask("ping")), transports="http"),
    Conversation(
        "task",
        (
            call("rehearse", {"lines": 2}, **_TASK),
            AskAbout("tasks/result"),
            AskAbout("tasks/get"),
            Ask("tasks/list"),
            AskAbout("tasks/cancel"),
        ),
        transports=NO_STATE,
    ),
    Conversation(
        "task-cancelled",
        (call("rehearse", {"lines": 0}, **_TASK), AskAbout("tasks/get"), AskAbout("tasks/cancel"), AskAbout("tasks/result")),
        transports=NO_STATE, revisions=(LATEST,),
    ),
    Conversation("task-failed", (call("forget", {}, **_TASK), AskAbout("tasks/result"), AskAbout("tasks/get")), transports=NO_STATE),
    Conversation("task-refused", (call("add", {"a": 1, "b": 2}, **_TASK),)),
    Conversation("task-bad-ttl", (call("rehearse", {"lines": 1}, task={"ttl": "long"}),)),
    Conversation("task-no-object", (call("rehearse", {"lines": 1}, task=True),)),
    Conversation(
        "task-asks",
        (call("cast_part", {}, **_TASK), AskAbout("tasks/result"), AskAbout("tasks/get")),
        {"elicitation/create": {"action": "accept", "content": {"name": "Ann"}}},
        _CLIENT,
        transports=STREAMS,
    ),
)  # fmt: skip

_VERSIONS = (*REVISIONS, "2026-07-28", "1999-01-01", "", 5, None, ...)
_HANDSHAKES = (
    *(
        Conversation(f"handshake-{'missing' if each is ... else each}", (hello(protocolVersion=each),), greets=False)
        for each in _VERSIONS
    ),
    Conversation("handshake-no-info", (hello(clientInfo=...),), greets=False),
    Conversation("handshake-no-capabilities", (hello(capabilities=...),), greets=False),
    Conversation("handshake-info-text", (hello(clientInfo="peer"),), greets=False),
    Conversation("handshake-no-params", (Ask("initialize"),), greets=False),
    Conversation("handshake-more", (hello(capabilities={"experimental": {"x": {}}, "roots": {}}, more=1),), greets=False),
    Conversation("early-ping", (Ask("ping"),), greets=False),
    Conversation("early-list", (Ask("tools/list"),), greets=False),
    Conversation("early-notification", (Tell("notifications/initialized"), Ask("ping")), greets=False),
    Conversation("early-list-after-hello", (hello(), Ask("tools/list"), Ask("ping")), greets=False, transports=NO_STATE),
    Conversation("early-malformed", (Raw(b"{"),), greets=False),
    Conversation(
        "handshake-whole",
        (hello(), Tell("notifications/initialized"), Ask("tools/list")),
        greets=False,
        transports=NO_STATE,
    ),
    Conversation("handshake-twice", (hello(), hello(), Ask("ping")), greets=False, transports=NO_STATE),
)  # fmt: skip

CONVERSATIONS = (
    *(Conversation(name, (step,)) for name, step in _SINGLE.items()),
    *_QUESTIONS,
    *_SEVERAL,
    *(Conversation(each.name, each.steps, greets=False, transports=each.transports) for each in _HANDSHAKES),
)  # fmt: skip

PLAYED: dict[str, tuple[str, ...]] = {
    "http": REVISIONS,
    "stateless": (LATEST,),
    "plain": (OLDEST,),
    "asgi": (LATEST,),
    "sse": (OLDEST,),
    "stdio": (LATEST,),
    "memory": (OLDEST, LATEST),
}
"""In which revisions a transport's conversations are played; the handshake in the latest, or in the only one."""


def conversations(transport: str) -> dict[str, tuple[str, Conversation]]:
    """The conversations of a transport by name, each with its revision."""
    found: dict[str, tuple[str, Conversation]] = {}
    for revision in PLAYED[transport]:
        for each in CONVERSATIONS:
            wanted = revision in each.revisions if each.greets else revision == PLAYED[transport][-1]
            if wanted and transport in each.transports.split():
                found[f"{transport}/{revision}/{each.name}"] = revision, each
    return found


# --- HTTP alone


@dataclass(frozen=True)
class HttpExchange:
    """One HTTP request with valid headers, except for those given here. `-` leaves a header out."""

    name: str
    verb: str = "POST"
    path: str = "/mcp"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes | None = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    session: bool = True


PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "echo"}}).encode()
STREAMED = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "count", "arguments": {"to": 1}, "_meta": {"progressToken": 1}},
    }
).encode()
HELLO = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": LATEST, "capabilities": {}, "clientInfo": INFO},
    }
).encode()
ACCEPTS = {
    "both": BOTH,
    "reversed": "text/event-stream, application/json",
    "json": "application/json",
    "events": "text/event-stream",
    "any": "*/*",
    "application": "application/*",
    "html": "text/html",
    "quality": "application/json;q=0.5, text/event-stream;q=0.9",
    "zero": "application/json, text/event-stream;q=0",
    "upper": "Application/JSON, Text/Event-Stream",
    "empty": "",
    "missing": "-",
}
_ORIGINS = (
    "http://localhost",
    "http://127.0.0.1:3000",
    "https://evil.example",
    "null",
    "nonsense",
    "https://app.example",
)
_HOSTS = ("localhost", "127.0.0.1", "[::1]", "evil.example", "app.example", "", "-", "127.0.0.1:1", "a b")  # fmt: skip
_TYPES = (
    "application/json; charset=utf-8",
    "APPLICATION/JSON",
    "text/plain",
    "application/jsonx",
    "",
    "-",
    "application/json, text/plain",
)
_TALKS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28", "nonsense", "")

EXCHANGES = (
    *(HttpExchange(f"accept-{name}", headers={"accept": accept}) for name, accept in ACCEPTS.items()),
    *(HttpExchange(f"accept-{name}-streamed", headers={"accept": accept}, body=STREAMED) for name, accept in ACCEPTS.items()),
    *(HttpExchange(f"accept-{name}-hello", headers={"accept": accept}, body=HELLO, session=False) for name, accept in ACCEPTS.items()),
    *(HttpExchange(f"get-accept-{name}", "GET", headers={"accept": accept, "mcp-session-id": "none"}, body=None, session=False) for name, accept in ACCEPTS.items()),
    *(HttpExchange(f"origin-{each}", headers={"origin": each}) for each in _ORIGINS),
    *(HttpExchange(f"preflight-{each}", "OPTIONS", headers={"origin": each}, body=None, session=False) for each in _ORIGINS),
    *(HttpExchange(f"host-{each or 'empty'}", headers={"host": each}) for each in _HOSTS),
    *(HttpExchange(f"type-{each or 'empty'}", headers={"content-type": each}) for each in _TYPES),
    *(HttpExchange(f"version-{each or 'empty'}", headers={"mcp-protocol-version": each}) for each in _TALKS),
    *(HttpExchange(f"verb-{verb}", verb, body=None) for verb in ("PUT", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW")),
    *(HttpExchange(f"path-{path}", path=path) for path in ("/", "/mcp/", "/mcp?a=b", "/other", "/mcp/more", "//mcp", "/%6dcp")),
    *(HttpExchange(f"delete-{name}", "DELETE", headers=headers, body=None, session=False) for name, headers in {
        "none": {}, "unknown": {"mcp-session-id": "mcp_" + "0" * 32}, "empty": {"mcp-session-id": ""},
    }.items()),
    HttpExchange("delete", "DELETE", body=None),
    HttpExchange("delete-with-body", "DELETE"),
    *(HttpExchange(f"get-{name}", "GET", headers={"accept": "text/event-stream", **headers}, body=None, session=False) for name, headers in {
        "none": {}, "unknown": {"mcp-session-id": "mcp_" + "0" * 32},
    }.items()),
    *(HttpExchange(f"session-{name}", headers=headers, session=False) for name, headers in {
        "none": {}, "unknown": {"mcp-session-id": "mcp_" + "0" * 32}, "empty": {"mcp-session-id": ""}, "long": {"mcp-session-id": "x" * 300},
    }.items()),
    *(HttpExchange(f"tell-{name}", headers=headers, body=b'{"jsonrpc":"2.0","method":"notifications/initialized"}', session=False)
      for name, headers in {"none": {}, "unknown": {"mcp-session-id": "mcp_" + "0" * 32}}.items()),
    HttpExchange("hello-with-session", body=HELLO),
    HttpExchange("hello-unknown-session", headers={"mcp-session-id": "mcp_" + "0" * 32}, body=HELLO, session=False),
    HttpExchange("encoded", headers={"content-encoding": "gzip"}),
    HttpExchange("identity", headers={"content-encoding": "identity"}),
    HttpExchange("large", body=b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"' + b"x" * 3000 + b'"}}'),
    HttpExchange("chunked", headers={"transfer-encoding": "chunked"}, body=b"28\r\n" + PING + b"\r\n0\r\n\r\n"),
    HttpExchange("chunked-large", headers={"transfer-encoding": "chunked"}, body=b"bb8\r\n" + b"x" * 3000 + b"\r\n0\r\n\r\n"),
    HttpExchange("expects", headers={"expect": "100-continue"}),
    HttpExchange("expects-strange", headers={"expect": "a-miracle"}),
    HttpExchange("empty-body", body=b""),
    HttpExchange("no-body", body=None),
    HttpExchange("call", body=CALL),
    HttpExchange("connection-close", headers={"connection": "close"}),
)  # fmt: skip

_HEAD = b"host: 127.0.0.1\r\naccept: " + BOTH.encode() + b"\r\ncontent-type: application/json\r\n"
_POST = b"POST /mcp HTTP/1.1\r\n" + _HEAD
_END = b"connection: close\r\n\r\n"
_LENGTH = b"content-length: 40\r\n"

BYTES: dict[str, bytes] = {
    "nonsense": b"nonsense\r\n\r\n",
    "http-1.0": b"POST /mcp HTTP/1.0\r\n" + _HEAD + _LENGTH + b"\r\n" + PING,
    "http-2.0": b"POST /mcp HTTP/2.0\r\n" + _HEAD + _LENGTH + b"\r\n" + PING,
    "http-1.2": b"POST /mcp HTTP/1.2\r\n" + _HEAD + _LENGTH + _END + PING,
    "preface-of-http-2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "two-lengths": _POST + _LENGTH + b"content-length: 41\r\n" + _END + PING,
    "same-length-twice": _POST + _LENGTH + _LENGTH + _END + PING,
    "length-and-chunked": _POST + _LENGTH + b"transfer-encoding: chunked\r\n" + _END + PING,
    "length-words": _POST + b"content-length: many\r\n" + _END + PING,
    "length-negative": _POST + b"content-length: -1\r\n" + _END + PING,
    "length-plus": _POST + b"content-length: +40\r\n" + _END + PING,
    "chunk-no-number": _POST + b"transfer-encoding: chunked\r\n" + _END + b"zz\r\n" + PING,
    "chunk-strange-coding": _POST + b"transfer-encoding: gzip\r\n" + _END + PING,
    "chunk-trailer": _POST + b"transfer-encoding: chunked\r\n" + _END + b"28\r\n" + PING + b"\r\n0\r\na: b\r\n\r\n",
    "chunk-extension": _POST + b"transfer-encoding: chunked\r\n" + _END + b"28;a=b\r\n" + PING + b"\r\n0\r\n\r\n",
    "host-twice": _POST + _LENGTH + b"host: evil.example\r\n" + _END + PING,
    "accept-twice": _POST + _LENGTH + b"accept: text/html\r\n" + _END + PING,
    "session-twice": _POST + _LENGTH + b"mcp-session-id: a\r\nmcp-session-id: b\r\n" + _END + PING,
    "no-host": b"POST /mcp HTTP/1.1\r\ncontent-type: application/json\r\n" + _LENGTH + _END + PING,
    "header-without-colon": _POST + _LENGTH + b"nonsense\r\n" + _END + PING,
    "header-space-before-colon": _POST + _LENGTH + b"origin : null\r\n" + _END + PING,
    "header-folded": _POST + _LENGTH + b"x-a: 1\r\n 2\r\n" + _END + PING,
    "header-empty-name": _POST + _LENGTH + b": 1\r\n" + _END + PING,
    "header-control": _POST + _LENGTH + b"x-a: \x01\r\n" + _END + PING,
    "header-large": _POST + _LENGTH + b"x-a: " + b"a" * 40_000 + b"\r\n" + _END + PING,
    "header-many": _POST + _LENGTH + b"".join(b"x-%d: 1\r\n" % each for each in range(300)) + _END + PING,
    "line-feed-alone": _POST.replace(b"\r\n", b"\n")
    + _LENGTH.replace(b"\r\n", b"\n")
    + b"connection: close\n\n"
    + PING,
    "absolute-path": b"POST http://127.0.0.1/mcp HTTP/1.1\r\n" + _HEAD + _LENGTH + _END + PING,
    "asterisk": b"OPTIONS * HTTP/1.1\r\n" + _HEAD + _END,
    "verb-lower": b"post /mcp HTTP/1.1\r\n" + _HEAD + _LENGTH + _END + PING,
    "verb-strange": b"P@ST /mcp HTTP/1.1\r\n" + _HEAD + _LENGTH + _END + PING,
    "space-in-path": b"POST /m cp HTTP/1.1\r\n" + _HEAD + _LENGTH + _END + PING,
    "upgrade": _POST + _LENGTH + b"upgrade: websocket\r\nconnection: upgrade, close\r\n\r\n" + PING,
    "empty-lines-first": b"\r\n\r\n" + _POST + _LENGTH + _END + PING,
    "pipelined": 2 * (_POST + _LENGTH + b"\r\n" + PING) + _POST + _LENGTH + _END + PING,
}
"""Sent on a connection of its own, which is read to its end. Needs no session."""

TOKENS = {
    "none": "-",
    "right": "Bearer right",
    "poor": "Bearer poor",
    "rich": "Bearer rich",
    "wrong": "Bearer wrong",
    "empty": "Bearer ",
    "basic": "Basic cmlnaHQ6cmlnaHQ=",
    "no-scheme": "right",
    "lower": "bearer right",
}
GUARDED = (
    *(HttpExchange(f"hello-{name}", headers={"authorization": token}, body=HELLO, session=False) for name, token in TOKENS.items()),
    *(HttpExchange(f"ping-{name}", headers={"authorization": token}) for name, token in TOKENS.items()),
    *(
        HttpExchange(f"{tool}-{name}", headers={"authorization": token}, body=CALL.replace(b"echo", tool.encode()))
        for tool in ("whoami", "close_house")
        for name, token in TOKENS.items()
    ),
    *(HttpExchange(f"{verb.lower()}-{name}", verb, headers={"authorization": token, "mcp-session-id": "none"}, body=None, session=False)
      for verb in ("GET", "DELETE", "OPTIONS") for name, token in TOKENS.items()),
    HttpExchange("api-key", headers={"authorization": "-", "x-api-key": "right"}),
    HttpExchange("resource-document", "GET", "/.well-known/oauth-protected-resource", body=None, session=False),
)  # fmt: skip
"""Sent to a server that requires a token. Sessions there belong to the valid one."""

OLD = (
    HttpExchange("sse-accept-json", "GET", "/sse", {"accept": "application/json"}, None, session=False),
    HttpExchange("sse-post", "POST", "/sse", session=False),
    HttpExchange("sse-evil-origin", "GET", "/sse", {"accept": "text/event-stream", "origin": "https://evil.example"}, None, session=False),
    HttpExchange("sse-options", "OPTIONS", "/sse", {"origin": "http://localhost"}, None, session=False),
    HttpExchange("messages-none", "POST", "/messages", session=False),
    HttpExchange("messages-unknown", "POST", "/messages?session_id=mcp_" + "0" * 32, session=False),
    HttpExchange("messages-twice", "POST", "/messages?session_id=a&session_id=b", session=False),
    HttpExchange("messages-long", "POST", "/messages?session_id=" + "a" * 600, session=False),
    HttpExchange("messages-get", "GET", "/messages", body=None, session=False),
    HttpExchange("messages-delete", "DELETE", "/messages", body=None, session=False),
    HttpExchange("messages-type", "POST", "/messages?session_id=a", {"content-type": "text/plain"}, session=False),
    HttpExchange("messages-malformed", "POST", "/messages?session_id=a", body=b"{", session=False),
    HttpExchange("messages-of-other-transport", "POST", "/messages?session_id={session}"),
)  # fmt: skip

EXCHANGES_BY_SERVER: dict[str, tuple[HttpExchange, ...]] = {
    "http": (*EXCHANGES, *OLD),
    "stateless": EXCHANGES,
    "optional": EXCHANGES,
    "plain": EXCHANGES,
    "either": EXCHANGES,
    "strict": EXCHANGES,
    "hypercorn": EXCHANGES,
    "guarded": GUARDED,
    "asgi": tuple(each for each in EXCHANGES if "transfer-encoding" not in each.headers and "expect" not in each.headers and each.headers.get("host") != "-"),
}  # fmt: skip
SPOKEN = ("optional", "plain", "hypercorn")
"""Servers without sessions, to which bytes are sent."""
