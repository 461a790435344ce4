"""Text of peers is escaped for terminals and logs: no control characters, and no invisible ones."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import unicodedata
from typing import TYPE_CHECKING, Any, Final

import pytest

from greenroom.supervision.kernel.visible_text import EscapingFormatter, escaped, escaped_in_json, visible

if TYPE_CHECKING:
    from pathlib import Path

CONTROLS: Final = [chr(number) for number in (*range(0x20), *range(0x7F, 0xA0)) if chr(number) not in "\n\t"]
UNSEEN: Final = [
    *("\u200e\u200f\u061c", "\u202a\u202b\u202c\u202d\u202e", "\u2066\u2067\u2068\u2069"),  # the direction of writing
    *("\u200b\u200c\u200d\u2060\ufeff\u00ad\u180e", "\u2061\u2062\u2063\u2064\u206a\u206f"),  # no width
    *("\u2028\u2029", "\ufff9\ufffa\ufffb", "\ud800\udbff\udc00\udfff"),
    *("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\u2800", "\u180b\u180c\u180d\u180f"),  # no ink
    *("\U0001107f\U00016fe4\U0001d159", "\u2065", "".join(map(chr, range(0xFFF0, 0xFFF9)))),
    "".join(map(chr, range(0xFE00, 0xFE0E))),
    "".join(map(chr, range(0xE0000, 0xE01F0))),
]
HIDDEN: Final = [*CONTROLS, *dict.fromkeys("".join(UNSEEN))]
SEQUENCES: Final = ["\x1b[2J", "\x1b]0;title\x07", "\x1b]8;;http://x\x1b\\", "\x9b31m", "\x1bP+q\x1b\\", "\x1b[?1049h"]
HONEST: Final = "Zoë saß im Café: 日本語, עברית, العربية, नमस्ते, ½ “quoted” ❤\ufe0f 🎉 \u00a0 $(x) `y`"


def obeyed_or_unseen(text: str) -> list[str]:
    """Independent of how the product decides."""
    return [
        each for each in text if each in HIDDEN or (unicodedata.category(each) in ("Cc", "Cf", "Cs") and each != "\n")
    ]


@pytest.mark.parametrize("sign", HIDDEN, ids=lambda sign: f"U+{ord(sign):04X}")
def test_each_is_spelt_out(sign: str) -> None:
    for shown in (visible(f"a{sign}b"), visible(f"a{sign}b", lines=True), escaped(f"a{sign}b", but="\n\t")):
        assert sign not in shown
        assert not obeyed_or_unseen(shown)
        assert shown.startswith("a")
        assert shown.endswith("b")
    assert json.loads(escaped_in_json(json.dumps(f"a{sign}b", ensure_ascii=False))) == f"a{sign}b"
    assert sign not in escaped_in_json(json.dumps(f"a{sign}b", ensure_ascii=False))


def test_an_escaped_character_shows_its_number() -> None:
    assert visible("a\u202eb\x1bc\U000e0041d") == "a\\u202eb\\u001bc\\U000e0041d"


def test_honest_text_of_any_language_stays() -> None:
    assert visible(HONEST) == " ".join(HONEST.split())
    assert escaped(HONEST) == HONEST
    assert escaped_in_json(json.dumps(HONEST, ensure_ascii=False)) == json.dumps(HONEST, ensure_ascii=False)


@pytest.mark.parametrize("sequence", SEQUENCES)
def test_a_log_line_obeys_no_sequence_in_message_arguments_or_traceback(sequence: str) -> None:
    try:
        raise ValueError(sequence)
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, __file__, 1, f"said {sequence} %s", (sequence,), sys.exc_info())
    shown = EscapingFormatter().format(record)
    assert not obeyed_or_unseen(shown)
    assert "Traceback" in shown


PROGRAM: Final = """
import asyncio, logging, sys, threading
from contextlib import asynccontextmanager
from greenroom import Server

HOSTILE = {hostile!r}
server = Server("quiet")

@server.tool
def fails(text: str) -> str:
    raise ValueError(text)

@server.tool
def logs(text: str) -> str:
    logging.getLogger("mine").warning("said %s", text)
    thread = threading.Thread(target=fails, args=(text,))
    thread.start()
    thread.join()
    return "logged"

@server.lifespan
@asynccontextmanager
async def fallen():
    yield
    if len(sys.argv) > 1:
        raise ValueError(HOSTILE)

server.run(grace=1)
if len(sys.argv) > 2:
    raise RuntimeError(HOSTILE)
"""


@pytest.mark.parametrize("arguments", [(), ("a lifespan fails",), ("a lifespan fails", "and so does the program")])
def test_a_running_server_prints_no_control_characters(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    hostile = "".join(SEQUENCES) + "abc\u202egpj.exe\u200b\U000e0041\u2028\r"
    file = tmp_path / "server.py"
    file.write_text(PROGRAM.format(hostile=hostile))
    hello: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": hostile, "version": "1"},
    }
    asked: list[dict[str, Any]] = [
        {"id": 0, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        *(
            {"id": name, "method": "tools/call", "params": {"name": name, "arguments": {"text": hostile}}}
            for name in ("fails", "logs")
        ),
        {"id": 3, "method": f"no/{hostile}"},
    ]
    lines = b"".join(json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n" for each in asked)
    done = subprocess.run([sys.executable, file, *arguments], input=lines, capture_output=True, check=False, timeout=20)
    told = done.stderr.decode()
    assert "gpj.exe" in told
    assert "said" in told
    assert "Exception in thread" in told
    assert not obeyed_or_unseen(told)
    assert ("RuntimeError" in told) == (len(arguments) > 1)
