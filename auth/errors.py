"""Why a caller is not let in, or a login elsewhere failed: `AuthError`, with a kind that programs can compare."""

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
    "insufficient_scope": (403, "The access token does not allow this"),
    "too_many_failures": (429, "Too many failures: wait before you try again"),
    "server_error": (500, "Internal Server Error"),
}
"""What each kind is over HTTP, and what is told where nothing better was said."""
STATUS: Final = {kind: status for kind, (status, _) in KINDS.items()}


class AuthError(GreenroomError):
    """The caller is not who it would have to be, or may not do what it wanted. The message may be told to it."""


class Denied(AuthError):
    """A server's no. `detail` is for its log only, and has no secret in it either."""

    def __init__(self, kind: Kind, message: str = "", *, scopes: Collection[str] = (), detail: str = "") -> None:
        """`scopes` are those that would have been enough."""
        super().__init__(kind, message)
        self.kind: Kind = kind
        self.message = message
        self.scopes = tuple(scopes)
        self.detail = detail
        self.provider: object = None
        """The provider that has said so, where there are several."""

    @property
    def status(self) -> int:
        """As which HTTP status it travels."""
        return STATUS[self.kind]

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}" if self.message else self.kind


class SignInError(AuthError, TransportError):
    """A client could not log in. It names the step that failed, and says what to do where that is known.

    It is an error of the way to a server as well, since that is where it is met.
    """

    reason: ClassVar[str] = "sign_in"

    def __init__(self, step: str, message: str, *, code: str = "", temporary: bool = False, url: str = "") -> None:
        """`step` is like "discovery", "registration", "authorization", "token", "refresh"; `code` is what the other side calls it.

        `temporary` says that the same may go well in a while, and that what was known until now still holds. `url` is the server at which a user
        has to sign in, where that is what is missing.
        """
        super().__init__(step, message)
        self.step = step
        self.message = message
        self.code = code
        self.temporary = temporary
        self.url = url

    @property
    def final(self) -> bool:
        """Whether trying again is no use until the user or the operator has done something."""
        return not self.temporary

    def __str__(self) -> str:
        return f"{self.step}: {self.message}"
