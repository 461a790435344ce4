"""Bounds on hash collisions in sets and dicts made of a peer's values, checked before the collections are built.

Python hashes numbers modulo 2**61 - 1, and tuples of them, without a secret. So a peer can send a hundred thousand different numbers with one
hash, and putting them into a set compares each with all others: minutes, for a message of two megabytes. Strings and bytes are hashed with a
secret of the process and need no bound.

Different hashes can be as expensive: the hash determines the order in which Python probes for a free slot, and a table can be filled such that
each new key probes half of it. The probes are therefore counted beforehand by simulating the tables (see below). Which type a list becomes is not
known at this point, so each list that is long enough is counted as a set.
"""

from __future__ import annotations

import re
import types
from collections import abc
from datetime import date, datetime, time, timedelta
from enum import Enum
from itertools import product
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin

import msgspec

from .conversions import MAPPINGS, convert, is_foreign, is_model, is_pydantic_hint, is_untagged_union
from .function_parameters import fields_of
from .serialization import is_array, is_object
from .validation_errors import Mismatch, ProblemReason, ValidationProblem, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from .validation_errors import StepMeter, Trail

SAME_HASH_LIMIT: Final = 64
"""The largest allowed number of different keys with one hash: more than occurs by chance, and too few to be slow."""
_COMPARED: Final = 16_384
"""The largest allowed number of comparisons between keys of one hash in one value: many sets of `SAME_HASH_LIMIT`, or one key many times, cost as much
as one large set.
"""
_UNCHECKED_LENGTH: Final = 8
"""Shorter lists are not checked: even if all keys share a hash, each is compared four times."""
_OWN_HASH: Final = 1 << 60
"""A smaller number is its own hash."""
_PROBES: Final = 1 << 22
"""The allowed probes of occupied slots in one value, plus some for each key. A probe takes about 3 ns."""
_PROBES_OF_EACH: Final = 16
"""The probes allowed for each key: multiples of a high power of two need as many, other numbers less than one."""
_PROBES_IN_SETS: Final = 64
"""The same for sets. They probe ten slots in a row, which takes a third of the time, and such numbers fill several rows."""
_PROBES_OF_TINY: Final = 1000
"""The cost of a key such as `8.5e-323` in probes: msgspec takes 5 µs for it, and 0.3 for others. For numbers in JSON see `jsonrpc.decode`."""
_TINY: Final = re.compile(r"[eE][+-]?[0-9]{3}")
"""An exponent of more than two digits, as in `jsonrpc`."""
_SETS: Final = {set, frozenset, abc.Set, abc.MutableSet}
_HARMLESS: Final = (str, bytes, bool, date, datetime, time, timedelta, Enum, types.NoneType)
"""Types hashed with a secret, or with only a few values per hash."""


class KeyCollisionCheck:
    """Checks the keys of the sets and dicts in values of one type, unless they are only strings."""

    def __init__(self, kinds: list[Any]) -> None:
        """`kinds` are ordered from the inside out."""
        self._makers = [(kind, _key_factory(kind)) for kind in kinds]

    def check(self, value: Any, meter: StepMeter) -> None:
        """Raises `Mismatch` if too many keys collide, and `StepsExceeded` when the meter is used up."""
        compared = _CollisionBudget()
        for trail, keys, are_names in _lists_in(value, meter):
            for kind, make in self._makers:
                table = None if len(keys) <= SAME_HASH_LIMIT else DictTable(meter) if are_names else SetTable(meter)
                if (why := _collision_reason(kind, make, keys, compared, table, meter)) is not None:
                    raise Mismatch([ValidationProblem(path_of(trail), ProblemReason(why, "too_many_collisions"))])


class _CollisionBudget:
    """The remaining comparisons and probes for all lists of a value."""

    __slots__ = ("left", "probes")

    def __init__(self) -> None:
        self.left = _COMPARED
        self.probes = _PROBES


