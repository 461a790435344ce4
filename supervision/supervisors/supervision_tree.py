"""The supervision tree as data and as a drawing, and functions that call supervisors.

A snapshot of the tree is taken without sending messages, so it works while a supervisor is busy or hangs. Nothing here
recurses, so trees may be of any depth and width.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, overload

from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.kernel.api import resolve
from greenroom.supervision.kernel.errors import NotRegistered
from greenroom.supervision.kernel.process_lookup import current_node
from greenroom.supervision.kernel.process_messages import NO_PROCESS

from .child_spec import start_name
from .partition_supervisor import PartitionSupervisor
from .supervisor import Supervisor
from .supervisor_base import BaseSupervisor

if TYPE_CHECKING:
    from collections.abc import Hashable

    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.kernel.process_lookup import Via
    from greenroom.supervision.kernel.process_messages import Pid

    from .child_spec import ChildSpec, Restart
    from .supervisor_base import ChildInfo, ChildRecord, Counts

BranchState: TypeAlias = Literal["running", "stopping", "exited", "restarting", "undefined"]
"""`stopping` is dying, and not unwound yet; `exited` is dead, and its supervisor has not handled the exit yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One process, or one child that does not run, with everything below it. The branch of the whole node has neither pid nor spec.

    `id` and `restart` are those of its spec, if a supervisor started it; `strategy` is set for a supervisor; `restarts` is
    how often it was restarted; `size` counts it and all branches below.
    """

    label: str
    pid: Pid | None = None
    name: Hashable | None = None
    id: Hashable | None = None
    strategy: str | None = None
    restart: Restart | None = None
    state: BranchState = "running"
    restarts: int = 0
    children: tuple[Branch, ...] = field(default=(), repr=False)
    size: int = 1

    def __str__(self) -> str:
        known = f"{self.id}: " if self.id is not None and str(self.id) != self.label else ""
        name = "" if self.name is None or str(self.name) == self.label else f" {str(self.name)!r}"
        pid = "" if self.pid is None else f" {self.pid}"
        strategy = f" ({self.strategy})" if self.strategy else ""
        state = "" if self.state == "running" else f" [{self.state}]"
        times = f" ↻{self.restarts}" if self.restarts else ""
        return f"{known}{self.label}{name}{pid}{strategy}{state}{times}"


@dataclass(slots=True)
class _Draft:
    """A branch whose children are not complete yet."""

    process: Process | None
    child: ChildRecord | None
    above: int
    children: list[Branch] = field(default_factory=list[Branch])


def tree(root: object = None) -> Branch:
    """All processes below `root`, a `Ref`, pid or name; without one, all on this node."""
    node = current_node()
    top: Process | None = None
    if root is not None:
        top, pid, name = resolve(node, root)
        if top is None:
            raise NotRegistered(NO_PROCESS, name or pid)
    below = _below(node)
    drafts = [_Draft(top, None, -1)]
    for place, draft in enumerate(drafts):  # the list grows while it is walked
        # Each list is taken once, so that the walk ends even if parents form a cycle.
        if draft.process is not None or not place:
            drafts.extend(_Draft(process, child, place) for process, child in below.pop(draft.process, ()))
    for draft in reversed(drafts):
        branch = _branch(draft, node)
        if draft.above < 0:
            return branch
        drafts[draft.above].children.append(branch)
    raise AssertionError("a tree has a root")


def _below(node: Node) -> dict[Process | None, list[tuple[Process | None, ChildRecord | None]]]:
    """The direct children of each process: first the listed children of a supervisor, then others that it started. Each process is in one list."""
    found: defaultdict[Process | None, list[tuple[Process | None, ChildRecord | None]]] = defaultdict(list)
    taken: set[Process] = set()
    for process in node.processes.values():
        behaviour = process.behaviour.inner
        for child in behaviour.children() if isinstance(behaviour, BaseSupervisor) else ():
            listed = None if child.pid is None else node.process(child.pid)
            if listed is None or listed not in taken:
                found[process].append((listed, child))
            if listed is not None:
                taken.add(listed)
    for process in node.processes.values():
        if process not in taken:
            parent = process.parent
            known = parent is not None and not parent.is_remote and parent.pid.serial in node.processes
            found[parent if known else None].append((process, None))
    return found


def _branch(draft: _Draft, node: Node) -> Branch:
    process, child = draft.process, draft.child
    children = tuple(reversed(draft.children))
    size = 1 + sum(each.size for each in children)
    if process is None and child is None:
        return Branch(label=node.name, children=children, size=size)
    if process is None:
        assert child is not None
        return Branch(
            label=start_name(child.spec.start),
            id=child.spec.id,
            restart=child.spec.restart,
            state="exited" if child.state == "running" else child.state,
            restarts=child.restarts,
        )
    behaviour = process.behaviour.inner
    return Branch(
        label=process.label,
        pid=process.pid,
        name=next(iter(process.names)) if process.names else None,
        id=None if child is None else child.spec.id,
        strategy=behaviour.strategy_text() if isinstance(behaviour, BaseSupervisor) else None,
        restart=None if child is None else child.spec.restart,
        state="stopping" if process.life else "running",
        restarts=0 if child is None else child.restarts,
        children=children,
        size=size,
    )


def draw(root: Branch, *, max_lines: int | None = None, max_children: int | None = None) -> str:
    """Draw a tree, one line for each process; with bounds, "… and 99,980 more" replaces the rest."""
    lines: list[str] = []
    drawn = 0
    waiting: list[tuple[Branch | str, str, str]] = [(root, "", "")]
    while waiting:
        item, lead, indent = waiting.pop()
        if max_lines is not None and len(lines) >= max_lines - 1 and (waiting or _has_more(item)):
            lines.append(f"… and {root.size - drawn:,} more")
            break
        if isinstance(item, str):
            lines.append(lead + item)
            continue
        drawn += 1
        lines.append(f"{lead}{item}")
        shown: list[Branch | str] = list(item.children[:max_children])
        hidden = item.children[len(shown) :]
        if hidden:
            drawn += sum(branch.size for branch in hidden)
            shown.append(f"… and {len(hidden):,} more")
        last = len(shown) - 1
        waiting += [
            (each, indent + ("└─ " if number == last else "├─ "), indent + ("    " if number == last else "│   "))
            for number, each in reversed(list(enumerate(shown)))
        ]
    return "\n".join(lines)


def _has_more(item: Branch | str) -> bool:
    return isinstance(item, Branch) and bool(item.children)


# --- Functions that call a supervisor, given by its `Ref`, pid or name.
# Starting or stopping a child may take long, so none of these has a deadline, as in OTP; use `asyncio.timeout` to set one.

if TYPE_CHECKING:
    SupervisorTarget = Ref[Any] | Pid | Hashable | Via

R = TypeVar("R")


def _ref_without_deadline(supervisor: Any) -> Ref[Any]:
    if hasattr(supervisor, "within"):
        return cast("Ref[Any]", supervisor).within(None)
    ref: Ref[Any] = Ref(supervisor, None)
    return ref


@overload
async def start_child(supervisor: SupervisorTarget, spec: ChildSpec[R], /) -> R: ...
@overload
async def start_child(supervisor: SupervisorTarget, /, *args: Any, **kwargs: Any) -> Any: ...
async def start_child(supervisor: SupervisorTarget, /, *args: Any, **kwargs: Any) -> Any:
    """Add a child and start it; returns the result of its start function, a `Ref` when `child` made the spec.

    A dynamic supervisor with a template takes the child's own arguments instead of a spec. Raises `StartFailed`, and
    the spec is not kept; `StartIgnored`, and it is kept unless temporary; `AlreadyStarted`, `AlreadyPresent`, `BadSpec`,
    and with a dynamic supervisor `MaxChildren`.
    """
    return await _ref_without_deadline(supervisor).call(BaseSupervisor.start_child, *args, **kwargs)


async def terminate_child(supervisor: SupervisorTarget, id: Hashable) -> None:
    """Stop a child by id, or by pid for a dynamic supervisor. It is not restarted."""
    await _ref_without_deadline(supervisor).call(BaseSupervisor.terminate_child, id)


async def restart_child(supervisor: SupervisorTarget, id: Hashable) -> Any:
    """Start a child that was stopped, or exited and was not restarted."""
    return await _ref_without_deadline(supervisor).call(Supervisor.restart_child, id)


async def delete_child(supervisor: SupervisorTarget, id: Hashable) -> None:
    """Remove a child that does not run."""
    await _ref_without_deadline(supervisor).call(Supervisor.delete_child, id)


async def which_children(supervisor: SupervisorTarget) -> list[ChildInfo]:
    """All children, the last added first."""
    return await _ref_without_deadline(supervisor).call(BaseSupervisor.which_children)


async def which_child(supervisor: SupervisorTarget, id: Hashable) -> ChildInfo:
    """One child. Raises `ChildNotFound`."""
    return await _ref_without_deadline(supervisor).call(BaseSupervisor.which_child, id)


async def count_children(supervisor: SupervisorTarget) -> Counts:
    """Count the children, and those that run."""
    return await _ref_without_deadline(supervisor).call(BaseSupervisor.count_children)


async def get_childspec(supervisor: SupervisorTarget, id: Hashable) -> ChildSpec[Any]:
    """The spec of a child, with its defaults filled in."""
    return await _ref_without_deadline(supervisor).call(BaseSupervisor.get_childspec, id)


async def resize_partitions(supervisor: SupervisorTarget, partitions: int) -> int:
    """Change the number of partitions, up to the number at the start; returns the old number.

    Keys move between partitions, but their state does not. Surplus partitions are stopped.
    """
    return await _ref_without_deadline(supervisor).call(PartitionSupervisor.resize, partitions)
