"""How a command ends: an exit code that says whose fault it was, and one line that says what to do.

0  it went well
1  it failed: the server, its tool or its own code says so, or it does not offer what was asked of it; a file cannot be read or written; or something was
   found that was looked for
2  what was typed makes no sense: a word, an option, a number, a name that nothing has
3  the configuration is wrong, or has no server of that name
4  the server cannot be reached, or has died, or does not answer in time; the program that was needed is not here
5  signing in is needed, or was refused
6  it was not allowed, or no user was there to allow it
70  greenroom itself has failed: please report it
130  it was interrupted
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from greenroom.errors import ConfigError, GreenroomError
from greenroom.supervision import visible, visible_text

if TYPE_CHECKING:
    from collections.abc import Sequence

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
CONFIG: Final = 3
UNREACHABLE: Final = 4
SIGN_IN: Final = 5
DENIED: Final = 6
INTERNAL: Final = 70
INTERRUPTED: Final = 130


class UsageError(GreenroomError):
    """What was typed makes no sense."""


class CommandFailed(GreenroomError):
    """The command ends here, with this code; the text is for the user."""

    def __init__(self, code: int, text: str) -> None:
        """`code` is one of those above."""
        super().__init__(text)
        self.code = code


def exit_code_for(error: BaseException) -> int:
    """The exit code for an exception. An unknown error of greenroom or of the system is FAILED, any other exception BROKEN."""
    if isinstance(error, CommandFailed):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, UsageError):
        return USAGE
    if isinstance(error, ConfigError):
        return CONFIG
    if _is_sign_in_error(error):
        return SIGN_IN
    for code, kinds in _codes_by_error():
        if isinstance(error, kinds):
            return code
    return FAILED if isinstance(error, GreenroomError | OSError) else INTERNAL


def _codes_by_error() -> Sequence[tuple[int, tuple[type[BaseException], ...]]]:
    """The codes that errors have, the particular before the general."""
    from greenroom.actors.client.errors import ClientError, TooManyPages, Unsupported  # noqa: PLC0415 - after a failure there is time
    from greenroom.actors.consent.rules import ConsentDenied  # noqa: PLC0415
    from greenroom.actors.federation.federation_errors import FederationError  # noqa: PLC0415
    from greenroom.actors.mentions.mention_reader import TemplateWordsError, UnknownResource  # noqa: PLC0415
    from greenroom.actors.settings import BadSetting  # noqa: PLC0415
    from greenroom.supervision import ActorError, InternalError  # noqa: PLC0415
    from greenroom.transports.client.errors import TransportError  # noqa: PLC0415

    return (
        (INTERNAL, (InternalError,)),
        (DENIED, (ConsentDenied,)),
        (USAGE, (TemplateWordsError, UnknownResource, FederationError, BadSetting)),
        (FAILED, (Unsupported, TooManyPages)),
        (UNREACHABLE, (TransportError, ClientError, ActorError, TimeoutError, ConnectionError)),
    )


def _is_sign_in_error(error: BaseException) -> bool:
    from greenroom.auth.errors import AuthError  # noqa: PLC0415

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, AuthError):
            return True
        seen = seen.__cause__
    return False


# --- Text of servers and files, as commands write it.
# `visible` is for what is shown of it, wherever it goes; `terminal_safe` for an answer that was asked for, which programs get as it is. Behind both stands `escaped_for_terminal`,
# through which all goes that commands write to a terminal.

__all__ = ["escaped_for_terminal", "terminal_safe", "visible"]

_OUR_COLOURS: Final = re.compile(r"(\x1b\[(?:[012]|3[123])m)")
"""The colours that we have, and their end."""
_LAYOUT: Final = "\n\t"


def terminal_safe(text: str) -> str:
    """What a server has answered, as it may be written to a terminal: nothing in it moves the cursor, colours or hides. Programs get it as it is."""
    return visible_text.escaped(text, but=_LAYOUT) if sys.stdout.isatty() else text


def escaped_for_terminal(text: str) -> str:
    """The same of a line of ours, in which our own colours stay."""
    parts = _OUR_COLOURS.split(text)
    return "".join(part if place % 2 else visible_text.escaped(part, but=_LAYOUT) for place, part in enumerate(parts))


# --- Where commands write: what a link in the project leads to stays in the project.
# A repository that was cloned may hold links. One that leads out of it (`.cursor` to the home directory, `out/1.png` to `~/.bashrc`) would have a command write over a
# file that the user has not named. A link to another file of the project is followed. So is one of the user's own files elsewhere, which programs that manage dotfiles make.


def within_project(path: Path) -> Path:
    """What is written when `path` is: itself, or what links lead to. Raises `CommandFailed` where the path stays in the working directory and a link does not."""
    root = Path.cwd().resolve()
    typed = Path(os.path.normpath(root / path))
    target = typed.resolve()
    if typed.is_relative_to(root) and not target.is_relative_to(root):
        raise CommandFailed(
            FAILED,
            f"{path} is {target}, by a link that leads out of {root}: nothing was written; remove the link, or name {target} itself",
        )
    return target


def write_file(path: Path, data: bytes) -> None:
    """All of a file at a path that was typed, or follows from one. Raises `CommandFailed` for a link out of the project."""
    target = within_project(path)
    no_link = getattr(os, "O_NOFOLLOW", 0)  # one that was made since
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | no_link | getattr(os, "O_CLOEXEC", 0), 0o666)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - what is open already
        file.write(data)
