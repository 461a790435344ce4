"""greenroom: the Model Context Protocol as a company of supervised actors.

This is the front door, and it opens lazily: `import greenroom` loads nothing but this file, and each name below loads its own room
when it is first used. That keeps the import of a command line tool, or of a worker that needs one name, next to free.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .errors import GreenroomError

__all__ = ["GreenroomError", "__version__"]

__version__: Final[str] = "0.1.0.dev0"

# Public name -> the module it lives in. To add a name: one line here, one above for the type checkers, one in `__all__`; the house
# test compares the three.
_HOMES: Final[dict[str, str]] = {
    "GreenroomError": "greenroom.errors",
}


if not TYPE_CHECKING:  # a checker that saw this function would believe in every name

    def __getattr__(name: str) -> object:
        """Load `name` from its room at its first use, and keep it: later uses do not come through here."""
        home = _HOMES.get(name)
        if home is None:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message, name=name)
        value: object = getattr(import_module(home), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """Name what is not loaded yet as well, so that completion and `help` see the whole door."""
    return sorted({*globals(), *_HOMES})
