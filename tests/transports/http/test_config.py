"""An unsafe or invalid `HttpConfig` is refused where it is made, with what to write instead."""

from __future__ import annotations

import pytest

from greenroom.errors import ConfigError
from greenroom.transports.http_config import HttpConfig, is_loopback
from greenroom.transports.http_request import AllowedOrigins


@pytest.mark.row("ST-02")
@pytest.mark.row("SX-06")
@pytest.mark.row("26-H5")
def test_the_defaults_listen_on_this_machine_only() -> None:
    config = HttpConfig()
    assert (config.host, config.port, config.path) == ("127.0.0.1", 8000, "/mcp")
    assert config.is_loopback
    assert config.session_enabled
    assert config.allow_missing_origin
    assert config.allowed_origins is None


@pytest.mark.row("ST-02")
@pytest.mark.row("ST-25")
def test_the_defaults_of_served_features() -> None:
    config = HttpConfig()
    assert config.enable_get and config.allow_delete and config.require_session and config.validate_protocol_version  # noqa: PT018
    assert config.methods == ("POST", "GET", "DELETE", "OPTIONS")
    assert HttpConfig(enable_get=False).methods == ("POST", "DELETE", "OPTIONS")
    assert HttpConfig(allow_delete=False).methods == ("POST", "GET", "OPTIONS")


def test_the_defaults_of_limits_for_peers() -> None:
    config = HttpConfig()
    assert (config.max_body, config.bodies, config.max_header) == (4 * 1024 * 1024, 256 * 1024 * 1024, 32 * 1024)
    assert (config.body_timeout, config.header_timeout, config.write_timeout) == (30.0, 30.0, 20.0)
    assert (config.keep_alive, config.heartbeat, config.drain_grace) == (75.0, 30.0, None)
    assert (config.max_connections, config.max_streams, config.http2) == (16_384, 128, False)


@pytest.mark.row("ST-03")
@pytest.mark.row("SX-06")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.7", "example.com", "localhost.example.com"])
def test_a_public_address_without_origins_is_refused_with_advice(host: str) -> None:
    with pytest.raises(ConfigError, match="allowed_origins") as refusal:
        HttpConfig(host=host)
    assert "127.0.0.1" in str(refusal.value)


@pytest.mark.row("ST-03")
@pytest.mark.parametrize("origins", [["https://app.example"], "any", ["null"], []])
def test_a_public_address_with_origins_is_accepted(origins: list[str]) -> None:
    config = HttpConfig(host="0.0.0.0", allowed_origins=origins)
    assert config.allow_missing_origin
    AllowedOrigins(config)


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
def test_loopback_addresses_are_recognised(host: str, is_it: bool) -> None:  # noqa: FBT001
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
        ({"allow_missing_origin": None}, "True or False"),
        ({"plain": "no"}, "plain must be True or False"),
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
def test_invalid_settings_are_refused(settings: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        HttpConfig(**settings)  # type: ignore[arg-type]


def test_lists_with_invalid_entries_are_refused() -> None:
    with pytest.raises(ConfigError, match="scheme://"):
        AllowedOrigins(HttpConfig(allowed_origins=["app.example"]))
    for wrong, instead in (
        ("http://app.example", "app.example"),
        ("https://app.example:8443/mcp", "app.example:8443"),
        ("app.example/mcp", "app.example"),
    ):
        with pytest.raises(ConfigError, match=f"name:port, not '{wrong}': write '{instead}', without a scheme"):
            HttpConfig(allowed_hosts=[wrong])
    with pytest.raises(ConfigError, match=r"name:port, not 'a b'$"):
        HttpConfig(allowed_hosts=["a b"])
