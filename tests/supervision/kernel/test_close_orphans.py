"""Closing a node whose processes are orphans, and linked to one another."""

from __future__ import annotations

from greenroom.supervision import GenServer, Node, Supervisor, child, inbox, start_link
from greenroom.supervision.kernel.node import run as run_node


class Idle(GenServer):
    """Does nothing."""


def test_a_process_that_dies_of_the_kill_of_another_is_not_waited_for_again() -> None:
    left: list[Node] = []

    async def main() -> None:
        async with inbox():
            sup = await start_link(Supervisor, [child(Supervisor, [child(Idle)])])
            left.append(sup._find().node)

    run_node(main)
    assert not left[0].processes
