"""JSON-RPC messages: parsing from bytes, and encoding as one line. No batches.

`parse` returns a `JsonRpcRequest`, `JsonRpcNotification`, `JsonRpcResponse` or `JsonRpcError`, or raises `RemoteProtocolError` with all that
an answer needs: the code, the request's id where it can be trusted, and the HTTP status. An encoder returns one line without a line break.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

import msgspec
from msgspec import Struct, field

from .errors import ErrorCode, LocalProtocolError, McpError, PeerError, RemoteProtocolError, Unacceptable

JSONRPC: Final = "2.0"
"""The `jsonrpc` member of every message."""


class MessageLimits(NamedTuple):
    """Limits on one message."""

    size: int = 4 * 1024 * 1024
    """The longest message in bytes."""
    depth: int = 64
    """The nesting depth of objects and lists."""
    values: int = 512 * 1024
    """The number of members and items, and of lists and objects. Three bytes can cost an object of a hundred bytes."""

    @classmethod
    def of_size(cls, size: int) -> MessageLimits:
        """The limits for messages of `size` bytes: one value for every eight bytes, and at least a thousand."""
        return cls(size=size, values=max(size // 8, 1024))


LIMITS = MessageLimits()

KEPT_EDGE = 256
"""How many bytes are kept of each end of an oversized message, to find the id of its request."""


class OversizedMessage(NamedTuple):
    """The kept parts of a message that was too long."""

    length: int
    """The size in bytes, as far as received."""
    head: bytes
    """The first bytes."""
    tail: bytes
    """The last bytes; empty if the end was not received."""

    @classmethod
    def of(cls, data: bytes) -> OversizedMessage:
        """Keep the size and both ends of the data."""
        return cls(len(data), data[:KEPT_EDGE], data[-KEPT_EDGE:])

    def longer(self, piece: bytes) -> OversizedMessage:
        """The same message with another piece appended."""
        head = self.head if len(self.head) == KEPT_EDGE else (self.head + piece[:KEPT_EDGE])[:KEPT_EDGE]
        return OversizedMessage(self.length + len(piece), head, (self.tail + piece[-KEPT_EDGE:])[-KEPT_EDGE:])


RequestId: TypeAlias = str | int

ID_LIMIT = 1024
"""The longest id in characters or digits. An id is kept while its request is in flight, and sent back."""


_OWN_HASH = 1 << 60


def id_key(id: RequestId) -> RequestId | bytes:
    """A dictionary key for an id that a peer chose: equal keys for equal ids.

    Python hashes an integer modulo 2**61 - 1. With integers as keys, a peer could choose thousands of ids with one hash, and each lookup would
    compare all of them. The key is therefore the digits as bytes: their hash is keyed with a secret of the process, and no string id equals them.
    """
    if isinstance(id, str) or -_OWN_HASH < id < _OWN_HASH:
        return id
    return b"%d" % id


class CarriedByHttp(NamedTuple):
    """What the events of a call tell of the HTTP request that brought it."""

    trace: dict[str, str] | None
    """The W3C trace context in its headers."""
    version: str
    """The version of HTTP, such as "1.1"."""


class JsonRpcRequest(Struct, frozen=True):
    """A request: the sender waits for a response."""

    id: RequestId
    method: str
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    carried: CarriedByHttp | None = None
    """About the HTTP request that brought it; set only while something listens to events."""

    @property
    def meta(self) -> dict[str, Any]:
        """`params._meta`; empty if it is missing or no object."""
        return _meta(self.params)

    @property
    def progress_token(self) -> str | int | None:
        """The token for progress notifications, if the sender asked for any."""
        token = _meta(self.params).get("progressToken")
        return token if type(token) is str or type(token) is int else None


class JsonRpcNotification(Struct, frozen=True):
    """A notification: no response is sent."""

    method: str
    params: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def meta(self) -> dict[str, Any]:
        """`params._meta`; empty if it is missing or no object."""
        return _meta(self.params)


class JsonRpcResponse(Struct, frozen=True):
    """The result of a request of ours."""

    id: RequestId
    result: dict[str, Any]


class JsonRpcError(Struct, frozen=True):
    """The error that answers a request of ours. Without an id, the peer could not tell which request it was."""

    id: RequestId | None
    error: PeerError


JsonRpcMessage: TypeAlias = JsonRpcRequest | JsonRpcNotification | JsonRpcResponse | JsonRpcError


def parse(data: bytes, limits: MessageLimits = LIMITS) -> JsonRpcMessage:
    """Parse a frame with one message. Raises `RemoteProtocolError`."""
    try:
        value = decode(data, limits)
    except Unacceptable as error:
        raise with_salvaged_id(error, OversizedMessage.of(data)) from None
    return classify(value)


def classify(value: Any) -> JsonRpcMessage:
    """Classify a decoded frame. Raises `RemoteProtocolError` if it is no message."""
    if not is_object(value):
        if type(value) is list:
            raise _invalid("Batch requests are not supported: send one message at a time")
        raise _invalid("Invalid Request: a message is a JSON object")
    if "method" not in value:
        return _classify_response(value)
    method = value["method"]
    id = _read_id(value["id"]) if "id" in value else None
    if value.get("jsonrpc") != JSONRPC:
        raise _invalid('Invalid Request: "jsonrpc" must be "2.0"', id)
    if type(method) is not str:
        raise _invalid('Invalid Request: "method" must be a string', id)
    if "result" in value or "error" in value:
        raise _invalid("Invalid Request: a message is either a request or an answer, not both", id)
    params = value.get("params")
    if params is None:  # some encoders write null for missing members
        params = {}
    elif not is_object(params):
        raise RemoteProtocolError(
            ErrorCode.INVALID_PARAMS, '"params" must be an object', id=id, status=400 if id is None else 200
        )
    return JsonRpcNotification(method, params) if id is None else JsonRpcRequest(id, method, params)


def encode_request(id: RequestId, method: str, params: Any = None) -> bytes:
    """A request as one line. Raises `LocalProtocolError` when the params cannot be written."""
    message = {"jsonrpc": JSONRPC, "id": id, "method": method}
    return encode(message if params is None else message | {"params": params})


def encode_notification(method: str, params: Any = None) -> bytes:
    """A notification as one line. Raises `LocalProtocolError` when the params cannot be written."""
    message = {"jsonrpc": JSONRPC, "method": method}
    # A copy: event streams keep the bytes for replay, and msgspec's one-kilobyte buffer would stay allocated behind a small slice.
    return memoryview(encode(message if params is None else message | {"params": params})).tobytes()


def encode_result(id: RequestId, result: Any) -> bytes:
    """Encode a response as one line. Raises `LocalProtocolError` if the result cannot be written."""
    return encode({"jsonrpc": JSONRPC, "id": id, "result": result})


def encode_error(id: RequestId | None, error: McpError | RemoteProtocolError) -> bytes:
    """Encode an error as one line. Never raises: reporting an error must not cause another.

    Data that cannot be written is left out, and lone surrogates are replaced. A missing id is written as null.
    """
    wire = McpError.wrap(error).to_wire()
    try:
        return encode({"jsonrpc": JSONRPC, "id": id, "error": wire})
    except LocalProtocolError:
        text = str(error.message).encode(errors="replace").decode()
        return encode({"jsonrpc": JSONRPC, "id": id, "error": {"code": error.code, "message": text}})


_NULL_ID: Final = b'{"jsonrpc":"2.0","id":null,'


def without_null_id(body: bytes) -> bytes:
    """An encoded error without an id, as the stateless era has it; the handshake era writes null."""
    return b'{"jsonrpc":"2.0",' + body[len(_NULL_ID) :] if body.startswith(_NULL_ID) else body


def _meta(params: dict[str, Any]) -> dict[str, Any]:
    meta = params.get("_meta")
    return meta if is_object(meta) else {}


def _classify_response(value: dict[str, Any]) -> JsonRpcResponse | JsonRpcError:
    """Classify a message without a method: a response. A broken one is reported with the id of the request that it leaves unanswered."""
    id = value.get("id")
    known = id if type(id) is str or type(id) is int else None
    if "result" not in value and "error" not in value:
        raise _invalid('Invalid Request: "method" is missing', known)
    if value.get("jsonrpc") != JSONRPC:
        raise _invalid_response('"jsonrpc" must be "2.0"', known)
    if "error" in value:
        if "result" in value:
            raise _invalid_response("it has both a result and an error", known)
        if id is not None and known is None:
            raise _invalid_response('"id" must be a string or an integer', known)
        return JsonRpcError(known, PeerError.from_wire(value["error"]))
    if known is None:
        raise _invalid_response('"id" must be a string or an integer', known)
    result = value["result"]
    if not is_object(result):
        raise _invalid_response('"result" must be an object', known)
    return JsonRpcResponse(known, result)


def _read_id(id: Any) -> RequestId:
    if type(id) is str:
        if len(id) <= ID_LIMIT:
            return id
    elif type(id) is int:
        return id  # `decode` has bounded the digits
    else:
        raise _invalid('Invalid Request: "id" must be a string or an integer', status=200)
    raise _invalid(f'Invalid Request: "id" is longer than {ID_LIMIT} characters', status=200)


def _invalid(message: str, id: RequestId | None = None, status: int = 400) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.INVALID_REQUEST, message, id=id, status=status)


def _invalid_response(why: str, id: RequestId | None) -> RemoteProtocolError:
    """The error for a broken response. It has no id: the id is one of ours, and the peer may use the same id for a request."""
    error = _invalid(f"Invalid answer: {why}")
    error.response_to = id
    return error


# --- Strict JSON: bounded, unambiguous, and as fast as msgspec allows.
# `decode` accepts only what every sane parser reads in the same way. Where two parsers disagree on a text, the code that checks a message and the
# code that acts on it see different values. So duplicate keys, lone surrogates, NaN and numbers that are no double are refused, with a message that
# says what and where. `encode` writes one line.
# Cost of the checks beside msgspec's own time: 1.0 µs for a tool call of 160 bytes (msgspec: 0.4), half of it for counting the members of the result;
# 0.8 ms for a blob of 3 MB (msgspec: 0.5); for a megabyte of small rows about as much as msgspec itself. Strings are never looked into: the checks
# compare counts. A decoded value has as many members as its text has colons outside of strings, unless a key is duplicated; and what is outside of
# strings is every second piece between quotes.


_DIGITS = 308
"""A number with more digits is no double: other parsers would read it as infinity."""

_TOO_MUCH = 10**_DIGITS

_SHORT = 2048

_encode = msgspec.json.Encoder().encode
_SHAPES = bytes.maketrans(b"123456789E+", b"000000000e-")
"""Replaces every digit by zero, so that the shapes of numbers can be searched for."""
_HUGE = b"0" * (_DIGITS + 1)


def to_float(digits: str) -> float:
    """Convert a JSON number to a double in time linear in its length. Raises ValueError if it is out of range."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError("Number out of range")
    return number


