"""DPoP at a resource server (RFC 9449, SEP-1932): access tokens that are bound to a key, and the proofs that callers show with them.

A token with `cnf.jkt` is accepted as ``Authorization: DPoP …`` only, with a proof in the header ``DPoP`` that the same key has signed for this method, URL and
token, once. A bound token never passes as a bearer token, whatever the settings: the point of the binding is that a stolen token is worth nothing.

Proofs are remembered in this process. Several processes of one server (`workers=N`) each remember those that they have seen, so a recorded proof could be
shown once to each of them while it is fresh; nonces, which all of them accept, shorten that time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from greenroom.errors import ConfigError
from greenroom.protocol.jsonrpc import is_object

from .auth_info import number, refusal, text, token_challenge
from .credential_headers import (
    DPOP,
    PROOF_HEADER,
    base64url,
    extract_access_token,
    is_same_resource,
    split_authorization,
    split_web_url,
)
from .errors import Denied
from .jose import ASYMMETRIC, decode_part, parse_jwk, public_members, thumbprint, verified_claims

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping, Sequence

    from greenroom.transports.interfaces import HttpRefusal

    from .auth_info import AuthInfo, AuthRequest

DpopMode: TypeAlias = Literal["accept", "require"]

PROOF_SECONDS: Final = 300
"""How far the time of a proof may differ from ours, either way (SEP-1932)."""
LONGEST_PROOF: Final = 8192
LONGEST_ID: Final = 512
MOST_PROOFS: Final = 100_000
PROOFS_OF_EACH: Final = 10_000
"""How many proofs are remembered in all, and of one principal: beyond that, its oldest ones are refused as too old."""
_THUMBPRINT_LENGTH: Final = 43


def bound_key(claims: Mapping[str, Any]) -> str | None:
    """The thumbprint of the key that a token is bound to; None if it is bound to none. Raises `Denied` for a malformed one, which must not count as none."""
    confirmation = claims.get("cnf")
    if confirmation is None:
        return None
    if not is_object(confirmation):
        raise Denied("invalid_token", detail="cnf is not an object")
    if "jkt" not in confirmation:
        return None
    jkt = confirmation["jkt"]
    if not isinstance(jkt, str) or len(jkt) != _THUMBPRINT_LENGTH or not jkt.isascii():
        raise Denied("invalid_token", detail="cnf.jkt is not a thumbprint")
    return jkt


def _invalid(message: str) -> Denied:
    """A refused proof. It is no guess: a proof is examined only after its token has turned out to be valid."""
    return Denied("invalid_dpop_proof", message)


class DpopVerifier:
    """Checks the proofs of bound tokens, and writes the challenges. It is plain state of the provider that owns it, used in one event loop."""

    def __init__(
        self, mode: DpopMode | None = None, *, resource: str | None = None, nonce_seconds: float | None = None
    ) -> None:
        """`resource` is the URL of the server as clients know it; without one, no proof can be checked. Raises `ConfigError`."""
        if mode not in (None, "accept", "require"):
            raise ConfigError(f'dpop must be "accept", "require" or None, not {mode!r}')
        if mode is not None and resource is None:
            raise ConfigError(
                'dpop needs the URL that proofs have to name: write resource="https://…", as clients know the server'
            )
        if nonce_seconds is not None and not 2 <= nonce_seconds <= PROOF_SECONDS:  # noqa: PLR2004 - as the message says
            raise ConfigError(f"dpop_nonce_seconds must be 2 to {PROOF_SECONDS}, or None, not {nonce_seconds!r}")
        self._mode = mode
        self._resource = resource
        self._nonces = None if nonce_seconds is None else NonceIssuer(nonce_seconds)
        self._used = ReplayGuard()

    @property
    def headers(self) -> tuple[str, ...]:
        """The request headers that it reads, for CORS: none unless it is configured."""
        return () if self._mode is None else (PROOF_HEADER,)

    @property
    def metadata(self) -> dict[str, Any]:
        """The members of the resource's metadata (RFC 9728) that say what is accepted: none unless it is configured."""
        if self._mode is None:
            return {}
        required = {"dpop_bound_access_tokens_required": True} if self._mode == "require" else {}
        return {"dpop_signing_alg_values_supported": list(ASYMMETRIC), **required}

    def share(self, key: bytes) -> None:
        """Use this key for nonces, so that all verifiers with the key accept each other's."""
        if self._nonces is not None:
            self._nonces.share(key)

    def check(self, scheme: str, info: AuthInfo, request: AuthRequest) -> None:
        """Check that this request may use the token, which was verified before. Raises `Denied`."""
        jkt = bound_key(info.claims)
        if jkt is None:
            if scheme == DPOP:
                raise Denied(
                    "invalid_token", "the access token is not bound to a key: send it as Authorization: Bearer"
                )
            if self._mode == "require":
                raise Denied("invalid_token", "the access token is not bound to a key, as this server requires (DPoP)")
            return
        if self._resource is None:
            raise Denied(
                "invalid_token",
                "this server takes no access tokens that are bound to a key",
                detail="without resource=…, the URL that proofs have to name is not known",
            )
        if scheme != DPOP:
            raise _invalid("the access token is bound to a key: send it as Authorization: DPoP, with a proof in DPoP")
        self._check_proof(jkt, info, request, time.time())

    def _check_proof(self, jkt: str, info: AuthInfo, request: AuthRequest, now: float) -> None:
        proof = request.headers.get(PROOF_HEADER)
        if not proof:
            raise _invalid("the DPoP header is missing")
        claims = _signed_claims(proof, jkt)
        _, token = extract_access_token(request.headers)
        if not _is_equal(claims.get("ath"), base64url(hashlib.sha256(token.encode()).digest())):
            raise _invalid("ath is not the hash of the access token")
        if claims.get("htm") != request.method:
            raise _invalid("htm is not the method of the request")
        if not self._is_here(claims.get("htu"), request):
            raise _invalid("htu is not the URL of the request")
        made, identifier = number(claims.get("iat")), text(claims.get("jti"))
        if made is None or abs(now - made) > PROOF_SECONDS:
            raise _invalid(f"iat is not a time within {PROOF_SECONDS} seconds of now")
        if identifier is None or len(identifier) > LONGEST_ID:
            raise _invalid(f"jti is not a text of 1 to {LONGEST_ID} characters")
        if self._nonces is not None and not self._nonces.accepts(claims.get("nonce"), now):
            raise Denied("use_dpop_nonce")
        owner = jkt if info.principal is None else info.principal
        digest = hashlib.blake2b(f"{jkt}{identifier}".encode(errors="surrogatepass"), digest_size=16).digest()
        if not self._used.first_use(owner, digest, int(made), now):
            raise _invalid("this proof was used before, or is too old: make one for each request")

    def _is_here(self, htu: object, request: AuthRequest) -> bool:
        """Whether the URL, apart from its query, is this resource, or what was requested of its origin (an old event stream has paths of its own).

        The origin is the configured one: a proxy changes the scheme and the host of what arrives, and a replaying attacker sends any `Host`.

        """
        assert self._resource is not None
        parts = split_web_url(htu.partition("#")[0].partition("?")[0]) if isinstance(htu, str) else None
        if parts is None:
            return False
        here = urlsplit(self._resource)
        named = parts.geturl()
        return is_same_resource(named, here._replace(query="").geturl()) or is_same_resource(
            named, here._replace(path=request.path, query="").geturl()
        )

    def refusal(self, denied: Denied, request: AuthRequest, **params: str | None) -> HttpRefusal:
        """A refusal by RFC 6750 and RFC 9449, 7.1, in the scheme that the caller used, or in those that are offered."""
        refused = refusal(denied, *self._challenges(denied, request, params))
        if self._nonces is None or not _names_dpop(refused):
            return refused
        nonce = (("dpop-nonce", self._nonces.issue(time.time())), ("access-control-expose-headers", "DPoP-Nonce"))
        return refused._replace(headers=[*refused.headers, *nonce])

    def _challenges(self, denied: Denied, request: AuthRequest, params: Mapping[str, str | None]) -> Sequence[str]:
        algorithms = " ".join(ASYMMETRIC)
        used = denied.kind in ("invalid_dpop_proof", "use_dpop_nonce")
        if not used and self._resource is not None:
            try:
                found = split_authorization(request.headers.get("authorization"))
            except Denied:
                found = None
            used = found is not None and found[0] == DPOP
        if used or self._mode == "require":
            return [token_challenge("DPoP", denied, algs=algorithms, **params)]
        bearer = token_challenge("Bearer", denied, **params)
        if self._mode is None or denied.kind == "insufficient_scope":
            return [bearer]
        return [bearer, token_challenge("DPoP", Denied("missing"), algs=algorithms, **params)]


