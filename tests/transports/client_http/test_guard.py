"""The guard for URLs that a server names: public addresses over https, and others only if allowed."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

import pytest

from greenroom.transports.client.fetch import Fetcher
from greenroom.transports.client.http_address import (
    ForbiddenAddress,
    Guard,
    ServerUrl,
    embedded_addresses,
    is_local,
    resolve,
)

from .scripted_server import ReceivedRequest, scripted_server

PUBLIC = ["93.184.216.34", "2606:2800:220:1::1", "64:ff9b::5db8:d822"]
LOOPBACK = ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"]
PRIVATE = ["10.0.0.1", "172.16.0.1", "192.168.1.1", "fd00::1", "::ffff:10.0.0.1"]
NEVER = [
    *("169.254.169.254", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "ff0e::1", "fec0::1"),
    *("64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "::ffff:169.254.169.254"),
]

# IANA's special-purpose registries, both as of 2025-10-09. Of the globally reachable blocks there, no web server is among the anycast
# addresses of protocols and the identifiers in 192.0.0.0/24 and 2001::/23, so these are refused with the rest of their block.
NO, YES = False, True
REGISTRY_4 = {
    "0.0.0.0/8": NO,
    "0.0.0.0/32": NO,
    "10.0.0.0/8": NO,
    "100.64.0.0/10": NO,
    "127.0.0.0/8": NO,
    "169.254.0.0/16": NO,
    "172.16.0.0/12": NO,
    "192.0.0.0/24": NO,
    "192.0.0.0/29": NO,
    "192.0.0.8/32": NO,
    "192.0.0.9/32": NO,  # reachable: Port Control Protocol anycast
    "192.0.0.10/32": NO,  # reachable: TURN anycast
    "192.0.0.170/32": NO,
    "192.0.0.171/32": NO,
    "192.0.2.0/24": NO,
    "192.31.196.0/24": YES,
    "192.52.193.0/24": YES,
    "192.88.99.0/24": NO,
    "192.88.99.2/32": NO,
    "192.168.0.0/16": NO,
    "192.175.48.0/24": YES,
    "198.18.0.0/15": NO,
    "198.51.100.0/24": NO,
    "203.0.113.0/24": NO,
    "240.0.0.0/4": NO,
    "255.255.255.255/32": NO,
}
REGISTRY_6 = {
    "::1/128": NO,
    "::/128": NO,
    "::ffff:0:0/96": NO,  # except those that embed a public IPv4 address
    "64:ff9b::/96": YES,  # except those that embed an IPv4 address that is not public
    "64:ff9b:1::/48": NO,
    "100::/64": NO,
    "100:0:0:1::/64": NO,
    "2001::/23": NO,
    "2001::/32": NO,
    "2001:1::1/128": NO,  # reachable: Port Control Protocol anycast
    "2001:1::2/128": NO,  # reachable: TURN anycast
    "2001:1::3/128": NO,  # reachable: DNS-SD registration anycast
    "2001:2::/48": NO,
    "2001:3::/32": NO,  # reachable: AMT
    "2001:4:112::/48": NO,  # reachable: AS112
    "2001:10::/28": NO,
    "2001:20::/28": NO,  # reachable: ORCHIDv2
    "2001:30::/28": NO,  # reachable: drones' entity tags
    "2001:db8::/32": NO,
    "2002::/16": NO,
    "2620:4f:8000::/48": YES,
    "3fff::/20": NO,
    "5f00::/16": NO,
    "fc00::/7": NO,
    "fe80::/10": NO,
}
# Blocks of other registries and RFCs: multicast, deprecated forms, and unassigned space.
OTHERS = {
    "224.0.0.0/4": NO,
    "::/8": NO,
    "100::/8": NO,
    "::/96": NO,  # IPv4-compatible
    "::ffff:0:0:0/96": NO,  # IPv4-translated, RFC 2765
    "200::/7": NO,
    "400::/6": NO,
    "800::/5": NO,
    "1000::/4": NO,
    "4000::/3": NO,
    "6000::/3": NO,
    "8000::/3": NO,
    "a000::/3": NO,
    "c000::/3": NO,
    "e000::/4": NO,
    "f000::/5": NO,
    "f800::/6": NO,
    "fe00::/9": NO,
    "fec0::/10": NO,  # site-local, RFC 3879
    "ff00::/8": NO,
}
BLOCKS = {ipaddress.ip_network(block): public for block, public in (REGISTRY_4 | REGISTRY_6 | OTHERS).items()}
MAPPED, NAT64 = ipaddress.ip_network("::ffff:0:0/96"), ipaddress.ip_network("64:ff9b::/96")


def allowed(guard: Guard, host: str, ip: str) -> bool:
    try:
        guard.check(host, ip)
    except ForbiddenAddress:
        return False
    return True


@pytest.mark.parametrize(
    "guard", [Guard(), Guard(loopback=True), Guard(private=True), Guard(loopback=True, private=True)]
)
def test_the_guard_allows_public_addresses_and_configured_others(guard: Guard) -> None:
    for ip in PUBLIC:
        assert allowed(guard, "idp.example", ip)
    for ip in PRIVATE:
        assert allowed(guard, "idp.example", ip) is guard.private
    for ip in LOOPBACK:
        assert allowed(guard, "localhost", ip) is guard.loopback
        assert not allowed(guard, "idp.example", ip)  # a foreign name that resolves to this machine
    for ip in NEVER:
        assert not allowed(guard, "idp.example", ip)
        assert not allowed(guard, "localhost", ip)


def listed(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """The entry of the tables above for an address, by the narrowest block that contains it."""
    if ip in MAPPED or ip in NAT64:
        return listed(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF))
    found = [block for block in BLOCKS if ip in block]
    return BLOCKS[max(found, key=lambda block: block.prefixlen)] if found else True


def edges(block: ipaddress.IPv4Network | ipaddress.IPv6Network) -> set[str]:
    """The addresses at both ends of a block, inside and outside of it, and one in its middle."""
    first, last = int(block.network_address), int(block.broadcast_address)
    kind, most = type(block.network_address), (1 << block.max_prefixlen) - 1
    near = {first, first + 1, (first + last) // 2, last - 1, last, first - 1, last + 1}
    return {str(kind(each)) for each in near if 0 <= each <= most}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_the_edges_of_each_registered_block_are_distinguished(block: ipaddress.IPv4Network) -> None:
    for ip in edges(block):
        assert allowed(Guard(), "idp.example", ip) is listed(ipaddress.ip_address(ip)), ip


@pytest.mark.parametrize("block", REGISTRY_4)
@pytest.mark.parametrize("form", ["::ffff:{}", "64:ff9b::{}"], ids=["mapped", "NAT64"])
def test_an_embedded_ipv4_address_counts(form: str, block: str) -> None:
    for ip in edges(ipaddress.ip_network(block)):
        assert allowed(Guard(), "idp.example", form.format(ip)) is listed(ipaddress.ip_address(ip)), ip
        assert not allowed(Guard(loopback=True), "idp.example", form.format("127.0.0.1"))


@pytest.mark.parametrize("guard", [Guard(), Guard(loopback=True, private=True)], ids=["public", "all"])
@pytest.mark.parametrize("ip", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "93.184.216.34"])
def test_a_form_that_is_never_public_is_refused_whatever_it_embeds(ip: str, guard: Guard) -> None:
    number = int(ipaddress.IPv4Address(ip))
    high, low = f"{number >> 16:x}", f"{number & 0xFFFF:x}"
    for form in (
        f"::{ip}",
        f"::ffff:0:{ip}",
        f"64:ff9b:1::{ip}",
        f"64:ff9b:1:{high}:{low}::",
        f"2002:{high}:{low}::1",
        f"2001:0:{high}:{low}::1",
        f"2001:0:4136:e378:8000:63bf:{number >> 16 ^ 0xFFFF:x}:{number & 0xFFFF ^ 0xFFFF:x}",
        f"fe80::5efe:{ip}",
    ):
        assert not allowed(guard, "idp.example", form), form
        assert not allowed(guard, "localhost", form), form


@pytest.mark.parametrize("mark", ["0:5efe", "200:5efe"])
def test_the_embedded_address_of_an_isatap_tunnel_counts_as_well(mark: str) -> None:
    """ISATAP, RFC 5214: the last 32 bits of an address in any network."""
    assert allowed(Guard(), "idp.example", f"2606:2800:220:1:{mark}:93.184.216.34")
    for ip in ("10.0.0.1", "127.0.0.1", "169.254.169.254"):
        assert not allowed(Guard(), "idp.example", f"2606:2800:220:1:{mark}:{ip}")


def test_embedded_addresses_are_extracted() -> None:
    def of(text: str) -> list[str]:
        return [str(each) for each in embedded_addresses(ipaddress.ip_address(text))]

    assert of("::ffff:10.0.0.1") == ["10.0.0.1"]
    assert of("64:ff9b::a00:1") == ["64:ff9b::a00:1", "10.0.0.1"]
    assert of("93.184.216.34") == ["93.184.216.34"]
    assert of("2606:2800:220:1::1") == ["2606:2800:220:1::1"]


@pytest.mark.parametrize(
    ("host", "local"),
    [("localhost", True), ("LOCALHOST.", True), ("127.0.0.1", True), ("::1", True), ("local.example", False)],
)
def test_names_and_addresses_of_this_machine_are_local(host: str, *, local: bool) -> None:
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
def test_secrets_are_not_sent_without_tls(url: str, guard: Guard, *, fine: bool) -> None:
    if fine:
        guard.check_scheme(ServerUrl.of(url))
    else:
        with pytest.raises(ForbiddenAddress, match="not https"):
            guard.check_scheme(ServerUrl.of(url))


async def test_a_name_with_a_forbidden_address_is_not_contacted() -> None:
    with pytest.raises(ForbiddenAddress):
        await resolve("127.0.0.1", 443, Guard())
    assert [ip for _, (ip, *_) in await resolve("127.0.0.1", 443, Guard(loopback=True))] == ["127.0.0.1"]


GOOD, BAD = ["93.184.216.34", "2606:2800:220:1::1", "93.184.216.35"], ["10.0.0.1", "::1", "::ffff:169.254.169.254"]


class Names:
    """A resolver with fixed answers that counts the queries."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self._answer)

    async def _answer(self, host: str, port: int, **_: object) -> list[object]:
        self.asked.append(host)
        ips = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        family = {4: socket.AF_INET, 6: socket.AF_INET6}
        return [
            (family[ipaddress.ip_address(ip).version], socket.SOCK_STREAM, 6, "", (ip, port, *([0, 0] * (":" in ip))))
            for ip in ips
        ]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("at", range(4))
