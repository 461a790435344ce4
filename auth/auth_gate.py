"""The gate of a server: asks its provider who the caller is, looks at scopes, counts failures, and says no in the way that the provider wants it said.

Failures are counted by where they come from and by whom they claim to be, so that neither one source nor many can go on guessing. Credentials that
were good a while ago are let in whatever else comes from the same address: all users behind one proxy, or in one office, share it. What is logged
has a kind, a detail and where it came from; what a request had in its credentials is struck out of it.
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
from greenroom.supervision.fair_queue import FairSemaphore, QueueFull
from greenroom.transports.open_connections import host_in, is_proxied, source_of

from .auth_info import AuthInfo, AuthRequest, refusal
from .credential_headers import extract_basic_auth
from .errors import Denied
from .shared_secrets import ExpiringCache, keyed_digest

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from greenroom.supervision import ChildSpec
    from greenroom.transports.interfaces import HttpRefusal, Peer, PublicDocuments

    from .auth_info import AuthProvider, PublicDocument

log = logging.getLogger(__name__)
_GUESSES: Final = frozenset({"invalid_token", "invalid_credentials", "invalid_request"})
"""What counts as a failure: a request that shows nothing, or what was good once, is no guess."""
MOST_KNOWN: Final = 10_000
CHECKS_AT_ONCE: Final = 32
"""How many credentials that were not good before are looked at at a time: of one source, or of one credential that comes by a trusted proxy,
half of those that the others leave;"""
MOST_WAITING: Final = 4096
"""and how many more may wait for that. Asking an issuer, or hashing, takes long: a flood of guesses must not keep others from signing in."""
KNOWN_SECONDS: Final = 24 * 3600.0
_REPEAT_WEIGHT: Final = 0.02
"""For how much of a guess it counts to show the same wrong credentials once more. A client whose token was revoked shows it with every call that is
under way, and is no guesser; what it costs to look at it all is bounded all the same."""
_REPEAT_SECONDS: Final = 60.0
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_SHORTEST_SECRET: Final = 4
"""Characters that a secret has at least, to be struck out of a log: of fewer, words would be."""


class AuthGate:
    """A `Gatekeeper` with a provider."""

    def __init__(
        self,
        provider: AuthProvider,
        *,
        required_scopes: Collection[str] = (),
        per_source: FailureLimiter | None = None,
        per_claim: FailureLimiter | None = None,
    ) -> None:
        """All of `required_scopes` are needed for anything at all."""
        self.provider = provider
        self.required_scopes = checked_scopes(required_scopes)
        self._per_source = FailureLimiter(100, 60.0) if per_source is None else per_source
        self._per_claim = FailureLimiter(20, 60.0) if per_claim is None else per_claim
        self._key = secrets.token_bytes(32)
        self._known = ExpiringCache[bool](MOST_KNOWN)
        self._wrong = ExpiringCache[bool](MOST_KNOWN)
        self._checks = FairSemaphore(CHECKS_AT_ONCE, MOST_WAITING)

    @property
    def headers(self) -> Sequence[str]:
        """The request headers that it reads, for the CORS allow-list."""
        return self.provider.headers

    @property
    def public_documents(self) -> PublicDocuments | None:
        """The provider's public documents; None where there are none."""
        document: PublicDocument | None = getattr(self.provider, "public_document", None)
        return None if document is None else ProviderDocuments(document)

    def share(self, key: bytes) -> None:
        """Have unnamed callers told apart in the same way wherever a gate has this key. To be called before the first request."""
        self._key = hashlib.blake2b(key, person=b"gate").digest()[:64]

    def children(self) -> Sequence[ChildSpec[Any]]:
        """The processes that the provider needs."""
        return self.provider.children()

    async def authenticate(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> Peer | HttpRefusal:
        """The peer with its principal, or a refusal."""
        request = auth_request(method, path, headers, peer)
        shown = [headers.get(name, "") for name in self.provider.headers]
        digest = keyed_digest(self._key, *shown)
        if self._known.get(digest):
            return await self._authenticate(request, peer, digest, shown)
        if (wait := self._wait(request, peer, digest)) > 0:
            return too_many_failures(wait)
        try:
            # The clients of a proxy have one address, and one that floods would have the turns of all: there it goes by what is shown.
            owner = digest if is_proxied(peer) else source_of(host_in(peer.address))
            async with self._checks.turn(owner):
                # Looked at again: what came at once, and waited for its turn, guesses no more often than what came one after the other.
                if (wait := self._wait(request, peer, digest)) > 0:
                    return too_many_failures(wait)
                return await self._authenticate(request, peer, digest, shown, known=False)
        except QueueFull:
            return too_many_failures(1.0)

    def _wait(self, request: AuthRequest, peer: Peer, digest: bytes) -> float:
        """For how many seconds nothing of this source, or of whom it claims to be, is looked at."""
        now = asyncio.get_running_loop().time()
        return max(book.wait_seconds(each, now) for book, each in self._limiters(request.headers, peer, digest))

    async def _authenticate(
        self, request: AuthRequest, peer: Peer, digest: bytes, shown: Sequence[str], *, known: bool = True
    ) -> Peer | HttpRefusal:
        """What the provider says."""
        headers = request.headers
        try:
            info = _checked_info(await self.provider.authenticate(request))
            who = self._principal(info, digest)
        except Denied as denied:
            if denied.kind in _GUESSES:
                self._known.drop(digest)
                now = asyncio.get_running_loop().time()
                weight = _REPEAT_WEIGHT if self._wrong.get(digest) else 1.0
                self._wrong.keep(digest, True, _REPEAT_SECONDS)  # noqa: FBT003 - all that there is to know
                for book, each in self._limiters(headers, peer, digest):
                    book.add_failure(each, now, weight)
            return await self._refuse(denied, request)
        except Exception as error:  # noqa: BLE001 - a program's own verifier: whatever it raises, the caller does not get in
            log.error(  # noqa: TRY400 - the traceback as it is may have what was shown
                "the provider of authentication failed\n%s", redacted_traceback(error, shown)
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
        """The refusal for an admitted caller whose call needs more than was granted."""
        needed = tuple(dict.fromkeys((*self.required_scopes, *scopes)))
        request = auth_request(method, path, headers, peer)
        return await self._refuse(Denied("insufficient_scope", scopes=needed), request)

    def _limiters(
        self, headers: Mapping[str, str], peer: Peer, digest: bytes
    ) -> Sequence[tuple[FailureLimiter, Hashable]]:
        """Where it is counted: by where it comes from, and by whom it claims to be, a user by name, anything else by what was shown."""
        claim = digest
        with suppress(Denied):
            claim = keyed_digest(self._key, "user", extract_basic_auth(headers)[0])
        return (self._per_source, source_of(host_in(peer.address))), (self._per_claim, claim)

    def _principal(self, info: AuthInfo, digest: bytes) -> Hashable:
        """The principal that owns the sessions. Genuine callers without a name are told apart by what they have shown."""
        principal = info.principal
        if principal is None and not info.anonymous:
            return ("", digest.hex())
        hash(principal)  # raises for what cannot be told from others
        return principal

    async def _refuse(self, denied: Denied, request: AuthRequest) -> HttpRefusal:
        why = f"Authentication: {denied.kind}{f' ({denied.detail})' if denied.detail else ''}"
        try:
            return (await self.provider.challenge(denied, request))._replace(why=why)
        except Exception as error:  # noqa: BLE001 - as above
            shown = [request.headers.get(name, "") for name in self.provider.headers]
            log.error(  # noqa: TRY400 - as above
                "the provider of authentication could not say no in its own way\n%s", redacted_traceback(error, shown)
            )
            return refusal(denied)._replace(why=why)


class ProviderChain:
    """One provider, made of others: `Server(auth=[BearerAuth(…), APIKeyAuth(…)])`.

    They are asked in order, and the first that finds credentials of its kind decides, whatever it says: a wrong token is a no, and a key beside it is
    not looked at. Were the next one asked then, each request would be as many guesses as there are providers.
    """

    def __init__(self, providers: Sequence[AuthProvider]) -> None:
        """In the order in which they are asked. Raises `ConfigError`."""
        if not providers:
            raise ConfigError("auth=[] has no provider: write auth=None for a server that asks for nothing")
        documents: list[Any] = [
            found for each in providers if (found := getattr(each, "public_document", None)) is not None
        ]
        if len(documents) > 1:
            raise ConfigError("two of the providers in auth=[…] have a document about the resource: clients read one")
        self._providers = tuple(providers)
        self.headers: Sequence[str] = tuple(dict.fromkeys(name for each in providers for name in each.headers))
        self.public_document: PublicDocument | None = documents[0] if documents else None
        """What may be read without credentials."""

    def __repr__(self) -> str:
        return f"ProviderChain({', '.join(map(repr, self._providers))})"

    def children(self) -> Sequence[ChildSpec[Any]]:
        """Those of all."""
        return [child for each in self._providers for child in each.children()]

    async def authenticate(self, request: AuthRequest) -> AuthInfo:
        """What the first says that finds credentials of its kind."""
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
        """As the one that decided says no; where no credentials were shown, the words of the first, and the challenges of all."""
        decided: Any = denied.provider
        if denied.kind == "insufficient_scope" and decided is None:  # the gate's own no, to a caller that was let in
            try:
                decided, _ = await self._deciding_provider(request)
            except Denied as now:  # what was good a moment ago has expired
                decided = now.provider
        if decided is not None:
            refused: HttpRefusal = await decided.challenge(denied, request)
            return refused
        first, *others = [await each.challenge(denied, request) for each in self._providers]
        asked = [pair for each in others for pair in each.headers if pair[0] == "www-authenticate"]
        return first._replace(headers=[*first.headers, *asked])


class ProviderDocuments:
    """A provider's document, as transports ask for it."""

    def __init__(self, document: PublicDocument) -> None:
        """`notice` is read anew each time."""
        self._document = document

    @property
    def paths(self) -> Collection[str]:
        """Where it is."""
        return self._document.paths

    async def respond(self, method: str, path: str, headers: Mapping[str, str], peer: Peer) -> HttpRefusal:
        """The answer, whatever the method."""
        return await self._document.read(auth_request(method, path, headers, peer))


def auth_request(method: str, path: str, headers: Mapping[str, str], peer: Peer) -> AuthRequest:
    """The request, for a provider."""
    path, _, query = path.partition("?")
    return AuthRequest(method, path, headers, peer.address, query)


def _checked_info(info: object) -> AuthInfo:
    if not isinstance(info, AuthInfo):
        raise TypeError(f"authenticate gave a {type(info).__name__}, which is no AuthInfo")
    return info


def too_many_failures(wait: float) -> HttpRefusal:
    """Come back later."""
    refused = refusal(Denied("too_many_failures"))
    headers = [*refused.headers, ("retry-after", str(int(wait) + 1))]
    return refused._replace(headers=headers, why="Authentication: too many failures")


def checked_scopes(scopes: Collection[str]) -> tuple[str, ...]:
    """Scopes as a configuration says them. Raises `ConfigError`: one text would be taken for its letters."""
    said: Any = scopes
    if isinstance(said, str) or not all(isinstance(each, str) and _SCOPE.fullmatch(each) for each in said):
        raise ConfigError(f"scopes are a list of words without blanks, quotes and backslashes, not {said!r}")
    return tuple(dict.fromkeys(scopes))


def redacted_traceback(error: BaseException, secrets: Iterable[str]) -> str:
    """An error with its traceback, and without what was shown."""
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


# --- Callers that have failed too often of late, in bounded memory. A pure book; the gate keeps two, by source and by whom it claims to be.

MOST_SOURCES: Final = 10_000


class FailureLimiter:
    """A bucket for each source that leaks: `allowed` at once, and one more after every `seconds / allowed`."""

    def __init__(self, allowed: int = 20, seconds: float = 60.0, most: int = MOST_SOURCES) -> None:
        """Of more than `most` sources, the one that failed longest ago is forgotten."""
        self.allowed = allowed
        self.seconds = seconds
        self._most = most
        self._counts: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        """How many failures there were, and when that was."""

    def __len__(self) -> int:
        return len(self._counts)

    def wait_seconds(self, source: Hashable, now: float) -> float:
        """For how many seconds nothing of it is looked at; 0 when it may try."""
        left = self._left(source, now)
        return 0.0 if left < self.allowed else (left - self.allowed + 1) * self.seconds / self.allowed

    def add_failure(self, source: Hashable, now: float, weight: float = 1.0) -> None:
        """It has failed once more, which counts for so much."""
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
