"""What is wrong with a value, and where: the one form in which all checks of values speak; and how much a check may cost."""

from __future__ import annotations

import re
import time
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


class ProblemReason(str):
    """Why, in words; `kind` is the same as one word for programs, such as `type_mismatch` or `missing_required`."""

    __slots__ = ("kind",)
    kind: str

    def __new__(cls, text: str, kind: str = "invalid") -> Self:
        """The words, and the word."""
        made = super().__new__(cls, text)
        made.kind = kind
        return made


class ValidationProblem(NamedTuple):
    """One thing that is wrong: the keys and indices from the root to the place, and why."""

    path: Path
    reason: ProblemReason

    def __str__(self) -> str:
        return f"{path_text(self.path)}: {self.reason}" if self.path else str(self.reason)


def too_costly_reason(steps: int) -> ValidationProblem:
    """What is wrong with a value that cannot be checked in so many steps."""
    return ValidationProblem(
        (), ProblemReason(f"there is too much in it to be checked: more than {steps} steps", "too_complex")
    )


class Mismatch(GreenroomError):
    """A value is not what was asked for. `errors` are all the problems, not only the first."""

    def __init__(self, errors: Sequence[ValidationProblem]) -> None:
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


# --- How much one check may cost, in steps: everything that is done for a peer's schema or value is charged before it is done.
# A step stands for at most about a microsecond, and most take a quarter of one. A check on the event loop may take `STEPS_ON_LOOP` of them, which is
# far below the 50 ms for which no peer may hold the loop. What takes more raises `StepsExceeded`, and may be begun again in a thread, where
# `PacedStepMeter` allows `STEPS_IN_THREAD` and lets go of the interpreter every few hundred microseconds.

STEPS_ON_LOOP: Final = 50_000
"""Steps on the event loop."""
STEPS_IN_THREAD: Final = 5_000_000
"""Steps of one check in a thread: some seconds, at most."""

_SLICE: Final = 2_000
_PAUSE: Final = 0.000_05


class StepsExceeded(Exception):
    """All steps are used up."""


class StepMeter:
    """How many steps are left. Hot loops write `meter.left -= n` themselves, and call `exceeded` when it is negative."""

    __slots__ = ("left",)

    def __init__(self, steps: int = STEPS_ON_LOOP) -> None:
        """So many may be taken."""
        self.left = steps

    def spend(self, steps: int) -> None:
        """Take these. Raises `StepsExceeded` when there are not as many."""
        self.left -= steps
        if self.left < 0:
            self.refill_or_raise()

    def refill_or_raise(self) -> None:
        """`left` has become negative. Raises `StepsExceeded`, unless there are more."""
        raise StepsExceeded


class PacedStepMeter(StepMeter):
    """For a check in a thread of its own.

    The interpreter takes its lock from a busy thread only after 5 ms, each time that the event loop comes back from waiting. So the
    thread sleeps for a moment after each slice of its steps, which hands the lock over at once; that costs a tenth of its time.
    """

    __slots__ = ("rest", "stopped")

    def __init__(self, steps: int = STEPS_IN_THREAD) -> None:
        """So many may be taken in all."""
        super().__init__(min(_SLICE, steps))
        self.rest = steps - self.left
        self.stopped = False
        """Set by another thread when the result is not wanted any more."""

    def refill_or_raise(self) -> None:
        """Begin the next slice. Raises `StepsExceeded` when there is none, or when the check was stopped."""
        self.rest += self.left  # which have been taken already
        if self.stopped or self.rest < 0:
            raise StepsExceeded
        self.left = min(_SLICE, self.rest)
        self.rest -= self.left
        time.sleep(_PAUSE)
