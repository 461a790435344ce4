"""What is wrong with a value, and where: the one form in which all checks of values speak."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from greenroom.errors import GreenroomError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

_LONGEST: Final = 100
_PLAIN: Final = re.compile(r"[\w$-]+")

Path: TypeAlias = "tuple[str | int, ...]"
Trail: TypeAlias = "tuple[Any, str | int] | None"
"""The path to a value from its end, as pairs of (path before, name or index): a step costs the same however deep it is."""


def path_of(trail: Trail) -> Path:
    """The path from the root."""
    path: list[str | int] = []
    while trail is not None:
        trail, step = trail
        path.append(step)
    return tuple(path[::-1])


class Reason(str):
    """Why, in words; `kind` is the same as one word for programs, such as `type_mismatch` or `missing_required`."""

    __slots__ = ("kind",)
    kind: str

    def __new__(cls, text: str, kind: str = "invalid") -> Self:
        """The words, and the word."""
        made = super().__new__(cls, text)
        made.kind = kind
        return made


class Problem(NamedTuple):
    """One thing that is wrong: the keys and indices from the root to the place, and why."""

    path: Path
    reason: Reason

    def __str__(self) -> str:
        return f"{path_text(self.path)}: {self.reason}" if self.path else str(self.reason)


def too_much(steps: int) -> Problem:
    """What is wrong with a value that cannot be checked in so many steps."""
    return Problem((), Reason(f"there is too much in it to be checked: more than {steps} steps", "too_complex"))


class Mismatch(GreenroomError):
    """A value is not what was asked for. `errors` are all the problems, not only the first."""

    def __init__(self, errors: Sequence[Problem]) -> None:
        """At least one problem."""
        super().__init__("; ".join(str(problem) for problem in errors))
        self.errors = list(errors)


def path_text(path: Sequence[Any]) -> str:
    """A path as people write it: `days[0].name`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            short = step if len(step) <= _LONGEST else f"{step[:_LONGEST]}…"
            name = short if _PLAIN.fullmatch(short) else repr(short)
            text += f".{name}" if text else name
    return text
