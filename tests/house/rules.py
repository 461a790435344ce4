"""The rules for the code of the repository. Each rule takes a tree and returns its violations as `path:line: why`; an empty list means that the rule is kept."""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from .tree import FRONT_DOOR_FOLDER, ROOMS, Import, Source, Tree, module_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LAYERS = ("supervision", "protocol", "transports", "auth", "actors", "config")
"""The rooms, from the lowest layer up. The front door is above them, and `TOP_PACKAGES` are above the front door."""

BASE_MODULES = ("greenroom.errors", "greenroom.event_types", "greenroom.lazy_names", "greenroom.moved")
"""Modules below the lowest layer. Every module may import them, and they import no other module of greenroom."""

TOP_PACKAGES = ("cli", "pytest_plugin", "testing")
"""Parts of `src/greenroom` that may import the front door."""

SUPERVISION_LAYERS = ("kernel", "behaviours", "supervisors")
"""The layers inside `supervision`. Above them are its single modules and `cluster`, then its `__init__`."""

IMPORTED_ANYWHERE = {"anyio", "msgspec"}
"""Third parties that any file may import: they are used like the standard library, and are not meant to be replaced."""

IMPORTER_FOLDERS = {
    "h2": "transports/",
    "httpx": "transports/",
    "hypercorn": "transports/",
    "hypothesis": "supervision/",
    "pytest": f"{FRONT_DOOR_FOLDER}/",
    "quart": "transports/",
    "thespian": "supervision/cluster/",
}
"""By third party: the folder of the one file that imports it, if that is prescribed."""

ENGINE_IMPORTERS = {
    "supervision.cluster.thespian_patches": {
        "supervision.cluster.thespian_system",
        "supervision.cluster.daemon_main",
        "supervision.cluster.foreign_actor",
        "actors.thespian_guests.guest",
        "actors.thespian_guests.guest_messages",
    },
    "supervision.cluster.thespian_system": {"supervision.cluster.daemon_main"},
}
"""The modules that use Thespian, each with the modules that may import it. All other code uses `ProcessSystem`, so that the engine of OS processes can be replaced. The
fork server is that engine, and the daemon starts it; the other importers talk to the Thespian systems of users."""

TEST_LIBRARIES = {"hypothesis", "pytest"}
"""Third parties of the extra `testing`: a test run loads them, a user's program does not."""

MOST_LINES = 700
LONG_FILES: dict[str, str] = {}
"""Files with more than `MOST_LINES` lines, each with the reason why it is still one idea."""


def layers(tree: Tree) -> list[str]:
    """A module imports from its own layer and those below; `protocol` imports no other room."""
    return [
        f"{source.path}:{found.line}: {source.module} imports {found.target}, which is in a higher layer"
        for source in tree.sources
        for found in source.imports
        if found.root == "greenroom" and not _may_import(source.module, found.target)
    ]


def _may_import(importer: str, target: str) -> bool:
    if target in BASE_MODULES:
        return True
    if importer in BASE_MODULES:
        return False
    room = _room(importer)
    if room == "protocol" and _room(target) != "protocol":
        return False
    if room == _room(target) == "supervision":
        return _supervision_layer(target) <= _supervision_layer(importer)
    return layer_of(target) <= layer_of(importer)


def _room(module: str) -> str:
    """The room that a module belongs to: one of `LAYERS`, or the front door."""
    second = [*module.split("."), ""][1]
    return second if second in LAYERS else "door"


def layer_of(module: str) -> int:
    """The number of a module's layer, from the lowest up: the front door is above `LAYERS`, and `TOP_PACKAGES` are above the front door."""
    room = _room(module)
    if room in LAYERS:
        return LAYERS.index(room)
    return len(LAYERS) + (module.split(".")[1:2] != [] and module.split(".")[1] in TOP_PACKAGES)


def _supervision_layer(module: str) -> int:
    inner = module.split(".")[2:3]
    if not inner:
        return len(SUPERVISION_LAYERS) + 1
    return SUPERVISION_LAYERS.index(inner[0]) if inner[0] in SUPERVISION_LAYERS else len(SUPERVISION_LAYERS)


