"""What the environment says for all servers: our own variables first, those of Claude Code where ours are not set.

`MAX_MCP_OUTPUT_TOKENS` is not read under its plain name: it may have been set for a server. Ours are seconds. The others are milliseconds, as Claude Code
has them, unless the number is under 1000: nobody gives a server less than a second, and there are programs that mean seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .kinds import MOST
from .mistakes import Mistake, Source, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT: Final = "GREENROOM_MCP_TIMEOUT"
TOOL: Final = "GREENROOM_MCP_TOOL_TIMEOUT"
TOKENS: Final = "GREENROOM_MAX_MCP_OUTPUT_TOKENS"
PORT: Final = "GREENROOM_MCP_OAUTH_PORT"
FALLBACKS: Final = {CONNECT: "MCP_TIMEOUT", TOOL: "MCP_TOOL_TIMEOUT"}

_MILLISECONDS: Final = 1000
_HIGHEST_PORT: Final = 65535
ENVIRONMENT: Final = "environment"
"""What a mistake in a variable names as its file."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What was said there."""

    connect: float = 30.0
    """As in Claude Code. caliban has 5 s, in which no `uvx` has fetched what it is to start; who waits for a server is only who wants it."""
    tool: float = 60.0
    output_tokens: int = 25_000
    oauth_port: int = 0

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> tuple[Environment, list[Mistake]]:
        """What is set, and what is wrong with it; then the default holds."""
        mistakes: list[Mistake] = []
        said = {
            "connect": _seconds(variables, CONNECT, mistakes),
            "tool": _seconds(variables, TOOL, mistakes),
            "output_tokens": _whole(variables, TOKENS, 100, MOST, mistakes),
            "oauth_port": _whole(variables, PORT, 0, _HIGHEST_PORT, mistakes),
        }
        known: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        return cls(**known), mistakes


def _seconds(variables: Mapping[str, str], name: str, mistakes: list[Mistake]) -> float | None:
    for each in (name, FALLBACKS[name]):
        text = variables.get(each, "").strip()
        if not text:
            continue
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if 0 < value <= MOST * _MILLISECONDS:
            return value if each == name or value < _MILLISECONDS else value / _MILLISECONDS
        kind = "seconds" if each == name else "milliseconds"
        mistakes.append(_wrong(each, text, f"has to be a number of {kind}, more than 0"))
    return None


def _whole(variables: Mapping[str, str], name: str, least: int, most: int, mistakes: list[Mistake]) -> int | None:
    text = variables.get(name, "").strip()
    if not text:
        return None
    value = int(text) if text.isascii() and text.isdigit() and len(text) < len(str(MOST)) + 2 else -1
    if least <= value <= most:
        return value
    mistakes.append(_wrong(name, text, f"has to be a whole number from {least} to {most}"))
    return None


def _wrong(name: str, text: str, what: str) -> Mistake:
    return Mistake(
        Source(ENVIRONMENT, 0), None, name, f"{what}, not {quoted(text)}", "it is passed over", harmless=True
    )
