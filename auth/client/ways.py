"""What the keeper of a login asks of each way to log in, and what all ways share: which scopes to ask for, and what is remembered."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

from .record import Record

if TYPE_CHECKING:
    from collections.abc import Collection

    from .discovery import Place
    from .identity import Identity
    from .token_calls import Tokens

OFFLINE = "offline_access"


class Need(NamedTuple):
    """What a login is for."""

    challenged: tuple[str, ...] = ()
    """The scopes that the server has named."""
    before: Record | None = None
    """The login that is not enough any more, of the same issuer."""
    wider: bool = False
    """Whether that login is good, and lacks the scopes."""


class Way(Protocol):
    """One way to log in at one server."""

    @property
    def name(self) -> str:
        """What its logins are kept under."""
        ...

    @property
    def url(self) -> str:
        """The server."""
        ...

    @property
    def eager(self) -> bool:
        """Whether to log in before the server has asked for it."""
        ...

    @property
    def alone(self) -> bool:
        """Whether it needs nobody's help, and can be done again at any time."""
        ...

    @property
    def place(self) -> Place | None:
        """Where to log in, when that is known beforehand."""
        ...

    @property
    def issuer(self) -> str | None:
        """Where we are known, when that was agreed beforehand."""
        ...

    @property
    def bound(self) -> bool:
        """Whether we are known by what was agreed with one issuer: then no other is shown it."""
        ...

    async def begin(self) -> Record | None:
        """A login that was brought along."""
        ...

    async def obtain(self, place: Place, need: Need) -> Record:
        """Log in. Raises `SignInError`."""
        ...

    async def identity(self, record: Record) -> Identity | None:
        """As whom that login was made, if that is still known: for refreshing it."""
        ...

    async def forget(self, record: Record) -> None:
        """The issuer does not know that client any more."""
        ...


def scopes_for(configured: Collection[str], need: Need, place: Place, also: Collection[str] = ()) -> tuple[str, ...]:
    """What to ask for: what the server has named, else all that it says there is; with what was configured, and what was there before.

    `also` is asked for beside all of that, and replaces nothing.

    To be refreshed without the user is asked for where the authorization server knows that, and nowhere else.
    """
    wanted = dict.fromkeys(configured)
    wanted |= dict.fromkeys(need.challenged)
    if need.before is not None:
        wanted |= dict.fromkeys(need.before.scopes)
    if not wanted:
        wanted = dict.fromkeys(place.scopes or ())
    wanted |= dict.fromkeys(also)
    if OFFLINE not in place.server.scopes:
        wanted.pop(OFFLINE, None)
    elif wanted:
        wanted[OFFLINE] = None
    return tuple(wanted)


def record_of(place: Place, identity: Identity, tokens: Tokens, asked: Collection[str]) -> Record:
    """What to remember of a login."""
    return Record(
        place.server.issuer,
        place.resource,
        place.server.token_endpoint or "",
        identity.client_id,
        tokens.access_token,
        tokens.refresh_token,
        tokens.expires_at,
        time.time(),
        tuple(dict.fromkeys((*asked, *sorted(tokens.scopes or ())))),
    )
