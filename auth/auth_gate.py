"""The authentication gate of a server: admits or refuses each request, checks required scopes and limits failed attempts.

The provider identifies the caller and words the refusal. Failures are limited per source address and per claimed identity, so that neither one source
nor many sources can go on guessing. Credentials that were valid recently are admitted even while their source is limited: all users behind one proxy or
in one office share an address. Logs contain the kind of a failure, a detail and the source; credentials are redacted.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from greenroom.errors import ConfigError
from greenroom.supervision import tracebacks
from greenroom.supervision.event_bus import bus
from greenroom.supervision.fair_queue import FairSemaphore, QueueFull
from greenroom.transports.open_connections import host_in, is_proxied, source_of

from .auth_info import AuthInfo, AuthRequest, refusal, refuse_offline_access
from .credential_headers import DPOP, PROOF_HEADER, extract_basic_auth, split_authorization
from .errors import Denied
from .proof_of_possession import bound_key
from .shared_secrets import ExpiringCache, keyed_digest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

    from greenroom.supervision import ChildSpec
    from greenroom.transports.interfaces import HttpRefusal, Peer, PublicDocuments

    from .auth_info import AuthProvider, PublicDocument
    from .errors import Kind

log = logging.getLogger(__name__)
_GUESSES: Final = frozenset({"invalid_token", "invalid_credentials", "invalid_request"})
"""Kinds that count as failures. A request without credentials, or with expired ones, is no guess."""
MOST_KNOWN: Final = 10_000
CHECKS_AT_ONCE: Final = 32
"""How many unknown credentials are checked at a time. One source (or one credential, when it comes through a trusted proxy) gets at most half of the
free checks.
"""
MOST_WAITING: Final = 4096
"""How many more may wait for a check. Checks are slow (a request to an issuer, a hash): a flood of guesses must not keep other callers from signing in."""
KNOWN_SECONDS: Final = 24 * 3600.0
_REPEAT_WEIGHT: Final = 0.02
"""The weight of a repeated wrong credential, as a fraction of a guess. A client whose token was revoked repeats it with every request in flight, and is not
guessing; the number of checks stays bounded all the same.
"""
_REPEAT_SECONDS: Final = 60.0
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_SHORTEST_SECRET: Final = 4
"""The shortest text that is redacted from logs: a shorter one would strike out ordinary words."""


class AuthGate:
    """The transports' `Authenticator`, made of an `AuthProvider`."""

    def __init__(
        self,
        provider: AuthProvider,
        *,
        required_scopes: Collection[str] = (),
        per_source: FailureLimiter | None = None,
        per_claim: FailureLimiter | None = None,
    ) -> None:
        """Each request needs all of `required_scopes`."""
        self.provider = provider
        self.required_scopes = checked_scopes(required_scopes)
        refuse_offline_access("required_scopes", self.required_scopes)
        self._per_source = FailureLimiter(100, 60.0) if per_source is None else per_source
        self._per_claim = FailureLimiter(20, 60.0) if per_claim is None else per_claim
        self.operation_scopes: Callable[[Mapping[str, str]], Collection[str] | None] | None = None
        """The scopes of the operation that a request's headers announce, for its challenge; None if they announce none. The server sets it."""
        self.program = ""
        """The name of the server, for events. The server sets it."""
        self._key = secrets.token_bytes(32)
        self._known = ExpiringCache[bool](MOST_KNOWN)
        self._wrong = ExpiringCache[bool](MOST_KNOWN)
        self._checks = FairSemaphore(CHECKS_AT_ONCE, MOST_WAITING)

    @property
    def headers(self) -> Sequence[str]:
        """The request headers that the provider reads, for the CORS allow-list."""
        return self.provider.headers

    @property
    def public_documents(self) -> PublicDocuments | None:
        """The provider's public documents; None if it has none."""
        document: PublicDocument | None = getattr(self.provider, "public_document", None)
        return None if document is None else ProviderDocuments(document)

    def share(self, key: bytes) -> None:
        """Use this key to tell unnamed callers apart, so that all gates with the key agree. Call it before the first request."""
        self._key = hashlib.blake2b(key, person=b"gate").digest()[:64]
        share: Callable[[bytes], None] | None = getattr(self.provider, "share", None)
        if share is not None:
            share(key)

    def children(self) -> Sequence[ChildSpec[Any]]:
        """The child processes of the provider."""
        return self.provider.children()

    async def authenticate(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> Peer | HttpRefusal:
        """Return the peer with its principal, or a refusal."""
        request = auth_request(method, path, headers, peer)
        # Without the proof, which is another one for each request: the same caller must have the same digest.
        digest = keyed_digest(
            self._key, *[headers.get(name, "") for name in self.provider.headers if name != PROOF_HEADER]
        )
        if self._known.get(digest):
            return await self._authenticate(request, peer, digest)
        if (wait := self._wait(request, peer, digest)) > 0:
            return self._limited(wait)
        try:
            # Clients of a proxy share its address, so one that floods would use up the checks of all: count by credential there.
            owner = digest if is_proxied(peer) else source_of(host_in(peer.address))
            async with self._checks.turn(owner):
                # Checked again after waiting: simultaneous attempts are limited like consecutive ones.
                if (wait := self._wait(request, peer, digest)) > 0:
                    return self._limited(wait)
                return await self._authenticate(request, peer, digest, known=False)
        except QueueFull:
            return self._limited(1.0)

    def _wait(self, request: AuthRequest, peer: Peer, digest: bytes) -> float:
        """For how many seconds this source or this claimed identity is refused without a check; 0 if it may try."""
        now = asyncio.get_running_loop().time()
        return max(book.wait_seconds(each, now) for book, each in self._limiters(request.headers, peer, digest))

    async def _authenticate(
        self, request: AuthRequest, peer: Peer, digest: bytes, *, known: bool = True
    ) -> Peer | HttpRefusal:
        """Ask the provider, record the outcome, and check the required scopes."""
        headers = request.headers
        try:
            info = _checked_info(await self.provider.authenticate(request))
            _check_binding(info, headers)
            who = self._principal(info, digest)
        except Denied as denied:
            if denied.kind in _GUESSES:
                self._known.drop(digest)
                now = asyncio.get_running_loop().time()
                weight = _REPEAT_WEIGHT if self._wrong.get(digest) else 1.0
                self._wrong.keep(digest, True, _REPEAT_SECONDS)  # noqa: FBT003 - the cache needs no other value
                for book, each in self._limiters(headers, peer, digest):
                    book.add_failure(each, now, weight)
            return await self._refuse(denied, request)
        except Exception as error:  # noqa: BLE001 - a program's own verifier may raise anything: the caller is refused
            log.error(  # noqa: TRY400 - the plain traceback could contain credentials
                "the authentication provider failed\n%s", redacted_traceback(error, self._credentials(request))
            )
            return await self._refuse(Denied("server_error", detail=type(error).__name__), request)
        if not known and not info.anonymous:
            self._known.keep(digest, True, KNOWN_SECONDS)  # noqa: FBT003 - as above
        if not info.has(self.required_scopes):
            return await self._refuse(Denied("insufficient_scope", scopes=self.required_scopes), request)
        return replace(peer, principal=who, auth=info)

    async def challenge_for_scopes(
        self, scopes: Collection[str], method: str, path: str, headers: Mapping[str, str], peer: Peer
    ) -> HttpRefusal:
        """The refusal for an admitted caller whose request needs more scopes than it was granted."""
        needed = tuple(dict.fromkeys((*self.required_scopes, *scopes)))
        request = auth_request(method, path, headers, peer)
        return await self._refuse(Denied("insufficient_scope", scopes=needed), request)

    def _limiters(
        self, headers: Mapping[str, str], peer: Peer, digest: bytes
    ) -> Sequence[tuple[FailureLimiter, Hashable]]:
        """The limiters that apply: by source address, and by claimed identity (a user name, or else a digest of the credential)."""
        claim = digest
        with suppress(Denied):
            claim = keyed_digest(self._key, "user", extract_basic_auth(headers)[0])
        return (self._per_source, source_of(host_in(peer.address))), (self._per_claim, claim)

    def _credentials(self, request: AuthRequest) -> Sequence[str]:
        """All that the provider reads, for redaction."""
        return [request.headers.get(name, "") for name in self.provider.headers]

    def _principal(self, info: AuthInfo, digest: bytes) -> Hashable:
        """The principal that owns the sessions. An identified caller without a name gets a digest of its credential."""
        principal = info.principal
        if principal is None and not info.anonymous:
            return ("", digest.hex())
        hash(principal)  # raises TypeError for an unhashable principal
        return principal

    def _limited(self, wait: float) -> HttpRefusal:
        self._announce("too_many_failures")
        return too_many_failures(wait)

    def _announce(self, kind: Kind) -> None:
        if bus.listener is not None:
            from .sign_in_events import announce_refusal  # noqa: PLC0415 - only a program with a listener loads the events

            announce_refusal(self.program, kind)

    async def _refuse(self, denied: Denied, request: AuthRequest) -> HttpRefusal:
        self._announce(denied.kind)
        if denied.kind in ("missing", "insufficient_scope"):
            announced = None if self.operation_scopes is None else self.operation_scopes(request.headers)
            if announced is not None:  # clients of older revisions get the challenges that they have always got
                denied.scopes = tuple(dict.fromkeys((*self.required_scopes, *denied.scopes, *announced)))
        why = f"Authentication: {denied.kind}{f' ({denied.detail})' if denied.detail else ''}"
        try:
            return (await self.provider.challenge(denied, request))._replace(why=why)
        except Exception as error:  # noqa: BLE001 - as above
            log.error(  # noqa: TRY400 - as above
                "the authentication provider could not build its refusal\n%s",
                redacted_traceback(error, self._credentials(request)),
            )
            return refusal(denied)._replace(why=why)


class ProviderChain:
    """Several providers as one: `Server(auth=[BearerAuth(…), APIKeyAuth(…)])`.

    They are asked in order. The first that finds credentials of its kind decides; the others are not asked, even if it refuses. Otherwise each request
    would be as many guesses as there are providers.

    """

    def __init__(self, providers: Sequence[AuthProvider]) -> None:
        """`providers` in the order in which they are asked. Raises `ConfigError`."""
        if not providers:
            raise ConfigError("auth=[] has no provider: write auth=None for a server that asks for nothing")
        documents: list[Any] = [
            found for each in providers if (found := getattr(each, "public_document", None)) is not None
        ]
        if len(documents) > 1:
            raise ConfigError(
                "two of the providers in auth=[…] have a public metadata document, and clients read only one: give it to one provider"
            )
        self._providers = tuple(providers)
        self.headers: Sequence[str] = tuple(dict.fromkeys(name for each in providers for name in each.headers))
        self.public_document: PublicDocument | None = documents[0] if documents else None
        """The public document of the provider that has one."""

    def share(self, key: bytes) -> None:
        """Pass the key on to the providers that use one."""
        for each in self._providers:
            share: Callable[[bytes], None] | None = getattr(each, "share", None)
            if share is not None:
                share(key)

    def __repr__(self) -> str:
        return f"ProviderChain({', '.join(map(repr, self._providers))})"

    def children(self) -> Sequence[ChildSpec[Any]]:
        """The child processes of all providers."""
        return [child for each in self._providers for child in each.children()]

    async def authenticate(self, request: AuthRequest) -> AuthInfo:
        """Identify the caller by the first provider that finds credentials of its kind."""
        return (await self._deciding_provider(request))[1]

    async def _deciding_provider(self, request: AuthRequest) -> tuple[AuthProvider, AuthInfo]:
        for each in self._providers:
            try:
                return each, await each.authenticate(request)
            except Denied as denied:
                if denied.kind != "missing":
                    denied.provider = each
                    raise
        raise Denied("missing")

    async def challenge(self, denied: Denied, request: AuthRequest) -> HttpRefusal:
        """The refusal of the deciding provider. Without credentials: the refusal of the first provider, with the challenges of all."""
        decided: Any = denied.provider
        if (
            denied.kind == "insufficient_scope" and decided is None
        ):  # the gate itself refused an admitted caller, so no provider is recorded
            try:
                decided, _ = await self._deciding_provider(request)
            except Denied as now:  # the credentials have expired since
                decided = now.provider
        if decided is not None:
            refused: HttpRefusal = await decided.challenge(denied, request)
            return refused
        first, *others = [await each.challenge(denied, request) for each in self._providers]
        asked = [pair for each in others for pair in each.headers if pair[0] == "www-authenticate"]
        return first._replace(headers=[*first.headers, *asked])


class ProviderDocuments:
    """A provider's document as the transports' `PublicDocuments`."""

    def __init__(self, document: PublicDocument) -> None:
        """`document` is read anew for each request."""
        self._document = document

    @property
    def paths(self) -> Collection[str]:
        """The paths at which it is served."""
        return self._document.paths

    async def respond(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> HttpRefusal:
        """The response, for any method."""
        return await self._document.read(auth_request(method, path, headers, peer))


def auth_request(method: str, path: str, headers: Mapping[str, str], peer: Peer) -> AuthRequest:
    """The request as providers see it."""
    path, _, query = path.partition("?")
    return AuthRequest(method, path, headers, peer.address, query)


def _checked_info(info: object) -> AuthInfo:
    if not isinstance(info, AuthInfo):
        raise TypeError(f"authenticate must return an AuthInfo, not {type(info).__name__}")
    return info


def _check_binding(info: AuthInfo, headers: Mapping[str, str]) -> None:
    """Refuse a token that is bound to a key and was shown like one that is not, also where a provider does not know of such tokens. Raises `Denied`."""
    if "cnf" in info.claims and bound_key(info.claims) is not None:
        found = split_authorization(headers.get("authorization"))
        if found is None or found[0] != DPOP:
            raise Denied("invalid_token", "the access token is bound to a key, and was sent without a proof")


def too_many_failures(wait: float) -> HttpRefusal:
    """A 429 with `Retry-After`."""
    refused = refusal(Denied("too_many_failures"))
    headers = [*refused.headers, ("retry-after", str(int(wait) + 1))]
    return refused._replace(headers=headers, why="Authentication: too many failures")


def checked_scopes(scopes: Collection[str]) -> tuple[str, ...]:
    """Scopes from a configuration, without duplicates. Raises `ConfigError`, also for a plain string, whose letters would be taken for scopes."""
    given: Any = scopes
    if isinstance(given, str) or not all(isinstance(each, str) and _SCOPE.fullmatch(each) for each in given):
        raise ConfigError(f"scopes must be a list of words without blanks, quotes and backslashes, not {given!r}")
    return tuple(dict.fromkeys(scopes))


def redacted_traceback(error: BaseException, secrets: Iterable[str]) -> str:
    """The traceback of an error, with the credentials of the request redacted."""
    text = tracebacks.format_traceback(error)
    hidden: set[str] = set()
    for secret in secrets:
        hidden.update((secret, *secret.split(" ")[1:]))
        with suppress(Denied):
            hidden.update(extract_basic_auth({"authorization": secret}))
    for each in sorted(hidden, key=len, reverse=True):
        if len(each) >= _SHORTEST_SECRET:
            text = text.replace(each, "[hidden]")
    return text


# --- Callers that failed too often recently, in bounded memory: a pure leaky bucket. The gate keeps two, by source and by claimed identity.

MOST_SOURCES: Final = 10_000


class FailureLimiter:
    """A leaky bucket per source: `allowed` failures at once, and one more after every `seconds / allowed`."""

    def __init__(self, allowed: int = 20, seconds: float = 60.0, most: int = MOST_SOURCES) -> None:
        """At most `most` sources are remembered; beyond that, the one whose last failure is oldest is dropped."""
        self.allowed = allowed
        self.seconds = seconds
        self._most = most
        self._counts: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        """By source: the number of failures, and when that was."""

    def __len__(self) -> int:
        return len(self._counts)

    def wait_seconds(self, source: Hashable, now: float) -> float:
        """For how many seconds the source is blocked; 0 if it may try."""
        left = self._left(source, now)
        return 0.0 if left < self.allowed else (left - self.allowed + 1) * self.seconds / self.allowed

    def add_failure(self, source: Hashable, now: float, weight: float = 1.0) -> None:
        """Count a failure with this weight."""
        self._counts[source] = self._left(source, now) + weight, now
        self._counts.move_to_end(source)
        while len(self._counts) > self._most:
            self._counts.popitem(last=False)

    def _left(self, source: Hashable, now: float) -> float:
        failures, at = self._counts.get(source, (0.0, now))
        left = max(0.0, failures - (now - at) * self.allowed / self.seconds)
        if not left:
            self._counts.pop(source, None)
        return left
