"""What the authorization server does wrong: in what it says, and in how it answers at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Signature: TypeAlias = Literal["good", "none", "confused", "foreign", "broken"]


@dataclass
class Faults:
    """What is said wrong, from now on. In a mapping, None takes a word out."""

    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """In the metadata: `{"issuer": "https://evil.example"}`, `{"token_endpoint": "http://169.254.169.254/"}`."""
    redirect: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    """In the redirect: `{"iss": None}`, `{"iss": "https://evil.example"}`, `{"state": "another"}`."""
    answer: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """In what the token endpoint says: `{"token_type": "mac"}`, `{"expires_in": -5}`."""
    claims: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """In access tokens: `{"aud": "https://other.example"}`, `{"exp": 1}`, `{"iss": None}`."""
    header: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """In the header of tokens: `{"kid": "../../dev/null"}`, `{"jku": "https://evil.example/keys"}`."""
    signature: Signature = "good"
    """How tokens are signed: not at all (`none`); by HS256 with the public key (`confused`); with a key that nobody knows (`foreign`);
    or with a bit turned (`broken`)."""
    replayed_codes: bool = False
    """Whether a code is good for more than one token."""
    reused_refresh: bool = False
    """Whether a refresh token is, although another was given for it."""
    any_verifier: bool = False
    """Whether a code is redeemed without the proof of who asked for it."""


@dataclass(frozen=True)
class Silence:
    """No answer, ever."""


@dataclass(frozen=True)
class Cut:
    """Half of an answer, and then nobody is there."""


@dataclass(frozen=True)
class Flood:
    """An answer that does not end for a long while."""

    size: int = 1 << 30


@dataclass(frozen=True)
class Redirect:
    """Somewhere else."""

    url: str
    status: int = 302


@dataclass(frozen=True)
class Said:
    """An answer, word by word."""

    status: int = 200
    body: bytes = b""
    headers: Sequence[tuple[str, str]] = (("content-type", "application/json"),)


Plan: TypeAlias = "Silence | Cut | Flood | Redirect | Said"


@dataclass
class Planned:
    """How one place answers, and how often yet; None is for good."""

    plan: Plan
    times: int | None = None


def changed(said: Mapping[str, Any], fault: Mapping[str, Any]) -> dict[str, Any]:
    """What is said, with the fault in it."""
    return {name: value for name, value in {**said, **fault}.items() if name not in fault or value is not None}
