"""Who calls, as far as it is known: one value, made by a provider, and what handlers see as `ctx.auth`.

It never holds the credential itself: whoever has it in hand cannot pass on somebody's token.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .urls import covers

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Mapping


@dataclass(frozen=True, slots=True)
class AuthInfo:
    """A caller that a provider has found to be genuine."""

    subject: str | None
    """Whom it is about, as the issuer calls them; None where nobody said."""
    issuer: str | None = None
    audience: tuple[str, ...] = ()
    scopes: frozenset[str] | None = None
    """What they may do; None when nobody has said anything about it, which is less than nothing: every requirement fails."""
    expires_at: float | None = None
    """In seconds of the epoch."""
    client_id: str | None = None
    """The program that acts for the subject."""
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """All that the credential said, as it said it."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """What the server's own configuration says of them."""
    anonymous: bool = False
    """Whether it may be anybody: then nothing is theirs, and a session is all that tells them from others."""

    @property
    def principal(self) -> Hashable:
        """Whose sessions, tasks and streams these are: two callers with equal principals are the same one. None for nobody in particular."""
        if self.anonymous or (self.subject is None and self.client_id is None):
            return None
        return (self.issuer or "", self.subject or "", self.client_id or "" if self.subject is None else "")

    def has(self, scopes: Collection[str]) -> bool:
        """Whether all of these were granted. False where nothing is known of scopes, unless none are asked for."""
        return not scopes or (self.scopes is not None and self.scopes.issuperset(scopes))

    def lacks(self, scopes: Collection[str]) -> frozenset[str]:
        """Which of these were not granted."""
        return frozenset(scopes) - (self.scopes or frozenset())

    def has_scope(self, scope: str) -> bool:
        """Whether this was granted."""
        return self.has((scope,))

    def has_scopes(self, scopes: Collection[str]) -> bool:
        """Whether all of these were granted: the same as `has`."""
        return self.has(scopes)

    def covers_resource(self, resource: str) -> bool:
        """Whether it was meant for this resource, or for something that it is part of: same origin, and a path that leads to it."""
        return any(covers(each, resource) for each in self.audience)

    @classmethod
    def from_map(cls, claims: Mapping[str, Any]) -> AuthInfo:
        """What a token's claims say: for whoever has verified a token in a way of their own. It verifies nothing."""
        from .grants import from_claims  # noqa: PLC0415 - which is made of this

        return from_claims(claims)
