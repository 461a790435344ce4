"""JSON-RPC messages: classified by their members, or refused under their own id only; parsed messages can be encoded again."""

from __future__ import annotations

import json
from typing import Any

from tests.fuzz.fuzz_target import Target, numbers, seeded
from tests.fuzz.targets.values import TOO_DEEP, measure
from tests.greenroom.protocol.python_json import python_says

from greenroom.protocol.errors import ErrorCode, McpError, RemoteProtocolError
from greenroom.protocol.jsonrpc import (
    ID_LIMIT,
    JsonRpcError,
    JsonRpcMessage,
    JsonRpcNotification,
    JsonRpcRequest,
    JsonRpcResponse,
    MessageLimits,
    OversizedMessage,
    decode,
    encode_error,
    encode_notification,
    encode_request,
    encode_result,
    is_object,
    parse,
    salvage_id,
)
from greenroom.protocol.methods import METHODS, check_params, check_result

TEXTS = (
    *(
        json.dumps(
            {"jsonrpc": "2.0", "id": 1, "method": name, "params": {"name": "x", "uri": "a:b", "_meta": {}}}
        ).encode()
        for name in METHODS
    ),
    b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}',
    b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"x","data":[1]}}',
    b'{"jsonrpc":"2.0","id":"1","error":7,"result":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"a","progress":1e3}}',
    b'{"jsonrpc":"1.0","id":{},"method":null,"params":[]}',
    b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    b'{"method":"ping","params":{"id":3,"x":"' + b"y" * 300 + b'"},"jsonrpc":"2.0","id":4}',
)
WORDS = (
    *(
        b'"jsonrpc":"2.0"',
        b'"id":1',
        b'"id":',
        b'"method":',
        b'"params":{',
        b'"result":{}',
        b'"error":{}',
        b"null",
        b"{}",
    ),
    *(
        b'"_meta":{"progressToken":1}',
        b'"code":',
        b'"message":',
        b'"',
        b"\\",
        b",",
        b":",
        b"{",
        b"}",
        b"[",
        b"]",
        b"\\u0069d",
    ),
    *(b'"' + name.encode() + b'"' for name in METHODS),
)
MISSING = object()


def check(data: bytes) -> None:
    front, text = numbers(data, 2)
    size = len(text) - 1 if front[0] == 1 else 1 << 22
    try:
        message = parse(text, MessageLimits(size=size))
    except RemoteProtocolError as error:
        look_at(error, text)
    else:
        assert kind(python_says(text)) is type(message)
        write(message)
        shape(message)
    found = salvage_id(text[: front[1] + 16], text[-(front[1] + 16) :] if front[0] & 2 else b"")
    assert found.id is None or found.id in ids(text)
    OversizedMessage.of(text)


def look_at(error: RemoteProtocolError, text: bytes) -> None:
    """Assert that an error has the refused message's id, or none."""
    assert error.status in (200, 400, 413)
    assert error.code in (ErrorCode.PARSE_ERROR, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_PARAMS)
    assert error.id is None or error.response_to is None
    for id in (error.id, error.response_to):
        assert id is None or id in ids(text), (id, ids(text))
        assert id is None or len(ids(text)) == 1 or "occurs twice" not in error.message
    wire = decode(encode_error(error.id, error))
    assert wire["id"] == error.id
    assert wire["error"]["message"]
    try:
        value = python_says(text)
    except (ValueError, RecursionError):
        return
    assert error.status == 413 or kind(value) is None or measure(value)[0] > TOO_DEEP


def ids(text: bytes) -> list[Any]:
    """The `id` of the outermost object, by a lenient parser."""
    found: list[Any] = []

    def pairs(members: list[tuple[str, Any]]) -> dict[str, Any]:
        found[:] = [value for key, value in members if key == "id"]  # the outermost object comes last
        return dict(members)

    try:
        value = json.loads(text.decode(errors="surrogateescape"), object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return [Anything()]
    return found if isinstance(value, dict) else []


class Anything:
    """Equal to everything: the id of malformed text is unknown."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0


def kind(value: Any) -> type[JsonRpcMessage] | None:
    """The kind of message of an object, if any."""
    if not is_object(value) or value.get("jsonrpc") != "2.0":
        return None
    id, method = value.get("id", MISSING), value.get("method", MISSING)
    answered = [word for word in ("result", "error") if word in value]
    if method is MISSING:
        if len(answered) != 1:
            return None
        if answered == ["error"]:
            return JsonRpcError if id in (MISSING, None) or type(id) in (str, int) else None
        return JsonRpcResponse if type(id) in (str, int) and is_object(value["result"]) else None
    if type(method) is not str or answered or not (value.get("params") is None or is_object(value["params"])):
        return None
    if id is MISSING:
        return JsonRpcNotification
    return JsonRpcRequest if type(id) is int or (type(id) is str and len(id) <= ID_LIMIT) else None


def write(message: JsonRpcMessage) -> None:
    """Assert that a parsed message can be encoded and parsed again."""
    written = writing(message)
    assert b"\n" not in written
    assert parse(written) == message


def writing(message: JsonRpcMessage) -> bytes:
    if isinstance(message, JsonRpcRequest):
        return encode_request(message.id, message.method, message.params)
    if isinstance(message, JsonRpcNotification):
        return encode_notification(message.method, message.params)
    if isinstance(message, JsonRpcResponse):
        return encode_result(message.id, message.result)
    return encode_error(message.id, message.error)


def shape(message: JsonRpcMessage) -> None:
    """Assert that params and results fit their shape, or the error names the mistake."""
    if isinstance(message, JsonRpcRequest | JsonRpcNotification):
        assert isinstance(message.meta, dict)
        method = METHODS.get(message.method)
        if method is not None:
            try:
                check_params(method, message.params)
            except McpError as error:
                assert error.code == ErrorCode.INVALID_PARAMS
                encode_error(1, error)
    if isinstance(message, JsonRpcResponse):
        for method in METHODS.values():
            try:
                check_result(method, message.result)
            except McpError as error:
                assert error.code == ErrorCode.INTERNAL_ERROR


TARGET = Target("parsing", check, lambda: seeded(TEXTS, b"\0\0", b"\3\x10"), WORDS)
