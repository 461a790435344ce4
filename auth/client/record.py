"""What is known of one login: the tokens, where they came from, and what for. A value that a store can keep."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from greenroom.auth.grants import number, text, texts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .token_calls import Tokens

MARGIN: Final = 60.0
"""Seconds before its end in which a token is not used any more, if another is to be had."""


@dataclass(frozen=True, slots=True)
class Record:
    """One login. Its repr has no token in it."""

    issuer: str
    resource: str
    token_endpoint: str
    client_id: str
    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    obtained_at: float = 0.0
    scopes: tuple[str, ...] = ()
    """What was asked for, and what was granted: so much is asked for again."""

    def is_old(self, now: float | None = None) -> bool:
        """Whether it is about to end, or has."""
        if self.expires_at is None:
            return False
        lives = max(0.0, self.expires_at - self.obtained_at)
        return (time.time() if now is None else now) > self.expires_at - min(MARGIN, lives / 2)

    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.expires_at is not None and time.time() >= self.expires_at

    def renewed(self, tokens: Tokens) -> Record:
        """The same login with what a refresh has brought."""
        return replace(
            self,
            access_token=tokens.access_token,
            refresh_token=tokens.refresh_token or self.refresh_token,
            expires_at=tokens.expires_at,
            obtained_at=time.time(),
        )

    def without_refresh(self) -> Record:
        """The same without a refresh token that is of no use any more."""
        return replace(self, refresh_token=None)

    def as_dict(self) -> dict[str, Any]:
        """For a store."""
        return asdict(self)

    @classmethod
    def read(cls, kept: Mapping[str, Any] | None) -> Record | None:
        """From a store; None for what is none, or not whole."""
        if kept is None:
            return None
        names = ("issuer", "resource", "token_endpoint", "client_id", "access_token")
        needed = {name: found for name in names if (found := text(kept.get(name))) is not None}
        if len(needed) < len(names):
            return None
        return cls(
            **needed,
            refresh_token=text(kept.get("refresh_token")),
            expires_at=number(kept.get("expires_at")),
            obtained_at=number(kept.get("obtained_at")) or 0.0,
            scopes=texts(kept.get("scopes")),
        )
