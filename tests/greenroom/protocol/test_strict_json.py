"""Strict JSON: nothing ambiguous or unbounded is accepted, and errors say what is wrong and where."""

from __future__ import annotations

import importlib
import inspect
import json
import math
import time
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.greenroom.protocol.python_json import python_says

from greenroom.protocol.errors import ErrorCode, LocalProtocolError, RemoteProtocolError, Unacceptable
from greenroom.protocol.jsonrpc import LIMITS, MessageLimits, decode, decode_checked, encode, is_object

DEEP = 64
BIG = 10**308


def attempt(data: bytes) -> Any:
    """The value, or the error."""
    try:
        return decode(data)
    except RemoteProtocolError as error:
        return error


# Any JSON value; strings without lone surrogates, numbers that are doubles or integers.
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-BIG + 1, BIG - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.text('":,[]{}\\/\b\n ', max_size=8)
)
KEYS = st.text(st.characters(exclude_categories=["Cs"])) | st.text('":,[]{}\\', max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20
)


def refusal(data: bytes, limits: MessageLimits = LIMITS) -> RemoteProtocolError:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(data, limits)
    return caught.value


@given(VALUES)
def test_an_encoded_value_is_decoded_to_an_equal_one(value: Any) -> None:
    line = encode(value)
    assert b"\n" not in line
    assert b"\r" not in line
    assert decode(line) == value


@given(VALUES, st.sampled_from([None, 2, "\t"]), st.booleans())
def test_every_spelling_of_a_value_is_that_value(value: Any, indent: Any, ascii_only: bool) -> None:  # noqa: FBT001
    assert decode(json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()) == value


SCRAPS = st.sampled_from(
    [
        *(
            b"{",
            b"}",
            b"[",
            b"]",
            b":",
            b",",
            b'"',
            b"\\",
            b"/",
            b" ",
            b"\n",
            b"\t",
            b"\x00",
            b"\x7f",
            b"\xff",
            b"\xc3\xa9",
            b"\xed\xa0\x80",
        ),
        *(b"0", b"1", b"-", b".", b"e", b"E5", b"+", b"9" * 20, b"9" * 309, b"1e400", b"1e-400", b"0.5", b"-0"),
        *(
            b'"a"',
            b'"a":',
            b'"b":1,',
            b'"a":1',
            b"true",
            b"false",
            b"null",
            b"NaN",
            b"Infinity",
            b"[]",
            b"{}",
            b"[1,2]",
            b'{"a":1}',
        ),
        *(
            b"\\u0000",
            b"\\ud800",
            b"\\ude00",
            b"\\ud83d\\ude00",
            b"\\n",
            b'\\"',
            b"\\x",
            b"\\u00",
            b"\xef\xbb\xbf",
            b"\xe2\x80\xa8",
        ),
    ]
)


@given(
    st.lists(SCRAPS, max_size=14).map(b"".join)
    | VALUES.map(lambda value: json.dumps(value).encode()).flatmap(
        lambda line: st.tuples(st.integers(0, len(line)), SCRAPS, st.integers(0, 3)).map(
            lambda cut: line[: cut[0]] + cut[1] + line[cut[0] + cut[2] :]
        )
    )
)
@example(b'{"a":1,"\\u0061":2}')
@example(b'{"a:":1,"b":":"}')
@example(b'["\\\\","\\"",{"x":"\\\\\\":"}]')
@example(b'"' + b"9" * 400 + b'"')
def test_texts_are_decoded_as_pythons_own_parser_does(data: bytes) -> None:
    try:
        expected = python_says(data)
    except (ValueError, RecursionError):
        error = refusal(data)
        assert error.code == ErrorCode.PARSE_ERROR
        assert error.status == 400
        assert error.message.startswith("Parse error: ")
        assert len(error.message) < 300
    else:
        assert decode(data) == expected
        assert repr(decode(data)) == repr(expected)  # tells 1 from 1.0, and 0.0 from -0.0


