"""Who compares the servers that are wanted with those that run, and has done what is missing: one job for each server, never two.

It looks at what is, not at what has changed: so it need not have been there when that happened, and of a hundred changes in a row only the last one is
carried out. A job is a process of its own, which takes the time that calls under way take; when it is over that server is looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from greenroom.supervision import Caller, Down, GenServer, later, monitor, send_after, supervise_job

if TYPE_CHECKING:
    from greenroom.supervision import Monitor

    from .household import Household
    from .steps import Step

_AGAIN: Final = 1.0
"""In how many seconds to try again what failed."""


class _Again(NamedTuple):
    """To itself: it is time to try again."""

    name: str


class Reconciler(GenServer):
    """One in each household."""

    traps_exit: ClassVar[bool] = True

    def __init__(self, household: Household) -> None:
        """Whose servers they are."""
        self._household = household
        self._jobs: dict[Monitor, Step] = {}
        self._busy: set[str] = set()
        self._pausing: set[str] = set()
        self._waiting: list[tuple[set[str], Caller[None]]] = []
        """Who waits, and for which servers to be at rest."""

    async def init(self) -> None:
        """Whatever a predecessor has left undone."""
        self._household.bell.ring()
        await self.look()

    async def look(self) -> None:
        """See to everything that is not as it is wanted."""
        household = self._household
        for name in dict.fromkeys((*household.running, *household.wanted, *household.unfinished)):
            await self._see_to(name)
        self._answer()

    async def settle(self) -> None:
        """The same; answered when all is as it is wanted, or cannot be."""
        self._pausing.clear()
        for name in tuple(self._household.troubles):
            if name not in self._household.wanted:
                del self._household.troubles[name]
        caller = self.caller
        await self.look()
        self._waiting.append((set(self._busy), caller))
        self._answer()
        return later()  # type: ignore[no-any-return]  # stands for the None that comes later

    async def _see_to(self, name: str) -> None:
        if name in self._busy or name in self._pausing:
            return
        step = self._household.step(name)
        if step is None:
            self._household.troubles.pop(name, None)  # what failed is not wanted any more: the file was edited back
            return
        self._busy.add(name)
        pid = await supervise_job(self._household.jobs, _carry_out, self._household, step)
        self._jobs[monitor(pid)] = step

    async def handle_info(self, message: Any) -> Any:
        """A job is over, or it is time."""
        match message:
            case Down(ref=ref) if ref in self._jobs:
                await self._over(self._jobs.pop(ref))
            case _Again(name):
                self._pausing.discard(name)
                await self._see_to(name)
            case _:
                return await _maybe(super().handle_info(message))
        self._answer()
        return None

    async def _over(self, step: Step) -> None:
        name = step.name
        self._busy.discard(name)
        left = self._household.step(name)
        if left is None:
            self._household.troubles.pop(name, None)
            return
        if left.server != step.server or left.doing != step.doing:
            await self._see_to(name)  # something else is wanted by now, or half of it was done
            return
        self._pausing.add(name)
        if not self._household.permanent(name):
            send_after(_AGAIN, self.pid, _Again(name))

    def _answer(self) -> None:
        """Nobody is at anything that they wait for: what is paused was tried, and what has changed since is others' affair."""
        for names, caller in self._waiting:
            names.intersection_update(self._busy)
            if not names:
                caller.reply(None)
        self._waiting = [one for one in self._waiting if one[0]]

    def report_state(self) -> str:
        """What is being done."""
        return f"{len(self._jobs)} jobs, {len(self._pausing)} to be tried again"


async def _carry_out(household: Household, step: Step) -> None:
    try:
        await household.carry_out(step)
    except Exception:  # noqa: BLE001
        return  # the household knows, and so does whoever looks at it


async def _maybe(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value
