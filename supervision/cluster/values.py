"""What may travel from node to node, as bytes: plain data keeps its types, and processes, reasons, errors and records go by what they are.

Nothing is pickled. A function, a class, an enum or a record is named by its module and qualified name and looked up there: whoever holds
the key of a cluster may start any code in it anyway, and nobody else gets as far as this. What cannot travel is refused here, where it is
sent, and not where it would arrive.
"""

from __future__ import annotations

import importlib
import traceback
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from types import BuiltinFunctionType, FunctionType
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from greenroom.supervision.behaviours.calls import Ref
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.names import On
from greenroom.supervision.kernel.pid import Pid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TUPLE, _DICT, _SET, _FROZENSET, _INT, _PID, _REF, _GLOBAL, _ENUM, _RECORD, _ERROR, _DATE, _DATETIME = range(1, 14)

_PLAIN: Final = frozenset((type(None), bool, float, str, bytes))
_INT_FITS: Final = 1 << 63
_DEPTH: Final = 200
_encode: Final = msgspec.msgpack.Encoder().encode


class CannotTravel(ActorError, TypeError):
    """A value that cannot be sent to another node: what it is, and why not."""


class RemoteError(ActorError):
    """An error of another node whose own class cannot be made here; `kind` is its name."""

    def __init__(self, kind: str, text: str) -> None:
        """`kind` is the name of its class, `text` what it said."""
        super().__init__(kind, text)
        self.kind = kind
        self.text = text

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


class RemoteTraceback(ActorError):
    """The cause of an error that came from another node: where it was raised there."""

    def __init__(self, text: str) -> None:
        """`text` is the formatted traceback."""
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


def encode(value: object, node: str) -> bytes:
    """As bytes. `node` is the sender's own: a name that is meant here is another there. Raises `CannotTravel`."""
    return _encode(_pack(value, node, 0))


def decode(data: Any) -> Any:
    """What `encode` was given."""
    return _decode(data)


def split(data: bytes) -> list[bytes]:
    """The parts of an encoded list, each as its own bytes: for one that holds something which cannot be made here."""
    return [bytes(part) for part in _split(data)]


# --- out


def _pack(value: Any, node: str, depth: int) -> Any:
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -_INT_FITS <= value < _INT_FITS else _ext(_INT, str(value))
    if depth > _DEPTH:
        raise CannotTravel(f"a value that is nested deeper than {_DEPTH} levels cannot travel to another node")
    depth += 1
    if kind is list:
        return [_pack(each, node, depth) for each in value]
    if kind is dict:
        if all(type(key) is str for key in value):
            return {key: _pack(each, node, depth) for key, each in value.items()}
        return _ext(_DICT, [[_pack(key, node, depth), _pack(each, node, depth)] for key, each in value.items()])
    if kind is tuple:
        return _ext(_TUPLE, [_pack(each, node, depth) for each in value])
    if kind is Pid:
        return _ext(_PID, [value.node, value.incarnation, value.serial])
    return _pack_other(value, node, depth)


def _pack_other(value: Any, node: str, depth: int) -> Any:
    match value:
        case set():
            return _ext(_SET, [_pack(each, node, depth) for each in cast("Any", value)])
        case frozenset():
            return _ext(_FROZENSET, [_pack(each, node, depth) for each in cast("Any", value)])
        case bytearray() | memoryview():
            return bytes(cast("Any", value))
        case type() | FunctionType() | BuiltinFunctionType():
            return _ext(_GLOBAL, name_of(value))
        case Enum():
            return _ext(_ENUM, [name_of(type(value)), value.name])
        case Ref():
            return _pack_ref(cast("Any", value), node, depth)
        case BaseException():
            return _ext(_ERROR, _pack_error(value, node, depth))
        case datetime():
            return _ext(_DATETIME, value.isoformat())
        case date():
            return _ext(_DATE, value.isoformat())
        case _:
            return _pack_record(value, node, depth)


def _pack_ref(ref: Ref[Any], node: str, depth: int) -> Any:
    target = ref.target
    if not isinstance(target, Pid | On):
        target = On(target, node)
    return _ext(_REF, [_pack(target, node, depth), ref.seconds])


