"""The events of sign-ins, and of refused credentials: kinds and steps of this program, and nothing of a token. Imported when there is a listener."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from greenroom.event_types import SignInEnded
from greenroom.supervision.event_bus import bus
from greenroom.transports.client.http_address import ServerUrl

from .errors import SignInError

if TYPE_CHECKING:
    from .errors import Kind

_LONGEST_CODE: Final = 64


def announce_refusal(program: str, kind: Kind) -> None:
    """Emit that a caller of this server was refused."""
    if bus.listener is not None:
        bus.listener(SignInEnded(side="server", program=program, kind=kind, is_failure=True))


def announce_sign_in(url: str, kind: str, error: BaseException | None = None) -> None:
    """Emit that a sign-in at the server with this URL has ended. Of an error only its step is told, and the code of the authorization server."""
    listener = bus.listener
    if listener is not None:
        reason = "" if error is None else type(error).__name__
        if isinstance(error, SignInError):
            reason = f"{error.step}: {error.code[:_LONGEST_CODE]}" if error.code else error.step
        listener(
            SignInEnded(
                side="client",
                program=ServerUrl.of(url).host_and_port,
                kind=kind,
                is_failure=error is not None,
                reason=reason,
            )
        )
