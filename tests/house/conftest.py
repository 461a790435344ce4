"""What the tests of the house read is dropped behind the last of them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from . import tree

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    """The repository's syntax trees are millions of objects, which no collection has to go through."""
    gc.disable()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Nor in the tests behind these."""
    try:
        return (yield)
    finally:
        if nextitem is None or not nextitem.nodeid.startswith("tests/house/"):
            tree.forget()
        gc.enable()
