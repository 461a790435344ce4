"""A fuzz target: a function that takes any bytes and raises if a property is violated, and its seed inputs.

The first bytes of an input are numbers, which say how it is cut and how small the limits are; the rest is what a peer sends. No
file is kept anywhere: the inputs to begin with are made by code.
"""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


class Target(NamedTuple):
    """A part of greenroom, and its properties for any input."""

    name: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    """The seed inputs."""
    words: Iterable[bytes]
    """The dictionary of tokens."""
    packages: tuple[str, ...] = ("greenroom",)
    """The modules whose coverage guides the search."""
    longest: int = 2048


def numbers(data: bytes, count: int) -> tuple[bytes, bytes]:
    """The leading numbers (zeros if missing), and the rest."""
    return data[:count].ljust(count, b"\0"), data[count:]


def pieces(data: bytes, steps: bytes) -> Iterator[bytes]:
    """Cut data into pieces of one byte more than these sizes, cyclically."""
    place = 0
    for step in cycle(steps):
        if place >= len(data):
            return
        yield data[place : place + step + 1]
        place += step + 1


def seeded(texts: Iterable[bytes], *fronts: bytes) -> list[bytes]:
    """Combine each text with each of these leading numbers."""
    return [front + text for text in texts for front in fronts]


def dictionary(words: Iterable[bytes]) -> str:
    """The tokens as a libFuzzer dictionary."""
    return "".join('"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n' for word in words if word)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Whether a decoded value is a JSON array."""
    return type(value) is list


def is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a decoded value is a JSON object."""
    return type(value) is dict
