"""Ids that a peer has chosen to share one hash cost as little as any others, and are the same ids as before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.session_calls import CallTable, SessionCall
from greenroom.protocol.jsonrpc import id_key
from greenroom.transports.interfaces import Peer
from greenroom.transports.session_channel import SessionChannel

if TYPE_CHECKING:
    from collections.abc import Sequence

PRIME = (1 << 61) - 1
"""Python's integers are hashed modulo this one."""
MANY = 1000
PER_KEY = 4
"""How often an id may be compared, however many others there are."""


class Counted(int):
    """An integer that counts how often it is compared."""

    compared = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return int.__eq__(self, other)


@pytest.fixture
def ids() -> list[Any]:
    Counted.compared = 0
    return [Counted(PRIME * number) for number in range(1, MANY + 1)]


def test_calls_in_flight(ids: list[Any]) -> None:
    table = CallTable()
    for key, id in enumerate(ids):
        assert not table.has(id)
        table.add(SessionCall(key, id, "tools/call", None))
    for key, id in enumerate(ids):
        found = table.find_by_id(id)
        assert found is not None
        assert found.key == key
        assert table.take(key) is found
        assert not table.has(id)
    assert Counted.compared <= PER_KEY * MANY


def test_early_cancellations(ids: list[Any]) -> None:
    table = CallTable()
    for id in ids:
        table.note_early_cancel(id, 0.0)
        assert not table.is_cancelled_early(PRIME * 5000, 0.0)
    assert table.is_cancelled_early(ids[-1], 0.0)
    assert Counted.compared <= PER_KEY * MANY


def test_requests_that_a_channel_owes(ids: list[Any]) -> None:
    async def send(_: Sequence[bytes]) -> None: ...

    no_router: Any = None
    channel = SessionChannel(no_router, Peer("stdio"), send)
    for id in ids:
        channel._add_pending(id)
        channel._add_pending(id)
    assert channel.pending == 2 * MANY
    for id in ids:
        channel._remove_pending(id)
    assert channel.pending == MANY
    for id in ids:
        channel._remove_pending(id)
        channel._remove_pending(id)
    assert channel.pending == 0
    assert Counted.compared <= PER_KEY * MANY


@pytest.mark.parametrize("id", [0, -1, 1, 1 << 59, -(1 << 59), "", "1", "x" * 1024])
def test_an_id_with_a_hash_of_its_own_is_its_own_key(id: str | int) -> None:
    assert id_key(id) is id


@pytest.mark.parametrize("id", [1 << 60, -(1 << 60), PRIME, 10**307, -(10**307)])
def test_a_large_number_is_equal_to_itself_and_to_no_text(id: int) -> None:
    assert id_key(id) == id_key(int(str(id)))
    assert len({id_key(id), id_key(id + 1), id_key(-id), id_key(str(id))}) == 4
