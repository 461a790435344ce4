"""What a program answers on its inspect socket: views, events, acts; and to clients that are old, slow, many or hostile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom import inspect_requests
from greenroom.event_types import EVENT_TYPES, LISTEN, CallEnded, CallStarted, ChildStarted, FramePassed, ProcessCrashed
from greenroom.inspect_protocol import (
    EVENT_GROUPS,
    LONGEST_REQUEST,
    ActRequest,
    FollowRequest,
    InspectRefusal,
    LinkRequest,
    SnapshotRequest,
    ViewRequest,
    event_filter,
    level_of,
    read_request,
)
from greenroom.inspect_requests import MOST_CONNECTIONS, MOST_WAITING, EventFollower
from greenroom.inspect_socket import inspectable, read_snapshot
from greenroom.supervision.event_bus import bus

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

pytestmark = pytest.mark.greenroom(clock="real")


def ended(**more: Any) -> CallEnded:
    facts: dict[str, Any] = {
        "call": 1,
        "side": "server",
        "program": "weather",
        "way": "session",
        "method": "tools/call",
    }
    facts |= {"outcome": "result", "seconds": 0.1, **more}
    return CallEnded(**facts)


def started(call: int = 1, **more: Any) -> CallStarted:
    return CallStarted(call=call, side="server", program="weather", way="session", method="tools/call", **more)


class Asking:
    """A client that writes bytes and reads lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: object) -> Any:
        return await self.say(msgspec.json.encode(request) + b"\n")

    async def say(self, data: bytes) -> Any:
        self.writer.write(data)
        return await self.hear()

    async def hear(self) -> Any:
        line = await self.reader.readline()
        return json.loads(line) if line else None

    async def ended(self) -> bytes:
        with contextlib.suppress(ConnectionResetError):
            return await self.reader.read()
        return b""


@contextlib.asynccontextmanager
async def asking(path: Path) -> AsyncGenerator[Asking]:
    reader, writer = await asyncio.open_unix_connection(path, limit=1 << 24)
    try:
        yield Asking(reader, writer)
    finally:
        writer.close()


# --- old clients


async def test_a_client_that_asks_nothing_gets_a_snapshot(folder: Path) -> None:
    del folder
    async with inspectable("x") as path, asking(path) as client:
        assert json.loads(await client.ended())["name"] == "x"


async def test_a_newer_client_gets_the_snapshot_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del folder
    monkeypatch.setattr(inspect_requests, "_FIRST", 60.0)
    async with inspectable("x") as path:
        assert (await asyncio.to_thread(read_snapshot, path))["name"] == "x"


# --- requests


async def test_views_follow_each_other_on_one_connection(folder: Path) -> None:
    del folder
    async with inspectable("x") as path, asking(path) as client:
        for name in ("now", "tree", "calls"):
            assert (await client.ask(ViewRequest(name=name)))["ok"]["program"] == "x"


@pytest.mark.parametrize(
    ("request_", "kind", "says"),
    [
        (ViewRequest(name="nothing"), "unknown", "there is no view 'nothing': there are now, tree, process"),
        (ViewRequest(name="tree", query={"colour": "red"}), "unknown", "colour"),
        (ViewRequest(name="tree", query={"page": "red"}), "unknown", "page"),
        (ViewRequest(name="tree", query={"self": 1}), "unknown", "self"),
        (ViewRequest(name="tree", query={"name": 1}), "unknown", "name"),
        (ActRequest(act="kill", target="<n.1>"), "denied", 'run(…, inspect="acts")'),
        (
            FollowRequest(kinds=("Nothing",)),
            "unknown",
            "there is no kind of event 'Nothing': there are calls, sessions",
        ),
        (LinkRequest(), "unknown", "this program has no page: start it with --admin"),
    ],
)
async def test_a_request_that_cannot_be_answered_is_refused_with_a_reason(
    folder: Path, request_: object, kind: str, says: str
) -> None:
    del folder
    async with inspectable("x") as path, asking(path) as client:
        reply = await client.ask(request_)
        assert reply["kind"] == kind
        assert says in reply["error"]


async def test_acts_are_done_where_the_program_allows_them_and_say_what_is_wrong(folder: Path) -> None:
    del folder
    async with inspectable("x", inspect="acts") as path, asking(path) as client:
        reply = (await client.ask(ActRequest(act="kill", target="<n.99999>")))["ok"]
        assert not reply["is_done"]


# --- hostile clients


