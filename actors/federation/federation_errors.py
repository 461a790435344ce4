"""Errors of a federation, beyond those of a client (`CircuitOpen` and `Parked` are in `actors.client.errors`).

::

    ClientError
    ├─ UpstreamBusy        too many requests are under way and waiting; also a `supervision.Busy`
    └─ ParkedByOperator    the cause of a `Parked`: the upstream is started again only when it is retried
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
    """The queue of this upstream is full, or the upstream is being replaced already. Nothing was sent.

    `retry_after` estimates after how many seconds there is room; None where no estimate is possible.
    """

    reason = "busy"


class ParkedByOperator(ClientError):
    """An operator has parked this upstream."""

    reason = "parked"


# --- Errors of names and arguments. Each has a `reason`, a word that programs can compare.
# ::
#     FederationError
#     ├─ NoSeparator        the name has no server in it
#     ├─ UnknownServer      no server has this id
#     │  └─ MisconfiguredServer   it is configured with a mistake
#     ├─ UnknownTool        the server has no such tool
#     ├─ ToolCollision      two tools have the same full name
#     └─ InvalidArguments   the arguments do not match the tool's schema: nothing was sent
# The messages suggest similar names: the caller is mostly a model, which reads them.

_MOST_COMPARED = 2000
_SHOWN = 100
_FEW = 5
_LONG = 24


class FederationError(GreenroomError):
    """A name that is not known, or a call that was not sent."""

    reason: ClassVar[str] = "federation_error"


class _UnknownName(FederationError):
    """A name that is not known; `suggestions` are similar names."""

    _what: ClassVar[str] = ""
    _lists: ClassVar[bool] = False
    """Whether the message lists the known names where none is similar: right for a few servers, not for hundreds of tools."""

    separator = ":"
    """The separator between a server's id and a tool's name."""

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        """`known` are the existing names."""
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
    """The name has no server in it. The suggestions are full names."""

    reason = "no_separator"
    _what = "{name} does not say which server's it is"

    def __str__(self) -> str:
        shown = self.name if len(self.name) <= _SHOWN else f"{self.name[:_SHOWN]}…"
        meant = " or ".join(self.suggestions) or f"SERVER{self.separator}{shown}"
        return f"{self._what.format(name=repr(shown))}: write {meant}"


class UnknownServer(_UnknownName):
    """No server has this id."""

    reason = "unknown_server"
    _what = "there is no server called {name}"
    _lists = True


class MisconfiguredServer(UnknownServer):
    """The server is configured and was not started: its configuration has a mistake, or its start failed and is tried again."""

    reason = "misconfigured"

    def __init__(self, name: str, why: str) -> None:
        """`why` is the mistake with file and line, or the error of the start."""
        super().__init__(name)
        self.why = why

    def __str__(self) -> str:
        return f"the server {self.name!r} was not started: {self.why}"


class UnknownTool(_UnknownName):
    """The server has no such tool."""

    reason = "unknown_tool"
    _what = "there is no tool called {name}"


class ToolCollision(FederationError):
    """Two tools have the same full name. `tools` are both, as (server, tool)."""

    reason = "tool_collision"

    def __init__(self, name: str, one: tuple[str, str], other: tuple[str, str]) -> None:
        """`name` is their common name."""
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
    """The arguments do not match the tool's schema. Nothing was sent. `errors` are all problems."""

    reason = "invalid_arguments"

    def __init__(self, name: str, errors: Sequence[ValidationProblem]) -> None:
        """`errors` has at least one problem."""
        super().__init__(name, errors)
        self.name = name
        self.errors = list(errors)

    def __str__(self) -> str:
        return f"the arguments of {self.name} are wrong: {'; '.join(str(one) for one in self.errors)}"


def similar_names(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """Similar names, best first. At most `_MOST_COMPARED` names are compared."""
    names = [one for one, _ in zip(known, range(_MOST_COMPARED), strict=False)]
    return tuple(get_close_matches(name[: 2 * _SHOWN], names, n=3, cutoff=0.6))
