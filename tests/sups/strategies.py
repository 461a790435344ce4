"""How plans are drawn: small trees with many habits, and faults that come in bursts, with rest between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hypothesis import strategies as st

from .plan import (
    CALLS,
    JUNK,
    ORDERS,
    ROOT,
    SIGNALS,
    START,
    STOPS,
    TROUBLES,
    Call,
    Fault,
    Plan,
    Team,
    Worker,
    blueprint,
    boss,
    exact,
    is_dynamic,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from .plan import Blueprint, Failure, Patience, Restart, Strategy

DEPTH: Final = 4
NODES: Final = 12

RESTARTS: Final[tuple[Restart, ...]] = ("permanent", "transient", "permanent", "temporary")
PATIENCES: Final[tuple[Patience, ...]] = (1.0, "infinity", "brutal_kill", 0.25, 4.0)
PAUSES: Final = (0.0, 0.0, 0.0, 0.25, 0.75, 2.5, 6.0)
GAPS: Final = (0.25, 64.0, 0.5, 1.0, 2.0, 4.0)
FAILURES: Final[tuple[Failure, ...]] = ("raise", "ignore", "stop", "exit", "raise", "hang")
BAD_STARTS: Final = ((), (), (), (), (2,), (2, 3), (3,), (2, 3, 4), (2,), (2, 4), (2, 3, 4, 5, 6), (3, 4), (1,))
TEAMS: Final[tuple[Strategy, ...]] = ("one_for_one", "one_for_all", "rest_for_one", "dynamic")


@st.composite
def workers(draw: st.DrawFn, significant: bool = False) -> Worker:  # noqa: FBT001, FBT002 - drawn
    """A worker with few habits; no habit is the simplest."""
    restart = draw(st.sampled_from(RESTARTS))
    habits = draw(st.integers(0, 127))
    starts = draw(st.sampled_from(BAD_STARTS))
    failure = draw(st.sampled_from(FAILURES)) if starts else "raise"
    return Worker(
        restart=restart,
        significant=significant and restart != "permanent" and bool(habits & 32),
        shutdown=draw(st.sampled_from(PATIENCES)),
        named=bool(habits & 64),
        traps=bool(habits & 1),
        stubborn=habits & 6 == 6,
        init=draw(st.sampled_from(PAUSES)) if habits & 8 else 0.0,
        terminate=draw(st.sampled_from(PAUSES)) if habits & 1 or habits & 16 else 0.0,
        terminate_raises=habits & 50 == 50,
        failures=dict.fromkeys(starts, failure),
    )


@st.composite
def teams(draw: st.DrawFn, depth: int = DEPTH, significant: bool = False) -> Team:  # noqa: FBT001, FBT002 - drawn
    """A supervisor and all below it."""
    strategy = draw(st.sampled_from(TEAMS))
    restart = draw(st.sampled_from(RESTARTS)) if depth < DEPTH else "permanent"
    dynamic = strategy == "dynamic"
    auto = (
        "never" if dynamic else draw(st.sampled_from(("never", "never", "never", "any_significant", "all_significant")))
    )
    many = 1 if dynamic else draw(st.integers(1, 4 if depth == DEPTH else 3))
    children: list[Blueprint] = []
    for _ in range(many):
        if depth > 1 and draw(st.integers(0, 2)) == 2:
            children.append(draw(teams(depth - 1, auto != "never")))
        else:
            children.append(draw(workers(auto != "never")))
    return Team(
        strategy=strategy,
        template=dynamic and draw(st.booleans()),
        intensity=draw(st.sampled_from((1, 3, 2, 5, 3, 0, 8))),
        period=draw(st.sampled_from((5, 1, 3, 20))),
        auto_shutdown=auto,  # type: ignore[arg-type]
        children=tuple(children),
        restart=restart,
        named=draw(st.booleans()),
        significant=significant and restart != "permanent" and draw(st.booleans()),
        shutdown=draw(st.sampled_from(("infinity", "infinity", 2.0, 0.5, "brutal_kill")))
        if depth < DEPTH
        else "infinity",
    )


class _Cast:
    """The roles of a tree, as far as they have been filled."""

    def __init__(self, tree: Team) -> None:
        self.tree = tree
        self.workers: list[str] = []
        self.teams: list[str] = []
        self.next: dict[str, int] = {}
        self.filled: set[str] = set()
        self.enter(ROOT)

    def enter(self, role: str) -> None:
        """Somebody plays that role, and so do those below."""
        plan = blueprint(self.tree, role)
        if isinstance(plan, Worker):
            self.workers.append(role)
            return
        self.teams.append(role)
        self.next[role] = 0 if plan.strategy == "dynamic" else len(plan.children)
        for index in range(self.next[role]):
            self.enter(f"{role}.{index}")

    def hiring(self) -> list[str]:
        """Supervisors that may be told to start one more: dynamic ones up to three, the others one at most."""
        return [role for role in self.teams if self.next[role] < self._most(role)]

    def _most(self, role: str) -> int:
        plan = blueprint(self.tree, role)
        assert isinstance(plan, Team)
        return 3 if plan.strategy == "dynamic" else len(plan.children) + 1

    def hire(self, role: str) -> str:
        """One more child."""
        hired = f"{role}.{self.next[role]}"
        self.next[role] += 1
        self.enter(hired)
        return hired


_ON_WORKERS: Final = ("raise", "kill", *TROUBLES, *SIGNALS, *STOPS, *ORDERS, "raise", "kill")
_ON_TEAMS: Final = ("kill", *SIGNALS, *STOPS, *ORDERS, JUNK, "kill")
_ON_ROOT: Final = ("kill", *SIGNALS, *STOPS, JUNK)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """A whole example."""
    tree = draw(teams())
    cast = _Cast(tree)
    faults: list[Fault] = []
    calls: list[Call] = []
    now = 0.0
    for number in range(draw(st.integers(1, 10))):
        now += draw(st.sampled_from(GAPS))
        at = exact(now, "fault", number)
        hiring = cast.hiring()
        last = faults[-1] if faults else None
        choice = draw(st.integers(0, 19))
        if last is not None and last.kind == "terminate_child" and choice % 2:
            target, kind = last.target, draw(st.sampled_from(("restart_child", "delete_child", "start_child")))
        elif hiring and (choice > 16 or not cast.workers):
            target, kind = cast.hire(draw(st.sampled_from(hiring))), START
        elif cast.workers and (choice < 11 or (choice != 13 and not cast.teams[1:])):
            target, kind = draw(st.sampled_from(cast.workers)), draw(st.sampled_from(_ON_WORKERS))
        else:
            target = draw(st.sampled_from(cast.teams[1:])) if choice != 13 and cast.teams[1:] else ROOT
            kind = draw(st.sampled_from(_ON_ROOT if target == ROOT else _ON_TEAMS))
        if kind == START and target in cast.filled and is_dynamic(tree, boss(target)[0]):
            kind = "terminate_child"  # a dynamic supervisor would start the same again, beside the first
        cast.filled.add(target)
        faults.append(Fault(at, target, kind))
        for _ in range(draw(st.integers(0, 3)) if cast.workers else 0):
            before = draw(st.sampled_from((-0.125, 0.125, 0.0625)))
            calls.append(
                Call(
                    exact(now + before, "call", len(calls)),
                    draw(st.sampled_from(cast.workers)),
                    draw(st.sampled_from(CALLS)),
                    draw(st.sampled_from((0.5, 0.0, 3.0))),
                    draw(st.sampled_from((None, 5.0, 1.0))),
                )
            )
    calls.sort(key=_when)
    return Plan(tree, tuple(faults), tuple(calls), exact(now + draw(st.sampled_from((0.5, 64.0))), "stop"))


_when: Callable[[Call], float] = lambda call: call.at  # noqa: E731
