"""The proofs of possession (DPoP, RFC 9449) that the fake authorization server verifies in token requests."""

from __future__ import annotations

from hmac import compare_digest
from typing import TYPE_CHECKING

from greenroom.auth.auth_info import number, text
from greenroom.auth.errors import Denied
from greenroom.auth.jose import decode_part, parse_jwk, public_members, thumbprint, verified_claims

from .fake_auth_records import OAuthError

if TYPE_CHECKING:
    from .fake_auth_records import AuthServerRequest
    from .fake_auth_server import AuthorizationServer

PROOF_ALGORITHMS = ("ES256", "EdDSA", "RS256")
_SECONDS = 300


class FakeProofVerifier:
    """Verifies each proof once."""

    def __init__(self, server: AuthorizationServer) -> None:
        """`server` has the settings."""
        self._server = server
        self._used: set[str] = set()

    def thumbprint_of(self, request: AuthServerRequest, *, needed: bool) -> str | None:
        """The thumbprint of the key that has signed the request's proof; None without one. Raises `OAuthError`."""
        server = self._server
        proof = request.headers.get("dpop")
        if server.dpop is None or (proof is None and not needed and server.dpop != "require"):
            return None
        header = decode_part(proof or "", 0) or {}
        members = public_members(header.get("jwk"))
        key = None if members is None else parse_jwk(members)
        if proof is None or members is None or key is None or header.get("typ") != "dpop+jwt":
            raise OAuthError("invalid_dpop_proof", "DPoP is not a proof with a public key")
        try:
            claims = verified_claims(proof, (key,), PROOF_ALGORITHMS, carries_key=True)
        except Denied:
            raise OAuthError("invalid_dpop_proof", "the proof is not signed with its key") from None
        made, name = number(claims.get("iat")), text(claims.get("jti"))
        if claims.get("htm") != request.method or claims.get("htu") != server.url("token") or "ath" in claims:
            raise OAuthError("invalid_dpop_proof", "the proof is for another request")
        if made is None or abs(server.clock() - made) > _SECONDS or name is None or name in self._used:
            raise OAuthError("invalid_dpop_proof", "the proof is too old, or was used before")
        self._used.add(name)
        nonce = text(claims.get("nonce")) or ""
        if server.dpop_nonce is not None and not compare_digest(
            nonce.encode(errors="surrogatepass"), server.dpop_nonce.encode()
        ):
            raise OAuthError("use_dpop_nonce", "the proof needs the nonce in DPoP-Nonce")
        return thumbprint(members)
