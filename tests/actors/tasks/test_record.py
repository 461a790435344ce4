"""The record of a task: its dates, statuses and owner."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.actors.process_names import new_id
from greenroom.actors.task_record import (
    RELATED_TASK,
    TERMINAL,
    BadTransition,
    TaskRecord,
    belongs_to_session,
    owner_of,
    wire_time,
    with_related_task,
)
from greenroom.transports.interfaces import Peer

STATES = ["working", "input_required", "completed", "failed", "cancelled"]
WORKING = TaskRecord(id="task_1", owner="me", created=1000.0, updated=1000.0, ttl=60.0, poll=0.5)


def as_it_is(status: Any) -> TaskRecord:
    return WORKING if status == "working" else WORKING.with_status(status, 1001.0)


@pytest.mark.row("WC-29")
def test_dates_are_rfc_3339_with_milliseconds_in_utc_and_states_are_the_protocols() -> None:
    record = WORKING.with_status("completed", 1763464229.0456, None, result=b"{}")
    wire = record.to_wire()
    assert wire == {
        "taskId": "task_1",
        "status": "completed",
        "createdAt": "1970-01-01T00:16:40.000Z",
        "lastUpdatedAt": "2025-11-18T11:10:29.045Z",
        "ttl": 60_000,
        "pollInterval": 500,
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", wire_time(1.0))
    assert WORKING.with_status("failed", 1001.0, "no flour").to_wire()["statusMessage"] == "no flour"


@pytest.mark.parametrize("before", STATES)
@pytest.mark.parametrize("after", STATES)
def test_only_transitions_of_the_revision_are_allowed(before: Any, after: Any) -> None:
    record = as_it_is(before)
    allowed = before not in TERMINAL and before != after
    if allowed:
        assert record.with_status(after, 1002.0).status == after
        return
    with pytest.raises(BadTransition, match=f"a task that is {before} cannot become {after}"):
        record.with_status(after, 1002.0)


@given(moments=st.lists(st.floats(0, 1e10), min_size=1, max_size=5))
def test_time_does_not_go_back_and_nothing_expires_before_its_end(moments: list[float]) -> None:
    record = WORKING
    for index, moment in enumerate(moments):
        before = record
        record = record.with_status("working" if index % 2 else "input_required", moment)
        assert record.updated >= before.updated
        assert record.expires == math.inf
    ended = record.with_status("cancelled", 0.0)
    assert ended.ended == ended.updated == record.updated
    assert ended.expires == record.updated + 60


@dataclass(frozen=True)
class Person:
    """A principal."""

    name: str


class Nameless:
    """A principal that looks like any other when it is written down."""


@pytest.mark.row("TF-14")
def test_an_owner_is_a_principal_or_else_a_session_or_the_local_user() -> None:
    assert owner_of(Peer("http", principal="ann"), "mcp_1") == owner_of(Peer("http", principal="ann"), "mcp_2")
    people = ["ann", Person("ann"), ("ann",), 1, "1"]
    assert len({owner_of(Peer("http", principal=who), "mcp_1") for who in people}) == len(people)
    assert owner_of(Peer("http"), "mcp_1") != owner_of(Peer("http"), "mcp_2")
    assert belongs_to_session(owner_of(Peer("http"), "mcp_1"))
    assert not belongs_to_session(owner_of(Peer("http", principal="session mcp_1"), "mcp_1"))
    assert owner_of(Peer("stdio"), "mcp_1") == owner_of(Peer("stdio"), "mcp_2") == "local"
    who = Nameless()
    assert owner_of(Peer("http", principal=who), "mcp_1") != owner_of(Peer("http", principal=who), "mcp_2")


@pytest.mark.row("TF-18")
@pytest.mark.row("26-T10")
def test_ids_are_random() -> None:
    ids = {new_id("task") for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch("task_[0-9a-f]{32}", id) for id in ids)


def test_a_related_message_keeps_the_rest_of_its_meta() -> None:
    params = {"a": 1, "_meta": {"b": 2, RELATED_TASK: {"taskId": "task_other"}}}
    assert with_related_task(params, "task_1") == {"a": 1, "_meta": {"b": 2, RELATED_TASK: {"taskId": "task_1"}}}
    assert params["_meta"] == {"b": 2, RELATED_TASK: {"taskId": "task_other"}}
    assert with_related_task({}, "task_1") == {"_meta": {RELATED_TASK: {"taskId": "task_1"}}}
