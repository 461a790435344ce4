"""Writes the reference of the protocol from its own tables: `python -m tests.docs.protocol`.

Four pages and a picture. The pages on methods and on the session's states come from the tables that sessions use. The pages on bad input and on
URI templates show what the parser and the matcher return for examples. A test compares all of them with the committed files.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from greenroom.protocol.dialect import STATELESS_DIALECT
from greenroom.protocol.errors import ErrorCode, McpError, RemoteProtocolError
from greenroom.protocol.jsonrpc import (
    LIMITS,
    JsonRpcRequest,
    MessageLimits,
    OversizedMessage,
    encode_error,
    parse,
    too_long_error,
)
from greenroom.protocol.methods import (
    EXTENSION_METHODS,
    METHODS,
    TABLE,
    TASKS_EXTENSION,
    UNGATED,
    MessageDirection,
    MethodKind,
    PeerSide,
    SessionAction,
    SessionEvent,
    SessionState,
    check_params,
    find_method,
    method_not_found,
)
from greenroom.protocol.pagination import page
from greenroom.protocol.uri_templates import BadTemplate, UriTemplate
from greenroom.protocol.versions import SUPPORTED
from greenroom.protocol.wire_shapes import BaseParams, BaseResult

from . import automaton_picture

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from greenroom.protocol.methods import Method

ROOT = Path(__file__).parents[2]
FOLDER = "docs/reference"
WRITTEN_BY = "`python -m tests.docs.protocol` writes this page."


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('-' * len(cell) for cell in head)} |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""


# --- methods


def members(shape: type[msgspec.Struct] | None) -> str:
    """A shape's members, a question mark behind those that may be missing."""
    if shape is None:
        return ""
    found = [
        f"`{member.encode_name}`{'' if member.required else '?'}"
        for member in msgspec.structs.fields(shape)
        if member.encode_name != "_meta"
    ]
    found.sort(key=lambda name: name.endswith("?"))
    return ", ".join(found) or ("" if shape in {BaseParams, BaseResult} else "empty")


def _line(method: Method, receiver: PeerSide) -> list[str]:
    needs = f"{method.declarer(receiver).value}: `{method.capability}`" if method.capability else ""
    return [f"`{method.name}`", members(method.params), members(method.result), needs, method.since, method.until or ""]


def methods_page() -> str:
    """The page of all methods."""
    lines = [
        "# Methods",
        "",
        "This page lists all methods of the protocol: of the revisions that begin with a handshake ("
        + ", ".join(SUPPORTED)
        + f"), and of the stateless revision {STATELESS_DIALECT.version}. "
        + WRITTEN_BY,
        "",
        "- *Params* and *Result* list the members. One with a question mark may be missing or null. Params and results may also have a `_meta`.",
        "- *Needs* is the capability for the method, and the side that must have declared it.",
        "- *Since* and *Until* are the first and the last revision with the method. If *Until* is empty, the later, stateless revision has it too.",
        "",
    ]
    head = ("Method", "Params", "Result", "Needs", "Since", "Until")
    for title, kind, receiver in (
        ("Requests to a server", MethodKind.REQUEST, PeerSide.SERVER),
        ("Requests to a client", MethodKind.REQUEST, PeerSide.CLIENT),
        ("Notifications to a server", MethodKind.NOTIFICATION, PeerSide.SERVER),
        ("Notifications to a client", MethodKind.NOTIFICATION, PeerSide.CLIENT),
    ):
        rows = [
            _line(each, receiver) for each in METHODS.values() if each.kind is kind and each.direction.reaches(receiver)
        ]
        keep = [column for column in range(len(head)) if kind is MethodKind.REQUEST or head[column] != "Result"]
        lines += [f"## {title}", ""]
        lines += table([head[column] for column in keep], [[row[column] for column in keep] for row in rows])
    both = sum(method.direction is MessageDirection.BOTH for method in METHODS.values())
    lines += [f"{len(METHODS)} methods in all, {both} of which go both ways.", ""]
    lines += [
        "## The tasks extension",
        "",
        f"These methods are for requests of the stateless revision that declare the extension `{TASKS_EXTENSION}`:",
        "",
    ]
    lines += table(
        ("Method", "Params", "Direction"),
        [[f"`{each.name}`", members(each.params), each.direction.value] for each in EXTENSION_METHODS.values()],
    )
    return "\n".join(lines)


# --- the automaton


def _cell(state: SessionState, event: SessionEvent) -> str:
    rule = TABLE[state, event]
    if rule.action is SessionAction.REFUSE:
        return f"refuse: {rule.error_message}"
    return f"take → **{rule.state.value}**" if rule.state is not state else rule.action.value


