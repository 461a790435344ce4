"""The user's folders for configuration, data and state, by the conventions of the operating system."""

from __future__ import annotations

from pathlib import Path

from platformdirs import user_config_dir, user_data_dir, user_state_dir


def config_folder(app: str = "greenroom") -> Path:
    """The configuration folder of `app`: `$XDG_CONFIG_HOME/greenroom`, mostly `~/.config/greenroom`."""
    return Path(user_config_dir(app, appauthor=False))


def data_folder(app: str = "greenroom") -> Path:
    """The data folder of `app`: `$XDG_DATA_HOME/greenroom`, mostly `~/.local/share/greenroom`."""
    return Path(user_data_dir(app))


def state_folder(app: str = "greenroom") -> Path:
    """The folder of `app` for what it may lose: `$XDG_STATE_HOME/greenroom`, mostly `~/.local/state/greenroom`."""
    return Path(user_state_dir(app, appauthor=False))
