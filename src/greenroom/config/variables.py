"""Variables in texts: `${NAME}`, `${NAME:-otherwise}`, and the words of other programs (`${env:NAME}`, `${workspaceFolder}`, `${input:id}`).

A variable that is set to nothing counts as not set where there is an otherwise, as in a shell; without one it stands for nothing. What a variable
stands for is not looked at again, so no environment can bring in another variable. `$${` is `${` itself.
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

from .fields import LARGEST_NUMBER
from .mistakes import Mistake, Source, nearest, quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

PROJECT_VARIABLES: Final = ("CLAUDE_PROJECT_DIR", "GREENROOM_PROJECT_DIR")
"""Variables that are the project's folder unless they are set."""
INPUT_PREFIX: Final = "GREENROOM_INPUT_"
"""What answers `${input:api-key}`: `GREENROOM_INPUT_API_KEY`."""

_NAME: Final = re.compile(r"(?:(?P<of>env|input):)?(?P<name>[A-Za-z_][A-Za-z0-9_]*|(?<=input:)[^}:\s]+|/)")
_DEEPEST: Final = 8
_ADVICE: Final = "write ${NAME} or ${NAME:-otherwise}, or $${ for the signs themselves"


class VariableProblem(NamedTuple):
    """What is wrong with a variable, and what to do."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class EditorInput:
    """Something that VS Code would ask its user for."""

    description: str = ""
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Variables:
    """What there is to stand for."""

    environment: Mapping[str, str]
    project: Path
    inputs: Mapping[str, EditorInput] = field(default_factory=dict[str, EditorInput])
    """What a file of VS Code's lists."""
    given: Mapping[str, str] = field(default_factory=dict[str, str])
    """Answers to those."""
    editor: bool = False
    """Whether editors' words are known: `${workspaceFolder}` and its like."""

    def expand(self, text: str) -> tuple[str, list[VariableProblem]]:
        """The text with its variables in place, and what is wrong with them."""
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
                        "has a ${ that nothing closes" if end < 0 else "has too many ${ in each other", _ADVICE
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
                return os.path.expanduser("~")  # noqa: PTH111 - a path's own raises where no user is known
            case "cwd":
                return str(current_folder())
            case "pathSeparator" | "/":
                return os.sep
            case _:
                return None

    def _missing(self, of: str | None, name: str) -> VariableProblem:
        if of == "input":
            known = self.inputs.get(name, EditorInput())
            said = f" ({known.description})" if known.description else ""
            return VariableProblem(
                f"wants ${{input:{name}}}, which nobody here is asked for", f"set {_input_name(name)}{said}"
            )
        close = nearest(name.lower(), (one.lower() for one in self.environment))
        meant = next((one for one in self.environment if close == f"did you mean {one.lower()}?"), None)
        otherwise = f"set it, or write ${{{name}:-otherwise}}"
        return VariableProblem(
            f"the variable {name} is not set", f"did you mean {meant}? Else {otherwise}" if meant else otherwise
        )


def _input_name(name: str) -> str:
    return INPUT_PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())


def _closing_brace(text: str, at: int) -> int:
    """Where the brace is that closes it; -1 where none is."""
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


# --- What the environment says for all servers: our own variables first, those of Claude Code where ours are not set.
# `MAX_MCP_OUTPUT_TOKENS` is not read under its plain name: it may have been set for a server. Ours are seconds. The others are milliseconds, as Claude Code
# has them, unless the number is under 1000: no user gives a server less than a second, and there are programs that mean seconds.

CONNECT_VARIABLE: Final = "GREENROOM_MCP_TIMEOUT"
TOOL_VARIABLE: Final = "GREENROOM_MCP_TOOL_TIMEOUT"
TOKENS_VARIABLE: Final = "GREENROOM_MAX_MCP_OUTPUT_TOKENS"
PORT_VARIABLE: Final = "GREENROOM_MCP_OAUTH_PORT"
FALLBACKS: Final = {CONNECT_VARIABLE: "MCP_TIMEOUT", TOOL_VARIABLE: "MCP_TOOL_TIMEOUT"}