def automaton_page() -> str:
    """The page of the session's state machine."""
    differing = [(state, event) for (state, event), rule in UNGATED.items() if rule != TABLE[state, event]]
    lines = [
        "# The states of a session",
        "",
        "A session is a state machine: its state decides whether the server accepts a message. This page shows all states, and what the server does",
        "with each kind of message in each of them. " + WRITTEN_BY,
        "",
        "- *take*: the server handles the message. An arrow names the next state, if it is another one.",
        "- *refuse*: the request gets the error -32600, with the text in the table.",
        "- *ignore*: the server drops the message, without an answer and without a log entry.",
        "",
        "![The states of a session and what leads from one to another](automaton.svg)",
        "",
    ]
    lines += table(
        ["", *(state.value for state in SessionState)],
        [[event.value, *(_cell(state, event) for state in SessionState)] for event in SessionEvent],
    )
    lines += ["With `Settings(gate=False)`, a session also takes:", ""]
    lines += [f"- {event.value}, in the state {state.value}" for state, event in differing]
    return "\n".join([*lines, ""])


# --- bad input

HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "a", "version": "1"},
}

FRAMES: dict[str, bytes] = {
    "an empty message": b"",
    "text that is not JSON": b"hello",
    "truncated JSON": b'{"jsonrpc":"2.0","id":1,"method":"ping"',
    "bytes that are not UTF-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "a lone surrogate": b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
    "NaN": b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":NaN}}',
    "a number of 400 digits": b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":' + b"9" * 400 + b"}}",
    "a key that occurs twice": b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1,"x":2}}',
    "an id that occurs twice": b'{"jsonrpc":"2.0","id":1,"method":"a","id":2}',
    "nested 70 deep": b'{"jsonrpc":"2.0","id":1,"method":"a","params":{"x":' + b"[" * 70 + b"]" * 70 + b"}}",
    "a batch": b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    "a value that is not an object": b'"ping"',
    "another version of JSON-RPC": b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
    "a null id": b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
    "an id that is not a whole number": b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
    "an id of 2,000 characters": b'{"jsonrpc":"2.0","method":"ping","id":"' + b"x" * 2000 + b'"}',
    "a method that is not a string": b'{"jsonrpc":"2.0","id":1,"method":7}',
    "a request and an answer at once": b'{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}',
    "params that are a list": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":["a"]}',
    "an unknown method": b'{"jsonrpc":"2.0","id":1,"method":"tools/fly"}',
    "a method of the other side": b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}',
    "no tool name": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}',
    "arguments that are a list": b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":[]}}',
    "an unknown log level": b'{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}',
    "a cursor that was never given out": b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}',
    "no protocol version": b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{},"clientInfo":{"name":"a","version":"1"}}}',
    "a response with a list as its result": b'{"jsonrpc":"2.0","id":1,"result":[]}',
}

CODES: dict[ErrorCode, str] = {
    ErrorCode.PARSE_ERROR: "The message is not JSON, or JSON that parsers read differently.",
    ErrorCode.INVALID_REQUEST: "The message is JSON, but not a JSON-RPC message, or not one that is allowed in this state.",
    ErrorCode.METHOD_NOT_FOUND: "The peer has no such method in this revision.",
    ErrorCode.INVALID_PARAMS: "The params are wrong, the tool or prompt is unknown, or the cursor was never given out.",
    ErrorCode.INTERNAL_ERROR: "The server failed. The details are in its log, not in the answer.",
    ErrorCode.TOOL_ERROR: "A tool failed, on a server that reports this as an error instead of a result with `isError`.",
    ErrorCode.RESOURCE_NOT_FOUND: "No resource has that `uri`; the error's data repeats it.",
    ErrorCode.URL_ELICITATION_REQUIRED: "The user has to open the URLs in `data.elicitations` first.",
    ErrorCode.CANCELLED: "Never sent, because a cancelled request is not answered. The client understands it from other servers.",
    ErrorCode.USER_REJECTED: "The user of the client has declined a sampling request.",
    ErrorCode.HEADER_MISMATCH: "Revision 2026-07-28: an HTTP header that repeats a part of the request is missing, wrong or invalid. `data.header` names it.",
    ErrorCode.MISSING_REQUIRED_CLIENT_CAPABILITY: "Revision 2026-07-28: the request has to declare the capabilities in `data.requiredCapabilities`.",
    ErrorCode.UNSUPPORTED_PROTOCOL_VERSION: "Revision 2026-07-28: the request names a revision that is not served; `data.supported` lists those that are.",
}


def refusal(frame: bytes) -> RemoteProtocolError:
    """A server's answer to a frame, computed without a server."""
    try:
        request = parse(frame)
    except RemoteProtocolError as error:
        return error
    assert isinstance(request, JsonRpcRequest), frame
    try:
        method = find_method(request.method, SUPPORTED[0], PeerSide.SERVER)
        if method is None:
            raise method_not_found(request.method)
        check_params(method, request.params)
        page([], request.params["cursor"], 50, "tools")
    except McpError as error:
        status = 400 if request.method == "initialize" else 200
        return RemoteProtocolError(error.code, error.message, id=request.id, status=status)
    raise AssertionError(frame)


def _shown(text: str) -> str:
    return text if len(text) < 140 else text[:137] + "…"


def _row(name: str, error: RemoteProtocolError) -> list[str]:
    parse(encode_error(error.id, error))
    return [name, str(error.code), str(error.status), "yes" if error.id is not None else "", _shown(error.message)]


