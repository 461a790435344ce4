"""Validation errors: the one form of all checks, and the meter that bounds what a check costs."""

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
"""The path to a value, from its end: pairs of (path before, name or index). Extending it costs the same at any depth."""


def path_of(trail: Trail) -> Path:
    """The path from the root."""
    path: list[str | int] = []
    while trail is not None:
        trail, step = trail
        path.append(step)
    return tuple(path[::-1])


class ProblemReason(str):
    """The reason as text; `kind` is the same as one word for programs, such as `type_mismatch` or `missing_required`."""

    __slots__ = ("kind",)
    kind: str

    def __new__(cls, text: str, kind: str = "invalid") -> Self:
        """`text` for people, `kind` for programs."""
        made = super().__new__(cls, text)
        made.kind = kind
        return made


class ValidationProblem(NamedTuple):
    """One mistake: the keys and indices from the root to its place, and the reason."""

    path: Path
    reason: ProblemReason

    def __str__(self) -> str:
        return f"{path_text(self.path)}: {self.reason}" if self.path else str(self.reason)


def too_costly_reason(steps: int) -> ValidationProblem:
    """The problem of a value whose check exceeds the steps."""
    return ValidationProblem(
        (), ProblemReason(f"there is too much in it to be checked: more than {steps} steps", "too_complex")
    )


class Mismatch(GreenroomError):
    """A value is invalid. `errors` has all problems, not only the first."""

    def __init__(self, errors: Sequence[ValidationProblem]) -> None:
        """`errors` has at least one problem."""
        super().__init__("; ".join(str(problem) for problem in errors))
        self.errors = list(errors)


def path_text(path: Sequence[Any]) -> str:
    """A path as text: `days[0].name`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            short = step if len(step) <= _LONGEST else f"{step[:_LONGEST]}…"
            name = short if _PLAIN.fullmatch(short) else repr(short)
            text += f".{name}" if text else name
    return text


# --- The cost of a check in steps: all work for a peer's schema or value is charged before it is done.
# A step is at most about a microsecond, and mostly a quarter of one. A check on the event loop may take `STEPS_ON_LOOP`, which is far below the 50 ms
# for which a peer may block the loop. A longer check raises `StepsExceeded` and may be repeated in a thread, where `PacedStepMeter` allows
# `STEPS_IN_THREAD` and releases the interpreter every few hundred microseconds.

STEPS_ON_LOOP: Final = 50_000
"""The steps of a check on the event loop."""
STEPS_IN_THREAD: Final = 5_000_000
"""The steps of a check in a thread: some seconds at most."""

_SLICE: Final = 2_000
_PAUSE: Final = 0.000_05


class StepsExceeded(Exception):
    """The check took all its steps."""


class StepMeter:
    """Counts the remaining steps. Hot loops write `meter.left -= n` themselves, and call `refill_or_raise` when it is negative."""

    __slots__ = ("left",)

    def __init__(self, steps: int = STEPS_ON_LOOP) -> None:
        """`steps` may be taken."""
        self.left = steps

    def spend(self, steps: int) -> None:
        """Take steps. Raises `StepsExceeded` if there are not as many."""
        self.left -= steps
        if self.left < 0:
            self.refill_or_raise()

    def refill_or_raise(self) -> None:
        """Called when `left` is negative. Raises `StepsExceeded`, unless there are more steps."""
        raise StepsExceeded


class PacedStepMeter(StepMeter):
    """The meter of a check in its own thread.

    The interpreter takes its lock from a busy thread only after 5 ms, each time that the event loop wakes up. So the thread sleeps for a moment
    after each slice of its steps, which hands over the lock at once and costs a tenth of its time.
    """

    __slots__ = ("remaining", "stopped")

    def __init__(self, steps: int = STEPS_IN_THREAD) -> None:
        """`steps` may be taken in all."""
        super().__init__(min(_SLICE, steps))
        self.remaining = steps - self.left
        self.stopped = False
        """Set by another thread to stop the check."""

    def refill_or_raise(self) -> None:
        """Begin the next slice. Raises `StepsExceeded` if there is none, or if the check was stopped."""
        self.remaining += self.left  # taken already
        if self.stopped or self.remaining < 0:
            raise StepsExceeded
        self.left = min(_SLICE, self.remaining)
        self.remaining -= self.left
        time.sleep(_PAUSE)
