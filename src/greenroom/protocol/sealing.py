"""Sealed values: texts that a peer keeps for this server, and can neither read nor change. The only file that imports cryptography.

A value is encrypted and signed (AES-256-GCM) with a key of a `KeyRing`, for one purpose and bound to facts that the text does not contain: it opens
only where purpose and facts are the same. Nothing is kept for it, so whatever has to be used once is counted elsewhere.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from greenroom.errors import ConfigError, GreenroomError

from .errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cryptography.fernet import Fernet
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_SIZE: Final = 32
LONGEST_SEAL: Final = 256 * 1024
"""Characters of a sealed text, unless the caller of `open` allows fewer. Longer ones are refused before they are decoded."""
MOST_KEYS: Final = 16

_VERSION: Final = b"\x01"
_ID_SIZE: Final = 8
_NONCE_SIZE: Final = 12
_TAG_SIZE: Final = 16
_OVERHEAD: Final = len(_VERSION) + _ID_SIZE + _NONCE_SIZE + _TAG_SIZE

_HOW_TO_MAKE: Final = 'python -c "import secrets; print(secrets.token_urlsafe(32))" makes one'


class BadSeal(GreenroomError):
    """A text that was not sealed with these keys for this purpose, or was changed. All causes have one message.

    `reason` is for this server's own log. A peer that learns it can find out which keys, purposes and principals exist.
    """

    def __init__(self, reason: str) -> None:
        """`reason` is one of length, text, version, key, tag."""
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return "the value was not sealed here for this use, or was changed"


class KeyRing:
    """The keys of sealed values: the first one seals, all of them open.

    To replace a key, put the new one first, and remove the old one when everything sealed with it has expired.
    """

    # Nonces are random and have 96 bits, so a key may seal 2**32 values for each purpose before the chance of a repeated nonce exceeds 2**-33 (NIST SP
    # 800-38D, 8.3). That is a thousand values a second for fifty days: a server that seals more than that has to replace its key within that time.

    __slots__ = ("_ciphers", "_first", "_keys")

    def __init__(self, keys: Sequence[bytes]) -> None:
        """`keys` are 32 random bytes each. Raises `ConfigError`."""
        if not keys:
            raise ConfigError(f"a key ring needs at least one key: {_HOW_TO_MAKE}")
        if len(keys) > MOST_KEYS:
            raise ConfigError(f"a key ring has at most {MOST_KEYS} keys, not {len(keys)}: remove the oldest")
        for place, key in enumerate(cast("Sequence[object]", keys)):
            if not isinstance(key, bytes) or len(key) != KEY_SIZE:
                raise ConfigError(f"key {place} must be {KEY_SIZE} bytes: {_HOW_TO_MAKE}")
        self._keys = {_id_of(key): key for key in keys}
        self._first = _id_of(keys[0])
        self._ciphers: dict[tuple[bytes, str], AESGCM] = {}

    def __repr__(self) -> str:
        return f"<KeyRing of {len(self._keys)} key{'s' * (len(self._keys) != 1)}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a key ring is not pickled: its keys would be in the copy")

    @classmethod
    def random(cls) -> KeyRing:
        """A ring with one new key. What it seals cannot be opened after this program has ended."""
        return cls([secrets.token_bytes(KEY_SIZE)])

    @staticmethod
    def new_key() -> str:
        """A new key as a text, for a setting."""
        return secrets.token_urlsafe(KEY_SIZE)

    @classmethod
    def shared(cls, secret: bytes) -> KeyRing:
        """The ring of all programs that know this secret."""
        return cls([blake2b(secret, digest_size=KEY_SIZE, person=b"seal keys").digest()])

    @classmethod
    def parse(cls, texts: Iterable[str], setting: str = "seal_keys") -> KeyRing:
        """The ring of keys that are written as base64, of either alphabet and with or without padding.

        Raises `ConfigError`, which names the setting and never shows a key.
        """
        if isinstance(texts, str | bytes):
            raise ConfigError(f'{setting} must be a list of keys: write {setting}=["…"], with one key or more')
        found = [_parse_key(text, f"{setting}[{place}]") for place, text in enumerate(texts)]
        if len(set(found)) < len(found):
            raise ConfigError(f"{setting} has one key twice: remove it")
        if not found or len(found) > MOST_KEYS:
            raise ConfigError(f"{setting} must have 1 to {MOST_KEYS} keys, not {len(found)}: {_HOW_TO_MAKE}")
        return cls(found)

    def seal(self, purpose: str, payload: bytes, bound: bytes = b"") -> str:
        """A URL-safe text that only `open` with the same purpose and the same `bound` facts can read.

        Raises `LocalProtocolError` for a payload whose text would be longer than `LONGEST_SEAL`.
        """
        if sealed_length(len(payload)) > LONGEST_SEAL:
            raise LocalProtocolError(
                f"a value of {len(payload)} bytes is too long to be sealed: keep it, and seal its id"
            )
        nonce = secrets.token_bytes(_NONCE_SIZE)
        head = _VERSION + self._first
        sealed = self._cipher(self._first, purpose).encrypt(nonce, payload, head + bound)
        return base64.urlsafe_b64encode(head + nonce + sealed).rstrip(b"=").decode()

    def open(self, purpose: str, text: str, bound: bytes = b"", *, longest: int = LONGEST_SEAL) -> bytes:
        """The payload of a sealed text. Raises `BadSeal`."""
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - a server that never seals does not load it

        data = _decode(text, longest)
        head, nonce, sealed = data[:_HEAD], data[_HEAD : _HEAD + _NONCE_SIZE], data[_HEAD + _NONCE_SIZE :]
        key = head[len(_VERSION) :]
        if head[: len(_VERSION)] != _VERSION:
            raise BadSeal("version")
        if key not in self._keys:
            raise BadSeal("key")
        try:
            return self._cipher(key, purpose).decrypt(nonce, sealed, head + bound)
        except InvalidTag:
            raise BadSeal("tag") from None

    def _cipher(self, key: bytes, purpose: str) -> AESGCM:
        """The cipher of a key for a purpose. Purposes are constants of the code, so there are few."""
        cipher = self._ciphers.get((key, purpose))
        if cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - as above
            from cryptography.hazmat.primitives.hashes import SHA256  # noqa: PLC0415
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF  # noqa: PLC0415

            info = b"greenroom seal " + _VERSION + purpose.encode()
            derived = HKDF(algorithm=SHA256(), length=KEY_SIZE, salt=None, info=info).derive(self._keys[key])
            cipher = self._ciphers[key, purpose] = AESGCM(derived)
        return cipher


_HEAD: Final = len(_VERSION) + _ID_SIZE


def sealed_length(size: int) -> int:
    """The length of the text of a payload of `size` bytes."""
    return -(-(size + _OVERHEAD) * 4 // 3)


def _id_of(key: bytes) -> bytes:
    """The name of a key in sealed texts. It is a hash of 256 random bits, and says nothing about them."""
    return blake2b(key, digest_size=_ID_SIZE, person=b"seal key id").digest()


def _parse_key(text: object, name: str) -> bytes:
    if not isinstance(text, str):
        raise ConfigError(f"{name} must be a text, {KEY_SIZE} bytes as base64: {_HOW_TO_MAKE}")
    plain = text.strip().replace("+", "-").replace("/", "_").rstrip("=")
    try:
        key = _strictly_decoded(plain)
    except ValueError:
        raise ConfigError(f"{name} is not base64: {_HOW_TO_MAKE}") from None
    if len(key) != KEY_SIZE:
        raise ConfigError(f"{name} has {len(key)} bytes, and must have {KEY_SIZE}: {_HOW_TO_MAKE}")
    return key


def _decode(text: str, longest: int) -> bytes:
    if len(text) > longest:
        raise BadSeal("length")
    try:
        data = _strictly_decoded(text)
    except ValueError:
        raise BadSeal("text") from None
    if len(data) < _OVERHEAD:
        raise BadSeal("length")
    return data


def _strictly_decoded(text: str) -> bytes:
    """The bytes of an unpadded URL-safe base64 text. Raises `ValueError`.

    A value has one text only: no other letters, no padding, and no bits beyond the last byte. So a text can stand for its value, as in a table of
    those already used.
    """
    data = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    if base64.urlsafe_b64encode(data).rstrip(b"=").decode() != text:
        raise binascii.Error("not the text of these bytes")
    return data


# --- Files at rest: the encrypted file of logins. Fernet is kept there, as its files outlive the program.

FileCipher: TypeAlias = "Fernet"


def new_file_key() -> bytes:
    """A new key for `file_cipher`: 32 bytes in URL-safe base64."""
    return base64.urlsafe_b64encode(secrets.token_bytes(KEY_SIZE))


def file_cipher(key: bytes | str) -> FileCipher:
    """The cipher for a key of 32 bytes in URL-safe base64. Raises `ValueError`."""
    from cryptography.fernet import Fernet  # noqa: PLC0415 - as above

    return Fernet(key)


def decrypted(cipher: FileCipher, sealed: bytes) -> bytes | None:
    """The content of an encrypted file; None if it was encrypted with another key, or changed."""
    from cryptography.fernet import InvalidToken  # noqa: PLC0415 - as above

    try:
        return cipher.decrypt(sealed)
    except InvalidToken:
        return None
