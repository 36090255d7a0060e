"""Certificates of the secure lab: two CAs, brokers' and clients' certificates, all as PEM files."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme

KEY_PASSWORD = "keysecret"  # noqa: S105 - of keys made for one test run
"""The password of the clients' keys."""

SCRAM = "SCRAM-SHA-512"
"""A mechanism of the listener `scram`; the other one is SCRAM-SHA-256."""

_AS_USER = "RULE:.*CN=([a-z]+).*/$1/"
"""A client's certificate for `CN=mirror` authenticates it as the user `mirror`, like its password."""


@dataclass(frozen=True, slots=True)
class Pem:
    """The paths of the files."""

    folder: Path

    @property
    def ca(self) -> Path:
        """The CA that brokers and clients trust."""
        return self.folder / "ca.pem"

    @property
    def other_ca(self) -> Path:
        """A CA that has signed none of their certificates."""
        return self.folder / "other-ca.pem"

    def certificate(self, name: str) -> Path:
        """A certificate with its chain."""
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        """Its key, in PKCS #8; a client's is encrypted with `KEY_PASSWORD`, in a form that Java can read."""
        return self.folder / f"{name}.key"


def make_certificates(folder: Path) -> Pem:
    """For brokers on loopback (`broker`, `expired`, `elsewhere`), for the user `mirror` (`client`), and
    one of a client that the brokers don't know (`stranger`)."""
    pem = Pem(folder)
    ca, other = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(str(pem.ca))
    other.cert_pem.write_to_path(str(pem.other_ca))
    now = datetime.now(UTC)
    _write(pem, "broker", ca.issue_cert("127.0.0.1"))
    _write(pem, "expired", ca.issue_cert("127.0.0.1", not_before=now - timedelta(2), not_after=now - timedelta(1)))
    _write(pem, "elsewhere", ca.issue_cert("kafka.example"))
    _write(pem, "client", ca.issue_cert("mirror@drkit.test", common_name="mirror"), KEY_PASSWORD)
    _write(pem, "stranger", other.issue_cert("mirror@drkit.test", common_name="mirror"), KEY_PASSWORD)
    return pem


def tls_listeners(pem: Pem, users: dict[str, str]) -> dict[str, dict[str, str]]:
    """Listeners of a lab (`Lab.up`): `tls` with users and passwords, `scram` with users that an administrator makes
    later (SCRAM-SHA-256 or 512), `mtls` with clients' certificates, and two like `tls` with a certificate that no
    client should take: `expired`, and `elsewhere`, made out to another host.
    """
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    known = " ".join(f'user_{name}="{password}"' for name, password in users.items())

    def with_passwords(certificate: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": "PLAIN",
            "plain.sasl.jaas.config": f"{login} {known};",
            **_keystore(pem, certificate),
        }

    return {
        "tls": with_passwords("broker"),
        "expired": with_passwords("expired"),
        "elsewhere": with_passwords("elsewhere"),
        "scram": {
            "security.protocol": "SASL_SSL",
            "sasl.enabled.mechanisms": f"{SCRAM},SCRAM-SHA-256",
            "scram-sha-512.sasl.jaas.config": scram,
            "scram-sha-256.sasl.jaas.config": scram,
            **_keystore(pem, "broker"),
        },
        "mtls": {
            "security.protocol": "SSL",
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": _AS_USER,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(pem.ca),
            **_keystore(pem, "broker"),
        },
    }


def over_tls(settings: dict[str, str], pem: Pem) -> dict[str, str]:
    """A listener with SASL in the clear, over TLS."""
    return {**settings, "security.protocol": "SASL_SSL", **_keystore(pem, "broker")}


def _keystore(pem: Pem, name: str) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": pem.certificate(name).read_text(),
        "ssl.keystore.key": pem.key(name).read_text(),
    }


def _write(pem: Pem, name: str, certificate: trustme.LeafCert, password: str | None = None) -> None:
    pem.certificate(name).write_bytes(b"".join(blob.bytes() for blob in certificate.cert_chain_pems))
    lock = ["-nocrypt"] if password is None else ["-v1", "PBE-SHA1-3DES", "-passout", f"pass:{password}"]
    subprocess.run(
        ["openssl", "pkcs8", "-topk8", *lock, "-out", pem.key(name)],
        input=certificate.private_key_pem.bytes(),
        check=True,
        capture_output=True,
    )
