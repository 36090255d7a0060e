"""A secured lab's files: a CA, the brokers' certificate, and a password for each user.

Clients use SASL_SSL with SCRAM-SHA-512. drkit has a different user on each cluster, which is not a super user;
`APPLICATION` is the user of the applications, with which a fence is proven.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from drkit.files import write_atomically

LISTENER: Final = "scram"
"""The listener of a secured lab's users."""
MECHANISM: Final = "SCRAM-SHA-512"
APPLICATION: Final = "app"
ADMINISTRATOR: Final = "admin"
"""Names the properties of whoever comes by the plain listener, as a super user without a name."""
_LIFE = timedelta(days=3650)
_MARGIN = timedelta(days=1)
"""Clients whose clocks are behind refuse the expired certificate, too."""
_EARLIER = 2 * _MARGIN
"""How long ago the certificates begin: clients whose clocks are behind accept them, too."""


def drkit_user(alias: str) -> str:
    """The user of drkit on a cluster: a different one on each."""
    return f"drkit-{alias}"


@dataclass(frozen=True, slots=True)
class SecureDir:
    """The folder `secure/` of a lab: only its owner can read it."""

    path: Path

    @property
    def authority(self) -> Path:
        """The CA's certificate (PEM), which clients trust."""
        return self.path / "ca.pem"

    @property
    def keystore(self) -> Path:
        """The brokers' key and certificate (PEM)."""
        return self.path / "broker.pem"

    @property
    def expired_keystore(self) -> Path:
        """The same with a certificate whose life is over: for brokers that clients must refuse."""
        return self.path / "broker-expired.pem"

    def password_file(self, user: str) -> Path:
        """The file with a user's password."""
        return self.path / f"{user}.password"

    def properties_file(self, user: str, alias: str) -> Path:
        """The file with a user's properties for Kafka's own tools: `--command-config`."""
        return self.path / f"{user}@{alias}.properties"

    def password(self, user: str) -> str:
        """A user's password."""
        return self.password_file(user).read_text(encoding="utf-8").strip()

    def make(self, users: list[str]) -> None:
        """Write certificates and passwords of a new lab."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.path.chmod(0o700)
        authority, keystore, expired = _certificates()
        write_atomically(self.authority, authority, mode=0o644)  # no secret: other users' clients need it
        write_atomically(self.keystore, keystore)
        write_atomically(self.expired_keystore, expired)
        for user in users:
            write_atomically(self.password_file(user), secrets.token_hex(16) + "\n")

    def listener(self) -> dict[str, str]:
        """The brokers' listener for users (`Layout.listeners`)."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": MECHANISM,
            f"{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.keystore),
        }

    def client(self, user: str) -> dict[str, str | dict[str, str]]:
        """A user's client properties for `drkit.toml`."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": MECHANISM,
            "sasl.username": user,
            "sasl.password": {"file": str(self.password_file(user))},
            "ssl.ca.location": str(self.authority),
        }


def _certificates() -> tuple[bytes, bytes, bytes]:
    """A CA's certificate, the brokers' key and certificate for loopback, and the same with an expired one; PEM."""
    authority_key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    authority_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "drkit lab")])
    ends = now + _LIFE
    authority = (
        _builder(authority_name, authority_name, authority_key, authority_key, now - _EARLIER, ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    keystores = [_keystore(authority_name, authority_key, now - _EARLIER, end) for end in (ends, now - _MARGIN)]
    return authority.public_bytes(Encoding.PEM), keystores[0], keystores[1]


def _keystore(
    authority_name: x509.Name, authority_key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime
) -> bytes:
    """A new key of the brokers, and its certificate for loopback; PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    certificate = (
        _builder(name, authority_name, key, authority_key, begin, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + certificate.public_bytes(Encoding.PEM)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer_key: ec.EllipticCurvePrivateKey,
    begin: datetime,
    end: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )
