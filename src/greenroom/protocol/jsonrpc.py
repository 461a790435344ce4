"""The four things that peers say to each other, read from bytes and written to bytes. One message a value; no batches.

`parse` gives a `JsonRpcRequest`, `JsonRpcNotification`, `JsonRpcResponse` or `JsonRpcError`, or raises `RemoteProtocolError` with all that is needed to answer:
the code, the request's id where it can be trusted, and the HTTP status. The writers give one line without a line break in it.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NamedTuple, TypeAlias, TypeGuard

import msgspec
from msgspec import Struct, field

from .errors import ErrorCode, LocalProtocolError, McpError, PeerError, RemoteProtocolError, Unacceptable
from .versions import JSONRPC


class MessageLimits(NamedTuple):
    """How much one message may be."""

    size: int = 4 * 1024 * 1024
    """Bytes."""
    depth: int = 64
    """Objects and lists inside each other."""
    values: int = 512 * 1024
    """Members and items in all, and lists and objects: three bytes can make an object of a hundred."""

    @classmethod
    def of_size(cls, size: int) -> MessageLimits:
        """For messages of so many bytes: a value for every eight of them, and a thousand in any case."""
        return cls(size=size, values=max(size // 8, 1024))


LIMITS = MessageLimits()

KEPT_EDGE = 256
"""How much is kept of both ends of what was too long, for a caller that wants to know which request it was."""


class OversizedMessage(NamedTuple):
    """What is known of a message that was too long to be kept."""

    length: int
    """How many bytes it had, or had so far."""
    head: bytes
    """How it began."""
    tail: bytes
    """How it ended; empty when its end has not been seen."""

    @classmethod
    def of(cls, data: bytes) -> OversizedMessage:
        """What is to be kept of it."""
        return cls(len(data), data[:KEPT_EDGE], data[-KEPT_EDGE:])

    def longer(self, piece: bytes) -> OversizedMessage:
        """The same, with more of it."""
        head = self.head if len(self.head) == KEPT_EDGE else (self.head + piece[:KEPT_EDGE])[:KEPT_EDGE]
        return OversizedMessage(self.length + len(piece), head, (self.tail + piece[-KEPT_EDGE:])[-KEPT_EDGE:])


RequestId: TypeAlias = str | int

ID_LIMIT = 1024
"""An id is kept for as long as its request lives, and sent back: characters, or digits."""


_OWN_HASH = 1 << 60


def id_key(id: RequestId) -> RequestId | bytes:
    """What an id that a peer has chosen is kept under: equal for equal ids.

    Python hashes an integer modulo 2**61 - 1, so a peer could choose thousands of one hash, and each look into a dict of them would
    compare thousands of times. The digits as bytes are hashed with the process's own secret, and are equal to no text.
    """
    if isinstance(id, str) or -_OWN_HASH < id < _OWN_HASH:
        return id
    return b"%d" % id


class JsonRpcRequest(Struct, frozen=True):
    """A message that wants an answer."""

    id: RequestId
    method: str
    params: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def meta(self) -> dict[str, Any]:
        """What stands in `params._meta`; empty when that is missing or no object."""
        return _meta(self.params)

    @property
    def progress_token(self) -> str | int | None:
        """What the asker wants progress to be told under, if anything."""
        token = _meta(self.params).get("progressToken")
        return token if type(token) is str or type(token) is int else None


class JsonRpcNotification(Struct, frozen=True):
    """A message that wants no answer."""

    method: str
    params: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def meta(self) -> dict[str, Any]:
        """What stands in `params._meta`; empty when that is missing or no object."""
        return _meta(self.params)


class JsonRpcResponse(Struct, frozen=True):
    """The answer to a request of ours."""

    id: RequestId
    result: dict[str, Any]


class JsonRpcError(Struct, frozen=True):
    """The answer to a request of ours is an error. Without an id, the peer could not tell which."""

    id: RequestId | None
    error: PeerError


JsonRpcMessage: TypeAlias = JsonRpcRequest | JsonRpcNotification | JsonRpcResponse | JsonRpcError


def parse(data: bytes, limits: MessageLimits = LIMITS) -> JsonRpcMessage:
    """The one message in a frame. Raises `RemoteProtocolError`."""
    try:
        value = decode(data, limits)
    except Unacceptable as error:
        raise with_salvaged_id(error, OversizedMessage.of(data)) from None
    return classify(value)


def classify(value: Any) -> JsonRpcMessage:
    """Which message a decoded frame is. Raises `RemoteProtocolError` for what is none."""
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
    if params is None:  # some writers say null where they have nothing to say
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
    # A stream keeps it for peers that come back. It was written into a kilobyte, of which a small one would hold on to most: so a copy.
    return memoryview(encode(message if params is None else message | {"params": params})).tobytes()


def encode_result(id: RequestId, result: Any) -> bytes:
    """A response as one line. Raises `LocalProtocolError` when the result cannot be written."""
    return encode({"jsonrpc": JSONRPC, "id": id, "result": result})


def encode_error(id: RequestId | None, error: McpError | RemoteProtocolError) -> bytes:
    """An error as one line. Never fails: a complaint must not give rise to another.

    Data that cannot be written is left out, and half characters are replaced. Without an id, it is null.
    """
    wire = McpError.wrap(error).to_wire()
    try:
        return encode({"jsonrpc": JSONRPC, "id": id, "error": wire})
    except LocalProtocolError:
        text = str(error.message).encode(errors="replace").decode()
        return encode({"jsonrpc": JSONRPC, "id": id, "error": {"code": error.code, "message": text}})


def _meta(params: dict[str, Any]) -> dict[str, Any]:
    meta = params.get("_meta")
    return meta if is_object(meta) else {}


def _classify_response(value: dict[str, Any]) -> JsonRpcResponse | JsonRpcError:
    """A message without a method: the peer's answer. A broken one is reported, and names the request that it leaves unanswered."""
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
        return id  # decode has bounded its digits
    else:
        raise _invalid('Invalid Request: "id" must be a string or an integer', status=200)
    raise _invalid(f'Invalid Request: "id" is longer than {ID_LIMIT} characters', status=200)