@settings(max_examples=examples(300))
@given(
    st.one_of(
        st.binary(max_size=200),
        st.text(max_size=100).map(str.encode),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["ask", "name", "query", "kinds", "last", "act"]), inner, max_size=4)
            ),
            max_leaves=8,
        ).map(msgspec.json.encode),
    )
)
def test_any_line_is_a_request_or_refused(line: bytes) -> None:
    try:
        found = read_request(line)
    except InspectRefusal as refusal:
        assert refusal.kind == "invalid"
        assert len(str(refusal)) < 300
    else:
        assert isinstance(found, SnapshotRequest | ViewRequest | FollowRequest | ActRequest | LinkRequest)


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"{}\n",
        b"[" * 10_000 + b"\n",
        b"\xff\xfe\n",
        b'{"ask":"view"}\n',
        b'{"ask":"view","name":"tree","more":1}\n',
        b"x" * (LONGEST_REQUEST * 4),
    ],
    ids=lambda data: repr(data[:20]),
)
async def test_a_line_that_is_no_request_ends_the_connection_and_no_other(folder: Path, data: bytes) -> None:
    del folder
    async with inspectable("x") as path, asking(path) as client, asking(path) as other:
        assert (await other.ask(ViewRequest(name="now")))["ok"]["program"] == "x"
        assert (await client.say(data))["kind"] == "invalid"
        assert await client.ended() == b""
        assert (await other.ask(ViewRequest(name="now")))["ok"]["program"] == "x"


async def test_a_request_that_does_not_go_on_is_given_up(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del folder
    monkeypatch.setattr(inspect_requests, "_REST", 0.01)
    async with inspectable("x") as path, asking(path) as client:
        client.writer.write(b'{"ask":')
        assert await client.ended() == b""


async def test_more_connections_than_allowed_are_closed_and_a_place_is_free_again(folder: Path) -> None:
    del folder
    async with inspectable("x") as path, contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(asking(path)) for _ in range(MOST_CONNECTIONS)]
        for each in clients:
            assert "ok" in await each.ask(ViewRequest(name="now"))
        async with asking(path) as late:
            assert await late.ended() == b""
        clients[0].writer.close()
        found: Any = None
        while found is None:
            async with asking(path) as again:
                with contextlib.suppress(ConnectionError):
                    found = await again.ask(ViewRequest(name="now"))
        assert "ok" in found


async def test_a_client_that_takes_no_answer_loses_its_connection(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del folder
    monkeypatch.setattr(inspect_requests, "_WRITE", 0.01)
    requests = (msgspec.json.encode(ViewRequest(name="tree")) + b"\n") * 20_000
    async with inspectable("x") as path:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.setblocking(False)  # noqa: FBT003 - its only argument
            sock.connect(str(path))
            with pytest.raises((BrokenPipeError, ConnectionResetError)):
                async with asyncio.timeout(5):
                    await asyncio.get_running_loop().sock_sendall(sock, requests)


async def test_clients_that_leave_at_once_leave_nothing(folder: Path) -> None:
    del folder
    before = bus.detail_listener
    async with inspectable("x") as path:
        for line in (b"", b"{", msgspec.json.encode(FollowRequest(kinds=("CallStep",))) + b"\n"):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(path))
                sock.sendall(line)
        async with asking(path) as client:
            assert "ok" in await client.ask(ViewRequest(name="now"))
        while bus.detail_listener is not before:  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0)


# --- events


async def test_events_are_followed_from_the_last_ones_on(folder: Path) -> None:
    del folder
    async with inspectable("x") as path:
        assert bus.listener is not None
        bus.listener(ProcessCrashed(node="n", label="a", kind="Worker", pid="<n.5>", reason="\x1b[2J boom"))
        async with asking(path) as client:
            assert (await client.ask(FollowRequest(last=10, kinds=("processes",))))["ok"] is True
            before = await client.hear()
            assert (before["kind"], before["level"], before["pid"]) == ("ProcessCrashed", "error", "<n.5>")
            assert before["text"] == "a <n.5> crashed: \\u001b[2J boom"
            bus.listener(ended())
            bus.listener(ChildStarted(node="n", supervisor="s", child="c", kind="Worker", pid="<n.6>", is_restart=True))
            after = await client.hear()
            assert (after["kind"], after["data"]["is_restart"]) == ("ChildStarted", True)


async def test_a_follower_of_what_has_been_gets_the_last_ones_and_the_end(folder: Path) -> None:
    del folder
    async with inspectable("x") as path:
        assert bus.listener is not None
        for number in range(5):
            bus.listener(started(number))
            bus.listener(ended(call=number, name=f"t{number}"))
        async with asking(path) as client:
            await client.ask(FollowRequest(last=2, kinds=("CallEnded",), is_live=False))
            assert [json.loads(line)["data"]["name"] for line in (await client.ended()).splitlines()] == ["t3", "t4"]


