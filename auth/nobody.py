"""No authentication: everybody is `anonymous`, and may do nothing that needs a scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .answers import refusal
from .info import AuthInfo

if TYPE_CHECKING:
    from greenroom.transports.seam import Refusal

    from .errors import Denied
    from .seam import Asking


class NoAuth:
    """Lets everybody in."""

    headers = ()

    def __repr__(self) -> str:
        return "NoAuth()"

    def children(self) -> tuple[()]:
        """It needs no process."""
        return ()

    async def authenticate(self, asking: Asking) -> AuthInfo:  # noqa: ARG002 - nothing is looked at
        """Anonymous."""
        return AuthInfo("anonymous", scopes=frozenset(), anonymous=True)

    async def challenge(self, denied: Denied, asking: Asking) -> Refusal:  # noqa: ARG002 - there is no other way to ask
        """Nothing that could be sent would help."""
        return refusal(denied)
