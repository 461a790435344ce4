"""JSON: accepted texts and their values agree with Python's own parser; limits are exact to the byte, level and value."""

from __future__ import annotations

import json
from typing import Any

from tests.fuzz.fuzz_target import Target, is_list, numbers, seeded
from tests.greenroom.protocol.python_json import python_says

from greenroom.protocol.errors import ErrorCode, RemoteProtocolError
from greenroom.protocol.jsonrpc import LIMITS, MessageLimits, decode, encode, is_object

TOO_DEEP = 64

TEXTS = (
    b'{"a":[1,2.5,-0,1e10,true,false,null,"\\u00e9\\ud83d\\ude00\\n"],"b":{"c":{}}}',
    b'{"a":1,"\\u0061":2}',
    b'["\\\\","\\"",{"x":"\\\\\\":"}]',
    b"[" * 64 + b"]" * 64,
    b"[" * 65 + b"]" * 65,
    b"9" * 308,
    b"-" + b"9" * 309,
    b"[1e308,1e309,5e-324,1E400]",
    b' \t\r\n{ "a" : [ ] , "b" : { } }\n',
    b'"\xed\xa0\x80"',
    b'"\\ud800"',
    b"\xef\xbb\xbf{}",
    b"[NaN,Infinity,-Infinity]",
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":"b"}}}',
    json.dumps({"a" * 30: ["," * 30, {":": "{[" * 20}]}).encode(),
    b'"' + b"x" * 2100 + b'",',
)
WORDS = (
    *(
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b'"',
        b"\\",
        b"null",
        b"true",
        b"false",
        b"NaN",
        b"Infinity",
        b"-",
        b"e",
        b".",
    ),
    *(
        b"\\ud800",
        b"\\udc00",
        b"\\u0000",
        b"\\u",
        b'\\"',
        b"\\\\",
        b'{"a":',
        b'"a":1,',
        b"1e400",
        b"9" * 309,
        b"0" * 309,
    ),
    *(b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\x7f", b"\x00", b" ", b"\n", b"1" * 4300),
)


def check(data: bytes) -> None:
    front, text = numbers(data, 3)
    try:
        expected = python_says(text)
    except (ValueError, RecursionError):
        refused(text, LIMITS)
        return
    depth, values = measure(expected)
    if depth > TOO_DEEP:
        refused(text, LIMITS)
        return
    value = decode(text)
    assert repr(value) == repr(expected)  # tells 1 from 1.0, and 0.0 from -0.0
    written = encode(value)
    assert b"\n" not in written
    assert repr(decode(written, MessageLimits(size=len(written)))) == repr(value)
    limits = MessageLimits(size=front[0] * 16, depth=front[1] % 70, values=front[2])
    if len(text) > limits.size or depth > limits.depth or values > limits.values:
        error = refused(text, limits)
        assert (error.status == 413) == (len(text) > limits.size or values > limits.values)
    else:
        assert repr(decode(text, limits)) == repr(value)


def refused(text: bytes, limits: MessageLimits) -> RemoteProtocolError:
    try:
        value = decode(text, limits)
    except RemoteProtocolError as error:
        assert error.code in (ErrorCode.PARSE_ERROR, ErrorCode.INVALID_REQUEST)
        assert error.status in (400, 413)
        assert 0 < len(error.message) < 300
        encode(error.message)
        return error
    raise AssertionError(f"taken: {value!r}")


def measure(value: Any) -> tuple[int, int]:
    """The depth, and the larger of the number of separators and of opening brackets."""
    depth = marks = opened = 0
    level = [value]
    while level := [each for each in level if is_object(each) or is_list(each)]:
        depth += 1
        opened += len(level)
        marks += sum(max(0, (2 if is_object(each) else 1) * len(each) - 1) for each in level)
        level = [inner for each in level for inner in (each.values() if is_object(each) else each)]
    return depth, max(marks, opened)


TARGET = Target("values", check, lambda: seeded(TEXTS, b"\xff\xff\xff", b"\x05\x03\x04"), WORDS, longest=6000)
