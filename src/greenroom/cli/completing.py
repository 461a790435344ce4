"""What a shell offers for a target: the names of the configuration. A shell that asks gets words and nothing else, whatever is wrong with a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def names(begun: str, config: Path | None = None) -> list[tuple[str, str]]:
    """Those of the configured names that begin so, each with the line where it stands. A name that cannot be used is not offered."""
    from greenroom.config.reader import read  # noqa: PLC0415 - as all commands load what they need

    found = read() if config is None else read(config)
    return [(name, str(server.source)) for name, server in found.enabled.items() if name.startswith(begun)]
