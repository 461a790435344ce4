"""The servers of the contest: ours, the floors, and peers with default settings and in their fastest mode."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from .processes import ROOT

PEERS = ROOT / ".referees"
"""The folder of the peers' environments, which `make` builds."""


@dataclass(frozen=True)
class Contender:
    """A server and its command."""

    name: str
    about: str
    command: tuple[str, ...]
    tools: tuple[str, ...] = ("echo", "echo_def")

    @property
    def here(self) -> bool:
        """Whether its environment is installed."""
        return Path(self.command[0]).exists()


def ours(program: str, *options: str) -> tuple[str, ...]:
    """A program of ours in this environment."""
    return (sys.executable, "-m", f"benchmarks.serving.programs.{program}", "PORT", *options)


def theirs(environment: str, program: str, *options: str) -> tuple[str, ...]:
    """A peer's program in its own environment."""
    return (
        str(PEERS / environment / "bin" / "python"),
        str(Path(__file__).parent / "peers" / f"{program}.py"),
        "PORT",
        *options,
    )


FASTEST = "with sessions, plain JSON answers, no access log, uvloop and httptools: the fastest of its modes"
STATELESS = "the same without sessions"
FLOOR = Contender("raw ASGI", "a minimal echo application under Hypercorn", ours("floor"), ("echo",))
OURS = Contender("greenroom", "as it ships", ours("echo"))
CONTENDERS = (
    FLOOR,
    OURS,
    Contender("mcp 2.3.0", "under uvicorn, as it ships", theirs("mcp-2", "echo_mcp", "shipped")),
    Contender("mcp 2.3.0, stateless", STATELESS, theirs("mcp-fast", "echo_mcp", "stateless")),
    Contender("mcp 2.3.0, fastest", FASTEST, theirs("mcp-fast", "echo_mcp", "fastest")),
    Contender("FastMCP 4.1.2", "under uvicorn, as it ships", theirs("fastmcp", "echo_fastmcp", "shipped")),
    Contender("FastMCP 4.1.2, stateless", STATELESS, theirs("fastmcp-fast", "echo_fastmcp", "stateless")),
    Contender("FastMCP 4.1.2, fastest", FASTEST, theirs("fastmcp-fast", "echo_fastmcp", "fastest")),
)
UVLOOP = (
    Contender("raw ASGI, uvloop", "the floor on uvloop", ours("floor", "uvloop"), ("echo",)),
    Contender("greenroom, uvloop", "as it ships, on uvloop", ours("echo", "uvloop")),
)
