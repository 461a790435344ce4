"""Names of packages: those that are loaded when they are first used, and `__all__` of a package that has them at once."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_NAMES = ("TYPE_CHECKING", "annotations", "exported_names")


def load_name(package: str, homes: Mapping[str, str], name: str) -> object:
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


def exported_names(package: str, *modules: str) -> list[str]:
    """The `__all__` of a package that has imported its names by now: all of them, but of its own modules those that are named alone."""
    found = vars(sys.modules[package])
    own = {name for name, value in found.items() if getattr(value, "__name__", None) == f"{package}.{name}"}
    return sorted(name for name in {*modules, *(found.keys() - own)} if name[0] != "_" and name not in _NO_NAMES)
