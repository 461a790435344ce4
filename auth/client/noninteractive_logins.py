"""Logins without a user: client credentials, the token of a workload, an identity token of an organisation, or tokens from the configuration."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Generic, TypeAlias, TypeVar

from greenroom.auth.auth_info import awaited
from greenroom.auth.errors import SignInError
from greenroom.errors import ConfigError
from greenroom.protocol.extension_ids import OFFICIAL_PREFIX

from .client_registration import ClientIdentity, OAuthClientSettings
from .login_process import LoginSettings
from .metadata_discovery import AuthorizationServerMetadata, TokenSource, canonical_resource
from .token_requests import (
    EXCHANGE,
    ID_JAG,
    ID_TOKEN,
    JWT_BEARER,
    OFFLINE_ACCESS,
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
    """The program logs in as itself: with a secret, a signing key or a ready-made assertion (client credentials grant), or with the token of its workload."""

    client_id: str | None = None
    """The client id; a program with a `workload_token` may have none."""
    assertion: str | None = field(default=None, repr=False)
    workload_token: SubjectToken | None = field(default=None, repr=False)
    """The token that the platform has issued to this program, such as a Kubernetes service account token, or a function that reads the current one.

    The authorization server has to trust its issuer (workload identity federation, RFC 7523).
    """
    token_endpoint: str | None = None
    """The token endpoint: then a token is fetched before the first request, so that mistakes show at once. None: it is discovered."""
    resource: str | None = None
    """The resource of the token; None: the server."""

    def __post_init__(self) -> None:
        """Raises `ConfigError`."""
        self.identity()
        given = (self.client_secret, self.key, self.assertion)
        if self.workload_token is not None:
            if any(each is not None for each in given):
                raise ConfigError("a workload_token replaces client_secret, key and assertion: give it alone")
        elif all(each is None for each in given):
            raise ConfigError("ClientCredentials needs a client_secret, a key, an assertion or a workload_token")

    def identity(self) -> ClientIdentity | None:
        """The client identity of the program; None for a workload without one."""
        if self.client_id is None and self.workload_token is not None:
            return None
        return replace(self.client_identity(self.client_id or ""), assertion=self.assertion)

    def login_method(self, url: str, fetch: FetchFunction) -> LoginMethod:
        """The login method for that server."""
        source = _configured_source(self.token_endpoint, self.issuer, self.resource or canonical_resource(url))
        if self.workload_token is not None:
            return _WorkloadLogin(self, "workload", source, url, fetch)
        return _ClientCredentialsLogin(self, "program", source, url, fetch)


@dataclass(frozen=True, kw_only=True)
class EnterpriseManaged(OAuthClientSettings):
    """An organisation's identity provider vouches for a user: the identity token is exchanged there (RFC 8693), and the resulting assertion redeemed (RFC 7523)."""

    client_id: str
    idp_token_endpoint: str
    """The token endpoint of the organisation's identity provider."""
    subject_token: SubjectToken = field(repr=False)
    """The user's identity token, or a function that returns the current one."""
    subject_token_type: str = ID_TOKEN
    idp_client_id: str | None = None
    """The client id at the identity provider; None: the same id and secret."""
    idp_client_secret: str | None = field(default=None, repr=False)
    as_token_endpoint: str | None = None
    """The token endpoint of the server's authorization server; None: it is discovered."""
    audience: str | None = None
    """The audience of the exchanged token; None: the server's authorization server."""
    resource: str | None = None

    def __post_init__(self) -> None:
        """Raises `ConfigError`."""
        if self.subject_token_type not in (ID_TOKEN, SAML2):
            raise ConfigError(f"subject_token_type must be {ID_TOKEN} or {SAML2}")
        if self.as_token_endpoint is not None and self.audience is None:
            raise ConfigError("as_token_endpoint needs audience, the issuer of that authorization server")

    def identity(self) -> ClientIdentity:
        """The client identity of the program at the server's authorization server."""
        return self.client_identity(self.client_id)

    def login_method(self, url: str, fetch: FetchFunction) -> LoginMethod:
        """The login method for that server."""
        source = _configured_source(
            self.as_token_endpoint, self.issuer or self.audience, self.resource or canonical_resource(url)
        )
        return _EnterpriseLogin(self, "enterprise", source, url, fetch)


_Settings = TypeVar("_Settings", bound="ClientCredentials | EnterpriseManaged")


@dataclass(frozen=True, kw_only=True)
class GivenTokens(LoginSettings):
    """Tokens from the configuration, refreshed if possible."""

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
            raise ConfigError("a refresh_token needs token_endpoint and client_id")

    def login_method(self, url: str, fetch: FetchFunction) -> LoginMethod:
        """The login method for that server."""
        return _GivenTokensLogin(self, url, fetch)


