"""Values arrive as they were sent, and a value that cannot travel is refused by its sender."""

from __future__ import annotations

import asyncio
import enum
import math
import sys
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, NamedTuple, Self, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.supervision import (
    NO_CONNECTION,
    NO_PROCESS,
    NORMAL,
    SHUTDOWN,
    AlreadyRegistered,
    CallCycle,
    CallTimeout,
    Crash,
    Exit,
    GenServer,
    MailboxFull,
    NoNode,
    NotAnActor,
    NotRegistered,
    On,
    Options,
    Pid,
    ProcessExited,
    Ref,
    Shutdown,
    StartFailed,
    StartTimeout,
)
from greenroom.supervision.cluster import CannotTravel, RemoteError, RemoteTraceback
from greenroom.supervision.cluster.value_codec import decode, encode


def there(value: Any) -> Any:
    """The value after encoding and decoding."""
    return decode(encode(value, "here"))


class Colour(enum.Enum):
    RED = 1
    BLUE = "b"


class Bits(enum.Flag):
    ONE = 1
    TWO = 2


class Number(enum.IntEnum):
    SEVEN = 7


@dataclass(frozen=True, slots=True)
class Point:
    x: Any
    y: Any = None


@dataclass
class Made:
    size: int
    double: int = field(init=False)

    def __post_init__(self) -> None:
        self.double = 2 * self.size


class Pair(NamedTuple):
    left: Any
    right: Any


class Struct(msgspec.Struct):
    name: str
    value: Any = None


NAMED: list[Any] = [GenServer, GenServer.init, len, math.sqrt, Colour, dict, Options]
pids = st.builds(Pid, st.text(min_size=1), st.integers(0, 2**63 - 1), st.integers(0, 2**40))
names = st.text() | st.integers()
reasons = st.sampled_from([NORMAL, SHUTDOWN, NO_PROCESS, NO_CONNECTION]) | st.builds(
    Shutdown, st.integers() | st.text()
)
keys: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())
    | st.text()
    | st.binary()
    | pids
    | st.builds(On, names, st.text())
    | st.sampled_from([Colour.RED, Colour.BLUE, Bits.ONE | Bits.TWO, Bits(0), Number.SEVEN])
    | st.sampled_from(NAMED)
    | st.dates()
    | st.datetimes(timezones=st.just(UTC) | st.none()),
    lambda inner: (
        st.tuples(inner, inner)
        | st.lists(inner).map(tuple)
        | st.frozensets(inner)
        | st.builds(Point, inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Shutdown, inner)
    ),
    max_leaves=8,
)
values: st.SearchStrategy[Any] = st.recursive(
    keys | reasons | st.builds(Exit, pids, reasons),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text(), inner)
        | st.dictionaries(keys, inner)
        | st.sets(keys)
        | st.builds(Point, inner, inner)
        | st.builds(Pair, inner, inner)
        | st.builds(Struct, st.text(), inner)
        | st.builds(Made, st.integers())
        | st.tuples(inner, inner)
    ),
    max_leaves=15,
)


def kinds(value: Any) -> Any:
    """A value's type, and those of all in it; 1, True and 1.0 are equal and not the same."""
    kind: Any = cast("Any", type(value))
    if kind is dict:
        return kind, [(kinds(key), kinds(each)) for key, each in value.items()]
    if issubclass(kind, list | tuple):
        return kind, [kinds(each) for each in value]
    if kind in {set, frozenset}:
        return kind, sorted(map(repr, map(kinds, value)))
    if kind is Point:
        return kind, kinds(value.x), kinds(value.y)
    return kind


@given(values)
def test_values_arrive_as_they_were_sent(value: Any) -> None:
    arrived = there(value)
    assert arrived == value
    assert kinds(arrived) == kinds(value)


