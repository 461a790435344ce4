"""One run of a test: an event loop of its own, on virtual time unless told otherwise, and a node in it."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from greenroom.supervision.kernel.node import Node

from .delivery_seeds import Seed
from .fault_injection import inject
from .fault_plan import FaultPlan
from .histories import History
from .history_recorder import CollectedReports, Recorder
from .leak_check import ResourceSnapshot, loop_leftovers, raise_for_leaks, system_leftovers
from .mailbox_probe import Probe
from .virtual_time import VirtualLoop

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Mapping

T = TypeVar("T")
Clock = Literal["virtual", "real"]


class IsolatedRun:
    """What a test runs on. It is made before the test, so that fixtures can be, and used once."""

    def __init__(
        self,
        *,
        clock: Clock = "virtual",
        seed: Seed | random.Random | int | None = None,
        leaks: bool = True,
        strict: bool = False,
        **options: Any,
    ) -> None:
        """See `run`."""
        if clock not in ("virtual", "real"):
            raise ValueError(f"clock must be 'virtual' or 'real', not {clock!r}")
        if clock == "virtual":
            options.setdefault("watchdog", None)
        self.clock = clock
        self.seed = Seed(seed) if isinstance(seed, int) else seed
        self.leaks = leaks
        self.strict = strict
        self.node = Node(seed=self.seed.source() if isinstance(self.seed, Seed) else self.seed, **options)
        self.reports = CollectedReports(self.node)
        self.fault_plan = FaultPlan()
        self.used = False

    @cached_property
    def probe(self) -> Probe:
        """A probe that begins with the node, if the test asks for it before."""
        return Probe(later=True)

    @cached_property
    def recorder(self) -> Recorder:
        """Records the whole run, if the test asks for it before."""
        recorder = Recorder(self.node)
        recorder.start()
        return recorder

    @property
    def history(self) -> History:
        """What happened in the run."""
        return self.recorder.history

    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        """Run it, and look at what it leaves behind."""
        __tracebackhide__ = True
        self.used = True
        before = ResourceSnapshot.of_system() if self.leaks else ResourceSnapshot()
        with asyncio.Runner(loop_factory=VirtualLoop if self.clock == "virtual" else None) as runner:
            loop = runner.get_loop()
            deadlock = None
            try:
                value = runner.run(self._run_in_node(main))
            except BaseException as error:
                deadlock = loop.deadlock if isinstance(loop, VirtualLoop) else None
                if deadlock is None:
                    raise
                raise deadlock from error
            finally:
                if "recorder" in vars(self):
                    self.recorder.stop()
            if isinstance(loop, VirtualLoop) and loop.deadlock is not None:
                raise loop.deadlock  # the test was cancelled for it, and went on
        if self.leaks:
            raise_for_leaks(system_leftovers(before))
        return value

    async def _run_in_node(self, main: Callable[[], Awaitable[T]]) -> T:
        __tracebackhide__ = True
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualLoop):
            loop.main = asyncio.current_task()
        before = ResourceSnapshot.of_loop(loop)
        async with self.node:
            if "probe" in vars(self):
                self.probe.begin(self.node)
            value = await main()
        if self.leaks:
            raise_for_leaks(await loop_leftovers(before))
        if self.strict:
            self.reports.assert_all_expected()
        return value


def run(
    main: Callable[[], Awaitable[T]],
    *,
    clock: Clock = "virtual",
    seed: Seed | random.Random | int | None = None,
    leaks: bool = True,
    strict: bool = False,
    **options: Any,
) -> T:
    """Run an async function as a test of its own: in a fresh loop, inside an open node, with a leak check behind it.

    `clock` is virtual, or real. `seed` chooses the order of delivery. `leaks=False` leaves out the check. `strict`
    fails when a report tells of a crash, a leak or a blocked loop that was not expected. Other options are `Node`'s;
    the watchdog is off on virtual time, which a stuck loop cannot be told from.
    """
    __tracebackhide__ = True
    return IsolatedRun(clock=clock, seed=seed, leaks=leaks, strict=strict, **options).run(main)


# --- Runs a test function inside its stage, with its async fixtures around it and its faults beside it.

PER_RUN: Final[Mapping[str, type]] = {
    "node": Node,
    "probe": Probe,
    "reports": CollectedReports,
    "fault_plan": FaultPlan,
    "history": History,
}
"""Fixtures that a stage has for itself; a test suite may have its own of that name, of another type."""

INJECTING_FIXTURES: Final = frozenset(("faults", "fault_plan"))
"""Fixtures by which a test says that it sees to its faults itself."""


class DeferredFixture:
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


async def run_test_function(
    stage: IsolatedRun,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    fixtures: dict[str, Any],
) -> None:
    """The test."""
    __tracebackhide__ = True
    made: dict[DeferredFixture, Any] = {}

    async def fresh(named: dict[str, Any]) -> dict[str, Any]:
        return {name: await value_of(name, value) for name, value in named.items()}

    async def value_of(name: str, value: Any) -> Any:
        if isinstance(value, DeferredFixture):
            if value not in made:
                made[value] = await value.enter(await fresh(value.kwargs), stack)
            return made[value]
        # Hypothesis, or a search for a smaller plan, runs a test many times with the fixtures of one; each run has its own stage.
        kind = PER_RUN.get(name)
        return getattr(stage, name) if kind is not None and isinstance(value, kind) else value

    async with AsyncExitStack() as stack:
        if stage.fault_plan and not INJECTING_FIXTURES & set(fixtures):
            await inject(stage.fault_plan)
        await fresh({name: value for name, value in fixtures.items() if isinstance(value, DeferredFixture)})
        await function(*args, **await fresh(kwargs))
