"""Names for providers: legal, unique, the same from run to run, and they come back."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from greenroom.protocol.provider_rules import LONGEST, NameClash, ProviderNames, provider_name

ANTHROPIC = re.compile(r"[a-zA-Z0-9_-]{1,64}")
GEMINI = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}")
texts = st.text(min_size=1, max_size=90)
plain = st.text("ab_-9", min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("git:log", "git__log"),
        ("git-hub:create_issue", "git-hub__create_issue"),
        ("history", "history"),
        ("g:" + "x" * 61, "g__" + "x" * 61),
    ],
)
def test_a_name_that_fits_stays_readable(name: str, expected: str) -> None:
    assert provider_name(name) == expected


@pytest.mark.parametrize(
    "name",
    ["web:fetch.page", "7zip:list", "a:b:c", "git:_log", "git_:log", "a__b:c", "é:ü", ":", "g:" + "x" * 62, "", "::"],
)
def test_a_name_that_does_not_fit_gets_a_digest(name: str) -> None:
    made = provider_name(name)
    assert re.fullmatch(r"[A-Za-z_].*__[a-z2-7]{10}", made)
    assert len(made) <= LONGEST


def test_a_long_name_keeps_the_beginning_of_both() -> None:
    made = provider_name("plugin_chrome-devtools-mcp:" + "performance_analyze_insight_of_a_very_long_kind")
    assert made.startswith("plugin_c")
    assert "__performance_analyze_insight" in made
    assert len(made) == LONGEST


@given(st.sets(st.tuples(texts, texts), max_size=30), st.integers(32, 128))
def test_legal_unique_and_back(tools: set[tuple[str, str]], longest: int) -> None:
    names = {f"{server}:{tool}" for server, tool in tools if ":" not in server}
    legal = ProviderNames(names, longest=longest)
    assert len(legal) == len(names)
    for name in names:
        short = legal.of(name)
        assert len(short) <= longest
        assert ANTHROPIC.fullmatch(short[:64])
        assert GEMINI.fullmatch(short[:64])
        assert legal.back(short) == name
    assert legal.back("missing") is None


@given(st.sets(st.tuples(plain, plain), min_size=2, max_size=2))
def test_names_that_are_alike_stay_apart(tools: set[tuple[str, str]]) -> None:
    one, other = (f"{server}:{tool}" for server, tool in tools)
    assert provider_name(one) != provider_name(other)


@given(st.sets(texts, max_size=10), texts)
def test_a_name_depends_on_nothing_else(others: set[str], name: str) -> None:
    assert ProviderNames([*others, name]).of(name) == provider_name(name)


def test_no_server_can_pick_a_name_that_reads_as_anothers() -> None:
    victim = provider_name("web:fetch.page")
    for split in [place for place in range(len(victim)) if victim.startswith("__", place)]:
        forged = f"{victim[:split]}:{victim[split + 2 :]}"
        assert provider_name(forged) != victim
    assert provider_name(victim) != victim


def test_another_process_makes_the_same() -> None:
    code = "from greenroom.protocol.provider_rules import provider_name; print(provider_name('é:fetch.page'))"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert made.stdout.strip() == provider_name("é:fetch.page")


def test_two_that_would_be_one_are_named_both(monkeypatch: pytest.MonkeyPatch) -> None:
    def same(name: str, separator: str, longest: int) -> str:
        return "same"

    monkeypatch.setattr("greenroom.protocol.provider_rules.provider_name", same)
    with pytest.raises(NameClash, match="a:b and c:d would both be called 'same'") as caught:
        ProviderNames(["a:b", "c:d"])
    assert caught.value.names == ("a:b", "c:d")


def test_a_limit_that_has_no_room_is_refused() -> None:
    with pytest.raises(ValueError, match="32 or more"):
        ProviderNames([], longest=31)
