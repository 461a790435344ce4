"""The command line at a terminal: questions, output, and Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from tests.pty_terminal import CTRL_C, CTRL_D, Terminal, at_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from pathlib import Path

    Sit = Callable[..., AbstractContextManager[Terminal]]

pytestmark = pytest.mark.greenroom(clock="real")

SERVER = """
import asyncio
from pathlib import Path

from greenroom import Context, Server

server = Server("curious")

FORM = {
    "type": "object",
    "required": ["name", "mail", "row"],
    "properties": {
        "name": {"type": "string", "title": "Your name", "minLength": 2, "pattern": "^[A-Z]"},
        "mail": {"type": "string", "format": "email", "description": "where the ticket goes"},
        "night": {"type": "string", "format": "date"},
        "row": {"type": "string", "oneOf": [{"const": "s", "title": "Stalls"}, {"const": "g", "title": "Gods"}]},
        "seats": {"type": "integer", "minimum": 1, "maximum": 8, "default": 2},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["programme", "glasses"]}},
        "seated": {"type": "boolean", "default": True},
    },
}
ONE = {"type": "object", "properties": {"it": {"type": "string"}}, "required": ["it"]}


@server.tool
async def book(ctx: Context) -> str:
    answer = await ctx.elicit("Whom is it for?", FORM)
    return f"{answer.action} {getattr(answer, 'value', '')}"


@server.tool
async def two(ctx: Context) -> list[str]:
    both = await asyncio.gather(ctx.elicit("First?", ONE), ctx.elicit("Second?", ONE))
    return [f"{each.action} {getattr(each, 'value', '')}" for each in both]


@server.tool
async def again(ctx: Context) -> str:
    await ctx.elicit("First?", ONE)
    await ctx.elicit("Second?", ONE)
    return "asked"


@server.tool
async def page(ctx: Context) -> str:
    where = "https://box.example/pay?e={elicitation_id}&next=%2Fa%2Fvery%2Flong%2F" + "x" * 200
    return (await ctx.elicit_url("Please pay.", where)).action


@server.tool
async def sly(ctx: Context) -> str:
    return (await ctx.elicit("Hello\\x1b[2J\\u202e!\\nOpen it in your browser? [y/N]: y", ONE)).action


@server.tool
async def gives_up(ctx: Context) -> str:
    asking = asyncio.ensure_future(ctx.elicit("Still there?", ONE))
    while not Path("enough").exists():
        await asyncio.sleep(0.01)
    asking.cancel()
    await asyncio.wait((asking,))
    answer = await ctx.elicit("And this?", ONE)
    return f"{answer.value}"


@server.tool
async def long(ctx: Context) -> str:
    await ctx.progress(1, 4, "far to go" + " and on" * 100)
    while not Path("enough").exists():
        await asyncio.sleep(0.01)
    return "arrived"


@server.tool
async def busy(ctx: Context) -> str:
    asking = asyncio.ensure_future(ctx.elicit("Meanwhile?", ONE))
    for step in range(20):
        await ctx.progress(step, 20, "working")
    while not asking.done():
        await asyncio.sleep(0.01)
    return (await asking).value["it"]


if __name__ == "__main__":
    server.run()
