"""Drops the parsed repository after the last test of this folder, and switches the garbage collector off during each of them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from . import tree

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """Switch the collector off: the repository's syntax trees are millions of objects, which each collection would traverse."""
    gc.disable()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Switch it on again, and drop the trees after the last test, so that later collections do not traverse them either."""
    try:
        return (yield)
    finally:
        if nextitem is None or not nextitem.nodeid.startswith("tests/house/"):
            tree.forget()
        gc.enable()
