"""The cost of strictness: parsing and encoding messages, against msgspec alone."""

from __future__ import annotations

from typing import Any

import msgspec

from greenroom.protocol import sse
from greenroom.protocol.jsonrpc import JsonRpcRequest, encode_result, parse
from greenroom.protocol.methods import METHODS, SessionState, check_params, next_transition
from greenroom.protocol.uri_templates import UriTemplate

from .benchmark_types import Run, benchmark

CALL: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 17,
    "method": "tools/call",
    "params": {
        "name": "forecast",
        "arguments": {"city": "Oslo", "days": 3, "tags": ["a", "b"]},
        "_meta": {"progressToken": 17},
    },
}
LINE = msgspec.json.encode(CALL)
BLOB = msgspec.json.encode({**CALL, "params": {"name": "store", "arguments": {"blob": "QUJD" * 750_000}}})
ROWS = msgspec.json.encode(
    {**CALL, "params": {"name": "store", "arguments": {"rows": [{"a": n, "b": str(n)} for n in range(40_000)]}}}
)
RESULT = {"content": [{"type": "text", "text": "sunny"}], "isError": False}

_alone = msgspec.json.Decoder[Any](Any).decode


@benchmark("msgspec alone, a call", count=100_000)
def decode_call(run: Run) -> None:
    """A `tools/call` of 160 bytes, decoded by msgspec and not checked."""
    with run.measured():
        for _ in range(run.count):
            _alone(LINE)


@benchmark("parse, a call", count=50_000, floor=decode_call, target=8)
def parse_call(run: Run) -> None:
    """The same, parsed: depth, keys, numbers and surrogates are checked, and it becomes a `JsonRpcRequest`."""
    with run.measured():
        for _ in range(run.count):
            parse(LINE)


@benchmark("transition and check, a call", count=50_000, floor=decode_call)
def check_call(run: Run) -> None:
    """The transition in the table of states, and the check of the params."""
    request, method = parse(LINE), METHODS["tools/call"]
    assert isinstance(request, JsonRpcRequest)
    with run.measured():
        for _ in range(run.count):
            next_transition(SessionState.READY, request)
            check_params(method, request.params)


@benchmark("encode and frame, a result", count=50_000, floor=decode_call)
def encode_answer(run: Run) -> None:
    """A result of one text as a JSON-RPC response, and that as an event."""
    with run.measured():
        for _ in range(run.count):
            sse.encode_event("p1:3", encode_result(17, RESULT))


@benchmark("msgspec alone, 3 MB", count=20)
def decode_blob(run: Run) -> None:
    """A call with a blob of 3 MB."""
    with run.measured():
        for _ in range(run.count):
            _alone(BLOB)


@benchmark("parse, 3 MB", count=20, floor=decode_blob, target=6)
def parse_blob(run: Run) -> None:
    """The same, parsed."""
    with run.measured():
        for _ in range(run.count):
            parse(BLOB)


@benchmark("msgspec alone, 80,000 values", count=2)
def decode_rows(run: Run) -> None:
    """A call with 40,000 rows of two members, a megabyte in all."""
    with run.measured():
        for _ in range(run.count):
            _alone(ROWS)


@benchmark("parse, 80,000 values", count=2, floor=decode_rows, target=6)
def parse_rows(run: Run) -> None:
    """The same, parsed."""
    with run.measured():
        for _ in range(run.count):
            parse(ROWS)


@benchmark("match a URI template", count=5_000, floor=decode_call)
def match_template(run: Run) -> None:
    """`repo://{owner}/{name}/blob/{+path}` and a URI of 57 characters."""
    template = UriTemplate("repo://{owner}/{name}/blob/{+path}")
    with run.measured():
        for _ in range(run.count):
            template.match("repo://greenroom/main/blob/src/greenroom/protocol/uris.py")
