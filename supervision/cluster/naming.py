"""What goes to another node by its name: functions and classes, which both ends have in the same module, and nobody sends as code."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any
from weakref import WeakKeyDictionary

from greenroom.supervision.kernel.errors import ActorError

_names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
_found: dict[str, Any] = {}


class CannotTravel(ActorError, TypeError):
    """A value that cannot be sent to another node: what it is, and why not."""


def name_of(thing: Any) -> str:
    """`module:qualified.name` of a function or class that can be found by it. Raises `CannotTravel`."""
    try:
        known = _names.get(thing)
    except TypeError:  # a class whose own class says how it is compared, and not how it is hashed
        known = None
    if known is not None:
        return known
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    written = f"{module}:{name}"
    if "<" in name:
        raise CannotTravel(
            f"{shown(thing)} cannot travel to another node: define it at the top of a module, not inside a function"
        )
    try:
        found = _look_up(written)
    except Exception:  # noqa: BLE001 - not there, or whatever the import of a module raises
        found = None
    if found is not thing:
        raise CannotTravel(f"{shown(thing)} cannot travel to another node: {written} is not it")
    with contextlib.suppress(TypeError):
        _names[thing] = written
    return written


def shown(value: object) -> str:
    """For whoever reads what is wrong with it."""
    try:
        text = repr(value)
    except BaseException:  # noqa: BLE001 - whatever a user's __repr__ does
        text = object.__repr__(value)
    return text if len(text) <= 200 else f"{text[:200]}…"  # noqa: PLR2004


def find(name: str) -> Any:
    """The function or class of that name, whose module is imported if need be."""
    found = _found.get(name)
    if found is None:
        found = _found[name] = _look_up(name)
    return found


def _look_up(name: str) -> Any:
    module, _, qualified = name.partition(":")
    found = importlib.import_module(module)
    for step in qualified.split("."):
        found = getattr(found, step)
    return found
