"""How many examples `make test` runs: a fifth of Hypothesis's, and a share of the largest matrices. `make deep` runs all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from collections.abc import Iterable

PROFILE: Final = "greenroom"
"""The default Hypothesis profile. `make deep` uses the other one, `--hypothesis-profile=deep`."""

_ALL: Final = 100
"""Hypothesis's own number of examples, which the profile `deep` uses."""

settings.register_profile(PROFILE, deadline=None, print_blob=True, max_examples=_ALL // 5)
settings.register_profile("deep", settings.get_profile(PROFILE), max_examples=_ALL)


def examples(deep: int) -> int:
    """`max_examples` for a test that needs another number than 100; `deep` is the number in `make deep`."""
    return max(1, deep * settings().max_examples // _ALL)


def one_in(step: int, cases: Iterable[Any]) -> list[Any]:
    """For `parametrize`: one of each `step` cases runs in `make test`, the others are deep."""
    return [case if number % step == 0 else _deep(case) for number, case in enumerate(cases)]


def _deep(case: Any) -> Any:
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, marks=(*case.marks, pytest.mark.deep), id=case.id)
    return pytest.param(*_arguments(case), marks=pytest.mark.deep)


def _arguments(case: object) -> tuple[object, ...]:
    return cast("tuple[object, ...]", case) if isinstance(case, tuple) else (case,)
