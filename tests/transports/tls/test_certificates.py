"""Certificates are tried before anything listens, and errors name the file and the reason."""

from __future__ import annotations

import asyncio
import logging
import ssl
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.transports.http.raw_http import running_listener

from greenroom import ConfigError, HttpConfig, Server
from greenroom.supervision import Supervisor, start, stop
from greenroom.transports.client.http_settings import Trust
from greenroom.transports.tls import BadCertificate, Certificates

from .certificate_authority import CertificateAuthority

if TYPE_CHECKING:
    from collections.abc import Callable


def config(certfile: Path, keyfile: Path | None = None, **settings: Any) -> HttpConfig:
    return HttpConfig(port=0, certfile=certfile, keyfile=keyfile, **settings)


async def serial(port: int, context: ssl.SSLContext) -> str:
    """The certificate that is presented."""
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    shown = writer.get_extra_info("peercert")["serialNumber"]
    writer.transport.abort()
    return str(shown)


# --- errors


@pytest.mark.parametrize("setting", [{"keyfile": "k.pem"}, {"cacertfile": "ca.pem"}, {"http2": True}], ids=str)
def test_tls_settings_need_a_certificate(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="needs a certfile"):
        HttpConfig(**setting)


def test_a_password_appears_nowhere(tmp_path: Path) -> None:
    certfile, keyfile = CertificateAuthority(tmp_path).issue(password=b"hunter2")
    made = config(certfile, keyfile, keyfile_password="hunter2")
    assert "hunter2" not in repr(made)
    with pytest.raises(BadCertificate) as caught:
        Certificates(config(certfile, keyfile, keyfile_password="swordfish"))
    assert "swordfish" not in str(caught.value)
    assert str(caught.value) == f"keyfile {keyfile}: keyfile_password is wrong"


@pytest.mark.parametrize("name", ["certfile", "keyfile", "cacertfile"])
def test_a_missing_file_is_reported(tmp_path: Path, name: str) -> None:
    certfile, keyfile = CertificateAuthority(tmp_path).issue()
    files: dict[str, Any] = {"certfile": certfile, "keyfile": keyfile, name: tmp_path / "none.pem"}
    with pytest.raises(BadCertificate, match=rf"^{name} .*none.pem: there is no such file$"):
        Certificates(HttpConfig(**files))


def test_an_unreadable_file_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certfile, keyfile = CertificateAuthority(tmp_path).issue()
    really: Any = Path.open

    def refused(path: Path, *arguments: Any, **named: Any) -> Any:
        if path == keyfile:
            raise PermissionError(13, "Permission denied")
        return really(path, *arguments, **named)

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(BadCertificate, match="this user may not read it"):
        Certificates(config(certfile, keyfile))


def test_a_directory_is_no_certificate(tmp_path: Path) -> None:
    with pytest.raises(BadCertificate, match=r"Is a directory"):
        Certificates(config(tmp_path))


def nothing(authority: CertificateAuthority) -> dict[str, Any]:
    certfile, keyfile = authority.issue()
    certfile.write_text("nothing")
    return {"certfile": certfile, "keyfile": keyfile}


def no_key(authority: CertificateAuthority) -> dict[str, Any]:
    return {"certfile": authority.issue()[0]}


def another_key(authority: CertificateAuthority) -> dict[str, Any]:
    return {"certfile": authority.issue("one")[0], "keyfile": authority.issue("two")[1]}


def encrypted(authority: CertificateAuthority) -> dict[str, Any]:
    certfile, keyfile = authority.issue(password=b"secret")
    return {"certfile": certfile, "keyfile": keyfile}


def broken(authority: CertificateAuthority) -> dict[str, Any]:
    certfile, keyfile = authority.issue()
    lines = certfile.read_text().splitlines()
    certfile.write_text("\n".join([lines[0], "AAAA", *lines[2:]]))
    return {"certfile": certfile, "keyfile": keyfile}


def no_authority(authority: CertificateAuthority) -> dict[str, Any]:
    certfile, keyfile = authority.issue()
    return {"certfile": certfile, "keyfile": keyfile, "cacertfile": keyfile}


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (nothing, r"certfile .*: there is no certificate in it"),
        (no_key, r"keyfile .*: there is no private key in it"),
        (another_key, r"keyfile .*: the key is not that of the certificate in"),
        (encrypted, r"keyfile .*: it is encrypted: set keyfile_password"),
        (broken, r"OpenSSL cannot use them"),
        (no_authority, r"cacertfile .*: there is no certificate in it"),
    ],
)
def test_an_unusable_certificate_is_reported(
    tmp_path: Path, files: Callable[[CertificateAuthority], dict[str, Any]], told: str
) -> None:
    with pytest.raises(BadCertificate, match=told):
        Certificates(HttpConfig(**files(CertificateAuthority(tmp_path))))


@pytest.mark.parametrize("password", ["hunter2", b"hunter2"])
def test_a_password_opens_the_key(tmp_path: Path, password: str | bytes) -> None:
    certfile, keyfile = CertificateAuthority(tmp_path).issue(password=b"hunter2")
    assert Certificates(config(certfile, keyfile, keyfile_password=password)).context.get_ciphers()


