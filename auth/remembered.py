"""Credentials that were found to be good of late: as digests with a key that nobody else has, so many at most, and for a while at most."""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict


class Remembered:
    """The book. Of more than `most`, the one that was not seen for longest is forgotten."""

    def __init__(self, most: int, seconds: float) -> None:
        """`seconds` counts from when it was found to be good, however often it is seen again."""
        self._most = most
        self._seconds = seconds
        self._key = secrets.token_bytes(32)
        self._until: OrderedDict[bytes, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._until)

    def __repr__(self) -> str:
        return f"<Remembered {len(self)}>"

    def has(self, *parts: str) -> bool:
        """Whether it was good a moment ago."""
        digest = self.digest(*parts)
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
        digest = self.digest(*parts)
        self._until[digest] = time.monotonic() + self._seconds
        self._until.move_to_end(digest)
        while len(self._until) > self._most:
            self._until.popitem(last=False)

    def drop(self, *parts: str) -> None:
        """It is good no more."""
        self._until.pop(self.digest(*parts), None)

    def digest(self, *parts: str) -> bytes:
        """What is kept of it. Parts do not run into each other."""
        whole = b"".join(b"%d:%s" % (len(part), part.encode(errors="surrogatepass")) for part in parts)
        return hmac.digest(self._key, whole, "sha256")
