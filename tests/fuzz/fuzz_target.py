"""What a fuzzer is pointed at: a function that takes any bytes and raises when a promise is broken, and where to begin.

The first bytes of an input are numbers, which say how it is cut and how small the limits are; the rest is what a peer sends. No
file is kept anywhere: the inputs to begin with are made by code.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Target(NamedTuple):
    """One part of greenroom, and what has to be true of it whatever comes."""

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    """Inputs to begin with."""
    words: Iterable[bytes]
    """What such inputs are made of."""
    packages: tuple[str, ...] = ("greenroom",)
    """Whose code leads the search."""
    longest: int = 2048


def numbers(data: bytes, count: int) -> tuple[bytes, bytes]:
    """The numbers in front, zeros where there are none, and the rest."""
    return data[:count].ljust(count, b"\0"), data[count:]


def pieces(data: bytes, steps: bytes) -> Iterator[bytes]:
    """The data in pieces of one byte more than these sizes, again and again."""
    place = 0
    for step in cycle(steps):
        if place >= len(data):
            return
        yield data[place : place + step + 1]
        place += step + 1


def seeded(texts: Iterable[bytes], *fronts: bytes) -> list[bytes]:
    """Each text behind each of these numbers."""
    return [front + text for text in texts for front in fronts]


def dictionary(words: Iterable[bytes]) -> str:
    """The words in the form that libFuzzer reads."""
    return "".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in words if word)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether a decoded value is a JSON array."""
    return type(value) is list


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a decoded value is a JSON object."""
    return type(value) is dict
