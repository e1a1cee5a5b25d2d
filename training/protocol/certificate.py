"""Makes a coordinator's TLS certificate, which is new at each start and published through SSM."""

from __future__ import annotations

import datetime as dt
import ipaddress
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID_DAYS = 90  # a coordinator's certificate expires after so many days


@dataclass(frozen=True)
class Certificate:
    """A certificate and its secret private key, as PEM text."""

    pem: str  # certificate, as PEM text
    key: str  # private key

    def __repr__(self) -> str:
        return "Certificate(...)"

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        descriptor, file_name = tempfile.mkstemp()  # mode 0600; ssl reads keys only from files
        try:
            os.write(descriptor, (self.pem + self.key).encode())
            os.close(descriptor)
            context.load_cert_chain(file_name)
        finally:
            Path(file_name).unlink()
        return context


def make_certificate(host: str, now: dt.datetime) -> Certificate:
    """Make a self-signed certificate for the address `host`.

    The certificate is valid from an hour before `now`, as the clocks of machines differ.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"dyntrain coordinator {host}")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Certificate(
        certificate.public_bytes(serialization.Encoding.PEM).decode(),
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode(),
    )