# A trick around msgspec: it takes up to 7 µs for a number close to the smallest or largest double, such as 8.5e-323, which is seconds for a message
# of 4 MB; `float` takes a tenth of that. For other numbers msgspec is eight times as fast without the hook, so long texts use the hook only if such a
# number may be present.
_decode = msgspec.json.Decoder[Any](Any).decode
decode_checked: Final = msgspec.json.Decoder[Any](Any, float_hook=to_float).decode
"""Decode JSON text from inside a message that was checked already: msgspec's decoder and errors, but fast for extreme numbers."""


def decode(data: bytes, limits: MessageLimits = LIMITS) -> Any:
    """Decode a JSON text. Raises `RemoteProtocolError`, with the HTTP status to answer with.

    Well-formed texts that are refused raise `Unacceptable`.
    """
    if len(data) > limits.size:
        raise _too_large(f"{len(data)} bytes", limits.size)
    # A short text is counted with its strings first: that is cheaper, and almost always enough.
    outside = data if len(data) <= _SHORT else _without_strings(data)
    if len(outside) > limits.values:
        _check_values(data, limits)
    shapes = outside.translate(_SHAPES) if len(outside) > _DIGITS else b""
    try:
        value = (_decode if shapes and not _has_long_exponents(shapes) else decode_checked)(data)
    except RecursionError:
        raise _too_deep(limits) from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise _parse_error(_explain(data, error)) from None
    if outside.count(b"[") + outside.count(b"{") > limits.depth:
        members, depth = _members_and_depth(value)
        if depth > limits.depth:
            raise _too_deep(limits)
    else:
        members = _count_members(value)
    if outside.count(b":") != members:
        _check_keys(data, members)
    if _HUGE in shapes:
        _check_numbers(value)
    return value


