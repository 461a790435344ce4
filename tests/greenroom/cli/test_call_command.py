"""list, call, read and prompt: typed words, the request to the server, and the output."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.cli.call_command import arguments_from_words, bar_text
from greenroom.cli.exit_codes import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Typed

    Type = Callable[..., Typed]


def shown(value: object) -> str:
    words: Any = value
    return " ".join(words) if isinstance(value, tuple) else ""


BEHIND = ("--", sys.executable, "-c", "import weather; weather.server.run()")


@pytest.mark.parametrize(
    "where",
    [("weather.py",), ("weather:server",), ("weather.py:server",), BEHIND],
    ids=["file", "module", "both", "command"],
)
def test_a_server_is_listed_wherever_it_is(typed: Type, where: tuple[str, ...]) -> None:
    seen = typed("list", *where)

    assert (seen.code, seen.err) == (0, "")
    lines = [line.strip() for line in seen.out.splitlines()]
    assert lines[:3] == ["tools (5)", "ask", "Asks."]
    assert "forecast  city: string, days?: integer" in lines
    assert "weather://{city}/{day}  at" in lines
    assert "pack  city" in lines


def test_lists_for_programs_are_as_the_wire_has_them(typed: Type) -> None:
    seen = json.loads(typed("list", "weather.py", "--json", "--only", "prompts", "--only", "resources").out)

    assert list(seen) == ["resources", "prompts"]
    assert [each["uri"] for each in seen["resources"]] == ["weather://photo", "weather://today"]
    assert seen["prompts"][0]["arguments"] == [{"name": "city", "required": True}]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("forecast", "city=Oslo", "days=1"), '["Oslo 0"]'),
        (("forecast", "city=Oslo", "days:=2"), '["Oslo 0","Oslo 1"]'),
        (("echo", 'value:={"a": 1}', "flag=true", "many=1,2"), '{"value":{"a":1},"flag":true,"many":[1,2]}'),
        (("echo", "value=1"), '{"value":"1","flag":false,"many":null}'),
        (("echo", "value=a=b"), '{"value":"a=b","flag":false,"many":null}'),
        (("echo", "--args-json", '{"value": [1]}', "flag=true"), '{"value":[1],"flag":true,"many":null}'),
    ],
)
def test_arguments_are_what_the_schema_wants(typed: Type, words: tuple[str, ...], says: str) -> None:
    seen = typed("call", "weather.py", *words)

    assert (seen.code, json.loads(seen.out)) == (0, json.loads(says)), seen.err


def test_a_command_behind_is_the_target(typed: Type) -> None:
    seen = typed("call", "forecast", "city=Oslo", "days=1", *BEHIND)

    assert (seen.code, seen.out) == (0, '["Oslo 0"]\n')


def test_arguments_come_from_a_file_or_stdin(typed: Type, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "args.json").write_text('{"city": "Bergen", "days": 1}')
    assert typed("call", "weather.py", "forecast", "--args-json", "@args.json").out == '["Bergen 0"]\n'

    with (folder / "args.json").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert typed("call", "weather.py", "forecast", "--args-json", "-").out == '["Bergen 0"]\n'


def test_a_tool_error_is_exit_code_1(typed: Type) -> None:
    seen = typed("call", "weather.py", "fail")
    assert (seen.code, seen.out) == (1, "no sun today\n")

    seen = typed("call", "weather.py", "forecast", "--args-json", "{}")
    assert (seen.code, seen.out) == (1, "Invalid arguments for forecast: city: is missing\n")


def test_a_picture_is_written_down_where_it_is_wanted(typed: Type, folder: Path) -> None:
    assert "[image/png, 8 bytes: --save FOLDER saves it]" in typed("call", "weather.py", "dot").out

    seen = typed("call", "weather.py", "dot", "--save", "pictures")

    assert "→ pictures/1.png (image/png, 8 bytes)" in seen.out
    assert (folder / "pictures" / "1.png").read_bytes() == b"\x89PNG...."


@pytest.mark.row("CB-11")
@pytest.mark.parametrize(("more", "answer"), [((), "Declined"), (("--yes",), "Accepted")])
def test_without_a_terminal_a_question_is_declined_unless_yes_is_given(
    typed: Type, more: tuple[str, ...], answer: str
) -> None:
    seen = typed("call", "weather.py", "ask", *more)
    assert seen.out == f"{answer}\n"
    assert seen.code == (0 if more else 6)
    assert ("weather.py asks: Which one?" in seen.err, "or pass --yes" in seen.err) == (not more, not more)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("weather://today",), "sunny"),
        (("today",), "sunny"),
        (("at", "Oslo", "Monday"), "Monday in Oslo"),
        (("at", "day=Monday", "city=Oslo"), "Monday in Oslo"),
        (("at", "a=b", "Monday"), "Monday in a=b"),
        (("weather://Oslo/Friday",), "Friday in Oslo"),
        (("photo",), "[weather://photo: 2 bytes: --save saves them]"),
    ],
)
def test_resources_are_read_by_uri_name_or_template(typed: Type, words: tuple[str, ...], says: str) -> None:
    seen = typed("read", "weather.py", *words)

    assert (seen.code, seen.out) == (0, f"{says}\n"), seen.err


def test_a_resource_is_written_down(typed: Type, folder: Path) -> None:
    typed("read", "weather.py", "photo", "--save", "photo.png")

    assert (folder / "photo.png").read_bytes() == b"\x00\x01"


def test_a_prompt(typed: Type) -> None:
    assert typed("prompt", "weather.py", "pack", "city=Oslo").out == "user\nPack for Oslo\n"
    assert json.loads(typed("prompt", "weather.py", "pack", "city=Oslo", "--json").out)["messages"][0]["role"] == "user"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("lits",), 2, "Did you mean 'list'?"),
        (("list",), 2, "name a server"),
        (("list", "--"), 2, "the command behind -- is missing"),
        (("list", "weather.py", *BEHIND), 2, "not both"),
        (("call", "weather.py"), 2, "and a tool"),
        (("call", "--", "x"), 2, "name a tool"),
        (("call", "weather.py", "forcast", "city=Oslo"), 2, "no tool 'forcast': did you mean forecast?"),
        (("call", "weather.py", "forecast", "Oslo"), 2, "'Oslo' is not an argument: write key=value"),
        (("call", "weather.py", "forecast", "days=many"), 2, "argument days must be of type integer, not 'many'"),
        (("call", "weather.py", "forecast", "days:=many"), 2, "the value of days after := is not JSON"),
        (("call", "weather.py", "forecast", "city=a", "city=b"), 2, "city is given twice"),
        (("call", "weather.py", "forecast", "--args-json", "[]"), 2, "has to be a JSON object"),
        (("call", "weather.py", "forecast", "--args-json", "{"), 2, "is not JSON"),
        (("call", "weather.py", "forecast", "--args-json", "@gone.json"), 2, "gone.json"),
        (("list", "weather.py:other"), 2, "has no server called 'other': it has server"),
        (("list", "gone.py"), 2, "the file gone.py does not exist"),
        (("list", "gone:server"), 2, "the module 'gone' is neither in this folder nor"),
        (("list", "http://127.0.0.1:9/mcp"), 4, "no server listens there"),
        (("list", "--", "no-such-program-anywhere"), 4, "no-such-program-anywhere"),
        (("list", "http://127.0.0.1:9/mcp", "-H", "secret"), 2, "--header is written 'Name: value'"),
        (("list", "weather.py", "-H", "A: b"), 2, "--header is only for a URL"),
        (("list", "http://127.0.0.1:9/mcp", "-e", "A=b"), 2, "--env is only for a command"),
        (("read", "weather.py", "today", "now"), 2, "is not a template and takes no values"),
        (("read", "weather.py", "at", "Oslo"), 2, "needs 2 words, <city> <day>, but has 1"),
        (("serve", "weather.py", "--workers", "2"), 2, "--workers is only for --http"),
        (("serve", "weather.py", "--stdio", "--http", "1"), 2, "either --stdio or --http"),
        (("serve", "weather.py", "--http", "x:y"), 2, "--http is HOST:PORT"),
        (("new", "weather", "--", "x"), 2, "takes no command behind --"),
    ],
    ids=shown,
)
def test_wrong_words_are_reported_with_their_exit_code(
    typed: Type, words: tuple[str, ...], code: int, says: str
) -> None:
    seen = typed(*words)

    assert (seen.code, seen.out) == (code, "")
    assert says in " ".join(seen.err.split())
    assert "Traceback" not in seen.err


def test_a_fault_of_ours_is_told_with_where_it_was(typed: Type, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise AssertionError("cannot be")

    monkeypatch.setattr("greenroom.cli.inspect_command.connected", broken)

    seen = typed("list", "weather.py")

    assert seen.code == 70
    assert "cannot be" in seen.err
    assert "please report it" in seen.err


@pytest.mark.parametrize(
    ("schema", "word", "value"),
    [
        ({}, "a=1", "1"),
        ({"type": "string"}, "a=1", "1"),
        ({"type": ["integer", "null"]}, "a=1", 1),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "a=null", None),
        ({"type": "array", "items": {"type": "string"}}, "a=x,y", ["x", "y"]),
        ({"type": "array", "items": {"type": "string"}}, 'a=["x"]', ["x"]),
        ({"type": "object"}, 'a={"b": 2}', {"b": 2}),
        ({"type": "boolean"}, "a=yes", True),
        ({"type": "boolean"}, "a=Off", False),
        ({"type": "boolean"}, "a=true", True),
        ({"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "a=no", False),
        ({"type": "array", "items": {"type": "boolean"}}, "a=on,no", [True, False]),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "a=1", "1"),
    ],
)
def test_a_word_is_typed_by_its_schema(schema: dict[str, Any], word: str, value: Any) -> None:
    assert arguments_from_words([word], {"properties": {"a": schema}}) == {"a": value}


def test_an_empty_name_is_none() -> None:
    with pytest.raises(UsageError, match="is not an argument"):
        arguments_from_words([":=1"], {})


@pytest.mark.parametrize(
    ("done", "total", "shown"), [(0, 2, "  0%"), (1, 2, " 50%"), (5, 2, "100%"), (3, None, "… 3"), (1, 0, "… 1")]
)
def test_a_bar_says_how_far(done: float, total: float | None, shown: str) -> None:
    assert bar_text(done, total).endswith(shown)
