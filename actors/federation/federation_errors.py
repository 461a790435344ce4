"""What a federation refuses, beyond what a client does: `CircuitOpen` and `Parked` are the client's own words.

::

    ClientError
    └─ UpstreamBusy        as many as may are under way, and as many wait; also a `Busy` of the supervision's
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, ClassVar

from greenroom.actors.client.errors import ClientError
from greenroom.errors import GreenroomError
from greenroom.supervision import Busy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from greenroom.protocol.validation_errors import ValidationProblem


class UpstreamBusy(ClientError, Busy):
    """No room now. `retry_after` is in about how many seconds there may be some, where that can be guessed. Nothing was sent."""

    reason = "busy"


# --- Why a name leads to no tool, and why a call was not sent. Each has its `reason`, a word that programs can compare.
# ::
#     FederationError
#     ├─ NoSeparator        the name does not say whose tool it is
#     ├─ UnknownServer      no server in the federation is called that
#     │  └─ MisconfiguredServer   it stands in a file, with a mistake
#     ├─ UnknownTool        the server has no such tool
#     ├─ ToolCollision      two tools would have the same name
#     └─ InvalidArguments   the arguments are not what the tool's own schema asks for: nothing was sent
# The message suggests similar names: the caller that mistypes a name is mostly a model, and reads it.

_MOST_COMPARED = 2000
_SHOWN = 100
_FEW = 5
_LONG = 24


class FederationError(GreenroomError):
    """A name that leads nowhere, or a call that was not sent."""

    reason: ClassVar[str] = "federation_error"


class _UnknownName(FederationError):
    """A name that leads nowhere; `suggestions` sound like it."""

    _what: ClassVar[str] = ""
    _lists: ClassVar[bool] = False
    """Whether all that there is may be named, where nothing sounds like it: a host has a few servers, and hundreds of tools."""

    separator = ":"
    """What stands between a server's id and a name of its own."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        """`known` are the names that there are."""
        self.name = name
        there = list(known)
        self.suggestions = similar_names(name, there)
        self._there = [each if len(each) <= _LONG else f"{each[:_LONG]}…" for each in there[:_FEW]]
        if len(there) > _FEW:
            self._there.append(f"{len(there) - _FEW} more")
        super().__init__(name, self.suggestions)

    def __str__(self) -> str:
        shown = self.name if len(self.name) <= _SHOWN else f"{self.name[:_SHOWN]}…"
        instead = f"; there is {', '.join(self._there)}" if self._there and self._lists else ""
        if self.suggestions:
            instead = f"; did you mean {' or '.join(self.suggestions)}?"
        return f"{self._what.format(name=repr(shown))}{instead}"


class NoSeparator(_UnknownName):
    """The name does not say whose tool it is. What is suggested are whole names, which can be written as they are."""

    reason = "no_separator"
    _what = "{name} does not say which server's it is"

    def __str__(self) -> str:
        shown = self.name if len(self.name) <= _SHOWN else f"{self.name[:_SHOWN]}…"
        meant = " or ".join(self.suggestions) or f"SERVER{self.separator}{shown}"
        return f"{self._what.format(name=repr(shown))}: write {meant}"


class UnknownServer(_UnknownName):
    """No server in the federation is called that."""

    reason = "unknown_server"
    _what = "there is no server called {name}"
    _lists = True


class MisconfiguredServer(UnknownServer):
    """The configuration has such a server, and it was not started: there is a mistake in it, or starting it failed and is tried again."""

    reason = "misconfigured"

    def __init__(self, name: str, why: str) -> None:
        """`why` has the file, the line and the mistake, or the error of the start."""
        super().__init__(name)
        self.why = why

    def __str__(self) -> str:
        return f"the server {self.name!r} was not started: {self.why}"


class UnknownTool(_UnknownName):
    """The server has no such tool."""

    reason = "unknown_tool"
    _what = "there is no tool called {name}"


class ToolCollision(FederationError):
    """Two tools would have the same name. `tools` are both, as (server, tool)."""

    reason = "tool_collision"

    def __init__(self, name: str, one: tuple[str, str], other: tuple[str, str]) -> None:
        """`name` is what both would be called."""
        super().__init__(name, one, other)
        self.name = name
        self.tools = (one, other)

    def __str__(self) -> str:
        (one, first), (other, second) = self.tools
        return (
            f"{first!r} of {one!r} and {second!r} of {other!r} would both be called {self.name!r}: "
            f"give one of them an alias, as in aliases={{({other!r}, {second!r}): 'another name'}}"
        )


class InvalidArguments(FederationError):
    """The arguments are not what the tool asks for. Nothing was sent. `errors` are all the problems."""

    reason = "invalid_arguments"

    def __init__(self, name: str, errors: Sequence[ValidationProblem]) -> None:
        """At least one problem."""
        super().__init__(name, errors)
        self.name = name
        self.errors = list(errors)

    def __str__(self) -> str:
        return f"the arguments of {self.name} are wrong: {'; '.join(str(one) for one in self.errors)}"


def similar_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The names that sound like it, best first. So many are looked at, and no more."""
    names = [one for one, _ in zip(known, range(_MOST_COMPARED), strict=False)]
    return tuple(get_close_matches(name[: 2 * _SHOWN], names, n=3, cutoff=0.6))
