"""The views of processes: the tree, and one process with its links, its mailbox, its state and where its code is.

They are read from the node without a message to any process, so they work while a process hangs. No code of the program is run for them but `report_state`: values are
shown by their kind and size, and texts and numbers themselves, shortened, with secrets hidden. The walk over all processes gives way to the loop every half millisecond.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from greenroom.supervision import visible
from greenroom.supervision.introspect import peek_state, process_info
from greenroom.supervision.kernel import clock, safe_repr
from greenroom.supervision.kernel.links import linked
from greenroom.supervision.kernel.process_messages import (
    ASK,
    CALL,
    CAST,
    CONTINUE,
    INFO,
    INIT,
    SIGNAL,
    STOP,
    SYSTEM,
    TELL,
    TERMINATE,
    TIMEOUT,
    Pid,
)
from greenroom.supervision.kernel.watchdog import task_lines
from greenroom.supervision.supervisors.child_spec import start_name
from greenroom.supervision.supervisors.supervisor import Supervisor
from greenroom.supervision.supervisors.supervisor_base import BaseSupervisor

from .secret_masks import HIDDEN, is_secret_name, masked_text
from .view_models import PAGE_SIZE
from .view_rows import Field, MailboxLine, ProcessRef, SupervisorFacts, TreeRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.supervisors.supervisor_base import ChildRecord

    from .view_models import ViewQuery

SLICE_SECONDS: Final = 0.0005
"""For how long a view is made before other code runs."""
PAUSE_SECONDS: Final = 0.005
"""How long the others have then: a view of 10,000 processes takes a tenth of the loop while it is made, and no more."""
MOST_CHILDREN: Final = 20
"""The children of a process that a tree shows; a tree that begins at their parent shows them all."""
_MOST_RELATED: Final = 50
_MOST_MESSAGES: Final = 20
_MOST_FIELDS: Final = 60
_MOST_PARTS: Final = 6
_LONGEST: Final = 200
_LONGEST_STACK: Final = 8_000


class Turns:
    """Lets other code run whenever a slice of time is used up."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = clock.real_seconds() + SLICE_SECONDS

    def is_over(self) -> bool:
        """Whether the slice is used up; call it once for each small step."""
        return clock.real_seconds() >= self._until

    async def rest(self) -> None:
        """Let the others run."""
        await asyncio.sleep(PAUSE_SECONDS)
        self._until = clock.real_seconds() + SLICE_SECONDS


class TreePlace(NamedTuple):
    """A process or a child that does not run, with its supervisor's record of it."""

    process: Process | None
    record: ChildRecord | None


