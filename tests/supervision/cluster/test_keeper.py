"""The keeper of processes: what it answers to its orders and to Thespian, which is played here. Nothing that goes wrong may reach Thespian."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision.cluster import bootstrap as inherited
from greenroom.supervision.cluster import pids
from greenroom.supervision.cluster import thespian_taming as thespian_door
from greenroom.supervision.cluster.daemon_protocol import (
    Absent,
    Born,
    EndHost,
    Finish,
    Gone,
    Joined,
    Note,
    NotStarted,
    Order,
    Orders,
    Rejoin,
    Sent,
    StartHost,
    decoded,
    pack,
)
from greenroom.supervision.cluster.keeper import Keeper
from greenroom.supervision.cluster.machines import ANNOUNCED, ID, SYSTEM

if TYPE_CHECKING:
    from collections.abc import Generator

Update: Any = thespian_door.ActorSystemConventionUpdate  # for type checkers they are made by Thespian alone
Poison: Any = thespian_door.PoisonMessage
Watch: Any = thespian_door.WatchMessage
REQUIRED: dict[str, str | int | float | bool] = {SYSTEM: "system-b"}
TOLD = {ID: "b-1", ANNOUNCED: "{}", SYSTEM: "system-b"}


class Manager:
    """Thespian's own: where it keeps its children."""

    def __init__(self) -> None:
        self._child_procs: list[Any] = []


class Played(Keeper):
    """A keeper whose Thespian makes a process of the next pid, here; or none, or raises."""

    def __init__(self) -> None:
        super().__init__()
        self._myRef = Manager()
        self.makes = True
        self.fails: Exception | None = None
        self.requirements: list[Any] = []
        self.booted: list[Any] = []
        self.nudged: list[Any] = []

    def createActor(self, actor_class: Any, requirements: Any = None) -> Any:  # noqa: N802 - Thespian's word
        if self.fails is not None:
            raise self.fails
        self.requirements.append(requirements)
        children = self._myRef._child_procs
        if self.makes and not requirements:
            children.append(SimpleNamespace(childProc=SimpleNamespace(pid=100 + len(children))))
        return "address"

    def send(self, target: Any, message: Any) -> None:
        self.booted.append((target, message))

    def updateCapability(self, name: str, value: object) -> None:  # noqa: N802 - Thespian's word
        self.nudged.append(value)


class Stage:
    """A keeper that has begun, and the warden's end of its orders."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self.keeper = Played()
        self.keeper._orders = Orders(theirs)
        self.warden = Orders(ours)
        self.theirs = theirs

    def order(self, *orders: Order) -> list[Order]:
        """What it answers."""
        for each in orders:
            self.warden.send(each)
        return self.hear(Watch([self.theirs.fileno()]))

    def hear(self, message: object) -> list[Order]:
        """... to something of Thespian's; and it goes on."""
        watched = self.keeper.receiveMessage(message, None)
        assert watched is not None
        return self.warden.take()


@pytest.fixture
def stage() -> Generator[Stage]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Stage(ours, theirs)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Generator[socket.socket]:
    """What is told to the application's log."""
    reading, writing = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with reading, writing:
        writing.setblocking(False)  # noqa: FBT003 - socket's own word
        monkeypatch.setattr(inherited.Inherited, "notes", writing)
        yield reading


def noted(notes: socket.socket) -> str:
    note = decoded(notes.recv(10_000, socket.MSG_DONTWAIT))
    assert isinstance(note, Note)
    assert note.level == logging.ERROR
    return note.text


def test_each_process_is_told_by_its_pid_and_then_by_its_end_once(stage: Stage) -> None:
    assert stage.order(StartHost("one", b"1", {}), StartHost("two", b"2", {})) == [Born("one", 100), Born("two", 101)]
    assert stage.keeper.booted == [("address", b"1"), ("address", b"2")]
    for pid in (100, 100, 555):
        stage.keeper._exited(pid, -9)
    assert stage.warden.take() == [Gone("one", 100, -9)]


def test_what_cannot_be_made_is_told_and_the_next_one_can(stage: Stage) -> None:
    stage.keeper.fails = OSError("too many processes")
    assert stage.order(StartHost("one", b"1", {})) == [NotStarted("one", "OSError: too many processes")]
    stage.keeper.fails, stage.keeper.makes = None, False
    assert stage.order(StartHost("one", b"1", {})) == [NotStarted("one", "RuntimeError: Thespian made no process")]
    stage.keeper.makes = True
    assert stage.order(StartHost("one", b"1", {})) == [Born("one", 100)]


