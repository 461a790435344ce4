"""The four things that peers say to each other, read from bytes and written to bytes. One message a value; no batches.

`parse` gives a `Request`, `Notification`, `Response` or `Failure`, or raises `RemoteProtocolError` with all that is needed to answer:
the code, the request's id where it can be trusted, and the HTTP status. The writers give one line without a line break in it.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import Struct, field

from .errors import ErrorCode, LocalProtocolError, McpError, PeerError, RemoteProtocolError, Unacceptable
from .json import LIMITS, Limits, decode, encode, is_object
from .sse import Overlong
from .versions import JSONRPC

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


class Request(Struct, frozen=True):
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


class Notification(Struct, frozen=True):
    """A message that wants no answer."""

    method: str
    params: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def meta(self) -> dict[str, Any]:
        """What stands in `params._meta`; empty when that is missing or no object."""
        return _meta(self.params)


class Response(Struct, frozen=True):
    """The answer to a request of ours."""

    id: RequestId
    result: dict[str, Any]


class Failure(Struct, frozen=True):
    """The answer to a request of ours is an error. Without an id, the peer could not tell which."""

    id: RequestId | None
    error: PeerError


Message: TypeAlias = Request | Notification | Response | Failure


def parse(data: bytes, limits: Limits = LIMITS) -> Message:
    """The one message in a frame. Raises `RemoteProtocolError`."""
    try:
        value = decode(data, limits)
    except Unacceptable as error:
        raise address(error, Overlong.of(data)) from None
    return classify(value)


def classify(value: Any) -> Message:
    """Which message a decoded frame is. Raises `RemoteProtocolError` for what is none."""
    if not is_object(value):
        if type(value) is list:
            raise _invalid("Batch requests are not supported: send one message at a time")
        raise _invalid("Invalid Request: a message is a JSON object")
    if "method" not in value:
        return _answer(value)
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
    return Notification(method, params) if id is None else Request(id, method, params)


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


def _answer(value: dict[str, Any]) -> Response | Failure:
    """A message without a method: the peer's answer. A broken one is reported, and names the request that it leaves unanswered."""
    id = value.get("id")
    known = id if type(id) is str or type(id) is int else None
    if "result" not in value and "error" not in value:
        raise _invalid('Invalid Request: "method" is missing', known)
    if value.get("jsonrpc") != JSONRPC:
        raise _broken_answer('"jsonrpc" must be "2.0"', known)
    if "error" in value:
        if "result" in value:
            raise _broken_answer("it has both a result and an error", known)
        if id is not None and known is None:
            raise _broken_answer('"id" must be a string or an integer', known)
        return Failure(known, PeerError.from_wire(value["error"]))
    if known is None:
        raise _broken_answer('"id" must be a string or an integer', known)
    result = value["result"]
    if not is_object(result):
        raise _broken_answer('"result" must be an object', known)
    return Response(known, result)


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


def _broken_answer(why: str, id: RequestId | None) -> RemoteProtocolError:
    """Its id is one of ours, so it is not sent back: the peer may use the same id for something else."""
    error = _invalid(f"Invalid answer: {why}")
    error.answers = id
    return error


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


def too_long(what: Overlong, limit: int) -> RemoteProtocolError:
    """The error to answer an over-long message with, under its own id where that can be told."""
    error = RemoteProtocolError(
        ErrorCode.INVALID_REQUEST,
        f"Message too large: {what.length} bytes, the limit is {limit}",
        status=413,
    )
    return address(error, what)


def address(error: RemoteProtocolError, what: Overlong) -> RemoteProtocolError:
    """The error, with the id that it is about."""
    if isinstance(error, Unacceptable) and error.anonymous:
        return error
    found = salvage(what.head, what.tail)
    if found.answers:
        error.answers = found.id
    else:
        error.id = found.id
    return error


class Salvaged(NamedTuple):
    """What could be told."""

    id: str | int | None = None
    answers: bool = False
    """It is an answer, so the id is one of ours."""


def salvage(head: bytes, tail: bytes) -> Salvaged:
    """The id of a message that begins with `head` and ends with `tail`. They may overlap; an empty tail says nothing."""
    keys = dict[bytes, bytes | None]()
    twice = _first_keys(head, keys)
    ids = {found for found in (keys.get(b'"id"'), _last_id(tail)) if found is not None}
    if twice or len(ids) != 1:
        return Salvaged()
    request, answer = b'"method"' in keys, b'"result"' in keys or b'"error"' in keys
    if request == answer:  # both, or neither is in sight: it may be either
        return Salvaged()
    try:
        return Salvaged(msgspec.json.decode(ids.pop()), answer)
    except (ValueError, msgspec.MsgspecError):
        return Salvaged()


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
