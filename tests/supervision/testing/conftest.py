"""A fixture for the tests of the pytest plugin: runs a test file in a pytest of its own."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = """
    import asyncio, random, threading, time
    import pytest
    from hypothesis import given, settings, strategies
    from greenroom.supervision import *
    from greenroom.supervision.testing import *
"""


@pytest.fixture
def play(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Run a test file with the plugin, in auto mode by default."""

    def run(text: str, *arguments: str, mode: str = "auto") -> pytest.RunResult:
        pytester.makeini(f"[pytest]\ngreenroom_mode = {mode}\naddopts = -p no:randomly -p no:cacheprovider -W error\n")
        pytester.makepyfile(textwrap.dedent(HEAD) + textwrap.dedent(text))
        return pytester.runpytest_inprocess(*arguments)

    return run
