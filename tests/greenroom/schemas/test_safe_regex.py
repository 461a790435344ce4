"""Patterns in JSON Schema's dialect: the same matches as in other engines, in bounded time."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol import safe_regex
from greenroom.protocol.safe_regex import BadPattern, Pattern, TextTooLong, parse_pattern, to_python
from greenroom.protocol.validation_errors import StepMeter

ATOMS = [
    "a",
    "b",
    "[ab]",
    "[^a]",
    ".",
    "(a|b)",
    "(?:ab)",
    "a*",
    "b+",
    "a?",
    "(?:a|bb)*",
    "a{1,2}",
    "^",
    "$",
    r"\b",
    "(a*)*",
    "()",
    "|",
]


@given(st.lists(st.sampled_from(ATOMS), max_size=6).map("".join), st.text("abc -", max_size=8))
def test_both_ways_to_match_agree_with_python(source: str, text: str) -> None:
    expected = re.search(source.replace("$", r"\Z"), text) is not None
    pattern = Pattern(source)
    assert pattern.search(text) is expected
    assert safe_regex._Automaton(pattern._tree).search(text, StepMeter()) is expected


@given(st.text(max_size=12))
def test_any_text_is_a_pattern_or_a_bad_one(source: str) -> None:
    try:
        pattern = Pattern(source)
    except BadPattern as refused:
        assert str(refused)
    else:
        assert pattern.search("abc") in (True, False)


@pytest.mark.parametrize(
    ("source", "yes", "no"),
    [
        ("a$", ["a"], ["a\n"]),
        (r"^\d+$", ["3"], ["٣"]),
        (r"^\w+$", ["a_1"], ["ä"]),
        (r"^\s$", ["\u00a0", "\ufeff"], ["a"]),
        (r"^\p{L}+$", ["äöü"], ["a1"]),
        (r"^\p{Lu}\P{Lu}$", ["Aa"], ["aa", "AA"]),
        (r"^[\p{N}x]+$", ["x1٣"], ["y"]),
        (r"^\u00e4\x41\u{1F600}\cJ\0$", ["äA😀\n\0"], ["a"]),
        (r"^[^\d\-a]+$", ["b_"], ["1", "-", "a"]),
        (r"^[a\-z]+$", ["-"], ["b"]),
        (r"^[\w.-]+@[\w-]+\.[a-z]{2,}$", ["a.b@c-d.org"], ["a@b"]),
        (r"^[\D]$", ["a"], ["1"]),
        ("^.$", ["ä"], ["\n", "\u2028"]),
        (r"^(?<x>a)\k<x>\1$", ["aaa"], ["aa"]),
        (r"^(?=.*\d)(?=.*[A-Z])(?!.*\s).{4,}$", ["Abc1"], ["abc1", "Abc 1"]),
        (r"(?<=a)b(?<!c)", ["ab"], ["b"]),
        ("a{2}", ["aa"], ["a"]),
        ("a{2,}b", ["aaab"], ["ab"]),
        ("a{,2}", ["a{,2}"], ["aa"]),
        ("x{", ["x{"], ["x"]),
        ("[]a", [], ["a", "]a"]),
        ("", ["", "a"], []),
        (r"\/\.\*\(\)", ["/.*()"], ["a"]),
        (r"[\b]", ["\b"], ["b"]),
        (r"^a??b*?$", ["b", "ab"], ["aa"]),
    ],
)  # fmt: skip
def test_the_dialect(source: str, yes: list[str], no: list[str]) -> None:
    for text in yes:
        assert Pattern(source).search(text), text
    for text in no:
        assert not Pattern(source).search(text), text


@pytest.mark.parametrize(
    "source",
    ["(", ")", "a)", "[a", "[", "*", "a**", "^*", "a{3,2}", "(?i)a", "(?P<a>b)", r"\Z", r"\q", "\\", "[b-a]", r"\u{110000}",
     "(" * 100 + ")" * 100, "(?:a{1000}){1000}|(b|bb)*", "((?=a))*b", r"(a*)\1+*", r"((a|b)*)\1"],
)  # fmt: skip
def test_bad_patterns_say_why(source: str) -> None:
    with pytest.raises(BadPattern, match=r"[a-z]{3} [a-z]"):
        Pattern(source)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("^(a+)+$", "a" * 10_000 + "b"),
        ("(a|a)*b", "a" * 10_000),
        ("(.*)(.*)(.*)(.*)(.*)=x", "a" * 10_000),
        (r"\s+$", " " * 50_000 + "x"),
        (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 10_000),
        (r"(x+x+)+y", "x" * 10_000),
        (r"^([a-zA-Z0-9])(([\-.]|[_]+)?([a-zA-Z0-9]+))*(@){1}[a-z0-9]+[.]{1}(([a-z]{2,3})|([a-z]{2,3}[.]{1}[a-z]{2,3}))$", "a" * 5_000),
    ],
)  # fmt: skip
def test_known_hostile_patterns_match_quickly(source: str, text: str) -> None:
    began = time.process_time()
    assert not Pattern(source).search(text)
    assert time.process_time() - began < 5


def test_patterns_that_need_re_have_a_text_limit() -> None:
    pattern = Pattern(r"(?=.*a.*b).*c.*d")
    assert pattern.search("abcd")
    with pytest.raises(TextTooLong, match="100000 characters are too many"):
        pattern.search("a" * 100_000)


def test_patterns_that_python_cannot_express_use_the_automaton() -> None:
    assert to_python(parse_pattern(r"\p{L}")) is None
    assert to_python(parse_pattern("a+")) is not None
