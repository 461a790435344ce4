"""The root of every error that greenroom raises on purpose. Every room stands on this file, and it stands on nothing."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

Named = TypeVar("Named")


class GreenroomError(Exception):
    """The root of everything that greenroom raises on purpose."""


class ConfigError(GreenroomError, ValueError):
    """Something was set up in a way that cannot work, or must not: what it is, and what to write instead."""


def unknown_option(
    what: str, word: str, known: Collection[str], elsewhere: Mapping[str, str] | None = None, otherwise: str = ""
) -> str:
    """That `what` has no such option, and which one was probably meant; `elsewhere` is what other names stand for.

    `otherwise` is said of a name that is close to none; without, all that there are are listed.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - only after a mistake

    near = get_close_matches(word, list(known), 1)
    meant = (elsewhere or {}).get(word) or (
        f"did you mean {near[0]}?" if near else otherwise or f"it has {', '.join(known)}"
    )
    return f"{what} has no option {word!r}: {meant}"


def suggests(what: str, elsewhere: Mapping[str, str] | None = None, otherwise: str = "") -> Callable[[Named], Named]:
    """Decorate a class or a function: a keyword argument that it does not have is a `ConfigError`, in the words of `unknown_option`.

    Python's own TypeError names neither what was meant nor, of a class, the class.
    """

    def decorate(made: Named) -> Named:
        function: Any = getattr(made, "__init__") if isinstance(made, type) else made  # noqa: B009 - whichever it has
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
