"""Reads configuration files into a `HostConfig`: reports every mistake, and keeps every server without one.

A server of a later file replaces the whole server of the same name from an earlier file, even if it has a mistake: its author did not mean the earlier one. A
mistake in one server affects that server only. Permissions are the exception: if a file that may deny something cannot be read, nothing is allowed without
asking. A project's file may come with a cloned repository: it allows nothing for the user's servers, and removes none of the user's denials and questions.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.consent.rules import BadRule, Rule
from greenroom.actors.output.output_limits import OutputLimit
from greenroom.errors import ConfigError
from greenroom.protocol.serialization import is_array, is_object
from greenroom.transports.client.http_address import ServerUrl

from .config_schema import MOST_IMPORTS, MOST_MISTAKES, ROOT, SERVER, MistakeCollector
from .foreign_config_files import inputs_of, servers_of, shape_problem, translate, valid_name
from .host_config import (
    Budget,
    HostConfig,
    OAuthConfig,
    RestartPolicy,
    ServerConfig,
    ServerLimits,
    Timeouts,
    ToolLimits,
)
from .mistakes import RULES_UNREADABLE, BadConfig, Mistake, Source, known_servers, quoted
from .parsed_file import ParsedFile, UnreadableFile, expand_home, load, read_text
from .variables import (
    Environment,
    Variables,
    current_folder,
    distrust_reason,
    exists,
    project_files,
    project_folder,
    user_file,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from greenroom.actors.consent.rules import Verdict

    from .foreign_config_files import ImportedServer
    from .parsed_file import KeyPath

_MOST_RULES: Final = 2000
"""Above this number of rules, rules without effect are not reported: each is compared with all earlier ones."""


@dataclass(slots=True)
class ServerEntry:
    """A server's table in a file, with its mistakes."""

    name: str
    document: ParsedFile
    path: KeyPath
    table: Mapping[str, Any]
    mistakes: list[Mistake] = field(default_factory=list[Mistake])
    imported: ImportedServer | None = None

    def add(self, path: KeyPath, what: str, hint: str = "", *, harmless: bool = False) -> None:
        """Add a mistake at `path` in the server's table, in greenroom's field names."""
        words: Mapping[str, str] = {} if self.imported is None else self.imported.words
        own = (words.get(str(path[0]), path[0]), *path[1:]) if path else ()
        name = ".".join(map(str, own)) or None
        self.mistakes.append(
            Mistake(
                self.source(own), self.name, name, what, hint.replace("server.NAME", f"server.{self.name}"), harmless
            )
        )

    def source(self, path: KeyPath = ()) -> Source:
        """The file and line of a field."""
        return self.document.source((*self.path, *path))

    @property
    def allows(self) -> bool:
        """Whether its rules allow something; a permissions value that is not a table counts as allowing."""
        block = self.table.get("permissions") if is_object(self.table) else None
        return bool(block.get("allow")) if is_object(block) else bool(block)

    @property
    def good(self) -> bool:
        """Whether it has no mistakes except warnings."""
        return all(one.harmless for one in self.mistakes)


