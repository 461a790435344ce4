"""The pytest plugin of greenroom: fixtures, markers and options of the testing kit.

An `async def` test marked `greenroom` (or every one, with `greenroom_mode = auto`) runs in an event loop of its own, on virtual time, inside an open node, and
must leave nothing behind. Tests with a marker of another async plugin are left to that plugin. pytest imports this file at each start, so the engine is
imported only when a test needs it.
"""

from __future__ import annotations

import functools
import inspect
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable

    from greenroom.actors.company import Company
    from greenroom.supervision import Node
    from greenroom.supervision.testing import CollectedReports, FaultPlan, History, Injection, IsolatedRun, Probe, Seed

    from .server import Server

_MODE = "greenroom_mode"
_SEED = "greenroom_seed"
_OTHERS = ("anyio", "asyncio", "trio", "twisted", "tornado")
_ORDER = "_greenroom_order"
_PLAN = "greenroom_plan"
_PLANS = "greenroom_plans"
_SHRINK = "greenroom_shrink"
_stage_key: pytest.StashKey[IsolatedRun] = pytest.StashKey()
_plan_key: pytest.StashKey[FaultPlan] = pytest.StashKey()
_shrunk_key: pytest.StashKey[int] = pytest.StashKey()


# --- options


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register the command line options."""
    parser.addini(
        _MODE,
        "auto: run every async test that no other plugin claims; strict (the default): only those marked `greenroom`",
        default="strict",
    )
    group = parser.getgroup("greenroom")
    group.addoption(
        "--greenroom-seed",
        dest=_SEED,
        metavar="N",
        type=_seed,
        help="the delivery order for async tests that do not choose their own: a number that a failure printed, or "
        "`random` to draw one for each test",
    )
    group.addoption(
        "--greenroom-plan",
        dest=_PLAN,
        metavar="FILE",
        help="the fault plan for tests that have one, instead of their own: a file that a failure named",
    )
    group.addoption(
        "--greenroom-plans",
        dest=_PLANS,
        metavar="FOLDER",
        help="where to keep the plans of failed tests; by default beside the JUnit report, or else in pytest's cache",
    )
    group.addoption(
        "--greenroom-shrink",
        dest=_SHRINK,
        action="store_true",
        help="when a test fails with a fault plan, run it repeatedly to find the smallest plan that fails",
    )


def _seed(text: str) -> str | int:
    return text if text == "random" else int(text)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and check the mode."""
    config.addinivalue_line(
        "markers",
        "greenroom(clock='virtual', seed=None, seeds=None, leaks=True, reason=None, strict=False, **node_options): "
        "run this async test in a node of its own, on virtual time; `seed` is one order of delivery or 'random', "
        "`seeds` how many to draw; `leaks=False` with a `reason` leaves out the leak check; `strict` fails on a crash "
        "that was not expected",
    )
    config.addinivalue_line(
        "markers",
        "faults(*faults): what goes wrong while this async test runs, a FaultPlan or several of Fault, from its start on; "
        "a test that asks for the fixture `fault_plan` and not for `faults` injects it itself",
    )
    if config.getini(_MODE) not in ("auto", "strict"):
        raise pytest.UsageError(f"{_MODE} must be auto or strict, not {config.getini(_MODE)!r}")


def _marked(markers: Iterable[pytest.Mark]) -> dict[str, Any]:
    """The marker's arguments; the closest marker wins."""
    options: dict[str, Any] = {}
    for marker in reversed(list(markers)):
        if marker.args:
            raise pytest.UsageError(f"the marker greenroom takes keyword arguments only, not {marker.args!r}")
        options |= marker.kwargs
    if options.get("leaks") is False and not options.get("reason"):
        raise pytest.UsageError("greenroom(leaks=False) needs a reason=…: why may this test leave something behind?")
    options.pop("reason", None)
    return options


# --- which tests


