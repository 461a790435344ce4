"""What wires to child processes do at home, they do on another node: the same tests, with each wire on the far side of a link.

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
    monkeypatch.setattr(test_wire, "opened", by_way_of_a_neighbour(wire_owner.opened))
    async with neighbour():
        yield


globals().update(
    again(
        test_wire,
        "test_what_is_said_before_it_runs_is_kept_in_order",
        "test_messages_come_one_by_one_whatever_the_pieces",
        "test_the_signal_that_ended_it_is_told",
        "test_the_status_comes_once_behind_all_that_was_said",
        "test_half_a_line_at_the_end_is_no_message",
        "test_the_whole_group_is_ended",
        "test_who_does_not_end_is_ended",
        "test_what_was_said_is_read_before_the_end",
        "test_the_child_ends_with_its_owner",
        "test_who_hangs_up_and_runs_on_is_ended",
        "test_who_says_nothing_else_is_no_server",
        "test_a_line_that_is_too_long_fails_its_own_call",
    )
)
