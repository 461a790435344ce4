"""A child as a supervisor of the model sees it, and how its exit is judged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .model_processes import KILLED, NO_PROCESS, SHUTDOWN, ModelProcess, is_orderly

if TYPE_CHECKING:
    from .example_plan import Restart

GAVE_UP: Final = "shutdown (reached max restart intensity)"
UNLINKED: Final = NO_PROCESS


@dataclass(eq=False, slots=True)
class ModelChild:
    """The state of one child: running, `restarting`, or neither."""

    index: int
    restart: Restart
    significant: bool
    process: ModelProcess | None = None
    restarting: bool = False
    formerly: ModelProcess | None = None
    turn: int = 0
    since: float = 0.0
    tries: int = 0

    def show(self) -> str:
        """The child as `which_children` shows it."""
        return "restarting" if self.restarting else str(self.process) if self.process else "undefined"

    def runs_as(self, process: ModelProcess | None) -> None:
        """The child was started, or is known not to run."""
        self.process, self.restarting = process, False
        self.turn += 1

    def to_be_retried(self, formerly: ModelProcess | None) -> None:
        """The restart failed; a caller that knows the child by its last process may still ask for it."""
        self.process, self.restarting, self.formerly = None, True, formerly or self.formerly
        self.turn += 1


def is_accepted_exit(reason: str, child: ModelChild, *, brutal: bool) -> bool:
    """Whether a stopped child exited as it should."""
    if reason in ((KILLED,) if brutal else (SHUTDOWN, GAVE_UP)):
        return True
    return child.restart != "permanent" and is_orderly(reason)
