"""Which rules hold while servers change: stricter ones at once, looser ones when the server that they were written for is there.

A file may change a server's program and, with it, what that may do. The new program takes a moment to come up, and until then the old one is
called, under rules that were never meant for it; and one that is removed still answers while it leaves. So for each server the rules that it came by
count as long as it is there, beside those that are wanted: of what they say the strictest holds.
"""

from __future__ import annotations

from functools import cached_property
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
        """`others` says which else count for a server. With `free`, what no rule was written for at all is allowed."""
        super().__init__(config.permissions.rules)
        self.config = config
        self._others = others
        self._free = free

    @cached_property
    def ruled(self) -> bool:
        """Whether somebody has written a rule in this configuration."""
        return self.config.ruled

    def ruled_for(self, server: str) -> bool:
        """Whether there is a rule in any that counts for this server."""
        return any(one.ruled for one in self._all(server))

    def of_tool(self, server: str, tool: str) -> Decided:
        """What holds for a call of this tool."""
        return self._strictest(server, lambda one: Permissions.of_tool(one, server, tool))

    def of_elicitation(self, server: str) -> Decided:
        """What holds when this server wants to ask the user something."""
        return self._strictest(server, lambda one: Permissions.of_elicitation(one, server))

    def _all(self, server: str) -> list[Regime]:
        return [self, *(one for one in self._others(server) if one is not self)]

    def _strictest(self, server: str, decide: Callable[[Regime], Decided]) -> Decided:
        count = self._all(server)
        if len(count) == 1:
            return decide(self)
        if self._free and any(
            one.ruled for one in count
        ):  # without any rule everything was allowed: it asks for nothing
            count = [one for one in count if one.ruled]
        return max(map(decide, count), key=lambda said: _STRICTNESS.index(said.verdict))
