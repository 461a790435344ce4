"""What all tests share: where the repository is, how examples are searched for, and that Ctrl-C means something."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

from .halves import HALVES, half_of

# A slow machine is no failure, and a failure prints what replays it; pytest-randomly prints the seed of the order.
settings.register_profile("greenroom", deadline=None, print_blob=True)
settings.load_profile("greenroom")

# A suite that runs in the background of a script has SIGINT ignored, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Half of the suite can be run by itself."""
    parser.addoption("--half", type=int, choices=HALVES, help="run the files of one half only; see tests/halves.py")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the other half to somebody else."""
    half = config.getoption("--half")
    if half is None:
        return
    root = config.rootpath
    mine = [item for item in items if half_of(item.path.relative_to(root).as_posix()) == half]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(mine)])
    items[:] = mine


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository, which tests look at and never write to."""
    return Path(__file__).parents[1]
