"""The reference page of the public API: every name with its signature and the first sentence of its docstring.

``python tests/docs/front_door.py`` writes docs/reference/front-door.md; with ``--check`` it only reports whether the page is current.
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import itertools
import re
import sys
import textwrap
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import greenroom
from greenroom import auth, host, observe, transports
from greenroom.actors.handler_options import RunOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import ModuleType

ROOT = Path(__file__).parents[2]
PAGE = "docs/reference/front-door.md"

SHOWN = {"Server", "Context", "Client"}
"""Classes whose methods are listed, too."""

THEMES = (
    ("Servers", ("Server", "McpServer", "Context", "Settings", "HttpConfig", "Hooks")),
    ("Clients", ("Client", "SyncClient", "Command", "Host", "ClientSettings", "ClientHandler", "Deferred")),
    ("Registering", ("ToolOptions", "ResourceOptions", "TemplateOptions", "PromptOptions", "CompletionOptions")),
)
ROOMS = (
    (
        auth,
        "Authentication: how a server identifies its callers, and how a client signs in",
        (
            *(
                "BearerAuth",
                "KeySet",
                "Introspection",
                "OAuthResource",
                "APIKeyAuth",
                "BasicAuth",
                "CustomAuth",
                "NoAuth",
                "AuthInfo",
            ),
            *(
                "OAuth",
                "ClientCredentials",
                "EnterpriseManaged",
                "GivenTokens",
                "FileStore",
                "KeyringStore",
                "MemoryStore",
            ),
        ),
    ),
    (
        host,
        "What a host permits: consent, permission rules, pins of tools, limits for answers, and questions of servers to the user",
        ("Consent", "Permissions", "Rule", "ConsentQuestion", "ConsentAnswer"),
    ),
    (
        transports,
        "Routes to a server, their settings, and their errors",
        ("Command", "HttpRoute", "SseRoute", "HttpSettings", "HttpConfig"),
    ),
    (
        observe,
        "A running program, seen: the admin listener, metrics, traces, audit lines, and [events](events.md)",
        ("Admin", "new_links", "PrometheusMetrics", "OpenTelemetry", "AuditLog", "subscribe"),
    ),
)
"""The packages with public names of their own, each with its purpose and the names that come first."""
COMMON_FIELDS = {
    "isolation": 'Where the function runs: `"loop"`, `"thread"`, `"process"` or a `Pool`. None: an `async def` in the loop, a `def` in a thread.',
    "timeout": "After how many seconds a call gets a timeout error; None leaves it to `call_timeout` of the server's settings.",
    "threads": "How many threads its calls may use at once; None: the server's own limit.",
    "title": "The name for people.",
    "description": "Its purpose; None: the function's docstring.",
    "icons": "Its icons: `Icon(…)`.",
    "meta": "Its `_meta` in the list.",
    "scopes": "The scopes that a caller needs, all of them, to see it and to use it.",
    "input_schema": "The JSON Schema of the arguments; None: the function's type hints are the schema.",
    "output_schema": "The JSON Schema of structured results; None: the return hint is the schema.",
    "annotations": "Its annotations, sent to clients unchanged.",
    "validate_input": "Whether arguments are checked against `input_schema`; None leaves it to `strict` of the server's settings.",
    "validate_output": "Whether structured results are checked against `output_schema`; None leaves it to `strict`.",
    "long_running": "Whether a call is answered with a task even if the client did not ask for one, where its revision has tasks.",
    "task_support": 'Whether clients may call it as a task: `"forbidden"`, `"optional"` or `"required"`. None: optional for a `long_running` tool, else forbidden.',
    "defer_task": "Whether its handler says when a call becomes a task (`await ctx.start_task()`), for clients without a session.",
    "uri": "The URI by which clients read it.",
    "mime_type": "The MIME type of results that name none.",
    "size": "Its size in bytes, for the list.",
    "uri_template": "The [template](uri-templates.md) that URIs are matched against.",
    "segments": "Whether a bare `{variable}` never matches a `/`, even as the last part.",
    "arguments": "Its arguments; None: the function's parameters.",
}
"""Descriptions of fields that have none in the source: the options of what is registered."""
_FIRST = re.compile(r"\A(.+?[.!?])(?:\s|\Z)", re.DOTALL)


def names_of(room: ModuleType) -> list[str]:
    """The public names of a package, but the events, which have a page of their own."""
    return [name for name in room.__all__ if name != "EVENT_TYPES" and not _is_event(getattr(room, name))]


def _is_event(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, observe.Event)


def sentence(value: Any) -> str:
    """The first sentence of the docstring, its own or its class's; for an annotated type, the format in its schema."""
    if get_origin(value) is Annotated:
        [said] = value.__metadata__
        return f"A text in the format {said.extra_json_schema['format']}."
    text = inspect.cleandoc(inspect.getdoc(value) or "")
    found = _FIRST.match(text.partition("\n\n")[0].replace("\n", " "))
    return (found[1] if found else text.partition("\n")[0]).rstrip(":")