def _invalid(message: str, id: RequestId | None = None, status: int = 400) -> RemoteProtocolError:
    return RemoteProtocolError(ErrorCode.INVALID_REQUEST, message, id=id, status=status)


def _invalid_response(why: str, id: RequestId | None) -> RemoteProtocolError:
    """Its id is one of ours, so it is not sent back: the peer may use the same id for something else."""
    error = _invalid(f"Invalid answer: {why}")
    error.answers = id
    return error


# --- JSON between strangers: strict, bounded, and as fast as msgspec lets it be.
# `decode` accepts what every sane parser reads in the same way, and nothing else. Two parsers that disagree on a text are a hole
# between the code that checks a message and the code that acts on it, so duplicate keys, lone surrogates, NaN and numbers that are no double are
# refused, with a message that says what and where. `encode` writes one line.
# What the checks cost, on top of msgspec's own time: for a tool call of 160 bytes 1.0 µs (msgspec: 0.4), half of it the walk that counts
# the members of the result; for a blob of 3 MB 0.8 ms (msgspec: 0.5); for a megabyte of small rows about as much as msgspec
# itself. No string is ever looked into: the checks compare counts. A decoded value has as many members as its text has
# colons outside of strings, unless a key came twice, and what is outside of strings is every second piece between quotes.


_DIGITS = 308
"""More digits than this can be no double; another parser would make infinity of them."""

_TOO_MUCH = 10**_DIGITS

_SHORT = 2048

_encode = msgspec.json.Encoder().encode
_SHAPES = bytes.maketrans(b"123456789E+", b"000000000e-")
"""Of a text that is left with zeros for digits, the shapes of its numbers can be looked for."""
_HUGE = b"0" * (_DIGITS + 1)


def to_float(digits: str) -> float:
    """The double that a number stands for, in time that is linear in its length. Raises ValueError where there is none."""
    number = float(digits)
    if math.isinf(number):
        raise ValueError("Number out of range")
    return number


# msgspec takes up to 7 µs for a number that is close to the smallest or to the largest double, such as 8.5e-323: seconds for a message of 4 MB,
# where `float` takes a tenth of one. For other numbers msgspec is eight times as fast as with the hook.
_decode = msgspec.json.Decoder[Any](Any).decode
decode_checked: Final = msgspec.json.Decoder[Any](Any, float_hook=to_float).decode
"""The value of a text that came inside of a message which was checked: msgspec's decoder, its errors included, without its slow numbers."""