def _names_dpop(refused: HttpRefusal) -> bool:
    return any(name == "www-authenticate" and value.startswith("DPoP ") for name, value in refused.headers)


def _signed_claims(proof: str, jkt: str) -> Mapping[str, Any]:
    """The claims of a proof that the key of this thumbprint has signed. Raises `Denied`.

    The thumbprint is compared first: a signature is verified only with a key that an issuer has bound to a token.

    """
    if len(proof) > LONGEST_PROOF:
        raise _invalid(f"the DPoP header has more than {LONGEST_PROOF} characters")
    header = decode_part(proof, 0)
    if header is None or proof.count(".") != 2:  # noqa: PLR2004 - a header that came twice has more, and a comma besides
        raise _invalid("the DPoP header is not one signed token")
    if header.get("typ") != "dpop+jwt":
        raise _invalid("typ is not dpop+jwt")
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in ASYMMETRIC:
        raise _invalid(f"alg is none of {', '.join(ASYMMETRIC)}")
    members = public_members(header.get("jwk"))
    if members is None:
        raise _invalid("jwk is not a public key of RSA (2048 to 4096 bits), EC or Ed25519")
    if not _is_equal(thumbprint(members), jkt):
        raise _invalid("the proof has another key than the access token is bound to")
    key = parse_jwk(members)
    try:
        return verified_claims(proof, () if key is None else (key,), (algorithm,), carries_key=True)
    except Denied as denied:
        raise Denied("invalid_dpop_proof", "the proof is not signed with its key", detail=denied.detail) from None