@given(st.binary(max_size=200))
def test_any_bytes_are_decoded_or_refused(data: bytes) -> None:
    found = attempt(data)
    assert not isinstance(found, RemoteProtocolError) or found.message


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "the message is empty"),
        (b" \r\n", "the message is empty"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a":"\xff"}', "not UTF-8: byte 0xff at 6"),
        (b'"\xed\xa0\x80"', "not UTF-8: byte 0xed at 1"),
        (b'{"a":1', "truncated"),
        (b'{"a":1}x', "trailing characters"),
        (b'{"a" 1}', "byte 5"),
        (b"{'a':1}", "object keys must be strings (byte 1)"),
        (b'{"a":NaN}', "byte 5"),
        (b"[Infinity]", "byte 1"),
        (b"[1,]", "trailing comma"),
        (b"01", "invalid number"),
        (b'"\\ud800"', "a lone surrogate"),
        (b'"\\ud800abcdefgh"', "a lone surrogate"),
        (b'"\\ude00"', "a lone surrogate"),
        (b'["\\ud83d"]', "a lone surrogate"),
        (b'{"\\udfff":1}', "a lone surrogate"),
        (b'"a\x01"', "byte 2"),
        (b"1e400", "a number that is too large"),
        (b"9" * 5000, "a number that is too large"),
        (b"9" * 309, "more than 308 digits"),
        (b"1" + b"0" * 308, "more than 308 digits"),
        (b"[[-" + b"9" * 309 + b"]]", "more than 308 digits"),
        (b'{"a":{"b":1,"c":2,"b":3}}', "the key 'b' occurs twice in one object"),
        (b'{"\\u0061":1,"a":2}', "the key 'a' occurs twice"),
        (b'{"":1,"":2}', "the key '' occurs twice"),
    ],
)
def test_a_refusal_names_the_mistake_and_its_place(data: bytes, said: str) -> None:
    error = refusal(data)
    assert said in error.message
    assert (error.code, error.status, error.id) == (ErrorCode.PARSE_ERROR, 400, None)


def test_a_long_key_is_not_sent_back_whole() -> None:
    key = b"k" * 5000
    assert len(refusal(b'{"' + key + b'":1,"' + key + b'":2}').message) < 150


def test_a_well_formed_text_that_is_refused_raises_unacceptable() -> None:
    for data in (b'{"a":1,"a":1}', b"[" * 65 + b"]" * 65, b"9" * 309):
        assert type(refusal(data)) is Unacceptable
    for data in (b"{", b"nul", b"\xff"):
        assert type(refusal(data)) is RemoteProtocolError


def test_depth_is_counted_in_objects_and_lists() -> None:
    for opened, closed in ((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":', b"}]")):
        levels = DEEP // opened.count(b"[") if opened.count(b"[") and opened.count(b"{") == 0 else DEEP
        times = levels // (opened.count(b"[") + opened.count(b"{"))
        decode(opened * times + b"0" + closed * times)
        assert "more than 64 deep" in refusal(opened * (times + 1) + b"0" + closed * (times + 1)).message


def test_width_is_not_depth() -> None:
    decode(b"[" + b",".join([b'{"a":[[],{}]}'] * 1000) + b"]")
    assert decode(b'{"text":"' + b"[{" * 500 + b'"}') == {"text": "[{" * 500}


@pytest.mark.parametrize("opened", [b"[", b'{"a":', b"[[[{"])
def test_endless_nesting_is_refused_however_it_ends(opened: bytes) -> None:
    for tail in (b"", b"1", b"]" * 100_000):
        assert refusal(opened * 100_000 + tail).code == ErrorCode.PARSE_ERROR


def test_size_is_refused_before_anything_is_read() -> None:
    error = refusal(b"\xff" * 11, MessageLimits(size=10))
    assert (error.code, error.status) == (ErrorCode.INVALID_REQUEST, 413)
    assert error.message == "Message too large: 11 bytes, the limit is 10"
    assert decode(b'"' + b"a" * 8 + b'"', MessageLimits(size=10)) == "a" * 8
    assert refusal(b" " * (LIMITS.size + 1)).status == 413


def test_limits_grow_with_the_size() -> None:
    assert MessageLimits.of_size(LIMITS.size) == LIMITS
    assert MessageLimits.of_size(80_000) == MessageLimits(size=80_000, values=10_000)
    assert MessageLimits.of_size(80) == MessageLimits(size=80, values=1024)


def test_the_number_of_values_is_bounded_before_they_take_memory() -> None:
    limits = MessageLimits(values=100)
    assert len(decode(b"[" + b"0," * 100 + b"0]", limits)) == 101
    error = refusal(b"[" + b"{}," * 101 + b"{}]", limits)
    assert (error.code, error.status) == (ErrorCode.INVALID_REQUEST, 413)
    assert error.message == "Message too large: 103 values, the limit is 100"
    assert refusal(b"[" + b"0," * 101 + b"0]", limits).message == "Message too large: 101 values, the limit is 100"
    assert decode(b'"' + b",:" * 500 + b'"', limits) == ",:" * 500
    assert decode(b'["\\"' + b",:" * 500 + b'\\\\"]', limits) == ['"' + ",:" * 500 + "\\"]
    assert refusal(b"[" + b"{}," * 600_000 + b"{}]").status == 413