class ProcessIndex:
    """All processes of a node by their parents, at about one moment."""

    def __init__(self, node: Node) -> None:
        """`build` fills it."""
        self.node = node
        self.size = 0
        self._adopted: dict[Process, tuple[Process, ChildRecord]] = {}
        """The children that another process than their supervisor has started."""
        self._loose: defaultdict[Process | None, list[Process]] = defaultdict(list)
        """The processes without a supervisor, by the process that started them."""

    async def build(self) -> None:
        """Walk over all processes, in slices. Little is kept of each: new objects by the thousand would make the garbage collector stop the loop."""
        node, turns = self.node, Turns()
        processes = list(node.processes.values())
        self.size = len(processes)
        for process in processes:
            behaviour = process.behaviour.inner
            if isinstance(behaviour, BaseSupervisor):
                for record in list(behaviour.children()):
                    child = None if record.pid is None else node.process(record.pid)
                    if child is not None and child.parent is not process:
                        self._adopted.setdefault(child, (process, record))
                    if turns.is_over():
                        await turns.rest()
            if turns.is_over():
                await turns.rest()
        for process in processes:
            if self.supervisor_of(process) is None:
                parent = process.parent
                is_here = parent is not None and not parent.is_remote and parent.pid.serial in node.processes
                self._loose[parent if is_here else None].append(process)
            if turns.is_over():
                await turns.rest()

    def supervisor_of(self, process: Process) -> tuple[Process, ChildRecord] | None:
        """The supervisor of a process, and its record of it; None for a process without one."""
        found = self._adopted.get(process)
        if found is not None:
            return found
        parent = process.parent
        if parent is None or parent.is_remote:
            return None
        behaviour = parent.behaviour.inner
        record = behaviour.record_of(process.pid) if isinstance(behaviour, BaseSupervisor) else None
        return None if record is None else (parent, record)

    def supervised(self) -> Iterator[tuple[Process, Process, ChildRecord]]:
        """All processes with a supervisor, with it and its record of them."""
        for process in list(self.node.processes.values()):
            found = self.supervisor_of(process)
            if found is not None:
                yield process, *found

    def below(self, process: Process | None, most: int | None = None) -> list[TreePlace]:
        """What is directly below a process, or at the top: the children of a supervisor first."""
        return list(islice(self._each_below(process, most), most))

    def _each_below(self, process: Process | None, most: int | None = None) -> Iterator[TreePlace]:
        """The same one by one, for a walk that rests in between."""
        behaviour = None if process is None else process.behaviour.inner
        records = islice(behaviour.children(), most) if isinstance(behaviour, BaseSupervisor) else ()
        for record in tuple(records):
            child = None if record.pid is None else self.node.process(record.pid)
            yield TreePlace(child, record)
        for each in self._loose.get(process, ()):
            yield TreePlace(each, None)

    def count(self, process: Process) -> int:
        """How many are directly below a process."""
        behaviour = process.behaviour.inner
        records = sum(1 for _ in behaviour.children()) if isinstance(behaviour, BaseSupervisor) else 0
        return records + len(self._loose.get(process, ()))

    # --- the tree

    async def page(self, query: ViewQuery) -> TreePage:
        """The rows of one page of the tree."""
        root = None
        if query.pid:
            root = find_process(self.node, query.pid)
            if root is None:
                return TreePage([], 0, 0, [])
        first = max(0, query.page) * PAGE_SIZE
        if query.text:
            shown, count = await self._matching(root, query.text.lower(), first)
        else:
            places = await self._shown(root)
            shown, count = places[first : first + PAGE_SIZE], len(places)
        rows = [
            tree_row(place, depth, self, hidden=0 if query.text else self._hidden(place, root))
            for place, depth in shown
            if place.process is None or self.node.process(place.process.pid) is place.process  # others ended since
        ]
        above: list[ProcessRef] = []
        if shown and (top := shown[0][0].process) is not None and first:
            above = ancestors_of(top, self)
        return TreePage(rows, count, self.size, above)

    def _hidden(self, place: TreePlace, root: Process | None) -> int:
        if place.process is None or place.process is root:
            return 0
        return max(0, self.count(place.process) - MOST_CHILDREN)

    async def _shown(self, root: Process | None) -> list[tuple[TreePlace, int]]:
        """The places from `root` down, in the order of a drawing, with their depths; no more than `MOST_CHILDREN` below each but the root."""
        turns = Turns()
        found: list[tuple[TreePlace, int]] = []
        waiting = [(place, 0) for place in reversed(self._top(root))]
        while waiting:
            place, depth = waiting.pop()
            found.append((place, depth))
            if place.process is not None:
                below = self.below(place.process, None if place.process is root else MOST_CHILDREN)
                waiting += [(each, depth + 1) for each in reversed(below)]
            if turns.is_over():
                await turns.rest()
        return found

    async def _matching(self, root: Process | None, text: str, first: int) -> tuple[list[tuple[TreePlace, int]], int]:
        """The places with that text and all above them: those of the page that begins with `first`, and how many there are."""
        turns = Turns()
        found: list[tuple[TreePlace, int]] = []
        count = 0
        waiting = [iter(self._top(root))]
        path: list[TreePlace] = []
        shown = 0  # of the path, from the top
        while waiting:
            place = next(waiting[-1], None)
            if place is None:
                waiting.pop()
                del path[-1:]
                shown = min(shown, len(path))
                continue
            is_found = _contains(place, text)
            if is_found:
                for depth, each in enumerate((*path[shown:], place), shown):
                    if first <= count < first + PAGE_SIZE:
                        found.append((each, depth))
                    count += 1
                shown = len(path)
            if place.process is not None:
                waiting.append(self._each_below(place.process))
                path.append(place)
                shown += is_found
            if turns.is_over():
                await turns.rest()
        return found, count

    def _top(self, root: Process | None) -> Sequence[TreePlace]:
        if root is None:
            return self.below(None)
        found = self.supervisor_of(root)
        return (TreePlace(root, None if found is None else found[1]),)


async def count_supervisors(node: Node) -> int:
    """How many supervisors there are."""
    turns, count = Turns(), 0
    for process in list(node.processes.values()):
        count += isinstance(process.behaviour.inner, BaseSupervisor)
        if turns.is_over():
            await turns.rest()
    return count


class TreePage(NamedTuple):
    """One page of a tree: its rows, how many rows and processes there are, and what is above its first row."""

    rows: list[TreeRow]
    matching: int
    total: int
    ancestors: list[ProcessRef]


def find_process(node: Node, pid: str) -> Process | None:
    """The process with the pid that a view shows, `<node.7>`; None when it is gone."""
    name, dot, serial = pid.strip().removeprefix("<").removesuffix(">").rpartition(".")
    if not dot or name != node.name or not serial.isascii() or not serial.isdecimal() or len(serial) > 18:  # noqa: PLR2004 - more is no pid
        return None
    found = node.processes.get(int(serial))
    return None if found is None or found.is_remote else found