def test_a_process_of_another_machine_is_asked_for_and_told_when_nobody_took_it(stage: Stage) -> None:
    assert stage.order(StartHost("one", b"1", REQUIRED), StartHost("two", b"2", REQUIRED)) == [Sent("one"), Sent("two")]
    assert stage.keeper.requirements == [REQUIRED] * 2
    (answer,) = stage.hear(Poison(b"2"))
    assert isinstance(answer, NotStarted)
    assert (answer.name, "no machine of the convention took it" in answer.why) == ("two", True)
    assert stage.hear(Poison(b"2")) == [], "once"
    assert stage.hear(Poison(b"something else")) == []


def test_it_remembers_so_many_that_it_has_asked_for(stage: Stage) -> None:
    for number in range(300):
        stage.order(StartHost(f"node-{number}", b"%d" % number, REQUIRED))
    assert len(stage.keeper._sent) == 256
    assert stage.hear(Poison(b"0")) == []
    assert [type(each) for each in stage.hear(Poison(b"299"))] == [NotStarted]


def test_a_signal_goes_to_the_process_of_that_name_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []

    def send_signal(number: int, pid: int) -> None:
        sent.append((number, pid))

    monkeypatch.setattr(pids, "send_signal", send_signal)
    stage.order(StartHost("one", b"1", {}), StartHost("two", b"2", {}))
    stage.order(EndHost("two", signal.SIGTERM), EndHost("nobody", signal.SIGTERM))
    assert sent == [(signal.SIGTERM, 101)]


def test_a_process_that_was_told_to_end_does(stage: Stage) -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        stage.keeper._names[child.pid] = "one"
        stage.order(EndHost("one", signal.SIGKILL))
        assert child.wait(50) == -signal.SIGKILL


def test_each_time_it_is_to_register_anew_something_changes(stage: Stage) -> None:
    stage.order(Rejoin(anew=False), Rejoin(anew=False))
    assert stage.keeper.nudged == [1, 2]


def test_who_comes_to_the_convention_and_leaves_it_is_told_and_strangers_are_not(stage: Stage) -> None:
    assert stage.hear(Update("address", TOLD, added=True)) == [Joined("b-1", "{}", "system-b")]
    assert stage.hear(Update("address", TOLD, added=False)) == [Absent("b-1", "system-b")]
    for strange in ({}, {**TOLD, ID: 5}, {ID: "b-1"}):
        assert stage.hear(Update("address", strange, added=True)) == []
    assert stage.hear("whatever else") == []


def test_what_is_not_for_it_is_told_in_the_log(stage: Stage, notes: socket.socket) -> None:
    assert stage.order(Finish()) == []
    assert noted(notes) == "the keeper of nodes was told what is not for it: Finish()"


def test_whatever_goes_wrong_is_told_in_the_log_and_it_goes_on(stage: Stage, notes: socket.socket) -> None:
    os.write(stage.warden.fileno(), b"\0\0\0\1\xc1")
    assert stage.hear(Watch([])) == []
    text = noted(notes)
    assert text.startswith("the keeper of nodes failed at WatchMessage:\n")
    assert "ValueError" in text


def test_it_is_over_with_its_warden(stage: Stage) -> None:
    stage.warden.send(StartHost("one", b"1", {}))
    stage.warden.sock.close()
    assert stage.keeper.receiveMessage(Watch([]), None) is None
    assert stage.keeper.booted == [("address", b"1")], "what came before the end is done"
    assert stage.keeper.receiveMessage(Watch([]), None) is None


def test_before_it_has_begun_it_listens_to_nobody() -> None:
    assert Played().receiveMessage("something", None) is None


def test_orders_are_as_short_as_the_socket_has_room_for(stage: Stage) -> None:
    data = pack(StartHost("one", b"x" * 100, {}))
    os.write(stage.warden.fileno(), data[:50])
    assert stage.hear(Watch([])) == []
    os.write(stage.warden.fileno(), data[50:])
    assert stage.hear(Watch([])) == [Born("one", 100)]
