"""The calls of a token endpoint, for all grants; each of them says for which resource the token is to be (RFC 8707).

What comes back is read strictly where a token would be sent on, and leniently elsewhere. A refusal is final; what may go well in a while says so.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from greenroom.auth.auth_info import number, parse_object, parse_scopes, text
from greenroom.auth.errors import SignInError

from .metadata_discovery import fetch_in_step, printable_line, refusal_message
from .token_stores import LoginRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from greenroom.transports.client.fetch import FetchFunction, FetchResponse

    from .client_registration import ClientIdentity
    from .metadata_discovery import TokenSource

ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - the name of a kind
SAML2: Final = "urn:ietf:params:oauth:token-type:saml2"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"
_OK: Final = 200
_SERVER_ERROR: Final = 500
_TEMPORARY: Final = frozenset({408, 425, 429})
_LONGEST_TOKEN: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class OAuthEndpoint:
    """Where tokens are given."""

    url: str
    issuer: str | None = None
    methods: Sequence[str] = ()
    """How clients may show themselves there."""


@dataclass(frozen=True, slots=True)
class TokenResponse:
    """What was given. Its repr has no token in it."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    """In seconds of the epoch."""
    scopes: frozenset[str] | None = None
    """What was granted; None: what was asked for."""


async def request_token(  # noqa: PLR0913 - whom, as whom, for what
    endpoint: OAuthEndpoint,
    client: ClientIdentity,
    fetch: FetchFunction,
    form: Mapping[str, str],
    *,
    resource: str,
    scopes: Collection[str] = (),
    step: str = "token",
    bearer: bool = True,
) -> TokenResponse:
    """One call: `form` has the grant. Raises `SignInError`; its `code` is what the server calls the error."""
    form = {**form, "resource": resource}
    if scopes:
        form["scope"] = " ".join(sorted(scopes))
    return _parse_token_response(
        response_object(await post_form(endpoint, client, fetch, form, step), step), step, bearer=bearer
    )


async def post_form(
    endpoint: OAuthEndpoint, client: ClientIdentity, fetch: FetchFunction, form: dict[str, str], step: str
) -> FetchResponse:
    """Send a form as that client. Raises `SignInError`."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    client.add_to_request(form, headers, offered=endpoint.methods, audience=endpoint.issuer or endpoint.url, step=step)
    body = urlencode(form).encode("ascii")
    return await fetch_in_step(endpoint.url, fetch, step, method="POST", headers=headers, body=body)


def response_object(answer: FetchResponse, step: str) -> dict[str, Any]:
    """The object that a server of OAuth has answered with. Raises `SignInError` for an error, or for what is no answer."""
    found = parse_object(answer.body)
    if _OK <= answer.status < 300 and found is not None:  # noqa: PLR2004 - the successes of HTTP
        return found
    code = None if found is None else text(found.get("error"))
    temporary = answer.status >= _SERVER_ERROR or answer.status in _TEMPORARY
    if found is None or code is None:
        what = f"status {answer.status} and no JSON object" if found is None else f"status {answer.status}"
        raise SignInError(step, f"the authorization server answers with {what}", temporary=temporary)
    raise SignInError(
        step,
        refusal_message(code, text(found.get("error_description"))),
        code=printable_line(code),
        temporary=temporary,
    )


def _parse_token_response(found: Mapping[str, Any], step: str, *, bearer: bool) -> TokenResponse:
    token = text(found.get("access_token"))
    if token is None or len(token) > _LONGEST_TOKEN or not (token.isascii() and token.isprintable()):
        raise SignInError(step, "the authorization server gave no token that could be sent")
    if bearer and str(found.get("token_type", "bearer")).lower() != "bearer":
        raise SignInError(
            step,
            f"the token is of the type {printable_line(str(found['token_type']))!r}, and only bearer tokens are known here",
        )
    lives = found.get("expires_in")
    try:
        seconds = number(float(lives)) if isinstance(lives, str) else number(lives)
    except ValueError:
        seconds = None
    return TokenResponse(
        token,
        text(found.get("refresh_token")),
        None if seconds is None else time.time() + max(0.0, seconds),
        parse_scopes(found.get("scope")),
    )


# --- What the keeper of a login asks of each way to log in, and what all ways share: which scopes to ask for, and what is remembered.

OFFLINE_ACCESS = "offline_access"


class TokenRequest(NamedTuple):
    """What a login is for."""

    challenged_scopes: tuple[str, ...] = ()
    """The scopes that the server has named."""
    previous: LoginRecord | None = None
    """The login that is not enough any more, of the same issuer."""
    adds_scopes: bool = False
    """Whether that login is good, and lacks the scopes."""


class LoginMethod(ABC):
    """One way to log in at one server."""

    logs_in_early = False
    """Whether to log in before the server has asked for it."""
    is_unattended = False
    """Whether it needs no user, and can be done again at any time."""
    is_issuer_bound = False
    """Whether we are known by what was agreed with one issuer: then no other is shown it."""

    def __init__(self, url: str, name: str, issuer: str | None, source: TokenSource | None) -> None:
        """`name` is what its logins are kept under, `issuer` where we are known, and `place` where to log in, when that was agreed beforehand."""
        self.url = url
        self.name = name
        self.issuer = issuer
        self.source = source

    async def initial_record(self) -> LoginRecord | None:
        """A login that was brought along."""
        return None

    @abstractmethod
    async def obtain(self, source: TokenSource, request: TokenRequest) -> LoginRecord:
        """Log in. Raises `SignInError`."""

    async def identity(self, record: LoginRecord) -> ClientIdentity | None:  # noqa: ARG002 - nothing is refreshed
        """The client identity with which that login was made, if still known: for refreshing it."""
        return None

    async def forget(self, record: LoginRecord) -> None:  # noqa: B027 - most have nothing to forget
        """The issuer does not know that client any more."""


def scopes_to_request(
    configured: Collection[str], request: TokenRequest, source: TokenSource, also: Collection[str] = ()
) -> tuple[str, ...]:
    """What to ask for: what the server has named, else all that it says there is; with what was configured, and what was there before.

    `also` is asked for beside all of that, and replaces nothing.

    To be refreshed without the user is asked for where the authorization server knows that, and nowhere else.
    """
    wanted = dict.fromkeys(configured)
    wanted |= dict.fromkeys(request.challenged_scopes)
    if request.previous is not None:
        wanted |= dict.fromkeys(request.previous.scopes)
    if not wanted:
        wanted = dict.fromkeys(source.scopes or ())
    wanted |= dict.fromkeys(also)
    if OFFLINE_ACCESS not in source.server.scopes:
        wanted.pop(OFFLINE_ACCESS, None)
    elif wanted:
        wanted[OFFLINE_ACCESS] = None
    return tuple(wanted)


def login_record(
    source: TokenSource, identity: ClientIdentity, tokens: TokenResponse, asked: Collection[str]
) -> LoginRecord:
    """What to remember of a login."""
    return LoginRecord(
        source.server.issuer,
        source.resource,
        source.server.token_endpoint or "",
        identity.client_id,
        tokens.access_token,
        tokens.refresh_token,
        tokens.expires_at,
        time.time(),
        tuple(dict.fromkeys((*asked, *sorted(tokens.scopes or ())))),
    )
