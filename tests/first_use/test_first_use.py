"""The first tutorial of the command line, executed at terminals: the output is what the page shows."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from .page import HOME, PAGE, NotAsOnThePageError, Saved, Words, free_ports, play, steps_of
from .shells import Ptys

pytestmark = pytest.mark.greenroom(clock="real")

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.deep
@pytest.mark.row("ST-22", "CB-06", "CB-11", "OP-03")
def test_the_page_is_what_is_seen(tmp_path: Path) -> None:
    home = tmp_path / "ada"
    home.mkdir()
    words = Words({f"{HOME}/greenroom/.venv/bin/python": sys.executable, HOME: str(home), **free_ports()})
    steps = [each for each in steps_of(PAGE.read_text(encoding="utf-8")) if isinstance(each, Saved) or each.compared]

    with Ptys(home) as shells:
        play(PAGE.name, steps, home, shells, words)


PLAIN = """
```console
$ echo one; echo
one

$ printf 'Name: '; read -r name; printf 'Sure? [y/N]: '; read -r sure; echo "$name, $sure."
Name: Ada
Sure? [y/N]:
Ada, .
$ printf 'Name: '; read -r name; echo "never $name"
Name: ^C
```

```python no-run: saved as note.txt
at /u/ada, port 8000
```

```console other
$ cat note.txt
at /u/ada, port 8000
$ sh -c 'echo begun; exec sleep 600'
begun
^C
$ echo over
over
```
"""


def done(text: str, home: Path) -> None:
    words = Words({HOME: str(home), **free_ports()})
    with Ptys(home) as shells:
        play("a page", steps_of(text), home, shells, words)


def test_questions_are_answered_and_running_commands_interrupted(tmp_path: Path) -> None:
    done(PLAIN, tmp_path)

    assert str(tmp_path) in (tmp_path / "note.txt").read_text()
    assert "8000" not in (tmp_path / "note.txt").read_text()


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("\none\n", "\ntwo\n", "-two\n+one"),
        ("\none\n\n$", "\none\n$", "echo one; echo\n"),
        ("Ada, .", "Bob, .", "-Bob, .\n+Ada, ."),
        ("$ echo over\nover", "$ echo over\nand out", "-and out\n+over"),
        ("$ echo one; echo\none", "one", "begins with what is typed"),
    ],
)
def test_a_page_that_shows_something_else_is_refused(tmp_path: Path, right: str, wrong: str, says: str) -> None:
    with pytest.raises(NotAsOnThePageError) as refused:
        done(PLAIN.replace(right, wrong, 1), tmp_path)

    assert says in str(refused.value)


def test_varying_output_is_normalised_to_the_page() -> None:
    words = Words({HOME: "/elsewhere/ada", "8000": "51234"})

    assert (
        words.typed("cd /u/ada; serve --http 8000; echo 18000") == "cd /elsewhere/ada; serve --http 51234; echo 18000"
    )
    assert words.seen(
        "http://127.0.0.1:51234/a?state=Xy-z&x=1 /elsewhere/ada for 59 minutes as c-0123456789abcdef"
    ) == ("http://127.0.0.1:8000/a?state=…&x=1 /u/ada for 60 minutes as c-…")