def encode(value: Any) -> bytes:
    """Encode a value as one line of JSON.

    NaN and infinity become null, as in JavaScript; bytes become base64, and dates ISO 8601. Raises `LocalProtocolError` for values that JSON
    cannot express.
    """
    try:
        return _encode(value)
    except RecursionError:
        raise LocalProtocolError("cannot be written as JSON: it is nested too deeply, or contains itself") from None
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"cannot be written as JSON: a lone surrogate in a string: {error}") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise LocalProtocolError(f"cannot be written as JSON: {error}") from error


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a decoded value is a JSON object."""
    return type(value) is dict


def _parse_error(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.PARSE_ERROR, f"Parse error: {message}")


def _unacceptable(message: str) -> Unacceptable:
    return Unacceptable(ErrorCode.PARSE_ERROR, f"Parse error: {message}")


def _too_large(much: str, limit: int) -> Unacceptable:
    message = f"Message too large: {much}, the limit is {limit}"
    return Unacceptable(ErrorCode.INVALID_REQUEST, message, status=413)


def _too_deep(limits: MessageLimits) -> Unacceptable:
    return _unacceptable(f"objects and lists are nested more than {limits.depth} deep")


def _without_strings(data: bytes) -> bytes:
    """The text without its strings: once escapes are removed, every second piece between quotes is outside of strings."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(data.split(b'"')[::2])


