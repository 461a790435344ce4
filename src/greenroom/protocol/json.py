"""JSON between strangers: strict, bounded, and as fast as msgspec lets it be.

`decode` accepts what every sane parser reads in the same way, and nothing else. Two parsers that disagree on a text are a hole
between the code that checks a message and the code that acts on it, so duplicate keys, lone surrogates, NaN and numbers that are no double are
refused, with a message that says what and where. `encode` writes one line.

What the checks cost, on top of msgspec's own time: for a tool call of 160 bytes 1.0 µs (msgspec: 0.4), half of it the walk that counts
the members of the result; for a blob of 3 MB 0.8 ms (msgspec: 0.5); for a megabyte of small rows about as much as msgspec
itself. No string is ever looked into: the checks compare counts. A decoded value has as many members as its text has
colons outside of strings, unless a key came twice, and what is outside of strings is every second piece between quotes.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final, NamedTuple, TypeGuard

import msgspec

from .errors import ErrorCode, LocalProtocolError, RemoteProtocolError, Unacceptable


class Limits(NamedTuple):
    """How much one message may be."""

    size: int = 4 * 1024 * 1024
    """Bytes."""
    depth: int = 64
    """Objects and lists inside each other."""
    values: int = 512 * 1024
    """Members and items in all, and lists and objects: three bytes can make an object of a hundred."""

    @classmethod
    def of_size(cls, size: int) -> Limits:
        """For messages of so many bytes: a value for every eight of them, and a thousand in any case."""
        return cls(size=size, values=max(size // 8, 1024))


LIMITS = Limits()

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
read: Final = msgspec.json.Decoder[Any](Any, float_hook=to_float).decode
"""The value of a text that came inside of a message which was checked: msgspec's decoder, its errors included, without its slow numbers."""


def decode(data: bytes, limits: Limits = LIMITS) -> Any:
    """The value that a text stands for. Raises `RemoteProtocolError`, with the status as which it travels.

    What was well-formed, and refused all the same, is `Unacceptable`.
    """
    if len(data) > limits.size:
        raise _too_large(f"{len(data)} bytes", limits.size)
    # A short text is counted whole first, strings and all: that is cheaper, and mostly conclusive.
    outside = data if len(data) <= _SHORT else _outside_strings(data)
    if len(outside) > limits.values:
        _check_values(data, limits)
    shapes = outside.translate(_SHAPES) if len(outside) > _DIGITS else b""
    try:
        value = (_decode if shapes and not _has_long_exponents(shapes) else read)(data)
    except RecursionError:
        raise _too_deep(limits) from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise _parse_error(_complaint(data, error)) from None
    if outside.count(b"[") + outside.count(b"{") > limits.depth:
        members, depth = _measured(value)
        if depth > limits.depth:
            raise _too_deep(limits)
    else:
        members = _members(value)
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


def _too_deep(limits: Limits) -> Unacceptable:
    return _unacceptable(f"objects and lists are nested more than {limits.depth} deep")


def _outside_strings(data: bytes) -> bytes:
    """The text without its strings: with escapes gone, every second piece between quotes is outside."""
    if b"\\" in data:
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(data.split(b'"')[::2])


def _has_long_exponents(shapes: bytes) -> bool:
    """Whether there may be numbers that msgspec is slow with. Most long texts of numbers have no `e` outside of strings, which is found fastest."""
    return b"e" in shapes and (b"e000" in shapes or b"e-000" in shapes)


def _check_values(data: bytes, limits: Limits) -> None:
    """Runs before decoding, since the memory is what it saves. On a broken text it may count wrong, which decoding finds."""
    skeleton = _outside_strings(data)
    values = max(
        skeleton.count(b",") + skeleton.count(b":"),
        skeleton.count(b"[") + skeleton.count(b"{"),  # lists inside each other need neither comma nor colon
    )
    if values > limits.values:
        raise _too_large(f"{values} values", limits.values)


def _members(value: Any) -> int:
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


def _measured(value: Any) -> tuple[int, int]:
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
    if _outside_strings(data).count(b":") != members:
        keys = _Keys()
        json.loads(data, object_pairs_hook=keys.look)
        if keys.twice is not None:
            error = _unacceptable(f"the key {_short(keys.twice)} stands twice in one object")
            error.anonymous = keys.anonymous
            raise error


class _Keys:
    """Looks for a key that stands twice in one object, through the slower eyes of a parser that shows them all."""

    def __init__(self) -> None:
        self.twice: str | None = None
        """The first that does."""
        self.anonymous = False
        """Whether that is the id of the outermost object."""

    def look(self, pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        self.anonymous = False  # the outermost object is the last to be looked at
        for key, _ in pairs:
            if key in seen:
                self.twice = key if self.twice is None else self.twice
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


def _complaint(data: bytes, error: Exception) -> str:
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


def _short(text: str, limit: int = 60) -> str:
    """A peer's text for a message of ours: quoted, and never long."""
    return repr(text if len(text) <= limit else text[:limit] + "…")
