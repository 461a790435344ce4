"""What is known of a request that was answered with an HTTP status and no answer: whether it was surely not done, and when to try again. Pure.

A status says what its sender has done, and not what happened before. A load balancer that has lost the first server in the middle of a call hands the
call to a second one: that one's 404, 401 or 429 is true, and the call was done. So a refusal is believed of the process alone that has our session.
Servers of greenroom say which process they are (`greenroom-instance`), with `initialize` and with each refusal of a request that they have not acted
upon. The word has two parts, the program and the process in it.

Servers that say nothing of the kind are believed the statuses that are by definition given before a request is acted upon; 404 is none of those.
"""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .http_reader import Head

INSTANCE: Final = b"greenroom-instance"
TOO_LARGE: Final = 413
_LONGEST: Final = 64
_DECLINED: Final = frozenset({307, 308, 401, 405, 406, 411, 413, 414, 415, 421, 426, 429, 431})
_DENIED: Final = frozenset({401, 403})


def instance_of(head: Head) -> str:
    """Which process has answered; empty where it does not say."""
    said = head.headers.get(INSTANCE, b"")
    return said.decode("latin-1") if len(said) <= _LONGEST else ""


def is_challenge(head: Head) -> bool:
    """Whether it asks for other credentials, or for more scopes."""
    return head.status == 401 or (  # noqa: PLR2004
        head.status == 403 and "insufficient_scope" in head.get(b"www-authenticate")  # noqa: PLR2004
    )


def is_not_done(head: Head, instance: str) -> bool:
    """Whether what was refused with this head was surely not acted upon. `instance` has our session; empty where that is not known."""
    said = instance_of(head)
    if not instance:
        return not said and (head.status in _DECLINED or is_challenge(head))
    if not said:
        # Something in front of the server, which can tell who we are, or how long the message is, before it lets us pass, and nothing else for sure.
        return is_challenge(head) or head.status == TOO_LARGE
    return said == instance  # not of another worker of its program: the one with the session may have died of the call


def retry_after(head: Head) -> float | None:
    """In how many seconds the server wants to hear of it again (RFC 9110, 10.2.3): as a number, or as a date by its own clock."""
    said = head.get(b"retry-after")[:_LONGEST].strip()
    if said.isascii() and said.isdigit():
        return float(said[:9])
    then = _date(said)
    if then is None:
        return None
    now = _date(head.get(b"date")[:_LONGEST])
    return max(0.0, then - (time.time() if now is None else now))


def _date(said: str) -> float | None:
    try:
        return parsedate_to_datetime(said).timestamp()
    except (ValueError, OverflowError, IndexError, TypeError):
        return None
