"""What all tests share: where the repository is, how examples are searched for, and that Ctrl-C means something."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import settings

from .halves import Turns

# A slow machine is no failure, and a failure prints what replays it; pytest-randomly prints the seed of the order.
settings.register_profile("greenroom", deadline=None, print_blob=True)
settings.load_profile("greenroom")

# A suite that runs in the background of a script has SIGINT ignored, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The suite can be shared by several runners."""
    parser.addoption(
        "--turns", type=Path, help="share the files with whoever is given the same folder; see tests/halves.py"
    )


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """As pytest has it, but for the files that another runner has."""
    folder: Path | None = session.config.getoption("--turns")
    if folder is None or session.config.option.collectonly or session.testsfailed:
        return None
    ours = Turns(folder).items(session.items)
    item = next(ours, None)
    while item is not None:
        following = next(ours, None)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = following
    return True


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository, which tests look at and never write to."""
    return Path(__file__).parents[1]
