"""Thespian systems for the tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from . import systems

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@pytest.fixture(params=["simple", "processes"])
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Any]:
    """A Thespian system, of each kind."""
    made = systems.simple() if request.param == "simple" else systems.processes(tmp_path_factory.mktemp("thespian"))
    with made as running:
        yield running


@pytest.fixture
def node(tmp_path: Path) -> Generator[systems.NodeProgram]:
    """A node of ours, with guests let in."""
    program = systems.NodeProgram(tmp_path)
    try:
        yield program.start()
    finally:
        program.kill()
