"""The fork server: its answers to commands and to Thespian, which is played here. No error may reach Thespian."""

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
from greenroom.supervision.cluster import os_processes
from greenroom.supervision.cluster import thespian_patches as thespian_door
from greenroom.supervision.cluster.daemon_protocol import (
    DaemonMessage,
    DaemonSocket,
    FinishDaemon,
    LogNote,
    MachineAbsent,
    MachineJoined,
    ProcessForked,
    ProcessGone,
    ProcessNotStarted,
    RejoinConvention,
    SignalProcess,
    StartForwarded,
    StartProcess,
    decode_message,
    pack,
)
from greenroom.supervision.cluster.machines import ANNOUNCED, ID, SYSTEM
from greenroom.supervision.cluster.thespian_system import ForkServer

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


class Played(ForkServer):
    """A fork server whose Thespian makes a process of the next pid, here; or none, or raises."""

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
    """A fork server that has begun, and the daemon's end of its orders."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self.fork_server = Played()
        self.fork_server._channel = DaemonSocket(theirs)
        self.daemon = DaemonSocket(ours)
        self.theirs = theirs

    def order(self, *protocol: DaemonMessage) -> list[DaemonMessage]:
        """What it answers."""
        for each in protocol:
            self.daemon.send(each)
        return self.hear(Watch([self.theirs.fileno()]))

    def hear(self, message: object) -> list[DaemonMessage]:
        """... to something of Thespian's; and it goes on."""
        watched = self.fork_server.receiveMessage(message, None)
        assert watched is not None
        return self.daemon.take()


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
        monkeypatch.setattr(inherited.InheritedState, "notes", writing)
        yield reading


def noted(notes: socket.socket) -> str:
    note = decode_message(notes.recv(10_000, socket.MSG_DONTWAIT))
    assert isinstance(note, LogNote)
    assert note.level == logging.ERROR
    return note.text


def test_each_process_is_told_by_its_pid_and_then_by_its_end_once(stage: Stage) -> None:
    assert stage.order(StartProcess("one", b"1", {}), StartProcess("two", b"2", {})) == [
        ProcessForked("one", 100),
        ProcessForked("two", 101),
    ]
    assert stage.fork_server.booted == [("address", b"1"), ("address", b"2")]
    for pid in (100, 100, 555):
        stage.fork_server._on_exit(pid, -9)
    assert stage.daemon.take() == [ProcessGone("one", 100, -9)]


def test_a_process_that_cannot_be_made_is_reported_and_the_next_can_be(stage: Stage) -> None:
    stage.fork_server.fails = OSError("too many processes")
    assert stage.order(StartProcess("one", b"1", {})) == [ProcessNotStarted("one", "OSError: too many processes")]
    stage.fork_server.fails, stage.fork_server.makes = None, False
    assert stage.order(StartProcess("one", b"1", {})) == [
        ProcessNotStarted("one", "RuntimeError: Thespian made no process")
    ]
    stage.fork_server.makes = True
    assert stage.order(StartProcess("one", b"1", {})) == [ProcessForked("one", 100)]


def test_a_forwarded_request_that_no_machine_took_is_reported(stage: Stage) -> None:
    assert stage.order(StartProcess("one", b"1", REQUIRED), StartProcess("two", b"2", REQUIRED)) == [
        StartForwarded("one"),
        StartForwarded("two"),
    ]
    assert stage.fork_server.requirements == [REQUIRED] * 2
    (answer,) = stage.hear(Poison(b"2"))
    assert isinstance(answer, ProcessNotStarted)
    assert (answer.name, "no machine of the convention took it" in answer.why) == ("two", True)
    assert stage.hear(Poison(b"2")) == [], "once"
    assert stage.hear(Poison(b"something else")) == []


def test_the_fork_server_remembers_a_bounded_number_of_forwarded_requests(stage: Stage) -> None:
    for number in range(300):
        stage.order(StartProcess(f"node-{number}", b"%d" % number, REQUIRED))
    assert len(stage.fork_server._forwarded) == 256
    assert stage.hear(Poison(b"0")) == []
    assert [type(each) for each in stage.hear(Poison(b"299"))] == [ProcessNotStarted]


def test_a_signal_goes_to_the_process_of_that_name_alone(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []

    def send_signal(number: int, pid: int) -> None:
        sent.append((number, pid))

    monkeypatch.setattr(os_processes, "send_signal", send_signal)
    stage.order(StartProcess("one", b"1", {}), StartProcess("two", b"2", {}))
    stage.order(SignalProcess("two", signal.SIGTERM), SignalProcess("unknown", signal.SIGTERM))
    assert sent == [(signal.SIGTERM, 101)]


def test_a_process_that_was_told_to_end_does(stage: Stage) -> None:
    with subprocess.Popen(["sleep", "1000"]) as child:
        stage.fork_server._names[child.pid] = "one"
        stage.order(SignalProcess("one", signal.SIGKILL))
        assert child.wait(50) == -signal.SIGKILL


def test_each_time_it_is_to_register_anew_something_changes(stage: Stage) -> None:
    stage.order(RejoinConvention(anew=False), RejoinConvention(anew=False))
    assert stage.fork_server.nudged == [1, 2]


def test_machines_that_join_or_leave_the_convention_are_reported_and_strangers_are_not(stage: Stage) -> None:
    assert stage.hear(Update("address", TOLD, added=True)) == [MachineJoined("b-1", "{}", "system-b")]
    assert stage.hear(Update("address", TOLD, added=False)) == [MachineAbsent("b-1", "system-b")]
    for strange in ({}, {**TOLD, ID: 5}, {ID: "b-1"}):
        assert stage.hear(Update("address", strange, added=True)) == []
    assert stage.hear("whatever else") == []


def test_unexpected_commands_are_logged(stage: Stage, notes: socket.socket) -> None:
    assert stage.order(FinishDaemon()) == []
    assert noted(notes) == "unexpected message to the fork server: FinishDaemon()"


def test_whatever_goes_wrong_is_told_in_the_log_and_it_goes_on(stage: Stage, notes: socket.socket) -> None:
    os.write(stage.daemon.fileno(), b"\0\0\0\1\xc1")
    assert stage.hear(Watch([])) == []
    text = noted(notes)
    assert text.startswith("the fork server failed at WatchMessage:\n")
    assert "ValueError" in text


def test_the_engine_ends_with_its_daemon(stage: Stage) -> None:
    stage.daemon.send(StartProcess("one", b"1", {}))
    stage.daemon.sock.close()
    assert stage.fork_server.receiveMessage(Watch([]), None) is None
    assert stage.fork_server.booted == [("address", b"1")], "what came before the end is done"
    assert stage.fork_server.receiveMessage(Watch([]), None) is None


def test_before_it_has_begun_the_fork_server_ignores_all_messages() -> None:
    assert Played().receiveMessage("something", None) is None


def test_orders_are_as_short_as_the_socket_has_room_for(stage: Stage) -> None:
    data = pack(StartProcess("one", b"x" * 100, {}))
    os.write(stage.daemon.fileno(), data[:50])
    assert stage.hear(Watch([])) == []
    os.write(stage.daemon.fileno(), data[50:])
    assert stage.hear(Watch([])) == [ProcessForked("one", 100)]
