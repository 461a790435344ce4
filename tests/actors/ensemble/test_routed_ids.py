"""Ids that tell the holders of a key which node they name; and the shared page by which processes accept evenly."""

from __future__ import annotations

import os
import secrets
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom import SqliteTasks
from greenroom.actors.company import Company
from greenroom.actors.ensemble.routed_ids import MAX_NODES, RoutedIds
from greenroom.actors.ensemble.session_router import EnsembleMember, NodeSlot
from greenroom.auth.auth_gate import AuthGate
from greenroom.auth.auth_info import AuthInfo
from greenroom.transports.interfaces import Peer
from greenroom.transports.listening_sockets import FRESH, AcceptShares, create_shares_file

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from pathlib import Path

    from greenroom.actors.task_store import TaskStore
    from greenroom.auth.auth_info import AuthRequest
    from greenroom.transports.interfaces import HttpRefusal

KEY = b"k" * 32


@given(st.integers(0, MAX_NODES - 1), st.booleans(), st.sampled_from(["mcp", "task"]))
def test_an_id_names_its_node_to_holders_of_the_key(place: int, channel: bool, kind: str) -> None:  # noqa: FBT001
    id = RoutedIds(KEY, place).new(kind, channel=channel)
    assert id.startswith(f"{kind}_")
    assert RoutedIds(KEY, 0).read(id) == (place, channel)
    assert RoutedIds(b"x" * 32, 0).read(id) is None


@given(st.text())
def test_an_invented_id_is_refused(id: str) -> None:
    assert RoutedIds(KEY, 0).read(id) is None


@given(st.integers(0, 39), st.sampled_from("0123456789abcdef"))
def test_an_id_with_a_changed_digit_is_refused_or_names_a_node_that_does_not_know_it(at: int, digit: str) -> None:
    id = RoutedIds(KEY, 3).new("mcp")
    changed = f"mcp_{id[4:][:at]}{digit}{id[4:][at + 1 :]}"
    read = RoutedIds(KEY, 0).read(changed)
    assert changed == id or read is None or at >= 38  # the last byte is the slot, which is no secret from its own peer


def test_ids_differ_and_nothing_of_the_place_is_to_be_seen() -> None:
    marks = [RoutedIds(KEY, place) for place in range(2)]
    ids = [each.new("mcp") for each in marks for _ in range(500)]
    assert len(set(ids)) == 1000
    assert {len(id) for id in ids} == {44}
    last = [{id[-2:] for id in ids[:500]}, {id[-2:] for id in ids[500:]}]
    assert len(last[0] & last[1]) > 100  # of 256: they are spread over all bytes, whatever the place
    assert "k" * 4 not in repr(marks[0])


@pytest.mark.parametrize("place", [-1, MAX_NODES])
def test_there_are_so_many_places(place: int) -> None:
    with pytest.raises(ValueError, match="a slot is 0 to 63"):
        RoutedIds(KEY, place)


def test_each_place_has_a_file_of_tasks_of_its_own(tmp_path: Path) -> None:
    stores: list[TaskStore] = []
    for number in range(3):
        company = Company(task_store=SqliteTasks(tmp_path / "tasks.db", max_records=7))
        EnsembleMember(company, NodeSlot(number, ("a", "b", "c"), KEY), lambda: None)
        stores.append(company.tasks.store)
    assert [repr(each).rsplit("/", 1)[1] for each in stores] == ["tasks.db>", "tasks.1.db>", "tasks.2.db>"]
    assert {each.max_records for each in stores if isinstance(each, SqliteTasks)} == {7}


class AnyCaller:
    """A provider that authenticates callers without naming them."""

    headers: Sequence[str] = ("authorization",)

    def children(self) -> Sequence[object]:
        return ()

    async def authenticate(self, asking: AuthRequest) -> AuthInfo:
        return AuthInfo(None)

    async def challenge(self, denied: object, asking: AuthRequest) -> HttpRefusal:
        raise NotImplementedError


async def test_anonymous_callers_have_the_same_identity_at_each_gate_with_the_key() -> None:
    async def principal(gate: AuthGate, token: str) -> object:
        admitted = await gate.authenticate("POST", "/mcp", {"authorization": token}, Peer("http", "127.0.0.1:1"))
        assert isinstance(admitted, Peer)
        return admitted.principal

    gates = [AuthGate(AnyCaller()) for _ in range(3)]  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    gates[0].share(KEY)
    gates[1].share(KEY)
    one, same, other = [await principal(gate, "Bearer a") for gate in gates]
    assert one == same != other
    assert await principal(gates[0], "Bearer b") != one


# --- which process yields


@pytest.fixture(name="page")
def _page() -> Generator[int]:
    made = create_shares_file(3)
    yield made
    os.close(made)


def test_the_process_with_more_connections_yields_and_of_equals_the_one_that_accepted_more(page: int) -> None:
    one, other = AcceptShares(page, 0), AcceptShares(page, 1)
    assert not one.should_yield(0)  # the other has not published anything
    other.publish(0)
    assert not one.should_yield(0)
    one.on_accepted(1)
    assert one.should_yield(1)
    assert not other.should_yield(0)
    other.on_accepted(1)
    assert not one.should_yield(1)
    assert one.should_yield(2)
    one.on_accepted(0)
    assert one.should_yield(1)  # as many are open, but it has accepted more
    other.extra_load = lambda: 5
    assert other.should_yield(1)
    assert not one.should_yield(1)


def test_no_process_yields_to_one_that_left_or_is_silent(page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("greenroom.transports.listening_sockets.clock.real_seconds", lambda: now)
    one, other = AcceptShares(page, 0), AcceptShares(page, 1)
    other.publish(0)
    assert one.should_yield(3)
    now += FRESH
    assert not one.should_yield(3)
    other.publish(0)
    assert one.should_yield(3)
    other.withdraw()
    assert not one.should_yield(3)


def test_a_newcomer_begins_where_the_others_are(page: int) -> None:
    one = AcceptShares(page, 0)
    for _ in range(10):
        one.on_accepted(0)
    new = AcceptShares(page, 1)
    assert not one.should_yield(0)
    new.publish(0)
    assert not one.should_yield(0)
    assert not new.should_yield(0)


def test_the_key_of_an_ensemble_is_in_no_repr() -> None:
    key = secrets.token_bytes(32)
    assert repr(key)[2:10] not in repr(NodeSlot(0, ("a",), key))
