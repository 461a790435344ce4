"""Positions of keys in TOML and JSON: the scanner finds the same keys as the standard library, each at its place."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from greenroom.config.parsed_file import InvalidJson, JsonParser, LineNumbers, TomlPositions
from greenroom.protocol.serialization import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from greenroom.config.parsed_file import KeyPath

BARE = st.from_regex(r"\A[A-Za-z0-9_-]{1,6}\Z")
PLAIN = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
QUOTED = PLAIN.map(lambda text: json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f"))
LITERAL = st.from_regex(r"\A'[ -&(-~]{0,8}'\Z")
KEY = st.one_of(BARE, QUOTED, LITERAL)
BLANK = st.sampled_from(["", " ", "\t", "  "])
SPACE = st.lists(st.sampled_from([" ", "\n", "# [not] = 'a key' ]\n", "\r\n", "\t"]), max_size=3).map("".join)
SCALAR = st.one_of(
    QUOTED,
    LITERAL,
    st.sampled_from(
        ["1", "-0.5e3", "true", "inf", "1979-05-27 07:32:00", "1979-05-27T07:32:00Z", "07:32:00", "0x1F", "nan"]
    ),
    st.sampled_from(['"""a\n# no\n"]=\\""""', "'''\nx ] } = # \n''''", '"""quotes: """""', "'''a''b'''", '""""x"""']),
)


@st.composite
def lists(draw: st.DrawFn, inside: st.SearchStrategy[str]) -> str:
    items = draw(st.lists(inside, max_size=3))
    body = "".join(f"{draw(SPACE)}{item}{draw(SPACE)}," for item in items)
    return f"[{body}{draw(SPACE)}]"


@st.composite
def inline(draw: st.DrawFn, inside: st.SearchStrategy[str]) -> str:
    pairs = draw(st.lists(st.tuples(KEY, inside.filter(lambda text: "\n" not in text)), max_size=3))
    return (
        "{"
        + ",".join(f"{draw(BLANK)}{key}{draw(BLANK)}={draw(BLANK)}{value}{draw(BLANK)}" for key, value in pairs)
        + "}"
    )


VALUE = st.recursive(SCALAR, lambda inside: st.one_of(lists(inside), inline(inside)), max_leaves=6)
DOTTED = st.tuples(st.lists(KEY, min_size=1, max_size=3), BLANK).map(lambda told: f"{told[1]}.{told[1]}".join(told[0]))
LINE = st.one_of(
    st.tuples(DOTTED, BLANK, VALUE).map(lambda told: f"{told[0]}{told[1]}={told[1]}{told[2]}"),
    DOTTED.map(lambda key: f"[ {key} ]"),
    DOTTED.map(lambda key: f"[[{key}]] # said"),
    st.sampled_from(["", "# a comment", "  "]),
)
TOML = st.lists(LINE, max_size=8).map("\n".join)