def read(
    *paths: str | os.PathLike[str],
    environment: Mapping[str, str] | None = None,
    project: str | os.PathLike[str] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> HostConfig:
    """Read these files, of which later ones take precedence; without any, the user's and the project's file. Mistakes are returned, not raised.

    `project` is the project's folder: the value of `${CLAUDE_PROJECT_DIR}`, and the place of the project's file. `inputs` answer the inputs of
    VS Code files.
    """
    variables = os.environ if environment is None else environment
    folder = current_folder() / project if project is not None else project_folder(variables)
    reading = _ConfigReader(folder, variables, dict(inputs or {}))
    if paths:
        for path in paths:
            reading.read_file(Path(path))
    else:
        reading.read_default_files()
    return reading.result()


class _ConfigReader:
    def __init__(self, project: Path, variables: Mapping[str, str], inputs: Mapping[str, str]) -> None:
        self._project = project
        self._variables = variables
        self._inputs = inputs
        self._files: list[Path] = []
        self._entries: dict[str, ServerEntry] = {}
        self._rules: list[Rule] = []
        self._strict_rules: dict[str, tuple[Rule, ...]] = {}
        """The user's deny and ask rules of servers that a project's file has replaced."""
        self._allowed = False
        """Whether such a replaced server had allow rules."""
        self._doubtful = False
        """Whether a part that may hold deny rules could not be read."""
        self._environment, self._mistakes = Environment.of(variables)

    # --- files

    def read_default_files(self) -> None:
        """Read the user's file and the project's file, if they exist."""
        user = user_file()
        self._files.append(user)
        if exists(user, unsure=True):
            self.read_file(user)
        here = [
            path
            for path in project_files(self._project)
            if exists(path, unsure=True) and path.absolute() != user.absolute()
        ]
        self._files += project_files(self._project)
        for path in here[:1]:
            why = distrust_reason(path)
            if why is not None:
                hint = "name it yourself if you trust it"
                self._mistakes.append(Mistake(Source(str(path), 0), None, None, why, hint))
                self._doubtful = True
                continue
            self.read_file(path, self._project)
        for path in here[1:]:
            what = f"is ignored, because {here[0]} exists as well"
            self._mistakes.append(Mistake(Source(str(path), 0), None, None, what, "keep one of them", harmless=True))

    def read_file(self, path: Path, folder: Path | None = None) -> None:
        """Read a file and its imports."""
        document = self._load(path, folder)
        if not document.readable:
            self._doubtful = self._doubtful or document.toml
            return
        if not document.toml:
            self._import_servers(document)
            return
        book = MistakeCollector()
        ROOT.check(document.value, (), book)
        servers = document.value.get("server")
        tables = servers.items() if is_object(servers) else ()
        own = {name: ServerEntry(name, document, ("server", name), table) for name, table in tables}
        for keys, what, hint in book.mistakes:
            if keys[:1] == ("server",) and len(keys) > 1:
                own[str(keys[1])].add(keys[2:], what, hint)
            else:
                self._mistakes.append(document.mistake(keys, what, hint))
                self._doubtful = self._doubtful or keys[:1] == ("permissions",)
        if book.full:  # the check stopped before the end of the file
            self._doubtful = True
            for entry in own.values():
                if entry.good:
                    _check_entry(entry)
        imported = document.value.get("import")
        seen: dict[str, ServerEntry] = {}
        for index, name in enumerate(imported[:MOST_IMPORTS] if is_array(imported) else ()):
            if isinstance(name, str):
                self._import_file(document, ("import", index), name, seen)
        found = seen | own
        if folder is not None:
            for name in found.keys() & self._entries.keys():
                self._keep_strict_rules(self._entries[name])
        self._entries |= found
        if not book.full:
            self._global(document, [keys for keys, _, _ in book.mistakes], None if folder is None else frozenset(found))

    def _keep_strict_rules(self, entry: ServerEntry) -> None:
        """Keep the deny and ask rules of a user's server that the project's file replaces; its allow rules are dropped."""
        self._allowed = self._allowed or entry.allows
        block = entry.table.get("permissions") if is_object(entry.table) else None

        def wrong() -> list[Mistake]:
            return [one for one in entry.mistakes if one.field is not None and one.field.startswith("permissions")]

        if is_object(block) and not wrong():
            strict = {verdict: patterns for verdict, patterns in block.items() if verdict != "allow"}
            self._strict_rules[entry.name] = rules_of(strict, entry.name, entry.source, entry.add)
        self._mistakes += wrong()
        self._doubtful = self._doubtful or bool(wrong())

    def _load(self, path: Path, folder: Path | None = None) -> ParsedFile:
        self._files.append(path)
        document = load(path, folder)
        self._mistakes += document.mistakes
        return document

    def _import_file(self, document: ParsedFile, keys: KeyPath, name: str, seen: dict[str, ServerEntry]) -> None:
        """Import the servers of another program's file."""
        text, problems = self._variables_for().expand(name)
        self._mistakes += [document.mistake(keys, one.what, one.hint) for one in problems]
        if problems:
            return
        try:
            path = document.folder / expand_home(text)
        except UnreadableFile as error:
            self._mistakes.append(document.mistake(keys, error.what, error.hint))
            return
        if path.suffix.lower() != ".json":
            hint = "only JSON files of other programs can be imported"
            self._mistakes.append(document.mistake(keys, "is not a JSON file", hint))
            return
        self._files.append(path)
        other = load(path)
        for one in other.mistakes:  # a missing file is reported at the line that names it
            named = document.mistake(keys, f"{one.what} ({name})", one.hint)
            self._mistakes.append(one if one.source.line else named)
        if other.readable:
            self._import_servers(other, seen)

    def _import_servers(self, document: ParsedFile, seen: dict[str, ServerEntry] | None = None) -> None:
        wrong = shape_problem(document)
        if wrong is not None:
            self._mistakes.append(document.mistake((), wrong, 'write {"mcpServers": {…}}'))
            return
        mine: dict[str, ServerEntry] = {}
        for path, servers in servers_of(document, self._project):
            here: dict[str, ServerEntry] = {}
            for name, value in servers.items():
                self._entry(document, (*path, name), value, here)
            mine |= here
        at = {entry.path: entry for entry in mine.values()}
        for keys, first, _ in document.twice:
            for length in range(len(keys), 0, -1):
                entry = at.get(keys[:length])
                if entry is not None:
                    hint = "" if length < len(keys) else "rename one of them"
                    line = document.lines.of(first)
                    entry.add(keys[length:], f"is defined twice, first in line {line}", hint)
                    break
        if seen is None:
            self._entries |= mine
            return
        for name, entry in mine.items():
            if name in seen:
                other = seen[name].source()
                entry.add((), f"is imported twice, also from {other}", "rename one of them")
            seen[name] = entry

    def _entry(self, document: ParsedFile, path: KeyPath, value: Any, into: dict[str, ServerEntry]) -> None:
        written = str(path[-1])
        name = valid_name(written)
        if not name:
            what = "has a name without any letter, digit, _ or -"
            self._mistakes.append(Mistake(document.source(path), written, None, what, "rename it"))
            return
        if not is_object(value):
            entry = ServerEntry(name, document, path, {})
            entry.add((), "has to be an object", 'as in {"command": "uvx", "args": ["mcp-server-git"]}')
        else:
            found = translate(value)
            entry = ServerEntry(name, document, path, found.table, imported=found)
            for one in found.mistakes:
                entry.add((one.field,), one.what, one.hint, harmless=one.harmless)
            _check_entry(entry)
        if name in into:
            entry.add((), f"would be called {name}, like the server in line {into[name].source().line}", "rename it")
        elif name != written:
            hint = "names have 1 to 32 letters, digits, _ and -"
            entry.add((), f"is the name for {quoted(written)}", hint, harmless=True)
        into[name] = entry

    # --- settings for all servers

    def _global(self, document: ParsedFile, wrong: Iterable[KeyPath], only: frozenset[str] | None) -> None:
        """Add the file's global rules. `only` are the servers to which its allow rules apply; None for all."""
        block = document.value.get("permissions")
        if not is_object(block):
            return
        bad = set(wrong)
        kept = {
            verdict: [one for index, one in enumerate(patterns) if ("permissions", verdict, index) not in bad]
            for verdict, patterns in block.items()
            if is_array(patterns) and ("permissions", verdict) not in bad
        }

        def tell(path: KeyPath, what: str) -> None:
            self._mistakes.append(document.mistake(path, what))
            self._doubtful = True

        for rule in rules_of(kept, None, document.source, tell):
            self._rules.append(replace(rule, only=only) if rule.verdict == "allow" else rule)

    def _variables_for(self, document: ParsedFile | None = None) -> Variables:
        inputs = {} if document is None or document.toml else inputs_of(document)
        editor = document is not None and not document.toml
        return Variables(self._variables, self._project, inputs, self._inputs, editor)

    # --- servers

    def result(self) -> HostConfig:
        """The configuration from all files that were read."""
        servers: dict[str, ServerConfig] = {}
        failed: dict[str, tuple[Mistake, ...]] = {}
        for name, entry in self._entries.items():
            built = self._build(entry)
            if built is None or not entry.good:
                failed[name] = tuple(one for one in entry.mistakes if not one.harmless)
            else:
                servers[name] = replace(built, rules=(*self._strict_rules.get(name, ()), *built.rules))
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
        return self._with_dead_rules(config)

    def _build(self, entry: ServerEntry) -> ServerConfig | None:
        table = entry.table
        if not is_object(table):
            return None
        if table.get("disabled") is True:  # its variables and files need not exist
            return ServerConfig(name=entry.name, source=entry.source(), disabled=True, written=table)
        variables = self._variables_for(entry.document)
        return build_server(entry, table if entry.good else valid_part(entry, variables), variables, self._environment)

    def _in_order(self, mistakes: Iterable[Mistake]) -> tuple[Mistake, ...]:
        """The mistakes in the order of files and lines."""
        order = {str(path): number for number, path in enumerate(self._files)}
        return tuple(sorted(mistakes, key=lambda one: (order.get(one.source.file, -1), one.source.line)))

    def _with_dead_rules(self, config: HostConfig) -> HostConfig:
        """Report rules that can never decide; if some rules could not be read, remove all allow rules."""
        dead: list[Mistake] = []
        permissions = config.permissions
        looked = permissions.dead([*config.servers, *config.failed]) if len(permissions.rules) <= _MOST_RULES else ()
        for rule, why in looked:
            file, _, line = rule.where.rpartition(":")
            source = Source(file, int(line)) if line.isdigit() else Source(rule.where, 0)
            what = f"{rule.pattern!r} can never match: {why}"
            idle = rule.verdict == "deny" and ("no server" in why or "is a server" in why)
            hint = "so it denies nothing: correct the name, or remove the rule" if idle else "remove it"
            dead.append(Mistake(source, rule.server, f"permissions.{rule.verdict}", what, hint, harmless=True))
        config = replace(config, mistakes=self._in_order((*config.mistakes, *dead)))
        if not self._doubtful:
            return config
        servers = {name: replace(one, rules=_without_allow(one.rules)) for name, one in config.servers.items()}
        rules = _without_allow(config.rules)
        return replace(
            config, servers=servers, rules=rules, mistakes=(*config.mistakes, RULES_UNREADABLE), doubtful=True
        )


def _check_entry(entry: ServerEntry) -> None:
    book = MistakeCollector()
    SERVER.check(entry.table, (), book)
    for keys, what, hint in book.mistakes:
        entry.add(keys, what, hint)


def _without_allow(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    return tuple(one for one in rules if one.verdict != "allow")


# --- From a checked table to a frozen `ServerConfig`: variables expanded, defaults filled in.
# Mistakes found here are those that the file alone does not show: an unset variable, a URL that is invalid after expansion. The valid part of a server with
# mistakes is built as well and thrown away, so that all of its mistakes are reported at once.

_EXPANDED: Final = ("command", "args", "env", "cwd", "url", "headers", "oauth_config")
_COPIED: Final = ("transport", "command", "url", "oauth", "mode", "isolation", "away", "disabled")
"""Fields that are copied as written; their defaults are those of `ServerConfig`."""
_VERDICTS: Final[tuple[Verdict, ...]] = ("deny", "ask", "allow")
_ENV_LINE: Final = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*+(?P<value>.*)")


def build_server(
    entry: ServerEntry, table: Mapping[str, Any], variables: Variables, environment: Environment
) -> ServerConfig:
    """Build the server. If mistakes are added to `entry`, the result must not be used."""
    found = _expanded(entry, table, variables)
    env = {**_env_file(entry, variables), **found.get("env", {})}
    limits: dict[str, Any] = {"output_tokens": environment.output_tokens, **found.get("limits", {})}
    tools = {tool: ToolLimits(**_with_integers(one, *one)) for tool, one in limits.pop("tools", {}).items()}
    times = {"connect": environment.connect, "tool": environment.tool, **found.get("timeouts", {})}
    oauth = found.get("oauth_config")
    if oauth is not None:
        settings: dict[str, Any] = {**_with_integers(oauth, "port"), "scopes": tuple(oauth.get("scopes", ()))}
        oauth = OAuthConfig(**settings)
    restart = RestartPolicy(**_with_integers(found.get("restart", {}), "intensity", "park_after"))
    if restart.longest < restart.first:
        entry.add(("restart", "longest"), f"has to be at least first, which is {restart.first:g}")
    headers = dict(found.get("headers", {}))
    _check_header_case(entry, headers)
    cwd = found.get("cwd")
    return ServerConfig(
        name=entry.name,
        source=entry.source(),
        args=tuple(found.get("args", ())),
        env=env,
        inherit=tuple(found.get("inherit", ())),
        cwd=None if cwd is None else str(entry.document.folder / cwd),
        headers=headers,
        oauth_config=oauth,
        restart=restart,
        budget=Budget(**_with_integers(found.get("budget", {}), "concurrent", "queue")),
        timeouts=Timeouts(**times),
        limits=ServerLimits(**_with_integers(limits, *limits), tools=tools),
        rules=rules_of(found.get("permissions", {}), entry.name, entry.source, entry.add),
        written=table,
        **{name: found[name] for name in _COPIED if name in found},
    )


def valid_part(entry: ServerEntry, variables: Variables) -> dict[str, Any]:
    """The fields of a table without mistakes. The variables in wrong fields are expanded as well, to report mistakes in them."""
    book = MistakeCollector()
    SERVER.check(entry.table, (), book)
    if book.full:  # the check stopped before the end of the table
        return {}
    wrong = {keys[0] for keys, _, _ in book.mistakes if keys}
    for name in _EXPANDED:
        if name in wrong and name in entry.table:
            for path, text in islice(_texts(entry.table[name], (name,)), MOST_MISTAKES):
                _expand(entry, text, path, variables)
    return {name: value for name, value in entry.table.items() if name not in wrong}


def _texts(value: Any, path: KeyPath, deep: int = 2) -> Iterator[tuple[KeyPath, str]]:
    """The texts in a value, down to the depth that fields have."""
    if isinstance(value, str):
        yield path, value
    elif deep and is_array(value):
        for index, one in enumerate(value):
            yield from _texts(one, (*path, index), deep - 1)
    elif deep and is_object(value):
        for name, one in value.items():
            yield from _texts(one, (*path, name), deep - 1)


def _check_header_case(entry: ServerEntry, headers: Mapping[str, str]) -> None:
    """Report headers that differ only in case: header names are case-insensitive, so one of them would be lost."""
    first: dict[str, str] = {}
    for name in headers:
        other = first.setdefault(name.lower(), name)
        if other != name:
            line = entry.source(("headers", other)).line
            entry.add(("headers", name), f"is defined twice, first as {other} in line {line}", "keep one of them")


def rules_of(
    block: Mapping[str, Any],
    server: str | None,
    lines: Callable[[KeyPath], Source],
    tell: Callable[[KeyPath, str], None],
) -> tuple[Rule, ...]:
    """The rules of a permissions block, each with its line."""
    found: list[Rule] = []
    for verdict in _VERDICTS:
        for index, pattern in enumerate(block.get(verdict, ())):
            path = ("permissions", verdict, index)
            where = str(lines(path))
            try:
                found.append(Rule(verdict, pattern, server, where))
            except BadRule as error:
                tell(path, str(error).removeprefix(f"{where}: "))
    return tuple(found)


def _with_integers(table: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Convert numbers such as 3.0 to int in the named fields."""
    return {name: int(value) if name in names else value for name, value in table.items()}


# --- variables


def _expanded(entry: ServerEntry, table: Mapping[str, Any], variables: Variables) -> dict[str, Any]:
    found = dict(table)
    for name in _EXPANDED:
        if name in found:
            before = len(entry.mistakes)
            found[name] = _expand(entry, found[name], (name,), variables)
            if len(entry.mistakes) == before:  # a text with an unset variable is not checked further
                _check_expanded(entry, name, table[name], found[name])
    return found


def _expand(entry: ServerEntry, value: Any, path: KeyPath, variables: Variables) -> Any:
    if isinstance(value, str):
        text, problems = variables.expand(value)
        for one in problems:
            entry.add(path, one.what, one.hint)
        return text
    if is_array(value):
        return [_expand(entry, one, (*path, index), variables) for index, one in enumerate(value)]
    if is_object(value):
        return {name: _expand(entry, one, (*path, name), variables) for name, one in value.items()}
    return value


def _check_expanded(entry: ServerEntry, name: str, written: Any, value: Any) -> None:
    """Check an expanded value. It may be a secret, so mistakes do not quote it."""
    if value != written:
        book = MistakeCollector()
        SERVER.fields[name].kind.check(value, (name,), book)
        for path, what, _ in book.mistakes:
            entry.add(path, f"{what}, after its variables are expanded", "check the variables' values")
        if book.mistakes:
            return
    if name == "url" and value:
        try:
            ServerUrl.of(value)
        except ConfigError as error:
            entry.add((name,), str(error))


def _env_file(entry: ServerEntry, variables: Variables) -> dict[str, str]:
    """The variables of an envFile, one per line. Nothing in it is expanded."""
    name = None if entry.imported is None else entry.imported.env_file
    if name is None:
        return {}
    before = len(entry.mistakes)
    place = _expand(entry, name, ("envFile",), variables)
    if len(entry.mistakes) > before:
        return {}
    try:
        text = read_text(entry.document.folder / expand_home(place))
    except UnreadableFile as error:
        entry.add(("envFile",), f"{error.what} ({name})", error.hint)
        return {}
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pair = _ENV_LINE.fullmatch(line.strip())
        if pair is None or "\0" in line:
            entry.add(("envFile",), f"line {number} of {name} is not a variable", "write NAME=value")
            continue
        value = pair["value"]
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        found[pair["name"]] = value[1:-1] if quoted else value.partition(" #")[0].rstrip()
    return found


# --- One configured server by its name, for commands.


def server_named(name: str, path: str | os.PathLike[str] | None = None) -> ServerConfig:
    """The server of this name in a file, or in the user's and the project's. Raises `ConfigError`."""
    config = read() if path is None else read(path)
    if name in config.failed:
        raise BadConfig(config.failed[name])
    server = config.servers.get(name)
    if server is None:
        whole = [one for one in config.mistakes if one.server is None and not one.harmless]
        if whole and not config.servers:
            raise BadConfig(whole)
        raise ConfigError(f"no server is called {name!r}; {known_servers(name, [*config.servers, *config.failed])}")
    if server.disabled:
        raise ConfigError(f"{server.source}: server {name} is disabled; remove disabled to use it")
    return server
