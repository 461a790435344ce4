"""Writes the configuration reference and the schema for editors from the table of fields: `python -m tests.docs.configuration`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from greenroom.config.config_schema import ROOT, SERVER, TableMapType, TableType, schema
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

This page lists all fields of a `greenroom.toml`, the file that configures a host's servers. [Configure servers in a
file](../how-to/configure-servers.md) introduces it with examples. The fields are those of `greenroom config check` and of the
[schema for editors](greenroom.schema.json); `python -m tests.docs.configuration` writes this page and the schema.

An editor that supports JSON Schema for TOML checks the file while you write, if the first line names the schema:

```toml
#:schema ./greenroom.schema.json
```
"""

TAIL: Final = """\
## Files

| File | Scope |
| --- | --- |
| `$XDG_CONFIG_HOME/greenroom/greenroom.toml`, usually `~/.config/greenroom/greenroom.toml` | the user |
| `greenroom.toml`, or `.greenroom/greenroom.toml`, in the current folder or a parent folder up to the root of the repository | the project |

- Both files are optional.
- A server in the project's file replaces the whole server of the same name in the user's file. The permissions of both files apply.
- A project's file that belongs to another user, or that other users can write to, is not read unless you name it. A private group of the user does not
  count as other users.
- The name of a file ends in `.toml`, or in `.json` for the files of other programs.

## Variables

| Written | Meaning |
| --- | --- |
| `${NAME}` | the environment variable |
| `${NAME:-default}` | the same, with a default for an unset or empty variable |
| `$${` | a literal `${` |

Variables are allowed in `command`, `args`, `env`, `cwd`, `url`, `headers` and `oauth_config`. An unset variable is an error of that server alone. The value of
a variable is not expanded again.
"""


def page() -> str:
    """The reference page."""
    return "\n".join([HEAD, *_tables(), TAIL, *_variables(), *_environment()]).rstrip() + "\n"


def _tables() -> Iterator[str]:
    yield "## The file"
    yield ""
    yield from _fields(ROOT)
    yield "## A server"
    yield ""
    yield "`[server.NAME]`: NAME is 1 to 32 of the characters a-z, 0-9, _ and -."
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
    yield from rows_of(["Field", "Type", "Meaning", "Default"], rows)


def _variables() -> Iterator[str]:
    named = " and ".join(f"`${{{name}}}`" for name in PROJECT_VARIABLES)
    yield f"{named} are the folder of the project, unless they are set. Files of other programs may also use `${{env:NAME}}`, `${{workspaceFolder}}`,"
    yield "`${workspaceFolderBasename}`, `${userHome}`, `${pathSeparator}` and `${cwd}`. In them `${input:api-key}` is the environment variable"
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
            "seconds for a server's start, and for opening the connection",
            f"{plain.connect:g}",
        ],
        [
            f"`{TOOL_VARIABLE}`",
            f"`{FALLBACKS[TOOL_VARIABLE]}`",
            "seconds for a tool call",
            f"{plain.tool:g}",
        ],
        [
            f"`{TOKENS_VARIABLE}`",
            "none, since `MAX_MCP_OUTPUT_TOKENS` may be meant for a server",
            "the most tokens of an answer that a model gets",
            str(plain.output_tokens),
        ],
        [f"`{PORT_VARIABLE}`", "none", "the local port of the redirect after a sign-in", "any free port"],
    ]
    yield from rows_of(["Variable", "If it is unset", "Meaning", "Default"], rows)
    yield "A server's own settings take precedence. The variables in the second column are Claude Code's, in milliseconds; a number below 1000 is"
    yield "read as seconds, because a timeout below one second is not useful."
    yield ""
    yield f"The {plain.connect:g} seconds are the same as in Claude Code, because `uvx` or `npx` may have to download a server at its first start. Only callers of"
    yield "that server wait for it. Greenroom's own variables accept fractions."


def schema_file() -> str:
    """The schema."""
    found: dict[str, Any] = schema()
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


FILES: Final[dict[str, Callable[[], str]]] = {PAGE: page, SCHEMA: schema_file}


def main(root: Path = ROOTS) -> None:
    """Write the page and the schema."""
    for name, make in FILES.items():
        (root / name).write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    main()
