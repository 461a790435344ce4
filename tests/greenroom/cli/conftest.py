"""Fixtures for tests of the command line: a folder with a server, a home directory, and typed commands."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from greenroom.cli.command_table import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SERVER = '''
from typing import Annotated, Any
from greenroom import Context, Image, Server, ToolError

server = Server("weather", version="1.2.3")

@server.tool
async def forecast(city: Annotated[str, "where"], ctx: Context, days: Annotated[int, "how many"] = 3) -> list[str]:
    """What the sky will do."""
    await ctx.progress(1, 2, "looking up")
    return [f"{city} {day}" for day in range(days)]

@server.tool
def echo(value: Annotated[Any, "anything"] = None, flag: Annotated[bool, "or not"] = False, many: Annotated[list[int] | None, "more"] = None) -> dict[str, Any]:
    """Says what it was given."""
    return {"value": value, "flag": flag, "many": many}

@server.tool
def fail() -> str:
    """Says no."""
    raise ToolError("no sun today")

@server.tool
def dot() -> Image:
    """A picture."""
    return Image(b"\\x89PNG....", "image/png")

@server.tool
async def ask(ctx: Context) -> str:
    """Asks."""
    answer = await ctx.elicit("Which one?", {"type": "object", "properties": {"one": {"type": "string", "title": "One", "default": "a"}}})
    return type(answer).__name__

@server.resource("weather://today", name="today", mime_type="text/plain")
def today() -> str:
    """Now."""
    return "sunny"

@server.resource("weather://{city}/{day}", name="at")
def at(city: str, day: str) -> str:
    """Then."""
    return f"{day} in {city}"

@server.resource("weather://photo", name="photo", mime_type="image/png")
def photo() -> bytes:
    return b"\\x00\\x01"

@server.prompt
def pack(city: str) -> str:
    """What to take along."""
    return f"Pack for {city}"
'''


@dataclass
class Typed:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder: `weather.py` is in it."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "GREENROOM_TRACEBACK", "CODEX_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    here = tmp_path / "here"
    here.mkdir()
    (here / "weather.py").write_text(SERVER)
    monkeypatch.chdir(here)
    before = set(sys.modules)
    yield here
    for name in set(sys.modules) - before:
        module_file = getattr(sys.modules[name], "__file__", None) or ""
        if module_file.startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.fixture
def typed(folder: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Typed]:
    """Run a command in this process; the function returns its exit code and output."""
    del folder

    def type_(*words: str) -> Typed:
        capfd.readouterr()
        code = run(words)
        out, err = capfd.readouterr()
        return Typed(code, out, err)

    return type_
