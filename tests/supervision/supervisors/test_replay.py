"""A seed replays a run with all its deaths, restarts and delays; another seed gives another run."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from greenroom.supervision import (
    Backoff,
    DynamicSupervisor,
    Ref,
    Supervisor,
    child,
    current_node,
    draw,
    exit,
    inbox,
    kill,
    start_child,
    start_link,
    tree,
)
from greenroom.supervision.kernel.process_messages import Crash
from greenroom.supervision.testing import run

from .sample_children import Broken, Counter, Polite, pids

if TYPE_CHECKING:
    from greenroom.supervision import Pid, Report
    from greenroom.supervision.supervisors.supervisor_reports import SupervisorReport


async def commotion(told: list[str]) -> None:
    node = current_node()

    def tell(report: Report | SupervisorReport) -> None:
        who = getattr(report, "child", report.label)
        told.append(f"{node.loop.time()} {type(report).__name__} {report.pid} {who} {getattr(report, 'reason', '')}")

    node.reports.subscribe(tell)
    async with inbox():
        inner = [child(Polite, 0.5).but(id=n, restart="transient") for n in range(4)]
        top = await start_link(
            Supervisor,
            [
                child(Supervisor, inner, strategy="rest_for_one", intensity=9).but(id="rest"),
                child(Supervisor, inner, strategy="one_for_all", intensity=9, backoff=Backoff()).but(id="all"),
                child(DynamicSupervisor, intensity=9).but(id="dynamic"),
            ],
            intensity=9,
        )
        branches = [pid for pid in await pids(top) if pid]
        for number in range(9):
            await start_child(branches[2], child(Counter, number))
        for turn in range(12):
            branches = [pid for pid in await pids(top) if pid]
            victims: list[Pid] = [pid for branch in branches for pid in await pids(Ref(branch)) if pid]
            chosen = node.random.sample(victims, min(3, len(victims)))
            for pid in chosen:
                if node.random.random() < 0.5:
                    kill(pid)
                else:
                    exit(pid, Crash(Broken()))
            await asyncio.sleep(node.random.random())
            told.append(f"{turn} {draw(tree(top))}")


def story(seed: int) -> list[str]:
    told: list[str] = []
    run(lambda: commotion(told), seed=seed)
    return told


def test_a_seed_replays_everything() -> None:
    first, again, other = story(5), story(5), story(6)
    assert first == again
    assert first != other
    assert len(first) > 50
