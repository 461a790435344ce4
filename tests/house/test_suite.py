"""Tests of the rules for tests: each rule refuses its violations and allows all else."""

from __future__ import annotations

import textwrap
from types import SimpleNamespace
from typing import cast

import pytest
from tests import stable_ids

from . import suite
from .tree import Tree


def suite_of(text: str, path: str = "tests/a/test_b.py") -> Tree:
    return Tree({path: textwrap.dedent(text)})


@pytest.mark.parametrize(
    "body",
    [
        "if is_simple(system):\n        return\n    assert answer",
        "if x:\n        pass\n    elif y:\n        return\n    assert answer",
        "try:\n        parse(x)\n    except ValueError:\n        return\n    assert answer",
        "for each in x:\n        if each:\n            return\n        assert each",
        "with opened() as x:\n        return",
        "match x:\n        case 1:\n            return\n    assert answer",
        "def inner():\n        assert x\n    if x:\n        return",
        "return None",
    ],
)
def test_a_test_that_may_end_before_it_asserts_is_refused(body: str) -> None:
    function = f"async def test_it(x):\n    {body}"
    for text in (function, f"class TestIt:\n{textwrap.indent(function, '    ')}"):
        (wrong,) = suite.silent_returns(suite_of(text))
        assert "test_it returns before it has asserted anything" in wrong


@pytest.mark.parametrize(
    "body",
    [
        "assert x\n    if y:\n        return\n    assert z",
        "try:\n        parse(x)\n    except ValueError as error:\n        assert str(error)\n        return\n    assert answer",
        "with pytest.raises(ValueError):\n        parse(x)\n    if y:\n        return",
        "def inner():\n        return 1\n    assert inner() == 1",
        "assert [lambda: None]",
    ],
)
def test_a_return_after_an_assertion_is_allowed(body: str) -> None:
    assert suite.silent_returns(suite_of(f"def test_it(x):\n    {body}")) == []
    assert suite.silent_returns(suite_of("def helper():\n    return")) == []


@pytest.mark.parametrize(
    "line",
    [
        "pytest.skip('no')",
        "pytest.importorskip('x')",
        "X = pytest.mark.skipif(True)",
        "@pytest.mark.xfail\ndef test_x(): assert 1",
    ],
)
def test_skips_are_refused(line: str) -> None:
    assert len(suite.skips(suite_of(line))) == 1


def test_other_functions_called_skip_are_allowed() -> None:
    assert suite.skips(suite_of("self.skip(3)\nskip = 4\nwhite.skip()")) == []


REAL = "@pytest.mark.greenroom(clock='real')\n"


@pytest.mark.parametrize(
    "text",
    [
        "def test_it():\n    time.sleep(0.01)",
        "def test_it():\n    while x:\n        time.sleep(0.5)",
        "def test_it():\n    while x:\n        time.sleep(pause)",
        "def helper():\n    for each in x:\n        time.sleep(0.01)",
        f"{REAL}async def test_it():\n    await asyncio.sleep(0.3)",
        f"{REAL}async def test_it():\n    async def tool():\n        await anyio.sleep(seconds)",
        "pytestmark = pytest.mark.greenroom(clock='real')\nclass TestIt:\n    async def test_it(self):\n        await asyncio.sleep(1)",
        "pytestmark = [x, pytest.mark.greenroom(clock='real')]\nasync def helper():\n    await asyncio.sleep(1)",
    ],
)
def test_waiting_for_real_time_is_refused(text: str) -> None:
    (wrong,) = suite.sleeps(suite_of(text), {})
    assert "sleeps: await an event" in wrong


@pytest.mark.parametrize(
    "text",
    [
        "async def test_it():\n    await asyncio.sleep(1000)",
        f"{REAL}async def test_it():\n    await asyncio.sleep(0)",
        f"{REAL}async def test_it():\n    while not done():\n        await asyncio.sleep(0.02)",
        "def test_it():\n    while not done():\n        time.sleep(0.1)",
        "def test_it():\n    run('time.sleep(600)')",
    ],
)
def test_virtual_time_turns_of_the_loop_and_polls_are_allowed(text: str) -> None:
    assert suite.sleeps(suite_of(text), {}) == []


def test_a_sleep_needs_a_reason_and_an_unused_reason_is_refused() -> None:
    tree = suite_of("def test_it():\n    time.sleep(1)")
    name = "tests/a/test_b.py::test_it"
    assert len(suite.sleeps(tree, {name: "because"})) == 1
    assert suite.sleeps(tree, {name: "the blocked loop is what is tested"}) == []
    assert suite.sleeps(suite_of("def test_it(): ..."), {name: "the blocked loop is what is tested"}) == [
        f"{name}: listed in MAY_SLEEP, and does not sleep"
    ]


@pytest.mark.parametrize(
    "text",
    [
        'pytestmark = pytest.mark.row("CB-07")',
        'pytestmark = [pytest.mark.greenroom(clock="real"), pytest.mark.row("CB-21")]',
        'pytestmark = pytest.mark.otp("gen_server_SUITE", "call")',
    ],
)
def test_a_mark_that_credits_a_whole_file_is_refused(text: str) -> None:
    (wrong,) = suite.row_marks(suite_of(text))
    assert "mark the tests that show it" in wrong


def test_other_marks_of_a_file_and_rows_of_a_test_are_allowed() -> None:
    text = 'pytestmark = pytest.mark.greenroom(clock="real")\n@pytest.mark.row("CB-07")\ndef test_it(): ...'
    assert suite.row_marks(suite_of(text)) == []


def test_only_test_files_are_checked() -> None:
    text = "import time\ndef test_it():\n    time.sleep(1)\n    return"
    for path in ("tests/a/programs/slow.py", "benchmarks/test_x.py", "tests/a/test_b.txt"):
        assert [wrong for rule in suite.RULES[:2] for wrong in rule(Tree({path: text}))] == []
        assert suite.sleeps(Tree({path: text}), {}) == []


def test_a_package_without_a_row_and_a_wrong_folder_of_tests_are_refused() -> None:
    table = "| package | tests |\n|---|---|\n| `auth` | `tests/auth`, `tests/gone` |\n| the repository | `tests/docs` `tests/docs` |\n"
    files = {
        "CONTRIBUTING.md": table.replace("the repository", "`actors`"),
        "auth/a.py": "",
        "actors/b.py": "",
        "transports/c.py": "",
        "tests/auth/test_a.py": "",
        "tests/greenroom/cli/test_b.py": "",
        "tests/docs/test_c.py": "",
    }
    assert suite.folders(Tree(files)) == [
        "CONTRIBUTING.md: no row lists the tests of transports",
        "CONTRIBUTING.md: tests/gone has no tests",
        "CONTRIBUTING.md: tests/greenroom/cli is in no row",
        "CONTRIBUTING.md: tests/docs is listed twice",
    ]


def test_a_test_id_with_a_memory_address_is_refused() -> None:
    known, unknown = (SimpleNamespace(nodeid=f"tests/a/test_b.py::test_it[{id}]") for id in ("1", "<object at 0x7f>"))
    stable_ids.pytest_collection_modifyitems([cast("pytest.Item", known)])
    with pytest.raises(pytest.UsageError, match=r"write other `ids` for tests/a/test_b\.py::test_it$"):
        stable_ids.pytest_collection_modifyitems([cast("pytest.Item", known), cast("pytest.Item", unknown)])