class _TokenEndpointLogin(LoginMethod, Generic[_Settings]):
    """A login by one token request without a user; `_form` is the grant."""

    is_unattended = is_issuer_bound = True

    def __init__(
        self, settings: _Settings, kind: str, source: TokenSource | None, url: str, fetch: FetchFunction
    ) -> None:
        super().__init__(url, f"{kind} {settings.client_id or ''} {canonical_resource(url)}", settings.issuer, source)
        self.dpop = settings.dpop
        self._settings = settings
        self._fetch = fetch
        self.logs_in_early = source is not None

    async def obtain(self, source: TokenSource, request: TokenRequest) -> LoginRecord:
        configured = self._settings.scopes
        requested = scopes_to_request(configured, request, source)
        # A refresh token is of no use to a login that can be repeated at any time, and some servers refuse to give it one.
        requested = tuple(each for each in requested if each != OFFLINE_ACCESS or each in configured)
        source = source._replace(resource=self._settings.resource or source.resource)
        server = source.server
        if server.token_endpoint is None:
            raise SignInError("token", f"{server.issuer} names no token endpoint")
        prover = request.binding.prover(server)
        form = await self._form(source, requested)
        endpoint = OAuthEndpoint(server.token_endpoint, server.issuer, server.auth_methods)
        identity = self._settings.identity()
        tokens = await request_token(
            endpoint, identity, self._fetch, form, resource=source.resource, scopes=requested, prover=prover
        )
        return login_record(source, identity, tokens, requested)

    @abstractmethod
    async def _form(self, source: TokenSource, requested: Sequence[str]) -> Mapping[str, str]: ...


class _ClientCredentialsLogin(_TokenEndpointLogin[ClientCredentials]):
    extensions = (f"{OFFICIAL_PREFIX}/oauth-client-credentials",)

    async def _form(self, source: TokenSource, requested: Sequence[str]) -> Mapping[str, str]:  # noqa: ARG002 - this grant has no parameters
        return {"grant_type": "client_credentials"}


class _WorkloadLogin(_TokenEndpointLogin[ClientCredentials]):
    async def _form(self, source: TokenSource, requested: Sequence[str]) -> Mapping[str, str]:  # noqa: ARG002 - this grant has no other parameters
        """The current token of the workload, read anew each time, since the platform replaces it."""
        grants = source.server.grants
        if grants and JWT_BEARER not in grants:
            raise SignInError(
                "token",
                f"{source.server.issuer} accepts no tokens of workloads: it does not support the grant {JWT_BEARER}",
            )
        given = self._settings.workload_token
        try:
            found = await awaited(given()) if callable(given) else given
        except Exception as error:  # noqa: BLE001 - the program's function may raise anything, with a secret in its text
            raise SignInError(
                "token", f"the token of the workload cannot be read: {_error_name(error)}", temporary=True
            ) from None
        token = str(found).strip()
        if not token:
            raise SignInError("token", "the token of the workload is empty")
        return {"grant_type": JWT_BEARER, "assertion": token}


def _error_name(error: Exception) -> str:
    """The part of an error of the program's own function that may be told: the operating system's text and file names contain no secret."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}{f': {error.filename}' if error.filename else ''}"
    return type(error).__name__


class _EnterpriseLogin(_TokenEndpointLogin[EnterpriseManaged]):
    extensions = (f"{OFFICIAL_PREFIX}/enterprise-managed-authorization",)

    async def _form(self, source: TokenSource, requested: Sequence[str]) -> Mapping[str, str]:
        """Exchange the user's identity token for an assertion."""
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
                endpoint, here, self._fetch, form, resource=source.resource, scopes=requested, step=step, bearer=False
            )
        except SignInError as error:
            if error.code in _EXPIRED and (error.code != "invalid_request" or "expired" in error.message):
                raise SignInError(
                    step,
                    f"the identity provider rejects the user's identity token: the user has to sign in there again ({error.message})",
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

    async def obtain(self, source: TokenSource, request: TokenRequest) -> LoginRecord:  # noqa: ARG002 - no new login is possible
        raise SignInError(
            "token",
            f"the token for {source.resource} was rejected and cannot be refreshed: configure a new one",
        )

    async def identity(self, record: LoginRecord) -> ClientIdentity | None:  # noqa: ARG002 - there is only one client
        settings = self._settings
        return None if settings.client_id is None else ClientIdentity(settings.client_id, secret=settings.client_secret)


def _configured_source(endpoint: str | None, issuer: str | None, resource: str) -> TokenSource | None:
    """A token source from the configuration."""
    if endpoint is None:
        return None
    return TokenSource(resource, AuthorizationServerMetadata(issuer or endpoint, token_endpoint=endpoint))
