"""Empty environments to install greenroom into, and checks of an installed greenroom.

An environment here sees the third parties of the one that runs the tests, through a path file, and nothing else of it: path files
are not followed twice, so the greenroom installed there stays unseen. That saves fetching thirty distributions for every test.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path

_LOOK = """
import importlib, json, sys
packages = json.loads(sys.argv[1])
modules = {name: importlib.import_module(name).__file__ for name in packages}
strangers = []
for room in ("actors", "auth", "supervision", "transports"):
    try:
        importlib.import_module(room)
    except ModuleNotFoundError:
        continue
    strangers.append(room)
from greenroom.supervision import GenServer
import importlib.metadata
print(json.dumps([modules, strangers, importlib.metadata.version("greenroom")]))
"""


@dataclass(frozen=True)
class Found:
    """The properties of an installed greenroom."""

    modules: dict[str, str]
    strangers: list[str]
    version: str


@dataclass(frozen=True)
class Environment:
    """A virtual environment in a folder."""

    folder: Path

    @classmethod
    def create(cls, folder: Path) -> Environment:
        """Create it without pip: a path file makes the test environment's pip importable."""
        venv.create(folder, symlinks=os.name != "nt", with_pip=False)
        made = cls(folder)
        made.site.joinpath("third_parties.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
        return made

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    @property
    def site(self) -> Path:
        """The site-packages folder."""
        scheme = {"base": str(self.folder), "platbase": str(self.folder)}
        return Path(sysconfig.get_path("purelib", "venv", vars=scheme))

    def pip(self, *arguments: str) -> None:
        """Run `pip install` without dependencies, which come from the path file."""
        run(
            [str(self.python), "-m", "pip", "install", "--quiet", "--ignore-installed", "--no-deps", *arguments],
            self.folder,
        )

    def uv(self, *arguments: str) -> None:
        """`uv pip install`, from the tests' environment into this one."""
        run(
            [
                sys.executable,
                "-m",
                "uv",
                "pip",
                "install",
                "--quiet",
                "--no-deps",
                "--python",
                str(self.python),
                *arguments,
            ],
            self.folder,
        )

    def look(self, root: Path) -> Found:
        """Import every package listed in pyproject, from an empty folder."""
        listed: list[str] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"][
            "packages"
        ]
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir()
        output = run([str(self.python), "-c", _LOOK, json.dumps(listed)], elsewhere)
        modules, strangers, version = json.loads(output)
        assert set(modules) == set(listed)
        return Found(modules, strangers, version)


def run(command: list[str], folder: Path) -> str:
    """Run a command outside of the repository, and show its output if it fails."""
    clean = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, check=False, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