_MILLISECONDS: Final = 1000
_HIGHEST_PORT: Final = 65535
ENVIRONMENT: Final = "environment"
"""What a mistake in a variable names as its file."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What was said there."""

    connect: float = 30.0
    """As in Claude Code. caliban has 5 s, in which no `uvx` has fetched what it is to start; only a caller that wants a server waits for it."""
    tool: float = 60.0
    output_tokens: int = 25_000
    oauth_port: int = 0

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> tuple[Environment, list[Mistake]]:
        """What is set, and what is wrong with it; then the default holds."""
        mistakes: list[Mistake] = []
        said = {
            "connect": _seconds(variables, CONNECT_VARIABLE, mistakes),
            "tool": _seconds(variables, TOOL_VARIABLE, mistakes),
            "output_tokens": _integer(variables, TOKENS_VARIABLE, 100, LARGEST_NUMBER, mistakes),
            "oauth_port": _integer(variables, PORT_VARIABLE, 0, _HIGHEST_PORT, mistakes),
        }
        known: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
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
    return Mistake(
        Source(ENVIRONMENT, 0), None, name, f"{what}, not {quoted(text)}", "it is passed over", harmless=True
    )


# --- Where configuration is looked for: the user's file, and the project's.
# The user's is `greenroom.toml` in the folder that the system has for such (`$XDG_CONFIG_HOME/greenroom`, mostly `~/.config/greenroom`). The project's is
# `greenroom.toml`, or `.greenroom/greenroom.toml`, in the current folder or in one above it, as far up as the repository goes; where there is no
# repository only the current folder is looked into. So a file in a folder that all may write to starts programs only for the users that work there.

FILE_NAME: Final = "greenroom.toml"
HIDDEN_FOLDER: Final = ".greenroom"
_REPOSITORIES: Final = (".git", ".hg", ".jj", ".svn")


def user_file() -> Path:
    """The user's, whether it is there or not."""
    return config_folder() / FILE_NAME


def project_folder(environment: Mapping[str, str]) -> Path:
    """The project that one is in: what is named as such, else the nearest folder with a file of ours, else the repository, else this folder."""
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
    """This one; where it was removed, the place where it was."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return Path(os.sep, os.environ.get("PWD", ""))


def exists(path: Path, *, unsure: bool = False) -> bool:
    """Whether there is something. `unsure` is what to say where that cannot be known: a folder may be closed to us, or a link lead in circles."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except (OSError, ValueError):
        return unsure
    return True


def project_files(folder: Path) -> tuple[Path, Path]:
    """The two names that a project's file may have; the first one counts."""
    return folder / FILE_NAME, folder / HIDDEN_FOLDER / FILE_NAME


def distrust_reason(path: Path) -> str | None:
    """Why a file that was found, and not named, is not to be trusted: others may have written it."""
    if not hasattr(os, "geteuid"):
        return None
    try:
        found = path.stat()
    except OSError:
        return None
    if found.st_uid not in (os.geteuid(), 0):
        return "belongs to somebody else"
    if found.st_mode & stat.S_IWOTH:
        return "may be written by anybody"
    return (
        "may be written by others of its group"
        if found.st_mode & stat.S_IWGRP and _group_has_others(found.st_gid)
        else None
    )


def _group_has_others(group: int) -> bool:
    """Whether others may be in it. Many systems give each user a group that is theirs alone, and let all that they make be written by it."""
    import grp  # noqa: PLC0415 - where there are users with numbers, and few files that need it
    import pwd  # noqa: PLC0415 - as above

    try:
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
    except KeyError:
        return True
    alone = user.pw_gid == group and found.gr_name == user.pw_name
    return not alone or not set(found.gr_mem) <= {user.pw_name}
