"""A server that no other process could find: it has no name in its module."""

from __future__ import annotations

from greenroom import Server


def main() -> None:
    """Serve."""
    Server("hidden").run("http", port=0, workers=2)


main()