def import_form(tree: Tree) -> list[str]:
    """A module of the same folder is imported with one dot, and others by their full name, which begins with `greenroom`."""
    return [
        f"{source.path}:{found.line}: {wrong}"
        for source in tree.sources
        for found in source.imports
        if (wrong := _style_fault(source, found))
    ]


def _style_fault(source: Source, found: Import) -> str | None:
    if found.dots > 1:
        return f"two dots: write {found.target} in full"
    if found.root in ROOMS:
        return f"`{found.root}` is another project's name: the room is greenroom.{found.root}"
    if found.root != "greenroom":
        return None
    same_room = _room(source.module) == _room(found.target)
    if found.dots and not same_room:
        return f"a dot into another room: write {found.target} in full"
    folder, _, name = found.target.rpartition(".")
    neighbour = source.package == found.target or (
        source.package == folder and name not in {*SUPERVISION_LAYERS, "cluster"}
    )
    if not found.dots and same_room and neighbour:
        return f"a module of the same folder by its full name: write {found.target} with a dot"
    return None


INNER_MODULES: dict[str, str] = {
    "cluster.addresses": "a guest finds a server's listener as one node finds another",
    "cluster.crash_output": "worker processes write their last output in the same way as the engine's",
    "cluster.node_engine": "the type of what a cluster of worker processes keeps",
    "cluster.foreign_actor": "loads Thespian, which the public module of the package does not",
    "cluster.framing": "guests and pool workers use the frames and handshakes of links",
    "cluster.key_files": "a guest's key file is checked as a node's",
    "cluster.link": "guests are reached over links, without a node at their end",
    "cluster.node_records": "a pool reports by the exit code that memory was short",
    "cluster.peers": "changes of guests' links are reported as those of nodes are, at most once a second",
    "cluster.polling_link": "the guest's end of such a link",
    "cluster.flow_control": "pools, guests and remote wires bound the messages in flight, and answer questions in the same way",
    "cluster.thespian_patches": "loads Thespian, which the public module of the package does not",
    "kernel.process_lookup": "an in-process server takes the node from a closed loop, and a client's request finds its caller, without a call",
    "kernel.node": "each request that a connection's task serves has a context of its own",
    "kernel.forks": "a child that a pool's handler forks ends as one of a thread does",
    "behaviours.threads": "a view tells which threads are busy",
    "kernel.clock": "a view is made in slices of real time",
    "kernel.links": "a view shows what a process is linked to, and a fault's prediction follows it",
    "kernel.process": "views of processes read them without a message",
    "kernel.process_messages": "a view names the messages that wait",
    "kernel.safe_repr": "a view shows names as reports do",
    "kernel.visible_text": "texts of several lines are escaped for a page",
    "kernel.watchdog": "a view shows where a suspended process is",
    "supervisors.child_spec": "a view names what a child would start, and a prediction asks a strategy",
    "supervisors.supervisor": "a prediction asks a supervisor's strategy",
    "supervisors.supervisor_base": "the tree's view reads the records of supervisors",
    "testing.fault_actions": "an operator chooses a kind of fault",
    "testing.fault_injection": "an operator injects a fault",
    "testing.fault_plan": "an operator's fault can be repeated in a test",
    "testing.scenario_replay": "the pytest plugin prints how to replay a failure",
    "testing.isolated_run": "the pytest plugin runs each test in an isolated run",
}
"""Modules inside the packages of `supervision` that other rooms import, each with the reason."""


def public_modules(tree: Tree, allowed: Mapping[str, str] = INNER_MODULES) -> list[str]:
    """Other rooms import `greenroom.supervision` or a module directly in it. Each import of a module further inside needs a reason, and each reason is used."""
    below: dict[str, list[str]] = defaultdict(list)
    for source in tree.sources:
        for found in source.imports if _room(source.module) != "supervision" else ():
            if (inner := _inner(found)) is not None:
                below[inner].append(f"{source.path}:{found.line}")
    return [
        f"{where}: supervision's {inner} is imported past the public module"
        for inner, places in below.items()
        for where in places
        if inner not in allowed
    ] + [
        f"{inner}: other rooms may import it, and none does: take it out of the table"
        for inner in allowed
        if inner not in below
    ]