@pytest.mark.parametrize("bits", [63, 64, 65, 1000, 100_000])
def test_integers_of_any_size(bits: int) -> None:
    for value in (1 << bits, (1 << bits) - 1, -(1 << bits), -(1 << bits) - 1):
        assert there(value) == value


def test_text_that_is_no_unicode_and_floats_that_are_no_numbers() -> None:
    odd = "name-\udcff-of-a-file"
    assert there({odd: [odd, (odd,)], "plain": Point(odd)}) == {odd: [odd, (odd,)], "plain": Point(odd)}
    assert math.isnan(there(math.nan))
    assert math.copysign(1, there(-0.0)) == -1
    assert there(math.inf) == math.inf


def test_bytes_of_any_kind_are_bytes() -> None:
    assert there([bytearray(b"ab"), memoryview(b"cd")]) == [b"ab", b"cd"]


def test_refs_keep_their_deadline_and_names_become_names_of_their_node() -> None:
    ref = there(Ref("hits", 2.5))
    assert (ref.target, ref.seconds) == (On("hits", "here"), 2.5)
    assert there(Ref(On("hits", "there"), None)).target == On("hits", "there")
    assert there(Ref(Pid("n", 1, 2))) == Ref(Pid("n", 1, 2))


def test_dates_keep_their_zone() -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    assert there([when, date(2026, 1, 2)]) == [when, date(2026, 1, 2)]


# --- errors


class Plain(Exception):
    """An error that keeps its argument."""

    field: Any


class Worded(Exception):
    """An error whose text is made from its argument, and does not fit its constructor."""

    def __init__(self, what: str, size: int) -> None:
        super().__init__(f"{what} of {size}")
        self.what = what
        self.size = size


class Doubled(Exception):
    """An error that takes its own text for its argument."""

    def __init__(self, what: str) -> None:
        super().__init__(f"<{what}>")


class Awkward(Exception):
    """An object that raises at every access."""

    def __str__(self) -> str:
        raise KeyboardInterrupt

    __repr__ = __str__


class Unmade(Exception):
    """An error that cannot be rebuilt from its attributes."""

    def __new__(cls, *, size: int) -> Self:
        return super().__new__(cls, size)

    def __init__(self, *, size: int) -> None:
        super().__init__(size)


