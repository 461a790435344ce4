"""Questions at the terminal: how long they wait, and the message if there is no terminal."""

from __future__ import annotations

import asyncio
import os
import pty
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest

from greenroom.actors.client.client_handler import AskingCall
from greenroom.actors.client.errors import RequestTimeout
from greenroom.actors.elicitation.bridge import ElicitationBridge, fields_of
from greenroom.cli.exit_codes import visible
from greenroom.cli.terminal_prompts import PromptAborted, TerminalInput, TerminalPrompts, _ask_field
from greenroom.client_callbacks import ElicitationRequest, UrlElicitationRequest

FORM = ElicitationRequest("How many?", {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
DEFAULT = ElicitationRequest("How many?", {"type": "object", "properties": {"n": {"type": "integer", "default": 2}}})
PAGE = UrlElicitationRequest("Please pay.", "https://box.example/")


@pytest.fixture(autouse=True)
def no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that there is no terminal, so that a test never asks the user who runs it."""
    monkeypatch.setattr("greenroom.cli.terminal_prompts.is_terminal", lambda: False)


def prompts(bridge: ElicitationBridge, *, yes: bool = False) -> TerminalPrompts:
    return TerminalPrompts(bridge, yes=yes, aside=nullcontext)


async def test_a_call_that_takes_too_long_is_given_up() -> None:
    with pytest.raises(RequestTimeout, match="tools/call: no answer within 2 s"):
        await prompts(ElicitationBridge()).within_patience(2, "tools/call", asyncio.sleep(3))
    assert await prompts(ElicitationBridge()).within_patience(None, "tools/call", asyncio.sleep(3, "done")) == "done"


async def test_the_time_for_an_answer_does_not_count_for_the_call() -> None:
    bridge = ElicitationBridge()
    one = prompts(bridge)

    async def thinks(question: Any, prompt: Any) -> None:
        del prompt
        await asyncio.sleep(60)
        question.decline()

    one._prompt = TerminalInput(0)
    one._ask_until_settled = thinks  # type: ignore[method-assign]
    loop = asyncio.get_running_loop()

    async def calls() -> str:
        await asyncio.sleep(1)
        for _ in range(2):
            await bridge.form("git", FORM)
        await asyncio.sleep(0.9)
        return "done"

    async with one.open():
        before = loop.time()
        assert await one.within_patience(2, "tools/call", calls()) == "done"
        assert loop.time() - before == pytest.approx(121.9)

        with pytest.raises(RequestTimeout):
            await one.within_patience(2, "tools/call", asyncio.gather(calls(), asyncio.sleep(600)))


async def test_a_call_may_be_over_with_the_answer() -> None:
    bridge = ElicitationBridge()
    one = prompts(bridge)

    async def lingers(question: Any, prompt: Any) -> None:
        del prompt
        question.decline()
        await asyncio.sleep(5)

    one._prompt = TerminalInput(0)
    one._ask_until_settled = lingers  # type: ignore[method-assign]
    async with one.open():
        answer = await one.within_patience(2, "tools/call", bridge.form("git", FORM))
        assert answer.action == "decline"
        await asyncio.sleep(6)
        assert (await one.within_patience(2, "tools/call", bridge.form("git", FORM))).action == "decline"


@pytest.mark.row("CB-11")
async def test_without_a_terminal_questions_are_declined_except_defaults_with_yes() -> None:
    bridge = ElicitationBridge()
    async with prompts(bridge).open():
        assert (await bridge.form("git", DEFAULT)).action == "decline"
    async with prompts(bridge, yes=True).open():
        assert (await bridge.form("git", DEFAULT)).value == {"n": 2}
        assert (await bridge.form("git", FORM)).action == "decline"
        assert (await bridge.page("git", PAGE)).action == "decline"


async def test_a_question_is_shown_with_the_call_that_it_belongs_to(capsys: pytest.CaptureFixture[str]) -> None:
    call = AskingCall("tools/call", {"name": "send\x1b[2J", "arguments": {"to": "Ada", "password": "p-123"}}, 1)
    bridge = ElicitationBridge()
    async with prompts(bridge).open():
        await bridge.form("git", replace(FORM, call=call))
        await bridge.form("git", FORM)
    shown = capsys.readouterr().err
    assert "git asks: How many?\nduring send\\u001b[2J(to='Ada', password=<hidden>)\n" in shown
    assert shown.count("during") == 1


async def test_what_may_mislead_about_a_page_is_shown_before_the_user_is_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge = ElicitationBridge()
    one = prompts(bridge)
    one._prompt = TerminalInput(0)
    asked: list[str] = []

    async def confirmed(self: TerminalInput, question: str, *, default: bool = False) -> bool:
        del self, default
        asked.append(f"{question} {capsys.readouterr().err}")
        return False

    def begin(self: TerminalInput) -> None:
        """A test's input has nothing to discard."""

    monkeypatch.setattr(TerminalInput, "confirmed", confirmed)
    monkeypatch.setattr(TerminalInput, "begin", begin)
    async with one.open():
        assert (await bridge.page("git", replace(PAGE, url="http://xn--bx-yia.example/"))).action == "decline"
    (seen,) = asked
    assert seen.startswith("Open it in your browser?")
    assert "http://xn--bx-yia.example/" in seen
    assert "the name of its host has letters that can look like others" in seen
    assert "it is not encrypted (http)" in seen


@pytest.mark.greenroom(clock="real")
@pytest.mark.parametrize("able", [True, False], ids=["loop", "thread"])
async def test_lines_are_read_where_the_loop_can_wait_for_them_and_where_it_cannot(
    monkeypatch: pytest.MonkeyPatch, *, able: bool
) -> None:
    def unable(*_: Any) -> None:
        raise NotImplementedError

    if not able:
        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", unable)
    reading, writing = os.pipe()
    prompt = TerminalInput(reading)
    prompt.begin()
    os.write(writing, "möre\n\nno\n".encode())

    assert (
        await prompt.ask("One"),
        await prompt.ask("Two", "this"),
        await prompt.confirmed("Three", default=True),
    ) == (
        "möre",
        "",
        False,
    )

    os.close(writing)
    with pytest.raises(PromptAborted):
        await prompt.ask("Four")
    os.close(reading)


@pytest.mark.greenroom(clock="real")
async def test_input_before_a_question_is_discarded() -> None:
    keys, screen = pty.openpty()
    prompt = TerminalInput(screen)
    os.write(keys, b"yes\nye")
    prompt.begin()

    asked = asyncio.ensure_future(prompt.ask("Sure?"))
    await asyncio.sleep(0)
    os.write(keys, b"no\n")

    assert await asked == "no"
    os.close(keys)
    os.close(screen)


@pytest.mark.parametrize(
    ("text", "longest", "lines", "seen"),
    [
        ("plain", None, False, "plain"),
        ("a\nb\tc", None, False, "a b c"),
        ("a\r\nb\tc", None, True, "a\nb c"),
        ("red\x1b[31m", None, False, "red\\u001b[31m"),
        ("\u202egpj", None, False, "\\u202egpj"),
        ("Grüße 東京 🎭", None, False, "Grüße 東京 🎭"),
        ("abcdef", 3, False, "abc…"),
    ],
)
def test_text_of_a_server_is_escaped_in_a_question(text: str, longest: int | None, *, lines: bool, seen: str) -> None:
    assert visible(text, longest, lines=lines) == seen


@pytest.mark.greenroom(clock="real")
@pytest.mark.row("CB-12")
async def test_a_question_is_declined_after_the_cap(capsys: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    bridge = ElicitationBridge(cap=0.1)
    one = prompts(bridge)
    one._prompt = TerminalInput(reading)
    async with one.open():
        assert (await bridge.form("git", FORM)).action == "decline"
        told = ""
        async with asyncio.timeout(60):
            while "no answer within 0.1 s: the question is declined" not in told:
                await asyncio.sleep(0.01)
                told += capsys.readouterr().err
        bridge.cap = 60.0
        asked = asyncio.ensure_future(bridge.form("git", FORM))
        os.write(writing, b"2\n\n")
        assert (await asked).value == {"n": 2}

    os.close(reading)
    os.close(writing)


class EmptyLines(TerminalInput):
    """A user who presses Enter a limited number of times."""

    def __init__(self) -> None:
        super().__init__(0)
        self.left = 3

    async def _line(self) -> str:
        if not self.left:
            raise PromptAborted
        self.left -= 1
        return ""


@pytest.mark.parametrize(
    ("schema", "seen"),
    [
        ({"type": "string", "default": "x" * 300}, f"[{'x' * 200}…]"),
        ({"type": "string", "default": "two  spaces"}, "[two spaces]"),
        ({"type": "string", "default": " one line\nand another\t"}, "[one line and another]"),
        ({"type": "string", "default": "\x1b[2J"}, "[\\u001b[2J]"),
        ({"type": "array", "items": {"enum": ["a,b", "c"]}, "default": ["a,b"]}, "[a,b]"),
        ({"type": "boolean", "default": False}, "[no]"),
    ],
)
async def test_an_empty_line_is_the_default_itself_and_not_its_picture(
    capsys: pytest.CaptureFixture[str], schema: dict[str, Any], seen: str
) -> None:
    (field,) = fields_of({"properties": {"it": schema}})

    assert await _ask_field(field, EmptyLines()) == schema["default"]
    assert seen in capsys.readouterr().err
