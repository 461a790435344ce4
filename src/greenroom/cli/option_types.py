"""What commands, arguments and options are, as values: the table (`words`), and the options of `serve`, are made of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind: TypeAlias = Literal["text", "flag", "switch", "whole", "seconds", "path", "choice", "json"]
"""A flag is off where it is not typed; a switch has a word for each of its positions, `--x` and `--no-x`, and none where neither is typed."""
Completion: TypeAlias = Literal["", "target", "name", "file"]
"""Nothing; any target: configured names and files of Python; configured names only; files of Python only."""


@dataclass(frozen=True, slots=True)
class Argument:
    """A word that a command takes."""

    name: str
    help: str
    needed: bool = True
    many: bool = False
    path: bool = False
    completes: Completion = ""
    """What a shell offers for it."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a command."""

    name: str
    help: str
    kind: Kind = "text"
    short: str = ""
    shown: str = ""
    """What its value is called in the help."""
    many: bool = False
    default: Any = None
    needed: bool = False
    choices: Sequence[str] = ()
    variable: str = ""
    """The environment's variable that stands for it, which the command reads where nothing was typed."""
    most: int | None = None
    """The highest that a whole number may be; the lowest is 1."""
    zero: bool = False
    """Whether a number may be 0."""
    unset: str = ""
    """What the word `none` stands for, where it may be typed instead of a number: "no limit", for example."""
    setting: str = ""
    """The setting that it changes, as `http.max_body` for a field of `HttpConfig`, `server.call_timeout` for one of `Settings`; both where it is in both."""
    section: str = ""
    """The heading under which the help lists it."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command, or a group of them."""

    name: str
    help: str
    run: str = ""
    arguments: Sequence[Argument] = ()
    options: Sequence[Option] = ()
    commands: Sequence[Command] = ()
    more: str = ""
    """What the command's own help says besides: examples."""
    behind: bool = False
    """Whether a server's command may stand behind `--`."""
    not_behind: str = ""
    """Why it may not, where a user could expect that it may."""