def test_certificate_and_key_may_be_in_one_file(tmp_path: Path) -> None:
    certfile, keyfile = CertificateAuthority(tmp_path).issue()
    both = tmp_path / "both.pem"
    both.write_bytes(keyfile.read_bytes() + certfile.read_bytes())
    assert Certificates(config(both)).context.get_ciphers()


@pytest.mark.parametrize(
    ("begins", "ends", "told"),
    [
        (-10, -1, "the certificate has expired"),
        (1, 30, "the certificate is not valid yet"),
        (-1, 3, "the certificate expires in 3.0 days"),
        (-1, 60, None),
    ],
)
def test_an_expired_or_future_certificate_is_a_warning(
    tmp_path: Path, begins: float, ends: float, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    certfile, keyfile = CertificateAuthority(tmp_path).issue(begins=begins, ends=ends)
    with caplog.at_level(logging.WARNING):
        Certificates(config(certfile, keyfile))
    assert [record.getMessage() for record in caplog.records] == ([f"certfile {certfile}: {told}"] if told else []) or (
        told is not None and told in caplog.text
    )


def test_with_an_unusable_certificate_nothing_listens(tmp_path: Path) -> None:
    server = Server("secure")
    with pytest.raises(BadCertificate):
        server.run("http", config=config(tmp_path / "none.pem"))
    assert server.urls == []


# --- protocols


@pytest.mark.row("ST-12")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_1_2_and_1_3_are_accepted(
    authority: CertificateAuthority, secure: dict[str, Any], version: ssl.TLSVersion
) -> None:
    async with running_listener(**secure) as opened:
        context = authority.client()
        context.minimum_version = context.maximum_version = version
        assert await serial(opened.port, context)


@pytest.mark.row("ST-12")
def test_both_ends_set_the_minimum_of_1_2_themselves(secure: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The defaults of Python and OpenSSL are the same today, but a system may change them."""
    real = ssl.SSLContext.__new__

    def older(cls: type[ssl.SSLContext], *more: Any, **named: Any) -> ssl.SSLContext:
        """With older defaults, or those of a system that needs them."""
        made: ssl.SSLContext = real(cls, *more, **named)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            made.minimum_version = ssl.TLSVersion.TLSv1
        return made

    monkeypatch.setattr(ssl.SSLContext, "__new__", staticmethod(older))
    assert ssl.create_default_context().minimum_version is ssl.TLSVersion.TLSv1
    made = {
        "server": Certificates(HttpConfig(**secure)).context,
        "client": Trust().context(),
        "client with a certificate named": Trust(cacertfile=secure["certfile"]).context(),
    }
    assert {name: each.minimum_version for name, each in made.items()} == dict.fromkeys(made, ssl.TLSVersion.TLSv1_2)


@pytest.mark.row("ST-12")
async def test_tls_before_1_2_is_refused(authority: CertificateAuthority, secure: dict[str, Any]) -> None:
    async with running_listener(**secure) as opened:
        context = authority.client()
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, OSError)):
            await serial(opened.port, context)


@pytest.mark.row("ST-12")
@pytest.mark.parametrize(
    ("http2", "offered", "chosen"),
    [
        (False, ["h2", "http/1.1"], "http/1.1"),
        (False, ["h2"], None),
        (False, [], None),
        (True, ["http/1.1", "h2"], "h2"),
        (True, ["http/1.1"], "http/1.1"),
        (True, [], None),
    ],
)
async def test_the_protocol_is_negotiated_by_alpn(
    authority: CertificateAuthority, secure: dict[str, Any], http2: Any, offered: list[str], chosen: str | None
) -> None:
    async with running_listener(**secure, http2=http2) as opened:
        context = authority.client(alpn=offered)
        _, writer = await asyncio.open_connection("127.0.0.1", opened.port, ssl=context)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == chosen
        writer.transport.abort()


@pytest.mark.row("ST-12")
async def test_client_certificates_are_required_where_configured(
    tmp_path: Path, authority: CertificateAuthority, secure: dict[str, Any]
) -> None:
    ours = CertificateAuthority(tmp_path, "ours")
    async with running_listener(**secure, cacertfile=ours.certfile) as opened:
        good = authority.client(shows=ours.issue("friend"))
        assert await serial(opened.port, good)
        for shows in (None, authority.issue("stranger")):
            reader, writer = await asyncio.open_connection("127.0.0.1", opened.port, ssl=authority.client(shows=shows))
            with pytest.raises(
                ssl.SSLError
            ):  # in TLS 1.3 the refusal arrives after the client takes the handshake for complete
                await reader.read()
            writer.transport.abort()


async def test_a_certificate_is_renewed_without_a_restart(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    certfile, keyfile = authority.issue()
    server = Server("secure")
    spec = server.child_spec("http", config=config(certfile, keyfile))
    supervisor = await start(Supervisor, [spec])
    (url,) = server.urls
    assert url.startswith("https://127.0.0.1:")
    port = int(url.split(":")[2].split("/")[0])
    context = authority.client()
    first = await serial(port, context)
    authority.issue()
    assert await serial(port, context) == first
    server.reload_certificates()
    second = await serial(port, context)
    assert second != first
    keyfile.write_text("half writ")
    with pytest.raises(BadCertificate):
        server.reload_certificates()
    assert await serial(port, context) == second
    await stop(supervisor)