def _is_equal(given: object, wanted: str) -> bool:
    """Whether a peer's value is this text, in constant time."""
    return isinstance(given, str) and hmac.compare_digest(given.encode(errors="surrogatepass"), wanted.encode())


# --- Nonces: the time at which they were issued, authenticated, so that nothing is remembered.


class NonceIssuer:
    """Nonces that are good for half of `seconds` at least, and for `seconds` at most."""

    def __init__(self, seconds: float) -> None:
        self._period = seconds / 2
        self._key = secrets.token_bytes(32)

    def share(self, key: bytes) -> None:
        """Derive the key from this one."""
        self._key = hashlib.blake2b(key, person=b"dpop nonce").digest()

    def issue(self, now: float) -> str:
        """The nonce of this moment, which changes with each half of its life."""
        return self._of(int(now // self._period))

    def accepts(self, given: object, now: float) -> bool:
        """Whether this nonce was issued recently enough."""
        period = int(now // self._period)
        return _is_equal(given, self._of(period)) or _is_equal(given, self._of(period - 1))

    def _of(self, period: int) -> str:
        return base64url(hashlib.blake2b(str(period).encode(), key=self._key, digest_size=18).digest())


# --- Proofs that were used, in bounded memory, with a share for each principal.
# Beyond its share a principal's oldest proofs are forgotten, and from then on its proofs of that second or before are refused: memory runs out at the cost
# of old proofs, which honest callers do not send, and never at the cost of a replay. When the memory for all is full, the principal with the most proofs loses
# half of them. Were it the oldest second of all, ten principals could date theirs five minutes ahead, and of all others only one request a second would pass.


class ReplayGuard:
    """Remembers used proofs by the second in which they were made, for as long as such a proof would be accepted."""

    def __init__(self, most: int = MOST_PROOFS, of_each: int = PROOFS_OF_EACH) -> None:
        """At most `most` proofs are remembered, and at most `of_each` for one owner."""
        self._most = most
        self._of_each = of_each
        self._few = max(1, of_each // 100)
        self._seconds: dict[int, dict[Hashable, set[bytes]]] = {}
        """By second, then by owner."""
        self._counts: dict[Hashable, int] = {}
        self._floors: dict[Hashable, int] = {}
        """By owner, where its share was exceeded: the newest second that was forgotten too early."""
        self._floor: float = -1
        """The same for all owners."""
        self._total = 0
        self._checked = -1

    def __len__(self) -> int:
        return self._total

    def first_use(self, owner: Hashable, digest: bytes, second: int, now: float) -> bool:
        """Record a proof that was made in this second, which is within the window. False if it was used before, or if that is not known any more."""
        self._forget_old(int(now))
        if second <= max(self._floor, self._floors.get(owner, -1)):
            return False
        used = self._seconds.setdefault(second, {}).setdefault(owner, set())
        if digest in used:
            return False
        used.add(digest)
        self._total += 1
        self._counts[owner] = self._counts.get(owner, 0) + 1
        if self._counts[owner] > self._of_each:
            self._forget_oldest_of(owner, self._of_each)
        while self._total > self._most:
            self._make_room()
        return True

    def _make_room(self) -> None:
        heaviest = max(self._counts, key=self._counts.__getitem__)
        if self._counts[heaviest] > self._few:
            self._forget_oldest_of(heaviest, self._counts[heaviest] // 2)
        else:  # so many principals that each has few: they all lose their oldest second
            self._floor = min(self._seconds)
            self._forget(int(self._floor))

    def _forget_old(self, now: int) -> None:
        """Forget the proofs that are too old to be accepted, once a second."""
        if now != self._checked:
            self._checked = now
            for second in [each for each in self._seconds if each < now - PROOF_SECONDS]:  # twice the window at most
                self._forget(second)

    def _forget_oldest_of(self, owner: Hashable, left: int) -> None:
        """Forget the owner's oldest seconds until at most so many of its proofs are left."""
        for second in sorted(second for second, owners in self._seconds.items() if owners.get(owner)):
            used = self._seconds[second][owner]
            self._count_out(owner, len(used))
            used.clear()  # the empty set stays until its second is forgotten, and the floor with it
            self._floors[owner] = second
            if self._counts.get(owner, 0) <= left:
                return

    def _forget(self, second: int) -> None:
        for owner, used in self._seconds.pop(second).items():
            self._count_out(owner, len(used))
            if self._floors.get(owner) == second:
                del self._floors[owner]

    def _count_out(self, owner: Hashable, number: int) -> None:
        self._total -= number
        left = self._counts.get(owner, 0) - number
        if left > 0:
            self._counts[owner] = left
        else:
            self._counts.pop(owner, None)
