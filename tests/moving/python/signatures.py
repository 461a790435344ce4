"""Run by an interpreter that has one of the two libraries: what its decorators, its server, its context and its client are called with, as JSON.

`signatures.py mcp` or `signatures.py fastmcp`. By section of the page: each name that it has to have.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

RUNNING = ("run", "run_async", "run_stdio_async", "run_sse_async", "run_streamable_http_async", "run_http_async")
APPS = ("sse_app", "streamable_http_app", "http_app")
DECORATORS = ("tool", "resource", "prompt", "completion", "custom_route")


def options(*functions: Any) -> set[str]:
    """The names of the parameters that these functions take, without `*args` and `**kwargs`."""
    names: set[str] = set()
    for function in functions:
        for each in inspect.signature(function).parameters.values():
            if each.kind not in (each.VAR_KEYWORD, each.VAR_POSITIONAL) and each.name not in ("self", "cls"):
                names.add(each.name)
    return names


def members(kind: type, *, but: Any = ()) -> set[str]:
    """The public names of a class, except for those in `but`."""
    return {name for name in dir(kind) if not name.startswith("_")} - set(but)


def public(*modules: str) -> set[str]:
    """The names that modules export."""
    return {name for module in modules for name in import_module(module).__all__}


def of(server: Any, client: Any, context: Any, fields: set[str]) -> dict[str, set[str]]:
    """All sections about calling. `fields` are what is set on a client, rather than called."""
    found = {each: options(getattr(server, each)) for each in DECORATORS}
    runners = [name for name in (*RUNNING, *APPS) if hasattr(server, name)]
    methods = members(client) - fields
    calls = [getattr(client, name) for name in methods if inspect.isfunction(inspect.getattr_static(client, name))]
    return {
        "server": options(server.__init__),
        **found,
        "running": {*runners, *options(*(getattr(server, name) for name in runners))},
        "methods": members(server, but=(*DECORATORS, *runners)),
        "context": context,
        "client": options(client.__init__),
        "requests": methods,
        "request options": options(*calls),
    }


def mcp() -> dict[str, set[str]]:
    """The official SDK."""
    from mcp import Client  # noqa: PLC0415 - the other interpreter has none of it
    from mcp.server.mcpserver import Context, MCPServer  # noqa: PLC0415 - as above
    from pydantic import BaseModel  # noqa: PLC0415 - as above

    # Its command line wants what is not installed here, so it is read and not imported.
    source = Path(str(import_module("mcp").__file__)).with_name("cli") / "cli.py"
    commands = set(re.findall(r"^@app\.command\(.*\)\ndef (\w+)", source.read_text(encoding="utf-8"), re.MULTILINE))
    found = of(MCPServer, Client, members(Context, but=dir(BaseModel)), options(Client.__init__))
    return {
        **found,
        "imports": public("mcp.server.mcpserver"),
        "auth": set(),
        "plumbing": set(),
        "ways": set(),
        "commands": commands,
    }


def fastmcp() -> dict[str, set[str]]:
    """FastMCP."""
    from fastmcp import Client, Context, FastMCP  # noqa: PLC0415 - as above
    from fastmcp.cli.cli import app  # noqa: PLC0415 - as above

    written = public(*(f"fastmcp{each}" for each in ("", ".dependencies", ".tools", ".resources", ".prompts")))
    plumbing = public(*(f"fastmcp.server.{each}" for each in ("middleware", "transforms", "providers")))
    return {
        **of(FastMCP, Client, members(Context), set()),
        "imports": written | {"Image", "Audio", "File"},
        "auth": public("fastmcp.server.auth"),
        "plumbing": plumbing,
        "ways": public("fastmcp.client", "fastmcp.client.auth"),
        "commands": {name for name in app if not name.startswith("-")},
    }


if __name__ == "__main__":
    found = {"mcp": mcp, "fastmcp": fastmcp}[sys.argv[1]]()
    sys.stdout.write(json.dumps({section: sorted(names) for section, names in found.items()}, indent=1))