def _has_long_exponents(shapes: bytes) -> bool:
    """Whether the text may have numbers that are slow in msgspec. Most long texts have no `e` outside of strings, which is the fastest check."""
    return b"e" in shapes and (b"e000" in shapes or b"e-000" in shapes)


def _check_values(data: bytes, limits: MessageLimits) -> None:
    """Refuse too many values or levels. Runs before decoding, to save that memory. A wrong count on malformed text is found by decoding."""
    skeleton = _without_strings(data)
    values = max(
        skeleton.count(b",") + skeleton.count(b":"),
        skeleton.count(b"[") + skeleton.count(b"{"),  # nested lists need neither comma nor colon
    )
    if values > limits.values:
        raise _too_large(f"{values} values", limits.values)


def _count_members(value: Any) -> int:
    """The number of members of all objects in a value."""
    found = 0
    left: list[Any] = [value]
    for inner in left:  # the list grows during iteration
        if type(inner) is dict:
            left += inner.values()
            found += inner.__len__()
        elif type(inner) is list:
            left += inner
    return found


def _members_and_depth(value: Any) -> tuple[int, int]:
    """The number of members and the depth. Level by level, since counting brackets level by level would reread nearly all of the text each time."""
    members = depth = 0
    level: list[Any] = [value]
    while True:
        below: list[Any] = []
        inside = False
        for inner in level:
            if type(inner) is dict:
                inside = True
                below += inner.values()
                members += inner.__len__()
            elif type(inner) is list:
                inside = True
                below += inner
        if not inside:
            return members, depth
        depth += 1
        level = below


def _check_keys(data: bytes, members: int) -> None:
    if _without_strings(data).count(b":") != members:
        keys = _DuplicateKeys()
        json.loads(data, object_pairs_hook=keys.check_pairs)
        if keys.duplicate is not None:
            error = _unacceptable(f"the key {_quoted(keys.duplicate)} occurs twice in one object")
            error.anonymous = keys.anonymous
            raise error


