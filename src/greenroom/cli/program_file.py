"""A file that another program reads, and mostly writes as well: read without waiting, replaced whole or not at all, and what it was is kept beside it.

Nothing is written through a link that somebody else may have put beside it: a repository brings its own files along.
"""

from __future__ import annotations

import json as json_library
import math
import os
import shutil
import stat
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.wire import is_array, is_object
from greenroom.supervision.private_files import write_beside

from .endings import CONFIG, Ended

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_KEPT: Final = 9
"""So many files from before a change are kept; the first of them for good."""
_LARGEST: Final = 256 * 1024 * 1024
"""More than any program keeps in one: some write their whole history into it."""
_DEEPEST: Final = 64


class Changed(Exception):
    """Somebody else has written to it since it was read."""


class _Unlike(Exception):
    """What would not be written back as it was read."""


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or Decimal(repr(value)) != Decimal(text):
        raise _Unlike(f"the number {text[:40]} is more exact than it would be written")
    return value


def _constant(text: str) -> Any:
    raise _Unlike(f"{text} is no JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise _Unlike(f"{twice!r} stands there twice in one object")
    return found


def read(path: Path) -> dict[str, Any]:
    """What stands there; nothing when there is no such file. Raises `Ended` for one that is no JSON object, and no TOML where that is its kind."""
    text = text_at(path)
    if is_toml(path):
        from .toml_file import parsed  # noqa: PLC0415 - one program has such

        return parsed(text, path)
    if not text.strip():
        return {}
    found: Any = None
    try:
        found = json_library.loads(text, parse_float=_float, parse_constant=_constant, object_pairs_hook=_object)
        deep = _is_deep(found)
    except _Unlike as unlike:
        raise Ended(CONFIG, f"{path}: {unlike}; it has to be edited by hand, and nothing was written") from None
    except ValueError as error:
        raise Ended(
            CONFIG,
            f"{path} is no plain JSON ({error}): with comments in it, it has to be edited by hand; nothing was written",
        ) from None
    except RecursionError:
        deep = True
    if deep:
        raise Ended(CONFIG, f"{path} has more than {_DEEPEST} values in each other: nothing was written")
    if not is_object(found):
        raise Ended(CONFIG, f"{path} has to be an object: nothing was written")
    return dict(found)


def is_toml(path: Path) -> bool:
    """Whether the program keeps it in TOML."""
    return path.suffix == ".toml"


def text_at(path: Path) -> str:
    """The text of a file; empty when there is no such file. Raises `Ended`."""
    try:
        return _bytes(path).decode("utf-8-sig")
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise Ended(CONFIG, f"{path} cannot be read ({error}): nothing was written") from None


def _bytes(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    with open(descriptor, "rb") as file:  # noqa: PTH123 - what is open already
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no file")
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST} bytes")
    return data


def _is_deep(value: Any) -> bool:
    layer = [value]
    for _ in range(_DEEPEST):
        layer = [
            one
            for each in layer
            for one in (each.values() if is_object(each) else each if is_array(each) else ())
            if is_object(one) or is_array(one)
        ]
        if not layer:
            return False
    return True


def text_of(value: Mapping[str, Any]) -> str:
    """As it is written. Half a character, which JSON can hold and UTF-8 cannot, is written by its number."""
    text = json_library.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return text.encode(errors="backslashreplace").decode()


def write(path: Path, text: str, before: Mapping[str, Any]) -> Path | None:
    """Put it there at once, with the rights that the file had; returns where the one before is kept. Raises `Changed` when it is not as it was `before`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    target = path.resolve()  # a link stays one
    kept: Path | None = None
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600

    made = [write_beside(target, text.encode(), mode=mode)]
    try:
        if target.exists():
            made.append(write_beside(target, target.read_bytes()))
            shutil.copystat(target, made[-1])
        if read(path) != before:
            raise Changed
        if len(made) > 1:
            kept = _beside(target)
            made[1].replace(kept)
        made[0].replace(target)
    finally:
        for each in made:
            each.unlink(missing_ok=True)
    return kept


def _beside(target: Path) -> Path:
    """Where it is kept as it was. The first one shows how it was before we came, and stays; of the others the last is overwritten when there are many.

    What replaces a link there leaves alone what the link leads to.
    """
    first = f"{target.name}.before-greenroom"
    places = [target.with_name(first if number == 1 else f"{first}-{number}") for number in range(1, _KEPT + 1)]
    return next((place for place in places if not os.path.lexists(place)), places[-1])
