"""Which rules hold while servers change: stricter ones at once, looser ones when the server that they were written for is there.

A file may change a server's program and, with it, what that may do. The new program takes a moment to come up, and until then the old one is
called, under rules that were never meant for it; and one that is removed still answers while it leaves. So for each server the rules that it came by
count as long as it is there, beside those that are wanted: of what they say the strictest holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.actors.consent.rules import Decided, Permissions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from greenroom.actors.consent.rules import Verdict

    from .values import HostConfig

_STRICTNESS: Final[tuple[Verdict, ...]] = ("allow", "ask", "deny")


class Regime(Permissions):
    """The rules of one configuration, beside those under which a server runs that is not yet, or still, as it is wanted."""

    def __init__(self, config: HostConfig, others: Callable[[str], Iterable[Regime]], *, free: bool = False) -> None:
        """`others` says which else count for a server. With `free`, what no rule is about is allowed where none allows anything."""
        super().__init__(config.permissions.rules, otherwise="ask" if config.ruled or not free else "allow")
        self._others = others

    def of_tool(self, server: str, tool: str) -> Decided:
        """What holds for a call of this tool."""
        return self._strictest(server, lambda one: Permissions.of_tool(one, server, tool))

    def of_elicitation(self, server: str) -> Decided:
        """What holds when this server wants to ask the user something."""
        return self._strictest(server, lambda one: Permissions.of_elicitation(one, server))

    def _all(self, server: str) -> list[Regime]:
        return [self, *(one for one in self._others(server) if one is not self)]

    def _strictest(self, server: str, decide: Callable[[Regime], Decided]) -> Decided:
        return max(map(decide, self._all(server)), key=lambda said: _STRICTNESS.index(said.verdict))

    def beside(self, own: Permissions) -> Permissions:
        """A program's own rules, and what is denied here besides."""
        return _Denied(own.own if isinstance(own, _Denied) else own, self)


class _Denied(Permissions):
    """Rules that are a program's own, where files deny more."""

    def __init__(self, own: Permissions, files: Regime) -> None:
        super().__init__(own.rules)
        self.own = own
        self._files = files

    def of_tool(self, server: str, tool: str) -> Decided:
        """What holds for a call of this tool."""
        said = self._files.of_tool(server, tool)
        return said if said.verdict == "deny" else self.own.of_tool(server, tool)

    def of_elicitation(self, server: str) -> Decided:
        """What holds when this server wants to ask the user something."""
        said = self._files.of_elicitation(server)
        return said if said.verdict == "deny" else self.own.of_elicitation(server)
