"""Writes the reference of the `supervision` package from its docstrings: `python tests/docs/reference.py`.

Each public name stands under the theme of its module, with the first paragraph of its docstring. A test fails when a name is missing.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from collections import defaultdict
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import greenroom.supervision as room
from greenroom.supervision import GreenroomError, Report, cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[2]
FOLDER = "docs/reference"

THEMES: dict[str, tuple[str, ...]] = {
    "A node": ("kernel.node", "kernel.process_lookup", "background_node"),
    "Starting": ("behaviours.process_start",),
    "Servers": ("behaviours.gen_server",),
    "Calls": ("behaviours.refs", "behaviours.replies"),
    "Processes": (
        *("kernel.process", "kernel.api", "kernel.process_messages", "kernel.links"),
        *(f"behaviours.task.{name}" for name in ("Inbox", "inbox", "receive", "spawn", "spawn_link", "spawn_monitor")),
    ),
    "Names": (
        *(f"kernel.process_lookup.{name}" for name in ("On", "Via", "register", "registered", "unregister", "whereis")),
        "registry",
    ),
    "Supervisors": (
        "supervisors.supervisor",
        "supervisors.supervisor_base",
        "supervisors.dynamic_supervisor",
        "supervisors.partition_supervisor",
        "supervisors.child_spec",
    ),
    "Tasks": ("behaviours.task", "behaviours.threads", "task_supervisor"),
    "Groups and limits": ("groups", "limiters"),
    "Inspection": ("supervisors.supervision_tree", "introspect", "logs"),
    "Exit reasons": (
        *(
            f"kernel.process_messages.{name}"
            for name in (
                *("ExitReason", "Normal", "Shutdown", "Crash", "Killed", "NoProcess", "NoConnection", "is_orderly"),
                *("NORMAL", "SHUTDOWN", "KILLED", "NO_PROCESS", "NO_CONNECTION"),
            )
        ),
        "supervisors.supervisor_base.GAVE_UP",
    ),
    "Reports": ("kernel.reports", "supervisors.supervisor_reports"),
    "Errors": ("kernel.errors",),
}
"""The themes in the order of the page, each with its modules or single names; all other names stand under `REST`."""

REST = "Further"
MEMBERS: dict[str, tuple[str, ...]] = {
    "BackgroundNode": ("run", "start", "start_with", "call", "ask", "stop"),
    "Caller": ("pid", "over", "reply", "fail"),
    "ChildSpec": ("but",),
    "GenServer": (
        *("init", "handle_call", "handle_cast", "handle_info", "handle_continue", "terminate", "report_state"),
        *("pid", "process", "caller", "ref", "report_unexpected"),
    ),
    "Inbox": ("pid", "receive", "pending"),
    "Node": ("open", "close", "now"),
    "Options": ("but", "start", "start_link", "start_monitor"),
    "Ref": ("pid", "within", "call", "cast", "ask", "tell", "send"),
    "Request": ("done", "wait", "abandon"),
    "Requests": ("add", "next", "abandon"),
    "Supervisor": ("on_restart",),
    "Task": ("pid", "outcome", "wait", "poll", "shutdown", "ignore"),
    "Threads": ("run", "running", "waiting"),
    "Timer": ("cancel",),
    "Via": ("whereis", "register", "unregister"),
}
"""Classes whose members are listed, and which members."""

MADE_BY_HAND = {
    "BackgroundNode",
    "DynamicSupervisor",
    "Node",
    "PartitionSupervisor",
    "RateLimiter",
    "Ref",
    "Registry",
    "Semaphore",
    "Supervisor",
    "TaskSupervisor",
    "Threads",
}
"""Classes that users construct: the page shows their parameters, as it does for every dataclass."""

DETAILS = {
    "Exit reasons": "[Exit reasons](reasons.md) says how each of them affects links and restarts.",
    "Reports": "[Reports](reports.md) lists their fields.",
    "Errors": "[Errors](errors.md) draws their tree.",
}

NODE_MEMBERS = {
    "Cluster": ("child_spec", "start_node", "machines", "peers"),
    "ClusterMembership": ("machines", "here", "watch", "unwatch"),
    "NodeOwner": ("node_name", "process_id"),
    "Peers": (
        *("addresses", "connect", "introduce", "forget", "connected", "wait_for"),
        *("watch", "unwatch", "disconnect", "allow_silence", "end", "closed"),
    ),
}
"""Classes of the cluster package whose members are listed, and which members."""

WIDTH = 138


def homes() -> dict[str, str]:
    """Every public name, and the module that the package imports it from."""
    source = Path(inspect.getfile(room)).read_text(encoding="utf-8")
    found = {
        alias.asname or alias.name: node.module or alias.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ImportFrom) and (node.level or node.module == GreenroomError.__module__)
        for alias in node.names
    }
    return {name: found[name] for name in room.__all__}


def by_theme() -> dict[str, list[str]]:
    """The names of each theme, as they stand on the page."""
    sorted_out: defaultdict[str, list[str]] = defaultdict(list)
    for name, module in homes().items():
        sorted_out[_theme(module, name)].append(name)
    return {theme: sorted(sorted_out[theme], key=_by_kind) for theme in (*THEMES, REST) if sorted_out[theme]}


def _theme(module: str, name: str) -> str:
    value = getattr(room, name)
    if isinstance(value, type) and issubclass(value, GreenroomError):
        return "Errors"
    taken = {each: theme for theme, parts in THEMES.items() for each in parts}
    parts = f"{module}.{name}".split(".")
    wholes = (".".join(parts[:end]) for end in range(len(parts), 0, -1))
    return next((taken[each] for each in wholes if each in taken), REST)


def _by_kind(name: str) -> tuple[int, str]:
    value = getattr(room, name)
    return (0 if isinstance(value, type) else 1 if isinstance(value, FunctionType) else 2, name)


def sentence(value: object) -> str:
    """The first sentence of the docstring, or the value of a constant or type alias."""
    if isinstance(value, type | FunctionType | ModuleType | property):
        first = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
        return first.replace("``", "`")
    if get_args(value):
        return f"`{' | '.join(_alternatives(value))}`."
    return f"`{value!r}`."


def _alternatives(alias: object) -> Iterator[str]:
    if get_origin(alias) is Literal:
        yield from (f'"{word}"' for word in get_args(alias))
        return
    for each in get_args(alias):
        if isinstance(each, type):
            yield each.__name__
        elif get_origin(each) is Literal:
            yield from _alternatives(each)
        else:
            yield getattr(get_origin(each), "__name__", str(each))


def index() -> str:
    """The page of all names."""
    lines = [
        "# The supervision package",
        "",
        "This page lists every name that `greenroom.supervision` exports, by theme, with its parameters and a summary. It is for programmers of",
        "processes and supervision trees; [your first tree](../tutorial/first-tree.md) introduces them.",
        "",
        "- To see the whole docstring of a name, use `help()`.",
        "- The names for tests are in `greenroom.supervision.testing` ([how to](../how-to/test-an-actor.md)).",
        "- The names for several nodes are in `greenroom.supervision.cluster` ([list](nodes.md)).",
        "",
        "`python tests/docs/reference.py` writes this page from the docstrings.",
    ]
    for theme, names in by_theme().items():
        lines += ["", f"## {theme}", ""]
        if theme in DETAILS:
            lines += [DETAILS[theme], ""]
        words = [f"`{name}`" for name in names if isinstance(getattr(room, name), str)]
        for name in names:
            value: object = getattr(room, name)
            if isinstance(value, str):
                continue
            lines += entry(f"`{shown(name, value)}`", sentence(value))
            for member in MEMBERS.get(name, ()):
                found = inspect.getattr_static(value, member)
                lines += entry(f"`{shown(member, found)}`", sentence(found), "  ")
        if words:
            lines += entry(
                ", ".join(words),
                "Constants for the values of specs and flags. The strings are accepted as well.",
            )
    return "\n".join(lines) + "\n"


def shown(name: str, value: object) -> str:
    """The name with the parameters of a function, or of a class that users construct."""
    made = isinstance(value, type) and (is_dataclass(value) or name in {*MADE_BY_HAND, "Cluster", "Peers", "Peering"})
    return f"{name}{parameters(value)}" if made or isinstance(value, FunctionType) else name


def parameters(function: Any) -> str:
    """The parameters of a function, without their types and without `self`."""
    found: list[str] = []
    star = False
    for each in inspect.signature(function).parameters.values():
        if each.name in ("self", "cls") and not found:
            continue
        name = each.name
        if each.kind is each.VAR_POSITIONAL:
            name, star = f"*{name}", True
        elif each.kind is each.VAR_KEYWORD:
            name = f"**{name}"
        elif each.kind is each.KEYWORD_ONLY and not star:
            found.append("*")
            star = True
        if each.default is not each.empty:
            name += f"={_short(each.default)}"
        found.append(name)
    return f"({', '.join(found)})"


def _short(value: object) -> str:
    text = repr(value)
    return "…" if len(text) > 30 or text.startswith("<") else text


def entry(name: str, text: str, indent: str = "") -> list[str]:
    """A bullet, wrapped as the other pages are."""
    words = f"- {name}: {text}".split(" ")
    lines: list[str] = []
    line = indent
    for word in words:
        extended = f"{line}{word}" if not line.strip() else f"{line} {word}"
        if len(extended) > WIDTH and line.strip():
            lines.append(line)
            extended = f"{indent}  {word}"
        line = extended
    return [*lines, line]


def errors() -> str:
    """The page of errors: their tree, and a sentence for each."""
    public = {getattr(room, name) for name in room.__all__}
    known = [each for each in public if isinstance(each, type) and issubclass(each, BaseException)]
    lines = [
        "# Errors",
        "",
        "This page lists the exceptions of `greenroom.supervision`: their class tree, and the meaning of each.",
        "",
        "- Every exception that a caller gets from greenroom is a `GreenroomError`.",
        "- Two are for handlers to raise: `Quit(reason)` ends the process with that reason, and `Reject(error)` gives that error to the caller.",
        "- Many have attributes with more facts than their text; `help()` lists them.",
        "- Exceptions are for callers. Between processes, an [exit reason](reasons.md) says why a process ended.",
        "",
        "`python tests/docs/reference.py` writes this page.",
        "",
        "```text",
        *_branches(GreenroomError, known),
        "```",
        "",
    ]
    for name in sorted(each.__name__ for each in known):
        lines += entry(f"`{name}`", sentence(getattr(room, name)))
    return "\n".join(lines) + "\n"


def _branches(root: type, known: Sequence[type], indent: str = "") -> list[str]:
    lines = [root.__name__] if not indent else []
    below = sorted((each for each in known if root in each.__bases__), key=lambda each: each.__name__)
    for each in below:
        last = each is below[-1]
        lines.append(f"{indent}{'└─' if last else '├─'} {each.__name__}")
        deeper = f"{indent}{'   ' if last else '│  '}"
        lines += _branches(each, known, deeper)
    return lines


def reports() -> str:
    """The page of reports: each with its fields."""
    lines = [
        "# Reports",
        "",
        "A report is an event of a node: a crash, a restart, a blocked event loop. This page lists the types of reports and their fields. All are",
        "frozen dataclasses; [watch the reports](../how-to/watch-the-reports.md) shows how to subscribe to them. `python tests/docs/reference.py` writes",
        "this page.",
    ]
    first = ("Report", "SupervisorReport", "Offender")
    for name in (*first, *(name for name in by_theme()["Reports"] if name not in first)):
        report: type = getattr(room, name)
        lines += ["", f"## {name}", "", sentence(report)]
        if not is_dataclass(report):
            continue
        bases: tuple[type, ...] = report.__bases__
        inherited = {field.name for base in bases if is_dataclass(base) for field in fields(base)}
        own = [field for field in fields(report) if field.name not in inherited]
        if issubclass(report, Report) and report is not Report:
            lines += ["", f"It has the fields of `{bases[0].__name__}`" + (", and:" if own else ".")]
        lines += ["", "| Field | Type | Default |", "| --- | --- | --- |"] if own else []
        for field in own:
            default = "" if field.default is MISSING else f"`{field.default!r}`"
            kind = str(field.type).replace("|", "\\|")
            lines.append(f"| `{field.name}` | `{kind}` | {default} |")
    return "\n".join(lines) + "\n"


def nodes() -> str:
    """The page of the names for several nodes."""
    lines = [
        "# Several nodes",
        "",
        "This page lists every name that `greenroom.supervision.cluster` exports: links between nodes, nodes in processes of their own, and nodes on",
        "other machines. `On(name, node)` and all functions that take a `Ref` or a pid are in [the supervision package](supervision.md).",
        "`python tests/docs/reference.py` writes this page.",
    ]
    engine = {name for names in cluster._HOMES.values() for name in names.split()}
    for title, about, names in (
        (
            "Links",
            "A link connects two nodes. Calls, messages, links and monitors of processes work over it ([how to](../how-to/use-several-nodes.md)).",
            set(cluster.__all__) - engine,
        ),
        (
            "Processes and machines",
            (
                "A cluster starts nodes in processes of their own, on this machine and on others ([how to](../how-to/use-several-machines.md)). "
                "A *convention* is Thespian's word for machines that know each other."
            ),
            engine,
        ),
    ):
        lines += ["", f"## {title}", "", about, ""]
        for name in sorted(names, key=lambda name: (not isinstance(getattr(cluster, name), type), name)):
            value: object = getattr(cluster, name)
            lines += entry(f"`{shown(name, value)}`", sentence(value))
            for member in NODE_MEMBERS.get(name, ()):
                found = inspect.getattr_static(value, member)
                lines += entry(f"`{shown(member, found)}`", sentence(found), "  ")
    return "\n".join(lines) + "\n"


PAGES = {"supervision.md": index, "errors.md": errors, "reports.md": reports, "nodes.md": nodes}


def missing(page: str) -> list[str]:
    """Public names without an entry, and entries without a public name."""
    whole = re.sub(r"\n +(?!- )", " ", page)
    heads = [line.partition("`:")[0] for line in whole.splitlines() if line.startswith("- `")]
    listed = {name for head in heads for name in re.findall(r"(?:^- |, )`(\w+)", head)}
    public = set(room.__all__)
    return [f"{name} is missing" for name in sorted(public - listed)] + [
        f"{name} is not exported" for name in sorted(listed - public)
    ]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the pages."""
    argparse.ArgumentParser(description="Write the reference of the supervision package.").parse_args(arguments)
    for name, write in PAGES.items():
        (root / FOLDER / name).write_text(write(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
