"""The pytest plugin that greenroom installs: the testing kit's fixtures and options, for everybody's tests.

An `async def` test marked `greenroom` (or every one, with `greenroom_mode = auto`) runs in an event loop of its own,
on virtual time, inside an open node, and may leave nothing behind. Tests that carry a marker of another plugin for
async tests are left to it. pytest imports this file at each start, so it loads the kernel only when a test needs it.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.testing import Collected, Probe, Seed, Stage

_MODE = "greenroom_mode"
_SEED = "greenroom_seed"
_OTHERS = ("anyio", "asyncio", "trio", "twisted", "tornado")
_ORDER = "_greenroom_order"
_PER_RUN = ("node", "probe", "reports")
_stage_key: pytest.StashKey[Stage] = pytest.StashKey()


# --- options


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tell pytest of our options."""
    parser.addini(
        _MODE,
        "auto: run every async test that no other plugin claims; strict (the default): only those marked `greenroom`",
        default="strict",
    )
    parser.getgroup("greenroom").addoption(
        "--greenroom-seed",
        dest=_SEED,
        metavar="N",
        type=_seed,
        help="the order of delivery for async tests that do not choose their own: a number that a failure showed, or "
        "`random` to draw one for each test",
    )


def _seed(text: str) -> str | int:
    return text if text == "random" else int(text)


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the marker, and refuse a mode that there is not."""
    config.addinivalue_line(
        "markers",
        "greenroom(clock='virtual', seed=None, seeds=None, leaks=True, reason=None, strict=False, **node_options): "
        "run this async test in a node of its own, on virtual time; `seed` is one order of delivery or 'random', "
        "`seeds` how many to draw; `leaks=False` with a `reason` leaves out the leak check; `strict` fails on a crash "
        "that was not expected",
    )
    if config.getini(_MODE) not in ("auto", "strict"):
        raise pytest.UsageError(f"{_MODE} must be auto or strict, not {config.getini(_MODE)!r}")


def _marked(markers: Iterable[pytest.Mark]) -> dict[str, Any]:
    """The marker's arguments; what stands nearer to the test wins."""
    options: dict[str, Any] = {}
    for marker in reversed(list(markers)):
        if marker.args:
            raise pytest.UsageError(f"the marker greenroom takes its arguments by name only, not {marker.args!r}")
        options |= marker.kwargs
    if options.get("leaks") is False and not options.get("reason"):
        raise pytest.UsageError("greenroom(leaks=False) needs a reason=…: why may this test leave something behind?")
    options.pop("reason", None)
    return options


# --- which tests


