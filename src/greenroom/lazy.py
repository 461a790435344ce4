"""Names that a package loads when they are first used: the front door, the rooms and the testing kit import nothing before."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def load(package: str, homes: Mapping[str, str], name: str) -> object:
    """A name of a package, which keeps it: later uses do not come through here.

    `homes` has the modules, and for each the names that the package takes of it.

    Raises:
        AttributeError: The package has no such name, and never had.

    """
    module = sys.modules[package]
    home = next((home for home, names in homes.items() if name in names.split()), None)
    # `from package import module` asks for the attribute first; only what is no module either is looked up among the names that have moved.
    if home is None and PathFinder.find_spec(f"{package}.{name}", module.__path__) is None:
        from .moved import home_of_moved  # noqa: PLC0415 - a program that uses what there is needs none of it

        home = home_of_moved(package, name)
    if home is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
    value: object = getattr(import_module(home), name)
    setattr(module, name, value)
    return value
