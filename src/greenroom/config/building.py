"""From what is written to what is meant: variables in place, defaults filled in, and one frozen `ServerConfig` as the result.

Only what was judged good is built; what can still be wrong is what the file alone does not show: a variable that is not set, an address that is
none once its variables are in place. Of a server with mistakes the rest is built all the same, and thrown away: so all that is wrong with it is told.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from greenroom.actors.consent.rules import BadRule, Rule
from greenroom.errors import ConfigError
from greenroom.protocol.wire import is_array, is_object
from greenroom.transports.client.http_address import Address

from .documents import Unreadable, at_home, read_text
from .fields import SERVER
from .kinds import ENOUGH, Book
from .values import Budget, Limits, OAuthConfig, Restart, ServerConfig, Timeouts, ToolLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from greenroom.actors.consent.rules import Verdict

    from .environment import Environment
    from .mistakes import Source
    from .variables import Variables

    Tell = Callable[[tuple[str | int, ...], str, str], None]
    """Whom a mistake is told to: the path inside of the server's table, what, and what to write instead."""

_EXPANDED: Final = ("command", "args", "env", "cwd", "url", "headers", "oauth_config")
_VERDICTS: Final[tuple[Verdict, ...]] = ("deny", "ask", "allow")
_ENV_LINE: Final = re.compile(r"(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*+(?P<value>.*)")


def server_of(  # noqa: PLR0913 - all that goes into one
    name: str,
    table: Mapping[str, Any],
    source: Source,
    tell: Tell,
    *,
    variables: Variables,
    environment: Environment,
    folder: Path,
    lines: Callable[[tuple[str | int, ...]], Source],
    env_file: str | None = None,
) -> ServerConfig:
    """The server. What is wrong is told, and then it is not to be used."""
    found = _expanded(table, variables, tell)
    env = {**_env_file(env_file, variables, folder, tell), **found.get("env", {})}
    limits: dict[str, Any] = {"output_tokens": environment.output_tokens, **found.get("limits", {})}
    tools = {tool: ToolLimits(**_whole(one, *one)) for tool, one in limits.pop("tools", {}).items()}
    times = {"connect": environment.connect, "tool": environment.tool, **found.get("timeouts", {})}
    oauth = found.get("oauth_config")
    if oauth is not None:
        settings: dict[str, Any] = {**_whole(oauth, "port"), "scopes": tuple(oauth.get("scopes", ()))}
        oauth = OAuthConfig(**settings)
    restart = Restart(**_whole(found.get("restart", {}), "intensity", "park_after"))
    if restart.longest < restart.first:
        tell(("restart", "longest"), f"has to be no less than first, which is {restart.first:g}", "")
    headers = dict(found.get("headers", {}))
    _each_once(headers, lines, tell)
    cwd = found.get("cwd")
    return ServerConfig(
        name=name,
        source=source,
        transport=found.get("transport", "stdio"),
        command=found.get("command"),
        args=tuple(found.get("args", ())),
        env=env,
        inherit=tuple(found.get("inherit", ())),
        cwd=None if cwd is None else str(folder / cwd),
        url=found.get("url"),
        headers=headers,
        oauth=found.get("oauth", "off"),
        oauth_config=oauth,
        isolation=found.get("isolation", "none"),
        away=found.get("away", "mark"),
        disabled=found.get("disabled", False),
        restart=restart,
        budget=Budget(**_whole(found.get("budget", {}), "concurrent", "queue")),
        timeouts=Timeouts(**times),
        limits=Limits(**_whole(limits, *limits), tools=tools),
        rules=rules_of(found.get("permissions", {}), name, lambda path: lines(("permissions", *path)), inside(tell)),
        written=table,
    )


def sound_part(table: Mapping[str, Any], variables: Variables, tell: Tell) -> dict[str, Any]:
    """What can be built of a table with mistakes. Of the fields that are wrong the variables are looked at, and what is wrong with those told."""
    book = Book()
    SERVER.judge(table, (), book)
    if book.full:  # not all of it was judged
        return {}
    wrong = {keys[0] for keys, _, _ in book.told if keys}
    for name in _EXPANDED:
        if name in wrong and name in table:
            for path, text in islice(_texts(table[name], (name,)), ENOUGH):
                _put(text, path, variables, tell)
    return {name: value for name, value in table.items() if name not in wrong}


