"""The packages, what each imports and what it costs to load, as text for the page of the house: `python -m tests.house --write`.

Everything is read from the code but `GIVES`. A unit is a package, or a single module that has a floor of its own (`greenroom.errors`).
An import counts when it can run: those for type checkers do not.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from .rules import CELLAR, FLOORS, LOFT, floor
from .tree import for_checkers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from .tree import Import, Tree

PAGE: Final = "docs/explanation/the-house.md"
COMMAND: Final = "python -m tests.house --write"
BEGIN: Final = f"<!-- {{}}: {COMMAND} -->"
END: Final = "<!-- end of {} -->"
WIDTH: Final = 118
DOOR: Final = "the front door"

GIVES: Final[dict[str, str]] = {
    "greenroom": "`Server`, `Client`, `Host`, `run`; the same for synchronous code and for Thespian; several workers",
    "actors": "what a server consists of: registry, sessions, workers, tasks, subscriptions",
    "actors.client": "one connection to a server, which is kept alive",
    "actors.consent": "for a host: which tools may be called, and what the user is asked before",
    "actors.elicitation": "for a host: questions of servers to the user, and forms as fields of a window",
    "actors.ensemble": "one server on several nodes, with each session on one of them",
    "actors.federation": "many upstream servers under one supervisor, each with its breaker and its limits",
    "actors.gateway": "many upstream servers as one server",
    "actors.guest": "Thespian programs as users of servers, and Thespian actors as tools",
    "actors.mentions": "for a host: `@server:resource` in what a user types",
    "actors.output": "for a host: how much of an answer a model is given, and where the rest is kept",
    "actors.pools": "tools that run in processes of their own",
    "auth": "who may call a server: API keys, passwords, tokens, scopes",
    "auth.client": "signing in elsewhere: OAuth, device codes, token stores",
    "auth.testing": "an authorization server for tests",
    "cli": "the command `greenroom`",
    "config": "servers in files: reading, checking, and starting and stopping what has changed",
    "errors": "the root of all exceptions",
    "lazy": "names that a package loads when they are first used",
    "moved": "old paths of modules and names",
    "protocol": "the messages of MCP: types, checks, JSON, versions; no process, no socket, no clock",
    "pytest_plugin": "fixtures of the testing kit",
    "supervision": "the public names of the packages below it; groups, limits, tracing, a node in a thread",
    "supervision.behaviours": "`GenServer`, calls and casts, tasks, threads",
    "supervision.cluster": "links between nodes, nodes in other processes and on [other machines](../how-to/use-several-machines.md)",
    "supervision.kernel": "processes, links, monitors, timers, mailboxes, exit reasons",
    "supervision.statem": "state machines",
    "supervision.supervisors": "supervisors, restart strategies, back-off",
    "supervision.testing": "virtual time, a seeded order of messages, faults",
    "testing": "the testing kit by its public names, and servers that misbehave",
    "transports": "a server's end of HTTP and stdio",
    "transports.client": "a client's end of HTTP, stdio and memory",
}
"""What each package is good for; a package that is missing here, or that is gone, fails the test."""

STARTS: Final = ("Server", "Client", "Host")
"""Names of the front door whose cost is told as well: with each, a program of some kind begins."""


class Cost(NamedTuple):
    """What is loaded."""

    modules: int
    size: int
    """Bytes of source."""
    others: tuple[str, ...] = ()
    """Third parties."""

    def __str__(self) -> str:
        return f"{self.modules} module{'s' * (self.modules != 1)}, {round(self.size / 1000)} KB"


class Graph:
    """Units, and what imports what."""

    def __init__(self, tree: Tree) -> None:
        """Read all imports."""
        self.sources = {source.module: source for source in tree.sources}
        self.needs: dict[str, set[str]] = {}
        """By unit, which units its modules import whenever they are loaded."""
        self.later: dict[str, set[str]] = {}
        """By unit, which others its functions import when they run."""
        self._loads = {module: set(self._targets(source.loads_at_once)) for module, source in self.sources.items()}
        self.members: dict[str, list[str]] = defaultdict(list)
        for module in self.sources:
            self.members[self.unit(module)].append(module)
        for unit, modules in self.members.items():
            first = {self.unit(each) for module in modules for each in self._loads[module] & self.sources.keys()}
            running = {each for module in modules for each in self._targets(self.sources[module].loads)}
            self.needs[unit] = first - {unit}
            self.later[unit] = {self.unit(each) for each in running & self.sources.keys()} - first - {unit}

    def unit(self, module: str) -> str:
        """Which unit a module belongs to."""
        if module in CELLAR or module in {f"greenroom.{name}" for name in LOFT}:
            return module
        return self.sources[module].package

    def _targets(self, imports: Iterable[Import]) -> Iterator[str]:
        """The modules that are loaded by these, and the roots of third parties."""
        for found in imports:
            if found.root != "greenroom":
                if found.root not in sys.stdlib_module_names:
                    yield found.root
            elif found.whole in self.sources:
                yield found.whole
            else:
                yield found.target
                if home := self.homes(found.target).get(found.whole.rpartition(".")[2]):
                    yield home

    @cache  # noqa: B019 - a graph lives as long as the program
    def homes(self, package: str) -> Mapping[str, str]:
        """Where the names are that a package loads when they are first asked for: it imports them for type checkers alone."""
        source = self.sources.get(package)
        if source is None or "def __getattr__(" not in source.text:
            return {}
        return {
            found.whole.rpartition(".")[2]: found.target
            for node in source.nodes
            for statement in for_checkers(node)
            for found in source.imports_of(statement)
        }

    def cost(self, *modules: str) -> Cost:
        """Of loading these modules with everything that they import when they are loaded."""
        seen: set[str] = set()
        waiting = list(modules)
        while waiting:
            module = waiting.pop()
            if module in seen:
                continue
            seen.add(module)
            waiting += self._loads.get(module, ())
            if module.startswith("greenroom") and "." in module:
                waiting.append(module.rpartition(".")[0])
        ours = seen & self.sources.keys()
        others = tuple(sorted(each for each in seen - ours if not each.startswith("greenroom")))
        return Cost(len(ours), self.size(ours), others)

    def size(self, modules: set[str] | list[str]) -> int:
        """Bytes of source."""
        return sum(len(self.sources[module].text.encode()) for module in modules)

    def mutual(self) -> list[list[str]]:
        """Packages that import each other when they are loaded, directly or through others, the largest circle first."""
        reach = {unit: self._reach(unit) for unit in self.needs}
        circles = {tuple(sorted(each for each in reach[unit] if unit in reach[each])) for unit in reach}
        return sorted(([*circle] for circle in circles if len(circle) > 1), key=lambda circle: (-len(circle), circle))

    def _reach(self, unit: str) -> set[str]:
        seen: set[str] = set()
        waiting = [*self.needs[unit]]
        while waiting:
            each = waiting.pop()
            if each not in seen:
                seen.add(each)
                waiting += self.needs[each]
        return seen


def short(unit: str) -> str:
    """A unit without the name of the library."""
    return unit.removeprefix("greenroom.")


def floors(graph: Graph) -> Iterator[tuple[str, list[str]]]:
    """Floors from the top, each with its units; what loads more stands higher."""
    names = ["the cellar", *FLOORS, DOOR, ", ".join(LOFT)]
    by_floor: dict[int, list[str]] = defaultdict(list)
    for unit in graph.members:
        by_floor[0 if unit in CELLAR else floor(unit) + 1].append(unit)
    for number in sorted(by_floor, reverse=True):
        yield (
            names[number],
            sorted(by_floor[number], key=lambda unit: (-graph.cost(*graph.members[unit]).modules, unit)),
        )


def drawing(graph: Graph) -> str:
    """Floors as boxes: each unit, and what it imports. What only a function imports stands in brackets."""
    widest = max(len(short(unit)) for unit in graph.members)
    lines: list[str] = []
    for number, (name, units) in enumerate(floors(graph)):
        lines.append(f"{'├' if number else '┌'}─ {name} ".ljust(WIDTH, "─") + ("┤" if number else "┐"))
        for unit in units:
            needed = ", ".join(sorted(map(short, graph.needs[unit])))
            later = ", ".join(sorted(map(short, graph.later[unit])))
            text = " ".join(each for each in (needed, f"[{later}]" if later else "") if each) or "nothing"
            rows = textwrap.wrap(text, WIDTH - widest - 7, break_long_words=False)
            for row, rest in enumerate(rows):
                lead = short(unit) if not row else ""
                lines.append(f"│ {lead:{widest}}  {'→' if not row else ' '} {rest}".ljust(WIDTH) + "│")
    lines.append("└".ljust(WIDTH, "─") + "┘")
    return "\n".join(["```text", *lines, "```", "", *_circles(graph)])


def _circles(graph: Graph) -> list[str]:
    circles = graph.mutual()
    if not circles:
        return ["No packages import each other when they are loaded."]
    named = [", ".join(f"`{short(unit)}`" for unit in circle) for circle in circles]
    return [
        "Packages that import each other when they are loaded, directly or through others:",
        "",
        *(f"- {each}" for each in named),
    ]


def table(graph: Graph) -> str:
    """What each unit gives, and what it costs to load all of it."""
    lines = [
        "| Package | Gives | Its own | Loaded in all | Third parties |",
        "| --- | --- | --- | --- | --- |",
    ]
    for _, units in floors(graph):
        for unit in units:
            modules = graph.members[unit]
            cost = graph.cost(*modules)
            own = Cost(len(modules), graph.size(modules))
            lines.append(f"| `{short(unit)}` | {GIVES[short(unit)]} | {own} | {cost} | {', '.join(cost.others)} |")
    lines += ["", "| A program that uses | loads | and of third parties |", "| --- | --- | --- |"]
    for name in STARTS:
        cost = graph.cost(graph.homes("greenroom")[name])
        lines.append(f"| `greenroom.{name}` | {cost} | {', '.join(cost.others)} |")
    return "\n".join(lines)


def unlisted(graph: Graph) -> list[str]:
    """Packages of which `GIVES` says nothing, and names in it that no package has."""
    units = set(map(short, graph.members))
    wrong = [f"tests/house/packages.py: GIVES says nothing of {unit}" for unit in sorted(units - GIVES.keys())]
    return wrong + [
        f"tests/house/packages.py: GIVES has {unit}, which is gone" for unit in sorted(GIVES.keys() - units)
    ]


def page(written: str, tree: Tree) -> str:
    """The page with both parts anew."""
    graph = Graph(tree)
    if wrong := unlisted(graph):
        raise SystemExit("\n".join(wrong))
    for name, text in (("the drawing", drawing(graph)), ("the table of packages", table(graph))):
        begin, end = BEGIN.format(name), END.format(name)
        before, found, rest = written.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise SystemExit(f"{PAGE}: no {end if found else begin}")
        written = f"{before}{begin}\n\n{text}\n\n{end}{after}"
    return written


_SIZE: Final = re.compile(r"(\d+) KB")
NEAR: Final = 0.1
"""How far a size may be off, as a part of itself: otherwise every change of the code would be one of the page."""


def current(written: str, fresh: str) -> bool:
    """Whether a page says what a fresh one would, sizes about."""
    sizes = zip(_SIZE.findall(written), _SIZE.findall(fresh), strict=False)
    return _SIZE.sub("", written) == _SIZE.sub("", fresh) and all(
        abs(int(old) - int(new)) <= max(2, NEAR * int(new)) for old, new in sizes
    )


def write(root: Path, tree: Tree) -> Path:
    """Put both parts into the page."""
    file = root / PAGE
    file.write_text(page(file.read_text(encoding="utf-8"), tree), encoding="utf-8")
    return file