@pytest.mark.parametrize(
    "error",
    [
        ValueError(),
        ValueError("x", 1, (2,)),
        KeyError("x"),
        FileNotFoundError(2, "no such file", "name"),
        OSError("only words"),
        UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
        SystemExit(3),
        KeyboardInterrupt(),
        StopIteration(4),
        asyncio.CancelledError("c"),
        ImportError("x"),
        Plain("x", Point(1)),
        Worded("a box", 3),
        Doubled("x"),
        ProcessExited(Crash(ValueError("x")), "who"),
        NotRegistered(NO_PROCESS, "who"),
        CallTimeout(1.0, "who"),
        CallCycle(["a", "b"]),
        MailboxFull("who", 3),
        AlreadyRegistered("name", Pid("n", 1, 2)),
        StartFailed(SHUTDOWN, "what"),
        StartTimeout(2.0, SHUTDOWN, "what"),
        NotAnActor("do"),
        NoNode(),
        RemoteError("Kind", "text"),
        CannotTravel("why"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_arrive_with_their_class_text_and_fields(error: BaseException) -> None:
    arrived = there(error)
    assert type(arrived) is type(error)
    assert str(arrived) == str(error)
    assert list(vars(arrived)) == list(vars(error))
    assert arrived.__cause__ is None


def test_groups_notes_causes_and_tracebacks_come_along() -> None:
    try:
        try:
            raise KeyError("inner")
        except KeyError as inner:
            raise ExceptionGroup("group", [ValueError(1), Plain("two")]) from inner
    except ExceptionGroup as error:
        error.add_note("a note")
        arrived = there(error)
    assert [repr(each) for each in arrived.exceptions] == ["ValueError(1)", "Plain('two')"]
    assert arrived.__notes__ == ["a note"]
    assert repr(arrived.__cause__) == "KeyError('inner')"
    trace = arrived.__cause__.__cause__
    assert isinstance(trace, RemoteTraceback)
    assert "test_groups_notes_causes" in str(trace)
    assert "raise KeyError" in str(trace)
    assert isinstance(there(arrived).__cause__.__cause__, RemoteTraceback), "over a third node, too"


def test_errors_that_cannot_be_made_there_say_what_they_were() -> None:
    class Local(Exception):
        pass

    local, unmade = there(Local("words")), there(Unmade(size=3))
    assert isinstance(local, RemoteError)
    assert local.text == "words"
    assert local.kind.endswith("Local")
    assert isinstance(unmade, RemoteError)
    assert str(unmade) == "Unmade: 3"


def test_errors_arrive_whatever_they_hold() -> None:
    error = Plain(object(), lambda: 1, "\ud800")
    error.field = object()
    arrived: Any = there(error)
    assert type(arrived) is Plain
    assert [type(each) for each in arrived.args] == [str, str, str]
    assert "object object" in arrived.field
    awkward = there(Awkward(1))
    assert type(awkward) is Awkward
    looped = Plain("a")
    looped.__cause__ = Plain("b")
    looped.__cause__.__cause__ = looped
    assert type(there(looped)) is Plain


# --- what does not travel


class Unhashed(type):
    """Objects of classes that cannot be looked up."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        return cls is other


class Odd(metaclass=Unhashed):
    """One."""


class Raising:
    """No record."""

    def method(self) -> None:
        """Bound."""


@dataclass
class Lazy:
    size: int

    def __getattribute__(self, name: str) -> Any:
        if name == "size":
            raise SystemError(name)
        return super().__getattribute__(name)


def test_classes_that_cannot_be_hashed_travel_by_name() -> None:
    assert there(Odd) is Odd


REFUSED: list[Any] = [
    object(),
    lambda: 1,
    Raising(),
    iter("abc"),
    sys,
    Raising().method,
    OrderedDict(a=1),
    Decimal("1.5"),
    1j,
    range(3),
    bytearray().append,
    list[int],
    Lazy.__new__(Lazy),
    type("Local", (), {}),
    Point(object()),
    {"a": {1: [object()]}},
    {object(): 1},
]


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_values_that_cannot_travel_are_refused_with_a_reason(value: Any) -> None:
    with pytest.raises(CannotTravel, match="cannot travel to another node"):
        encode(value, "here")


def test_cyclic_and_too_deep_values_are_refused() -> None:
    circle: list[Any] = []
    circle.append(circle)
    deep: Any = 0
    for _ in range(1000):
        deep = {"a": (deep,)}
    for value in (circle, deep, Point(deep)):
        with pytest.raises(CannotTravel, match="deeper"):
            encode(value, "here")


def test_bytes_that_no_node_sends_are_an_error_and_end_nothing() -> None:
    ext = msgspec.msgpack.Ext
    encoded = msgspec.msgpack.encode
    for strange in (
        encoded(ext(10, encoded(["builtins:dict", {"a": 1}]))),
        encoded(ext(15, encoded(["builtins:int", 1]))),
        encoded(ext(9, encoded(["os:environ", "PATH"]))),
        encoded(ext(99, b"")),
        encoded(ext(8, encoded("sys:exit"))) + b"x",
        encoded(ext(10, encoded(["sys:exit", {}]))),
        encoded(ext(10, encoded(["greenroom.nowhere:thing", {}]))),
        encoded(ext(8, encoded("nothing"))),
        encoded(ext(9, encoded(["builtins:int", "no"]))),
        encoded(ext(1, encoded(5))),
        encoded(ext(6, encoded([1]))),
        b"\xc1",
        b"",
    ):
        with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is; and not an exit of the node
            decode(strange)
