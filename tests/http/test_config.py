"""A configuration that is unsafe, or makes no sense, is refused where it is written, with what to write instead."""

from __future__ import annotations

import pytest

from greenroom.errors import ConfigError
from greenroom.transports.http_checks import Hosts, Origins
from greenroom.transports.http_config import HttpConfig, is_loopback


@pytest.mark.row("ST-02")
@pytest.mark.row("SX-06")
def test_the_defaults_listen_on_this_machine_alone() -> None:
    config = HttpConfig()
    assert (config.host, config.port, config.path) == ("127.0.0.1", 9090, "/mcp")
    assert config.is_loopback
    assert config.session_enabled
    assert config.takes_missing_origin
    assert config.allowed_origins is None


@pytest.mark.row("ST-02")
@pytest.mark.row("ST-25")
def test_defaults_of_what_is_served() -> None:
    config = HttpConfig()
    assert config.enable_get and config.allow_delete and config.require_session and config.validate_protocol_version  # noqa: PT018
    assert config.methods == ("POST", "GET", "DELETE", "OPTIONS")
    assert HttpConfig(enable_get=False).methods == ("POST", "DELETE", "OPTIONS")
    assert HttpConfig(allow_delete=False).methods == ("POST", "GET", "OPTIONS")


@pytest.mark.row("ST-03")
@pytest.mark.row("SX-06")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7", "example.com", "localhost.example.com"])
def test_a_public_address_without_origins_is_refused_with_what_to_do(host: str) -> None:
    with pytest.raises(ConfigError, match="allowed_origins") as refusal:
        HttpConfig(host=host)
    assert "127.0.0.1" in str(refusal.value)


@pytest.mark.row("ST-03")
@pytest.mark.parametrize("origins", [["https://app.example"], "any", ["null"], []])
def test_a_public_address_with_origins_is_fine(origins: list[str]) -> None:
    config = HttpConfig(host="0.0.0.0", allowed_origins=origins)
    assert not config.takes_missing_origin
    Origins(config)


@pytest.mark.parametrize(
    ("host", "is_it"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("[::1]", True),
        ("LOCALHOST", True),
        ("10.0.0.1", False),
    ],
)
def test_what_is_a_loopback_address(host: str, is_it: bool) -> None:  # noqa: FBT001
    assert is_loopback(host) is is_it


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"path": "mcp"}, "slash"),
        ({"path": "/mcp?x"}, "path alone"),
        ({"port": 70000}, "65535"),
        ({"port": -1}, "65535"),
        ({"allowed_origins": "https://a.example"}, "must be a list"),
        ({"allowed_origins": ["*"]}, "wildcards"),
        ({"allowed_hosts": [""]}, "allowed_hosts"),
        ({"accept": "none"}, "accept"),
        ({"heartbeat": 0}, "heartbeat"),
        ({"write_timeout": float("inf")}, "write_timeout"),
        ({"body_timeout": "1"}, "body_timeout"),
        ({"max_body": 0}, "max_body"),
        ({"max_body": True}, "max_body"),
        ({"max_connections": 1.5}, "max_connections"),
        ({"sse_retry": -1}, "sse_retry"),
        ({"drain_grace": -1}, "drain_grace"),
        ({"send_buffer": 0}, "send_buffer"),
    ],
)
def test_what_makes_no_sense_is_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        HttpConfig(**settings)  # type: ignore[arg-type]


def test_lists_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(ConfigError, match="scheme://"):
        Origins(HttpConfig(allowed_origins=["app.example"]))
    with pytest.raises(ConfigError, match="name:port"):
        Hosts(HttpConfig(allowed_hosts=["http://app.example"]))
