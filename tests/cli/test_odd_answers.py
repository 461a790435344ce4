"""What servers answer that nobody should: it is told as theirs, and shown without doing anything to a terminal."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.cli import showing
from greenroom.cli.inspecting import differences
from greenroom.cli.listing import PARTS, _line
from greenroom.cli.oddities import oddities

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]


def shown(value: object) -> str:
    words: Any = value
    return " ".join(words) if isinstance(value, tuple) else ""


SERVER = """
import json, sys
answers = json.load(open("answers.json"))
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    result = answers.get(asked["method"], {})
    if asked["method"] == "initialize":
        can = {"tools": {}, "prompts": {}, "resources": {}}
        result = {"protocolVersion": asked["params"]["protocolVersion"], "capabilities": can, "serverInfo": {"name": "odd", "version": "0"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""
EMPTY: dict[str, Any] = {
    "tools/list": {"tools": []},
    "resources/list": {"resources": []},
    "resources/templates/list": {"resourceTemplates": []},
    "prompts/list": {"prompts": []},
}


@pytest.fixture
def odd(typed: Type, folder: Path) -> Callable[..., Typed]:
    """Type a command to a server that answers as is said."""
    (folder / "odd.py").write_text(SERVER)

    def type_(answers: dict[str, Any], *words: str) -> Typed:
        (folder / "answers.json").write_text(json.dumps({**EMPTY, **answers}))
        return typed(*words, "--", sys.executable, "odd.py")

    return type_


@pytest.mark.parametrize(
    ("answers", "words", "says"),
    [
        ({"tools/list": {"tools": [3]}}, ("list",), "tools/list with what is no tool: 3"),
        ({"prompts/list": {"prompts": [None]}}, ("inspect",), "prompts/list with what is no prompt: None"),
        ({"tools/list": {}}, ("list",), "tools/list without a list of tools"),
        (
            {"tools/call": {"content": [{"type": "image", "data": "!", "mimeType": "image/png"}]}},
            ("call", "x"),
            "no base64",
        ),
        ({"tools/call": {"content": "x"}}, ("call", "x"), "tools/call"),
        ({"prompts/get": {"messages": [3]}}, ("prompt", "x"), "role"),
        ({"resources/read": {"contents": 3}}, ("read", "x://y"), "resources/read"),
    ],
    ids=shown,
)
def test_what_makes_no_sense_is_the_servers_affair(
    odd: Callable[..., Typed], answers: dict[str, Any], words: tuple[str, ...], says: str
) -> None:
    seen = odd(answers, *words)

    assert (seen.code, seen.out) == (1, "")
    assert says in seen.err
    assert "Traceback" not in seen.err


def test_what_is_strange_is_shown_all_the_same(odd: Callable[..., Typed]) -> None:
    tool = {"name": 3, "inputSchema": "x", "description": ["a"]}
    prompt = {"name": "p", "arguments": [3, {"name": 4}]}
    answers = {"tools/list": {"tools": [tool]}, "prompts/list": {"prompts": [prompt, {"name": "q", "arguments": 7}]}}

    assert odd(answers, "list").code == 0
    seen = odd(answers, "inspect", "--strict")
    assert (seen.code, "wrong: tool 3: its inputSchema is no object" in seen.out) == (1, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("name", "title", "description", "inputSchema", "outputSchema", "arguments", "uri", "uriTemplate")
ENTRIES = st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5), max_size=3)
LISTS = st.fixed_dictionaries({part.word: ENTRIES for part in PARTS})


@given(LISTS, LISTS)
def test_nothing_in_a_list_is_a_fault_of_ours(before: dict[str, Any], after: dict[str, Any]) -> None:
    for word, entries in after.items():
        for each in entries:
            _line(word, each)
    found = [str(each) for each in oddities(after)]
    told = list(differences({"lists": before}, {"lists": after}))

    assert all(isinstance(line, str) for line in [*found, *told])
    assert list(differences({"lists": after}, {"lists": after})) == []


def test_a_terminal_gets_nothing_that_moves_its_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert showing.harmless("a\tb\n\x1b[2J\x07") == "a\tb\n\\u001b[2J\\u0007"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert showing.harmless("\x1b[2J") == "\x1b[2J"


def test_what_a_server_calls_its_things_is_spelt_out(odd: Callable[..., Typed]) -> None:
    tool: dict[str, Any] = {
        "name": "a\x1b[31m",
        "inputSchema": {"type": "object", "properties": {"b\x07": {}}},
        "description": "c\x1b[0m",
    }
    for words in (("list",), ("inspect",)):
        seen = odd({"tools/list": {"tools": [tool]}}, *words)
        assert seen.code == 0
        assert "a\\u001b[31m" in seen.out
        assert "c\\u001b[0m" in seen.out
        assert not {"\x1b", "\x07"} & set(seen.out)