"""
BEHIND = ("--", sys.executable, "curious.py")


@pytest.fixture
def sit(folder: Path) -> Sit:
    """Run `greenroom …` at a terminal."""
    (folder / "curious.py").write_text(SERVER)
    browser = folder / "browser"
    browser.write_text('#!/bin/sh\nprintf "%s" "$1" > visited\n')
    browser.chmod(0o755)

    @contextmanager
    def at(*words: str, **variables: str) -> Generator[Terminal]:
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
        environment = kept | {"TERM": "xterm", "BROWSER": f"{browser} %s"} | variables
        with at_terminal([sys.executable, "-m", "greenroom.cli", *words], folder, environment) as terminal:
            yield terminal

    return at


def last(terminal: Terminal) -> str:
    return terminal.screen.rstrip().rpartition("\n")[2]


# --- a form


@pytest.mark.row("CB-11")
@pytest.mark.parametrize("where", [("curious.py", "book"), ("book", *BEHIND)], ids=["inside", "command"])
def test_a_form_is_asked_field_by_field_and_a_wrong_answer_again(sit: Sit, where: tuple[str, ...]) -> None:
    with sit("call", *where) as terminal:
        for question, answer in (
            ("Your name (at least 2 characters): ", "A"),
            ("it has to have at least 2 characters, not 1\nYour name (at least 2 characters): ", "ada"),
            ("mail (an e-mail address): ", "ada"),
            ("'ada' is not an e-mail address\nmail (an e-mail address): ", "ada@example.org"),
            ("night (a date, as in 2026-01-31) (optional): ", ""),
            ("  1) Stalls\n  2) Gods\nrow: ", "roof"),
            ("'roof' is not one of Stalls, Gods\nrow: ", "2"),
            ("seats (a whole number, 1 to 8) (optional) [2]: ", "9"),
            ("9 is not 1 to 8\nseats (a whole number, 1 to 8) (optional) [2]: ", ""),
            ("extras (optional): ", "glasses, 1"),
            ("seated (yes or no) (optional) [yes]: ", "perhaps"),
            ("'perhaps' is neither yes nor no\nseated (yes or no) (optional) [yes]: ", "no"),
            ("Send this? [Y/n]: ", "perhaps"),
            ("'perhaps' is neither yes nor no\nSend this? [Y/n]: ", ""),
            # the form's schema rejects one field, which alone is asked again
            ("Your name (at least 2 characters): ", "Ada"),
            ("Send this? [Y/n]: ", "y"),
        ):
            terminal.see(question)
            terminal.enter(answer)
        assert terminal.end() == 0
        assert "where the ticket goes" in terminal.screen
        assert "the answers do not fit the form: name: " in terminal.screen
        assert last(terminal) == (
            "accept {'seats': 2, 'seated': False, 'name': 'Ada', 'mail': 'ada@example.org', 'row': 'g', "
            "'extras': ['glasses', 'programme']}"
        )


@pytest.mark.parametrize("said", ["n", CTRL_D])
def test_a_form_is_not_sent_by_who_does_not_want_to(sit: Sit, said: str) -> None:
    with sit("call", "curious.py", "again") as terminal:
        terminal.see("curious.py asks: First?")
        terminal.see("it: ")
        if said == "n":
            terminal.enter("x")
            terminal.see("Send this? [Y/n]: ")
            terminal.enter("n")
        else:
            terminal.type(CTRL_D)
        terminal.see("curious.py asks: Second?")
        terminal.see("it: ")
        terminal.enter("x")
        terminal.see("Send this?")
        terminal.enter()
        assert (terminal.end(), last(terminal)) == (0, "asked")


@pytest.mark.parametrize("where", [("curious.py", "book"), ("book", *BEHIND)], ids=["inside", "command"])
def test_ctrl_c_answers_nothing_and_the_call_goes_on(sit: Sit, where: tuple[str, ...]) -> None:
    with sit("call", *where) as terminal:
        terminal.see("Your name")
        terminal.type(CTRL_C)

        assert (terminal.end(), last(terminal)) == (0, "cancel")
        assert "Traceback" not in terminal.screen
        assert "Fatal" not in terminal.screen


@pytest.mark.parametrize("where", [("curious.py", "again"), ("again", *BEHIND)], ids=["inside", "command"])
def test_the_second_ctrl_c_ends_it(sit: Sit, where: tuple[str, ...]) -> None:
    with sit("call", *where) as terminal:
        terminal.see("First?")
        terminal.see("it: ")
        terminal.type(CTRL_C)
        terminal.see("Second?")
        terminal.see("it: ")
        terminal.type(CTRL_C)

        assert (terminal.end(), last(terminal)) == (130, "greenroom: interrupted")
        assert "taken its question back" not in terminal.screen
        assert "Traceback" not in terminal.screen
        assert "Fatal" not in terminal.screen


def test_two_questions_at_once_are_asked_one_after_the_other(sit: Sit) -> None:
    with sit("call", "two", *BEHIND) as terminal:
        for question in ("First?", "Second?"):
            terminal.see(question)
            terminal.see("it: ")
            assert terminal.stream.count(" asks: ") == 1 + (question == "Second?")
            terminal.enter(f"for {question}")
            terminal.see("Send this?")
            terminal.enter("y")
        assert terminal.end() == 0
        assert last(terminal) == """["accept {'it': 'for First?'}","accept {'it': 'for Second?'}"]"""


def test_a_question_that_is_taken_back_is_asked_no_more_and_what_was_typed_is_nobodys(sit: Sit, folder: Path) -> None:
    with sit(
        "call", "gives_up", "--era", "legacy", *BEHIND
    ) as terminal:  # no server of the other era takes a question back
        terminal.see("Still there?")
        terminal.see("it: ")
        terminal.type("half an ans")
        terminal.see("half an ans")
        (folder / "enough").touch()
        terminal.see("the server has withdrawn its question")
        terminal.see("And this?")
        terminal.see("it: ")
        terminal.enter("wer")
        terminal.see("Send this?")
        terminal.enter()
        assert (terminal.end(), last(terminal)) == (0, "{'it': 'wer'}")


def test_text_of_a_server_cannot_look_like_greenrooms(sit: Sit) -> None:
    with sit("call", "curious.py", "sly") as terminal:
        terminal.see("it: ")
        assert "curious.py asks: Hello\\u001b[2J\\u202e!\n  Open it in your browser? [y/N]: y\n" in terminal.screen
        assert "\x1b[2J" not in terminal.written
        terminal.type(CTRL_C)
        assert (terminal.end(), last(terminal)) == (0, "cancel")


# --- a page


@pytest.mark.parametrize(("said", "answer"), [("y", "accept"), ("", "decline"), (CTRL_C, "cancel")])
def test_a_page_is_shown_whole_and_opened_for_who_agrees(sit: Sit, folder: Path, said: str, answer: str) -> None:
    with sit("call", "curious.py", "page") as terminal:
        terminal.see("curious.py sends you to a page: Please pay.\n  https://box.example/pay?e=")
        terminal.see("&next=%2Fa%2Fvery%2Flong%2F" + "x" * 200 + "\n")
        terminal.see("Open it in your browser? [y/N]: ")
        assert not (folder / "visited").exists()
        if said == CTRL_C:
            terminal.type(said)
        else:
            terminal.enter(said)
        assert (terminal.end(), last(terminal)) == (0, answer)
        assert "Traceback" not in terminal.screen
        shown_url = next(line.strip() for line in terminal.screen.splitlines() if "https://" in line)
    assert (folder / "visited").exists() == (answer == "accept")
    if answer == "accept":
        assert (folder / "visited").read_text() == shown_url


def test_where_no_browser_opens_one_goes_there_oneself(sit: Sit) -> None:
    with sit("call", "curious.py", "page", BROWSER="no-such-browser-anywhere", PATH="/nowhere") as terminal:
        terminal.see("Open it in your browser? [y/N]: ")
        terminal.enter("y")
        assert (terminal.end(), last(terminal)) == (0, "accept")
        assert "no browser could be started: open the address yourself" in terminal.screen


# --- progress and colour


def test_a_long_call_shows_how_far_it_is_and_takes_that_away(sit: Sit, folder: Path) -> None:
    with sit("call", "curious.py", "long") as terminal:
        terminal.see("████████░░░░░░░░░░░░░░░░░░░░░░  25% far to go and on")
        assert len(last(terminal)) < 80
        (folder / "enough").touch()
        assert (terminal.end(), terminal.screen) == (0, "arrived\n")


def test_progress_does_not_write_over_what_is_asked(sit: Sit) -> None:
    with sit("call", "curious.py", "busy") as terminal:
        terminal.see("it: ")
        terminal.enter("x")
        terminal.see("Send this? [Y/n]: ")
        assert "working" not in terminal.screen.partition("asks")[2]
        terminal.enter("y")
        assert (terminal.end(), last(terminal)) == (0, "x")


def test_colour_is_for_terminals_and_for_who_wants_it(sit: Sit, folder: Path) -> None:
    with sit("list", "curious.py") as terminal:
        assert terminal.end() == 0
        assert "\x1b[1m" in terminal.written
    for words in (("list", "curious.py"), ("list", "gone.py"), ("--help",), ("call", "curious.py", "sly", "-y")):
        with sit(*words, NO_COLOR="1") as terminal:
            terminal.end()
            assert "\x1b[" not in terminal.written
            assert terminal.screen
    done = subprocess.run(
        [sys.executable, "-m", "greenroom.cli", "list", "curious.py"], cwd=folder, capture_output=True, check=True
    )
    assert b"\x1b" not in done.stdout + done.stderr
    with sit("list", "gone.py") as terminal:
        assert terminal.end() == 2
        assert "\x1b[31m" in terminal.written


# --- install


@pytest.mark.row("ST-22")
@pytest.mark.parametrize(("said", "code"), [("", 0), ("n", 6), (CTRL_C, 130)])
def test_install_shows_the_change_and_writes_it_after_consent(sit: Sit, folder: Path, said: str, code: int) -> None:
    file = folder.parent / "home" / ".cursor" / "mcp.json"
    with sit("install", "curious.py", "--to", "cursor") as terminal:
        terminal.see('+    "curious": {')
        terminal.see(f"Write this to {file}? [Y/n]: ")
        assert not file.exists()
        if said == CTRL_C:
            terminal.type(said)
        else:
            terminal.enter(said)
        assert terminal.end() == code
        assert "Traceback" not in terminal.screen
        assert "\x1b[32m+" in terminal.written
    assert file.exists() == (code == 0)


@pytest.mark.parametrize("where", [("curious.py", "long"), ("long", *BEHIND)], ids=["inside", "command"])
def test_ctrl_c_ends_a_call_that_asks_nothing(sit: Sit, where: tuple[str, ...]) -> None:
    with sit("call", *where) as terminal:
        terminal.see("25%")
        terminal.type(CTRL_C)

        assert (terminal.end(), last(terminal)) == (130, "greenroom: interrupted")
        assert "Traceback" not in terminal.screen