def decode(data: bytes, limits: MessageLimits = LIMITS) -> Any:
    """The value that a text stands for. Raises `RemoteProtocolError`, with the status as which it travels.

    What was well-formed, and refused all the same, is `Unacceptable`.
    """
    if len(data) > limits.size:
        raise _too_large(f"{len(data)} bytes", limits.size)
    # A short text is counted whole first, strings and all: that is cheaper, and mostly conclusive.
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
    """One line of JSON. NaN and infinity become null, as JavaScript has it; bytes become base64, and dates ISO 8601.

    Raises `LocalProtocolError` for what JSON has no way to say.
    """
    try:
        return _encode(value)
    except RecursionError:
        raise LocalProtocolError("cannot be written as JSON: it is nested too deeply, or contains itself") from None
    except UnicodeEncodeError as error:
        raise LocalProtocolError(
            f"cannot be written as JSON: half a character (surrogate) in a text: {error}"
        ) from None
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
    """The text without its strings: with escapes gone, every second piece between quotes is outside."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(data.split(b'"')[::2])


def _has_long_exponents(shapes: bytes) -> bool:
    """Whether there may be numbers that msgspec is slow with. Most long texts of numbers have no `e` outside of strings, which is found fastest."""
    return b"e" in shapes and (b"e000" in shapes or b"e-000" in shapes)


def _check_values(data: bytes, limits: MessageLimits) -> None:
    """Runs before decoding, since the memory is what it saves. On a broken text it may count wrong, which decoding finds."""
    skeleton = _without_strings(data)
    values = max(
        skeleton.count(b",") + skeleton.count(b":"),
        skeleton.count(b"[") + skeleton.count(b"{"),  # lists inside each other need neither comma nor colon
    )
    if values > limits.values:
        raise _too_large(f"{values} values", limits.values)


def _count_members(value: Any) -> int:
    """How many keys all objects in it have together."""
    found = 0
    left: list[Any] = [value]
    for inner in left:  # which grows as it is walked
        if type(inner) is dict:
            left += inner.values()
            found += inner.__len__()
        elif type(inner) is list:
            left += inner
    return found


def _members_and_depth(value: Any) -> tuple[int, int]:
    """The same, and how deep it is: level by level, where each pass over the brackets of the text would read nearly all of them again."""
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
            error = _unacceptable(f"the key {_quoted(keys.duplicate)} stands twice in one object")
            error.anonymous = keys.anonymous
            raise error


class _DuplicateKeys:
    """Looks for a key that stands twice in one object, through the slower eyes of a parser that shows them all."""

    def __init__(self) -> None:
        self.duplicate: str | None = None
        """The first that does."""
        self.anonymous = False
        """Whether that is the id of the outermost object."""

    def check_pairs(self, pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        self.anonymous = False  # the outermost object is the last to be looked at
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
    """What is wrong and where. msgspec is quick and terse; the details are looked up only now."""
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
        return "half a character: an escaped surrogate (\\ud800 to \\udfff) without its other half"
    if "out of range" in reason:
        return "a number that is too large"
    return reason[:1].lower() + reason[1:]


def _has_lone_surrogate(text: str) -> bool:
    """Whether that is all that is wrong: Python's own parser reads such a text and keeps the half."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        return False
    return False


def _quoted(text: str, limit: int = 60) -> str:
    """A peer's text for a message of ours: quoted, and never long."""
    return repr(text if len(text) <= limit else text[:limit] + "…")


# --- The id of a message that could not be taken, read from what is left of it.
# A message may be too long to be kept, or well-formed and refused all the same. Its sender waits for an answer, and an error without
# an id answers no request. The first and the last few bytes are enough, since all writers put the id at one end or the other; nothing is
# guessed: where the id cannot be told without doubt, there is none.

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
    """The error to answer an over-long message with, under its own id where that can be told."""
    error = RemoteProtocolError(
        ErrorCode.INVALID_REQUEST,
        f"Message too large: {what.length} bytes, the limit is {limit}",
        status=413,
    )
    return with_salvaged_id(error, what)


def with_salvaged_id(error: RemoteProtocolError, what: OversizedMessage) -> RemoteProtocolError:
    """The error, with the id that it is about."""
    if isinstance(error, Unacceptable) and error.anonymous:
        return error
    found = salvage_id(what.head, what.tail)
    if found.answers:
        error.answers = found.id
    else:
        error.id = found.id
    return error


class SalvagedId(NamedTuple):
    """What could be told."""

    id: str | int | None = None
    answers: bool = False
    """It is an answer, so the id is one of ours."""


def salvage_id(head: bytes, tail: bytes) -> SalvagedId:
    """The id of a message that begins with `head` and ends with `tail`. They may overlap; an empty tail says nothing."""
    keys = dict[bytes, bytes | None]()
    twice = _first_keys(head, keys)
    ids = {found for found in (keys.get(b'"id"'), _last_id(tail)) if found is not None}
    if twice or len(ids) != 1:
        return SalvagedId()
    request, answer = b'"method"' in keys, b'"result"' in keys or b'"error"' in keys
    if request == answer:  # both, or neither is in sight: it may be either
        return SalvagedId()
    try:
        return SalvagedId(msgspec.json.decode(ids.pop()), answer)
    except (ValueError, msgspec.MsgspecError):
        return SalvagedId()


def _first_keys(head: bytes, keys: dict[bytes, bytes | None]) -> bool:
    """Read the keys of the outermost object as far as the head goes, and the id's value; whether the id stands there twice."""
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
    """The id, if it is the last member: what is followed by the last brace of all belongs to the outermost object."""
    found = _LAST.search(tail)
    return found["id"] if found else None
