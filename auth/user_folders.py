"""Where a user's files are, as the system has it: what is configured, and what is kept."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_config_dir, user_data_dir


def config_folder(app: str = "greenroom") -> Path:
    """Where a user configures `app`: `$XDG_CONFIG_HOME/greenroom`, mostly `~/.config/greenroom`."""
    return Path(user_config_dir(app, appauthor=False))


def data_folder(app: str = "greenroom") -> Path:
    """Where `app` keeps what is a user's: `$XDG_DATA_HOME/greenroom`, mostly `~/.local/share/greenroom`."""
    return Path(user_data_dir(app))
