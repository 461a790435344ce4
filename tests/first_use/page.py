"""Executes a tutorial page at terminals: types each command, answers each question, and compares the output with the page.

A `console` block is what one terminal shows: `$ ` and a command, and below it all that was seen of it, answers included. A second word (`console second`)
is another terminal. `^C` is a key. `console clone` is the way from nothing to a clone that can be used (`console clone second`, at that terminal): that is
for a user who begins with nothing, and what it says is not compared. A block `python no-run: saved as NAME` is a file of the home that is there from then on.

What is different in every run is put as the page has it: where the home is, which ports are free, what an authorization server makes up.
"""

from __future__ import annotations

import difflib
import re
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tests.docs.pages import blocks_of
from tests.free_ports import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PAGE: Final = Path(__file__).parents[2] / "docs" / "tutorial" / "first-use.md"
PORTS: Final = ("8000", "8100", "9000")
PROMPT: Final = "$"
HOME: Final = "/u/ada"
WITHIN: Final = 120.0
_SETTLED: Final = 0.2
_SAVED: Final = re.compile(r"python no-run: saved as (\S+)")
_MADE_UP: Final = (
    (re.compile(r"\b(client_id|redirect_uri|state|code_challenge)=[^&\s]+"), r"\1=…"),
    (re.compile(r"\bc-[0-9a-f]{16}\b"), "c-…"),
    (re.compile(r"\bfor \d+ minutes\b"), "for 60 minutes"),
)


class NotAsOnThePageError(AssertionError):
    """The output of a step differs from the page."""


@dataclass(frozen=True)
class Step:
    """A command for one of the terminals, and its expected output."""

    line: int
    terminal: str
    typed: str
    shows: Sequence[str]
    compared: bool = True
    """Whether the output is compared with the page."""
    goes_on: bool = False
    """Whether the command runs until ^C, which is the next step at that terminal."""


@dataclass(frozen=True)
class Saved:
    """A file to write."""

    line: int
    name: str
    text: str


class Shell(Protocol):
    """A terminal with a shell whose prompt is `$ `."""

    def type(self, text: str) -> None:
        """Press these keys."""
        ...

    def look(self, seconds: float) -> bool:
        """Wait for new output, up to a timeout; returns whether there was any."""
        ...

    @property
    def screen(self) -> str:
        """The screen's text up to the cursor, without trailing spaces."""
        ...


@dataclass
class Words:
    """Translates between the page's texts and those of this run."""

    here: Mapping[str, str]
    """What the page has, and what is in its place: the longest first."""
    made_up: Sequence[tuple[re.Pattern[str], str]] = field(default=_MADE_UP)

    def typed(self, text: str) -> str:
        """The page's text as it is typed in this run."""
        for page, actual in self.here.items():
            text = actual.join(re.split(rf"(?<!\d){re.escape(page)}(?!\d)", text))
        return text

    def seen(self, text: str) -> str:
        """This run's text as on the page."""
        for page, actual in self.here.items():
            text = text.replace(actual, page)
        for pattern, shown in self.made_up:
            text = pattern.sub(shown, text)
        return text


def free_ports() -> dict[str, str]:
    """Free ports that replace those of the page."""
    return {page: str(free_port()) for page in PORTS}


def steps_of(text: str) -> list[Step | Saved]:
    """The steps of a page, in order."""
    found: list[Step | Saved] = []
    for block in blocks_of(text):
        if saved := _SAVED.fullmatch(block.info):
            found.append(Saved(block.line, saved[1], block.text))
        elif block.info.split()[:1] == ["console"]:
            found += _steps(block.line, block.info.split()[1:], block.text.splitlines())
    return [_going_on(each, found[place + 1 :]) for place, each in enumerate(found)]


def _going_on(step: Step | Saved, later: Sequence[Step | Saved]) -> Step | Saved:
    if isinstance(step, Saved):
        return step
    there = (each for each in later if isinstance(each, Step) and each.terminal == step.terminal)
    following = next(there, None)
    return replace(step, goes_on=following is not None and following.typed == "^C")


def _steps(start: int, where: Sequence[str], lines: Sequence[str]) -> list[Step]:
    clone = where[:1] == ["clone"]
    begins = [place for place, line in enumerate(lines) if line.startswith(f"{PROMPT} ") or line == "^C"]
    if not begins or begins[0] != 0:
        raise NotAsOnThePageError(f"line {start}: a console begins with what is typed: `$ …`, or ^C")
    return [
        Step(
            start + 1 + begin,
            " ".join(where[1:] if clone else where),
            lines[begin].removeprefix(f"{PROMPT} "),
            [line.rstrip() for line in lines[begin + 1 : end]],
            not clone,
        )
        for begin, end in zip(begins, [*begins[1:], len(lines)], strict=True)
    ]


def play(
    page: str,
    steps: Sequence[Step | Saved],
    home: Path,
    shell: Callable[[str], Shell],
    words: Words,
    tell: Callable[[str], object] = lambda _: None,
) -> None:
    """Execute all steps. `shell` gives the terminal of a name. Raises `NotAsOnThePageError`."""
    for step in steps:
        if isinstance(step, Saved):
            (home / step.name).write_text(words.typed(step.text), encoding="utf-8")
            continue
        seen = _done(step, shell(step.terminal), words)
        tell(f"{page}, line {step.line}: {step.typed}")
        if step.compared and seen != list(step.shows):
            raise NotAsOnThePageError(_different(page, step, seen))


def _done(step: Step, shell: Shell, words: Words) -> list[str]:
    """Type a command, answer its questions, and return the output."""
    _until(shell, lambda lines: lines[-1] == ("" if step.typed == "^C" else PROMPT))
    first = len(shell.screen.split("\n")) - 1
    if step.typed == "^C":
        shell.type("\x03")
    else:
        shell.type(f"{words.typed(step.typed)}\n")
        _until_more(shell, first + 1)
    deadline = time.monotonic() + WITHIN * (1 if step.compared else 10)
    while True:
        moves = shell.look(_SETTLED)
        lines = words.seen(shell.screen).split("\n")[first:]
        if lines[-1] == PROMPT:
            return lines[1:-1]
        if step.goes_on and lines[1:] == [*step.shows, ""]:
            return lines[1:-1]
        if (answer := _answer(lines[1:], step.shows)) is not None and not moves:
            shell.type("\x03" if answer == "^C" else f"{answer}\n")
            _until_more(shell, first + len(lines))
        if time.monotonic() > deadline:
            return lines[1:]


def _answer(seen: Sequence[str], shows: Sequence[str]) -> str | None:
    """The page's answer to an open question; None without one."""
    place = len(seen) - 1
    if not 0 <= place < len(shows) or list(seen[:place]) != list(shows[:place]) or not seen[place].endswith(":"):
        return None
    return shows[place][len(seen[place]) :].strip() if shows[place].startswith(seen[place]) else None


def _until(shell: Shell, there: Callable[[list[str]], bool]) -> None:
    deadline = time.monotonic() + WITHIN
    while not there(shell.screen.split("\n")):
        if time.monotonic() > deadline:
            raise NotAsOnThePageError(f"nothing comes any more:\n{shell.screen}")
        shell.look(_SETTLED)


def _until_more(shell: Shell, lines: int) -> None:
    _until(shell, lambda now: len(now) > lines)


def _different(page: str, step: Step, seen: Sequence[str]) -> str:
    lines = "\n".join(difflib.unified_diff(step.shows, seen, "the page", "the terminal", lineterm=""))
    return f"{page}, line {step.line}: {step.typed}\n{lines}"
