"""What the tests of the house read is dropped behind the last of them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from . import tree

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.fixture(scope="package", autouse=True)
def _parsed_files_are_dropped() -> Generator[None]:
    """The repository's syntax trees are millions of objects, which every full collection in the tests behind these would go through."""
    yield
    tree.standing.cache_clear()
    tree.parsed.cache_clear()
    gc.collect()