async def test_a_follower_that_is_too_slow_gets_a_mark_of_what_it_lost() -> None:
    follower = EventFollower(lambda _: True)
    for number in range(MOST_WAITING + 5):
        follower(ended(call=number))
    lines = [json.loads(each) for each in (await follower.lines()).splitlines()]
    assert len(lines) == MOST_WAITING + 1
    assert (lines[-1]["kind"], lines[-1]["data"]) == ("Gap", {"lost": 5})
    follower(ended(call=7))
    assert [json.loads(each)["call"] for each in (await follower.lines()).splitlines()] == [7]


async def test_a_follower_takes_an_event_that_is_emitted_while_it_takes_one() -> None:
    def emitting(event: object) -> bool:  # as a finalizer that the collector of garbage runs
        if event is outer:
            with follower._lock:
                follower(ended(call=2))
        return True

    outer = ended(call=1)
    follower = EventFollower(emitting)
    await asyncio.to_thread(follower, outer)
    assert [json.loads(each)["call"] for each in (await follower.lines()).splitlines()] == [2, 1]


async def test_waiting_events_are_bounded_in_bytes_and_hold_no_credentials() -> None:
    follower = EventFollower(lambda _: True)
    for _ in range(MOST_WAITING):
        secret = "Bearer " + "abcdefgh" * 8
        follower(ProcessCrashed(node="n", label="a", kind="W", pid="p", reason=secret, stack="x" * 100_000))
    lines = await follower.lines()
    assert len(lines) < 20_000 * MOST_WAITING
    assert b"abcdefgh" not in lines


async def test_messages_of_the_protocol_are_no_events_to_follow(folder: Path) -> None:
    del folder
    async with inspectable("x") as path, asking(path) as client:
        reply = await client.ask(FollowRequest(kinds=("FramePassed",)))
        assert (reply["kind"], "greenroom wire" in reply["error"]) == ("denied", True)


@pytest.mark.parametrize(
    ("asked", "event", "is_wanted"),
    [
        (FollowRequest(), ended(), True),
        (FollowRequest(), started(), True),
        (FollowRequest(level="info"), started(), False),
        (FollowRequest(level="info"), ended(), True),
        (FollowRequest(level="warning"), ended(), False),
        (FollowRequest(level="warning"), ended(outcome="deadline"), True),
        (FollowRequest(level="warning"), ended(outcome="tool_error"), False),
        (FollowRequest(kinds=("calls",)), ended(), True),
        (FollowRequest(kinds=("processes",)), ended(), False),
        (FollowRequest(names=("a",)), ended(name="a"), True),
        (FollowRequest(names=("a", "weather")), ended(name="b"), True),
        (FollowRequest(names=("a",)), ended(name="b"), False),
        (FollowRequest(outcomes=("deadline",)), ended(outcome="deadline"), True),
        (FollowRequest(outcomes=("deadline",)), ended(), False),
        (FollowRequest(is_failed=True), ended(outcome="tool_error"), True),
        (FollowRequest(is_failed=True), ended(outcome="asks"), False),
        (FollowRequest(is_failed=True), ended(), False),
        (FollowRequest(is_failed=True), ended(method=LISTEN, outcome="cancelled"), False),
        (FollowRequest(is_failed=True), ended(method=LISTEN, outcome="peer_gone"), False),
        (FollowRequest(is_failed=True), ended(method=LISTEN, outcome="refused"), True),
        (FollowRequest(level="warning"), ended(method=LISTEN, outcome="peer_gone"), False),
        (FollowRequest(slower=0.1), ended(method=LISTEN, seconds=60.0), False),
        (FollowRequest(slower=0.1), ended(seconds=0.1), True),
        (FollowRequest(slower=0.2), ended(seconds=0.1), False),
        (FollowRequest(), FramePassed(side="server", program="x", direction="in", body=b"secret"), False),
    ],
)
def test_a_filter_lets_through_what_it_names(asked: FollowRequest, event: Any, *, is_wanted: bool) -> None:
    assert event_filter(asked)(event) is is_wanted


def test_each_event_is_in_a_group_or_a_detail_and_has_a_level() -> None:
    grouped = [each for group in EVENT_GROUPS.values() for each in group]
    assert len(grouped) == len(set(grouped))
    left = {each.__name__ for each in EVENT_TYPES} - {each.__name__ for each in grouped}
    assert left == {"CallStep", "FramePassed", "ServerWrote"}
    assert (level_of(ended()), level_of(started())) == ("info", "debug")
