"""Lazy names of packages: loading a name at its first use, and `__all__` of packages that import eagerly."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_NAMES = ("TYPE_CHECKING", "annotations", "exported_names")


def load_name(package: str, homes: Mapping[str, str], name: str) -> object:
    """Load a name of a package and store it in the package, so that later uses do not come here.

    `homes` maps modules to the names that the package exports from each.

    Raises:
        AttributeError: The package has no such name, and had none in earlier versions.

    """
    module = sys.modules[package]
    home = next((home for home, names in homes.items() if name in names.split()), None)
    if home is not None:
        value: object = getattr(import_module(home), name)
        setattr(module, name, value)
        return value
    # `from package import module` asks for the attribute first; only if there is no such module either, names that have moved are looked up.
    if PathFinder.find_spec(f"{package}.{name}", module.__path__) is not None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
    from .moved import moved_name  # noqa: PLC0415 - only needed for names that have moved

    return moved_name(package, name, stacklevel=4)


def exported_names(package: str, *modules: str) -> list[str]:
    """The `__all__` of a package after its imports: all its public names, but only those of its own modules that are passed."""
    found = vars(sys.modules[package])
    own = {name for name, value in found.items() if getattr(value, "__name__", None) == f"{package}.{name}"}
    return sorted(name for name in {*modules, *(found.keys() - own)} if name[0] != "_" and name not in _NO_NAMES)
