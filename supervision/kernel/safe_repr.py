"""Short texts of values for reports: bounded, without secrets, and safe against a `__repr__` that raises.

A report may end up in a log, so arguments, fields and keys that are named like a secret are hidden. A secret value without such a name cannot be recognised.
"""

from __future__ import annotations

import re
import reprlib
from typing import TYPE_CHECKING, Any

from .process_messages import ASK, CALL, CAST, CONTINUE, INFO, INIT, SIGNAL, STOP, SYSTEM, TELL, TERMINATE, TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .process_messages import MailboxEntry

_SECRET = ("secret", "token", "password", "passwd", "credential", "authorization", "cookie", "api_key", "apikey")
HIDDEN = "<hidden>"
_LONGEST = 10_000  # characters of a repr that are looked at; a few of them are shown
_PLAIN = 120  # characters of a text that is shown whole
_SMALL = 10**18
_NAME = re.compile(r"""\b(\w+)['"]?\s*[=:]\s*""")
_VALUE = re.compile(r"""[a-z]?(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|[\[({][^\])}]*[\])}]|[^,;)\s\]}]+""")


def _named_secret(name: object) -> bool:
    text = str(name).lower()
    return any(word in text for word in _SECRET)


def _scrubbed(text: str) -> str:
    """The text with the values after secret names hidden."""
    parts: list[str] = []
    at = 0
    for name in _NAME.finditer(text):
        if name.start() >= at and _named_secret(name[1]):
            value = _VALUE.match(text, name.end())
            parts += text[at : name.end()], HIDDEN
            at = name.end() if value is None else value.end()
    return "".join(parts) + text[at:]


class _Short(reprlib.Repr):
    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = _PLAIN
        self.maxlist = self.maxtuple = self.maxdict = self.maxset = self.maxdeque = 8
        self.maxlevel = 4

    def repr_dict(self, x: Mapping[Any, Any], level: int) -> str:
        return super().repr_dict({key: _Hidden() if _named_secret(key) else value for key, value in x.items()}, level)

    def repr_instance(self, x: object, level: int) -> str:
        # The repr of a dataclass, a named tuple or a model shows its fields, so secrets are hidden in the text.
        try:
            text = _scrubbed(repr(x)[:_LONGEST])
        except BaseException as error:  # noqa: BLE001 - a report must come out whatever a user's __repr__ does
            return f"<{type(x).__name__}: its repr raised {type(error).__name__}>"
        half = (self.maxother - 3) // 2
        return text if len(text) <= self.maxother else f"{text[:half]}...{text[-half:]}"

    def repr_bytes(self, x: bytes, level: int) -> str:
        return self.repr_instance(x[: self.maxother], level)


class _Hidden:
    def __repr__(self) -> str:
        return HIDDEN


_short = _Short()


def short(value: object) -> str:
    """A `repr` of bounded length that cannot fail."""
    # Fast path for short strings and small integers, which nearly all labels are: `reprlib.Repr` builds a method name for each
    # value, and the interpreter's method cache keeps each of those strings alive for a long time.
    kind = type(value)
    if kind is str and len(value) < _PLAIN and len(text := repr(value)) <= _PLAIN:  # type: ignore[arg-type]
        return text
    if kind is int and -_SMALL < value < _SMALL:  # type: ignore[operator]
        return repr(value)
    try:
        return _short.repr(value)
    except BaseException as error:  # noqa: BLE001 - as above
        return f"<{type(value).__name__}: its repr raised {type(error).__name__}>"


def fields(values: Mapping[str, object]) -> str:
    """`name=value` for each, secrets hidden."""
    return ", ".join(f"{name}={HIDDEN if _named_secret(name) else short(value)}" for name, value in values.items())


def arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any], function: object = None) -> str:
    """The arguments of a call as text; `function`, a method, supplies their names."""
    code: Any = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    names: tuple[str, ...] = () if code is None else code.co_varnames[1 : code.co_argcount]
    known = (*names, *("" for _ in args[len(names) :]))
    parts = [HIDDEN if _named_secret(name) else short(value) for name, value in zip(known, args, strict=False)]
    if kwargs:
        parts.append(fields(kwargs))
    return ", ".join(parts)


def message(entry: MailboxEntry) -> str:
    """A mailbox entry as text: its kind and its contents."""
    kind = entry[0]
    if kind in (CALL, CAST):
        word = "call" if kind == CALL else "cast"
        return f"{word} {getattr(entry[1], '__name__', short(entry[1]))}({arguments(entry[2], entry[3], entry[1])})"
    if kind == INIT:
        server: object = getattr(getattr(entry[3], "process", None), "behaviour", None)
        return f"init({arguments(entry[1], entry[2], getattr(type(server), '__init__', None))})"
    words = {INFO: "info", SIGNAL: "signal", TELL: "cast", ASK: "call", CONTINUE: "continue"}
    words |= {TERMINATE: "terminate", STOP: "stop", SYSTEM: "system", TIMEOUT: "timeout"}
    return f"{words.get(kind, 'message')} {short(entry[1])}"