class _DuplicateKeys:
    """Finds a duplicate key with Python's slower parser, which reports all pairs."""

    def __init__(self) -> None:
        self.duplicate: str | None = None
        """The first duplicate key."""
        self.anonymous = False
        """Whether the duplicate is the id of the outermost object."""

    def check_pairs(self, pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        self.anonymous = False  # the parser reports the outermost object last
        for key, _ in pairs:
            if key in seen:
                self.duplicate = key if self.duplicate is None else self.duplicate
                self.anonymous = self.anonymous or key == "id"
            seen.add(key)


def _check_numbers(value: Any) -> None:
    left = [value]
    while left:
        value = left.pop()
        if type(value) is dict:
            left += value.values()
        elif type(value) is list:
            left += value
        elif type(value) is int and not -_TOO_MUCH < value < _TOO_MUCH:
            raise _unacceptable(f"a number of more than {_DIGITS} digits")


def _explain(data: bytes, error: Exception) -> str:
    """Explain what is malformed and where. msgspec is fast and terse; the details are looked up only after an error."""
    try:
        text = data.decode()
    except UnicodeDecodeError as broken:
        return f"not UTF-8: byte {data[broken.start]:#04x} at {broken.start}"
    if not text.strip(" \t\r\n"):
        return "the message is empty"
    if text.startswith("\ufeff"):
        return "the message starts with a byte order mark"
    reason = str(error).removeprefix("JSON is malformed: ")
    if "surrogate" in reason or _has_lone_surrogate(text):
        return "a lone surrogate: \\ud800 to \\udfff without its other half"
    if "out of range" in reason:
        return "a number that is too large"
    return reason[:1].lower() + reason[1:]


def _has_lone_surrogate(text: str) -> bool:
    """Whether a lone surrogate is the only mistake: Python's own parser accepts such a text."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _quoted(text: str, limit: int = 60) -> str:
    """A peer's text, quoted and shortened for an error message."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


# --- The id of a refused message, read from the bytes that are left of it.
# A message may be too long to be kept, or well-formed and refused. Its sender waits for a response, and an error without an id answers no request.
# The first and last 256 bytes are enough, since all encoders write the id near one end. Nothing is guessed: if the id is in doubt, the error has
# none.

_STRING = rb'"(?:[^"\\\x00-\x1f]|\\.)*"'
_SPACE = rb"[ \t\r\n]*"
_ID = rb"(?P<id>-?(?:0|[1-9][0-9]{0,17})|" + _STRING + rb")"
_TOKEN = re.compile(
    rb"(?P<open>[{\[])|(?P<close>[}\]])|(?P<key>" + _STRING + rb")" + _SPACE + rb":"
    rb"|" + _STRING + rb"|[^{}\[\]\"]+",
    re.DOTALL,
)
_LAST = re.compile(
    rb"[{,]" + _SPACE + rb'"id"' + _SPACE + rb":" + _SPACE + _ID + _SPACE + rb"}" + _SPACE + rb"\Z", re.DOTALL
)
_SCALAR = re.compile(_SPACE + _ID + _SPACE + rb"(?=[,}])", re.DOTALL)


def too_long_error(what: OversizedMessage, limit: int) -> RemoteProtocolError:
    """The error for an oversized message, with its id if that is certain."""
    error = RemoteProtocolError(
        ErrorCode.INVALID_REQUEST,
        f"Message too large: {what.length} bytes, the limit is {limit}",
        status=413,
    )
    return with_salvaged_id(error, what)


def with_salvaged_id(error: RemoteProtocolError, what: OversizedMessage) -> RemoteProtocolError:
    """The error, with the id of the message that it is about, if that is certain."""
    if isinstance(error, Unacceptable) and error.anonymous:
        return error
    found = salvage_id(what.head, what.tail)
    if found.is_response:
        error.response_to = found.id
    else:
        error.id = found.id
    return error


class SalvagedId(NamedTuple):
    """The id of a refused message."""

    id: str | int | None = None
    is_response: bool = False
    """The message is a response, so the id is one of ours."""


def salvage_id(head: bytes, tail: bytes) -> SalvagedId:
    """Find the id of a message from its first bytes and its last bytes. They may overlap; the tail may be empty."""
    keys = dict[bytes, bytes | None]()
    twice = _first_keys(head, keys)
    ids = {found for found in (keys.get(b'"id"'), _last_id(tail)) if found is not None}
    if twice or len(ids) != 1:
        return SalvagedId()
    request, answer = b'"method"' in keys, b'"result"' in keys or b'"error"' in keys
    if request == answer:  # both or neither were found: request or response is unknown
        return SalvagedId()
    try:
        return SalvagedId(msgspec.json.decode(ids.pop()), answer)
    except (ValueError, msgspec.MsgspecError):
        return SalvagedId()


def _first_keys(head: bytes, keys: dict[bytes, bytes | None]) -> bool:
    """Add the keys of the outermost object in the head to `keys`, with the text of the id. Returns whether the id occurs twice."""
    depth = place = 0
    twice = False
    while found := _TOKEN.match(head, place):
        place = found.end()
        if found["open"]:
            depth += 1
        elif found["close"]:
            depth -= 1
        elif (key := found["key"]) and depth == 1:
            value = _SCALAR.match(head, place)
            twice = twice or (key == b'"id"' and key in keys)
            keys[key] = value["id"] if value else None
    return twice


def _last_id(tail: bytes) -> bytes | None:
    """The id, if it is the last member. The last brace of a message closes the outermost object."""
    found = _LAST.search(tail)
    return found["id"] if found else None
