"""Token requests: calls of a token endpoint for every grant type, and the interface of login methods.

Each request names the resource of the token (RFC 8707). A token is validated strictly, since it is sent on; other fields leniently. A refusal is final; an
error that may pass is marked temporary.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple
from urllib.parse import urlencode

from greenroom.auth.auth_info import number, parse_object, parse_scopes, text
from greenroom.auth.errors import SignInError

from .dpop_proofs import UNBOUND
from .metadata_discovery import fetch_in_step, printable_line, refusal_message
from .token_stores import LoginRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from greenroom.transports.client.fetch import FetchFunction, FetchResponse

    from .client_registration import ClientIdentity
    from .dpop_proofs import DpopUse, GrantBinding, ProofKey, TokenProver
    from .metadata_discovery import TokenSource

ID_TOKEN: Final = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - the name of a token type
SAML2: Final = "urn:ietf:params:oauth:token-type:saml2"
ID_JAG: Final = "urn:ietf:params:oauth:token-type:id-jag"
EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
DEVICE: Final = "urn:ietf:params:oauth:grant-type:device_code"
_OK: Final = 200
_NONCE_REFUSALS: Final = (400, 401)
_SERVER_ERROR: Final = 500
_TEMPORARY: Final = frozenset({408, 425, 429})
_LONGEST_TOKEN: Final = 16 * 1024


@dataclass(frozen=True, slots=True)
class OAuthEndpoint:
    """An endpoint of an authorization server to which the client authenticates."""

    url: str
    issuer: str | None = None
    methods: Sequence[str] = ()
    """The client authentication methods that it supports."""


@dataclass(frozen=True, slots=True)
class TokenResponse:
    """The response of a token endpoint. Its repr contains no token."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    """Unix time."""
    scopes: frozenset[str] | None = None
    """The granted scopes; None: the requested ones."""
    proof_key: ProofKey | None = None
    """The key that the token is bound to."""


async def request_token(  # noqa: PLR0913 - endpoint, client, grant and resource
    endpoint: OAuthEndpoint,
    client: ClientIdentity | None,
    fetch: FetchFunction,
    form: Mapping[str, str],
    *,
    resource: str,
    scopes: Collection[str] = (),
    step: str = "token",
    bearer: bool = True,
    prover: TokenProver | None = None,
) -> TokenResponse:
    """Request a token; `form` contains the grant. Raises `SignInError`, whose `code` is the server's error code."""
    form = {**form, "resource": resource}
    if scopes:
        form["scope"] = " ".join(sorted(scopes))
    answer = response_object(await post_form(endpoint, client, fetch, form, step, prover), step)
    return _parse_token_response(answer, step, bearer=bearer, prover=prover)


async def post_form(
    endpoint: OAuthEndpoint,
    client: ClientIdentity | None,
    fetch: FetchFunction,
    form: Mapping[str, str],
    step: str,
    prover: TokenProver | None = None,
) -> FetchResponse:
    """Post a form with client authentication, and with a proof of possession if there is a prover. Raises `SignInError`.

    A server that asks for a nonce has not looked at the grant: the form is posted once more, with new assertions and a new proof.
    """
    answer = await _post_once(endpoint, client, fetch, form, step, prover)
    if prover is not None and _wants_nonce(answer):
        answer = await _post_once(endpoint, client, fetch, form, step, prover)
    return answer


async def _post_once(
    endpoint: OAuthEndpoint,
    client: ClientIdentity | None,
    fetch: FetchFunction,
    form: Mapping[str, str],
    step: str,
    prover: TokenProver | None,
) -> FetchResponse:
    url, fields = endpoint.url, dict(form)
    headers = {"content-type": "application/x-www-form-urlencoded"}
    if client is not None:
        client.add_to_request(fields, headers, offered=endpoint.methods, audience=endpoint.issuer or url, step=step)
    if prover is not None:
        headers["dpop"] = prover.key.proof("POST", url, nonce=prover.nonces.newest(url))
    body = urlencode(fields).encode("ascii")
    answer = await fetch_in_step(url, fetch, step, method="POST", headers=headers, body=body)
    if prover is not None:
        prover.nonces.note(url, answer.headers.get("dpop-nonce"))
    return answer


def _wants_nonce(answer: FetchResponse) -> bool:
    """Whether the server refuses the proof only because it lacks the nonce that comes with the refusal (RFC 9449, 8)."""
    if answer.status not in _NONCE_REFUSALS or not answer.headers.get("dpop-nonce"):
        return False
    return (parse_object(answer.body) or {}).get("error") == "use_dpop_nonce"


