"""One isolated run of a test: an event loop of its own, on virtual time by default, with an open node and a leak check."""

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
    """The environment of one run. It is made before the test, since fixtures need it, and used once."""

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
        """A probe that starts with the node, if the test uses it."""
        return Probe(later=True)

    @cached_property
    def recorder(self) -> Recorder:
        """A recorder of the whole run, if the test uses it."""
        recorder = Recorder(self.node)
        recorder.start()
        return recorder

    @property
    def history(self) -> History:
        """The history of the run."""
        return self.recorder.history

    def run(self, main: Callable[[], Awaitable[T]]) -> T:
        """Run `main`, and check for leaks."""
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
                raise loop.deadlock  # the deadlock cancelled the test, which ignored that
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
    """Run an async function in a fresh loop, inside an open node, with a leak check at the end.

    `clock` is virtual or real. `seed` chooses the delivery order. `leaks=False` skips the check. `strict` fails on reports of crashes, leaks and blocked loops
    that were not expected. Other options are those of `Node`; on virtual time the watchdog is off, which could not tell a jump of the clock from a blocked loop.

    """
    __tracebackhide__ = True
    return IsolatedRun(clock=clock, seed=seed, leaks=leaks, strict=strict, **options).run(main)


# --- Running a test function in an isolated run, with its async fixtures and its faults.

PER_RUN: Final[Mapping[str, type]] = {
    "node": Node,
    "probe": Probe,
    "reports": CollectedReports,
    "fault_plan": FaultPlan,
    "history": History,
}
"""Fixtures that each run replaces by its own value; a test suite may have a fixture of the same name and another type."""

INJECTING_FIXTURES: Final = frozenset(("faults", "fault_plan"))
"""Fixtures with which a test injects its faults itself."""


class DeferredFixture:
    """The value of an async fixture, which is created in the test's loop."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Called in place of the fixture function."""
        self.function = function
        self.args = args
        self.kwargs = kwargs

    async def enter(self, kwargs: dict[str, Any], stack: AsyncExitStack) -> Any:
        """Create the value; the code after `yield` runs when the stack is closed."""
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
    """Create the async fixtures, inject the faults, and call the test function."""
    __tracebackhide__ = True
    made: dict[DeferredFixture, Any] = {}

    async def fresh(named: dict[str, Any]) -> dict[str, Any]:
        return {name: await value_of(name, value) for name, value in named.items()}

    async def value_of(name: str, value: Any) -> Any:
        if isinstance(value, DeferredFixture):
            if value not in made:
                made[value] = await value.enter(await fresh(value.kwargs), stack)
            return made[value]
        # Hypothesis and shrinking run a test many times with one set of fixtures, while each run has its own node.
        kind = PER_RUN.get(name)
        return getattr(stage, name) if kind is not None and isinstance(value, kind) else value

    async with AsyncExitStack() as stack:
        if stage.fault_plan and not INJECTING_FIXTURES & set(fixtures):
            await inject(stage.fault_plan)
        await fresh({name: value for name, value in fixtures.items() if isinstance(value, DeferredFixture)})
        await function(*args, **await fresh(kwargs))
