"""A TOML file of another program, of which one table is written, replaced or taken out; the rest of its text stays as it is, comments included.

The change is made on lines, and what comes of it is read again: where that is anything but the wanted change, nothing is written.
"""

from __future__ import annotations

import json as json_library
import re
import tomllib
from typing import TYPE_CHECKING, Any, Final

from greenroom.protocol.wire import is_array, is_object

from .endings import CONFIG, Ended

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_HEADER: Final = re.compile(r"[ \t]*\[\[?(?P<path>[^\[\]\n]*)\]")
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def changed(text: str, path: Path, key: str, name: str, entry: Mapping[str, Any] | None) -> str:
    """The text with this entry below `key`; without it for None. Raises `Ended` where it has to be edited by hand."""
    before = parsed(text, path)
    there = before.get(key, {})
    if not is_object(there):
        raise Ended(CONFIG, f"{path}: {key} has to be a table: mend it first; nothing was written")
    wanted_table = {**{each: value for each, value in there.items() if each != name}}
    if entry is not None:
        wanted_table[name] = entry
    kept = _without(text, key, name) if name in there else text
    if entry is not None:
        kept = f"{kept.rstrip()}\n\n{table(key, name, entry)}" if kept.strip() else table(key, name, entry)
    try:
        found = tomllib.loads(kept)
    except tomllib.TOMLDecodeError:
        found = {}
    rest = {each: value for each, value in before.items() if each != key}
    if found.get(key, {}) != wanted_table or {each: value for each, value in found.items() if each != key} != rest:
        by_hand = "take it out by hand" if entry is None else f"write this into it by hand:\n{table(key, name, entry)}"
        raise Ended(CONFIG, f"{path} has {key}.{name} in a form that is not edited here: {by_hand}")
    return kept


def parsed(text: str, path: Path) -> dict[str, Any]:
    """What stands there. Raises `Ended` for what is no TOML."""
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Ended(CONFIG, f"{path} is no TOML ({error}): mend it first; nothing was written") from None


def _without(text: str, key: str, name: str) -> str:
    """Without the table, and the tables below it."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines(keepends=True):
        found = _HEADER.match(line)
        if found is not None:
            inside = _parts(found["path"])[:2] == [key, name]
        if not inside:
            lines.append(line)
    return "".join(lines)


def _parts(path: str) -> list[str]:
    """The names of a table's header; none for one that cannot be read alone."""
    try:
        value: Any = tomllib.loads(f"[{path}]")
    except tomllib.TOMLDecodeError:
        return []
    found: list[str] = []
    while is_object(value) and value:
        name, value = next(iter(value.items()))
        found.append(name)
    return found


def table(key: str, name: str, entry: Mapping[str, Any]) -> str:
    """The table as it is written."""
    return f"[{key}.{_name(name)}]\n" + "".join(f"{_name(each)} = {_value(value)}\n" for each, value in entry.items())


def _name(text: str) -> str:
    return text if _BARE.fullmatch(text) else _string(text)


def _value(value: Any) -> str:
    if is_object(value):
        return f"{{ {', '.join(f'{_name(each)} = {_value(one)}' for each, one in value.items())} }}" if value else "{}"
    if is_array(value):
        return f"[{', '.join(map(_value, value))}]"
    return _string(str(value))


def _string(text: str) -> str:
    """A basic string: JSON's escapes are TOML's, but for DEL, which TOML wants escaped, too."""
    return json_library.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007F")