def _texts(value: Any, path: tuple[str | int, ...], deep: int = 2) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """The texts in it, as deep as any field has some."""
    if isinstance(value, str):
        yield path, value
    elif deep and is_array(value):
        for index, one in enumerate(value):
            yield from _texts(one, (*path, index), deep - 1)
    elif deep and is_object(value):
        for name, one in value.items():
            yield from _texts(one, (*path, name), deep - 1)


def _each_once(headers: Mapping[str, str], lines: Callable[[tuple[str | int, ...]], Source], tell: Tell) -> None:
    """To a server the case of a header's letters is nothing, so of two that differ only in it one would vanish."""
    first: dict[str, str] = {}
    for name in headers:
        other = first.setdefault(name.lower(), name)
        if other != name:
            line = lines(("headers", other)).line
            tell(("headers", name), f"stands there twice, first as {other} in line {line}", "keep one of them")


def inside(tell: Tell) -> Tell:
    """What is told of a permissions block, as of the server that it is in."""
    return lambda path, what, hint: tell(("permissions", *path), what, hint)


def rules_of(
    block: Mapping[str, Any], server: str | None, lines: Callable[[tuple[str | int, ...]], Source], tell: Tell
) -> tuple[Rule, ...]:
    """The rules of a permissions block, each with its line."""
    found: list[Rule] = []
    for verdict in _VERDICTS:
        for index, pattern in enumerate(block.get(verdict, ())):
            where = str(lines((verdict, index)))
            try:
                found.append(Rule(verdict, pattern, server, where))
            except BadRule as error:
                tell((verdict, index), str(error).removeprefix(f"{where}: "), "")
    return tuple(found)


def _whole(table: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """A number such as 3.0 is a whole one."""
    return {name: int(value) if name in names else value for name, value in table.items()}


# --- variables


def _expanded(table: Mapping[str, Any], variables: Variables, tell: Tell) -> dict[str, Any]:
    found = dict(table)
    told: set[str | int] = set()

    def tell_once(path: tuple[str | int, ...], what: str, hint: str) -> None:
        told.add(path[0])
        tell(path, what, hint)

    for name in _EXPANDED:
        if name in found:
            found[name] = _put(found[name], (name,), variables, tell_once)
            if name not in told:  # what has a hole in it is not judged by its looks as well
                _again(name, table[name], found[name], tell)
    return found


def _put(value: Any, path: tuple[str | int, ...], variables: Variables, tell: Tell) -> Any:
    if isinstance(value, str):
        text, problems = variables.put(value)
        for one in problems:
            tell(path, one.what, one.hint)
        return text
    if is_array(value):
        return [_put(one, (*path, index), variables, tell) for index, one in enumerate(value)]
    if is_object(value):
        return {name: _put(one, (*path, name), variables, tell) for name, one in value.items()}
    return value


def _again(name: str, written: Any, value: Any, tell: Tell) -> None:
    """What the variables have made of it has to be right as well. It may be a secret, so it is not said."""
    if value != written:
        book = Book()
        SERVER.fields[name].kind.judge(value, (name,), book)
        if name == "oauth_config":
            value = {one: text for one, text in value.items() if text}
        for path, what, _ in book.told:
            tell(path, f"{what}, once its variables are in place", "see what they are set to")
        if book.told:
            return
    if name == "url" and value:
        try:
            Address.of(value)
        except ConfigError as error:
            tell((name,), str(error), "")


def _env_file(name: str | None, variables: Variables, folder: Path, tell: Tell) -> dict[str, str]:
    """A file of variables, one a line. Nothing in it is expanded."""
    if name is None:
        return {}
    place, problems = variables.put(name)
    for one in problems:
        tell(("envFile",), one.what, one.hint)
    if problems:
        return {}
    try:
        text = read_text(folder / at_home(place))
    except Unreadable as error:
        tell(("envFile",), f"{error.what} ({name})", error.hint)
        return {}
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        pair = _ENV_LINE.fullmatch(line.strip())
        if pair is None or "\0" in line:
            tell(("envFile",), f"line {number} of {name} is no variable", "write NAME=value")
            continue
        value = pair["value"]
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        found[pair["name"]] = value[1:-1] if quoted else value.partition(" #")[0].rstrip()
    return found
