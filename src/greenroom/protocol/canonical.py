"""One text for all values that JSON Schema takes for equal: 1 and 1.0 are, 1 and true are not.

Texts are what sets and dicts of a peer's values have to be made of. Python's hash of a number is its remainder by 2**61 - 1, so that numbers
can be chosen which all meet in one place of a set, and looking for one of n takes n comparisons. The hash of a text is keyed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .wire import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from .meter import Meter


def canonical(value: Any, meter: Meter) -> str:
    """The text. Raises `TooMuch`."""
    if isinstance(value, str):
        meter.spend(1 + (len(value) >> 10))
        return f"{len(value)}:{value}"
    parts: list[str] = []
    _write(value, parts.append, meter)
    return "".join(parts)


def _write(value: Any, put: Callable[[str], None], meter: Meter) -> None:
    meter.left -= 2
    if meter.left < 0:
        meter.exceeded()
    if isinstance(value, str):
        meter.left -= len(value) >> 10
        put(f"{len(value)}:{value}")
    elif value is None or isinstance(value, bool):
        put(str(value))
    elif isinstance(value, int):
        put(f"{value:x},")
    elif isinstance(value, float):
        put(f"{int(value):x}," if value.is_integer() else f"{value.hex()},")
    elif is_array(value):
        put("[")
        for one in value:
            _write(one, put, meter)
        put("]")
    elif is_object(value):
        meter.spend(len(value))
        put("{")
        for name in sorted(value):
            meter.left -= len(name) >> 10
            put(f"{len(name)}:{name}")
            _write(value[name], put, meter)
        put("}")
    else:  # no JSON, which only a local caller has: equal to nothing else
        put(f"<{id(value)}>")
