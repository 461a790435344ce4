"""Short, safe texts about values: for reports, never for data.

A report may end up in a log, so it is bounded in size, never raises whatever a `__repr__` does, and shows nothing that
is named like a secret.
"""

from __future__ import annotations

import reprlib
from typing import TYPE_CHECKING, Any

from .messages import ASK, CALL, CAST, CONTINUE, INFO, INIT, SIGNAL, STOP, SYSTEM, TELL, TERMINATE, TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .messages import Entry

_SECRET = ("secret", "token", "password", "passwd", "credential", "authorization", "cookie", "api_key", "apikey")
HIDDEN = "<hidden>"


def _named_secret(name: object) -> bool:
    text = str(name).lower()
    return any(word in text for word in _SECRET)


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 120
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxdeque = 8
        self.maxlevel = 4

    def repr_dict(self, x: Mapping[Any, Any], level: int) -> str:
        return super().repr_dict({key: _Hidden() if _named_secret(key) else value for key, value in x.items()}, level)


class _Hidden:
    def __repr__(self) -> str:
        return HIDDEN


_short = _Short()


def short(value: object) -> str:
    """A `repr` of bounded length that cannot fail."""
    try:
        return _short.repr(value)
    except Exception as error:  # noqa: BLE001 - a report must come out whatever a user's __repr__ does
        return f"<{type(value).__name__}: its repr raised {type(error).__name__}>"


def fields(values: Mapping[str, object]) -> str:
    """`name=value` for each, secrets hidden."""
    return ", ".join(f"{name}={HIDDEN if _named_secret(name) else short(value)}" for name, value in values.items())


def arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """The inside of a call's brackets."""
    parts = [short(value) for value in args]
    if kwargs:
        parts.append(fields(kwargs))
    return ", ".join(parts)


def message(entry: Entry) -> str:
    """What an entry of a mailbox says, in words."""
    kind = entry[0]
    if kind in (CALL, CAST):
        word = "call" if kind == CALL else "cast"
        return f"{word} {getattr(entry[1], '__name__', short(entry[1]))}({arguments(entry[2], entry[3])})"
    if kind == INIT:
        return f"init({arguments(entry[1], entry[2])})"
    words = {INFO: "info", SIGNAL: "signal", TELL: "cast", ASK: "call", CONTINUE: "continue"}
    words |= {TERMINATE: "terminate", STOP: "stop", SYSTEM: "system", TIMEOUT: "timeout"}
    return f"{words.get(kind, 'message')} {short(entry[1])}"