def _ours(item: pytest.Item) -> Any:
    """The async function of a test that this plugin runs, without Hypothesis's wrapper; None for other tests."""
    if not isinstance(item, pytest.Function):
        return None
    handle = getattr(item.obj, "hypothesis", None)
    function = item.obj if handle is None else handle.inner_test
    if item.get_closest_marker("greenroom") is not None:
        # Another plugin that takes all async tests may have wrapped it; a marked test belongs to this plugin.
        function = function if inspect.iscoroutinefunction(function) else inspect.unwrap(function)
    elif item.config.getini(_MODE) != "auto" or any(item.get_closest_marker(name) for name in _OTHERS):
        return None
    return function if inspect.iscoroutinefunction(function) else None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make N tests of `seeds=N`, or one if the command line gives a seed."""
    options = _marked(metafunc.definition.iter_markers("greenroom"))
    count = options.get("seeds")
    if count is None:
        return
    if not isinstance(count, int) or count < 1:
        raise pytest.UsageError(f"greenroom(seeds={count!r}): must be the number of orders to try, 1 or more")
    if isinstance(metafunc.config.getoption(_SEED), int):
        count = 1
    metafunc.fixturenames.append(_ORDER)
    metafunc.parametrize(_ORDER, range(count), indirect=True, ids=[f"order{number}" for number in range(count)])


@pytest.fixture(name=_ORDER)
def _greenroom_order(request: pytest.FixtureRequest) -> object:
    return request.param


# --- one test


def _make_stage(item: pytest.Item, drawn: Seed | None = None) -> IsolatedRun:
    from greenroom.supervision.testing import IsolatedRun, Seed  # noqa: PLC0415 - keeps pytest's start cheap

    options = _marked(item.iter_markers("greenroom"))
    several = options.pop("seeds", None) is not None
    seed: Any = options.pop("seed", None)
    if seed is None:
        seed = item.config.getoption(_SEED)
        if several and not isinstance(seed, int):
            seed = "random"
    if drawn is not None:
        seed = drawn
    stage = item.stash[_stage_key] = IsolatedRun(seed=Seed.draw() if seed == "random" else seed, **options)
    if item.get_closest_marker("faults") is not None or {"faults", "fault_plan"} & set(_fixtures(item)):
        stage.fault_plan = _plan(item)
    return stage


def _fixtures(item: pytest.Item) -> Iterable[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else ()


def _plan(item: pytest.Item) -> FaultPlan:
    """The fault plan of a test: the one of the command line, or else its marker's."""
    plan = item.stash.get(_plan_key, None)
    if plan is not None:
        return plan
    from greenroom.supervision.testing import FaultPlan  # noqa: PLC0415 - as above

    file: str | None = item.config.getoption(_PLAN)
    marker = item.get_closest_marker("faults")
    given: tuple[Any, ...] = () if marker is None else marker.args
    try:
        plan = FaultPlan.joined(*given) if file is None else FaultPlan.load(Path(file).read_bytes())
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise pytest.UsageError(f"invalid fault plan for {item.nodeid}: {error}") from error
    item.stash[_plan_key] = plan
    return plan


@pytest.fixture(name="_greenroom_stage")
def _greenroom_stage(request: pytest.FixtureRequest) -> IsolatedRun:
    if _ours(request.node) is None:
        message = f"{request.node.nodeid} does not run in a node: make it `async def` and mark it `greenroom`"
        raise pytest.UsageError(message)
    return _make_stage(request.node)


@pytest.fixture
def node(_greenroom_stage: IsolatedRun) -> Node:
    """The node of the test, opened when the test begins."""
    return _greenroom_stage.node


@pytest.fixture
def probe(_greenroom_stage: IsolatedRun) -> Probe:
    """A process whose mailbox the test reads."""
    return _greenroom_stage.probe


@pytest.fixture
def reports(_greenroom_stage: IsolatedRun) -> CollectedReports:
    """All reports of the node so far; `await reports.expect(CrashReport)` takes one."""
    return _greenroom_stage.reports


@pytest.fixture
def history(_greenroom_stage: IsolatedRun) -> History:
    """The history so far; `check(history)` at the end of the test finds violations."""
    return _greenroom_stage.history


@pytest.fixture
def fault_plan(_greenroom_stage: IsolatedRun) -> FaultPlan:
    """The faults of the marker `faults`, or of `--greenroom-plan`, for the test to `inject`."""
    return _greenroom_stage.fault_plan


@pytest.fixture
async def faults(fault_plan: FaultPlan) -> Injection:
    """The injection of `fault_plan`, which runs from the beginning of the test."""
    from greenroom.supervision.testing import inject  # noqa: PLC0415 - as above

    return await inject(fault_plan)


@pytest.fixture
def start_supervised(_greenroom_stage: IsolatedRun) -> Callable[..., Any]:
    """Start a process under the test's own supervisor: `greenroom.supervision.testing.start_supervised`."""
    from greenroom.supervision.testing import start_supervised as start  # noqa: PLC0415 - as above

    return start


@pytest.fixture
async def mcp_server() -> AsyncGenerator[Callable[..., Any]]:
    """A function that runs a `Server` until the end of the test."""
    async with AsyncExitStack() as opened:

        async def run(server: Server) -> Company:
            return await opened.enter_async_context(server.started())

        yield run


@pytest.fixture
async def mcp_client() -> AsyncGenerator[Callable[..., Any]]:
    """A function that opens a `Client` until the end of the test."""
    from .client import Client  # noqa: PLC0415 - as above

    async with AsyncExitStack() as opened:
        yield lambda *args, **options: opened.enter_async_context(Client(*args, **options))


@pytest.fixture
async def mcp_host() -> AsyncGenerator[Callable[..., Any]]:
    """A function that opens a `Host` of several servers until the end of the test."""
    from .host import Host  # noqa: PLC0415 - as above

    async with AsyncExitStack() as opened:
        yield lambda *args, **options: opened.enter_async_context(Host(*args, **options))


