"""Patterns of names: `*` is any run of characters, `?` is one, and everything else is itself. Takes at most the product of both lengths, so it is linear in the name that a server chose."""

from __future__ import annotations


def matches(pattern: str, name: str) -> bool:
    """Whether the whole name is what the pattern says."""
    at = here = 0
    star = -1  # the last `*` that was passed, and how much of the name it has taken
    taken = 0
    while here < len(name):
        if at < len(pattern) and (pattern[at] == "?" or (pattern[at] != "*" and pattern[at] == name[here])):
            at += 1
            here += 1
        elif at < len(pattern) and pattern[at] == "*":
            star, taken = at, here
            at += 1
        elif star >= 0:
            taken += 1
            at, here = star + 1, taken
        else:
            return False
    return all(each == "*" for each in pattern[at:])


def covers(wide: str, narrow: str) -> bool:
    """Whether a pattern plainly matches all that another does: it is the same one, takes everything, or begins as that begins."""
    return wide in (narrow, "*") or (
        wide.endswith("*") and not set("*?") & set(wide[:-1]) and narrow.startswith(wide[:-1])
    )


def may_begin(pattern: str, beginning: str) -> bool:
    """Whether a pattern matches anything that begins so."""
    places = {0}
    for each in beginning:
        following: set[int] = set()
        for place in _past_stars(pattern, places):
            if place < len(pattern) and pattern[place] in (each, "?", "*"):
                following.add(place if pattern[place] == "*" else place + 1)
        places = following
    return bool(places)


def _past_stars(pattern: str, places: set[int]) -> set[int]:
    """Where one may be as well, as a `*` may take nothing."""
    found = set(places)
    for place in places:
        while place < len(pattern) and pattern[place] == "*":
            place += 1  # noqa: PLW2901 - as far as the stars go
            found.add(place)
    return found