def _inner(found: Import) -> str | None:
    """The module inside one of supervision's packages that is imported, by its path in the room."""
    room, _, inner = found.target.partition("greenroom.supervision.")
    if room or not inner:
        return None
    if inner in SUPERVISION_LAYERS:
        return (found.whole or inner).removeprefix("greenroom.supervision.")
    return inner if "." in inner else None


def engine_names(tree: Tree) -> list[str]:
    """Names that begin with `_otp_` are private to the behaviours: other rooms use the public names of `GenServer`, `Process` and `Supervisor`."""
    return [
        f"{source.path}:{number}: {found.group()} is private to the behaviours"
        for source in tree.sources
        if _room(source.module) != "supervision"
        for number, line in enumerate(source.text.splitlines(), 1)
        for found in _OTP.finditer(line)
    ]


_OTP = re.compile(r"\b_otp_\w+")


def revisions(tree: Tree) -> list[str]:
    """What differs between revisions is asked of a `Dialect`: outside of `protocol`, no module imports the constants of revisions or writes one."""
    return [
        wrong
        for source in tree.sources
        if _room(source.module) != "protocol"
        for wrong in (
            *(
                f"{source.path}:{found.line}: ask the dialect instead of greenroom.protocol.versions"
                for found in source.imports
                if "greenroom.protocol.versions" in (found.target, found.whole)
            ),
            *(
                f"{source.path}:{node.lineno}: {node.value} is a revision: ask the dialect"
                for node in source.nodes
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and _REVISION.fullmatch(node.value)
            ),
        )
    ]


_REVISION = re.compile(r"20\d\d-\d\d-\d\d")


def single_importers(tree: Tree) -> list[str]:
    """Every third party is imported by one file (its door), in the folder that `IMPORTER_FOLDERS` prescribes."""
    allowed = {_imported_as(name) for name in _dependencies(tree.pyproject, developers=False)} | TEST_LIBRARIES
    seen: dict[str, dict[str, int]] = defaultdict(dict)
    for source in tree.sources:
        for found in source.imports:
            if found.root not in {"greenroom", *ROOMS} and found.root not in sys.stdlib_module_names:
                seen[found.root].setdefault(source.path, found.line)
    wrong: list[str] = []
    for name, where in sorted(seen.items()):
        at = [f"{path}:{line}" for path, line in sorted(where.items())]
        if name.replace("_", "-") not in allowed:
            wrong.append(f"{at[0]}: {name} is no dependency")
        if name not in IMPORTED_ANYWHERE and len(at) > 1:
            wrong.append(f"{', '.join(at)}: {name} has more than one door")
        if place := IMPORTER_FOLDERS.get(name):
            wrong += [
                f"{path}:{line}: the door of {name} is in {place}" for path, line in where.items() if place not in path
            ]
    return wrong


def engine_importers(tree: Tree) -> list[str]:
    """Only the modules in `ENGINE_IMPORTERS` import the modules that use Thespian."""
    return [
        f"{source.path}:{found.line}: {source.module} may not import {found.whole}"
        for source in tree.sources
        for found in source.imports
        for module, known in ENGINE_IMPORTERS.items()
        if f"greenroom.{module}" in (found.target, found.whole)
        and source.module.removeprefix("greenroom.") not in {*known, module}
    ]


ENTRY_POINTS = (
    "greenroom",
    "greenroom.cli",
    *(f"greenroom.{room}" for room in (*ROOMS, "supervision.cluster", "protocol")),
)
"""Modules that a program imports first. Modules that the front door and `supervision.cluster` load by name count as well."""


