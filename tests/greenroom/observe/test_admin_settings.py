"""`Admin`: what is refused when it is made, before anything listens."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from greenroom import ConfigError
from greenroom.auth import APIKeyAuth
from greenroom.observe import Admin

AUTH = APIKeyAuth({"k" * 40: {"subject": "ada"}})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "observer.example", "", "127.0.0.1.example"])
def test_a_listener_that_others_can_reach_needs_credentials_and_a_scope(host: str) -> None:
    with pytest.raises(ConfigError, match=r'write Admin\(host=".*", auth=BearerAuth\(…\), scope="observe"\)'):
        Admin(host=host)
    with pytest.raises(ConfigError, match="has no scope"):
        Admin(host=host, auth=AUTH)
    if host:
        assert not Admin(host=host, auth=AUTH, scope="observe").is_loopback


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.1.2.3"])
def test_on_this_machine_nothing_is_needed(host: str) -> None:
    admin = Admin(host=host)
    assert admin.is_loopback
    assert (admin.acts, admin.faults, admin.capture) == (False, False, False)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"auth": AUTH}, 'write Admin(auth=…, scope="observe")'),
        ({"scope": "observe"}, "Admin(scope=…) needs auth"),
        ({"auth": AUTH, "scope": "see", "acts": True}, 'write Admin(auth=…, scope="see", act_scope="operate", …)'),
        ({"auth": AUTH, "scope": "see", "faults": True}, "needs a scope of its own"),
        ({"acts": 1}, "Admin(acts=…) must be True or False, not 1"),
        ({"faults": "yes"}, "Admin(faults=…) must be True or False"),
        ({"scope": "two words", "auth": AUTH}, "Admin(scope=…) must be one word without blanks"),
        ({"session_lifetime": 0}, "Admin(session_lifetime=…) must be a number of seconds"),
        ({"link_lifetime": float("inf")}, "Admin(link_lifetime=…) must be a number of seconds"),
        ({"max_viewers": 0}, "Admin(max_viewers=…) must be a whole number"),
        ({"capture": "add"}, 'capture=["add"]'),
        ({"port": 70000}, "port must be between 0 and 65535"),
        ({"allowed_hosts": ["http://x"]}, "allowed_hosts must have names"),
        ({"keyfile": "key.pem"}, "keyfile needs a certfile"),
        ({"prot": 9091}, "did you mean port?"),
    ],
)
def test_settings_that_do_not_fit_say_what_to_write(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as told:
        Admin(**settings)
    assert says in str(told.value)


def test_the_settings_are_plain_data_and_name_no_credential() -> None:
    admin = Admin(port=1, capture=["add"], allowed_hosts=["a.example"])
    assert pickle.loads(pickle.dumps(admin)) == admin
    assert "k" * 40 not in repr(Admin(auth=AUTH, scope="observe"))
