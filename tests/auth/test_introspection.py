"""What an introspection is made with."""

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
        ({"client_id": "c", "client_secret": "s", "most": 0}, "most is 1 or more"),
        ({"client_id": "c", "client_secret": "s", "fresh": -1.0}, "fresh 0 or more"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_where_it_is_written(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Introspection(URL, **given)
