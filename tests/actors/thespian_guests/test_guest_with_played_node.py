"""A guest by itself, between a Thespian that only records and a node that the test plays. Time is the test's."""

from __future__ import annotations

import socket
import struct
import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.actors.thespian_guests import guest as guests
from greenroom.actors.thespian_guests.guest_wire import (
    MOST_ITEMS,
    TO_GUEST,
    TO_NODE,
    guest_link_key,
    pack_item,
    unpack_items,
)
from greenroom.supervision.cluster.framing import Handshake, Unframer, batch, frames, greeting
from greenroom.supervision.cluster.polling_link import PollingLink
from greenroom.supervision.cluster.thespian_patches import (
    ActorAddress,
    ActorExitRequest,
    ThespianWatch,
    WakeupMessage,
    WatchMessage,
)
from greenroom.thespian import (
    CallTool,
    Connect,
    Connected,
    Ended,
    Failed,
    Guest,
    ListServers,
    ReadResource,
    Servers,
    Subscribe,
    Subscribed,
    ToolResult,
    Unsubscribe,
    Unsubscribed,
    Updated,
)

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import timedelta

pytestmark = pytest.mark.greenroom(clock="real")
KEY = b"k" * 32
LENGTH = struct.Struct(">I")


class Node:
    """The node's end of the link: nothing happens there unless the test says so."""

    def __init__(self, address: str) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind("\0" + address.removeprefix("unix:@"))
        self._listening.listen()
        self._listening.settimeout(1)
        self.link: socket.socket | None = None

    def accept(self) -> None:
        self.drop()
        self.link = self._listening.accept()[0]
        self.link.settimeout(1)

    def _message(self) -> bytes:
        assert self.link is not None
        return self.link.recv(LENGTH.unpack(self.link.recv(LENGTH.size))[0])

    def greet(self) -> None:
        """The first half of the handshake."""
        assert self.link is not None
        self.handshake = Handshake(guest_link_key(KEY), greeting("node", 1, kind="host"), dialling=False)
        answer = self.handshake.take(self._message())
        assert answer is not None
        self.link.sendall(LENGTH.pack(len(answer)) + answer)

    def welcome(self, refusal: str = "") -> None:
        """The other half."""
        assert self.link is not None
        self.handshake.take(self._message())
        self.seal, back = self.handshake.seals()
        self.unframer = Unframer(back)
        self.send(refusal.encode())

    def send(self, payload: bytes) -> None:
        assert self.link is not None
        for frame in frames(payload, self.seal):
            self.link.sendall(frame)

    def say(self, *items: list[Any]) -> None:
        self.send(batch([pack_item(item, TO_GUEST) for item in items]))

    def heard(self) -> list[list[Any]]:
        assert self.link is not None
        return [item for each in self.unframer.feed(self.link.recv(1 << 20)) for item in unpack_items(each, TO_NODE)]

    def drop(self) -> None:
        if self.link is not None:
            self.link.close()
            self.link = None

    def close(self) -> None:
        self.drop()
        self._listening.close()