def paths(value: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    """The paths of all keys and items in a value."""
    if path:
        yield path
    if is_object(value):
        for key, one in value.items():
            yield from paths(one, (*path, key))
    elif is_array(value):
        for index, one in enumerate(value):
            yield from paths(one, (*path, index))


def read_toml(text: str) -> Any:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


@given(TOML)
@example('a = [ { b.c = 1 }, """\n""" ]\n[[x]]\n[x.y]\n[[x]]\n[x.y.z]')
@example("a = 1\r\nb = [\r\n1,\r\n# c\r\n2]")
def test_the_finder_finds_what_the_reader_finds(text: str) -> None:
    value = read_toml(text)
    if value is not None:
        assert set(TomlPositions(text).positions) == set(paths(value))


@pytest.mark.deep
@given(st.lists(st.tuples(st.integers(1, 3), VALUE), max_size=5))
def test_each_key_is_where_it_is_written(pairs: list[tuple[int, str]]) -> None:
    names = [[f"k{number}_{depth}_" for depth in range(deep + 1)] for number, (deep, _) in enumerate(pairs)]
    text = "\n".join(
        f"[{'.'.join(keys[:-1])}]\n{keys[-1]} = {value}" for keys, (_, value) in zip(names, pairs, strict=True)
    )
    assume(read_toml(text) is not None)
    found = TomlPositions(text).positions
    for keys in names:
        for depth, key in enumerate(keys, 1):
            assert found[tuple(keys[:depth])] == text.index(key)


def test_every_item_of_a_list_has_its_line() -> None:
    text = 'args = [\n  "a", # one\n  ["b",\n "c"],\n]\n[[t]]\nx = 1\n\n[[t]]\ny = { z = [3] }\n'
    found, lines = TomlPositions(text).positions, LineNumbers(text)
    assert {path: lines.of(offset) for path, offset in found.items()} == {
        ("args",): 1,
        ("args", 0): 2,
        ("args", 1): 3,
        ("args", 1, 0): 3,
        ("args", 1, 1): 4,
        ("t",): 6,
        ("t", 0): 6,
        ("t", 0, "x"): 7,
        ("t", 1): 9,
        ("t", 1, "y"): 10,
        ("t", 1, "y", "z"): 10,
        ("t", 1, "y", "z", 0): 10,
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | PLAIN,
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(PLAIN, inside, max_size=4),
)


@given(JSON, st.sampled_from([None, 2, "\t"]))
def test_json_has_the_very_same_value(value: Any, indent: Any) -> None:
    text = json.dumps(value, indent=indent)
    found = JsonParser(text)
    assert found.value == value
    assert found.twice == []
    assert set(found.positions) - {()} == set(paths(value))


@given(st.text('[]{}:,"0123-.eE \ntruefalsn\\/u', max_size=24))
def test_the_json_parser_accepts_json_with_comments_and_trailing_commas_only(text: str) -> None:
    try:
        strict = json.loads(text, parse_constant=lambda _: pytest.fail("no JSON"))
    except (ValueError, pytest.fail.Exception):
        strict = NotImplemented
    try:
        ours = JsonParser(text).value
    except InvalidJson:
        ours = NotImplemented
    if strict is not NotImplemented:
        assert ours == strict
    elif ours is not NotImplemented:
        assert "," in text or "//" in text or "/*" in text


COMMENTED = """// what an editor lets people write
{
  /* servers: { */
  "mcpServers": { "git": {"command": "uvx", "args": ["a", "b",],}, }, // the end
}
"""


def test_comments_and_a_comma_too_many_are_read_with_their_lines() -> None:
    found = JsonParser(COMMENTED)
    assert found.value == {"mcpServers": {"git": {"command": "uvx", "args": ["a", "b"]}}}
    assert LineNumbers(COMMENTED).of(found.positions["mcpServers", "git"]) == 4


def test_a_key_that_comes_twice_is_told_with_both_places() -> None:
    found = JsonParser('{"a": 1,\n"b": {"c": 1, "c": 2}, "a": 3}')
    assert found.value == {"a": 3, "b": {"c": 2}}
    assert [path for path, _, _ in found.twice] == [("b", "c"), ("a",)]
    assert found.twice[1][1:] == (1, 32)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "ends before"),
        ('{"a": 1', "ends before"),
        ('{"a" 1}', "colon"),
        ("{a: 1}", "name in quotes"),
        ('{"a": NaN}', "a value"),
        ('{"a": 1} 2', "follows after the end"),
        ('["a" "b"]', "a comma"),
        ('"a\nb"', "does not end on its line"),
        ('"\\ud800"', "surrogate"),
        ("[" * 100, "nested more than"),
        ("1" * 400, "digits"),
    ],
)
def test_invalid_json_is_reported_with_its_position(text: str, what: str) -> None:
    with pytest.raises(InvalidJson, match=what):
        JsonParser(text)
