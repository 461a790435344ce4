"""The packages, what each imports and what it costs to load, as text for the page `the-house.md`: `python -m tests.house --write`.

Everything is read from the code, except `PURPOSES`. A unit is a package, or a single module with a layer of its own (`greenroom.errors`).
An import counts when it can run: those for type checkers do not.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from .rules import BASE_MODULES, LAYERS, TOP_PACKAGES, layer_of
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
FRONT_DOOR: Final = "the front door"

PURPOSES: Final[dict[str, str]] = {
    "greenroom": "`Server`, `Client`, `Host`, `run`; the same for synchronous code and for Thespian; several workers",
    "actors": "the processes of a server: registry, sessions, workers, tasks, subscriptions",
    "actors.client": "one connection to a server, which is opened again when it is lost",
    "actors.consent": "for a host: which tools may be called, and which calls the user has to approve",
    "actors.elicitation": "for a host: questions of servers to the user, and forms as fields of a user interface",
    "actors.ensemble": "one server on several nodes, with each session on one of them",
    "actors.federation": "many upstream servers under one supervisor, each with its own breaker and limits",
    "actors.gateway": "many upstream servers as one server",
    "actors.thespian_guests": "Thespian programs as clients of a server, and Thespian actors as tools",
    "actors.mentions": "for a host: `@server:resource` in what a user types",
    "actors.output": "for a host: limits on how much of a result a model receives, and where the rest is kept",
    "actors.pools": "tools that run in processes of their own",
    "auth": "authentication of a server's callers: API keys, passwords, tokens, scopes",
    "auth.client": "sign-in of a client at other servers: OAuth, device codes, token stores",
    "auth.testing": "an authorization server for tests",
    "cli": "the command `greenroom`",
    "config": "configuration files: reading and checking them, and starting and stopping the servers that have changed",
    "errors": "the root of all exceptions",
    "event_types": "all events of a program",
    "lazy_names": "names that a package loads when they are first used",
    "moved": "old module paths and public names, and their replacements",
    "observe": "a running program, seen: metrics, traces, the admin listener and its pages",
    "protocol": "the messages of MCP: types, checks, JSON, versions; no process, no socket, no clock",
    "pytest_plugin": "fixtures of the testing kit",
    "supervision": "the public names of the packages below it; groups, limits, tracing, a node in a thread",
    "supervision.behaviours": "`GenServer`, calls and casts, tasks, threads",
    "supervision.cluster": "links between nodes; nodes in other processes and on [other machines](../how-to/use-several-machines.md)",
    "supervision.kernel": "processes, links, monitors, timers, mailboxes, exit reasons",
    "supervision.statem": "state machines",
    "supervision.supervisors": "supervisors, restart strategies, back-off",
    "supervision.testing": "virtual time, a seeded order of messages, injected faults",
    "testing": "the testing kit by its public names, and servers that misbehave",
    "transports": "a server's end of HTTP and stdio",
    "transports.client": "a client's end of HTTP, stdio and memory",
}
"""The purpose of each package. A package that is missing here, or that no longer exists, fails the test."""

STARTS: Final = ("Server", "Client", "Host")
"""Public names whose cost is shown as well: a program usually begins with one of them."""


class Cost(NamedTuple):
    """The number and size of modules that are loaded."""

    modules: int
    size: int
    """Bytes of source."""
    others: tuple[str, ...] = ()
    """Third-party packages."""

    def __str__(self) -> str:
        return f"{self.modules} module{'s' * (self.modules != 1)}, {round(self.size / 1000)} KB"


class Graph:
    """All units, and the imports between them."""

    def __init__(self, tree: Tree) -> None:
        """Reads all imports of the tree."""
        self.sources = {source.module: source for source in tree.sources}
        self.needs: dict[str, set[str]] = {}
        """By unit, the units that its modules import when they are loaded."""
        self.later: dict[str, set[str]] = {}
        """By unit, the other units that its functions import when they run."""
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
        """The unit of a module."""
        if module in BASE_MODULES or module in {f"greenroom.{name}" for name in TOP_PACKAGES}:
            return module
        return self.sources[module].package

    def _targets(self, imports: Iterable[Import]) -> Iterator[str]:
        """The modules that these imports load, and the root names of third-party packages."""
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
        """The modules of the names that a package loads on first use: it imports them for type checkers alone."""
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
        """The cost of these modules, with everything that they import when they are loaded."""
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

    def import_cycles(self) -> list[list[str]]:
        """Packages that import each other when they are loaded, directly or through others, the largest cycle first."""
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
    """A unit's name without `greenroom.`."""
    return unit.removeprefix("greenroom.")


