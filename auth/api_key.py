"""Keys: whoever has one is let in as whom it was given to.

::

    APIKeyAuth({"k-123…": {"subject": "ci", "scopes": ["deploy"]}})
    APIKeyAuth({hash_key(key, pepper): {"subject": "ci"}}, hash_keys=True, pepper=pepper)
    APIKeyAuth(verifier=look_it_up)
"""

from __future__ import annotations

import hmac
import inspect
import secrets
from typing import TYPE_CHECKING, Any, Final, cast

from greenroom.errors import ConfigError

from .answers import refusal
from .errors import Denied
from .grants import check_alive, found_by, granted
from .hashing import hash_key, is_hash_of_key, key_name, plain_digest, says_it_is_a_hash, verify_key
from .headers import challenge, extract_api_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from greenroom.transports.seam import Refusal

    from .info import AuthInfo
    from .seam import Asking

    Found = AuthInfo | Mapping[str, Any] | None
    Verifier = Callable[[str], Found | Awaitable[Found]]

_REQUIRED: Final = "API key required"
_INVALID: Final = "Invalid API key"


class APIKeyAuth:
    """The provider."""

    def __init__(
        self,
        keys: Mapping[str, Mapping[str, Any]] | Sequence[str] | None = None,
        *,
        verifier: Verifier | None = None,
        header_name: str = "x-api-key",
        hash_keys: bool = False,
        pepper: str | bytes | None = None,
    ) -> None:
        """`keys` are the keys, or with `hash_keys` what `hash_key` made of them; a mapping says besides whose they are.

        A key of a list is its own subject's, which is called after its digest. `verifier` is asked instead, and says None to those that it does
        not know.
        """
        if (keys is None) == (verifier is None):
            raise ConfigError("APIKeyAuth wants either keys or a verifier")
        if isinstance(keys, str):
            raise ConfigError("keys is a mapping or a list of keys, not one key")
        entries: Mapping[str, Mapping[str, Any]] = {} if keys is None else _entries(keys)
        if any(not key for key in entries):
            raise ConfigError("an empty API key lets everybody in")
        if verifier is None:
            _check_forms(entries, pepper, hashed=hash_keys)
        self.headers: Sequence[str] = (header_name.lower(), "authorization")
        self._header = header_name.lower()
        self._hashed = hash_keys
        self._pepper = pepper
        self._blind = secrets.token_bytes(32)
        self._index = {self._place(key): (key, granted(entry, key_name(key))) for key, entry in entries.items()}
        self._verifier = verifier

    def __repr__(self) -> str:
        how = "a verifier" if self._verifier is not None else f"{len(self._index)} keys"
        return f"APIKeyAuth({how}, header_name={self._header!r})"

    def children(self) -> tuple[()]:
        """It needs no process."""
        return ()

    async def authenticate(self, asking: Asking) -> AuthInfo:
        """Whose key it is."""
        key = extract_api_key(asking.headers, self._header)
        if self._verifier is not None:
            found = self._verifier(key)
            if inspect.isawaitable(found):
                found = await found
            if found is None:
                raise Denied("invalid_credentials", _INVALID)
            return self._good(found_by(found, key_name(key)))
        # Looked up by a digest that nobody outside can foresee, and then compared in constant time: how long it takes tells nothing.
        for candidate in self._candidates(key):
            stored, info = self._index.get(self._place(candidate), ("", None))
            same = verify_key(key, stored, self._pepper) if self._hashed else _same(key, stored)
            if same and info is not None:
                return self._good(info)
        raise Denied("invalid_credentials", _INVALID)

    def _candidates(self, key: str) -> Sequence[str]:
        """As what this key may be kept."""
        if not self._hashed:
            return (key,)
        plain = plain_digest(key)
        return (plain,) if self._pepper is None else (hash_key(key, self._pepper), plain)

    def _place(self, kept: str) -> bytes:
        kept = kept.lower() if self._hashed and not kept.startswith("hmac-") else kept
        return hmac.digest(self._blind, kept.encode(), "sha256")

    @staticmethod
    def _good(info: AuthInfo) -> AuthInfo:
        try:
            return check_alive(info)
        except Denied:
            raise Denied("invalid_credentials", _INVALID, detail="a key that has expired") from None

    async def challenge(self, denied: Denied, asking: Asking) -> Refusal:  # noqa: ARG002 - it is the same for all
        """Which header the key belongs in."""
        error = {"missing": "invalid_request", "invalid_credentials": "invalid_key"}.get(denied.kind)
        told = Denied("missing", _REQUIRED) if denied.kind == "missing" else denied
        return refusal(told, challenge("ApiKey", header=self._header), error=error)


def _entries(keys: Mapping[str, Mapping[str, Any]] | Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    if isinstance(keys, str | bytes):
        raise ConfigError("keys is a mapping or a list of keys, not one key")
    if hasattr(keys, "items"):
        return cast("Mapping[str, Mapping[str, Any]]", keys)
    return {key: {} for key in keys}


def _check_forms(keys: Collection[str], pepper: str | bytes | None, *, hashed: bool) -> None:
    """Refuse what could never match a key that is shown. Keys are counted and not quoted: they are secrets."""
    if not hashed:
        hashes = sum(map(says_it_is_a_hash, keys))
        if hashes:
            raise ConfigError(
                f"{hashes} of {len(keys)} keys are hashes: pass hash_keys=True, and the pepper they were made with"
            )
        if pepper is not None:
            raise ConfigError("a pepper is for hashed keys: pass hash_keys=True, with keys from hash_key(key, pepper)")
        return
    if pepper is not None and not pepper:
        raise ConfigError("the pepper is empty: pass the one that hash_key was given")
    plain = sum(not is_hash_of_key(key) for key in keys)
    if plain:
        raise ConfigError(
            f"with hash_keys=True, {plain} of {len(keys)} keys are no hashes and would never match: keep hash_key(key, pepper) of each"
        )
    if pepper is None and any(map(says_it_is_a_hash, keys)):
        raise ConfigError("these keys were hashed with a pepper: pass pepper=…")


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
