"""`Command`: a server that is a program, with its arguments, environment and limits. ``Command("uvx", "mcp-server-time")``.

There is no shell, so nothing has to be quoted and nothing is expanded. The program inherits a small part of our environment (paths, user,
language): our tokens and keys are withheld unless they are passed explicitly.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

from greenroom.errors import ConfigError, suggests
from greenroom.protocol.jsonrpc import MessageLimits

from .command_wire import CommandWire
from .interfaces import PortableRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from greenroom.supervision import Pid

    from .remote_wire import HomeCallbacks

INHERITED: Final = frozenset(
    {
        *("HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER"),
        *("APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE"),
        *("PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "TEMP", "TMP", "USERNAME", "USERPROFILE", "WINDIR"),
    }
)
"""The variables that a server inherits, besides `LC_…`."""

_SHOWN: Final = 400
"""The longest description, in characters."""
_SECRET: Final = re.compile(r"(?i)(token|secret|passw|api[-_]?key|auth|credential|bearer|cookie)")
_OPTION: Final = re.compile(r"(?P<name>-{0,2}[\w.-]+)(?:=.*)?", re.DOTALL)
_HEADER: Final = re.compile(r"(?P<name>(?:-[\w.-]+=)?[\w.-]{2,}:)(?!//).*", re.DOTALL)
_URL: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]{0,20}://)(?:[^/@\s]*@)?(?P<place>[^?#\s]*)\S*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """Time and size limits of a child process."""

    grace: float = 2.0
    """How long it may take to exit after the end of its input, and again after SIGTERM. Then comes SIGKILL."""
    line: int = 16 * 1024 * 1024
    """The largest message from it, in bytes."""
    queue: int = 16 * 1024 * 1024
    """How many bytes may be queued for it; more is refused."""
    quarantine: int = 1000
    """After so many invalid lines in a row it is given up: it is no MCP server."""
    stderr: int = 8 * 1024
    """How many bytes of the end of its stderr output are kept."""

    @property
    def messages(self) -> MessageLimits:
        """The limits of a message."""
        return MessageLimits.of_size(self.line)


@suggests("Command")
class Command:
    """A program that speaks MCP on its standard input and output. Each wire starts it anew."""

    __slots__ = ("_environment", "cwd", "env", "inherit", "limits", "shown", "sink", "words")
    transport_name: ClassVar[str] = "stdio"

    def __init__(
        self,
        program: str | os.PathLike[str],
        *args: str | os.PathLike[str],
        env: Mapping[str, str] | None = None,
        inherit: bool | Collection[str] = False,
        cwd: str | os.PathLike[str] | None = None,
        stderr: Callable[[str], None] | None = None,
        limits: CommandLimits | None = None,
    ) -> None:
        """`program` is a path, or a name looked up in PATH; a relative path is relative to `cwd`.

        `env` is added to what it inherits: a small set, plus the names in `inherit`, or everything if that is True. `stderr` is called with
        each line of its stderr, in the loop, and must not block. Raises `ConfigError`.
        """
        if isinstance(cast("object", program), list | tuple):
            raise ConfigError(f"a command's words are arguments of their own: write Command(*{program!r})")
        self.words = (_checked_word(program), *map(_checked_word, args))
        if not self.words[0]:
            raise ConfigError("a command needs a program")
        self.shown: Sequence[str] = self.words
        """The words as errors and reports show them: for a configured server as they were written, without the values of variables."""
        if isinstance(inherit, str):
            raise ConfigError(f"inherit takes names, or True for all: write inherit=[{inherit!r}]")
        self.env = {_checked_word(name): _checked_word(value) for name, value in (env or {}).items()}
        if wrong := [name for name in self.env if not name or "=" in name]:
            raise ConfigError(f"{wrong[0]!r} cannot be the name of an environment variable")
        self.inherit = inherit if isinstance(inherit, bool) else frozenset(inherit)
        self.cwd = None if cwd is None else _checked_word(cwd)
        self.sink = stderr
        self._environment: Mapping[str, str] | None = None
        self.limits = CommandLimits() if limits is None else limits

    @classmethod
    def of(cls, words: Command | Sequence[str | os.PathLike[str]]) -> Command:
        """Make a command of the shorthand: a list of the program and its arguments."""
        if isinstance(words, Command):
            return words
        if isinstance(words, str) or not words:
            raise ConfigError(f"a command is a list of a program and its arguments, and not {words!r}")
        return cls(*words)

    @property
    def description(self) -> str:
        """The command line without what looks like a secret."""
        shown = shlex.join(_without_secrets(self.shown))
        return shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"

    @property
    def endpoint(self) -> str:
        """The identity of the program: its words, and where it starts. It may contain secrets."""
        return "\0".join((*self.words, os.path.abspath(self.cwd or os.curdir)))  # noqa: PTH100 - texts here, as elsewhere in this class

    def __repr__(self) -> str:
        return f"Command({self.description})"

    def environment(self) -> dict[str, str]:
        """The program's whole environment."""
        if self._environment is not None:
            return dict(self._environment)
        given = {name: value for name, value in os.environ.items() if self._handed_on(name, value)}
        return given | self.env

    def _handed_on(self, name: str, value: str) -> bool:
        if self.inherit is True:
            return True
        if self.inherit is not False and name in self.inherit:
            return True
        # a value that begins so is an exported shell function, which is code
        return (name.upper() in INHERITED or name.startswith("LC_")) and not value.startswith("()")

    def portable(self) -> PortableRoute:
        """For another process: it is started there with this environment, and in this directory."""
        given = {
            "words": self.words,
            "shown": tuple(self.shown),
            "environment": self.environment(),
            "cwd": os.path.abspath(self.cwd or os.curdir),  # noqa: PTH100 - texts here, as elsewhere in this class
            "limits": self.limits,
            "wants_stderr": self.sink is not None,
        }
        return PortableRoute(_rebuild_command, given)

    def open(self, owner: Pid) -> CommandWire:
        """Start it for the calling process."""
        return CommandWire(self, owner)


def _rebuild_command(
    home: HomeCallbacks,
    words: Sequence[str],
    *,
    shown: Sequence[str],
    environment: Mapping[str, str],
    wants_stderr: bool,
    **options: Any,
) -> Command:
    """Make the command again. `wants_stderr`: the home process wants its stderr lines."""
    command = Command(*words, stderr=home.line if wants_stderr else None, **options)
    command.shown = shown
    command._environment = environment  # noqa: SLF001 - the environment of the home process
    return command


def _checked_word(word: str | os.PathLike[str]) -> str:
    text = os.fspath(word)
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - a path may be bytes, whatever its type says
        raise ConfigError(f"a command's words must be str or paths, not {word!r}")
    if "\0" in text:
        raise ConfigError(f"a command's words must not contain NUL: {text!r}")
    return text


def _without_secrets(words: Sequence[str]) -> list[str]:
    shown: list[str] = []
    secret = False
    for word in words:
        option = _OPTION.fullmatch(word)
        name = option["name"] if option else ""
        if secret and not word.startswith("-"):
            shown.append("…")
            secret = False
        elif name and _SECRET.search(name) and len(shown) > 0 and (word.startswith("-") or "=" in word):
            secret = "=" not in word
            shown.append(word if secret else f"{name}=…")
        elif (header := _HEADER.fullmatch(word)) and _SECRET.search(word) and shown:
            secret = False
            shown.append(f"{header['name']} …")
        else:
            secret = False
            shown.append(_URL.sub(r"\g<scheme>\g<place>", word))
    return shown