def units_by_layer(graph: Graph) -> Iterator[tuple[str, list[str]]]:
    """The layers from the top, each with its units; units that load more come first."""
    names = ["base modules", *LAYERS, FRONT_DOOR, ", ".join(TOP_PACKAGES)]
    by_layer: dict[int, list[str]] = defaultdict(list)
    for unit in graph.members:
        by_layer[0 if unit in BASE_MODULES else layer_of(unit) + 1].append(unit)
    for number in sorted(by_layer, reverse=True):
        yield (
            names[number],
            sorted(by_layer[number], key=lambda unit: (-graph.cost(*graph.members[unit]).modules, unit)),
        )


def drawing(graph: Graph) -> str:
    """The layers as boxes: each unit, and what it imports. Imports inside of functions are in brackets."""
    widest = max(len(short(unit)) for unit in graph.members)
    lines: list[str] = []
    for number, (name, units) in enumerate(units_by_layer(graph)):
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
    return "\n".join(["```text", *lines, "```", "", *_cycle_lines(graph)])


def _cycle_lines(graph: Graph) -> list[str]:
    circles = graph.import_cycles()
    if not circles:
        return ["No packages import each other when they are loaded."]
    named = [", ".join(f"`{short(unit)}`" for unit in circle) for circle in circles]
    return [
        "Packages that import each other when they are loaded, directly or through others:",
        "",
        *(f"- {each}" for each in named),
    ]


def table(graph: Graph) -> str:
    """The purpose of each unit, and the cost of loading all of it."""
    lines = [
        "| Package | For | Its own | Loaded in all | Third parties |",
        "| --- | --- | --- | --- | --- |",
    ]
    for _, units in units_by_layer(graph):
        for unit in units:
            modules = graph.members[unit]
            cost = graph.cost(*modules)
            own = Cost(len(modules), graph.size(modules))
            lines.append(f"| `{short(unit)}` | {PURPOSES[short(unit)]} | {own} | {cost} | {', '.join(cost.others)} |")
    lines += ["", "| A program that uses | loads | third parties |", "| --- | --- | --- |"]
    for name in STARTS:
        cost = graph.cost(graph.homes("greenroom")[name])
        lines.append(f"| `greenroom.{name}` | {cost} | {', '.join(cost.others)} |")
    return "\n".join(lines)


def unlisted(graph: Graph) -> list[str]:
    """Packages without a line in `PURPOSES`, and lines in it without a package."""
    units = set(map(short, graph.members))
    wrong = [f"tests/house/packages.py: PURPOSES has no line for {unit}" for unit in sorted(units - PURPOSES.keys())]
    return wrong + [
        f"tests/house/packages.py: PURPOSES has {unit}, which does not exist"
        for unit in sorted(PURPOSES.keys() - units)
    ]


def page(written: str, tree: Tree) -> str:
    """The page with both parts written again."""
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
SIZE_TOLERANCE: Final = 0.1
"""The relative difference of a size that is tolerated: otherwise every change of the code would change the page."""


def current(written: str, fresh: str) -> bool:
    """Whether a page equals a fresh one, with a tolerance for sizes."""
    sizes = zip(_SIZE.findall(written), _SIZE.findall(fresh), strict=False)
    return _SIZE.sub("", written) == _SIZE.sub("", fresh) and all(
        abs(int(old) - int(new)) <= max(2, SIZE_TOLERANCE * int(new)) for old, new in sizes
    )


def write(root: Path, tree: Tree) -> Path:
    """Write both parts into the page."""
    file = root / PAGE
    file.write_text(page(file.read_text(encoding="utf-8"), tree), encoding="utf-8")
    return file
