"""How a command ends: an exit code that says whose fault it was, and one line that says what to do.

0  it went well
1  the server, or its tool, says that it failed; or something was found that was looked for
2  what was typed makes no sense
3  the configuration is wrong
4  the server cannot be reached, or has died, or does not answer
5  signing in is needed, or was refused
6  it was not allowed
70  greenroom itself has failed: please report it
130  it was interrupted
"""

from __future__ import annotations

from typing import Final

from greenroom.errors import ConfigError, GreenroomError

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
    """Whose fault it was."""
    from greenroom.actors.consent.errors import ConsentDenied  # noqa: PLC0415 - who has gone wrong has the time
    from greenroom.protocol.errors import McpError, ToolError  # noqa: PLC0415
    from greenroom.supervision import ActorError  # noqa: PLC0415
    from greenroom.transports.client.errors import TransportError  # noqa: PLC0415

    if isinstance(error, Ended):
        return error.code
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    if isinstance(error, Misused):
        return USAGE
    if isinstance(error, ConsentDenied):
        return DENIED
    if isinstance(error, ConfigError):
        return CONFIG
    if _is_about_signing_in(error):
        return SIGN_IN
    if isinstance(error, ToolError | McpError):
        return FAILED
    if isinstance(error, TransportError | ActorError | TimeoutError | ConnectionError):
        return UNREACHED
    return UNREACHED if isinstance(error, GreenroomError) else BROKEN


def _is_about_signing_in(error: BaseException) -> bool:
    from greenroom.auth.errors import AuthError  # noqa: PLC0415

    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, AuthError):
            return True
        seen = seen.__cause__
    return False