def text_of(value: object) -> str:
    """A name or an id as text."""
    if isinstance(value, str):
        return visible(value, _LONGEST)
    is_ours = type(value).__module__.startswith("greenroom.")  # such a name knows how it may be shown
    return visible(str(value) if is_ours else safe_repr.short(value), _LONGEST)


def _contains(place: TreePlace, text: str) -> bool:
    process, record = place
    if record is not None and text in text_of(record.spec.id).lower():
        return True
    if process is None:
        return False
    return (
        text in process.label.lower()
        or text in process.kind.lower()
        or text in str(process.pid)
        or any(text in text_of(name).lower() for name in process.names or ())
    )


def tree_row(place: TreePlace, depth: int, index: ProcessIndex, *, hidden: int = 0) -> TreeRow:
    """The row of one place."""
    process, record = place
    spec = None if record is None else record.spec
    id = "" if spec is None else text_of(spec.id)
    restart = "" if spec is None else spec.restart
    if process is None:
        assert record is not None
        return TreeRow(
            depth=depth,
            id=id,
            label=visible(start_name(record.spec.start), _LONGEST),
            kind="",
            restart=restart,
            state="exited" if record.state == "running" else record.state,
            restarts=record.restarts,
        )
    info, behaviour = process_info(process), process.behaviour.inner
    age = None if record is None else max(0.0, clock.now(index.node.loop) - record.running_since)
    return TreeRow(
        depth=depth,
        pid=str(info.pid),
        parent="" if info.parent is None else str(info.parent),
        id=id,
        label=visible(info.label, _LONGEST),
        kind=visible(process.kind, _LONGEST),
        name=text_of(next(iter(process.names))) if process.names else "",
        strategy=behaviour.strategy_text() if isinstance(behaviour, BaseSupervisor) else "",
        restart=restart,
        state="stopping" if process.life else "running",
        activity=info.activity,
        age=age,
        mailbox=info.waiting,
        mailbox_bytes=info.waiting_bytes,
        mailbox_bound=info.bound,
        restarts=0 if record is None else record.restarts,
        restarted=age if record is not None and record.restarts else None,
        children=index.count(process),
        hidden=hidden,
        calls="" if info.calls is None else str(info.calls),
    )


# --- one process


def ref_of(process: Process) -> ProcessRef:
    """A process as a link."""
    return ProcessRef(pid=str(process.pid), label=visible(process.label, _LONGEST), is_alive=not process.life)


def _ref_of_pid(node: Node, pid: Pid | None, name: object) -> ProcessRef:
    found = None if pid is None else node.process(pid)
    if found is not None:
        return ref_of(found)
    return ProcessRef(pid="" if pid is None else str(pid), label=text_of(name), is_alive=False)


def ancestors_of(process: Process, index: ProcessIndex) -> list[ProcessRef]:
    """The supervisor or parent of a process, that one's, and so on."""
    found: list[ProcessRef] = []
    at: Process | None = process
    while at is not None and len(found) < _MOST_RELATED:
        above = index.supervisor_of(at)
        at = at.parent if above is None else above[0]
        if at is not None:
            found.append(ref_of(at))
    return found


def links_of(process: Process) -> list[ProcessRef]:
    """The processes that are linked to this one."""
    return [ref_of(each) for each in islice(linked(process), _MOST_RELATED)]


def watchers_of(process: Process) -> list[ProcessRef]:
    """The processes that watch this one."""
    return [ref_of(each.watcher) for each in islice(process.monitors or (), _MOST_RELATED)]


def watched_by(process: Process) -> list[ProcessRef]:
    """The processes that this one watches."""
    return [_ref_of_pid(process.node, each.pid, each.name) for each in islice(process.watching or (), _MOST_RELATED)]


def mailbox_of(process: Process) -> list[MailboxLine]:
    """The first messages that wait: methods by name, and what they carry by kind and size alone."""
    return [MailboxLine(text=message_text(entry)) for entry in islice(process.mailbox or (), _MOST_MESSAGES)]


def message_text(entry: Sequence[Any]) -> str:
    """A message that waits, in one line."""
    kind = KINDS_OF_MESSAGES.get(entry[0], "message")
    if kind in ("call", "cast") and len(entry) > 2 and callable(entry[1]):  # noqa: PLR2004 - method, arguments, …
        arguments = [shape_text(each) for each in islice(entry[2], _MOST_PARTS)]
        return f"{kind} {visible(getattr(entry[1], '__name__', '…'), _LONGEST)}({', '.join(arguments)})"
    return f"{kind} {shape_text(entry[1] if len(entry) > 1 else None)}"


