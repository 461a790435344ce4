"""Output to a terminal passes one function, which escapes hidden characters and keeps greenroom's own colours."""

from __future__ import annotations

import json
import sys

import pytest

from greenroom.cli.command_output import print_json
from greenroom.cli.exit_codes import escaped_for_terminal, terminal_safe

HIDDEN = "\x1b\x07\x9b\x9d\r\x7f\u202e\u2066\u200b\u200d\u2060\ufeff\u2028\U000e0041\U000e0101\u3164\ud800"


@pytest.mark.parametrize("sign", HIDDEN, ids=lambda sign: f"U+{ord(sign):04X}")
def test_a_line_of_ours_shows_what_is_hidden_in_it(sign: str) -> None:
    assert sign not in escaped_for_terminal(f"\x1b[31mred\x1b[0m {sign}x").replace("\x1b[31m", "").replace(
        "\x1b[0m", ""
    )


def test_our_colours_and_layout_stay() -> None:
    assert escaped_for_terminal("\x1b[1mname\x1b[0m\n\tbeside") == "\x1b[1mname\x1b[0m\n\tbeside"


def test_an_answer_is_spelt_out_for_a_terminal_and_left_to_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = f"abc\n\t{HIDDEN}"
    assert terminal_safe(answer) == answer
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert not set(HIDDEN) & set(terminal_safe(answer))
    assert terminal_safe(answer).startswith("abc\n\t")


def test_json_stays_json_and_hides_nothing(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    value = {"text": HIDDEN.replace("\ud800", "") + "é"}
    for terminal in (False, True):
        monkeypatch.setattr(sys.stdout, "isatty", lambda terminal=terminal: terminal)
        print_json(value)
        written = capsys.readouterr().out
        assert json.loads(written) == value
        assert not set(HIDDEN) & set(written)
