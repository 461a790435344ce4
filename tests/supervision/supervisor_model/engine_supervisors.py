"""The real supervisors of a plan, and the mapping from its roles to processes.

They do what the plan says and log what happens to them; nothing here knows what is expected.

"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from greenroom.supervision import (
    Backoff,
    ChildSpec,
    Continue,
    DynamicSupervisor,
    Supervisor,
    start_routine_link,
    template,
)

from .example_plan import QUIET, Team, backoff, blueprint, boss, is_dynamic, is_named, patience
from .server_workers import Player, TrappingPlayer, settling
from .state_machine_workers import Machine, TrappingMachine
from .task_workers import errand

if TYPE_CHECKING:
    from .run_log import Book


class Troupe(Supervisor):
    """A supervisor of the plan."""

    def __init__(self, book: Book, role: str) -> None:
        """Enter the stage."""
        self.book = book
        book.born(self._otp_process, role)
        plan = blueprint(book.plan.tree, role)
        assert isinstance(plan, Team)
        assert plan.strategy != "dynamic"
        super().__init__(
            [spec(book, f"{role}.{index}", index) for index in range(len(plan.children))],
            strategy=plan.strategy,
            intensity=plan.intensity,
            period=plan.period,
            auto_shutdown=plan.auto_shutdown,
            backoff=Backoff(first=1e3, longest=1e3) if plan.backoff else None,  # what each child says goes before
        )

    async def init(self) -> Any:
        """Start the children."""
        outcome = await super().init()
        if outcome is None:
            self.book.ready(self._otp_process)
            seconds = settling(self.book, self._otp_process)
            return Continue(seconds) if seconds else None
        return outcome

    async def handle_continue(self, token: float) -> None:
        """Rest."""
        await self.book.wake(self.book.node.loop.time() + token)


class Agency(DynamicSupervisor):
    """A dynamic supervisor of the plan."""

    def __init__(self, book: Book, role: str) -> None:
        """Enter the stage."""
        self.book = book
        book.born(self._otp_process, role)
        plan = blueprint(book.plan.tree, role)
        assert isinstance(plan, Team)
        pattern = _spec_of(server(book, f"{role}.0"), book) if plan.template else None
        super().__init__(
            None if pattern is None else as_planned(pattern, book, f"{role}.0"),
            intensity=plan.intensity,
            period=plan.period,
            backoff=waiting(book, f"{role}.0"),
        )

    def init(self) -> Any:
        """It has no children yet."""
        self.book.ready(self._otp_process)
        return super().init()


def waiting(book: Book, role: str) -> Backoff | None:
    """How long restarts of that role wait; no two waits are ever the same by chance here, so they need no jitter."""
    first, longest = backoff(book.plan.tree, role)
    return Backoff(first=first, longest=longest, jitter=0.0, quiet=QUIET) if first else None


def server(book: Book, role: str) -> Any:
    """The class that plays that role."""
    plan = blueprint(book.plan.tree, role)
    if isinstance(plan, Team):
        return Agency if plan.strategy == "dynamic" else Troupe
    match plan.kind:
        case "server":
            return TrappingPlayer if plan.traps else Player
        case "machine":
            return TrappingMachine if plan.traps else Machine
        case "task":
            return errand


def spec(book: Book, role: str, index: int) -> ChildSpec[Any]:
    """The child spec of that role."""
    made = as_planned(_spec_of(server(book, role), book, role), book, role).but(id=index)
    if not is_dynamic(book.plan.tree, boss(role)[0]):
        made = made.but(backoff=waiting(book, role))
    return made.but(name=role) if is_named(book.plan.tree, role) else made


def as_planned(made: ChildSpec[Any], book: Book, role: str) -> ChildSpec[Any]:
    """With what the blueprint of that role says."""
    plan = blueprint(book.plan.tree, role)
    return made.but(restart=plan.restart, significant=plan.significant, shutdown=patience(book.plan.tree, role))


def _spec_of(player: Any, *args: Any) -> ChildSpec[Any]:
    """The plain spec of a behaviour, or of a routine."""
    if player is errand:
        return ChildSpec(id="errand", start=partial(start_routine_link, errand, *args))
    return template(player, *args)
