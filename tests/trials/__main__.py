"""Runs scripts that once showed a fault: `python -m tests.trials FOLDER [--only NAME]`, which is `make trials FROM=FOLDER`.

Each script (`*.py`, `*.sh`) runs on this greenroom, and its output is shown beside the expectation in `expected.toml`. The scripts come from
elsewhere,
so each gets its own folder and home, a time limit, and a process group that is killed when it is over.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

LIMIT: Final = 240.0
"""The time limit of a script in seconds."""
LINES: Final = 12
"""The number of shown lines, from the end of a script's output."""
MARK: Final = "TRIAL"
"""The environment variable by which all processes of a script are found when it is over."""
EXPECTED: Final = Path(__file__).with_name("expected.toml")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one script."""

    name: str
    about: str
    printed: str
    ended: str
    """The failure; empty for exit code 0."""

    def verdict(self, expected: str | None) -> str:
        """The comparison with the expected output, a regular expression for a part of it."""
        if expected is None:
            return self.ended or "no expectation"
        if re.search(expected, self.printed, re.MULTILINE | re.DOTALL) is None:
            return f"NOT AS EXPECTED{f', {self.ended}' if self.ended else ''}"
        return "as expected"


def scripts(folder: Path, only: str = "") -> list[Path]:
    """All scripts below a folder, by name."""
    return sorted(
        each
        for each in folder.rglob("*")
        if each.suffix in (".py", ".sh") and each.is_file() and only in each.relative_to(folder).as_posix()
    )


def about(script: Path) -> str:
    """The script's subject: the first line of its docstring, or its first comment."""
    text = script.read_text(encoding="utf-8")
    if script.suffix == ".py":
        try:
            said = ast.get_docstring(ast.parse(text)) or ""
        except SyntaxError as error:
            return f"it cannot be read: {error}"
        return said.partition("\n")[0]
    comments = (line.lstrip("# ") for line in text.splitlines() if line.startswith("#") and not line.startswith("#!"))
    return next(comments, "")


def run(script: Path, name: str, limit: float = LIMIT) -> Outcome:
    """Run a script in its own process group, and kill what is left of it."""
    with tempfile.TemporaryDirectory(prefix="trial-") as place:
        log = Path(place) / "printed"
        home = Path(place) / "home"
        home.mkdir()
        beside = Path(sys.executable).parent
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GREENROOM_"))}
        environment |= {
            "PYTHON": sys.executable,
            "HOME": str(home),
            MARK: place,
            "PATH": f"{beside}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        command = [sys.executable, str(script)] if script.suffix == ".py" else ["bash", str(script)]
        with log.open("wb") as into:  # a file and no pipe, which left processes could keep open
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=into, stderr=subprocess.STDOUT, cwd=home, env=environment, start_new_session=True
            )  # fmt: skip
            try:
                code: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process, f"{MARK}={place}".encode())
        printed = log.read_text(encoding="utf-8", errors="replace")
    ended = f"not over after {limit:g} s" if code is None else f"ended with {code}" if code else ""
    return Outcome(name, about(script), printed, ended)


def _end(process: subprocess.Popen[bytes], mark: bytes) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # the group exists as long as one of its processes
    process.wait()
    for other in Path("/proc").iterdir():  # and processes that left the group, stopped or not
        with contextlib.suppress(OSError):
            if other.name.isdigit() and mark in (other / "environ").read_bytes().split(b"\0"):
                os.kill(int(other.name), signal.SIGKILL)


def show(outcome: Outcome, expected: str | None) -> str:
    """The expected and the actual output as text."""
    lines = outcome.printed.rstrip().splitlines()
    left = [f"({len(lines) - LINES} lines before)"] if len(lines) > LINES else []
    shown = [*left, *(line[:400] for line in lines[-LINES:])]
    return "\n".join(
        [
            f"== {outcome.name}: {outcome.verdict(expected)}",
            f"   was:      {outcome.about}",
            f"   expected: {expected if expected is not None else '(nothing is written down)'}",
            *(f"   {'printed: ' if number == 0 else '         '} {line}" for number, line in enumerate(shown)),
        ]
    )


def read(text: str) -> Mapping[str, str]:
    """The expectations of scripts, by name without suffix."""
    found: dict[str, str] = tomllib.loads(text)
    for name, pattern in found.items():
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{name}: {pattern!r} is no regular expression: {error}") from error
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """1 if a script's output differs from its expectation, 2 if there is no script."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.trials", description=__doc__.partition("\n")[0] if __doc__ else ""
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="only scripts with that in their path")
    parser.add_argument("--limit", type=float, default=LIMIT, help=f"seconds for each script: {LIMIT:g}")
    options = parser.parse_args(arguments)
    folder: Path = options.folder.resolve()  # a script runs in another folder
    found = scripts(folder, options.only)
    if not found:
        print(f"there is no script in {folder}: say which folder with FROM=", file=sys.stderr)
        return 2
    expected = read(EXPECTED.read_text(encoding="utf-8"))
    verdicts: list[str] = []
    for script in found:
        name = script.relative_to(folder).with_suffix("").as_posix()
        outcome = run(script, name, options.limit)
        verdicts.append(outcome.verdict(expected.get(script.stem)))
        print(show(outcome, expected.get(script.stem)), flush=True)
    good = verdicts.count("as expected")
    wrong = sum(each.startswith("NOT") for each in verdicts)
    print(
        f"{len(verdicts)} scripts: {good} as expected, {wrong} not, {len(verdicts) - good - wrong} without expectation"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
