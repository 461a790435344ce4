"""Each regular expression of the product is proven linear, or listed with a reason, and the proof finds those that are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .expressions import BOUNDED, Unproven, expressions_are_linear, linear, uses
from .tree import Tree, current_tree

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"a*", "match"),
        (r"a*b", "match"),
        (r"a+", "finditer"),
        (r"[^a-z]+", "sub"),
        (r"\{[^{}]*\}", "finditer"),
        (r"(?:a|b)*c", "match"),
        (r"(?:ab)*(?:ba)*c", "match"),
        (r"a?a?a?b", "match"),
        (r"(?:a?)*b", "match"),
        (r"a*+a*b", "match"),  # a possessive repeat leaves nothing to the next
        (r"a*+[ab]*c", "fullmatch"),
        (r"\Aa*b", "search"),
        (r"(?m)^a*b", "finditer"),
        (r"a(?:.*b)?", "search"),  # the optional part cannot fail, so nothing is tried again
        (r"(?s)(.*?)x(.*)", "fullmatch"),
        (r"(.*?)x(?s:.*)", "fullmatch"),
        (r"(?:[^\"\\]|\\.)*", "match"),
        (r"\"[^\"\\]*(?:\\.[^\"\\]*)*\"?", "finditer"),
        (r"[\x21-\x7e]+(?:[ \t]+[\x21-\x7e]+)*[ \t]*", "fullmatch"),
        (r"a.{0,30}b", "search"),
    ],
)
def test_a_linear_expression_is_proven(pattern: str, method: str) -> None:
    assert linear(pattern, method=method)


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"(a*)*b", "match"),
        (r"(a|a)*b", "match"),
        (r"(?:x+x+)+y", "match"),
        (r"a*a*b", "match"),
        (r"\w+\s*\w+!", "match"),
        (r"(?i)k+K+z", "match"),
        (r"(?i)k+\u212a+z", "match"),  # the Kelvin sign is a k
        (r"(?:ab)*(?:ab)*c", "match"),
        (r"a{0,500}a{0,500}b", "match"),
        (r"(?:(?:a*b)?a)*", "match"),
        (r"a*b", "search"),
        (r"\s+$", "search"),
        (r"a*+b", "search"),  # a search starts at each position
        (r"(?m)^\s*a", "finditer"),  # a line may begin within the consumed text
        (r"\{.*?\}", "finditer"),
        (r"a(?:.*b)?", "finditer"),  # the text after a match is read again
        (r"\"(?:[^\"\\]|\\.)*\"", "finditer"),
        (r"(?s)(.*?)x(.*)y", "fullmatch"),
        (r":[ \t]*(x+)?[ \t]*", "fullmatch"),
        (r":[ \t]*([\x21-\x7e]+(?:[ \t]+[\x21-\x7e]+)*)?[ \t]*", "fullmatch"),
    ],
)
def test_an_expression_that_is_not_linear_is_noticed(pattern: str, method: str) -> None:
    assert not linear(pattern, method=method)
    assert "\\u" in pattern or not linear(pattern.encode(), method=method)


@pytest.mark.parametrize("pattern", [r"(a*)b\1", r"(?=.*a)b", r"(a)?(?(1)b|c)"])
def test_an_expression_with_unknown_parts_is_unproven(pattern: str) -> None:
    with pytest.raises(Unproven):
        linear(pattern)


def test_all_expressions_of_the_product_are_linear_or_bounded(root: Path) -> None:
    broken = expressions_are_linear(current_tree(root))
    assert not broken, "\n".join(broken)


def test_expressions_are_found(root: Path) -> None:
    tree = current_tree(root)
    found = [use for source in tree.sources for use in uses(source)]
    assert len(found) > 100
    assert {use.method for use in found} >= {"match", "fullmatch", "search", "sub", "finditer", "match at"}
    written = sum(source.text.count("re.compile(") for source in tree.sources)
    assert sum(use.method != "" for use in found) >= written


@pytest.mark.parametrize(
    "text",
    [
        'import re\n_A = re.compile(r"a*b")\ndef f(x): return _A.search(x)',
        'import re\n_A = re.compile(r"a*b")\ndef f(x): return g(_A)',
        'import re\nA = re.compile(r"a*b")\ndef f(x): return A.match(x)',
        'import re\ndef f(x): return re.sub(r"a*b", "", x)',
        'import re\n_W = "a*"\n_A = re.compile(_W + rf"{_W}b")\ndef f(x): return _A.match(x)',
        'import re\n_A = re.compile(rb"a*" rb"a*b")\ndef f(x): return _A.fullmatch(x)',
        'import re\n_A = re.compile("A*a*b", re.IGNORECASE)\ndef f(x): return _A.match(x)',
        'import re\n_A = re.compile("A*a*b", flags=re.I)\ndef f(x): return _A.match(x)',
        'import re\n_A = re.compile("a(?:.*c)?")\ndef f(x): return _A.match(x, 3) or _A.sub("", x)',
        "import re\ndef f(x, y): return re.match(y, x)",
        "from re import compile as c\n_A = c('a')",
        "import re as regular\n_A = regular.compile('a*b')",
        "import msgspec\nA = Annotated[str, msgspec.Meta(pattern='a*b')]",
        "import msgspec\nA = Annotated[str, Meta(pattern=whatever)]",
    ],
)
def test_code_with_an_unproven_expression_is_refused(text: str) -> None:
    assert expressions_are_linear(Tree({"auth/a.py": text}))


@pytest.mark.parametrize(
    "text",
    [
        'import re\n_A = re.compile(r"a*b")\ndef f(x): return _A.match(x)',
        'import re\n_A = re.compile(r"a*b")\nf = _A.fullmatch',
        'import re\n_A = re.compile(r"a*b", re.A)\ndef f(x): return _A.match(x), _A.pattern',
        "import re\n_W = 'a'\ndef f(x): return re.split(rf'{_W}+', x)",
    ],
)
def test_code_with_linear_expressions_is_allowed(text: str) -> None:
    assert expressions_are_linear(Tree({"auth/a.py": text})) == []


def test_an_entry_for_an_expression_that_is_gone_is_noticed() -> None:
    path, _ = next(iter(BOUNDED))
    assert any("take it out" in line for line in expressions_are_linear(Tree({path: "import re\nre.compile('a')"})))
