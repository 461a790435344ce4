"""The data of an example: a tree, calls into it, and faults.

A plan is a value: it can be stored as JSON, and with the seed of the delivery order it replays a run. Both sides of the property read it: the model predicts
what must happen, the engine does it.

Time is exact. All times are multiples of 2**-20 seconds, far from where floats round, and every duration has a small offset of its own (`exact`), so that two
timers practically never coincide: the order of such events would depend on the seed, and could not be predicted.

"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias
from zlib import crc32

import msgspec

from greenroom.supervision.testing import Fault, FaultPlan

Strategy: TypeAlias = Literal["one_for_one", "one_for_all", "rest_for_one", "dynamic"]
Restart: TypeAlias = Literal["permanent", "transient", "temporary"]
AutoShutdown: TypeAlias = Literal["never", "any_significant", "all_significant"]
ShutdownTime: TypeAlias = float | Literal["brutal_kill", "infinity"]
Failure: TypeAlias = Literal["raise", "exit", "stop", "ignore", "hang"]
Kind: TypeAlias = Literal["server", "machine", "task"]

EARLY: Final = 2.0**-11  # how long before a fault the supervisors are inspected
GRACE: Final = 1.0 + 3 * 2.0**-18  # the node's kill grace
QUIET: Final = 8.0 + 7 * 2.0**-18  # how long a child must run until its restart delay is reset
SETTLING: Final = 2.0**-10  # the pause of a process after a long init before it reads its mailbox
TERMINATE_GRACE: Final = 3.0 + 5 * 2.0**-18  # the time in which a worker terminates after a crash


class WorkerBlueprint(msgspec.Struct, frozen=True, omit_defaults=True, tag="worker"):
    """A worker: its place in the tree, and its behaviour.

    `failures` says what goes wrong in which of its starts, counted over the whole run. `stubborn` code ignores cancellation. A `named` worker registers its role as
    name, which only one process can have at a time.

    A `machine` works in a state of its own, and postpones messages meanwhile. A `task` is a routine: it has no `terminate` and no name, cannot return ignore, and
    answers no calls.

    """

    kind: Kind = "server"

    restart: Restart = "permanent"
    significant: bool = False
    shutdown: ShutdownTime = "infinity"
    named: bool = False
    traps: bool = False
    stubborn: bool = False
    init: float = 0.0
    terminate: float = 0.0
    terminate_raises: bool = False
    failures: dict[int, Failure] = {}


class SupervisorBlueprint(msgspec.Struct, frozen=True, omit_defaults=True, tag="team"):
    """A supervisor. A dynamic one has a single child, the pattern of all children that it is told to start.

    `template` says how it is told: by arguments for the pattern, or by a child spec each time. With `backoff`, restarts are delayed: that long at first, then twice
    as long each time, until the child has run for `QUIET` seconds.

    """

    strategy: Strategy = "one_for_one"
    template: bool = False
    backoff: float = 0.0
    intensity: int = 1
    period: int = 5
    auto_shutdown: AutoShutdown = "never"
    children: tuple[WorkerBlueprint | SupervisorBlueprint, ...] = ()
    restart: Restart = "permanent"
    significant: bool = False
    shutdown: ShutdownTime = "infinity"
    named: bool = False


Blueprint: TypeAlias = WorkerBlueprint | SupervisorBlueprint

SIGNALS: Final = ("kill", "signal_shutdown", "signal_crash", "signal_normal")
STOPS: Final = ("stop_normal", "stop_shutdown")
OWN_FAULTS: Final = (
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
OPERATOR_REQUESTS: Final = ("terminate_child", "restart_child", "delete_child")
OWN: Final = "sups:"  # the prefix of these kinds of faults
START: Final = "start_child"
UNEXPECTED: Final = "junk"

WORKER_FAULTS: Final = SIGNALS + STOPS + OWN_FAULTS
SUPERVISOR_FAULTS: Final = (*SIGNALS, *STOPS, UNEXPECTED)


def fault(at: float, target: str, kind: str) -> Fault:
    """A fault for the process that has the role at that time, if there is one.

    A worker does `OWN_FAULTS` itself, in a handler, when it gets to that message: `link` links it to the next child of its supervisor, `straggle` starts a task
    that ignores cancellation. `SIGNALS` and `STOPS` come from outside. `OPERATOR_REQUESTS` and `START` are requests to the supervisor of the role: they are sent to
    the supervisor, and their `reason` is the role.

    """
    if kind in OPERATOR_REQUESTS or kind == START:
        return Fault(at=at, what=OWN + kind, target=supervisor_of(target)[0], which=-1, reason=target)
    return Fault(at=at, what=OWN + kind, target=target, which=-1)


def fault_kind_of(fault: Fault) -> str:
    """The kind of a fault, without the prefix."""
    return fault.what.removeprefix(OWN)


def role_of(fault: Fault) -> str:
    """The role that a fault concerns."""
    return fault.reason or fault.target


CALLS: Final = ("echo", "work", "later", "never", "crash", "farewell")


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call of the process that has, or last had, the role.

    `work` takes `seconds`; `later` is answered after `seconds` while the worker continues; `never` is not answered; `crash` raises; `farewell` is answered by a
    worker that then stops.

    """

    at: float
    target: str
    kind: str
    seconds: float = 0.0
    deadline: float | None = None


