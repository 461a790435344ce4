"""Prints figures about the code; with `--list`, the findings and both routes of a call as well. `--write` writes the page of packages, and the tables of names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import greenroom
from greenroom.supervision import run

from . import language, lazy_names, packages
from .shape import SMALL, code_lines, header_share, small_modules
from .tree import Tree

CLIENT = """
import sys, greenroom
greenroom.Client("http://127.0.0.1:9/mcp")
print(sum(each.startswith("greenroom") for each in sys.modules))
"""


def main() -> None:
    """Print the figures, or write the page."""
    root = Path(__file__).parents[2]
    tree = Tree.of(root)
    if "--write" in sys.argv:
        lazy_names.write(root, tree)
        print(packages.write(root, Tree.of(root)))
        return
    from .routes import routes  # noqa: PLC0415 - importing it fails while a table of names is incomplete, and `--write` must work then

    loaded = subprocess.run([sys.executable, "-P", "-c", CLIENT], capture_output=True, check=True, text=True)
    served, called = run(routes)
    for what, count in (
        ("files of the product", f"{len(tree.sources):,}"),
        ("lines of code, without blanks, comments and docstrings", f"{sum(map(code_lines, tree.sources)):,}"),
        ("lines of module docstrings and imports", f"{header_share(tree):.1%}"),
        (f"modules of fewer than {SMALL} lines with one importer", f"{len(small_modules(tree))}"),
        (
            "files that a tools/call over HTTP passes; changes of room (without supervision)",
            f"{len(served.modules)}; {served.changes()} ({served.changes(above=True)})",
        ),
        ("files that a client's call passes; objects for one POST", f"{len(called.modules)}; {called.sent.total()}"),
        ("modules that an HTTP client loads", loaded.stdout.strip()),
        ("names at the front door", f"{len(greenroom.__all__)}"),
        (
            "public class names used more than once",
            f"{sum(len(paths) > 1 for paths in language.classes(tree).values())}",
        ),
        ("modules whose file name another module has", f"{len(language.shared_files(tree))}"),
        ("pronouns without a subject in a thousand lines", f"{language.pronoun_rate(tree):.2f}"),
        ("sentences that begin with Who, What or Nobody", f"{len(language.who_sentences(tree))}"),
    ):
        print(f"{what:80} {count}")
    if "--list" in sys.argv:
        print("\nsmall modules with one importer:", *small_modules(tree), sep="\n  ")
        print("\nfile names that several modules have:", *language.shared_files(tree), sep="\n  ")
        print("\npronouns without a subject:", *language.pronouns(tree), sep="\n  ")
        print("\nsentences that begin with Who, What or Nobody:", *language.who_sentences(tree), sep="\n  ")
        for what, route in (("served", served), ("called", called)):
            made = [f"makes {count} {name}" for name, count in route.made.items()]
            print(f"\n{what}:", *route.modules, *made, sep="\n  ")


if __name__ == "__main__":
    main()
