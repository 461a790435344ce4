"""A server with tools that kill their process, and what is left of it when it has stopped."""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .leaked_resources import descendants, held, left
from .stage import Stage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

PROGRAMS = str(Path(__file__).parent / "programs")
if PROGRAMS not in sys.path:
    sys.path.append(PROGRAMS)  # where workers look too

SLACK = 10.0
"""Seconds for what goes in its own time: a program that was started here, and a socket that lingers."""


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Generator[Path]:
    """The folder for temporary files, which is this test's alone meanwhile. Nothing is left there, nor anywhere else."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    before = held(folder)
    yield folder
    assert left(before, folder, SLACK) == Counter()


@pytest.fixture
async def stage(temporary: Path) -> AsyncGenerator[Stage]:
    """The server, and its client. No process of it is left when it has stopped, in that very moment; and nothing else a little later."""
    before = descendants(), held(temporary)
    async with Stage() as stage:
        yield stage
    assert descendants() <= before[0]
    assert left(before[1], temporary, SLACK) == Counter()