class Plan(msgspec.Struct, frozen=True):
    """An example. Faults and calls are sorted by time; the tree is stopped at `stop_at`."""

    tree: SupervisorBlueprint
    faults: FaultPlan
    calls: tuple[Call, ...]
    stop_at: float

    def steps(self) -> list[tuple[int, Fault | Call]]:
        """Faults and calls by time, each with its index."""
        numbered: list[tuple[int, Fault | Call]] = [*enumerate(self.faults), *enumerate(self.calls)]
        return sorted(numbered, key=lambda each: each[1].at)

    def looks(self) -> list[tuple[float, bool, int, Fault | Call]]:
        """The steps by time, and an inspection (True) shortly before each fault."""
        steps = [(each.at, False, number, each) for number, each in self.steps()]
        steps += [(each.at - EARLY, True, number, each) for number, each in enumerate(self.faults)]
        return sorted(steps, key=lambda each: each[0])

    def dump(self) -> str:
        """The plan as JSON, in one line."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def load(cls, text: str | bytes) -> Plan:
        """The plan in a JSON text."""
        return msgspec.json.decode(text, type=cls)


def exact(seconds: float, *marks: object) -> float:
    """A duration with the offset of these marks; zero stays zero."""
    if not seconds:
        return 0.0
    return seconds + crc32("/".join(map(str, marks)).encode()) % 2**14 * 2.0**-20


ROOT: Final = "root"


def blueprint(tree: SupervisorBlueprint, role: str) -> Blueprint:
    """The blueprint of a role: `root.0.2` is the third child of the first child of the root.

    Children that a supervisor is told to start have further numbers, and blueprints like its other children.

    """
    found: Blueprint = tree
    for index in role.split(".")[1:]:
        assert isinstance(found, SupervisorBlueprint), role
        found = found.children[int(index) % len(found.children)]
    return found


def is_dynamic(tree: SupervisorBlueprint, role: str) -> bool:
    """Whether the role is a dynamic supervisor's."""
    found = blueprint(tree, role)
    return isinstance(found, SupervisorBlueprint) and found.strategy == "dynamic"


def supervisor_of(role: str) -> tuple[str, int]:
    """The supervisor of a role, and the index of the child."""
    above, _, index = role.rpartition(".")
    return above, int(index)


def is_named(tree: SupervisorBlueprint, role: str) -> bool:
    """Whether the process registers its role; children of one template cannot have different names."""
    above = blueprint(tree, supervisor_of(role)[0]) if "." in role else tree
    return blueprint(tree, role).named and not (isinstance(above, SupervisorBlueprint) and above.template)


GROUPS: Final = "groups"  # snapshots list these beside the supervisors


def is_task(tree: SupervisorBlueprint, role: str) -> bool:
    """Whether the role is a routine's."""
    found = blueprint(tree, role)
    return isinstance(found, WorkerBlueprint) and found.kind == "task"


def backoff(tree: SupervisorBlueprint, role: str) -> tuple[float, float]:
    """The first and the longest restart delay of a role; zeros without delays.

    A dynamic supervisor has one setting for all children, other supervisors one for each child.

    """
    above = supervisor_of(role)[0]
    team = blueprint(tree, above)
    assert isinstance(team, SupervisorBlueprint)
    whose = above if team.strategy == "dynamic" else role
    return exact(team.backoff, whose, "backoff"), exact(6 * team.backoff, whose, "longest")


def next_role(role: str) -> str:
    """The role of the next child of the same supervisor."""
    above, index = supervisor_of(role)
    return f"{above}.{index + 1}"


def shutdown_time(tree: SupervisorBlueprint, role: str) -> ShutdownTime:
    """How long the supervisor of a role waits for it to stop; children of one template have the same time."""
    seconds = blueprint(tree, role).shutdown
    above = blueprint(tree, supervisor_of(role)[0])
    if isinstance(above, SupervisorBlueprint) and above.template:
        role = f"{supervisor_of(role)[0]}.0"
    return seconds if isinstance(seconds, str) else exact(seconds, role, "shutdown")
