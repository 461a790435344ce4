"""Keys and passwords as they may be kept: never as they are. Formats are text, say what they are, and are compared in constant time.

Keys are random already, so one HMAC with a pepper is enough, and quick: `hmac-sha256$…`. Passwords are not, so they get many rounds:
`pbkdf2-sha256$…`. Plain SHA-256 in hex is what older stores have; it is still recognised, with a warning. Of keys it is not made any more, of
passwords only where it is asked for by name.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
import re
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from greenroom.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)

Algorithm: TypeAlias = Literal["pbkdf2-sha256", "sha256-hex"]

ROUNDS: Final = 100_000
MOST_ROUNDS: Final = 10_000_000
"""Whoever can write into the store could otherwise have each attempt take an hour."""
SALT: Final = 16
_HMAC: Final = "hmac-sha256$"
_PBKDF2: Final = "pbkdf2-sha256$"
_HEX: Final = re.compile(r"[0-9a-fA-F]{64}\Z")
_KEPT_KEY: Final = re.compile(r"hmac-sha256\$[A-Za-z0-9+/]{43}=\Z")


class PepperRequired(ConfigError):
    """A key is hashed with a pepper, or was, and none was given."""


def hash_key(key: str, pepper: str | bytes | None = None) -> str:
    """What to keep of an API key: its HMAC-SHA256 with `pepper`. Raises `PepperRequired` without one."""
    if not pepper:
        raise PepperRequired(
            "hash_key wants a pepper, a secret that is kept apart from the hashes: hash_key(key, os.environ[…]); without one it would be plain SHA-256"
        )
    digest = hmac.new(_bytes(pepper), key.encode(), hashlib.sha256).digest()
    return _HMAC + base64.b64encode(digest).decode()


def verify_key(key: str, stored: str, pepper: str | bytes | None = None) -> bool:
    """Whether it is that key, in constant time. Raises `PepperRequired`."""
    if stored.startswith(_HMAC):
        if pepper is None:
            raise PepperRequired("this key was hashed with a pepper: pass pepper=…")
        return hmac.compare_digest(hash_key(key, pepper).encode(), stored.encode(errors="replace"))
    if not _HEX.match(stored):
        return False
    matches = hmac.compare_digest(plain_digest(key), stored.lower())
    if matches:
        _warn_once(
            "an API key is kept as plain SHA-256, which will not be accepted for ever: hash it again, with a pepper"
        )
    return matches


def plain_digest(secret: str) -> str:
    """Plain SHA-256 in hexadecimal, as older stores have it."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_hash_of_key(stored: str) -> bool:
    """Whether it has one of the forms in which hashed keys are kept."""
    return _KEPT_KEY.match(stored) is not None or _HEX.match(stored) is not None


def says_it_is_a_hash(stored: str) -> bool:
    """Whether it begins as `hash_key` and `hash_password` begin. Hexadecimal does not count: random keys are written so, too."""
    return stored.startswith((_HMAC, _PBKDF2))


def is_hash_of_password(stored: str) -> bool:
    """Whether it has one of the forms in which hashed passwords are kept."""
    return _read(stored) is not None or _HEX.match(stored) is not None


def key_name(key: str) -> str:
    """What a key without a subject is called: the same each time, and of no use to whoever reads it."""
    return f"key-{hashlib.sha256(b'greenroom key name ' + key.encode()).hexdigest()[:16]}"


def hash_password(password: str, *, algorithm: Algorithm = "pbkdf2-sha256", iterations: int = ROUNDS) -> str:
    """What to keep of a password. It takes tens of milliseconds, on purpose: call it in a thread."""
    if algorithm == "sha256-hex":
        return plain_digest(password)
    if algorithm != "pbkdf2-sha256":
        raise ConfigError(f'algorithm is "pbkdf2-sha256" or "sha256-hex", not {algorithm!r}')
    if not 1 <= iterations <= MOST_ROUNDS:
        raise ConfigError(f"iterations is from 1 to {MOST_ROUNDS}, not {iterations}")
    salt = secrets.token_bytes(SALT)
    digest = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    return f"{_PBKDF2}{iterations}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def verify_password(password: str, stored: str) -> bool:
    """Whether it is that password, in constant time. What is stored in no known form matches nothing."""
    if stored.startswith(_PBKDF2):
        parts = _read(stored)
        if parts is None:
            return False
        rounds, salt, digest = parts
        return hmac.compare_digest(hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds), digest)
    if not _HEX.match(stored):
        return False
    matches = hmac.compare_digest(plain_digest(password), stored.lower())
    if matches:
        _warn_once(
            "a password is kept as plain SHA-256, which is easily guessed from: hash it again with hash_password"
        )
    return matches


def dummy_like(stored: Sequence[str]) -> str:
    """Something that no password matches, and that takes as long to find out as the most expensive of these does."""
    rounds = [parts[0] for each in stored if (parts := _read(each)) is not None]
    if stored and not rounds:
        return secrets.token_hex(32)
    salt, digest = secrets.token_bytes(SALT), secrets.token_bytes(32)
    return (
        f"{_PBKDF2}{max(rounds, default=ROUNDS)}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"
    )


def _read(stored: str) -> tuple[int, bytes, bytes] | None:
    rounds, _, rest = stored.removeprefix(_PBKDF2).partition("$")
    salt, _, digest = rest.partition("$")
    if (
        not stored.startswith(_PBKDF2)
        or not rounds.isascii()
        or not rounds.isdecimal()
        or len(rounds) > len(str(MOST_ROUNDS))
    ):
        return None
    try:
        parts = int(rounds), base64.b64decode(salt, validate=True), base64.b64decode(digest, validate=True)
    except ValueError:  # also for what is not ASCII
        return None
    return parts if 1 <= parts[0] <= MOST_ROUNDS and parts[2] else None


@lru_cache
def _warn_once(text: str) -> None:
    """Each request would say it again."""
    log.warning("%s", text)


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
