"""What a token's claims must say, whoever has vouched for them: that it is still good, whose it is, and that it is meant for us. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import Denied
from .grants import number, text, texts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def check_claims(
    claims: Mapping[str, Any],
    *,
    now: float,
    skew: float = 60.0,
    issuers: Sequence[str] = (),
    audience: Sequence[str] | None = None,
) -> None:
    """Raises `Denied`. An audience of None is for those who have said that they do not care."""
    check_times(claims, now=now, skew=skew)
    if issuers and text(claims.get("iss")) not in issuers:
        raise Denied("invalid_token", detail="another issuer's")
    if audience is not None and not set(audience).intersection(texts(claims.get("aud"))):
        raise Denied("invalid_token", "the access token is meant for somebody else")


def check_times(claims: Mapping[str, Any], *, now: float, skew: float = 60.0) -> None:
    """That it is good now: all that can change of a token that was looked at before. Raises `Denied`."""
    expires, begins = claims.get("exp"), claims.get("nbf")
    if expires is not None:
        moment = number(expires)
        if moment is None:
            raise Denied("invalid_token", detail="exp is no time")
        if moment + skew < now:
            raise Denied("expired_token")
    if begins is not None:
        moment = number(begins)
        if moment is None:
            raise Denied("invalid_token", detail="nbf is no time")
        if moment - skew > now:
            raise Denied("invalid_token", "the access token is not valid yet")
