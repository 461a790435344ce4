"""The encoding of values that are sent to another node: plain data keeps its types; processes, exit reasons, errors and records have encodings of their own.

Nothing is pickled. A function, class, enum or record is sent as its module and qualified name, and looked up by the receiver: a peer that holds the cluster's key may
start any code there anyway, and no other peer gets that far. A value that cannot be sent is refused when it is sent.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum, Flag
from types import BuiltinFunctionType, FunctionType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

import msgspec

from greenroom.supervision.behaviours.refs import Ref
from greenroom.supervision.kernel.errors import ActorError
from greenroom.supervision.kernel.process_lookup import On
from greenroom.supervision.kernel.process_messages import Pid
from greenroom.supervision.kernel.tracebacks import ForeignTraceback, format_traceback

from .addresses import CannotTravel, find_by_name, qualified_name, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_TUPLE, _DICT, _SET, _FROZENSET, _INT, _PID, _REF, _GLOBAL, _ENUM, _RECORD, _ERROR, _DATE, _DATETIME, _TEXT, _FLAG = (
    range(1, 16)
)

_PLAIN: Final = frozenset((type(None), bool, float, bytes))
_INT_FITS: Final = 1 << 63
_DEPTH: Final = 100
_CAUSES: Final = 8
_encode: Final = msgspec.msgpack.Encoder().encode


class RemoteError(ActorError):
    """An error of another node whose class cannot be rebuilt here; `kind` is the name of its class."""

    def __init__(self, kind: str, text: str) -> None:
        """`kind` is the name of its class, `text` its message."""
        super().__init__(kind, text)
        self.kind = kind
        self.text = text

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


class RemoteTraceback(ActorError, ForeignTraceback):
    """The cause of an error that came from another node: the traceback there."""

    def __init__(self, text: str) -> None:
        """`text` is the formatted traceback."""
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


class _SurrogateSafeName(str):
    """The sender's name, marking that the value has text with half a surrogate pair, as file names can have.

    msgpack cannot encode such text. To check each string first would cost every call a second pass over its text, so `encode` tries without, and encodes again with this
    marker when that fails.
    """

    __slots__ = ()


def encode(value: object, node: str) -> bytes:
    """Encode a value. `node` is the sender's name, for registered names that are meant on this node. Raises `CannotTravel`."""
    try:
        try:
            return _encode(_pack(value, node, 0))
        except UnicodeEncodeError:
            return _encode(_pack(value, _SurrogateSafeName(node), 0))
    except (CannotTravel, MemoryError):
        raise
    except Exception as error:
        # users' code runs here: a property may raise, or change the list that is being encoded
        raise CannotTravel(f"a value cannot travel to another node: {type(error).__name__}: {error}") from error


def split(data: bytes) -> list[bytes]:
    """The parts of an encoded list, each still encoded: for a list with a part that cannot be decoded here."""
    return [bytes(part) for part in _split(data)]


# --- encoding


def _pack(value: Any, node: str, depth: int) -> Any:
    kind: Any = cast("Any", type(value))
    if kind in _PLAIN:
        return value
    if kind is str:
        return value if type(node) is str else _pack_text(value)
    if kind is int:
        return value if -_INT_FITS <= value < _INT_FITS else _ext(_INT, _int_bytes(value))
    if depth > _DEPTH:
        raise CannotTravel(f"a value that is nested deeper than {_DEPTH} levels cannot travel to another node")
    depth += 1
    if kind is list:
        return [_pack(each, node, depth) for each in value]
    if kind is dict:
        if all(type(key) is str for key in value) and type(node) is str:
            return {key: _pack(each, node, depth) for key, each in value.items()}
        return _ext(_DICT, [[_pack(key, node, depth), _pack(each, node, depth)] for key, each in value.items()])
    if kind is tuple:
        return _ext(_TUPLE, [_pack(each, node, depth) for each in value])
    if kind is FunctionType:  # the method of a call: always the same few, so their encodings are kept
        return _functions.get(value) or _pack_function(value)
    if kind is Pid:
        return _ext(_PID, [value.node, value.incarnation, value.serial])
    return _pack_other(value, node, depth)


