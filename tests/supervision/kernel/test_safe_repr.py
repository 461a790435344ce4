"""Texts of values in reports: short, without errors and without secrets."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.supervision import CrashReport, GenServer, Node, ProcessExited, StartFailed, child, start
from greenroom.supervision.kernel import safe_repr
from greenroom.supervision.kernel.safe_repr import HIDDEN, short

from .sample_servers import reports_of


@dataclasses.dataclass
class Login:
    user: str
    password: str
    tokens: tuple[str, ...] = ()


class Key(NamedTuple):
    id: int
    api_key: bytes


class Session:
    def __repr__(self) -> str:
        return "<Session 7 access_token=hunter2>"


class Broken:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __repr__(self) -> str:
        raise self.error


SECRETS = [
    Login("bob", "hunter2", ("hunter2", "hunter2")),
    Login("x" * 1000, "hunter2"),
    Key(1, b"hunter2"),
    Session(),
    {"Authorization": "hunter2"},
    [{"deep": {"client_secret": "hunter2"}}],
    [Login("bob", "hunter2")],
    {1: Login("bob", 'hun"ter2')},
    {"cookie": b"hunter2", "other": 1},
]


@pytest.mark.parametrize("value", SECRETS, ids=lambda value: type(value).__name__)
def test_a_value_named_like_a_secret_is_hidden(value: object) -> None:
    text = short(value)
    assert "hunter2" not in text
    assert "ter2" not in text
    assert HIDDEN in text


def test_the_rest_is_shown() -> None:
    assert short(Login("bob", "hunter2")) == f"Login(user='bob', password={HIDDEN}, tokens={HIDDEN})"
    assert safe_repr.fields({"count": 1, "password": "x"}) == f"count=1, password={HIDDEN}"
    assert short({"a": [1, 2]}) == "{'a': [1, 2]}"


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(), KeyboardInterrupt(), RecursionError(), MemoryError()])
def test_a_repr_that_raises_is_told_of(error: BaseException) -> None:
    assert short(Broken(error)) == f"<Broken: its repr raised {type(error).__name__}>"
    assert short([1, Broken(error)]) == f"[1, <Broken: its repr raised {type(error).__name__}>]"


def test_a_child_spec_hides_them_too() -> None:
    assert str(child(Vault, "hunter2", 4).start) == f"Vault({HIDDEN}, 4)"


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.binary() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.frozensets(st.text()),
    )
)
def test_no_text_is_long_whatever_the_value(value: object) -> None:
    assert len(short(value)) < 50_000
    assert short(value) == short(value)


@pytest.mark.parametrize(
    "value", ["x" * 10**6, b"x" * 10**6, list(range(10**6)), Login("x" * 10**6, "y"), "token" * 10**6]
)
def test_a_great_value_makes_a_short_text(value: object) -> None:
    assert len(short(value)) < 300


class Vault(GenServer):
    """Holds a secret, and crashes."""

    def __init__(self, password: str, shelf: int = 0) -> None:
        self.password = password
        self.shelf = shelf

    def init(self) -> None:
        if self.shelf < 0:
            raise ValueError("no such shelf")

    def open(self, token: str, times: int, *more: Any, **options: Any) -> None:
        raise ValueError("stuck")


async def test_a_crash_report_shows_the_call_and_the_state_without_secrets(node: Node) -> None:
    crashes: list[CrashReport] = reports_of(node, CrashReport)
    vault = await start(Vault, "hunter2", shelf=3)
    with pytest.raises(ProcessExited):
        await vault.call(Vault.open, "hunter2", 2, "more", cookie="hunter2", size=4)
    with pytest.raises(StartFailed):
        await start(Vault, "hunter2", -1)
    assert [report.last_message for report in crashes] == [
        f"call open({HIDDEN}, 2, 'more', cookie={HIDDEN}, size=4)",
        f"init({HIDDEN}, -1)",
    ]
    assert [report.state for report in crashes] == [
        f"password={HIDDEN}, shelf=3",
        f"password={HIDDEN}, shelf=-1",
    ]


class Mute(GenServer):
    """A value whose repr raises."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def report_state(self) -> str:
        raise self.error

    def fall(self, over: object) -> None:
        raise ValueError("fell")


@pytest.mark.parametrize("error", [ValueError("mute"), SystemExit(1), KeyboardInterrupt()])
async def test_the_reason_is_told_however_badly_the_server_describes_itself(error: BaseException, node: Node) -> None:
    crashes: list[CrashReport] = reports_of(node, CrashReport)
    mute = await start(Mute, error)
    with pytest.raises(ProcessExited, match="crash: ValueError: fell"):
        await mute.call(Mute.fall, Broken(error))
    (report,) = crashes
    assert report.state is not None
    assert type(error).__name__ in report.state
    assert report.last_message == f"call fall(<Broken: its repr raised {type(error).__name__}>)"


@pytest.mark.parametrize("error", [ValueError("mute"), SystemExit(1)])
async def test_an_error_that_cannot_be_told_is_a_crash_like_any_other(error: BaseException, node: Node) -> None:
    class Falls(GenServer):
        async def fall(self) -> None:
            raise ValueError(Broken(error))

    crashes: list[CrashReport] = reports_of(node, CrashReport)
    falls = await start(Falls)
    with pytest.raises(ProcessExited, match=r"crash: ValueError \(its str raised\)"):
        await falls.call(Falls.fall)
    assert [report.pid for report in crashes] == [falls.pid]
    assert len(node.workers) == 1


@pytest.mark.parametrize(
    "value", ["", "it's", "x" * 119, "x" * 120, "x" * 500, "\0" * 60, 0, -(10**17), 10**18, -(10**60)]
)
def test_the_short_way_says_what_the_long_way_says(value: object) -> None:
    assert safe_repr.short(value) == safe_repr._short.repr(value)
