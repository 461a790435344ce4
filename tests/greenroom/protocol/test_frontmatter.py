"""The frontmatter of skills: what is understood is what every reader of YAML understands, and everything else is refused with its line."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.protocol.frontmatter import FRONTMATTER_LIMIT, BadFrontmatter, read_frontmatter
from greenroom.protocol.serialization import is_array


def read(*lines: str) -> dict[str, Any]:
    return read_frontmatter("\n".join(["---", *lines, "---", "", "# The body"]))


# The values were compared with what the npm package yaml 2 (YAML 1.2) and PyYAML 6 (YAML 1.1) read.
@pytest.mark.row("26-X2")
@pytest.mark.parametrize(
    ("lines", "value"),
    [
        (["name: refunds"], {"name": "refunds"}),
        (["name: refunds   # a comment"], {"name": "refunds"}),
        (["# a comment", "", "name: a", "   # another", "b: c"], {"name": "a", "b": "c"}),
        (["a: C# and F#"], {"a": "C# and F#"}),
        (["a: x:y", "b: http://x.y/z?q=[1]"], {"a": "x:y", "b": "http://x.y/z?q=[1]"}),
        (["a: Extracts text, tables; and [more]."], {"a": "Extracts text, tables; and [more]."}),
        (["allowed-tools: Bash(git:*) Read"], {"allowed-tools": "Bash(git:*) Read"}),
        (['a: "q: \\"\\u00e9\\" \\x41\\n"', "b: 'it''s # here'"], {"a": 'q: "é" A\n', "b": "it's # here"}),
        (['"a key": 1', "'b''s': 2", "x/y.z: 3"], {"a key": 1, "b's": 2, "x/y.z": 3}),
        (["a: 3", "b: -5", "c: 0", "d: 1.50", "e: -0.25"], {"a": 3, "b": -5, "c": 0, "d": 1.5, "e": -0.25}),
        (["a: 1.2.3", "b: 3 steps", "c: 2nd", "d: v1"], {"a": "1.2.3", "b": "3 steps", "c": "2nd", "d": "v1"}),
        (["a: true", "b: false", "c: null", "d:", "e: ''"], {"a": True, "b": False, "c": None, "d": None, "e": ""}),
        (["a: [x, 'y, z', 3, true]", "b: []", "c: {}"], {"a": ["x", "y, z", 3, True], "b": [], "c": {}}),
        (["a:", "  - x", "  - 'y'", "b:", "- 1", "- null"], {"a": ["x", "y"], "b": [1, None]}),
        (
            ["metadata:", "  author: x", "  deep:", "    er: 1", "b: 2"],
            {"metadata": {"author": "x", "deep": {"er": 1}}, "b": 2},
        ),
        (["a: |", "  one", "   two", "", "  three", "b: 1"], {"a": "one\n two\n\nthree\n", "b": 1}),
        (["a: >", "  one", "  two", "", "  three", "b: 1"], {"a": "one two\nthree\n", "b": 1}),
        (["a: >-", "  one", "  two", ""], {"a": "one two"}),
        (["a: |+", "  one", "", "b: 1"], {"a": "one\n\n", "b": 1}),
        (["a: |-", "b: 1"], {"a": "", "b": 1}),
        (["a: |-", "  # no comment", "  - no item"], {"a": "# no comment\n- no item"}),
        ([], {}),
    ],
)
def test_what_is_understood_has_the_value_that_yaml_gives_it(lines: list[str], value: Any) -> None:
    assert read(*lines) == value
    assert read_frontmatter("\r\n".join(["---", *lines, "---", "body"])) == value


@pytest.mark.row("26-X2")
@pytest.mark.parametrize(
    ("lines", "line", "why"),
    [
        (["a: yes"], 2, "quote it"),
        (["a: 1", "b: Off"], 3, "quote it"),
        (["a: ~"], 2, "quote it"),
        (["a: 2026-01-31"], 2, "quote it"),
        (["a: 1:30"], 2, "quote it"),
        (["a: 017"], 2, "quote it"),
        (["a: 0o17"], 2, "quote it"),
        (["a: 0x1F"], 2, "quote it"),
        (["a: 1e3"], 2, "quote it"),
        (["a: 1_000"], 2, "quote it"),
        (["a: +3"], 2, "quote it"),
        (["a: .5"], 2, "quote it"),
        (["a: .inf"], 2, "quote it"),
        (["a: 12345678901234567890"], 2, "quote it"),
        (["yes: 1"], 2, "quote it"),
        (["null: 1"], 2, "quote it"),
        (["a: True"], 2, "in lower case"),
        (["a: x: y"], 2, "double quotes"),
        (["a: ends:"], 2, "double quotes"),
        (["a: &anchor x"], 2, "double quotes"),
        (["a: *alias"], 2, "double quotes"),
        (["a: !tag x"], 2, "double quotes"),
        (["a: {x: 1}"], 2, "double quotes"),
        (["a: @x"], 2, "double quotes"),
        (["a: [x, [y]]"], 2, "double quotes"),
        (["a: [x,, y]"], 2, "an item of the list is empty"),
        (["a: [x, y"], 2, 'must end with "]"'),
        (["a: ['x' y]"], 2, "a comma"),
        (["a: - x"], 2, "on the line below"),
        (["a: 'x", "  y'"], 2, "does not end on its line"),
        (['a: "x" y'], 2, "after the closing quote"),
        (['a: "\\q"'], 2, "no escape"),
        (['a: "\\ud800"'], 2, "does not name a character"),
        (["a: one", "  two"], 3, "continues the one before it"),
        (["  a: 1"], 2, "indented too far"),
        (["a: 1", "a: 2"], 3, "there twice"),
        (["a:", "  b: 1", " c: 2"], 4, "indented"),
        (["a:", "  - x", "    y: 1"], 4, "indented"),
        (["a:", "  - b: 1"], 3, "double quotes"),
        (["a:", "  - - b"], 3, "one value on its line"),
        (["a:", "  - |"], 3, "one value on its line"),
        (["- x"], 2, "indented in another way"),
        (["just text"], 2, '"key: value"'),
        (["a:b"], 2, '"key: value"'),
        (["? a"], 2, '"key: value"'),
        (["<<: x"], 2, '"key: value"'),
        (["a:\t1"], 2, "tab"),
        (["\ta: 1"], 2, "tab"),
        (["a: x\x00y"], 2, "control character"),
        (["a: x\u2028y"], 2, "control character"),
        (["a: |", "  last"], 2, 'write "|-"'),
        (["a: >2", "  x", "b: 1"], 2, 'write ">"'),
        (["a: >", "  x", "    y", "b: 1"], 4, "indented further"),
        (["a: |", "  x", "     ", "b: 1"], 4, "make it empty"),
        (["a:", *(f"{' ' * n}k:" for n in range(1, 40))], 18, "levels"),
    ],
)
def test_what_readers_of_yaml_read_differently_is_refused_with_its_line(lines: list[str], line: int, why: str) -> None:
    with pytest.raises(BadFrontmatter) as refused:
        read(*lines)
    assert why in refused.value.problem
    assert refused.value.line == line
    assert str(refused.value).startswith(f"line {line}: ")


@pytest.mark.row("26-X2")
@pytest.mark.parametrize(
    "text", ["", "# A title\n", "\ufeff---\na: 1\n---\n", "--- x\na: 1\n---\n", "---\na: 1\n", "\n---\na: 1\n---\n"]
)
def test_a_file_without_a_frontmatter_is_refused(text: str) -> None:
    with pytest.raises(BadFrontmatter, match="---"):
        read_frontmatter(text)


@pytest.mark.row("26-X2")
@given(st.text() | st.text(alphabet="ab: -\n#|>'\"[]{}\\&*!?,.01\t~"))
@settings(max_examples=examples(1000))
def test_any_text_is_read_or_refused(text: str) -> None:
    for whole in (text, f"---\n{text}\n---\n"):
        try:
            found = read_frontmatter(whole)
        except BadFrontmatter as refused:
            assert 1 <= refused.line <= whole.count("\n") + 1
        else:
            json.dumps(found, allow_nan=False).encode()


def quoted(value: Any) -> str:
    """A value as JSON, with the escapes of YAML for characters that are not ASCII."""
    if is_array(value):
        return f"[{', '.join(map(quoted, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    return '"' + "".join(json.dumps(each)[1:-1] if each < "\x7f" else f"\\U{ord(each):08x}" for each in value) + '"'


SCALARS = st.none() | st.booleans() | st.integers(-(10**15) + 1, 10**15 - 1) | st.text(st.characters(codec="utf-8"))


@pytest.mark.row("26-X2")
@given(st.dictionaries(st.text(st.characters(codec="utf-8")), SCALARS | st.lists(SCALARS)))
@settings(max_examples=examples(300))
def test_what_is_written_as_json_on_each_line_comes_back(value: dict[str, Any]) -> None:
    assert read(*(f"{quoted(key)}: {quoted(each)}" for key, each in value.items())) == value


@pytest.mark.row("26-X2")
@pytest.mark.parametrize(
    "line",
    [
        "a" + " " * 60_000 + "b",
        'a: "' + "\\" * 60_000,
        "a: [" + "x," * 30_000,
        "a: [" + "'x'," * 15_000 + "]",
        "a: " + "1." * 30_000,
        "a: " + " #" * 30_000,
        "'" + "''" * 30_000,
        "a: |\n" + "\n" * 60_000,
        "\n".join(f"k{n}: [a, 'b']" for n in range(3500)),
        "\n" * 60_000,
    ],
)
def test_a_long_frontmatter_takes_linear_time(line: str) -> None:
    started = time.process_time()
    with contextlib.suppress(BadFrontmatter):
        read(line, "last: 1")
    assert time.process_time() - started < 2


@pytest.mark.row("26-X2")
def test_a_frontmatter_has_a_longest_length() -> None:
    assert len(read(f"a: {'x' * (FRONTMATTER_LIMIT - 100)}")["a"]) == FRONTMATTER_LIMIT - 100
    with pytest.raises(BadFrontmatter, match="within"):
        read(f"a: {'x' * (FRONTMATTER_LIMIT + 100)}")