def used_dependencies(tree: Tree) -> list[str]:
    """Every dependency and extra is imported by a module that is reachable from an entry point, outside of the testing kit."""
    sources = {source.module: source for source in tree.sources}
    waiting = [*ENTRY_POINTS, *(name for source in tree.sources for name in _by_name(source))]
    seen: set[str] = set()
    reached: set[str] = set()
    while waiting:
        module = waiting.pop()
        source = sources.get(module)
        if source is None or module in seen or {"testing", "pytest_plugin"} & set(module.split(".")):
            continue
        seen.add(module)
        for found in source.loads:
            if found.root == "greenroom":
                waiting += [found.target, found.whole]
            else:
                reached.add(found.root.replace("_", "-"))
    return [
        f"pyproject.toml: {name} is imported by nothing that a program can reach"
        for name in sorted(set(_dependencies(tree.pyproject, developers=False)) - TEST_LIBRARIES)
        if _imported_as(name) not in reached
    ]


def _by_name(source: Source) -> Iterator[str]:
    """The modules in tables of lazily loaded names."""
    if source.path.endswith("/__init__.py") or source.module == "greenroom.cli.command_table":
        for node in source.nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("greenroom."):
                yield node.value.partition(":")[0]


def packages(tree: Tree) -> list[str]:
    """The lists in pyproject name exactly the packages on disk: an unlisted package would be missing from the wheel."""
    setuptools = tree.pyproject["tool"]["setuptools"]
    listed: set[str] = set(setuptools["packages"])
    present = {source.module for source in tree.sources if source.path.endswith("/__init__.py")}
    needed = {module_of(f"{PurePosixPath(source.path).parent}/__init__.py") or "" for source in tree.sources}
    wrong = [f"pyproject.toml: {name} is not listed" for name in sorted(present - listed)]
    wrong += [f"pyproject.toml: {name} is listed, and is no package" for name in sorted(listed - present)]
    wrong += [f"{name}: modules without an __init__.py" for name in sorted(needed - present)]
    rooms = {f"greenroom.{room}": room for room in ROOMS}
    if setuptools["package-dir"] != {"": "src", **rooms}:
        wrong.append("pyproject.toml: package-dir does not name src and the rooms")
    return wrong


def type_checked(tree: Tree) -> list[str]:
    """Both type checkers see every folder with Python files. They see the rooms through the links in `src/greenroom`, which pyright follows only if they are named."""
    tool = tree.pyproject["tool"]
    folders = {path.partition("/")[0] for path in tree.files if path.endswith(".py")} - {"docs", *ROOMS}
    wrong = [f"pyproject.toml: mypy does not see {name}" for name in sorted(folders - set(tool["mypy"]["files"]))]
    needed = folders | {f"{FRONT_DOOR_FOLDER}/{room}" for room in ROOMS}
    return wrong + [
        f"pyproject.toml: pyright does not see {name}" for name in sorted(needed - set(tool["pyright"]["include"]))
    ]


def long_files(tree: Tree, allowed: Mapping[str, str] = LONG_FILES) -> list[str]:
    """A file is one idea and has at most `MOST_LINES` lines, or the table gives the reason; the table holds nothing else."""
    lengths = {source.path: len(source.text.splitlines()) for source in tree.sources}
    long = {path for path, lines in lengths.items() if lines > MOST_LINES}
    wrong = [f"{path}: {lengths[path]} lines" for path in sorted(long) if len(allowed.get(path, "").split()) < 5]
    return wrong + [
        f"{path}: listed as long, and has at most {MOST_LINES} lines" for path in sorted(set(allowed) - long)
    ]


def docstrings(tree: Tree) -> list[str]:
    """Every Python file has a docstring."""
    return [f"{path}: no docstring" for path, module in tree.modules.items() if not ast.get_docstring(module)]


_ABSOLUTE = re.compile(r"(?<![\w.>}\]])/(?:Users|farm|home|root|tmp|work)/\w|\b[A-Z]:\\\w")
_INDEX = re.compile(r"\bpypi\.org|pythonhosted\.org|registry\.npmjs\.org|registry\.yarnpkg\.com")


def local_addresses(tree: Tree) -> list[str]:
    """No file names a path on a developer's machine, or the index that packages are installed from."""
    return [
        f"{path}:{number}: {found.group()!r}"
        for path, text in tree.files.items()
        for number, line in enumerate(text.splitlines(), 1)
        for found in (_ABSOLUTE.search(line), _INDEX.search(line))
        if found
    ]


