"""Writes the reference of the configuration, and the schema for editors, from the table of its fields: `python -m tests.docs.configuration`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from greenroom.config.fields import ROOT, SERVER, TableMapType, TableType, schema
from greenroom.config.variables import (
    CONNECT_VARIABLE,
    FALLBACKS,
    INPUT_PREFIX,
    PORT_VARIABLE,
    PROJECT_VARIABLES,
    TOKENS_VARIABLE,
    TOOL_VARIABLE,
    Environment,
)

from .protocol import table as rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOTS = Path(__file__).parents[2]
PAGE: Final = "docs/reference/configuration.md"
SCHEMA: Final = "docs/reference/greenroom.schema.json"

HEAD: Final = """\
# Configuration

What may stand in a `greenroom.toml`. This page is written by `python -m tests.docs.configuration` from the table that the checker and the
[schema for editors](greenroom.schema.json) are made from. [Configure servers in a file](../how-to/configure-servers.md) shows how it is used.

An editor that knows JSON Schema for TOML checks the file while it is written, when its first line names the schema:

```toml
#:schema ./greenroom.schema.json
```
"""

TAIL: Final = """\
## Which files

| File | Whose |
| --- | --- |
| `$XDG_CONFIG_HOME/greenroom/greenroom.toml`, mostly `~/.config/greenroom/greenroom.toml` | the user's |
| `greenroom.toml`, or `.greenroom/greenroom.toml`, in the current folder or in one above it as far up as the repository goes | the project's |

Both are optional. A server of the project's replaces the user's of the same name, all of it; permissions of both hold. A project's file that belongs to
somebody else, or that others may write to, is not read unless it is named; a group that is the user's alone, as many systems give each, is nobody else.
Files end in `.toml`, or in `.json` for those of other programs.

## Variables

`${NAME}` is a variable of the environment, `${NAME:-otherwise}` has something for when it is not set, or empty; `$${` is `${` itself. They may stand in
`command`, `args`, `env`, `cwd`, `url`, `headers` and `oauth_config`. A variable that is not set is a mistake of that server. What a variable stands for is
not looked at again.
"""


def page() -> str:
    """The reference."""
    return "\n".join([HEAD, *_tables(), TAIL, *_variables(), *_environment()]).rstrip() + "\n"


def _tables() -> Iterator[str]:
    yield "## The file"
    yield ""
    yield from _fields(ROOT)
    yield "## A server"
    yield ""
    yield "`[server.NAME]`: NAME is 1 to 32 of the signs a-z, 0-9, _ and -."
    yield ""
    yield from _fields(SERVER)
    for name, field in SERVER.fields.items():
        if isinstance(field.kind, TableType):
            yield f"### {name}"
            yield ""
            yield f"`[server.NAME.{name}]`: {field.description[0].lower()}{field.description[1:]}"
            yield ""
            yield from _fields(field.kind)


def _fields(table: TableType) -> Iterator[str]:
    rows = [
        [
            f"`{name}`",
            "tables" if isinstance(one.kind, TableMapType) else one.kind.expected,
            one.description,
            one.default,
        ]
        for name, one in table.fields.items()
    ]
    yield from rows_of(["Field", "Is", "Says", "Without it"], rows)


def _variables() -> Iterator[str]:
    named = " and ".join(f"`${{{name}}}`" for name in PROJECT_VARIABLES)
    yield f"{named} are the folder of the project, unless they are set. In files of other programs `${{env:NAME}}`, `${{workspaceFolder}}`,"
    yield "`${workspaceFolderBasename}`, `${userHome}`, `${pathSeparator}` and `${cwd}` are known as well, and `${input:api-key}` is"
    yield f"`{INPUT_PREFIX}API_KEY`."
    yield ""


def _environment() -> Iterator[str]:
    yield "## The environment"
    yield ""
    plain = Environment()
    rows = [
        [
            f"`{CONNECT_VARIABLE}`",
            f"`{FALLBACKS[CONNECT_VARIABLE]}`",
            "seconds that a server may take to start and to shake hands",
            f"{plain.connect:g}",
        ],
        [
            f"`{TOOL_VARIABLE}`",
            f"`{FALLBACKS[TOOL_VARIABLE]}`",
            "seconds that a call of a tool may take",
            f"{plain.tool:g}",
        ],
        [
            f"`{TOKENS_VARIABLE}`",
            "none: servers have one of their own",
            "tokens of an answer that a model gets",
            str(plain.output_tokens),
        ],
        [f"`{PORT_VARIABLE}`", "none", "the port where a user who signs in comes back to", "any that is free"],
    ]
    yield from rows_of(["Variable", "If that is not set", "Is", "Else"], rows)
    yield "What a server's own block says comes first. The variables in the second column are Claude Code's, in milliseconds; a number under 1000 is"
    yield "taken for seconds, since nobody gives a server less than one."
    yield ""
    yield f"The {plain.connect:g} seconds are those that Claude Code gives. caliban, whose variables these are under another name, gives 5: too few for a server that"
    yield "`uvx` or `npx` fetches when it is first started, and that nobody but its own callers waits for. A number of ours may have a fraction."


def schema_file() -> str:
    """The schema."""
    found: dict[str, Any] = schema()
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


FILES: Final[dict[str, Callable[[], str]]] = {PAGE: page, SCHEMA: schema_file}


def main(root: Path = ROOTS) -> None:
    """Write both."""
    for name, make in FILES.items():
        (root / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
