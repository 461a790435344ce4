"""Access of a server to its process, and a supervisor's callback after a restart."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest

from greenroom.supervision import (
    DynamicSupervisor,
    GenServer,
    Report,
    Supervisor,
    Unexpected,
    child,
    inbox,
    kill,
    send,
    start,
    start_child,
    stop,
    wait_down,
    whereis,
)
from greenroom.supervision.statem import Event, GenStatem, Keep, state

if TYPE_CHECKING:
    from greenroom.supervision import Node, Pid


class Server(GenServer):
    """Returns its process."""

    def where(self) -> tuple[Any, str, float]:
        process = self.process
        return process.node, process.label, process.node.now()

    def complain(self) -> None:
        self.report_unexpected("store", "it is full")


class Power(Enum):
    """The state of a machine."""

    ON = "on"


class Machine(GenStatem[Power]):
    """Reports while it begins."""

    initial = Power.ON

    def init(self) -> None:
        self.report_unexpected("store", f"{self.process.pid == self.pid}")

    @state(Power.ON)
    def when_on(self, event: Event) -> Keep:
        return Keep()


async def test_a_server_knows_its_process_and_its_clock(node: Node) -> None:
    server = await start(Server)
    where, label, moment = await server.call(Server.where)
    assert where is node
    assert "Server" in label
    assert moment == node.now() == node.loop.time()


async def test_the_process_of_a_server_cannot_be_overwritten() -> None:
    server = Server()
    with pytest.raises(AttributeError):
        server.process = None  # type: ignore[misc, assignment]  # pyright: ignore[reportAttributeAccessIssue]


async def test_servers_and_machines_report_what_no_caller_waits_for(node: Node) -> None:
    seen: list[Report] = []
    node.reports.subscribe(seen.append)
    server = await start(Server)
    await server.call(Server.complain)
    machine = await start(Machine)
    assert [(each.pid, each.kind, each.message) for each in seen if isinstance(each, Unexpected)] == [
        (server.pid, "store", "it is full"),
        (machine.pid, "store", "True"),
    ]


class Telling(Supervisor):
    """Records each restart of a child."""

    def __init__(self, me: Pid) -> None:
        super().__init__([child(Server).but(id=name, name=name) for name in ("one", "two")], strategy="one_for_all")
        self._me = me

    def on_restart(self) -> None:
        send(self._me, "restarted")


async def test_a_supervisor_is_called_for_each_child_that_was_restarted() -> None:
    async with inbox() as me:
        supervisor = await start(Telling, me.pid)
        first = whereis("one")
        assert first is not None
        assert me.pending() == ()
        kill(first)
        assert [await me.receive(), await me.receive()] == ["restarted", "restarted"]
        assert whereis("one") not in (first, None)
        await stop(supervisor)


class Crowd(DynamicSupervisor):
    """Counts its children without asking them."""

    def size(self) -> int:
        return len(self)


async def test_a_dynamic_supervisor_has_as_many_as_run() -> None:
    crowd = await start(Crowd)
    first = await start_child(crowd, child(Server).but(restart="temporary"))
    await start_child(crowd, child(Server).but(restart="temporary"))
    assert await crowd.call(Crowd.size) == 2
    await stop(first)
    await wait_down(first)
    assert await crowd.call(Crowd.size) == 1
