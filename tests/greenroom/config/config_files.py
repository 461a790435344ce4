"""Files that tests write, and what is said of them."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

from greenroom.config.config_reader import read

if TYPE_CHECKING:
    from collections.abc import Iterable

    from greenroom.config.host_config import HostConfig

ENVIRONMENT = {"HOME": "/users/anna", "TOKEN": "s3cret", "EMPTY": ""}


class Workspace:
    """A folder with files in it, and no other environment than what a test says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str] = dict(ENVIRONMENT)
        self.inputs: dict[str, str] = {}

    def write(self, name: str, text: str) -> Path:
        """A file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        return path

    def read(self, *names: str) -> HostConfig:
        """What they come to."""
        paths = [self.folder / name for name in names]
        return read(*paths, environment=self.environment, project=self.folder, inputs=self.inputs)

    def messages(self, *names: str) -> list[str]:
        """What is said of them, without the folder."""
        return self.shown(self.read(*names))

    def shown(self, config: HostConfig) -> list[str]:
        """The same of what was read."""
        return [str(one).replace(f"{self.folder}/", "") for one in config.mistakes]

    def toml(self, text: str) -> list[str]:
        """What is said of this text."""
        self.write("greenroom.toml", text)
        return self.messages("greenroom.toml")


PROGRAM = Path(__file__).with_name("stdio_server.py")
"""A server that says which one it is, and starts in no time."""


def block(name: str, which: str = "", more: str = "", **env: str) -> str:
    """A server of a file that is that program, with something that tells it from others."""
    words = f"command = {sys.executable!r}\nargs = ['-S', '-E', {str(PROGRAM)!r}]"
    variables = ", ".join(f"{key} = {value!r}" for key, value in {"WHICH": which, **env}.items())
    return f"[server.{name}]\n{words}\nenv = {{ {variables} }}\n{more}\n"


def alive(pids: Iterable[int]) -> set[int]:
    """Which of these programs run: one that has ended and was not waited for does as well."""
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}
