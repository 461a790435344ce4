"""Arguments checked against a function's schema: valid, invalid, sets, dicts with numeric keys, texts with a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta
from tests.fuzz.linearity import Reader

from greenroom.protocol.type_schemas import Mismatch, arguments_of

if TYPE_CHECKING:
    from collections.abc import Callable

PRIME = (1 << 61) - 1


def _tool(
    numbers: list[int] | None = None,
    keys: set[int] | None = None,
    named: dict[int, str] | None = None,
    pairs: set[tuple[int, int]] | None = None,
    word: Annotated[str, Meta(pattern="^[a-z]+$")] = "a",
    either: list[int | str | None] | None = None,
) -> None:
    """Takes one of each kind."""


_ARGUMENTS = arguments_of(_tool)


def _made(name: str, one: Callable[[int], Any], length: int) -> Callable[[int], dict[str, Any]]:
    return lambda size: {name: [one(number) for number in range(size // length)]}


def _keyed(one: Callable[[int], int]) -> Callable[[int], dict[str, Any]]:
    return lambda size: {"named": {str(one(number)): "" for number in range(size // 8)}}


SHAPES: dict[str, Callable[[int], dict[str, Any]]] = {
    "numbers": _made("numbers", lambda number: number, 4),
    "numbers with a point": _made("numbers", lambda number: number + 0.0, 4),
    "no numbers": _made("numbers", str, 4),
    "keys": _made("keys", lambda number: number, 4),
    "keys of one hash": _made("keys", lambda number: PRIME * number, 20),
    "keys that are one": _made("keys", lambda _: PRIME * 7, 20),
    "named": _keyed(lambda number: number),
    "named by one hash": _keyed(lambda number: PRIME * number),
    "pairs": _made("pairs", lambda number: [number, 1], 8),
    "pairs of one hash": _made("pairs", lambda number: [PRIME * number, 1], 24),
    "a word": lambda size: {"word": "a" * size},
    "no word": lambda size: {"word": "a" * size + "!"},
    "either": _made("either", lambda number: number if number % 2 else str(number), 4),
    "arguments that there are not": lambda size: {f"a{number}": 1 for number in range(size // 8)},
}

READERS = (
    Reader(
        "schemas",
        _ARGUMENTS.bind,
        SHAPES,
        (Mismatch,),
        sizes=(
            1024,
            4096,
            16384,
            65536,
        ),  # the table of a set is made four times as large, so four times as many keys fill it as much
        short=(512, 2048, 8192, 32768),
    ),
)
