"""The command: `python -m tests.first_use [--here]`, which is `make terminal`: a page's steps in tmux, from a fresh clone on.

Everything is done in a home that is made for it and removed afterwards. With `--here` there is no clone: the command line is the one that is installed
beside this Python.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .page import HOME, PAGE, NotAsOnThePageError, Saved, Words, free_ports, play, steps_of
from .shells import ROOT, Tmux, environment, installed

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if the output differs from the page."""
    parser = argparse.ArgumentParser(prog="python -m tests.first_use")
    parser.add_argument("--here", action="store_true", help="without a clone of its own")
    here: bool = parser.parse_args(arguments).here
    steps = steps_of(PAGE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve() / "ada"
        home.mkdir()
        places = {HOME: str(home), "<where this repository is>": str(ROOT), **free_ports()}
        if here:
            steps = [each for each in steps if isinstance(each, Saved) or each.compared]
            places = {f"{HOME}/greenroom/.venv/bin/python": sys.executable, **places}
        variables = installed(home) if here else _with_packages(environment(home))
        try:
            with Tmux(home, variables) as tmux:
                play(PAGE.name, steps, home, tmux, Words(places), _tell)
        except (NotAsOnThePageError, FileNotFoundError, subprocess.CalledProcessError) as error:
            sys.stderr.write(f"{error}\n")
            return 1
    return 0


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _with_packages(variables: dict[str, str]) -> dict[str, str]:
    """The environment of a user who clones: Python, access to the repository, and this machine's package index."""
    there = Path.home()
    configured = [
        path for path in (there / ".config" / "pip" / "pip.conf", there / ".pip" / "pip.conf") if path.exists()
    ]
    more = {"PIP_CONFIG_FILE": str(configured[0])} if configured else {}
    number = int(variables.get("GIT_CONFIG_COUNT", "0"))
    return (
        {"PIP_CACHE_DIR": str(there / ".cache" / "pip"), **more, **variables}
        | {"PYTHON": os.environ.get("PYTHON", str(Path(sys.base_prefix) / "bin" / "python3"))}
        | {
            "GIT_CONFIG_COUNT": str(number + 1),
            f"GIT_CONFIG_KEY_{number}": "safe.directory",
            f"GIT_CONFIG_VALUE_{number}": "*",
        }
    )


if __name__ == "__main__":
    sys.exit(main())
