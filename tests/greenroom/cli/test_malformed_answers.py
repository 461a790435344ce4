"""Malformed answers of servers: each is reported as the server's mistake, and shown escaped."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.example_counts import one_in
from tests.pty_terminal import at_terminal

from greenroom.actors.federation.offering import PARTS
from greenroom.cli import exit_codes as spelling
from greenroom.cli.inspect_command import _print_line, differences, oddities

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
    """Run a command against a server with the given answers."""
    (folder / "odd.py").write_text(SERVER)

    def type_(answers: dict[str, Any], *words: str) -> Typed:
        (folder / "answers.json").write_text(json.dumps({**EMPTY, **answers}))
        return typed(*words, "--", sys.executable, "odd.py")

    return type_


@pytest.mark.parametrize(
    ("answers", "words", "says"),
    [
        ({"tools/list": {"tools": [3]}}, ("list",), "tools/list with an entry that is not a tool: 3"),
        ({"prompts/list": {"prompts": [None]}}, ("inspect",), "prompts/list with an entry that is not a prompt: None"),
        ({"tools/list": {}}, ("list",), "tools/list without a list of tools"),
        (
            {"tools/call": {"content": [{"type": "image", "data": "!", "mimeType": "image/png"}]}},
            ("call", "x"),
            "not base64",
        ),
        ({"tools/call": {"content": "x"}}, ("call", "x"), "tools/call"),
        ({"prompts/get": {"messages": [3]}}, ("prompt", "x"), "role"),
        ({"resources/read": {"contents": 3}}, ("read", "x://y"), "resources/read"),
    ],
    ids=shown,
)
def test_a_malformed_answer_is_reported_as_the_servers_error(
    odd: Callable[..., Typed], answers: dict[str, Any], words: tuple[str, ...], says: str
) -> None:
    seen = odd(answers, *words)

    assert (seen.code, seen.out) == (1, "")
    assert says in seen.err
    assert "Traceback" not in seen.err


def test_an_unusual_answer_is_shown(odd: Callable[..., Typed]) -> None:
    tool = {"name": 3, "inputSchema": "x", "description": ["a"]}
    prompt = {"name": "p", "arguments": [3, {"name": 4}]}
    answers = {"tools/list": {"tools": [tool]}, "prompts/list": {"prompts": [prompt, {"name": "q", "arguments": 7}]}}

    assert odd(answers, "list").code == 0
    seen = odd(answers, "inspect", "--strict")
    assert (seen.code, "wrong: tool 3: its inputSchema is not an object" in seen.out) == (1, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("name", "title", "description", "inputSchema", "outputSchema", "arguments", "uri", "uriTemplate")
ENTRIES = st.lists(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=5), max_size=3)
LISTS = st.fixed_dictionaries(dict.fromkeys(PARTS, ENTRIES))


@given(LISTS, LISTS)
def test_nothing_in_a_list_is_a_fault_of_ours(before: dict[str, Any], after: dict[str, Any]) -> None:
    for word, entries in after.items():
        for each in entries:
            _print_line(word, each)
    found = [str(each) for each in oddities(after)]
    told = list(differences({"lists": before}, {"lists": after}))

    assert all(isinstance(line, str) for line in [*found, *told])
    assert list(differences({"lists": after}, {"lists": after})) == []


def test_a_terminal_gets_nothing_that_moves_its_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert spelling.terminal_safe("a\tb\n\x1b[2J\x07") == "a\tb\n\\u001b[2J\\u0007"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    assert spelling.terminal_safe("\x1b[2J") == "\x1b[2J"


def test_names_of_a_server_are_escaped(odd: Callable[..., Typed]) -> None:
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


# --- at a terminal


HOSTILE = """
import json, sys

escape = "\\x1b]0;owned\\x07\\x1b[31m\\u202e"
if "dies" in sys.argv:
    sys.exit("oh " + escape)
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answer = {"error": {"code": -32000, "message": f"no\\n{escape}"}}
    match asked["method"]:
        case "initialize":
            version = asked["params"]["protocolVersion"]
            info = {"name": escape, "version": escape}
            can = {"tools": {}, "resources": {}, escape: {}}
            answer = {"result": {"protocolVersion": version, "capabilities": can, "serverInfo": info}}
        case "tools/list":
            tools = [{"name": name, "inputSchema": {"type": "object"}} for name in (escape, "ok")]
            answer = {"result": {"tools": tools}}
        case "resources/list":
            answer = {"result": {"resources": []}}
        case "resources/templates/list":
            answer = {"result": {"resourceTemplates": []}}
        case "resources/read":
            contents = [{"uri": asked["params"]["uri"] + escape, "blob": "AAAA"}]
            answer = {"result": {"contents": contents}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer}), flush=True)
"""


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize(
    ("words", "says"),
    one_in(
        4,
        [
            (("list", "evil"), "u202e"),
            (("list", "-v", "dies"), "oh "),
            (("inspect", "evil"), "capabilities: "),
            (("call", "evil", "ok"), "greenroom: "),
            (("call", "evil", "nosuch", "a=1"), "has no tool"),
            (("read", "evil", "x://y"), "3 bytes"),
            (("config", "effective"), "Elicit(evil)"),
            (("config", "effective", "dies"), "does not answer"),
        ],
    ),
    ids=shown,
)
def test_text_of_a_server_is_escaped_on_a_terminal(folder: Path, words: tuple[str, ...], says: str) -> None:
    (folder / "hostile.py").write_text(HOSTILE)
    (folder / "greenroom.toml").write_text(
        f"""
[server.evil]
command = {sys.executable!r}
args = ["hostile.py"]

[server.dies]
command = {sys.executable!r}
args = ["hostile.py", "dies"]
"""
    )

    with at_terminal([sys.executable, "-P", "-m", "greenroom.cli", *words], folder, os.environ) as terminal:
        terminal.end()

    assert says in terminal.written
    assert "]0;owned" in terminal.written, "it has been said"
    assert not re.search(r"\x1b(?!\[[0-3]?[0-9]?m)|[\x07\u202e]", terminal.written)
    assert not re.search(r"owned[^\r\n]*\x1b\[31m\\u202e", terminal.written), "its colours are none"


def test_echo_escapes_text_that_a_command_forgot_to_escape() -> None:
    ours = "\x1b[1mname\x1b[0m and \x1b[32mmore\x1b[0m\n\there"

    assert spelling.escaped_for_terminal(ours) == ours
    assert spelling.escaped_for_terminal("\x1b]0;owned\x07\x1b[2J\x9b2J\r\x7f") == (
        "\\u001b]0;owned\\u0007\\u001b[2J\\u009b2J\\u000d\\u007f"
    )


def test_an_error_of_several_lines_has_none_that_looks_like_ours(odd: Callable[..., Typed]) -> None:
    seen = odd(
        {"tools/list": {"tools": [{"name": "a\ngreenroom: no mistakes", "inputSchema": {}}]}}, "call", "b", "c=d"
    )
    assert (seen.code, seen.err.count("\ngreenroom:")) == (2, 0)


def test_log_records_are_escaped(typed: Type) -> None:
    assert typed("--version").code == 0
    assert logging.lastResort is not None
    record = logging.LogRecord("x", logging.WARNING, "x.py", 1, "it said %s\nand more", ("\x1b[2J",), None)

    assert logging.lastResort.format(record) == "it said \\u001b[2J\nand more"