def response_object(answer: FetchResponse, step: str) -> dict[str, Any]:
    """The JSON object of a successful response. Raises `SignInError` for an error response or an invalid one."""
    found = parse_object(answer.body)
    if _OK <= answer.status < 300 and found is not None:  # noqa: PLR2004 - success statuses
        return found
    code = None if found is None else text(found.get("error"))
    temporary = answer.status >= _SERVER_ERROR or answer.status in _TEMPORARY
    if found is None or code is None:
        what = f"status {answer.status} and no JSON object" if found is None else f"status {answer.status}"
        raise SignInError(step, f"the authorization server answered with {what}", temporary=temporary)
    raise SignInError(
        step,
        refusal_message(code, text(found.get("error_description"))),
        code=printable_line(code),
        temporary=temporary,
    )


def _parse_token_response(
    found: Mapping[str, Any], step: str, *, bearer: bool, prover: TokenProver | None = None
) -> TokenResponse:
    token = text(found.get("access_token"))
    if token is None or len(token) > _LONGEST_TOKEN or not (token.isascii() and token.isprintable()):
        raise SignInError(step, "the authorization server returned no valid access token")
    kind = str(found.get("token_type", "bearer")).lower()
    is_bound = prover is not None and kind == "dpop"
    if prover is not None and prover.required and kind == "bearer":
        raise SignInError(
            step,
            "the authorization server returned a token that is not bound to a key (DPoP), and only a bound one is used",
        )
    if bearer and not is_bound and kind != "bearer":
        raise SignInError(
            step,
            f"the token is of the type {printable_line(str(found['token_type']))!r}, and only bearer tokens are supported",
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
        prover.key if prover is not None and is_bound else None,
    )


# --- The interface between the login process and the login methods, and what all methods share: the scopes to request, and the record of a login.

OFFLINE_ACCESS = "offline_access"


class TokenRequest(NamedTuple):
    """Why a new token is needed."""

    challenged_scopes: tuple[str, ...] = ()
    """The scopes that the server's challenge named."""
    previous: LoginRecord | None = None
    """The record of the previous login at the same issuer."""
    adds_scopes: bool = False
    """Whether the previous login is valid and only lacks the scopes."""
    binding: GrantBinding = UNBOUND
    """Whether the new tokens are to be bound to a key."""


class LoginMethod(ABC):
    """A login method at one server."""

    logs_in_early = False
    """Whether to log in before the server asks for it."""
    is_unattended = False
    """Whether it needs no user, and can be repeated at any time."""
    is_issuer_bound = False
    """Whether the client is registered at one issuer only, so that no other issuer may get its credentials."""
    dpop: DpopUse = "never"
    """Whether its tokens may or must be bound to a key."""
    extensions: ClassVar[Sequence[str]] = ()
    """The extensions of the protocol that it is, which clients declare."""

    def __init__(self, url: str, name: str, issuer: str | None, source: TokenSource | None) -> None:
        """`name` is the store key of its logins, `issuer` the issuer at which the client is registered, `source` the configured token source, if any."""
        self.url = url
        self.name = name
        self.issuer = issuer
        self.source = source

    @property
    def kind(self) -> str:
        """The kind of the login, for events: `user`, `program`, `workload`, `enterprise` or `given`."""
        return self.name.partition(" ")[0]

    async def initial_record(self) -> LoginRecord | None:
        """A login that was configured."""
        return None

    @abstractmethod
    async def obtain(self, source: TokenSource, request: TokenRequest) -> LoginRecord:
        """Log in. Raises `SignInError`."""

    async def identity(self, record: LoginRecord) -> ClientIdentity | None:  # noqa: ARG002 - the default refreshes nothing
        """The client identity of that login, if it is still known, for refreshing it."""
        return None

    async def forget(self, record: LoginRecord) -> None:  # noqa: B027 - optional: most methods have no registration
        """Drop the registration that the issuer rejected."""


def scopes_to_request(
    configured: Collection[str], request: TokenRequest, source: TokenSource, also: Collection[str] = ()
) -> tuple[str, ...]:
    """The scopes to request: configured, challenged and previous ones; without any, all that the resource supports.

    `also` is added in any case, and replaces nothing. `offline_access`, for refresh tokens, is requested only where the authorization server supports it.
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
    source: TokenSource, identity: ClientIdentity | None, tokens: TokenResponse, asked: Collection[str]
) -> LoginRecord:
    """The record of a login."""
    return LoginRecord(
        source.server.issuer,
        source.resource,
        source.server.token_endpoint or "",
        "" if identity is None else identity.client_id,
        tokens.access_token,
        tokens.refresh_token,
        tokens.expires_at,
        time.time(),
        tuple(dict.fromkeys((*asked, *sorted(tokens.scopes or ())))),
        tokens.proof_key,
    )
