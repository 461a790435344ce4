"""Docstrings in the styles of Google, numpy and Sphinx, taken apart."""

from __future__ import annotations

from greenroom.protocol.docstrings import parse_docstring


def test_sections_are_not_the_description() -> None:
    text, names = parse_docstring(
        """Do it.

        At length: yes.

        Args:
            a: the first
            b (int, optional): the second,
                which is long

                and has two paragraphs
            *rest: the others
            **more: even more: with a colon

        Returns:
            a: nothing of a

        Raises:
            ValueError: never
        """
    )
    assert text == "Do it.\n\nAt length: yes."
    assert names == {
        "a": "the first",
        "b": "the second, which is long and has two paragraphs",
        "rest": "the others",
        "more": "even more: with a colon",
    }


def test_text_after_a_section_belongs_to_the_description() -> None:
    assert parse_docstring("A.\n\nArgs:\n    a: b\n\nZ.") == ("A.\n\nZ.", {"a": "b"})


def test_no_docstring() -> None:
    assert parse_docstring(None) == ("", {})
    assert parse_docstring("") == ("", {})


def test_a_line_that_resembles_a_section_is_description() -> None:
    text = "Example:\n    a: b\n\nSee also: c"
    assert parse_docstring(text) == (text, {})


def test_numpys_sections() -> None:
    text, names = parse_docstring(
        """Do it.

        At length: yes.

        Parameters
        ----------
        a : int
            the first
        b, c : str, optional
            the others,
            together
        *rest
            what is left

        Returns
        -------
        int
            the sum

        Raises
        ------
        ValueError
            never

        Notes
        -----
        It is slow.
        """
    )
    assert text == "Do it.\n\nAt length: yes.\n\nNotes\n-----\nIt is slow."
    assert names == {"a": "the first", "b": "the others, together", "c": "the others, together", "rest": "what is left"}


def test_sphinxs_fields() -> None:
    text, names = parse_docstring(
        """Do it.

        :param a: the first
        :param str b: the second,
            which is long
        :type a: int
        :raises ValueError: never
        :return: a sum
        :rtype: int

        It is slow.
        """
    )
    assert text == "Do it.\n\nIt is slow."
    assert names == {"a": "the first", "b": "the second, which is long"}


def test_a_rule_below_a_line_is_no_section() -> None:
    text = "Title\n-----\nname : of a thing"
    assert parse_docstring(text) == (text, {})