@pytest.fixture
def no_leaks() -> Generator[None]:
    """For any test: fail if it leaves a thread, file descriptor or OS process behind."""
    from greenroom.supervision.testing import no_leaks as block  # noqa: PLC0415 - as above

    with block():
        yield


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, Any, Any]:
    """Defer the async fixtures of a test to that test's loop and node."""
    function: Any = fixturedef.func
    is_async = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    if not is_async or _ours(request.node) is None:
        return (yield)

    from greenroom.supervision.testing.isolated_run import DeferredFixture  # noqa: PLC0415 - as above

    def later(*args: Any, **kwargs: Any) -> DeferredFixture:
        return DeferredFixture(function, args, kwargs)

    fixturedef.func = later  # type: ignore[misc]
    try:
        return (yield)
    finally:
        fixturedef.func = function  # type: ignore[misc]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test; with Hypothesis, each example in an isolated run."""
    __tracebackhide__ = True
    function = _ours(pyfuncitem)
    if function is None:
        return None
    from greenroom.supervision.testing import Seed  # noqa: PLC0415 - as above
    from greenroom.supervision.testing.isolated_run import run_test_function  # noqa: PLC0415 - as above

    @functools.wraps(function, updated=())
    def synchronous(*args: Any, **kwargs: Any) -> None:
        __tracebackhide__ = True
        drawn = next((value for value in (*args, *kwargs.values()) if isinstance(value, Seed)), None)
        stage = pyfuncitem.stash.get(_stage_key, None)
        if stage is None or stage.used or drawn is not None:
            stage = _make_stage(pyfuncitem, drawn)
        stage.run(lambda: run_test_function(stage, function, args, kwargs, pyfuncitem.funcargs))

    del synchronous.__wrapped__  # pytest unwraps functions, and would find the async one
    names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001 - the arguments with which pytest calls a test
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    handle = getattr(pyfuncitem.obj, "hypothesis", None)
    if handle is None:
        try:
            synchronous(**arguments)
        except (Exception, pytest.fail.Exception) as error:
            _shrink(pyfuncitem, function, type(error))
            raise
        return True
    before, handle.inner_test = handle.inner_test, synchronous
    try:
        pyfuncitem.obj(**arguments)
    finally:
        handle.inner_test = before
    return True


def _shrink(item: pytest.Function, function: Callable[..., Any], error: type[BaseException]) -> None:
    """If requested, find a smaller plan with which the test fails in the same way."""
    first = item.stash[_stage_key]
    if not item.config.getoption(_SHRINK) or not first.fault_plan:
        return
    from greenroom.supervision.testing import Seed, shrink  # noqa: PLC0415 - as above
    from greenroom.supervision.testing.isolated_run import run_test_function  # noqa: PLC0415 - as above

    names = item._fixtureinfo.argnames  # noqa: SLF001 - as above

    def fails(plan: FaultPlan) -> bool:
        stage = _make_stage(item, first.seed if isinstance(first.seed, Seed) else None)
        stage.fault_plan = plan
        arguments = {name: item.funcargs[name] for name in names}
        try:
            stage.run(lambda: run_test_function(stage, function, (), arguments, item.funcargs))
        except (Exception, pytest.fail.Exception) as raised:  # noqa: BLE001 - the outcome of the run
            return type(raised) is error
        return False

    try:
        item.stash[_plan_key] = shrink(first.fault_plan, fails)
        item.stash[_shrunk_key] = len(first.fault_plan)
    except ValueError:
        pass  # it does not fail again, so there is nothing to shrink
    finally:
        item.stash[_stage_key] = first


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],  # noqa: ARG001 - pytest matches hooks by their arguments' names
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure how to replay its order and faults, and the reports of the node."""
    report = yield
    stage = item.stash.get(_stage_key, None)
    if stage is not None and report.when == "call" and report.failed:
        number = getattr(stage.seed, "number", None)
        if number:
            report.sections.append(("greenroom", f"replay this delivery order: --greenroom-seed={number}"))
        if stage.fault_plan:
            report.sections.append(("faults", _replayed(item, item.stash[_plan_key], number)))
        if stage.reports:
            report.sections.append(("reports of the node", "\n".join(stage.reports.lines())))
    if report.when == "teardown":
        _forget(item)
    return report


def _forget(item: pytest.Item) -> None:
    """Drop the run of a test: pytest keeps all items until the end, and a node is thousands of objects."""
    stash: Any = item.stash  # the values of these keys have different types
    for key in (_stage_key, _plan_key, _shrunk_key):
        if key in stash:
            del stash[key]


def _replayed(item: pytest.Item, plan: FaultPlan, seed: int | None) -> str:
    """The plan of a failed test, saved to a file, and the command that replays it."""
    from greenroom.supervision.testing.scenario_replay import replay_instructions  # noqa: PLC0415 - as above

    shrunk_from = item.stash.get(_shrunk_key, None)
    given: str | None = item.config.getoption(_PLAN)
    file = None if given is None or shrunk_from is not None else Path(given)
    return replay_instructions(plan, item.nodeid, file or _folder(item.config), seed, shrunk_from)


def _folder(config: pytest.Config) -> Path | None:
    """The folder for plans; None if pytest has none to offer."""
    if (chosen := config.getoption(_PLANS)) is not None:
        return Path(chosen)
    if (report := config.getoption("xmlpath", None)) is not None:
        return Path(report).resolve().parent
    cache = getattr(config, "cache", None)
    return None if cache is None else Path(cache.mkdir("greenroom-plans"))
