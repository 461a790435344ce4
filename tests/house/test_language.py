"""Tests of the rules of language: each rule refuses its violations and allows all else."""

from __future__ import annotations

import pytest

from . import language
from .tree import Tree

TWO = {"auth/a.py": "class Card: ...", "actors/b.py": "if x:\n    class Card: ...", "auth/c.py": "class _Card: ..."}


def test_a_class_name_of_two_modules_is_refused_without_a_reason() -> None:
    (wrong,) = language.class_names(Tree(TWO), {})
    assert wrong.startswith("Card is a class of auth/a.py and of actors/b.py")
    assert language.class_names(Tree(TWO), {"Card": "a reason"}) == []


def test_a_class_name_of_three_modules_is_refused_with_a_reason_too() -> None:
    assert len(language.class_names(Tree({**TWO, "auth/d.py": "class Card: ..."}), {"Card": "a reason"})) == 1


def test_a_reason_for_a_name_that_one_class_has_is_refused() -> None:
    assert language.class_names(Tree({"auth/a.py": "class Card: ..."}), {"Card": "a reason"}) == [
        "Card is listed as shared, and is the name of one class"
    ]


def test_more_reasons_than_ten_are_refused() -> None:
    files = {f"{room}/a.py": "".join(f"class C{i}: ...\n" for i in range(11)) for room in ("auth", "actors")}
    shared = {f"C{i}": "a reason" for i in range(11)}
    assert language.class_names(Tree(files), shared) == ["11 class names are shared, and 10 may be"]


def test_shared_file_names_are_refused_above_the_limit() -> None:
    files = {f"actors/p{i}/same{i % 2}.py": "" for i in range(16)}
    assert len(language.module_names(Tree(files))) == 16
    files.pop("actors/p0/same0.py")
    assert language.module_names(Tree(files)) == []
    common = {f"actors/p{i}/{name}.py": "" for i in range(20) for name in language.COMMON_FILES}
    assert language.module_names(Tree(common)) == []


@pytest.mark.parametrize(
    "line",
    [
        "# Whoever calls it",
        "def test_nobody_waits(): ...",
        "x = 'those who ask'",
        '"""No one is left."""',
        "no_one = 1",
    ],
)
def test_a_pronoun_is_found_in_texts_and_names(line: str) -> None:
    (wrong,) = language.subjects(Tree({"auth/a.py": line}))
    assert wrong.endswith(": name the subject")


@pytest.mark.parametrize("line", ["# one who", "everyones = 1", "# no oneness", "# those that wait"])
def test_other_words_are_no_pronouns(line: str) -> None:
    assert language.subjects(Tree({"auth/a.py": line})) == []


def test_pronouns_are_counted_by_the_thousand_lines() -> None:
    lines = "\n" * 10_000
    assert language.subjects(Tree({"docs/a.md": lines + "Nobody."})) == []
    assert len(language.subjects(Tree({"docs/a.md": lines + "Nobody. Whoever."}))) == 1


def test_sentences_without_a_subject_are_reported_and_questions_are_not() -> None:
    text = "What is wrong.\nWhat is wrong?\n# What is wrong\nIt waits. Who waits is told.\nWhatever comes."
    assert [line.split(": ", 1)[1] for line in language.who_sentences(Tree({"docs/a.md": text}))] == [
        "What is wrong.",
        "It waits. Who waits is told.",
        "Whatever comes.",
    ]


SILENT = "class Card:\n    def go(self): ...\n"


@pytest.mark.parametrize(
    "text",
    [
        SILENT,
        "class Base:\n    def stop(self):\n        'Stop.'\n" + SILENT.replace("Card", "Card(Base)"),
        "class Base(Generic[T]):\n    def stop(self):\n        'Stop.'\n" + SILENT.replace("Card", "Card(Base[int])"),
    ],
)
def test_a_public_method_without_a_docstring_is_refused(text: str) -> None:
    (wrong,) = language.method_docstrings(Tree({"auth/a.py": text}))
    assert wrong.endswith("Card.go has no docstring, and overrides nothing")


@pytest.mark.parametrize(
    "text",
    [
        SILENT.replace("Card", "_Card"),
        SILENT.replace("go", "_go"),
        "class Base:\n    def go(self):\n        'Go.'\n" + SILENT.replace("Card", "Card(Base)"),
        "class Root:\n    def go(self):\n        'Go.'\nclass Base(Root): ...\n" + SILENT.replace("Card", "Card(Base)"),
        "class Shape(Protocol):\n    def go(self):\n        'Go.'\n" + SILENT,
        SILENT.replace("Card", "Card(elsewhere.Base)"),
    ],
)
def test_private_methods_and_overrides_need_no_docstring(text: str) -> None:
    assert language.method_docstrings(Tree({"auth/a.py": text})) == []
