"""Variables in configuration texts, the environment variables for all servers, and the search for configuration files.

A variable is `${NAME}`, `${NAME:-default}`, or a form of other programs (`${env:NAME}`, `${workspaceFolder}`, `${input:id}`). An empty variable counts as unset
if there is a default, as in a shell. A variable's value is not expanded again, so the environment cannot bring in further variables. `$${` stands for `${`.
"""

from __future__ import annotations

import math
import os
import re
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from greenroom.auth.user_folders import config_folder

from .config_schema import LARGEST_NUMBER
from .mistakes import Mistake, Source, nearest, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT_VARIABLES: Final = ("CLAUDE_PROJECT_DIR", "GREENROOM_PROJECT_DIR")
"""Variables that default to the project's folder."""
INPUT_PREFIX: Final = "GREENROOM_INPUT_"
"""Prefix of the variable that answers an input: `GREENROOM_INPUT_API_KEY` for `${input:api-key}`."""

_NAME: Final = re.compile(r"(?:(?P<of>env|input):)?(?P<name>[A-Za-z_][A-Za-z0-9_]*|(?<=input:)[^}:\s]+|/)")
_DEEPEST: Final = 8
_ADVICE: Final = "write ${NAME} or ${NAME:-default}, or $${ for a literal ${"


class VariableProblem(NamedTuple):
    """A mistake in a variable, and what to do."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class EditorInput:
    """An input that VS Code would ask the user for."""

    description: str = ""
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Variables:
    """The values that variables can have."""

    environment: Mapping[str, str]
    project: Path
    inputs: Mapping[str, EditorInput] = field(default_factory=dict[str, EditorInput])
    """The inputs that a VS Code file declares."""
    given: Mapping[str, str] = field(default_factory=dict[str, str])
    """Answers to inputs."""
    editor: bool = False
    """Whether editors' variables such as `${workspaceFolder}` are known."""

    def expand(self, text: str) -> tuple[str, list[VariableProblem]]:
        """The text with its variables expanded, and the mistakes in them."""
        problems: list[VariableProblem] = []
        return self._expand(text, problems, 0), problems

    def _expand(self, text: str, problems: list[VariableProblem], depth: int) -> str:
        parts: list[str] = []
        at = 0
        while (begin := text.find("${", at)) >= 0:
            if begin > at and text[begin - 1] == "$":
                parts.append(text[at : begin - 1] + "${")
                at = begin + 2
                continue
            parts.append(text[at:begin])
            end = _closing_brace(text, begin + 2)
            if end < 0 or depth > _DEEPEST:
                problems.append(
                    VariableProblem(
                        "has a ${ without a closing brace" if end < 0 else "has variables nested too deeply", _ADVICE
                    )
                )
                return "".join(parts)
            parts.append(self._one(text[begin + 2 : end], problems, depth))
            at = end + 1
        return "".join(parts) + text[at:]

    def _one(self, inside: str, problems: list[VariableProblem], depth: int) -> str:
        head, has, otherwise = inside.partition(":-")
        found = _NAME.fullmatch(head)
        if found is None:
            problems.append(
                VariableProblem(f"has a variable that cannot be read: {quoted('${' + inside + '}')}", _ADVICE)
            )
            return ""
        name = found["name"]
        value = self._value(found["of"], name)
        if value or (value is not None and not has):
            return value
        if has:
            return self._expand(otherwise, problems, depth + 1)
        problems.append(self._missing(found["of"], name))
        return ""

    def _value(self, of: str | None, name: str) -> str | None:
        if of == "input":
            known = self.inputs.get(name)
            answer = self.given.get(name, self.environment.get(_input_name(name)))
            return answer if answer is not None or known is None else known.default
        if of is None and self.editor and (word := self._word(name)) is not None:
            return word
        value = self.environment.get(name)
        return str(self.project) if value is None and of is None and name in PROJECT_VARIABLES else value

    def _word(self, name: str) -> str | None:
        match name:
            case "workspaceFolder" | "workspaceRoot":
                return str(self.project)
            case "workspaceFolderBasename":
                return self.project.name
            case "userHome":
                return os.path.expanduser("~")  # noqa: PTH111 - Path.expanduser raises if the user is unknown
            case "cwd":
                return str(current_folder())
            case "pathSeparator" | "/":
                return os.sep
            case _:
                return None

    def _missing(self, of: str | None, name: str) -> VariableProblem:
        if of == "input":
            known = self.inputs.get(name, EditorInput())
            description = f" ({known.description})" if known.description else ""
            return VariableProblem(
                f"needs ${{input:{name}}}, for which greenroom does not ask", f"set {_input_name(name)}{description}"
            )
        close = nearest(name.lower(), (one.lower() for one in self.environment))
        meant = next((one for one in self.environment if close == f"did you mean {one.lower()}?"), None)
        otherwise = f"set it, or write ${{{name}:-default}}"
        return VariableProblem(
            f"the variable {name} is not set", f"did you mean {meant}? Else {otherwise}" if meant else otherwise
        )


def _input_name(name: str) -> str:
    return INPUT_PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())


def _closing_brace(text: str, at: int) -> int:
    """The position of the closing brace; -1 without one."""
    depth = 1
    while at < len(text):
        if text.startswith("${", at):
            depth += 1
            at += 2
            continue
        if text[at] == "}":
            depth -= 1
            if not depth:
                return at
        at += 1
    return -1


# --- Environment variables for all servers: greenroom's own first, otherwise those of Claude Code.
# `MAX_MCP_OUTPUT_TOKENS` is not read under its plain name: it may be set for a server. Greenroom's timeouts are in seconds. Claude Code's are in milliseconds,
# except values below 1000, which are read as seconds: no user gives a server less than a second, and some programs write seconds.

