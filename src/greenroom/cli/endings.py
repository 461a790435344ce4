"""How a command ends: an exit code that says whose fault it was, and one line that says what to do.

0  it went well
1  it failed: the server, its tool or its own code says so, or it does not offer what was asked of it; a file cannot be read or written; or something was
   found that was looked for
2  what was typed makes no sense: a word, an option, a number, a name that nothing has
3  the configuration is wrong, or has no server of that name
4  the server cannot be reached, or has died, or does not answer in time; the program that was needed is not here
5  signing in is needed, or was refused
6  it was not allowed, or nobody was there to allow it
70  greenroom itself has failed: please report it
130  it was interrupted
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.errors import ConfigError, GreenroomError

if TYPE_CHECKING:
    from collections.abc import Sequence

FINE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
CONFIG: Final = 3
UNREACHED: Final = 4
SIGN_IN: Final = 5
DENIED: Final = 6
BROKEN: Final = 70
INTERRUPTED: Final = 130


class Misused(GreenroomError):
    """What was typed makes no sense."""


class Ended(GreenroomError):
    """The command ends here, with this code; the text is for whoever typed it."""

    def __init__(self, code: int, text: str) -> None:
        """`code` is one of those above."""
        super().__init__(text)
        self.code = code


def code_of(error: BaseException) -> int:
    """Whose fault it was. What nobody has thought of is nobody's who was reached: it failed."""
    if isinstance(error, Ended):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, Misused):
        return USAGE
    if isinstance(error, ConfigError):
        return CONFIG
    if _is_about_signing_in(error):
        return SIGN_IN
    for code, kinds in _table():
        if isinstance(error, kinds):
            return code
    return FAILED if isinstance(error, GreenroomError | OSError) else BROKEN


def _table() -> Sequence[tuple[int, tuple[type[BaseException], ...]]]:
    """The codes that errors have, the particular before the general."""
    from greenroom.actors.client.errors import ClientError, TooManyPages, Unsupported  # noqa: PLC0415 - who has gone wrong has the time
    from greenroom.actors.consent.errors import ConsentDenied  # noqa: PLC0415
    from greenroom.actors.federation.agent_errors import FederationError  # noqa: PLC0415
    from greenroom.actors.mentions.expansion import WrongWords  # noqa: PLC0415
    from greenroom.actors.mentions.reader import UnknownResource  # noqa: PLC0415
    from greenroom.actors.settings import BadSetting  # noqa: PLC0415
    from greenroom.supervision import ActorError  # noqa: PLC0415
    from greenroom.supervision.kernel.errors import InternalError  # noqa: PLC0415
    from greenroom.transports.client.errors import TransportError  # noqa: PLC0415

    return (
        (BROKEN, (InternalError,)),
        (DENIED, (ConsentDenied,)),
        (USAGE, (WrongWords, UnknownResource, FederationError, BadSetting)),
        (FAILED, (Unsupported, TooManyPages)),
        (UNREACHED, (TransportError, ClientError, ActorError, TimeoutError, ConnectionError)),
    )


def _is_about_signing_in(error: BaseException) -> bool:
    from greenroom.auth.errors import AuthError  # noqa: PLC0415

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, AuthError):
            return True
        seen = seen.__cause__
    return False
