"""Runs a test function inside its stage, with its async fixtures around it and its faults beside it."""

from __future__ import annotations

import inspect
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from greenroom.supervision.kernel.node import Node

from .collected import Collected
from .histories import History
from .injection import inject
from .plans import FaultPlan
from .probes import Probe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .stage import Stage

PER_RUN: Final[Mapping[str, type]] = {
    "node": Node,
    "probe": Probe,
    "reports": Collected,
    "fault_plan": FaultPlan,
    "history": History,
}
"""Fixtures that a stage has for itself; a test suite may have its own of that name, of another type."""

INJECTS: Final = frozenset(("faults", "fault_plan"))
"""Fixtures by which a test says that it sees to its faults itself."""


class Later:
    """An async fixture's value, which there is only once the test's loop runs."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called when the test asks for it."""
        self.function = function
        self.args = args
        self.kwargs = kwargs

    async def enter(self, kwargs: dict[str, Any], stack: AsyncExitStack) -> Any:
        """Make the value; what comes after the `yield` is left to the stack."""
        if not inspect.isasyncgenfunction(self.function):
            return await self.function(*self.args, **kwargs)
        return await stack.enter_async_context(asynccontextmanager(self.function)(*self.args, **kwargs))


async def perform(
    stage: Stage, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], fixtures: dict[str, Any]
) -> None:
    """The test."""
    __tracebackhide__ = True
    made: dict[Later, Any] = {}

    async def fresh(named: dict[str, Any]) -> dict[str, Any]:
        return {name: await value_of(name, value) for name, value in named.items()}

    async def value_of(name: str, value: Any) -> Any:
        if isinstance(value, Later):
            if value not in made:
                made[value] = await value.enter(await fresh(value.kwargs), stack)
            return made[value]
        # Hypothesis, or a search for a smaller plan, runs a test many times with the fixtures of one; each run has its own stage.
        kind = PER_RUN.get(name)
        return getattr(stage, name) if kind is not None and isinstance(value, kind) else value

    async with AsyncExitStack() as stack:
        if stage.fault_plan and not INJECTS & set(fixtures):
            await inject(stage.fault_plan)
        await fresh({name: value for name, value in fixtures.items() if isinstance(value, Later)})
        await function(*args, **await fresh(kwargs))
