"""Federations treat upstreams of the stateless era as any others: the tests that were written for a handshake, once more.

Left out are those about what only a session has (subscriptions and log levels as requests), and those in which a program is silent for less time than the question
for its era may take: it then gets the handshake, which is another attempt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from . import (
    test_absence,
    test_federated_lines,
    test_federation,
    test_list_refresher,
    test_races,
    test_trouble,
    test_upstream_manager,
    test_upstream_status,
)
from .era_upstreams import StatelessUpstairs

if TYPE_CHECKING:
    from types import ModuleType

MODULES: Final[tuple[ModuleType, ...]] = (
    test_absence,
    test_federated_lines,
    test_federation,
    test_list_refresher,
    test_races,
    test_trouble,
    test_upstream_manager,
    test_upstream_status,
)
OF_SESSIONS: Final = {
    "test_undeclared_lists_are_not_requested",
    "test_updates_pass_a_gap_when_a_server_is_replaced",
    "test_the_level_of_logs_is_told_to_successors",
    "test_a_call_that_waits_fails_when_the_attempt_does",
    "test_the_next_catalogue_waits_for_a_manual_retry",
}
ALL: Final = {name: test for module in MODULES for name, test in vars(module).items() if name.startswith("test_")}


@pytest.fixture(autouse=True)
def stateless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all of them play with upstreams of the stateless era."""
    for module in MODULES:
        if hasattr(module, "Upstairs"):
            monkeypatch.setattr(module, "Upstairs", StatelessUpstairs)


globals().update({name: test for name, test in ALL.items() if name not in OF_SESSIONS})


def test_the_tests_that_are_left_out_exist() -> None:
    assert ALL.keys() >= OF_SESSIONS
    assert len(ALL) > 90
