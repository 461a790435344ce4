"""A pytest plugin for the run that records which tests reach which line: `-p tests.mutate.contexts`.

Each test is a context of the coverage data. A program that a test starts inherits the test's name by `PYTEST_CURRENT_TEST`,
which the coverage settings of that run name as its context. The time of each test goes to the file that `MUTATE_TIMES` names.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import coverage
import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_times: dict[str, float] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Set the test as the coverage context."""
    measuring = coverage.Coverage.current()
    assert measuring is not None, "start it by `coverage run`"
    measuring.switch_context(item.nodeid)
    result = yield
    measuring.switch_context("")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up the times of setup, call and teardown."""
    _times[report.nodeid] = _times.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    """Write the times to a file."""
    Path(os.environ["MUTATE_TIMES"]).write_text(json.dumps(_times), "utf-8")
