"""Variables in texts: `${NAME}`, `${NAME:-otherwise}`, and the words of other programs (`${env:NAME}`, `${workspaceFolder}`, `${input:id}`).

A variable that is set to nothing counts as not set where there is an otherwise, as in a shell; without one it stands for nothing. What a variable
stands for is not looked at again, so nobody's environment can bring in another variable. `$${` is `${` itself.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from .mistakes import nearest, quoted
from .places import current_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PROJECT: Final = ("CLAUDE_PROJECT_DIR", "GREENROOM_PROJECT_DIR")
"""Variables that are the project's folder unless they are set."""
INPUT: Final = "GREENROOM_INPUT_"
"""What answers `${input:api-key}`: `GREENROOM_INPUT_API_KEY`."""

_NAME: Final = re.compile(r"(?:(?P<of>env|input):)?(?P<name>[A-Za-z_][A-Za-z0-9_]*|(?<=input:)[^}:\s]+|/)")
_DEEPEST: Final = 8
_ADVICE: Final = "write ${NAME} or ${NAME:-otherwise}, or $${ for the signs themselves"


class Problem(NamedTuple):
    """What is wrong with a variable, and what to do."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class Input:
    """Something that VS Code would ask its user for."""

    description: str = ""
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Variables:
    """What there is to stand for."""

    environment: Mapping[str, str]
    project: Path
    inputs: Mapping[str, Input] = field(default_factory=dict[str, Input])
    """What a file of VS Code's lists."""
    given: Mapping[str, str] = field(default_factory=dict[str, str])
    """Answers to those."""
    editor: bool = False
    """Whether editors' words are known: `${workspaceFolder}` and its like."""

    def put(self, text: str) -> tuple[str, list[Problem]]:
        """The text with its variables in place, and what is wrong with them."""
        problems: list[Problem] = []
        return self._put(text, problems, 0), problems

    def _put(self, text: str, problems: list[Problem], depth: int) -> str:
        parts: list[str] = []
        at = 0
        while (begin := text.find("${", at)) >= 0:
            if begin > at and text[begin - 1] == "$":
                parts.append(text[at : begin - 1] + "${")
                at = begin + 2
                continue
            parts.append(text[at:begin])
            end = _end(text, begin + 2)
            if end < 0 or depth > _DEEPEST:
                problems.append(
                    Problem("has a ${ that nothing closes" if end < 0 else "has too many ${ in each other", _ADVICE)
                )
                return "".join(parts)
            parts.append(self._one(text[begin + 2 : end], problems, depth))
            at = end + 1
        return "".join(parts) + text[at:]

    def _one(self, inside: str, problems: list[Problem], depth: int) -> str:
        head, has, otherwise = inside.partition(":-")
        found = _NAME.fullmatch(head)
        if found is None:
            problems.append(Problem(f"has a variable that cannot be read: {quoted('${' + inside + '}')}", _ADVICE))
            return ""
        name = found["name"]
        value = self._value(found["of"], name)
        if value or (value is not None and not has):
            return value
        if has:
            return self._put(otherwise, problems, depth + 1)
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
        return str(self.project) if value is None and of is None and name in PROJECT else value

    def _word(self, name: str) -> str | None:
        match name:
            case "workspaceFolder" | "workspaceRoot":
                return str(self.project)
            case "workspaceFolderBasename":
                return self.project.name
            case "userHome":
                return os.path.expanduser("~")  # noqa: PTH111 - a path's own raises where nobody is known
            case "cwd":
                return str(current_folder())
            case "pathSeparator" | "/":
                return os.sep
            case _:
                return None

    def _missing(self, of: str | None, name: str) -> Problem:
        if of == "input":
            known = self.inputs.get(name, Input())
            said = f" ({known.description})" if known.description else ""
            return Problem(f"wants ${{input:{name}}}, which nobody here is asked for", f"set {_input_name(name)}{said}")
        close = nearest(name.lower(), (one.lower() for one in self.environment))
        meant = next((one for one in self.environment if close == f"did you mean {one.lower()}?"), None)
        otherwise = f"set it, or write ${{{name}:-otherwise}}"
        return Problem(
            f"the variable {name} is not set", f"did you mean {meant}? Else {otherwise}" if meant else otherwise
        )


def _input_name(name: str) -> str:
    return INPUT + re.sub(r"[^A-Z0-9]", "_", name.upper())


def _end(text: str, at: int) -> int:
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
