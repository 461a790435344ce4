"""Reports of nodes as events of the program: which event each becomes, and that a kind is never an id."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from greenroom.event_types import (
    ChildEnded,
    ChildStarted,
    Event,
    LoopBlocked,
    LoopLagged,
    ProcessCrashed,
    ProcessLeaked,
    SupervisorGaveUp,
)
from greenroom.supervision import (
    ChildSpec,
    DynamicSupervisor,
    GenServer,
    Node,
    Options,
    Ref,
    Supervisor,
    TaskSupervisor,
    child,
    current_process,
    kill,
    report_events,
    send,
    spawn,
    start,
    supervise_job,
    wait_down,
)
from greenroom.supervision.event_bus import bus
from greenroom.supervision.introspect import count_program
from greenroom.supervision.supervisors.supervisor_reports import make_offender

if TYPE_CHECKING:
    from collections.abc import Iterator

E = TypeVar("E", bound=Event)


class Heard(list[Event]):
    """The events of a test."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self if isinstance(event, kind)]

    async def until(self, kind: type[Event], count: int = 1) -> None:
        for _ in range(100):
            if len(self.of(kind)) >= count:
                return
            await asyncio.sleep(0)
        raise AssertionError(f"no {count} {kind.__name__} in {self!r}")


@pytest.fixture
def heard() -> Iterator[Heard]:
    events = Heard()
    unsubscribe = bus.subscribe(events)
    yield events
    unsubscribe()


class Fragile(GenServer):
    """Crashes when asked to, and may refuse to start."""

    may_start = True

    def init(self) -> None:
        if not self.may_start:
            raise OSError("no port")

    def break_down(self, password: str) -> None:
        raise ValueError(f"broken\n{'x' * 10_000}")

    def report_state(self) -> str:
        return "fragile"


async def crash(ref: Ref[Any]) -> None:
    pid = ref.pid
    ref.cast(Fragile.break_down, password="swordfish")
    await wait_down(pid)


async def supervised(**options: Any) -> Ref[Supervisor]:
    spec = child(Fragile).but(id=("fragile", 7), options=Options(name="it", label="fragile 7"))
    return await start(Supervisor, [spec], **options)


async def test_a_crash_and_a_restart_are_three_events(heard: Heard, node: Node) -> None:
    await supervised()
    (began,) = heard.of(ChildStarted)
    assert (began.kind, began.is_restart, began.node) == ("Fragile", False, node.name)
    await crash(Ref("it"))
    await heard.until(ChildStarted, 2)
    (crashed,), (ended,), (_, again) = heard.of(ProcessCrashed), heard.of(ChildEnded), heard.of(ChildStarted)
    assert (crashed.kind, crashed.label, crashed.pid, crashed.state) == ("Fragile", "fragile 7", began.pid, "fragile")
    assert (ended.kind, ended.pid, ended.is_start) == ("Fragile", began.pid, False)
    assert (again.kind, again.is_restart) == ("Fragile", True)
    assert again.pid != began.pid
    assert crashed.reason.startswith("crash: ValueError: broken x")
    assert len(crashed.reason) < 400
    assert "break_down" in crashed.stack
    assert len(crashed.stack) < 9_000
    assert "swordfish" not in repr(crashed)
    assert crashed.ancestors


async def test_a_child_that_a_caller_started_is_an_event_when_it_comes_back(heard: Heard, node: Node) -> None:
    supervisor = await start(DynamicSupervisor)
    ref = await supervisor.call(DynamicSupervisor.start_child, child(Fragile))
    assert not heard.of(ChildStarted)
    await crash(ref)
    await heard.until(ChildStarted)
    (again,) = heard.of(ChildStarted)
    assert (again.kind, again.is_restart) == ("Fragile", True)


async def test_a_supervisor_that_gives_up_says_so(heard: Heard, node: Node) -> None:
    supervisor = await supervised(intensity=0)
    await crash(Ref("it"))
    await wait_down(supervisor)
    (gave_up,) = heard.of(SupervisorGaveUp)
    assert (gave_up.kind, gave_up.child, gave_up.intensity) == ("Supervisor", "('fragile', 7)", 0)
    assert not heard.of(ChildStarted)[1:]


async def test_a_child_that_does_not_start_says_so(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fragile, "may_start", False)
    with pytest.raises(Exception, match="no port"):
        await supervised()
    (ended,) = heard.of(ChildEnded)
    assert (ended.kind, ended.is_start, ended.pid) == ("Fragile", True, "")


