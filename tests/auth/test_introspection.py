"""Settings of `Introspection`."""

from __future__ import annotations

from typing import Any

import pytest

from greenroom import ConfigError
from greenroom.auth import Introspection

URL = "https://idp.example/introspect"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"client_id": "", "client_secret": "s"}, "client_id and client_secret"),
        ({"client_id": "c", "client_secret": ""}, "client_id and client_secret"),
        ({"client_id": "c", "client_secret": "s", "most": 0}, "most must be 1 or more"),
        ({"client_id": "c", "client_secret": "s", "fresh": -1.0}, "fresh 0 or more"),
    ],
    ids=str,
)
def test_invalid_introspection_settings_are_refused_by_the_constructor(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Introspection(URL, **given)