def collision_check_for(kind: Any) -> KeyCollisionCheck | None:
    """The check for values of a type; None if its keys cannot collide."""
    found: list[Any] = []
    for inner in types_inside(kind):
        origin = get_origin(inner) or inner
        if _is_in(origin, _SETS) or _is_in(origin, MAPPINGS):
            (key,) = _substituted((*get_args(inner), Any)[0], {})
            if not _is_harmless(key) and key not in found:
                found.append(key)
    return KeyCollisionCheck(found[::-1]) if found else None


def types_inside(kind: Any) -> Iterator[Any]:
    """The type and all types inside it: members, arguments and fields, with type variables substituted."""
    found = [
        kind
    ]  # compared by value and not by id: most types are made during the walk, and a new one may reuse the id of a freed one
    for one in found:  # the list grows during iteration
        yield one
        if get_origin(one) is not Literal:
            found += [part for part in _parts(one) if part not in found]


def _parts(kind: Any) -> list[Any]:
    made_of: Any = get_origin(kind) or kind
    if is_untagged_union(kind):
        return list(kind.members)
    if is_pydantic_hint(kind):
        return [kind.hint]
    if hasattr(made_of, "__supertype__"):  # a NewType
        return [made_of.__supertype__]
    scope = _type_arguments(kind)
    parts: list[Any] = list(get_args(kind))
    if hasattr(made_of, "__value__"):  # `type X = …`
        parts += _substituted(made_of.__value__, scope)
    elif isinstance(made_of, type) and not issubclass(made_of, Enum):
        for hint in _hints_of(cast("Any", made_of)):
            parts += _substituted(hint, scope)
    return parts


def _hints_of(kind: type) -> Iterable[Any]:
    """The hints of a class's fields, inherited ones included."""
    if is_pydantic_hint(kind):
        return ()
    if is_model(kind):
        return [field.annotation for field in cast("Any", kind).model_fields.values()]
    if not any(getattr(one, "__annotations__", None) for one in kind.__mro__):
        return ()
    return fields_of(kind).values()


def _type_arguments(kind: Any) -> dict[Any, list[Any]]:
    """The arguments of each type variable in a generic type and its bases."""
    scope: dict[Any, list[Any]] = {}
    waiting = [kind]
    for one in waiting:  # the list grows during iteration
        made_of: Any = get_origin(one) or one
        for name, given in zip(_variables_of(made_of), get_args(one), strict=False):
            scope.setdefault(name, []).extend(_substituted(given, scope) if given is not name else ())
        if isinstance(made_of, type):
            waiting += vars(made_of).get("__orig_bases__", made_of.__bases__)
    return scope


def _substituted(hint: Any, scope: Mapping[Any, Sequence[Any]]) -> list[Any]:
    """The hint with its type variables substituted; an unknown variable becomes its bound, or Any."""
    if isinstance(hint, TypeVar):
        return list(scope.get(hint) or [hint.__bound__ or Any])
    if not get_args(hint) or not (names := _variables_of(hint)):
        return [hint]
    return [hint[choice] for choice in product(*(_substituted(name, scope) for name in names))]


def _variables_of(hint: Any) -> tuple[Any, ...]:
    """The type variables of a generic class or alias."""
    for attribute in ("__parameters__", "__type_params__"):
        names: Any = getattr(hint, attribute, ())
        if names and is_array(names):  # a built-in class has a descriptor there
            return tuple(names)
    return ()


def _is_in(kind: Any, kinds: set[Any]) -> bool:
    return isinstance(kind, type) and kind in kinds


def _is_harmless(kind: Any) -> bool:
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return all(map(_is_harmless, get_args(kind)))
    if origin is not None and hasattr(kind, "__metadata__"):
        return _is_harmless(get_args(kind)[0])
    return origin is Literal or (isinstance(kind, type) and issubclass(kind, _HARMLESS))


