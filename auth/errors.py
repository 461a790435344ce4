"""Errors of authentication: `Denied` for a caller that is refused, `SignInError` for a login elsewhere that failed, both an `AuthError`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal, TypeAlias

from greenroom.errors import GreenroomError
from greenroom.transports.client.errors import TransportError

if TYPE_CHECKING:
    from collections.abc import Collection

Kind: TypeAlias = Literal[
    "missing",
    "invalid_request",
    "invalid_token",
    "expired_token",
    "invalid_credentials",
    "invalid_dpop_proof",
    "use_dpop_nonce",
    "insufficient_scope",
    "too_many_failures",
    "server_error",
]

KINDS: Final[dict[Kind, tuple[int, str]]] = {
    "missing": (401, "Authentication required"),
    "invalid_request": (400, "The request is malformed"),
    "invalid_token": (401, "The access token is not valid"),
    "expired_token": (401, "The access token has expired"),
    "invalid_credentials": (401, "Invalid credentials"),
    "invalid_dpop_proof": (401, "The DPoP proof is not valid"),
    "use_dpop_nonce": (401, "The DPoP proof needs the nonce in the header DPoP-Nonce"),
    "insufficient_scope": (403, "The access token does not allow this"),
    "too_many_failures": (429, "Too many failures: wait before you try again"),
    "server_error": (500, "Internal Server Error"),
}
"""The HTTP status of each kind, and the message where none is given."""
STATUS: Final = {kind: status for kind, (status, _) in KINDS.items()}


class AuthError(GreenroomError):
    """Authentication or authorization failed. The message may be shown to the caller."""


class Denied(AuthError):
    """A server refuses a caller. `detail` is for the server's log only, and contains no secret either."""

    def __init__(self, kind: Kind, message: str = "", *, scopes: Collection[str] = (), detail: str = "") -> None:
        """`scopes` are the scopes that would have sufficed."""
        super().__init__(kind, message)
        self.kind: Kind = kind
        self.message = message
        self.scopes = tuple(scopes)
        self.detail = detail
        self.provider: object = None
        """The provider that refused, where there are several."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.kind]

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


class SignInError(AuthError, TransportError):
    """A client could not log in. The error names the step that failed, and the remedy where one is known.

    It is a `TransportError` as well, since callers meet it where they would meet a failing connection.

    """

    reason: ClassVar[str] = "sign_in"

    def __init__(self, step: str, message: str, *, code: str = "", temporary: bool = False, url: str = "") -> None:
        """`step` is "discovery", "registration", "authorization", "token" or "refresh", for example; `code` is the server's error code.

        `temporary` says that a later attempt may succeed, and that stored credentials stay valid. `url` is the server at which a user has to sign in, if
        that is what is missing.

        """
        super().__init__(step, message)
        self.step = step
        self.message = message
        self.code = code
        self.temporary = temporary
        self.url = url

    @property
    def final(self) -> bool:
        """Whether retrying is useless until the user or the operator has acted."""
        return not self.temporary

    def __str__(self) -> str:
        return f"{self.step}: {self.message}"
