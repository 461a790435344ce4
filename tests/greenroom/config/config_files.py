"""Configuration files written by tests, and the mistakes found in them."""

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
    """A folder with configuration files and an environment of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str] = dict(ENVIRONMENT)
        self.inputs: dict[str, str] = {}

    def write(self, name: str, text: str) -> Path:
        """Write a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text).lstrip("\n"), encoding="utf-8")
        return path

    def read(self, *names: str) -> HostConfig:
        """The configuration from these files."""
        paths = [self.folder / name for name in names]
        return read(*paths, environment=self.environment, project=self.folder, inputs=self.inputs)

    def messages(self, *names: str) -> list[str]:
        """The mistakes in these files, without the folder's path."""
        return self.shown(self.read(*names))

    def shown(self, config: HostConfig) -> list[str]:
        """The mistakes of a configuration, without the folder's path."""
        return [str(one).replace(f"{self.folder}/", "") for one in config.mistakes]

    def toml(self, text: str) -> list[str]:
        """The mistakes in this TOML text."""
        self.write("greenroom.toml", text)
        return self.messages("greenroom.toml")


PROGRAM = Path(__file__).with_name("stdio_server.py")
"""A server that reports its name and starts quickly."""


def block(name: str, which: str = "", more: str = "", **env: str) -> str:
    """A TOML table for a server that runs this program and reports `which`."""
    words = f"command = {sys.executable!r}\nargs = ['-S', '-E', {str(PROGRAM)!r}]"
    variables = ", ".join(f"{key} = {value!r}" for key, value in {"WHICH": which, **env}.items())
    return f"[server.{name}]\n{words}\nenv = {{ {variables} }}\n{more}\n"


def alive(pids: Iterable[int]) -> set[int]:
    """The pids that exist, zombies included."""
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}