CONNECT_VARIABLE: Final = "GREENROOM_MCP_TIMEOUT"
TOOL_VARIABLE: Final = "GREENROOM_MCP_TOOL_TIMEOUT"
TOKENS_VARIABLE: Final = "GREENROOM_MAX_MCP_OUTPUT_TOKENS"
PORT_VARIABLE: Final = "GREENROOM_MCP_OAUTH_PORT"
FALLBACKS: Final = {CONNECT_VARIABLE: "MCP_TIMEOUT", TOOL_VARIABLE: "MCP_TOOL_TIMEOUT"}

_MILLISECONDS: Final = 1000
_HIGHEST_PORT: Final = 65535
ENVIRONMENT: Final = "environment"
"""The file name in mistakes about environment variables."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Defaults for all servers, from environment variables."""

    connect: float = 30.0
    """30 seconds as in Claude Code, because `uvx` may have to download the server first. Only callers of that server wait for it."""
    tool: float = 60.0
    output_tokens: int = 25_000
    oauth_port: int = 0

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> tuple[Environment, list[Mistake]]:
        """The settings from the variables, and mistakes; a wrong variable keeps its default."""
        mistakes: list[Mistake] = []
        settings = {
            "connect": _seconds(variables, CONNECT_VARIABLE, mistakes),
            "tool": _seconds(variables, TOOL_VARIABLE, mistakes),
            "output_tokens": _integer(variables, TOKENS_VARIABLE, 100, LARGEST_NUMBER, mistakes),
            "oauth_port": _integer(variables, PORT_VARIABLE, 0, _HIGHEST_PORT, mistakes),
        }
        known: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
        return cls(**known), mistakes


def _seconds(variables: Mapping[str, str], name: str, mistakes: list[Mistake]) -> float | None:
    for each in (name, FALLBACKS[name]):
        text = variables.get(each, "").strip()
        if not text:
            continue
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if 0 < value <= LARGEST_NUMBER * _MILLISECONDS:
            return value if each == name or value < _MILLISECONDS else value / _MILLISECONDS
        kind = "seconds" if each == name else "milliseconds"
        mistakes.append(_wrong(each, text, f"has to be a number of {kind}, more than 0"))
    return None


def _integer(variables: Mapping[str, str], name: str, least: int, most: int, mistakes: list[Mistake]) -> int | None:
    text = variables.get(name, "").strip()
    if not text:
        return None
    value = int(text) if text.isascii() and text.isdigit() and len(text) < len(str(LARGEST_NUMBER)) + 2 else -1
    if least <= value <= most:
        return value
    mistakes.append(_wrong(name, text, f"has to be a whole number from {least} to {most}"))
    return None


def _wrong(name: str, text: str, what: str) -> Mistake:
    return Mistake(Source(ENVIRONMENT, 0), None, name, f"{what}, not {quoted(text)}", "it is ignored", harmless=True)


# --- Search for configuration files: the user's file and the project's.
# The user's file is `greenroom.toml` in the system's configuration folder (`$XDG_CONFIG_HOME/greenroom`, usually `~/.config/greenroom`). The project's file is
# `greenroom.toml` or `.greenroom/greenroom.toml` in the current folder or a parent folder up to the root of the repository; without a repository, only in the
# current folder. The limit keeps a file in a shared folder such as /tmp from starting programs for users who work in folders below it.

FILE_NAME: Final = "greenroom.toml"
HIDDEN_FOLDER: Final = ".greenroom"
_REPOSITORIES: Final = (".git", ".hg", ".jj", ".svn")


def user_file() -> Path:
    """The path of the user's file, which may not exist."""
    return config_folder() / FILE_NAME


def project_folder(environment: Mapping[str, str]) -> Path:
    """The project's folder: from a variable, otherwise the nearest folder with a greenroom.toml, the repository, or the current folder."""
    named = environment.get("GREENROOM_PROJECT_DIR") or environment.get("CLAUDE_PROJECT_DIR")
    here = current_folder()
    if named:
        return here / named
    folders = [here]
    for folder in (here, *here.parents):
        if folder not in folders:
            folders.append(folder)
        if any(exists(folder / name) for name in _REPOSITORIES):
            break
    else:
        folders = [here]
    return next((one for one in folders if any(map(exists, project_files(one)))), folders[-1])


def current_folder() -> Path:
    """The working directory; if it was removed, its former path."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.sep, os.environ.get("PWD", ""))


def exists(path: Path, *, unsure: bool = False) -> bool:
    """Whether the path exists. `unsure` is the result if that cannot be determined (an unreadable folder, a loop of links)."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return unsure
    return True


def project_files(folder: Path) -> tuple[Path, Path]:
    """The two paths that a project's file may have; the first existing one is used."""
    return folder / FILE_NAME, folder / HIDDEN_FOLDER / FILE_NAME


def distrust_reason(path: Path) -> str | None:
    """Why a file that the search found is not trusted: other users may have written it. None if it is trusted."""
    if not hasattr(os, "geteuid"):
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    if found.st_uid not in (os.geteuid(), 0):
        return "belongs to another user"
    if found.st_mode & stat.S_IWOTH:
        return "is writable by all users"
    return (
        "is writable by other members of its group"
        if found.st_mode & stat.S_IWGRP and _group_has_others(found.st_gid)
        else None
    )


def _group_has_others(group: int) -> bool:
    """Whether the group has other members. Many systems give each user a private group and make new files writable by it."""
    import grp  # noqa: PLC0415 - POSIX only, and rarely needed
    import pwd  # noqa: PLC0415 - as above

    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return True
    alone = user.pw_gid == group and found.gr_name == user.pw_name
    return not alone or not set(found.gr_mem) <= {user.pw_name}
