"""Extracts the Python code of a documentation page and runs it.

The blocks of a page run in order in one fresh interpreter, in one namespace. The output of each is compared with the `text output`
block right below it. A block that cannot run gives the reason: `python no-run: needs a terminal`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>`{3,}|~{3,})\s*(?P<info>.*)$")
_NO_RUN = re.compile(r"python no-run: \S+ \S+")
_ID = re.compile(r"\b[0-9a-f]{8}…")
_SECONDS = 60

# Runs in the fresh interpreter: each block is compiled under the page's own name and line, so that a traceback points at the page.
_PLAYER = """
import contextlib, io, json, sys
def _play(page, blocks, play):
    for line, code in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            play(compile("\\n" * line + code, page, "exec"))
        print(json.dumps(printed.getvalue()), flush=True)
_play(*json.load(sys.stdin), lambda code: exec(code, globals()))
"""


@dataclass(frozen=True)
class Block:
    """A fenced block: its info string, its text, and the line that its fence is on."""

    line: int
    info: str
    text: str
    expected: str | None = None


class BadPage(Exception):
    """A program's output differs from the page."""


def blocks_of(text: str) -> list[Block]:
    """Every fenced block of a page."""
    found: list[Block] = []
    opening: re.Match[str] | None = None
    start = 0
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if opening is None:
            if fence:
                opening, start, inside = fence, number, []
        elif fence and not fence["info"] and fence["ticks"].startswith(opening["ticks"]):
            found.append(Block(start, opening["info"].strip(), "".join(f"{kept}\n" for kept in inside)))
            opening = None
        else:
            inside.append(line.removeprefix(opening["indent"]))
    if opening is not None:
        raise BadPage(f"line {start}: the fence is never closed")
    return found


def programs_of(text: str) -> list[Block]:
    """The Python blocks that run, each with the output that the page shows for it."""
    programs: list[Block] = []
    before = ""
    for block in blocks_of(text):
        if block.info == "python":
            programs.append(block)
        elif block.info == "text output":
            if before != "python":
                raise BadPage(f"line {block.line}: there is no Python block that runs above this output")
            programs[-1] = replace(programs[-1], expected=block.text)
        elif block.info.lower().startswith(("py", "ipy", "{code")) and not _NO_RUN.fullmatch(_first_words(block.info)):
            raise BadPage(
                f"line {block.line}: {block.info!r} is neither `python` nor `python no-run: a reason in words`"
            )
        before = block.info
    return programs


def _first_words(info: str) -> str:
    return " ".join(info.split()[:4])


def _as_shown(text: str) -> str:
    """The text for the comparison, with the random part of session ids replaced."""
    return _ID.sub("an id…", text.rstrip())


def play(name: str, text: str, folder: Path) -> None:
    """Run a page's programs in `folder`, and compare what they print with what the page shows."""
    programs = programs_of(text)
    if not programs:
        return
    errors = folder / "stderr.txt"
    with errors.open("w", encoding="utf-8") as stderr:
        done = subprocess.run(
            [sys.executable, "-P", "-W", "error", "-c", _PLAYER],
            input=json.dumps([name, [(program.line, program.text) for program in programs]]),
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=folder,
            timeout=_SECONDS,
            check=False,
            text=True,
        )
    if done.returncode:
        raise BadPage(f"{name} does not run:\n{errors.read_text(encoding='utf-8')}")
    printed: list[str] = [json.loads(line) for line in done.stdout.splitlines()]
    for program, output in zip(programs, printed, strict=True):
        if program.expected is not None and _as_shown(output) != _as_shown(program.expected):
            raise BadPage(f"{name}, line {program.line}: the page shows\n{program.expected}\nand it printed\n{output}")