async def test_every_address_of_a_name_is_checked(monkeypatch: pytest.MonkeyPatch, at: int, bad: str) -> None:
    Names(monkeypatch, [*GOOD[:at], bad, *GOOD[at:]])
    with pytest.raises(ForbiddenAddress, match="is not public"):
        await resolve("idp.example", 443, Guard())
    Names(monkeypatch, GOOD)
    assert [ip for _, (ip, *_) in await resolve("idp.example", 443, Guard())] == GOOD


async def test_the_connection_goes_to_a_checked_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves differently later is not resolved again."""
    async with scripted_server(GET=_document) as server:
        address = ServerUrl.of(server.url)
        names = Names(monkeypatch, ["127.0.0.1"], ["192.0.2.1"])
        found = await Fetcher(Guard(loopback=True))(f"http://localhost:{address.port}/mcp")
        assert (found.status, found.body) == (200, b"{}")
        assert (names.asked, server.requests[0].headers["host"]) == (["localhost"], f"localhost:{address.port}")


async def test_no_request_is_sent_if_one_address_of_a_name_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_server(GET=_document) as server:
        Names(monkeypatch, ["127.0.0.1", "10.0.0.1"])
        with pytest.raises(ForbiddenAddress):
            await Fetcher(Guard(loopback=True))(f"http://localhost:{ServerUrl.of(server.url).port}/mcp")
        assert not server.connections


async def _document(received: ReceivedRequest) -> None:
    await received.reply(200, b"{}")


async def test_the_target_of_a_redirect_is_checked_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    async def moved(received: ReceivedRequest) -> None:
        await received.reply(302, location=f"http://idp.example:{ServerUrl.of(server.url).port}/mcp")

    async with scripted_server(GET=moved) as server:
        Names(monkeypatch, ["127.0.0.1"])
        with pytest.raises(ForbiddenAddress):
            await Fetcher(Guard(loopback=True), redirects=2)(f"http://localhost:{ServerUrl.of(server.url).port}/mcp")
        assert len(server.requests) == 1
