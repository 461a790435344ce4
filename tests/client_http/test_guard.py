"""Where a client goes on a server's word: public addresses over https, and nowhere else unless it was told."""

from __future__ import annotations

import ipaddress

import pytest

from greenroom.transports.client.guard import Forbidden, Guard, carried, is_local
from greenroom.transports.client.http_address import Address

PUBLIC = ["93.184.216.34", "2606:2800:220:1::1"]
LOOPBACK = ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"]
PRIVATE = ["10.0.0.1", "172.16.0.1", "192.168.1.1", "fd00::1"]
NEVER = [
    *("169.254.169.254", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "ff02::1"),
    *("64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::ffff:169.254.169.254"),
]


def allowed(guard: Guard, host: str, ip: str) -> bool:
    try:
        guard.check(host, ip)
    except Forbidden:
        return False
    return True


@pytest.mark.parametrize(
    "guard", [Guard(), Guard(loopback=True), Guard(private=True), Guard(loopback=True, private=True)]
)
def test_which_addresses_a_name_may_lead_to(guard: Guard) -> None:
    for ip in PUBLIC:
        assert allowed(guard, "idp.example", ip)
    for ip in PRIVATE:
        assert allowed(guard, "idp.example", ip) is guard.private
    for ip in LOOPBACK:
        assert allowed(guard, "localhost", ip) is guard.loopback
        assert not allowed(guard, "idp.example", ip)  # a name of somebody else's that leads to this machine
    for ip in NEVER:
        assert not allowed(guard, "idp.example", ip)
        assert not allowed(guard, "localhost", ip)


def test_what_an_address_carries_counts_as_well() -> None:
    assert [str(each) for each in carried(carried_of("::ffff:10.0.0.1"))] == ["10.0.0.1"]
    assert "10.0.0.1" in [str(each) for each in carried(carried_of("64:ff9b::a00:1"))]
    assert "10.0.0.1" in [str(each) for each in carried(carried_of("::10.0.0.1"))]
    assert [str(each) for each in carried(carried_of("93.184.216.34"))] == ["93.184.216.34"]


def carried_of(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(text)


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost", True), ("LOCALHOST.", True), ("127.0.0.1", True), ("::1", True), ("local.example", False)],
)
def test_this_machine(host: str, *, local: bool) -> None:
    assert is_local(host) is local


@pytest.mark.parametrize(
    ("url", "guard", "fine"),
    [
        ("https://idp.example/", Guard(), True),
        ("http://idp.example/", Guard(loopback=True, private=True), False),
        ("http://localhost/", Guard(), False),
        ("http://localhost/", Guard(loopback=True), True),
    ],
)
def test_nothing_travels_in_the_open(url: str, guard: Guard, *, fine: bool) -> None:
    if fine:
        guard.check_scheme(Address.of(url))
    else:
        with pytest.raises(Forbidden, match="not https"):
            guard.check_scheme(Address.of(url))


async def test_a_name_that_leads_to_a_forbidden_address_is_not_followed() -> None:
    with pytest.raises(Forbidden):
        await Guard().resolve(Address.of("https://127.0.0.1/"))
    assert [ip for _, ip in await Guard(loopback=True).resolve(Address.of("https://127.0.0.1/"))] == ["127.0.0.1"]
