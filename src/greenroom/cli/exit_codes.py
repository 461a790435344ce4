"""Exit codes of commands, the errors that set them, and the escaping of text that a terminal shows.

0  success
1  failure: the server, its tool or its code reports an error, or does not offer what the command asked for; a file cannot be read or written; or a
   check found what it looks for
2  wrong usage: an unknown word, option, number or name
3  the configuration has a mistake, or has no server of that name
4  the server cannot be reached, has died, or does not answer in time; or a needed program is not installed
5  signing in is needed, or was refused
6  the action was denied, or no user was there to allow it
70  an error in greenroom itself: please report it
130  interrupted
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
    """The words or options of the command line are wrong. The message says what to type instead."""


class CommandFailed(GreenroomError):
    """The command fails with this exit code; the text is shown to the user."""

    def __init__(self, code: int, text: str) -> None:
        """`code` is one of the exit codes of this module."""
        super().__init__(text)
        self.code = code


def exit_code_for(error: BaseException) -> int:
    """The exit code for an exception. An unknown error of greenroom or of the system is FAILED, any other exception INTERNAL."""
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
    """Exit codes and the errors that they stand for, subclasses before their base classes."""
    from greenroom.actors.client.errors import ClientError, InputRefused, TaskLost, TooManyPages, Unsupported  # noqa: PLC0415 - after a failure there is time
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
        (FAILED, (InputRefused, TaskLost, Unsupported, TooManyPages)),
        (UNREACHABLE, (TransportError, ClientError, ActorError, TimeoutError, ConnectionError)),
    )


def _is_sign_in_error(error: BaseException) -> bool:
    from greenroom.auth.errors import AuthError  # noqa: PLC0415

    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AuthError):
            return True
        cause = cause.__cause__
    return False


# --- Text of servers and files, as commands write it.
# `visible` escapes text that a command quotes, whatever the output is. `terminal_safe` escapes an answer on a terminal only: a program that reads stdout
# gets it unchanged. `echo` applies `escaped_for_terminal` to every line that goes to a terminal, so a forgotten `visible` is no hole.

__all__ = ["escaped_for_terminal", "terminal_safe", "visible"]

_OUR_COLOURS: Final = re.compile(r"(\x1b\[(?:[012]|3[123])m)")
"""The colour sequences that `click.style` writes for our styles; they are the only escapes that pass."""
_LAYOUT: Final = "\n\t"


def terminal_safe(text: str) -> str:
    """A server's answer, safe to show: on a terminal, control and invisible characters are escaped; otherwise the text is unchanged."""
    return visible_text.escaped(text, but=_LAYOUT) if sys.stdout.isatty() else text


def escaped_for_terminal(text: str) -> str:
    """The text with control and invisible characters escaped, except our own colour sequences."""
    parts = _OUR_COLOURS.split(text)
    return "".join(part if place % 2 else visible_text.escaped(part, but=_LAYOUT) for place, part in enumerate(parts))


# --- Writing files: a command does not follow a symbolic link out of the project.
# A cloned repository may hold links. A link that leads out of it (`.cursor` to the home directory, `out/1.png` to `~/.bashrc`) would make a command overwrite a
# file that the user has not named. A link within the project is followed, and so is a link at a path outside the project: dotfile managers make such links.


def within_project(path: Path) -> Path:
    """The path with links resolved. Raises `CommandFailed` when `path` is in the working directory and a link leads out of it."""
    root = Path.cwd().resolve()
    typed = Path(os.path.normpath(root / path))
    target = typed.resolve()
    if typed.is_relative_to(root) and not target.is_relative_to(root):
        raise CommandFailed(
            FAILED,
            f"{path} is a link to {target}, which is outside {root}: nothing was written; remove the link, or name {target} itself",
        )
    return target


def write_file(path: Path, data: bytes) -> None:
    """Replace the content of a file. Raises `CommandFailed` for a link that leads out of the project."""
    target = within_project(path)
    no_link = getattr(os, "O_NOFOLLOW", 0)  # refuses a link that was made after the check above
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | no_link | getattr(os, "O_CLOEXEC", 0), 0o666)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - the file is already open
        file.write(data)
