"""Wires to child processes behave the same on another node: the same tests, with each wire at the far end of a link.

Left out are those that look into the wire itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.transports.client_command import test_wire, wire_owner
from tests.transports.client_command.conftest import mark

from .thread_node import again, by_way_of_a_neighbour, neighbour

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

__all__ = ["mark"]

pytestmark = pytest.mark.greenroom(clock="real")


@pytest.fixture(autouse=True)
async def far(mark: str, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[None]:
    """The other node outlasts the process that has opened a wire there."""
    monkeypatch.setattr(test_wire, "open_wire", by_way_of_a_neighbour(wire_owner.open_wire))
    async with neighbour():
        yield


globals().update(
    again(
        test_wire,
        "test_messages_sent_before_the_start_are_kept_in_order",
        "test_messages_are_delivered_one_by_one_whatever_the_pieces",
        "test_the_signal_that_ended_a_child_is_reported",
        "test_the_exit_status_comes_once_after_all_messages",
        "test_half_a_line_at_the_end_is_no_message",
        "test_the_whole_process_group_is_ended",
        "test_a_child_that_ignores_its_end_is_killed",
        "test_output_before_the_end_is_read",
        "test_a_child_ends_with_its_owner",
        "test_a_child_that_closes_its_output_and_runs_on_is_ended",
        "test_a_child_with_only_invalid_lines_is_no_server",
        "test_an_oversized_line_fails_its_own_call",
    )
)
