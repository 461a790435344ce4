"""Credentials: the Authorization header, tokens that are signed, proofs of their keys, scopes and challenges."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from tests.auth.dpop_prover import ANN, base64url
from tests.fuzz.linearity import Reader

from greenroom.auth.auth_info import AuthInfo, AuthRequest
from greenroom.auth.client import login_process as challenges
from greenroom.auth.credential_headers import extract_api_key, extract_basic_auth, extract_bearer_token
from greenroom.auth.errors import Denied
from greenroom.auth.jose import unverified_header
from greenroom.auth.proof_of_possession import DpopVerifier

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS = ("a", "a.", "=", " ", " a", ",", "\\", "a=b,", 'a="\\', "\t", "é")
FRONTS = ("", "Bearer ", 'Bearer realm="', "Bearer a.b.")
SIZES = (256, 1024, 4096, 16384)
"""No credential is longer than the last size."""


def _made(front: str, unit: str, end: str) -> Callable[[int], str]:
    return lambda size: front + unit * ((size - len(front) - len(end)) // len(unit)) + end


def _read(text: str) -> None:
    headers = {"authorization": text, "x-api-key": text}
    challenges.parse_challenges(text)
    for read in (extract_bearer_token, extract_basic_auth, extract_api_key):
        with suppress(Denied):
            read(headers)
    with suppress(Denied):
        unverified_header(text.partition(" ")[2] or text)


PROOF_SIZES = (512, 1024, 2048, 4096)
"""A proof of the last size is within the limit, also after it was written as base64."""
BOUND = AuthInfo("ann", claims={"cnf": {"jkt": ANN.jkt}})


def _check(proof: str) -> None:
    verifier = DpopVerifier(resource="https://mcp.example/mcp", nonce_seconds=60)
    with suppress(Denied):
        verifier.check("dpop", BOUND, AuthRequest("POST", "/mcp", ANN.shown("token", proof)))


def _headed(member: str, text: Callable[[int], Any]) -> Callable[[int], str]:
    """A proof with this member in its header; `jwk` is reached before the signature."""
    return lambda size: f"{base64url(json.dumps(ANN.header(alg='ES256', **{member: text(size)})).encode())}.e30.AAAA"


def _claimed(member: str, unit: str) -> Callable[[int], str]:
    """A proof that is signed, with this claim."""

    def made(size: int) -> str:
        changes: dict[str, Any] = {"jti": "once", "iat": 1, member: (unit * size)[:size]}
        return ANN.proof("token", **changes)

    return made


READERS = (
    Reader(
        "proofs",
        _check,
        {
            "a long typ": _headed("typ", lambda size: "a" * size),
            "a wide jwk": _headed("jwk", lambda size: {f"{number}": 1 for number in range(size // 10)}),
            "a long coordinate": _headed("jwk", lambda size: {**ANN.members, "x": "A" * size}),
            "a list as a coordinate": _headed("jwk", lambda size: {**ANN.members, "x": [1] * (size // 3)}),
            "dots": _made("", "a.", ""),
            "another letter": _made("", "a", ","),
            **{
                f"{member} of {unit!r}": _claimed(member, unit)
                for member in ("jti", "htu", "ath", "nonce")
                for unit in ("a", "/", "?", "#", ":", "https://", "é", "%")
            },
        },
        sizes=PROOF_SIZES,
    ),
    Reader(
        "tokens",
        _read,
        {
            f"{front!r} {unit!r} {end!r}": _made(front, unit, end)
            for front in FRONTS
            for unit in UNITS
            for end in ("", "\x01")
        },
        sizes=SIZES,
    ),
)
