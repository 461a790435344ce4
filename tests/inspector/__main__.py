"""The command: `python -m tests.inspector [--only NAME]`, which is `make inspector`.

The Inspector's command line and ours ask the same servers the same questions: lists, calls, reads and prompts, those among them that are
refused. What each says, as JSON, has to be the same data, and what is refused is refused by both with the error that was to come.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tests.served_program import served

from .judging import differences, said
from .questions import MODULES, NODE, demo, everything, filesystem, git, ours

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .judging import Said
    from .questions import Place, Question

INSPECTOR = (
    NODE,
    str(MODULES / "@modelcontextprotocol" / "inspector" / "clients" / "launcher" / "build" / "index.js"),
    "--cli",
)
OURS = (sys.executable, "-m", "greenroom.cli")
ERA = ("--era", "legacy")
"""What the Inspector's command line speaks: the other revision has other members in its results."""
ENDS_WITHIN = 60


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask both, and compare; 1 when anything is different."""
    parser = argparse.ArgumentParser(prog="python -m tests.inspector", description=main.__doc__)
    parser.add_argument("--only", metavar="NAME", default="", help="servers with NAME in their name")
    only: str = parser.parse_args(arguments).only.lower()
    wrong = asked = reads = 0
    with tempfile.TemporaryDirectory(prefix="inspector-") as place, contextlib.ExitStack() as running:
        folder = Path(place).resolve()
        demonstration = (sys.executable, "-m", "examples.demo", "--quiet", "--port")
        url = running.enter_context(served(demonstration, folder / "demo.log"))
        servers: Mapping[str, tuple[Place, Sequence[Question]]] = {
            "server-everything": everything(),
            "server-filesystem": filesystem(_made(folder / "files")),
            "mcp-server-git": git(_made(folder / "git")),
            "greenroom, stdio": ours(),
            "the demonstration, HTTP": demo(url),
        }
        chosen = {name: server for name, server in servers.items() if only in name.lower()}
        for name, (where, questions) in chosen.items():
            for question in questions:
                asked += 1
                reads += question.ours[0] == "read"
                for line in _asked(where, question):
                    wrong += 1
                    _say(f"{name}: {question.what}: {line}")
            _say(f"{name}: {len(questions)} questions")
    _say(f"inspector: {asked} questions to {len(chosen)} servers, {reads} of them reads, {wrong} differences")
    return int(bool(wrong) or not asked)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _asked(where: Place, question: Question) -> Iterator[str]:
    behind = ("--", *where.command) if where.command else ()
    target = (where.url,) if where.url else ()
    word, *rest = question.ours
    theirs = _said((*INSPECTOR, *(where.command or (*target, "--transport", "http")), *question.theirs))
    mine = _said((*OURS, word, *ERA, *target, *rest, "--json", *behind))
    return differences(question, theirs, mine)


def _said(words: Sequence[str]) -> Said:
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=ENDS_WITHIN, stdin=subprocess.DEVNULL
    )
    return said(done.returncode, done.stdout, done.stderr)


if __name__ == "__main__":
    sys.exit(main())