def _pack_function(function: FunctionType) -> Any:
    made = _functions[function] = _ext(_GLOBAL, qualified_name(function))
    return made


def _pack_text(text: str) -> Any:
    try:
        text.encode()
    except UnicodeEncodeError:
        return _ext(_TEXT, text.encode("utf-8", "surrogatepass"))
    return text


def _int_bytes(value: int) -> bytes:
    return value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True)


def _pack_other(value: Any, node: str, depth: int) -> Any:  # noqa: PLR0911 - a table of kinds
    match value:
        case set():
            return _ext(_SET, [_pack(each, node, depth) for each in cast("Any", value)])
        case frozenset():
            return _ext(_FROZENSET, [_pack(each, node, depth) for each in cast("Any", value)])
        case bytearray() | memoryview():
            return bytes(cast("Any", value))
        case type() | BuiltinFunctionType():
            return _ext(_GLOBAL, qualified_name(value))
        case Flag():
            return _ext(_FLAG, [qualified_name(type(value)), value.value])
        case Enum():
            return _ext(_ENUM, [qualified_name(type(value)), value.name])
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
    kind: Any = cast("Any", type(value))
    names = _fields_of(kind, value)
    if names is None:
        raise CannotTravel(
            f"{short_repr(value)} cannot travel to another node: send data (numbers, text, bytes, lists, dicts, tuples, sets, "
            "enums, dataclasses, named tuples), pids, refs, exit reasons, or functions and classes of a module"
        )
    given = {name: getattr(value, name) for name in names}
    return _ext(_RECORD, [qualified_name(kind), {name: _pack(each, node, depth) for name, each in given.items()}])


def _fields_of(kind: Any, value: Any) -> Sequence[str] | None:
    if isinstance(value, tuple):
        return cast("Sequence[str] | None", getattr(kind, "_fields", None))
    if is_dataclass(kind):
        return [each.name for each in fields(value) if each.init]
    return value.__struct_fields__ if isinstance(value, msgspec.Struct) else None


def _pack_error(error: BaseException, node: str, depth: int, causes: int = _CAUSES) -> list[Any]:
    kind = type(error)
    given = (
        error.__reduce__()[1] if isinstance(error, OSError) and kind.__reduce__ is OSError.__reduce__ else error.args
    )
    state = {name: value for name, value in vars(error).items() if type(name) is str}
    cause = error.__cause__
    return [
        f"{kind.__module__}:{kind.__qualname__}",
        [_pack_or_show(each, node, depth) for each in given],
        _pack_or_show(_text_of(error), node, depth),
        _ext(
            _DICT,
            [[_pack_or_show(name, node, depth), _pack_or_show(each, node, depth)] for name, each in state.items()],
        ),
        None if cause is None or not causes else _ext(_ERROR, _pack_error(cause, node, depth, causes - 1)),
        _pack_or_show(_trace_of(error), node, depth) if causes == _CAUSES else "",
    ]


def _pack_or_show(value: Any, node: str, depth: int) -> Any:
    """An error is always sent: an attribute that cannot be is sent as its repr."""
    try:
        packed = _pack(value, node, depth)
        _encode(packed)
    except UnicodeEncodeError:
        raise
    except Exception:  # noqa: BLE001 - and whatever a user's property raises
        return _pack(short_repr(value), node, 0)
    return packed


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - an error must be told whatever a user's __str__ does
        return "(its str raised)"


def _trace_of(error: BaseException) -> str:
    if error.__traceback__ is None and error.__cause__ is None:
        return ""
    try:
        return format_traceback(error)[-20_000:]
    except Exception as broken:  # noqa: BLE001 - as above
        return f"(the traceback could not be formatted: {type(broken).__name__})"


