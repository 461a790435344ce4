"""Ways to log in that need no user: as the program itself, by what an organisation's own sign-in has said, or with tokens that are brought along."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from greenroom.auth.auth_info import awaited
from greenroom.auth.errors import SignInError
from greenroom.errors import ConfigError

from .client_registration import ClientIdentity, OAuthClientSettings
from .login_process import LoginSettings
from .metadata_discovery import AuthorizationServerMetadata, TokenSource, canonical_resource
from .token_requests import (
    EXCHANGE,
    ID_JAG,
    ID_TOKEN,
    JWT_BEARER,
    SAML2,
    LoginMethod,
    OAuthEndpoint,
    login_record,
    request_token,
    scopes_to_request,
)
from .token_stores import LoginRecord

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from greenroom.transports.client.fetch import FetchFunction

    from .token_requests import TokenRequest

    SubjectToken: TypeAlias = str | Callable[[], str | Awaitable[str]]

_EXPIRED: Final = frozenset({"invalid_grant", "invalid_token", "expired_token", "invalid_request"})


@dataclass(frozen=True, kw_only=True)
class ClientCredentials(OAuthClientSettings):
    """The program logs in as itself, with a secret, a key, or an assertion that was signed elsewhere."""

    client_id: str
    assertion: str | None = field(default=None, repr=False)
    token_endpoint: str | None = None
    """Where: then the first token is fetched before the first request, so that what is wrong shows at once. None: what the server says."""
    resource: str | None = None
    """What the token is for; None: the server."""

    def __post_init__(self) -> None:
        """Raises `ConfigError`."""
        self.identity()
        if self.client_secret is None and self.key is None and self.assertion is None:
            raise ConfigError("a program that logs in as itself has a client_secret, a key or an assertion")

    def identity(self) -> ClientIdentity:
        """The client identity of the program."""
        return replace(self.client_identity(self.client_id), assertion=self.assertion)

    def login_method(self, url: str, fetch: FetchFunction) -> LoginMethod:
        """How to log in at that server."""
        source = _configured_source(self.token_endpoint, self.issuer, self.resource or canonical_resource(url))
        return _ClientCredentialsLogin(self, "program", source, url, fetch)


@dataclass(frozen=True, kw_only=True)
class EnterpriseManaged(OAuthClientSettings):
    """An organisation's own sign-in vouches for a user: its identity token is exchanged there (RFC 8693), and what comes of it is redeemed (RFC 7523)."""

    client_id: str
    idp_token_endpoint: str
    """The token endpoint of the organisation."""
    subject_token: SubjectToken = field(repr=False)
    """What the user's sign-in has given, or a function that knows the present one."""
    subject_token_type: str = ID_TOKEN
    idp_client_id: str | None = None
    """The client id by which the organisation knows this program; None: by the same name and secret."""
    idp_client_secret: str | None = field(default=None, repr=False)
    as_token_endpoint: str | None = None
    """The token endpoint of the server's own authorization server; None: what the server says."""
    audience: str | None = None
    """The audience of the exchanged token; None: that authorization server."""
    resource: str | None = None

    def __post_init__(self) -> None:
        """Raises `ConfigError`."""
        if self.subject_token_type not in (ID_TOKEN, SAML2):
            raise ConfigError(f"subject_token_type is {ID_TOKEN} or {SAML2}")
        if self.as_token_endpoint is not None and self.audience is None:
            raise ConfigError("with as_token_endpoint, say as audience which authorization server that is")

    def identity(self) -> ClientIdentity:
        """The client identity of the program at the server's own authorization server."""
        return self.client_identity(self.client_id)

    def login_method(self, url: str, fetch: FetchFunction) -> LoginMethod:
        """How to log in at that server."""
        source = _configured_source(
            self.as_token_endpoint, self.issuer or self.audience, self.resource or canonical_resource(url)
        )
        return _EnterpriseLogin(self, "enterprise", source, url, fetch)


_Settings = TypeVar("_Settings", bound="ClientCredentials | EnterpriseManaged")


@dataclass(frozen=True, kw_only=True)
class GivenTokens(LoginSettings):
    """Tokens that are brought along, and are refreshed where that is possible."""

    access_token: str = field(repr=False)
    refresh_token: str | None = field(default=None, repr=False)
    token_endpoint: str | None = None
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    expires_at: float | None = None
    resource: str | None = None

    def __post_init__(self) -> None:
        """Raises `ConfigError`."""
        if self.refresh_token is not None and (self.token_endpoint is None or self.client_id is None):
            raise ConfigError("a refresh token is of use with its token_endpoint and client_id")

    def login_method(self, url: str, fetch: FetchFunction) -> LoginMethod:
        """How to log in at that server."""
        return _GivenTokensLogin(self, url, fetch)


