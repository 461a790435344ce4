"""A certificate authority for tests, created while they run."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(*, ca: bool) -> x509.KeyUsage:
    """The key usage. Python 3.13 checks by default that a CA declares it (`VERIFY_X509_STRICT`)."""
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )


class CertificateAuthority:
    """Signs certificates, and is trusted by each peer that is given its own."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name(name)
        self.certfile = folder / f"{name}.pem"
        self.certfile.write_bytes(self._signed(self._subject, self._key, -1, 30, ca=True))

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, begins: float, ends: float, *, ca: bool
    ) -> bytes:
        now = dt.datetime.now(dt.UTC)
        names: Sequence[x509.GeneralName] = (
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + dt.timedelta(days=begins))
            .not_valid_after(now + dt.timedelta(days=ends))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(_usage(ca=ca), critical=True)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        )
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def issue(
        self, name: str = "server", *, begins: float = -1, ends: float = 20, password: bytes | None = None
    ) -> tuple[Path, Path]:
        """A certificate valid from so many days from now to so many, and its key, as files."""
        key = ec.generate_private_key(ec.SECP256R1())
        certfile, keyfile = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certfile.write_bytes(self._signed(_name(name), key, begins, ends, ca=False))
        hidden = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        keyfile.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, hidden),
        )
        return certfile, keyfile

    def client(self, *, alpn: Sequence[str] = (), shows: tuple[Path, Path] | None = None) -> ssl.SSLContext:
        """The TLS context of a client that trusts this authority."""
        context = ssl.create_default_context(cafile=self.certfile)
        if alpn:
            context.set_alpn_protocols(list(alpn))
        if shows is not None:
            context.load_cert_chain(*shows)
        return context