async def fail(name: str) -> None:
    current_process("rename itself").label = f"tools/call {name!r} (request 4711)"
    raise ValueError(name)


async def test_the_kind_of_a_worker_is_its_function_whatever_its_label_says(heard: Heard) -> None:
    workers = await start(TaskSupervisor)
    await wait_down(await supervise_job(workers, fail, "send_mail"))
    await heard.until(ChildEnded)
    (crashed,), (ended,) = heard.of(ProcessCrashed), heard.of(ChildEnded)
    assert "4711" in crashed.label
    assert (crashed.kind, ended.kind) == ("fail", "fail")


async def test_the_kind_of_a_callable_without_a_name_has_no_address(heard: Heard) -> None:
    await wait_down(spawn(functools.partial(fail, "x")))
    (crashed,) = heard.of(ProcessCrashed)
    assert crashed.kind == "function"


@pytest.mark.greenroom(clock="real", kill_grace=0.01)
async def test_a_process_that_does_not_unwind_says_so(heard: Heard) -> None:
    release = asyncio.Event()

    async def stay() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.shield(release.wait())

    async def outlive() -> None:
        while not release.is_set():
            try:
                await stay()
            except asyncio.CancelledError:
                continue

    pid = spawn(outlive)
    await asyncio.sleep(0)
    kill(pid)
    await wait_down(pid)
    (leaked,) = heard.of(ProcessLeaked)
    assert (leaked.kind, leaked.reason) == ("outlive", "killed")
    assert "outlive" in leaked.stack
    release.set()
    await asyncio.sleep(0)


class Blocks(GenServer):
    """Blocks the loop until it is released."""

    def block(self, gate: threading.Event) -> bool:
        return gate.wait(30.0)


@pytest.mark.greenroom(clock="real", watchdog=0.05)
async def test_a_blocked_loop_names_the_class_that_blocks_it(heard: Heard) -> None:
    released = threading.Event()

    def release(event: Event) -> None:
        if isinstance(event, LoopBlocked) and event.label == "blocks 9":
            released.set()

    unsubscribe = bus.subscribe(release)
    try:
        blocker = await Options(label="blocks 9").start(Blocks)
        assert await blocker.call(Blocks.block, released)
    finally:
        unsubscribe()
    (blocked,) = [event for event in heard.of(LoopBlocked) if event.label == "blocks 9"]
    assert (blocked.kind, blocked.seconds >= 0.05) == ("Blocks", True)
    assert "gate.wait" in blocked.stack


def test_lags_are_at_most_one_event_in_each_interval(heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    lags = report_events._LagEvents()
    for number in range(200):
        now[0] += 0.01
        lags.measured("a", 0.5 if number == 30 else 0.001)
        lags.measured("b", 0.002)
    of_a = [event.seconds for event in heard.of(LoopLagged) if event.node == "a"]
    assert 4 <= len(of_a) <= 6
    assert sorted(of_a)[-2:] == [0.001, 0.5]
    assert {event.seconds for event in heard.of(LoopLagged) if event.node == "b"} == {0.002}


@pytest.mark.greenroom(log=False)
async def test_a_node_without_a_log_has_its_events(heard: Heard) -> None:
    await crash(await start(Fragile))
    assert [event.kind for event in heard.of(ProcessCrashed)] == ["Fragile"]


async def test_without_a_listener_no_event_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    monkeypatch.setattr(report_events, "event_of", made.append)
    lags = report_events._LagEvents()
    lags.measured("a", 1.0)
    await crash(await start(Fragile))
    assert not made
    assert not lags._longest


async def test_processes_are_counted_by_kind_with_their_mailboxes() -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    before = count_program().kinds.get("Fragile")
    servers = [await Options(label=f"fragile {number}").start(Fragile) for number in range(3)]
    pid = spawn(wait)
    await asyncio.sleep(0)
    for _ in range(4):
        send(pid, "hello")
    counts = count_program()
    assert before is None
    assert counts.kinds["Fragile"].processes == len(servers)
    assert (counts.kinds["wait"].processes, counts.kinds["wait"].waiting, counts.kinds["wait"].longest) == (1, 4, 4)


def test_a_start_function_of_its_own_is_a_kind_until_the_child_runs() -> None:
    async def begin() -> None:
        """Start nothing."""

    spec: ChildSpec[Any] = ChildSpec(id=1, start=begin)
    assert make_offender(spec, None).kind == "begin"
