"""``greenroom new``: creates a folder with a server, its test, a README and a server.json for registries."""

from __future__ import annotations

import json as json_library
import keyword
import re
import shutil
import subprocess
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from .click_app import echo, styled
from .command_output import print_json
from .exit_codes import FAILED, OK, UNREACHABLE, CommandFailed, UsageError, within_project, write_file

_NAME: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_-]{0,62}[A-Za-z0-9])?")

SERVER: Final = '''"""{title}: describe its purpose in one line."""

from typing import Annotated

from greenroom import Context, Server

server = Server("{name}", version="0.1.0", instructions="Write here what a model should know before it uses these tools.")


@server.tool
async def greet(name: Annotated[str, "the person's name"], ctx: Context) -> str:
    """Greet a person."""
    await ctx.progress(1, 1, f"found {{name}}")
    return f"Hello, {{name}}!"


@server.resource("{name}://about", mime_type="text/plain")
def about() -> str:
    """Name and version of this server."""
    return "{title} 0.1.0"


if __name__ == "__main__":
    server.run()
'''

TEST: Final = '''"""Tests of the server. Run them with pytest."""

import pytest

from greenroom import Client, ToolError
from {module} import server


async def test_greet_returns_a_greeting() -> None:
    async with Client(server) as client:
        assert await client.call("greet", name="Ada") == "Hello, Ada!"


async def test_greet_without_a_name_is_an_error() -> None:
    async with Client(server) as client:
        with pytest.raises(ToolError, match="name"):
            await client.call("greet")


async def test_the_about_resource_has_name_and_version() -> None:
    async with Client(server) as client:
        assert (await client.read_resource("{name}://about")).text == "{title} 0.1.0"
'''

README: Final = """# {title}

An MCP server.

<!-- mcp-name: io.github.YOUR-NAME/{dashed} -->

```console
$ greenroom call {module}.py greet name=Ada
Hello, Ada!
$ greenroom inspect {module}.py
$ pytest
```

To use it from Claude, Claude Code, Cursor or VS Code: `greenroom install {module}.py --to claude`.
"""

PROJECT: Final = """[project]
name = "{dashed}"
version = "0.1.0"
description = "{title}, an MCP server"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["greenroom"]

[project.scripts]
{dashed} = "{module}:server.run"

[dependency-groups]
dev = ["greenroom[cli]", "pytest"]

[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[tool.setuptools]
py-modules = ["{module}"]

[tool.pytest.ini_options]
pythonpath = ["."]
greenroom_mode = "auto"
"""


def new(*, name: str, git: bool, json: bool) -> int:
    """Create the folder. Existing files are never overwritten."""
    folder = Path(name)
    within_project(folder)
    word = folder.name
    module = re.sub(r"[^a-z0-9_]", "_", word.lower())
    if not _NAME.fullmatch(word):
        raise UsageError(
            f"{word!r} cannot be a server's name: use letters, digits, - and _, a letter first and no - or _ last"
        )
    if keyword.iskeyword(module):
        raise UsageError(f"{word!r} cannot be a server's name: {module} is a Python keyword; {word}-server can")
    if module in sys.stdlib_module_names or _is_installed(module):
        raise UsageError(
            f"{word!r} cannot be a server's name: {module}.py would shadow the Python module {module!r}; {word}-server can"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CommandFailed(FAILED, f"{folder} already exists and is not empty: nothing was written")
    words = {"name": word.lower(), "title": _title(word), "module": module, "dashed": word.lower().replace("_", "-")}
    files = {
        f"{module}.py": SERVER,
        f"test_{module}.py": TEST,
        "README.md": README,
        "pyproject.toml": PROJECT,
    }
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        write_file(folder / path, text.format(**words).encode())
    write_file(folder / "server.json", (json_library.dumps(server_json(words), indent=2) + "\n").encode())
    write_file(folder / ".gitignore", b"__pycache__/\n.venv/\n*.egg-info/\n")
    if git:
        _make_repository(folder)
    if json:
        made = sorted(path.name for path in folder.iterdir() if path.is_file())
        print_json({"folder": str(folder), "server": f"{module}:server", "files": made})
        return OK
    echo(styled(f"{folder}: created a server and its test", "good"))
    echo(
        f"\n  cd {folder}\n  greenroom call {module}.py greet name=Ada\n  pytest\n  greenroom serve {module}.py --http 8000"
    )
    return OK


def _is_installed(module: str) -> bool:
    """Whether an installed module has this name. Modules in the working directory do not count."""
    elsewhere = [path for path in sys.path if path and Path(path).resolve() != Path.cwd()]
    return PathFinder.find_spec(module, elsewhere) is not None


def _make_repository(folder: Path) -> None:
    program = shutil.which("git")
    if program is None:
        raise CommandFailed(UNREACHABLE, f"{folder} was created, but is no repository: git is not installed")
    done = subprocess.run([program, "init", "--quiet", str(folder)], capture_output=True, text=True, check=False)  # noqa: S603 - the user's own git
    if done.returncode:
        raise CommandFailed(FAILED, f"{folder} was created, but is no repository: {done.stderr.strip()}")


def server_json(words: dict[str, str]) -> dict[str, object]:
    """The content of server.json, the entry for a registry of servers. The author replaces YOUR-NAME by a name that they own."""
    return {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": f"io.github.YOUR-NAME/{words['dashed']}",
        "description": f"{words['title']}, an MCP server",
        "version": "0.1.0",
        "packages": [
            {
                "registryType": "pypi",
                "identifier": words["dashed"],
                "version": "0.1.0",
                "runtimeHint": "uvx",
                "transport": {"type": "stdio"},
            }
        ],
    }


def _title(word: str) -> str:
    return " ".join(part.capitalize() for part in re.split(r"[-_]+", word) if part)