@pytest.mark.parametrize(("opened", "closed"), [(b"[", b"]"), (b'{"":', b"}"), (b'[{"a":[', b"]}]"), (b"[ \n", b"\t]")])
def test_values_inside_each_other_are_counted(opened: bytes, closed: bytes) -> None:
    limits = MessageLimits(values=100)
    lists = opened.count(b"[") + opened.count(b"{")
    inside = opened * (40 // lists) + b"0" + closed * (40 // lists)
    assert decode(b"[" + inside + b"," + inside + b"]", limits)
    error = refusal(b"[" + inside + b"," + inside + b"," + inside + b"]", limits)
    assert (error.code, error.status) == (ErrorCode.INVALID_REQUEST, 413)
    assert decode(b'["' + b"[{" * 200 + b'"]', limits) == ["[{" * 200]


@pytest.mark.parametrize(
    "data",
    [
        b"[" * 4_000_000,
        b'{"a":' * 800_000,
        b"[" + b"[]," * 400_000 + b"[]]",
        b'"' + b"\\" * 4_000_000,
        b'"' + b'\\"' * 2_000_000,
        b'"' * 4_000_000,
        b'{"":' + b'"\\u0000",' * 400_000,
        b"9" * 4_000_000,
        b"[" + b"9" * 308 + (b"," + b"9" * 308) * 10_000 + b"]",
        b"-" * 4_000_000,
        b"{" + b",".join(b'"%d":0' % number for number in range(250_000)) + b',"0":1}',
        b"\xc3" * 4_000_000,
        b" " * 4_000_000,
        b'"' + b"\\ud800" * 600_000 + b'"',
        (b"[" * 60 + b"]" * 60 + b",") * 20_000,
    ],
    ids=lambda data: repr(data[:12]),
)
def test_four_hostile_megabytes_take_no_longer_than_ordinary_ones(data: bytes) -> None:
    begun = time.process_time()
    found = attempt(data)
    assert not isinstance(found, RemoteProtocolError) or len(found.message) < 300
    assert time.process_time() - begun < 3  # about 0.3 s here; what it must not be is quadratic


@pytest.mark.parametrize("padding", ["", "x" * 4000], ids=["short", "long"])
@pytest.mark.parametrize(
    "number",
    ["8.5e-323", "8.5E-323", "1e-0000320", "2.2250738585072011e-308", "9007199254740993.01E+0281", f"{10**19 + 1}e288"],
)
def test_numbers_that_msgspec_is_slow_with_are_read_by_python(
    number: str, padding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(data: bytes) -> Any:
        raise AssertionError(f"msgspec's own floats for {data[-40:]!r}")

    monkeypatch.setattr("greenroom.protocol.jsonrpc._decode", slow)
    assert decode(f'{{"{padding}": [{"1," * 400}{number}]}}'.encode())[padding][-1] == float(number)
    assert decode(f"[{number}]".encode()) == [float(number)]


def test_ordinary_floats_of_a_long_text_are_left_to_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(data: bytes) -> Any:
        raise AssertionError("eight times as slow for these")

    monkeypatch.setattr("greenroom.protocol.jsonrpc.decode_checked", slow)
    numbers = [1.5, 0.001, 1e-5, 1e99, 12345.678, True, False, None, 10**100, 1e16] * 50
    assert decode(encode({"e-323 1e308": numbers})) == {"e-323 1e308": numbers}


NUMBERS = st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,30})?([eE][+-]?0{0,3}[0-9]{1,3})?", fullmatch=True)


@given(numbers=st.lists(NUMBERS, min_size=1), long=st.booleans())
@example(numbers=["1e999"], long=False)
@example(numbers=["1e-999", "-0.0", "-0e-400", "1e23", "9007199254740993.0"], long=True)
def test_every_number_is_the_double_that_python_reads(numbers: list[str], long: bool) -> None:  # noqa: FBT001
    data = f"[{'1,' * 400 if long else ''}{','.join(numbers)}]".encode()
    try:
        expected = python_says(data)
    except ValueError:
        assert "too large" in refusal(data).message
        with pytest.raises(msgspec.DecodeError, match="out of range"):
            decode_checked(data)
    else:
        for found in (decode(data), decode_checked(data)):
            assert list(map(repr, found)) == list(map(repr, expected))


@pytest.mark.parametrize(
    "module", ["reply_values", "handler_results", "tool_formats", "validation"], ids=lambda name: name.replace("_", " ")
)
def test_all_modules_decode_nested_texts_with_decode_checked(module: str) -> None:
    """Nested texts are decoded by `decode_checked` only."""
    source = importlib.import_module(f"greenroom.protocol.{module}")
    assert source.decode_checked is decode_checked
    assert "json.decode(" not in inspect.getsource(source)


def test_encoding_an_impossible_value_is_a_local_error() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for value, said in (
        (object(), "object"),
        ("\ud800", "a lone surrogate"),
        ({"a": {"\udfff": 1}}, "a lone surrogate"),
        ({(1, 2): 3}, "keys"),
        (loop, "contains itself"),
        (msgspec.UNSET, ""),
    ):
        with pytest.raises(LocalProtocolError, match="cannot be written as JSON") as caught:
            encode(value)
        assert said in str(caught.value)


def test_nan_and_infinity_become_null() -> None:
    assert encode([math.nan, math.inf, -math.inf]) == b"[null,null,null]"


def test_only_an_object_is_an_object() -> None:
    assert is_object({})
    assert not any(map(is_object, ([], "", None, 0, [("a", 1)])))
