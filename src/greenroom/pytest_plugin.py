"""The pytest plugin that greenroom installs: the testing kit's fixtures and options, for everybody's tests.

An `async def` test marked `greenroom` (or every one, with `greenroom_mode = auto`) runs in an event loop of its own,
on virtual time, inside an open node. Tests that carry a marker of another plugin for async tests are left to it.
pytest imports this file at each start, so it loads the kernel only when a test needs it.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from greenroom.supervision.kernel.node import Node

_MODE = "greenroom_mode"
_OTHERS = ("anyio", "asyncio", "trio", "twisted", "tornado")
_OURS = ("clock", "seed", "seeds", "leaks", "reason")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Tell pytest of the ini option."""
    parser.addini(
        _MODE, "auto: run every async test that no other plugin claims; strict: only marked ones", default="strict"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest of the marker."""
    config.addinivalue_line(
        "markers",
        "greenroom(clock='virtual', seed=None, **node_options): run this async test in a node, on virtual time",
    )


def _inner(item: pytest.Function) -> Callable[..., Any]:
    handle = getattr(item.obj, "hypothesis", None)
    function: Callable[..., Any] = item.obj if handle is None else handle.inner_test
    return function


def _claimed(item: pytest.Function) -> bool:
    if not inspect.iscoroutinefunction(_inner(item)):
        return False
    if item.get_closest_marker("greenroom") is not None:
        return True
    if any(item.get_closest_marker(name) for name in _OTHERS):
        return False
    return bool(item.config.getini(_MODE) == "auto")


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Node:
    """The node that the test runs in; it is opened when the test begins."""
    return _make_node(request.node)


def _options(item: pytest.Item) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for marker in reversed(list(item.iter_markers("greenroom"))):
        found |= marker.kwargs
    return found


def _make_node(item: pytest.Item) -> Node:
    from greenroom.supervision.kernel.node import Node  # noqa: PLC0415 - pytest's start stays cheap

    options = _options(item)
    settings: dict[str, Any] = {"watchdog": None, "seed": options.get("seed")}
    return Node(**(settings | {name: value for name, value in options.items() if name not in _OURS}))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test of ours."""
    if not _claimed(pyfuncitem):
        return None
    from greenroom.supervision.testing.stage import run  # noqa: PLC0415 - as above

    function = _inner(pyfuncitem)
    clock = _options(pyfuncitem).get("clock", "virtual")
    given: Any = pyfuncitem.funcargs.get("node")

    def synchronous(*args: Any, **kwargs: Any) -> None:
        stage_node: Node = given if given is not None and not given.incarnation else _make_node(pyfuncitem)
        if "node" in kwargs:
            kwargs["node"] = stage_node
        run(lambda: function(*args, **kwargs), node=stage_node, clock=clock)

    names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001 - what pytest itself calls a test with; no other name for it
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    handle = getattr(pyfuncitem.obj, "hypothesis", None)
    if handle is None:
        synchronous(**arguments)
    else:
        handle.inner_test = synchronous
        try:
            pyfuncitem.obj(**arguments)
        finally:
            handle.inner_test = function
    return True