class _TokenEndpointLogin(LoginMethod, Generic[_Settings]):
    """Of a program that needs no user: `_form` is what it asks for a token with."""

    is_unattended = is_issuer_bound = True

    def __init__(
        self, settings: _Settings, kind: str, source: TokenSource | None, url: str, fetch: FetchFunction
    ) -> None:
        super().__init__(url, f"{kind} {settings.client_id} {canonical_resource(url)}", settings.issuer, source)
        self._settings = settings
        self._fetch = fetch
        self.logs_in_early = source is not None

    async def obtain(self, source: TokenSource, request: TokenRequest) -> LoginRecord:
        asked = scopes_to_request(self._settings.scopes, request, source)
        source = source._replace(resource=self._settings.resource or source.resource)
        form = await self._form(source, asked)
        server = source.server
        if server.token_endpoint is None:
            raise SignInError("token", f"{server.issuer} names no token endpoint")
        endpoint = OAuthEndpoint(server.token_endpoint, server.issuer, server.auth_methods)
        identity = self._settings.identity()
        tokens = await request_token(endpoint, identity, self._fetch, form, resource=source.resource, scopes=asked)
        return login_record(source, identity, tokens, asked)

    @abstractmethod
    async def _form(self, source: TokenSource, asked: Sequence[str]) -> Mapping[str, str]: ...


class _ClientCredentialsLogin(_TokenEndpointLogin[ClientCredentials]):
    async def _form(self, source: TokenSource, asked: Sequence[str]) -> Mapping[str, str]:  # noqa: ARG002 - it needs no other
        return {"grant_type": "client_credentials"}


class _EnterpriseLogin(_TokenEndpointLogin[EnterpriseManaged]):
    async def _form(self, source: TokenSource, asked: Sequence[str]) -> Mapping[str, str]:
        """With the assertion of the organisation, which gives it for the user's identity token."""
        settings = self._settings
        subject = settings.subject_token
        if callable(subject):
            subject = await awaited(subject())
        here = settings.identity()
        if settings.idp_client_id is not None:
            here = ClientIdentity(settings.idp_client_id or settings.client_id, secret=settings.idp_client_secret)
        form = {
            "grant_type": EXCHANGE,
            "subject_token": str(subject),
            "subject_token_type": settings.subject_token_type,
            "requested_token_type": ID_JAG,
            "audience": settings.audience or source.server.issuer,
        }
        endpoint = OAuthEndpoint(settings.idp_token_endpoint)
        step = "token exchange"
        try:
            exchanged = await request_token(
                endpoint, here, self._fetch, form, resource=source.resource, scopes=asked, step=step, bearer=False
            )
        except SignInError as error:
            if error.code in _EXPIRED and (error.code != "invalid_request" or "expired" in error.message):
                raise SignInError(
                    step,
                    f"the organisation does not take the user's identity token any more: have them sign in there anew ({error.message})",
                    code="subject_token_expired",
                ) from None
            raise
        return {"grant_type": JWT_BEARER, "assertion": exchanged.access_token}


class _GivenTokensLogin(LoginMethod):
    def __init__(self, settings: GivenTokens, url: str, fetch: FetchFunction) -> None:
        resource = settings.resource or canonical_resource(url)
        endpoint = settings.token_endpoint or "https://nowhere.invalid/"
        name = f"given {settings.client_id or ''} {canonical_resource(url)}"
        super().__init__(url, name, None, _configured_source(endpoint, endpoint, resource))
        self._settings = settings
        self._resource = resource
        self._fetch = fetch

    async def initial_record(self) -> LoginRecord | None:
        settings = self._settings
        endpoint = settings.token_endpoint or ""
        return LoginRecord(
            endpoint,
            self._resource,
            endpoint,
            settings.client_id or "",
            settings.access_token,
            settings.refresh_token,
            settings.expires_at,
            time.time(),
            tuple(settings.scopes),
        )

    async def obtain(self, source: TokenSource, request: TokenRequest) -> LoginRecord:  # noqa: ARG002 - whatever it is for
        raise SignInError(
            "token",
            f"the token for {source.resource} is not taken any more, and cannot be refreshed: bring another one",
        )

    async def identity(self, record: LoginRecord) -> ClientIdentity | None:  # noqa: ARG002 - there is only one
        settings = self._settings
        return None if settings.client_id is None else ClientIdentity(settings.client_id, secret=settings.client_secret)


def _configured_source(endpoint: str | None, issuer: str | None, resource: str) -> TokenSource | None:
    """A place that was configured."""
    if endpoint is None:
        return None
    return TokenSource(resource, AuthorizationServerMetadata(issuer or endpoint, token_endpoint=endpoint))
