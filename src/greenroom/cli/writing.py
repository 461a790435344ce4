"""Where commands write: what a link in the project leads to stays in the project.

A repository that was cloned may hold links. One that leads out of it (`.cursor` to the home directory, `out/1.png` to `~/.bashrc`) would have a command write over a
file that the user has not named. A link to another file of the project is followed. So is one of the user's own files elsewhere, which programs that manage dotfiles make.
"""

from __future__ import annotations

import os
from pathlib import Path

from .endings import FAILED, Ended


def within_project(path: Path) -> Path:
    """What is written when `path` is: itself, or what links lead to. Raises `Ended` where the path stays in the working directory and a link does not."""
    root = Path.cwd().resolve()
    typed = Path(os.path.normpath(root / path))
    target = typed.resolve()
    if typed.is_relative_to(root) and not target.is_relative_to(root):
        raise Ended(
            FAILED,
            f"{path} is {target}, by a link that leads out of {root}: nothing was written; remove the link, or name {target} itself",
        )
    return target


def write_file(path: Path, data: bytes) -> None:
    """All of a file at a path that was typed, or follows from one. Raises `Ended` for a link out of the project."""
    target = within_project(path)
    no_link = getattr(os, "O_NOFOLLOW", 0)  # one that was made since
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | no_link | getattr(os, "O_CLOEXEC", 0), 0o666)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - what is open already
        file.write(data)
