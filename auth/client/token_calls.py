"""The calls of a token endpoint, for all grants; each of them says for which resource the token is to be (RFC 8707).

What comes back is read strictly where a token would be sent on, and leniently elsewhere. A refusal is final; what may go well in a while says so.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from greenroom.auth.errors import SignInError
from greenroom.auth.grants import number, object_in, scopes_of, text

from .discovery import plain, quoted, reach
from .stores import Record

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from greenroom.transports.client.fetch import Fetch, Fetched

    from .discovery import Place
    from .registration import Identity

ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - the name of a kind
SAML2: Final = "urn:ietf:params:oauth:token-type:saml2"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"
_OK: Final = 200
_BROKEN: Final = 500
_PATIENCE: Final = frozenset({408, 425, 429})
_LONGEST: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where tokens are given."""

    url: str
    issuer: str | None = None
    methods: Sequence[str] = ()
    """How clients may show themselves there."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What was given. Its repr has no token in it."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    """In seconds of the epoch."""
    scopes: frozenset[str] | None = None
    """What was granted; None: what was asked for."""


async def ask(  # noqa: PLR0913 - whom, as whom, for what
    endpoint: Endpoint,
    client: Identity,
    fetch: Fetch,
    form: Mapping[str, str],
    *,
    resource: str,
    scopes: Collection[str] = (),
    step: str = "token",
    bearer: bool = True,
) -> Tokens:
    """One call: `form` has the grant. Raises `SignInError`; its `code` is what the server calls the error."""
    form = {**form, "resource": resource}
    if scopes:
        form["scope"] = " ".join(sorted(scopes))
    return _tokens(said(await post(endpoint, client, fetch, form, step), step), step, bearer=bearer)


async def post(endpoint: Endpoint, client: Identity, fetch: Fetch, form: dict[str, str], step: str) -> Fetched:
    """Send a form as that client. Raises `SignInError`."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    client.show(form, headers, offered=endpoint.methods, audience=endpoint.issuer or endpoint.url, step=step)
    body = urlencode(form).encode("ascii")
    return await reach(endpoint.url, fetch, step, method="POST", headers=headers, body=body)


def said(answer: Fetched, step: str) -> dict[str, Any]:
    """The object that a server of OAuth has answered with. Raises `SignInError` for an error, or for what is no answer."""
    found = object_in(answer.body)
    if _OK <= answer.status < 300 and found is not None:  # noqa: PLR2004 - the successes of HTTP
        return found
    code = None if found is None else text(found.get("error"))
    temporary = answer.status >= _BROKEN or answer.status in _PATIENCE
    if found is None or code is None:
        what = f"status {answer.status} and no JSON object" if found is None else f"status {answer.status}"
        raise SignInError(step, f"the authorization server answers with {what}", temporary=temporary)
    raise SignInError(step, quoted(code, text(found.get("error_description"))), code=plain(code), temporary=temporary)


def _tokens(found: Mapping[str, Any], step: str, *, bearer: bool) -> Tokens:
    token = text(found.get("access_token"))
    if token is None or len(token) > _LONGEST or not (token.isascii() and token.isprintable()):
        raise SignInError(step, "the authorization server gave no token that could be sent")
    if bearer and str(found.get("token_type", "bearer")).lower() != "bearer":
        raise SignInError(
            step, f"the token is of the type {plain(str(found['token_type']))!r}, and only bearer tokens are known here"
        )
    lives = found.get("expires_in")
    try:
        seconds = number(float(lives)) if isinstance(lives, str) else number(lives)
    except ValueError:
        seconds = None
    return Tokens(
        token,
        text(found.get("refresh_token")),
        None if seconds is None else time.time() + max(0.0, seconds),
        scopes_of(found.get("scope")),
    )


# --- What the keeper of a login asks of each way to log in, and what all ways share: which scopes to ask for, and what is remembered.

OFFLINE = "offline_access"


class Need(NamedTuple):
    """What a login is for."""

    challenged: tuple[str, ...] = ()
    """The scopes that the server has named."""
    before: Record | None = None
    """The login that is not enough any more, of the same issuer."""
    wider: bool = False
    """Whether that login is good, and lacks the scopes."""


class Way(ABC):
    """One way to log in at one server."""

    eager = False
    """Whether to log in before the server has asked for it."""
    alone = False
    """Whether it needs no user, and can be done again at any time."""
    bound = False
    """Whether we are known by what was agreed with one issuer: then no other is shown it."""

    def __init__(self, url: str, name: str, issuer: str | None, place: Place | None) -> None:
        """`name` is what its logins are kept under, `issuer` where we are known, and `place` where to log in, when that was agreed beforehand."""
        self.url = url
        self.name = name
        self.issuer = issuer
        self.place = place

    async def begin(self) -> Record | None:
        """A login that was brought along."""
        return None

    @abstractmethod
    async def obtain(self, place: Place, need: Need) -> Record:
        """Log in. Raises `SignInError`."""

    async def identity(self, record: Record) -> Identity | None:  # noqa: ARG002 - nothing is refreshed
        """The client identity with which that login was made, if still known: for refreshing it."""
        return None

    async def forget(self, record: Record) -> None:  # noqa: B027 - most have nothing to forget
        """The issuer does not know that client any more."""


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