def signature(name: str, value: Any) -> str:
    """The name with its signature."""
    if _is(value, BaseException, Enum) or get_origin(value) is Annotated:
        return name
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    arguments: list[str] = []
    star = False
    for each in found.parameters.values():
        if each.name == "self" or each.name.startswith("_"):
            continue
        if each.kind is each.KEYWORD_ONLY and not star:
            arguments.append("*")
            star = True
        if each.kind is each.VAR_POSITIONAL:
            star = True
        prefix = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        arguments.append(f"{prefix}{each.name}{'' if each.default is each.empty else '=…'}")
    return f"{name}({', '.join(arguments)})"


def methods(kind: type) -> Iterator[tuple[str, Any]]:
    """The public methods and properties of a class, its ancestors' among them, in alphabetical order."""
    for name in sorted(dir(kind)):
        if not name.startswith("_"):
            value = inspect.getattr_static(kind, name)
            if isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value):
                yield name, value


def render() -> str:
    """The page."""
    names = [name for name in greenroom.__all__ if not name.startswith("_")]
    placed = {name for _, members in THEMES for name in members}
    errors = [name for name in names if _is(getattr(greenroom, name), BaseException) and name not in placed]
    values = [name for name in names if name not in placed and name not in errors]
    lines = [
        "# The front door",
        "",
        "This page lists every name that `from greenroom import …` offers, with its parameters and a summary. After it come the packages with names",
        "of their own, such as `from greenroom.auth import …`. `help()` of a name shows the whole docstring.",
        "",
        "The names for processes, supervision trees and their tests are in [the supervision package](supervision.md).",
        "`python tests/docs/front_door.py` writes this page from the code.",
    ]
    for title, members in (*THEMES, ("Values, contents and results", values), ("Errors", errors)):
        lines += [
            "",
            f"## {title}",
            "",
            *entries(greenroom, members, settings=title in ("Servers", "Clients", "Registering")),
        ]
    for room, about, first in ROOMS:
        rest = [name for name in names_of(room) if name not in {*first, *names}]
        lines += [
            "",
            f"## `{room.__name__}`",
            "",
            f"{about}.",
            "",
            *entries(room, [*(name for name in first if name not in names), *rest]),
        ]
        if both := [f"`{name}`" for name in room.__all__ if name in names]:
            lines += ["", f"Also in the front door: {', '.join(both)}."]
    return "\n".join(lines) + "\n"


def entries(room: ModuleType, names: Iterable[str], *, settings: bool = False) -> Iterator[str]:
    """An entry for each name: with its signature, or with its fields if it is one of the `settings`."""
    for name in names:
        value: Any = getattr(room, name)
        fields: bool = settings and dataclasses.is_dataclass(value)
        yield f"- `{name if fields else signature(name, value)}`: {sentence(value)}"
        if name in SHOWN:
            for each, member in methods(getattr(room, name)):
                yield f"  - `{_member(each, member)}`: {_about(member)}"
        elif fields:
            yield from fields_of(value)


def fields_of(kind: Any) -> list[str]:
    """The fields with their defaults and descriptions, from the source or from `COMMON_FIELDS`."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(made, ast.ClassDef)
    said = dict(COMMON_FIELDS) if issubclass(kind, RunOptions) else {}
    for one, after in itertools.pairwise(made.body):
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(after, ast.Expr):
            said[one.target.id] = " ".join(ast.literal_eval(after.value).split())
    return [
        f"  - `{field.name}`{_default(field)}{': ' + said[field.name] if field.name in said else ''}"
        for field in dataclasses.fields(kind)
    ]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        return f" ({field.default!r})"
    if field.default_factory is dataclasses.MISSING:
        return ""
    made: Any = field.default_factory()
    return f" ({made!r})" if isinstance(made, dict) else f" ({type(made).__name__}())"


def _is(value: object, *kinds: type) -> bool:
    return inspect.isclass(value) and issubclass(value, kinds)


def _member(name: str, value: Any) -> str:
    if isinstance(value, property):
        return f".{name}"
    return signature(f".{name}", getattr(value, "__func__", value))


def _about(value: Any) -> str:
    return sentence(value.fget if isinstance(value, property) else getattr(value, "__func__", value))


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write the page, or check that it is current."""
    parser = argparse.ArgumentParser(description=f"Write {PAGE}.")
    parser.add_argument("--check", action="store_true", help="only report whether the page is up to date")
    check: bool = parser.parse_args(arguments).check
    page = root / PAGE
    text = render()
    if not check:
        page.write_text(text, encoding="utf-8")
    elif not page.exists() or page.read_text(encoding="utf-8") != text:
        sys.stderr.write(f"{PAGE} is out of date: run `python tests/docs/front_door.py`\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
