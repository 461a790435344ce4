"""Cache hints: for how long a client may keep a result, and for which of its users.

Without a hint a client may keep nothing, and a hint is for the same caller alone unless it says more: a wrong default would leak.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from greenroom.errors import GreenroomError, suggests

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CACHEABLE: Final = frozenset(
    {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }
)
"""The methods of the stateless era whose complete results carry cache hints."""
NO_HINT: Final[Mapping[str, Any]] = {"ttlMs": 0, "cacheScope": "private"}
LONGEST_CACHE: Final = 366 * 86_400.0
"""The most seconds of a hint."""


class BadCache(GreenroomError, ValueError):
    """A cache hint that cannot be given; the message says what to write."""


@suggests("Cache")
@dataclass(frozen=True, slots=True)
class Cache:
    """For how many seconds clients may keep a result: `Cache(60)`, or `Cache(60, public=True)` for one that is the same for all callers.

    A public result may be kept by a proxy and given to others: it is no access control, and holds nothing that one caller alone may see.
    """

    seconds: float
    public: bool = False

    def __post_init__(self) -> None:
        given: Any = self.seconds
        if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
            raise BadCache(f"Cache(seconds) must be a number of seconds, not {given!r}")
        if not 0 <= given <= LONGEST_CACHE:
            raise BadCache(f"Cache(seconds) must be 0 to {LONGEST_CACHE:g}, not {given!r}")
        if not isinstance(cast("object", self.public), bool):
            raise BadCache(f"Cache(public=…) must be True or False, not {self.public!r}")

    def to_wire(self, *, private: bool = False) -> dict[str, Any]:
        """The members of a result. With `private`, it holds for this caller alone, whatever was said."""
        scope = "public" if self.public and not private else "private"
        return {"ttlMs": round(self.seconds * 1000), "cacheScope": scope}


def received_cache(result: Mapping[str, Any]) -> Cache:
    """The hint in a result that another side has sent, whatever it has sent: without a valid one, the result is stale at once, and private."""
    ttl: Any = result.get("ttlMs")
    valid = isinstance(ttl, int | float) and not isinstance(ttl, bool) and ttl > 0
    return Cache(min(ttl, LONGEST_CACHE * 1000) / 1000 if valid else 0.0, public=result.get("cacheScope") == "public")


def merged_cache(caches: Iterable[Cache]) -> Cache:
    """The hint of a result that is made of several: it holds as long as all of them do, and is for all callers if all of them are. Of none: no hint."""
    merged = tuple(caches)
    return Cache(
        min((each.seconds for each in merged), default=0.0), bool(merged) and all(each.public for each in merged)
    )


def check_cache(what: str, cache: object, scopes: object = ()) -> Cache | None:
    """The hint itself. Raises `BadCache` for something else, and for a public one of what needs scopes."""
    if cache is None:
        return None
    if not isinstance(cache, Cache):
        raise BadCache(f"{what} must be Cache(seconds), or None, not {cache!r}")
    if cache.public and scopes:
        raise BadCache(f"{what}: what needs scopes is not the same for all callers: leave out public=True")
    return cache


def check_caches(what: str, caches: object) -> Mapping[str, Cache]:
    """The hints by method. Raises `BadCache` for a method whose results carry none."""
    if caches is None:
        return {}
    if isinstance(caches, int | float) and not isinstance(caches, bool):
        caches = Cache(caches)
    if isinstance(caches, Cache):
        return dict.fromkeys(CACHEABLE - {"resources/read"}, caches)
    if not isinstance(caches, dict):
        raise BadCache(
            f"{what} must be Cache(seconds) or a number of seconds for all lists, or a dict of Cache(seconds) by method, not {caches!r}"
        )
    members = cast("dict[str, Cache]", caches)
    for method, cache in members.items():
        if method not in CACHEABLE or method == "resources/read":
            named = ", ".join(sorted(CACHEABLE - {"resources/read"}))
            raise BadCache(f"{what}: there is no hint for {method!r}; there are {named}, and cache= of a resource")
        check_cache(f"{what}[{method!r}]", cache)
    return members