def bad_input_page() -> str:
    """The page on malformed input."""
    lines = [
        "# Errors for bad input",
        "",
        "A server answers a malformed message with an error, and keeps running. This page lists examples of bad input, each with the code and the text",
        "of its error and with the HTTP status. " + WRITTEN_BY,
        "",
        "- *Id* is whether the error carries the id of the request. It does whenever the id is known without doubt, also for a well-formed request",
        "  that is refused.",
        "- A malformed *response* of the peer gets no error with its id, which is an id of the server's own. The waiting request gets the error instead.",
        "- An unknown notification is ignored.",
        "",
    ]
    rows = [_row(name, refusal(frame)) for name, frame in FRAMES.items()]
    long = OversizedMessage(5_000_000, b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":"', b"")
    rows.append(_row("a line of 5 MB", too_long_error(long, LIMITS.size)))
    rows.append(_row("a list of a million zeros", refusal(b'{"id":1,"method":"a","x":[' + b"0," * 1_000_000 + b"0]}")))
    lines += table(("Input", "Code", "Status", "Id", "Text"), rows)
    lines += ["## Limits", "", "One message may have at most this, unless the server's settings say otherwise:", ""]
    said = {"size": "bytes", "depth": "levels of nested objects and lists", "values": "members and items in all"}
    lines += [f"- {getattr(LIMITS, name):,} {said[name]}".replace(",", " ") for name in MessageLimits._fields]
    lines += ["", "## Codes", "", "The error codes that greenroom sends or understands:", ""]
    lines += table(("Code", "Name", "When"), [[str(code.value), f"`{code.name}`", CODES[code]] for code in ErrorCode])
    return "\n".join(lines)


# --- uri templates

TEMPLATES: list[tuple[str, str]] = [
    ("weather://{city}", "weather://Oslo"),
    ("file:///{path}", "file:///etc/hosts"),
    ("test://{id}/data", "test://123/data"),
    ("test://{id}/data", "test://1/2/data"),
    ("{a}-{b}", "x-y-z"),
    ("files://{+path}", "files:///etc/hosts"),
    ("repo://{owner}/{path*}/raw", "repo://me/src/a.py/raw"),
    ("note://{title}", "note://to%20do%2Fnow"),
    ("weather://{city}", "weather://"),
    ("file:///{path}", "file:///a/../../etc/passwd"),
    ("file:///{path}", "file:///..%2f..%2fetc/passwd"),
    ("file:///{path}", "file:///%252e%252e%252fetc/passwd"),
    ("file:///{path}", "file:////etc/passwd"),
    ("file:///{path}", "file:///a%00.txt"),
    ("note://{title}", "note://%ff"),
]

BAD_TEMPLATES = ("a://{b", "a://b}", "a://{b}{c}", "a://{b}/{b}", "a://{?b}", "a://{b c}")


def templates_page() -> str:
    """The page on URI templates."""
    lines = [
        "# URI templates",
        "",
        "A resource template such as `weather://{city}` offers many resources, and its variables become arguments of the function. This page says which",
        "URIs match a template, and with which values. A URI is first compared with the resources of exactly that URI, then with the templates.",
        WRITTEN_BY,
        "",
        "| Variable | Takes |",
        "| -------- | ----- |",
        "| `{name}` | One segment: at least one character, and no `/`. It ends where the text after it first matches. As the last part of the template it takes all that is left, slashes included. |",
        "| `{name*}` | Any number of segments, as many as possible. |",
        "| `{+name}` | As `{name*}`, and it may begin with a slash. |",
        "",
        "Values are percent-decoded once. A URI does not match if a value",
        "",
        "- would be empty, is not UTF-8, or contains a NUL;",
        "- has `..` as a segment, however often it was encoded;",
        "- begins at the root (except for a `{+name}`).",
        "",
        "So a value stays inside of the folder that you join it to. A `{+name}` may be a whole path: remove its first slash before you join it. Symbolic",
        "links are not checked; that is up to the handler. The time for a match grows in proportion to the URI's length.",
        "",
    ]
    rows: list[tuple[str, str, str]] = []
    for text, uri in TEMPLATES:
        found = UriTemplate(text).match(uri)
        values = "no match" if found is None else ", ".join(f"`{name}` = `{value}`" for name, value in found.items())
        rows.append((f"`{text}`", f"`{uri}`", values))
    lines += table(("Template", "URI", "Values"), rows)
    lines += ["A malformed template is refused when it is registered, with one of these errors:", ""]
    for text in BAD_TEMPLATES:
        try:
            UriTemplate(text)
        except BadTemplate as error:
            lines.append(f"- `{error}`")
    return "\n".join([*lines, ""])


def pages() -> dict[str, str]:
    """The generated pages, by file name."""
    return {
        "automaton.md": automaton_page(),
        "automaton.svg": automaton_picture.draw(TABLE),
        "bad-input.md": bad_input_page(),
        "methods.md": methods_page(),
        "uri-templates.md": templates_page(),
    }


def main(root: Path = ROOT) -> int:
    """Write the pages."""
    for name, text in pages().items():
        (root / FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
