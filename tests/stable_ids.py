"""Test ids must be the same in all xdist workers, which compare what they collected and give up on a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Refuse ids with memory addresses, as `ids=str` makes for objects: they differ between processes."""
    wrong = sorted({item.nodeid.partition("[")[0] for item in items if " at 0x" in item.nodeid})
    if wrong:
        raise pytest.UsageError(f"an address is no name; write other `ids` for {', '.join(wrong)}")
