"""Messages are grouped by request, kept within bounds with a share for each session, and leave without secrets."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.event_types import CallStarted, FramePassed
from greenroom.observe import Admin, process_views, wire_record
from greenroom.observe.observed_program import ObservedProgram
from greenroom.observe.secret_masks import LEFT_OUT
from greenroom.observe.wire_record import MOST_SHOWN, PageRoom, WireRecord


def wire(**options: Any) -> WireRecord:
    """A record whose clock stands still."""
    return WireRecord(lambda: 1_000.0, **options)


def passed(
    direction: Literal["in", "out"], message: Any, *, session: str = "s1", side: Literal["server", "client"] = "server"
) -> FramePassed:
    """A message that passed."""
    body = message if isinstance(message, bytes) else msgspec.json.encode(message)
    return FramePassed(side=side, program="shop", session=session, direction=direction, transport="http", body=body)


def request(id: int | str, method: str = "tools/call", **params: Any) -> dict[str, Any]:
    """A request."""
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def reply(id: int | str, **result: Any) -> dict[str, Any]:
    """Its reply."""
    return {"jsonrpc": "2.0", "id": id, "result": result}


def shape(record: WireRecord) -> list[tuple[str, str, list[str]]]:
    """Each group: its method, the id of its request, and the kinds of its messages."""
    return [(row.method, row.request, [each.kind for each in row.frames]) for row in map(record.row, record.groups())]


def test_a_request_its_reply_and_what_was_said_between_are_one_group() -> None:
    record = wire()
    record.take(passed("in", request(1, name="add")))
    record.take(passed("out", {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1}}))
    record.take(passed("out", request("q1", "elicitation/create", message="who?")))
    record.take(passed("in", reply("q1", action="accept", content={"who": "private"})))
    record.take(passed("out", reply(1, content=[])))
    record.take(passed("in", {"jsonrpc": "2.0", "method": "notifications/initialized"}))
    assert shape(record) == [
        ("notifications/initialized", "", ["notification"]),
        ("elicitation/create", "q1", ["request", "result"]),
        ("tools/call", "1", ["request", "notification", "result"]),
    ]


def test_equal_ids_in_two_sessions_and_in_two_directions_are_two_requests() -> None:
    record = wire()
    record.take(passed("in", request(1), session="a"))
    record.take(passed("in", request(1), session="b"))
    record.take(passed("out", request(1, "ping"), session="a"))
    record.take(passed("in", reply(1), session="a"))
    record.take(passed("out", reply(1), session="b"))
    assert sorted(shape(record)) == [
        ("ping", "1", ["request", "result"]),
        ("tools/call", "1", ["request"]),
        ("tools/call", "1", ["request", "result"]),
    ]


def test_the_reply_that_begins_a_session_is_that_of_its_request() -> None:
    record = wire()
    for id, method in ((1, "initialize"), (2, "tools/list")):
        record.take(passed("in", request(id, method), session=""))
        record.take(passed("out", reply(id), session="new"))
    assert shape(record) == [
        ("", "2", ["result"]),
        ("tools/list", "2", ["request"]),
        ("initialize", "1", ["request", "result"]),
    ]


def test_a_cancellation_belongs_to_the_request_that_it_cancels() -> None:
    record = wire()
    record.take(passed("in", request(1)))
    record.take(passed("in", request(2)))
    record.take(passed("in", {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}))
    assert shape(record) == [("tools/call", "2", ["request"]), ("tools/call", "1", ["request", "notification"])]


def test_only_what_is_captured_shows_its_params_and_can_be_sent_again() -> None:
    record = wire(capture=["add"])
    for number, name in enumerate(("add", "pay"), 1):
        record.take(passed("in", request(number, name=name, arguments={"a": "private", "token": "hunter2"})))
    pay, add = map(record.row, record.groups())
    assert "private" not in (pay.frames[0].body or "")
    assert (pay.can_replay, record.find_request(pay.frames[0].number)) == (False, None)
    assert "private" in (add.frames[0].body or "")
    assert add.can_replay
    found = record.find_request(add.frames[0].number)
    assert found is not None
    assert (found[0], found[2]) == ("tools/call", "shop")
    assert all("hunter2" not in (each.body or "") for row in (pay, add) for each in row.frames)
    assert b"hunter2" not in b"".join(record.lines())


def test_a_page_shows_messages_of_bounded_size_together() -> None:
    record = wire(capture=True)
    for number in range(20):
        record.take(passed("in", request(number, name="add", arguments={"a": "x" * 60_000})))
    room = PageRoom()
    bodies = [each.frames[0].body or "" for each in (record.row(group, room) for group in record.groups())]
    shown = [LEFT_OUT not in each for each in bodies]
    assert shown == [True] * (MOST_SHOWN // 61_000) + [False] * (20 - MOST_SHOWN // 61_000)
    assert all(json.loads(each) for each in bodies)
    assert record.row(record.groups()[-1], PageRoom()).frames[0].body != bodies[-1]
    assert len(list(record.lines())) == 20


def test_a_message_of_another_program_cannot_be_sent_again() -> None:
    record = wire(capture=True)
    record.take(passed("out", request(1, name="add"), side="client"))
    row = record.row(record.groups()[0])
    assert (row.can_replay, record.find_request(row.frames[0].number)) == (False, None)


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 5_000, b"null", b"{}", b'{"id":[1]}', b'{"method":5}'])
def test_a_message_that_cannot_be_read_is_kept_by_itself(body: bytes) -> None:
    record = wire(capture=True)
    record.take(passed("in", body))
    (row,) = map(record.row, record.groups())
    assert [each.kind for each in row.frames] == ["unreadable"]
    assert not row.can_replay


def test_a_large_message_is_counted_and_its_body_is_not_kept() -> None:
    record = wire(capture=True)
    record.take(passed("in", request(1, name="add", arguments={"a": "x" * 200_000})))
    (row,) = map(record.row, record.groups())
    assert (row.name, row.frames[0].body, row.can_replay) == ("add", None, False)
    assert row.frames[0].size > 200_000
    assert record.bytes == 0


@given(
    st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 6), st.booleans(), st.integers(0, 300)), max_size=120)
)
def test_the_record_stays_within_its_bounds(made: list[tuple[str, int, bool, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_record, "MOST_FRAMES", 40)
        patch.setattr(wire_record, "MOST_BYTES", 8_000)
        record = wire(capture=True)
        for session, id, is_request, size in made:
            message = request(id, name="x" * size) if is_request else reply(id, text="x" * size)
            record.take(passed("in" if is_request else "out", message, session=session))
        rows = list(map(record.row, record.groups()))
        assert len(record) == sum(len(row.frames) for row in rows) <= 40
        assert record.bytes <= 8_000
        assert len(record) + record.dropped == len(made)
        numbers = [each.number for row in rows for each in row.frames]
        assert len(set(numbers)) == len(numbers)
        assert all(len({each.session for each in row.frames}) == 1 for row in rows)
        record.clear()
        assert (len(record), record.bytes, record.groups()) == (0, 0, [])


def test_a_session_that_floods_takes_no_place_of_the_others() -> None:
    record = wire()
    record.take(passed("in", request(1), session="quiet"))
    for number in range(5_000):
        record.take(passed("in", request(number), session="loud"))
    assert len(record) <= wire_record.MOST_FRAMES // 4 + 1
    assert any(each.owner[2] == "quiet" for each in record.groups())


def test_the_file_has_all_messages_as_lines_the_oldest_first() -> None:
    record = wire()
    record.take(CallStarted(call=1, side="server", program="shop", way="session", method="ping"))
    record.take(passed("in", request(1)))
    record.take(passed("out", reply(1)))
    lines = [json.loads(each) for each in record.lines()]
    assert [(each["kind"], each["direction"]) for each in lines] == [("request", "in"), ("result", "out")]


def test_the_request_and_the_reply_of_a_call_are_found() -> None:
    record = wire(capture=True)
    record.take(passed("in", request(1, name="add", arguments={"a": 1})))
    record.take(passed("out", reply(1, content=[])))
    group = record.of_call("s1", "1", "add")
    assert group is not None
    arguments, result = record.bodies(group)
    assert (json.loads(arguments or ""), json.loads(result or "")) == (
        {"name": "add", "arguments": {"a": 1}},
        {"content": []},
    )
    assert record.of_call("s1", "2", "add") is None


def test_a_group_whose_messages_are_dropped_while_a_view_is_made_is_shown_without_them() -> None:
    record = wire(capture=True)
    record.take(passed("in", request(1, name="add"), session="slow"))
    [group] = record.groups()
    for number in range(wire_record.MOST_FRAMES):
        record.take(passed("in", request(number, name="add"), session=f"s{number % 8}"))
    row = record.row(group)
    assert (row.session, row.request, row.frames, row.can_replay) == ("slow", "1", [], False)


@pytest.mark.parametrize("part", [b'{"text":"\xff"}', b'{"number":1e999}'])
def test_params_that_cannot_be_read_are_shown_by_their_size(part: bytes) -> None:
    record = wire(capture=True)
    record.take(passed("in", b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % part))
    [group] = record.groups()
    shown, _ = record.bodies(group)
    assert shown is not None
    assert shown.endswith('bytes that are no JSON"')


async def test_a_recording_gives_way_between_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_views, "SLICE_SECONDS", -1.0)  # each step uses it up
    program = ObservedProgram(Admin(capture=True), "shop")
    for number in range(10):
        program.observatory.wire.take(passed("in", request(number, name="add")))
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(process_views.PAUSE_SECONDS / 2)

    beside = asyncio.ensure_future(other())
    lines = [line async for line in program.recording()]
    beside.cancel()
    assert len(lines) == 10
    assert turns >= 10
