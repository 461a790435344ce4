"""The client over TLS: an unknown server is not trusted, and client certificates are presented when asked for."""

from __future__ import annotations

import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from tests.transports.tls.certificate_authority import CertificateAuthority

from greenroom import ConfigError, HttpConfig
from greenroom.transports.client.errors import ConnectFailed, ConnectionLost
from greenroom.transports.client.http_route import HttpRoute
from greenroom.transports.client.http_settings import Trust
from greenroom.transports.client.interfaces import UnansweredRequest

from .test_own_server import company
from .wire_owner import HELLO, open_wire, text

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path


@asynccontextmanager
async def secured(
    authority: CertificateAuthority, clients: CertificateAuthority | None = None, *, ends: float = 20
) -> AsyncGenerator[str]:
    """Our server with a certificate of that authority."""
    certfile, keyfile = authority.issue(ends=ends)
    server = company()
    config = HttpConfig(
        port=0, certfile=certfile, keyfile=keyfile, cacertfile=None if clients is None else clients.certfile
    )
    async with server.started():
        yield await server.listen(config=config)


async def refused(route: HttpRoute) -> Exception:
    async with open_wire(route) as owner:
        owner.ask("initialize", HELLO)
        heard = await owner.hear()
        assert isinstance(heard, UnansweredRequest)
        return heard.error


async def test_a_server_with_a_trusted_authority_is_called(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    async with (
        secured(authority) as url,
        open_wire(HttpRoute(url, trust=Trust(cacertfile=authority.certfile))) as owner,
    ):
        await owner.greet()
        assert text(await owner.answer(owner.call("echo", text="hello"))) == "hello"
        context = ssl.create_default_context(cafile=authority.certfile)
        async with open_wire(HttpRoute(url, trust=context)) as other:
            await other.greet()


async def test_a_server_with_an_unknown_authority_is_refused(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    other = CertificateAuthority(tmp_path, "other")
    async with secured(authority) as url:
        for route in (HttpRoute(url), HttpRoute(url, trust=Trust(cacertfile=other.certfile))):
            error = await refused(route)
            assert isinstance(error, ConnectFailed)
            assert "not trusted" in str(error)


async def test_a_wrong_host_name_and_an_expired_certificate_are_refused(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    trust = Trust(cacertfile=authority.certfile)
    async with secured(authority) as url:
        error = await refused(HttpRoute(url.replace("127.0.0.1", "127.0.0.2"), trust=trust))
        assert isinstance(error, ConnectFailed)
    async with secured(authority, ends=-0.5) as url:
        error = await refused(HttpRoute(url, trust=trust))
        assert isinstance(error, ConnectFailed)
        assert "expired" in str(error)


async def test_a_server_that_asks_for_a_client_certificate_gets_it(tmp_path: Path) -> None:
    authority, clients = CertificateAuthority(tmp_path), CertificateAuthority(tmp_path, "clients")
    certfile, keyfile = clients.issue("me", password=b"hush")
    trust = Trust(cacertfile=authority.certfile, certfile=certfile, keyfile=keyfile, keyfile_password=b"hush")
    async with secured(authority, clients) as url:
        async with open_wire(HttpRoute(url, trust=trust)) as owner:
            await owner.greet()
            assert text(await owner.answer(owner.call("echo", text="hello"))) == "hello"
        error = await refused(HttpRoute(url, trust=Trust(cacertfile=authority.certfile)))
        assert isinstance(error, ConnectFailed | ConnectionLost)


async def test_a_server_without_tls_is_refused(tmp_path: Path) -> None:
    server = company()
    async with server.started():
        url = await server.listen(config=HttpConfig(port=0))
        error = await refused(HttpRoute(url.replace("http:", "https:")))
        assert isinstance(error, ConnectFailed)
    async with secured(CertificateAuthority(tmp_path)) as url:
        assert isinstance(await refused(HttpRoute(url.replace("https:", "http:"))), Exception)


def test_unusable_files_are_named(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.pem"
    empty = tmp_path / "empty.pem"
    empty.touch()
    for trust in (
        Trust(cacertfile=nowhere),
        Trust(cacertfile=empty),
        Trust(certfile=nowhere),
        Trust(certfile=empty),
        Trust(keyfile=nowhere),
    ):
        with pytest.raises(ConfigError, match="file"):
            HttpRoute("https://127.0.0.1/", trust=trust)
    assert "hush" not in repr(Trust(keyfile_password="hush"))