def shape_text(value: Any) -> str:
    """A value by its kind and size alone. A message has no names beside its values, so that a secret in it could not be told from other texts."""
    kind = cast("Any", type(value))
    if value is None or kind is bool or kind is Pid:
        return str(value)
    size = f" of {len(value)}" if kind in _SIZED else ""
    return f"<{visible(kind.__qualname__, _LONGEST)}{size}>"


KINDS_OF_MESSAGES: Final = {
    CALL: "call",
    CAST: "cast",
    ASK: "call",
    TELL: "cast",
    INFO: "message",
    SIGNAL: "signal",
    SYSTEM: "system",
    STOP: "stop",
    INIT: "init",
    CONTINUE: "continue",
    TIMEOUT: "timeout",
    TERMINATE: "terminate",
}


def state_of(process: Process) -> tuple[str, list[Field]]:
    """What a process says of its state, and its fields."""
    report, fields = peek_state(process)
    shown = [
        Field(name=visible(name, _LONGEST), value=value_text(name, each))
        for name, each in islice(fields.items(), _MOST_FIELDS)
    ]
    return masked_text(report, _LONGEST), shown


def value_text(name: str, value: Any, depth: int = 0) -> str:
    """A value by its kind: texts and numbers as they are, shortened; a collection with its size and its first members; of anything else the name of its class.

    No code of the value's class is run, so that a large or odd value costs nothing.
    """
    kind = cast("Any", type(value))
    if value is not None and kind is not bool and is_secret_name(name):
        return HIDDEN
    if value is None or kind is bool or kind is float:
        return repr(value)
    if kind is int:
        return repr(value) if -(10**18) < value < 10**18 else f"<int of {value.bit_length()} bits>"
    if kind is str:
        return repr(masked_text(value, _LONGEST))
    if kind is bytes or kind is bytearray:
        return f"<{kind.__name__} of {len(value)}>"
    if kind is Pid:
        return str(value)
    if issubclass(kind, Enum):  # not `isinstance`, which asks the value for its class
        return visible(f"{kind.__name__}.{value._name_}", _LONGEST)
    if kind in (list, tuple, set, frozenset, dict):
        return _collection_text(value, depth)
    return f"<{visible(kind.__qualname__, _LONGEST)}>"


def _collection_text(value: Any, depth: int) -> str:
    kind = cast("Any", type(value))
    opening, closing = _BRACKETS.get(kind, ("{", "}"))
    if not value:
        return f"{kind.__name__}()" if kind in (set, frozenset) else f"{opening}{closing}"
    if depth:
        return f"<{kind.__name__} of {len(value)}>"
    if kind is dict:
        parts = [
            f"{value_text('', key, 1)}: {value_text(key if type(key) is str else '', each, 1)}"
            for key, each in islice(value.items(), _MOST_PARTS)
        ]
    else:
        name = ""
        parts = list[str]()
        for each in islice(value, _MOST_PARTS):
            parts.append(value_text(name, each, 1))
            name = each if type(each) is str and each.startswith("-") else ""  # the words of a command
    more = f", … {len(value)} in all" if len(value) > _MOST_PARTS else ""
    return f"{opening}{', '.join(parts)}{more}{closing}"


_SIZED: Final = (str, bytes, bytearray, list, tuple, set, frozenset, dict)
_BRACKETS: Final[dict[Any, tuple[str, str]]] = {list: ("[", "]"), tuple: ("(", ")")}


def stack_of(process: Process) -> str:
    """Where the code of a process waits: that of its handler, or of the tasks that it has started."""
    tasks = [] if process.worker is None else [process.worker]
    tasks += [each for each in islice(process.tasks or (), _MOST_PARTS) if each is not process.worker]
    stacks = [task_lines(each) for each in tasks if not each.done()]
    return visible("\n".join(filter(None, stacks))[:_LONGEST_STACK], lines=True)


def supervisor_facts(process: Process) -> SupervisorFacts | None:
    """What a supervisor does when a child ends; None for another process."""
    behaviour = process.behaviour.inner
    window = behaviour.restart_window if isinstance(behaviour, BaseSupervisor) else None
    if window is None or not isinstance(behaviour, BaseSupervisor):
        return None
    return SupervisorFacts(
        strategy=behaviour.strategy_text(),
        intensity=window.intensity,
        period=window.period,
        left=window.left(clock.now(process.node.loop)),
        children=sum(1 for _ in behaviour.children()),
    )


def acts_on(process: Process, index: ProcessIndex) -> list[str]:
    """What can be done to a process: whatever has no supervisor that knows its id cannot be restarted."""
    if process.life:
        return []
    found = index.supervisor_of(process)
    is_child = (
        found is not None and isinstance(found[0].behaviour.inner, Supervisor) and found[1].spec.restart != "temporary"
    )
    is_kept = found is not None and found[1].spec.restart == "permanent"
    return ["kill", *(["restart"] if is_child or is_kept else [])]
