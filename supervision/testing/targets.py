"""Finds whom a fault means, in the tree as it is at that moment."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from greenroom.supervision.kernel.behaviour import Behaviour
from greenroom.supervision.supervisors.tree import tree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenroom.supervision.kernel.node import Node
    from greenroom.supervision.kernel.process import Process
    from greenroom.supervision.supervisors.tree import Branch

    from .plans import Fault


def find(node: Node, fault: Fault, but: Process | None = None) -> list[Process]:
    """Whoever that fault means now, in the order of their start; `but` is nobody's target."""
    whom = fault.whom
    if "/" in whom:
        fits = _by_path(whom)
    elif whom.startswith("@"):
        fits = _by_name(whom[1:])
    elif whom.startswith("#"):
        fits = _by_number(whom[1:])
    else:
        fits = _by_role(whom)
    found = [process for process in fits(node) if not process.life and process is not but]
    if fault.which == "all":
        return found
    return [found[fault.which]] if -len(found) <= fault.which < len(found) else []


def _by_role(role: str) -> Callable[[Node], list[Process]]:
    return lambda node: [
        process
        for process in node.processes.values()
        if fnmatchcase(process.label, role) or any(fnmatchcase(name, role) for name in _classes(process))
    ]


def _classes(process: Process) -> list[str]:
    """The classes that its behaviour is of, as far as they are somebody's own."""
    mro = type(process.behaviour.inner).__mro__
    return [cls.__name__ for cls in mro[: mro.index(Behaviour)]]


def _by_name(name: str) -> Callable[[Node], list[Process]]:
    return lambda node: [
        process
        for process in node.processes.values()
        if process.names and any(fnmatchcase(str(each), name) for each in process.names)
    ]


def _by_number(number: str) -> Callable[[Node], list[Process]]:
    def found(node: Node) -> list[Process]:
        process = node.processes.get(int(number)) if number.isdecimal() else None
        return [] if process is None else [process]

    return found


def _by_path(path: str) -> Callable[[Node], list[Process]]:
    return lambda node: _walk(node, [part for part in path.split("/") if part], anywhere=not path.startswith("/"))


def _walk(node: Node, parts: Sequence[str], *, anywhere: bool) -> list[Process]:
    """Everybody at the end of that path; it begins anywhere, or with a slash, at those whom nobody has started."""
    found: dict[int, Process] = {}
    seen: set[tuple[int, int]] = set()
    root = tree()
    waiting: list[tuple[Branch, int]] = [(each, 0) for each in root.children]
    while waiting:
        branch, at = waiting.pop()
        if (id(branch), at) in seen:
            continue
        seen.add((id(branch), at))
        if anywhere and at == 0:
            waiting += [(each, 0) for each in branch.children]
        if parts[at] == "**":
            waiting += [(each, at) for each in branch.children]
            if at + 1 < len(parts):
                waiting.append((branch, at + 1))
                continue
        elif not _is_called(branch, parts[at]):
            continue
        if at + 1 < len(parts):
            waiting += [(each, at + 1) for each in branch.children]
        elif branch.pid is not None and (process := node.process(branch.pid)) is not None:
            found[branch.pid.serial] = process
    return [found[serial] for serial in sorted(found)]


def _is_called(branch: Branch, part: str) -> bool:
    known = (branch.id, branch.name, branch.label)
    return any(each is not None and fnmatchcase(str(each), part) for each in known)