class Stage:
    """The guest, and the played Thespian around it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.sent: list[Any] = []
        self.wakeups: list[float] = []
        self.who: Any = ActorAddress("some actor")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
        self.address = f"unix:@greenroom-test-{uuid.uuid4().hex}"
        self.node = Node(self.address)
        monkeypatch.setattr(guests, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=None))
        self.guest = Guest({"Thespian Watch Supported": True})
        self.guest._myRef = SimpleNamespace(
            address=self.who,
            actor_send=self._send,
            wakeupAfter=self._wake,
        )
        self.watch: Any = None
        """The return value of its last handler."""

    def _send(self, _: Any, message: Any) -> None:
        self.sent.append(message)

    def _wake(self, period: timedelta, _: Any) -> None:
        self.wakeups.append(period.total_seconds())

    def tell(self, *messages: Any) -> list[Any]:
        """What comes of it."""
        self.sent.clear()
        for message in messages:
            self.watch = self.guest.receiveMessage(message, self.who)
        return list(self.sent)

    def ready(self) -> list[Any]:
        return self.tell(WatchMessage([]))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    def later(self, seconds: float) -> list[Any]:
        self.now += seconds
        return self.tell(WakeupMessage(None))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]

    def enter(self) -> None:
        self.node.accept()
        self.node.greet()
        self.ready()
        self.node.welcome()

    def connected(self) -> Stage:
        self.tell(Connect(self.address, key=KEY))
        self.enter()
        [hello] = self.ready()
        assert isinstance(hello, Connected)
        return self

    def close(self) -> None:
        self.tell(ActorExitRequest())
        self.node.close()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Generator[Stage]:
    made = Stage(monkeypatch)
    yield made
    made.close()


def watched(stage: Stage) -> bool:
    return isinstance(stage.watch, ThespianWatch)


def test_its_descriptor_is_watched_as_long_as_there_is_one(stage: Stage) -> None:
    assert stage.tell(ListServers())[0].reason == "not_connected"
    assert watched(stage) is False
    stage.connected()
    assert watched(stage) is True
    stage.node.drop()
    stage.ready()
    assert watched(stage) is False


def test_requests_made_during_the_handshake_wait_for_it(stage: Stage) -> None:
    assert stage.tell(Connect(stage.address, key=KEY), ListServers()) == []
    stage.enter()
    assert [type(each) for each in stage.ready()] == [Connected]
    [[word, number, kind, fields, seconds]] = stage.node.heard()
    assert (word, kind, fields, seconds) == ("ask", "ListServers", {}, 30.0)
    stage.node.say(["answer", number, "Servers", {"states": {"x": "ready"}}])
    [answer] = stage.ready()
    assert isinstance(answer, Servers)
    assert answer.states == {"x": "ready"}


def test_a_handshake_that_does_not_end_is_given_up_and_tried_again(stage: Stage) -> None:
    stage.tell(Connect(stage.address, key=KEY, timeout=60), ListServers())
    stage.node.accept()
    assert stage.later(4.9) == []
    [answer] = stage.later(0.2)
    assert (answer.reason, "shake hands" in answer.text) == ("away", True)
    assert stage.tell(ListServers())[0].reason == "away"
    stage.later(0.1)
    stage.enter()
    assert [type(each) for each in stage.ready()] == [Connected]


def test_a_guest_reconnects_with_growing_pauses_and_never_gives_up(stage: Stage) -> None:
    stage.node.close()
    [failed] = [*stage.tell(Connect(stage.address, key=KEY, timeout=1)), *stage.later(2)]
    assert (failed.reason, "within 1 s" in failed.text) == ("away", True)
    for _ in range(20):
        stage.later(6)
    stage.wakeups.clear()
    stage.later(6)
    assert 2.5 <= stage.wakeups[-1] <= 5.0
    stage.node = Node(stage.address)
    stage.later(6)
    stage.enter()
    assert stage.ready() == []
    assert stage.tell(ListServers()) == []


def test_a_node_that_refuses_says_why(stage: Stage) -> None:
    stage.tell(Connect(stage.address, key=KEY), ListServers())
    stage.node.accept()
    stage.node.greet()
    stage.ready()
    stage.node.welcome("there are 64 guests already")
    answers = stage.ready()
    assert [(type(each), each.reason) for each in answers] == [(Failed, "away"), (Failed, "refused")]
    assert "64 guests" in answers[1].text


def test_a_peer_with_another_protocol_is_refused(stage: Stage) -> None:
    for words in (b"HTTP/1.1 400 Bad Request\r\n\r\n", LENGTH.pack(4) + b"what", LENGTH.pack(40) + b"x" * 40):
        stage.tell(Connect(stage.address, key=KEY))
        stage.node.accept()
        assert stage.node.link is not None
        stage.node.link.sendall(words)
        assert [each.reason for each in stage.ready()] == ["refused"]


def test_a_node_that_falls_silent_is_left_after_half_a_minute(stage: Stage) -> None:
    stage.connected().tell(ReadResource("x", "y", timeout=120))
    stage.node.heard()
    stage.later(10.1)
    assert stage.node.heard() == [["ping"]]
    stage.node.say(["pong"])
    stage.ready()
    stage.later(10.1)
    stage.later(10.1)
    [answer] = stage.later(10.1)
    assert (answer.reason, "sent nothing" in answer.text) == ("lost", True)


def test_a_node_that_says_nonsense_is_left(stage: Stage) -> None:
    said: list[list[Any]] = [["what"], ["answer", "1", "Servers", {}], ["updated", 1, 2, 3]]
    for nonsense in said:
        stage.connected().tell(ListServers())
        stage.node.say(nonsense)
        assert [each.reason for each in stage.ready()] == ["lost"]
    stage.connected().tell(ListServers())
    stage.node.send(b"\xc1")
    assert [each.reason for each in stage.ready()] == ["lost"]


def test_an_answer_of_another_version_is_an_answer(stage: Stage) -> None:
    for kind, fields in (("Wonderful", {}), ("Servers", {"unheard": 1})):
        stage.connected().tell(ListServers())
        number = stage.node.heard()[-1][1]
        stage.node.say(["answer", number, kind, fields])
        assert [each.reason for each in stage.ready()] == ["unreadable"]


def test_a_late_answer_is_nobodys(stage: Stage) -> None:
    stage.connected().tell(ListServers(timeout=1))
    number = stage.node.heard()[-1][1]
    assert [each.reason for each in stage.later(1.1)] == ["timeout"]
    assert stage.node.heard() == [["drop", number]]
    stage.node.say(["answer", number, "Servers", {"states": {}}])
    assert stage.ready() == []


def test_data_that_came_before_the_end_is_read(stage: Stage) -> None:
    stage.connected().tell(ListServers(), ListServers())
    first = stage.node.heard()[0][1]
    stage.node.say(["answer", first, "Servers", {"states": {}}])
    stage.node.drop()
    answers = stage.ready()
    assert [type(each) for each in answers] == [Servers, Failed]
    assert answers[1].data == {"maybe_done": True}


def test_subscriptions_are_renewed_after_a_reconnection_or_end(stage: Stage) -> None:
    wanted = [Subscribe("x", "sky://now"), Subscribe("x", "sky://soon")]
    stage.connected().tell(*wanted)
    for number in [item[1] for item in stage.node.heard()]:
        uri = wanted[int(number) - 1].uri
        stage.node.say(["answer", number, "Subscribed", {"server": "x", "uri": uri}])
    assert [type(each) for each in stage.ready()] == [Subscribed, Subscribed]
    stage.node.say(["updated", "x", "sky://now", False], ["updated", "x", "not subscribed", False])
    [update] = stage.ready()
    assert (type(update), update.gap, update.ticket) == (Updated, False, wanted[0].ticket)

    stage.node.drop()
    assert stage.ready() == []
    stage.later(1)
    stage.enter()
    assert stage.ready() == []
    again = {item[3]["uri"]: item[1] for item in stage.node.heard()}
    stage.node.say(["answer", again["sky://now"], "Subscribed", {"server": "x", "uri": "sky://now"}])
    stage.node.say(["answer", again["sky://soon"], "Failed", {"reason": "peer_error", "text": "no more", "data": {}}])
    update, ended = stage.ready()
    assert (type(update), update.gap) == (Updated, True)
    assert (type(ended), ended.text, ended.ticket) == (Ended, "no more", wanted[1].ticket)
    stage.node.say(["ended", "x", "sky://now", "its server is gone"])
    assert [type(each) for each in stage.ready()] == [Ended]


def test_unsubscribing_while_the_node_is_away_holds(stage: Stage) -> None:
    stage.connected().tell(Subscribe("x", "sky://now"))
    stage.node.say(["answer", stage.node.heard()[0][1], "Subscribed", {"server": "x", "uri": "sky://now"}])
    stage.ready()
    stage.node.drop()
    stage.ready()
    assert [type(each) for each in stage.tell(Unsubscribe("x", "sky://now"))] == [Unsubscribed]
    stage.later(1)
    stage.enter()
    stage.ready()
    stage.tell(ListServers())
    assert [item[2] for item in stage.node.heard()] == ["ListServers"]


def test_a_second_connect_replaces_the_first(stage: Stage) -> None:
    first = Connect(stage.address, key=KEY)
    [answer] = stage.tell(first, Connect(stage.address, key=KEY))
    assert (answer.reason, answer.ticket) == ("replaced", first.ticket)


def test_its_end_is_an_answer_to_all(stage: Stage) -> None:
    stage.tell(Connect(stage.address, key=KEY))
    assert [each.reason for each in stage.tell(ActorExitRequest())] == ["closed"]


def test_a_fault_of_its_own_is_an_answer_and_raises_nothing(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stage.connected()
    monkeypatch.setattr(stage.guest, "_ask", None)
    [answer] = stage.tell(ListServers())
    assert (answer.reason, "TypeError" in answer.text) == ("internal", True)
    assert "could not deal with a ListServers" in caplog.text


@pytest.mark.parametrize("port", ["99999", "²", "0", "1" * 5000])
def test_an_address_that_is_none_is_refused_once(stage: Stage, port: str) -> None:
    request = Connect(f"tcp:127.0.0.1:{port}", key=KEY, timeout=1)
    [answer] = stage.tell(request)
    assert (answer.reason, answer.ticket) == ("refused", request.ticket)
    assert "no address" in answer.text
    assert stage.later(1.1) == []
    assert stage.tell(ListServers())[0].reason == "refused"


def test_invalid_arguments_of_connect_are_refused(stage: Stage) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"address": 7}, "address is a text"),
        ({"address": stage.address, "key_file": 7}, "key_file is a path"),
        ({"address": stage.address, "key": "a secret, and a text"}, "key is bytes"),
        ({"address": stage.address, "key": KEY, "timeout": 0}, "timeout is more"),
    ]
    for fields, why in wrong:
        [answer] = stage.tell(Connect(**fields))
        assert (answer.reason, why in answer.text) == ("bad_request", True)
        assert "secret" not in answer.text
    [answer] = stage.tell(Connect(stage.address, key_file="a\0b"))
    assert answer.reason == "refused"


def once(stage: Stage, monkeypatch: pytest.MonkeyPatch, name: str, when: int) -> None:
    """Have that method of the guest fail at its n-th call."""
    real = getattr(stage.guest, name)
    times = iter(range(1, 1000))

    def fails(*args: Any) -> Any:
        if next(times) == when:
            raise ZeroDivisionError
        return real(*args)

    monkeypatch.setattr(stage.guest, name, fails)


@pytest.mark.parametrize("up", [False, True])
@pytest.mark.parametrize("when", [1, 2])
def test_a_fault_is_one_answer_to_what_was_asked_then(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    up: bool,  # noqa: FBT001 - a table
    when: int,
) -> None:
    if up:
        stage.connected()
    else:
        stage.tell(Connect(stage.address, key=KEY, timeout=1000))
    before = ListServers(timeout=20)
    stage.tell(before)
    once(stage, monkeypatch, "_run_due", when)
    request = ListServers(timeout=10)
    [answer] = stage.tell(request)
    assert (answer.reason, answer.ticket) == ("internal", request.ticket)
    assert 0.9 < stage.wakeups[-1] <= 20
    [late] = stage.later(20)
    assert late.ticket == before.ticket
    assert stage.later(20) == []


def test_a_fault_without_a_request_delays_no_request_and_is_not_repeated_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.connected().tell(ListServers(timeout=5))
    once(stage, monkeypatch, "_run_due", 1)
    stage.wakeups.clear()
    assert stage.later(6) == []
    assert stage.wakeups == [1.0]
    assert [each.reason for each in stage.later(1)] == ["timeout"]


def test_a_fault_after_an_answer_is_no_second_one(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    once(stage, monkeypatch, "_run_due", 2)
    assert [each.reason for each in stage.tell(ListServers())] == ["not_connected"]


def test_a_connect_that_fails_has_one_answer_and_is_tried_again(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(guests, "PollingLink", fails)
    assert [each.reason for each in stage.tell(Connect(stage.address, key=KEY, timeout=1))] == ["internal"]
    assert stage.later(2) == []
    monkeypatch.setattr(guests, "PollingLink", PollingLink)
    stage.later(5)
    stage.enter()
    assert stage.ready() == []
    assert stage.tell(ListServers()) == []
    stage.node.say(["answer", stage.node.heard()[0][1], "Servers", {"states": {}}])
    assert [type(each) for each in stage.ready()] == [Servers]


def test_a_node_that_says_too_much_at_once_is_left(stage: Stage) -> None:
    stage.connected()
    stage.node.say(*[["pong"]] * MOST_ITEMS)
    assert stage.ready() == []
    stage.tell(ListServers())
    stage.node.say(*[["pong"]] * (MOST_ITEMS + 1))
    assert [each.reason for each in stage.ready()] == ["lost"]


def test_a_wakeup_is_armed_for_what_is_due_next_and_not_twice(stage: Stage) -> None:
    stage.connected()
    stage.wakeups.clear()
    stage.later(0)
    stage.tell(ListServers(timeout=5), ListServers(timeout=7))
    assert [round(each, 3) for each in stage.wakeups] == [10.0, 5.0]


def test_more_than_the_socket_takes_is_written_later(stage: Stage) -> None:
    stage.connected()
    stage.wakeups.clear()
    assert stage.tell(CallTool("x", "y", {"text": "x" * 3_000_000})) == []
    assert min(stage.wakeups) < 0.01
    heard: list[list[Any]] = []
    while not heard:
        heard = stage.node.heard()
        stage.later(0.01)
    stage.node.say(["answer", heard[0][1], "ToolResult", {"content": []}])
    assert [type(each) for each in stage.ready()] == [ToolResult]
