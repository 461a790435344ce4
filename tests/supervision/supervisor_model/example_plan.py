"""What an example is made of, as data: a tree, the calls that are made into it, and the faults that are done to it.

A plan is a value: it prints as JSON, comes back from it, and with the seed of the delivery order it replays a run. Both
sides of the property read it: `model` says what must happen, `stage` makes it happen.

Time is exact. All times are multiples of 2**-20 seconds, far from where floats round, and every duration carries a small
offset of its own (`exact`), so that two timers practically never fall due together: the order of two such events
would be up to the seed, and could not be predicted.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias
from zlib import crc32

import msgspec

from greenroom.supervision.testing import Fault, FaultPlan

Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one", "dynamic"]
Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]
Patience: TypeAlias = float | Literal["brutal_kill", "infinity"]
Failure: TypeAlias = Literal["raise", "exit", "stop", "ignore", "hang"]
Kind: TypeAlias = Literal["server", "machine", "task"]

EARLY: Final = 2.0**-11  # how long before a fault the supervisors are looked at
GRACE: Final = 1.0 + 3 * 2.0**-18  # the node's kill grace
QUIET: Final = 8.0 + 7 * 2.0**-18  # how long a child has to run for its next restart to wait no longer than the first
SETTLING: Final = 2.0**-10  # how long a process rests after a long init before it turns to its mailbox
TERMINATE_GRACE: Final = 3.0 + 5 * 2.0**-18  # how long a worker may take to terminate after a crash


class Worker(msgspec.Struct, frozen=True, omit_defaults=True, tag="worker"):
    """A worker's blueprint: its place in the tree, and its habits.

    `failures` says what goes wrong in which start of it, counted over the whole run. `stubborn` code does not end when
    it is cancelled. A `named` worker has its role for a name, which only one process can have at a time.

    A `machine` works in a state of its own, and keeps for later what comes meanwhile. A `task` is a routine: it has no
    `terminate`, no name, cannot choose to be ignored, and answers no calls.
    """

    kind: Kind = "server"

    restart: Restart = "permanent"
    significant: bool = False
    shutdown: Patience = "infinity"
    named: bool = False
    traps: bool = False
    stubborn: bool = False
    init: float = 0.0
    terminate: float = 0.0
    terminate_raises: bool = False
    failures: dict[int, Failure] = {}


class Team(msgspec.Struct, frozen=True, omit_defaults=True, tag="team"):
    """A supervisor's blueprint. A dynamic one has a single child, the pattern of all that it is told to start.

    `template` is how it is told: by arguments for that pattern, or by a child spec each time. With `backoff` restarts
    wait: that long at first, twice as long each further time, as long as the child has not run for `QUIET` seconds.
    """

    strategy: Strategy = "one_for_one"
    template: bool = False
    backoff: float = 0.0
    intensity: int = 1
    period: int = 5
    auto_shutdown: AutoShutdown = "never"
    children: tuple[Worker | Team, ...] = ()
    restart: Restart = "permanent"
    significant: bool = False
    shutdown: Patience = "infinity"
    named: bool = False


Blueprint: TypeAlias = Worker | Team

SIGNALS: Final = ("kill", "signal_shutdown", "signal_crash", "signal_normal")
STOPS: Final = ("stop_normal", "stop_shutdown")
TROUBLES: Final = (
    "raise",
    "exit",
    "interrupt",
    "cancel",
    "group",
    "task_exit",
    "quit_normal",
    "quit_shutdown",
    "unlink",
    "link",
    "straggle",
    "hang",
)
ORDERS: Final = ("terminate_child", "restart_child", "delete_child")
OWN: Final = "sups:"  # before the names of our kinds of faults
START: Final = "start_child"
JUNK: Final = "junk"

ON_WORKER: Final = SIGNALS + STOPS + TROUBLES
ON_TEAM: Final = (*SIGNALS, *STOPS, JUNK)


def fault(at: float, target: str, kind: str) -> Fault:
    """At this time, do that to the process that plays the role then, if there is one.

    `TROUBLES` are done by the worker itself, in a handler, when it gets to that message: `link` ties it to the next
    child of its supervisor, `straggle` starts a task that does not end when it is cancelled. `SIGNALS` and `STOPS` come
    from outside. `ORDERS` and `START` are requests to the supervisor of the role, as an operator would make them: they
    happen to that, and their `reason` is the role.
    """
    if kind in ORDERS or kind == START:
        return Fault(at=at, what=OWN + kind, target=boss(target)[0], which=-1, reason=target)
    return Fault(at=at, what=OWN + kind, target=target, which=-1)


def kind_of(fault: Fault) -> str:
    """What kind that is, in our words."""
    return fault.what.removeprefix(OWN)


def target_of(fault: Fault) -> str:
    """The role that it is about."""
    return fault.reason or fault.target


CALLS: Final = ("echo", "work", "later", "never", "crash", "farewell")


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """At this time, call the process that plays the role, or played it last.

    `work` takes `seconds`; `later` is answered after `seconds` while the worker goes on; `never` is not answered;
    `crash` raises; `farewell` is answered by a worker that then stops.
    """

    at: float
    target: str
    kind: str
    seconds: float = 0.0
    deadline: float | None = None


class Plan(msgspec.Struct, frozen=True):
    """One example. Faults and calls are sorted by time; the tree is told to stop at `stop_at`."""

    tree: Team
    faults: FaultPlan
    calls: tuple[Call, ...]
    stop_at: float

    def steps(self) -> list[tuple[int, Fault | Call]]:
        """Faults and calls by time, each with its number among its like."""
        numbered: list[tuple[int, Fault | Call]] = [*enumerate(self.faults), *enumerate(self.calls)]
        return sorted(numbered, key=lambda each: each[1].at)

    def looks(self) -> list[tuple[float, bool, int, Fault | Call]]:
        """The steps by time, and shortly before each fault a look, which is True."""
        steps = [(each.at, False, number, each) for number, each in self.steps()]
        steps += [(each.at - EARLY, True, number, each) for number, each in enumerate(self.faults)]
        return sorted(steps, key=lambda each: each[0])

    def dump(self) -> str:
        """As JSON, in one line."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def load(cls, text: str | bytes) -> Plan:
        """Back from JSON."""
        return msgspec.json.decode(text, type=cls)