def _ours(item: pytest.Item) -> Any:
    """The async function of a test that is ours to run, without what Hypothesis wraps around it; None if it is not."""
    if not isinstance(item, pytest.Function):
        return None
    handle = getattr(item.obj, "hypothesis", None)
    function = item.obj if handle is None else handle.inner_test
    if item.get_closest_marker("greenroom") is not None:
        # Another plugin that takes all async tests may have wrapped it already; whoever marks it wants it here.
        function = function if inspect.iscoroutinefunction(function) else inspect.unwrap(function)
    elif item.config.getini(_MODE) != "auto" or any(item.get_closest_marker(name) for name in _OTHERS):
        return None
    return function if inspect.iscoroutinefunction(function) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`seeds=N` is N tests, or one when the command line says which."""
    options = _marked(metafunc.definition.iter_markers("greenroom"))
    count = options.get("seeds")
    if count is None:
        return
    if not isinstance(count, int) or count < 1:
        raise pytest.UsageError(f"greenroom(seeds={count!r}): how many orders to try, 1 or more")
    if isinstance(metafunc.config.getoption(_SEED), int):
        count = 1
    metafunc.fixturenames.append(_ORDER)
    metafunc.parametrize(_ORDER, range(count), indirect=True, ids=[f"order{number}" for number in range(count)])


@pytest.fixture(name=_ORDER)
def _greenroom_order(request: pytest.FixtureRequest) -> object:
    return request.param


# --- one test


def _make_stage(item: pytest.Item, drawn: Seed | None = None) -> Stage:
    from greenroom.supervision.testing import Seed, Stage  # noqa: PLC0415 - pytest's start stays cheap

    options = _marked(item.iter_markers("greenroom"))
    several = options.pop("seeds", None) is not None
    seed: Any = options.pop("seed", None)
    if seed is None:
        seed = item.config.getoption(_SEED)
        if several and not isinstance(seed, int):
            seed = "random"
    if drawn is not None:
        seed = drawn
    stage = item.stash[_stage_key] = Stage(seed=Seed.draw() if seed == "random" else seed, **options)
    return stage


@pytest.fixture(name="_greenroom_stage")
def _greenroom_stage(request: pytest.FixtureRequest) -> Stage:
    if _ours(request.node) is None:
        message = f"{request.node.nodeid} does not run in a node: make it `async def` and mark it `greenroom`"
        raise pytest.UsageError(message)
    return _make_stage(request.node)


@pytest.fixture
def node(_greenroom_stage: Stage) -> Node:
    """The node that the test runs in; it is opened when the test begins."""
    return _greenroom_stage.node


@pytest.fixture
def probe(_greenroom_stage: Stage) -> Probe:
    """A process whose mailbox the test reads."""
    return _greenroom_stage.probe


@pytest.fixture
def reports(_greenroom_stage: Stage) -> Collected:
    """All reports of the node so far; `await reports.expect(CrashReport)` takes one."""
    return _greenroom_stage.reports


@pytest.fixture
def start_supervised(_greenroom_stage: Stage) -> Callable[..., Any]:
    """Start a process under a supervisor that the test owns, as `greenroom.supervision.testing.start_supervised`."""
    from greenroom.supervision.testing import start_supervised as start  # noqa: PLC0415 - as above

    return start


@pytest.fixture
def no_leaks() -> Generator[None]:
    """For any test: no thread, file descriptor or OS process may be left that was not there before."""
    from greenroom.supervision.testing import no_leaks as block  # noqa: PLC0415 - as above

    with block():
        yield


class _Later:
    """An async fixture's value, which there is only once the test's loop runs."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        self.args = args
        self.kwargs = kwargs

    async def enter(self, kwargs: dict[str, Any], stack: AsyncExitStack) -> Any:
        """Make the value; what comes after the `yield` is left to the stack."""
        if not inspect.isasyncgenfunction(self.function):
            return await self.function(*self.args, **kwargs)
        return await stack.enter_async_context(asynccontextmanager(self.function)(*self.args, **kwargs))


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """An async fixture of a test of ours runs in that test's own loop and node, just before the test."""
    function: Any = fixturedef.func
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    if not is_async or _ours(request.node) is None:
        return (yield)

    def later(*args: Any, **kwargs: Any) -> _Later:
        return _Later(function, args, kwargs)

    fixturedef.func = later  # type: ignore[misc]
    try:
        return (yield)
    finally:
        fixturedef.func = function  # type: ignore[misc]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test of ours; with Hypothesis, each example on a stage of its own."""
    __tracebackhide__ = True
    function = _ours(pyfuncitem)
    if function is None:
        return None
    from greenroom.supervision.testing import Seed  # noqa: PLC0415 - as above

    @functools.wraps(function, updated=())
    def synchronous(*args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        drawn = next((value for value in (*args, *kwargs.values()) if isinstance(value, Seed)), None)
        stage = pyfuncitem.stash.get(_stage_key, None)
        if stage is None or stage.used or drawn is not None:
            stage = _make_stage(pyfuncitem, drawn)
        stage.run(lambda: _perform(stage, function, args, kwargs, pyfuncitem.funcargs))

    del synchronous.__wrapped__  # it is no coroutine function, whatever it wraps
    names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001 - what pytest itself calls a test with
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    handle = getattr(pyfuncitem.obj, "hypothesis", None)
    if handle is None:
        synchronous(**arguments)
        return True
    before, handle.inner_test = handle.inner_test, synchronous
    try:
        pyfuncitem.obj(**arguments)
    finally:
        handle.inner_test = before
    return True


async def _perform(
    stage: Stage, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], fixtures: dict[str, Any]
) -> None:
    """The test, with its async fixtures around it."""
    __tracebackhide__ = True
    made: dict[_Later, Any] = {}

    async def fresh(named: dict[str, Any]) -> dict[str, Any]:
        return {name: await value_of(name, value) for name, value in named.items()}

    async def value_of(name: str, value: Any) -> Any:
        if isinstance(value, _Later):
            if value not in made:
                made[value] = await value.enter(await fresh(value.kwargs), stack)
            return made[value]
        # Hypothesis runs a test many times with the fixtures of one; each run has its own stage.
        return getattr(stage, name) if name in _PER_RUN and _is_ours(value) else value

    async with AsyncExitStack() as stack:
        await fresh({name: value for name, value in fixtures.items() if isinstance(value, _Later)})
        await function(*args, **await fresh(kwargs))


def _is_ours(value: object) -> bool:
    """Whether a fixture of that name is the one from here: a test suite may have its own."""
    from greenroom.supervision.kernel.node import Node  # noqa: PLC0415 - as above
    from greenroom.supervision.testing import Collected, Probe  # noqa: PLC0415 - as above

    return isinstance(value, Node | Probe | Collected)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],  # noqa: ARG001 - pytest matches hooks by their arguments' names
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show with a failure what replays its order, and what the node had to report."""
    report = yield
    stage = item.stash.get(_stage_key, None)
    if stage is not None and report.when == "call" and report.failed:
        number = getattr(stage.seed, "number", None)
        if number:
            report.sections.append(("greenroom", f"this order of delivery again: --greenroom-seed={number}"))
        if stage.reports:
            report.sections.append(("reports of the node", "\n".join(stage.reports.lines())))
    return report