def _pack_record(value: Any, node: str, depth: int) -> Any:
    kind: Any = type(value)
    names = _fields_of(kind, value)
    if names is None:
        raise CannotTravel(
            f"{_shown(value)} cannot travel to another node: send data (numbers, text, bytes, lists, dicts, tuples, sets, "
            "enums, dataclasses, named tuples), pids, refs, exit reasons, or functions and classes of a module"
        )
    given = {name: getattr(value, name) for name in names}
    return _ext(_RECORD, [name_of(kind), {name: _pack(each, node, depth) for name, each in given.items()}])


def _fields_of(kind: Any, value: Any) -> Sequence[str] | None:
    if issubclass(kind, tuple):
        return getattr(kind, "_fields", None)
    if is_dataclass(kind):
        return [each.name for each in fields(kind) if each.init]
    return value.__struct_fields__ if isinstance(value, msgspec.Struct) else None


def _pack_error(error: BaseException, node: str, depth: int) -> list[Any]:
    args: list[Any] = []
    for each in error.args:
        try:
            args.append(_pack(each, node, depth))
        except CannotTravel:
            args.append(_shown(each))
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 - an error must be told whatever a user's __str__ does
        text = "(its str raised)"
    trace = "".join(traceback.format_exception(error)) if error.__traceback__ or error.__cause__ else ""
    kind = type(error)
    return [f"{kind.__module__}:{kind.__qualname__}", args, text, trace[-20_000:]]


def name_of(thing: Any) -> str:
    """`module:qualified.name` of a function or class that can be found by it. Raises `CannotTravel`."""
    known = _names.get(thing)
    if known is not None:
        return known
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    written = f"{module}:{name}"
    if "<" in name:
        raise CannotTravel(
            f"{_shown(thing)} cannot travel to another node: define it at the top of a module, not inside a function"
        )
    try:
        found = find(written)
    except (ImportError, AttributeError):
        found = None
    if found is not thing:
        raise CannotTravel(f"{_shown(thing)} cannot travel to another node: {written} is not it")
    _names[thing] = written
    return written


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except BaseException:  # noqa: BLE001 - whatever a user's __repr__ does
        text = object.__repr__(value)
    return text if len(text) <= 200 else f"{text[:200]}…"  # noqa: PLR2004


def _ext(code: int, value: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _encode(value))


# --- in


def find(name: str) -> Any:
    """The function or class of that name, whose module is imported if need be."""
    found = _found.get(name)
    if found is None:
        module, _, qualified = name.partition(":")
        found = importlib.import_module(module)
        for step in qualified.split("."):
            found = getattr(found, step)
        _found[name] = found
    return found


_names: dict[Any, str] = {}
_found: dict[str, Any] = {}


def _ref(target: Any, seconds: float | None) -> Ref[Any]:
    return Ref(target, seconds)


def _record(name: str, given: dict[str, Any]) -> Any:
    return find(name)(**given)


def _error(name: str, args: list[Any], text: str, trace: str) -> BaseException:
    error: BaseException | None = None
    try:
        kind = find(name)
        if isinstance(kind, type) and issubclass(kind, BaseException):
            error = kind(*args)
    except Exception:  # noqa: BLE001 - a class that is not here, or wants other arguments than it keeps
        error = None
    if error is None:
        error = RemoteError(name.partition(":")[2], text)
    if trace:
        error.__cause__ = RemoteTraceback(trace)
    return error


_MADE: Final[dict[int, Callable[[Any], Any]]] = {
    _TUPLE: tuple,
    _DICT: dict,
    _SET: set,
    _FROZENSET: frozenset,
    _INT: int,
    _PID: lambda value: Pid(*value),
    _REF: lambda value: _ref(*value),
    _GLOBAL: find,
    _ENUM: lambda value: find(value[0])[value[1]],
    _RECORD: lambda value: _record(*value),
    _ERROR: lambda value: _error(*value),
    _DATE: date.fromisoformat,
    _DATETIME: datetime.fromisoformat,
}


def _unpack(code: int, data: memoryview) -> Any:
    make = _MADE.get(code)
    if make is None:
        raise ActorError(f"a value of a kind ({code}) that this version does not know came from another node")
    return make(_decode(data))


_decode: Final = msgspec.msgpack.Decoder(ext_hook=_unpack).decode
_split: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
