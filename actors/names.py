"""What the processes of a company are registered as: the company's own key, the role, and for a session its id.

Names stand in drawings, reports and errors. A session's id is as good as a ticket to it, so nobody reads more than its beginning.
"""

from __future__ import annotations

import secrets
from itertools import count
from typing import Final, NamedTuple

_SHOWN: Final = 8
"""How much of an id is told: enough to tell two sessions apart, and far too little to guess one."""

_serials: Final = count(1)


class Key(NamedTuple):
    """What tells one company's names from another's."""

    name: str
    serial: int

    def __str__(self) -> str:
        return self.name if self.serial == 1 else f"{self.name}-{self.serial}"

    @classmethod
    def new(cls, name: str) -> Key:
        """One that nobody else has."""
        return cls(name, next(_serials))


class Name(NamedTuple):
    """The name of one process."""

    company: Key
    role: str
    id: str = ""

    def __repr__(self) -> str:
        return f"{self.company}/{self.role}" + (f"/{shown(self.id)}" if self.id else "")

    def __str__(self) -> str:
        return repr(self)


def new_id(kind: str, *, channel: bool = False) -> str:  # noqa: ARG001 - for those who put more into an id than this
    """An id that nobody can guess, for a session (with a channel, or without) or a task."""
    return f"{kind}_{secrets.token_hex(16)}"


def shown(session_id: str) -> str:
    """A session's id as it may be told."""
    return f"{session_id.removeprefix('mcp_')[:_SHOWN]}…"