def _ext(code: int, value: Any) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _encode(value))


# --- decoding


_records: dict[str, Any] = {}
_functions: WeakKeyDictionary[Any, msgspec.msgpack.Ext] = WeakKeyDictionary()
_known: dict[bytes, Any] = {}


def _global(name: str) -> Any:
    made = find_by_name(name)
    _known[_encode(name)] = made
    return made


def _record(name: str, given: dict[str, Any]) -> Any:
    make = _records.get(name)
    if make is None:
        make = find_by_name(name)
        if not (isinstance(make, type) and _is_record(make)):
            raise CannotTravel(f"{name} is no record")  # it is not called, whatever it is
        _records[name] = make
    return make(**given)


def _enum(name: str, base: type[Enum]) -> Any:
    kind = find_by_name(name)
    if isinstance(kind, type) and issubclass(cast("Any", kind), base):
        return kind
    raise CannotTravel(f"{name} is no enum")


def _is_record(kind: Any) -> bool:
    if issubclass(kind, tuple):
        return hasattr(cast("Any", kind), "_fields")  # it may have no fields
    return is_dataclass(kind) or issubclass(kind, msgspec.Struct)


def _error(
    name: str, args: list[Any], text: str, state: dict[str, Any], cause: BaseException | None, trace: str
) -> BaseException:
    try:
        error = _rebuild_error(find_by_name(name), args, state)
    except Exception:  # noqa: BLE001 - a class that does not exist here, or that cannot be rebuilt from its arguments
        error = RemoteError(name.partition(":")[2], text)
    last = error
    if cause is not None:
        error.__cause__ = last = cause
        while last.__cause__ is not None:
            last = last.__cause__
    if trace:
        last.__cause__ = RemoteTraceback(trace)
    return error


def _rebuild_error(kind: Any, args: list[Any], state: dict[str, Any]) -> BaseException:
    """Rebuild an error without calling its own `__init__`, whose parameters may differ from `args`; only the built-in base is initialised."""
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise TypeError("not the name of an exception")
    error = kind.__new__(kind, *args)
    built_in = next(
        init for each in kind.__mro__ if isinstance(init := vars(each).get("__init__"), WrapperDescriptorType)
    )
    built_in(error, *args)
    for attribute, value in state.items():
        setattr(error, attribute, value)
    return error


_MADE: Final[dict[int, Callable[[Any], Any]]] = {
    _TUPLE: tuple,
    _DICT: dict,
    _SET: set,
    _FROZENSET: frozenset,
    _INT: lambda value: int.from_bytes(value, "big", signed=True),
    _PID: lambda value: Pid(*value),
    _REF: lambda value: Ref[Any](*value),
    _GLOBAL: _global,
    _ENUM: lambda value: _enum(value[0], Enum)[value[1]],
    _RECORD: lambda value: _record(*value),
    _ERROR: lambda value: _error(*value),
    _TEXT: lambda value: value.decode("utf-8", "surrogatepass"),
    _FLAG: lambda value: _enum(value[0], Flag)(value[1]),
    _DATE: date.fromisoformat,
    _DATETIME: datetime.fromisoformat,
}


def _unpack(code: int, data: memoryview) -> Any:
    if code == _GLOBAL:
        made = _known.get(bytes(data))
        if made is not None:
            return made
    make = _MADE.get(code)
    if make is None:
        raise ActorError(f"a value of a kind ({code}) that this version does not know came from another node")
    try:
        return make(decode(data))
    except Exception:
        raise
    except BaseException as error:
        # an import or a constructor raised SystemExit or the like, which must not end this node
        raise ActorError(f"{type(error).__name__} was raised when a value from another node was decoded") from error


decode: Final = msgspec.msgpack.Decoder(ext_hook=_unpack).decode
"""Decode what `encode` made."""
_split: Final = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