_ENTRY = re.compile(r"^- \*\*([\w.-]+)\*\*(?: \(`\w+`\))?: \S", re.MULTILINE)


def dependencies_page(tree: Tree) -> list[str]:
    """docs/dependencies.md has an entry for each dependency, and no other entries."""
    page = "docs/dependencies.md"
    told = _ENTRY.findall(tree.files.get(page, ""))
    needed = set(_dependencies(tree.pyproject, developers=True))
    wrong = [f"{page}: nothing about {name}" for name in sorted(needed - set(told))]
    wrong += [f"{page}: {name} is no dependency" for name in sorted(set(told) - needed)]
    return wrong + [f"{page}: {name} twice" for name in sorted({name for name in told if told.count(name) > 1})]


def lock_files(tree: Tree) -> list[str]:
    """Locks pin everything with hashes and name no download address. Our own locks contain all dependencies of pyproject, and agree on versions."""
    wrong: list[str] = []
    pinned: set[str] = set()
    entire = _pins(tree, "requirements/dev.txt")
    ours = ("requirements/build.txt", "requirements/dev.txt", "requirements/docs.txt", "requirements/run.txt")
    theirs = sorted(path for path in tree.files if path.startswith("requirements/referees/") and path.endswith(".txt"))
    for path in (*ours, *theirs):
        entries = re.split(r"^(?=\w)", tree.files.get(path, ""), flags=re.MULTILINE)[1:]
        names = {entry: re.split(r"==|\s", entry, maxsplit=1)[0] for entry in entries}
        wrong += [
            f"{path}: {name} without version or hash" for entry, name in names.items() if not _PINNED.match(entry)
        ]
        wrong += [f"{path}: {name} with an address" for entry, name in names.items() if "://" in entry]
        if path in ours:
            pinned |= set(names.values())
    wrong += [
        f"requirements/{step}.txt: {name} is {version} here and another in requirements/dev.txt: make lock"
        for step in ("docs", "run")
        for name, version in sorted(_pins(tree, f"requirements/{step}.txt"))
        if any(name == other for other, _ in entire) and (name, version) not in entire
    ]
    wrong += [
        f"{path}: an address for each package; npm can be told to leave them out"
        for path, text in tree.files.items()
        if path.endswith("package-lock.json") and '"resolved"' in text
    ]
    needed = set(_dependencies(tree.pyproject, developers=True))
    return wrong + [f"requirements: {name} is not locked: make lock" for name in sorted(needed - pinned)]


def _pins(tree: Tree, path: str) -> set[tuple[str, str]]:
    """Names and versions; some names have one version for old Pythons and another for new ones."""
    return set(re.findall(r"^([\w.-]+)==([\w.+!-]+)", tree.files.get(path, ""), re.MULTILINE))


_PINNED = re.compile(r"[\w.-]+==[\w.+!-]+[^\n]*(?:\n +--hash=sha256:[0-9a-f]{64}[ \\]*)+")


def _imported_as(distribution: str) -> str:
    """The package that a distribution is imported as, with dashes."""
    return "opentelemetry" if distribution == "opentelemetry-api" else distribution


def _dependencies(pyproject: Mapping[str, Any], *, developers: bool) -> Iterator[str]:
    """The distributions that pyproject requires: for users, and with `developers` for developing and building as well."""
    project = pyproject["project"]
    lists = [project["dependencies"], *project.get("optional-dependencies", {}).values()]
    if developers:
        lists += [pyproject["build-system"]["requires"], *pyproject.get("dependency-groups", {}).values()]
    for requirement in (requirement for entries in lists for requirement in entries):
        name = re.match(r"[\w.-]+", requirement)
        assert name is not None, requirement
        yield name.group().lower()


RULES = (
    *(
        layers,
        import_form,
        public_modules,
        engine_names,
        revisions,
        single_importers,
        engine_importers,
        used_dependencies,
        packages,
        type_checked,
        long_files,
        docstrings,
    ),
    *(local_addresses, dependencies_page, lock_files),
)
