"""Credentials that were found to be good of late: as digests with a key that nobody else has, so many at most, and for a while at most."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict


class Remembered:
    """The book. Of more than `most`, the one that was not seen for longest is forgotten."""

    def __init__(self, most: int, seconds: float, key: bytes | None = None) -> None:
        """`seconds` counts from when it was found to be good, however often it is seen again. The key is nobody else's unless one is given."""
        self._most = most
        self._seconds = seconds
        self._key = secrets.token_bytes(32) if key is None else key
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def __repr__(self) -> str:
        return f"<Remembered {len(self)}>"

    def has(self, *parts: str) -> bool:
        """Whether it was good a moment ago."""
        return self.knows(self.digest(*parts))

    def knows(self, digest: bytes) -> bool:
        """The same, by what is kept of it."""
        until = self._until.get(digest)
        if until is None:
            return False
        if until <= time.monotonic():
            del self._until[digest]
            return False
        self._until.move_to_end(digest)
        return True

    def add(self, *parts: str) -> None:
        """It is good."""
        self.keep(self.digest(*parts))

    def keep(self, digest: bytes) -> None:
        """The same, by what is kept of it."""
        self._until[digest] = time.monotonic() + self._seconds
        self._until.move_to_end(digest)
        while len(self._until) > self._most:
            self._until.popitem(last=False)

    def drop(self, digest: bytes) -> None:
        """It is good no more."""
        self._until.pop(digest, None)

    def digest(self, *parts: str) -> bytes:
        """What is kept of it. Parts do not run into each other."""
        whole = "".join([f"{len(part)}:{part}" for part in parts]).encode(errors="surrogatepass")
        return hashlib.blake2b(whole, key=self._key, digest_size=32).digest()
