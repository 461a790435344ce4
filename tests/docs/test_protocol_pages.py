"""The generated pages on the protocol are current."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from greenroom.protocol.errors import ErrorCode
from greenroom.protocol.methods import METHODS, TABLE, SessionEvent, SessionState

from . import automaton_picture, protocol

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", sorted(protocol.pages()))
def test_a_page_is_current(root: Path, name: str) -> None:
    written = (root / protocol.FOLDER / name).read_text(encoding="utf-8")
    assert written == protocol.pages()[name], "run `python -m tests.docs.protocol`"


def test_the_generator_writes_the_compared_pages(tmp_path: Path) -> None:
    (tmp_path / protocol.FOLDER).mkdir(parents=True)
    assert protocol.main(tmp_path) == 0
    assert {path.name: path.read_text("utf-8") for path in (tmp_path / protocol.FOLDER).iterdir()} == protocol.pages()


def test_every_method_and_error_code_is_listed() -> None:
    methods, bad = protocol.methods_page(), protocol.bad_input_page()
    assert [name for name in METHODS if f"| `{name}` |" not in methods] == []
    assert [code for code in ErrorCode if f"| {code.value} | `{code.name}` |" not in bad] == []


def test_every_malformed_template_is_refused() -> None:
    assert protocol.templates_page().count("\n- `'a://") == len(protocol.BAD_TEMPLATES)


def test_the_picture_shows_every_state_and_every_change_of_state() -> None:
    drawn = ET.fromstring(automaton_picture.draw(TABLE))
    texts = [element.text for element in drawn.iter() if element.tag.endswith("}text")]
    assert set(texts) >= {state.value for state in SessionState}
    changes = {(state, rule.state) for (state, _), rule in TABLE.items() if rule.state is not state}
    assert len([element for element in drawn.iter() if element.tag.endswith("}path")]) == len(changes)


def test_a_change_in_the_table_changes_the_page_and_the_picture() -> None:
    changed = {
        **TABLE,
        (SessionState.CLOSED, SessionEvent.INITIALIZE): TABLE[SessionState.NEW, SessionEvent.INITIALIZE],
    }
    assert automaton_picture.draw(changed) != automaton_picture.draw(TABLE)
