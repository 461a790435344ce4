"""Faults: what is predicted from links and strategies is what happens, on trees of many kinds."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.example_counts import examples

from greenroom.observe.observatory import Observatory
from greenroom.supervision import (
    DynamicSupervisor,
    GenServer,
    Supervisor,
    child,
    current_node,
    link,
    start,
    start_child,
    whereis,
)
from greenroom.supervision.testing import FaultPlan

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from greenroom.observe.view_rows import FaultRow
    from greenroom.supervision import ChildSpec


class Clerk(GenServer):
    """A server that dies of signals."""

    def work(self) -> None:
        """Do nothing."""


class Stubborn(GenServer):
    """A server that traps exits."""

    traps_exit = True

    def handle_info(self, message: Any) -> None:
        """Go on."""


class Friend(GenServer):
    """A server with a link to another one."""

    def __init__(self, name: str) -> None:
        self.friend = name

    def init(self) -> None:
        """Link."""
        pid = whereis(self.friend)
        assert pid is not None
        link(pid)


@asynccontextmanager
async def observed() -> AsyncGenerator[Observatory]:
    """An observatory that may inject faults."""
    observatory = Observatory("shop", faults=True)
    observatory.start()
    try:
        yield observatory
    finally:
        observatory.stop()


def pid_of(name: str) -> str:
    """The pid of the process with that name."""
    pid = whereis(name)
    assert pid is not None, name
    return str(pid)


async def trial(observatory: Observatory, pid: str, kind: str) -> FaultRow:
    """Inject a fault and wait for the verdict."""
    outcome = await observatory.act("inject", pid, kind=kind, principal="ada")
    assert outcome.is_done, outcome
    async with asyncio.timeout(120):
        while True:
            observatory.forget()
            view: Any = await observatory.view("faults")
            if view.faults[0].state != "pending":
                row: FaultRow = view.faults[0]
                return row
            await asyncio.sleep(0.5)


def clerk(name: str, **changes: Any) -> ChildSpec[Any]:
    """A child that is registered by its id."""
    return child(Clerk).but(id=name, name=name, **changes)


def crew(*children: ChildSpec[Any], id: str = "crew", **options: Any) -> ChildSpec[Any]:
    """A supervisor as a child."""
    return child(Supervisor, list(children), **options).but(id=id, name=id)


def labels(row: FaultRow) -> list[str]:
    """What died, by label."""
    return sorted(each.label for each in row.died)


@pytest.mark.parametrize(
    ("strategy", "target", "back", "dead"),
    [
        ("one_for_one", "b", ["b"], 1),
        ("rest_for_one", "b", ["b", "c"], 2),
        ("rest_for_one", "a", ["a", "b", "c"], 3),
        ("one_for_all", "c", ["a", "b", "c"], 3),
    ],
)
async def test_a_strategy_restarts_what_is_predicted(strategy: Any, target: str, back: list[str], dead: int) -> None:
    await start(Supervisor, [crew(clerk("a"), clerk("b"), clerk("c"), strategy=strategy)])
    async with observed() as observatory:
        row = await trial(observatory, pid_of(target), "kill")
        assert row.state == "as_predicted", row
        assert row.predicted.restarts == [f"crew/{each}" for each in back]
        assert (row.restarted, len(row.died)) == ([f"crew/{each}" for each in back], dead)
        assert (row.principal, row.path) == ("ada", f"crew/{target}")
        assert [each.target for each in FaultPlan.load(row.plan)] == [f"/crew/{target}"]


async def test_a_supervisor_takes_its_children_with_it_and_comes_back() -> None:
    await start(Supervisor, [crew(clerk("a"), clerk("b"))])
    async with observed() as observatory:
        row = await trial(observatory, pid_of("crew"), "kill")
        assert row.state == "as_predicted", row
        assert (labels(row), row.restarted) == (["Clerk", "Clerk", "Supervisor"], ["crew"])
        assert whereis("a") is not None


async def test_a_supervisor_without_restarts_left_gives_up_and_its_own_supervisor_decides() -> None:
    await start(Supervisor, [crew(clerk("a"), clerk("b"), intensity=0), clerk("c")])
    async with observed() as observatory:
        row = await trial(observatory, pid_of("a"), "crash")
        assert row.predicted.gives_up == ["crew"]
        assert row.state == "as_predicted", row
        assert (len(row.died), row.restarted) == (3, ["crew"])


async def test_links_carry_a_crash_and_not_an_orderly_end_and_stop_at_what_traps() -> None:
    trapping = child(Stubborn).but(id="s", name="s")
    friend = child(Friend, "a").but(id="f", name="f", restart="temporary")
    await start(Supervisor, [crew(clerk("a", restart="temporary"), trapping, friend)], intensity=5)
    async with observed() as observatory:
        stopped = await trial(observatory, pid_of("s"), "exit")
        assert stopped.predicted.dies == []
        assert stopped.state == "as_predicted", stopped
        crashed = await trial(observatory, pid_of("a"), "crash")
        assert crashed.state == "as_predicted", crashed
        assert labels(crashed) == ["Clerk", "Friend"]
        assert sorted(crashed.predicted.stays_away) == ["crew/a", "crew/f"]


@pytest.mark.parametrize(
    ("restart", "kind", "comes_back"),
    [
        ("transient", "stop", False),
        ("transient", "crash", True),
        ("permanent", "stop", True),
        ("temporary", "kill", False),
    ],
)
async def test_the_restart_of_a_child_decides_whether_it_comes_back(
    restart: Any, kind: str, *, comes_back: bool
) -> None:
    await start(Supervisor, [crew(clerk("a", restart=restart), clerk("b"))])
    async with observed() as observatory:
        row = await trial(observatory, pid_of("a"), kind)
        assert row.state == "as_predicted", row
        assert (row.restarted == ["crew/a"]) is comes_back
        assert (row.predicted.stays_away == ["crew/a"]) is not comes_back


async def test_a_significant_child_ends_its_supervisor() -> None:
    await start(
        Supervisor,
        [
            crew(clerk("a", restart="transient", significant=True), clerk("b"), auto_shutdown="any_significant").but(
                restart="transient"
            )
        ],
    )
    async with observed() as observatory:
        row = await trial(observatory, pid_of("a"), "stop")
        assert row.state == "as_predicted", row
        assert labels(row) == ["Clerk", "Clerk", "Supervisor"]


async def test_a_fault_that_no_message_meets_is_missed_and_one_that_meets_one_acts() -> None:
    await start(Supervisor, [clerk("a")])
    async with observed() as observatory:
        missed = await trial(observatory, pid_of("a"), "raise")
        assert (missed.state, missed.died) == ("missed", [])
        assert "next message" in missed.predicted.uncertain
        injecting = asyncio.ensure_future(trial(observatory, pid_of("a"), "raise"))
        await asyncio.sleep(1)
        process = current_node().named("a")
        assert process is not None
        process.send("hello")
        acted = await injecting
        assert (acted.state, labels(acted)) == ("as_predicted", ["Clerk"])


async def test_a_fault_that_ends_no_process_leaves_the_tree_as_it_is() -> None:
    await start(Supervisor, [clerk("a")])
    async with observed() as observatory:
        for kind in ("hang", "suspend", "drop", "delay"):
            row = await trial(observatory, pid_of("a"), kind)
            assert (row.state, row.died, row.restarted) == ("as_predicted", [], []), row


async def test_an_end_that_was_not_predicted_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Vengeful(GenServer):
        traps_exit = True

        def handle_info(self, message: Any) -> None:
            raise RuntimeError("my friend is gone")

        def init(self) -> None:
            pid = whereis("a")
            assert pid is not None
            link(pid)

    await start(Supervisor, [clerk("a"), child(Vengeful).but(id="v", name="v")], intensity=5)
    async with observed() as observatory:
        row = await trial(observatory, pid_of("a"), "kill")
        assert row.state == "otherwise"
        assert "died unforeseen: Vengeful" in row.text
        assert "came back unforeseen: v" in row.text


async def test_what_can_be_injected_is_listed_with_why_not() -> None:
    await start(Supervisor, [clerk("a")])
    async with observed() as observatory:
        view: Any = await observatory.view("faults", pid=pid_of("a"), kind="kill")
        assert view.target.id == "a"
        assert [each.label for each in view.prediction.dies] == ["Clerk"]
        kinds = {each.kind: each for each in view.kinds}
        assert kinds["kill"].text == "Kill the process."
        assert all(each.text for each in view.kinds)
        outcome = await observatory.act("inject", pid_of("a"), kind="earthquake")
        assert not outcome.is_done
        assert "kill" in outcome.text


async def test_of_two_faults_at_the_same_time_one_is_refused() -> None:
    await start(Supervisor, [clerk("a"), clerk("b")])
    async with observed() as observatory:
        both = await asyncio.gather(*(observatory.act("inject", pid_of(each), kind="kill") for each in ("a", "b")))
        assert sorted(each.is_done for each in both) == [False, True]
        assert any("another fault is under way" in each.text for each in both)


async def test_a_trial_that_is_broken_off_keeps_no_other_one_out() -> None:
    await start(Supervisor, [clerk("a")])
    async with observed() as observatory:
        assert (await observatory.act("inject", pid_of("a"), kind="hang")).is_done
        await asyncio.sleep(0.1)
        observatory.stop()
        observatory.start()
        await asyncio.sleep(0.1)
        view: Any = await observatory.view("faults")
        assert [(each.state, each.text) for each in view.faults] == [("missed", "it was not followed to its end")]
        assert (await trial(observatory, pid_of("a"), "kill")).state == "as_predicted"


SPECS = st.tuples(
    st.sampled_from(["one_for_one", "rest_for_one", "one_for_all", "dynamic"]),
    st.integers(0, 2),
    st.lists(st.sampled_from(["permanent", "transient", "temporary"]), min_size=1, max_size=4),
)


@given(
    shape=st.lists(SPECS, min_size=1, max_size=3),
    top=st.sampled_from(["one_for_one", "rest_for_one", "one_for_all"]),
    chosen=st.integers(0, 30),
    kind=st.sampled_from(["kill", "crash", "stop"]),
)
@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
async def test_random_trees_do_what_is_predicted(shape: list[Any], top: Any, chosen: int, kind: str) -> None:
    specs: list[ChildSpec[Any]] = []
    for number, (strategy, intensity, restarts) in enumerate(shape):
        children = [child(Clerk).but(id=f"{number}.{place}", restart=restart) for place, restart in enumerate(restarts)]
        if strategy == "dynamic":
            specs.append(child(DynamicSupervisor, intensity=intensity).but(id=f"d{number}", name=f"d{number}"))
        else:
            specs.append(crew(*children, id=f"s{number}", strategy=strategy, intensity=intensity))
    await start(Supervisor, specs, strategy=top, intensity=3)
    for number, (strategy, _, restarts) in enumerate(shape):
        if strategy == "dynamic":
            for restart in restarts:
                await start_child(f"d{number}", child(Clerk).but(restart=restart))
    async with observed() as observatory:
        view: Any = await observatory.view("tree")
        rows = [row for row in view.rows if row.depth]
        target = rows[chosen % len(rows)]
        row = await trial(observatory, target.pid, kind)
        assert row.state == "as_predicted", (row, [(each.depth, each.id, each.restart) for each in rows])


def test_the_test_kit_is_loaded_only_where_faults_are_allowed() -> None:
    program = (
        "import sys\n"
        "from greenroom.observe.observatory import Observatory\n"
        "observatory = Observatory('shop')\n"
        "assert observatory.trials is None\n"
        "assert 'greenroom.supervision.testing' not in sys.modules\n"
        "assert Observatory('shop', faults=True).trials is not None\n"
        "assert 'greenroom.supervision.testing.fault_injection' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
