"""Python's own JSON parser with the strictness of ours: the reference of differential tests."""

from __future__ import annotations

import json
import math
from typing import Any

DIGITS = 308


class Twice(ValueError):
    """A duplicate key."""


def python_says(data: bytes) -> Any:
    """The decoded value. Raises ValueError, and RecursionError for deep nesting."""
    value = json.loads(data.decode(), object_pairs_hook=_pairs, parse_constant=_no, parse_int=_whole, parse_float=_real)
    json.dumps(value, ensure_ascii=False).encode()  # finds lone surrogates
    return value


def _pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in found}) != len(found):
        raise Twice
    return dict(found)


def _no(name: str) -> Any:
    raise ValueError(name)


def _whole(digits: str) -> int:
    if len(digits.lstrip("-")) > DIGITS:
        raise ValueError(digits)
    return int(digits)


def _real(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(digits)
    return number
