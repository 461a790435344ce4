"""From files to a `HostConfig`: all of them read, every mistake told, and whatever is right kept.

A later file's server replaces an earlier one's of the same name, all of it, also when it has a mistake: who wrote it did not mean the other. What
one server does wrong is that server's affair. Only permissions are not: where a file that may deny something cannot be understood, nothing is
allowed without asking. And a project's file, which came with whatever was cloned, allows nothing of the user's servers, nor takes away what the user
denies or wants to be asked about.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.output.limits import OutputLimit
from greenroom.protocol.wire import is_array, is_object

from .building import inside, rules_of, server_of, sound_part
from .documents import Document, Unreadable, at_home, load
from .environment import Environment
from .fields import MOST_IMPORTS, ROOT, SERVER
from .imports import fitted, inputs_of, servers_of, shape_of, translate
from .kinds import Book
from .mistakes import DOUBT, Mistake, Source, quoted
from .places import current_folder, foreign, is_there, project_files, project_folder, user_file
from .values import HostConfig, ServerConfig
from .variables import Variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from greenroom.actors.consent.rules import Rule

    from .imports import Imported
    from .toml_lines import Path as Keys


_RULES: Final = 2000
"""Each rule is held against each that comes before it; of more than so many nobody is told which are of no use."""


@dataclass(slots=True)
class Entry:
    """A server as it stands in a file."""

    name: str
    document: Document
    path: Keys
    table: Mapping[str, Any]
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    imported: Imported | None = None

    def tell(self, path: Keys, what: str, hint: str = "", *, harmless: bool = False) -> None:
        """Something is wrong with it; `path` is inside of its table, in our own words."""
        words: Mapping[str, str] = {} if self.imported is None else self.imported.words
        own = (words.get(str(path[0]), path[0]), *path[1:]) if path else ()
        name = ".".join(map(str, own)) or None
        self.mistakes.append(
            Mistake(
                self.source(own), self.name, name, what, hint.replace("server.NAME", f"server.{self.name}"), harmless
            )
        )

    def source(self, path: Keys = ()) -> Source:
        """Where something in it stands."""
        return self.document.source((*self.path, *path))

    @property
    def allows(self) -> bool:
        """Whether its rules allow something, or may be meant to: a block that is none holds anything."""
        block = self.table.get("permissions") if is_object(self.table) else None
        return bool(block.get("allow")) if is_object(block) else bool(block)

    @property
    def good(self) -> bool:
        """Whether it can be used."""
        return all(one.harmless for one in self.mistakes)


def read(
    *paths: str | os.PathLike[str],
    environment: Mapping[str, str] | None = None,
    project: str | os.PathLike[str] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> HostConfig:
    """Read these files, the later ones before the earlier; without any, the user's and the project's. Raises nothing.

    `project` is the folder of the project: what `${CLAUDE_PROJECT_DIR}` stands for, and where its file is looked for. `inputs` answer what
    a file of VS Code's would ask for.
    """
    variables = os.environ if environment is None else environment
    folder = current_folder() / project if project is not None else project_folder(variables)
    reading = _Reading(folder, variables, dict(inputs or {}))
    if paths:
        for path in paths:
            reading.take(Path(path))
    else:
        reading.search()
    return reading.done()


class _Reading:
    def __init__(self, project: Path, variables: Mapping[str, str], inputs: Mapping[str, str]) -> None:
        self._project = project
        self._variables = variables
        self._inputs = inputs
        self._files: list[Path] = []
        self._entries: dict[str, Entry] = {}
        self._rules: list[Rule] = []
        self._kept: dict[str, tuple[Rule, ...]] = {}
        """What the user denies, or is to be asked about, of servers that a project has replaced,"""
        self._allowed = False
        """and whether anything of those was allowed."""
        self._doubtful = False
        """Whether there may have been something that denies, which nobody could read."""
        self._environment, self._mistakes = Environment.of(variables)

    # --- files

    def search(self) -> None:
        """The user's file and the project's, as far as they are there."""
        user = user_file()
        self._files.append(user)
        if is_there(user, unsure=True):
            self.take(user)
        here = [
            path
            for path in project_files(self._project)
            if is_there(path, unsure=True) and path.absolute() != user.absolute()
        ]
        self._files += project_files(self._project)
        for path in here[:1]:
            why = foreign(path)
            if why is not None:
                hint = "name it yourself if you trust it"
                self._mistakes.append(Mistake(Source(str(path), 0), None, None, why, hint))
                self._doubtful = True
                continue
            self.take(path, self._project)
        for path in here[1:]:
            what = f"is not looked at: there is {here[0]} as well"
            self._mistakes.append(Mistake(Source(str(path), 0), None, None, what, "keep one of them", harmless=True))

    def take(self, path: Path, folder: Path | None = None) -> None:
        """One file, and what it imports."""
        document = self._load(path, folder)
        if not document.readable:
            self._doubtful = self._doubtful or document.toml
            return
        if not document.toml:
            self._import(document)
            return
        book = Book()
        ROOT.judge(document.value, (), book)
        own = {name: Entry(name, document, ("server", name), table) for name, table in _tables(document.value)}
        for keys, what, hint in book.told:
            if keys[:1] == ("server",) and len(keys) > 1:
                own[str(keys[1])].tell(keys[2:], what, hint)
            else:
                self._mistakes.append(document.mistake(keys, what, hint))
                self._doubtful = self._doubtful or keys[:1] == ("permissions",)
        if book.full:  # then not all of it was judged
            self._doubtful = True
            for entry in own.values():
                if entry.good:
                    _judge(entry)
        imported = document.value.get("import")
        seen: dict[str, Entry] = {}
        for index, name in enumerate(imported[:MOST_IMPORTS] if is_array(imported) else ()):
            if isinstance(name, str):
                self._take_over(document, ("import", index), name, seen)
        found = seen | own
        if folder is not None:
            for name in found.keys() & self._entries.keys():
                self._keep(self._entries[name])
        self._entries |= found
        if not book.full:
            self._global(document, [keys for keys, _, _ in book.told], None if folder is None else frozenset(found))

    def _keep(self, entry: Entry) -> None:
        """It is the user's, and a project's takes its place: what it allows goes with it, and nothing else does."""
        self._allowed = self._allowed or entry.allows
        block = entry.table.get("permissions") if is_object(entry.table) else None

        def wrong() -> list[Mistake]:
            return [one for one in entry.mistakes if one.field is not None and one.field.startswith("permissions")]

        if is_object(block) and not wrong():
            strict = {verdict: patterns for verdict, patterns in block.items() if verdict != "allow"}
            self._kept[entry.name] = rules_of(
                strict, entry.name, lambda path: entry.source(("permissions", *path)), inside(entry.tell)
            )
        self._mistakes += wrong()
        self._doubtful = self._doubtful or bool(wrong())

    def _load(self, path: Path, folder: Path | None = None) -> Document:
        self._files.append(path)
        document = load(path, folder)
        self._mistakes += document.mistakes
        return document

    def _take_over(self, document: Document, keys: Keys, name: str, seen: dict[str, Entry]) -> None:
        """The servers of another program's file."""
        text, problems = self._words().put(name)
        self._mistakes += [document.mistake(keys, one.what, one.hint) for one in problems]
        if problems:
            return
        try:
            path = (document.folder or document.path.parent) / at_home(text)
        except Unreadable as error:
            self._mistakes.append(document.mistake(keys, error.what, error.hint))
            return
        if path.suffix.lower() != ".json":
            self._mistakes.append(
                document.mistake(keys, "is no JSON file", "only those of other programs are imported")
            )
            return
        self._files.append(path)
        other = load(path)
        for one in other.mistakes:  # what is not there is told where it is named, and as it is named
            named = document.mistake(keys, f"{one.what} ({name})", one.hint)
            self._mistakes.append(one if one.source.line else named)
        if other.readable:
            self._import(other, seen)

    def _import(self, document: Document, seen: dict[str, Entry] | None = None) -> None:
        wrong = shape_of(document)
        if wrong is not None:
            self._mistakes.append(document.mistake((), wrong, 'write {"mcpServers": {…}}'))
            return
        mine: dict[str, Entry] = {}
        for path, servers in servers_of(document, self._project):
            here: dict[str, Entry] = {}
            for name, value in servers.items():
                self._entry(document, (*path, name), value, here)
            mine |= here
        at = {entry.path: entry for entry in mine.values()}
        for keys, first, _ in document.twice:
            for length in range(len(keys), 0, -1):
                entry = at.get(keys[:length])
                if entry is not None:
                    hint = "" if length < len(keys) else "give one of them another name"
                    line = document.lines.of(first)
                    entry.tell(keys[length:], f"stands there twice, first in line {line}", hint)
                    break
        if seen is None:
            self._entries |= mine
            return
        for name, entry in mine.items():
            if name in seen:
                other = seen[name].source()
                entry.tell((), f"is imported twice, also from {other}", "give one of them another name")
            seen[name] = entry

    def _entry(self, document: Document, path: Keys, value: Any, into: dict[str, Entry]) -> None:
        written = str(path[-1])
        name = fitted(written)
        if not name:
            what = "has a name without a letter, digit, _ or -"
            self._mistakes.append(Mistake(document.source(path), written, None, what, "give it another one"))
            return
        if not is_object(value):
            entry = Entry(name, document, path, {})
            entry.tell((), "has to be an object", 'as in {"command": "uvx", "args": ["mcp-server-git"]}')
        else:
            found = translate(written, path, value)
            entry = Entry(name, document, path, found.table, imported=found)
            for one in found.told:
                entry.tell((one.field,), one.what, one.hint, harmless=one.harmless)
            _judge(entry)
        if name in into:
            entry.tell(
                (), f"would be called {name}, as that of line {into[name].source().line}", "give it another name"
            )
        elif name != written:
            hint = "a name has 1 to 32 letters, digits, _ and - here"
            entry.tell((), f"is what {quoted(written)} is called here", hint, harmless=True)
        into[name] = entry

    # --- what holds for all

    def _global(self, document: Document, wrong: Iterable[Keys], only: frozenset[str] | None) -> None:
        """`only` are the servers of which it may allow anything, where those are not all."""
        block = document.value.get("permissions")
        if not is_object(block):
            return
        bad = set(wrong)
        kept = {
            verdict: [one for index, one in enumerate(patterns) if ("permissions", verdict, index) not in bad]
            for verdict, patterns in block.items()
            if is_array(patterns) and ("permissions", verdict) not in bad
        }

        def tell(path: Keys, what: str, hint: str) -> None:
            self._mistakes.append(document.mistake(("permissions", *path), what, hint))
            self._doubtful = True

        for rule in rules_of(kept, None, lambda path: document.source(("permissions", *path)), tell):
            self._rules.append(replace(rule, only=only) if rule.verdict == "allow" else rule)

    def _words(self, document: Document | None = None) -> Variables:
        inputs = {} if document is None or document.toml else inputs_of(document)
        editor = document is not None and not document.toml
        return Variables(self._variables, self._project, inputs, self._inputs, editor)

    # --- servers

    def done(self) -> HostConfig:
        """All of it."""
        servers: dict[str, ServerConfig] = {}
        failed: dict[str, tuple[Mistake, ...]] = {}
        for name, entry in self._entries.items():
            built = self._built(entry)
            if built is None or not entry.good:
                failed[name] = tuple(one for one in entry.mistakes if not one.harmless)
            else:
                servers[name] = replace(built, rules=(*self._kept.get(name, ()), *built.rules))
            self._mistakes += entry.mistakes
        output = OutputLimit(tokens=self._environment.output_tokens)
        config = HostConfig(
            servers=servers,
            failed=failed,
            rules=tuple(self._rules),
            output=output,
            oauth_port=self._environment.oauth_port,
            mistakes=tuple(self._mistakes),
            files=tuple(dict.fromkeys(self._files)),
            project=self._project,
            allows_at_rest=self._allowed
            or any(entry.allows for name, entry in self._entries.items() if name in failed or servers[name].disabled),
        )
        return self._careful(config)

    def _built(self, entry: Entry) -> ServerConfig | None:
        if not is_object(entry.table):
            return None
        if entry.table.get("disabled") is True:  # what it needs need not be there
            return ServerConfig(name=entry.name, source=entry.source(), disabled=True, written=entry.table)
        variables = self._words(entry.document)
        return server_of(
            entry.name,
            entry.table if entry.good else sound_part(entry.table, variables, entry.tell),
            entry.source(),
            entry.tell,
            variables=variables,
            environment=self._environment,
            folder=entry.document.folder or entry.document.path.parent,
            lines=entry.source,
            env_file=None if entry.imported is None else entry.imported.env_file,
        )

    def _in_order(self, mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
        """As one meets them when one goes through the files."""
        order = {str(path): number for number, path in enumerate(self._files)}
        return tuple(sorted(mistakes, key=lambda one: (order.get(one.source.file, -1), one.source.line)))

    def _careful(self, config: HostConfig) -> HostConfig:
        """Rules that can never decide are told; where some could not be read, none allows anything."""
        dead: list[Mistake] = []
        permissions = config.permissions
        looked = permissions.dead([*config.servers, *config.failed]) if len(permissions.rules) <= _RULES else ()
        for rule, why in looked:
            file, _, line = rule.where.rpartition(":")
            source = Source(file, int(line)) if line.isdigit() else Source(rule.where, 0)
            what = f"{rule.pattern!r} can never match: {why}"
            idle = rule.verdict == "deny" and ("no server" in why or "is a server" in why)
            hint = "so it denies nothing: put the name right, or take it out" if idle else "take it out"
            dead.append(Mistake(source, rule.server, f"permissions.{rule.verdict}", what, hint, harmless=True))
        config = replace(config, mistakes=self._in_order((*config.mistakes, *dead)))
        if not self._doubtful:
            return config
        servers = {name: replace(one, rules=_without_allow(one.rules)) for name, one in config.servers.items()}
        rules = _without_allow(config.rules)
        return replace(config, servers=servers, rules=rules, mistakes=(*config.mistakes, DOUBT), doubtful=True)


def _judge(entry: Entry) -> None:
    book = Book()
    SERVER.judge(entry.table, (), book)
    for keys, what, hint in book.told:
        entry.tell(keys, what, hint)


def _without_allow(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(one for one in rules if one.verdict != "allow")


def _tables(value: Mapping[str, Any]) -> list[tuple[str, Any]]:
    servers = value.get("server")
    return list(servers.items()) if is_object(servers) else []