def exact(seconds: float, *marks: object) -> float:
    """A duration with the small offset that belongs to these marks; nothing stays nothing."""
    if not seconds:
        return 0.0
    return seconds + crc32("/".join(map(str, marks)).encode()) % 2**14 * 2.0**-20


ROOT: Final = "root"


def blueprint(tree: Team, role: str) -> Blueprint:
    """Who plays a role: `root.0.2` is the third child of the first child of the root.

    Children that a supervisor is told to start have further numbers, and are made after those that it has.
    """
    found: Blueprint = tree
    for index in role.split(".")[1:]:
        assert isinstance(found, Team), role
        found = found.children[int(index) % len(found.children)]
    return found


def is_dynamic(tree: Team, role: str) -> bool:
    """Whether that role is a dynamic supervisor's."""
    found = blueprint(tree, role)
    return isinstance(found, Team) and found.strategy == "dynamic"


def boss(role: str) -> tuple[str, int]:
    """The supervisor of a role, and which of its children this one is."""
    above, _, index = role.rpartition(".")
    return above, int(index)


def is_named(tree: Team, role: str) -> bool:
    """Whether the process that plays that role has it for a name; children of one template could not each have their own."""
    above = blueprint(tree, boss(role)[0]) if "." in role else tree
    return blueprint(tree, role).named and not (isinstance(above, Team) and above.template)


GROUPS: Final = "groups"  # what snapshots say of them stands beside what supervisors show


def is_task(tree: Team, role: str) -> bool:
    """Whether the process that plays that role is a routine."""
    found = blueprint(tree, role)
    return isinstance(found, Worker) and found.kind == "task"


def backoff(tree: Team, role: str) -> tuple[float, float]:
    """How long a restart of that role waits: at first, and at most; nothing where restarts do not wait.

    A dynamic supervisor says it for all of its children, any other for each child.
    """
    above = boss(role)[0]
    team = blueprint(tree, above)
    assert isinstance(team, Team)
    whose = above if team.strategy == "dynamic" else role
    return exact(team.backoff, whose, "backoff"), exact(6 * team.backoff, whose, "longest")


def neighbour(role: str) -> str:
    """The role of the next child of the same supervisor."""
    above, index = boss(role)
    return f"{above}.{index + 1}"


def patience(tree: Team, role: str) -> Patience:
    """How long the supervisor of a role waits for it to stop; children of one template are all alike."""
    seconds = blueprint(tree, role).shutdown
    above = blueprint(tree, boss(role)[0])
    if isinstance(above, Team) and above.template:
        role = f"{boss(role)[0]}.0"
    return seconds if isinstance(seconds, str) else exact(seconds, role, "shutdown")
