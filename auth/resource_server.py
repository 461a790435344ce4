"""The provider for a protected resource of OAuth 2.1: verifies access tokens, and tells clients without one where to get it.

::

    OAuthResource(
        resource="https://mcp.example/mcp",
        authorization_servers=["https://id.example"],
        keys=KeySet("https://id.example/jwks", Fetcher()),
    )

With `keys`, `key` or `introspection`, a token must be verified, come from one of these issuers, name this resource as its audience, and have
`required_scopes`. With an `authorizer`, that function decides instead: it gets the token, this object and the request.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from greenroom.errors import ConfigError
from greenroom.supervision import tracebacks

from .auth_info import AuthInfo, awaited, info_from_claims, only_given, refuse_offline_access, scope_param
from .bearer_tokens import BearerAuth, ResourceDocument, checked_words
from .credential_headers import extract_access_token, is_same_resource
from .errors import Denied
from .jose import ASYMMETRIC
from .proof_of_possession import DpopVerifier
from .scope_hierarchy import ScopeHierarchy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Sequence

    from greenroom.supervision import ChildSpec
    from greenroom.transports.interfaces import HttpRefusal

    from .auth_info import AuthRequest
    from .bearer_tokens import MetadataUrl, Servers
    from .jwks_and_introspection import Introspection, KeySet
    from .proof_of_possession import DpopMode

    Verdict: TypeAlias = AuthInfo | Mapping[str, Any] | Denied | None
    Required: TypeAlias = Sequence[str] | Callable[[AuthRequest], Sequence[str] | Awaitable[Sequence[str]]]

log = logging.getLogger(__name__)

_REMOVED: Final = {
    "token_validator": "the authorizer decides about the token",
    "audience_validation": "the authorizer checks the audience; without one, it must be the resource",
}


class Authorizer(Protocol):
    """Decides about tokens."""

    def authorize(self, token: str, resource: OAuthResource, request: AuthRequest) -> Verdict | Awaitable[Verdict]:
        """Identify the caller: return an `AuthInfo` or the claims of the token. None refuses, as does a `Denied`, returned or raised."""


class OAuthResource:
    """Identifies callers by access tokens for this resource, and serves the resource's metadata."""

    def __init__(  # noqa: PLR0913 - all the settings
        self,
        *,
        resource: str,
        authorization_servers: Servers,
        authorizer: Authorizer
        | Callable[[str, OAuthResource, AuthRequest], Verdict | Awaitable[Verdict]]
        | None = None,
        keys: KeySet | None = None,
        key: str | bytes | None = None,
        introspection: Introspection | None = None,
        algorithms: Sequence[str] | None = None,
        audience: str | Sequence[str] | None = None,
        clock_skew: float = 60.0,
        scopes_supported: Sequence[str] | None = None,
        required_scopes: Required = (),
        scope_implies: Mapping[str, Collection[str]] | None = None,
        dpop: DpopMode | None = None,
        dpop_nonce_seconds: float | None = None,
        bearer_methods_supported: Sequence[str] = ("header",),
        resource_name: str | None = None,
        jwks_uri: str | None = None,
        resource_documentation: str | None = None,
        resource_metadata_url: MetadataUrl | None = None,
        metadata: Mapping[str, Any] | None = None,
        allow_insecure_authorization_servers: bool = False,
        **unknown: Any,
    ) -> None:
        """`authorization_servers`, `required_scopes` and `resource_metadata_url` may be functions of the request.

        `audience` is for tokens that name this resource differently. `scope_implies` names for a broad scope the narrower ones that it contains.

        A token that is bound to a key is accepted only with a proof of that key (DPoP). `dpop="accept"` advertises this, and `dpop="require"` accepts no
        other tokens. With `dpop_nonce_seconds`, proofs need a nonce that is not older. Raises `ConfigError`.

        """
        for name in unknown:
            raise ConfigError(f"OAuthResource has no {name}{f': {_REMOVED[name]}' if name in _REMOVED else ''}")
        self.public_document = ResourceDocument(
            resource,
            authorization_servers,
            scopes_supported=scopes_supported,
            bearer_methods_supported=bearer_methods_supported,
            resource_name=resource_name,
            jwks_uri=jwks_uri,
            resource_documentation=resource_documentation,
            metadata_url=resource_metadata_url,
            metadata=metadata,
            insecure=allow_insecure_authorization_servers,
        )
        """The metadata that is served."""
        self.resource = self.public_document.resource
        self._required: Required = (
            required_scopes if callable(required_scopes) else checked_words("required_scopes", required_scopes)
        )
        if not callable(self._required):
            refuse_offline_access("required_scopes", self._required)
        self._hierarchy = ScopeHierarchy(scope_implies)
        self._dpop = DpopVerifier(dpop, resource=self.resource, nonce_seconds=dpop_nonce_seconds)
        self.public_document.advertise(self._dpop.metadata)
        self.headers = ("authorization", *self._dpop.headers)
        """The request headers that it reads."""
        self._verified_by = only_given(
            "OAuthResource", authorizer=authorizer, keys=keys, key=key, introspection=introspection
        )
        self._authorize = _authorizer_function(authorizer)
        self._bearer: BearerAuth | None = None
        self._has_audience = audience is not None
        if authorizer is None:
            self._bearer = BearerAuth(
                keys=keys,
                key=key,
                introspection=introspection,
                algorithms=ASYMMETRIC if algorithms is None and introspection is None else algorithms,
                audience=audience,
                clock_skew=clock_skew,
                scope_implies=scope_implies,
            )
        elif algorithms is not None or audience is not None:
            raise ConfigError("algorithms and audience are not used with an authorizer: check them there")

    def __repr__(self) -> str:
        return f"OAuthResource({self.resource!r}, {self._verified_by})"

    def children(self) -> Sequence[ChildSpec[Any]]:
        """The processes of the key set and of the introspection."""
        return () if self._bearer is None else self._bearer.children()

    async def required_scopes(self, request: AuthRequest) -> tuple[str, ...]:
        """The scopes that this request needs."""
        if not callable(self._required):
            return tuple(self._required)
        return checked_words("required_scopes", await awaited(self._required(request)))

    async def authorization_servers(self, request: AuthRequest) -> tuple[str, ...]:
        """The authorization servers for this request."""
        return await self.public_document.authorization_servers(request)

    async def authenticate(self, request: AuthRequest) -> AuthInfo:
        """Identify the caller by its token."""
        if self._bearer is not None:
            scheme, info = await self._verify(self._bearer, request)
            self._dpop.check(scheme, info, request)
            required = await self.required_scopes(request)
            if not info.has(required):
                raise Denied("insufficient_scope", scopes=required)
            return info
        scheme, token = extract_access_token(request.headers)
        info = self._hierarchy.widen(await self._authorized(token, request))
        self._dpop.check(scheme, info, request)
        return info

    async def _authorized(self, token: str, request: AuthRequest) -> AuthInfo:
        """The identity that the authorizer found."""
        assert self._authorize is not None
        found: Verdict = await awaited(self._authorize(token, self, request))
        if isinstance(found, AuthInfo):
            return found
        if isinstance(found, Denied):
            raise found
        if found is None:
            raise Denied("invalid_token")
        if not isinstance(found, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance] - a program's own function may return anything
            raise TypeError(f"an authorizer must return AuthInfo, claims or Denied, not {type(found).__name__}")
        return info_from_claims(found)

    async def _verify(self, bearer: BearerAuth, request: AuthRequest) -> tuple[str, AuthInfo]:
        scheme, info = await bearer.verify(request)
        if info.issuer not in await self.authorization_servers(request) and not self._is_introspected(info):
            raise Denied("invalid_token", detail="another issuer's")
        if not self._has_audience and not any(is_same_resource(each, self.resource) for each in info.audience):
            raise Denied("invalid_token", "the access token is meant for another resource")
        return scheme, info

    def share(self, key: bytes) -> None:
        """Use this key for nonces, so that all providers with the key accept each other's."""
        self._dpop.share(key)

    def _is_introspected(self, info: AuthInfo) -> bool:
        """Whether the introspecting server is the issuer, in which case the response need not name one."""
        return self._verified_by == "introspection" and info.issuer is None

    async def challenge(self, denied: Denied, request: AuthRequest) -> HttpRefusal:
        """A refusal by RFC 6750 and RFC 9728. If a function of the program fails, its parameter is left out."""
        return self._dpop.refusal(
            denied,
            request,
            resource_metadata=await self._metadata_url(request),
            scope=await self._scopes_to_name(denied, request),
        )

    async def _metadata_url(self, request: AuthRequest) -> str | None:
        try:
            return await self.public_document.url(request)
        except Exception:  # noqa: BLE001 - the program's function
            tracebacks.log_error(log, "the metadata URL of %s could not be computed", self.resource)
            return None

    async def _scopes_to_name(self, denied: Denied, request: AuthRequest) -> str | None:
        """The scopes for the challenge: the missing ones and all required ones, since some clients request exactly what the challenge names."""
        if denied.kind not in ("missing", "insufficient_scope"):
            return None
        wanted: Collection[str] = denied.scopes
        try:
            wanted = tuple(dict.fromkeys((*await self.required_scopes(request), *denied.scopes)))
        except Exception:  # noqa: BLE001 - the program's function
            tracebacks.log_error(log, "the required scopes of %s could not be computed", self.resource)
        if not wanted and denied.kind == "insufficient_scope":
            wanted = self.public_document.scopes_supported or ()
        return scope_param(wanted)


def _authorizer_function(authorizer: Any) -> Callable[[str, OAuthResource, AuthRequest], Any] | None:
    if authorizer is None:
        return None
    found = getattr(authorizer, "authorize", authorizer)
    if not callable(found):
        raise ConfigError(
            f"authorizer must be a function of token, resource and request, or have authorize(…), not {authorizer!r}"
        )
    return found  # type: ignore[no-any-return]  # a program's own function