def _lists_in(value: Any, meter: StepMeter) -> list[tuple[Trail, list[Any], bool]]:
    """All lists that are long enough, and the keys of all objects (True), from the inside out."""
    waiting: list[tuple[Trail, Any]] = [(None, value)]
    found: list[tuple[Trail, list[Any], bool]] = []
    for trail, one in waiting:  # the list grows during iteration
        meter.spend(3)
        if not is_object(one) and not is_array(one):
            continue
        meter.spend(len(one))
        if len(one) > _UNCHECKED_LENGTH:
            found.append((trail, [*one], is_object(one)))
        items: Iterable[tuple[Any, Any]] = one.items() if is_object(one) else enumerate(one)
        waiting += [((trail, step), inner) for step, inner in items if isinstance(inner, dict | list)]
    return found[::-1]


_OF_ONE_HASH: Final = f"more than {SAME_HASH_LIMIT} different values of one hash"
_OF_ONE_SLOT: Final = "values whose hashes fill the same slots of a table"


def _collision_reason(
    kind: Any,
    make: Callable[[Any], Any],
    keys: list[Any],
    compared: _CollisionBudget,
    table: DictTable | None,
    meter: StepMeter,
) -> str | None:
    compared.probes += (_PROBES_IN_SETS if isinstance(table, SetTable) else _PROBES_OF_EACH) * len(keys)
    groups: dict[bytes, list[Any]] = {}
    for key in keys:
        meter.spend(3 if isinstance(key, int | float) else 5 if isinstance(key, str) else 3 + _weight(key))
        try:
            made = key if type(key) is kind else make(key)
            if type(made) is int and -_OWN_HASH < made < _OWN_HASH:
                if table is not None:
                    compared.probes -= table.add(hash(made), known=True)
                    if compared.probes < 0:
                        return _OF_ONE_SLOT
                continue
            if type(made) is float and isinstance(key, str) and _TINY.search(key):
                compared.probes -= _PROBES_OF_TINY
            group = groups.setdefault(b"%d" % hash(made), [])  # the number itself would collide in this dict too
        except (msgspec.ValidationError, TypeError, ValueError):
            continue  # it is of the wrong type, which the check of the value reports
        try:
            place = group.index(made)
        except ValueError:
            place = len(group)
            group.append(made)
            if table is not None:
                compared.probes -= table.add(hash(made))
        if place:
            compared.left -= place * (1 + _weight(key) // 8)
        if len(group) > SAME_HASH_LIMIT or compared.left < 0:
            return _OF_ONE_HASH
        if compared.probes < 0:
            return _OF_ONE_SLOT
    return None


def _weight(key: Any) -> int:
    """The number of values in a key: as many are compared with another key's."""
    inside: Iterable[Any] = key.values() if is_object(key) else key if is_array(key) else ()
    return 1 + sum(map(_weight, inside))


def _key_factory(kind: Any) -> Callable[[Any], Any]:
    """A function that makes a key of a type from JSON. The keys of a pydantic model may need pydantic."""
    if any(map(is_foreign, types_inside(kind))):
        from .pydantic_models import key_maker  # noqa: PLC0415 - see `conversions`

        return key_maker(kind)

    def made(key: Any) -> Any:
        if isinstance(key, str):  # a key of an object, which may represent a number
            return msgspec.convert(key, kind, strict=False, str_keys=True)
        return convert(key, kind)

    return made


# --- The probes of dicts and sets, simulated with hashes only, before a peer's keys go into real ones. The alternative, building the collection with
# a timeout, does not work: a dict operation cannot be interrupted.
# The first slot of a key is given by the low bits of its hash. If it is occupied, the next slot is 5 times this one, plus 1, plus the hash shifted
# right by 5 bits at a time (CPython's Objects/dictobject.c). With small hashes nothing is left soon, and all keys follow one cycle. A set probes nine
# more slots behind each of these, unless the table ends before (Objects/setobject.c).

_WORD: Final = (1 << 64) - 1
_LEAST: Final = 8
_NEIGHBOURS: Final = 9
"""The slots that a set probes behind each one that a dict would probe."""
_MANY: Final = 50_000
"""A set with more keys grows to twice as many slots, a smaller one to four times as many."""
_PROBES_PER_STEP: Final = 7
"""One less than the probes charged as one step: a power of two. A probe takes a tenth of a microsecond."""


class DictTable:
    """A dict's table: at most two thirds full, and rebuilt in insertion order before it gets one key more."""

    def __init__(self, meter: StepMeter) -> None:
        """Make an empty table. Probes are charged to the meter before they are taken."""
        self._meter = meter
        self._slots: list[int | None] = [None] * _LEAST
        self._order: list[int] = []

    @property
    def size(self) -> int:
        """The number of slots."""
        return len(self._slots)

    def add(self, hashed: int, *, known: bool = False) -> int:
        """Add a key with that hash. Returns the number of occupied slots that were probed.

        `known`: keys of this kind with one hash are one key, which may be present. Other keys must be new.
        """
        # A token is the hash as an unsigned machine word, plus one bit for keys that may share their hash with others: such keys are never equal.
        token = hashed & _WORD if known else hashed & _WORD | _WORD + 1
        at, probes = self._find(token)
        if self._slots[at] is not None:
            return probes
        if len(self._order) >= len(self._slots) * 2 // 3:
            probes += self._grow()
            at, more = self._find(token)
            probes += more
        self._slots[at] = token
        self._order.append(token)
        return probes

    def _find(self, token: int) -> tuple[int, int]:
        """The slot of a token, and how many occupied slots were probed."""
        slots = self._slots
        mask = len(slots) - 1
        rest = token & _WORD
        at = rest & mask
        probes = 0
        while (other := slots[at]) is not None and not other == token <= _WORD:
            if not probes & _PROBES_PER_STEP:
                self._meter.spend(1)
            probes += 1
            rest >>= 5
            at = (at * 5 + rest + 1) & mask
        return at, probes

    def _grow(self) -> int:
        size = _LEAST
        while size < len(self._order) * 3:
            size *= 2
        return self._move(self._order, size)

    def _move(self, tokens: Sequence[int], size: int) -> int:
        """Move all tokens to a new table of that size."""
        self._meter.spend(len(tokens) + size // 64)
        self._slots = [None] * size
        found = 0
        for token in tokens:
            at, probes = self._find(token)
            self._slots[at] = token
            found += probes
        return found


class SetTable(DictTable):
    """A set's table: at most three fifths full, and rebuilt in slot order when it has as many keys."""

    def __init__(self, meter: StepMeter) -> None:
        """Make an empty table. Probes are charged to the meter before they are taken."""
        super().__init__(meter)
        self._count = 0

    def add(self, hashed: int, *, known: bool = False) -> int:
        """Add a key with that hash. Returns the number of occupied slots that were probed."""
        token = hashed & _WORD if known else hashed & _WORD | _WORD + 1
        at, probes = self._find(token)
        if self._slots[at] is not None:
            return probes
        self._slots[at] = token
        self._count += 1
        if self._count * 5 >= (len(self._slots) - 1) * 3:
            probes += self._grow()
        return probes

    def _find(self, token: int) -> tuple[int, int]:
        slots = self._slots
        mask = len(slots) - 1
        rest = token & _WORD
        at = rest & mask
        probes = 0
        while True:
            last = at + _NEIGHBOURS if at + _NEIGHBOURS <= mask else at
            self._meter.spend(1)
            for place in range(at, last + 1):
                other = slots[place]
                if other is None or other == token <= _WORD:
                    return place, probes
                probes += 1
            rest >>= 5
            at = (at * 5 + rest + 1) & mask

    def _grow(self) -> int:
        least = self._count * (2 if self._count > _MANY else 4)
        size = _LEAST
        while size <= least:
            size *= 2
        return self._move([token for token in self._slots if token is not None], size)
