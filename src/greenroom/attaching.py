"""What has to be written, and where, so that a client starts or finds a server: configuration as values, for people and for tools.

Nothing here touches a file: whose configuration it is decides what goes into it.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def desktop_file(
    platform: str = sys.platform, home: Path | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """Where Claude Desktop keeps its configuration."""
    home = Path.home() if home is None else home
    if platform == "darwin":
        folder = home / "Library" / "Application Support"
    elif platform == "win32":
        folder = Path(environment.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        folder = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
        if (folder / "claude").is_dir() and not (folder / "Claude").is_dir():  # as some builds of it have it
            return folder / "claude" / "claude_desktop_config.json"
    return folder / "Claude" / "claude_desktop_config.json"


def desktop_entry(
    name: str, command: str = sys.executable, args: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """What to merge into that file, so that the client starts the server and speaks to it over stdio."""
    entry: dict[str, Any] = {"command": command, "args": list(args)}
    if env:
        entry["env"] = dict(env)
    return {"mcpServers": {name: entry}}


def code_command(name: str, url: str, headers: Mapping[str, str] | None = None) -> str:
    """What to type so that Claude Code knows a server that listens on HTTP."""
    words = ["claude", "mcp", "add", name, "--transport", "http", url]
    for header, value in (headers or {}).items():
        words += ["--header", f"{header}: {value}"]
    return shlex.join(words)


def code_stdio_command(name: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> str:
    """What to type so that Claude Code starts a server itself."""
    words = ["claude", "mcp", "add", name]
    for variable, value in (env or {}).items():
        words += ["--env", f"{variable}={value}"]
    return shlex.join([*words, "--", *command])
