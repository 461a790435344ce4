"""Thespian systems for the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from . import systems

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Generator[Any]:
    """A system of processes, for a whole file: to start one takes half a second."""
    with systems.processes(tmp_path_factory.mktemp("thespian")) as running:
        yield running


@pytest.fixture(params=["simple", "processes"])
def system(request: pytest.FixtureRequest) -> Generator[Any]:
    """A Thespian system, of each kind."""
    if request.param == "processes":
        yield request.getfixturevalue("shared")
        return
    with systems.simple() as running:
        yield running


@pytest.fixture(scope="module")
def shared_node(tmp_path_factory: pytest.TempPathFactory) -> Generator[systems.NodeProgram]:
    """A node for a whole file."""
    program = systems.NodeProgram(tmp_path_factory.mktemp("node"))
    try:
        yield program
    finally:
        program.kill()


@pytest.fixture
def node(shared_node: systems.NodeProgram) -> systems.NodeProgram:
    """A node that admits guests; restarted when a test has killed it."""
    shared_node.revive()
    return shared_node
