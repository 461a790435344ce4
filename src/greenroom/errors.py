"""The root of greenroom's errors, and errors for unknown options. All packages import this module, and it imports nothing."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

Named = TypeVar("Named")


class GreenroomError(Exception):
    """The root of all errors that greenroom raises deliberately."""


class ConfigError(GreenroomError, ValueError):
    """A configuration that cannot work or is not allowed; the message says what to write instead."""


def unknown_option(
    what: str, word: str, known: Collection[str], elsewhere: Mapping[str, str] | None = None, otherwise: str = ""
) -> str:
    """The error text for an option that `what` does not have, with a suggestion. `elsewhere` explains the names of other libraries.

    `otherwise` is used for a name that is similar to none; without it, all options are listed.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only needed after a mistake

    near = get_close_matches(word, list(known), 1)
    meant = (elsewhere or {}).get(word) or (
        f"did you mean {near[0]}?" if near else otherwise or f"it has {', '.join(known)}"
    )
    return f"{what} has no option {word!r}: {meant}"


def suggests(what: str, elsewhere: Mapping[str, str] | None = None, otherwise: str = "") -> Callable[[Named], Named]:
    """Decorate a class or function: an unknown keyword argument raises `ConfigError` with the text of `unknown_option`.

    Python's TypeError suggests no name, and for a class does not name the class.
    """

    def decorate(made: Named) -> Named:
        function: Any = getattr(made, "__init__") if isinstance(made, type) else made  # noqa: B009 - whichever it has
        # Read from the code object: this runs at import, and `inspect.signature` would import inspect (6 ms) and take ten times as long.
        code = function.__code__
        known = tuple(each for each in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if each != "self")
        names = frozenset(known)

        @wraps(function)
        def checked(*args: Any, **words: Any) -> Any:
            if not names.issuperset(words):
                word = next(each for each in words if each not in names)
                raise ConfigError(unknown_option(what, word, known, elsewhere, otherwise.format(word)))
            return function(*args, **words)

        if isinstance(made, type):
            setattr(made, "__init__", checked)  # noqa: B010 - same
            return made
        return cast("Named", checked)

    return decorate
